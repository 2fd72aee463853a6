//! What must hold, whatever fails: every rule of the simulation in one place.
//!
//! The oracle sees what the parts hand to each other and what clients are told. It keeps the log
//! as it was handed out, the naive model of the state and the expected answer of every entry.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use assay::consensus::{Committed, EntryKind};
use assay::mvcc::{HashKv, Rows};
use assay::store::{Loaded, Shared};
use bytes::Bytes;

use super::model::{Model, Row};

/// A broken rule of the simulation: which, and with what.
#[derive(Clone, Debug)]
pub struct Violation(pub String);

pub type Verdict = Result<(), Violation>;

/// Fails with a formatted [`Violation`] unless the condition holds.
#[macro_export]
macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::sim::oracle::Violation(format!($($text)+)));
        }
    };
}

/// What is known of one log position.
struct Position {
    term: u64,
    kind: EntryKind,
    data: Bytes,
}

/// A lease as its holder understands it, in virtual milliseconds.
struct Held {
    ttl_ms: u64,
    since_ms: u64,
}

#[derive(Default)]
pub struct Oracle {
    log: BTreeMap<u64, Position>,
    /// State after the entries up to `model_index`.
    pub model: Model,
    model_index: u64,
    /// Expected answer, revision and compact revision after each index, from 1.
    expected: Vec<(String, i64, i64)>,
    /// Newest index whose effects a client was told.
    pub acked: u64,
    pub acked_count: u64,
    /// Newest revision that a client was told.
    pub acked_revision: i64,
    held: BTreeMap<i64, Held>,
    /// Newest applied index that a start found in the store.
    durable: u64,
    pub expired: u64,
    pub replayed: u64,
}

impl Oracle {
    /// Index up to which entries were handed out in any life.
    pub fn handed(&self) -> u64 {
        self.log.last_key_value().map_or(0, |(index, _)| *index)
    }

    /// An entry is committed and handed to the state machine: it is so for ever.
    pub fn committed(&mut self, committed: &Committed) -> Verdict {
        let entry = &committed.entry;
        if let Some(known) = self.log.get(&entry.index) {
            check!(
                (known.term, known.kind, &known.data) == (entry.term, entry.kind, &entry.data),
                "committed entry {} changed: term {} became {}, {} became {} bytes",
                entry.index,
                known.term,
                entry.term,
                known.data.len(),
                entry.data.len()
            );
            return Ok(());
        }
        check!(
            entry.index == self.handed() + 1,
            "entry {} was handed out after {}",
            entry.index,
            self.handed()
        );
        let position = Position { term: entry.term, kind: entry.kind, data: entry.data.clone() };
        self.log.insert(entry.index, position);
        Ok(())
    }

    /// A learner was told that an entry is committed. It may hear of it before the leader's own
    /// state machine.
    pub fn learned(&self, committed: &Committed) -> Verdict {
        let entry = &committed.entry;
        if let Some(known) = self.log.get(&entry.index) {
            check!(
                (known.term, &known.data) == (entry.term, &entry.data),
                "learner has other data at {}: term {} instead of {}",
                entry.index,
                entry.term,
                known.term
            );
        }
        Ok(())
    }

    /// The machine applied an entry and gave this answer. True if it is the first time.
    pub fn applied(
        &mut self,
        index: u64,
        kind: EntryKind,
        data: &[u8],
        answer: &str,
    ) -> Result<bool, Violation> {
        let first = index > self.model_index;
        self.replayed += u64::from(!first);
        if first {
            check!(
                index == self.model_index + 1,
                "entry {index} applied after {}",
                self.model_index
            );
            let answer = match kind {
                EntryKind::Normal => self.model.apply(data),
                EntryKind::Change => "done".to_owned(),
            };
            self.model_index = index;
            self.expected.push((answer, self.model.revision, self.model.compact));
        }
        let (expected, ..) = &self.expected[index as usize - 1];
        check!(expected == answer, "entry {index}: answer {answer:?}, expected {expected:?}");
        Ok(first)
    }

    pub fn revision_at(&self, index: u64) -> i64 {
        index.checked_sub(1).map_or(1, |at| self.expected[at as usize].1)
    }

    /// A client was told the outcome of the entry at `index`.
    pub fn acknowledged(&mut self, index: u64) {
        self.acked = self.acked.max(index);
        self.acked_count += 1;
        self.acked_revision = self.acked_revision.max(self.revision_at(index));
    }

