//! Hung disks: what members know of them, and whether they draw the right conclusions.

use assay::consensus::{DiskEvent, DiskFacts, Input, OwnDisk, Role, Wire, WireKind};

use super::super::frame::{Verdict, Violation};
use super::super::node::Node;
use super::super::plan::{ELECTION_TICKS, RATE_PERMILLE};
use super::{MS, Member, World};
use crate::check;

/// The longest time that word of a disk is on its way: two spikes of the network, when it is
/// doubled, and a usual delay.
const WORD_US: u64 = 900 * MS;

impl World {
    /// Age of the operation that a member's disk does not end, as the member counts it: what was
    /// before a pause of its process does not count.
    fn in_flight(&self, at: usize, node: &Node) -> u64 {
        let since = node.disk.since.map(|since| since.max(self.members[at].paused_until));
        since.map_or(0, |since| self.now.saturating_sub(since))
    }

    /// Before a tick.
    pub(super) fn looks_at_its_disk(&self, at: usize, node: &mut Node) {
        let in_flight = self.in_flight(at, node);
        let own = OwnDisk { in_flight_ms: in_flight / MS, p99_us: None, syncs: node.disk.syncs };
        if self.plan.disk_stall_ms().is_some_and(|limit| own.in_flight_ms >= limit / 2) {
            node.disk.stalled = Some(node.disk.syncs);
        }
        node.disk.born.get_or_insert(self.now);
        if node.disk.is_recovering() {
            node.disk.doubted = Some(self.now);
        }
        node.inputs.push(Input::OwnDisk(own));
    }

    /// What leaves with every message. Some members are of a version that does not know of it.
    pub(super) fn says(&self, at: usize, node: &Node) -> Option<DiskFacts> {
        (Some(node.id) != self.plan.silent).then(|| DiskFacts {
            in_flight_ms: self.in_flight(at, node) / MS,
            p99_us: None,
            recovering: node.core.disk_is_recovering(),
            handed_over: node.disk.handed_over,
        })
    }

    /// A message of a leader keeps a member from standing for election.
    pub(super) fn hears(&self, node: &mut Node, wire: &Wire) {
        let leads = matches!(wire.kind(), WireKind::Append | WireKind::Heartbeat);
        let status = node.core.status();
        if leads && wire.term() >= status.term && !status.installing {
            node.disk.led = self.now;
            node.disk.led_by = wire.from();
        }
        let asks = matches!(wire.kind(), WireKind::Vote | WireKind::PreVote);
        if asks && wire.position() < (status.last_term, status.last) {
            node.disk.behind.insert(wire.from(), self.now);
        }
    }

    /// Whether a member can know that another one will not win an election with a better disk: it
    /// led and is silent, its disk hung lately as well, or it lacks entries. A member that is away or
    /// has just returned may have said so in its life before.
    fn is_no_better(&self, at: usize, node: &Node, other: u64) -> bool {
        // Three timeouts by the member's own ticks, of which a pause takes none.
        let word = 4 * ELECTION_TICKS * self.plan.tick + WORD_US;
        let awake = self.members[at].paused_until.min(self.now);
        let lately = |then: u64| self.now <= then.max(awake) + word;
        let away = |member: &Member| {
            member.node.as_ref().is_none_or(|node| {
                node.disk.born.is_none_or(lately) || node.disk.doubted.is_some_and(lately)
            })
        };
        other == node.disk.led_by
            || node.disk.behind.get(&other).copied().is_some_and(lately)
            || self.members.iter().filter(|member| member.id == other).any(away)
    }

    /// A member whose disk hung stands for election only when nobody else does, or can.
    pub(super) fn stands(&self, at: usize, node: &mut Node, role: Role) -> Verdict {
        if role != Role::Leader && node.disk.giving_way.take().is_some() {
            node.disk.gave_way = Some(self.now);
        }
        let conf = node.core.status().conf_state;
        let limited = self.plan.disk_stall_ms().is_some() && conf.voters.len() > 1;
        let mut others = conf.voters.iter().chain(&conf.voters_outgoing);
        if others.all(|id| *id == node.id || self.is_no_better(at, node, *id)) {
            return Ok(());
        }
        if role != Role::PreCandidate || !limited || !node.disk.is_recovering() {
            return Ok(());
        }
        // Two timeouts and a half, and a tick lost at either end.
        let ticks = 5 * ELECTION_TICKS / 2 - 3;
        let wait = ticks * self.plan.tick * (1_000 - RATE_PERMILLE) / 1_000;
        let led = node.disk.led.max(self.members[at].paused_until.min(self.now));
        check!(
            self.now >= led + wait || led == self.members[at].paused_until,
            "{} stands for election {} ms after it heard a leader, and its disk hung",
            node.id,
            (self.now - led) / MS
        );
        Ok(())
    }

