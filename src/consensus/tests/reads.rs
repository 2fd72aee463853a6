//! Linearizable reads: shared requests, fresh contexts, retries.

use super::group::Group;
use crate::consensus::*;

fn read(token: u64) -> Input {
    Input::Read { token: Token(token) }
}

fn requests(group: &Group) -> Vec<&Wire> {
    group.sent.iter().filter(|w| w.kind() == WireKind::ReadIndex).collect()
}

#[test]
fn reads_of_a_turn_share_one_request() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    let commit = group.status(1).commit;
    group.give(2, (0..300).map(read));
    group.deliver();
    assert_eq!(requests(&group).len(), 1);
    for token in 0..300 {
        assert_eq!(group.read_at(token), Some((2, commit)));
    }
    assert_eq!(group.status(2).reads_waiting, 0);
}

#[test]
fn a_sole_voter_answers_within_the_step() {
    let mut group = Group::new(1, 0, None);
    group.elect(1);
    group.give(1, [read(1)]);
    assert_eq!(group.read_at(1), Some((1, group.status(1).commit)));
}

#[test]
fn a_read_before_the_first_commit_of_a_term_waits_for_it() {
    let mut group = Group::new(3, 0, None);
    group.lose = |w| w.kind() == WireKind::Append && w.entries() > 0;
    for _ in 0..20 {
        group.tick();
    }
    let leader = group.cores.iter().map(Core::status).find(|s| s.role == Role::Leader).unwrap();
    group.give(leader.id, [read(1)]);
    group.deliver();
    assert_eq!(group.read_at(1), None);
    group.lose = |_| false;
    for _ in 0..3 {
        group.tick();
    }
    let (_, index) = group.read_at(1).unwrap();
    assert!(index > leader.commit, "{index}");
}

#[test]
fn a_read_waits_for_a_leader() {
    let mut group = Group::new(3, 0, None);
    group.give(3, [read(1)]);
    group.deliver();
    assert_eq!((group.read_at(1), group.refusal(1)), (None, None));
    group.elect(1);
    group.tick();
    assert!(group.read_at(1).is_some());
}

#[test]
fn a_lost_read_is_asked_again_under_a_fresh_context() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.lose = |w| w.kind() == WireKind::ReadIndex;
    group.give(2, [read(1)]);
    let asked = group.now;
    while group.now < asked + READ_RETRY_MS - 100 {
        group.tick();
    }
    assert_eq!(requests(&group).len(), 1, "asked again too early");
    group.tick();
    let sent = requests(&group);
    assert_eq!(sent.len(), 2);
    assert_ne!(sent[0].encode(), sent[1].encode(), "the context is not fresh");
    group.lose = |_| false;
    for _ in 0..6 {
        group.tick();
    }
    assert!(group.read_at(1).is_some());
}

#[test]
fn a_new_leader_is_asked_at_once() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.lose = |w| w.kind() == WireKind::ReadIndex && w.to() == 1;
    group.give(2, [read(1)]);
    group.deliver();
    group.give(1, [Input::TransferLeader { to: 3 }]);
    group.deliver();
    assert_eq!(group.status(2).leader, 3);
    assert!(group.read_at(1).is_some(), "no time has passed, and none is needed");
}

#[test]
fn a_read_is_not_answered_by_a_leader_that_was_deposed() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    // Member 1 is cut off and does not know that another leader commits.
    group.lose = |w| w.from() == 1 || w.to() == 1;
    for _ in 0..40 {
        group.now += 100;
        for id in 2..=3 {
            group.give(id, [Input::Tick]);
        }
        group.deliver();
    }
    let leader = (2..=3).find(|id| group.status(*id).role == Role::Leader).unwrap();
    group.propose(leader, 5, "new");
    group.deliver();
    assert_eq!(group.applied(leader, b"new"), 1);
    assert_eq!(group.status(1).role, Role::Leader, "it did not notice");
    group.give(1, [read(1)]);
    group.deliver();
    assert_eq!(group.read_at(1), None);
    group.lose = |_| false;
    for _ in 0..10 {
        group.tick();
    }
    let (_, index) = group.read_at(1).unwrap();
    assert!(index >= group.status(leader).commit.min(group.status(1).commit));
}

#[test]
fn a_read_in_a_term_is_never_answered_by_another_leader() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    let term = group.status(1).term;
    let in_term = |token, term| [Input::ReadInTerm { token: Token(token), term }];
    group.give(1, in_term(1, term));
    group.give(1, in_term(2, term - 1));
    group.give(2, in_term(3, term));
    group.deliver();
    assert!(group.read_at(1).is_some());
    assert_eq!(group.refusal(2), Some(Refusal::NotLeader), "a term that is over");
    assert_eq!(group.refusal(3), Some(Refusal::NotLeader), "a follower that knows the leader");
    // Cut off while it asks, and deposed before it is answered.
    group.lose = |w| w.from() == 1 || w.to() == 1;
    group.give(1, in_term(4, term));
    group.give(1, [read(5)]);
    for _ in 0..40 {
        group.now += 100;
        for id in 2..=3 {
            group.give(id, [Input::Tick]);
        }
        group.deliver();
    }
    group.lose = |_| false;
    for _ in 0..10 {
        group.tick();
    }
    assert_eq!(group.status(1).role, Role::Follower);
    assert_eq!((group.read_at(4), group.refusal(4)), (None, Some(Refusal::NotLeader)));
    assert!(group.read_at(5).is_some(), "any leader may answer a read");
    // Deposed by a message of the same step.
    let leader = group.status(1).leader;
    let old = group.status(leader).term;
    group.elect(1);
    group.give(leader, in_term(6, old));
    group.deliver();
    assert_eq!((group.read_at(6), group.refusal(6)), (None, Some(Refusal::NotLeader)));
}

/// Two followers read at the same moment. Returns whether both are answered without a retry.
fn both_answered(broken: Option<BrokenRule>) -> bool {
    let mut group = Group::new(3, 0, broken);
    group.elect(1);
    group.give(2, [read(2)]);
    group.give(3, [read(3)]);
    group.deliver();
    group.read_at(2).is_some() && group.read_at(3).is_some()
}

#[test]
fn equal_contexts_of_two_members_would_be_merged() {
    assert!(both_answered(None));
    assert!(!both_answered(Some(BrokenRule::SharedReadContext)));
}

#[test]
fn a_read_that_nobody_answers_is_forgotten_in_the_end() {
    let mut group = Group::new(3, 0, None);
    group.give(1, [read(1)]);
    for _ in 0..301 {
        group.now += 100;
        group.give(1, [Input::Tick]);
    }
    assert_eq!(group.refusal(1), Some(Refusal::Dropped));
    assert_eq!(group.status(1).reads_waiting, 0);
}
