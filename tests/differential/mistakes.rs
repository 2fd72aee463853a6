//! Operations that must fail (or, for leases, answer that there is nothing), one kind after another.

use crate::generate::Generator;
use crate::ops::Op;
use assay::proto::etcdserverpb::request_op::Request;
use assay::proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseTimeToLiveRequest, PutRequest,
    RangeRequest, RequestOp, TxnRequest,
};
use bytes::Bytes;
use rand::Rng;

/// Default of `--max-txn-ops`.
const MOST_OPS: usize = 128;
/// Default of `--max-request-bytes`.
const REQUEST_BYTES: usize = 1_572_864;
/// What the transport takes beyond that before it refuses a message unread.
const TRANSPORT_EXTRA: usize = 524_288;

type Make = fn(&mut Generator) -> Op;

const KINDS: [Make; 39] = [
    |it| Op::Range(RangeRequest { key: Bytes::new(), ..it.range() }),
    |it| Op::Put(PutRequest { key: Bytes::new(), ..it.put() }),
    |it| Op::Delete(DeleteRangeRequest { key: Bytes::new(), ..it.delete() }),
    |it| {
        let mut compare = it.compare();
        compare.key = Bytes::new();
        it.txn_with(|txn| txn.compare.push(compare))
    },
    |it| {
        let op = match it.rng.random_range(0..3) {
            0 => Request::RequestRange(RangeRequest { key: Bytes::new(), ..it.range() }),
            1 => Request::RequestPut(PutRequest { key: Bytes::new(), ..it.put() }),
            _ => {
                Request::RequestDeleteRange(DeleteRangeRequest { key: Bytes::new(), ..it.delete() })
            }
        };
        it.txn_op(op)
    },
    |it| Op::Put(it.missing_key()),
    |it| {
        let put = it.missing_key();
        it.txn_then(Request::RequestPut(put))
    },
    |it| it.txn_with(|txn| txn.success.push(RequestOp { request: None })),
    |it| Op::Put(it.value_provided()),
    |it| {
        let put = it.value_provided();
        it.txn_op(Request::RequestPut(put))
    },
    |it| Op::Put(it.lease_provided()),
    |it| {
        let put = it.lease_provided();
        it.txn_op(Request::RequestPut(put))
    },
    Generator::too_many_ops,
    Generator::too_many_nested_ops,
    |it| it.put_twice(false),
    |it| it.put_twice(true),
    |it| Op::BadApiVersion(it.range()),
    |it| Op::Range(RangeRequest { sort_order: 3, ..it.range() }),
    |it| Op::Range(RangeRequest { sort_target: 5, ..it.range() }),
    |it| Op::Range(RangeRequest { revision: it.lost_revision(), ..it.range() }),
    |it| Op::RangeStream(RangeRequest { revision: it.lost_revision(), ..it.stream_range() }),
    |it| {
        let range = RangeRequest { revision: it.lost_revision(), ..it.range() };
        it.txn_then(Request::RequestRange(range))
    },
    |it| Op::Compact(CompactionRequest { revision: it.lost_compaction(), physical: it.chance(50) }),
    |it| Op::Range(RangeRequest { revision: it.future_revision(), ..it.range() }),
    |it| Op::RangeStream(RangeRequest { revision: it.future_revision(), ..it.stream_range() }),
    |it| {
        let range = RangeRequest { revision: it.future_revision(), ..it.range() };
        it.txn_then(Request::RequestRange(range))
    },
    |it| Op::Compact(CompactionRequest { revision: it.future_revision(), physical: it.chance(50) }),
    |it| Op::HashKv(it.future_revision()),
    |it| Op::HashKv(if it.compacted > 1 { it.lost_revision() } else { 0 }),
    // Two sizes: refused by the server, and refused by the transport with the exact size.
    |it| it.large(REQUEST_BYTES, TRANSPORT_EXTRA),
    |it| it.large(REQUEST_BYTES + TRANSPORT_EXTRA, TRANSPORT_EXTRA),
    |it| Op::Put(PutRequest { lease: it.unknown_lease(), ignore_lease: false, ..it.put() }),
    |it| {
        let lease = it.unknown_lease();
        let put = PutRequest { lease, ignore_lease: false, ..it.put() };
        it.txn_then(Request::RequestPut(put))
    },
    |it| Op::Revoke(it.unknown_lease()),
    |it| {
        let id = it.leases.first().copied();
        let ttl = it.rng.random_range(1..10_000);
        id.map_or(Op::Leases, |id| Op::Grant(LeaseGrantRequest { ttl, id }))
    },
    |it| {
        let ttl = 9_000_000_001 + it.rng.random_range(0..1_000);
        Op::Grant(LeaseGrantRequest { ttl, id: it.unknown_lease() })
    },
    |it| {
        let sort_order = it.rng.random_range(1..3);
        let sort_target = it.rng.random_range(1..5);
        Op::RangeStream(RangeRequest { sort_order, sort_target, ..it.stream_range() })
    },
    |it| {
        let mut range = it.stream_range();
        let revision = it.rng.random_range(1..5);
        match it.rng.random_range(0..4) {
            0 => range.min_mod_revision = revision,
            1 => range.max_mod_revision = revision,
            2 => range.min_create_revision = revision,
            _ => range.max_create_revision = revision,
        }
        Op::RangeStream(range)
    },
    |it| {
        let id = it.unknown_lease();
        if it.chance(50) {
            return Op::KeepAlive(id);
        }
        Op::TimeToLive(LeaseTimeToLiveRequest { id, keys: it.chance(50) })
    },
];

impl Generator {
    /// The `turn`th operation that must fail.
    pub(crate) fn mistake(&mut self, turn: usize) -> Op {
        KINDS[turn % KINDS.len()](self)
    }

