//! One watch stream: requests of the client in, responses of the hub out.
//!
//! The session is the response stream itself. It is polled while the connection can send, and takes
//! requests in the same poll: a client that does not read its answers is not listened to either,
//! so what it can make the node hold is bounded by its queue.

use super::status;
use crate::mvcc::KeyRange;
use crate::node::watch_thread::WatchStream;
use crate::proto::etcdserverpb::watch_create_request::FilterType;
use crate::proto::etcdserverpb::watch_request::RequestUnion;
use crate::proto::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchRequest, WatchResponse};
use crate::watch::{Create, Delivery};
use bytes::Bytes;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::watch::Receiver;
use tokio_stream::Stream;
use tonic::{Code, Status};

/// Requests taken per poll, so that a flood of them does not keep answers from being sent.
const REQUESTS_PER_POLL: usize = 32;

/// Responses sent between two looks at the end of the server, while there is always one to send.
const SENT_PER_LOOK: u32 = 64;

/// Why a stream ends although its client is there: resolves to the status to end with.
pub(super) type End = Pin<Box<dyn Future<Output = Status> + Send>>;

/// Ends a stream when the node stops, or when it is fenced.
pub(super) fn until_stop(mut stopping: Receiver<bool>, mut fenced: Receiver<bool>) -> End {
    Box::pin(async move {
        // An error means that the node is gone.
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => status::STOPPED.into(),
            up = fenced.wait_for(|fenced| *fenced) => match up {
                Ok(_) => status::FENCED.into(),
                Err(_) => status::STOPPED.into(),
            },
        }
    })
}

/// See the module text. `I` are the client's messages, `H` makes response headers of revisions.
pub(super) struct Session<I, H> {
    /// `None` once the client has closed its side; the stream goes on.
    requests: Option<I>,
    hub: Option<WatchStream>,
    header: H,
    end: End,
    /// Responses sent since `end` was last looked at.
    sent: u32,
}

impl<I, H> Session<I, H>
where
    I: Stream<Item = Result<WatchRequest, Status>> + Unpin,
    H: Fn(i64) -> ResponseHeader + Unpin,
{
    pub(super) fn new(requests: I, hub: WatchStream, header: H, end: End) -> Self {
        Self { requests: Some(requests), hub: Some(hub), header, end, sent: 0 }
    }

    /// Takes requests as far as there is room for their answers.
    fn take_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        let (Some(hub), Some(requests)) = (&self.hub, &mut self.requests) else { return Ok(()) };
        for _ in 0..REQUESTS_PER_POLL {
            if hub.poll_room(cx).is_pending() {
                return Ok(());
            }
            match Pin::new(&mut *requests).poll_next(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => {
                    self.requests = None;
                    return Ok(());
                }
                Poll::Ready(Some(Ok(request))) => handle(hub, request),
                Poll::Ready(Some(Err(status))) => return Err(ended(status)),
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Whether the stream has to end.
    fn look(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        self.sent = 0;
        self.end.as_mut().poll(cx)
    }

    fn finish(&mut self, status: Status) -> Poll<Option<Result<WatchResponse, Status>>> {
        self.hub = None;
        self.requests = None;
        Poll::Ready(Some(Err(status)))
    }
}

impl<I, H> Stream for Session<I, H>
where
    I: Stream<Item = Result<WatchRequest, Status>> + Unpin,
    H: Fn(i64) -> ResponseHeader + Unpin,
{
    type Item = Result<WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let session = &mut *self;
        if session.hub.is_none() {
            return Poll::Ready(None);
        }
        if session.sent >= SENT_PER_LOOK
            && let Poll::Ready(status) = session.look(cx)
        {
            return session.finish(status);
        }
        if let Err(status) = session.take_requests(cx) {
            return session.finish(status);
        }
        let next = match &mut session.hub {
            Some(hub) => hub.poll_delivery(cx),
            None => Poll::Ready(None),
        };
        match next {
            Poll::Pending => match session.look(cx) {
                Poll::Ready(status) => session.finish(status),
                Poll::Pending => Poll::Pending,
            },
            Poll::Ready(Some(delivery)) => {
                session.sent += 1;
                let header = (session.header)(delivery.revision);
                Poll::Ready(Some(Ok(response(delivery, header))))
            }
            // The hub has ended, and so does the server.
            Poll::Ready(None) => session.finish(status::STOPPED.into()),
        }
    }
}

/// The status of a stream whose client went away or sent what cannot be read.
fn ended(status: Status) -> Status {
    if status.code() == Code::Cancelled { status::WATCH_CANCELED.into() } else { status }
}

fn handle(hub: &WatchStream, request: WatchRequest) {
    match request.request_union {
        Some(RequestUnion::CreateRequest(create)) => hub.create(parse(create)),
        Some(RequestUnion::CancelRequest(cancel)) => hub.cancel(cancel.watch_id),
        Some(RequestUnion::ProgressRequest(_)) => hub.progress(),
        // A request of a newer client; etcd ignores it too.
        None => {}
    }
}

fn parse(create: WatchCreateRequest) -> Create {
    let filtered = |kind: FilterType| create.filters.contains(&(kind as i32));
    // An empty key stands for the smallest one.
    let key = if create.key.is_empty() { Bytes::from_static(&[0]) } else { create.key.clone() };
    Create {
        range: KeyRange::from_request(key, create.range_end.clone()),
        start_revision: create.start_revision,
        watch_id: create.watch_id,
        no_put: filtered(FilterType::Noput),
        no_delete: filtered(FilterType::Nodelete),
        prev_kv: create.prev_kv,
        progress_notify: create.progress_notify,
        fragment: create.fragment,
    }
}

fn response(delivery: Delivery, header: ResponseHeader) -> WatchResponse {
    WatchResponse {
        header: Some(header),
        watch_id: delivery.watch_id,
        created: delivery.created,
        canceled: delivery.canceled,
        compact_revision: delivery.compact_revision,
        cancel_reason: delivery.cancel_reason.into_owned(),
        fragment: delivery.fragment,
        events: delivery.events,
    }
}

#[cfg(test)]
mod tests;
