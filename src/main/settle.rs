//! Settles a disk that the gate let through in doubt: the running log's own syncs decide.

use assay::node::Threads;
use assay::telemetry::clock;
use assay::telemetry::histogram::{EDGES_NS, HistogramSnapshot};
use assay::telemetry::io::{FileKind, IoOp, IoStats};
use assay::telemetry::metrics::GateReading;
use bench_disk::gate::live::{LIVE_SYNCS, LIVE_WINDOW, Syncs};
use bench_disk::gate::{self, Decision, State};
use bench_disk::judge::Outcome;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often the counts are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// What the thread needs.
pub(crate) struct Settle {
    pub(crate) decision: Decision,
    pub(crate) limit: Duration,
    pub(crate) data_dir: PathBuf,
    pub(crate) io: Arc<IoStats>,
    pub(crate) reading: Arc<Mutex<GateReading>>,
}

impl Settle {
    /// Starts the thread if there is a doubt to settle. An override stays one for ever.
    pub(crate) fn start(self) {
        if self.decision.state != State::Inconclusive {
            return;
        }
        let mut threads = Threads::default();
        if let Err(error) = threads.start("gate", move || self.run()) {
            tracing::warn!(%error, "the disk stays unqualified until the next start");
        }
    }

    /// Looks until the disk has proven fit. One that has not may still do so in a later window.
    fn run(self) {
        let window_ns = LIVE_WINDOW.as_nanos() as u64;
        let (mut began_ns, mut before) = (clock::now_ns(), self.snapshot());
        loop {
            std::thread::park_timeout(PERIOD);
            let elapsed_ns = clock::now_ns() - began_ns;
            let now = self.snapshot();
            if now.count - before.count >= LIVE_SYNCS {
                let syncs = difference(&before, &now);
                let outcome = syncs.judge(self.limit);
                if outcome != Outcome::Inconclusive {
                    self.settled(outcome, &syncs, Duration::from_nanos(elapsed_ns));
                    if outcome == Outcome::Pass {
                        return;
                    }
                    (began_ns, before) = (clock::now_ns(), now);
                    continue;
                }
            }
            if elapsed_ns >= window_ns {
                (began_ns, before) = (clock::now_ns(), now);
            }
        }
    }

    fn snapshot(&self) -> HistogramSnapshot {
        self.io.latency(FileKind::Wal, IoOp::SyncData).snapshot()
    }

    fn settled(&self, outcome: Outcome, syncs: &Syncs, elapsed: Duration) {
        let p99 = Duration::from_nanos(syncs.quantile_ns(0.99));
        let state = if outcome == Outcome::Pass { State::Pass } else { State::Fail };
        *self.reading.lock() =
            GateReading { state: state.as_str(), p99_seconds: Some(p99.as_secs_f64()) };
        let (count, p99) = (syncs.count(), format!("at most {p99:?}"));
        let (limit, seconds) = (format!("{:?}", self.limit), elapsed.as_secs());
        if outcome != Outcome::Pass {
            tracing::warn!(
                syncs = count,
                p99,
                limit,
                seconds,
                "disk gate: FAIL, settled by the running log: this disk is too slow; the node runs \
                 on, move it to a faster one"
            );
            return;
        }
        tracing::info!(
            syncs = count,
            p99,
            limit,
            seconds,
            "disk gate: PASS, settled by the running log"
        );
        let Some(doubt) = &self.decision.verdict else { return };
        if let Err(error) = gate::keep(&syncs.verdict(doubt, outcome, elapsed), &self.data_dir) {
            tracing::warn!(%error, "cannot keep the disk verdict in the data directory");
        }
    }
}

/// What came between two snapshots, by the edges that both count exactly.
fn difference(before: &HistogramSnapshot, now: &HistogramSnapshot) -> Syncs {
    let mut buckets = Vec::with_capacity(EDGES_NS.len() + 1);
    let mut below = 0;
    for (at, edge) in EDGES_NS.into_iter().enumerate() {
        let up_to = now.classic[at] - before.classic[at];
        buckets.push((edge, up_to - below));
        below = up_to;
    }
    buckets.push((u64::MAX, (now.count - before.count).saturating_sub(below)));
    Syncs(buckets)
}
