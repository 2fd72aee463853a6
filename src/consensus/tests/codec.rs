//! Bytes that others read: configurations, change entries, messages between members.

use crate::consensus::*;
use bytes::Bytes;
use prost::Message as _;
use raft::eraftpb::{self, MessageType};

#[test]
fn a_configuration_is_a_raftpb_conf_state() {
    let conf = ConfState {
        voters: vec![1, 300],
        learners: vec![4],
        voters_outgoing: vec![1, 5],
        learners_next: vec![5],
        auto_leave: true,
    };
    let bytes = conf.encode();
    // Proto 2: repeated numbers are not packed.
    assert_eq!(bytes, [8, 1, 8, 0xac, 2, 16, 4, 24, 1, 24, 5, 32, 5, 40, 1]);
    assert_eq!(ConfState::decode(&bytes), Ok(conf));
    assert_eq!(ConfState::decode(&[]), Ok(ConfState::default()));
    let packed = [10, 2, 2, 1];
    assert_eq!(ConfState::decode(&packed).unwrap().voters, [1, 2], "packed and unsorted");
}

#[test]
fn a_configuration_that_contradicts_itself_is_refused() {
    for bad in [
        ConfState { learners: vec![1], ..ConfState::default() },
        ConfState { voters: vec![1], learners: vec![1], ..ConfState::default() },
        ConfState { voters: vec![0], ..ConfState::default() },
        ConfState { voters: vec![1], auto_leave: true, ..ConfState::default() },
        ConfState { voters: vec![1], learners_next: vec![2], ..ConfState::default() },
    ] {
        assert!(ConfState::decode(&bad.encode()).is_err(), "{bad:?}");
    }
    assert!(ConfState::decode(&[0xff]).is_err());
}

/// etcd's `raftpb.ConfChange`, written down independently.
#[derive(Clone, PartialEq, prost::Message)]
struct RaftpbConfChange {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int32, tag = "2")]
    kind: i32,
    #[prost(uint64, tag = "3")]
    node_id: u64,
    #[prost(bytes = "vec", tag = "4")]
    context: Vec<u8>,
}

#[test]
fn a_change_entry_carries_etcds_meaning_and_the_librarys_number() {
    for (op, etcd, library) in
        [(ChangeOp::AddVoter, 0, 0), (ChangeOp::Remove, 1, 1), (ChangeOp::AddLearner, 3, 2)]
    {
        let change = MemberChange::one(99, op, 7, Bytes::from_static(b"{}"));
        let entry = Entry {
            index: 1,
            term: 1,
            kind: EntryKind::Change,
            data: change.data(),
            context: change.etcd_context(),
        };
        let decoded = RaftpbConfChange::decode(entry.context.clone()).unwrap();
        assert_eq!((decoded.id, decoded.kind, decoded.node_id), (99, etcd, 7));
        assert_eq!(decoded.context, b"{}");
        let raft = super::super::change::decode(&entry.data).unwrap();
        assert_eq!(raft.changes[0].get_change_type() as i32, library);
        assert_eq!(MemberChange::of(&entry), Some(change));
        assert_eq!(MemberChange::of(&Entry { kind: EntryKind::Normal, ..entry }), None);
    }
    let leave = Entry {
        index: 1,
        term: 1,
        kind: EntryKind::Change,
        data: Bytes::new(),
        context: Bytes::new(),
    };
    assert_eq!(MemberChange::of(&leave).unwrap().steps, []);
}

/// The library would take a step of an unknown kind for a new voter.
#[test]
fn a_change_that_is_not_wholly_known_changes_nothing() {
    const STEP: &[u8] = b"\x12\x02\x10\x07";
    let read = |data: &[u8]| super::super::change::decode(data);
    assert_eq!(read(STEP).expect("a new voter").changes.len(), 1);
    for unknown in [
        &b"\x12\x04\x08\x03\x10\x07"[..],
        b"\x12\x06\x10\x07\xf0\xd2\x0e\x01",
        b"\x08\x03\x12\x02\x10\x07",
        b"\x12\x02\x10\x07\xf0\xd2\x0e\x01",
    ] {
        assert_eq!(read(unknown), None, "{unknown:?}");
    }
}

