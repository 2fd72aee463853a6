//! Virtual time, one queue of events, one generator. A life of the process ends by a fault drawn
//! from the seed; the last life has none and must settle.

mod clients;
mod threads;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use assay::consensus::Wire;
use assay::disk::{Action, Disk, Fault, Open, PowerLoss, SimDisk, SimRng, StaleReads};
use assay::telemetry::io::{FileKind, IoOp};
use assay::watch::HubOptions;

use super::learner::Learner;
use super::node::{Broken, Done, End, Node, Settings, WAL_DIR};
use super::oracle::{Oracle, Verdict, Violation};
use super::streams::Streams;
use super::workload::Client;
use crate::check;

const MS: u64 = 1_000;
/// The node's tick, as shipped.
const TICK: u64 = 100 * MS;
/// A life without another fault ends after this time at the latest.
const LIFE: u64 = 1_500 * MS;
/// The last life serves clients for this long, then only settles.
const LAST_SERVING: u64 = 700 * MS;
/// By then everything must have settled: expiry of the longest lease included.
const LAST_LIMIT: u64 = 60_000 * MS;

#[derive(Debug)]
enum Event {
    Tick,
    Node,
    Wal,
    WalDone { newest: Option<u64>, term: u64 },
    Apply,
    Deadline,
    Store,
    StoreDone,
    Hub,
    Client(usize),
    Answer(Done),
    Reader,
    Renew,
    Drain(usize),
    ToLearner(Wire),
    ToNode(Wire),
    Check,
    Die,
}

/// How a life ends.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The process dies before or within the n-th disk operation from now.
    AtOperation(u64, Action),
    /// The n-th sync from now fails and drops what is dirty.
    SyncError(u64, StaleReads),
    /// The n-th write from now fails.
    WriteError(u64),
    /// The process dies at this time.
    AtTime(u64),
    /// It stops in order.
    Close(u64),
    /// It lives on.
    None,
}

/// Numbers of a run; the hash covers every event in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub hash: u64,
    pub lives: u64,
    pub power_cuts: u64,
    pub sync_errors: u64,
    pub operations: u64,
    pub acknowledged: u64,
    pub replayed: u64,
    pub events_seen: u64,
    pub compacted_watches: u64,
    pub expired: u64,
    pub revision: i64,
    pub truncations: u64,
    pub learned: u64,
}

pub struct World {
    seed: u64,
    verbose: bool,
    now: u64,
    order: u64,
    life: u64,
    queue: BinaryHeap<Reverse<(u64, u64, u64)>>,
    events: BTreeMap<u64, Event>,
    /// Turns that are queued already.
    queued: BTreeSet<&'static str>,
    rng: SimRng,
    disk: SimDisk,
    settings: Settings,
    oracle: Oracle,
    node: Option<Node>,
    clients: Vec<Client>,
    streams: Streams,
    learner: Option<Learner>,
    next_id: u64,
    next_token: u64,
    asked_revokes: BTreeSet<u64>,
    expiring: BTreeMap<u64, i64>,
    reads: BTreeMap<u64, i64>,
    last_read: i64,
    fate: Fate,
    /// The last life: no more faults, and from this time on no more requests.
    quiet_at: Option<u64>,
    report: Report,
}

