//! One event after the other: the turns of the virtual threads and what they hand on.

use assay::consensus::{ChangeOp, Effect, Input, MemberChange, Token, Wire};
use bytes::Bytes;

use super::super::node::{Broken, End, LEARNER, MEMBER, Node, WalJob};
use super::super::oracle::Violation;
use super::{Event, Fate, MS, Next, TICK, World, check_end};

impl World {
    pub(super) fn dispatch(&mut self, node: &mut Node, event: Event) -> Result<Next, End> {
        match event {
            Event::Tick => {
                self.push(TICK, Event::Tick);
                node.inputs.push(Input::Tick);
                self.expire(node)?;
                self.node_turn(node)?;
            }
            Event::Node => {
                self.queued.remove("node");
                self.node_turn(node)?;
            }
            Event::Wal => {
                self.queued.remove("wal");
                if !node.wal_busy && !node.wal_jobs.is_empty() {
                    let (newest, term) = node.wal_turn()?;
                    self.trace("wal", newest.unwrap_or(0));
                    node.wal_busy = true;
                    let delay = self.disk_delay(8 * MS);
                    self.push(delay, Event::WalDone { newest, term });
                }
            }
            Event::WalDone { newest, term } => {
                node.wal_busy = false;
                node.durable_term = node.durable_term.max(term);
                if let Some(batch) = newest
                    && self.settings.broken != Broken::AckBeforeSync
                {
                    node.inputs.push(Input::Persisted { batch });
                    self.wake("node", 200, Event::Node);
                }
                if !node.wal_jobs.is_empty() {
                    self.wake("wal", 50, Event::Wal);
                }
            }
            Event::Apply => {
                self.queued.remove("apply");
                self.apply(node)?;
            }
            Event::Deadline => {
                let delay = 20 * MS + self.rng.below(80 * MS);
                self.push(delay, Event::Deadline);
                node.freeze();
                if !node.store_queue.is_empty() {
                    self.wake("store", 500, Event::Store);
                }
            }
            Event::Store => {
                self.queued.remove("store");
                if !node.store_busy && node.store_turn()? {
                    self.trace("store", node.shared.durable().0);
                    node.store_busy = true;
                    let delay = self.disk_delay(40 * MS);
                    self.push(delay, Event::StoreDone);
                }
            }
            Event::StoreDone => {
                node.store_busy = false;
                node.store_done();
                self.wake("node", 200, Event::Node);
                if !node.store_queue.is_empty() {
                    self.wake("store", 500, Event::Store);
                }
            }
            Event::Hub => {
                self.queued.remove("hub");
                self.streams.hub_turn(node)?;
                if self.streams.lags(node) {
                    self.wake("hub", 3 * MS, Event::Hub);
                }
            }
            Event::Client(at) => self.client(node, at),
            Event::Answer(done) => self.answered(&done),
            Event::Reader => self.reader(node)?,
            Event::Renew => self.renew(node),
            Event::Drain(at) => {
                let delay = 1 + self.one_of(10, 200 * MS, 10 * MS);
                self.push(delay, Event::Drain(at));
                if self.streams.drain(at, node, self.now_ms(), &mut self.rng, &self.oracle.model)? {
                    self.wake("hub", 200, Event::Hub);
                }
            }
            Event::ToLearner(wire) => self.reach_learner(wire)?,
            Event::ToNode(wire) => {
                node.inputs.push(Input::Wire(wire));
                self.wake("node", 50, Event::Node);
            }
            Event::Check => {
                self.push(40 * MS, Event::Check);
                return self.look(node);
            }
            Event::Die => {
                let close = matches!(self.fate, Fate::Close(_));
                return Ok(if close { Next::Close } else { Next::Kill });
            }
        }
        Ok(Next::Live)
    }

    pub(super) fn node_turn(&mut self, node: &mut Node) -> Result<(), End> {
        let mut effects = Vec::new();
        node.node_turn(self.now_ms(), &mut effects);
        for effect in effects {
            self.effect(node, effect)?;
        }
        if !node.inputs.is_empty() {
            self.wake("node", 50, Event::Node);
        }
        Ok(())
    }

