//! Revisions over compactions and restarts.

use super::*;
use crate::mvcc::{RangeQuery, Revision, Rows, RowsError};
use std::ops::ControlFlow;

fn mains(node: &Node) -> Vec<i64> {
    let mut mains = Vec::new();
    let mut take = |revision: Revision, _, _| {
        mains.push(revision.main);
        ControlFlow::Continue(())
    };
    node.reader.rows().scan(0, i64::MAX, &mut take).unwrap();
    mains
}

#[test]
fn the_revision_never_goes_back_whatever_phase_a_compaction_is_in() {
    // K2: the newest revision is a tombstone, and the compaction at it has taken everything else.
    for steps in 0..6 {
        let mut node = Node::with(MachineOptions { compaction_batch: 1, ..OPTIONS });
        node.ok(put("a", "1").into()); // 2
        node.ok(put("a", "2").into()); // 3
        node.ok(put("b", "1").into()); // 4
        node.ok(delete("b", "").into()); // 5
        node.ok(compact(5));
        for _ in 0..steps {
            node.machine.compaction_step();
        }
        node.commit();
        node.restart();
        assert_eq!(node.reader.revision(), 5, "after {steps} steps");
        assert_eq!(node.reader.compact_revision(), 5);
        node.drain();
        node.commit();
        node.restart();
        assert_eq!(mains(&node), [3, 5], "after {steps} steps");
        assert_eq!((node.reader.revision(), node.reader.compact_revision()), (5, 5));
        let Answer::Put { revision, .. } = node.ok(put("b", "2").into()) else { panic!() };
        assert_eq!((revision, node.get("b").unwrap().version), (6, 1));
    }
}

#[test]
fn a_tombstone_at_the_compact_revision_survives_small_steps_and_restarts() {
    // E#18089, E#19179: a watch that starts at the compact revision must find the delete.
    for steps in 0..8 {
        let mut node = Node::with(MachineOptions { compaction_batch: 1, ..OPTIONS });
        for version in 0..4 {
            node.ok(put("k", &format!("{version}")).into()); // 2 to 5
        }
        node.ok(delete("k", "").into()); // 6
        node.ok(put("other", "").into()); // 7
        node.ok(compact(6));
        for _ in 0..steps {
            node.machine.compaction_step();
            node.commit();
        }
        node.restart();
        node.drain();
        node.commit();
        assert_eq!(mains(&node), [6, 7], "after {steps} steps");
        assert_eq!(node.get("k"), None, "after {steps} steps the key came back");
        node.ok(compact(7));
        node.drain();
        node.commit();
        assert_eq!(mains(&node), [7]);
    }
}

#[test]
fn a_deleted_key_stays_deleted_when_a_compaction_is_cut_off() {
    // Were the tombstone dropped before the puts below it, a crash would bring the key back.
    for steps in 0..8 {
        let mut node = Node::with(MachineOptions { compaction_batch: 1, ..OPTIONS });
        node.ok(put("k", "1").into()); // 2
        node.ok(put("k", "2").into()); // 3
        node.ok(delete("k", "").into()); // 4
        node.ok(put("other", "").into()); // 5
        node.ok(compact(5));
        for _ in 0..steps {
            node.machine.compaction_step();
            node.commit();
        }
        node.restart();
        assert_eq!(node.get("k"), None, "after {steps} steps");
        node.drain();
        node.commit();
        assert_eq!(mains(&node), [5], "after {steps} steps");
    }
}

#[test]
fn reads_at_and_above_the_compact_revision_stay_exact() {
    // K7 with HashKV equal at each step.
    let mut node = Node::with(MachineOptions { compaction_batch: 7, ..OPTIONS });
    for i in 0..300 {
        let key = format!("k{}", i * 7 % 40);
        if i % 5 == 4 {
            node.ok(delete(&key, "").into());
        } else {
            node.ok(put(&key, &format!("{i}")).into());
        }
    }
    let at = 150;
    let read =
        |node: &Node, revision| node.reader.range(&RangeQuery { revision, ..get("k", "l").into() });
    let revision = node.reader.revision();
    let expected: Vec<_> = (at..=revision).map(|r| read(&node, r).unwrap()).collect();
    node.ok(compact(at));
    let hash = node.reader.hash_kv(revision).unwrap();
    let check = |node: &Node, when: &str| {
        for (r, expected) in (at..=revision).zip(&expected) {
            assert_eq!(&read(node, r).unwrap(), expected, "{when}, revision {r}");
        }
        assert_eq!(read(node, at - 1), Err(ReadError::Compacted), "{when}");
        assert_eq!(node.reader.hash_kv(revision), Ok(hash), "{when}");
    };
    check(&node, "accepted");
    let mut steps = 0;
    while node.machine.compaction_step() {
        steps += 1;
        check(&node, "running");
        if steps % 3 == 0 {
            node.commit();
            check(&node, "committed");
        }
        if steps == 10 {
            node.restart();
            check(&node, "restarted");
        }
    }
    assert!(steps > 10);
    node.commit();
    node.restart();
    check(&node, "finished");
    assert_eq!(node.reader.finished_compaction(), at);
    assert!(!node.machine.compaction_pending());
}

