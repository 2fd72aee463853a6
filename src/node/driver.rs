//! The `node` thread: drains everything that waits, calls the core once, carries out the effects.
//!
//! It owns the core and the lease clock, never blocks on a queue and never touches a file. A lone
//! request does not wake it: the edge thread that has it, or the WAL thread that has nothing else
//! to write, takes the turn (see [`super::lane`]).

use super::answers::{Answers, Turn, send};
use super::disk_watch::DiskWatch;
use super::handle::{Inner, Refused};
use super::input::{
    ApplyInput, BarrierReply, InTerm, NodeInput, Persisted, Proposal, Stamps, Waiter, WalInput,
};
use super::lane::{Lane, Taker, Turns};
use super::leadership::Leadership;
use super::leases::checkpoint;
use super::parked::Parked;
use super::replication::Replication;
use super::snapshot_out::SnapshotOut;
use super::wal_thread::weight;
use crate::consensus::{
    Batch, Committed, Core, Effect, Input, Refusal, SnapshotMeta, Token, Wire, WireKind,
};
use crate::lease;
use crate::machine::LeaseChange;
use crate::proto::etcdserverpb::alarm_request::AlarmAction;
use crate::proto::etcdserverpb::{
    AlarmRequest, AlarmType, InternalRaftRequest, LeaseRevokeRequest, RequestHeader,
};
use crate::telemetry::clock;
use crate::telemetry::stage::{Outcome, Stage};
use prost::Message as _;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that may wait for the WAL thread before proposals are refused (`architecture.md` 4).
const WAL_CREDIT_BYTES: usize = 64 << 20;
/// Bytes of rows that may wait for the store thread before proposals are refused.
pub const STORE_PENDING_MAX_BYTES: usize = 256 << 20;
/// Expired leases proposed for revocation per turn at most; the clock itself hands out no more
/// than 500 per half second, which is etcd's 1,000 per second.
const REVOKES_PER_TURN: usize = 500;
/// Pause before a refused revoke is proposed again.
const REVOKE_RETRY_MS: u64 = 1000;
/// Inputs that a guest takes at most: what a few clients cause, not what a queue holds.
const GUEST_INPUTS_MAX: usize = 8;
const NS_PER_MS: u64 = 1_000_000;

/// What the thread needs.
pub(super) struct Driver {
    pub(super) core: Core,
    pub(super) clock: lease::Clock,
    pub(super) lease_options: lease::ClockOptions,
    pub(super) snapshots: Arc<Lane<SnapshotOut>>,
    pub(super) inner: Arc<Inner>,
    pub(super) wal: Arc<Lane<WalInput>>,
    pub(super) credit: Arc<AtomicUsize>,
    pub(super) answers: Answers,
    pub(super) disk: DiskWatch,
    pub(super) applied: u64,
    pub(super) durable: u64,
}

/// State of the loop.
struct Loop {
    driver: Driver,
    leadership: Leadership,
    replication: Replication,
    next_token: u64,
    /// Commands of this turn, by rising token.
    proposals: Vec<(Token, Option<Proposal>)>,
    /// Reads until the core answers or drops them, by token: the oldest is the first.
    reads: BTreeMap<Token, BarrierReply>,
    /// Expiry's own proposals: request id to lease.
    revokes: BTreeMap<u64, i64>,
    /// Batches handed to the WAL: number and last index.
    in_flight: VecDeque<(u64, u64)>,
    /// Stamps of persisted stretches that were not handed to apply yet.
    stamps: VecDeque<Stamps>,
    /// Everything up to this index is on disk here.
    persisted: u64,
    /// Something was put into the lane of the apply thread that it is not woken for yet.
    apply_waits: bool,
    /// The same of the WAL thread.
    wal_waits: bool,
    /// While a snapshot is being installed: the batch that belongs behind it.
    behind_snapshot: Option<Option<Batch>>,
    /// Commands that wait for a leader.
    parked: Parked,
    /// The leader, 0 if none is known.
    leader: u64,
    tick_ns: u64,
}

