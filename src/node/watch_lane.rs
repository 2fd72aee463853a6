//! What lies between the watch hub and the rest: the lane into it, one queue per stream out of it.
//!
//! The lane holds at most [`LANE_BATCHES`] batches. The apply thread never waits: what does not fit
//! is noted as one revision, and the hub lets its watchers read it from history. While no stream is
//! open, batches are only noted, so a node without watchers pays nothing for them.

use super::lane::Lane;
use crate::mvcc::EventBatch;
use crate::watch::{Create, Delivery, Load, QUEUE_BYTES, QUEUE_EVENTS, Stats, StreamId};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::task::{Context, Poll, Waker};

/// Batches that may wait for the hub (`architecture.md` 4).
const LANE_BATCHES: usize = 1_024;

/// Requests of one stream that may wait for the hub: their answers are not in the stream's queue
/// yet, so they need a bound of their own.
const REQUESTS_MAX: usize = 512;

/// What the hub thread is told.
pub(super) enum WatchInput {
    /// Events of one revision.
    Batch(Arc<EventBatch>),
    /// Look at the noted revision.
    Look,
    /// A stream and its queue.
    Open(StreamId, Arc<Queue>),
    /// A request to create a watch.
    Create(StreamId, Create),
    /// A create request that is refused, with its reason.
    Refuse(StreamId, Cow<'static, str>),
    /// The client cancels a watch.
    Cancel(StreamId, i64),
    /// The client asks for progress.
    Progress(StreamId),
    /// A queue has room again.
    Drained(StreamId),
    /// The stream is gone.
    Close(StreamId),
    /// End.
    Stop,
}

/// The lane into the hub.
#[derive(Default)]
pub struct WatchLane {
    pub(super) inputs: Lane<WatchInput>,
    /// Batches in the lane.
    batches: AtomicUsize,
    /// Newest revision whose batch was not put into the lane, 0 if none.
    noted: AtomicI64,
    /// A [`WatchInput::Look`] is in the lane.
    looking: AtomicBool,
    streams: AtomicUsize,
    next_stream: AtomicU64,
    stats: Mutex<Stats>,
    /// Events in all queues.
    pending: Arc<AtomicUsize>,
}

impl WatchLane {
    /// Hands over the events of one revision. Called by the apply thread, in order, after the
    /// revision was published to readers and before its request is answered.
    pub fn publish(&self, batch: Arc<EventBatch>) {
        let watched = self.streams.load(SeqCst) > 0;
        if watched && self.batches.load(SeqCst) < LANE_BATCHES {
            self.batches.fetch_add(1, SeqCst);
            self.inputs.push(WatchInput::Batch(batch));
            return;
        }
        self.skipped(batch.revision);
    }

    /// Everything up to this revision happened, and its events are not handed over: watchers read
    /// them from history.
    pub fn skipped(&self, revision: i64) {
        self.noted.fetch_max(revision, SeqCst);
        // A stream that was opened meanwhile may have been served already with an older note. (If
        // this look does not see it, its first request comes after the note.)
        if self.streams.load(SeqCst) > 0 && !self.looking.swap(true, SeqCst) {
            self.inputs.push(WatchInput::Look);
        }
    }

    /// Opens a stream.
    #[must_use]
    pub fn open(self: &Arc<Self>) -> WatchStream {
        let id = self.next_stream.fetch_add(1, SeqCst);
        self.streams.fetch_add(1, SeqCst);
        let queue = Arc::new(Queue::new(self.pending.clone()));
        self.inputs.push(WatchInput::Open(id, queue.clone()));
        WatchStream { id, lane: self.clone(), queue, taken: Vec::new().into_iter() }
    }

    /// Ends the hub thread; streams end too.
    pub fn stop(&self) {
        self.inputs.push(WatchInput::Stop);
    }

    /// Counts for metrics, as of the hub's last turn.
    #[must_use]
    pub fn stats(&self) -> Stats {
        *self.stats.lock()
    }

    /// Events that wait to be sent, in the queues of all streams.
    #[must_use]
    pub fn pending_events(&self) -> usize {
        self.pending.load(Relaxed)
    }

    pub(super) fn set_stats(&self, stats: Stats) {
        *self.stats.lock() = stats;
    }

    /// The hub thread took a batch out.
    pub(super) fn took_batch(&self) {
        self.batches.fetch_sub(1, SeqCst);
    }

    /// The hub thread took a look out.
    pub(super) fn took_look(&self) {
        self.looking.store(false, SeqCst);
    }

    /// The noted revision, once.
    pub(super) fn take_noted(&self) -> Option<i64> {
        (self.noted.load(SeqCst) != 0).then(|| self.noted.swap(0, SeqCst))
    }
}

/// Responses on their way to one stream.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    bytes: AtomicUsize,
    events: AtomicUsize,
    /// Events in the queues of all streams.
    all_events: Arc<AtomicUsize>,
    /// The hub wants to know when half of the queue is free.
    wants_room: AtomicBool,
    /// Requests in the lane.
    requests: AtomicUsize,
    /// The stream waits until the hub has taken half of them.
    stalled: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    deliveries: Vec<Delivery>,
    waker: Option<Waker>,
    ended: bool,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.all_events.fetch_sub(self.events.load(Relaxed), Relaxed);
    }
}

