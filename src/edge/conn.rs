//! One accepted connection: find the protocol, shake hands, serve it, end it.

use super::guard::{ConnState, Guarded};
use super::limits::{
    CONNECTION_WINDOW_BYTES, ConnObserver, HEADER_LIST_BYTES, LOCAL_ERROR_RESETS, Limits,
    PENDING_ACCEPT_RESETS, Place,
};
use super::listen::Port;
use super::route::{Dispatch, Routes, Rpc};
use super::share::Share;
use super::tls::{self, Failure, Logs, Prefixed, Tls};
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// First bytes of every HTTP/2 connection without TLS.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// First byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A TCP peer.
    Tcp(SocketAddr),
    /// A process of this machine.
    Unix,
}

impl Remote {
    /// The address without its port, which differs from connection to connection; none of a Unix
    /// socket.
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip().to_canonical()),
            Self::Unix => None,
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("@"),
        }
    }
}

/// Facts about a connection; every request carries an `Arc` of it in its extensions.
#[derive(Debug)]
pub struct ConnInfo {
    /// Who is at the other end.
    pub remote: Remote,
    /// The port it came in on.
    pub port: Port,
    /// Whether it is encrypted.
    pub tls: bool,
    /// Whether the client proved with a certificate who it is.
    pub verified: bool,
    /// The user that this certificate names, where certificates name users (`--client-cert-auth`).
    pub user: Option<Arc<str>>,
}

impl ConnInfo {
    /// A connection that has said nothing yet.
    pub(super) fn new(remote: Remote, port: Port) -> Self {
        Self { remote, port, tls: false, verified: false, user: None }
    }
}

/// Whether a request came over TLS.
pub fn is_encrypted(extensions: &http::Extensions) -> bool {
    extensions.get::<Arc<ConnInfo>>().is_some_and(|info| info.tls)
}

/// Whether a request came from this machine or from somebody with a verified certificate.
pub fn is_trusted(extensions: &http::Extensions) -> bool {
    let verified = extensions.get::<Arc<ConnInfo>>().is_some_and(|info| info.verified);
    verified || from_this_machine(extensions)
}

/// Whether a request came from this machine: a Unix socket or a loopback address. A proxy on this
/// machine makes its clients look so too.
pub fn from_this_machine(extensions: &http::Extensions) -> bool {
    let info = extensions.get::<Arc<ConnInfo>>();
    info.is_some_and(|info| info.remote.ip().is_none_or(|ip| ip.is_loopback()))
}

