//! The rows of a cluster's table, and the targets they are held against.

use crate::report::Figure;
use crate::report::Target::{AtMost, None as Any, RatioAtLeast, RatioAtMost};

/// Election timeout of both servers by default.
pub(crate) const ELECTION_TIMEOUT_MS: f64 = 1_000.0;
/// Time without service after the death of a leader, in election timeouts.
const OUTAGE_MAX: f64 = 1.5;

/// Stages of a proposal on the leader, and what the rows call them.
pub(crate) const STAGES: [&str; 7] =
    ["queue", "wal_write", "fsync", "commit", "apply", "answer", "total"];

/// All figures in the order of the table: id, title, unit, target.
#[rustfmt::skip]
pub(crate) const CLUSTER: &[Figure] = &[
    ("start_written", "written by three after a start", "MiB", Any),
    ("put_1_rate", "puts through the leader, 1 in flight", "/s", Any),
    ("put_1_p50", "  p50", "us", Any),
    ("put_1_p99", "  p99", "us", Any),
    ("put_64_rate", "puts through the leader, 64 in flight", "/s", RatioAtLeast(2.5)),
    ("put_64_p50", "  p50", "us", Any),
    ("put_64_p99", "  p99", "us", Any),
    ("put_64_cpu_100k", "  CPU of all servers per 100,000 puts", "s", RatioAtMost(0.45)),
    ("put_64_client", "  client CPU per put", "us", Any),
    ("put_64_per_fsync", "  puts per fdatasync of the leader", "", Any),
    ("put_64_fsync_mean", "  the leader's fdatasync mean", "us", Any),
    ("put_64_early", "  committed before the leader's own sync", "%", Any),
    ("put_64_append_mean", "  sent until a follower has it on disk, mean", "us", Any),
    ("put_64_stage_queue", "  stage queue, mean", "us", Any),
    ("put_64_stage_wal_write", "  stage wal_write, mean", "us", Any),
    ("put_64_stage_fsync", "  stage fsync, mean", "us", Any),
    ("put_64_stage_commit", "  stage commit, mean", "us", Any),
    ("put_64_stage_apply", "  stage apply, mean", "us", Any),
    ("put_64_stage_answer", "  stage answer, mean", "us", Any),
    ("put_64_stage_total", "  stage total, mean", "us", Any),
    ("put_1024_rate", "puts through the leader, 1,024 in flight", "/s", RatioAtLeast(2.0)),
    ("put_1024_p50", "  p50", "us", Any),
    ("put_1024_p99", "  p99", "us", Any),
    ("put_1024_cpu_100k", "  CPU of all servers per 100,000 puts", "s", RatioAtMost(0.45)),
    ("put_1024_client", "  client CPU per put", "us", Any),
    ("put_1024_per_fsync", "  puts per fdatasync of the leader", "", Any),
    ("put_1024_fsync_mean", "  the leader's fdatasync mean", "us", Any),
    ("put_1024_early", "  committed before the leader's own sync", "%", Any),
    ("put_1024_append_mean", "  sent until a follower has it on disk, mean", "us", Any),
    ("put_1024_stage_queue", "  stage queue, mean", "us", Any),
    ("put_1024_stage_wal_write", "  stage wal_write, mean", "us", Any),
    ("put_1024_stage_fsync", "  stage fsync, mean", "us", Any),
    ("put_1024_stage_commit", "  stage commit, mean", "us", Any),
    ("put_1024_stage_apply", "  stage apply, mean", "us", Any),
    ("put_1024_stage_answer", "  stage answer, mean", "us", Any),
    ("put_1024_stage_total", "  stage total, mean", "us", Any),
    ("spread_64_rate", "puts through all members, 64 in flight", "/s", RatioAtLeast(2.5)),
    ("spread_64_p99", "  p99", "us", Any),
    ("spread_64_cpu_100k", "  CPU of all servers per 100,000 puts", "s", RatioAtMost(0.45)),
    ("spread_1024_rate", "puts through all members, 1,024 in flight", "/s", RatioAtLeast(2.0)),
    ("spread_1024_p99", "  p99", "us", Any),
    ("spread_1024_cpu_100k", "  CPU of all servers per 100,000 puts", "s", RatioAtMost(0.45)),
    ("get_lin_1_rate", "linearizable gets of the leader, 1 in flight", "/s", RatioAtLeast(1.5)),
    ("get_lin_1_p99", "  p99", "us", Any),
    ("get_lin_64_rate", "linearizable gets of the leader, 64 in flight", "/s", RatioAtLeast(1.5)),
    ("get_lin_64_p99", "  p99", "us", Any),
    ("get_lin_64_cpu", "  CPU of all servers per get", "us", Any),
    ("get_spread_64_rate", "linearizable gets of all members, 64 in flight", "/s", RatioAtLeast(1.5)),
    ("get_spread_64_p99", "  p99", "us", Any),
    ("open_rate", "open loop through the leader, rate answered", "/s", Any),
    ("open_p50", "  p50 from the intended start", "us", Any),
    ("open_p99", "  p99", "us", RatioAtMost(0.5)),
    ("open_p999", "  p99.9", "us", Any),
    ("open_late_p99", "  generator late p99", "us", Any),
    ("kill_p50", "leader killed: time without service, p50", "ms", AtMost(OUTAGE_MAX * ELECTION_TIMEOUT_MS)),
    ("kill_p90", "  p90", "ms", Any),
    ("kill_p99", "  p99", "ms", Any),
    ("kill_max", "  max", "ms", Any),
    ("kill_count", "  kills", "", Any),
    ("load_rate", "values of 4 KiB through the leader, without a pause", "MiB/s", Any),
    ("load_refused", "  calls refused", "%", Any),
    ("load_leader_rss", "  peak memory of the leader", "MiB", RatioAtMost(1.0)),
    ("load_other_rss", "  peak memory of the others", "MiB", RatioAtMost(1.0)),
    ("behind_missed", "a member returns that missed", "MiB", Any),
    ("behind_took", "  start of the process to caught up", "s", Any),
    ("behind_rate", "  MiB per second", "", Any),
    ("behind_snapshots", "  snapshots sent", "", Any),
    ("behind_p99_alone", "  p99 of puts at a fixed rate before it", "us", Any),
    ("behind_p99_beside", "  p99 while it catches up", "us", Any),
    ("behind_max_beside", "  max while it catches up", "us", Any),
    ("behind_leader_rss", "  peak memory of the leader meanwhile", "MiB", Any),
    ("behind_own_rss", "  peak memory of the member meanwhile", "MiB", Any),
];
