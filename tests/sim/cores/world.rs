//! Virtual time, the network, the clients, and the history that all members must agree on.

use super::node::{Disk, Node, Store, Write};
use assay::consensus::{
    BrokenRule, ChangeOp, ConfState, Effect, EntryKind, Input, MemberChange, Role, Token, Wire,
    WireKind,
};
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Length of one turn of the world, in milliseconds.
const TURN_MS: u64 = 50;
/// Turns between two ticks of a core.
const TICK_TURNS: u64 = 2;
/// From here on nothing fails any more, and everything must heal.
const CALM_TURN: u64 = 2_700;
/// Turns that healing may take before progress is measured.
const HEAL_TURNS: u64 = 250;
const END_TURN: u64 = 3_500;

/// Who takes part, and what happens to them.
pub(crate) struct Scenario {
    ids: Vec<u64>,
    /// Where everybody begins; none: the members found the cluster.
    conf: Option<ConfState>,
    /// Fewest voters that a change may leave; none: no changes.
    voters_min: Option<usize>,
    /// One change is asked for in this many turns of a member.
    change_turns: u32,
    /// One crash of a member in this many turns.
    crash_turns: u32,
    /// One batch in `.0` takes up to `.1` turns to reach the disk.
    stall: (u32, u64),
}

impl Scenario {
    /// Three voters found a cluster; no changes.
    pub(crate) fn three() -> Scenario {
        Scenario {
            ids: vec![1, 2, 3],
            conf: None,
            voters_min: None,
            change_turns: 150,
            crash_turns: 900,
            stall: (40, 30),
        }
    }

    /// Two to five of five members vote.
    pub(crate) fn changing() -> Scenario {
        let conf = Some(ConfState { voters: vec![1, 2, 3], ..ConfState::default() });
        Scenario { ids: vec![1, 2, 3, 4, 5], conf, voters_min: Some(2), ..Scenario::three() }
    }

    /// One to three of three members vote, change often, and have disks that stall for longer than
    /// an election takes.
    pub(crate) fn shrinking() -> Scenario {
        Scenario { voters_min: Some(1), change_turns: 60, stall: (12, 120), ..Scenario::three() }
    }

    /// A sole voter that crashes often, and a learner.
    pub(crate) fn learner() -> Scenario {
        let conf = Some(ConfState { voters: vec![1], learners: vec![2], ..ConfState::default() });
        Scenario { ids: vec![1, 2], conf, crash_turns: 60, stall: (10, 20), ..Scenario::three() }
    }
}

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) commands: u64,
    /// In the run with the fewest.
    pub(crate) least_commands: u64,
    pub(crate) crashes: u64,
    pub(crate) leaders: u64,
    pub(crate) reads: u64,
    pub(crate) snapshots: u64,
    pub(crate) changes: u64,
    pub(crate) truncations: u64,
    /// Hash of every effect.
    pub(crate) trace: u64,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Report) {
        let first = self.commands == 0;
        self.least_commands = match first {
            true => other.commands,
            false => self.least_commands.min(other.commands),
        };
        self.commands += other.commands;
        self.crashes += other.crashes;
        self.leaders += other.leaders;
        self.reads += other.reads;
        self.snapshots += other.snapshots;
        self.changes += other.changes;
        self.truncations += other.truncations;
    }
}

enum Packet {
    Message(Vec<u8>),
    /// A snapshot message with its rows, and who waits for the outcome.
    Snapshot {
        wire: Vec<u8>,
        rows: Store,
    },
    /// Outcome of a snapshot, for the boot of the member that sent it.
    Outcome {
        peer: u64,
        ok: bool,
        boot: u64,
    },
}

struct World<'a> {
    seed: u64,
    scenario: &'a Scenario,
    broken: Option<BrokenRule>,
    rng: ChaCha8Rng,
    now: u64,
    nodes: Vec<Node>,
    net: BTreeMap<(u64, u64), (u64, Packet)>,
    packets: u64,
    /// State after each index, as the first member that applied it saw it.
    history: BTreeMap<u64, u64>,
    /// Highest index that some member has applied: what a client may have been told.
    acknowledged: u64,
    token: u64,
    report: Report,
    trace: DefaultHasher,
}

