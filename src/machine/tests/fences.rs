//! Fences: listed as CORRUPT of one member, without refusing anybody's writes.

use super::*;

const MEMBER: u64 = 7;

fn joined() -> Node {
    let mut node = Node::new();
    node.entry(change(0, MEMBER, "http://m:1"));
    node.machine.publish();
    node
}

fn fence(member: u64) -> InternalRaftRequest {
    alarm(ACTION_FENCE, member, 2)
}

fn corrupt(member: u64) -> Vec<Alarm> {
    vec![Alarm { member, kind: AlarmKind::Corrupt }]
}

#[test]
fn a_fence_shows_as_corrupt_of_its_member_and_stops_nobody_else() {
    let mut node = joined();
    let Answer::Alarm { alarms, .. } = node.ok(fence(MEMBER)) else { panic!() };
    assert_eq!(alarms, corrupt(MEMBER));
    assert_eq!(*node.reader.alarms(), *corrupt(MEMBER));
    assert_eq!(*node.reader.fences(), [MEMBER]);
    node.ok(put("k", "v").into());
    // A CORRUPT alarm proper refuses writes, also beside a fence.
    node.ok(alarm(1, MEMBER, 2));
    assert_eq!(node.err(put("k", "v").into()), AnswerError::Corrupt);
    assert_eq!(*node.reader.alarms(), *corrupt(MEMBER), "listed once");
}

#[test]
fn a_fence_outlasts_a_restart_and_ends_with_the_member_or_when_it_is_disarmed() {
    let mut node = joined();
    node.ok(fence(MEMBER));
    node.commit();
    node.restart();
    assert_eq!(*node.reader.fences(), [MEMBER]);
    let Answer::Alarm { alarms, .. } = node.ok(alarm(2, MEMBER, 2)) else { panic!() };
    assert_eq!(alarms, corrupt(MEMBER));
    assert!(node.reader.fences().is_empty() && node.reader.alarms().is_empty());
    node.ok(fence(MEMBER));
    node.entry(change(1, MEMBER, ""));
    node.machine.publish();
    assert!(node.reader.fences().is_empty() && node.reader.alarms().is_empty());
    node.commit();
    node.restart();
    assert!(node.reader.fences().is_empty());
}

#[test]
fn only_members_can_be_fenced_and_only_for_corruption() {
    let mut node = joined();
    node.ok(fence(MEMBER + 1));
    assert!(node.reader.fences().is_empty());
    let data = alarm(ACTION_FENCE, MEMBER, 1).encode_to_vec().into();
    let refused = node.entry(Entry(0, data, Bytes::new())).answer;
    assert_eq!(refused, Err(AnswerError::UnknownCommand));
}
