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
    group.core(3).set_fences([3]);
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
    assert_eq!(group.status(3).leader, 0, "it knows that there is none");
    // Its leader comes back, and it follows.
    group.lose = |_| false;
    for _ in 0..60 {
        group.tick();
    }
    assert!(leader(&group).is_some_and(|id| id == group.status(3).leader));
    group.lose = |wire| wire.from() == 1 || wire.to() == 1;
    group.sent.clear();
    // Not fenced any more it votes again.
    group.core(3).set_fences([]);
    for _ in 0..100 {
        group.tick();
    }
    assert!(votes_of(&group, 3) > 0);
}

#[test]
fn it_does_not_follow_a_call_to_stand() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.core(3).set_fences([3]);
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
    group.core(2).set_fences([2]);
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
    alone.core(1).set_fences([1]);
    for _ in 0..30 {
        alone.tick();
    }
    assert!(leads(&alone, 1));
}

fn leader(group: &Group) -> Option<NodeId> {
    let ids = 1..=group.cores.len() as u64;
    ids.into_iter().find(|id| group.status(*id).role == Role::Leader)
}

/// Everybody applies the same commands, so everybody knows.
fn fence(group: &mut Group, members: &[NodeId]) {
    for id in 1..=group.cores.len() as u64 {
        group.core(id).set_fences(members.iter().copied());
    }
}

#[test]
fn it_gives_no_vote_before_it_knows_a_leader() {
    // Just started: nothing but the fence keeps it from answering.
    let mut group = Group::new(3, 0, None);
    group.core(3).set_fences([3]);
    group.lose = |wire| wire.from() == 1 || wire.to() == 1;
    for _ in 0..100 {
        group.tick();
    }
    assert!(votes_of(&group, 2) > 0, "it was asked");
    assert_eq!((votes_of(&group, 3), leader(&group)), (0, None));
}

#[test]
fn it_gives_no_vote_to_one_that_was_called_to_stand() {
    // Such a candidate is answered by everybody else, in spite of the leader they have.
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.core(3).set_fences([3]);
    group.sent.clear();
    group.give(1, [Input::TransferLeader { to: 2 }]);
    group.deliver();
    let asked = |wire: &Wire| wire.to() == 3 && wire.kind() == WireKind::Vote;
    assert!(group.sent.iter().any(asked), "it was asked");
    assert_eq!(
        (votes_of(&group, 3), leader(&group)),
        (0, Some(2)),
        "the leader's own vote is there"
    );
}

#[test]
fn a_fenced_leader_without_a_quorum_steps_down_as_any_other() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    fence(&mut group, &[1]);
    group.lose = |_| true;
    for _ in 0..40 {
        group.tick();
    }
    assert_ne!(group.status(1).role, Role::Leader);
}

#[test]
fn a_fenced_leader_chooses_a_voter_that_is_there_and_sound() {
    // The learner and the silent one come first by their ids.
    let mut group = Group::new(5, 1, None);
    group.elect(1);
    group.lose = |wire| wire.from() == 5 || wire.to() == 5;
    for _ in 0..30 {
        group.tick();
    }
    assert_eq!(leader(&group), Some(1));
    fence(&mut group, &[1]);
    for _ in 0..5 {
        group.tick();
    }
    assert!(matches!(leader(&group), Some(2..=4)), "{:?}", leader(&group));
    // So does the other fenced one.
    let mut group = Group::new(5, 0, None);
    group.elect(1);
    fence(&mut group, &[1, 5]);
    for _ in 0..5 {
        group.tick();
    }
    assert!(matches!(leader(&group), Some(2..=4)), "{:?}", leader(&group));
}

#[test]
fn a_fenced_leader_leads_until_the_others_can_elect_one() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.lose = |wire| wire.from() == 3 || wire.to() == 3;
    for _ in 0..30 {
        group.tick();
    }
    fence(&mut group, &[1]);
    for _ in 0..40 {
        group.tick();
        assert_eq!(leader(&group), Some(1), "2 alone has no quorum");
    }
    group.propose(1, 1, "a");
    group.deliver();
    group.tick();
    assert_eq!(group.status(2).commit, group.status(1).commit, "and the log goes on");
    group.lose = |_| false;
    for _ in 0..10 {
        group.tick();
    }
    assert!(matches!(leader(&group), Some(2 | 3)), "{:?}", leader(&group));
}

#[test]
fn a_fenced_leader_whose_offer_is_not_taken_asks_another() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.lose = |wire| wire.to() == 3 && wire.kind() == WireKind::TimeoutNow;
    fence(&mut group, &[1]);
    for _ in 0..40 {
        group.tick();
    }
    assert_eq!(leader(&group), Some(2));
}
