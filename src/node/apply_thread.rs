//! The `apply` thread: committed entries change memory, callers are answered, batches are frozen.
//!
//! It never waits for a disk: when the store thread is busy the open batch simply grows, up to the
//! bound at which the node refuses proposals.

use super::answers::{Answers, Turn};
use super::convert;
use super::counts;
use super::fatal;
use super::handle::{Done, End, Inner, Refused};
use super::input::{
    ApplyInput, BarrierReply, Events, HashInput, NodeInput, Stamps, StoreInput, Waiter,
};
use super::lane::{Lane, Taker, Turns};
use super::local::addresses;
use super::watch_thread::WatchLane;
use crate::consensus::{Committed, EntryKind, SnapshotMeta};
use crate::machine::{self, Machine};
use crate::peer::Local;
use crate::store::Swapped;
use crate::telemetry::clock;
use crate::telemetry::node_metrics::NodeMetrics;
use crate::telemetry::stage::Stage;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, UNIX_EPOCH};

/// Bytes of rows that freeze the open batch before its time: what the store thread writes within
/// about a second on a middling disk.
const FREEZE_BYTES: usize = 64 << 20;
/// How often callers that gave up are swept out of the table of waiters.
const SWEEP_EVERY_NS: u64 = 1_000_000_000;
/// Commands that a guest applies at most, and their bytes: some ten microseconds, far less than
/// the wake-ups that it saves cost a caller, and than the sync that the guest would be late for.
const GUEST_COMMANDS_MAX: usize = 4;
const GUEST_COMMAND_BYTES_MAX: usize = 16 << 10;
/// Name of commands that change alarms or fences.
const OP_ALARM: &str = "Alarm";
/// Thousandths of a millisecond.
const NS_PER_MICRO: u64 = 1_000;

/// What the thread needs.
pub(super) struct ApplyThread {
    pub(super) machine: Machine,
    pub(super) queue: Arc<Lane<ApplyInput>>,
    pub(super) node: Arc<Lane<NodeInput>>,
    pub(super) store: Arc<Lane<StoreInput>>,
    pub(super) hash: Arc<Lane<HashInput>>,
    pub(super) watch: Arc<WatchLane>,
    pub(super) answers: Answers,
    pub(super) inner: Arc<Inner>,
    pub(super) local: Arc<dyn Local>,
    pub(super) metrics: Arc<NodeMetrics>,
    pub(super) store_interval: Duration,
    pub(super) warning: Duration,
    pub(super) compaction_pause: Duration,
}

/// State of the loop.
struct Loop {
    thread: ApplyThread,
    waiters: HashMap<u64, Waiter>,
    reads: BTreeMap<u64, Vec<BarrierReply>>,
    compactions: Vec<(i64, BarrierReply)>,
    commits: Vec<BarrierReply>,
    commit_wanted: bool,
    store_busy: bool,
    /// The snapshot that the store thread is putting in place.
    installing: Option<SnapshotMeta>,
    compacting: bool,
    compaction_due_ns: u64,
    /// The compaction that runs: when it began, and what its steps took, ns.
    compaction: Option<(u64, u64)>,
    /// Its hash is being made; it goes on after that.
    hashing: bool,
    opened_ns: Option<u64>,
    swept_ns: u64,
    /// Term whose entries the core was last told to be applied.
    told_term: u64,
}

impl ApplyThread {
    /// Body of the thread.
    pub(super) fn run(self) {
        let queue = self.queue.clone();
        let state = Loop {
            thread: self,
            waiters: HashMap::new(),
            reads: BTreeMap::new(),
            compactions: Vec::new(),
            commits: Vec::new(),
            commit_wanted: false,
            store_busy: false,
            installing: None,
            // An unfinished compaction of the last run goes on.
            compacting: true,
            compaction_due_ns: 0,
            compaction: None,
            hashing: false,
            opened_ns: None,
            swept_ns: 0,
            told_term: 0,
        };
        queue.run(Box::new(state));
    }
}

impl ApplyThread {
    /// Links follow the members as applied.
    pub(super) fn members_changed(&self) {
        let members = self.inner.reader.members();
        let own = self.inner.identity.member_id;
        let learner = members.get(own).is_some_and(|member| member.is_learner);
        self.inner.learner.store(learner, Relaxed);
        self.inner.peers.set(&addresses(&members), |id| members.is_removed(id), &self.local);
        if members.is_removed(own) {
            self.inner.end(End::Removed);
        }
    }
}

