//! The hub: client commands, live delivery, the three states.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::encode::{Shared, wire_len};
use super::index::{Index, WatcherIx};
use super::watcher::{Pending, Slab, State, Watcher};
use super::{
    Create, Delivery, HubError, HubOptions, MEMBER_WATCHES, NO_WATCH, Outbox, REASON_COMPACTED,
    REASON_DUPLICATE_ID, REASON_EMPTY_RANGE, REASON_MEMBER_FULL, REASON_STREAM_FULL,
    RESPONSE_OVERHEAD, STREAM_WATCHES, Source, StreamId,
};
use crate::mvcc::EventBatch;
use bytes::Bytes;

/// Counts for metrics; each is kept, none is walked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Streams with at least one request.
    pub streams: usize,
    /// Watchers.
    pub watchers: usize,
    /// Watchers reading history.
    pub lagging: usize,
    /// Watchers waiting for their client.
    pub blocked: usize,
    /// Events handed out since the start, each watcher's counted.
    pub events: u64,
    /// Watchers that could not keep up and started to lag.
    pub fell_behind: u64,
    /// Watchers cancelled because of compaction.
    pub compacted: u64,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    /// By watch id.
    pub(super) watchers: BTreeMap<i64, WatcherIx>,
    next_id: i64,
    pub(super) blocked: BTreeSet<WatcherIx>,
    /// Watchers that asked for progress notifications.
    pub(super) notified: usize,
    /// When the next progress tick is due, ms.
    pub(super) tick: Option<u64>,
}

/// All watchers of a member.
#[derive(Debug)]
pub struct Hub {
    pub(super) options: HubOptions,
    /// Batches up to this revision have been seen: where history ends and live delivery begins.
    pub(super) revision: i64,
    pub(super) watchers: Slab,
    pub(super) index: Index,
    pub(super) streams: BTreeMap<StreamId, Stream>,
    /// Synced watchers with pending events.
    dirty: Vec<WatcherIx>,
    /// Lagging watchers, (first revision not delivered, watcher): those whose turn is still to
    /// come in this cycle, and those that had it.
    pub(super) ready: BTreeSet<(i64, WatcherIx)>,
    pub(super) waiting: BTreeSet<(i64, WatcherIx)>,
    pub(super) ticks: BTreeSet<(u64, StreamId)>,
    pub(super) jitter: u64,
    pub(super) stats: Stats,
    scratch: Vec<WatcherIx>,
}

impl Hub {
    /// A hub without watchers, on a store whose newest revision is `revision`.
    #[must_use]
    pub fn new(options: HubOptions, revision: i64) -> Self {
        Self {
            options,
            revision,
            watchers: Slab::default(),
            index: Index::default(),
            streams: BTreeMap::new(),
            dirty: Vec::new(),
            ready: BTreeSet::new(),
            waiting: BTreeSet::new(),
            ticks: BTreeSet::new(),
            jitter: options.seed,
            stats: Stats::default(),
            scratch: Vec::new(),
        }
    }

