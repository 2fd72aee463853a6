//! Which revisions each key has, in memory.
//!
//! The newest record of a key lies in its entry; older ones are boxed and exist only for keys
//! that changed since the last compaction. A key with a single version costs at most its length
//! plus 96 bytes (tested). Records know create revision and version, so a point in history is
//! answered without reading rows, whatever compaction has taken away before it.

use super::leaves::{Keyed, Leaves};
use super::{KeyRange, Revision, SLICE_KEYS};
use parking_lot::RwLock;
use std::sync::Arc;

/// The index as the apply thread (the only writer) and all readers share it.
pub type SharedIndex = Arc<RwLock<KeyIndex>>;

/// What a row takes from the quota, in a form of two bytes: up to [`Charge::EXACT`] exact, above
/// that a power of two, which is how the store rounds large rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge(u16);

impl Charge {
    /// Largest charge that is kept exactly, bytes.
    pub const EXACT: u64 = 0x7fff;

    /// The charge for `bytes`, rounded up to a power of two above [`Charge::EXACT`].
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        match u16::try_from(bytes) {
            Ok(small) if bytes <= Self::EXACT => Self(small),
            _ => Self(0x8000 | (64 - (bytes - 1).leading_zeros()) as u16),
        }
    }

    /// The charge in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        let Self(code) = self;
        if code & 0x8000 == 0 { u64::from(code) } else { 1 << (code & 0x3f) }
    }
}

/// A key that exists at some revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Where its row is; `main` is the mod revision.
    pub revision: Revision,
    /// Main revision of its creation.
    pub create: i64,
    /// Puts since then.
    pub version: i64,
}

/// One change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    main: i64,
    create: i64,
    version: i64,
    sub: u32,
    charge: Charge,
    tombstone: bool,
}

impl Record {
    pub(super) fn revision(&self) -> Revision {
        Revision::new(self.main, i64::from(self.sub))
    }

    fn live(&self) -> Option<Live> {
        let Self { create, version, .. } = *self;
        (!self.tombstone).then(|| Live { revision: self.revision(), create, version })
    }
}

#[derive(Debug)]
struct Entry {
    key: Box<[u8]>,
    newest: Record,
    /// Earlier records, oldest first; never an empty vector. Boxed because most keys have none.
    #[expect(clippy::box_collection, reason = "8 instead of 24 bytes in every entry")]
    older: Option<Box<Vec<Record>>>,
}

impl Keyed for Entry {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

impl Entry {
    fn older(&self) -> &[Record] {
        self.older.as_deref().map_or(&[], Vec::as_slice)
    }

    /// The newest record not above main revision `at`.
    fn at(&self, at: i64) -> Option<&Record> {
        if self.newest.main <= at {
            return Some(&self.newest);
        }
        let older = self.older();
        older[..older.partition_point(|r| r.main <= at)].last()
    }

    fn push(&mut self, record: Record) {
        debug_assert!(self.newest.revision() < record.revision());
        let before = std::mem::replace(&mut self.newest, record);
        self.older.get_or_insert_with(|| Box::new(Vec::with_capacity(1))).push(before);
    }

    /// Removes what a compaction at `at` condemns; false if nothing is left.
    fn compact(&mut self, at: i64, dropped: &mut impl FnMut(&Record)) -> bool {
        let keeps = |record: &Record, last: bool| survives(record, last, at);
        if self.newest.main > at {
            // The last record not above `at` is among the older ones.
            let Some(older) = &mut self.older else { return true };
            let below = older.partition_point(|r| r.main <= at);
            let mut position = 0;
            older.retain(|record| {
                position += 1;
                let kept = position > below || keeps(record, position == below);
                if !kept {
                    dropped(record);
                }
                kept
            });
        } else {
            if let Some(older) = &mut self.older {
                older.retain(|record| {
                    let kept = keeps(record, false);
                    if !kept {
                        dropped(record);
                    }
                    kept
                });
            }
            if !keeps(&self.newest, true) {
                dropped(&self.newest);
                // A condemned newest record is a tombstone below `at`: no older one is exactly at it.
                return false;
            }
        }
        match &mut self.older {
            Some(older) if older.is_empty() => self.older = None,
            Some(older) if older.capacity() > 2 * older.len() + 4 => older.shrink_to_fit(),
            _ => {}
        }
        true
    }
}

/// The rule of compaction at `at` for a record not above it: the last one of its key stays if it
/// is a put; a tombstone stays if it lies exactly at `at` (a watch may start there).
fn survives(record: &Record, last: bool, at: i64) -> bool {
    (last && !record.tombstone) || (record.tombstone && record.main == at)
}

/// What a put did to the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// The key now.
    pub now: Live,
    /// The key before, if it existed.
    pub before: Option<Live>,
    /// Charge of the row before, if the key existed.
    pub before_charge: Charge,
}

