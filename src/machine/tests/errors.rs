//! Every error: of requests in themselves, of commands, of reads.

use super::*;
use crate::mvcc::RangeQuery;
use RequestError::*;

fn range(f: impl FnOnce(&mut pb::RangeRequest)) -> pb::RangeRequest {
    let mut range = get("k", "");
    f(&mut range);
    range
}

fn changed(f: impl FnOnce(&mut pb::PutRequest)) -> pb::PutRequest {
    let mut put = put("k", "");
    f(&mut put);
    put
}

#[test]
fn requests_that_are_wrong_in_themselves() {
    assert_eq!(check::range(&get("", "x")), Err(EmptyKey));
    assert_eq!(check::range(&range(|r| r.sort_order = 3)), Err(InvalidSortOption));
    assert_eq!(check::range(&range(|r| r.sort_target = 5)), Err(InvalidSortOption));
    assert_eq!(check::range(&range(|r| r.sort_order = -1)), Err(InvalidSortOption));
    assert_eq!(check::range(&range(|r| (r.sort_order, r.sort_target) = (2, 4))), Ok(()));
    assert_eq!(check::put(&put("", "v")), Err(EmptyKey));
    assert_eq!(
        check::put(&changed(|p| (p.ignore_value, p.value) = (true, bytes("v")))),
        Err(ValueProvided)
    );
    assert_eq!(check::put(&changed(|p| (p.ignore_lease, p.lease) = (true, 1))), Err(LeaseProvided));
    assert_eq!(check::put(&changed(|p| (p.ignore_lease, p.ignore_value) = (true, true))), Ok(()));
    assert_eq!(check::delete_range(&delete("", "\0")), Err(EmptyKey));
    let ops = |op: Request| check::txn(&txn(vec![op]), 128);
    assert_eq!(ops(Request::RequestRange(get("", ""))), Err(EmptyKey));
    assert_eq!(ops(Request::RequestPut(put("", ""))), Err(EmptyKey));
    assert_eq!(ops(Request::RequestDeleteRange(delete("", ""))), Err(EmptyKey));
    let compare = pb::TxnRequest { compare: vec![pb::Compare::default()], ..Default::default() };
    assert_eq!(check::txn(&compare, 128), Err(EmptyKey));
    assert_eq!(ops(Request::RequestTxn(compare)), Err(EmptyKey), "nested");
    let hollow =
        pb::TxnRequest { failure: vec![pb::RequestOp { request: None }], ..Default::default() };
    assert_eq!(check::txn(&hollow, 128), Err(KeyNotFound));
}

fn puts(count: usize) -> Vec<Request> {
    (0..count).map(|i| Request::RequestPut(put(&format!("{i}"), ""))).collect()
}

#[test]
fn operations_are_counted_down_the_tree() {
    assert_eq!(check::txn(&txn(puts(128)), 128), Ok(()));
    assert_eq!(check::txn(&txn(puts(129)), 128), Err(TooManyOps));
    let compares = pb::TxnRequest {
        compare: vec![pb::Compare { key: bytes("k"), ..Default::default() }; 129],
        ..Default::default()
    };
    assert_eq!(check::txn(&compares, 128), Err(TooManyOps));
    // The outer transaction has one operation, which leaves 127.
    let nested = |count| txn(vec![Request::RequestTxn(txn(puts(count)))]);
    assert_eq!(check::txn(&nested(127), 128), Ok(()));
    assert_eq!(check::txn(&nested(128), 128), Err(TooManyOps));
    let deep = |depth: usize| {
        (1..depth).fold(txn(puts(1)), |inner, _| txn(vec![Request::RequestTxn(inner)]))
    };
    assert_eq!(check::txn(&deep(check::NESTING_MAX), 128), Ok(()));
    assert_eq!(check::txn(&deep(check::NESTING_MAX + 1), 128), Err(TooManyOps));
}

