//! One watcher: what it wants, how far it is, what waits for the end of the turn.

use super::index::GroupIx;
use super::{Create, StreamId};
use crate::mvcc::EventKind;
use bytes::Bytes;

/// How far a watcher is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Everything up to the hub's revision is delivered or pending in this turn.
    Synced,
    /// Everything below `next` is delivered; the rest comes from history.
    Lagging,
    /// As lagging, but waiting for room in the stream's queue.
    Blocked,
}

#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) stream: StreamId,
    pub(super) id: i64,
    pub(super) group: GroupIx,
    /// Place in the group.
    pub(super) place: usize,
    /// First revision to deliver.
    pub(super) start: i64,
    /// The client named the start revision.
    pub(super) start_given: bool,
    pub(super) state: State,
    /// First revision not delivered; meaningful unless synced.
    pub(super) next: i64,
    pub(super) no_put: bool,
    pub(super) no_delete: bool,
    pub(super) prev_kv: bool,
    pub(super) progress_notify: bool,
    pub(super) fragment: bool,
    /// Events were sent since the last progress tick.
    pub(super) active: bool,
    pub(super) pending: Pending,
}

/// Events of a synced watcher collected during one hub turn.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) events: Vec<Bytes>,
    pub(super) bytes: usize,
    /// Main revision of the first and the last event.
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Watcher {
    pub(super) fn new(stream: StreamId, id: i64, create: &Create, start: i64) -> Self {
        Self {
            stream,
            id,
            group: 0,
            place: 0,
            start,
            start_given: create.start_revision != 0,
            state: State::Synced,
            next: start,
            no_put: create.no_put,
            no_delete: create.no_delete,
            prev_kv: create.prev_kv,
            progress_notify: create.progress_notify,
            fragment: create.fragment,
            active: false,
            pending: Pending::default(),
        }
    }

    pub(super) fn wants(&self, kind: EventKind) -> bool {
        match kind {
            EventKind::Put => !self.no_put,
            EventKind::Delete => !self.no_delete,
        }
    }

    /// Whether a progress response with `revision` would be true of this watcher: it has been
    /// given everything up to it, and does not start later.
    pub(super) fn progressed_to(&self, revision: i64) -> bool {
        let reach = if self.start_given { revision } else { revision + 1 };
        self.state == State::Synced && self.start <= reach
    }
}

/// Watchers by position; positions are used again.
#[derive(Debug, Default)]
pub(super) struct Slab {
    slots: Vec<Option<Watcher>>,
    free: Vec<u32>,
}

impl Slab {
    pub(super) fn insert(&mut self, watcher: Watcher) -> u32 {
        if let Some(ix) = self.free.pop() {
            self.slots[ix as usize] = Some(watcher);
            ix
        } else {
            self.slots.push(Some(watcher));
            (self.slots.len() - 1) as u32
        }
    }

    pub(super) fn remove(&mut self, ix: u32) -> Option<Watcher> {
        let gone = self.slots.get_mut(ix as usize)?.take();
        if gone.is_some() {
            self.free.push(ix);
        }
        gone
    }

    pub(super) fn get(&self, ix: u32) -> Option<&Watcher> {
        self.slots.get(ix as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, ix: u32) -> Option<&mut Watcher> {
        self.slots.get_mut(ix as usize)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Watcher)> {
        self.slots.iter().enumerate().filter_map(|(ix, slot)| Some((ix as u32, slot.as_ref()?)))
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