/// The index of all keys.
#[derive(Debug)]
pub struct KeyIndex {
    entries: Leaves<Entry>,
    /// Reads below this main revision fail.
    floor: i64,
}

impl Default for KeyIndex {
    fn default() -> Self {
        Self::new(super::NEVER_COMPACTED)
    }
}

impl KeyIndex {
    /// An empty index of a store compacted at `floor` ([`super::NEVER_COMPACTED`] if it never was).
    #[must_use]
    pub fn new(floor: i64) -> Self {
        Self { entries: Leaves::new(), floor }
    }

    /// Reads below this main revision fail with "compacted".
    #[must_use]
    pub fn floor(&self) -> i64 {
        self.floor
    }

    /// Refuses reads below `at` from now on. Never goes back.
    pub fn raise_floor(&mut self, at: i64) {
        self.floor = self.floor.max(at);
    }

    /// Number of keys with any record, deleted ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no record at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key as it was at main revision `at`.
    #[must_use]
    pub fn get(&self, key: &[u8], at: i64) -> Option<Live> {
        self.entries.get(key)?.at(at)?.live()
    }

    /// Adds a put at `revision`, which must be above every revision of the key. `row` makes the
    /// row from what the index now knows of the key and returns its charge.
    pub fn put(&mut self, key: &[u8], revision: Revision, row: impl FnOnce(Live) -> Charge) -> Put {
        let mut put = Put::default();
        self.entries.upsert(key, |entry| {
            let newest = entry.as_ref().map(|entry| entry.newest);
            put.before = newest.and_then(|newest| newest.live());
            put.before_charge = newest.map_or(Charge::default(), |newest| newest.charge);
            put.now = match put.before {
                Some(before) => Live { revision, version: before.version + 1, ..before },
                None => Live { revision, create: revision.main, version: 1 },
            };
            let Live { create, version, .. } = put.now;
            let record = record(revision, create, version, row(put.now), false);
            push_or_make(entry, key, record)
        });
        put
    }

    /// Adds a tombstone at `revision` if the key exists; returns what it was, with its charge.
    pub fn tombstone(
        &mut self,
        key: &[u8],
        revision: Revision,
        charge: Charge,
    ) -> Option<(Live, Charge)> {
        let entry = self.entries.get_mut(key)?;
        let before = (entry.newest.live()?, entry.newest.charge);
        entry.push(record(revision, 0, 0, charge, true));
        Some(before)
    }

    /// Adds a stored row while rebuilding; rows must come in revision order. Returns the charge of
    /// the live row it supersedes, if there is one.
    pub fn restore(
        &mut self,
        key: &[u8],
        revision: Revision,
        live: Option<(i64, i64)>,
        charge: Charge,
    ) -> Option<Charge> {
        let (create, version) = live.unwrap_or((0, 0));
        let record = record(revision, create, version, charge, live.is_none());
        let mut superseded = None;
        self.entries.upsert(key, |entry| {
            let before = entry.as_ref().map(|entry| entry.newest);
            superseded = before.filter(|before| !before.tombstone).map(|before| before.charge);
            push_or_make(entry, key, record)
        });
        superseded
    }