impl Driver {
    /// Body of the thread.
    pub(super) fn run(self) {
        let lane = self.inner.node.clone();
        let heartbeat_ns = self.inner.timing.heartbeat_ms * NS_PER_MS;
        let state = Loop {
            replication: Replication::new(&self.inner),
            leadership: Leadership::new(&self.inner),
            driver: self,
            next_token: 0,
            proposals: Vec::new(),
            reads: BTreeMap::new(),
            revokes: BTreeMap::new(),
            in_flight: VecDeque::new(),
            stamps: VecDeque::new(),
            persisted: 0,
            apply_waits: false,
            wal_waits: false,
            behind_snapshot: None,
            parked: Parked::default(),
            leader: 0,
            tick_ns: clock::now_ns() + heartbeat_ns,
        };
        let (events, effects) = (Vec::new(), Vec::new());
        lane.run(Box::new(Seated { state, heartbeat_ns, events, effects }));
    }
}

/// The loop and its buffers, as its lane keeps them.
struct Seated {
    state: Loop,
    heartbeat_ns: u64,
    events: Vec<Input>,
    effects: Vec<Effect>,
}

impl Turns<NodeInput> for Seated {
    fn due_ns(&self) -> Option<u64> {
        // Commands that waited for a leader go on at once when there is one.
        let retry = self.state.leader != 0 && !self.state.parked.is_empty();
        Some(if retry { 0 } else { self.state.tick_ns })
    }

    fn takes(&self, _: Taker, inputs: &[NodeInput]) -> bool {
        inputs.iter().map(NodeInput::parts).sum::<usize>() <= GUEST_INPUTS_MAX
            && !inputs.iter().any(|input| matches!(input, NodeInput::Stop))
    }

    fn turn(&mut self, taker: Taker, inputs: &mut Vec<NodeInput>) -> bool {
        let stop = self.state.turn(self.heartbeat_ns, inputs, &mut self.events, &mut self.effects);
        // The WAL thread offers to apply by itself.
        if std::mem::take(&mut self.state.apply_waits) && taker != Taker::Wal {
            self.state.driver.inner.apply.wake();
        }
        stop
    }
}

impl Loop {
    /// One turn; true at the end.
    fn turn(
        &mut self,
        heartbeat_ns: u64,
        inputs: &mut Vec<NodeInput>,
        events: &mut Vec<Input>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let answers = self.driver.answers.clone();
        let mut turn = answers.turn();
        let now_ns = clock::now_ns();
        let now = now_ns / NS_PER_MS;
        let mut stop = false;
        if now_ns >= self.tick_ns {
            // Ticks never accumulate: after a pause the core gets one, so that a suspended machine
            // does not start an election when it wakes.
            if now_ns > self.tick_ns + heartbeat_ns {
                self.driver.inner.metrics.late_ticks.fetch_add(1, Relaxed);
                self.leadership.paused(now_ns - self.tick_ns);
            }
            let late_ns = now_ns - self.tick_ns;
            self.tick_ns = now_ns + heartbeat_ns;
            events.push(Input::OwnDisk(self.driver.disk.tick(now_ns, late_ns)));
            events.push(Input::Tick);
            self.give_up_reads();
            self.parked.sweep();
            if std::mem::take(&mut self.wal_waits) {
                self.driver.wal.wake();
            }
        }
        if self.leader != 0 {
            for proposal in self.parked.take() {
                self.propose(proposal, None, events);
            }
        }
        for input in inputs.drain(..) {
            stop |= self.input(input, now, events);
        }
        if events.iter().any(|event| matches!(event, Input::Tick)) {
            self.expire(now, events);
        }
        self.set_backpressure();
        let proposed_ns = clock::now_ns();
        self.driver.core.step(now, events, effects);
        for effect in effects.drain(..) {
            self.effect(effect, now_ns, &mut turn);
        }
        self.replication.turn(self.leadership.term_led().is_some(), self.driver.core.positions());
        self.hand_over_waiters(proposed_ns);
        self.driver.disk.turned(&self.driver.core);
        stop
    }