#[test]
fn two_changes_of_one_key_in_one_revision_are_two_events() {
    // E#17247: neither lost nor doubled, not even after a restart.
    let mut node = Node::new();
    node.ok(put("k", "1").into()); // 2
    let ops = vec![
        Request::RequestDeleteRange(delete("a", "\0")),
        Request::RequestPut(put("k", "2")),
        Request::RequestTxn(txn(vec![Request::RequestDeleteRange(delete("k", ""))])),
        Request::RequestTxn(txn(vec![Request::RequestPut(put("k", "3"))])),
    ];
    let outcome = node.run(txn(ops).into());
    let events = &outcome.events.unwrap().events;
    let seen: Vec<_> = events.iter().map(|e| (e.revision.sub, e.kind, e.is_create)).collect();
    use crate::mvcc::EventKind::{Delete, Put};
    assert_eq!(seen, [(0, Delete, false), (1, Put, true), (2, Delete, false), (3, Put, true)]);
    // prev_kv is what was there before the transaction.
    let prevs: Vec<_> = events.iter().map(|event| event.prev).collect();
    assert_eq!(prevs, [Some(Revision::new(2, 0)), None, Some(Revision::new(2, 0)), None]);
    node.commit();
    node.restart();
    assert_eq!(mains(&node), [2, 3, 3, 3, 3]);
    assert_eq!(node.get("k").unwrap().value, bytes("3"));
    assert_eq!(node.reader.revision(), 3);
}

#[test]
fn a_transaction_sees_its_own_changes_and_uses_one_revision() {
    let mut node = Node::new();
    node.ok(put("a", "1").into()); // 2
    let read = || Request::RequestRange(get("a", "z"));
    let ops = vec![read(), Request::RequestPut(put("b", "2")), read()];
    let Answer::Txn(answer) = node.ok(txn(ops).into()) else { panic!() };
    assert_eq!(answer.revision, 3);
    let [
        OpAnswer::Range { revision: 2, result: before },
        OpAnswer::Put { revision: 3, prev_kv: None },
        OpAnswer::Range { revision: 3, result: after },
    ] = &answer.results[..]
    else {
        panic!("{answer:?}")
    };
    assert_eq!((before.count, after.count), (1, 2));
    let b = pb_kv::KeyValue::decode(after.kvs[1].clone()).unwrap();
    assert_eq!((b.mod_revision, b.version, &b.value[..]), (3, 1, &b"2"[..]));
    let Answer::Txn(answer) = node.ok(txn(vec![read()]).into()) else { panic!() };
    assert_eq!((answer.revision, node.reader.revision()), (3, 3), "reading makes no revision");
}

#[test]
fn nothing_is_seen_before_it_is_published() {
    let mut node = Node::new();
    node.ok(put("k", "1").into()); // 2
    for request in [put("k", "2").into(), put("k", "3").into(), compact(4)] {
        let data = InternalRaftRequest::encode_to_vec(&request);
        node.entry(Entry(0, data.into(), Bytes::new())).answer.unwrap();
    }
    // The compaction lies above what is published; a read of the current revision must not fail.
    let query: RangeQuery = get("k", "").into();
    let seen = node.reader.range(&query).unwrap();
    assert_eq!(seen.revision, 2);
    assert_eq!(pb_kv::KeyValue::decode(seen.kvs[0].clone()).unwrap().value, bytes("1"));
    assert!(node.machine.compaction_step(), "it waits");
    assert_eq!((node.reader.applied().0, node.reader.compact_revision()), (1, -1));
    node.machine.publish();
    assert_eq!((node.reader.applied().0, node.reader.compact_revision()), (4, 4));
    assert_eq!(node.reader.range(&query).unwrap().revision, 4);
}

