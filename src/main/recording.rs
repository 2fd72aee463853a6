//! How this node loads its disk and its processors, for `bench-disk run --mix`.

use assay::node::{LOG_THREAD, STORE_THREAD};
use assay::telemetry::io::{FileKind, IoStats};
use assay::telemetry::process;
use assay::telemetry::sync_mix::{SyncMix, SyncMixSnapshot};
use bench_disk::sampler::recorded::{Recorded, SCHEMA, Stream, Work};

/// What the log and the store wrote before each sync, and what the threads did beside it.
pub(super) fn recorded(io: &IoStats) -> Recorded {
    let all = process::threads();
    let (writers, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|thread| [LOG_THREAD, STORE_THREAD].contains(&&*thread.name));
    let stream = |seen: &SyncMixSnapshot, writer: &str| Stream {
        writes: seen.writes,
        bytes: seen.bytes,
        extents: seen.extents,
        bytes_per_sync: seen.bytes_per_sync.clone(),
        gap_micros: seen.gap_micros.clone(),
        cpu_micros: writers
            .iter()
            .filter(|thread| thread.name == writer)
            .map(|thread| thread.cpu_ns / 1_000)
            .sum(),
    };
    let snapshot = |kind| io.mix(kind).map(SyncMix::snapshot).unwrap_or_default();
    let (log, store) = (snapshot(FileKind::Wal), snapshot(FileKind::Store));
    Recorded {
        schema: SCHEMA,
        program: concat!("assay ", env!("CARGO_PKG_VERSION")).to_string(),
        active_seconds: log.active_seconds,
        threads: others
            .into_iter()
            .map(|thread| Work {
                name: thread.name,
                cpu_micros: thread.cpu_ns / 1_000,
                turns: thread.turns,
            })
            .collect(),
        log: stream(&log, LOG_THREAD),
        store: stream(&store, STORE_THREAD),
    }
}
