//! What must hold, whatever fails. The oracle sees what the parts hand to each other and what
//! clients are told. It keeps the log as it was handed out first, the naive model of the state and
//! the expected answer of every entry; `invariants` holds the rules that need no model.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use assay::consensus::{Committed, EntryKind};
use assay::mvcc::{HashKv, Rows};
use assay::proto::etcdserverpb::InternalRaftRequest;
use assay::store::{Loaded, Shared};
use bytes::Bytes;
use prost::Message as _;

use super::frame::{Verdict, Violation};
use super::invariants::leases::Leases;
use super::invariants::members::Members;
use super::invariants::raft::Raft;
use super::model::{Model, Row};
use crate::check;

/// What is known of one log position.
struct Position {
    term: u64,
    kind: EntryKind,
    data: Bytes,
    /// The answer, revision and compact revision after it.
    answer: String,
    revision: i64,
    compact: i64,
}

#[derive(Default)]
pub struct Oracle {
    /// Virtual time, us.
    pub now: u64,
    log: Vec<Position>,
    /// State after the whole log.
    pub model: Model,
    pub raft: Raft,
    pub leases: Leases,
    pub members: Members,
    /// Newest index whose effects a client was told.
    pub acked: u64,
    pub acked_count: u64,
    /// Newest revision that a client was told, by a write or by a linearizable read.
    pub known_revision: i64,
    /// Position of every request in the log.
    requests: BTreeMap<u64, u64>,
    /// Requests that were answered "not proposed".
    refused: BTreeSet<u64>,
    /// Newest applied index that a start found in a member's store.
    stored: BTreeMap<u64, u64>,
    /// Hash by applied and compacted revision, wherever it was computed first.
    hashes: BTreeMap<(u64, i64, i64), u32>,
    pub replayed: u64,
    pub compared: u64,
}

impl Oracle {
    /// Index up to which entries were handed out anywhere.
    pub fn handed(&self) -> u64 {
        self.log.len() as u64
    }

    fn at(&self, index: u64) -> Option<&Position> {
        self.log.get(usize::try_from(index.checked_sub(1)?).ok()?)
    }

