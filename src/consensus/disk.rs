//! Disks that hang: a leader whose own one does hands leadership over, if somebody can take it; a
//! member whose disk hung does not ask for leadership until the disk has shown that it works, as long
//! as somebody else may: where all disks hung together, or where the other one lacks entries, to wait
//! would only be time without service.
//!
//! What is known of disks comes in as facts: [`Input::OwnDisk`] at every tick, [`Input::PeerDisk`]
//! with the messages of a member. A member that says nothing (an older version, or one that is
//! silent) is "unknown", which is never "fit". The rules are in `operations.md` 6.
//!
//! Nothing here loosens what a message depends on: the order to stand for election states nothing
//! about the disk of the leader that gives it.
//!
//! [`Input::OwnDisk`]: super::Input::OwnDisk
//! [`Input::PeerDisk`]: super::Input::PeerDisk

use super::conf::ConfState;
use super::config::BrokenRule;
use super::core::Core;
use super::types::{Effect, Millis, NodeId};
use super::wire::Wire;
use raft::ProgressState;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Syncs that end in time after a stall before the disk counts as good again (`operations.md` 6).
const GOOD_SYNCS: u64 = 100;
/// Pause after a leadership was handed over before this member may do so again.
const BACK_OFF_FIRST_MS: Millis = 10_000;
/// That pause doubles up to this length, and is forgotten after as long again without need for it.
const BACK_OFF_MAX_MS: Millis = 300_000;
/// Word of others that is not older than this, in election timeouts, says whether they may stand for
/// election. Members that follow the same leader hear of each other once a second, by the pings of
/// their connections.
const WORD_ELECTION_TIMEOUTS: u64 = 3;

/// What a member says about the disk of its log. Travels beside its messages, never in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DiskFacts {
    /// Age of the oldest operation of the log that has not ended, 0 if none is running.
    pub in_flight_ms: Millis,
    /// 99th percentile of the log's syncs of the last minute, microseconds; `None` if there were too
    /// few to tell.
    pub p99_us: Option<u64>,
    /// The disk hung and has not made enough good syncs since.
    pub recovering: bool,
    /// Term in which this member began to hand leadership over because of its disk, 0 for none.
    pub handed_over: u64,
}

/// What the shell knows about the own disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnDisk {
    /// As [`DiskFacts::in_flight_ms`]. Time during which the whole process stood still must not
    /// count.
    pub in_flight_ms: Millis,
    /// As [`DiskFacts::p99_us`].
    pub p99_us: Option<u64>,
    /// Syncs of the log that have ended since the start.
    pub syncs: u64,
}

/// What became of a leader's trouble with its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskEvent {
    /// Leadership is being handed to this member.
    HandsOver {
        /// The next leader.
        to: NodeId,
        /// The term that ends with it.
        term: u64,
        /// Age of the operation that hangs, 0 if the disk is slow and does not hang.
        hung_ms: Millis,
        /// Own 99th percentile, microseconds.
        p99_us: Option<u64>,
    },
    /// This member does not lead any more.
    HandedOver {
        /// It does not hand over again for so long.
        back_off_ms: Millis,
    },
    /// Nobody took over within an election timeout.
    Failed {
        /// Who was asked.
        to: NodeId,
    },
    /// The disk hangs and this member goes on leading. Said once until the disk works again.
    KeepsLeading {
        /// Age of the operation that hangs.
        hung_ms: Millis,
        /// Other voters whose disks are in order.
        fit: usize,
        /// Other voters whose disks hang, are slow or did so lately.
        slow: usize,
        /// Other voters that said nothing lately.
        unknown: usize,
        /// Rest of the pause after the last time, 0: nobody could take over.
        back_off_ms: Millis,
    },
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    to: NodeId,
    term: u64,
    tick: u64,
}

