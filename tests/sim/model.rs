//! What the state must be: a naive model that keeps every row for ever and looks everything up by
//! walking. It shares no code with the machine; answers are compared as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use assay::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use assay::proto::etcdserverpb::request_op::Request;
use assay::proto::etcdserverpb::{
    Compare, DeleteRangeRequest, InternalRaftRequest, PutRequest, RangeRequest, RequestOp,
    TxnRequest,
};
use bytes::Bytes;
use prost::Message as _;

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub main: i64,
    pub sub: i64,
    pub tombstone: bool,
    pub key: Bytes,
    pub value: Bytes,
    pub create: i64,
    pub version: i64,
    pub lease: i64,
}

impl Row {
    /// The row as etcd stores it, field by field.
    pub fn encoded(&self) -> Vec<u8> {
        if self.tombstone {
            return Kv { key: self.key.clone(), ..Kv::default() }.encode_to_vec();
        }
        Kv {
            key: self.key.clone(),
            create_revision: self.create,
            mod_revision: self.main,
            version: self.version,
            value: self.value.clone(),
            lease: self.lease,
        }
        .encode_to_vec()
    }

    /// Short text for answers.
    pub fn text(&self) -> String {
        format!(
            "{}={}c{}m{}v{}l{}",
            self.key.escape_ascii(),
            self.value.escape_ascii(),
            self.create,
            self.main,
            self.version,
            self.lease
        )
    }
}

/// `mvccpb.KeyValue`, written down again on purpose.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Kv {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

impl Kv {
    /// The same short text as [`Row::text`].
    pub fn text(encoded: &[u8]) -> String {
        match Kv::decode(encoded) {
            Ok(kv) => format!(
                "{}={}c{}m{}v{}l{}",
                kv.key.escape_ascii(),
                kv.value.escape_ascii(),
                kv.create_revision,
                kv.mod_revision,
                kv.version,
                kv.lease
            ),
            Err(error) => format!("bad row: {error}"),
        }
    }
}

/// A lease as replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub ttl: i64,
    pub remaining: i64,
}

/// The state after a number of log entries, and all of its history.
#[derive(Clone, Debug)]
pub struct Model {
    /// Every row ever written, in revision order.
    pub rows: Vec<Row>,
    pub revision: i64,
    /// Newest accepted compaction, -1 before the first.
    pub compact: i64,
    /// The compaction before that one.
    pub compact_before: i64,
    /// Level of commands that may be used.
    pub level: u32,
    pub leases: BTreeMap<i64, Lease>,
    attached: BTreeMap<Bytes, i64>,
    /// Positions in `rows` of each key, oldest first.
    by_key: BTreeMap<Bytes, Vec<usize>>,
    /// Rows of the transaction under way.
    sub: i64,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            revision: 1,
            compact: -1,
            compact_before: -1,
            level: 1,
            leases: BTreeMap::new(),
            attached: BTreeMap::new(),
            by_key: BTreeMap::new(),
            sub: 0,
        }
    }
}

/// Whether `key` is in the range of a request.
pub fn within(key: &[u8], start: &[u8], end: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        _ => key >= start && key < end,
    }
}

impl Model {
    /// The newest row of a key up to `at`, if it is not a tombstone.
    fn get(&self, key: &[u8], at: i64) -> Option<&Row> {
        let positions = self.by_key.get(key)?;
        let newest = positions.iter().rev().map(|at| &self.rows[*at]).find(|row| row.main <= at)?;
        (!newest.tombstone).then_some(newest)
    }

    /// All rows of a key, newest first.
    fn of_key(&self, key: &Bytes) -> impl Iterator<Item = &Row> {
        self.by_key.get(key).into_iter().flatten().rev().map(|at| &self.rows[*at])
    }

    /// Living rows of a range at revision `at`, by key.
    pub fn range(&self, start: &[u8], end: &[u8], at: i64) -> Vec<&Row> {
        let keys = self.by_key.keys().filter(|key| within(key, start, end));
        keys.filter_map(|key| self.get(key, at)).collect()
    }

