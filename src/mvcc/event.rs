//! Changes as watchers see them.

use super::Revision;
use bytes::Bytes;

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Put.
    Put,
    /// Deleted.
    Delete,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The key; shares the buffer of `row`.
    pub key: Bytes,
    /// Encoded `mvccpb.KeyValue`: for a put the stored row, for a delete the key and the
    /// revision of the delete (the stored tombstone has only the key).
    pub row: Bytes,
    /// Position of the change.
    pub revision: Revision,
    /// Whether this put created the key.
    pub is_create: bool,
    /// The row of the key as it was before this revision's transaction, for `prev_kv`. `None`
    /// for a creation.
    pub prev: Option<Revision>,
    /// Lease of the put, 0 for none and for deletes.
    pub lease: i64,
}

/// All changes of one main revision, in the order of their sub revisions. Watchers get them
/// together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBatch {
    /// The main revision.
    pub revision: i64,
    /// The changes; never empty.
    pub events: Vec<Event>,
}
