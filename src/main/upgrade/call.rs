//! One HTTP/1.1 request to a member, plain or in TLS, over TCP or a Unix socket.

use assay::config::ListenUrl;
use assay::edge::Failure;
use assay::edge::tls::Caller;
use http::header::{CONNECTION, HOST};
use http::{Method, Request};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Longest answer that is read: a table of members takes some kilobytes.
const BODY_MAX_BYTES: usize = 1 << 20;

/// Sends requests.
pub(super) struct Client {
    /// For `https` and `unixs`.
    pub(super) tls: Option<Caller>,
    /// Time for a whole answer.
    pub(super) limit: Duration,
}

/// An answer.
pub(super) struct Answer {
    /// Status code.
    pub(super) code: u16,
    /// The text.
    pub(super) body: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// Who is at the other end could not be checked.
    #[error("{0} needs --cacert, the authorities that signed the members' certificates")]
    NoAuthorities(ListenUrl),
    /// Nobody listens.
    #[error("cannot connect to {url}: {why}; is the member running, and is this its client URL?")]
    Connect {
        /// Where.
        url: ListenUrl,
        /// What the system says.
        why: io::Error,
    },
    /// No encrypted connection.
    #[error("no TLS connection to {url}: {why}")]
    Tls {
        /// Where.
        url: ListenUrl,
        /// What is wrong with whom.
        why: io::Error,
    },
    /// The member wants to know who asks.
    #[error(
        "{url} refuses this client ({why}): show a certificate that it verifies (--cert, --key)"
    )]
    Refused {
        /// Where.
        url: ListenUrl,
        /// What it says.
        why: String,
    },
    /// The answer is missing, or is none.
    #[error("{url} did not answer: {why}")]
    Answer {
        /// Where.
        url: ListenUrl,
        /// Why.
        why: String,
    },
}

impl Client {
    /// Sends a request without a body.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) async fn send(
        &self,
        method: Method,
        url: &ListenUrl,
        path: &str,
    ) -> Result<Answer, CallError> {
        let answer = tokio::time::timeout(self.limit, self.connect_and_send(method, url, path));
        answer.await.unwrap_or_else(|_| {
            let why = format!("nothing came within {}", humantime::format_duration(self.limit));
            Err(CallError::Answer { url: url.clone(), why })
        })
    }

    async fn connect_and_send(
        &self,
        method: Method,
        url: &ListenUrl,
        path: &str,
    ) -> Result<Answer, CallError> {
        if url.is_tls() && self.tls.is_none() {
            return Err(CallError::NoAuthorities(url.clone()));
        }
        let failed = |why| CallError::Connect { url: url.clone(), why };
        if url.is_unix() {
            let socket = UnixStream::connect(url.address()).await.map_err(failed)?;
            return self.secure(socket, method, url, path).await;
        }
        let socket = TcpStream::connect(url.address()).await.map_err(failed)?;
        self.secure(socket, method, url, path).await
    }

    async fn secure<S>(
        &self,
        socket: S,
        method: Method,
        url: &ListenUrl,
        path: &str,
    ) -> Result<Answer, CallError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(tls) = self.tls.as_ref().filter(|_| url.is_tls()) else {
            return exchange(socket, method, url, path).await;
        };
        let host = if url.is_unix() { "localhost" } else { url.host() };
        let stream = tls
            .dial(host, socket)
            .await
            .map_err(|error| CallError::Tls { url: url.clone(), why: Failure::explain(error) })?;
        exchange(stream, method, url, path).await
    }
}

async fn exchange<S>(
    stream: S,
    method: Method,
    url: &ListenUrl,
    path: &str,
) -> Result<Answer, CallError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: &(dyn Error + 'static)| told(url, error);
    let io = TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(io).await.map_err(|error| failed(&error))?;
    // It ends with the answer; its errors come back there.
    tokio::spawn(connection);
    let host = if url.is_unix() { "localhost" } else { url.address() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, host)
        .header(CONNECTION, "close")
        .body(Empty::<bytes::Bytes>::new())
        .map_err(|error| failed(&error))?;
    let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let code = response.status().as_u16();
    let body = Limited::new(response.into_body(), BODY_MAX_BYTES).collect().await;
    let body = body.map_err(|error| failed(&*error))?.to_bytes();
    Ok(Answer { code, body: String::from_utf8_lossy(&body).into_owned() })
}

/// An error with its innermost cause: the outer ones say only that something failed. With TLS 1.3 a
/// server refuses a client's certificate only after the handshake, so the refusal is found here.
fn told(url: &ListenUrl, error: &(dyn Error + 'static)) -> CallError {
    let url = url.clone();
    let mut error = error;
    loop {
        let refused = error.downcast_ref::<io::Error>().map(Failure::of);
        if refused == Some(Failure::RefusedOurs) {
            return CallError::Refused { url, why: error.to_string() };
        }
        match error.source() {
            Some(inner) => error = inner,
            None => return CallError::Answer { url, why: error.to_string() },
        }
    }
}