    fn write(&mut self, key: &Bytes, put: Option<(Bytes, i64)>, main: i64) {
        let before = self.get(key, i64::MAX).cloned();
        let sub = self.sub;
        self.sub += 1;
        self.attached.remove(key);
        let row = match put {
            None => Row {
                main,
                sub,
                tombstone: true,
                key: key.clone(),
                value: Bytes::new(),
                create: 0,
                version: 0,
                lease: 0,
            },
            Some((value, lease)) => {
                if lease != 0 {
                    self.attached.insert(key.clone(), lease);
                }
                Row {
                    main,
                    sub,
                    tombstone: false,
                    key: key.clone(),
                    value,
                    create: before.as_ref().map_or(main, |row| row.create),
                    version: before.as_ref().map_or(1, |row| row.version + 1),
                    lease,
                }
            }
        };
        self.by_key.entry(key.clone()).or_default().push(self.rows.len());
        self.rows.push(row);
    }

    /// Ends a transaction: the revision rises if something was written.
    fn finish(&mut self) -> i64 {
        if self.sub > 0 {
            self.revision += 1;
            self.sub = 0;
        }
        self.revision
    }

    /// Applies one command and says what its answer must be.
    pub fn apply(&mut self, data: &[u8]) -> String {
        if data.is_empty() {
            return "done".to_owned();
        }
        let request = InternalRaftRequest::decode(data).unwrap();
        if let Some(put) = &request.put {
            if put.lease != 0 && !self.leases.contains_key(&put.lease) {
                return "error LeaseNotFound".to_owned();
            }
            let text = self.put(put);
            return format!("put r{} {text}", self.finish());
        }
        if let Some(delete) = &request.delete_range {
            let text = self.delete(delete);
            return format!("delete r{} {text}", self.finish());
        }
        if let Some(txn) = &request.txn {
            return self.txn(txn);
        }
        if let Some(compaction) = &request.compaction {
            return self.compaction(compaction.revision);
        }
        if let Some(grant) = &request.lease_grant {
            if self.leases.contains_key(&grant.id) {
                return "error LeaseExists".to_owned();
            }
            self.leases.insert(grant.id, Lease { ttl: grant.ttl, remaining: 0 });
            return format!("grant r{} {} {}", self.revision, grant.id, grant.ttl);
        }
        if let Some(revoke) = &request.lease_revoke {
            if self.leases.remove(&revoke.id).is_none() {
                return "error LeaseNotFound".to_owned();
            }
            let keys: Vec<Bytes> = self
                .attached
                .iter()
                .filter(|(_, lease)| **lease == revoke.id)
                .map(|(key, _)| key.clone())
                .collect();
            let main = self.revision + 1;
            for key in keys {
                self.write(&key, None, main);
            }
            return format!("revoke r{}", self.finish());
        }
        if let Some(checkpoint) = &request.lease_checkpoint {
            for checkpoint in &checkpoint.checkpoints {
                if let Some(lease) = self.leases.get_mut(&checkpoint.id) {
                    lease.remaining = checkpoint.remaining_ttl;
                }
            }
            return "done".to_owned();
        }
        if let Some(set) = &request.feature_level_set {
            self.level = self.level.max(set.level);
        }
        "done".to_owned()
    }

    fn put(&mut self, put: &PutRequest) -> String {
        let main = self.revision + 1;
        let before = self.get(&put.key, i64::MAX).map(Row::text);
        self.write(&put.key, Some((put.value.clone(), put.lease)), main);
        if put.prev_kv { format!("prev {before:?}") } else { "prev None".to_owned() }
    }

    fn delete(&mut self, delete: &DeleteRangeRequest) -> String {
        let main = self.revision + 1;
        let found: Vec<Row> =
            self.range(&delete.key, &delete.range_end, i64::MAX).into_iter().cloned().collect();
        for row in &found {
            self.write(&row.key, None, main);
        }
        let mut text = format!("n{}", found.len());
        if delete.prev_kv {
            found.iter().for_each(|row| write!(text, " {}", row.text()).unwrap());
        }
        text
    }

