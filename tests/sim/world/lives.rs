//! Starts and ends of members, and what of a disk survives.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use assay::disk::{Action, Disk, Fault as DiskFault, Open, PowerLoss, SimDisk, SimOp, StaleReads};
use assay::telemetry::io::{FileKind, IoOp};

use super::super::broken::Broken;
use super::super::frame::{Verdict, Violation};
use super::super::node::{Birth, End, Node, Program, WAL_DIR};
use super::super::plan::Fault;
use super::{Event, MS, Member, Turn, World};
use crate::check;

/// A fault that waits for a disk operation.
#[derive(Clone, Copy, Debug)]
pub enum Armed {
    /// The n-th changing operation from now does not return.
    Crash(u64, Action),
    /// The n-th sync from now fails and drops what is dirty.
    Sync(u64, StaleReads),
    /// The n-th write from now fails in the middle.
    Write(u64),
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The page cache stays.
    Killed,
    /// What was not synced is lost, kept or torn.
    PowerCut,
}

impl World {
    pub(super) fn start(&mut self, at: usize) -> Verdict {
        let member = &self.members[at];
        if member.node.is_some() || member.lost || member.retired {
            return Ok(());
        }
        self.boots += 1;
        self.report.lives += 1;
        let boot = self.plan.seed.wrapping_mul(10_000).wrapping_add(self.boots);
        self.members[at].life = self.boots;
        self.arm(at);
        self.trace(at, "start", self.boots);
        let level = self.level_of_start(at);
        self.members[at].level = level;
        let member = &self.members[at];
        let (id, birth) = (member.id, &member.birth);
        let program = Program { plan: &self.plan, level, boot };
        let started = Node::start(&member.disk, &program, id, birth, &mut self.oracle);
        match started {
            Err(End::Broken(violation)) => Err(violation),
            Err(End::Newer(text)) => self.newer_needed(at, &text),
            Err(End::Fault(text))
                if self.members[at].rotten && !self.members[at].disk.crashed() =>
            {
                self.say(at, &format!("refuses its damaged log: {text}"));
                self.members[at].lost = true;
                self.trace(at, "lost", 0);
                Ok(())
            }
            Err(End::Fault(text)) => self.died(at, &text),
            Ok(node) => {
                self.members[at].node = Some(Box::new(node));
                self.begin_life(at);
                Ok(())
            }
        }
    }

    fn begin_life(&mut self, at: usize) {
        let tick = self.rng.below(self.plan.tick);
        self.turn_in(at, tick, Turn::Tick);
        self.turn_in(at, 1, Turn::Node);
        self.turn_in(at, 1, Turn::Apply);
        let deadline = self.plan.freeze_every;
        self.turn_in(at, deadline, Turn::Deadline);
    }

    /// Plans what the disk of a member does wrong: what was armed, and what is broken on purpose.
    pub(super) fn arm(&mut self, at: usize) {
        let member = &self.members[at];
        let (broken, armed) = (self.plan.broken, member.armed);
        member.disk.clear_faults();
        let left = AtomicU64::new(match armed {
            Some(Armed::Crash(n, _) | Armed::Sync(n, _) | Armed::Write(n)) => n,
            None => 0,
        });
        member.disk.set_hook(move |op| {
            if forgets(broken, op) {
                return Action::Pretend;
            }
            let sync = matches!(op.op, IoOp::SyncData | IoOp::SyncAll);
            let (hit, action) = match armed {
                None => return Action::Proceed,
                Some(Armed::Crash(_, action)) => (true, action),
                Some(Armed::Sync(_, stale)) => (sync, Action::DropDirty(stale)),
                Some(Armed::Write(_)) => (op.op == IoOp::Write, Action::ShortWrite(libc::EIO)),
            };
            if hit && left.fetch_sub(1, Relaxed) == 1 { action } else { Action::Proceed }
        });
    }

    /// A fault of its disk ended a process.
    pub(super) fn died(&mut self, at: usize, text: &str) -> Verdict {
        self.say(at, &format!("ends: {text}"));
        // A fault that recovery itself reports must come from the disk, not from what it found.
        check!(
            text.contains("simulated crash")
                || text.contains("os error 5")
                || text.contains("earlier"),
            "{} refused what it found: {text}",
            self.members[at].id
        );
        check!(
            self.members[at].armed.is_some(),
            "{} ended without a fault: {text}",
            self.members[at].id
        );
        // After a failed sync the interesting start is the one on the cache as it is.
        let sync_error = matches!(self.members[at].armed, Some(Armed::Sync(..) | Armed::Write(_)));
        let cut = self.fault_rng.below(if sync_error { 5 } else { 2 }) == 0;
        self.gone(at, if cut { Ending::PowerCut } else { Ending::Killed });
        Ok(())
    }

    /// Ends a process now.
    pub(super) fn kill(&mut self, at: usize, ending: Ending) {
        self.members[at].disk.crash();
        self.members[at].node = None;
        self.gone(at, ending);
    }

