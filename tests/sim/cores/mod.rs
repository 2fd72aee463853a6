//! Cores joined by queues: seeded message loss and delay, disks that lag, crashes, snapshots,
//! membership changes and reads, checked against one shared history.
//!
//! `SEEDS=5000 cargo test --test sim cores` runs more seeds, `SEED=7` runs that one.
//! Each rule of the driver is also broken on purpose and must be caught within a stated number of
//! seeds: a simulator that has never caught anything proves nothing.

mod node;
mod throughput;
mod world;

use super::frame::{Violation, caught, fail, guarded, seeds};
use assay::consensus::BrokenRule;
use world::{Report, Scenario, run};

/// Runs a seed; what breaks, breaks by panicking.
fn judged(seed: u64, scenario: &Scenario, rule: Option<BrokenRule>) -> Result<Report, Violation> {
    guarded(|| Ok(run(seed, scenario, rule)))
}

/// Runs seeds with all rules kept; every tenth twice, with equal traces.
fn all_rules_kept(test: &str, scenario: &Scenario, count: u64) -> Report {
    let run = |seed| judged(seed, scenario, None).unwrap_or_else(|v| fail(test, seed, &v));
    let mut total = Report::default();
    for seed in seeds(count) {
        let report = run(seed);
        if seed.is_multiple_of(10) {
            assert_eq!(report.trace, run(seed).trace, "seed {seed} does not repeat");
        }
        total.add(&report);
    }
    println!("{total:?}");
    total
}

fn seeds_until_caught(scenario: &Scenario, rule: BrokenRule, limit: u64) -> u64 {
    caught(&format!("{rule:?}"), None, limit, |seed| judged(seed, scenario, Some(rule)))
}

#[test]
fn three_cores_elect_a_leader_and_commit_a_thousand_entries() {
    let report = all_rules_kept(
        "sim::cores::three_cores_elect_a_leader_and_commit_a_thousand_entries",
        &Scenario::three(),
        200,
    );
    assert!(report.least_commands >= 1_000, "{report:?}");
    assert!(report.crashes > 0 && report.snapshots > 0 && report.reads > 0, "{report:?}");
    assert!(report.truncations > 0 && report.leaders > 0, "{report:?}");
}

#[test]
fn members_change_through_joint_configurations() {
    let report = all_rules_kept(
        "sim::cores::members_change_through_joint_configurations",
        &Scenario::changing(),
        60,
    );
    assert!(report.changes > 0 && report.snapshots > 0, "{report:?}");
}

#[test]
fn a_sole_voter_feeds_a_learner() {
    let report =
        all_rules_kept("sim::cores::a_sole_voter_feeds_a_learner", &Scenario::learner(), 60);
    assert!(report.leaders > 200, "crashes must lead to elections: {report:?}");
}

#[test]
fn a_group_shrinks_to_one_voter_and_grows_again() {
    let report = all_rules_kept(
        "sim::cores::a_group_shrinks_to_one_voter_and_grows_again",
        &Scenario::shrinking(),
        60,
    );
    assert!(report.changes > 0, "{report:?}");
}

#[test]
fn broken_send_before_persist_is_caught() {
    seeds_until_caught(&Scenario::three(), BrokenRule::SendBeforePersist, 20);
}

#[test]
fn broken_lead_before_vote_persisted_is_caught() {
    seeds_until_caught(&Scenario::learner(), BrokenRule::LeadBeforeVotePersisted, 400);
}

#[test]
fn broken_keep_foreign_log_is_caught() {
    seeds_until_caught(&Scenario::three(), BrokenRule::KeepForeignLog, 50);
}

#[test]
fn broken_keep_old_hard_state_is_caught() {
    seeds_until_caught(&Scenario::three(), BrokenRule::KeepOldHardState, 20);
}

#[test]
fn broken_truncate_to_applied_is_caught() {
    seeds_until_caught(&Scenario::three(), BrokenRule::TruncateToApplied, 20);
}

#[test]
fn broken_removed_leader_stays_is_caught() {
    seeds_until_caught(&Scenario::changing(), BrokenRule::RemovedLeaderStays, 20);
}

#[test]
fn broken_lone_tick_is_caught() {
    seeds_until_caught(&Scenario::shrinking(), BrokenRule::LoneTick, 400);
}

#[test]
fn broken_snapshot_while_busy_is_caught() {
    seeds_until_caught(&Scenario::changing(), BrokenRule::SnapshotWhileBusy, 400);
}

#[test]
fn broken_tick_while_installing_is_caught() {
    seeds_until_caught(&Scenario::changing(), BrokenRule::TickWhileInstalling, 400);
}
