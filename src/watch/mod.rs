//! Watch: every change of a key range, once, in order, from any revision that is still there.
//!
//! [`Hub`] decides everything and owns nothing of the outside: batches of events and client
//! commands come in, [`Delivery`] values go out through an [`Outbox`], history is read through a
//! [`Source`], time is an argument. A watcher is in one of three states:
//!
//! - *synced*: it was given everything up to the hub's revision and gets new batches as they come;
//! - *lagging*: it reads history in revision order until it reaches the hub's revision;
//! - *blocked*: it lags and its stream's queue is full; it goes on when the client has read.
//!
//! A slow stream costs one queue of [`QUEUE_BYTES`] and then only a revision number per
//! watcher: what does not fit is not kept but read again from history. If compaction has removed
//! that history, the watcher is cancelled with the compact revision. No event is skipped silently.

mod catchup;
mod encode;
mod hub;
mod index;
mod progress;
#[cfg(test)]
pub(crate) mod tests;
mod watcher;

use crate::mvcc::{KeyRange, Rows, RowsError};
use bytes::Bytes;
use std::borrow::Cow;

pub use hub::{Hub, Stats};

/// Identifies a stream of one client; never used twice in a process.
pub type StreamId = u64;

/// The watch id in answers that belong to no watch.
pub const NO_WATCH: i64 = -1;

/// Watch start revision below zero (etcd's text).
pub const REASON_COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
/// Key not below range end (etcd's text).
pub const REASON_EMPTY_RANGE: &str = "mvcc: watcher range is empty";
/// Explicit watch id in use on the stream (etcd's text).
pub const REASON_DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";

/// Bytes a response takes besides its events: header, ids, framing. An upper bound.
pub(crate) const RESPONSE_OVERHEAD: usize = 96;

/// Bytes waiting in one stream's queue at which its watchers start to lag.
pub const QUEUE_BYTES: usize = 1 << 20;
/// Events waiting in one stream's queue at which its watchers start to lag.
pub const QUEUE_EVENTS: usize = 4_096;

/// Watches one stream may hold: far above what clients open, and small enough that one connection
/// cannot fill the member (`reliability.md` 3.5).
pub const STREAM_WATCHES: usize = 10_000;
/// Watches one member may hold, about 300 MB of them.
pub const MEMBER_WATCHES: usize = 1_000_000;
/// Too many watches on the stream.
pub const REASON_STREAM_FULL: &str =
    "assay: this stream holds 10000 watches, its limit; open another stream";
/// Too many watches on the member.
pub const REASON_MEMBER_FULL: &str =
    "assay: this member holds 1000000 watches, its limit; cancel some or use another member";

/// Settings of a hub.
#[derive(Debug, Clone, Copy)]
pub struct HubOptions {
    /// [`QUEUE_BYTES`], smaller in tests.
    pub queue_bytes: usize,
    /// [`QUEUE_EVENTS`], smaller in tests.
    pub queue_events: usize,
    /// Size from which a response is split for a watcher that asked for fragments:
    /// max-request-bytes + 512 KiB.
    pub fragment_bytes: usize,
    /// Distinct revisions read per catch-up round.
    pub batch_revisions: i64,
    /// Period of progress notifications, ms; up to a tenth is added at random.
    pub progress_interval_ms: u64,
    /// Start value of the jitter; any number.
    pub seed: u64,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            queue_bytes: QUEUE_BYTES,
            queue_events: QUEUE_EVENTS,
            fragment_bytes: 1_572_864 + 512 * 1_024,
            batch_revisions: 1_000,
            progress_interval_ms: 600_000,
            seed: 0,
        }
    }
}

/// What a client asks for when it creates a watch. The range is parsed once, by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// Watched keys.
    pub range: KeyRange,
    /// First revision wanted; 0 = from now on.
    pub start_revision: i64,
    /// 0 = the hub picks one.
    pub watch_id: i64,
    /// Drop puts.
    pub no_put: bool,
    /// Drop deletes.
    pub no_delete: bool,
    /// Add the row before each change.
    pub prev_kv: bool,
    /// Send an empty response when nothing happened for a progress interval.
    pub progress_notify: bool,
    /// Split responses above [`HubOptions::fragment_bytes`].
    pub fragment: bool,
}

/// One response to a client, in the order in which it must be sent on its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The stream.
    pub stream: StreamId,
    /// The watch, or [`NO_WATCH`].
    pub watch_id: i64,
    /// `header.revision`; 0 in a cancel because of compaction.
    pub revision: i64,
    /// Answer to a create request.
    pub created: bool,
    /// The watch is over.
    pub canceled: bool,
    /// Not 0: the watch fell behind this compact revision.
    pub compact_revision: i64,
    /// Why it was cancelled; empty for the client's own cancel and for compaction.
    pub cancel_reason: Cow<'static, str>,
    /// More parts of this response follow.
    pub fragment: bool,
    /// Encoded `mvccpb.Event` messages, shared with other watchers.
    pub events: Vec<Bytes>,
    /// Size on the wire, an upper bound.
    pub bytes: usize,
}

impl Delivery {
    pub(crate) fn empty(stream: StreamId, watch_id: i64, revision: i64) -> Self {
        Self {
            stream,
            watch_id,
            revision,
            created: false,
            canceled: false,
            compact_revision: 0,
            cancel_reason: Cow::Borrowed(""),
            fragment: false,
            events: Vec::new(),
            bytes: RESPONSE_OVERHEAD,
        }
    }

    /// What this delivery adds to its queue's count of events: responses without events count as
    /// one, so that they are bounded too.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.events.len().max(1)
    }
}

/// What waits in a stream's queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Sum of [`Delivery::bytes`].
    pub bytes: usize,
    /// Sum of [`Delivery::weight`].
    pub events: usize,
}

/// Where deliveries go: one queue per stream.
pub trait Outbox {
    /// What waits in the queue now, including what was delivered in this turn.
    fn load(&self, stream: StreamId) -> Load;
    /// Appends to the queue of `delivery.stream`; a closed stream's deliveries are dropped.
    fn deliver(&mut self, delivery: Delivery);
    /// Asks for a call of [`Hub::drained`] once half of the queue is free (at once if it already
    /// is).
    fn wait_for_room(&mut self, stream: StreamId);
}

/// History: what the hub reads.
///
/// A revision is visible here before its batch reaches the hub, and a compact revision before any
/// row below it disappears.
pub trait Source {
    /// The rows of all revisions that can be read.
    fn rows(&self) -> &dyn Rows;
    /// Newest revision that can be read.
    fn revision(&self) -> i64;
    /// Compact revision; below 1 if there never was a compaction.
    fn compact_revision(&self) -> i64;
    /// The row of `key` as of `revision`; `None` if it did not exist then or is compacted.
    ///
    /// # Errors
    /// [`RowsError`], a failed read.
    fn row_at(&self, key: &[u8], revision: i64) -> Result<Option<Bytes>, RowsError>;
}

/// History could not be read. The node stops: a watcher can be given neither a gap nor an error
/// that the disk caused.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// Reading rows failed.
    #[error("reading the history for watchers: {0}")]
    Rows(#[from] RowsError),
    /// A row is not a `mvccpb.KeyValue`.
    #[error("the row at revision {main}.{sub} does not decode; the store is damaged")]
    Row {
        /// Main revision.
        main: i64,
        /// Position inside it.
        sub: i64,
    },
}
