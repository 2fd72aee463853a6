//! Hung and slow disks: who goes on leading, who takes over, who keeps quiet.

use super::group::Group;
use crate::consensus::*;
use std::collections::BTreeMap;

/// Age at which a leader steps down, as long as an election timeout.
const LIMIT_MS: Millis = 1_000;
/// What the disk gate lets through.
const P99_US: u64 = 10_000;

/// A group whose members have disks that can hang.
struct Disks {
    group: Group,
    /// Members whose disk hangs, since when.
    hung: BTreeMap<NodeId, Millis>,
    syncs: BTreeMap<NodeId, u64>,
    p99_us: BTreeMap<NodeId, u64>,
    /// Members that say nothing about their disks.
    silent: Vec<NodeId>,
    /// A member proposes something at every tick.
    writes: bool,
}

impl Disks {
    fn new(voters: u64) -> Disks {
        Disks::broken(voters, None)
    }

    fn broken(voters: u64, broken: Option<BrokenRule>) -> Disks {
        Disks::configured(voters, |config| config.broken = broken)
    }

    fn configured(voters: u64, configure: impl Fn(&mut Config)) -> Disks {
        let group = Group::configured(voters, 0, |config| {
            config.disk_stall_ms = Some(LIMIT_MS);
            config.disk_p99_us = Some(P99_US);
            configure(config);
        });
        let mut disks = Disks {
            group,
            hung: BTreeMap::new(),
            syncs: BTreeMap::new(),
            p99_us: BTreeMap::new(),
            silent: Vec::new(),
            writes: true,
        };
        disks.group.elect(1);
        disks.ticks(30);
        assert_eq!(disks.leader(), Some(1));
        disks.group.seen.clear();
        disks
    }

    /// Members whose disks stop now.
    fn hang(&mut self, members: &[NodeId]) {
        for id in members {
            self.hung.insert(*id, self.group.now);
            self.group.frozen.insert(*id, None);
        }
    }

    fn work(&mut self, members: &[NodeId]) {
        for id in members {
            self.hung.remove(id);
            self.group.thaw(*id);
        }
        self.group.deliver();
    }

    fn ticks(&mut self, count: u64) {
        for _ in 0..count {
            let leader = self.leader();
            for id in 1..=self.group.cores.len() as u64 {
                let hung = self.hung.get(&id).copied();
                let in_flight_ms = hung.map_or(0, |since| self.group.now + 100 - since);
                let syncs = self.syncs.entry(id).or_default();
                *syncs += u64::from(hung.is_none() && self.writes);
                let p99_us = self.p99_us.get(&id).copied();
                let own = OwnDisk { in_flight_ms, p99_us, syncs: *syncs };
                self.group.own.insert(id, own);
                let recovering = self.group.core(id).disk_is_recovering();
                let handed_over =
                    self.handed_over().filter(|(by, ..)| *by == id).map_or(0, |(_, _, term)| term);
                let facts = DiskFacts { in_flight_ms, p99_us, recovering, handed_over };
                if self.silent.contains(&id) {
                    self.group.facts.remove(&id);
                } else {
                    self.group.facts.insert(id, facts);
                }
            }
            if let Some(leader) = leader.filter(|_| self.writes) {
                self.group.propose(leader, 1, "x");
            }
            self.group.tick();
        }
    }

    fn leader(&self) -> Option<NodeId> {
        let all = self.group.cores.iter().map(Core::status);
        all.filter(|s| s.role == Role::Leader).max_by_key(|s| s.term).map(|s| s.id)
    }

    fn events(&self) -> Vec<DiskEvent> {
        let events = self.group.seen.iter().filter_map(|(_, effect)| match effect {
            Effect::Disk(event) => Some(*event),
            _ => None,
        });
        events.collect()
    }

