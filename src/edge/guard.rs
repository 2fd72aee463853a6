//! The socket as hyper sees it: replays the bytes that were read to find the protocol, counts
//! bytes, and ends HTTP/2 connections of clients that ping too often.

use super::authority::Authorities;
use super::frames::{ACK, DATA, Frame, Frames, GOAWAY, HEADERS, PING};
use super::pings::{Pings, Verdict};
use crate::telemetry::clock;
use bytes::{Buf, Bytes, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Error code of the GOAWAY: ENHANCE_YOUR_CALM.
const ENHANCE_YOUR_CALM: u8 = 0xb;
/// Debug data of the GOAWAY; gRPC clients double their keep-alive time when they read it.
const TOO_MANY_PINGS: &[u8] = b"too_many_pings";
/// How long a client gets to read the GOAWAY: closing with unread bytes in our buffer makes the
/// kernel send a reset, which would overtake it.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes read at once while the headers of a connection are looked at.
const READ_BYTES: usize = 4096;

/// Facts about one connection that its parts share.
#[derive(Debug, Default)]
pub(super) struct ConnState {
    pub(super) streams: AtomicU32,
    pub(super) frame_seen: AtomicBool,
    pub(super) too_many_pings: AtomicBool,
    pub(super) read: AtomicU64,
    pub(super) written: AtomicU64,
}

/// HTTP/2 part of a guarded socket.
struct Http2 {
    inbound: Frames,
    outbound: Frames,
    pings: Pings,
    ending: Option<Ending>,
    /// Until the connection is known to need no repair of its headers.
    authorities: Option<Authorities>,
}

/// The connection is being ended by us.
struct Ending {
    goaway: Bytes,
    shut: bool,
    linger: Pin<Box<Sleep>>,
}

/// A socket with its sniffed bytes in front.
pub(super) struct Guarded<S> {
    socket: S,
    replay: Bytes,
    state: Arc<ConnState>,
    http2: Option<Http2>,
}

impl<S> Guarded<S> {
    pub(super) fn http1(socket: S, replay: Bytes, state: Arc<ConnState>) -> Self {
        Self { socket, replay, state, http2: None }
    }

    /// `preface` is the client's connection preface and nothing after it.
    pub(super) fn http2(
        socket: S,
        preface: Bytes,
        state: Arc<ConnState>,
        min_time: Duration,
    ) -> Self {
        let http2 = Http2 {
            inbound: Frames::default(),
            outbound: Frames::default(),
            pings: Pings::new(min_time),
            ending: None,
            authorities: Some(Authorities::new()),
        };
        Self { socket, replay: preface, state, http2: Some(http2) }
    }
}

impl Http2 {
    /// Looks at received bytes; true when the connection must end.
    fn received(&mut self, bytes: &[u8], state: &ConnState) -> bool {
        let (pings, mut end) = (&mut self.pings, false);
        self.inbound.feed(bytes, |frame| {
            if !state.frame_seen.load(Relaxed) {
                state.frame_seen.store(true, Relaxed);
            }
            if frame.kind == PING && frame.flags & ACK == 0 {
                let streams = state.streams.load(Relaxed);
                end |= pings.ping(clock::now_ns(), streams) == Verdict::TooMany;
            }
        });
        end
    }

    fn end(&mut self, state: &ConnState) {
        state.too_many_pings.store(true, Relaxed);
        let linger = Box::pin(tokio::time::sleep(LINGER));
        self.ending = Some(Ending { goaway: goaway(), shut: false, linger });
    }

    fn sent(&mut self, bytes: &[u8]) {
        let pings = &mut self.pings;
        self.outbound.feed(bytes, |Frame { kind, .. }| {
            if matches!(kind, DATA | HEADERS) {
                pings.answered();
            }
        });
    }
}

fn goaway() -> Bytes {
    let payload = 8 + TOO_MANY_PINGS.len();
    let mut frame = vec![0, 0, payload as u8, GOAWAY, 0, 0, 0, 0, 0];
    // Highest stream id: calls that were sent may have been handled.
    frame.extend_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, ENHANCE_YOUR_CALM]);
    frame.extend_from_slice(TOO_MANY_PINGS);
    Bytes::from(frame)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guarded<S> {
    /// GOAWAY at a frame boundary, shut down, wait for the client to go. Always ends in an error,
    /// which makes hyper drop the connection.
    fn poll_ending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(http2) = &mut self.http2 else { return Poll::Ready(Ok(())) };
        let boundary = http2.outbound.at_boundary();
        let Some(ending) = &mut http2.ending else { return Poll::Ready(Ok(())) };
        let over = || io::Error::new(io::ErrorKind::ConnectionAborted, "too_many_pings");
        if ending.linger.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(over()));
        }
        if !boundary {
            // poll_write finishes the frame and wakes this task.
            return Poll::Pending;
        }
        let mut socket = Pin::new(&mut self.socket);
        while !ending.goaway.is_empty() {
            let n = ready!(socket.as_mut().poll_write(cx, &ending.goaway))?;
            if n == 0 {
                return Poll::Ready(Err(over()));
            }
            ending.goaway.advance(n);
        }
        if !ending.shut {
            ready!(socket.as_mut().poll_shutdown(cx))?;
            ending.shut = true;
        }
        let mut scratch = [0u8; 4096];
        loop {
            let mut buf = ReadBuf::new(&mut scratch);
            ready!(socket.as_mut().poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                return Poll::Ready(Err(over()));
            }
        }
    }

    /// Reads through [`Authorities`]: what comes out goes by way of `replay`.
    fn poll_read_repaired(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut scratch = [0u8; READ_BYTES];
        let mut out = BytesMut::new();
        while out.is_empty() {
            let mut read = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut read))?;
            let new = read.filled();
            if new.is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.state.read.fetch_add(new.len() as u64, Relaxed);
            let Some(http2) = &mut self.http2 else { return Poll::Ready(Ok(())) };
            if http2.received(new, &self.state) {
                http2.end(&self.state);
                return self.poll_ending(cx);
            }
            if let Some(authorities) = &mut http2.authorities {
                authorities.feed(new, &mut out)?;
                if authorities.passes() {
                    http2.authorities = None;
                }
            }
        }
        self.replay = out.freeze();
        let n = self.replay.len().min(buf.remaining());
        buf.put_slice(&self.replay.split_to(n));
        Poll::Ready(Ok(()))
    }

    fn is_ending(&self) -> bool {
        self.http2.as_ref().is_some_and(|http2| http2.ending.is_some())
    }

    /// While ending, only the rest of the frame in flight may leave. `None`: wait.
    fn writable<'a>(&self, buf: &'a [u8]) -> Option<&'a [u8]> {
        match &self.http2 {
            Some(http2) if http2.ending.is_some() => {
                let rest = http2.outbound.to_boundary().min(buf.len());
                (rest > 0).then(|| &buf[..rest])
            }
            _ => Some(buf),
        }
    }

    fn wrote(&mut self, parts: &[IoSlice<'_>], mut n: usize, cx: &mut Context<'_>) {
        self.state.written.fetch_add(n as u64, Relaxed);
        let Some(http2) = &mut self.http2 else { return };
        for part in parts {
            let take = n.min(part.len());
            http2.sent(&part[..take]);
            n -= take;
            if n == 0 {
                break;
            }
        }
        if http2.ending.is_some() && http2.outbound.at_boundary() {
            cx.waker().wake_by_ref();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.replay.is_empty() {
            let n = this.replay.len().min(buf.remaining());
            buf.put_slice(&this.replay.split_to(n));
            return Poll::Ready(Ok(()));
        }
        if this.is_ending() {
            return this.poll_ending(cx);
        }
        if this.http2.as_ref().is_some_and(|http2| http2.authorities.is_some()) {
            return this.poll_read_repaired(cx, buf);
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?;
        let new = &buf.filled()[before..];
        this.state.read.fetch_add(new.len() as u64, Relaxed);
        let Some(http2) = &mut this.http2 else { return Poll::Ready(Ok(())) };
        if http2.received(new, &this.state) {
            http2.end(&this.state);
            buf.set_filled(before);
            return this.poll_ending(cx);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let Some(buf) = this.writable(buf) else {
            // h2 stops reading while it cannot write, so the end must move on from here too.
            return this.poll_ending(cx).map_ok(|()| 0);
        };
        let n = ready!(Pin::new(&mut this.socket).poll_write(cx, buf))?;
        this.wrote(&[IoSlice::new(buf)], n, cx);
        Poll::Ready(Ok(n))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_ending() {
            let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| &**buf);
            return self.poll_write(cx, first);
        }
        let this = &mut *self;
        let n = ready!(Pin::new(&mut this.socket).poll_write_vectored(cx, bufs))?;
        this.wrote(bufs, n, cx);
        Poll::Ready(Ok(n))
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