/// Where a request came from, for people.
pub fn origin(extensions: &http::Extensions) -> String {
    match extensions.get::<Arc<ConnInfo>>() {
        Some(info) => info.remote.ip().map_or("a Unix socket".to_owned(), |ip| ip.to_string()),
        None => "an unknown place".to_owned(),
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Closed {
    /// The client went or the exchange was complete.
    Done,
    /// Nothing that could be a protocol arrived in time.
    FirstBytes,
    /// HTTP/2 began but no frame came in time.
    Silent,
    /// A TLS handshake on a plain listener.
    Tls,
    /// No TLS handshake on a TLS listener, or one that failed.
    Handshake,
    /// The client pinged too often.
    TooManyPings,
    /// Bytes that are not the protocol, a reset or another I/O error.
    Failed,
    /// The server stopped.
    Stopped,
}

impl Closed {
    /// Every reason, in the order of [`Closed::index`].
    pub const ALL: [Closed; 8] = [
        Closed::Done,
        Closed::FirstBytes,
        Closed::Silent,
        Closed::Tls,
        Closed::Handshake,
        Closed::TooManyPings,
        Closed::Failed,
        Closed::Stopped,
    ];

    /// Position in [`Closed::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Label in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::FirstBytes => "first_bytes_timeout",
            Self::Silent => "silent",
            Self::Tls => "tls",
            Self::Handshake => "handshake",
            Self::TooManyPings => "too_many_pings",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// What connections of one edge share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) limits: Arc<Limits>,
    pub(super) observer: Arc<dyn ConnObserver>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) logs: Arc<Logs>,
}

/// What a listener speaks: plain, TLS, or both on one address.
#[derive(Clone)]
pub(super) struct Transport {
    pub(super) plain: bool,
    pub(super) tls: Option<Arc<Tls>>,
}

/// Serves one connection to its end.
pub(super) async fn serve<S, G>(
    socket: S,
    info: ConnInfo,
    transport: Transport,
    routes: Routes<G>,
    shared: Shared,
    place: (Place, Share),
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    G: Rpc,
{
    let state = Arc::new(ConnState::default());
    let port = info.port;
    shared.observer.opened(port);
    let why = run(socket, info, transport, routes, &shared, &state).await;
    let (read, written) = (state.read.load(Relaxed), state.written.load(Relaxed));
    // First the place, so that whoever hears of the end finds it free.
    drop(place);
    shared.observer.closed(port, why, read, written);
}

async fn run<S, G>(
    mut socket: S,
    mut info: ConnInfo,
    transport: Transport,
    routes: Routes<G>,
    shared: &Shared,
    state: &Arc<ConnState>,
) -> Closed
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    G: Rpc,
{
    let (protocol, bytes) = match first_bytes(&mut socket, shared, state).await {
        Ok(first) => first,
        Err(why) => return why,
    };
    let tls = match (protocol, transport.tls) {
        (Protocol::Tls, None) => {
            shared.observer.handshake_failed(info.port, Failure::PlainListener);
            tls::refuse_tls(&info, &shared.logs);
            return Closed::Tls;
        }
        (Protocol::Tls, Some(tls)) => tls,
        (_, Some(_)) if !transport.plain => {
            shared.observer.handshake_failed(info.port, Failure::Plaintext);
            tls::refuse_plaintext(socket, &info, &shared.logs).await;
            return Closed::Handshake;
        }
        _ => return speak(socket, protocol, bytes, info, routes, shared, state).await,
    };
    let mut stop = shared.stop.clone();
    let (socket, deadline) = (Prefixed::new(bytes, socket), shared.limits.handshake);
    let shaken = tokio::select! {
        shaken = tls.accept(socket, info.remote, deadline) => shaken,
        _ = stop.wait_for(|stop| *stop) => return Closed::Stopped,
    };
    let (mut socket, proven) = match shaken {
        Ok(shaken) => shaken,
        Err((failure, error)) => {
            shared.observer.handshake_failed(info.port, failure);
            shared.logs.refused(&info, failure, &error);
            return Closed::Handshake;
        }
    };
    (info.tls, info.verified, info.user) = (true, proven.verified, proven.user);
    match first_bytes(&mut socket, shared, state).await {
        Ok((Protocol::Tls, _)) => Closed::Failed,
        Ok((protocol, bytes)) => {
            Box::pin(speak(socket, protocol, bytes, info, routes, shared, state)).await
        }
        Err(why) => why,
    }
}

/// Waits for what says which protocol it is.
async fn first_bytes<S: AsyncRead + Unpin>(
    socket: &mut S,
    shared: &Shared,
    state: &ConnState,
) -> Result<(Protocol, Bytes), Closed> {
    let mut stop = shared.stop.clone();
    let sniffed = tokio::select! {
        sniffed = timeout(shared.limits.first_bytes, sniff(socket)) => sniffed,
        _ = stop.wait_for(|stop| *stop) => return Err(Closed::Stopped),
    };
    match sniffed {
        Ok(Ok(Some((protocol, bytes)))) => {
            state.read.fetch_add(bytes.len() as u64, Relaxed);
            Ok((protocol, bytes))
        }
        Ok(Ok(None)) => Err(Closed::Done),
        Ok(Err(_)) => Err(Closed::Failed),
        Err(_) => Err(Closed::FirstBytes),
    }
}

/// Serves HTTP of either version.
async fn speak<S, G>(
    socket: S,
    protocol: Protocol,
    bytes: Bytes,
    info: ConnInfo,
    routes: Routes<G>,
    shared: &Shared,
    state: &Arc<ConnState>,
) -> Closed
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    G: Rpc,
{
    let limits = &*shared.limits;
    let stop = shared.stop.clone();
    let dispatch = Dispatch::new(routes, Arc::new(info), Arc::clone(state));
    match protocol {
        // `run` has dealt with it.
        Protocol::Tls => Closed::Failed,
        Protocol::Http1 => {
            let io = TokioIo::new(Guarded::http1(socket, bytes, Arc::clone(state)));
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(limits.header);
            let conn = pin!(http.serve_connection(io, dispatch).with_upgrades());
            drive(conn, |conn| conn.graceful_shutdown(), stop, state, Duration::MAX).await
        }
        Protocol::Http2 => {
            let min_time = limits.keepalive_min_time;
            let io = TokioIo::new(Guarded::http2(socket, bytes, Arc::clone(state), min_time));
            let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            http.timer(TokioTimer::new())
                .max_concurrent_streams(limits.max_concurrent_streams)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_header_list_size(HEADER_LIST_BYTES)
                .max_pending_accept_reset_streams(PENDING_ACCEPT_RESETS)
                .max_local_error_reset_streams(LOCAL_ERROR_RESETS)
                .keep_alive_interval(
                    (!limits.keepalive_interval.is_zero()).then_some(limits.keepalive_interval),
                )
                .keep_alive_timeout(limits.keepalive_timeout);
            let conn = pin!(http.serve_connection(io, dispatch));
            drive(conn, |conn| conn.graceful_shutdown(), stop, state, limits.header).await
        }
    }
}

/// Polls a hyper connection to its end, passing on the stop signal once. An HTTP/2 connection must
/// show a first frame within `first_frame`.
async fn drive<C>(
    mut conn: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
    mut stop: watch::Receiver<bool>,
    state: &ConnState,
    first_frame: Duration,
) -> Closed
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut stopped = pin!(stop.wait_for(|stop| *stop));
    let mut silent = pin!(async {
        if first_frame == Duration::MAX {
            std::future::pending::<()>().await;
        }
        sleep(first_frame).await;
    });
    let (mut stopping, mut checked) = (false, false);
    loop {
        tokio::select! {
            biased;
            result = conn.as_mut() => {
                return if state.too_many_pings.load(Relaxed) {
                    Closed::TooManyPings
                } else if result.is_err() {
                    Closed::Failed
                } else if stopping {
                    Closed::Stopped
                } else {
                    Closed::Done
                };
            }
            _ = stopped.as_mut(), if !stopping => {
                stopping = true;
                shut_down(conn.as_mut());
            }
            () = silent.as_mut(), if !checked => {
                checked = true;
                if !state.frame_seen.load(Relaxed) {
                    return Closed::Silent;
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Tls,
    Http1,
    Http2,
}

/// Reads until the protocol is known: at most the 24 bytes of the HTTP/2 preface. `None` when the
/// client closed without a byte.
async fn sniff<S: AsyncRead + Unpin>(socket: &mut S) -> std::io::Result<Option<(Protocol, Bytes)>> {
    let mut bytes = [0u8; PREFACE.len()];
    let mut have = 0;
    loop {
        let n = socket.read(&mut bytes[have..]).await?;
        have += n;
        let seen = &bytes[..have];
        let protocol = match seen.first() {
            None => return Ok(None),
            Some(&TLS_HANDSHAKE) => Protocol::Tls,
            Some(_) if seen == PREFACE => Protocol::Http2,
            // Closed in the middle of a preface: the HTTP/1 parser says what is wrong with it.
            Some(_) if n == 0 || !PREFACE.starts_with(seen) => Protocol::Http1,
            Some(_) => continue,
        };
        return Ok(Some((protocol, Bytes::copy_from_slice(seen))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trusted_are_this_machine_and_those_who_proved_who_they_are() {
        let trusted = |remote: Remote, verified| {
            let mut info = ConnInfo::new(remote, Port::Client);
            (info.tls, info.verified) = (true, verified);
            let mut extensions = http::Extensions::new();
            extensions.insert(Arc::new(info));
            is_trusted(&extensions)
        };
        let tcp = |address: &str| Remote::Tcp(address.parse().unwrap());
        for here in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(trusted(tcp(here), false), "{here}");
        }
        assert!(trusted(Remote::Unix, false));
        for elsewhere in ["10.0.0.1:1", "0.0.0.0:1", "[2001:db8::1]:1", "[::ffff:10.0.0.1]:1"] {
            assert!(!trusted(tcp(elsewhere), false), "{elsewhere}: encrypted is not proven");
            assert!(trusted(tcp(elsewhere), true), "{elsewhere}");
        }
        assert!(!is_trusted(&http::Extensions::new()), "nobody knows where it comes from");
    }
}
