//! One stream of keep-alives: an answer for each request, in order, several in work at a time.

use super::watch_session::End;
use crate::proto::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio_stream::Stream;
use tonic::Status;

/// Renewals of one stream in work at a time: enough to fill a turn of the node thread, few enough
/// that one client does not crowd out the others.
const IN_WORK: usize = 64;

pub(super) type Answer = Result<LeaseKeepAliveResponse, Status>;
pub(super) type Work = Pin<Box<dyn Future<Output = Answer> + Send>>;

enum Slot {
    Working(Work),
    Done(Answer),
}

/// See the module text. `R` renews one lease.
pub(super) struct KeepAlives<I, R> {
    /// `None` once the client has closed its side; the stream ends after the last answer.
    requests: Option<I>,
    renew: R,
    slots: VecDeque<Slot>,
    end: End,
    ended: bool,
}

impl<I, R> KeepAlives<I, R>
where
    I: Stream<Item = Result<LeaseKeepAliveRequest, Status>> + Unpin,
    R: Fn(i64) -> Work + Unpin,
{
    pub(super) fn new(requests: I, renew: R, end: End) -> Self {
        Self { requests: Some(requests), renew, slots: VecDeque::new(), end, ended: false }
    }

    fn take_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        while self.slots.len() < IN_WORK {
            let Some(requests) = &mut self.requests else { return Ok(()) };
            match Pin::new(requests).poll_next(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.requests = None,
                Poll::Ready(Some(Ok(request))) => {
                    self.slots.push_back(Slot::Working((self.renew)(request.id)));
                }
                Poll::Ready(Some(Err(status))) => return Err(status),
            }
        }
        Ok(())
    }

    fn finish(&mut self, status: Status) -> Poll<Option<Answer>> {
        self.ended = true;
        self.requests = None;
        self.slots.clear();
        Poll::Ready(Some(Err(status)))
    }
}

impl<I, R> Stream for KeepAlives<I, R>
where
    I: Stream<Item = Result<LeaseKeepAliveRequest, Status>> + Unpin,
    R: Fn(i64) -> Work + Unpin,
{
    type Item = Answer;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        let stream = &mut *self;
        if stream.ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(status) = stream.end.as_mut().poll(cx) {
            return stream.finish(status);
        }
        if let Err(status) = stream.take_requests(cx) {
            return stream.finish(status);
        }
        for slot in &mut stream.slots {
            if let Slot::Working(work) = slot
                && let Poll::Ready(answer) = work.as_mut().poll(cx)
            {
                *slot = Slot::Done(answer);
            }
        }
        if matches!(stream.slots.front(), Some(Slot::Done(_))) {
            let Some(Slot::Done(answer)) = stream.slots.pop_front() else { return Poll::Pending };
            return match answer {
                Ok(answer) => Poll::Ready(Some(Ok(answer))),
                // An answer that is not about this lease ends the stream, as in etcd.
                Err(status) => stream.finish(status),
            };
        }
        if stream.requests.is_none() && stream.slots.is_empty() {
            stream.ended = true;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