    /// An entry is committed and handed to a state machine: it is so for ever and everywhere.
    pub fn committed(&mut self, id: u64, committed: &Committed) -> Verdict {
        let entry = &committed.entry;
        self.members.committed(committed)?;
        if let Some(known) = self.at(entry.index) {
            check!(
                (known.term, known.kind, &known.data) == (entry.term, entry.kind, &entry.data),
                "committed entry {} is another at {id}: term {} and {}, {} and {} bytes",
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
        let answer = match entry.kind {
            EntryKind::Normal => self.model.apply(&entry.data),
            EntryKind::Change => "done".to_owned(),
        };
        self.raft.committed.insert(entry.index, entry.term);
        if entry.kind == EntryKind::Normal && !entry.data.is_empty() {
            self.request(entry.index, &entry.data, &answer)?;
        }
        self.log.push(Position {
            term: entry.term,
            kind: entry.kind,
            data: entry.data.clone(),
            answer,
            revision: self.model.revision,
            compact: self.model.compact,
        });
        Ok(())
    }

    fn request(&mut self, index: u64, data: &[u8], answer: &str) -> Verdict {
        let request = InternalRaftRequest::decode(data).map_err(|e| Violation(e.to_string()))?;
        let id = request.header.map_or(0, |header| header.id);
        let twice = self.requests.insert(id, index);
        check!(twice.is_none(), "request {id} is in the log at {twice:?} and at {index}");
        check!(
            !self.refused.contains(&id),
            "request {id} was refused and is in the log at {index}"
        );
        if let Some(grant) = &request.lease_grant
            && answer.starts_with("grant")
        {
            self.leases.granted(index, grant.id, grant.ttl);
        }
        if let Some(revoke) = &request.lease_revoke
            && answer.starts_with("revoke")
        {
            self.leases.revoked(revoke.id, id, self.now)?;
        }
        Ok(())
    }

    /// A client was told that its request was not proposed.
    pub fn refused(&mut self, request: u64) -> Verdict {
        let known = self.requests.get(&request);
        check!(known.is_none(), "request {request} is refused and in the log at {known:?}");
        self.refused.insert(request);
        Ok(())
    }

    /// A machine applied an entry behind `before` and gave this answer.
    pub fn applied(&mut self, id: u64, before: u64, committed: &Committed, got: &str) -> Verdict {
        let index = committed.entry.index;
        check!(index == before + 1, "{id} applies entry {index} after {before}");
        let Some(known) = self.at(index) else {
            return Err(Violation(format!("{id} applies entry {index}, which is not committed")));
        };
        check!(
            known.answer == got,
            "entry {index} at {id}: answer {got:?}, expected {:?}",
            known.answer
        );
        Ok(())
    }

    /// The answer that the entry at `index` must get.
    pub fn answer(&self, index: u64) -> &str {
        self.at(index).map_or("", |position| &position.answer)
    }

    /// The revision after the entry at `index`.
    pub fn revision_at(&self, index: u64) -> i64 {
        self.at(index).map_or(1, |position| position.revision)
    }

    /// A client was told the outcome of the entry at `index`, or that its request is done; when it
    /// asked, everything up to `floor` had been acknowledged already.
    pub fn acknowledged(&mut self, request: u64, floor: u64) -> Result<u64, Violation> {
        let Some(&index) = self.requests.get(&request) else {
            return Err(Violation(format!("request {request} is answered and not committed")));
        };
        check!(
            index > floor,
            "request {request} is at {index}, it began after {floor} was answered"
        );
        self.acked = self.acked.max(index);
        self.acked_count += 1;
        self.known_revision = self.known_revision.max(self.revision_at(index));
        Ok(index)
    }

    /// A start or an install opened a store: what is in it belongs to one index, and to no older
    /// one than an earlier start found.
    pub fn opened(&mut self, id: u64, loaded: &Loaded, shared: &Shared, new: bool) -> Verdict {
        let index = loaded.applied.0;
        check!(index <= self.handed(), "store of {id} is at {index} of {}", self.handed());
        let before = self.stored.insert(id, index).unwrap_or(0);
        check!(index >= before, "store of {id} went back from {before} to {index}");
        let Some(position) = self.at(index) else { return Ok(()) };
        check!(
            loaded.applied.1 == position.term,
            "store of {id} is at {:?}, the entry has term {}",
            loaded.applied,
            position.term
        );
        let (revision, compact) = (position.revision, position.compact);
        check!(
            loaded.revision.max(1) == revision,
            "store of {id} at {index} has revision {}, expected {revision}",
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
                    "row {}.{} in the store of {id} differs: {row:?}",
                    row.main,
                    row.sub
                ),
                None => check!(
                    row.main <= compact && compact > 0 && !self.model.survives(row, compact),
                    "row {}.{} is missing in the store of {id} at revision {revision}",
                    row.main,
                    row.sub
                ),
            }
        }
        check!(stored.is_empty(), "store of {id} at {index} has rows from its future");
        if new {
            self.replayed += 1;
        }
        Ok(())
    }

    /// A machine's state was hashed when nothing was under way.
    pub fn hashed(&mut self, id: u64, index: u64, got: &HashKv) -> Verdict {
        let key = (index, got.hash_revision, got.compact_revision);
        let known = *self.hashes.entry(key).or_insert(got.hash);
        self.compared += 1;
        check!(
            known == got.hash,
            "state of {id} at {index} has hash {:08x}, another member {known:08x}",
            got.hash
        );
        if index != self.handed() {
            return Ok(());
        }
        let model = &self.model;
        check!(
            got.hash_revision == model.revision,
            "hash of {id} is for revision {}, expected {}",
            got.hash_revision,
            model.revision
        );
        let expected = if got.compact_revision == model.compact {
            model.hash_kv()
        } else {
            // The hash that the compaction itself made, while it is remembered.
            check!(
                got.hash_revision == model.compact && got.compact_revision == model.compact_before,
                "hash of {id} is for a compaction at {}, expected {} or the one before",
                got.compact_revision,
                model.compact
            );
            Some(model.hash_of_compaction())
        };
        if let Some(expected) = expected {
            check!(
                got.hash == expected,
                "hash {:08x} of {id} at {index}, expected {expected:08x}",
                got.hash
            );
        }
        Ok(())
    }

    /// A linearizable read that began when `floor` was known to clients saw `revision`.
    pub fn read(&mut self, floor: i64, revision: i64, rows: &[Vec<u8>]) -> Verdict {
        check!(revision >= floor, "read saw revision {revision}, {floor} was known before");
        self.known_revision = self.known_revision.max(revision);
        self.read_past(revision, rows)
    }

    /// A read at some revision answers what was there then.
    pub fn read_past(&self, revision: i64, rows: &[Vec<u8>]) -> Verdict {
        check!(revision <= self.model.revision, "read saw revision {revision} before it was");
        let expected: Vec<Vec<u8>> =
            self.model.range(b"k", b"l", revision).into_iter().map(Row::encoded).collect();
        check!(rows == expected, "read at revision {revision} differs: {} rows", rows.len());
        Ok(())
    }
}