    /// The last hand-over that was begun: by whom, to whom, in which term.
    fn handed_over(&self) -> Option<(NodeId, NodeId, u64)> {
        self.group.seen.iter().rev().find_map(|(id, effect)| match effect {
            Effect::Disk(DiskEvent::HandsOver { to, term, .. }) => Some((*id, *to, *term)),
            _ => None,
        })
    }

    fn hand_overs(&self) -> usize {
        self.events().iter().filter(|e| matches!(e, DiskEvent::HandsOver { .. })).count()
    }

    fn all_slow(&self) -> usize {
        self.events().iter().filter(|e| matches!(e, DiskEvent::KeepsLeading { .. })).count()
    }
}

#[test]
fn a_leader_whose_disk_hangs_hands_over_once_and_for_good() {
    let mut disks = Disks::new(3);
    let term = disks.group.status(1).term;
    disks.hang(&[1]);
    disks.ticks(9);
    assert_eq!((disks.leader(), disks.hand_overs()), (Some(1), 0), "not before its time");
    disks.ticks(3);
    let leader = disks.leader();
    assert!(matches!(leader, Some(2 | 3)), "{leader:?}");
    assert!(disks.group.core(leader.unwrap()).predecessor_had_a_bad_disk());
    assert_eq!(disks.handed_over(), Some((1, leader.unwrap(), term)));
    disks.ticks(20);
    disks.work(&[1]);
    disks.ticks(90);
    assert!(disks.group.core(1).disk_is_recovering(), "ninety are not enough");
    disks.ticks(20);
    assert_eq!((disks.leader(), disks.hand_overs(), disks.all_slow()), (leader, 1, 0));
    assert!(!disks.group.core(1).disk_is_recovering(), "a hundred good syncs");
    let done = disks.events().contains(&DiskEvent::HandedOver { back_off_ms: 10_000 });
    assert!(done, "{:?}", disks.events());
}

#[test]
fn nothing_that_the_disk_must_hold_leaves_with_the_order_to_take_over() {
    let mut disks = Disks::new(3);
    disks.hang(&[1]);
    disks.group.sent.clear();
    disks.ticks(20);
    let own = disks.group.sent.iter().filter(|w| w.from() == 1);
    let kinds: Vec<WireKind> = own.map(Wire::kind).collect();
    assert!(kinds.contains(&WireKind::TimeoutNow));
    let promise = |kind: &WireKind| {
        matches!(kind, WireKind::VoteResponse | WireKind::AppendResponse | WireKind::Vote)
    };
    assert!(!kinds.iter().any(promise), "{kinds:?}");
    // The next term is not on its disk: even an answer to a heartbeat would name it.
    assert!(!kinds.contains(&WireKind::HeartbeatResponse), "{kinds:?}");
}

#[test]
fn a_leader_stays_while_all_disks_hang_and_says_so_once() {
    let mut disks = Disks::new(3);
    for stalls in 1..=3 {
        disks.hang(&[1, 2, 3]);
        disks.ticks(40);
        disks.work(&[1, 2, 3]);
        disks.ticks(30);
        assert_eq!((disks.leader(), disks.hand_overs()), (Some(1), 0));
        assert_eq!(disks.all_slow(), stalls, "once in each stall");
    }
    let slow = disks.events()[0];
    assert!(
        matches!(slow, DiskEvent::KeepsLeading { slow: 2, unknown: 0, fit: 0, .. }),
        "{slow:?}"
    );
}

#[test]
fn members_that_were_hit_together_are_not_fit_for_each_other() {
    let mut disks = Disks::new(3);
    disks.hang(&[1, 2, 3]);
    disks.ticks(30);
    // The followers' disks work again a moment before the leader's.
    disks.work(&[2, 3]);
    disks.ticks(5);
    assert_eq!((disks.leader(), disks.hand_overs()), (Some(1), 0));
}

#[test]
fn the_rule_can_be_seen_broken_by_a_leader_that_does_not_look() {
    let mut disks = Disks::broken(3, Some(BrokenRule::StepDownAnyway));
    disks.hang(&[1, 2, 3]);
    disks.ticks(30);
    assert!(disks.hand_overs() > 0);
}