#[test]
fn a_key_is_changed_at_most_once_per_branch() {
    use Request::{RequestDeleteRange as Delete, RequestPut as Put, RequestTxn as Txn};
    let p = |key: &str| Put(put(key, ""));
    let d = |key: &str, end: &str| Delete(delete(key, end));
    let branches = |success: Vec<Request>, failure: Vec<Request>| {
        Txn(pb::TxnRequest {
            success: success.into_iter().map(op).collect(),
            failure: failure.into_iter().map(op).collect(),
            ..Default::default()
        })
    };
    let bad = |ops: Vec<Request>| assert_eq!(check::txn(&txn(ops), 128), Err(DuplicateKey));
    let good = |ops: Vec<Request>| assert_eq!(check::txn(&txn(ops), 128), Ok(()));
    bad(vec![p("a"), p("a")]);
    bad(vec![p("b"), d("a", "c")]);
    bad(vec![d("a", ""), p("a")]);
    good(vec![d("a", "b"), p("b")]);
    good(vec![d("a", "c"), d("b", "d"), Request::RequestRange(get("a", "z"))]);
    // An interval without end is not recognised.
    good(vec![d("a", "\0"), p("b")]);
    // Either branch of one nested transaction may put the key, two of them may not.
    good(vec![branches(vec![p("a")], vec![p("a")])]);
    bad(vec![branches(vec![p("a")], vec![]), branches(vec![], vec![p("a")])]);
    bad(vec![branches(vec![p("a")], vec![]), p("a")]);
    bad(vec![branches(vec![], vec![p("a")]), d("a", "b")]);
    bad(vec![branches(vec![d("a", "c")], vec![]), p("b")]);
    // A nested delete counts for the transactions behind it, not for those before.
    bad(vec![branches(vec![d("a", "c")], vec![]), branches(vec![p("b")], vec![])]);
    good(vec![branches(vec![p("b")], vec![]), branches(vec![d("a", "c")], vec![])]);
    bad(vec![branches(vec![branches(vec![p("a"), p("a")], vec![])], vec![])]);
    // Success and failure of one transaction are checked apart.
    let Txn(apart) = branches(vec![p("a")], vec![d("a", "")]) else { unreachable!() };
    assert_eq!(check::txn(&apart, 128), Ok(()));
}

#[test]
fn intervals_cover_what_a_list_of_them_covers() {
    use rand::{Rng, SeedableRng};
    for seed in 0..300 {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let keys: Vec<Vec<u8>> = (b'a'..=b'z').map(|c| vec![c]).collect();
        let mut list: Vec<(&[u8], &[u8])> = Vec::new();
        let mut intervals = intervals::Intervals::default();
        let mut other = intervals::Intervals::default();
        for _ in 0..rng.random_range(1..12) {
            let start = &keys[rng.random_range(0..26)][..];
            let end = [&b""[..], b"\0", &keys[rng.random_range(0..26)]][rng.random_range(0..3)];
            list.push((start, end));
            if rng.random() { intervals.insert(start, end) } else { other.insert(start, end) }
        }
        intervals.merge(other);
        for key in &keys {
            let covered = list.iter().any(|(start, end)| match end {
                [] => key == start,
                _ => &key[..] >= *start && &key[..] < *end,
            });
            assert_eq!(intervals.contains(key), covered, "seed {seed}, {list:?}");
        }
    }
}

#[test]
fn only_ranges_are_read_only() {
    let local = Request::RequestRange(range(|r| r.serializable = true));
    let remote = Request::RequestRange(get("k", ""));
    let verdict = |ops: Vec<Request>| {
        let txn = txn(ops);
        (check::is_read_only(&txn), check::is_serializable(&txn))
    };
    assert_eq!(verdict(vec![]), (true, true));
    assert_eq!(verdict(vec![local.clone()]), (true, true));
    assert_eq!(verdict(vec![local.clone(), remote.clone()]), (true, false));
    assert_eq!(verdict(vec![remote, Request::RequestPut(put("k", ""))]), (false, false));
    assert_eq!(verdict(vec![Request::RequestTxn(txn(vec![local]))]), (false, false));
    let nested = txn(vec![
        Request::RequestPut(put("abc", "defg")),
        Request::RequestTxn(txn(vec![Request::RequestPut(put("k", ""))])),
    ]);
    assert_eq!(check::cost_of_txn(&nested), 256 + 7 + 256 + 1);
}

#[test]
fn commands_that_the_state_refuses() {
    let mut node = Node::new();
    node.ok(put("k", "1").into()); // 2
    let with = |f: &dyn Fn(&mut pb::PutRequest)| {
        let mut put = put("new", "");
        f(&mut put);
        put
    };
    assert_eq!(node.err(with(&|p| p.lease = 7).into()), AnswerError::LeaseNotFound);
    assert_eq!(node.err(with(&|p| p.ignore_value = true).into()), AnswerError::KeyNotFound);
    assert_eq!(node.err(with(&|p| p.ignore_lease = true).into()), AnswerError::KeyNotFound);
    assert_eq!(node.err(revoke(7)), AnswerError::LeaseNotFound);
    assert_eq!(node.err(grant(0, 5)), AnswerError::LeaseNotFound);
    assert_eq!(node.err(grant(7, 9_000_000_001)), AnswerError::LeaseTtlTooLarge);
    node.ok(grant(7, 9_000_000_000));
    assert_eq!(node.err(grant(7, 5)), AnswerError::LeaseExists);
    assert_eq!(node.err(compact(3)), AnswerError::FutureRevision);
    assert_eq!(node.err(compact(-1)), AnswerError::Compacted);
    node.ok(compact(2));
    assert_eq!(node.err(compact(2)), AnswerError::Compacted);
    let at = |revision| Request::RequestRange(range(|r| r.revision = revision));
    assert_eq!(node.err(txn(vec![at(3)]).into()), AnswerError::FutureRevision);
    assert_eq!(node.err(txn(vec![at(1)]).into()), AnswerError::Compacted);
    assert_eq!(node.err(txn(vec![at(-1)]).into()), AnswerError::Compacted, "below a compaction");
    let mut fresh = Node::new();
    fresh.ok(txn(vec![at(-1)]).into());
}

