//! The core: one member's part of the consensus, without clock, thread, socket or file.
//!
//! A step takes everything that happened, tells the raft library in a fixed order, and then takes
//! turns with it until it has nothing more to say (`turn.rs`). Requests of clients are in
//! `requests.rs`. The order of the calls is the whole point of this module; each rule that keeps
//! it can be broken by [`BrokenRule`] and is then caught by the simulator.

use super::config::{
    self, APPLY_LAG_BYTES_MAX, APPLY_LAG_ENTRIES_MAX, BrokenRule, Config,
    JOINT_ELECTION_TIMEOUTS_MAX,
};
use super::contradiction::Contradiction;
use super::disk::Disks;
use super::fence::Fences;
use super::held::Held;
use super::log::{self, Log, StartRules};
use super::reads::Reads;
use super::requests::Requests;
use super::snapshots::{Incoming, Patience};
use super::types::{
    Effect, Error, HardState, Input, Millis, NewLog, NodeId, Refusal, Restored, Role, RoleChange,
    SnapshotMeta,
};
use super::wire::{Wire, WireKind};
use super::{change, conf::ConfState};
use raft::{RawNode, ReadOnlyOption, SnapshotStatus, StateRole, eraftpb};
use std::collections::{BTreeMap, VecDeque};

/// Time after which a snapshot that nobody fetches, or a follower that acknowledges nothing behind
/// its snapshot, no longer pins the log, in election timeouts.
const SNAPSHOT_PATIENCE_ELECTION_TIMEOUTS: u64 = 10;
/// The same for a follower that puts a snapshot in place: it reads all rows and builds its index,
/// which takes a minute or two for the largest stores. What the log may grow to meanwhile is bounded
/// in bytes.
const INSTALL_PATIENCE_ELECTION_TIMEOUTS: u64 = 180;
/// Voters among which, without the leader, there are two at most.
const VOTERS_WITH_ONE_RIVAL: usize = 3;
/// Bytes of entries that a member without others keeps: nobody lags behind, and a first other
/// member that has more to catch up with is better served by a snapshot.
const LONE_LOG_CACHE_BYTES: usize = 8 << 20;

/// A snapshot between [`Effect::Install`] and [`Input::Installed`].
pub(super) struct Installing {
    pub(super) meta: SnapshotMeta,
    /// The batch that belongs behind it.
    pub(super) batch: u64,
    pub(super) persisted: bool,
    pub(super) installed: bool,
}

/// Consensus of one member. See the module's documentation for the contract with the shell.
pub struct Core {
    pub(super) raft: RawNode<Log>,
    pub(super) config: Config,
    /// Newest configuration that was handed out.
    pub(super) conf: ConfState,
    /// Newest hard state that was given to the disk.
    pub(super) hard_state: HardState,
    pub(super) held: Held,
    pub(super) reads: Reads,
    pub(super) requests: Requests,
    /// Index of the last entry given to the state machine.
    pub(super) handed: u64,
    /// Last index and bytes of what the state machine has not applied yet.
    pub(super) unapplied: VecDeque<(u64, usize)>,
    pub(super) unapplied_bytes: usize,
    pub(super) applied: u64,
    pub(super) durable: u64,
    pub(super) installing: Option<Installing>,
    incoming: Incoming,
    /// Announced last.
    pub(super) role: RoleChange,
    /// Set by the shell while the write-ahead log has no credit left.
    pub(super) backpressure: bool,
    /// See `fence.rs`.
    pub(super) fences: Fences,
    /// An election is to be held as soon as it is safe.
    campaign: bool,
    pub(super) ticks: u64,
    /// Tick at which each peer was heard last.
    pub(super) heard: BTreeMap<NodeId, u64>,
    /// What is known about disks, the own one and others'.
    pub(super) disks: Disks,
    /// Tick at which this leader found itself in a joint configuration.
    joint_since: Option<u64>,
    /// Term in which this member stood because its leader told it to; 0: never.
    pub(super) told_in: u64,
    new_log: Option<NewLog>,
    /// What ended this core.
    contradiction: Option<Contradiction>,
    /// Leave at the end of the inputs.
    remarks: Vec<Wire>,
}