fn mix(hash: &mut u64, value: u64) {
    *hash = (*hash ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
}

impl World {
    pub fn new(seed: u64, broken: Broken) -> Self {
        let mut rng = SimRng::new(seed ^ 0xa55a_0000);
        let settings = Settings {
            segment_bytes: 4_096 << rng.below(4),
            cache_bytes: 64 << 10,
            log_cache_entries: [3, 20, 5_000][rng.below(3) as usize],
            freeze_bytes: [300, 3_000, 1 << 20][rng.below(3) as usize],
            apply_at_once: 1 + rng.below(20) as usize,
            hub: HubOptions {
                queue_bytes: [500, 5_000, 1 << 20][rng.below(3) as usize],
                queue_events: [3, 20, 4_096][rng.below(3) as usize],
                batch_revisions: 1 + rng.below(20) as i64,
                seed,
                ..HubOptions::default()
            },
            learner: rng.below(2) == 0,
            checkpoint_ms: (rng.below(2) == 0).then_some(400),
            broken,
        };
        let writers = 1 + rng.below(5) as usize;
        World {
            seed,
            verbose: std::env::var_os("VERBOSE").is_some(),
            now: 0,
            order: 0,
            life: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            queued: BTreeSet::new(),
            disk: SimDisk::new(),
            oracle: Oracle::default(),
            node: None,
            clients: (0..writers).map(|_| Client::default()).collect(),
            streams: Streams::new(),
            learner: settings.learner.then(Learner::new),
            settings,
            rng,
            next_id: 1,
            next_token: 1,
            asked_revokes: BTreeSet::new(),
            expiring: BTreeMap::new(),
            reads: BTreeMap::new(),
            last_read: 0,
            fate: Fate::None,
            quiet_at: None,
            report: Report::default(),
        }
    }

    /// Runs the whole seed.
    pub fn run(mut self) -> Result<Report, Violation> {
        let lives = 3 + self.rng.below(4);
        for _ in 0..lives {
            let fate = self.draw_fate();
            self.live(fate)?;
        }
        self.last_life()
    }

    /// Runs one life that dies at the given disk operation, a power cut, and the last life.
    pub fn run_cut_at(mut self, operation: u64, halfway: bool) -> Result<Report, Violation> {
        let action = if halfway { Action::CrashHalfway } else { Action::Crash };
        self.live(Fate::AtOperation(operation, action))?;
        self.last_life()
    }

    /// Disk operations of one life of the given length without a fault.
    pub fn operations(mut self, until: u64) -> Result<u64, Violation> {
        self.live(Fate::AtTime(until))?;
        Ok(self.disk.ops())
    }

    /// Settles, then goes on with the log of another run in place of its own.
    pub fn run_on_foreign_log(mut self, mut other: World) -> Result<Report, Violation> {
        self.quiet_at = Some(self.now + LAST_SERVING);
        self.live(Fate::None)?;
        other.live(Fate::AtTime(150 * MS))?;
        replace_log(&self.disk, &other.disk)
            .map_err(|fault| Violation(format!("log could not be replaced: {fault}")))?;
        self.last_life()
    }

    fn last_life(mut self) -> Result<Report, Violation> {
        self.quiet_at = Some(self.now + LAST_SERVING);
        self.live(Fate::None)?;
        self.report.acknowledged = self.oracle.acked_count;
        self.report.replayed = self.oracle.replayed;
        self.report.expired = self.oracle.expired;
        self.report.revision = self.oracle.model.revision;
        self.report.operations = self.disk.ops();
        self.report.learned = self.learner.as_ref().map_or(0, |learner| learner.applied);
        (self.report.events_seen, self.report.compacted_watches) = self.streams.seen();
        mix(&mut self.report.hash, self.report.operations);
        Ok(self.report)
    }

    fn draw_fate(&mut self) -> Fate {
        let ops = self.one_of(3, 12, 160);
        let stale = if self.rng.below(2) == 0 { StaleReads::New } else { StaleReads::Old };
        match self.rng.below(12) {
            0..4 => Fate::AtOperation(ops, Action::Crash),
            4..6 => Fate::AtOperation(ops, Action::CrashHalfway),
            6..9 => Fate::SyncError(1 + ops / 4, stale),
            9 => Fate::WriteError(1 + ops / 2),
            10 => Fate::Close(self.now + self.rng.below(LIFE)),
            _ => Fate::AtTime(self.now + self.rng.below(LIFE)),
        }
    }

    // ---- lives ----

    /// From start to end of one process. A fault during the start ends the life as well.
    fn live(&mut self, fate: Fate) -> Verdict {
        self.life += 1;
        self.report.lives += 1;
        self.fate = fate;
        self.arm(fate);
        self.trace("start", self.life);
        let boot = self.seed.wrapping_mul(1_000).wrapping_add(self.life);
        match Node::start(&self.disk, &self.settings, boot, &mut self.oracle) {
            Err(End::Broken(violation)) => return Err(violation),
            Err(End::Fault(text)) => return self.died(&text),
            Ok(node) => self.node = Some(node),
        }
        self.begin();
        let started = self.now;
        while let Some(Reverse((at, order, life))) = self.queue.pop() {
            let Some(event) = self.events.remove(&order) else { continue };
            if life != self.life {
                continue;
            }
            self.now = at;
            match self.handle(event) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(End::Broken(violation)) => return Err(violation),
                Err(End::Fault(text)) => return self.died(&text),
            }
            check!(
                self.quiet_at.is_none() || self.now < started + LAST_LIMIT,
                "not settled after {} ms: {}",
                LAST_LIMIT / MS,
                self.unsettled().unwrap_or_default()
            );
        }
        Err(Violation("the queue of events ran dry".to_owned()))
    }

    /// Plans the end of the life that begins.
    fn arm(&mut self, fate: Fate) {
        self.disk.clear_faults();
        match fate {
            Fate::AtOperation(n, action) => self.disk.plan(self.disk.ops() + n, action),
            Fate::SyncError(n, stale) => {
                let left = AtomicU64::new(n);
                self.disk.set_hook(move |op| {
                    let sync = matches!(op.op, IoOp::SyncData | IoOp::SyncAll);
                    match sync && left.fetch_sub(1, Ordering::Relaxed) == 1 {
                        true => Action::DropDirty(stale),
                        false => Action::Proceed,
                    }
                });
            }
            Fate::WriteError(n) => {
                let left = AtomicU64::new(n);
                self.disk.set_hook(move |op| {
                    match op.op == IoOp::Write && left.fetch_sub(1, Ordering::Relaxed) == 1 {
                        true => Action::ShortWrite(libc::EIO),
                        false => Action::Proceed,
                    }
                });
            }
            Fate::AtTime(_) | Fate::Close(_) | Fate::None => {}
        }
    }

    fn begin(&mut self) {
        for client in &mut self.clients {
            *client = Client::default();
        }
        self.queued.clear();
        self.expiring.clear();
        self.reads.clear();
        self.last_read = 0;
        self.push(TICK, Event::Tick);
        self.push(0, Event::Node);
        for at in 0..self.clients.len() {
            let delay = self.rng.below(20 * MS);
            self.push(delay, Event::Client(at));
        }
        self.push(5 * MS, Event::Reader);
        self.push(200 * MS, Event::Renew);
        self.push(50 * MS, Event::Deadline);
        self.push(40 * MS, Event::Check);
        self.streams.disconnected();
        for at in 0..self.streams.len() {
            let delay = self.rng.below(30 * MS);
            self.push(delay, Event::Drain(at));
        }
        match self.fate {
            Fate::AtTime(at) | Fate::Close(at) => {
                self.push(at.saturating_sub(self.now), Event::Die);
            }
            Fate::None => {}
            _ => self.push(LIFE, Event::Die),
        }
    }

    /// The process is gone: kill or power cut, and what the next one finds.
    fn died(&mut self, text: &str) -> Verdict {
        self.trace("died", 0);
        if self.verbose {
            println!("{:>9} us  life {} ends: {text}", self.now, self.life);
        }
        check!(self.quiet_at.is_none(), "the last life ended without a fault: {text}");
        let expected = self.disk.crashed() || !matches!(self.fate, Fate::None);
        check!(expected, "the process ended without a fault: {text}");
        // A fault that recovery itself reports must come from the disk, not from what it found.
        check!(
            text.contains("simulated crash")
                || text.contains("os error 5")
                || text.contains("earlier"),
            "the process refused what it found: {text}"
        );
        self.end_process();
        Ok(())
    }

    fn end_process(&mut self) {
        self.disk.crash();
        self.node = None;
        self.disk.clear_faults();
        let sync_error = matches!(self.fate, Fate::SyncError(..) | Fate::WriteError(_));
        self.report.sync_errors += u64::from(sync_error);
        // After a failed sync the interesting start is the one on the cache as it is.
        let cut = self.rng.below(if sync_error { 5 } else { 2 }) == 0;
        if cut {
            self.report.power_cuts += 1;
            let mode = match self.rng.below(4) {
                0 => PowerLoss::LoseAll,
                1 => PowerLoss::Random { torn: false },
                2 => PowerLoss::Random { torn: true },
                _ => PowerLoss::KeepAll,
            };
            self.trace("power", 0);
            self.disk.power_loss(mode, &mut self.rng);
        } else {
            self.disk.restart();
        }
        self.now += self.rng.below(300 * MS);
    }

    // ---- events ----

    fn push(&mut self, delay: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse((self.now + delay, self.order, self.life)));
        self.events.insert(self.order, event);
    }

    /// Wakes a virtual thread, once.
    fn wake(&mut self, name: &'static str, most: u64, event: Event) {
        if self.queued.insert(name) {
            let delay = 1 + self.rng.below(most);
            self.push(delay, event);
        }
    }

    fn trace(&mut self, what: &'static str, detail: u64) {
        mix(&mut self.report.hash, self.now);
        what.bytes().for_each(|byte| mix(&mut self.report.hash, u64::from(byte)));
        mix(&mut self.report.hash, detail);
        if self.verbose {
            println!("{:>9} us  {what} {detail}", self.now);
        }
    }

    fn now_ms(&self) -> u64 {
        self.now / MS
    }

    /// A number below `rare` once in `n` times, else below `usual`.
    fn one_of(&mut self, n: u64, rare: u64, usual: u64) -> u64 {
        let below = if self.rng.below(n) == 0 { rare } else { usual };
        self.rng.below(below)
    }

    /// A delay of the disk: usually short, at times very long.
    fn disk_delay(&mut self, usual: u64) -> u64 {
        self.one_of(40, 400 * MS, usual)
    }

    /// Carries out one event; false ends the life in order.
    fn handle(&mut self, event: Event) -> Result<bool, End> {
        let Some(mut node) = self.node.take() else { return Ok(false) };
        let result = self.dispatch(&mut node, event);
        match result {
            Ok(Next::Live) => {
                self.node = Some(node);
                Ok(true)
            }
            Ok(Next::Kill) => {
                self.disk.crash();
                drop(node);
                Err(End::Fault("simulated crash at a time".to_owned()))
            }
            Ok(Next::Close) => {
                self.trace("close", 0);
                node.close()?;
                self.end_process();
                Ok(false)
            }
            Ok(Next::Settled) => {
                self.trace("settled", 0);
                node.close()?;
                Ok(false)
            }
            Err(end) => {
                self.disk.crash();
                drop(node);
                Err(end)
            }
        }
    }
}

/// What follows an event.
enum Next {
    Live,
    Kill,
    Close,
    Settled,
}

/// Puts the log files of one disk in the place of another's.
fn replace_log(disk: &SimDisk, from: &SimDisk) -> Result<(), Fault> {
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
}

fn check_end(holds: bool, text: impl FnOnce() -> String) -> Result<(), End> {
    if holds { Ok(()) } else { Err(End::Broken(Violation(text()))) }
}