#[test]
fn a_quorum_without_the_leader_is_needed() {
    for (voters, others_down) in [(2, vec![]), (3, vec![3]), (5, vec![4, 5]), (1, vec![])] {
        let mut disks = Disks::new(voters);
        let known = disks.group.cores.len();
        disks.hang(&[1]);
        disks.hang(&others_down);
        disks.ticks(40);
        assert_eq!(disks.leader(), Some(1), "{voters} voters, {others_down:?} hang too");
        assert_eq!(disks.hand_overs(), 0, "of {known}");
        assert_eq!(disks.all_slow(), usize::from(voters > 1), "a sole voter has nobody to compare");
    }
}

#[test]
fn unknown_is_not_fit() {
    let mut disks = Disks::new(3);
    // 3 runs a version that does not speak of disks. 2 alone is no quorum.
    disks.silent = vec![3];
    disks.ticks(5);
    disks.hang(&[1]);
    disks.ticks(40);
    assert_eq!((disks.leader(), disks.hand_overs()), (Some(1), 0));
    let said = disks.events()[0];
    assert!(
        matches!(said, DiskEvent::KeepsLeading { fit: 1, slow: 0, unknown: 1, .. }),
        "{said:?}"
    );
    disks.silent.clear();
    disks.ticks(2);
    assert!(matches!(disks.leader(), Some(2 | 3)), "as soon as it speaks");
}

#[test]
fn the_fit_one_is_chosen() {
    let mut disks = Disks::new(5);
    disks.hang(&[2]);
    disks.ticks(6);
    disks.work(&[2]);
    disks.p99_us = BTreeMap::from([(3, 400_000), (4, 2_000), (5, 1_000)]);
    disks.ticks(3);
    disks.hang(&[1]);
    disks.ticks(12);
    assert_eq!(disks.handed_over().map(|(_, to, _)| to), Some(5), "2 recovers, 3 and 4 are slower");
}

#[test]
fn a_fenced_member_is_no_candidate_and_no_vote() {
    let fence = |disks: &mut Disks, members: &[NodeId]| {
        disks.group.cores.iter_mut().for_each(|core| core.set_fences(members.iter().copied()));
    };
    // Fit and first by its id.
    let mut disks = Disks::new(5);
    fence(&mut disks, &[2]);
    disks.hang(&[1]);
    disks.ticks(12);
    assert_eq!(disks.handed_over().map(|(_, to, _)| to), Some(3));
    // The other two would need its vote.
    let mut disks = Disks::new(3);
    fence(&mut disks, &[3]);
    disks.hang(&[1]);
    disks.ticks(40);
    assert_eq!((disks.leader(), disks.hand_overs()), (Some(1), 0));
}

#[test]
fn who_lacks_committed_entries_is_not_chosen() {
    let mut disks = Disks::new(3);
    // 3 helps to commit and is too slow to lead; 2 answers heartbeats and gets no entries.
    disks.p99_us = BTreeMap::from([(3, 400_000)]);
    disks.group.lose = |w| w.kind() == WireKind::Append && w.to() == 2;
    disks.ticks(5);
    disks.hang(&[1]);
    disks.ticks(30);
    assert_eq!((disks.leader(), disks.hand_overs()), (Some(1), 0));
    disks.group.lose = |_| false;
    disks.ticks(3);
    assert_eq!(disks.handed_over().map(|(_, to, _)| to), Some(2), "as soon as it has them");
}