impl Core {
    /// Builds a core from what the disks hold. The store decides: a log that does not contain the
    /// applied position is dropped, and the hard state is raised to that position.
    ///
    /// # Errors
    /// [`Error`] if a setting is out of range or the restored state contradicts itself.
    pub fn new(config: &Config, restored: Restored) -> Result<Core, Error> {
        config.check()?;
        let rules = StartRules {
            drop_foreign_log: !config.breaks(BrokenRule::KeepForeignLog),
            raise_hard_state: !config.breaks(BrokenRule::KeepOldHardState),
        };
        let start = log::start(restored, &rules)?;
        let library = raft::Config {
            id: config.id,
            applied: start.applied.0,
            election_tick: config.election_tick,
            heartbeat_tick: config.heartbeat_tick,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            max_size_per_msg: config::MESSAGE_BYTES_MAX,
            max_inflight_msgs: config::MESSAGES_IN_FLIGHT_MAX,
            max_uncommitted_size: config::UNCOMMITTED_BYTES_MAX,
            max_committed_size_per_ready: config::COMMITTED_BYTES_PER_TURN_MAX,
            ..raft::Config::default()
        };
        let raft = RawNode::new(&library, start.log, &config.logger)
            .map_err(|e| Error::Library(e.to_string()))?;
        let role = RoleChange { role: Role::Follower, term: start.hard_state.term, leader: 0 };
        let new_log =
            start.dropped.then_some(NewLog { base: start.applied, hard_state: start.hard_state });
        let applied = start.applied.0;
        let mut core = Core {
            raft,
            conf: start.conf_state,
            hard_state: start.hard_state,
            held: Held::default(),
            reads: Reads::new(config.id, config.boot),
            requests: Requests::default(),
            handed: applied,
            unapplied: VecDeque::new(),
            unapplied_bytes: 0,
            applied,
            durable: applied,
            installing: None,
            incoming: Incoming::default(),
            role,
            backpressure: false,
            fences: Fences::default(),
            campaign: false,
            ticks: 0,
            heard: BTreeMap::new(),
            disks: Disks::default(),
            joint_since: None,
            told_in: 0,
            new_log,
            contradiction: None,
            remarks: Vec::new(),
            config: config.clone(),
        };
        core.fix_election_timeout();
        Ok(core)
    }

    /// Takes in everything that happened and says everything that must be done, in order.
    ///
    /// `inputs` is emptied, `out` is added to. After [`Effect::Stop`] nothing more is said.
    ///
    /// # Panics
    /// If an input reports something that never was asked for: going on would lose data.
    pub fn step(&mut self, now: Millis, inputs: &mut Vec<Input>, out: &mut Vec<Effect>) {
        let mut tick = false;
        let mut persisted = 0;
        let (mut applied, mut durable) = (0, 0);
        for input in inputs.drain(..) {
            if self.contradiction.is_some() {
                continue;
            }
            match input {
                Input::Tick => tick = true,
                Input::Propose { token, data } => self.requests.propose(token, data),
                Input::ProposeInTerm { token, data, term } => {
                    self.requests.propose_in_term(token, data, term);
                }
                Input::Change { token, change } => self.requests.change(token, change),
                Input::Read { token } => self.reads.add(token, None, now),
                Input::ReadInTerm { token, term } => self.reads.add(token, Some(term), now),
                Input::Wire(wire) => self.wire(wire),
                Input::OwnDisk(own) => self.own_disk(own),
                Input::PeerDisk { of, facts } => self.peer_disk(of, facts),
                Input::Persisted { batch } => persisted = batch.max(persisted),
                Input::Applied { index, durable: on_disk } => {
                    applied = index.max(applied);
                    durable = on_disk.max(durable);
                }
                Input::SnapshotReady { to, meta } => {
                    self.raft.mut_store().outgoing.get_mut().ready(to, meta);
                }
                Input::SnapshotSent { to, ok } => self.snapshot_sent(to, ok),
                Input::SnapshotStaged(meta) => {
                    if let Some(wire) = self.incoming.staged(meta) {
                        self.hand_to_library(wire);
                    }
                }
                Input::Installed(meta) => self.installed(&meta, out),
                Input::Unreachable(peer) => self.raft.report_unreachable(peer),
                Input::TransferLeader { to } => {
                    if self.leads() {
                        self.raft.transfer_leader(to);
                    }
                }
            }
            self.fix_election_timeout();
            if let Some(contradiction) = self.contradiction {
                out.push(Effect::Stop(contradiction));
            }
        }
        if self.contradiction.is_some() {
            return;
        }
        send(std::mem::take(&mut self.remarks), out);
        if persisted > 0 {
            self.persisted(persisted, out);
        }
        self.applied(applied, durable);
        if tick {
            self.tick(now, out);
        }
        self.try_campaign();
        self.offer_requests(now, out);
        self.settle(out);
        self.announce(now, out);
        self.truncate(out);
    }

