//! Leases, alarms, quota, members, versions: the small tables.

use super::*;
use pb::{LeaseCheckpoint, LeaseCheckpointRequest};

fn leased(key: &str, lease: i64) -> InternalRaftRequest {
    pb::PutRequest { lease, ..put(key, "v") }.into()
}

#[test]
fn a_revoke_deletes_the_attached_keys_in_order_in_one_revision() {
    let mut node = Node::new();
    assert_eq!(
        node.ok(grant(-7, 1)),
        Answer::LeaseGrant { revision: 1, id: -7, ttl: 2 },
        "raised to the minimum"
    );
    for key in ["c", "a", "b", "moved", "freed", "gone"] {
        node.ok(leased(key, -7)); // 2 to 7
    }
    node.ok(grant(8, 60));
    node.ok(leased("moved", 8)); // 8
    node.ok(put("freed", "").into()); // 9
    node.ok(delete("gone", "").into()); // 10
    node.ok(put("gone", "").into()); // 11
    node.ok(pb::PutRequest { ignore_lease: true, ..put("a", "kept") }.into()); // 12
    let outcome = node.run(revoke(-7));
    assert_eq!(outcome.answer, Ok(Answer::LeaseRevoke { revision: 13 }));
    assert_eq!(outcome.lease, [LeaseChange::Revoked { id: -7 }]);
    let events = &outcome.events.unwrap().events;
    let keys: Vec<&[u8]> = events.iter().map(|event| &event.key[..]).collect();
    assert_eq!(keys, [b"a", b"b", b"c"]);
    assert!(events.iter().all(|event| event.revision.main == 13));
    assert_eq!(node.get("moved").unwrap().lease, 8);
    assert_eq!(node.get("freed").unwrap().lease, 0);
    assert_eq!(node.ok(revoke(8)), Answer::LeaseRevoke { revision: 14 });
    node.ok(grant(9, 60));
    assert_eq!(node.ok(revoke(9)), Answer::LeaseRevoke { revision: 14 }, "no keys, no revision");
}

#[test]
fn leases_survive_a_restart_with_keys_and_remaining_time() {
    let mut node = Node::new();
    node.ok(grant(1, 100));
    node.ok(grant(2, 100));
    node.ok(leased("a", 1));
    node.ok(leased("b", 1));
    node.ok(leased("b", 2));
    node.ok(leased("old", 2));
    node.ok(put("old", "").into());
    let checkpoint = |remaining_ttl| LeaseCheckpoint { id: 1, remaining_ttl };
    let request = LeaseCheckpointRequest {
        checkpoints: vec![checkpoint(40), LeaseCheckpoint { id: 5, remaining_ttl: 1 }],
    };
    let outcome = node.run(request.into());
    assert_eq!(outcome.lease, [LeaseChange::Checkpointed { id: 1, remaining: 40 }]);
    node.ok(revoke(2));
    node.commit();
    assert!(node.restart().is_empty());
    assert_eq!(node.reader.lease_keys(1), Some(vec![bytes("a")]));
    assert_eq!(node.reader.lease_keys(2), None);
    let [lease] = node.machine.lease_records()[..] else { panic!() };
    assert_eq!((lease.id, lease.ttl, lease.remaining), (1, 100, 40));
    // A row that still names the revoked lease attaches nothing.
    node.ok(grant(2, 100));
    assert_eq!(node.reader.lease_keys(2), Some(vec![]));
}

