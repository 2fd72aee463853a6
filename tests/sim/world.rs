//! Virtual time, one queue of events, members that fail, and clients that remember.
//!
//! A seed has two phases: first everything fails that its plan allows, then nothing does; within
//! ten election timeouts there must be progress, and in the end all members are equal.

mod admin;
mod clients;
mod disks;
mod divergence;
mod faults;
mod finish;
mod holders;
mod levels;
mod lives;
mod packets;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use assay::consensus::Wire;
use assay::disk::{Action, SimDisk, SimRng};

use bytes::Bytes;

use super::broken::Broken;
use super::frame::{Verdict, Violation};
use super::linear::Op;
use super::network::{Network, Packet};
use super::node::{Birth, Done, End, Node, WalDone, WalJob};
use super::oracle::Oracle;
use super::plan::{Fault, MS, Plan, RATE_PERMILLE};
use super::watchers::Watcher;
use clients::{Client, Reading};
pub use disks::{Outcome, Stall};
use holders::KeepAlive;
use lives::{Armed, replace_log};

/// Clients go on for this many election timeouts after the faults have stopped: within the first
/// ten of them progress must be made.
const PROGRESS_ELECTIONS: u64 = 10;
/// From then on everything must have settled within this time: expiry of the longest lease, waiting
/// for the store, the slowest watcher.
const SETTLE_LIMIT: u64 = 60_000 * MS;
/// Look for quiet this often.
const CHECK_EVERY: u64 = 40 * MS;

/// What a virtual thread of one member does next.
#[derive(Debug)]
enum Turn {
    Tick,
    Node,
    Wal,
    WalWrite(Vec<WalJob>),
    WalDone(Box<WalDone>),
    Apply,
    Deadline,
    Store,
    StoreWrite,
    StoreDone,
    Hub,
    /// The rows of a snapshot are safe aside.
    Staged(Box<Wire>),
    Answer(Done),
}

#[derive(Debug)]
enum Event {
    Turn {
        at: usize,
        life: u64,
        turn: Turn,
    },
    Arrive {
        from: usize,
        to: usize,
        packet: Packet,
    },
    Client(usize),
    /// The client gives up its request of this number.
    Timeout(usize, u64),
    Keeper,
    KeepAlive(KeepAlive),
    Drain(usize),
    Admin,
    Upgrade,
    Fault,
    Strike,
    Start(usize),
    Retire(usize),
    Heal,
    Progress,
    Check,
    /// The leader compares the members.
    Compare,
    /// The state of a member rots.
    Rot,
}

/// One member, alive or not.
struct Member {
    id: u64,
    birth: Birth,
    disk: SimDisk,
    node: Option<Box<Node>>,
    life: u64,
    paused_until: u64,
    stalled_until: u64,
    /// Its monotonic clock: where it began and how fast it runs, in thousandths.
    clock_base_ms: u64,
    clock_permille: u64,
    /// Its wall clock, as steps made it, ms.
    wall_step_ms: i64,
    armed: Option<Armed>,
    rotten: bool,
    /// Level of commands that its program knows.
    level: u32,
    /// Level of the program that it is started with next, if somebody decided that.
    next_level: Option<u32>,
    /// It met a command that only the newer program knows.
    upgraded: bool,
    /// Its log is damaged: it stays away.
    lost: bool,
    /// It left the cluster.
    retired: bool,
}

