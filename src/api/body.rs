//! Request and answer bodies of calls: messages are counted as they pass, limits and deadlines
//! are kept, and everything wrong is said in grpc-go's words.

use super::budget::Permit;
use super::method::Method;
use super::observer::{GrpcObserver, Track};
use super::rows_body::RowsBody;
use super::status::{self, Fixed};
use crate::framing::Position;
use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Interval, Sleep};
use tonic::{Code, Status};

/// Bytes in front of a gRPC message: flag and length.
pub(super) const PREFIX: usize = 5;
/// Looks without a leader after which streams that asked for one end.
const LEADERLESS_TICKS: u32 = 3;

/// Frames of a large answer in a row before other calls of the runtime get a turn: 256 KiB, some
/// hundred microseconds of copying and sending. A client that takes megabytes at once would hold
/// up every put beside it for as long as that takes.
const FRAMES_PER_TURN: u32 = 8;

/// Position in a stream of length-prefixed messages.
#[derive(Debug, Default)]
struct Messages(Position<PREFIX>);

impl Messages {
    /// Takes the next bytes; reports flag and length of each message that begins.
    fn feed<E>(
        &mut self,
        bytes: &[u8],
        mut begins: impl FnMut(u8, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        self.0.feed(bytes, |[flag, len @ ..]| {
            let len = u32::from_be_bytes(len);
            begins(flag, len).map(|()| len as usize)
        })
    }

    fn inside(&self) -> bool {
        !self.0.at_boundary()
    }
}

/// The messages of a call on their way to its handler.
pub struct RequestBody<B> {
    inner: B,
    messages: Messages,
    method: Method,
    observer: Arc<dyn GrpcObserver>,
    max_message: u32,
    compressed: bool,
}

impl<B> RequestBody<B> {
    /// `compressed`: the request names an encoding other than `identity`.
    pub(super) fn new(
        inner: B,
        method: Method,
        observer: Arc<dyn GrpcObserver>,
        max_message: u32,
        compressed: bool,
    ) -> Self {
        Self { inner, messages: Messages::default(), method, observer, max_message, compressed }
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(cx)) else {
            return Poll::Ready(
                this.messages.inside().then(|| Err(Status::internal("unexpected EOF"))),
            );
        };
        // A stream that was reset or lost belongs to a client that is gone.
        let frame = frame.map_err(|_| Status::from(status::CONTEXT_CANCELED));
        let checked = frame.and_then(|frame| {
            if let Some(data) = frame.data_ref() {
                let (max, compressed) = (this.max_message, this.compressed);
                this.messages.feed(data.chunk(), |flag, len| {
                    check(flag, len, max, compressed)?;
                    this.observer.msg_received(this.method, u64::from(len));
                    Ok::<(), Status>(())
                })?;
            }
            Ok(frame)
        });
        Poll::Ready(Some(checked))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && !self.messages.inside()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn check(flag: u8, len: u32, max: u32, compressed: bool) -> Result<(), Status> {
    match flag {
        0 => {}
        1 if compressed => {}
        1 => {
            let text = "grpc: compressed flag set with identity or empty encoding";
            return Err(Status::internal(text));
        }
        other => {
            let text = format!("grpc: received unexpected payload format {other}");
            return Err(Status::internal(text));
        }
    }
    if len > max {
        let text = format!("grpc: received message larger than max ({len} vs. {max})");
        return Err(Status::resource_exhausted(text));
    }
    Ok(())
}

/// Ends a stream that asked for a leader when there has been none for three election timeouts.
pub(super) struct LeaderLoss {
    pub(super) has_leader: Box<dyn Fn() -> bool + Send>,
    pub(super) ticks: Interval,
    pub(super) missed: u32,
}

impl LeaderLoss {
    pub(super) fn new(
        election_timeout: Duration,
        has_leader: Box<dyn Fn() -> bool + Send>,
    ) -> Self {
        let mut ticks = tokio::time::interval(election_timeout.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        Self { has_leader, ticks, missed: 0 }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.ticks.poll_tick(cx));
            self.missed = if (self.has_leader)() { 0 } else { self.missed + 1 };
            // The first tick of an interval comes at once.
            if self.missed > LEADERLESS_TICKS {
                return Poll::Ready(());
            }
        }
    }
}

/// What an answer is made of.
pub(super) enum Content {
    Tonic(tonic::body::Body),
    Rows(Box<RowsBody>),
}

/// What ends an answer before its content does.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) deadline: Option<Pin<Box<Sleep>>>,
    pub(super) leader: Option<Box<LeaderLoss>>,
}

impl Ends {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Fixed> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(status::CONTEXT_DEADLINE);
        }
        if let Some(leader) = &mut self.leader
            && leader.poll(cx).is_ready()
        {
            return Poll::Ready(status::NO_LEADER);
        }
        Poll::Pending
    }
}

/// The answer of a call on its way out.
pub struct ReplyBody {
    content: Option<Content>,
    track: Option<Track>,
    messages: Messages,
    ends: Ends,
    /// Frames of rows since other calls had a turn.
    frames: u32,
    _held: Option<Permit>,
}

impl ReplyBody {
    /// No body: the status is in the headers.
    pub(super) fn empty() -> Self {
        Self {
            content: None,
            track: None,
            messages: Messages::default(),
            ends: Ends::default(),
            frames: 0,
            _held: None,
        }
    }

    pub(super) fn new(content: Content, track: Track, ends: Ends, held: Option<Permit>) -> Self {
        Self {
            content: Some(content),
            track: Some(track),
            messages: Messages::default(),
            ends,
            frames: 0,
            _held: held,
        }
    }

    fn end(&mut self, code: Code) {
        self.content = None;
        if let Some(mut track) = self.track.take() {
            track.finish(code);
        }
    }
}

/// Code in headers or trailers.
pub(super) fn code_of(headers: &HeaderMap) -> Option<Code> {
    headers.get(Status::GRPC_STATUS).map(|code| Code::from_bytes(code.as_bytes()))
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.content.is_none() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(fixed) = this.ends.poll(cx) {
            this.end(fixed.0);
            let mut trailers = HeaderMap::new();
            // Fails only for metadata of the status, which a fixed one has none of.
            let _ = Status::from(fixed).add_header(&mut trailers);
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let polled = match &mut this.content {
            Some(Content::Tonic(body)) => Pin::new(body).poll_frame(cx),
            Some(Content::Rows(_)) if this.frames == FRAMES_PER_TURN => {
                this.frames = 0;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Content::Rows(body)) => {
                this.frames += 1;
                Poll::Ready(body.next_frame().map(Ok))
            }
            None => Poll::Ready(None),
        };
        let frame = ready!(polled);
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(data), Some(track)) = (frame.data_ref(), &this.track) {
                    let counted = this.messages.feed(data, |_, len| {
                        track.sent(len);
                        Ok::<(), std::convert::Infallible>(())
                    });
                    let Ok(()) = counted;
                } else if let Some(trailers) = frame.trailers_ref() {
                    let code = code_of(trailers).unwrap_or(Code::Ok);
                    this.end(code);
                }
            }
            Some(Err(status)) => {
                let code = status.code();
                this.end(code);
            }
            None => this.end(Code::Ok),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_none()
    }
}