/// Facts about disks, and what was decided by them.
#[derive(Debug, Default)]
pub(super) struct Disks {
    own: OwnDisk,
    /// The disk counts as good again when so many syncs have ended.
    good_at: Option<u64>,
    /// What others said last, and at which tick.
    others: BTreeMap<NodeId, (DiskFacts, u64)>,
    /// Who asked for a vote without having all entries of this member, and at which tick.
    behind: BTreeMap<NodeId, u64>,
    /// The member that led last. Its silence is why there are elections.
    led: NodeId,
    attempt: Option<Attempt>,
    /// Did not take over when it was asked last.
    failed: Option<NodeId>,
    /// Not before this time again.
    not_before: Millis,
    back_off_ms: Millis,
    /// The present stall was spoken of.
    said: bool,
    /// Ticks for which an election was put off.
    put_off: u64,
    /// Ticks still to wait after the disk hung when an election was due.
    rest: u64,
    /// The election timeout drawn for the present term.
    drawn: usize,
}

/// How the other voters are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Survey {
    fit: usize,
    slow: usize,
    unknown: usize,
    /// Whether those whose disks do not hang are a quorum without this member.
    quorum: bool,
    best: Option<NodeId>,
}

impl Disks {
    /// Takes in what the shell knows about the own disk. Half the age at which a leader steps down
    /// is a stall, so that members that were hit together do not call each other fit.
    fn own(&mut self, own: OwnDisk, limit: Millis) {
        self.own = own;
        if own.in_flight_ms >= limit / 2 {
            // What hangs ends as one more sync.
            self.good_at = Some(own.syncs + 1 + GOOD_SYNCS);
        } else if self.good_at.is_some_and(|at| own.syncs >= at) {
            self.good_at = None;
        }
    }

    fn backs_off(&mut self, now: Millis) -> Millis {
        let quiet = now > self.not_before.saturating_add(BACK_OFF_MAX_MS);
        self.back_off_ms = match self.back_off_ms {
            0 => BACK_OFF_FIRST_MS,
            _ if quiet => BACK_OFF_FIRST_MS,
            last => (2 * last).min(BACK_OFF_MAX_MS),
        };
        self.not_before = now + self.back_off_ms;
        self.back_off_ms
    }
}

impl Core {
    /// Whether the own disk hung and has not made enough good syncs since. Such a member does not
    /// stand for election while others may, and no leader chooses it.
    pub fn disk_is_recovering(&self) -> bool {
        self.disks.good_at.is_some()
    }

    /// Whether the leader of the term before the present one says that it gave way because of its
    /// disk.
    pub fn predecessor_had_a_bad_disk(&self) -> bool {
        let before = self.raft.raft.term.saturating_sub(1);
        before > 0 && self.disks.others.values().any(|(facts, _)| facts.handed_over == before)
    }

    pub(super) fn own_disk(&mut self, own: OwnDisk) {
        if let Some(limit) = self.config.disk_stall_ms {
            self.disks.own(own, limit);
        }
    }

    pub(super) fn peer_disk(&mut self, of: NodeId, facts: DiskFacts) {
        self.disks.others.insert(of, (facts, self.ticks));
    }

    pub(super) fn forget_disks(&mut self, stays: impl Fn(NodeId) -> bool) {
        self.disks.others.retain(|id, _| stays(*id));
        self.disks.behind.retain(|id, _| stays(*id));
    }

    /// Somebody asks for this member's vote; whether it lacks entries that this member has.
    pub(super) fn asked_for_a_vote(&mut self, wire: &Wire) -> bool {
        let log = &self.raft.raft.raft_log;
        let behind = wire.position() < (log.last_term(), log.last_index());
        if behind {
            self.disks.behind.insert(wire.from(), self.ticks);
        } else {
            self.disks.behind.remove(&wire.from());
        }
        behind
    }

    /// There is a leader.
    pub(super) fn is_led_by(&mut self, leader: NodeId) {
        self.disks.led = leader;
    }

    /// Whether another voter than the last leader may win an election with a better disk. Of whom
    /// nothing was heard that may be so.
    fn another_may_lead(&self) -> bool {
        let fresh = WORD_ELECTION_TIMEOUTS * self.config.election_tick as u64;
        let is_fresh = |at: u64| self.ticks - at <= fresh;
        let voters = self.conf.voters.iter().chain(&self.conf.voters_outgoing).copied();
        let mut others = voters
            .filter(|id| *id != self.config.id && *id != self.disks.led && !self.is_fenced(*id));
        others.any(|id| {
            let known = self.disks.others.get(&id);
            let doubtful = known.is_some_and(|(facts, at)| facts.recovering && is_fresh(*at));
            let behind = self.disks.behind.get(&id).is_some_and(|at| is_fresh(*at));
            !doubtful && !behind
        })
    }

