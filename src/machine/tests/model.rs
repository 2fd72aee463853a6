//! A naive model of the store: every revision is a whole map. It shares no code with what it
//! judges but the answer types; rules are written down from the description of the interface.

use super::*;
use crate::mvcc::{HashKv, RangeResult};
use pb::compare::TargetUnion;
use pb_kv::KeyValue;
use std::collections::BTreeMap;

pub(super) type State = BTreeMap<Vec<u8>, KeyValue>;

/// A stored row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) main: i64,
    pub(super) sub: i64,
    pub(super) tombstone: bool,
    pub(super) key: Vec<u8>,
    pub(super) bytes: Bytes,
}

/// A change as a watcher should see it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) delete: bool,
    pub(super) key: Vec<u8>,
    pub(super) row: Bytes,
    pub(super) create: bool,
    pub(super) prev: Option<Bytes>,
    pub(super) lease: i64,
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) compacted: i64,
    /// `states[r]` is the store at revision r; 0 is unused.
    pub(super) states: Vec<State>,
    pub(super) rows: Vec<Row>,
    pub(super) leases: BTreeMap<i64, i64>,
}

type Outcome = (Result<Answer, AnswerError>, Vec<Change>);

fn row(kv: &KeyValue) -> Bytes {
    kv.encode_to_vec().into()
}

fn inside(key: &[u8], start: &[u8], end: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        _ => key >= start && key < end,
    }
}

impl Model {
    pub(super) fn new() -> Self {
        Self { compacted: -1, states: vec![State::new(), State::new()], ..Default::default() }
    }

    pub(super) fn revision(&self) -> i64 {
        self.states.len() as i64 - 1
    }

    pub(super) fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    pub(super) fn run(&mut self, request: &InternalRaftRequest) -> Outcome {
        let mut state = self.now().clone();
        let mut changes = Vec::new();
        let answer = self.command(request, &mut state, &mut changes);
        if answer.is_ok() && !changes.is_empty() {
            let before = self.states.last().unwrap();
            let main = self.revision() + 1;
            for (sub, change) in changes.iter_mut().enumerate() {
                if !change.create {
                    change.prev = before.get(&change.key).map(row);
                }
                let stored = match change.delete {
                    true => row(&KeyValue { key: bytes(&change.key), ..Default::default() }),
                    false => change.row.clone(),
                };
                self.rows.push(Row {
                    main,
                    sub: sub as i64,
                    tombstone: change.delete,
                    key: change.key.clone(),
                    bytes: stored,
                });
            }
            self.states.push(state);
        }
        (answer, changes)
    }

    fn command(
        &mut self,
        request: &InternalRaftRequest,
        state: &mut State,
        changes: &mut Vec<Change>,
    ) -> Result<Answer, AnswerError> {
        let next = self.revision() + 1;
        if let Some(put) = &request.put {
            self.check_put(put, state)?;
            let prev_kv = self.put(put, state, changes);
            Ok(Answer::Put { revision: next, prev_kv })
        } else if let Some(delete) = &request.delete_range {
            let (deleted, prev_kvs) = self.delete(delete, state, changes);
            let revision = if deleted > 0 { next } else { next - 1 };
            Ok(Answer::DeleteRange { revision, deleted, prev_kvs })
        } else if let Some(txn) = &request.txn {
            self.check_txn(txn, state, &mut state.clone())?;
            let before = state.clone();
            let mut answer = self.txn(txn, &before, state, changes);
            answer.revision = if changes.is_empty() { next - 1 } else { next };
            Ok(Answer::Txn(answer))
        } else if let Some(compaction) = &request.compaction {
            let at = compaction.revision;
            if at <= self.compacted {
                return Err(AnswerError::Compacted);
            }
            if at >= next {
                return Err(AnswerError::FutureRevision);
            }
            self.compacted = at;
            let stays = self.stays(at);
            let mut stays = stays.iter();
            self.rows.retain(|_| *stays.next().unwrap());
            Ok(Answer::Compact { revision: next - 1 })
        } else if let Some(grant) = &request.lease_grant {
            if grant.id == 0 {
                return Err(AnswerError::LeaseNotFound);
            }
            if grant.ttl > 9_000_000_000 {
                return Err(AnswerError::LeaseTtlTooLarge);
            }
            if self.leases.contains_key(&grant.id) {
                return Err(AnswerError::LeaseExists);
            }
            let ttl = grant.ttl.max(2);
            self.leases.insert(grant.id, ttl);
            Ok(Answer::LeaseGrant { revision: next - 1, id: grant.id, ttl })
        } else if let Some(revoke) = &request.lease_revoke {
            self.leases.remove(&revoke.id).ok_or(AnswerError::LeaseNotFound)?;
            let keys: Vec<_> = state
                .iter()
                .filter(|(_, kv)| kv.lease == revoke.id)
                .map(|(k, _)| k.clone())
                .collect();
            for key in &keys {
                self.delete_key(key, state, changes);
            }
            let revision = if keys.is_empty() { next - 1 } else { next };
            Ok(Answer::LeaseRevoke { revision })
        } else {
            unreachable!("the model does not know {request:?}")
        }
    }

