//! The state of process and node.

use crate::telemetry::exposition::Exposition;
use crate::telemetry::families::{assay, etcd};
use crate::telemetry::metrics::{NodeSample, Sources, StateSample};
use std::sync::atomic::Ordering::Relaxed;

/// Alarms that a member can raise.
const ALARMS: [&str; 2] = ["NOSPACE", "CORRUPT"];

fn flag(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

pub(super) fn process(out: &mut Exposition, sources: &Sources, state: &StateSample) {
    if let Some(drift) = &state.drift {
        for (against, drifted) in drift.against {
            out.family(&assay::DISK_DRIFT).value(&[against], flag(drifted));
        }
        if let Some(p99) = drift.p99_seconds {
            out.value(&assay::DISK_LIVE_P99, p99);
        }
    }
    out.value(&assay::READY, flag(state.ready));
    // The last phase is serving: it ends with the process.
    let starting = sources.phases.split_last().map_or(&[][..], |(_, starting)| starting);
    for phase in starting {
        let length = state.start_phases.iter().find(|(name, _)| name == phase);
        out.family(&assay::START_PHASE).value(&[phase], length.map_or(0.0, |(_, s)| *s));
    }
    // A single node neither installs snapshots nor defragments.
    out.value(&etcd::SNAPSHOT_APPLY, 0.0);
    out.value(&etcd::DEFRAG_INFLIGHT, 0.0);
}

pub(super) fn node(out: &mut Exposition, sources: &Sources, node: &NodeSample) {
    let member = format!("{:x}", node.member_id);
    out.family(&etcd::SERVER_ID).value(&[&member], 1.0);
    for other in &node.members {
        out.family(&etcd::KNOWN_PEERS).value(&[&member, &format!("{other:x}")], 1.0);
    }
    if let Some(version) = &node.cluster_version {
        out.family(&etcd::CLUSTER_VERSION).value(&[version], 1.0);
    }
    for (kind, level) in node.feature_levels {
        out.family(&assay::FEATURE_LEVEL).value(&[kind], level as f64);
    }
    for alarm in ALARMS {
        let active = flag(node.alarms.contains(&alarm));
        out.family(&etcd::ALARMS).value(&[alarm, &member], active);
    }
    let reads = sources.rpc.method("Range").map_or(0, |range| range.handled(0));
    let ranges = sources.node.ranges.load(Relaxed) + reads;
    for (family, value) in [
        (&etcd::IS_LEARNER, flag(node.is_learner)),
        (&etcd::QUOTA_BYTES, node.quota_bytes as f64),
        (&etcd::DB_SIZE, node.total_bytes as f64),
        (&etcd::DB_IN_USE, node.in_use_bytes as f64),
        (&etcd::OPEN_READ_TRANSACTIONS, node.store_views as f64),
        (&etcd::RANGES, ranges as f64),
        (&etcd::PENDING_EVENTS, node.watch.pending as f64),
        (&assay::WATCH_BLOCKED, node.watch.blocked as f64),
        (&etcd::KEYS, node.keys as f64),
        (&etcd::CURRENT_REVISION, node.revision as f64),
        (&etcd::COMPACT_REVISION, node.compact_revision as f64),
        (&etcd::AUTH_REVISION, node.auth_revision as f64),
        (&etcd::WATCH_STREAMS, node.watch.streams as f64),
        (&etcd::WATCHERS, node.watch.watchers as f64),
        (&etcd::SLOW_WATCHERS, node.watch.slow as f64),
        (&etcd::EVENTS, node.watch.events as f64),
        (&assay::WATCH_FELL_BEHIND, node.watch.fell_behind as f64),
        (&assay::WATCH_COMPACTED, node.watch.compacted as f64),
        (&assay::LEASES, node.leases as f64),
        (&assay::VOTERS, node.voters as f64),
        (&assay::STORE_FILE, node.store_file_bytes as f64),
        (&assay::STORE_PENDING, node.store_pending_bytes as f64),
        (&assay::STORE_PENDING_LIMIT, sources.store_pending_limit as f64),
    ] {
        out.value(family, value);
    }
}
