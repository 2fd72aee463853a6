//! Membership: one change at a time, refusals, joint configurations, leaders that leave.

use super::group::Group;
use crate::consensus::ChangeOp::{AddLearner, AddVoter, Remove};
use crate::consensus::*;
use bytes::Bytes;

#[test]
fn only_the_leader_accepts_changes_that_fit() {
    let mut group = Group::new(3, 1, None);
    group.elect(1);
    group.tick();
    group.change(2, 1, &[(AddVoter, 4)]);
    assert_eq!(group.refusal(1), Some(Refusal::NotLeader));
    for (token, steps) in [
        (2, vec![(AddVoter, 2)]),
        (3, vec![(Remove, 9)]),
        (4, vec![(AddLearner, 4)]),
        (5, vec![(Remove, 2), (AddVoter, 2)]),
        (6, vec![]),
        (7, vec![(AddVoter, 0)]),
    ] {
        group.change(1, token, &steps);
        assert_eq!(group.refusal(token), Some(Refusal::NoSuchChange), "{steps:?}");
    }
}

#[test]
fn a_second_change_waits_for_the_first() {
    let mut group = Group::new(3, 1, None);
    group.elect(1);
    group.tick();
    group.lose = |w| w.kind() == WireKind::Append;
    group.change(1, 1, &[(Remove, 4)]);
    group.change(1, 2, &[(Remove, 3)]);
    assert_eq!(group.refusal(1), None);
    assert_eq!(group.refusal(2), Some(Refusal::ChangePending));
    group.lose = |_| false;
    for _ in 0..20 {
        group.tick();
    }
    assert_eq!(group.status(1).conf_state.learners, Vec::<u64>::new());
    let changed = group.seen.iter().find_map(|(_, effect)| match effect {
        Effect::Apply(entries) => entries.iter().find(|c| c.conf_state.is_some()).cloned(),
        _ => None,
    });
    let changed = changed.unwrap();
    assert_eq!(changed.conf_state.unwrap().voters, [1, 2, 3]);
    let change = MemberChange::of(&changed.entry).unwrap();
    assert_eq!((change.request, change.steps), (1, vec![(Remove, 4)]));
}

#[test]
fn a_learner_is_promoted_when_it_has_caught_up() {
    let mut group = Group::new(1, 1, None);
    group.elect(1);
    group.lose = |w| w.to() == 2;
    for n in 0..100 {
        group.propose(1, 1_000 + n, "x");
    }
    group.change(1, 1, &[(AddVoter, 2)]);
    assert_eq!(group.refusal(1), Some(Refusal::LearnerNotReady));
    group.lose = |_| false;
    for _ in 0..20 {
        group.tick();
    }
    group.change(1, 2, &[(AddVoter, 2)]);
    group.deliver();
    group.tick();
    assert_eq!(group.refusal(2), None);
    assert_eq!(group.status(2).conf_state.voters, [1, 2]);
}

#[test]
fn a_change_must_leave_an_active_quorum() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.lose = |w| w.from() == 3 || w.to() == 3;
    for _ in 0..30 {
        group.tick();
    }
    group.change(1, 1, &[(Remove, 2)]);
    assert_eq!(group.refusal(1), Some(Refusal::UnhealthyQuorum), "1 and the dead 3 would be left");
    group.change(1, 2, &[(AddVoter, 4)]);
    assert_eq!(group.refusal(2), Some(Refusal::UnhealthyQuorum), "two of four would be active");
    group.change(1, 3, &[(Remove, 3)]);
    assert_eq!(group.refusal(3), None, "removing the dead one is the way out");
}

#[test]
fn the_last_voter_stays() {
    let mut group = Group::new(1, 0, None);
    group.elect(1);
    group.change(1, 1, &[(Remove, 1)]);
    assert_eq!(group.refusal(1), Some(Refusal::UnhealthyQuorum));
}