    /// Visits the keys of `range` that exist at main revision `at`, in key order, behind `after`
    /// if given. Looks at no more than [`SLICE_KEYS`] keys; returns the last key looked at if
    /// there may be more.
    pub fn slice(
        &self,
        range: &KeyRange,
        after: Option<&[u8]>,
        at: i64,
        mut visit: impl FnMut(&[u8], Live),
    ) -> Option<Vec<u8>> {
        if let super::End::Single = range.end {
            if after.is_none()
                && let Some(live) = self.get(&range.start, at)
            {
                visit(&range.start, live);
            }
            return None;
        }
        let mut seen = 0;
        let mut cursor = None;
        self.entries.walk(after.unwrap_or(&range.start), after.is_some(), |entry| {
            if range.ends_before(&entry.key) {
                return false;
            }
            if let Some(live) = entry.at(at).and_then(Record::live) {
                visit(&entry.key, live);
            }
            seen += 1;
            if seen == SLICE_KEYS {
                cursor = Some(entry.key.to_vec());
            }
            seen < SLICE_KEYS
        });
        cursor
    }

    /// Visits the newest record not above `at` of each key, tombstones included.
    pub(super) fn records(
        &self,
        after: Option<&[u8]>,
        at: i64,
        mut visit: impl FnMut(Revision, bool),
    ) -> Option<Vec<u8>> {
        let mut seen = 0;
        let mut cursor = None;
        self.entries.walk(after.unwrap_or_default(), after.is_some(), |entry| {
            if let Some(record) = entry.at(at) {
                visit(record.revision(), record.tombstone);
            }
            seen += 1;
            if seen == SLICE_KEYS {
                cursor = Some(entry.key.to_vec());
            }
            seen < SLICE_KEYS
        });
        cursor
    }

    /// Whether a compaction at `at` keeps the record of `key` at `revision`, which is not above it.
    pub(super) fn keeps(&self, key: &[u8], revision: Revision, at: i64) -> bool {
        let Some(entry) = self.entries.get(key) else { return false };
        if entry.at(at).is_some_and(|last| last.revision() == revision && !last.tombstone) {
            return true;
        }
        let all = entry.older().iter().chain([&entry.newest]);
        let mut tombstones = all.filter(|r| r.tombstone && r.main == at);
        revision.main == at && tombstones.any(|r| r.revision() == revision)
    }

    /// Takes from about [`SLICE_KEYS`] keys what a compaction at `at` condemns, beginning at the
    /// key `from`. Each key is done completely or not at all. Returns where to go on.
    pub(super) fn compact_slice(
        &mut self,
        from: &[u8],
        at: i64,
        mut dropped: impl FnMut(Revision, bool, Charge),
    ) -> Option<Box<[u8]>> {
        self.entries.retain_slice(from, SLICE_KEYS, |entry| {
            entry.compact(at, &mut |r| dropped(r.revision(), r.tombstone, r.charge))
        })
    }

    /// Heap bytes of everything the index holds, keys included; allocations rounded to 16 bytes.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let mut bytes = self.entries.heap_bytes();
        self.entries.walk(&[], false, |entry| {
            bytes += entry.key.len().next_multiple_of(16);
            if let Some(older) = &entry.older {
                bytes += size_of::<Vec<Record>>().next_multiple_of(16);
                bytes += (older.capacity() * size_of::<Record>()).next_multiple_of(16);
            }
            true
        });
        bytes
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.entries.check();
        self.entries.walk(&[], false, |entry| {
            assert!(entry.older.as_ref().is_none_or(|older| !older.is_empty()));
            let all: Vec<Revision> =
                entry.older().iter().chain([&entry.newest]).map(Record::revision).collect();
            assert!(all.is_sorted_by(|a, b| a < b), "records out of order");
            true
        });
    }
}

/// Adds `record` to the entry, or makes one that holds only it.
fn push_or_make(entry: Option<&mut Entry>, key: &[u8], record: Record) -> Option<Entry> {
    match entry {
        Some(entry) => {
            entry.push(record);
            None
        }
        None => Some(Entry { key: key.into(), newest: record, older: None }),
    }
}

fn record(
    revision: Revision,
    create: i64,
    version: i64,
    charge: Charge,
    tombstone: bool,
) -> Record {
    // A transaction holds far fewer than 2^32 changes: each takes a key of its own in the index.
    let sub = u32::try_from(revision.sub).unwrap_or(u32::MAX);
    Record { main: revision.main, create, version, sub, charge, tombstone }
}
