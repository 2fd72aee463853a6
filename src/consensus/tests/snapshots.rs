//! Snapshots: built on demand, pinned while they travel, installed before anything is said.

use super::group::Group;
use crate::consensus::*;

/// Entries kept for followers.
const TAIL: u64 = 5;

fn asked(group: &Group) -> usize {
    let build = |(_, e): &&(NodeId, Effect)| matches!(e, Effect::BuildSnapshot { to: 3 });
    group.seen.iter().filter(build).count()
}

fn propose(group: &mut Group, count: u64) {
    for n in 0..count {
        group.propose(1, 1_000 + n, "x");
        group.deliver();
    }
}

/// Member 3 was away for so long that member 1 no longer has what it needs.
fn one_fell_behind() -> Group {
    let mut group = Group::configured(3, 0, |config| config.log_cache_entries = TAIL);
    group.elect(1);
    group.lose = |w| w.to() == 3;
    propose(&mut group, 50);
    assert!(group.status(1).first > group.status(3).last + 1, "the log was cut");
    assert_eq!(asked(&group), 0);
    group.lose = |_| false;
    for _ in 0..3 {
        group.tick();
    }
    assert_eq!(asked(&group), 1, "asked for once");
    group
}

fn view(group: &Group) -> SnapshotMeta {
    let status = group.status(1);
    SnapshotMeta { index: status.durable, term: status.term, conf_state: status.conf_state }
}

fn flow(group: &Group) -> Flow {
    group.status(1).peers.iter().find(|p| p.id == 3).unwrap().flow
}

fn send(group: &mut Group) -> SnapshotMeta {
    let meta = view(group);
    group.sent.clear();
    group.give(1, [Input::SnapshotReady { to: 3, meta: meta.clone() }]);
    group.tick();
    group.tick();
    let sent: Vec<&Wire> = group.sent.iter().filter(|w| w.kind() == WireKind::Snapshot).collect();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].snapshot(), Some(meta.clone()));
    assert_eq!(flow(group), Flow::Snapshot);
    meta
}

fn assert_nothing_is_pinned(group: &mut Group) {
    group.tick();
    propose(group, 1);
    let status = group.status(1);
    assert_eq!(status.last - status.first + 1, TAIL, "nothing is pinned any more");
}

#[test]
fn a_follower_that_fell_behind_catches_up() {
    let mut group = one_fell_behind();
    let meta = send(&mut group);
    assert!(group.status(1).first <= meta.index + 1, "what comes behind the snapshot is pinned");
    propose(&mut group, 20);
    assert!(group.status(1).first <= meta.index + 1);
    assert!(group.status(3).last < meta.index, "the message waits for the rows");

    group.give(3, [Input::SnapshotStaged(meta.clone())]);
    assert!(group.status(3).installing);
    let (_, install) = group.seen.iter().rev().nth(1).unwrap();
    assert!(matches!(install, Effect::Install(m) if *m == meta));
    let (_, Effect::Persist(batch)) = group.seen.last().unwrap() else { panic!("no batch") };
    assert!(batch.sync && batch.hard_state.is_some_and(|hs| hs.commit == meta.index));
    group.sent.clear();
    for _ in 0..40 {
        group.give(3, [Input::Tick]);
    }
    group.propose(3, 9_999, "deaf");
    assert_eq!(group.refusal(9_999), Some(Refusal::NoLeader));
    assert!(group.sent.is_empty(), "nothing is said while it is being installed");

    group.give(3, [Input::Installed(meta.clone())]);
    assert_eq!(group.status(3).applied, meta.index);
    assert!(group.sent.iter().any(|w| w.kind() == WireKind::AppendResponse));
    group.give(1, [Input::SnapshotSent { to: 3, ok: true }]);
    for _ in 0..3 {
        group.tick();
    }
    assert_eq!(group.status(3).applied, group.status(1).applied);
    assert_eq!(flow(&group), Flow::Replicate);
    assert_nothing_is_pinned(&mut group);
}

