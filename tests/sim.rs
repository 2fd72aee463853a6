//! The simulator: the shipped consensus core, log, store, state machine, watch hub and lease clock
//! of all members of a cluster, in one thread, on virtual time.
//!
//! Each seed draws a cluster, delays, a workload and faults, lets them happen, heals everything and
//! then demands progress and equality. `sim/oracle.rs` and `sim/invariants` hold what must be true,
//! `sim/linear.rs` judges what clients saw without knowing the log. Every tenth seed runs twice.
//!
//! `SEEDS=20000 FROM=1000` runs more and other seeds; a failing one prints the line that replays it
//! (`VERBOSE=1` shows every event). `sim/broken.rs` lists deliberate mistakes, each of which must
//! be noticed within a stated number of seeds. `sim/cores` is the same for the core alone, with
//! toy disks: a hundred times as many elections in the same time. Figures are in `sim/LEDGER.md`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "nothing outside of this test sees its modules")]

mod sim {
    pub mod answers;
    pub mod broken;
    /// The shipped conversions between the core and the log.
    #[path = "../../src/node/convert.rs"]
    pub mod convert;
    pub mod cores;
    pub mod frame;
    pub mod invariants;
    pub mod linear;
    pub mod model;
    pub mod network;
    pub mod node;
    pub mod oracle;
    pub mod plan;
    pub mod snapshot;
    pub mod watchers;
    pub mod workload;
    pub mod world;
}

// Where the shipped conversions look for them.
use assay::consensus;
use assay::divergence::BrokenRule as CheckRule;
use assay::wal;
use sim::broken::{BUDGETS, Broken, LEASES, ROTTEN};
use sim::frame::{Speed, Violation, caught, fail, guarded, number, seeds};
use sim::plan::{MS, Plan};
use sim::world::{Outcome, Report, Stall, World};

/// Seeds of a plain run: what fits in half a minute on two busy cores.
const SEEDS: u64 = 60;

/// Seeds of the runs that are about leases.
const LEASE_SEEDS: u64 = 20;

/// Seeds that failed once. Each stays.
const PINNED: [u64; 7] = [10_434, 11_089, 20_423, 20_494, 20_845, 40_266, 201_849];

/// Runs seeds of a kind, some twice, and says how fast. The speed for three members is said by
/// itself: clusters of one and of five have another one.
fn run_seeds(
    test: &str,
    seeds: impl Iterator<Item = u64>,
    plan: fn(u64, Broken) -> Plan,
) -> Report {
    let run = |plan| guarded(|| World::with(plan).run());
    let (mut total, mut three) = (Report::default(), Report::default());
    let (mut seconds, mut seconds_of_three) = (0.0, 0.0);
    for seed in seeds {
        let drawn = plan(seed, Broken::Nothing);
        let speed = Speed::start();
        let report = run(drawn.clone()).unwrap_or_else(|v| fail(test, seed, &v));
        let took = speed.seconds();
        if seed.is_multiple_of(10) {
            let again = run(drawn.clone()).unwrap_or_else(|v| fail(test, seed, &v));
            assert_eq!(report, again, "seed {seed} is not repeatable");
        }
        total.add(&report);
        seconds += took;
        if drawn.voters == 3 && !drawn.changes {
            three.add(&report);
            seconds_of_three += took;
        }
    }
    println!("{total:?}");
    println!(
        "{:.2} simulated hours, {:.0} times as fast as real time; three members alone {:.2}, {:.0} times",
        total.simulated_us as f64 / 3.6e9,
        total.simulated_us as f64 / 1e6 / seconds,
        three.simulated_us as f64 / 3.6e9,
        three.simulated_us as f64 / 1e6 / seconds_of_three,
    );
    total
}

#[test]
fn every_seed_keeps_every_rule() {
    let total = run_seeds("every_seed_keeps_every_rule", seeds(SEEDS), Plan::draw);
    if number("SEED").is_some() {
        return;
    }
    // A run that tests nothing must not pass. (Disks of all members at once hang in a run of their own.)
    for (what, count) in [
        ("elections", total.elections),
        ("changes of members", total.changes),
        ("snapshots", total.snapshots),
        ("log truncations", total.truncations),
        ("lost packets", total.packets_lost),
        ("doubled packets", total.packets_doubled),
        ("linearizable reads", total.reads),
        ("unanswered requests", total.unanswered),
        ("members compared", total.members_equal),
        ("members that could not be compared", total.members_unknown),
        ("watch events", total.events_seen),
        ("watches cancelled by compaction", total.compacted_watches),
        ("leaders that gave way to a better disk", total.hand_overs),
        ("expired leases", total.expired),
        ("lease promises", total.lease_promises),
        ("compared states", total.states_compared),
        ("judged histories", total.histories),
        ("members that met a newer command", total.stopped_for_newer),
    ] {
        assert!(count > 0, "no {what} in the whole run");
    }
    assert!(total.faults.len() >= 12, "too few kinds of faults: {:?}", total.faults);
    // At most two in a hundred may be too long to judge.
    assert!(total.histories_unknown * 50 <= total.histories, "{} unknown", total.histories_unknown);
}

#[test]
fn pinned_seeds_keep_every_rule() {
    run_seeds("pinned_seeds_keep_every_rule", PINNED.into_iter(), Plan::draw);
}

/// Virtual time against real time, for three members.
#[test]
#[ignore = "a measurement"]
fn speed_of_three_members() {
    let plans = (0..).map(|seed| Plan::draw(seed, Broken::Nothing));
    let three = plans.filter(|plan| plan.voters == 3 && !plan.changes).map(|plan| plan.seed);
    let three = three.take(number("SEEDS").unwrap_or(40) as usize);
    run_seeds("speed_of_three_members", three, Plan::draw);
}

