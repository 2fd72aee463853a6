//! Counts what came up: every option and every error, and asserts that each did often enough.

use crate::answer::Answer;
use crate::ops::Op;
use assay::proto::etcdserverpb::compare::TargetUnion;
use assay::proto::etcdserverpb::request_op::Request;
use assay::proto::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest,
};
use std::collections::BTreeMap;

/// Times that everything of [`REQUIRED`] must come up in a run of full length.
pub(crate) const LEAST: usize = 50;

/// What must come up: options with success, then errors by operation. Errors are counted as the
/// servers answered them, digits masked.
const REQUIRED: &[&str] = &[
    "compact physical",
    "compact",
    "compare CREATE",
    "compare EQUAL",
    "compare GREATER",
    "compare LEASE",
    "compare LESS",
    "compare MOD",
    "compare NOT_EQUAL",
    "compare VALUE",
    "compare VERSION",
    "compare of a range",
    "compare unknown result",
    "compare with another operand",
    "compare without operand",
    "delete interval",
    "delete of nothing",
    "delete of one",
    "delete prev_kv",
    "grant of any id",
    "grant of an id",
    "hash at a revision",
    "hash",
    "keepalive of a lease",
    "keepalive of no lease",
    "leases",
    "put again with prev_kv",
    "put first with prev_kv",
    "put ignore_lease",
    "put ignore_value",
    "put lease",
    "put prev_kv",
    "range count_only",
    "range from key",
    "range interval",
    "range keys_only",
    "range limit",
    "range linearizable",
    "range max_create_revision",
    "range max_mod_revision",
    "range min_create_revision",
    "range min_mod_revision",
    "range more",
    "range of one key",
    "range reversed",
    "range revision",
    "range serializable",
    "range sort order 0",
    "range sort order 1",
    "range sort order 2",
    "range sort target 0",
    "range sort target 1",
    "range sort target 2",
    "range sort target 3",
    "range sort target 4",
    "revoke",
    "stream",
    "stream count_only",
    "stream keys_only",
    "stream limit",
    "stream more",
    "stream revision",
    "timetolive of a lease",
    "timetolive of no lease",
    "timetolive with keys",
    "txn failed",
    "txn nested",
    "txn read-only",
    "txn read-only serializable",
    "txn succeeded",
    "txn with delete",
    "txn with put",
    "txn with range",
    "watch NODELETE",
    "watch NOPUT",
    "watch cancel",
    "watch fragment",
    "watch from now",
    "watch from the future",
    "watch from the past",
    "watch of an id",
    "watch prev_kv",
    "watch progress request",
    "watch progress_notify",
    "watch canceled: compacted",
    "watch refused: duplicate id",
    "watch refused: empty range",
    "watch refused: negative revision",
    "error compact OutOfRange etcdserver: mvcc: required revision has been compacted",
    "error compact OutOfRange etcdserver: mvcc: required revision is a future revision",
    "error delete InvalidArgument etcdserver: key is not provided",
    "error hash OutOfRange etcdserver: mvcc: required revision has been compacted",
    "error hash OutOfRange etcdserver: mvcc: required revision is a future revision",
    "error lease FailedPrecondition etcdserver: lease already exists",
    "error lease NotFound etcdserver: requested lease not found",
    "error lease OutOfRange etcdserver: too large lease TTL",
    "error put InvalidArgument etcdserver: key is not provided",
    "error put InvalidArgument etcdserver: key not found",
    "error put InvalidArgument etcdserver: lease is provided",
    "error put InvalidArgument etcdserver: request is too large",
    "error put InvalidArgument etcdserver: value is provided",
    "error put NotFound etcdserver: requested lease not found",
    "error put ResourceExhausted grpc: received message larger than max (N vs. N)",
    "error range InvalidArgument etcdserver: invalid client api version",
    "error range InvalidArgument etcdserver: invalid sort option",
    "error range InvalidArgument etcdserver: key is not provided",
    "error range OutOfRange etcdserver: mvcc: required revision has been compacted",
    "error range OutOfRange etcdserver: mvcc: required revision is a future revision",
    "error stream OutOfRange etcdserver: mvcc: required revision has been compacted",
    "error stream OutOfRange etcdserver: mvcc: required revision is a future revision",
    "error stream Unimplemented RangeStream does not support custom sort orders",
    "error stream Unimplemented RangeStream does not support revision filters",
    "error txn InvalidArgument etcdserver: duplicate key given in txn request",
    "error txn InvalidArgument etcdserver: key is not provided",
    "error txn InvalidArgument etcdserver: key not found",
    "error txn InvalidArgument etcdserver: lease is provided",
    "error txn InvalidArgument etcdserver: too many operations in txn request",
    "error txn InvalidArgument etcdserver: value is provided",
    "error txn NotFound etcdserver: requested lease not found",
    "error txn OutOfRange etcdserver: mvcc: required revision has been compacted",
    "error txn OutOfRange etcdserver: mvcc: required revision is a future revision",
];