#[test]
fn a_batch_drops_at_most_what_one_commit_should() {
    let mut node = Node::with(MachineOptions { compaction_batch: usize::MAX, ..OPTIONS });
    let keys = store::DROPPED_PER_BATCH + 10;
    for i in 0..keys {
        node.ok(put(&format!("{i}"), "").into());
    }
    node.ok(delete("0", "\0").into());
    node.ok(put("x", "").into());
    let revision = node.reader.revision();
    node.ok(compact(revision));
    node.commit();
    for _ in 0..1_000 {
        assert!(node.machine.compaction_step(), "finished in one batch");
    }
    let batch = node.machine.take_batch().unwrap();
    assert_eq!(batch.dropped.len(), store::DROPPED_PER_BATCH);
    node.writer.commit(batch).unwrap();
    node.drain();
    node.commit();
    assert_eq!(mains(&node), [revision]);
}

#[test]
fn a_broken_store_ends_the_machine_instead_of_making_an_answer() {
    let mut node = Node::new();
    for i in 0..3_000 {
        node.ok(put(&format!("{i}"), &"v".repeat(1_000)).into());
    }
    node.commit();
    node.restart();
    node.disk.crash();
    let with_prev = |i: usize| pb::PutRequest { prev_kv: true, ..put(&format!("{i}"), "") };
    let fatal = (0..3_000).find_map(|i| {
        let data = InternalRaftRequest::from(with_prev(i)).encode_to_vec();
        node.entry(Entry(0, data.into(), Bytes::new())).answer.err()
    });
    assert!(matches!(fatal, Some(AnswerError::Fault(_))), "{fatal:?}");
    assert!(node.machine.take_batch().is_none(), "half of a command must not become durable");
}

#[test]
fn a_compactions_hash_is_the_same_wherever_and_whenever_it_is_made() {
    use std::sync::atomic::AtomicBool;
    let stop = AtomicBool::new(false);
    for durable in [false, true] {
        let mut node = Node::with(MachineOptions { compaction_batch: 1, ..OPTIONS });
        let change = |node: &mut Node, round: i64| {
            for n in 0..40 {
                node.ok(put(&format!("k{}", n % 7), &format!("{round}/{n}")).into());
                if n % 5 == round % 5 {
                    node.ok(delete(&format!("k{}", n % 3), "").into());
                }
            }
        };
        change(&mut node, 0);
        node.ok(compact(20));
        node.drain();
        change(&mut node, 1);
        if durable {
            node.commit();
        }
        assert!(node.machine.compaction_hash().is_none(), "there is no compaction");
        let at = node.reader.revision() - 3;
        node.ok(compact(at));
        let [now, later] = [(); 2].map(|()| node.machine.compaction_hash().expect("a hash"));
        assert_eq!((now.at(), node.machine.compacting_at()), (at, Some(at)));
        let now = now.run(&stop).expect("not stopped").unwrap();
        // Commands, a further compaction that waits, and a commit do not change it.
        change(&mut node, 2);
        node.ok(compact(at + 10));
        node.commit();
        let later = later.run(&stop).expect("not stopped").unwrap();
        assert_eq!(now, later);
        assert_eq!((now.compact_revision, now.hash_revision), (20, at));
        // And it is the one that the steps themselves would have made.
        let mut steps = Node::with(MachineOptions { compaction_batch: 1, ..OPTIONS });
        steps.log = node.log.clone();
        for index in 1..=steps.log.len() {
            steps.replay(index);
            steps.machine.publish();
            if steps.machine.compacting_at() != Some(at + 10) {
                steps.drain();
            }
        }
        steps.drain();
        node.machine.compaction_hashed(at, Ok(now));
        assert!(node.machine.compaction_hash().is_none(), "made once");
        node.drain();
        for at in [at, at + 10] {
            assert_eq!(node.reader.hash_kv(at).ok(), steps.reader.hash_kv(at).ok(), "at {at}");
        }
        // A result that nobody waits for, as behind the install of a snapshot, changes nothing.
        node.machine.compaction_hashed(at, Err(RowsError::Missing));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        node.ok(compact(at + 20));
        assert!(node.machine.compaction_hash().expect("a hash").run(&stop).is_none());
        stop.store(false, std::sync::atomic::Ordering::Relaxed);
    }
}