#[test]
fn a_transaction_that_fails_late_changes_nothing() {
    // The failing operation comes last, and everything before it could be done (E#18679).
    let mut node = Node::new();
    node.ok(put("k", "1").into());
    let keep =
        |key: &str| Request::RequestPut(pb::PutRequest { ignore_value: true, ..put(key, "") });
    let bad: [Request; 4] = [
        Request::RequestRange(range(|r| r.revision = 99)),
        Request::RequestPut(pb::PutRequest { lease: 5, ..put("y", "") }),
        keep("missing"),
        Request::RequestTxn(txn(vec![keep("missing")])),
    ];
    for last in bad {
        let ops = vec![
            Request::RequestPut(put("x", "1")),
            Request::RequestDeleteRange(delete("k", "")),
            last,
        ];
        node.err(txn(ops).into());
        assert_eq!((node.get("x"), node.get("k").unwrap().version), (None, 1));
    }
    // A delete earlier on the path takes away the key that a later put would keep.
    let ops = vec![Request::RequestDeleteRange(delete("a", "\0")), keep("k")];
    assert_eq!(node.err(txn(ops).into()), AnswerError::KeyNotFound);
    assert_eq!(node.get("k").unwrap().version, 1);
    node.ok(put("k", "2").into());
    assert_eq!(node.reader.revision(), 3);
}

#[test]
fn reads_that_fail() {
    let mut node = Node::new();
    for i in 0..10 {
        node.ok(put(&format!("k{i}"), "0123456789").into());
    }
    let read = |node: &Node, f: &dyn Fn(&mut RangeQuery)| {
        let mut query: RangeQuery = get("k", "l").into();
        f(&mut query);
        node.reader.range(&query)
    };
    assert_eq!(read(&node, &|q| q.revision = 12).unwrap_err(), ReadError::FutureRevision);
    let whole = read(&node, &|_| {}).unwrap();
    let bytes: u64 = whole.kvs.iter().map(|row| row.len() as u64).sum();
    assert_eq!(read(&node, &|q| q.max_bytes = bytes).unwrap(), whole);
    for keys_only in [false, true] {
        let error = read(&node, &|q| (q.max_bytes, q.keys_only) = (20, keys_only)).unwrap_err();
        assert!(matches!(error, ReadError::OverBudget { limit: 20, bytes } if bytes > 20));
    }
    assert_eq!(read(&node, &|q| (q.max_bytes, q.limit) = (bytes, 3)).unwrap().kvs.len(), 3);
    node.ok(compact(5));
    assert_eq!(read(&node, &|q| q.revision = 4).unwrap_err(), ReadError::Compacted);
    assert_eq!(read(&node, &|q| q.revision = 5).unwrap().count, 4, "at it is allowed");
    assert_eq!(node.reader.hash_kv(4), Err(ReadError::Compacted));
    assert_eq!(node.reader.hash_kv(99), Err(ReadError::FutureRevision));
    assert!(node.reader.stream(RangeQuery { revision: 99, ..get("k", "l").into() }, 1).is_err());
}

#[test]
fn a_stream_that_a_compaction_overtakes_says_so() {
    let mut node = Node::new();
    for i in 0..2_000 {
        node.ok(put(&format!("k{i:04}"), "v").into());
    }
    let mut stream = node.reader.stream(get("k", "l").into(), 100).unwrap();
    let first = stream.next_chunk().unwrap().unwrap();
    assert_eq!((first.kvs.len(), first.end), (10, None));
    node.ok(put("k", "v").into());
    node.ok(compact(2_002));
    let mut error = None;
    while error.is_none() {
        error = stream.next_chunk().map(|chunk| assert!(chunk.is_some(), "it ended")).err();
    }
    assert_eq!(error, Some(ReadError::Compacted));
}

#[test]
fn what_is_not_a_command_stops_the_machine() {
    for (kind, data, context) in [
        (0, &b"\xff\xff"[..], &b""[..]),
        // Field 29999 of a newer version.
        (0, b"\xfa\xd2\x0e\x00", b""),
        // A command of authentication, which this version does not have.
        (0, b"\xe2\x44\x00", b""),
        (1, b"", b"\xff"),
        (1, b"", b"\x08\x01\x10\x07\x18\x01"),
    ] {
        let mut node = Node::new();
        node.ok(put("k", "1").into());
        node.commit();
        let entry = Entry(kind, bytes(data), bytes(context));
        assert_eq!(node.entry(entry).answer, Err(AnswerError::UnknownCommand), "{data:?}");
        assert_eq!(node.machine.applied().0, 1);
        let next = InternalRaftRequest::from(put("k", "2")).encode_to_vec();
        let outcome = node.entry(Entry(0, next.into(), Bytes::new()));
        assert!(outcome.answer.unwrap_err().is_fatal(), "nothing is applied behind it");
        assert!(node.machine.take_batch().is_none());
    }
}