    /// Whether the own disk hangs now: an election needs it.
    pub(super) fn disk_hangs(&self) -> bool {
        self.config.disk_stall_ms.is_some_and(|limit| self.disks.own.in_flight_ms >= limit / 2)
    }

    fn doubts_its_disk(&self) -> bool {
        self.disks.good_at.is_some()
            && !self.leads()
            && !self.raft.raft.prs().is_singleton()
            && !self.config.breaks(BrokenRule::StalledCampaigns)
    }

    /// A member with a doubtful disk takes the longest election timeout there is, if it leaves the
    /// election to others, and in any case one above the time for which it ignores candidates: its
    /// count may have to stand still before the end (see [`Core::puts_election_off`]).
    pub(super) fn election_timeout(&mut self, drawn: usize) -> usize {
        self.disks.drawn = drawn;
        let base = self.config.election_tick;
        match self.doubts_its_disk() {
            true if self.another_may_lead() => 2 * base - 1,
            true => drawn.max(base + 1),
            false => drawn,
        }
    }

    /// Whether this tick would start an election that this member should leave to others. The
    /// library's own count stays below it and not below the time for which it ignores candidates.
    /// Others need two election timeouts at most; this one waits for half of one to a whole one more
    /// and then goes itself: a disk that has nothing to sync never becomes good again. While the disk
    /// hangs it does not go in any case, since its own vote could not be written down.
    pub(super) fn puts_election_off(&mut self) -> bool {
        let raft = &self.raft.raft;
        let due = raft.election_elapsed + 1 >= raft.randomized_election_timeout();
        if !due || !self.doubts_its_disk() {
            self.disks.put_off = 0;
            self.disks.rest = 0;
            return false;
        }
        self.disks.put_off += 1;
        // Drawn, too: members that were hit together must not ask together.
        let patience = match self.another_may_lead() {
            true => self.disks.drawn.div_ceil(2) as u64,
            false => 0,
        };
        if self.disk_hangs() {
            // Disks that hang together work again together as well.
            self.disks.rest = (self.disks.drawn - self.config.election_tick).div_ceil(2) as u64;
            return true;
        }
        if self.disks.put_off <= patience {
            return true;
        }
        if self.disks.rest > 0 {
            self.disks.rest -= 1;
            return true;
        }
        self.disks.put_off = 0;
        false
    }

    /// Once per tick: whether this member should lead with this disk.
    pub(super) fn watch_own_disk(&mut self, now: Millis, out: &mut Vec<Effect>) {
        let Some(limit) = self.config.disk_stall_ms else { return };
        self.judge_attempt(now, out);
        let own = self.disks.own;
        if own.in_flight_ms < limit / 2 {
            self.disks.said = false;
        }
        let alone = self.conf.voters == [self.config.id] && !self.conf.is_joint();
        let busy = self.raft.raft.lead_transferee.is_some() || self.disks.attempt.is_some();
        if !self.leads() || alone || busy {
            return;
        }
        let hangs = own.in_flight_ms >= limit;
        let slow = !hangs && self.is_slow();
        if !hangs && !slow {
            return;
        }
        let survey = self.survey(limit, slow);
        let waits = self.disks.not_before.saturating_sub(now);
        let blind = self.config.breaks(BrokenRule::StepDownAnyway);
        let to = match survey.best {
            Some(to) if (survey.quorum || blind) && waits == 0 => to,
            _ => {
                // A candidate whose word is a moment old may be there at the next tick.
                if hangs && own.in_flight_ms >= limit + limit / 2 && !self.disks.said {
                    self.disks.said = true;
                    out.push(Effect::Disk(DiskEvent::KeepsLeading {
                        hung_ms: own.in_flight_ms,
                        fit: survey.fit,
                        slow: survey.slow,
                        unknown: survey.unknown,
                        back_off_ms: waits,
                    }));
                }
                return;
            }
        };
        let term = self.raft.raft.term;
        self.disks.attempt = Some(Attempt { to, term, tick: self.ticks });
        let hung_ms = if hangs { own.in_flight_ms } else { 0 };
        let p99_us = own.p99_us;
        out.push(Effect::Disk(DiskEvent::HandsOver { to, term, hung_ms, p99_us }));
        self.raft.transfer_leader(to);
        self.fix_election_timeout();
    }