    /// Tells the core whether the write-ahead log has no credit left. While it has none, proposals
    /// are refused; messages and acknowledgements still flow.
    pub fn set_backpressure(&mut self, on: bool) {
        self.backpressure = on;
    }

    /// Where the log on disk must begin anew before the first batch is written to it, if the restored
    /// one was dropped because it does not contain the applied position.
    pub fn new_log(&self) -> Option<NewLog> {
        self.new_log
    }

    /// Asks for an election without waiting for a timeout, if this member is the only voter. Held
    /// by a following step, once everything is applied and on disk.
    pub fn campaign(&mut self) {
        self.campaign = true;
    }

    pub(super) fn leads(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// Whether new proposals must wait until disk or state machine have caught up.
    pub(super) fn overloaded(&self) -> bool {
        self.backpressure
            || self.log_is_full()
            || self.unapplied_bytes > APPLY_LAG_BYTES_MAX
            || self.raft.raft.raft_log.committed.saturating_sub(self.applied)
                > APPLY_LAG_ENTRIES_MAX
    }

    /// Whether the log in memory has reached its bound and nothing of it can be dropped, because the
    /// store has not made it durable. Only while the store has something to do: it gets room then,
    /// whatever the other members say.
    fn log_is_full(&self) -> bool {
        self.durable < self.handed && self.raft.store().bytes() > self.config.log_bytes_max
    }

    /// The library draws its election timeout from a generator of its own. Overwriting it with a
    /// pure function of seed, node and term makes runs repeatable.
    pub(super) fn fix_election_timeout(&mut self) {
        let raft = &self.raft.raft;
        let mut z = self.config.seed
            ^ raft.id.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ raft.term.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        let base = self.config.election_tick;
        let timeout = self.election_timeout(base + (z % base as u64) as usize);
        self.raft.raft.set_randomized_election_timeout(timeout);
    }

    /// While a snapshot is being installed, the log positions of before are gone and those behind
    /// it are not here yet. The library would abort at the next election attempt.
    fn deaf(&self) -> bool {
        self.installing.is_some() && !self.config.breaks(BrokenRule::TickWhileInstalling)
    }

    /// A sole voter elects itself within the call that starts the election, and the library asserts
    /// that its whole log is on disk then.
    fn must_not_stand_for_election(&self) -> bool {
        let log = &self.raft.raft.raft_log;
        !self.leads()
            && self.raft.raft.prs().is_singleton()
            && log.persisted < log.last_index()
            && !self.config.breaks(BrokenRule::LoneTick)
    }

    fn wire(&mut self, wire: Wire) {
        if self.deaf() || wire.to() != self.config.id {
            return;
        }
        self.heard.insert(wire.from(), self.ticks);
        match wire.kind() {
            WireKind::Snapshot => {
                // Before all its rows are fetched for nothing.
                self.contradiction = self.contradiction(&wire);
                if self.contradiction.is_some() {
                    return;
                }
                if let Some(wire) = self.incoming.message(wire) {
                    self.hand_to_library(wire);
                }
            }
            kind if self.turns_away(kind) => {}
            kind @ (WireKind::Vote | WireKind::PreVote) => {
                let behind = self.asked_for_a_vote(&wire);
                self.hand_to_library(wire);
                if behind && kind == WireKind::PreVote {
                    self.stands_instead();
                }
            }
            WireKind::TimeoutNow if self.must_not_stand_for_election() => {}
            // It could not write its own vote down, and would only disturb the leader it has.
            WireKind::TimeoutNow if self.disk_hangs() => {}
            WireKind::TimeoutNow => self.told_to_stand(wire),
            // A forwarded proposal that is lost ends as a timeout at the member that sent it.
            WireKind::Propose if self.overloaded() => {}
            // Lost like any other message that meets a full queue: the leader sends it again.
            WireKind::Append if self.log_is_full() => {}
            _ => self.hand_to_library(wire),
        }
    }

    /// The leader gives leadership to this member.
    fn told_to_stand(&mut self, wire: Wire) {
        let before = self.raft.raft.term;
        self.hand_to_library(wire);
        let raft = &self.raft.raft;
        if raft.term > before && matches!(raft.state, StateRole::Candidate | StateRole::Leader) {
            self.told_in = raft.term;
        }
    }

    /// A member that lacks entries asked for a vote, in vain. If this member misses the leader as well
    /// it is the one that can win, and stands at the next tick instead of at the end of its own timeout.
    /// Among more than three voters several would, and get in each other's way.
    fn stands_instead(&mut self) {
        let few = self.conf.voters.len() <= VOTERS_WITH_ONE_RIVAL && !self.conf.is_joint();
        let raft = &mut self.raft.raft;
        let base = self.config.election_tick;
        if few && raft.state == StateRole::Follower && raft.election_elapsed >= base {
            let due = raft.randomized_election_timeout() - 1;
            raft.election_elapsed = raft.election_elapsed.max(due);
        }
    }

    fn hand_to_library(&mut self, wire: Wire) {
        if self.deaf() {
            return;
        }
        self.contradiction = self.contradiction(&wire);
        if self.contradiction.is_some() {
            return;
        }
        if self.acknowledges_too_much(&wire) {
            self.remarks.extend(self.show_end_of_log(&wire));
            return;
        }
        // An error means that the message is stale or its sender unknown; raft tolerates loss.
        let _ = self.raft.step(wire.0);
    }

    fn tick(&mut self, now: Millis, out: &mut Vec<Effect>) {
        for token in self.reads.tick(now) {
            out.push(Effect::Refuse { token, why: Refusal::Dropped });
        }
        if self.deaf() {
            return;
        }
        self.ticks += 1;
        if !self.must_not_stand_for_election() && !self.puts_election_off() && !self.stands_back() {
            self.raft.tick();
            self.fix_election_timeout();
        }
        self.forget_silent_leader();
        self.hand_over_if_fenced();
        let matched: BTreeMap<NodeId, u64> =
            self.raft.raft.prs().iter().map(|(id, p)| (*id, p.matched)).collect();
        let election = self.config.election_tick as u64;
        let patience = Patience {
            progress: SNAPSHOT_PATIENCE_ELECTION_TIMEOUTS * election,
            install: INSTALL_PATIENCE_ELECTION_TIMEOUTS * election,
        };
        // Half of the tail: the other half gives time to fetch what is written from now on.
        let (entries, bytes) = (self.config.log_cache_entries / 2, self.config.log_cache_bytes / 2);
        let log = self.raft.store();
        log.outgoing.borrow_mut().tick(
            patience,
            |id| matched.get(&id).copied().unwrap_or(0),
            |index| log.is_close(index, entries, bytes),
        );
        self.leave_joint();
        self.watch_own_disk(now, out);
    }

    /// The library can miss leaving a joint configuration when leadership changed in between.
    fn leave_joint(&mut self) {
        if !self.leads() || !self.conf.is_joint() {
            self.joint_since = None;
            return;
        }
        let since = *self.joint_since.get_or_insert(self.ticks);
        let patience = JOINT_ELECTION_TIMEOUTS_MAX * self.config.election_tick as u64;
        if self.ticks - since > patience && !self.raft.raft.has_pending_conf() {
            // Dropped while leadership is handed over; tried again after the same time.
            let _ = self.raft.propose_conf_change(vec![], eraftpb::ConfChangeV2::default());
            self.joint_since = None;
            self.fix_election_timeout();
        }
    }

    fn try_campaign(&mut self) {
        if !self.campaign || self.deaf() {
            return;
        }
        let settled = self.handed == self.raft.raft.raft_log.committed && self.busy().is_none();
        let alone = self.conf.voters == [self.config.id] && !self.conf.is_joint();
        let impossible = !self.conf.voters.is_empty() && !alone;
        if self.leads() || impossible {
            self.campaign = false;
        } else if settled && alone && !self.must_not_stand_for_election() {
            self.campaign = false;
            // The only error is a message of the wrong kind.
            let _ = self.raft.campaign();
            self.fix_election_timeout();
        }
    }

    /// What is still under way to the disk or the state machine, if anything.
    pub(super) fn busy(&self) -> Option<&'static str> {
        if !self.held.is_empty() {
            return Some("a batch is not on disk");
        }
        (self.applied < self.handed).then_some("an entry is not applied")
    }

