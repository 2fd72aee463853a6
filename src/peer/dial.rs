//! Outgoing connections to peers: one function builds all of them.

use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
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

/// An encrypted connection.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// Encrypts outgoing connections; given by whoever owns certificates.
pub trait Secure: Send + Sync + 'static {
    /// Does our side of the handshake with `host` over a plain connection.
    fn dial(&self, host: String, plain: TcpStream) -> Dialling;
}

/// A handshake under way.
pub type Dialling = Pin<Box<dyn Future<Output = io::Result<Box<dyn Socket>>> + Send>>;

/// How outgoing connections are encrypted; none: `https` URLs cannot be dialled.
pub type Security = Option<Arc<dyn Secure>>;

/// Connects to a peer URL (`http://HOST:PORT`, `https://HOST:PORT` or `unix://PATH`).
///
/// # Errors
/// See [`DialError`].
pub async fn channel(url: &str, security: &Security) -> Result<Channel, DialError> {
    let bad = |why: String| DialError::Url { url: url.to_owned(), why };
    let socket = url.strip_prefix("unix://").map(str::to_owned);
    let secured = url.strip_prefix("https://").map(str::to_owned);
    if url.starts_with("unixs://") {
        return Err(bad("TLS on a Unix socket is not in this version; use unix://".into()));
    }
    let security = match (&secured, security) {
        (Some(_), None) => {
            return Err(bad("this member has no certificates for peers: give --peer-cert-file, \
                            --peer-key-file and --peer-trusted-ca-file"
                .into()));
        }
        (_, security) => security.clone(),
    };
    // The name of the authority is not used on a Unix socket, but there has to be one; encryption
    // is the connector's, so the scheme is plain for everybody above it.
    let target = match (&socket, &secured) {
        (Some(_), _) => "http://localhost".to_owned(),
        (None, Some(authority)) => format!("http://{authority}"),
        (None, None) => url.to_owned(),
    };
    let endpoint = Endpoint::from_shared(target)
        .map_err(|error| bad(error.to_string()))?
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let connected = match socket {
        None => match (secured, security) {
            (Some(authority), Some(security)) => {
                let connector =
                    tower::service_fn(move |_: Uri| encrypted(authority.clone(), security.clone()));
                endpoint.connect_with_connector(connector).await
            }
            _ => endpoint.connect().await,
        },
        Some(path) => {
            let connector = tower::service_fn(move |_: Uri| {
                let path = path.clone();
                async move {
                    let stream = tokio::net::UnixStream::connect(path).await?;
                    Ok::<_, std::io::Error>(TokioIo::new(stream))
                }
            });
            endpoint.connect_with_connector(connector).await
        }
    };
    connected.map_err(|error| DialError::Connect { url: url.to_owned(), why: whole(&error) })
}

/// A TLS connection to `host:port`.
async fn encrypted(
    authority: String,
    security: Arc<dyn Secure>,
) -> io::Result<TokioIo<Box<dyn Socket>>> {
    let plain = TcpStream::connect(&authority).await?;
    plain.set_nodelay(true)?;
    let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    security.dial(host, plain).await.map(TokioIo::new)
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