/// The disk of leader 1 hangs until another one leads, then works, and 1 leads again. The pauses that
/// were set, in milliseconds.
fn hand_over_and_return(disks: &mut Disks) -> Vec<u64> {
    disks.hang(&[1]);
    while disks.leader() == Some(1) {
        disks.ticks(1);
    }
    disks.work(&[1]);
    disks.ticks(130);
    let pause = |event: &DiskEvent| match event {
        DiskEvent::HandedOver { back_off_ms } => Some(*back_off_ms),
        _ => None,
    };
    let pauses = disks.events().iter().filter_map(pause).collect();
    disks.group.seen.clear();
    disks.group.elect(1);
    pauses
}

#[test]
fn a_pause_doubles_before_it_happens_again() {
    let mut disks = Disks::new(3);
    let mut pauses = Vec::new();
    for _ in 0..3 {
        pauses.extend(hand_over_and_return(&mut disks));
        disks.ticks(5);
    }
    assert_eq!(pauses, [10_000, 20_000, 40_000]);
    // Within the pause it leads on, and says why.
    disks.hang(&[1]);
    disks.ticks(40);
    assert_eq!((disks.leader(), disks.hand_overs()), (Some(1), 0));
    let said = disks.events()[0];
    assert!(matches!(said, DiskEvent::KeepsLeading { back_off_ms: 1.., .. }), "{said:?}");
}

#[test]
fn a_pause_is_forgotten_after_five_quiet_minutes() {
    let mut disks = Disks::new(3);
    let mut pauses = Vec::new();
    for _ in 0..2 {
        pauses.extend(hand_over_and_return(&mut disks));
        disks.group.now += 320_000;
        disks.ticks(5);
    }
    assert_eq!(pauses, [10_000, 10_000]);
}

/// Member 1 hangs, hands over, and works again; then the next leader dies. Ticks until somebody else
/// leads, and who it is.
fn leader_dies_after_a_stall(broken: Option<BrokenRule>, alone: bool) -> (u64, NodeId) {
    let mut disks = Disks::broken(3, broken);
    disks.hang(&[1]);
    disks.ticks(13);
    let second = disks.leader().unwrap();
    assert_ne!(second, 1);
    disks.work(&[1]);
    disks.ticks(5);
    assert!(disks.group.core(1).disk_is_recovering());
    disks.writes = false;
    disks.ticks(3);
    disks.group.lose = match (second, alone) {
        (2, false) => |w| w.from() == 2 || w.to() == 2,
        (_, false) => |w| w.from() == 3 || w.to() == 3,
        // Only 1 can win: the other one may not ask.
        (2, true) => {
            |w| w.from() == 2 || w.to() == 2 || w.kind() == WireKind::PreVote && w.from() == 3
        }
        (_, true) => {
            |w| w.from() == 3 || w.to() == 3 || w.kind() == WireKind::PreVote && w.from() == 2
        }
    };
    let led = |disks: &Disks| {
        let led = disks.group.cores.iter().map(Core::status).filter(|s| s.role == Role::Leader);
        led.map(|s| s.id).find(|id| *id != second)
    };
    for ticks in 1..100 {
        disks.ticks(1);
        if let Some(leader) = led(&disks) {
            return (ticks, leader);
        }
    }
    panic!("nobody leads");
}

#[test]
fn a_member_whose_disk_hung_lets_others_go_first() {
    let (ticks, leader) = leader_dies_after_a_stall(None, false);
    assert!(leader != 1 && ticks <= 22, "{leader} after {ticks} ticks");
}

#[test]
fn but_leads_rather_than_nobody() {
    let (ticks, leader) = leader_dies_after_a_stall(None, true);
    assert_eq!(leader, 1);
    assert!((23..=40).contains(&ticks), "{ticks}");
    let (ticks, leader) = leader_dies_after_a_stall(Some(BrokenRule::StalledCampaigns), true);
    assert!(
        leader == 1 && ticks < 23,
        "a rule that is broken is seen: {leader} after {ticks} ticks"
    );
}