    fn persisted(&mut self, batch: u64, out: &mut Vec<Effect>) {
        if let Some(installing) = &mut self.installing {
            installing.persisted |= batch >= installing.batch;
            self.finish_install(out);
            return;
        }
        if let Some((turn, messages)) = self.held.release(batch) {
            self.raft.on_persist_ready(turn);
            self.fix_election_timeout();
            send(messages, out);
        }
    }

    fn applied(&mut self, index: u64, durable: u64) {
        assert!(index <= self.handed, "applied {index} was not handed out ({})", self.handed);
        self.durable = self.durable.max(durable);
        if index <= self.applied || self.installing.is_some() {
            return;
        }
        self.applied = index;
        while let Some((_, bytes)) = self.unapplied.pop_front_if(|(last, _)| *last <= index) {
            self.unapplied_bytes -= bytes;
        }
        self.raft.advance_apply_to(index);
        self.fix_election_timeout();
    }

    fn installed(&mut self, meta: &SnapshotMeta, out: &mut Vec<Effect>) {
        let Some(installing) = &mut self.installing else { return };
        if installing.meta == *meta {
            installing.installed = true;
            self.finish_install(out);
        }
    }

    /// Store and log hold the snapshot: from here on the node lives behind it.
    fn finish_install(&mut self, out: &mut Vec<Effect>) {
        let Some(done) = self.installing.take_if(|i| i.persisted && i.installed) else { return };
        let released = self.held.release(done.batch);
        if let Some((turn, _)) = &released {
            self.raft.on_persist_ready(*turn);
        }
        let index = done.meta.index;
        self.raft.advance_apply_to(index);
        self.fix_election_timeout();
        self.applied = index;
        self.durable = index;
        self.unapplied.clear();
        self.unapplied_bytes = 0;
        send(released.map(|(_, messages)| messages).unwrap_or_default(), out);
    }