/// How often each thing came up.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    counts: BTreeMap<String, usize>,
}

impl Coverage {
    pub(crate) fn add(&mut self, what: &str) {
        *self.counts.entry(what.to_string()).or_default() += 1;
    }

    fn add_if(&mut self, holds: bool, what: &str) {
        if holds {
            self.add(what);
        }
    }

    /// Counts an operation and what was answered.
    pub(crate) fn note(&mut self, op: &Op, answer: &Answer) {
        if let Some((code, message)) = &answer.error {
            let message = mask_digits(message);
            return self.add(&format!("error {} {code:?} {message}", family(op)));
        }
        match op {
            Op::Range(range) => self.range("range", range, answer.get("more") == Some("true")),
            Op::RangeStream(range) => {
                self.add("stream");
                self.range("stream", range, answer.get("more") == Some("true"));
            }
            Op::BadApiVersion(_) => {}
            Op::Put(put) => {
                self.put(put);
                let first = answer.get("prev_kv") == Some("absent");
                self.add_if(put.prev_kv && first, "put first with prev_kv");
                self.add_if(put.prev_kv && !first, "put again with prev_kv");
            }
            Op::Delete(delete) => {
                self.delete(delete);
                self.add_if(answer.get("deleted") == Some("0"), "delete of nothing");
                self.add_if(answer.get("deleted") == Some("1"), "delete of one");
            }
            Op::Txn(txn) => {
                self.txn(txn);
                let succeeded = answer.get("succeeded") == Some("true");
                self.add(if succeeded { "txn succeeded" } else { "txn failed" });
            }
            Op::Compact(compact) => {
                self.add(if compact.physical { "compact physical" } else { "compact" });
            }
            Op::Grant(_) => self.add("grant of an id"),
            Op::GrantAny { .. } => self.add("grant of any id"),
            Op::Revoke(_) => self.add("revoke"),
            Op::KeepAlive(_) => {
                let none = answer.get("ttl") == Some("0");
                self.add(if none { "keepalive of no lease" } else { "keepalive of a lease" });
            }
            Op::TimeToLive(asked) => {
                let none = answer.get("ttl") == Some("-1");
                self.add(if none { "timetolive of no lease" } else { "timetolive of a lease" });
                self.add_if(asked.keys && answer.get("keys") != Some(""), "timetolive with keys");
            }
            Op::Leases => self.add("leases"),
            Op::HashKv(0) => self.add("hash"),
            Op::HashKv(_) => self.add("hash at a revision"),
        }
    }

    fn range(&mut self, name: &str, range: &RangeRequest, more: bool) {
        let kind = match (&range.key[..], &range.range_end[..]) {
            (_, []) => "of one key",
            (_, [0]) => "from key",
            (key, end) if key >= end => "reversed",
            _ => "interval",
        };
        self.add(&format!("{name} {kind}"));
        self.add(&format!("{name} sort order {}", range.sort_order));
        self.add(&format!("{name} sort target {}", range.sort_target));
        let options = [
            (range.limit != 0, "limit"),
            (range.revision > 0, "revision"),
            (range.serializable, "serializable"),
            (!range.serializable, "linearizable"),
            (range.keys_only, "keys_only"),
            (range.count_only, "count_only"),
            (range.min_mod_revision != 0, "min_mod_revision"),
            (range.max_mod_revision != 0, "max_mod_revision"),
            (range.min_create_revision != 0, "min_create_revision"),
            (range.max_create_revision != 0, "max_create_revision"),
            (more, "more"),
        ];
        for (holds, option) in options {
            self.add_if(holds, &format!("{name} {option}"));
        }
    }

