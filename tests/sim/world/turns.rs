//! The turns of the virtual threads of one member and what they hand on.

use assay::consensus::{Effect, Input, Token, WireKind};

use super::super::broken::Broken;
use super::super::frame::Violation;
use super::super::node::{End, Node, WalJob};
use super::super::workload;
use super::{Event, MS, Turn, World};

impl World {
    pub(super) fn turn(&mut self, at: usize, node: &mut Node, turn: Turn) -> Result<(), End> {
        match turn {
            Turn::Tick => {
                let tick = self.plan.tick * 1_000 / self.members[at].clock_permille;
                self.turn_in(at, tick, Turn::Tick);
                self.looks_at_its_disk(at, node);
                node.inputs.push(Input::Tick);
                self.expire(at, node);
                self.node_turn(at, node)?;
            }
            Turn::Node => {
                node.queued.remove("node");
                self.node_turn(at, node)?;
            }
            Turn::Wal => {
                node.queued.remove("wal");
                if !node.wal_busy && !node.wal_jobs.is_empty() {
                    node.wal_busy = true;
                    node.disk.since = Some(self.now);
                    let jobs = std::mem::take(&mut node.wal_jobs);
                    let delay = self.disk_delay(at, self.plan.wal_delay);
                    // A crash in between finds the group written, or not even begun.
                    if self.rng.below(2) == 0 {
                        self.turn_in(at, delay, Turn::WalWrite(jobs));
                    } else {
                        let done = Box::new(node.wal_turn(jobs, &mut self.oracle)?);
                        self.turn_in(at, delay, Turn::WalDone(done));
                    }
                }
            }
            Turn::WalWrite(jobs) => {
                let done = node.wal_turn(jobs, &mut self.oracle)?;
                self.wal_done(at, node, done)?;
            }
            Turn::WalDone(done) => self.wal_done(at, node, *done)?,
            Turn::Apply => {
                node.queued.remove("apply");
                self.apply(at, node)?;
            }
            Turn::Deadline => {
                let every = self.plan.freeze_every;
                let delay = every / 2 + self.rng.below(every);
                self.turn_in(at, delay, Turn::Deadline);
                node.freeze();
                self.wake_store(at, node);
            }
            Turn::Store => {
                node.queued.remove("store");
                if !node.store_busy && !node.store_queue.is_empty() {
                    node.store_busy = true;
                    let delay = self.disk_delay(at, self.plan.store_delay);
                    if self.rng.below(2) == 0 {
                        self.turn_in(at, delay, Turn::StoreWrite);
                    } else {
                        node.store_turn()?;
                        self.turn_in(at, delay, Turn::StoreDone);
                    }
                }
            }
            Turn::StoreWrite => {
                node.store_turn()?;
                self.store_done(at, node);
            }
            Turn::StoreDone => self.store_done(at, node),
            Turn::Hub => {
                node.queued.remove("hub");
                node.hub_turn()?;
                if node.hub_lags() {
                    self.wake(at, node, "hub", 3 * MS, Turn::Hub);
                }
            }
            Turn::Staged(wire) => self.staged(at, node, *wire),
            Turn::Answer(done) => self.answered(at, &done)?,
        }
        Ok(())
    }

    /// A delay of the disk: usually short, at times very long, and longer while syncs hang.
    fn disk_delay(&mut self, at: usize, usual: u64) -> u64 {
        let rare = if self.healed.is_some() { usual } else { 400 * MS };
        let own = self.one_of(60, rare, usual);
        own.max(self.members[at].stalled_until.saturating_sub(self.now))
    }

    fn wal_done(
        &mut self,
        at: usize,
        node: &mut Node,
        done: super::super::node::WalDone,
    ) -> Result<(), End> {
        node.wal_busy = false;
        node.disk.synced();
        node.durable = done.durable;
        self.trace(at, "wal", done.durable.last);
        self.oracle.raft.synced(node.id, done.batch, done.durable)?;
        if let Some(batch) = done.batch
            && self.plan.broken != Broken::AckBeforeSync
        {
            node.inputs.push(Input::Persisted { batch });
        }
        if let Some(meta) = done.installed {
            self.trace(at, "installed", meta.index);
            self.report.snapshots += 1;
            node.inputs.push(Input::Installed(meta));
            self.wake(at, node, "hub", MS, Turn::Hub);
            self.serve_reads(at, node)?;
            if node.removed {
                self.removed(at);
            }
        }
        self.wake_node(at, node);
        if !node.wal_jobs.is_empty() {
            self.wake(at, node, "wal", 50, Turn::Wal);
        }
        Ok(())
    }

    fn wake_store(&mut self, at: usize, node: &mut Node) {
        if !node.store_queue.is_empty() {
            self.wake(at, node, "store", 500, Turn::Store);
        }
    }

    fn store_done(&mut self, at: usize, node: &mut Node) {
        node.store_busy = false;
        node.store_done();
        self.trace(at, "store", node.shared.durable().0);
        self.wake_node(at, node);
        self.wake_store(at, node);
    }

    pub(super) fn node_turn(&mut self, at: usize, node: &mut Node) -> Result<(), End> {
        let mut effects = Vec::new();
        node.node_turn(self.clock_ms(at), self.lease_ms(at), &mut effects);
        for effect in effects {
            self.effect(at, node, effect)?;
        }
        if !node.inputs.is_empty() {
            self.wake_node(at, node);
        }
        Ok(())
    }

