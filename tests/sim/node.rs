//! One life of one simulated member: the shipped parts, wired as the node wires them, with each
//! thread replaced by turns that the world calls in an order drawn from the seed.
//!
//! ```text
//! clients, peers ──► node ──► wal ──► node ──► apply ──► store ──► node
//!                                                └─────► hub ──► streams
//! ```

mod disk;
mod install;
mod start;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use assay::consensus::{
    self, Committed, ConfState, Core, Effect, EntryKind, Input, Role, SnapshotMeta, Token,
};
use assay::disk::{Disk, SimDisk};
use assay::lease;
use assay::machine::{AnswerError, Applied, LeaseChange, Machine, Reader};
use assay::mvcc::EventBatch;
use assay::proto::etcdserverpb::InternalRaftRequest;
use assay::store::{self, Batch, Shared};
use assay::wal;
use assay::watch::Hub;
use bytes::Bytes;
use prost::Message as _;

use super::broken::Broken;
use super::frame::Violation;
use super::oracle::Oracle;
use super::plan::Plan;
use super::snapshot::Rows;
use super::watchers::Queues;
use super::{answers, convert, workload};

pub use disk::NodeDisk;
pub use start::{Birth, Program, WAL_DIR, member_json};

/// Why a process ended.
#[derive(Debug)]
pub enum End {
    /// A fault of the disk, as the process must end then.
    Fault(String),
    /// It met what only a newer program knows.
    Newer(String),
    /// A rule was broken.
    Broken(Violation),
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        End::Broken(violation)
    }
}

fn fault(what: &str, error: &dyn std::fmt::Display) -> End {
    End::Fault(format!("{what}: {error}"))
}

/// Work for the log, in order.
#[derive(Debug)]
pub enum WalJob {
    Persist(consensus::Batch),
    Truncate(u64),
    /// Swap the store for a staged snapshot and begin the log anew behind it.
    Install(SnapshotMeta, consensus::Batch),
}

/// What is on the own disk: what may be said to others depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    pub term: u64,
    pub vote: u64,
    /// Index of the last entry.
    pub last: u64,
}

/// The log's thread has finished a group.
#[derive(Debug, Default)]
pub struct WalDone {
    pub batch: Option<u64>,
    pub durable: Durable,
    pub installed: Option<SnapshotMeta>,
}

/// An entry was applied here: its index, and who asked for it.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub index: u64,
    pub request: u64,
}

pub struct Node {
    pub id: u64,
    pub core: Core,
    pub inputs: Vec<Input>,
    pub clock: lease::Clock,
    wal: wal::Wal,
    pub wal_jobs: Vec<WalJob>,
    pub wal_busy: bool,
    pub disk: NodeDisk,
    pub durable: Durable,
    installing: Option<SnapshotMeta>,
    pub machine: Machine,
    pub reader: Reader,
    pub shared: Shared,
    pub apply_queue: VecDeque<Committed>,
    pub applied: u64,
    compacting: bool,
    pub lease_changes: Vec<LeaseChange>,
    /// Taken while the store's file is exchanged.
    writer: Option<store::Writer>,
    /// Exchanged files that somebody may still read.
    retired: Vec<store::Retired>,
    pub store_queue: VecDeque<Batch>,
    pub store_busy: bool,
    frozen: (u64, u64),
    pub hub: Hub,
    pub hub_queue: VecDeque<Arc<EventBatch>>,
    pub queues: Queues,
    pub catching_up: bool,
    /// Reads that wait for an index.
    pub reads: Vec<(u64, Token)>,
    /// Snapshots opened for others.
    pub views: BTreeMap<u64, Rows>,
    /// Snapshots received and not installed.
    pub staged: Vec<SnapshotMeta>,
    /// Leads since this term; leases are counted when an entry of it is applied.
    pub leads: Option<u64>,
    pub ready: bool,
    /// A member as of what is applied. A joiner reads of configurations without it first.
    member: bool,
    /// No member any more.
    pub removed: bool,
    /// Turns that are queued already.
    pub queued: BTreeSet<&'static str>,
    /// The next put with a value is applied with another one, see `world/divergence.rs`.
    pub rot: bool,
    /// That has happened.
    pub rotten: bool,
    /// Revision of the last local read: it never goes back in one life.
    pub last_read: i64,
    /// Level of commands that this program knows.
    level: u32,
    files: SimDisk,
    plan: Arc<Plan>,
}

