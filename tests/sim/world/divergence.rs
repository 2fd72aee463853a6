//! The leader compares the members' hashes, with the shipped checker. In every seed: no suspicion
//! without a cause, and at the end all are known to be equal. In runs of their own one member's state
//! rots: it must be found, and nobody else be blamed.

use std::collections::{BTreeMap, BTreeSet};

use assay::consensus::Input;
use assay::disk::SimRng;
use assay::divergence::{
    Action, Checker, FullHash, Judgement, MemberId, Mode, Next, Point, Points, Seat, Verdict,
    compare, judge,
};

use super::super::broken::Broken;
use super::super::frame::{self, Violation};
use super::super::node::Node;
use super::super::plan::Plan;
use super::{Event, MS, Report, World};
use crate::check;

/// Looks of a leader in an election timeout; shipped are five seconds for one of a second.
const LOOKS: u64 = 2;
/// Full hashes in one look, as shipped.
const TRIES: u32 = 5;
/// Within this many looks after the last fault a rotten member is fenced.
const FOUND_WITHIN: u64 = 40;
/// One look in this many meets a member whose answers are wrong once.
const SLIP_ONE_IN: u64 = 6;

/// Of one world.
pub(super) struct Checks {
    rng: SimRng,
    /// Of the present leadership: position, life and term.
    checker: Option<((usize, u64, u64), Checker)>,
    looks: u64,
    looks_healed: u64,
    /// Position of the member whose state is to rot, and whether it has.
    pub(super) rotten: Option<usize>,
    /// The fence went up: the end of such a run.
    pub(super) fenced: bool,
}

impl Checks {
    pub(super) fn new(plan: &Plan) -> Checks {
        Checks {
            rng: SimRng::new(plan.seed ^ 0x6469_7665),
            checker: None,
            looks: 0,
            looks_healed: 0,
            rotten: None,
            fenced: false,
        }
    }
}

impl World {
    /// A run in which the state of one member rots.
    pub fn run_rotten(mut self) -> Result<Report, Violation> {
        self.watchers.clear();
        let at = self.checks.rng.below(self.members.len() as u64) as usize;
        self.checks.rotten = Some(at);
        self.push(self.plan.fault_every, Event::Fault);
        let quarter = self.plan.chaos / 4;
        let when = quarter + self.checks.rng.below(quarter);
        self.push(when, Event::Rot);
        self.push(self.plan.chaos, Event::Heal);
        self.begin();
        while !self.checks.fenced {
            let Some(((at, _), event)) = self.queue.pop_first() else {
                return Err(Violation("the queue of events ran dry".to_owned()));
            };
            (self.now, self.oracle.now) = (at, at);
            self.report.events += 1;
            // Progress and quiet are judged elsewhere.
            if !matches!(event, Event::Progress | Event::Check) {
                self.handle(event)?;
            }
        }
        Ok(self.finished())
    }

    /// The next put that this member applies changes on its way.
    pub(super) fn rot_state(&mut self) {
        let Some(at) = self.checks.rotten else { return };
        self.trace(at, "rot", 0);
        if let Some(node) = &mut self.members[at].node {
            node.rot = true;
        }
    }

    /// Whether this member's answers mean nothing any more.
    pub(super) fn is_rotten(&self, at: usize) -> bool {
        self.checks.rotten == Some(at)
    }

    /// A look of the leader, if there is one.
    pub(super) fn compare(&mut self) -> frame::Verdict {
        self.push(self.plan.election() / LOOKS, Event::Compare);
        self.checks.looks += 1;
        if self.checks.rotten.is_some() && self.healed.is_some() {
            self.checks.looks_healed += 1;
            if self.checks.looks_healed > FOUND_WITHIN {
                return self.must_be_whole();
            }
        }
        let Some(at) = self.leader().filter(|at| self.members[*at].paused_until <= self.now) else {
            return Ok(());
        };
        let Some(term) = self.members[at].node.as_ref().and_then(|node| node.leads) else {
            return Ok(());
        };
        let seats = self.seats(at);
        let slip = self.slip(at);
        let said = self.said(at, slip);
        let tenure = (at, self.members[at].life, term);
        let current = self.checks.checker.take().filter(|(of, _)| *of == tenure);
        let mut checker = current.map_or_else(|| self.checker(at), |(_, checker)| checker);
        let looked = checker.look(self.now / MS, &seats, &said, &BTreeSet::new());
        let equal = looked.verdicts.values().filter(|v| **v == Verdict::Equal).count() as u64;
        let unknown = looked.verdicts.values().filter(|v| **v == Verdict::Unknown).count() as u64;
        self.report.members_equal += equal;
        self.report.members_unknown += unknown;
        self.trace(at, "compared", equal);
        let innocent = self.checks.rotten.is_none();
        check!(!(innocent && looked.suspicious), "members are said to differ: {said:?}");
        let mut next = looked.next;
        for attempt in 0..TRIES {
            match next {
                Next::Rest => break,
                Next::Act(actions) => {
                    self.acted(at, &actions)?;
                    break;
                }
                Next::Confirm => {
                    let hashes = self.full(at, slip.filter(|_| attempt == 0));
                    let (judgement, then) =
                        checker.confirm(self.now / MS, &seats, &hashes, &BTreeSet::new());
                    let fine = matches!(judgement, Judgement::Equal | Judgement::NotCompared);
                    check!(fine || !innocent, "rows are said to differ: {judgement:?}");
                    next = then;
                }
            }
        }
        self.checks.checker = Some((tenure, checker));
        Ok(())
    }

