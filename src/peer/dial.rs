//! Outgoing connections to peers: one function builds all of them.

use std::time::Duration;
use tonic::transport::{Channel, Endpoint, Uri};

/// Time to connect: beyond any round trip in a cluster, short enough for the next URL's turn.
const CONNECT: Duration = Duration::from_secs(3);
/// Bytes that a peer may send on a stream before this side has read them.
const WINDOW_BYTES: u32 = 1 << 20;

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The URL cannot be used.
    #[error("{url}: {why}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody answers.
    #[error("cannot connect to {url}: {why}")]
    Connect {
        /// The URL.
        url: String,
        /// What the system says.
        why: String,
    },
}

/// Connects to a peer URL (`http://HOST:PORT` or `unix://PATH`).
///
/// # Errors
/// See [`DialError`].
pub async fn channel(url: &str) -> Result<Channel, DialError> {
    let bad = |why: String| DialError::Url { url: url.to_owned(), why };
    if url.starts_with("https://") || url.starts_with("unixs://") {
        return Err(bad("TLS between members is not in this version; use http://".into()));
    }
    let socket = url.strip_prefix("unix://").map(str::to_owned);
    // The name of the authority is not used on a Unix socket, but there has to be one.
    let target = if socket.is_some() { "http://localhost" } else { url };
    let endpoint = Endpoint::from_shared(target.to_owned())
        .map_err(|error| bad(error.to_string()))?
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let connected = match socket {
        None => endpoint.connect().await,
        Some(path) => {
            let connector = tower::service_fn(move |_: Uri| {
                let path = path.clone();
                async move {
                    let stream = tokio::net::UnixStream::connect(path).await?;
                    Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
                }
            });
            endpoint.connect_with_connector(connector).await
        }
    };
    connected.map_err(|error| DialError::Connect { url: url.to_owned(), why: whole(&error) })
}

/// An error with its causes: the outermost says only "transport error".
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}