    fn txn(&mut self, txn: &TxnRequest) -> String {
        let succeeded = txn.compare.iter().all(|compare| self.compare(compare));
        let ops = if succeeded { &txn.success } else { &txn.failure };
        for RequestOp { request } in ops {
            match request {
                Some(Request::RequestPut(put))
                    if put.lease != 0 && !self.leases.contains_key(&put.lease) =>
                {
                    return "error LeaseNotFound".to_owned();
                }
                Some(Request::RequestRange(range)) if range.revision > self.revision => {
                    return "error FutureRevision".to_owned();
                }
                Some(Request::RequestRange(range))
                    if range.revision > 0 && range.revision < self.compact =>
                {
                    return "error Compacted".to_owned();
                }
                _ => {}
            }
        }
        let mut results = Vec::new();
        for RequestOp { request } in ops {
            results.push(match request {
                Some(Request::RequestPut(put)) => format!("put {}", self.put(put)),
                Some(Request::RequestDeleteRange(delete)) => {
                    format!("delete {}", self.delete(delete))
                }
                Some(Request::RequestRange(range)) => self.range_text(range),
                other => format!("unexpected {other:?}"),
            });
        }
        let revision = self.finish();
        format!("txn r{revision} {succeeded} [{}]", results.join("; "))
    }

    fn range_text(&self, range: &RangeRequest) -> String {
        let at = if range.revision > 0 { range.revision } else { i64::MAX };
        let rows: Vec<String> =
            self.range(&range.key, &range.range_end, at).into_iter().map(Row::text).collect();
        format!("range n{} {}", rows.len(), rows.join(" "))
    }

    fn compare(&self, compare: &Compare) -> bool {
        let row = self.get(&compare.key, i64::MAX);
        let ordering = match (&compare.target_union, compare.target()) {
            (Some(TargetUnion::Version(v)), CompareTarget::Version) => {
                row.map_or(0, |row| row.version).cmp(v)
            }
            (Some(TargetUnion::ModRevision(v)), CompareTarget::Mod) => {
                row.map_or(0, |row| row.main).cmp(v)
            }
            (Some(TargetUnion::Value(v)), CompareTarget::Value) => match row {
                None => return false,
                Some(row) => row.value.cmp(v),
            },
            other => panic!("the workload has no such compare: {other:?}"),
        };
        match compare.result() {
            CompareResult::Equal => ordering.is_eq(),
            CompareResult::Greater => ordering.is_gt(),
            CompareResult::Less => ordering.is_lt(),
            CompareResult::NotEqual => ordering.is_ne(),
        }
    }

    fn compaction(&mut self, revision: i64) -> String {
        if revision <= self.compact {
            return "error Compacted".to_owned();
        }
        if revision > self.revision {
            return "error FutureRevision".to_owned();
        }
        self.compact_before = self.compact;
        self.compact = revision;
        format!("compact r{}", self.revision)
    }

    /// Whether a row must still be stored after a compaction at `compact`: it is newer, or it is
    /// the newest of its key up to there and not an older tombstone.
    pub fn survives(&self, row: &Row, compact: i64) -> bool {
        row.main > compact
            || ((!row.tombstone || row.main == compact)
                && !self.of_key(&row.key).any(|other| {
                    other.main <= compact && (other.main, other.sub) > (row.main, row.sub)
                }))
    }

    /// HashKV at the newest revision, or `None` where etcd hashes whatever is not deleted yet
    /// (no key alive).
    pub fn hash_kv(&self) -> Option<u32> {
        if self.rows.is_empty() || self.range(b"", b"\0", i64::MAX).is_empty() {
            return None;
        }
        // At or below the compaction: only what is the newest put of its key today.
        let newest = |row: &Row| {
            !row.tombstone
                && !self.of_key(&row.key).any(|other| (other.main, other.sub) > (row.main, row.sub))
        };
        Some(self.hash_rows(|row| row.main > self.compact || newest(row)))
    }

    /// The hash that the newest compaction made on its way: everything since the one before, and
    /// of older rows what it kept.
    pub fn hash_of_compaction(&self) -> u32 {
        self.hash_rows(|row| {
            row.main <= self.compact
                && (row.main > self.compact_before || self.survives(row, self.compact))
        })
    }

    fn hash_rows(&self, included: impl Fn(&Row) -> bool) -> u32 {
        let mut crc = crc32c::crc32c(b"key");
        for row in self.rows.iter().filter(|row| included(row)) {
            crc = crc32c::crc32c_append(crc, &row.main.to_be_bytes());
            crc = crc32c::crc32c_append(crc, b"_");
            crc = crc32c::crc32c_append(crc, &row.sub.to_be_bytes());
            crc = crc32c::crc32c_append(crc, if row.tombstone { b"t" } else { b"" });
            crc = crc32c::crc32c_append(crc, &row.encoded());
        }
        crc
    }
}