#[test]
fn founding_members_are_change_entries_of_term_one() {
    let member = |id| BootstrapMember { id, context_json: Bytes::from(format!("{{\"id\":{id}}}")) };
    let (entries, hard_state) = bootstrap(&[member(3), member(5)]);
    assert_eq!(hard_state, HardState { term: 1, vote: 0, commit: 2 });
    let shape: Vec<_> = entries.iter().map(|e| (e.index, e.term, e.kind)).collect();
    assert_eq!(shape, [(1, 1, EntryKind::Change), (2, 1, EntryKind::Change)]);
    assert_eq!(MemberChange::of(&entries[1]).unwrap().context, r#"{"id":5}"#);
    assert_eq!(bootstrap(&[]), (vec![], HardState { term: 1, vote: 0, commit: 0 }));
}

fn message(kind: MessageType) -> eraftpb::Message {
    let mut m = eraftpb::Message::default();
    m.set_msg_type(kind);
    (m.from, m.to, m.term) = (1, 2, 3);
    m
}

fn with_entries(kind: MessageType, entries: &[(u64, u64)]) -> eraftpb::Message {
    let entry = |(index, term): &(u64, u64)| {
        let mut e = eraftpb::Entry::default();
        (e.index, e.term, e.data) = (*index, *term, Bytes::from_static(b"data"));
        e
    };
    let mut m = message(kind);
    m.set_entries(entries.iter().map(entry).collect());
    m
}

#[test]
fn messages_survive_the_wire() {
    let mut append = with_entries(MessageType::MsgAppend, &[(8, 2), (9, 3)]);
    (append.index, append.log_term, append.commit) = (7, 2, 6);
    let mut snapshot = message(MessageType::MsgSnapshot);
    snapshot.mut_snapshot().mut_metadata().index = 9;
    snapshot.mut_snapshot().mut_metadata().term = 3;
    snapshot.mut_snapshot().mut_metadata().mut_conf_state().voters = vec![1, 2];
    let mut vote = message(MessageType::MsgRequestVoteResponse);
    (vote.reject, vote.reject_hint, vote.commit_term, vote.priority) = (true, 5, 2, -1);
    vote.context = Bytes::from_static(b"context");
    vote.request_snapshot = 4;
    for m in [append, snapshot, vote] {
        let wire = Wire(m);
        assert_eq!(Wire::decode(wire.encode().into()), Ok(wire));
    }
}

#[test]
fn the_library_reads_what_we_write() {
    use protobuf2::Message as _;
    let mut append = with_entries(MessageType::MsgAppend, &[(8, 2), (9, 3)]);
    (append.index, append.log_term, append.commit) = (7, 2, 6);
    let mut theirs = eraftpb::Message::default();
    theirs.merge_from_bytes(&Wire(append.clone()).encode()).unwrap();
    assert_eq!(theirs, append);
}

#[test]
fn what_the_library_would_abort_on_is_refused() {
    use MessageType::*;
    let mut change = with_entries(MsgPropose, &[(0, 0)]);
    change.mut_entries()[0].set_entry_type(eraftpb::EntryType::EntryConfChangeV2);
    let mut old_change = with_entries(MsgAppend, &[(1, 1)]);
    old_change.mut_entries()[0].set_entry_type(eraftpb::EntryType::EntryConfChange);
    let mut nobody = message(MsgHeartbeat);
    nobody.from = 0;
    let mut no_term = message(MsgHeartbeat);
    no_term.term = 0;
    let mut bad = vec![
        change,
        old_change,
        nobody,
        no_term,
        message(MsgPropose),
        message(MsgReadIndex),
        message(MsgReadIndexResp),
        message(MsgSnapshot),
        with_entries(MsgAppend, &[(2, 1)]),
        with_entries(MsgAppend, &[(1, 2), (2, 1)]),
        with_entries(MsgAppend, &[(1, 4)]),
    ];
    bad.extend([MsgHup, MsgBeat, MsgUnreachable, MsgSnapStatus, MsgCheckQuorum].map(message));
    for m in bad {
        let refused = Wire::decode(Wire(m.clone()).encode().into());
        assert!(matches!(refused, Err(WireError::Refused(_))), "{m:?} gave {refused:?}");
    }
    assert!(matches!(Wire::decode(Bytes::from_static(b"\xff\xff")), Err(WireError::Decode(_))));
    assert!(matches!(
        Wire::decode(Bytes::from_static(&[8, 99, 16, 1])),
        Err(WireError::Refused(_))
    ));
}