    pub(super) fn decided(&mut self, at: usize, node: &mut Node, event: DiskEvent) -> Verdict {
        match event {
            DiskEvent::HandsOver { to, term, .. } => {
                self.trace(at, "hands over", to);
                self.report.hand_overs += 1;
                node.disk.handed_over = term;
                node.disk.giving_way = Some(self.now);
                self.may_hand_over(at, node, to)
            }
            DiskEvent::HandedOver { .. } => Ok(()),
            DiskEvent::Failed { to } => {
                self.trace(at, "nobody took over", to);
                node.disk.giving_way = None;
                node.disk.handed_over = 0;
                Ok(())
            }
            DiskEvent::KeepsLeading { .. } => {
                self.trace(at, "keeps leading", 0);
                self.report.all_slow += 1;
                Ok(())
            }
        }
    }

    /// Only with a disk that hangs, only to a disk that does not, only when a quorum of such disks
    /// goes on without this one, and not again at once.
    fn may_hand_over(&self, at: usize, node: &Node, to: u64) -> Verdict {
        const BACK_OFF_US: u64 = 10_000 * MS;
        let limit = self.plan.disk_stall_ms().unwrap_or(u64::MAX / MS) * MS;
        let in_flight = self.in_flight(at, node);
        check!(in_flight >= limit, "{} hands over after {} ms only", node.id, in_flight / MS);
        check!(Some(to) != self.plan.silent, "{to} never said how its disk is and is to lead");
        let again = node.disk.gave_way.map_or(u64::MAX, |last| self.now - last);
        let pause = BACK_OFF_US * 1_000 / (1_000 + RATE_PERMILLE) - 2 * self.plan.tick;
        check!(again >= pause, "{} hands over again after {} ms", node.id, again / MS);
        // A process that stood still takes old word for new.
        if self.members[at].paused_until + limit > self.now {
            return Ok(());
        }
        let late = limit / 4 + 3 * self.plan.tick + WORD_US;
        let works = |id: &u64| {
            let Some(at) = self.index_of(*id) else { return false };
            // One that died, or stands still, a moment ago may still be thought well of.
            let Some(node) = &self.members[at].node else { return true };
            self.in_flight(at, node) <= late && Some(*id) != self.plan.silent
        };
        check!(works(&to), "{to} is to lead, and its disk hangs");
        let conf = node.core.status().conf_state;
        for voters in [&conf.voters, &conf.voters_outgoing] {
            let healthy = voters.iter().filter(|id| **id != node.id && works(id)).count();
            check!(
                voters.is_empty() || healthy > voters.len() / 2,
                "{} hands over to {to}, and {healthy} of {} disks work",
                node.id,
                voters.len()
            );
        }
        Ok(())
    }

    /// Who leads a quorum now.
    pub(super) fn leads_now(&self) -> Option<u64> {
        self.leader().map(|at| self.members[at].id)
    }
}

/// A script of stalls.
#[derive(Clone, Copy, Debug)]
pub enum Stall {
    /// Of whoever leads then.
    Leader,
    /// Of all members, within this time of each other.
    All { apart: u64 },
}

/// What a script of stalls led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Changes of leader after the first stall began.
    pub changes: u64,
    pub first: Option<u64>,
    pub last: Option<u64>,
    pub hand_overs: u64,
    pub all_slow: u64,
}

impl World {
    /// A quiet cluster whose disks hang for `length`, `count` times, one in `every`.
    pub fn run_stalls(
        mut self,
        kind: Stall,
        length: u64,
        every: u64,
        count: u64,
    ) -> Result<Outcome, Violation> {
        self.begin();
        self.live_until(5 * self.plan.election())?;
        let (first, before) = (self.leads_now(), self.oracle.raft.elections);
        for _ in 0..count {
            let whom: Vec<usize> = match kind {
                Stall::Leader => self.leader().into_iter().collect(),
                Stall::All { .. } => (0..self.members.len()).collect(),
            };
            let begin = self.now;
            for at in whom {
                let late = match kind {
                    Stall::All { apart } if apart > 0 => self.fault_rng.below(apart),
                    _ => 0,
                };
                self.live_until(self.now.max(begin + late))?;
                self.members[at].stalled_until = begin + late + length;
            }
            self.live_until(begin + every)?;
        }
        let last = self.leads_now();
        let changes = self.oracle.raft.elections - before;
        self.push(0, super::Event::Heal);
        self.live()?;
        let report = self.finished();
        let (hand_overs, all_slow) = (report.hand_overs, report.all_slow);
        Ok(Outcome { changes, first, last, hand_overs, all_slow })
    }
}
