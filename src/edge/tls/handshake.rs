//! The server's side of a handshake, and what is said when it fails.

use super::certificate;
use super::failure::Failure;
use super::{Built, Tls};
use crate::edge::conn::{ConnInfo, Remote};
use crate::edge::listen::Port;
use crate::telemetry::clock;
use crate::telemetry::repeats::Repeats;
use bytes::Bytes;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A refused client gets this long to read why: closing a socket with unread bytes in it makes the
/// kernel reset the connection, and the alert is lost.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes read from a refused client before it is cut off.
const LINGER_BYTES: usize = 64 << 10;
/// Answer to plain HTTP on a TLS listener, in Go's words. An HTTP/2 client sees that it is HTTP/1.
const PLAINTEXT: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; \
    charset=utf-8\r\nConnection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// What the handshake proved of the client.
#[derive(Debug, Default)]
pub(in crate::edge) struct Proven {
    /// It showed a certificate that passed every check.
    pub(in crate::edge) verified: bool,
    /// The user that this certificate names.
    pub(in crate::edge) user: Option<Arc<str>>,
}

/// A handshake that failed: why, and the exact words.
pub(in crate::edge) type Refused = (Failure, String);

impl Tls {
    /// Does the server's side of a handshake within `deadline`.
    pub(in crate::edge) async fn accept<S>(
        &self,
        socket: S,
        remote: Remote,
        deadline: Duration,
    ) -> Result<(Box<TlsStream<S>>, Proven), Refused>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let built = self.current();
        let shake = Box::pin(async {
            let accept = TlsAcceptor::from(Arc::clone(&built.server)).accept(socket);
            match accept.into_fallible().await {
                Ok(stream) => prove(stream, remote, &built).await,
                Err((error, socket)) => Err(((Failure::of(&error), error.to_string()), socket)),
            }
        });
        match timeout(deadline, shake).await {
            Ok(Ok((stream, proven))) => Ok((Box::new(stream), proven)),
            Ok(Err((refused, socket))) => {
                linger(socket).await;
                Err(refused)
            }
            Err(_) => Err((Failure::Timeout, format!("no TLS handshake within {deadline:?}"))),
        }
    }
}

async fn prove<S>(
    mut stream: TlsStream<S>,
    remote: Remote,
    built: &Built,
) -> Result<(TlsStream<S>, Proven), (Refused, S)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
    let Some(shown) = shown else { return Ok((stream, Proven::default())) };
    if let (true, Remote::Tcp(from)) = (built.check_address, remote)
        && let Err(why) = certificate::check_address(&shown, from.ip()).await
    {
        // The client believes that it is in: it gets a regular end.
        let _ = stream.shutdown().await;
        return Err(((Failure::Address, why), stream.into_inner().0));
    }
    let user = built.names_user.then(|| certificate::common_name(&shown)).flatten();
    Ok((stream, Proven { verified: true, user: user.map(Arc::from) }))
}

/// Lets the last words arrive.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S) {
    let read = async {
        let mut scratch = [0u8; 4096];
        let mut left = LINGER_BYTES;
        while let Ok(n) = socket.read(&mut scratch).await {
            left = left.saturating_sub(n);
            if n == 0 || left == 0 {
                break;
            }
        }
    };
    // Whatever happens here, the connection is over.
    let _ = timeout(LINGER, read).await;
}

/// Tells a client that speaks plain HTTP to a TLS listener what is wrong.
pub(in crate::edge) async fn refuse_plaintext<S>(mut socket: S, info: &ConnInfo, logs: &Logs)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    logs.refused(info, Failure::Plaintext, "first record does not look like a TLS handshake");
    if socket.write_all(PLAINTEXT).await.is_ok() && socket.shutdown().await.is_ok() {
        linger(socket).await;
    }
}

/// Says why a TLS client was sent away from a plain listener. The caller drops the socket.
pub(in crate::edge) fn refuse_tls(info: &ConnInfo, logs: &Logs) {
    logs.refused(info, Failure::PlainListener, "TLS handshake on a plain listener");
}

/// Keeps a flood of failures from flooding the log: one line per minute for each port, address
/// without its port and reason.
#[derive(Debug, Default)]
pub(in crate::edge) struct Logs(Repeats<(Port, Option<IpAddr>, Failure)>);

impl Logs {
    pub(in crate::edge) fn refused(&self, info: &ConnInfo, failure: Failure, error: &str) {
        let Some(withheld) = self.admit(info, failure, clock::now_ns()) else { return };
        tracing::warn!(
            remote = %info.remote,
            reason = failure.as_str(),
            error,
            withheld,
            "rejected connection on {} endpoint: {}",
            info.port.as_str(),
            failure.hint(),
        );
    }

    /// Whether a line may be written at `now_ns`, and how many were not since the last one.
    pub(super) fn admit(&self, info: &ConnInfo, failure: Failure, now_ns: u64) -> Option<u64> {
        self.0.admit((info.port, info.remote.ip(), failure), now_ns)
    }
}

/// A socket whose first bytes were read already to find out what it speaks.
pub(in crate::edge) struct Prefixed<S> {
    first: Bytes,
    socket: S,
}

impl<S> Prefixed<S> {
    pub(in crate::edge) fn new(first: Bytes, socket: S) -> Self {
        Self { first, socket }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, buf);
        }
        let n = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
