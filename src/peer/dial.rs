//! Outgoing connections to peers: one function builds all of them, plain or in TLS.

use crate::edge::{Failure, Tls};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
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

/// Connects to members. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    tls: Option<Arc<Tls>>,
}

impl Dialer {
    /// With what `https` URLs need; without it only plain ones can be dialled.
    pub fn new(tls: Option<Arc<Tls>>) -> Self {
        Self { tls }
    }

    /// Connects to a peer URL: `http://HOST:PORT`, `https://HOST:PORT`, `unix://PATH` or
    /// `unixs://PATH`. The certificate of a member must be valid for the URL's host.
    ///
    /// # Errors
    /// See [`DialError`].
    pub async fn channel(&self, url: &str) -> Result<Channel, DialError> {
        let tls = if url.starts_with("https://") || url.starts_with("unixs://") {
            Some(self.tls.clone().ok_or_else(|| {
                DialError::Url {
                    url: url.to_owned(),
                    why: "this member has no certificate to dial it with; give --peer-cert-file, \
                      --peer-key-file and --peer-trusted-ca-file, or --peer-auto-tls"
                        .into(),
                }
            })?)
        } else {
            None
        };
        channel(url, tls).await
    }
}

async fn channel(url: &str, tls: Option<Arc<Tls>>) -> Result<Channel, DialError> {
    let bad = |why: String| DialError::Url { url: url.to_owned(), why };
    let (_, address) = url.split_once("://").ok_or_else(|| bad("it has no scheme".into()))?;
    let address = address.to_owned();
    let is_socket = url.starts_with("unix");
    // The name of the authority is not used on a Unix socket, but there has to be one. Encryption
    // is the connector's business: what is built on top of it need not know.
    let target =
        if is_socket { "http://localhost".to_owned() } else { format!("http://{address}") };
    let endpoint = Endpoint::from_shared(target)
        .map_err(|error| bad(error.to_string()))?
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let connected = match (is_socket, tls) {
        (false, None) => endpoint.connect().await,
        (true, None) => {
            let connector = tower::service_fn(move |_: Uri| {
                let address = address.clone();
                async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(address).await?)) }
            });
            endpoint.connect_with_connector(connector).await
        }
        (true, Some(tls)) => {
            let connector = tower::service_fn(move |_: Uri| {
                let (address, tls) = (address.clone(), tls.clone());
                async move {
                    let socket = UnixStream::connect(address).await?;
                    let stream = tls.dial("localhost", socket).await;
                    stream.map(TokioIo::new).map_err(Failure::explain)
                }
            });
            endpoint.connect_with_connector(connector).await
        }
        (false, Some(tls)) => {
            let connector = tower::service_fn(move |_: Uri| {
                let (address, tls) = (address.clone(), tls.clone());
                async move {
                    let socket = TcpStream::connect(&address).await?;
                    socket.set_nodelay(true)?;
                    let host = address.rsplit_once(':').map_or(&*address, |(host, _)| host);
                    let host = host.trim_start_matches('[').trim_end_matches(']');
                    tls.dial(host, socket).await.map(TokioIo::new).map_err(Failure::explain)
                }
            });
            endpoint.connect_with_connector(connector).await
        }
    };
    connected.map_err(|error| DialError::Connect { url: url.to_owned(), why: whole(&error) })
}

/// An error with its causes: the outermost says only "transport error".
pub(super) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}