    fn effect(&mut self, at: usize, node: &mut Node, effect: Effect) -> Result<(), End> {
        match effect {
            Effect::Send(wires) => {
                for wire in wires {
                    self.send(at, node, wire)?;
                }
            }
            Effect::Persist(batch) => {
                self.trace(at, "persist", batch.number);
                self.oracle.raft.writes(node.id, batch.number, &batch.entries)?;
                if self.plan.broken == Broken::AckBeforeSync {
                    node.inputs.push(Input::Persisted { batch: batch.number });
                }
                node.persist(batch);
                self.wake(at, node, "wal", 100, Turn::Wal);
            }
            Effect::Apply(entries) => {
                for committed in entries {
                    self.oracle.committed(node.id, &committed)?;
                    node.apply_queue.push_back(committed);
                }
                self.wake(at, node, "apply", self.plan.apply_wait, Turn::Apply);
            }
            Effect::ReadAt { index, tokens } => {
                let index = if self.plan.broken == Broken::ReadBeforeApplied { 0 } else { index };
                node.reads.extend(tokens.into_iter().map(|token| (index, token)));
                self.serve_reads(at, node)?;
            }
            Effect::Refuse { token, why } => {
                self.trace(at, "refuse", token.0);
                self.refused(at, node, token, why)?;
            }
            Effect::Role(change) => {
                self.trace(at, "role", change.term << 8 | change.role as u64);
                self.stands(at, node, change.role)?;
                node.role(change);
                if let Some(term) = node.leads {
                    self.led_since = self.now;
                    self.oracle.raft.leads(node.id, term)?;
                    if self.plan.broken == Broken::LeaseShortened {
                        node.clock.promote(term, self.lease_ms(at));
                    }
                }
            }
            Effect::Disk(event) => self.decided(at, node, event)?,
            // Never without a mistake: nothing else makes a member forget what it synced.
            Effect::Stop(why) => {
                return Self::violation(format!("member {} stops: {why}", node.id));
            }
            Effect::Truncated { index, .. } => {
                self.report.truncations += 1;
                self.trace(at, "truncate", index);
                node.wal_jobs.push(WalJob::Truncate(index));
                self.wake(at, node, "wal", 100, Turn::Wal);
            }
            Effect::BuildSnapshot { to } => {
                self.trace(at, "build", to);
                let fails = self.healed.is_none() && self.rng.below(8) == 0;
                node.build_snapshot(to, fails)?;
            }
            Effect::Install(meta) => {
                self.trace(at, "install", meta.index);
                self.oracle.raft.reset(node.id, (meta.index, meta.term));
                node.install(meta);
            }
            Effect::Proposed { tokens, .. } => {
                if self.plan.broken == Broken::AckOnPropose {
                    for token in tokens {
                        self.acknowledge(at, token.0)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn apply(&mut self, at: usize, node: &mut Node) -> Result<(), End> {
        let changes = self.oracle.members.changes;
        let done = node.apply_turn(&mut self.oracle)?;
        debug_assert_eq!(changes, self.oracle.members.changes, "applying decides nothing");
        for done in done {
            self.trace(at, "applied", done.index);
            let delay = 50 + self.rng.below(2 * MS);
            self.turn_in(at, delay, Turn::Answer(done));
        }
        if node.removed {
            self.removed(at);
        }
        if !node.apply_queue.is_empty() || node.compacting() {
            self.wake(at, node, "apply", 500, Turn::Apply);
        }
        if !node.hub_queue.is_empty() {
            self.wake(at, node, "hub", MS, Turn::Hub);
        }
        self.wake_store(at, node);
        self.wake_node(at, node);
        self.serve_reads(at, node)
    }

    /// Expired leases become proposals to revoke them, remaining times become checkpoints.
    fn expire(&mut self, at: usize, node: &mut Node) {
        let now = self.lease_ms(at);
        for expired in node.clock.expired(now, 16) {
            if self.plan.broken == Broken::RevokeForgotten && expired.id == 3 {
                continue;
            }
            let revoke = workload::revoke(expired.id);
            let id = self.propose_in(at, node, revoke, Some(expired.term));
            if let Some(granted) = self.oracle.leases.life(expired.id, node.applied) {
                self.oracle.leases.meant.insert(id, granted);
            }
            let life = self.members[at].life;
            self.expiring.insert(id, (at, life, expired.id));
        }
        let checkpoints = node.clock.checkpoints(now);
        if !checkpoints.is_empty() {
            let term = node.clock.leads();
            self.propose_in(at, node, workload::checkpoint(&checkpoints), term);
        }
    }

    /// Tells the core that something could not be delivered.
    pub(super) fn unreachable(&mut self, at: usize, node: &mut Node, to: u64, kind: WireKind) {
        match kind {
            WireKind::Snapshot => node.inputs.push(Input::SnapshotSent { to, ok: false }),
            _ => node.inputs.push(Input::Unreachable(to)),
        }
        self.wake_node(at, node);
    }

    /// A member that applied its own removal stops soon.
    fn removed(&mut self, at: usize) {
        if self.removals.insert(at) {
            let delay = self.rng.below(3 * self.plan.election());
            self.push(delay, Event::Retire(at));
        }
    }

    /// Asks for a read; with a term, only as the leader of that term.
    pub(super) fn read_input(&mut self, at: usize, node: &mut Node, term: Option<u64>) -> u64 {
        self.next_id += 1;
        let token = Token(self.next_id);
        node.inputs.push(match term {
            Some(term) => Input::ReadInTerm { token, term },
            None => Input::Read { token },
        });
        self.wake_node(at, node);
        self.next_id
    }

    pub(super) fn violation<T>(text: String) -> Result<T, End> {
        Err(End::Broken(Violation(text)))
    }
}