    /// A compaction may have taken the wrong row away before anybody looked: then there is nobody to
    /// be found. A member that never applied a put since is not rotten either.
    fn must_be_whole(&mut self) -> frame::Verdict {
        let Some(leader) = self.leader() else { return Ok(()) };
        let hashes = self.full(leader, None);
        match judge(&self.seats(leader), &hashes) {
            Judgement::Equal if hashes.len() == self.members.len() => {
                self.report.whole_again += 1;
                self.checks.fenced = true;
            }
            // A compaction is under way, or a member lags.
            Judgement::Equal | Judgement::NotCompared => {
                check!(self.checks.looks_healed < 3 * FOUND_WITHIN, "never comparable: {hashes:?}");
            }
            Judgement::Different { .. } | Judgement::NoMajority => {
                check!(false, "the rotten member was not found: {hashes:?}");
            }
        }
        Ok(())
    }

    fn checker(&self, at: usize) -> Checker {
        let broken = match self.plan.broken {
            Broken::Check(rule) => Some(rule),
            _ => None,
        };
        Checker::new(self.members[at].id, Mode::Fence).broken(broken)
    }

    fn acted(&mut self, at: usize, actions: &[Action]) -> frame::Verdict {
        let rotten = self.checks.rotten.map(|at| self.members[at].id);
        for action in actions {
            match action {
                Action::Fence(id) => {
                    check!(Some(*id) == rotten, "{id} is fenced, rotten is {rotten:?}");
                    self.checks.fenced = true;
                    self.report.fenced += 1;
                }
                Action::HandOver(to) => {
                    check!(self.is_rotten(at), "a sound leader hands over");
                    let to = to[self.checks.rng.below(to.len() as u64) as usize];
                    self.with_node(at, |world, node| {
                        node.inputs.push(Input::TransferLeader { to });
                        world.wake_node(at, node);
                        Ok(())
                    })?;
                }
                Action::Alarm(id) => check!(false, "an alarm for {id}: the others agree"),
            }
        }
        Ok(())
    }

    fn seats(&self, at: usize) -> Vec<Seat> {
        let Some(node) = &self.members[at].node else { return Vec::new() };
        let conf = node.core.status().conf_state;
        let voters = conf.voters.iter().map(|id| Seat { id: *id, voter: true });
        voters.chain(conf.learners.iter().map(|id| Seat { id: *id, voter: false })).collect()
    }

    /// A sound member whose answers are wrong once, in the runs that are about answers.
    fn slip(&mut self, leader: usize) -> Option<usize> {
        self.checks.rotten?;
        let at = self.checks.rng.below(self.members.len() as u64) as usize;
        let now = self.checks.rng.below(SLIP_ONE_IN) == 0;
        (now && at != leader && !self.is_rotten(at)).then_some(at)
    }

    /// Members that the leader can ask, itself among them.
    fn answering(&self, leader: usize) -> impl Iterator<Item = (usize, &Node)> {
        self.members.iter().enumerate().filter_map(move |(at, member)| {
            let cut =
                self.net.is_cut(leader, at, self.now) || self.net.is_cut(at, leader, self.now);
            let there = !cut && member.paused_until <= self.now;
            member.node.as_deref().filter(|_| there).map(|node| (at, node))
        })
    }

    fn said(&self, leader: usize, slip: Option<usize>) -> BTreeMap<MemberId, Points> {
        let mut said: BTreeMap<MemberId, Points> =
            self.answering(leader).map(|(_, node)| (node.id, points(node))).collect();
        let slipped = slip.and_then(|at| said.get_mut(&self.members[at].id));
        if let Some(mut newest) = slipped.and_then(|points| points.last_entry()) {
            *newest.get_mut() ^= 1;
        }
        said
    }

    fn full(&self, leader: usize, slip: Option<usize>) -> BTreeMap<MemberId, FullHash> {
        let Some(revision) = self.members[leader].node.as_ref().map(|n| n.reader.revision()) else {
            return BTreeMap::new();
        };
        let answers = self.answering(leader).filter_map(|(at, node)| {
            let hash = node.reader.hash_rows(revision).ok()?;
            let (revision, compact_revision) = (hash.hash_revision, hash.compact_revision);
            let hash = if slip == Some(at) { !hash.hash } else { hash.hash };
            Some((node.id, FullHash { revision, compact_revision, hash }))
        });
        answers.collect()
    }

    /// At the end: everybody is known to be equal, which is more than not known to differ.
    pub(super) fn all_equal(&self) -> frame::Verdict {
        let there: Vec<&Node> = (0..self.members.len())
            .filter(|at| self.belongs(*at))
            .filter_map(|at| self.members[at].node.as_deref())
            .collect();
        for pair in there.windows(2) {
            let verdict = compare(&points(pair[0]), &points(pair[1]));
            let (one, two) = (pair[0].id, pair[1].id);
            check!(verdict == Verdict::Equal, "{one} and {two} at the end: {verdict:?}");
        }
        Ok(())
    }
}

fn points(node: &Node) -> Points {
    let running = node.reader.running_points().points.into_iter();
    let compactions = node.reader.compaction_hashes().into_iter().map(|hash| {
        let point = Point::Compaction { at: hash.hash_revision, from: hash.compact_revision };
        (point, u64::from(hash.hash))
    });
    running.map(|(index, hash)| (Point::Applied(index), hash)).chain(compactions).collect()
}