#[test]
fn what_was_written_while_a_snapshot_travelled_stays_until_the_follower_has_it() {
    let mut group = one_fell_behind();
    let meta = send(&mut group);
    propose(&mut group, 4 * TAIL);
    // A queue that is full drops what comes at once behind a snapshot.
    group.lose = |w| w.to() == 3 && w.kind() == WireKind::Append;
    group.give(3, [Input::SnapshotStaged(meta.clone())]);
    group.give(1, [Input::SnapshotSent { to: 3, ok: true }]);
    group.give(3, [Input::Installed(meta.clone())]);
    for _ in 0..5 {
        propose(&mut group, TAIL);
        group.tick();
    }
    let matched = |group: &Group| group.status(1).peers.iter().find(|p| p.id == 3).unwrap().matched;
    assert_eq!(matched(&group), meta.index, "it said that it has the snapshot, and got no more");
    assert!(group.status(1).first <= meta.index + 1, "what it needs next is still there");
    group.lose = |_| false;
    group.give(1, [Input::Unreachable(3)]);
    for _ in 0..3 {
        group.tick();
    }
    assert_eq!(matched(&group), group.status(1).last);
    assert_eq!(asked(&group), 1, "one snapshot was enough");
    assert_nothing_is_pinned(&mut group);
}

#[test]
fn a_follower_that_stops_behind_its_snapshot_does_not_pin_the_log_for_ever() {
    let mut group = one_fell_behind();
    let meta = send(&mut group);
    propose(&mut group, 4 * TAIL);
    group.lose = |w| w.to() == 3 && w.kind() == WireKind::Append;
    group.give(3, [Input::SnapshotStaged(meta.clone())]);
    group.give(1, [Input::SnapshotSent { to: 3, ok: true }]);
    for _ in 0..150 {
        group.tick();
    }
    propose(&mut group, 1);
    assert!(group.status(1).first <= meta.index + 1, "it may still be putting it in place");
    group.give(3, [Input::Installed(meta.clone())]);
    for _ in 0..105 {
        group.tick();
    }
    propose(&mut group, 1);
    assert!(group.status(1).first > meta.index + 1);
}

#[test]
fn a_snapshot_that_failed_is_asked_for_again() {
    let mut group = one_fell_behind();
    group.give(1, [Input::SnapshotSent { to: 3, ok: false }]);
    group.tick();
    assert_eq!(asked(&group), 2, "building failed");
    send(&mut group);
    for _ in 0..30 {
        group.tick();
    }
    assert_eq!(asked(&group), 2, "no outcome, no other attempt");
    group.give(1, [Input::SnapshotSent { to: 3, ok: false }]);
    group.tick();
    group.tick();
    assert_eq!(asked(&group), 3, "sending failed");
}

#[test]
fn a_view_older_than_the_log_is_not_sent() {
    let mut group = one_fell_behind();
    let mut meta = view(&group);
    meta.index = group.status(1).first - 2;
    group.give(1, [Input::SnapshotReady { to: 3, meta }]);
    group.tick();
    assert_eq!(asked(&group), 2, "the follower could not go on from there");
}

#[test]
fn a_snapshot_that_nobody_fetches_does_not_pin_the_log_for_ever() {
    let mut group = one_fell_behind();
    group.lose = |w| w.from() == 3 || w.to() == 3;
    // Until the leader has noticed that the follower is away, and no longer sends to it.
    for _ in 0..25 {
        group.tick();
    }
    let meta = view(&group);
    group.give(1, [Input::SnapshotReady { to: 3, meta: meta.clone() }]);
    propose(&mut group, 20);
    assert!(group.status(1).first <= meta.index + 1);
    for _ in 0..101 {
        group.tick();
    }
    propose(&mut group, 1);
    assert!(group.status(1).first > meta.index + 1);
}

#[test]
fn a_pinned_log_is_bounded_in_bytes() {
    let mut group = Group::configured(3, 0, |config| {
        config.log_cache_entries = TAIL;
        config.log_bytes_max = 20_000;
    });
    group.elect(1);
    group.lose = |w| w.to() == 3;
    propose(&mut group, 50);
    group.lose = |_| false;
    for _ in 0..3 {
        group.tick();
    }
    propose(&mut group, 1_000);
    let status = group.status(1);
    assert!(status.log_bytes <= 20_000, "{} bytes", status.log_bytes);
    assert!(status.last - status.first > 2 * TAIL, "pinned as far as the bound allows");
}