#[test]
fn leases_live_as_promised_and_end_at_last() {
    let total =
        run_seeds("leases_live_as_promised_and_end_at_last", seeds(LEASE_SEEDS), Plan::leases);
    if number("SEED").is_none() {
        assert!(
            total.expired > 100 && total.lease_promises > 1_000 && total.leases_told_gone > 100
        );
    }
}

#[test]
fn broken_rules_of_leases_are_noticed() {
    let only = std::env::var("BROKEN").ok();
    for (broken, before, within) in LEASES {
        let name = format!("{broken:?}");
        if only.as_ref().is_none_or(|only| name.contains(only)) {
            caught(&name, Some(before), within, |seed| {
                World::with(Plan::leases(seed, broken)).run()
            });
        }
    }
}

#[test]
fn broken_rules_are_noticed() {
    let only = std::env::var("BROKEN").ok();
    for (broken, before, within) in BUDGETS {
        let name = format!("{broken:?}");
        if only.as_ref().is_none_or(|only| name.contains(only)) {
            caught(&name, Some(before), within, |seed| World::new(seed, broken).run());
        }
    }
}

#[test]
fn a_member_whose_state_rots_is_found_and_nobody_else_is_blamed() {
    let test = "a_member_whose_state_rots_is_found_and_nobody_else_is_blamed";
    let mut total = Report::default();
    for seed in seeds(SEEDS) {
        match rotten(seed, Broken::Nothing) {
            Ok(report) => total.add(&report),
            Err(violation) => fail(test, seed, &violation),
        }
    }
    println!(
        "compared {} times, {} times not; fenced {}, whole again by a compaction {}",
        total.members_equal, total.members_unknown, total.fenced, total.whole_again
    );
    if number("SEED").is_none() {
        assert!(total.members_equal > 100 && total.members_unknown > 10);
        assert!(2 * total.fenced > total.whole_again, "a run that finds little tests little");
    }
}

fn rotten(seed: u64, broken: Broken) -> Result<Report, Violation> {
    guarded(|| World::with(Plan::rotten(seed, broken)).run_rotten())
}

#[test]
fn broken_rules_of_the_comparison_are_noticed() {
    let only = std::env::var("BROKEN").ok();
    for (rule, before, within) in ROTTEN {
        let name = format!("{rule:?}");
        if only.as_ref().is_none_or(|only| name.contains(only)) {
            caught(&name, Some(before), within, |seed| match rule {
                // It raises suspicions where nothing is wrong.
                CheckRule::UnequalIndexes => World::new(seed, Broken::Check(rule)).run(),
                _ => rotten(seed, Broken::Check(rule)),
            });
        }
    }
}

/// Disks hang in a cluster in which nothing else goes wrong.
fn stalls(seed: u64, broken: Broken, kind: Stall, count: u64) -> Outcome {
    let (length, every) = (3_000 * MS, 30_000 * MS);
    let world = World::with(Plan::quiet(seed, broken));
    guarded(|| world.run_stalls(kind, length, every, count))
        .unwrap_or_else(|v| panic!("seed {seed}, {kind:?}: {}", v.0))
}

#[test]
fn one_stalled_disk_moves_leadership_once_and_it_stays() {
    for seed in 0..6 {
        let outcome = stalls(seed, Broken::Nothing, Stall::Leader, 1);
        let moved = outcome.first != outcome.last;
        assert!(moved && outcome.changes == 1 && outcome.hand_overs == 1, "{seed}: {outcome:?}");
    }
}

#[test]
fn stalls_of_all_disks_move_leadership_twice_at_most() {
    for (seed, apart) in [(0, 0), (2, 250 * MS)] {
        let outcome = stalls(seed, Broken::Nothing, Stall::All { apart }, 20);
        assert!(outcome.changes <= 2, "{seed}: {outcome:?}");
        assert!(outcome.all_slow >= 18, "{seed}: it says so: {outcome:?}");
    }
}

/// The rule is what keeps it so.
#[test]
fn a_leader_that_does_not_look_moves_with_every_stall() {
    let broken = Broken::Core(consensus::BrokenRule::StepDownAnyway);
    let world = World::with(Plan::quiet(0, broken));
    let outcome = guarded(|| world.run_stalls(Stall::All { apart: 0 }, 3_000 * MS, 30_000 * MS, 1));
    assert!(outcome.is_err(), "{outcome:?}");
}

#[test]
fn a_power_cut_at_every_disk_operation_loses_nothing() {
    for seed in [11, 12] {
        let world = || World::with(Plan::single(seed, Broken::Nothing));
        let operations = world().operations().unwrap();
        assert!(operations > 60, "only {operations} disk operations");
        // Every one takes minutes (`ALL=1`); a plain run takes a part that differs by seed.
        let step = if std::env::var_os("ALL").is_some() { 1 } else { 7 };
        for at in (seed % step..operations).step_by(step as usize) {
            if let Err(violation) = guarded(|| world().run_cut_at(at, !at.is_multiple_of(2))) {
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
        let other = World::with(Plan::single(seed + 1_000, Broken::Nothing));
        guarded(|| World::with(Plan::single(seed, broken)).run_on_foreign_log(other))
    };
    for seed in 0..5 {
        run(seed, Broken::Nothing).unwrap_or_else(|v| panic!("seed {seed}: {}", v.0));
    }
    let broken = Broken::Core(consensus::BrokenRule::KeepForeignLog);
    caught("KeepForeignLog", None, 20, |seed| run(seed, broken));
}