#[test]
fn alarms_block_what_they_should() {
    const NOSPACE: i32 = 1;
    const CORRUPT: i32 = 2;
    let mut node = Node::new();
    node.ok(put("k", "v").into());
    node.ok(grant(1, 60));
    let raised = Alarm { member: 7, kind: AlarmKind::NoSpace };
    let answer = |alarms: &[Alarm]| Answer::Alarm { revision: 2, alarms: alarms.to_vec() };
    assert_eq!(node.ok(alarm(1, 7, 0)), answer(&[]), "no kind, nothing happens");
    assert_eq!(node.ok(alarm(1, 7, NOSPACE)), answer(&[raised]));
    assert_eq!(node.ok(alarm(1, 7, NOSPACE)), answer(&[raised]), "again");
    assert_eq!(node.ok(alarm(2, 8, NOSPACE)), answer(&[]), "another member");
    assert_eq!(node.ok(alarm(0, 1, 0)), answer(&[raised]));
    assert_eq!(node.ok(alarm(0, 1, CORRUPT)), answer(&[]));
    assert_eq!(node.reader.alarms()[..], [raised]);

    let range = || Request::RequestRange(get("k", ""));
    let putting = || Request::RequestPut(put("x", ""));
    let nested = || Request::RequestTxn(txn(vec![putting()]));
    assert_eq!(node.err(put("x", "").into()), AnswerError::NoSpace);
    assert_eq!(node.err(txn(vec![putting()]).into()), AnswerError::NoSpace);
    assert_eq!(node.err(txn(vec![nested()]).into()), AnswerError::NoSpace, "nested puts count");
    assert_eq!(node.err(grant(2, 60)), AnswerError::NoSpace);
    node.ok(txn(vec![range(), Request::RequestDeleteRange(delete("q", ""))]).into());
    node.ok(delete("q", "").into());
    node.ok(compact(1));
    node.commit();
    node.restart();
    assert_eq!(node.reader.alarms()[..], [raised], "survives a restart");
    node.ok(revoke(1));

    node.ok(alarm(1, 0, CORRUPT));
    for refused in [
        put("x", "").into(),
        delete("q", "").into(),
        txn(vec![range()]).into(),
        compact(2),
        grant(2, 60),
        revoke(1),
    ] {
        assert_eq!(node.err(refused), AnswerError::Corrupt);
    }
    node.ok(LeaseCheckpointRequest::default().into());
    assert_eq!(
        node.ok(alarm(0, 0, 0)),
        answer(&[Alarm { member: 0, kind: AlarmKind::Corrupt }, raised])
    );
    node.ok(alarm(2, 0, CORRUPT));
    assert_eq!(node.ok(alarm(2, 7, NOSPACE)), answer(&[raised]));
    node.ok(put("x", "").into());
    assert!(node.reader.alarms().is_empty());
}

#[test]
fn the_quota_counts_rows_until_they_are_dropped() {
    let mut node = Node::with(MachineOptions { quota_bytes: Some(10_000), ..OPTIONS });
    let value = "x".repeat(1_000);
    for i in 0..10 {
        // Nine rows of some 1,046 bytes leave no room for another 256 + 1 + 1,000.
        assert_eq!(node.reader.exceeds_quota(1_257), i == 9);
        let outcome = node.run(put("k", &value).into());
        assert!(outcome.answer.is_ok(), "a write that was proposed is done");
        assert_eq!(outcome.over_quota, i == 9);
    }
    let full = node.reader.sizes();
    assert!(full.total_bytes > 9_000 && full.in_use_bytes < 1_200 && full.keys == 1);
    assert!(!node.run(delete("k", "").into()).over_quota);
    let revision = node.reader.revision();
    node.ok(compact(revision));
    node.drain();
    node.machine.publish();
    let empty = node.reader.sizes();
    assert!(empty.total_bytes < 100 && empty.in_use_bytes == 0 && empty.keys == 0, "{empty:?}");
    assert!(!node.reader.exceeds_quota(9_000));
}

fn change(node: &mut Node, id: u64, kind: u64, node_id: u64, json: &str) -> Outcome {
    let mut context = Vec::new();
    for (field, value) in [(8, id as u8), (16, kind as u8), (24, node_id as u8)] {
        // As members write it: zero is not written.
        context.extend([field, value].into_iter().filter(|_| value != 0));
    }
    if !json.is_empty() {
        context.extend([34, json.len() as u8]);
        context.extend(json.as_bytes());
    }
    let outcome = node.entry(Entry(KIND_CHANGE, Bytes::new(), context.into()));
    assert_eq!(outcome.request_id, id);
    node.machine.publish();
    outcome
}