impl Node {
    /// A turn of the node thread: everything that waits goes into one step.
    pub fn node_turn(&mut self, now_ms: u64, lease_ms: u64, effects: &mut Vec<Effect>) {
        self.note_leases(lease_ms);
        // Not before its first own entry is applied: an earlier leader's revoke may be among those
        // before it.
        if self.ready && self.leads.is_some() && self.clock.leads() != self.leads {
            self.clock.promote(self.leads.unwrap_or(0), lease_ms);
        }
        let mut inputs = std::mem::take(&mut self.inputs);
        self.core.step(now_ms, &mut inputs, effects);
        self.inputs = inputs;
    }

    /// Tells the clock what was applied, as the node thread does before anything that comes later.
    pub fn note_leases(&mut self, lease_ms: u64) {
        for change in std::mem::take(&mut self.lease_changes) {
            match change {
                LeaseChange::Granted { id, ttl } => self.clock.granted(id, ttl, lease_ms),
                LeaseChange::Revoked { id } => self.clock.revoked(id),
                LeaseChange::Checkpointed { id, remaining } => {
                    self.clock.checkpointed(id, remaining);
                }
            }
        }
    }

    /// Role changes decide who keeps the leases.
    pub fn role(&mut self, change: consensus::RoleChange) {
        self.leads = (change.role == Role::Leader).then_some(change.term);
        if self.leads.is_none() {
            self.ready = false;
            if self.plan.broken != Broken::LeaseUnfenced {
                self.clock.demote();
            }
        }
    }

    pub fn is_leader(&self) -> bool {
        self.leads.is_some()
    }

    /// A batch of the core for the log; the one that follows an install belongs to it.
    pub fn persist(&mut self, batch: consensus::Batch) {
        self.wal_jobs.push(match self.installing.take() {
            Some(meta) => WalJob::Install(meta, batch),
            None => WalJob::Persist(batch),
        });
    }

    pub fn install(&mut self, meta: SnapshotMeta) {
        self.installing = Some(meta);
    }

    /// A turn of the log's thread: every waiting batch, one commit.
    pub fn wal_turn(&mut self, jobs: Vec<WalJob>, oracle: &mut Oracle) -> Result<WalDone, End> {
        let mut done = WalDone { durable: self.durable, ..WalDone::default() };
        let mut truncate = None;
        let mut written = false;
        for job in jobs {
            match job {
                WalJob::Persist(batch) => {
                    self.append(&batch, &mut done)?;
                    written = true;
                }
                WalJob::Truncate(index) => truncate = Some(index),
                WalJob::Install(meta, batch) => {
                    self.swap_store(&meta, oracle)?;
                    let hard_state = batch.hard_state.unwrap_or_default();
                    self.wal
                        .reset((meta.index, meta.term), convert::hard_state(hard_state))
                        .map_err(|error| fault("log reset", &error))?;
                    done.durable.last = meta.index;
                    self.append(&batch, &mut done)?;
                    done.installed = Some(meta);
                    written = true;
                }
            }
        }
        if written {
            self.wal.commit().map_err(|error| fault("log", &error))?;
        }
        if let Some(mut index) = truncate {
            if self.plan.broken == Broken::LogCutTooFar {
                index = self.applied;
            }
            self.wal.truncate_front(index).map_err(|error| fault("log", &error))?;
            self.wal
                .prepare_spare(self.plan.segment_bytes)
                .map_err(|error| fault("log", &error))?;
        }
        Ok(done)
    }

    fn append(&mut self, batch: &consensus::Batch, done: &mut WalDone) -> Result<(), End> {
        self.wal.append(&convert::batch(batch)).map_err(|error| fault("log", &error))?;
        if let Some(hard) = batch.hard_state {
            (done.durable.term, done.durable.vote) = (hard.term, hard.vote);
        }
        done.durable.last = batch.entries.last().map_or(done.durable.last, |entry| entry.index);
        done.batch = Some(batch.number);
        Ok(())
    }