/// Runs one seed. Panics if an invariant breaks.
pub(crate) fn run(seed: u64, scenario: &Scenario, broken: Option<BrokenRule>) -> Report {
    let disk = || match &scenario.conf {
        Some(conf) => Disk::with(conf.clone()),
        None => Disk::founded(&scenario.ids),
    };
    let nodes = scenario.ids.iter().map(|id| Node::new(*id, disk())).collect();
    let mut world = World {
        seed,
        scenario,
        broken,
        rng: ChaCha8Rng::seed_from_u64(seed),
        now: 0,
        nodes,
        net: BTreeMap::new(),
        packets: 0,
        history: BTreeMap::new(),
        acknowledged: 0,
        token: 0,
        report: Report::default(),
        trace: DefaultHasher::new(),
    };
    let mut frontier = 0;
    let mut reads_before = 0;
    for now in 0..END_TURN {
        world.now = now;
        if now == CALM_TURN + HEAL_TURNS {
            frontier = world.acknowledged;
            reads_before = world.report.reads;
        }
        world.deliver();
        for i in 0..world.nodes.len() {
            world.turn(i);
        }
    }
    world.check_healed(frontier, reads_before);
    world.report.trace = world.trace.finish();
    world.report
}

impl World<'_> {
    fn calm(&self) -> bool {
        self.now > CALM_TURN
    }

    fn deliver(&mut self) {
        while let Some(first) = self.net.first_entry() {
            if first.key().0 > self.now {
                break;
            }
            let (to, packet) = first.remove();
            self.receive(to, packet);
        }
    }

    fn index_of(&self, id: u64) -> usize {
        self.scenario.ids.iter().position(|other| *other == id).expect("a member")
    }

    fn receive(&mut self, to: u64, packet: Packet) {
        let i = self.index_of(to);
        let up = self.nodes[i].is_up();
        match packet {
            Packet::Message(bytes) if up => {
                let wire = Wire::decode(bytes.into()).expect("a message decodes");
                self.nodes[i].inputs.push(Input::Wire(wire));
            }
            Packet::Message(_) => {}
            Packet::Snapshot { wire, rows } => {
                let wire = Wire::decode(wire.into()).expect("a message decodes");
                let from = wire.from();
                let boot = self.nodes[self.index_of(from)].boot;
                // A receiver that is installing a snapshot refuses another one.
                let node = &mut self.nodes[i];
                let busy = node.wal.iter().any(|(_, w)| !matches!(w, Write::Batch(_)));
                let ok = up && !busy;
                if ok {
                    let staged = Input::SnapshotStaged(rows.meta());
                    node.staged = Some(rows);
                    if self.rng.random_ratio(1, 2) {
                        self.nodes[i].inputs.extend([staged, Input::Wire(wire)]);
                    } else {
                        self.nodes[i].inputs.extend([Input::Wire(wire), staged]);
                    }
                }
                self.post(from, Packet::Outcome { peer: to, ok, boot });
            }
            Packet::Outcome { peer, ok, boot } if up && self.nodes[i].boot == boot => {
                self.nodes[i].inputs.push(Input::SnapshotSent { to: peer, ok });
            }
            Packet::Outcome { .. } => {}
        }
    }

    fn post(&mut self, to: u64, packet: Packet) {
        self.packets += 1;
        let due = self.now + self.rng.random_range(1..5);
        self.net.insert((due, self.packets), (to, packet));
    }

    fn turn(&mut self, i: usize) {
        if !self.nodes[i].is_up() {
            if self.nodes[i].down > self.now {
                return;
            }
            let (seed, broken) = (self.seed, self.broken);
            self.nodes[i].start(seed, broken);
        }
        if !self.calm() && self.crashes(i) {
            return;
        }
        self.report.snapshots += self.nodes[i].disk_completions(self.now);
        self.apply(i);
        if self.rng.random_ratio(1, 20) {
            self.nodes[i].save();
        }
        self.nodes[i].report_progress();
        if self.now.is_multiple_of(TICK_TURNS) {
            self.nodes[i].inputs.push(Input::Tick);
        }
        self.clients(i);
        let mut out = Vec::new();
        let node = &mut self.nodes[i];
        let core = node.core.as_mut().expect("up");
        core.step(self.now * TURN_MS, &mut node.inputs, &mut out);
        for effect in out {
            self.effect(i, effect);
        }
    }

    fn crashes(&mut self, i: usize) -> bool {
        let installing = self.nodes[i].wal.iter().any(|(_, w)| !matches!(w, Write::Batch(_)));
        let turns = if installing { 30 } else { self.scenario.crash_turns };
        if !self.rng.random_ratio(1, turns) {
            return false;
        }
        let longest = if self.rng.random_ratio(1, 4) { 400 } else { 60 };
        self.nodes[i].down = self.now + self.rng.random_range(1..longest);
        self.nodes[i].crash(&mut self.rng);
        self.report.crashes += 1;
        true
    }

    fn apply(&mut self, i: usize) {
        let World { nodes, history, report, acknowledged, .. } = self;
        nodes[i].apply_completions(self.now, |c, store| {
            let index = c.entry.index;
            match history.get(&index) {
                Some(state) => assert_eq!(*state, store.state, "members diverge at {index}"),
                None => {
                    history.insert(index, store.state);
                    let command = c.entry.kind == EntryKind::Normal && !c.entry.data.is_empty();
                    report.commands += u64::from(command);
                    report.changes += u64::from(c.conf_state.is_some());
                }
            }
            *acknowledged = index.max(*acknowledged);
        });
        let store = &nodes[i].store;
        if let Some(state) = history.get(&store.applied) {
            assert_eq!(*state, store.state, "snapshot holds another state at {}", store.applied);
        }
    }

    fn next_token(&mut self) -> Token {
        self.token += 1;
        Token(self.token)
    }

    /// Requests of clients, at any member.
    fn clients(&mut self, i: usize) {
        if self.rng.random_ratio(1, 3) {
            for _ in 0..self.rng.random_range(1..4) {
                let token = self.next_token();
                let data = Bytes::copy_from_slice(&token.0.to_le_bytes());
                self.nodes[i].inputs.push(Input::Propose { token, data });
            }
        }
        if self.rng.random_ratio(1, 20) {
            let token = self.next_token();
            self.nodes[i].reads.insert(token, self.acknowledged);
            self.nodes[i].inputs.push(Input::Read { token });
        }
        let changes = !self.calm() && self.scenario.voters_min.is_some();
        if changes && self.rng.random_ratio(1, self.scenario.change_turns) {
            self.change(i);
        }
    }

    fn change(&mut self, i: usize) {
        let least = self.scenario.voters_min.unwrap_or(1);
        let (part, whole) = if least == 1 { (2, 5) } else { (3, 5) };
        let want: BTreeSet<u64> = loop {
            let ids = self.scenario.ids.iter().copied();
            let want: BTreeSet<u64> = ids.filter(|_| self.rng.random_ratio(part, whole)).collect();
            if want.len() >= least {
                break want;
            }
        };
        let have: BTreeSet<u64> = self.nodes[i].store.conf.voters.iter().copied().collect();
        let add = want.difference(&have).map(|id| (ChangeOp::AddVoter, *id));
        let remove = have.difference(&want).map(|id| (ChangeOp::Remove, *id));
        let token = self.next_token();
        let steps = add.chain(remove).collect();
        let change = MemberChange { request: token.0, steps, context: Bytes::new() };
        self.nodes[i].inputs.push(Input::Change { token, change });
    }

    fn effect(&mut self, i: usize, effect: Effect) {
        self.note(i, &effect);
        match effect {
            Effect::Send(wires) => {
                for wire in wires {
                    self.send(i, wire);
                }
            }
            Effect::Persist(batch) => {
                let (odds, stall) = self.scenario.stall;
                let stalls = !self.calm() && self.rng.random_ratio(1, odds);
                let latency = self.rng.random_range(1..if stalls { stall } else { 4 });
                let idle = self.nodes[i].wal.is_empty();
                // Without a sync a write takes no time, unless it stands behind one.
                let own = if batch.sync || !idle { self.now + latency } else { self.now };
                let due = self.nodes[i].wal.back().map_or(own, |(due, _)| own.max(*due));
                self.nodes[i].persist(batch, due);
            }
            Effect::Apply(entries) => {
                let own = self.now + self.rng.random_range(0..5);
                let due = self.nodes[i].apply.back().map_or(own, |(due, _)| own.max(*due));
                self.nodes[i].apply.push_back((due, entries));
            }
            Effect::BuildSnapshot { to } => {
                if !self.calm() && self.rng.random_ratio(1, 5) {
                    self.nodes[i].inputs.push(Input::SnapshotSent { to, ok: false });
                } else {
                    let rows = self.nodes[i].disk.store.clone();
                    let meta = rows.meta();
                    self.nodes[i].views.insert(to, rows);
                    self.nodes[i].inputs.push(Input::SnapshotReady { to, meta });
                }
            }
            Effect::Install(meta) => {
                let latency = self.rng.random_range(1..if self.calm() { 4 } else { 30 });
                let own = self.now + latency;
                let due = self.nodes[i].wal.back().map_or(own, |(due, _)| own.max(*due));
                self.nodes[i].install(meta, due);
            }
            Effect::ReadAt { index, tokens } => {
                for token in tokens {
                    if let Some(must) = self.nodes[i].reads.remove(&token) {
                        assert!(index >= must, "stale read: {index} below {must}");
                        self.report.reads += 1;
                    }
                }
            }
            Effect::Refuse { token, .. } => drop(self.nodes[i].reads.remove(&token)),
            Effect::Role(role) => self.report.leaders += u64::from(role.role == Role::Leader),
            Effect::Disk(_) => {}
            Effect::Stop(why) => panic!("member {i} stops: {why}"),
            Effect::Truncated { index, term } => {
                self.nodes[i].truncate(index, term);
                self.report.truncations += 1;
            }
            Effect::Proposed { .. } => {}
        }
    }

    fn send(&mut self, i: usize, wire: Wire) {
        let to = wire.to();
        let bytes = wire.encode();
        assert_eq!(Wire::decode(bytes.clone().into()).expect("decodes"), wire, "codec");
        let lost = !self.calm() && self.rng.random_ratio(1, 30);
        if wire.kind() != WireKind::Snapshot {
            if !lost {
                self.post(to, Packet::Message(bytes));
            }
            return;
        }
        // Sent again after a failure that the core gave up by itself: no view, no stream.
        match self.nodes[i].views.remove(&to) {
            Some(rows) if !lost => {
                assert_eq!(Some(rows.meta()), wire.snapshot(), "message and rows differ");
                self.post(to, Packet::Snapshot { wire: bytes, rows });
            }
            _ => self.nodes[i].inputs.push(Input::SnapshotSent { to, ok: false }),
        }
    }

    /// Adds an effect to the trace that two runs of a seed must share.
    fn note(&mut self, i: usize, effect: &Effect) {
        let what = match effect {
            Effect::Send(wires) => wires.iter().map(|w| w.to() ^ w.term() << 8).sum(),
            Effect::Persist(batch) => batch.number ^ (batch.entries.len() as u64) << 32,
            Effect::Apply(entries) => entries.last().map_or(0, |c| c.entry.index),
            Effect::BuildSnapshot { to } => *to,
            Effect::Install(meta) => meta.index,
            Effect::ReadAt { index, tokens } => index ^ (tokens.len() as u64) << 32,
            Effect::Proposed { first_index, tokens, .. } => first_index ^ tokens.len() as u64,
            Effect::Refuse { token, .. } => token.0,
            Effect::Role(role) => role.term ^ role.leader << 32,
            Effect::Disk(_) | Effect::Stop(_) => 0,
            Effect::Truncated { index, .. } => *index,
        };
        (self.now, i, std::mem::discriminant(effect), what).hash(&mut self.trace);
    }

    /// After the calm: one leader, no joint configuration, everybody caught up, reads answered.
    fn check_healed(&self, frontier: u64, reads_before: u64) {
        assert!(self.acknowledged > frontier + 20, "no progress after faults stopped");
        assert!(self.report.reads > reads_before + 5, "no reads after faults stopped");
        let statuses = self.nodes.iter().filter_map(|n| n.core.as_ref().map(|c| c.status()));
        let leader = statuses
            .filter(|s| s.role == Role::Leader)
            .max_by_key(|s| s.term)
            .expect("a leader after faults stopped");
        assert!(!leader.conf_state.is_joint(), "still joint after faults stopped");
        for id in leader.conf_state.voters.iter().chain(&leader.conf_state.learners) {
            let applied = self.nodes[self.index_of(*id)].store.applied;
            assert!(applied >= frontier, "member {id} is stuck at {applied} of {frontier}");
        }
    }
}