    /// Which rows a compaction at `at` keeps.
    fn stays(&self, at: i64) -> Vec<bool> {
        let mut newest: BTreeMap<&[u8], (i64, i64)> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.main <= at) {
            newest.insert(&row.key, (row.main, row.sub));
        }
        let stays = |row: &Row| {
            row.main > at
                || (row.tombstone && row.main == at)
                || (!row.tombstone && newest[&row.key[..]] == (row.main, row.sub))
        };
        self.rows.iter().map(stays).collect()
    }

    fn check_put(&self, put: &pb::PutRequest, state: &State) -> Result<(), AnswerError> {
        if put.lease != 0 && !self.leases.contains_key(&put.lease) {
            return Err(AnswerError::LeaseNotFound);
        }
        if (put.ignore_value || put.ignore_lease) && !state.contains_key(&put.key[..]) {
            return Err(AnswerError::KeyNotFound);
        }
        Ok(())
    }

    fn put(
        &self,
        put: &pb::PutRequest,
        state: &mut State,
        changes: &mut Vec<Change>,
    ) -> Option<Bytes> {
        let main = self.revision() + 1;
        let before = state.get(&put.key[..]).cloned();
        let kv = KeyValue {
            key: put.key.clone(),
            create_revision: before.as_ref().map_or(main, |kv| kv.create_revision),
            mod_revision: main,
            version: before.as_ref().map_or(1, |kv| kv.version + 1),
            value: match (put.ignore_value, &before) {
                (true, Some(before)) => before.value.clone(),
                _ => put.value.clone(),
            },
            lease: match (put.ignore_lease, &before) {
                (true, Some(before)) => before.lease,
                _ => put.lease,
            },
        };
        changes.push(Change {
            delete: false,
            key: put.key.to_vec(),
            row: row(&kv),
            create: kv.version == 1,
            prev: None,
            lease: kv.lease,
        });
        state.insert(put.key.to_vec(), kv);
        before.filter(|_| put.prev_kv).map(|kv| row(&kv))
    }

    fn delete_key(&self, key: &[u8], state: &mut State, changes: &mut Vec<Change>) {
        state.remove(key);
        let mod_revision = self.revision() + 1;
        let shown = KeyValue { key: bytes(key), mod_revision, ..Default::default() };
        changes.push(Change {
            delete: true,
            key: key.to_vec(),
            row: row(&shown),
            create: false,
            prev: None,
            lease: 0,
        });
    }

    fn delete(
        &self,
        delete: &pb::DeleteRangeRequest,
        state: &mut State,
        changes: &mut Vec<Change>,
    ) -> (i64, Vec<Bytes>) {
        let gone: Vec<KeyValue> = state
            .values()
            .filter(|kv| inside(&kv.key, &delete.key, &delete.range_end))
            .cloned()
            .collect();
        for kv in &gone {
            self.delete_key(&kv.key, state, changes);
        }
        let prev = if delete.prev_kv { gone.iter().map(row).collect() } else { Vec::new() };
        (gone.len() as i64, prev)
    }

    /// Checks the chosen path on the state before; `going` is the state as the path changes it.
    fn check_txn(
        &self,
        txn: &pb::TxnRequest,
        before: &State,
        going: &mut State,
    ) -> Result<(), AnswerError> {
        for op in self.branch(txn, before) {
            match op.request.as_ref().unwrap() {
                Request::RequestRange(range) if range.revision > self.revision() => {
                    return Err(AnswerError::FutureRevision);
                }
                Request::RequestRange(range)
                    if range.revision != 0 && range.revision < self.compacted =>
                {
                    return Err(AnswerError::Compacted);
                }
                Request::RequestRange(_) => {}
                Request::RequestPut(put) => {
                    self.check_put(put, before)?;
                    self.check_put(put, going)?;
                    self.put(put, going, &mut Vec::new());
                }
                Request::RequestDeleteRange(delete) => {
                    self.delete(delete, going, &mut Vec::new());
                }
                Request::RequestTxn(nested) => self.check_txn(nested, before, going)?,
            }
        }
        Ok(())
    }

    fn branch<'t>(&self, txn: &'t pb::TxnRequest, before: &State) -> &'t [pb::RequestOp] {
        let holds = txn.compare.iter().all(|compare| self.compare(compare, before));
        if holds { &txn.success } else { &txn.failure }
    }

    fn txn(
        &self,
        txn: &pb::TxnRequest,
        before: &State,
        state: &mut State,
        changes: &mut Vec<Change>,
    ) -> TxnAnswer {
        let succeeded = txn.compare.iter().all(|compare| self.compare(compare, before));
        let mut results = Vec::new();
        for op in self.branch(txn, before) {
            let next = self.revision() + 1;
            results.push(match op.request.as_ref().unwrap() {
                Request::RequestRange(range) => {
                    let revision = if changes.is_empty() { next - 1 } else { next };
                    let state = if range.revision > 0 {
                        &self.states[range.revision as usize]
                    } else {
                        &*state
                    };
                    OpAnswer::Range { revision, result: self.range(range, state, revision) }
                }
                Request::RequestPut(put) => {
                    let prev_kv = self.put(put, state, changes);
                    OpAnswer::Put { revision: next, prev_kv }
                }
                Request::RequestDeleteRange(delete) => {
                    let (deleted, prev_kvs) = self.delete(delete, state, changes);
                    let revision = if changes.is_empty() { next - 1 } else { next };
                    OpAnswer::DeleteRange { revision, deleted, prev_kvs }
                }
                Request::RequestTxn(nested) => {
                    OpAnswer::Txn(self.txn(nested, before, state, changes))
                }
            });
        }
        TxnAnswer { revision: 0, succeeded, results }
    }

    fn compare(&self, compare: &pb::Compare, state: &State) -> bool {
        let found: Vec<KeyValue> = state
            .values()
            .filter(|kv| inside(&kv.key, &compare.key, &compare.range_end))
            .cloned()
            .collect();
        let by_value = compare.target == 3;
        if found.is_empty() {
            return !by_value && self.compare_one(compare, &KeyValue::default());
        }
        found.iter().all(|kv| self.compare_one(compare, kv))
    }

    fn compare_one(&self, compare: &pb::Compare, kv: &KeyValue) -> bool {
        let union = &compare.target_union;
        let number = |asked: Option<i64>, have: i64| have.cmp(&asked.unwrap_or(0));
        let order = match compare.target {
            0 => number(
                if let Some(TargetUnion::Version(n)) = union { Some(*n) } else { None },
                kv.version,
            ),
            1 => number(
                if let Some(TargetUnion::CreateRevision(n)) = union { Some(*n) } else { None },
                kv.create_revision,
            ),
            2 => number(
                if let Some(TargetUnion::ModRevision(n)) = union { Some(*n) } else { None },
                kv.mod_revision,
            ),
            3 => match union {
                Some(TargetUnion::Value(value)) => kv.value.cmp(value),
                _ => kv.value.cmp(&Bytes::new()),
            },
            4 => number(
                if let Some(TargetUnion::Lease(n)) = union { Some(*n) } else { None },
                kv.lease,
            ),
            _ => std::cmp::Ordering::Equal,
        };
        match compare.result {
            0 => order.is_eq(),
            1 => order.is_gt(),
            2 => order.is_lt(),
            3 => order.is_ne(),
            _ => true,
        }
    }

    pub(super) fn read(&self, range: &pb::RangeRequest) -> Result<RangeResult, ReadError> {
        if range.revision > self.revision() {
            return Err(ReadError::FutureRevision);
        }
        if range.revision > 0 && range.revision < self.compacted {
            return Err(ReadError::Compacted);
        }
        let at = if range.revision > 0 { range.revision } else { self.revision() };
        Ok(self.range(range, &self.states[at as usize], self.revision()))
    }

    fn range(&self, range: &pb::RangeRequest, state: &State, revision: i64) -> RangeResult {
        let mut kvs: Vec<KeyValue> = state
            .values()
            .filter(|kv| inside(&kv.key, &range.key, &range.range_end))
            .cloned()
            .collect();
        let count = kvs.len() as i64;
        if range.count_only {
            return RangeResult { kvs: Vec::new(), more: false, count, revision };
        }
        let bound = |n: i64, min: i64, max: i64| (min == 0 || n >= min) && (max == 0 || n <= max);
        kvs.retain(|kv| {
            bound(kv.mod_revision, range.min_mod_revision, range.max_mod_revision)
                && bound(kv.create_revision, range.min_create_revision, range.max_create_revision)
        });
        let more = range.limit > 0 && kvs.len() as i64 > range.limit;
        let bounds = [
            range.min_mod_revision,
            range.max_mod_revision,
            range.min_create_revision,
            range.max_create_revision,
        ];
        if range.sort_order == 0 && range.limit > 0 && bounds == [0; 4] {
            // Without an order the limit, and one more, is taken by key before the sort.
            kvs.truncate(range.limit as usize + 1);
        }
        match range.sort_target {
            0 => {}
            1 => kvs.sort_by_key(|kv| kv.version),
            2 => kvs.sort_by_key(|kv| kv.create_revision),
            3 => kvs.sort_by_key(|kv| kv.mod_revision),
            _ => kvs.sort_by(|a, b| a.value.cmp(&b.value)),
        }
        if range.sort_order == 2 {
            // Ties stay in key order, whatever the direction, unless the key is the order.
            match range.sort_target {
                0 => kvs.reverse(),
                1 => kvs.sort_by_key(|kv| -kv.version),
                2 => kvs.sort_by_key(|kv| -kv.create_revision),
                3 => kvs.sort_by_key(|kv| -kv.mod_revision),
                _ => kvs.sort_by(|a, b| b.value.cmp(&a.value)),
            }
        }
        if more {
            kvs.truncate(range.limit as usize);
        }
        if range.keys_only {
            for kv in &mut kvs {
                kv.value = Bytes::new();
                if range.sort_target != 4 {
                    kv.lease = 0;
                }
            }
        }
        RangeResult { kvs: kvs.iter().map(row).collect(), more, count, revision }
    }

    /// HashKV as the description of the interface has it.
    pub(super) fn hash_kv(&self, at: i64) -> Result<HashKv, ReadError> {
        let at = if at > 0 { at } else { self.revision() };
        if at > self.revision() {
            return Err(ReadError::FutureRevision);
        }
        if at < self.compacted {
            return Err(ReadError::Compacted);
        }
        let alive = &self.states[at as usize];
        let counts = |row: &&Row| {
            let current = !row.tombstone
                && alive.get(&row.key).is_some_and(|kv| kv.encode_to_vec() == row.bytes);
            row.main <= at
                && (row.main > self.compacted || alive.is_empty() || current)
                && !(row.tombstone && row.main == self.compacted)
        };
        let hash = hash_rows(self.rows.iter().filter(counts));
        Ok(HashKv {
            hash,
            compact_revision: self.compacted,
            hash_revision: at,
            revision: self.revision(),
        })
    }

    /// The hash that a compaction at `at` makes; call it before the compaction.
    pub(super) fn compaction_hash(&self, at: i64) -> HashKv {
        let stays = self.stays(at);
        let any = self.rows.iter().zip(&stays).any(|(row, stays)| row.main <= at && *stays);
        let counts = |(row, stays): &(&Row, &bool)| {
            row.main <= at
                && (row.main > self.compacted || **stays || !any)
                && !(row.tombstone && row.main == self.compacted)
        };
        let rows = self.rows.iter().zip(&stays).filter(counts).map(|(row, _)| row);
        let hash = hash_rows(rows);
        HashKv { hash, compact_revision: self.compacted, hash_revision: at, revision: 0 }
    }
}

fn hash_rows<'a>(rows: impl Iterator<Item = &'a Row>) -> u32 {
    let mut bytes = b"key".to_vec();
    for row in rows {
        bytes.extend(row.main.to_be_bytes());
        bytes.push(b'_');
        bytes.extend(row.sub.to_be_bytes());
        if row.tombstone {
            bytes.push(b't');
        }
        bytes.extend(&row.bytes);
    }
    crc32c::crc32c(&bytes)
}