/// Leader 1 dies a moment after all disks hung together. Ticks until 2 or 3 leads, and the group then;
/// `prepare` gets it after the death.
fn leader_dies_after_all_hung(seed: u64, prepare: impl Fn(&mut Disks)) -> (u64, Disks) {
    let mut disks = Disks::configured(3, |config| config.seed = seed);
    disks.hang(&[1, 2, 3]);
    disks.ticks(7);
    disks.work(&[1, 2, 3]);
    disks.ticks(3);
    disks.writes = false;
    disks.group.lose = |w| w.from() == 1 || w.to() == 1;
    disks.group.sent.clear();
    prepare(&mut disks);
    for ticks in 1..100 {
        disks.ticks(1);
        if [2, 3].iter().any(|id| disks.group.status(*id).role == Role::Leader) {
            return (ticks, disks);
        }
    }
    panic!("nobody leads");
}

/// What 2 and 3 hear of each other by the pings of their connections.
fn tell_each_other(disks: &mut Disks) {
    for (to, of) in [(2, 3), (3, 2)] {
        let recovering = disks.group.core(of).disk_is_recovering();
        let facts = DiskFacts { recovering, ..DiskFacts::default() };
        disks.group.give(to, [Input::PeerDisk { of, facts }]);
    }
}

#[test]
fn nobody_waits_for_a_better_disk_where_there_is_none() {
    let (ticks, _) = leader_dies_after_all_hung(0, tell_each_other);
    assert!(ticks <= 20, "an election of a usual length, not {ticks} ticks");
    // Who does not know how the other one is gives it time.
    let (ticks, _) = leader_dies_after_all_hung(0, |_| {});
    assert!((23..=40).contains(&ticks), "{ticks}");
}

#[test]
fn members_do_not_stand_while_their_disks_hang_and_not_together_afterwards() {
    let asks = |w: &Wire| w.kind() == WireKind::PreVote && w.from() != 1;
    let together = (0..30).filter(|seed| {
        let (_, disks) = leader_dies_after_all_hung(*seed, |disks| {
            tell_each_other(disks);
            disks.hang(&[2, 3]);
            disks.ticks(35);
            assert!(!disks.group.sent.iter().any(asks));
            disks.work(&[2, 3]);
        });
        let asked = |id| disks.group.sent.iter().any(|w| asks(w) && w.from() == id);
        asked(2) && asked(3)
    });
    let together = together.count();
    assert!(together < 15, "in {together} of 30 runs");
}

#[test]
fn a_member_whose_disk_hung_leads_if_the_other_one_lacks_entries() {
    let mut disks = Disks::new(3);
    disks.hang(&[2]);
    disks.ticks(7);
    disks.work(&[2]);
    disks.ticks(3);
    assert!(disks.group.core(2).disk_is_recovering());
    // 3 has a good disk and does not get the last entries.
    disks.group.lose = |w| w.kind() == WireKind::Append && w.to() == 3;
    disks.ticks(2);
    disks.writes = false;
    assert!(disks.group.status(2).last > disks.group.status(3).last);
    disks.group.lose = |w| w.from() == 1 || w.to() == 1;
    let leads = |disks: &Disks, id| disks.group.status(id).role == Role::Leader;
    let ticks = (1..100).find(|_| {
        disks.ticks(1);
        leads(&disks, 2) || leads(&disks, 3)
    });
    assert!(leads(&disks, 2));
    // 3 asks in vain within two timeouts; from then on 2 knows.
    assert!(ticks.is_some_and(|ticks| ticks <= 21), "{ticks:?}");
}

#[test]
fn a_member_whose_disk_hangs_does_not_obey_the_order_to_lead() {
    let mut disks = Disks::new(3);
    let term = disks.group.status(1).term;
    // It has every entry: the order leaves at once.
    disks.writes = false;
    disks.ticks(3);
    disks.hang(&[2]);
    disks.ticks(8);
    disks.group.sent.clear();
    disks.group.give(1, [Input::TransferLeader { to: 2 }]);
    disks.group.deliver();
    disks.ticks(30);
    assert!(disks.group.sent.iter().any(|w| w.kind() == WireKind::TimeoutNow));
    // What it wanted to say in a term of its own would leave now.
    disks.work(&[2]);
    disks.ticks(5);
    assert_eq!((disks.leader(), disks.group.status(1).term), (Some(1), term));
}

