//! What a seed draws once: how many members, how slow, how faulty, and who asks for what.

use assay::disk::SimRng;
use assay::watch::HubOptions;

use super::broken::Broken;

/// Microseconds in a millisecond; virtual time counts microseconds.
pub const MS: u64 = 1_000;
/// Ticks of an election timeout, as shipped.
pub const ELECTION_TICKS: u64 = 10;
/// A clock of a member runs at most this much faster or slower than true time, in thousandths:
/// far more than any real oscillator.
pub const RATE_PERMILLE: u64 = 30;
/// Members that a cluster grows to at most, counting those that left.
pub const MEMBERS_MAX: usize = 9;

/// A kind of fault. Each seed enables some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The process dies, the page cache stays.
    Crash,
    /// The power of one member fails.
    Power,
    /// The power of all members fails at once.
    AllPower,
    /// The process dies at or within a disk operation.
    DiskCrash,
    /// A sync fails and drops what was dirty.
    SyncError,
    /// A write fails in the middle.
    WriteError,
    /// Syncs hang for a while.
    Stall,
    /// A bit of the log flips while the process is down.
    BitRot,
    /// The process stands still for a while.
    Pause,
    /// Members are cut into two groups.
    Split,
    /// One member is cut off.
    Isolate,
    /// One direction between two members is cut.
    OneWay,
    /// Connections of a member are accepted and deliver nothing; nobody is told.
    HalfOpen,
    /// Much is lost for a while.
    Lossy,
    /// The wall clock of a member jumps.
    WallStep,
    /// Leadership is handed over on request.
    Transfer,
    /// A member stops in order and starts again.
    Close,
}

impl Fault {
    pub const ALL: [Fault; 17] = [
        Fault::Crash,
        Fault::Power,
        Fault::AllPower,
        Fault::DiskCrash,
        Fault::SyncError,
        Fault::WriteError,
        Fault::Stall,
        Fault::BitRot,
        Fault::Pause,
        Fault::Split,
        Fault::Isolate,
        Fault::OneWay,
        Fault::HalfOpen,
        Fault::Lossy,
        Fault::WallStep,
        Fault::Transfer,
        Fault::Close,
    ];
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub broken: Broken,
    /// Founding voters.
    pub voters: usize,
    /// Whether members are added, promoted and removed.
    pub changes: bool,
    /// Whether it is mostly the leader that is removed.
    pub leaders_leave: bool,
    /// Whether members of two versions meet.
    pub levels: bool,
    pub tick: u64,
    /// How long faults go on.
    pub chaos: u64,
    pub faults: Vec<Fault>,
    /// Mean time between faults.
    pub fault_every: u64,
    // Network.
    pub delay_min: u64,
    pub delay_spread: u64,
    pub loss_permille: u64,
    pub duplicate_permille: u64,
    pub reorder: bool,
    // Disks.
    pub wal_delay: u64,
    pub store_delay: u64,
    /// Time between two commits of the store.
    pub freeze_every: u64,
    pub freeze_bytes: usize,
    pub segment_bytes: u64,
    pub log_cache_entries: u64,
    // Threads.
    pub apply_at_once: usize,
    pub hub: HubOptions,
    pub checkpoint_ms: Option<u64>,
    /// Whether leaders with hung disks step down.
    pub step_down: bool,
    /// A member whose version does not know of that.
    pub silent: Option<u64>,
    /// Longest wait of the apply thread for its turn.
    pub apply_wait: u64,
    // Processes.
    /// Faults last for a quarter to about this many election timeouts.
    pub fault_elections: u64,
    /// Within this time after a pause everything that waited happens, in any order, before the node
    /// thread has its first turn. 0: in the order in which it came.
    pub wake_spread: u64,
    // Clients.
    pub clients: usize,
    pub think: u64,
    /// Whether much is asked about leases, also of members that do not answer, and whether faults
    /// strike where a lease was just kept alive.
    pub leases: bool,
}

