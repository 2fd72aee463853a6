//! A verdict made from known latencies, so that outputs can be checked without a disk.

use bench_disk::distribution::{Distribution, course};
use bench_disk::env::Environment;
use bench_disk::finding::Finding;
use bench_disk::judge::Outcome;
use bench_disk::probe;
use bench_disk::stats::{Percentiles, Summary};
use bench_disk::verdict::{FlushCost, Measured, Minute, OpenLoop, PhaseFigures, Verdict};
use std::path::Path;
use std::time::Duration;

/// The limit of all made verdicts, in nanoseconds.
pub(crate) const LIMIT_NS: u64 = 10_000_000;

/// Ten thousand syncs between 0.2 and 1.2 ms, of which every hundredth takes 20 ms.
pub(crate) fn latencies() -> Vec<u64> {
    (0..10_000u64)
        .map(|i| if i % 100 == 99 { 20_000_000 + i } else { 200_000 + (i * 7_919) % 1_000_000 })
        .collect()
}

/// The verdict about them, and this host's environment with a directory whose name needs escaping.
pub(crate) fn verdict(outcome: Outcome) -> (Environment, Verdict) {
    let mut environment = Environment::inspect(Path::new("/")).expect("a root");
    environment.directory = "/data/\"quoted\" & <odd>".into();
    let latencies = latencies();
    let finished: Vec<u64> = latencies
        .iter()
        .scan(0, |at, latency| {
            Some({
                *at += latency + 50_000;
                *at
            })
        })
        .collect();
    let summary = Summary::of(&latencies, LIMIT_NS);
    let limit = Duration::from_nanos(LIMIT_NS);
    let mut verdict = probe::blank(&environment, "standard", limit, outcome);
    let mut histogram = std::collections::BTreeMap::new();
    for latency in &latencies {
        *histogram.entry(latency.next_multiple_of(10_000)).or_insert(0) += 1;
    }
    let writes: Vec<u64> = (0..10_000u64).map(|i| 2_000 + i % 100).collect();
    verdict.findings.insert(0, Finding::warn("near-limit", "100 of 10000 syncs took longer"));
    verdict.measured = Some(Measured {
        summary,
        percentiles: Percentiles::of(&latencies, &summary).expect("samples"),
        histogram: histogram.into_iter().collect(),
        elapsed_ns: finished.last().copied().unwrap_or(0),
        end: Some(bench_disk::judge::End::Samples),
        bytes: 50_000_000,
        syncs: 10_500,
        flushes: Some(10_498),
        durability: "verified-path".into(),
        busy_before: Some(0.01),
        sync: Distribution::of(&latencies),
        write: Distribution::of(&writes),
        flush_cost: Some(FlushCost { write_ns: 40_000, synced_ns: 80_000 }),
        open_loop: Some(OpenLoop {
            interval_ns: 2_000_000,
            p99_ns: 20_000_000,
            p999_ns: 21_000_000,
            max_ns: 22_000_000,
        }),
        timeline: vec![Minute { minute: 0, n: 10, p50_ns: 1, p99_ns: 2, max_ns: 3 }],
        phases: vec![PhaseFigures {
            name: "loaded".into(),
            n: 10_000,
            exceeded: 100,
            p50_ns: 700_000,
            p99_ns: 20_000_000,
            p999_ns: 20_000_000,
            max_ns: 20_000_000,
            syncs_per_second: 500.0,
        }],
        course: course(&latencies, &finished),
    });
    verdict.remember(Vec::new());
    (environment, verdict)
}
