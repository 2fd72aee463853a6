//! The running hash: one number for everything that was applied since a replicated point, equal on all
//! members at an equal applied index.
//!
//! Each entry folds what it changed into the hash: index and term, rows, rows of small tables, the
//! configuration. What it did not change is in there through the entries before. It begins at zero
//! with an empty log and anew at each accepted compaction, which is how a member learns it that does
//! not know it: one whose store was written by a former version.

use super::Machine;
use crate::mvcc::Revision;
use crate::store::{Content, Table, hash_pair, hash_row};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// The hash is remembered at each multiple of this index, so that members of which one lags find an
/// index that both passed: some milliseconds of a busy member.
pub const POINT_EVERY: u64 = 256;
/// Points remembered: 65,536 entries, more than a follower may lag before it needs a snapshot, and
/// about a second of the fastest member.
pub const POINTS_KEPT: usize = 256;

/// Mixed in where the hash begins anew.
const BEGIN: u64 = 0x6265_6769_6e21;

/// The running hash and what is found to be wrong with the store below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Running {
    value: Option<u64>,
    /// What the store gave back at the start differs from what was written by this; 0: it does not.
    fault: u64,
}

/// What one entry changed.
pub(super) struct Effects<'a> {
    pub(super) rows: &'a [(Revision, bool, Bytes)],
    pub(super) small: &'a [(Table, Bytes, Option<Bytes>)],
    pub(super) conf_state: Option<&'a [u8]>,
}

/// Multiplication and rotation: each step is a bijection of the hash before, so a difference stays.
fn fold(hash: u64, with: u64) -> u64 {
    (hash.rotate_left(23) ^ with).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Running {
    /// As of a start. `fault` is how far the rows read are from those that were written.
    pub(super) fn restored(stored: Option<u64>, fault: u64) -> Running {
        let value = match fault {
            0 => stored,
            fault => stored.map(|value| fold(value, fault)),
        };
        Running { value, fault }
    }

    pub(super) fn value(self) -> Option<u64> {
        self.value
    }

    /// Takes in an applied entry.
    pub(super) fn entry(&mut self, (index, term): (u64, u64), effects: &Effects<'_>) {
        let Some(mut hash) = self.value else { return };
        hash = fold(fold(hash, index), term);
        for (revision, tombstone, row) in effects.rows {
            hash = fold(hash, hash_row(*revision, *tombstone, row));
        }
        for (table, key, value) in effects.small {
            hash = fold(hash, hash_pair(*table, key, value.as_deref().unwrap_or_default()));
            hash = fold(hash, u64::from(value.is_some()));
        }
        if let Some(conf_state) = effects.conf_state {
            hash = fold(hash, hash_pair(Table::Meta, b"conf_state", conf_state));
        }
        self.value = Some(hash);
    }

    /// Begins anew at an entry that every member has. What the store got wrong stays in it.
    pub(super) fn begin(&mut self, (index, term): (u64, u64)) {
        self.value = Some(fold(fold(fold(BEGIN, index), term), self.fault));
    }
}

/// The hash at some applied indexes, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningPoints {
    /// Applied index and hash there.
    pub points: Vec<(u64, u64)>,
}

/// Where readers find the hash.
#[derive(Debug, Default)]
pub(super) struct Points {
    kept: Mutex<VecDeque<(u64, u64)>>,
    newest: Mutex<Option<(u64, u64)>>,
}

impl Points {
    fn keep(&self, index: u64, hash: u64) {
        let mut kept = self.kept.lock();
        if kept.len() == POINTS_KEPT {
            kept.pop_front();
        }
        kept.push_back((index, hash));
    }

    /// Another state takes the place of the one they were made over.
    pub(super) fn clear(&self) {
        self.kept.lock().clear();
        *self.newest.lock() = None;
    }

    pub(super) fn all(&self) -> RunningPoints {
        let newest = *self.newest.lock();
        let mut points: Vec<(u64, u64)> = self.kept.lock().iter().copied().collect();
        if let Some(newest) = newest
            && points.last().is_none_or(|last| last.0 < newest.0)
        {
            points.push(newest);
        }
        RunningPoints { points }
    }
}

impl Machine {
    /// Folds an applied entry into the running hash: what the open batch got behind these lengths.
    pub(super) fn run_hash(&mut self, (rows, small): (usize, usize), conf: bool, begins: bool) {
        let effects = Effects {
            rows: &self.batch.rows[rows..],
            small: &self.batch.small[small..],
            conf_state: self.batch.conf_state.as_deref().filter(|_| conf),
        };
        self.running.entry(self.applied, &effects);
        if begins {
            self.running.begin(self.applied);
        }
        let index = self.applied.0;
        if index.is_multiple_of(POINT_EVERY)
            && let Some(hash) = self.running.value()
        {
            self.published.points().keep(index, hash);
        }
    }

    /// The hash at the applied index, to readers.
    pub(super) fn publish_hash(&self) {
        let newest = self.running.value().map(|hash| (self.applied.0, hash));
        *self.published.points().newest.lock() = newest;
    }

    /// What the store said of its rows and what was read at the start, if they differ.
    #[must_use]
    pub fn store_differs(&self) -> Option<(Content, Content)> {
        self.differs
    }
}