    fn put(&mut self, put: &PutRequest) {
        self.add_if(put.lease != 0, "put lease");
        self.add_if(put.prev_kv, "put prev_kv");
        self.add_if(put.ignore_value, "put ignore_value");
        self.add_if(put.ignore_lease, "put ignore_lease");
    }

    fn delete(&mut self, delete: &DeleteRangeRequest) {
        self.add_if(delete.prev_kv, "delete prev_kv");
        self.add_if(!delete.range_end.is_empty(), "delete interval");
    }

    fn txn(&mut self, txn: &TxnRequest) {
        for compare in &txn.compare {
            self.compare(compare);
        }
        let ops: Vec<_> = txn.success.iter().chain(&txn.failure).collect();
        let mut ranges = 0;
        let mut local = true;
        for op in &ops {
            match &op.request {
                Some(Request::RequestRange(range)) => {
                    ranges += 1;
                    local &= range.serializable;
                    self.add("txn with range");
                    self.range("txn range", range, false);
                }
                Some(Request::RequestPut(put)) => {
                    self.add("txn with put");
                    self.put(put);
                }
                Some(Request::RequestDeleteRange(delete)) => {
                    self.add("txn with delete");
                    self.delete(delete);
                }
                Some(Request::RequestTxn(nested)) => {
                    self.add("txn nested");
                    self.txn(nested);
                }
                None => {}
            }
        }
        self.add_if(ranges == ops.len(), "txn read-only");
        self.add_if(ranges == ops.len() && local, "txn read-only serializable");
    }

    fn compare(&mut self, compare: &Compare) {
        let results = ["EQUAL", "GREATER", "LESS", "NOT_EQUAL"];
        let result = results.get(compare.result as usize).unwrap_or(&"unknown result");
        self.add(&format!("compare {result}"));
        let targets = ["VERSION", "CREATE", "MOD", "VALUE", "LEASE"];
        let target = targets.get(compare.target as usize).unwrap_or(&"unknown target");
        self.add(&format!("compare {target}"));
        self.add_if(!compare.range_end.is_empty(), "compare of a range");
        let operand = match &compare.target_union {
            None => return self.add("compare without operand"),
            Some(TargetUnion::Version(_)) => 0,
            Some(TargetUnion::CreateRevision(_)) => 1,
            Some(TargetUnion::ModRevision(_)) => 2,
            Some(TargetUnion::Value(_)) => 3,
            Some(TargetUnion::Lease(_)) => 4,
        };
        self.add_if(operand != compare.target, "compare with another operand");
    }

    /// Asserts that everything required came up at least `least` times.
    ///
    /// # Panics
    /// Names what did not.
    pub(crate) fn require(&self, least: usize) {
        let count = |what: &&str| self.counts.get(*what).copied().unwrap_or(0);
        let missing: Vec<_> = REQUIRED.iter().filter(|what| count(what) < least).collect();
        let list: Vec<_> = missing.iter().map(|what| format!("{what}: {}", count(what))).collect();
        assert!(list.is_empty(), "came up less than {least} times:\n  {}", list.join("\n  "));
    }

    /// The counts, one a line.
    pub(crate) fn table(&self) -> String {
        let line = |(what, count): (&String, &usize)| format!("{count:>7}  {what}");
        self.counts.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn family(op: &Op) -> &'static str {
    match op {
        Op::Range(_) | Op::BadApiVersion(_) => "range",
        Op::RangeStream(_) => "stream",
        Op::Put(_) => "put",
        Op::Delete(_) => "delete",
        Op::Txn(_) => "txn",
        Op::Compact(_) => "compact",
        Op::HashKv(_) => "hash",
        _ => "lease",
    }
}

/// Runs of digits become `N`.
fn mask_digits(text: &str) -> String {
    let mut masked = String::new();
    for char in text.chars() {
        match char {
            '0'..='9' if masked.ends_with('N') => {}
            '0'..='9' => masked.push('N'),
            char => masked.push(char),
        }
    }
    masked
}