fn pick<T: Copy>(rng: &mut SimRng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

impl Plan {
    pub fn draw(seed: u64, broken: Broken) -> Plan {
        let rng = &mut SimRng::new(seed ^ 0x51_ab_00);
        let voters = pick(rng, &[1, 2, 3, 3, 3, 3, 3, 4, 5, 5]);
        // Swarm: a seed with few kinds of faults goes where one with all of them never gets.
        let share = pick(rng, &[2, 4, 8]);
        let mut faults: Vec<Fault> =
            Fault::ALL.into_iter().filter(|_| rng.below(10) < share).collect();
        let changes = rng.below(3) == 0;
        if changes {
            // A member whose log is damaged stays away; who may leave besides is not worth knowing.
            faults.retain(|fault| *fault != Fault::BitRot);
        }
        if faults.is_empty() {
            faults.push(Fault::Power);
        }
        let tick = pick(rng, &[30, 100, 100]) * MS;
        Plan {
            seed,
            broken,
            voters,
            changes,
            leaders_leave: SimRng::new(seed ^ 0x6c_76).below(2) == 0,
            // A generator of its own, and no other mistake: everything else about a seed stays.
            levels: voters > 1
                && matches!(broken, Broken::Nothing | Broken::SkipUnknownCommand)
                && SimRng::new(seed ^ 0x6c_65_76).below(4) == 0,
            tick,
            chaos: (60 + rng.below(80)) * tick,
            faults,
            fault_every: pick(rng, &[5, 10, 20]) * tick,
            delay_min: pick(rng, &[50, 300, 2_000]),
            delay_spread: pick(rng, &[500, 5_000, 20_000]),
            loss_permille: pick(rng, &[0, 0, 5, 40]),
            duplicate_permille: pick(rng, &[0, 0, 20]),
            reorder: rng.below(2) == 0,
            wal_delay: pick(rng, &[500, 4_000, 15_000]),
            store_delay: pick(rng, &[5_000, 40_000, 120_000]),
            freeze_every: pick(rng, &[60, 200, 500]) * MS,
            freeze_bytes: pick(rng, &[2_000, 20_000, 1 << 20]),
            segment_bytes: 4_096 << rng.below(4),
            log_cache_entries: pick(rng, &[3, 20, 100, 5_000]),
            apply_at_once: 1 + rng.below(20) as usize,
            hub: HubOptions {
                queue_bytes: pick(rng, &[500, 5_000, 1 << 20]),
                queue_events: pick(rng, &[3, 20, 4_096]),
                batch_revisions: 1 + rng.below(20) as i64,
                seed,
                ..HubOptions::default()
            },
            checkpoint_ms: (rng.below(2) == 0).then_some(400),
            step_down: !seed.is_multiple_of(6),
            silent: seed.is_multiple_of(5).then_some(1 + seed % voters as u64),
            apply_wait: 300,
            fault_elections: 3,
            wake_spread: 0,
            clients: 2 + rng.below(5) as usize,
            think: pick(rng, &[10, 40, 120]) * MS,
            leases: false,
        }
    }

    /// Leases, and what leaders and their successors make of them: pauses longer than the time to
    /// live, after which everything happens at once, and deaths right after a promise.
    pub fn leases(seed: u64, broken: Broken) -> Plan {
        let plan = Plan::draw(seed, broken);
        let rng = &mut SimRng::new(seed ^ 0x6c_65_61_73);
        Plan {
            voters: pick(rng, &[3, 3, 3, 5]),
            changes: false,
            levels: false,
            tick: 100 * MS,
            chaos: 25_000 * MS,
            faults: vec![
                Fault::Pause,
                Fault::Pause,
                Fault::Pause,
                Fault::Isolate,
                Fault::Crash,
                Fault::AllPower,
                Fault::Transfer,
                Fault::WallStep,
                Fault::Stall,
            ],
            fault_every: 1_500 * MS,
            delay_min: 300,
            delay_spread: pick(rng, &[500, 5_000]),
            loss_permille: pick(rng, &[0, 5]),
            checkpoint_ms: pick(rng, &[None, Some(400)]),
            apply_wait: pick(rng, &[300, 20 * MS]),
            fault_elections: 5,
            wake_spread: MS,
            clients: 3,
            think: pick(rng, &[40, 120]) * MS,
            leases: true,
            ..plan
        }
    }

    /// One voter without network, for the tests that enumerate.
    pub fn single(seed: u64, broken: Broken) -> Plan {
        let plan = Plan::draw(seed, broken);
        Plan {
            voters: 1,
            changes: false,
            levels: false,
            tick: 20 * MS,
            chaos: 500 * MS,
            faults: Vec::new(),
            think: 5 * MS,
            ..plan
        }
    }

    /// Three or five voters of which one's state rots. Nobody dies, which would undo it, and nobody
    /// needs a snapshot, which would spread it.
    pub fn rotten(seed: u64, broken: Broken) -> Plan {
        let plan = Plan::draw(seed, broken);
        let faults = [
            Fault::Stall,
            Fault::Pause,
            Fault::Split,
            Fault::Isolate,
            Fault::OneWay,
            Fault::HalfOpen,
            Fault::Lossy,
            Fault::Transfer,
        ];
        Plan {
            voters: if seed.is_multiple_of(2) { 3 } else { 5 },
            changes: false,
            faults: faults.to_vec(),
            log_cache_entries: 1_000_000,
            ..plan
        }
    }

    /// Three voters, no faults, no noise.
    pub fn quiet(seed: u64, broken: Broken) -> Plan {
        let plan = Plan::draw(seed, broken);
        Plan {
            voters: 3,
            changes: false,
            tick: 100 * MS,
            faults: Vec::new(),
            delay_min: 300,
            delay_spread: 5_000,
            loss_permille: 0,
            duplicate_permille: 0,
            reorder: false,
            wal_delay: 4_000,
            store_delay: 40_000,
            step_down: true,
            silent: None,
            clients: 3,
            think: 200 * MS,
            ..plan
        }
    }

    /// Age of an operation of the disk at which a leader steps down, as shipped: an election timeout.
    pub fn disk_stall_ms(&self) -> Option<u64> {
        self.step_down.then_some(self.election() / MS)
    }

    pub fn election(&self) -> u64 {
        ELECTION_TICKS * self.tick
    }
}
