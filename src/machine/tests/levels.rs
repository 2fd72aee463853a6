//! Levels of commands: what is above them is not applied, and the level of the cluster only rises.

use super::{Entry, KIND_CHANGE, Node, OPTIONS, bytes, put};
use crate::machine::level::{FIRST, OWN, needs, stamp};
use crate::machine::{AnswerError, MachineOptions};
use crate::proto::etcdserverpb as pb;
use bytes::Bytes;
use pb::InternalRaftRequest;
use prost::Message;

fn raise(level: u32) -> InternalRaftRequest {
    let mut request = InternalRaftRequest {
        feature_level_set: Some(pb::FeatureLevelSetRequest { level }),
        ..InternalRaftRequest::default()
    };
    stamp(&mut request);
    request
}

fn encoded(request: &InternalRaftRequest) -> Entry {
    Entry(0, request.encode_to_vec().into(), Bytes::new())
}

/// An entry that the machine must stop at, with nothing of it applied.
fn stops(options: MachineOptions, entry: Entry, why: AnswerError) {
    let mut node = Node::with(options);
    node.ok(put("k", "1").into());
    node.commit();
    assert_eq!(node.entry(entry).answer, Err(why.clone()));
    assert!(why.is_newer() && why.is_fatal());
    assert_eq!(node.machine.applied().0, 1, "it is not applied");
    assert_eq!(node.machine.reader().feature_level(), FIRST);
    let next = InternalRaftRequest::from(put("k", "2"));
    assert!(node.entry(encoded(&next)).answer.is_err(), "nothing is applied behind it");
    assert!(node.machine.take_batch().is_none(), "nothing of it becomes durable");
}

#[test]
fn a_command_above_the_own_level_is_not_applied() {
    let older = MachineOptions { feature_level: FIRST, ..OPTIONS };
    stops(older, encoded(&raise(2)), AnswerError::AboveLevel { needs: 2, own: FIRST });
    let next = OWN + 1;
    stops(OPTIONS, encoded(&raise(next)), AnswerError::AboveLevel { needs: next, own: OWN });
    // A known command that says that it holds more than this version knows.
    let mut more = InternalRaftRequest::from(put("k", "2"));
    more.feature_level = next;
    stops(OPTIONS, encoded(&more), AnswerError::AboveLevel { needs: next, own: OWN });
    // The version before knew the field of no level.
    let mut unnamed = raise(2);
    unnamed.feature_level = 0;
    stops(older, encoded(&unnamed), AnswerError::UnknownCommand);
}

/// A field of a newer version, in the command itself and inside of a known part of it.
#[test]
fn an_unknown_field_is_never_dropped_at_any_depth() {
    let known = InternalRaftRequest::from(put("k", "2")).encode_to_vec();
    // Field 29998, a varint.
    const FIELD: &[u8] = b"\xf0\xd2\x0e\x01";
    let beside = [&known, FIELD].concat();
    stops(OPTIONS, Entry(0, bytes(&beside), Bytes::new()), AnswerError::UnknownCommand);
    let inner = pb::PutRequest { key: "k".into(), value: "2".into(), ..Default::default() };
    let inner = [&inner.encode_to_vec(), FIELD].concat();
    let mut within = vec![0x22, u8::try_from(inner.len()).expect("short")];
    within.extend_from_slice(&inner);
    let decoded = InternalRaftRequest::decode(&within[..]).expect("a put");
    assert_eq!(decoded.put.expect("a put").value, "2", "that it is a put is known");
    stops(OPTIONS, Entry(0, bytes(&within), Bytes::new()), AnswerError::UnknownCommand);
    // A transaction whose only operation is of a kind that does not exist here.
    let txn = b"\x32\x05\x12\x03\x32\x01\x00";
    stops(OPTIONS, Entry(0, bytes(txn), Bytes::new()), AnswerError::UnknownCommand);
}

/// A change of the members has two parts: what consensus reads, and what the members become.
#[test]
fn a_change_of_members_that_is_not_wholly_known_is_never_applied_in_part() {
    // `{"id":7}` is added; field 29998 as above.
    let added = |json: &str, more: &[u8]| {
        let head = [8, 1, 24, 7, 34, u8::try_from(json.len()).expect("short")];
        [&head, json.as_bytes(), more].concat()
    };
    const FIELD: &[u8] = b"\xf0\xd2\x0e\x01";
    // One step that adds voter 7.
    const STEP: &[u8] = b"\x12\x02\x10\x07";
    let entry = |data: &[u8], context: &[u8]| {
        Entry(KIND_CHANGE, Bytes::copy_from_slice(data), Bytes::copy_from_slice(context))
    };
    let mut node = Node::new();
    let known = added(r#"{"id":7}"#, b"");
    assert!(node.entry(entry(STEP, &known)).membership_changed);
    for (data, context) in [
        // More of the change, of its member, and of the step; a step and a transition of new kinds.
        (STEP, added(r#"{"id":7}"#, FIELD)),
        (STEP, added(r#"{"id":7,"zone":"a"}"#, b"")),
        (STEP, b"\x08\x01\x10\x02\x18\x07\x22\x13{\"id\":7,\"zone\":\"a\"}".to_vec()),
        (b"\x12\x06\x10\x07\xf0\xd2\x0e\x01", known.clone()),
        (b"\x12\x04\x08\x03\x10\x07", known.clone()),
        (b"\x08\x03\x12\x02\x10\x07", known.clone()),
        (&[STEP, FIELD].concat(), known.clone()),
        (b"\xff", known),
        (b"\xff", Vec::new()),
    ] {
        stops(OPTIONS, entry(data, &context), AnswerError::UnknownCommand);
    }
}

#[test]
fn the_level_rises_survives_a_restart_and_never_falls() {
    let mut node = Node::new();
    let level = |node: &Node| node.machine.reader().feature_level();
    node.machine.publish();
    assert_eq!(level(&node), FIRST);
    node.ok(raise(2));
    node.machine.publish();
    assert_eq!(level(&node), 2);
    for lower in [0, 1] {
        node.ok(raise(lower));
        node.machine.publish();
        assert_eq!(level(&node), 2, "{lower}");
    }
    node.commit();
    node.restart();
    assert_eq!(level(&node), 2);
    // Commands of the first level name none: versions of that level apply them.
    let mut plain = InternalRaftRequest::from(put("k", "1"));
    stamp(&mut plain);
    assert_eq!((needs(&plain), plain.feature_level), (FIRST, 0));
    node.ok(plain);
}

/// The version before, on the data of a cluster whose upgrade was finalized.
#[test]
fn a_lower_version_does_not_start_on_data_of_a_higher_level() {
    let mut node = Node::new();
    node.ok(raise(2));
    node.commit();
    let error = node.restart_error(MachineOptions { feature_level: FIRST, ..OPTIONS });
    assert!(error.is_newer(), "{error}");
    let text = error.to_string();
    assert!(text.contains("level 2") && text.contains("start the newer version"), "{text}");
}