impl Queue {
    fn new(all_events: Arc<AtomicUsize>) -> Self {
        Self {
            waiting: Mutex::default(),
            bytes: AtomicUsize::new(0),
            events: AtomicUsize::new(0),
            all_events,
            wants_room: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            stalled: AtomicBool::new(false),
        }
    }

    pub(super) fn load(&self) -> Load {
        Load { bytes: self.bytes.load(SeqCst), events: self.events.load(SeqCst) }
    }

    /// Counts a delivery that will follow with [`Queue::append`].
    pub(super) fn count(&self, delivery: &Delivery) {
        self.bytes.fetch_add(delivery.bytes, SeqCst);
        self.events.fetch_add(delivery.weight(), SeqCst);
        self.all_events.fetch_add(delivery.weight(), Relaxed);
    }

    /// Appends counted deliveries and wakes the stream once.
    pub(super) fn append(&self, deliveries: &mut Vec<Delivery>) {
        let waker = {
            let mut waiting = self.waiting.lock();
            waiting.deliveries.append(deliveries);
            waiting.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Nothing comes any more.
    pub(super) fn end(&self) {
        self.waiting.lock().ended = true;
        self.wake();
    }

    /// The hub took a request out of the lane.
    pub(super) fn took_request(&self) {
        let left = self.requests.fetch_sub(1, SeqCst) - 1;
        if left <= REQUESTS_MAX / 2 && self.stalled.swap(false, SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        let waker = self.waiting.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Asks for a notice about room; true if there is room already and no notice will come.
    pub(super) fn want_room(&self) -> bool {
        self.wants_room.store(true, SeqCst);
        self.has_half_free() && self.wants_room.swap(false, SeqCst)
    }

    fn has_half_free(&self) -> bool {
        let load = self.load();
        load.bytes <= QUEUE_BYTES / 2 && load.events <= QUEUE_EVENTS / 2
    }

    /// Uncounts a delivery that is being sent; true if the hub wants to know.
    fn sent(&self, delivery: &Delivery) -> bool {
        self.bytes.fetch_sub(delivery.bytes, SeqCst);
        self.events.fetch_sub(delivery.weight(), SeqCst);
        self.all_events.fetch_sub(delivery.weight(), Relaxed);
        self.wants_room.load(SeqCst) && self.has_half_free() && self.wants_room.swap(false, SeqCst)
    }
}

/// One stream of a client, at the edge. Dropping it closes the stream.
pub struct WatchStream {
    id: StreamId,
    lane: Arc<WatchLane>,
    queue: Arc<Queue>,
    taken: std::vec::IntoIter<Delivery>,
}

impl WatchStream {
    /// Asks for a watch.
    pub fn create(&self, create: Create) {
        self.request(WatchInput::Create(self.id, create));
    }

    /// Answers a create request that may not be made; `reason` is etcd's text.
    pub fn refuse(&self, reason: impl Into<Cow<'static, str>>) {
        self.request(WatchInput::Refuse(self.id, reason.into()));
    }

    /// Ends a watch.
    pub fn cancel(&self, watch_id: i64) {
        self.request(WatchInput::Cancel(self.id, watch_id));
    }

    /// Asks how far all watches of the stream are.
    pub fn progress(&self) {
        self.request(WatchInput::Progress(self.id));
    }

    fn request(&self, input: WatchInput) {
        self.queue.requests.fetch_add(1, SeqCst);
        self.lane.inputs.push(input);
    }

    /// Ready while another request may be taken from the client. Pending while it does not keep up
    /// with its answers (sending them brings the task back) or is ahead of the hub.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let load = self.queue.load();
        if load.bytes >= QUEUE_BYTES || load.events >= QUEUE_EVENTS {
            return Poll::Pending;
        }
        if self.queue.requests.load(SeqCst) < REQUESTS_MAX {
            return Poll::Ready(());
        }
        // The waker first, then the flag, then a second look: the hub lowers the number, then looks
        // at the flag, then takes the waker, so one of the two sees the other.
        self.queue.waiting.lock().waker = Some(cx.waker().clone());
        self.queue.stalled.store(true, SeqCst);
        if self.queue.requests.load(SeqCst) > REQUESTS_MAX / 2 {
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// What waits to be sent on this stream.
    #[must_use]
    pub fn queue_load(&self) -> Load {
        self.queue.load()
    }

    /// The next response to send; `None` once the hub has ended.
    pub fn poll_delivery(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let next = match self.taken.next() {
            Some(next) => next,
            None => {
                let mut waiting = self.queue.waiting.lock();
                if waiting.deliveries.is_empty() {
                    if waiting.ended {
                        return Poll::Ready(None);
                    }
                    waiting.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                self.taken = std::mem::take(&mut waiting.deliveries).into_iter();
                drop(waiting);
                match self.taken.next() {
                    Some(next) => next,
                    None => return Poll::Pending,
                }
            }
        };
        if self.queue.sent(&next) {
            self.lane.inputs.push(WatchInput::Drained(self.id));
        }
        Poll::Ready(Some(next))
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.lane.streams.fetch_sub(1, SeqCst);
        self.lane.inputs.push(WatchInput::Close(self.id));
    }
}
