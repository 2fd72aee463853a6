//! Proposals, leadership and the log, as the node's threads count them.

use crate::telemetry::clock;
use crate::telemetry::exposition::Exposition;
use crate::telemetry::families::{assay, etcd};
use crate::telemetry::histogram::HistogramSnapshot;
use crate::telemetry::node_metrics::NodeMetrics;
use crate::telemetry::stage::{LeaderCause, Outcome, Stage, StepDown};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const NS_PER_SECOND: f64 = 1e9;

pub(super) fn collect(out: &mut Exposition, node: &NodeMetrics) {
    proposals(out, node);
    leadership(out, node);
    let get = |value: &AtomicU64| value.load(Relaxed) as f64;
    let (committed, applied) = (get(&node.committed), get(&node.applied));
    let mut index = out.family(&assay::RAFT_INDEX);
    index.value(&["committed"], committed);
    index.value(&["persisted"], get(&node.persisted));
    index.value(&["applied"], applied);
    index.value(&["durable"], get(&node.durable));
    let mut by_own_sync = out.family(&assay::LEADER_COMMITTED);
    by_own_sync.value(&["pending"], get(&node.committed_early));
    by_own_sync.value(&["done"], get(&node.committed_late));
    out.value(&etcd::COMMITTED, committed);
    out.value(&etcd::APPLIED, applied);
    out.value(&assay::RAFT_TERM, get(&node.term));
    for (family, value) in [
        (&etcd::SLOW_READ_INDEXES, &node.reads_slow),
        (&etcd::READ_INDEXES_FAILED, &node.reads_failed),
        (&etcd::SLOW_APPLY, &node.slow_applies),
        (&etcd::LATE_HEARTBEATS, &node.late_ticks),
        (&etcd::LEASE_EXPIRED, &node.leases_expired),
        (&etcd::LEASES_RENEWED, &node.leases_renewed),
        (&etcd::LEASES_GRANTED, &node.leases_granted),
        (&etcd::LEASES_REVOKED, &node.leases_revoked),
        (&etcd::PUTS, &node.puts),
        (&etcd::PUT_BYTES, &node.put_bytes),
        (&etcd::DELETES, &node.deletes),
        (&etcd::TXNS, &node.txns),
        (&etcd::COMPACTION_LAST, &node.compactions.last),
        (&etcd::COMPACTION_KEYS, &node.compactions.rows),
        (&assay::SPACE_REFUSALS, &node.space_refusals),
        (&assay::WAL_GROUPS, &node.wal_groups),
        (&assay::WAL_GROUP_ENTRIES, &node.wal_group_entries),
        (&assay::SPACE_REFUSED, &node.space_refused),
    ] {
        out.value(family, get(value));
    }
    // The data directory holds log and store unless `--wal-dir` says otherwise.
    out.family(&assay::FREE_BYTES).value(&["data"], get(&node.free_bytes));
    out.family(&assay::FREE_INODES).value(&["data"], get(&node.free_inodes));
    out.histogram(&etcd::BACKEND_COMMIT, &node.store_commits.snapshot());
    for (success, times) in ["false", "true"].into_iter().zip(&node.ranges_read) {
        out.family(&etcd::RANGE_DURATION).histogram(&[success], &times.snapshot());
    }
    for (family, snapshot) in [
        (&etcd::LEASE_TTL, node.lease_ttls.snapshot()),
        (&etcd::COMPACTION_PAUSE, node.compactions.step.snapshot()),
        (&etcd::COMPACTION_INDEX, node.compactions.work.snapshot()),
        (&etcd::COMPACTION_TOTAL, node.compactions.total.snapshot()),
    ] {
        out.family(family).doubling(&[], &snapshot);
    }
    for (op, ok, times) in node.applies.all() {
        let success = if ok { "true" } else { "false" };
        out.family(&etcd::APPLY_DURATION).histogram(&[op, success, "v3"], &times.snapshot());
    }
}

fn proposals(out: &mut Exposition, node: &NodeMetrics) {
    for stage in Stage::ALL {
        let times = node.stages[stage as usize].snapshot();
        out.family(&assay::STAGE).histogram(&[stage.as_str()], &times);
    }
    for outcome in Outcome::ALL {
        let count = node.outcomes[outcome as usize].load(Relaxed);
        out.family(&assay::OUTCOMES).value(&[outcome.as_str()], count as f64);
    }
    let of = |outcome: Outcome| node.outcomes[outcome as usize].load(Relaxed);
    out.value(&etcd::FAILED, (of(Outcome::Refused) + of(Outcome::Unknown)) as f64);
    out.value(&etcd::PENDING, node.pending.load(Relaxed) as f64);
    let oldest_ns = node.pending_ages.oldest_ns(clock::now_ns());
    out.value(&assay::OLDEST_PENDING, oldest_ns as f64 / NS_PER_SECOND);
}

fn leadership(out: &mut Exposition, node: &NodeMetrics) {
    let flag = |yes: bool| f64::from(u8::from(yes));
    out.value(&etcd::HAS_LEADER, flag(node.leader.load(Relaxed) != 0));
    out.value(&etcd::IS_LEADER, flag(node.leads.load(Relaxed) == 1));
    out.value(&etcd::LEADER_CHANGES_SEEN, node.leader_changes_seen.load(Relaxed) as f64);
    for cause in LeaderCause::ALL {
        let count = node.leader_changes[cause as usize].load(Relaxed);
        out.family(&assay::LEADER_CHANGES).value(&[cause.as_str()], count as f64);
    }
    for what in StepDown::ALL {
        let count = node.disk_step_downs[what as usize].load(Relaxed);
        out.family(&assay::DISK_STEP_DOWNS).value(&[what.as_str()], count as f64);
    }
    out.value(&assay::DISK_RECOVERING, node.disk_recovering.load(Relaxed) as f64);
    let seconds_since = |stamp: &AtomicU64| match stamp.load(Relaxed) {
        0 => 0.0,
        since => clock::now_ns().saturating_sub(since - 1) as f64 / NS_PER_SECOND,
    };
    out.value(&assay::LEADERLESS, seconds_since(&node.leaderless_since));
    out.value(&assay::TENURE, seconds_since(&node.led_since));
    let ended: [(_, HistogramSnapshot); 2] = [
        (&assay::LEADERLESS_ENDED, node.leaderless.snapshot()),
        (&assay::TENURE_ENDED, node.led.snapshot()),
    ];
    for (family, times) in ended {
        out.histogram(family, &times);
    }
}