    /// A random transaction, changed.
    fn txn_with(&mut self, change: impl FnOnce(&mut TxnRequest)) -> Op {
        let mut txn = self.txn();
        change(&mut txn);
        Op::Txn(txn)
    }

    /// A transaction with `op` somewhere in it, perhaps in a nested one or in the other branch.
    fn txn_op(&mut self, request: Request) -> Op {
        let mut op = RequestOp { request: Some(request) };
        let in_failure = self.chance(50);
        if self.chance(30) {
            let nested = TxnRequest { success: vec![op], ..Default::default() };
            op = RequestOp { request: Some(Request::RequestTxn(nested)) };
        }
        self.txn_with(|txn| if in_failure { &mut txn.failure } else { &mut txn.success }.push(op))
    }

    /// A transaction that carries out `request` after a put, which must then not happen.
    fn txn_then(&mut self, request: Request) -> Op {
        let first = Request::RequestPut(PutRequest {
            key: Bytes::from_static(b"never written"),
            ..Default::default()
        });
        let op = |request| RequestOp { request: Some(request) };
        let mut success = vec![op(first)];
        if self.chance(30) {
            let nested = TxnRequest { success: vec![op(request)], ..Default::default() };
            success.push(op(Request::RequestTxn(nested)));
        } else {
            success.push(op(request));
        }
        Op::Txn(TxnRequest { success, ..Default::default() })
    }

    fn missing_key(&mut self) -> PutRequest {
        let key = Bytes::from_static(b"never put");
        let ignore_value = self.chance(50);
        PutRequest { key, ignore_value, ignore_lease: !ignore_value, ..Default::default() }
    }

    fn value_provided(&mut self) -> PutRequest {
        PutRequest { ignore_value: true, value: Bytes::from_static(b"given"), ..self.put() }
    }

    fn lease_provided(&mut self) -> PutRequest {
        // The value is checked first: without one, the lease is what is wrong.
        let lease = self.unknown_lease();
        let put = self.put();
        PutRequest { ignore_lease: true, ignore_value: false, lease, ..put }
    }

    fn too_many_ops(&mut self) -> Op {
        let mut txn = TxnRequest::default();
        let range = RangeRequest { key: self.key(), ..Default::default() };
        let op = RequestOp { request: Some(Request::RequestRange(range)) };
        match self.rng.random_range(0..3) {
            0 => txn.success = vec![op; MOST_OPS + 1],
            1 => txn.failure = vec![op; MOST_OPS + 1],
            _ => txn.compare = vec![self.compare(); MOST_OPS + 1],
        }
        Op::Txn(txn)
    }

    /// A nested transaction has what its parent leaves of the limit; at the limit it is allowed.
    fn too_many_nested_ops(&mut self) -> Op {
        let range = RangeRequest { key: self.key(), serializable: true, ..Default::default() };
        let op = RequestOp { request: Some(Request::RequestRange(range)) };
        let outer = self.rng.random_range(1..MOST_OPS);
        let over = usize::from(self.chance(80));
        let inner = TxnRequest {
            success: vec![op.clone(); MOST_OPS - outer + over],
            ..TxnRequest::default()
        };
        let mut success = vec![op; outer - 1];
        success.push(RequestOp { request: Some(Request::RequestTxn(inner)) });
        Op::Txn(TxnRequest { success, ..Default::default() })
    }

    fn put_twice(&mut self, by_delete: bool) -> Op {
        let put = PutRequest { key: self.key(), ..Default::default() };
        let second = if by_delete {
            let (key, range_end) = match self.rng.random_range(0..3) {
                0 => (put.key.clone(), Bytes::new()),
                1 => (Bytes::from_static(b"\0"), Bytes::from_static(b"\xff\xff\xff")),
                // etcd does not see that this covers the key: not an error.
                _ => (Bytes::from_static(b"\0"), Bytes::from_static(b"\0")),
            };
            Request::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: false })
        } else {
            Request::RequestPut(put.clone())
        };
        let op = |request| RequestOp { request: Some(request) };
        let mut ops = vec![op(Request::RequestPut(put)), op(second)];
        if self.chance(30) {
            let nested = TxnRequest { success: vec![ops.remove(1)], ..Default::default() };
            ops.push(op(Request::RequestTxn(nested)));
        }
        if self.chance(50) {
            ops.reverse();
        }
        Op::Txn(TxnRequest { success: ops, ..Default::default() })
    }

    /// A revision below the compact revision; before the first compaction there is none, and
    /// revision 1 is read instead.
    fn lost_revision(&mut self) -> i64 {
        if self.compacted > 1 { self.rng.random_range(1..self.compacted) } else { 1 }
    }

    /// A revision that is compacted already. Never 0 on a store that was not compacted: etcd takes
    /// that for a compaction and answers later hashes of "now" with the one it remembers for 0.
    fn lost_compaction(&mut self) -> i64 {
        if self.compacted < 0 {
            return -self.rng.random_range(1..4);
        }
        match self.rng.random_range(0..3) {
            0 => self.compacted,
            1 => 0,
            _ => self.rng.random_range(-3..=self.compacted.max(0)),
        }
    }

    fn future_revision(&mut self) -> i64 {
        self.revision + self.rng.random_range(2..1_000)
    }

    /// A put of more than `bytes`.
    fn large(&mut self, bytes: usize, spread: usize) -> Op {
        let len = bytes + self.rng.random_range(1..spread - 1_000);
        let value = vec![self.rng.random(); len].into();
        Op::Put(PutRequest { key: Bytes::from_static(b"large"), value, ..Default::default() })
    }
}