/// Numbers of a run; the hash covers every event in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub hash: u64,
    pub simulated_us: u64,
    pub events: u64,
    pub faults: BTreeMap<Fault, u64>,
    pub lives: u64,
    pub elections: u64,
    pub entries: u64,
    pub acknowledged: u64,
    pub reads: u64,
    pub unanswered: u64,
    pub refused: u64,
    pub changes: u64,
    pub snapshots: u64,
    pub truncations: u64,
    pub packets_lost: u64,
    pub packets_doubled: u64,
    pub events_seen: u64,
    pub compacted_watches: u64,
    pub expired: u64,
    pub hand_overs: u64,
    pub all_slow: u64,
    pub lease_promises: u64,
    pub leases_told_gone: u64,
    pub states_compared: u64,
    pub histories: u64,
    pub histories_unknown: u64,
    pub members_equal: u64,
    pub members_unknown: u64,
    pub whole_again: u64,
    pub fenced: u64,
    /// Members that ended before they applied what only a newer program knows.
    pub stopped_for_newer: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        let Report { faults, .. } = other;
        for (fault, count) in faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (to, from) in [
            (&mut self.simulated_us, other.simulated_us),
            (&mut self.events, other.events),
            (&mut self.lives, other.lives),
            (&mut self.elections, other.elections),
            (&mut self.entries, other.entries),
            (&mut self.acknowledged, other.acknowledged),
            (&mut self.reads, other.reads),
            (&mut self.unanswered, other.unanswered),
            (&mut self.refused, other.refused),
            (&mut self.changes, other.changes),
            (&mut self.snapshots, other.snapshots),
            (&mut self.truncations, other.truncations),
            (&mut self.packets_lost, other.packets_lost),
            (&mut self.packets_doubled, other.packets_doubled),
            (&mut self.events_seen, other.events_seen),
            (&mut self.compacted_watches, other.compacted_watches),
            (&mut self.expired, other.expired),
            (&mut self.hand_overs, other.hand_overs),
            (&mut self.all_slow, other.all_slow),
            (&mut self.lease_promises, other.lease_promises),
            (&mut self.leases_told_gone, other.leases_told_gone),
            (&mut self.states_compared, other.states_compared),
            (&mut self.histories, other.histories),
            (&mut self.histories_unknown, other.histories_unknown),
            (&mut self.members_equal, other.members_equal),
            (&mut self.members_unknown, other.members_unknown),
            (&mut self.whole_again, other.whole_again),
            (&mut self.fenced, other.fenced),
            (&mut self.stopped_for_newer, other.stopped_for_newer),
        ] {
            *to += from;
        }
    }
}

pub struct World {
    plan: Arc<Plan>,
    verbose: bool,
    now: u64,
    order: u64,
    queue: BTreeMap<(u64, u64), Event>,
    // One generator per concern: a draw more in one does not shift the others.
    rng: SimRng,
    fault_rng: SimRng,
    client_rng: SimRng,
    level_rng: SimRng,
    net: Network,
    members: Vec<Member>,
    boots: u64,
    oracle: Oracle,
    clients: Vec<Client>,
    /// Who waits for the outcome of a request.
    waiting: BTreeMap<u64, usize>,
    reading: BTreeMap<u64, Reading>,
    /// Until when the holder of a lease asks nobody any more, or one member alone.
    patient: BTreeMap<i64, (u64, Option<usize>)>,
    /// Revokes that a member's own clock asked for.
    expiring: BTreeMap<u64, (usize, u64, i64)>,
    next_id: u64,
    /// Proposed although its client was told that it was not.
    smuggled: Option<Bytes>,
    histories: Vec<Vec<Op>>,
    watchers: Vec<Watcher>,
    next_stream: u64,
    removals: BTreeSet<usize>,
    checks: divergence::Checks,
    healed: Option<u64>,
    /// When somebody began to lead last.
    led_since: u64,
    /// Answers when the faults stopped, and when there was to be progress.
    acked_at_heal: u64,
    quiet: Option<u64>,
    report: Report,
}

