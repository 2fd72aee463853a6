//! Random transactions.

use crate::generate::Generator;
use assay::proto::etcdserverpb::compare::TargetUnion;
use assay::proto::etcdserverpb::request_op::Request;
use assay::proto::etcdserverpb::{Compare, RequestOp, TxnRequest};
use bytes::Bytes;
use rand::Rng;

/// Deepest nesting.
const DEPTH: usize = 2;

impl Generator {
    /// A transaction; most are valid, some put a key twice or name a missing lease by chance.
    pub(crate) fn txn(&mut self) -> TxnRequest {
        if self.chance(15) {
            return self.read_only_txn();
        }
        // Keys not to be put twice: careful transactions use each key once.
        let careful = self.chance(85);
        let mut txn = self.txn_at(0, careful, &mut Vec::new());
        // etcd (seen with 3.7.3) ends with a panic when the key whose value a put keeps is deleted
        // before in the same transaction, which it overlooks for deletes without an end.
        if deletes_without_end(&txn) {
            without_ignore(&mut txn);
        }
        txn
    }

    fn read_only_txn(&mut self) -> TxnRequest {
        let all_local = self.chance(50);
        let mut txn = TxnRequest { compare: self.compares(), ..Default::default() };
        for branch in [&mut txn.success, &mut txn.failure] {
            for _ in 0..self.rng.random_range(0..3) {
                let mut range = self.range();
                range.serializable |= all_local;
                branch.push(RequestOp { request: Some(Request::RequestRange(range)) });
            }
        }
        txn
    }

    fn txn_at(&mut self, depth: usize, careful: bool, used: &mut Vec<Bytes>) -> TxnRequest {
        let compare = self.compares();
        // The two branches may use the same keys, what is nested in one of them may not.
        let mut in_failure = used.clone();
        let success = self.branch(depth, careful, used);
        let failure = self.branch(depth, careful, &mut in_failure);
        used.extend(in_failure);
        TxnRequest { compare, success, failure }
    }

    fn branch(&mut self, depth: usize, careful: bool, used: &mut Vec<Bytes>) -> Vec<RequestOp> {
        let count = self.rng.random_range(0..5);
        (0..count).map(|_| self.request_op(depth, careful, used)).collect()
    }

    fn request_op(&mut self, depth: usize, careful: bool, used: &mut Vec<Bytes>) -> RequestOp {
        let request = match self.rng.random_range(0..100) {
            0..30 => Request::RequestRange(self.range()),
            30..70 => {
                let mut put = self.put();
                // Most puts in transactions must not depend on a key that may be missing.
                if careful && self.chance(80) {
                    (put.ignore_value, put.ignore_lease) = (false, false);
                }
                if careful && used.contains(&put.key) {
                    return RequestOp { request: Some(Request::RequestRange(self.range())) };
                }
                used.push(put.key.clone());
                Request::RequestPut(put)
            }
            70..85 => {
                let delete = self.delete();
                let covered = |key: &Bytes| covers(&delete.key, &delete.range_end, key);
                if careful && used.iter().any(covered) {
                    return RequestOp { request: Some(Request::RequestRange(self.range())) };
                }
                if delete.range_end.is_empty() {
                    used.push(delete.key.clone());
                }
                Request::RequestDeleteRange(delete)
            }
            _ if depth < DEPTH => Request::RequestTxn(self.txn_at(depth + 1, careful, used)),
            _ => Request::RequestRange(self.range()),
        };
        RequestOp { request: Some(request) }
    }

    fn compares(&mut self) -> Vec<Compare> {
        let count = [0, 1, 1, 1, 2, 2, 3][self.rng.random_range(0..7)];
        (0..count).map(|_| self.compare()).collect()
    }

    /// Any compare: every target with every operator, on one key or a range, sometimes without an
    /// operand, with one of another kind, or with an operator that does not exist.
    pub(crate) fn compare(&mut self) -> Compare {
        let target = self.rng.random_range(0..5);
        let operand_kind = if self.chance(6) { self.rng.random_range(0..5) } else { target };
        let target_union = match operand_kind {
            _ if self.chance(6) => None,
            0 => Some(TargetUnion::Version(self.rng.random_range(0..4))),
            1 => Some(TargetUnion::CreateRevision(self.zero_or_near())),
            2 => Some(TargetUnion::ModRevision(self.zero_or_near())),
            3 => Some(TargetUnion::Value(vec![b'v', self.rng.random_range(b'0'..b'4')].into())),
            _ => Some(TargetUnion::Lease(match self.leases.first().copied() {
                Some(lease) if self.chance(50) => lease,
                _ => 0,
            })),
        };
        let result = if self.chance(8) { 7 } else { self.rng.random_range(0..4) };
        let (key, range_end) =
            if self.chance(30) { self.interval() } else { (self.key(), Bytes::new()) };
        Compare { result, target, key, range_end, target_union }
    }

    fn zero_or_near(&mut self) -> i64 {
        if self.chance(40) { 0 } else { self.near_revision() }
    }
}

/// Whether `key` lies in the interval.
pub(crate) fn covers(start: &[u8], end: &[u8], key: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        end => key >= start && key < end,
    }
}

/// Whether any branch, executed or not, deletes everything from some key on.
pub(crate) fn deletes_without_end(txn: &TxnRequest) -> bool {
    txn.success.iter().chain(&txn.failure).any(|op| match &op.request {
        Some(Request::RequestDeleteRange(delete)) => delete.range_end == "\0",
        Some(Request::RequestTxn(nested)) => deletes_without_end(nested),
        _ => false,
    })
}

/// Takes `ignore_value` and `ignore_lease` out of a transaction.
fn without_ignore(txn: &mut TxnRequest) {
    for op in txn.success.iter_mut().chain(&mut txn.failure) {
        match &mut op.request {
            Some(Request::RequestPut(put)) => {
                (put.ignore_value, put.ignore_lease) = (false, false);
            }
            Some(Request::RequestTxn(nested)) => without_ignore(nested),
            _ => {}
        }
    }
}