#[test]
fn several_changes_go_through_a_joint_configuration() {
    let mut group = Group::new(3, 1, None);
    group.elect(1);
    for _ in 0..5 {
        group.tick();
    }
    group.change(1, 1, &[(AddVoter, 4), (Remove, 3)]);
    group.deliver();
    for _ in 0..5 {
        group.tick();
    }
    let configurations: Vec<ConfState> = group
        .seen
        .iter()
        .filter(|(id, _)| *id == 1)
        .filter_map(|(_, effect)| match effect {
            Effect::Apply(entries) => entries.iter().find_map(|c| c.conf_state.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(configurations.len(), 2, "entered and left");
    assert!(configurations[0].is_joint() && configurations[0].auto_leave);
    assert_eq!(configurations[0].voters_outgoing, [1, 2, 3]);
    assert_eq!(configurations[1].voters, [1, 2, 4]);
    assert!(!configurations[1].is_joint());
}

#[test]
fn a_leader_that_removes_itself_steps_down_in_the_same_step() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.tick();
    group.change(1, 1, &[(Remove, 1)]);
    group.deliver();
    assert_eq!(group.status(1).role, Role::Follower);
    assert!(!group.status(1).conf_state.contains(1));
    for _ in 0..60 {
        group.tick();
    }
    assert_eq!(group.status(1).role, Role::Follower, "it does not stand for election");
    assert!((2..=3).any(|id| group.status(id).role == Role::Leader));
}

/// Steps a core by hand and returns its effects.
fn step(core: &mut Core, inputs: impl IntoIterator<Item = Input>) -> Vec<Effect> {
    let mut out = Vec::new();
    core.step(0, &mut inputs.into_iter().collect(), &mut out);
    out
}

fn wires(effects: Vec<Effect>) -> Vec<Input> {
    let sent = effects.into_iter().filter_map(|e| match e {
        Effect::Send(wires) => Some(wires),
        _ => None,
    });
    sent.flatten().map(Input::Wire).collect()
}

fn persisted(effects: &[Effect]) -> Input {
    let number = effects.iter().find_map(|e| match e {
        Effect::Persist(batch) => Some(batch.number),
        _ => None,
    });
    Input::Persisted { batch: number.unwrap() }
}

/// Member 2 becomes the sole voter while the tail of its log is not on disk, and time passes.
fn sole_voter_with_a_slow_disk(broken: Option<BrokenRule>) -> (Group, Input) {
    let mut group = Group::new(2, 0, broken);
    group.elect(1);
    group.tick();
    let change = MemberChange::one(1, Remove, 1, Bytes::new());
    let first = step(group.core(1), [Input::Change { token: Token(1), change }]);
    let own_first = persisted(&first);
    let data = Bytes::from_static(b"tail");
    let second = step(group.core(1), [Input::Propose { token: Token(2), data }]);
    let written = step(group.core(2), wires(first));
    let on_disk = persisted(&written);
    let acknowledged = wires(step(group.core(2), [on_disk]));
    let tail = persisted(&step(group.core(2), wires(second)));
    step(group.core(1), [own_first]);
    let commit = wires(step(group.core(1), acknowledged));
    let effects = step(group.core(2), commit);
    let applied = effects.iter().any(|e| matches!(e, Effect::Apply(_)));
    assert!(applied && group.status(2).conf_state.voters == [2], "{effects:?}");
    assert!(group.status(2).persisted < group.status(2).last, "the tail is not on disk");
    let index = group.status(2).handed_out;
    step(group.core(2), [Input::Applied { index, durable: index }]);
    for _ in 0..30 {
        step(group.core(2), [Input::Tick]);
    }
    (group, tail)
}

#[test]
fn a_sole_voter_does_not_stand_for_election_while_its_log_is_not_on_disk() {
    let (mut group, tail) = sole_voter_with_a_slow_disk(None);
    assert_eq!(group.status(2).role, Role::Follower);
    step(group.core(2), [tail]);
    for _ in 0..30 {
        step(group.core(2), [Input::Tick]);
    }
    assert_eq!(group.status(2).role, Role::Leader);
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn the_library_aborts_if_such_a_voter_stands_for_election() {
    sole_voter_with_a_slow_disk(Some(BrokenRule::LoneTick));
}