fn mix(hash: &mut u64, value: u64) {
    *hash = (*hash ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
}

impl World {
    pub fn new(seed: u64, broken: Broken) -> World {
        World::with(Plan::draw(seed, broken))
    }

    pub fn with(plan: Plan) -> World {
        let seed = plan.seed;
        let founders: Vec<u64> = (1..=plan.voters as u64).collect();
        let mut world = World {
            verbose: std::env::var_os("VERBOSE").is_some(),
            now: 0,
            order: 0,
            queue: BTreeMap::new(),
            rng: SimRng::new(seed ^ 0x7475_726e),
            fault_rng: SimRng::new(seed ^ 0x6661_756c),
            client_rng: SimRng::new(seed ^ 0x636c_6965),
            level_rng: SimRng::new(seed ^ 0x6c65_7665),
            net: Network::new(&plan),
            members: Vec::new(),
            boots: 0,
            oracle: Oracle::default(),
            clients: (0..plan.clients).map(|_| Client::default()).collect(),
            waiting: BTreeMap::new(),
            reading: BTreeMap::new(),
            patient: BTreeMap::new(),
            expiring: BTreeMap::new(),
            next_id: 1,
            smuggled: None,
            histories: vec![Vec::new(); super::workload::REGISTERS as usize],
            watchers: vec![
                Watcher::new(0, b"k", b"l", false),
                Watcher::new(0, b"k", b"l", true),
                Watcher::new(0, b"k1", b"", false),
                Watcher::new(0, b"k3", b"\0", true),
            ],
            next_stream: 0,
            removals: BTreeSet::new(),
            checks: divergence::Checks::new(&plan),
            healed: None,
            led_since: 0,
            acked_at_heal: 0,
            quiet: None,
            report: Report::default(),
            plan: Arc::new(plan),
        };
        for id in &founders {
            world.add_member(*id, Birth::Founder(founders.clone()));
        }
        world
    }

    fn add_member(&mut self, id: u64, birth: Birth) -> usize {
        self.members.push(Member {
            id,
            birth,
            disk: SimDisk::new(),
            node: None,
            life: 0,
            paused_until: 0,
            stalled_until: 0,
            clock_base_ms: 1_000_000_000 + self.rng.below(1_000_000_000),
            clock_permille: 1_000 - RATE_PERMILLE / 2 + self.rng.below(RATE_PERMILLE),
            wall_step_ms: 0,
            armed: None,
            rotten: false,
            level: 0,
            next_level: None,
            upgraded: false,
            lost: false,
            retired: false,
        });
        let at = self.members.len() - 1;
        self.push(0, Event::Start(at));
        at
    }

    /// Runs the whole seed.
    pub fn run(mut self) -> Result<Report, Violation> {
        self.push(self.plan.fault_every, Event::Fault);
        self.push(self.plan.chaos, Event::Heal);
        if self.plan.changes {
            self.push(self.plan.election(), Event::Admin);
        }
        if self.plan.levels {
            self.push(self.plan.election(), Event::Upgrade);
        }
        self.begin();
        self.live()?;
        Ok(self.finished())
    }

    /// One life that ends at the given disk operation, a power cut, and then everything must heal.
    pub fn run_cut_at(mut self, operation: u64, halfway: bool) -> Result<Report, Violation> {
        self.push(self.plan.chaos, Event::Heal);
        let action = if halfway { Action::CrashHalfway } else { Action::Crash };
        self.members[0].armed = Some(Armed::Crash(operation + 1, action));
        self.begin();
        self.live()?;
        Ok(self.finished())
    }

    /// Disk operations of a life without faults, up to the end of its first phase.
    pub fn operations(mut self) -> Result<u64, Violation> {
        self.push(self.plan.chaos, Event::Heal);
        self.begin();
        self.live_until(self.plan.chaos)?;
        Ok(self.members[0].disk.ops())
    }

    /// Settles, then goes on with the log of another run in place of its own.
    pub fn run_on_foreign_log(mut self, mut other: World) -> Result<Report, Violation> {
        self.push(self.plan.chaos, Event::Heal);
        self.begin();
        self.live()?;
        self.close(0)?;
        other.begin();
        other.live_until(150 * MS)?;
        other.close(0)?;
        replace_log(&self.members[0].disk, &other.members[0].disk)?;
        self.oracle.raft.forget(1);
        self.queue.clear();
        (self.healed, self.quiet) = (None, None);
        self.push(0, Event::Start(0));
        self.push(MS, Event::Heal);
        self.begin();
        self.live()?;
        Ok(self.finished())
    }

    /// Clients, watchers and the first look.
    fn begin(&mut self) {
        for at in 0..self.clients.len() {
            let delay = self.client_rng.below(50 * MS);
            self.push(delay, Event::Client(at));
        }
        for at in 0..self.watchers.len() {
            let delay = self.client_rng.below(30 * MS);
            self.push(delay, Event::Drain(at));
        }
        self.push(200 * MS, Event::Keeper);
        self.push(CHECK_EVERY, Event::Check);
        self.push(self.plan.election(), Event::Compare);
    }

    fn live_until(&mut self, until: u64) -> Verdict {
        while self.now < until {
            let Some(((at, _), event)) = self.queue.pop_first() else { break };
            (self.now, self.oracle.now) = (at, at);
            self.handle(event)?;
        }
        Ok(())
    }

    /// Until everything has settled.
    fn live(&mut self) -> Verdict {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            self.now = at;
            self.oracle.now = at;
            self.report.events += 1;
            if self.handle(event)? {
                return Ok(());
            }
        }
        Err(Violation("the queue of events ran dry".to_owned()))
    }

    /// Carries out one event; true at the end.
    fn handle(&mut self, event: Event) -> Result<bool, Violation> {
        match event {
            Event::Turn { at, life, turn } => {
                let member = &self.members[at];
                if member.life != life || member.node.is_none() {
                    return Ok(false);
                }
                if member.paused_until > self.now {
                    let wait = match turn {
                        Turn::Node => member.paused_until - self.now + self.plan.wake_spread,
                        _ => self.until_awake(at),
                    };
                    self.push(wait, Event::Turn { at, life, turn });
                    return Ok(false);
                }
                self.with_node(at, |world, node| world.turn(at, node, turn))?;
            }
            Event::Arrive { from, to, packet } => {
                let paused = self.members[to].paused_until;
                if paused > self.now {
                    let wait = self.until_awake(to);
                    self.push(wait, Event::Arrive { from, to, packet });
                } else if !self.net.is_cut(from, to, self.now) {
                    self.arrive(from, to, packet)?;
                } else if let Packet::Snapshot { life, .. } = packet {
                    self.snapshot_lost(to, from, life);
                }
            }
            Event::Client(at) => self.client(at)?,
            Event::Timeout(at, op) => self.timeout(at, op),
            Event::Keeper => self.keeper()?,
            Event::KeepAlive(asked) => self.keep_alive(asked)?,
            Event::Drain(at) => self.drain(at)?,
            Event::Admin => self.admin()?,
            Event::Upgrade => self.upgrade()?,
            Event::Fault => self.fault()?,
            Event::Strike => self.strike()?,
            Event::Start(at) => self.start(at)?,
            Event::Retire(at) => self.retire(at),
            Event::Heal => self.heal(),
            Event::Progress => self.progress()?,
            Event::Compare => self.compare()?,
            Event::Rot => self.rot_state(),
            Event::Check => return self.check(),
        }
        Ok(false)
    }

    /// Does something with a living member; a fault of its disk ends its life.
    fn with_node(
        &mut self,
        at: usize,
        f: impl FnOnce(&mut World, &mut Node) -> Result<(), End>,
    ) -> Verdict {
        let Some(mut node) = self.members[at].node.take() else { return Ok(()) };
        match f(self, &mut node) {
            Ok(()) => {
                self.members[at].node = Some(node);
                Ok(())
            }
            Err(End::Broken(violation)) => Err(violation),
            Err(End::Newer(text)) => {
                drop(node);
                self.newer_needed(at, &text)
            }
            Err(End::Fault(text)) => {
                self.members[at].disk.crash();
                drop(node);
                self.died(at, &text)
            }
        }
    }

    // ---- events and time ----

    fn push(&mut self, delay: u64, event: Event) {
        self.order += 1;
        self.queue.insert((self.now + delay, self.order), event);
    }

    fn turn_in(&mut self, at: usize, delay: u64, turn: Turn) {
        let life = self.members[at].life;
        self.push(delay, Event::Turn { at, life, turn });
    }

    /// Wakes a virtual thread, once.
    fn wake(&mut self, at: usize, node: &mut Node, name: &'static str, most: u64, turn: Turn) {
        if node.queued.insert(name) {
            let delay = 1 + self.rng.below(most);
            let awake = self.members[at].paused_until + self.plan.wake_spread;
            let waking = name == "node" && self.plan.wake_spread > 0;
            self.turn_in(
                at,
                if waking { delay.max(awake.saturating_sub(self.now)) } else { delay },
                turn,
            );
        }
    }

    /// How long something has to wait for the end of a pause.
    fn until_awake(&mut self, at: usize) -> u64 {
        let spread = match self.plan.wake_spread {
            0 => 0,
            spread => self.rng.below(spread),
        };
        self.members[at].paused_until - self.now + spread
    }

    fn wake_node(&mut self, at: usize, node: &mut Node) {
        self.wake(at, node, "node", 200, Turn::Node);
    }

    fn trace(&mut self, at: usize, what: &'static str, detail: u64) {
        let hash = &mut self.report.hash;
        mix(hash, self.now ^ (at as u64) << 56);
        what.bytes().for_each(|byte| mix(hash, u64::from(byte)));
        mix(hash, detail);
        if self.verbose {
            let id = self.members.get(at).map_or(0, |member| member.id);
            println!("{:>10} us  {id} {what} {detail}", self.now);
        }
    }

    /// The monotonic clock of a member, ms.
    fn clock_ms(&self, at: usize) -> u64 {
        let member = &self.members[at];
        member.clock_base_ms + self.now * member.clock_permille / 1_000 / MS
    }

    /// The clock that leases are counted with: the monotonic one, unless that is broken.
    fn lease_ms(&self, at: usize) -> u64 {
        let clock = self.clock_ms(at);
        match self.plan.broken {
            Broken::LeaseByWallClock => clock.saturating_add_signed(self.members[at].wall_step_ms),
            _ => clock,
        }
    }

    fn index_of(&self, id: u64) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    /// A member that believes it leads, the one of the newest term.
    fn leader(&self) -> Option<usize> {
        let leads = |at: &usize| self.members[*at].node.as_ref().and_then(|node| node.leads);
        (0..self.members.len()).filter(|at| leads(at).is_some()).max_by_key(|at| leads(at))
    }

    /// A number below `rare` once in `n` times, else below `usual`.
    fn one_of(&mut self, n: u64, rare: u64, usual: u64) -> u64 {
        let below = if self.rng.below(n) == 0 { rare } else { usual };
        self.rng.below(below)
    }
}