#[test]
fn members_follow_the_changes_of_the_log() {
    const ADD: u64 = 0;
    const REMOVE: u64 = 1;
    const UPDATE: u64 = 2;
    const ADD_LEARNER: u64 = 3;
    let mut node = Node::new();
    let add = r#"{"id":10,"peerURLs":["http://a:2380"],"name":"a"}"#;
    assert!(change(&mut node, 1, ADD, 10, add).membership_changed);
    // The kind of the change decides about the vote, not the text.
    let learner = r#"{"id":11,"peerURLs":["http://b:2380"]}"#;
    let outcome = change(&mut node, 2, ADD_LEARNER, 11, learner);
    let Ok(Answer::Members(members)) = outcome.answer else { panic!() };
    assert_eq!((members.len(), members.voters()), (2, 1));
    let publish = InternalRaftRequest {
        cluster_member_attr_set: Some(crate::proto::membershippb::ClusterMemberAttrSetRequest {
            member_id: 11,
            member_attributes: Some(crate::proto::membershippb::Attributes {
                name: "b".into(),
                client_urls: vec!["http://b:2379".into()],
            }),
        }),
        ..Default::default()
    };
    assert!(node.run(publish).membership_changed);
    // An update changes the peer URLs and nothing else (E#21694).
    change(&mut node, 3, UPDATE, 11, r#"{"id":11,"peerURLs":["http://c:2380"]}"#);
    let update = pb::MemberUpdateRequest { id: 11, peer_ur_ls: vec!["http://d:2380".into()] };
    node.ok(InternalRaftRequest { member_update: Some(update), ..Default::default() });
    let b = Member {
        id: 11,
        peer_urls: vec!["http://d:2380".into()],
        is_learner: true,
        name: "b".into(),
        client_urls: vec!["http://b:2379".into()],
    };
    assert_eq!(node.reader.members().get(11), Some(&b));
    let promote = r#"{"id":11,"peerURLs":[],"isPromote":true}"#;
    change(&mut node, 4, ADD, 11, promote);
    let voter = Member { is_learner: false, ..b };
    assert_eq!(node.reader.members().get(11), Some(&voter));
    change(&mut node, 5, REMOVE, 10, "");
    assert_eq!(change(&mut node, 6, REMOVE, 10, "").answer, Err(AnswerError::MemberNotFound));
    assert_eq!(change(&mut node, 7, UPDATE, 10, add).answer, Err(AnswerError::MemberNotFound));
    assert!(!change(&mut node, 0, 0, 0, "").membership_changed, "nobody is named");
    node.commit();
    node.restart();
    let members = node.reader.members();
    assert_eq!(members.get(11), Some(&voter));
    assert!(members.get(10).is_none() && members.is_removed(10));
    let outcome = node.entry(Entry(KIND_CHANGE, Bytes::new(), Bytes::new()));
    assert!(outcome.answer.is_ok() && !outcome.membership_changed);
}

#[test]
fn members_have_the_rows_of_etcd() {
    let mut node = Node::new();
    change(&mut node, 1, 3, 0x7b, r#"{"id":123,"peerURLs":["http://a:2380"]}"#);
    change(&mut node, 2, 1, 0x7b, "");
    let batch = node.machine.take_batch().unwrap();
    let json = r#"{"id":123,"peerURLs":["http://a:2380"],"isLearner":true}"#;
    assert_eq!(
        batch.small,
        [
            (Table::Members, bytes("7b"), Some(bytes(json))),
            (Table::Members, bytes("7b"), None),
            (Table::MembersRemoved, bytes("7b"), Some(bytes("removed"))),
        ]
    );
}

#[test]
fn versions_survive_a_restart() {
    use crate::proto::membershippb::{ClusterVersionSetRequest, DowngradeInfoSetRequest};
    let mut node = Node::new();
    assert_eq!(node.reader.cluster_version(), None);
    let set = ClusterVersionSetRequest { ver: "3.7.0".into() };
    let outcome =
        node.run(InternalRaftRequest { cluster_version_set: Some(set), ..Default::default() });
    assert_eq!(
        (outcome.op, outcome.answer),
        ("ClusterVersionSet", Ok(Answer::Done { revision: 1 }))
    );
    let set = DowngradeInfoSetRequest { enabled: true, ver: "3.6.0".into() };
    node.ok(InternalRaftRequest { downgrade_info_set: Some(set), ..Default::default() });
    node.commit();
    node.restart();
    assert_eq!(node.reader.cluster_version().as_deref(), Some("3.7.0"));
    let downgrade = Downgrade { target_version: "3.6.0".into(), enabled: true };
    assert_eq!(node.reader.downgrade(), downgrade);
    assert_eq!(node.reader.auth(), AuthStatus { enabled: false, revision: 1 });
}