    pub(super) fn effect(&mut self, node: &mut Node, effect: Effect) -> Result<(), End> {
        match effect {
            Effect::Send(wires) => {
                for wire in wires {
                    self.send(node, wire)?;
                }
            }
            Effect::Persist(batch) => {
                self.trace("persist", batch.number);
                if self.settings.broken == Broken::AckBeforeSync {
                    node.inputs.push(Input::Persisted { batch: batch.number });
                }
                node.wal_jobs.push(WalJob::Persist(batch));
                self.wake("wal", 100, Event::Wal);
            }
            Effect::Apply(entries) => {
                for committed in entries {
                    self.oracle.committed(&committed)?;
                    node.apply_queue.push_back(committed);
                }
                self.wake("apply", 300, Event::Apply);
            }
            Effect::ReadAt { index, tokens } => {
                node.reads.extend(tokens.into_iter().map(|token| (index, token)));
                self.serve_reads(node)?;
            }
            Effect::Refuse { token, why } => self.refused(node, token, why),
            Effect::Role(change) => {
                self.trace("role", change.term);
                node.role(change);
            }
            Effect::Truncated { index, .. } => {
                self.report.truncations += 1;
                self.trace("truncate", index);
                node.wal_jobs.push(WalJob::Truncate(index));
                self.wake("wal", 100, Event::Wal);
            }
            Effect::BuildSnapshot { to } => {
                node.inputs.push(Input::SnapshotSent { to, ok: false });
            }
            Effect::Proposed { .. } => {}
            Effect::Install(meta) => {
                return Err(Violation(format!("a sole voter installs {meta:?}")).into());
            }
        }
        Ok(())
    }

    /// Messages never precede their disk state: nobody may hear of a term that is not synced.
    pub(super) fn send(&mut self, node: &Node, wire: Wire) -> Result<(), End> {
        check_end(wire.term() <= node.durable_term, || {
            format!(
                "a {} of term {} left at durable term {}",
                wire.kind().as_str(),
                wire.term(),
                node.durable_term
            )
        })?;
        if wire.to() == LEARNER && self.rng.below(20) > 0 {
            let delay = 100 + self.rng.below(5 * MS);
            self.push(delay, Event::ToLearner(wire));
        }
        Ok(())
    }

    pub(super) fn reach_learner(&mut self, wire: Wire) -> Result<(), End> {
        let now = self.now_ms();
        let Some(learner) = &mut self.learner else { return Ok(()) };
        for answer in learner.receive(wire, now, &mut self.oracle)? {
            if answer.to() == MEMBER {
                let delay = 100 + self.rng.below(5 * MS);
                self.push(delay, Event::ToNode(answer));
            }
        }
        Ok(())
    }

    pub(super) fn apply(&mut self, node: &mut Node) -> Result<(), End> {
        let was_ready = node.ready;
        let asked = &self.asked_revokes;
        let done = node.apply_turn(self.now / MS, &|id| asked.contains(&id), &mut self.oracle)?;
        for done in done {
            self.trace("applied", done.index);
            let delay = 50 + self.rng.below(2 * MS);
            self.push(delay, Event::Answer(done));
        }
        if node.ready && !was_ready {
            self.became_ready(node)?;
        }
        if !node.apply_queue.is_empty() || node.compacting() {
            self.wake("apply", 500, Event::Apply);
        }
        if !node.hub_queue.is_empty() {
            self.wake("hub", MS, Event::Hub);
        }
        if !node.store_queue.is_empty() {
            self.wake("store", 500, Event::Store);
        }
        self.wake("node", 200, Event::Node);
        self.serve_reads(node)
    }

    /// The first entry of the own term is applied, so everything before it is: serve.
    pub(super) fn became_ready(&mut self, node: &mut Node) -> Result<(), End> {
        self.trace("ready", node.applied);
        check_end(node.applied >= self.oracle.acked, || {
            format!("ready at {} although {} was acknowledged", node.applied, self.oracle.acked)
        })?;
        // Only now: an earlier leader's revoke may be among the entries before it.
        if let Some(term) = node.leads {
            node.clock.promote(term, self.now / MS);
        }
        if self.settings.learner && !node.core.status().conf_state.contains(LEARNER) {
            self.next_token += 1;
            let context =
                Bytes::from_static(br#"{"id":2,"peerURLs":["http://localhost:1"],"name":"l"}"#);
            let change = MemberChange::one(self.next_token, ChangeOp::AddLearner, LEARNER, context);
            node.inputs.push(Input::Change { token: Token(self.next_token), change });
        }
        Ok(())
    }
}