impl Turns<ApplyInput> for Loop {
    fn due_ns(&self) -> Option<u64> {
        let freeze = self
            .opened_ns
            .filter(|_| !self.store_busy && self.installing.is_none())
            .map(|opened| opened + self.thread.store_interval.as_nanos() as u64);
        let compaction = (self.compacting && !self.hashing).then_some(self.compaction_due_ns);
        freeze.into_iter().chain(compaction).min()
    }

    /// Few and small commands: what a lone client waits for.
    fn takes(&self, guest: Taker, inputs: &[ApplyInput]) -> bool {
        let (mut commands, mut bytes) = (0, 0);
        let short = inputs.iter().all(|input| match input {
            ApplyInput::Waiters(_) | ApplyInput::ReadAt { .. } => true,
            ApplyInput::Entries { entries, .. } => {
                commands += entries.len();
                bytes += entries.iter().map(|committed| committed.entry.data.len()).sum::<usize>();
                entries.iter().all(|committed| committed.entry.kind == EntryKind::Normal)
            }
            _ => false,
        });
        guest == Taker::Wal
            && short
            && commands <= GUEST_COMMANDS_MAX
            && bytes <= GUEST_COMMAND_BYTES_MAX
    }

    fn turn(&mut self, taker: Taker, inputs: &mut Vec<ApplyInput>) -> bool {
        self.take_in(taker, inputs)
    }
}

impl Loop {
    /// One turn over everything that waits; true at the end.
    fn take_in(&mut self, taker: Taker, inputs: &mut Vec<ApplyInput>) -> bool {
        let answers = self.thread.answers.clone();
        let mut turn = answers.turn();
        let mut stop = false;
        let mut done = Vec::new();
        let mut leases = Vec::new();
        let mut events: Vec<Events> = Vec::new();
        let mut reached = 0;
        let mut members_changed = false;
        let mut fences_changed = false;
        for input in inputs.drain(..) {
            match input {
                ApplyInput::Waiters(waiters) => {
                    self.waiters.extend(waiters.into_iter().map(|waiter| (waiter.id, waiter)));
                }
                ApplyInput::Entries { entries, handed_ns, stamps } => {
                    let mut stamps = stamps.into_iter().peekable();
                    for committed in entries {
                        reached = committed.entry.index;
                        while stamps.peek().is_some_and(|stamp| stamp.index < reached) {
                            stamps.next();
                        }
                        let stamp = stamps.peek().copied().unwrap_or_default();
                        let outcome = self.apply(&committed);
                        members_changed |= outcome.membership_changed;
                        fences_changed |= outcome.membership_changed || outcome.op == OP_ALARM;
                        leases.extend(outcome.lease);
                        events.extend(outcome.events);
                        if let Some(waiter) = self.waiters.remove(&outcome.request_id) {
                            let answer = match outcome.answer {
                                Ok(answer) => Ok(Done {
                                    answer,
                                    applied: (committed.entry.index, committed.entry.term),
                                    applied_ns: 0,
                                }),
                                Err(error) => Err(Refused::Answer(error)),
                            };
                            done.push((waiter, answer, handed_ns, stamp));
                        }
                    }
                }
                ApplyInput::ReadAt { index, mut replies } => {
                    self.reads.entry(index).or_default().append(&mut replies);
                }
                ApplyInput::CommitStore(reply) => {
                    self.commits.push(reply);
                    self.commit_wanted = true;
                }
                ApplyInput::CompactionDone { revision, reply } => {
                    self.compactions.push((revision, reply));
                    self.compacting = true;
                }
                ApplyInput::Hashed { at, hash } => {
                    self.thread.machine.compaction_hashed(at, hash);
                    self.hashing = false;
                }
                ApplyInput::StoreIdle => self.store_busy = false,
                ApplyInput::Install(meta) => {
                    // What is open is in the snapshot too, and must not be written behind it.
                    self.thread.store.push(StoreInput::Swap { at: (meta.index, meta.term) });
                    self.installing = Some(meta);
                }
                ApplyInput::Swapped(swapped) => self.install(*swapped),
                ApplyInput::Stop => stop = true,
            }
        }
        if reached > 0 {
            self.thread.machine.publish();
            self.thread.metrics.applied.store(reached, Relaxed);
            self.report(reached, leases);
        }
        if members_changed {
            self.thread.members_changed();
        }
        if fences_changed {
            self.thread.fences_changed();
        }
        for events in events {
            self.thread.watch.publish(events);
        }
        self.answer(&mut turn, done);
        self.release_reads(&mut turn);
        let now = clock::now_ns();
        if self.opened_ns.is_none() && self.thread.machine.open_bytes() > 0 {
            self.opened_ns = Some(now);
        }
        // A guest leaves to the owner what no caller waits for.
        if taker == Taker::Owner {
            self.compact(now);
            self.freeze(now, stop);
            self.sweep(now);
        }
        stop
    }

