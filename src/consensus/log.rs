//! The log in memory, as the raft library reads it.
//!
//! It holds every entry that is not durably applied, plus a tail for followers that lag behind.
//! The tail is bounded in entries and in bytes: 5,000 entries of 1.5 MiB would be 7.5 GB. Disk
//! order is not decided here; entries are put in as soon as the library announces them, because
//! it forgets its own copy and reads ours from then on.

use super::snapshots::Outgoing;
use super::types::{Entry, EntryKind, HardState, Restored};
use super::{conf::ConfState, types::Error};
use raft::eraftpb;
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use std::cell::RefCell;
use std::collections::VecDeque;

/// What an entry costs beside its payload: the library's struct and two shared buffers.
const ENTRY_OVERHEAD_BYTES: usize = 160;

/// Entries behind `base`, and the snapshots that are on their way to followers.
pub(super) struct Log {
    /// Index and term of the position before the first entry.
    base: (u64, u64),
    entries: VecDeque<eraftpb::Entry>,
    bytes: usize,
    /// Read once by the library, when it starts.
    initial: RaftState,
    /// The library asks for a snapshot through a shared reference, and asking changes this.
    pub(super) outgoing: RefCell<Outgoing>,
}

/// What the rules of a restart made of the restored state.
pub(super) struct Start {
    pub(super) log: Log,
    pub(super) hard_state: HardState,
    pub(super) applied: (u64, u64),
    pub(super) conf_state: ConfState,
    /// Whether the restored log was dropped.
    pub(super) dropped: bool,
}

/// Which of the two restart rules hold; both, outside the simulator.
pub(super) struct StartRules {
    pub(super) drop_foreign_log: bool,
    pub(super) raise_hard_state: bool,
}

/// Brings log, hard state and store together. The store is the base of truth: data and position
/// were saved in one transaction, and the log may be from before a snapshot was installed.
///
/// # Errors
/// [`Error::Damaged`] or [`Error::Configuration`] if the restored state contradicts itself.
pub(super) fn start(restored: Restored, rules: &StartRules) -> Result<Start, Error> {
    let Restored { mut hard_state, mut base, mut entries, applied, conf_state } = restored;
    check(base, &entries)?;
    conf_state.check()?;
    let dropped = !contains(base, &entries, applied) && rules.drop_foreign_log;
    if dropped {
        base = applied;
        entries.clear();
    }
    if hard_state.term < applied.1 && rules.raise_hard_state {
        hard_state.term = applied.1;
        hard_state.vote = 0;
    }
    let last = entries.last().map_or(base, |e| (e.index, e.term));
    if rules.raise_hard_state {
        // Written without a sync, the commit index may trail; it may also belong to entries of a
        // log that was just dropped.
        hard_state.commit = hard_state.commit.min(last.0).max(applied.0);
        // An entry of a term proves that the term was reached.
        if hard_state.term < last.1 {
            return Err(Error::Damaged { index: last.0, what: "term is above the hard state's" });
        }
    }
    let HardState { term, vote, commit } = hard_state;
    let hs = eraftpb::HardState { term, vote, commit, ..Default::default() };
    let entries: VecDeque<eraftpb::Entry> = entries.into_iter().map(to_raft).collect();
    let log = Log {
        base,
        bytes: entries.iter().map(cost).sum(),
        entries,
        initial: RaftState { hard_state: hs, conf_state: conf_state.to_raft() },
        outgoing: RefCell::default(),
    };
    Ok(Start { log, hard_state, applied, conf_state, dropped })
}

fn check(base: (u64, u64), entries: &[Entry]) -> Result<(), Error> {
    let mut before = base;
    for e in entries {
        if e.index != before.0 + 1 {
            return Err(Error::Damaged { index: e.index, what: "index is not one above the last" });
        }
        if e.term < before.1 || e.term == 0 {
            return Err(Error::Damaged { index: e.index, what: "term falls along the log" });
        }
        before = (e.index, e.term);
    }
    Ok(())
}

fn contains(base: (u64, u64), entries: &[Entry], at: (u64, u64)) -> bool {
    match at.0.checked_sub(base.0) {
        None => false,
        Some(0) => base == at,
        Some(behind) => {
            usize::try_from(behind - 1).ok().and_then(|i| entries.get(i)).map(|e| e.term)
                == Some(at.1)
        }
    }
}

impl Log {
    pub(super) fn first(&self) -> u64 {
        self.base.0 + 1
    }

