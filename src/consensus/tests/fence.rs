//! A fenced member: no votes, no candidacy, leadership handed over; its log goes on.

use super::group::Group;
use crate::consensus::*;

fn votes_of(group: &Group, id: NodeId) -> usize {
    let votes =
        [WireKind::VoteResponse, WireKind::PreVoteResponse, WireKind::Vote, WireKind::PreVote];
    group.sent.iter().filter(|wire| wire.from() == id && votes.contains(&wire.kind())).count()
}

#[test]
fn it_neither_votes_nor_stands_but_its_log_goes_on() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.core(3).set_fenced(true);
    group.sent.clear();
    group.propose(1, 1, "a");
    group.deliver();
    group.tick();
    assert_eq!(group.status(3).commit, group.status(1).commit, "it stores and applies the log");
    // The leader falls silent: the other sound member cannot win alone, and the fenced one does not
    // try, however long it takes.
    group.lose = |wire| wire.from() == 1 || wire.to() == 1;
    for _ in 0..100 {
        group.tick();
    }
    assert_eq!(votes_of(&group, 3), 0);
    assert_ne!(group.status(2).role, Role::Leader);
    // Not fenced any more it votes again.
    group.core(3).set_fenced(false);
    for _ in 0..100 {
        group.tick();
    }
    assert!(votes_of(&group, 3) > 0);
}

#[test]
fn it_does_not_follow_a_call_to_stand() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.core(3).set_fenced(true);
    group.sent.clear();
    group.give(1, [Input::TransferLeader { to: 3 }]);
    group.deliver();
    for _ in 0..30 {
        group.tick();
    }
    assert_ne!(group.status(3).role, Role::Leader);
    assert_eq!(votes_of(&group, 3), 0);
}

#[test]
fn a_fenced_leader_hands_over_as_soon_as_somebody_is_there() {
    let mut group = Group::new(3, 0, None);
    group.elect(2);
    group.core(2).set_fenced(true);
    for _ in 0..5 {
        group.tick();
    }
    assert_ne!(group.status(2).role, Role::Leader);
    let leads = |group: &Group, id| group.status(id).role == Role::Leader;
    assert!(leads(&group, 1) || leads(&group, 3));
    // A sole voter has nobody: it goes on leading.
    let mut alone = Group::new(1, 0, None);
    alone.core(1).campaign();
    alone.tick();
    assert!(leads(&alone, 1));
    alone.core(1).set_fenced(true);
    for _ in 0..30 {
        alone.tick();
    }
    assert!(leads(&alone, 1));
}