    /// The newest revision seen.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Counts for metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let blocked = self.stats.blocked;
        Stats {
            streams: self.streams.len(),
            watchers: self.watchers.len(),
            lagging: self.ready.len() + self.waiting.len() + blocked,
            ..self.stats
        }
    }

    /// Creates a watch and answers it; history follows from [`Hub::catch_up`].
    ///
    /// # Errors
    /// [`HubError`]: pending events could not be completed from history.
    pub fn create(
        &mut self,
        stream: StreamId,
        create: &Create,
        now: u64,
        source: &dyn Source,
        out: &mut dyn Outbox,
    ) -> Result<(), HubError> {
        self.flush(out);
        let current = self.current(source);
        if create.start_revision < 0 {
            self.refuse(stream, Cow::Borrowed(REASON_COMPACTED), source, out);
            return Ok(());
        }
        if create.range.is_empty() {
            self.refuse(stream, Cow::Borrowed(REASON_EMPTY_RANGE), source, out);
            return Ok(());
        }
        let held = self.streams.get(&stream).map_or(0, |entry| entry.watchers.len());
        if held >= STREAM_WATCHES || self.watchers.len() >= MEMBER_WATCHES {
            let full = held >= STREAM_WATCHES;
            let reason = if full { REASON_STREAM_FULL } else { REASON_MEMBER_FULL };
            self.refuse(stream, Cow::Borrowed(reason), source, out);
            return Ok(());
        }
        let entry = self.streams.entry(stream).or_default();
        let id = if create.watch_id != 0 {
            create.watch_id
        } else {
            while entry.watchers.contains_key(&entry.next_id) {
                entry.next_id += 1;
            }
            entry.next_id += 1;
            entry.next_id - 1
        };
        if entry.watchers.contains_key(&id) {
            self.refuse(stream, Cow::Borrowed(REASON_DUPLICATE_ID), source, out);
            return Ok(());
        }
        // "From now on" counts from what the client may have read already, which can be ahead of
        // the batches the hub has seen.
        let start = if create.start_revision == 0 { current + 1 } else { create.start_revision };
        out.deliver(Delivery { created: true, ..Delivery::empty(stream, id, current) });
        let compact = source.compact_revision();
        if start < compact {
            self.stats.compacted += 1;
            out.deliver(compacted(stream, id, compact));
            return Ok(());
        }
        let ix = self.watchers.insert(Watcher::new(stream, id, create, start));
        let (group, place) = self.index.insert(&create.range, ix);
        if let Some(watcher) = self.watchers.get_mut(ix) {
            watcher.group = group;
            watcher.place = place;
            if start <= self.revision {
                watcher.state = State::Lagging;
                self.waiting.insert((start, ix));
            }
        }
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.watchers.insert(id, ix);
        }
        if create.progress_notify {
            self.notify(stream, now);
        }
        Ok(())
    }

    /// Answers a create request that may not be made, for example without permission.
    pub fn refuse(
        &mut self,
        stream: StreamId,
        reason: Cow<'static, str>,
        source: &dyn Source,
        out: &mut dyn Outbox,
    ) {
        out.deliver(Delivery {
            created: true,
            canceled: true,
            cancel_reason: reason,
            ..Delivery::empty(stream, NO_WATCH, self.current(source))
        });
    }

    /// Ends a watch and answers; an unknown id is ignored.
    pub fn cancel(&mut self, stream: StreamId, id: i64, source: &dyn Source, out: &mut dyn Outbox) {
        self.flush(out);
        let Some(&ix) = self.streams.get(&stream).and_then(|entry| entry.watchers.get(&id)) else {
            return;
        };
        self.remove(ix);
        let revision = self.current(source);
        out.deliver(Delivery { canceled: true, ..Delivery::empty(stream, id, revision) });
    }

    /// Forgets a stream and its watchers.
    pub fn close(&mut self, stream: StreamId, out: &mut dyn Outbox) {
        self.flush(out);
        let Some(entry) = self.streams.get(&stream) else { return };
        let all: Vec<WatcherIx> = entry.watchers.values().copied().collect();
        for ix in all {
            self.remove(ix);
        }
        if let Some(entry) = self.streams.remove(&stream)
            && let Some(tick) = entry.tick
        {
            self.ticks.remove(&(tick, stream));
        }
    }

    /// A stream's queue has room again.
    pub fn drained(&mut self, stream: StreamId) {
        let Some(entry) = self.streams.get_mut(&stream) else { return };
        for ix in std::mem::take(&mut entry.blocked) {
            if let Some(watcher) = self.watchers.get_mut(ix) {
                watcher.state = State::Lagging;
                self.waiting.insert((watcher.next, ix));
                self.stats.blocked -= 1;
            }
        }
    }

    /// Takes the events of one revision. Deliveries follow at the end of the turn
    /// ([`Hub::flush`]), one per watcher for all batches of the turn.
    ///
    /// # Errors
    /// [`HubError`]: a previous row could not be read.
    pub fn publish(
        &mut self,
        batch: &Arc<EventBatch>,
        source: &dyn Source,
        out: &mut dyn Outbox,
    ) -> Result<(), HubError> {
        if batch.revision <= self.revision {
            return Ok(()); // covered by a skip already
        }
        if batch.revision > self.revision + 1 {
            self.skip_to(batch.revision - 1, out);
        }
        self.revision = batch.revision;
        let mut matched = std::mem::take(&mut self.scratch);
        for event in &batch.events {
            matched.clear();
            self.index.matching(&event.key, &mut matched);
            if matched.is_empty() {
                continue;
            }
            let mut shared = Shared::new(event.clone());
            for &ix in &matched {
                self.append(ix, &mut shared, source, out)?;
            }
        }
        self.scratch = matched;
        Ok(())
    }

    /// Batches up to `to` were lost on the way (the lane was full, or a snapshot replaced the
    /// state): watchers read them from history instead.
    pub fn skip_to(&mut self, to: i64, out: &mut dyn Outbox) {
        self.flush(out);
        if to <= self.revision {
            return;
        }
        let from = self.revision + 1;
        self.revision = to;
        let behind: Vec<(WatcherIx, i64)> = self
            .watchers
            .iter()
            // A watcher that starts later has missed nothing.
            .filter(|(_, watcher)| watcher.state == State::Synced && watcher.start <= to)
            .map(|(ix, watcher)| (ix, watcher.start.max(from)))
            .collect();
        for (ix, next) in behind {
            self.fall_behind(ix, next);
        }
    }

    /// Hands out what the turn collected. Call at the end of every turn.
    pub fn flush(&mut self, out: &mut dyn Outbox) {
        let dirty = std::mem::take(&mut self.dirty);
        for &ix in &dirty {
            self.hand_out(ix, out);
        }
        self.dirty = dirty;
        self.dirty.clear();
    }

    /// The revision clients are told: what can be read, which may be ahead of the batches seen.
    pub(super) fn current(&self, source: &dyn Source) -> i64 {
        self.revision.max(source.revision())
    }

    fn append(
        &mut self,
        ix: WatcherIx,
        shared: &mut Shared,
        source: &dyn Source,
        out: &mut dyn Outbox,
    ) -> Result<(), HubError> {
        let main = shared.event().revision.main;
        let Some(watcher) = self.watchers.get(ix) else { return Ok(()) };
        if watcher.state != State::Synced
            || main < watcher.start
            || !watcher.wants(shared.event().kind)
        {
            return Ok(());
        }
        // Responses end at revision edges; one revision is never cut here.
        let pending = &watcher.pending;
        if !pending.events.is_empty()
            && pending.last != main
            && pending.bytes + shared.size() > self.options.queue_bytes
        {
            self.hand_out(ix, out);
        }
        let Some(watcher) = self.watchers.get_mut(ix) else { return Ok(()) };
        if watcher.state != State::Synced {
            return Ok(()); // fell behind just now; this event comes from history
        }
        let bytes = shared.bytes(watcher.prev_kv, source)?;
        if watcher.pending.events.is_empty() {
            watcher.pending.first = main;
            self.dirty.push(ix);
        }
        watcher.pending.last = main;
        watcher.pending.bytes += wire_len(&bytes);
        watcher.pending.events.push(bytes);
        Ok(())
    }

    fn hand_out(&mut self, ix: WatcherIx, out: &mut dyn Outbox) {
        let Some(watcher) = self.watchers.get_mut(ix) else { return };
        if watcher.pending.events.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut watcher.pending);
        if is_full(&self.options, watcher.stream, out) {
            self.fall_behind(ix, pending.first);
            self.block(ix, out);
            return;
        }
        let Pending { events, bytes, last, .. } = pending;
        self.emit(ix, events, bytes, last, out);
    }

    /// Sends events of one watcher, in parts if it asked for that.
    pub(super) fn emit(
        &mut self,
        ix: WatcherIx,
        events: Vec<Bytes>,
        bytes: usize,
        revision: i64,
        out: &mut dyn Outbox,
    ) {
        let Some(watcher) = self.watchers.get_mut(ix) else { return };
        watcher.active = true;
        self.stats.events += events.len() as u64;
        let whole = Delivery {
            bytes: bytes + RESPONSE_OVERHEAD,
            ..Delivery::empty(watcher.stream, watcher.id, revision)
        };
        let limit = self.options.fragment_bytes;
        if !watcher.fragment || whole.bytes < limit || events.len() < 2 {
            out.deliver(Delivery { events, ..whole });
            return;
        }
        let mut part = Vec::new();
        let mut size = RESPONSE_OVERHEAD;
        for event in events {
            let len = wire_len(&event);
            if !part.is_empty() && size + len >= limit {
                let events = std::mem::take(&mut part);
                out.deliver(Delivery { events, bytes: size, fragment: true, ..whole.clone() });
                size = RESPONSE_OVERHEAD;
            }
            size += len;
            part.push(event);
        }
        out.deliver(Delivery { events: part, bytes: size, ..whole });
    }

    /// A synced watcher starts to lag at `next`.
    fn fall_behind(&mut self, ix: WatcherIx, next: i64) {
        let Some(watcher) = self.watchers.get_mut(ix) else { return };
        watcher.state = State::Lagging;
        watcher.next = next;
        watcher.pending = Pending::default();
        self.waiting.insert((next, ix));
        self.stats.fell_behind += 1;
    }

    /// A lagging watcher waits for its stream.
    pub(super) fn block(&mut self, ix: WatcherIx, out: &mut dyn Outbox) {
        let Some(watcher) = self.watchers.get_mut(ix) else { return };
        let place = (watcher.next, ix);
        self.ready.remove(&place);
        self.waiting.remove(&place);
        watcher.state = State::Blocked;
        let stream = watcher.stream;
        if let Some(entry) = self.streams.get_mut(&stream)
            && entry.blocked.insert(ix)
        {
            self.stats.blocked += 1;
        }
        out.wait_for_room(stream);
    }

    /// Removes a watcher from everything.
    pub(super) fn remove(&mut self, ix: WatcherIx) {
        let Some(watcher) = self.watchers.remove(ix) else { return };
        self.ready.remove(&(watcher.next, ix));
        self.waiting.remove(&(watcher.next, ix));
        if let Some(moved) = self.index.remove(watcher.group, watcher.place)
            && let Some(moved) = self.watchers.get_mut(moved)
        {
            moved.place = watcher.place;
        }
        if let Some(entry) = self.streams.get_mut(&watcher.stream) {
            entry.watchers.remove(&watcher.id);
            self.stats.blocked -= usize::from(entry.blocked.remove(&ix));
            if watcher.progress_notify {
                entry.notified -= 1;
            }
        }
    }
}

/// The cancel of a watcher whose next revision is compacted.
pub(super) fn compacted(stream: StreamId, id: i64, compact_revision: i64) -> Delivery {
    Delivery { canceled: true, compact_revision, ..Delivery::empty(stream, id, 0) }
}

pub(super) fn is_full(options: &HubOptions, stream: StreamId, out: &dyn Outbox) -> bool {
    let load = out.load(stream);
    load.bytes >= options.queue_bytes || load.events >= options.queue_events
}
