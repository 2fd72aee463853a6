//! Members that were restored from older copies of their disks.

use super::group::Group;
use crate::consensus::*;

/// A member of three whose log holds one entry of this term behind each index up to `last`, all
/// committed up to `commit` and nothing of it applied.
fn member(id: NodeId, term: u64, last: u64, commit: u64) -> Core {
    let entry = |index| Entry {
        index,
        term,
        kind: EntryKind::Normal,
        data: format!("e{index}").into(),
        context: "".into(),
    };
    let restored = Restored {
        hard_state: HardState { term, vote: 0, commit },
        base: (1, 1),
        entries: (2..=last).map(entry).collect(),
        applied: (1, 1),
        conf_state: ConfState { voters: vec![1, 2, 3], ..ConfState::default() },
    };
    Core::new(&Config::new(id), restored).unwrap()
}

fn stops(group: &Group) -> Vec<(NodeId, Contradiction)> {
    let stop = |(id, effect): &(NodeId, Effect)| match effect {
        Effect::Stop(why) => Some((*id, *why)),
        _ => None,
    };
    group.seen.iter().filter_map(stop).collect()
}

fn without_2(w: &Wire) -> bool {
    w.from() == 2 || w.to() == 2
}

/// Members 1 and 3 hold a log of `term` up to `old` and go on under leader 1 by `more` commands; member
/// 2 holds `last` entries of term 5, all known to be committed, and is not heard.
fn two_forgot(term: u64, old: u64, more: u64, last: u64) -> Group {
    let mut group = Group::new(3, 0, None);
    group.cores[0] = member(1, term, old, old);
    group.cores[2] = member(3, term, old, old);
    group.cores[1] = member(2, 5, last, last);
    group.lose = without_2;
    while group.status(1).role != Role::Leader {
        group.tick();
        if group.status(3).role == Role::Leader {
            group.give(3, [Input::TransferLeader { to: 1 }]);
            group.deliver();
        }
    }
    for n in 0..more {
        group.propose(1, n, format!("new{n}"));
    }
    group.deliver();
    group.tick();
    assert!(group.status(1).commit >= old + 1 + more);
    assert_eq!(stops(&group), []);
    group
}

#[test]
fn a_member_that_lost_what_it_acknowledged_stops() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    for n in 0..10 {
        group.propose(1, n, format!("c{n}"));
    }
    group.deliver();
    group.tick();
    let (term, commit) = (group.status(1).term, group.status(1).commit);
    group.cores[1] = member(2, term, 4, 4);
    group.tick();
    let why = Contradiction::LostHere { leader: 1, acknowledged: commit, last: 4 };
    assert_eq!(stops(&group), [(2, why)]);
    let text = why.to_string();
    for part in ["ends at index 4", "empty data directory", "older copy"] {
        assert!(text.contains(part), "{text}");
    }

    let said = group.sent.iter().filter(|w| w.from() == 2).count();
    for _ in 0..50 {
        group.tick();
    }
    assert_eq!(group.sent.iter().filter(|w| w.from() == 2).count(), said, "it takes part no more");
    assert_eq!(stops(&group).len(), 1);
    group.propose(1, 99, "after");
    group.deliver();
    group.tick();
    assert_eq!(group.applied(1, b"after"), 1, "the others go on");
}

#[test]
fn a_member_stops_whose_committed_entries_the_others_lost() {
    // The leader is behind in commit, and beyond it.
    for more in [0, 3, 40] {
        let mut group = two_forgot(5, 6, more, 20);
        group.lose = |_| false;
        for _ in 0..5 {
            group.tick();
        }
        let stopped = stops(&group);
        let [(2, why @ Contradiction::LostElsewhere { leader: 1, index, own_term: 5, .. })] =
            stopped[..]
        else {
            panic!("{more}: {stopped:?}")
        };
        assert!((7..=20).contains(&index), "{more}: {why:?}");
        assert!(why.to_string().contains("Do not remove this member"), "{why}");
        let before = group.status(1).commit;
        group.propose(1, 99, "after");
        group.deliver();
        group.tick();
        assert!(group.status(1).commit > before, "the others go on");
    }
}

/// The terms of the lost history are used again, so that entries look alike.
#[test]
fn a_leader_counts_no_acknowledgement_of_what_it_does_not_have() {
    let mut group = two_forgot(4, 6, 0, 20);
    assert_eq!((group.status(1).term, group.status(1).last), (5, 7));
    // Entry 7 is of term 5 in both histories; those before it are not compared by anybody.
    let old = |index| Entry {
        index,
        term: if index < 7 { 4 } else { 5 },
        kind: EntryKind::Normal,
        data: "".into(),
        context: "".into(),
    };
    let restored = Restored {
        hard_state: HardState { term: 5, vote: 1, commit: 20 },
        base: (1, 1),
        entries: (2..=20).map(old).collect(),
        applied: (1, 1),
        conf_state: ConfState { voters: vec![1, 2, 3], ..ConfState::default() },
    };
    group.cores[1] = Core::new(&Config::new(2), restored).unwrap();
    group.lose = |_| false;
    for _ in 0..5 {
        group.tick();
        let leader = group.status(1);
        let matched = leader.peers.iter().find(|peer| peer.id == 2).map(|peer| peer.matched);
        assert!(matched.is_some_and(|matched| matched <= leader.last), "{matched:?}");
    }
    let stopped = stops(&group);
    let [(2, Contradiction::LostElsewhere { index: 20, leader_term: 0, .. })] = stopped[..] else {
        panic!("{stopped:?}")
    };
}

#[test]
fn a_snapshot_of_another_history_is_not_fetched() {
    for (index, term, differs) in
        [(10, 5, false), (10, 6, true), (20, 6, true), (21, 6, false), (21, 4, true), (10, 4, true)]
    {
        let mut group = Group::new(3, 0, None);
        group.cores[1] = member(2, 5, 20, 20);
        let mut m = raft::eraftpb::Message::default();
        m.set_msg_type(raft::eraftpb::MessageType::MsgSnapshot);
        (m.from, m.to, m.term) = (1, 2, 6);
        let to = m.mut_snapshot().mut_metadata();
        (to.index, to.term) = (index, term);
        to.mut_conf_state().voters = vec![1, 2, 3];
        let wire = Wire(m);
        group.give(2, [Input::Wire(wire)]);
        assert_eq!(stops(&group).len(), usize::from(differs), "{index} of term {term}");
    }
}

/// A leader that was just elected knows less of what is committed than its followers, and one that
/// returns has entries that nobody else has.
#[test]
fn a_lag_contradicts_nothing() {
    let mut group = Group::new(3, 0, None);
    group.cores[0] = member(1, 5, 20, 4);
    group.cores[1] = member(2, 5, 20, 20);
    group.cores[2] = member(3, 4, 9, 1);
    group.elect(1);
    for n in 0..10 {
        group.propose(1, n, format!("c{n}"));
    }
    group.elect(2);
    group.lose = |w| w.from() == 1;
    group.propose(1, 77, "x");
    group.elect(3);
    group.lose = |_| false;
    for _ in 0..5 {
        group.tick();
    }
    assert_eq!(stops(&group), []);
    assert!((1..=3).all(|id| group.status(id).commit == group.status(3).last));
}
