//! Does the disk still do what the gate's verdict promised? Asked at every scrape.

use assay::telemetry::clock;
use assay::telemetry::io::{FileKind, IoOp, IoStats};
use assay::telemetry::metrics::DriftSample;
use assay::telemetry::window::Window;
use bench_disk::drift::{self, Baseline};
use bench_disk::verdict::Verdict;
use parking_lot::Mutex;
use std::sync::Arc;

/// Syncs of this long are looked at: an hour holds enough of them on any node with work, and one
/// bad minute does not decide.
const WINDOW_NS: u64 = 3_600 * 1_000_000_000;

/// The log's syncs against the limit and against the stored verdict.
pub(crate) struct DiskDrift {
    io: Arc<IoStats>,
    limit_ns: u64,
    baseline: Option<Baseline>,
    state: Mutex<State>,
}

struct State {
    window: Window,
    limit: bool,
    baseline: bool,
}

impl DiskDrift {
    pub(crate) fn new(io: Arc<IoStats>, limit_ns: u64, verdict: Option<&Verdict>) -> Self {
        let now = io.latency(FileKind::Wal, IoOp::SyncData).snapshot();
        let window = Window::new(WINDOW_NS, clock::now_ns(), now);
        DiskDrift {
            io,
            limit_ns,
            baseline: verdict.and_then(Baseline::of),
            state: Mutex::new(State { window, limit: false, baseline: false }),
        }
    }

    /// Judges the last hour, and says so once when the answer changes.
    pub(crate) fn sample(&self) -> DriftSample {
        let total = self.io.latency(FileKind::Wal, IoOp::SyncData).snapshot();
        let mut state = self.state.lock();
        let recent = state.window.recent(clock::now_ns(), &total);
        let slower_than = |threshold_ns| drift::exceeds(recent.count, recent.above(threshold_ns));
        let limit = slower_than(self.limit_ns);
        let baseline = self.baseline.is_some_and(|known| slower_than(known.threshold_ns));
        let p99_ns = recent.quantile_ns(0.99);
        if (limit, baseline) != (state.limit, state.baseline) {
            let p99_ms = p99_ns.map_or(0.0, |ns| ns as f64 / 1e6);
            let stored_ms = self.baseline.map_or(0.0, |known| known.p99_ns as f64 / 1e6);
            if limit || baseline {
                tracing::warn!(
                    p99_ms,
                    stored_ms,
                    above_limit = limit,
                    "disk drift: log syncs of the last hour are slower than the disk's verdict allows"
                );
            } else {
                tracing::info!(
                    p99_ms,
                    stored_ms,
                    "disk drift: the disk does again what it promised"
                );
            }
            (state.limit, state.baseline) = (limit, baseline);
        }
        DriftSample {
            p99_seconds: p99_ns.map(|ns| ns as f64 / 1e9),
            against: [("baseline", baseline), ("limit", limit)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn syncs(io: &IoStats, count: usize, ns: u64) {
        for _ in 0..count {
            io.latency(FileKind::Wal, IoOp::SyncData).record_ns(ns);
        }
    }

    #[test]
    fn a_disk_that_slows_down_is_noticed_before_the_limit_and_at_it() {
        let io = Arc::new(IoStats::new());
        syncs(&io, 10_000, 90_000_000);
        let mut drift =
            DiskDrift::new(io.clone(), Duration::from_millis(10).as_nanos() as u64, None);
        drift.baseline = Some(Baseline { p99_ns: 300_000, threshold_ns: 1_000_000 });
        assert_eq!(drift.sample().p99_seconds, None, "what was before does not count");
        syncs(&io, 5_000, 300_000);
        assert_eq!(drift.sample().against, [("baseline", false), ("limit", false)]);
        syncs(&io, 500, 3_000_000);
        assert_eq!(drift.sample().against, [("baseline", true), ("limit", false)]);
        syncs(&io, 500, 30_000_000);
        let sample = drift.sample();
        assert_eq!(sample.against, [("baseline", true), ("limit", true)]);
        assert!(sample.p99_seconds > Some(0.025));
        syncs(&io, 500_000, 300_000);
        assert_eq!(drift.sample().against, [("baseline", false), ("limit", false)]);
    }
}