    /// Stops a process in order.
    pub(super) fn close(&mut self, at: usize) -> Verdict {
        let Some(node) = self.members[at].node.take() else { return Ok(()) };
        self.trace(at, "close", 0);
        match node.close() {
            Ok(()) => {}
            Err(End::Broken(violation)) => return Err(violation),
            // A fault that was armed strikes in the last moment.
            Err(End::Fault(text) | End::Newer(text)) => return self.died(at, &text),
        }
        self.kill(at, Ending::Killed);
        Ok(())
    }

    /// What a dead process leaves, and when the next one comes.
    pub(super) fn gone(&mut self, at: usize, ending: Ending) {
        self.members[at].armed = None;
        self.members[at].paused_until = 0;
        self.members[at].disk.clear_faults();
        if ending == Ending::PowerCut {
            let mode = match self.fault_rng.below(4) {
                0 => PowerLoss::LoseAll,
                1 => PowerLoss::Random { torn: false },
                2 => PowerLoss::Random { torn: true },
                _ => PowerLoss::KeepAll,
            };
            self.members[at].disk.power_loss(mode, &mut self.fault_rng);
        } else {
            self.members[at].disk.restart();
        }
        self.trace(at, "gone", u64::from(ending == Ending::PowerCut));
        if self.plan.broken == Broken::WipedMemberReturns && self.healed.is_none() {
            self.members[at].disk = SimDisk::new();
            self.members[at].birth = Birth::Joiner;
        }
        let down = match self.healed {
            Some(_) => MS,
            None if self.fault_rng.below(4) == 0 => self.fault_rng.below(4 * self.plan.election()),
            None => self.fault_rng.below(300 * MS),
        };
        self.push(down, Event::Start(at));
    }

    /// A member that is no longer one goes for good.
    pub(super) fn retire(&mut self, at: usize) {
        // Not before those who stay know: a leader of two that leaves at once takes the quorum with
        // it. The node hands over first. Nobody can tell what a member knows that is down.
        let id = self.members[at].id;
        let newest = self.oracle.members.newest();
        let stays = |member: &Member| {
            let belongs = newest.is_none_or(|conf| conf.contains(member.id));
            member.id != id && belongs && !member.retired && !member.lost
        };
        let knows = |member: &Member| {
            let node = member.node.as_ref();
            node.is_some_and(|node| !node.core.status().conf_state.contains(id))
        };
        let unaware = self.members.iter().any(|member| stays(member) && !knows(member));
        if unaware || self.belongs(at) {
            self.push(self.plan.election() / 2, Event::Retire(at));
            return;
        }
        self.trace(at, "retire", 0);
        self.members[at].retired = true;
        self.members[at].disk.crash();
        self.members[at].node = None;
    }

    /// Flips a bit of the log where a later frame shows that it was on disk. True if there is such
    /// a place.
    pub(super) fn rot(&mut self, at: usize) -> bool {
        /// A frame is at most this long here, so that a later one follows.
        const FRAMES: usize = 5_000;
        let disk = self.members[at].disk.clone();
        let dir = Path::new(WAL_DIR);
        let Ok(mut entries) = disk.list(dir) else { return false };
        entries.retain(|entry| entry.name.ends_with(".wal"));
        let Some(entry) = entries.last() else { return false };
        let path = dir.join(&entry.name);
        let data = disk.contents(&path).unwrap_or_default();
        let used = data.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        if used < 2 * FRAMES {
            return false;
        }
        let offset = self.fault_rng.below((used - FRAMES) as u64);
        let bit = self.fault_rng.below(8) as u8;
        self.members[at].rotten = disk.flip_bit(&path, offset, bit);
        self.members[at].rotten
    }

    pub(super) fn say(&self, at: usize, text: &str) {
        if self.verbose {
            println!("{:>10} us  {} {text}", self.now, self.members[at].id);
        }
    }

    pub(super) fn count(&mut self, fault: Fault) {
        *self.report.faults.entry(fault).or_default() += 1;
    }
}

/// Whether a sync is left out on purpose.
fn forgets(broken: Broken, op: &SimOp) -> bool {
    match broken {
        Broken::SkipSync => {
            op.kind == FileKind::Wal && matches!(op.op, IoOp::SyncData | IoOp::SyncAll)
        }
        Broken::SkipDirSync => op.kind == FileKind::Wal && op.op == IoOp::SyncDir,
        _ => false,
    }
}

/// Puts the log files of one disk in the place of another's.
pub fn replace_log(disk: &SimDisk, from: &SimDisk) -> Result<(), Violation> {
    let copy = || -> Result<(), DiskFault> {
        let dir = Path::new(WAL_DIR);
        for entry in disk.list(dir)? {
            disk.remove(&dir.join(entry.name), FileKind::Wal)?;
        }
        for entry in from.list(dir)? {
            let path = dir.join(entry.name);
            let data = from.contents(&path).unwrap_or_default();
            let file = disk.open(&path, FileKind::Wal, Open::CreateNew)?;
            file.write_at(&data, 0)?;
            file.sync_all()?;
        }
        disk.sync_dir(dir, FileKind::Wal)
    };
    copy().map_err(|fault| Violation(format!("log could not be replaced: {fault}")))
}
