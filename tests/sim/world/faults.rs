//! What goes wrong, and when it ends.

use assay::consensus::Input;
use assay::disk::{Action, StaleReads};

use super::super::frame::Verdict;
use super::super::plan::{Fault, MS};
use super::lives::{Armed, Ending};
use super::{Event, World};

impl World {
    /// One fault, and when the next one comes.
    pub(super) fn fault(&mut self) -> Verdict {
        if self.healed.is_some() {
            return Ok(());
        }
        let every = self.plan.fault_every;
        let next = every / 4 + self.fault_rng.below(2 * every);
        self.push(next, Event::Fault);
        let kind = self.plan.faults[self.fault_rng.below(self.plan.faults.len() as u64) as usize];
        let Some(at) = self.victim() else { return Ok(()) };
        self.trace(at, "fault", kind as u64);
        self.say(at, &format!("{kind:?}"));
        if self.inflict(kind, at)? {
            self.count(kind);
        }
        Ok(())
    }

    /// A living member; often the leader, whose faults matter most.
    fn victim(&mut self) -> Option<usize> {
        let alive: Vec<usize> =
            (0..self.members.len()).filter(|at| self.members[*at].node.is_some()).collect();
        if alive.is_empty() {
            return None;
        }
        if self.fault_rng.below(2) == 0
            && let Some(leader) = self.leader()
        {
            return Some(leader);
        }
        Some(alive[self.fault_rng.below(alive.len() as u64) as usize])
    }

    /// A part of an election timeout to several of them: around the length that decides.
    fn length(&mut self) -> u64 {
        let election = self.plan.election();
        election / 4 + self.fault_rng.below(self.plan.fault_elections * election)
    }

    /// One more fault, at the leader, at a moment that somebody chose.
    pub(super) fn strike(&mut self) -> Verdict {
        const KINDS: [Fault; 6] = [
            Fault::Transfer,
            Fault::Transfer,
            Fault::AllPower,
            Fault::Pause,
            Fault::Crash,
            Fault::Isolate,
        ];
        let Some(at) = self.leader().filter(|_| self.healed.is_none()) else { return Ok(()) };
        let kind = KINDS[self.fault_rng.below(KINDS.len() as u64) as usize];
        self.trace(at, "strike", kind as u64);
        self.say(at, &format!("{kind:?}"));
        if self.inflict(kind, at)? {
            self.count(kind);
        }
        Ok(())
    }

    fn inflict(&mut self, kind: Fault, at: usize) -> Result<bool, super::Violation> {
        let until = self.now + self.length();
        match kind {
            Fault::Crash => self.kill(at, Ending::Killed),
            Fault::Power => self.kill(at, Ending::PowerCut),
            Fault::AllPower => {
                for at in 0..self.members.len() {
                    if self.members[at].node.is_some() {
                        self.kill(at, Ending::PowerCut);
                    }
                }
            }
            Fault::DiskCrash => {
                let halfway = self.fault_rng.below(2) == 0;
                let action = if halfway { Action::CrashHalfway } else { Action::Crash };
                let n = 1 + self.some_operations(80);
                self.set_armed(at, Armed::Crash(n, action));
            }
            Fault::SyncError => {
                let new = self.fault_rng.below(2) == 0;
                let stale = if new { StaleReads::New } else { StaleReads::Old };
                let n = 1 + self.some_operations(20);
                self.set_armed(at, Armed::Sync(n, stale));
            }
            Fault::WriteError => {
                let n = 1 + self.some_operations(40);
                self.set_armed(at, Armed::Write(n));
            }
            Fault::Stall => self.members[at].stalled_until = until,
            Fault::BitRot => return Ok(self.bit_rot(at)),
            Fault::Pause => self.members[at].paused_until = until,
            Fault::Split => self.split(until),
            Fault::Isolate => {
                for other in 0..self.members.len() {
                    self.cut_both(at, other, until, false);
                }
            }
            Fault::OneWay => {
                let other = self.fault_rng.below(self.members.len() as u64) as usize;
                let silent = self.fault_rng.below(2) == 0;
                self.net.cut(at, other, until, silent);
            }
            Fault::HalfOpen => {
                let both = self.fault_rng.below(2) == 0;
                for other in 0..self.members.len() {
                    self.net.cut(other, at, until, true);
                    if both {
                        self.net.cut(at, other, until, true);
                    }
                }
            }
            Fault::Lossy => self.net.lossy(until),
            Fault::WallStep => {
                const HOUR_MS: i64 = 3_600_000;
                let step = if self.fault_rng.below(2) == 0 { HOUR_MS } else { -24 * HOUR_MS };
                self.members[at].wall_step_ms += step;
            }
            Fault::Transfer => {
                let to = self.fault_rng.below(self.members.len() as u64) as usize;
                let to = self.members[to].id;
                let leader = self.leader().unwrap_or(at);
                self.with_node(leader, |world, node| {
                    node.inputs.push(Input::TransferLeader { to });
                    world.wake_node(leader, node);
                    Ok(())
                })?;
            }
            Fault::Close => self.close(at)?,
        }
        Ok(true)
    }

    /// Few operations usually, so that one fault meets the start after another.
    fn some_operations(&mut self, many: u64) -> u64 {
        let most = if self.fault_rng.below(3) == 0 { 10 } else { many };
        self.fault_rng.below(most)
    }

    fn set_armed(&mut self, at: usize, armed: Armed) {
        self.members[at].armed = Some(armed);
        self.arm(at);
    }

    fn cut_both(&mut self, one: usize, other: usize, until: u64, silent: bool) {
        if one != other {
            self.net.cut(one, other, until, silent);
            self.net.cut(other, one, until, silent);
        }
    }

    fn split(&mut self, until: u64) {
        let sides: Vec<bool> =
            (0..self.members.len()).map(|_| self.fault_rng.below(2) == 0).collect();
        let silent = self.fault_rng.below(2) == 0;
        for one in 0..sides.len() {
            for other in 0..one {
                if sides[one] != sides[other] {
                    self.cut_both(one, other, until, silent);
                }
            }
        }
    }

    /// The log of a member rots while it is down: only where the others can do without it.
    fn bit_rot(&mut self, at: usize) -> bool {
        let away = self.members.iter().filter(|m| m.lost || m.rotten).count();
        if 2 * (away + 1) >= self.plan.voters || self.members[at].rotten {
            return false;
        }
        self.kill(at, Ending::Killed);
        self.rot(at)
    }

    /// From here on nothing fails any more.
    pub(super) fn heal(&mut self) {
        self.trace(0, "heal", 0);
        self.healed = Some(self.now);
        self.acked_at_heal = self.oracle.acked_count;
        self.net.heal();
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            member.stalled_until = 0;
            member.paused_until = 0;
            member.armed = None;
            if member.node.is_some() {
                self.arm(at);
            }
            self.push(MS, Event::Start(at));
        }
        self.push(super::PROGRESS_ELECTIONS * self.plan.election(), Event::Progress);
    }
}