#[test]
fn a_leader_goes_on_while_the_disks_of_its_followers_hang() {
    let mut disks = Disks::new(3);
    let term = disks.group.status(1).term;
    disks.hang(&[2, 3]);
    disks.ticks(100);
    assert_eq!((disks.leader(), disks.group.status(1).term), (Some(1), term));
    disks.group.give(1, [Input::Read { token: Token(77) }]);
    disks.group.deliver();
    assert!(disks.group.read_at(77).is_some(), "a quorum answers");
}

#[test]
fn an_answer_to_a_heartbeat_waits_for_its_term() {
    let lead = |broken| {
        let mut disks = Disks::broken(3, broken);
        disks.hang(&[3]);
        disks.group.give(1, [Input::TransferLeader { to: 2 }]);
        disks.group.deliver();
        disks.group.sent.clear();
        disks.ticks(5);
        assert_eq!(disks.leader(), Some(2));
        disks.group.sent.iter().any(|w| w.from() == 3 && w.kind() == WireKind::HeartbeatResponse)
    };
    assert!(!lead(None));
    assert!(lead(Some(BrokenRule::AnswerBeforeTerm)), "a rule that is broken is seen");
}

#[test]
fn a_slow_leader_gives_way_to_a_much_faster_member_only() {
    let mut disks = Disks::new(3);
    disks.p99_us = BTreeMap::from([(1, 30_000), (2, 20_000), (3, 8_000)]);
    disks.ticks(50);
    assert_eq!(disks.leader(), Some(1), "8 ms is not much faster than the limit of 10 ms");
    assert!(disks.events().is_empty(), "{:?}", disks.events());
    disks.p99_us.insert(3, 5_000);
    disks.ticks(3);
    assert_eq!(disks.leader(), Some(3));
    disks.p99_us.insert(3, 40_000);
    disks.ticks(50);
    assert_eq!(disks.leader(), Some(3), "all are slow");
}

#[test]
fn a_slow_leader_that_nobody_relieves_waits_before_it_asks_again() {
    let mut disks = Disks::new(3);
    disks.group.lose = |w| w.kind() == WireKind::TimeoutNow;
    disks.p99_us = BTreeMap::from([(1, 30_000), (2, 1_000), (3, 1_000)]);
    disks.ticks(80);
    assert_eq!((disks.leader(), disks.hand_overs()), (Some(1), 1), "{:?}", disks.events());
    disks.ticks(60);
    assert_eq!(disks.hand_overs(), 2);
}

#[test]
fn it_can_be_turned_off() {
    let mut disks = Disks::configured(3, |config| config.disk_stall_ms = None);
    disks.p99_us = BTreeMap::from([(1, 30_000), (2, 1_000), (3, 1_000)]);
    disks.hang(&[1]);
    disks.ticks(60);
    assert_eq!(disks.leader(), Some(1));
    assert!(disks.events().is_empty());
}

#[test]
fn a_transfer_that_fails_is_tried_with_another_one() {
    let mut disks = Disks::new(3);
    disks.group.lose = |w| w.kind() == WireKind::TimeoutNow;
    disks.hang(&[1]);
    disks.ticks(26);
    assert_eq!(disks.leader(), Some(1));
    let asked: Vec<NodeId> = disks
        .events()
        .iter()
        .filter_map(|event| match event {
            DiskEvent::HandsOver { to, .. } => Some(*to),
            _ => None,
        })
        .collect();
    assert_eq!(asked.len(), 2, "{:?}", disks.events());
    assert_ne!(asked[0], asked[1]);
    assert!(disks.events().contains(&DiskEvent::Failed { to: asked[0] }));
}