    /// A turn of the apply thread; returns what clients may be told.
    pub fn apply_turn(&mut self, oracle: &mut Oracle) -> Result<Vec<Done>, End> {
        let mut done = Vec::new();
        let mut reached = None;
        if self.plan.broken == Broken::ApplyOutOfOrder && self.apply_queue.len() > 1 {
            self.apply_queue.swap(0, 1);
        }
        for _ in 0..self.plan.apply_at_once {
            let Some(committed) = self.apply_queue.pop_front() else { break };
            let entry = &committed.entry;
            let skipped = self.plan.broken == Broken::SkipApply
                && self.id == 2
                && entry.index % 50 == 0
                && entry.kind == EntryKind::Normal;
            let skipped = skipped || self.skips_unknown(&entry.data);
            let nothing = Bytes::new();
            let wrong = if self.rot { workload::rotten(&entry.data) } else { None };
            let outcome = self.machine.apply(Applied {
                index: entry.index,
                term: entry.term,
                kind: convert::kind(entry.kind),
                data: wrong.as_ref().unwrap_or(if skipped { &nothing } else { &entry.data }),
                context: &entry.context,
                conf_state: committed.conf_state.as_ref().map(|conf| Bytes::from(conf.encode())),
            });
            if wrong.is_some() && outcome.answer.is_ok() {
                (self.rot, self.rotten) = (false, true);
            }
            match &outcome.answer {
                Err(AnswerError::Fault(error)) => return Err(fault("apply", error)),
                Err(error) if error.is_newer() => return Err(End::Newer(error.to_string())),
                _ => {}
            }
            if !self.rotten {
                oracle.applied(self.id, self.applied, &committed, &answers::text(&outcome))?;
            }
            if let Some(conf) = &committed.conf_state {
                self.machine.publish();
                oracle.members.applied(self.id, &self.machine, conf)?;
            }
            self.applied = entry.index;
            self.lease_changes.extend(outcome.lease);
            self.hub_queue.extend(outcome.events);
            self.compacting |= outcome.compacted;
            if let Some(conf) = &committed.conf_state {
                self.note_membership(conf);
            }
            reached = Some((entry.index, entry.term));
            done.push(Done { index: entry.index, request: outcome.request_id });
        }
        if let Some((index, term)) = reached {
            self.machine.publish();
            let durable = self.shared.durable().0;
            self.inputs.push(Input::Applied { index, durable });
            self.ready |= self.leads == Some(term);
        }
        if self.compacting {
            self.compacting = self.machine.compaction_step();
        }
        if self.machine.open_bytes() >= self.plan.freeze_bytes {
            self.freeze();
        }
        Ok(done)
    }

    /// The mistake [`Broken::SkipUnknownCommand`]: nothing is done in place of what is not known.
    fn skips_unknown(&self, data: &Bytes) -> bool {
        self.plan.broken == Broken::SkipUnknownCommand
            && InternalRaftRequest::decode(data.clone())
                .is_ok_and(|request| request.feature_level > self.level)
    }

    fn note_membership(&mut self, conf: &ConfState) {
        let member = conf.contains(self.id);
        self.removed |= self.member && !member;
        self.member = member;
    }

    pub fn compacting(&self) -> bool {
        self.compacting
    }

    /// Hands the open batch to the store's thread, if there is room in its queue.
    pub fn freeze(&mut self) {
        if self.store_queue.len() >= 2 {
            return;
        }
        let Some(mut batch) = self.machine.take_batch() else { return };
        let frozen = std::mem::replace(&mut self.frozen, batch.applied);
        match self.plan.broken {
            Broken::AppliedAhead => batch.applied.0 += 1,
            Broken::AppliedBehind => batch.applied = frozen,
            _ => {}
        }
        self.store_queue.push_back(batch);
    }

    /// A turn of the store's thread: one batch.
    pub fn store_turn(&mut self) -> Result<bool, End> {
        let Some(batch) = self.store_queue.pop_front() else { return Ok(false) };
        if let Some(writer) = &mut self.writer {
            writer.commit(batch).map_err(|error| fault("store", &error))?;
        }
        Ok(true)
    }

    /// The store's thread reports what is durable.
    pub fn store_done(&mut self) {
        let durable = self.shared.durable().0.min(self.applied);
        self.inputs.push(Input::Applied { index: self.applied, durable });
    }

    /// The watch thread: batches, then a round of catching up.
    pub fn hub_turn(&mut self) -> Result<(), End> {
        let broken = |error| Violation(format!("hub: {error}"));
        for batch in self.hub_queue.drain(..) {
            self.hub.publish(&batch, &self.reader, &mut self.queues).map_err(broken)?;
        }
        self.hub.flush(&mut self.queues);
        self.catching_up = self.hub.catch_up(&self.reader, &mut self.queues).map_err(broken)?;
        self.hub.flush(&mut self.queues);
        Ok(())
    }

    pub fn hub_lags(&self) -> bool {
        self.catching_up || !self.hub_queue.is_empty()
    }

    /// Ends the process in order.
    pub fn close(mut self) -> Result<(), End> {
        self.freeze();
        while self.store_turn()? {}
        let Node { wal, writer, machine, .. } = self;
        drop(machine);
        if let Some(writer) = writer {
            writer.close().map_err(|error| fault("store", &error))?;
        }
        wal.close_clean().map_err(|error| fault("log", &error))
    }

    pub fn idle(&self) -> bool {
        self.apply_queue.is_empty()
            && self.store_queue.is_empty()
            && self.wal_jobs.is_empty()
            && self.hub_queue.is_empty()
            && self.inputs.is_empty()
            && !self.wal_busy
            && !self.store_busy
            && !self.compacting
            && !self.catching_up
    }

    fn dyn_disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.files.clone())
    }
}
