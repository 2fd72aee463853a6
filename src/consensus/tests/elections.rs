//! What a member knows of an election before it begins.

use super::group::Group;
use crate::consensus::{Input, Role, WireKind};

#[test]
fn a_leader_that_is_not_heard_for_more_than_a_heartbeat_is_silent() {
    let mut group = Group::new(3, 1, None);
    assert!(group.core(2).leader_is_silent(), "there is none yet");
    group.elect(1);
    for _ in 0..30 {
        group.tick();
        assert!((1..=4).all(|id| !group.core(id).leader_is_silent()));
    }
    group.lose = |w| w.from() == 1;
    group.tick();
    group.tick();
    assert!((2..=4).all(|id| group.core(id).leader_is_silent()), "followers and learners");
    assert!(!group.core(1).leader_is_silent(), "it leads");
    group.lose = |_| false;
    group.tick();
    assert!((1..=4).all(|id| !group.core(id).leader_is_silent()));
}

/// Follower 3 lacks entries and asks in vain: follower 2, the only one that can win, need not wait for
/// the end of its own timeout.
#[test]
fn who_refuses_a_vote_for_want_of_entries_stands_instead() {
    let mut seen = 0;
    for seed in 0..40 {
        let mut group = Group::configured(3, 0, |config| config.seed = seed);
        group.elect(1);
        group.tick();
        group.lose = |w| w.kind() == WireKind::Append && w.to() == 3;
        group.propose(1, 1, "x");
        group.deliver();
        group.lose = |w| w.from() == 1 || w.to() == 1;
        group.sent.clear();
        let asks = |group: &Group, id| {
            group.sent.iter().any(|w| w.from() == id && w.kind() == WireKind::PreVote)
        };
        while !asks(&group, 2) && !asks(&group, 3) {
            group.tick();
        }
        let first = asks(&group, 3) && !asks(&group, 2);
        // Within its lease it does not even refuse.
        let refuses = group.sent.iter().any(|w| w.kind() == WireKind::PreVoteResponse);
        if !first || !refuses {
            continue;
        }
        seen += 1;
        group.tick();
        assert_eq!(group.status(2).role, Role::Leader, "seed {seed}");
    }
    assert!(seen > 5, "{seen}");
}

/// The cause of a leader change is one of two things: the leader said so, or it was missed.
#[test]
fn a_member_knows_whether_it_was_told_to_lead() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.give(1, [Input::TransferLeader { to: 2 }]);
    group.deliver();
    assert_eq!(group.status(2).role, Role::Leader);
    assert!(group.core(2).was_told_to_lead());
    assert!(!group.core(1).was_told_to_lead() && !group.core(3).was_told_to_lead());
    // What was told once says nothing about later terms.
    group.give(2, [Input::TransferLeader { to: 1 }]);
    group.deliver();
    assert!(group.core(1).was_told_to_lead());
    group.lose = |w| {
        let asks = w.from() == 3 && w.kind() == WireKind::PreVote;
        w.from() == 1 || w.to() == 1 || asks
    };
    for _ in 0..200 {
        group.tick();
    }
    assert_eq!(group.status(2).role, Role::Leader, "the only one that can win");
    assert!(!group.core(2).was_told_to_lead());
}