    /// A start opened the store: what is in it belongs to one index, and to no older one than
    /// an earlier start found.
    pub fn opened(&mut self, loaded: &Loaded, shared: &Shared) -> Verdict {
        let index = loaded.applied.0;
        check!(index <= self.model_index, "store is at {index}, applied was {}", self.model_index);
        check!(index >= self.durable, "store went back from {} to {index}", self.durable);
        self.durable = index;
        if index == 0 {
            return Ok(());
        }
        check!(
            loaded.applied.1 == self.log[&index].term,
            "store is at {:?}, the entry has term {}",
            loaded.applied,
            self.log[&index].term
        );
        let (_, revision, compact) = self.expected[index as usize - 1];
        check!(
            loaded.revision.max(1) == revision,
            "store at {index} has revision {}, expected {revision}",
            loaded.revision
        );
        let mut stored = BTreeMap::new();
        let scan = shared.scan(0, i64::MAX, &mut |revision, tombstone, bytes| {
            stored.insert((revision.main, revision.sub), (tombstone, bytes));
            ControlFlow::Continue(())
        });
        check!(scan.is_ok(), "rows could not be scanned: {scan:?}");
        for row in self.model.rows.iter().filter(|row| row.main <= revision) {
            match stored.remove(&(row.main, row.sub)) {
                Some((tombstone, bytes)) => check!(
                    tombstone == row.tombstone && bytes[..] == row.encoded()[..],
                    "row {}.{} in the store differs: {row:?}",
                    row.main,
                    row.sub
                ),
                None => check!(
                    row.main <= compact && !self.survives(row, compact),
                    "row {}.{} is missing in the store at revision {revision}",
                    row.main,
                    row.sub
                ),
            }
        }
        check!(stored.is_empty(), "store at {index} has rows from its future: {:?}", stored.keys());
        Ok(())
    }

    fn survives(&self, row: &Row, compact: i64) -> bool {
        compact > 0 && self.model.survives(row, compact)
    }

    /// The machine's state was hashed when nothing was under way.
    pub fn hashed(&self, index: u64, got: &HashKv) -> Verdict {
        if index != self.model_index {
            return Ok(());
        }
        let model = &self.model;
        check!(
            got.hash_revision == model.revision,
            "hash is for revision {}, expected {}",
            got.hash_revision,
            model.revision
        );
        let expected = if got.compact_revision == model.compact {
            model.hash_kv()
        } else {
            // The hash that the compaction itself made, while it is remembered.
            check!(
                got.hash_revision == model.compact && got.compact_revision == model.compact_before,
                "hash is for a compaction at {}, expected {} or the one before",
                got.compact_revision,
                model.compact
            );
            Some(model.hash_of_compaction())
        };
        if let Some(expected) = expected {
            check!(
                got.hash == expected,
                "hash {:08x} at {index}, expected {expected:08x}",
                got.hash
            );
        }
        Ok(())
    }

    /// A linearizable read that began when `floor` was acknowledged saw `revision`.
    pub fn read(&self, floor: i64, revision: i64, rows: &[Vec<u8>]) -> Verdict {
        check!(revision >= floor, "read saw revision {revision}, {floor} was acknowledged before");
        let expected: Vec<Vec<u8>> =
            self.model.range(b"k", b"l", revision).into_iter().map(Row::encoded).collect();
        check!(rows == expected, "read at {revision} differs: {} rows", rows.len());
        Ok(())
    }

    /// A read at an older revision answers what was there then.
    pub fn read_past(&self, revision: i64, rows: &[Vec<u8>]) -> Verdict {
        let expected: Vec<Vec<u8>> =
            self.model.range(b"k", b"l", revision).into_iter().map(Row::encoded).collect();
        check!(rows == expected, "read at past revision {revision} differs: {} rows", rows.len());
        Ok(())
    }

    /// The leader's clock started a lease or renewed it.
    pub fn lease_held(&mut self, id: i64, ttl: i64, now_ms: u64) {
        let held = Held { ttl_ms: ttl as u64 * 1_000, since_ms: now_ms };
        self.held.insert(id, held);
    }

    /// The clock proposes to revoke a lease.
    pub fn lease_expires(&mut self, id: i64, now_ms: u64) -> Verdict {
        self.expired += 1;
        if let Some(held) = self.held.get(&id) {
            check!(
                now_ms >= held.since_ms + held.ttl_ms,
                "lease {id} ends at {now_ms} ms, held since {} for {}",
                held.since_ms,
                held.ttl_ms
            );
        }
        Ok(())
    }

    /// A revoke was applied: no holder may still count on the lease, unless it was asked for.
    pub fn lease_revoked(&mut self, id: i64, asked: bool, now_ms: u64) -> Verdict {
        if let Some(held) = self.held.remove(&id) {
            check!(
                asked || now_ms >= held.since_ms + held.ttl_ms,
                "lease {id} is revoked at {now_ms} ms, held since {} for {}",
                held.since_ms,
                held.ttl_ms
            );
        }
        Ok(())
    }
}