    fn input(&mut self, input: NodeInput, now: u64, events: &mut Vec<Input>) -> bool {
        match input {
            NodeInput::Propose(proposal) => {
                self.driver.inner.waiting.leave(proposal.data.len());
                self.propose(proposal, None, events);
            }
            NodeInput::Read { term, reply } => {
                let token = self.token();
                self.reads.insert(token, reply);
                events.push(match term {
                    Some(term) => Input::ReadInTerm { token, term },
                    None => Input::Read { token },
                });
            }
            NodeInput::Persisted(persisted) => {
                self.stamp(persisted);
                events.push(Input::Persisted { batch: persisted.batch });
            }
            NodeInput::Applied { index, term, leases } => {
                self.driver.applied = index;
                for change in leases {
                    self.lease_changed(change, now);
                }
                self.lead_leases(term, now);
                events.push(Input::Applied { index, durable: self.driver.durable });
            }
            NodeInput::Durable(index) => {
                self.driver.durable = index;
                events.push(Input::Applied { index: self.driver.applied, durable: index });
            }
            NodeInput::LeaseRenew { id, reply } => {
                let renewal = self.driver.clock.renew(id, now);
                if matches!(renewal, lease::Renewal::Renewed { .. }) {
                    self.driver.inner.metrics.leases_renewed.fetch_add(1, Relaxed);
                }
                if let lease::Renewal::ClearRemaining = renewal {
                    self.propose_own(checkpoint(vec![(id, 0)]), None, None, events);
                }
                send(reply, self.in_term(renewal));
            }
            NodeInput::LeaseRemaining { id, reply } => {
                send(reply, self.in_term(self.driver.clock.remaining(id, now)));
            }
            NodeInput::LeaseOrder { reply } => send(reply, Ok(self.driver.clock.ordered())),
            NodeInput::OwnFailed { id } => {
                if let Some(lease) = self.revokes.remove(&id) {
                    self.driver.clock.returned(lease, now + REVOKE_RETRY_MS);
                }
            }
            NodeInput::Change { change, proposal } => {
                let token = self.token();
                events.push(Input::Change { token, change });
                self.proposals.push((token, Some(proposal)));
            }
            NodeInput::SnapshotReady { to, meta } => {
                events.push(Input::SnapshotReady { to, meta });
            }
            NodeInput::SnapshotSent { to, ok } => events.push(Input::SnapshotSent { to, ok }),
            NodeInput::SnapshotStaged(meta) => events.push(Input::SnapshotStaged(meta)),
            NodeInput::Snapshot(wire) => events.push(Input::Wire(wire)),
            NodeInput::Installed { meta, leases } => self.installed(meta, leases, events),
            NodeInput::Wires { wires, disk } => {
                self.driver.inner.wires.fetch_sub(wires.len(), Relaxed);
                let now_ns = clock::now_ns();
                self.replication.heard(&wires, now_ns);
                self.leadership.heard(&wires, now_ns);
                events.extend(disk.map(|(of, facts)| Input::PeerDisk { of, facts }));
                events.extend(wires.into_iter().map(Input::Wire));
            }
            NodeInput::Unreachable(id) => events.push(Input::Unreachable(id)),
            NodeInput::TransferLeader(to) => events.push(Input::TransferLeader { to }),
            NodeInput::OverQuota => self.raise_no_space(events),
            // The core is told before every step.
            NodeInput::Fenced => {}
            NodeInput::Stop => return true,
        }
        false
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// What the lease clock said, if it leads: before the timers run "unknown" would be a lie.
    fn in_term<T>(&self, said: T) -> Result<InTerm<T>, Refused> {
        let term = self.driver.clock.leads().ok_or(Refused::NotLeader)?;
        Ok(InTerm { said, term })
    }

    fn propose(&mut self, proposal: Proposal, term: Option<u64>, events: &mut Vec<Input>) {
        let token = self.token();
        let data = proposal.data.clone();
        events.push(match term {
            Some(term) => Input::ProposeInTerm { token, data, term },
            None => Input::Propose { token, data },
        });
        self.proposals.push((token, Some(proposal)));
    }

    /// Proposes a command of the node itself; with a term, only as the leader of that term.
    fn propose_own(
        &mut self,
        mut request: InternalRaftRequest,
        revoke: Option<i64>,
        term: Option<u64>,
        events: &mut Vec<Input>,
    ) {
        let id = self.driver.inner.ids.next();
        request.header = Some(RequestHeader { id, ..RequestHeader::default() });
        if let Some(lease) = revoke {
            self.revokes.insert(id, lease);
        }
        let data = request.encode_to_vec().into();
        let received_ns = clock::now_ns();
        self.propose(Proposal { id, data, received_ns, reply: None }, term, events);
    }

    /// Expired leases become revokes, remaining times become checkpoints: both through the log, so
    /// that every member agrees and no state machine reads a clock.
    fn expire(&mut self, now: u64, events: &mut Vec<Input>) {
        for expired in self.driver.clock.expired(now, REVOKES_PER_TURN) {
            if self.driver.clock.leads() != Some(expired.term) {
                continue;
            }
            self.driver.inner.metrics.leases_expired.fetch_add(1, Relaxed);
            let request = InternalRaftRequest {
                lease_revoke: Some(LeaseRevokeRequest { id: expired.id }),
                ..InternalRaftRequest::default()
            };
            // A turn that ends the leadership must not hand the revoke to the next leader, who gives
            // every lease its full time.
            self.propose_own(request, Some(expired.id), Some(expired.term), events);
        }
        let checkpoints = self.driver.clock.checkpoints(now);
        if !checkpoints.is_empty() {
            self.propose_own(checkpoint(checkpoints), None, self.driver.clock.leads(), events);
        }
    }

    /// One alarm is enough, however many writes ran over the quota meanwhile.
    fn raise_no_space(&mut self, events: &mut Vec<Input>) {
        let member_id = self.driver.inner.identity.member_id;
        let raised = self.driver.inner.reader.alarms().iter().any(|alarm| {
            alarm.member == member_id && alarm.kind == crate::machine::AlarmKind::NoSpace
        });
        if !raised {
            let request = InternalRaftRequest {
                alarm: Some(AlarmRequest {
                    action: AlarmAction::Activate as i32,
                    member_id,
                    alarm: AlarmType::Nospace as i32,
                }),
                ..InternalRaftRequest::default()
            };
            tracing::warn!("the space quota is used up: raising the NOSPACE alarm");
            self.propose_own(request, None, None, events);
        }
    }

    /// Starts the lease timers once an entry of the term that this member leads is applied: before
    /// that a revoke of an earlier term may still wait in the log, and a keep-alive answered
    /// meanwhile would promise what is already lost.
    fn lead_leases(&mut self, applied_term: u64, now: u64) {
        if let Some(term) = self.leadership.term_led()
            && term == applied_term
            && self.driver.clock.leads() != Some(term)
        {
            self.driver.clock.promote(term, now);
        }
    }

    fn lease_changed(&mut self, change: LeaseChange, now: u64) {
        let metrics = &self.driver.inner.metrics;
        match change {
            LeaseChange::Granted { id, ttl } => {
                metrics.leases_granted.fetch_add(1, Relaxed);
                metrics.lease_ttls.record_milli(ttl.unsigned_abs().saturating_mul(1_000));
                self.driver.clock.granted(id, ttl, now);
            }
            LeaseChange::Revoked { id } => {
                metrics.leases_revoked.fetch_add(1, Relaxed);
                self.revokes.retain(|_, lease| *lease != id);
                self.driver.clock.revoked(id);
            }
            LeaseChange::Checkpointed { id, remaining } => {
                self.driver.clock.checkpointed(id, remaining);
            }
        }
    }

    fn set_backpressure(&mut self) {
        let inner = &self.driver.inner;
        let full = self.driver.credit.load(Relaxed) > WAL_CREDIT_BYTES
            || inner.reader.rows().pending_bytes() > STORE_PENDING_MAX_BYTES;
        self.driver.core.set_backpressure(full);
        inner.fence.tell(&mut self.driver.core);
    }

    fn effect(&mut self, effect: Effect, turn_ns: u64, turn: &mut Turn<'_>) {
        match effect {
            Effect::Persist(batch) => match &mut self.behind_snapshot {
                Some(waiting @ None) => *waiting = Some(batch),
                _ => self.persist(batch),
            },
            Effect::Apply(entries) => self.hand_to_apply(entries),
            Effect::ReadAt { index, tokens } => {
                let replies: Vec<_> =
                    tokens.iter().filter_map(|token| self.reads.remove(token)).collect();
                if index <= self.driver.applied {
                    for reply in replies {
                        turn.barrier(reply, Ok(()));
                    }
                } else {
                    let apply = &self.driver.inner.apply;
                    apply.push_quietly(ApplyInput::ReadAt { index, replies });
                    self.apply_waits = true;
                }
            }
            Effect::Refuse { token, why } => self.refused(token, why, turn),
            Effect::Role(change) => {
                self.leader = change.leader;
                self.leadership.changed(&change, turn_ns, &self.driver);
                if self.driver.clock.leads() != self.leadership.term_led() {
                    self.driver.clock.demote();
                }
            }
            Effect::Disk(event) => self.driver.disk.decided(event),
            Effect::Truncated { index, .. } => {
                self.driver.wal.push(WalInput::Truncate { index });
            }
            // Positions are not needed here: callers are found again by their request id.
            Effect::Proposed { .. } => {}
            Effect::Send(wires) => self.send(wires),
            Effect::Stop(why) => super::fatal::stop_for_contradiction(&why),
            Effect::BuildSnapshot { to } => {
                self.driver.snapshots.push(SnapshotOut::Build { to });
            }
            Effect::Install(meta) => {
                self.behind_snapshot = Some(None);
                self.driver.inner.apply.push(ApplyInput::Install(meta));
            }
        }
    }

    fn persist(&mut self, batch: Batch) {
        let last = batch.entries.last().map_or(0, |entry| entry.index);
        self.in_flight.push_back((batch.number, last));
        self.driver.credit.fetch_add(weight(&batch), Relaxed);
        let (wal, urgent) = (&self.driver.wal, batch.sync || last > 0);
        wal.push_quietly(WalInput::Persist(batch));
        match urgent {
            true => wal.wake(),
            // A commit index that moved alone goes with what comes next, or with the next tick.
            false => self.wal_waits = true,
        }
    }

    /// Messages leave; the one that announces a snapshot goes with its rows.
    fn send(&mut self, wires: Vec<Wire>) {
        let mut others = Vec::with_capacity(wires.len());
        for wire in wires {
            match wire.kind() {
                WireKind::Snapshot => self.driver.snapshots.push(SnapshotOut::Stream(wire)),
                _ => others.push(wire),
            }
        }
        self.replication.sent(&others, clock::now_ns());
        self.driver.inner.peers.send(others);
    }

    /// Store and machine hold the snapshot: the log begins anew behind it.
    fn installed(
        &mut self,
        meta: SnapshotMeta,
        leases: Vec<lease::Record>,
        events: &mut Vec<Input>,
    ) {
        self.driver.clock = lease::Clock::new(self.driver.lease_options, leases);
        self.driver.applied = meta.index;
        self.driver.durable = meta.index;
        self.persisted = self.persisted.max(meta.index);
        if let Some(Some(batch)) = self.behind_snapshot.take() {
            let base = (meta.index, meta.term);
            let hard_state = batch.hard_state.unwrap_or_default();
            self.driver.wal.push(WalInput::Reset { base, hard_state });
            self.persist(batch);
        }
        events.push(Input::Installed(meta));
    }

    fn refused(&mut self, token: Token, why: Refusal, turn: &mut Turn<'_>) {
        let error = match why {
            Refusal::NoLeader => Refused::NoLeader,
            Refusal::Overloaded => Refused::TooManyRequests,
            Refusal::Stopping => Refused::Stopping,
            Refusal::NotLeader => Refused::NotLeader,
            Refusal::ChangePending => Refused::ChangePending,
            Refusal::LearnerNotReady => Refused::LearnerNotReady,
            Refusal::UnhealthyQuorum => Refused::Unhealthy,
            Refusal::NoSuchChange => Refused::MemberNotFound,
            Refusal::Dropped => Refused::Dropped,
        };
        let proposal = self
            .proposals
            .binary_search_by_key(&token, |(token, _)| *token)
            .ok()
            .and_then(|at| self.proposals[at].1.take());
        if let Some(mut proposal) = proposal {
            if why == Refusal::NoLeader {
                match self.parked.keep(proposal) {
                    Ok(()) => return,
                    Err(refused) => proposal = refused,
                }
            }
            if let Some(lease) = self.revokes.remove(&proposal.id) {
                self.driver.clock.returned(lease, clock::now_ns() / NS_PER_MS + REVOKE_RETRY_MS);
            }
            match proposal.reply {
                Some(reply) => turn.proposal(reply, Err(error)),
                None => self.driver.inner.metrics.outcome(Outcome::Refused),
            }
        } else if let Some(reply) = self.reads.remove(&token) {
            self.driver.inner.metrics.reads_failed.fetch_add(1, Relaxed);
            turn.barrier(reply, Err(error));
        }
    }

    /// Reads whose callers have gone need no answer any more.
    fn give_up_reads(&mut self) {
        self.reads.retain(|_, reply| !reply.to.is_closed());
    }

    /// Callers of what was not refused wait at the apply thread from here on.
    fn hand_over_waiters(&mut self, proposed_ns: u64) {
        if self.proposals.is_empty() {
            return;
        }
        let waiters = self
            .proposals
            .drain(..)
            .filter_map(|(_, proposal)| proposal)
            .map(|proposal| Waiter {
                id: proposal.id,
                received_ns: proposal.received_ns,
                proposed_ns,
                reply: proposal.reply,
            })
            .collect();
        // Their commands follow in the same lane, once they are on disk.
        self.driver.inner.apply.push_quietly(ApplyInput::Waiters(waiters));
    }

    fn stamp(&mut self, persisted: Persisted) {
        while let Some((number, last)) = self.in_flight.front().copied() {
            if number > persisted.batch {
                break;
            }
            self.in_flight.pop_front();
            if last > 0 {
                self.persisted = last;
                self.stamps.push_back(Stamps {
                    index: last,
                    written_ns: persisted.written_ns,
                    synced_ns: persisted.synced_ns,
                });
            }
        }
        self.driver.inner.metrics.persisted.store(self.persisted, Relaxed);
    }

    fn hand_to_apply(&mut self, entries: Vec<Committed>) {
        let Some(last) = entries.last().map(|committed| committed.entry.index) else { return };
        self.driver.inner.metrics.committed.fetch_max(last, Relaxed);
        let mut stamps = Vec::new();
        while self.stamps.front().is_some_and(|stamp| stamp.index <= last) {
            stamps.extend(self.stamps.pop_front());
        }
        // A stretch may be handed over in parts: the rest of it keeps its stamps.
        stamps.extend(self.stamps.front());
        let handed_ns = clock::now_ns();
        let entries = ApplyInput::Entries { entries, handed_ns, stamps };
        self.driver.inner.apply.push_quietly(entries);
        self.apply_waits = true;
    }
}

/// Records how long an answer took to reach its caller; called where it is received.
pub(super) fn answered(inner: &Inner, received_ns: u64, applied_ns: u64) {
    let now = clock::now_ns();
    inner.metrics.stage(Stage::Answer, now.saturating_sub(applied_ns));
    inner.metrics.stage(Stage::Total, now.saturating_sub(received_ns));
}