    /// Tells the core how far applying has come. A leader that applies its own entries learns it
    /// early enough with whatever comes next, unless leases or a new term hang on it.
    fn report(&mut self, index: u64, leases: Vec<machine::LeaseChange>) {
        let (_, term) = self.thread.machine.applied();
        let leads = self.thread.metrics.leads.load(Relaxed) == 1;
        let quiet = leads && leases.is_empty() && self.told_term == term;
        self.told_term = term;
        self.thread.node.push_quietly(NodeInput::Applied { index, term, leases });
        if !quiet {
            self.thread.node.wake();
        }
    }

    /// The store's file is exchanged: the machine is rebuilt from it and everybody is told.
    fn install(&mut self, swapped: Swapped) {
        let Some(meta) = self.installing.take() else { return };
        let began = clock::now_ns();
        if let Err(error) = self.thread.machine.install(swapped, &mut |_, _| {}) {
            match error.is_newer() {
                true => fatal::stop_for_newer("snapshot", &error),
                false => fatal::stop("snapshot", &error),
            }
        }
        let (applied, _) = self.thread.machine.applied();
        assert_eq!(applied, meta.index, "the staged file is not the snapshot that was asked for");
        self.store_busy = false;
        (self.hashing, self.compaction) = (false, None);
        self.opened_ns = None;
        self.compacting = true;
        let m = &self.thread.metrics;
        m.applied.store(applied, Relaxed);
        m.durable.store(applied, Relaxed);
        m.committed.fetch_max(applied, Relaxed);
        // Watchers read what they missed from the new file, or learn that it is compacted.
        self.thread.watch.skipped(self.thread.inner.reader.revision());
        self.thread.members_changed();
        self.thread.fences_changed();
        tracing::info!(
            index = applied,
            took_ms = (clock::now_ns() - began) / 1_000_000,
            "installed a snapshot"
        );
        let leases = self.thread.machine.lease_records();
        self.thread.node.push(NodeInput::Installed { meta, leases });
    }

    fn apply(&mut self, committed: &Committed) -> machine::Outcome {
        let entry = &committed.entry;
        let began = clock::now_ns();
        let outcome = self.thread.machine.apply(machine::Applied {
            index: entry.index,
            term: entry.term,
            kind: convert::kind(entry.kind),
            data: &entry.data,
            context: &entry.context,
            conf_state: committed.conf_state.as_ref().map(|conf| conf.encode().into()),
        });
        if let Err(error) = &outcome.answer
            && error.is_fatal()
        {
            let reason = format!("log entry {}: {error}", entry.index);
            match error.is_newer() {
                true => fatal::stop_for_newer("apply", &reason),
                false => fatal::stop("apply", &reason),
            }
        }
        let took = clock::now_ns() - began;
        if took > self.thread.warning.as_nanos() as u64 {
            self.thread.metrics.slow_applies.fetch_add(1, Relaxed);
            tracing::warn!(
                took_ms = took / 1_000_000,
                index = entry.index,
                op = outcome.op,
                "apply request took too long"
            );
        }
        if entry.kind == EntryKind::Normal && !entry.data.is_empty() {
            self.thread.metrics.applies.record(outcome.op, outcome.answer.is_ok(), took);
            counts::applied(&self.thread.metrics, &outcome);
        }
        if outcome.over_quota {
            self.thread.node.push(NodeInput::OverQuota);
        }
        if outcome.compacted {
            self.compacting = true;
        }
        outcome
    }