    /// Whether the own syncs take longer than the gate lets through.
    fn is_slow(&self) -> bool {
        let own = self.disks.own.p99_us;
        self.config.disk_p99_us.zip(own).is_some_and(|(limit, p99)| p99 > limit)
    }

    fn judge_attempt(&mut self, now: Millis, out: &mut Vec<Effect>) {
        let Some(attempt) = self.disks.attempt else { return };
        if !self.leads() || self.raft.raft.term != attempt.term {
            self.disks.attempt = None;
            self.disks.failed = None;
            let back_off_ms = self.disks.backs_off(now);
            out.push(Effect::Disk(DiskEvent::HandedOver { back_off_ms }));
        } else if self.ticks - attempt.tick > self.config.election_tick as u64 {
            self.disks.attempt = None;
            self.disks.failed = Some(attempt.to);
            if !self.disk_hangs() {
                // A leader that can write must not stop to ask again and again.
                self.disks.backs_off(now);
            }
            out.push(Effect::Disk(DiskEvent::Failed { to: attempt.to }));
        }
    }

    /// Looks at the other voters. A leader that is merely slow gives way only to one that is known
    /// to be much faster.
    fn survey(&self, limit: Millis, slow: bool) -> Survey {
        // Word of a healthy member comes with the answer to every heartbeat.
        let fresh = (self.config.election_tick as u64 / 4).max(2);
        let blind = self.config.breaks(BrokenRule::StepDownAnyway);
        let mut survey = Survey::default();
        let mut healthy = vec![];
        let mut candidates = vec![];
        let conf = &self.conf;
        let mut voters: Vec<NodeId> =
            conf.voters.iter().chain(&conf.voters_outgoing).copied().collect();
        voters.sort_unstable();
        voters.dedup();
        // A fenced one neither stands nor votes.
        let others = voters.into_iter().filter(|id| *id != self.config.id && !self.is_fenced(*id));
        for id in others {
            let known = self.disks.others.get(&id);
            let facts = known.filter(|(_, at)| self.ticks - at <= fresh).map(|(facts, _)| *facts);
            let Some(facts) = facts.or(blind.then(DiskFacts::default)) else {
                survey.unknown += 1;
                continue;
            };
            let moves = facts.in_flight_ms <= limit / 4;
            if moves {
                healthy.push(id);
            }
            let fast = match (slow, facts.p99_us) {
                (true, Some(p99)) => self.config.disk_p99_us.is_some_and(|max| p99 <= max / 2),
                (true, None) => false,
                (false, Some(p99)) => p99 <= limit * 1_000 / 4,
                (false, None) => true,
            };
            if !blind && (!moves || facts.recovering || !fast) {
                survey.slow += 1;
                continue;
            }
            survey.fit += 1;
            let progress = self.raft.raft.prs().get(id);
            let caught_up = progress.is_some_and(|p| {
                p.state == ProgressState::Replicate
                    && p.matched >= self.raft.raft.raft_log.committed
            });
            if conf.voters.contains(&id) && (caught_up || blind) {
                let matched = progress.map_or(0, |p| p.matched);
                let first = self.disks.failed != Some(id);
                let p99 = facts.p99_us.unwrap_or(0);
                candidates.push((first, matched, Reverse(p99), Reverse(id)));
            }
        }
        survey.quorum = is_quorum(conf, &healthy);
        survey.best = candidates.iter().max().map(|(_, _, _, Reverse(id))| *id);
        survey
    }
}

/// Whether these members can elect and commit, in every configuration that holds.
pub(super) fn is_quorum(conf: &ConfState, members: &[NodeId]) -> bool {
    let enough = |voters: &[NodeId]| {
        let present = voters.iter().filter(|id| members.contains(id)).count();
        voters.is_empty() || present > voters.len() / 2
    };
    enough(&conf.voters) && enough(&conf.voters_outgoing)
}