    pub(super) fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Whether at most so many entries, and so many bytes of them, lie behind this index.
    pub(super) fn is_close(&self, index: u64, entries: u64, bytes: usize) -> bool {
        let behind = self.last().saturating_sub(index);
        let last = self.entries.iter().rev().take(behind as usize);
        behind <= entries && last.map(cost).sum::<usize>() <= bytes
    }

    /// Adds entries. The first one replaces everything at and behind its index.
    pub(super) fn append(&mut self, entries: Vec<eraftpb::Entry>) {
        let Some(first) = entries.first() else { return };
        assert!(first.index > self.base.0, "append at {} is below the log's base", first.index);
        assert!(first.index <= self.last() + 1, "append at {} leaves a gap", first.index);
        while self.last() >= first.index {
            let dropped = self.entries.pop_back();
            self.bytes -= dropped.as_ref().map_or(0, cost);
        }
        self.bytes += entries.iter().map(cost).sum::<usize>();
        self.entries.extend(entries);
    }

    /// Begins anew behind a snapshot.
    pub(super) fn reset(&mut self, base: (u64, u64)) {
        self.base = base;
        self.entries.clear();
        self.bytes = 0;
    }

    /// Drops entries up to `to` for as long as `wasteful(entries left, bytes left)` says so. Returns
    /// the new base if it moved.
    pub(super) fn truncate(
        &mut self,
        to: u64,
        wasteful: impl Fn(u64, usize) -> bool,
    ) -> Option<(u64, u64)> {
        let before = self.base.0;
        while self.base.0 < to && wasteful(self.len(), self.bytes) {
            let Some(e) = self.entries.pop_front() else { break };
            self.base = (e.index, e.term);
            self.bytes -= cost(&e);
        }
        (self.base.0 > before).then_some(self.base)
    }

    fn position(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.first())?).ok()
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        let Some(from) = self.position(low) else {
            return Err(raft::Error::Store(StorageError::Compacted));
        };
        if high > self.last() + 1 {
            return Err(raft::Error::Store(StorageError::Unavailable));
        }
        let max = max_size.into().unwrap_or(u64::MAX);
        let count = high.saturating_sub(low) as usize;
        let mut bytes = 0;
        let mut fits = |e: &&eraftpb::Entry| {
            // At least one entry, however large: otherwise replication would stop there.
            let first = bytes == 0;
            bytes += (cost(e) - ENTRY_OVERHEAD_BYTES + 1) as u64;
            first || bytes <= max
        };
        Ok(self.entries.range(from..).take(count).take_while(|e| fits(e)).cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base.0 {
            return Ok(self.base.1);
        }
        let Some(at) = self.position(index) else {
            return Err(raft::Error::Store(StorageError::Compacted));
        };
        let unavailable = raft::Error::Store(StorageError::Unavailable);
        self.entries.get(at).map(|e| e.term).ok_or(unavailable)
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<eraftpb::Snapshot> {
        let at_least = request_index.max(self.base.0);
        let Some(meta) = self.outgoing.borrow_mut().take(to, at_least) else {
            return Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        };
        let mut snapshot = eraftpb::Snapshot::default();
        let m = snapshot.mut_metadata();
        m.index = meta.index;
        m.term = meta.term;
        m.set_conf_state(meta.conf_state.to_raft());
        Ok(snapshot)
    }
}

fn cost(e: &eraftpb::Entry) -> usize {
    e.data.len() + e.context.len() + ENTRY_OVERHEAD_BYTES
}

pub(super) fn to_raft(e: Entry) -> eraftpb::Entry {
    let mut r = eraftpb::Entry::default();
    r.set_entry_type(match e.kind {
        EntryKind::Normal => eraftpb::EntryType::EntryNormal,
        EntryKind::Change => eraftpb::EntryType::EntryConfChangeV2,
    });
    r.index = e.index;
    r.term = e.term;
    r.data = e.data;
    r.context = e.context;
    r
}

/// The library's first form of a change never occurs: `wire` refuses it and nothing else makes it.
pub(super) fn from_raft(e: &eraftpb::Entry) -> Entry {
    Entry {
        index: e.index,
        term: e.term,
        kind: match e.get_entry_type() {
            eraftpb::EntryType::EntryNormal => EntryKind::Normal,
            _ => EntryKind::Change,
        },
        data: e.data.clone(),
        context: e.context.clone(),
    }
}