    fn answer(&self, turn: &mut Turn<'_>, done: Vec<(Waiter, Result<Done, Refused>, u64, Stamps)>) {
        let m = &self.thread.metrics;
        let applied_ns = clock::now_ns();
        for (waiter, answer, handed_ns, stamp) in done {
            m.stage(Stage::Queue, waiter.proposed_ns.saturating_sub(waiter.received_ns));
            if stamp.synced_ns != 0 {
                m.stage(Stage::WalWrite, stamp.written_ns.saturating_sub(waiter.proposed_ns));
                m.stage(Stage::Fsync, stamp.synced_ns.saturating_sub(stamp.written_ns));
                m.stage(Stage::Commit, handed_ns.saturating_sub(stamp.synced_ns));
            }
            m.stage(Stage::Apply, applied_ns.saturating_sub(handed_ns));
            if waiter.reply.is_none() && answer.is_err() {
                self.thread.node.push(NodeInput::OwnFailed { id: waiter.id });
            }
            if let Some(reply) = waiter.reply {
                turn.proposal(reply, answer.map(|done| Done { applied_ns, ..done }));
            }
        }
    }

    fn release_reads(&mut self, turn: &mut Turn<'_>) {
        if self.reads.is_empty() {
            return;
        }
        let (applied, _) = self.thread.machine.applied();
        while let Some(first) = self.reads.first_entry().filter(|first| *first.key() <= applied) {
            for reply in first.remove() {
                turn.barrier(reply, Ok(()));
            }
        }
    }

    /// A slice of a compaction, then a pause, so that applying is never held up by it.
    fn compact(&mut self, now: u64) {
        if !self.compacting || self.hashing || now < self.compaction_due_ns {
            return;
        }
        self.compacting = self.compaction_step(now);
        self.compaction_due_ns = now + self.thread.compaction_pause.as_nanos() as u64;
        if !self.compacting && !self.compactions.is_empty() {
            // All rows are in the open batch: durable with the next commit.
            self.commits.extend(self.compactions.drain(..).map(|(_, reply)| reply));
            self.commit_wanted = true;
        }
    }

    /// One step, and what it took. `now` is when it begins.
    fn compaction_step(&mut self, now: u64) -> bool {
        let Some(at) = self.thread.machine.compacting_at() else { return false };
        if let Some(hash) = self.thread.machine.compaction_hash() {
            self.compaction.get_or_insert((now, 0));
            self.hashing = true;
            self.thread.hash.push(HashInput::Make(hash));
            return true;
        }
        let more = self.thread.machine.compaction_step();
        let ended = clock::now_ns();
        let (began, work) = self.compaction.unwrap_or((now, 0));
        let (took, work) = (ended - now, work + (ended - now));
        let seen = &self.thread.metrics.compactions;
        seen.step.record_milli(took / NS_PER_MICRO);
        self.compaction = Some((began, work));
        if self.thread.machine.compacting_at() != Some(at) {
            self.compaction = None;
            seen.work.record_milli(work / NS_PER_MICRO);
            seen.total.record_milli((ended - began) / NS_PER_MICRO);
            let wall = clock::wall().duration_since(UNIX_EPOCH);
            seen.last.store(wall.map_or(0, |since| since.as_secs()), Relaxed);
        }
        more
    }

    /// Hands the open batch to the store thread when its time has come and that thread is free.
    fn freeze(&mut self, now: u64, stop: bool) {
        if self.installing.is_some() {
            return;
        }
        let bytes = self.thread.machine.open_bytes();
        let due = self
            .opened_ns
            .is_some_and(|opened| now >= opened + self.thread.store_interval.as_nanos() as u64);
        let wanted = due || bytes >= FREEZE_BYTES || self.commit_wanted || stop;
        if wanted && (!self.store_busy || stop) {
            let batch = self.thread.machine.take_batch();
            self.store_busy = batch.is_some();
            self.opened_ns = None;
            self.commit_wanted = false;
            let replies = std::mem::take(&mut self.commits);
            let dropped = batch.as_ref().map_or(0, |batch| batch.dropped.len() as u64);
            self.thread.metrics.compactions.rows.fetch_add(dropped, Relaxed);
            if batch.is_some() || !replies.is_empty() {
                self.thread.store.push(StoreInput::Commit { batch, replies });
            }
        }
    }

    /// Drops waiters whose callers have given up; their commands may still be applied.
    fn sweep(&mut self, now: u64) {
        if now < self.swept_ns + SWEEP_EVERY_NS {
            return;
        }
        self.swept_ns = now;
        self.waiters
            .retain(|_, waiter| waiter.reply.as_ref().is_none_or(|reply| !reply.to.is_closed()));
    }
}
