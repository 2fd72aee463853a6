//! Catching up: lagging watchers read history in revision order until they meet live delivery.
//!
//! One round serves all lagging watchers whose position lies within one window of revisions with a
//! single scan. Rounds go through the positions in turn, so neither a watcher far behind nor one
//! that is almost there waits for the other.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::encode::{Shared, wire_len};
use super::hub::{compacted, is_full};
use super::index::{GroupIx, WatcherIx};
use super::watcher::State;
use super::{Hub, HubError, Outbox, Source};
use crate::mvcc::{End, KeyRange};
use bytes::Bytes;

/// Watchers per round: bounds the time one round takes (etcd's figure).
const ROUND_WATCHERS: usize = 512;
/// Bytes of rows read per round, wanted or not: a round over large values of other keys must not
/// hold up live delivery for long.
const ROUND_BYTES: usize = 8 << 20;

/// What one scan found.
struct Found {
    events: Vec<Shared>,
    /// Events of each group of watchers, as positions in `events`.
    hits: Vec<Vec<u32>>,
    /// Every revision up to this one was read completely.
    upto: i64,
}

/// The distinct ranges of a round's watchers.
#[derive(Default)]
struct Ranges {
    slots: BTreeMap<GroupIx, usize>,
    exact: BTreeMap<Bytes, usize>,
    wide: Vec<(KeyRange, usize)>,
}

impl Ranges {
    fn add(&mut self, group: GroupIx, range: &KeyRange) {
        let next = self.slots.len();
        if self.slots.contains_key(&group) {
            return;
        }
        self.slots.insert(group, next);
        if range.end == End::Single {
            self.exact.insert(range.start.clone(), next);
        } else {
            self.wide.push((range.clone(), next));
        }
    }

    fn matching(&self, key: &[u8], out: &mut Vec<usize>) {
        out.clear();
        out.extend(self.exact.get(key));
        out.extend(self.wide.iter().filter(|(range, _)| range.contains(key)).map(|(_, slot)| slot));
    }
}

impl Hub {
    /// One round of catching up; true if another one has work.
    ///
    /// # Errors
    /// [`HubError`]: history could not be read.
    pub fn catch_up(
        &mut self,
        source: &dyn Source,
        out: &mut dyn Outbox,
    ) -> Result<bool, HubError> {
        self.flush(out);
        if self.ready.is_empty() {
            std::mem::swap(&mut self.ready, &mut self.waiting);
        }
        let round = self.take_round(out);
        let compact = source.compact_revision();
        let mut from = i64::MAX;
        let mut ranges = Ranges::default();
        for &(next, ix) in &round {
            // Those already compacted are cancelled below; the scan must not start there.
            if let Some(watcher) = self.watchers.get(ix)
                && next >= compact
            {
                from = from.min(next);
                ranges.add(watcher.group, self.index.range(watcher.group));
            }
        }
        let mut found = self.scan(from, &ranges, source)?;
        // Read again: rows that a compaction removed during the scan were not found, and whoever
        // needed them must be told instead of being moved on.
        let compact = source.compact_revision();
        for (next, ix) in round {
            if next < compact {
                self.cancel_compacted(ix, compact, out);
            } else {
                self.advance(ix, &ranges, &mut found, source, out)?;
            }
        }
        Ok(!self.ready.is_empty() || !self.waiting.is_empty())
    }

    /// Takes the watchers of the next window out of the ready set.
    fn take_round(&mut self, out: &mut dyn Outbox) -> Vec<(i64, WatcherIx)> {
        let mut round = Vec::new();
        let Some(&(anchor, _)) = self.ready.first() else { return round };
        let end = anchor.saturating_add(self.options.batch_revisions);
        while round.len() < ROUND_WATCHERS {
            let Some(&(next, ix)) = self.ready.first() else { break };
            if next >= end {
                break;
            }
            self.ready.pop_first();
            let Some(watcher) = self.watchers.get(ix) else { continue };
            if is_full(&self.options, watcher.stream, out) {
                self.block(ix, out);
            } else {
                round.push((next, ix));
            }
        }
        round
    }

    fn scan(&self, from: i64, ranges: &Ranges, source: &dyn Source) -> Result<Found, HubError> {
        let hits = vec![Vec::new(); ranges.slots.len()];
        let mut found = Found { events: Vec::new(), hits, upto: self.revision };
        if from > self.revision {
            return Ok(found);
        }
        let (mut revisions, mut last, mut read, mut kept) = (0, 0, 0, 0);
        let mut slots = Vec::new();
        let mut failed = None;
        source.rows().scan(from, self.revision, &mut |rev, tombstone, row| {
            if rev.main != last {
                // Only between revisions: one is never split over two rounds.
                let full = kept >= self.options.queue_bytes || read >= ROUND_BYTES;
                if revisions == self.options.batch_revisions || (full && revisions > 0) {
                    found.upto = rev.main - 1;
                    return ControlFlow::Break(());
                }
                revisions += 1;
                last = rev.main;
            }
            read += row.len();
            let shared = match Shared::from_row(rev, tombstone, row) {
                Ok(shared) => shared,
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            };
            ranges.matching(&shared.event().key, &mut slots);
            if !slots.is_empty() {
                kept += shared.size();
                for &slot in &slots {
                    found.hits[slot].push(found.events.len() as u32);
                }
                found.events.push(shared);
            }
            ControlFlow::Continue(())
        })?;
        failed.map_or(Ok(found), Err)
    }

    /// Gives a watcher what the scan found for it and moves it on.
    fn advance(
        &mut self,
        ix: WatcherIx,
        ranges: &Ranges,
        found: &mut Found,
        source: &dyn Source,
        out: &mut dyn Outbox,
    ) -> Result<(), HubError> {
        let Some(watcher) = self.watchers.get(ix) else { return Ok(()) };
        if is_full(&self.options, watcher.stream, out) {
            // Filled by another watcher of the stream in this round.
            self.block(ix, out);
            return Ok(());
        }
        let mut events = Vec::new();
        let mut bytes = 0;
        let hits = ranges.slots.get(&watcher.group).map_or(&[][..], |&slot| &found.hits[slot]);
        for &hit in hits {
            let shared = &mut found.events[hit as usize];
            let event = shared.event();
            if event.revision.main >= watcher.next && watcher.wants(event.kind) {
                let encoded = shared.bytes(watcher.prev_kv, source)?;
                bytes += wire_len(&encoded);
                events.push(encoded);
            }
        }
        if !events.is_empty() {
            self.emit(ix, events, bytes, self.revision, out);
        }
        let upto = found.upto;
        let Some(watcher) = self.watchers.get_mut(ix) else { return Ok(()) };
        watcher.next = watcher.next.max(upto + 1);
        if watcher.next > self.revision {
            watcher.state = State::Synced;
        } else {
            self.waiting.insert((watcher.next, ix));
        }
        Ok(())
    }

    fn cancel_compacted(&mut self, ix: WatcherIx, compact: i64, out: &mut dyn Outbox) {
        let Some(watcher) = self.watchers.get(ix) else { return };
        let cancel = compacted(watcher.stream, watcher.id, compact);
        self.remove(ix);
        self.stats.compacted += 1;
        out.deliver(cancel);
    }
}