    fn snapshot_sent(&mut self, to: NodeId, ok: bool) {
        self.raft.mut_store().outgoing.get_mut().sent(to, ok);
        let status = if ok { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.raft.report_snapshot(to, status);
    }

    /// Applies a committed change to the library. Every member does this at the same index with the
    /// same outcome, also when the library refuses it.
    pub(super) fn apply_change(&mut self, data: &[u8]) -> Option<ConfState> {
        let change = change::decode(data)?;
        let conf = ConfState::from_raft(&self.raft.apply_conf_change(&change).ok()?);
        self.conf = conf.clone();
        let member = conf.votes(self.config.id);
        if !member && self.leads() && !self.config.breaks(BrokenRule::RemovedLeaderStays) {
            // The library would panic on the next acknowledgement.
            let term = self.raft.raft.term;
            self.raft.raft.become_follower(term, 0);
        }
        self.fix_election_timeout();
        self.heard.retain(|id, _| conf.contains(*id));
        self.forget_disks(|id| conf.contains(id));
        self.raft.mut_store().outgoing.get_mut().retain(|id| conf.contains(id));
        Some(conf)
    }

    fn announce(&mut self, now: Millis, out: &mut Vec<Effect>) {
        let role = RoleChange {
            role: match self.raft.raft.state {
                StateRole::Follower => Role::Follower,
                StateRole::PreCandidate => Role::PreCandidate,
                StateRole::Candidate => Role::Candidate,
                StateRole::Leader => Role::Leader,
            },
            term: self.raft.raft.term,
            leader: self.raft.raft.leader_id,
        };
        if role == self.role {
            return;
        }
        if (role.term, role.leader) != (self.role.term, self.role.leader) {
            self.reads.restart();
        }
        if role.role != Role::Leader {
            self.raft.mut_store().outgoing.get_mut().retain(|_| false);
        }
        self.role = role;
        if role.leader != 0 {
            self.is_led_by(role.leader);
        }
        out.push(Effect::Role(role));
        // Reads that wait for a leader need not wait for the next step.
        self.offer_reads(now, out);
        self.settle(out);
    }

    /// Drops what neither this member nor a follower needs, and asks for the snapshots that
    /// followers need because it is gone.
    fn truncate(&mut self, out: &mut Vec<Effect>) {
        let durable = match self.config.breaks(BrokenRule::TruncateToApplied) {
            true => self.applied,
            false => self.durable,
        };
        let alone = self.raft.raft.prs().iter().count() <= 1;
        let log = self.raft.mut_store();
        for to in log.outgoing.get_mut().wanted(durable) {
            out.push(Effect::BuildSnapshot { to });
        }
        if self.installing.is_some() {
            return;
        }
        let pin = log.outgoing.get_mut().pin();
        let config = &self.config;
        let last = log.last();
        // Entries above the durable index are needed anyway and do not count as tail.
        let above = last.saturating_sub(durable);
        let cache_bytes = match alone {
            true => config.log_cache_bytes.min(LONE_LOG_CACHE_BYTES),
            false => config.log_cache_bytes,
        };
        let base = log.truncate(durable, |entries, bytes| {
            let pinned = last - entries >= pin && bytes <= config.log_bytes_max;
            let large = bytes > cache_bytes;
            !pinned && (entries - above > config.log_cache_entries || large)
        });
        if let Some((index, term)) = base {
            out.push(Effect::Truncated { index, term });
        }
    }
}

/// Emits messages, if there are any.
pub(super) fn send(messages: Vec<Wire>, out: &mut Vec<Effect>) {
    if !messages.is_empty() {
        out.push(Effect::Send(messages));
    }
}
