//! The one-node simulator: the shipped consensus core, log, store, state machine, watch hub and
//! lease clock on a simulated disk, in one thread, on virtual time.
//!
//! Each seed draws sizes, delays, a workload and faults: the process dies at any disk operation,
//! in the middle of a write or between events; syncs and writes fail; the power goes. After every
//! fault the real recovery runs. `oracle.rs` holds what must be true; `SEEDS=20000` runs more
//! seeds, `SEED=7 cargo test --test sim one -- --nocapture` replays one (`VERBOSE=1` for every
//! event). A simulator that never caught anything proves nothing: each rule is broken once on
//! purpose and must be noticed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "nothing outside of this test sees its modules")]

mod sim {
    /// The shipped conversions between the core and the log.
    #[path = "../../src/node/convert.rs"]
    pub mod convert;
    pub mod learner;
    pub mod model;
    pub mod node;
    pub mod oracle;
    pub mod streams;
    pub mod watchers;
    pub mod workload;
    pub mod world;
}

use std::panic::{AssertUnwindSafe, catch_unwind};

use assay::consensus::{self, BrokenRule};
use assay::wal;
use sim::node::Broken;
use sim::oracle::Violation;
use sim::world::{Report, World};

/// Seeds of a plain run.
const SEEDS: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs one seed; a panic of a part is a broken rule as well.
fn run(seed: u64, broken: Broken) -> Result<Report, Violation> {
    guarded(|| World::new(seed, broken).run())
}

fn guarded(run: impl FnOnce() -> Result<Report, Violation>) -> Result<Report, Violation> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("unknown");
        Err(Violation(format!("panic: {text}")))
    })
}

fn fail(seed: u64, violation: &Violation) -> ! {
    panic!(
        "seed {seed}: {}\nreplay: SEED={seed} cargo test --test sim one -- --nocapture",
        violation.0
    )
}

#[test]
fn every_seed_keeps_every_rule() {
    let mut total = Report::default();
    for seed in 0..number("SEEDS").unwrap_or(SEEDS) {
        let report = run(seed, Broken::Nothing).unwrap_or_else(|violation| fail(seed, &violation));
        if seed.is_multiple_of(10) {
            let again = run(seed, Broken::Nothing).unwrap_or_else(|v| fail(seed, &v));
            assert_eq!(report, again, "seed {seed} is not repeatable");
        }
        total.lives += report.lives;
        total.power_cuts += report.power_cuts;
        total.sync_errors += report.sync_errors;
        total.operations += report.operations;
        total.acknowledged += report.acknowledged;
        total.replayed += report.replayed;
        total.events_seen += report.events_seen;
        total.compacted_watches += report.compacted_watches;
        total.expired += report.expired;
        total.truncations += report.truncations;
        total.learned += report.learned;
    }
    println!("{total:?}");
    // A run that tests nothing must not pass.
    for (what, count) in [
        ("power cuts", total.power_cuts),
        ("sync errors", total.sync_errors),
        ("replayed entries", total.replayed),
        ("watch events", total.events_seen),
        ("watches cancelled by compaction", total.compacted_watches),
        ("expired leases", total.expired),
        ("log truncations", total.truncations),
        ("entries at the learner", total.learned),
    ] {
        assert!(count > 0, "no {what} in the whole run");
    }
}

/// Replays one seed: `SEED=7 cargo test --test sim one -- --nocapture`.
#[test]
fn one() {
    let seed = number("SEED").unwrap_or(0);
    match run(seed, Broken::Nothing) {
        Ok(report) => println!("seed {seed}: {report:?}"),
        Err(violation) => fail(seed, &violation),
    }
}

#[test]
fn a_power_cut_at_every_disk_operation_loses_nothing() {
    const LIFE_US: u64 = 500_000;
    for seed in [11, 12] {
        let operations = World::new(seed, Broken::Nothing).operations(LIFE_US).unwrap();
        assert!(operations > 60, "only {operations} disk operations");
        for at in 0..operations {
            let world = World::new(seed, Broken::Nothing);
            if let Err(violation) = guarded(|| world.run_cut_at(at, !at.is_multiple_of(2))) {
                panic!("seed {seed}, cut at operation {at}: {}", violation.0);
            }
        }
    }
}

/// A crash between swapping the store for a snapshot and resetting the log leaves a log that does
/// not contain the store's position. It is dropped, and the node goes on behind that position.
#[test]
fn a_log_that_does_not_contain_the_position_of_the_store_is_dropped() {
    let run = |seed, broken| {
        let other = World::new(seed + 1_000, Broken::Nothing);
        guarded(|| World::new(seed, broken).run_on_foreign_log(other))
    };
    for seed in 0..20 {
        run(seed, Broken::Nothing).unwrap_or_else(|v| panic!("seed {seed}: {}", v.0));
    }
    let broken = Broken::Core(BrokenRule::KeepForeignLog);
    let violation = (0..20).find_map(|seed| run(seed, broken).err());
    println!("{broken:?}: {}", violation.expect("a foreign log was kept unnoticed").0);
}

/// The first seed that notices a broken rule.
fn caught(broken: Broken, within: u64) -> (u64, Violation) {
    (0..within)
        .find_map(|seed| run(seed, broken).err().map(|violation| (seed, violation)))
        .unwrap_or_else(|| panic!("{broken:?} was not noticed in {within} seeds"))
}

#[test]
fn broken_rules_are_noticed() {
    for (broken, within) in [
        (Broken::Core(BrokenRule::LeadBeforeVotePersisted), 50),
        (Broken::Core(BrokenRule::KeepOldHardState), 300),
        (Broken::Core(BrokenRule::TruncateToApplied), 100),
        (Broken::TrustTail, 300),
        (Broken::AckBeforeSync, 50),
    ] {
        let (seed, violation) = caught(broken, within);
        println!("{broken:?}: seed {seed}: {}", violation.0);
    }
}
