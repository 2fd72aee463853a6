//! How the disk of the log is right now: what a member goes by itself and tells the others.

use super::clock;
use super::io::{FileKind, IoOp, IoStats};
use super::window::Window;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Syncs of this long are looked at (`operations.md` 6).
const WINDOW_NS: u64 = 60_000_000_000;
/// How often they are counted anew.
const COUNT_EVERY_NS: u64 = 1_000_000_000;
/// Fewer syncs than this in a window have no 99th percentile worth the name.
const SYNCS_MIN: u64 = 600;
const NS_PER_MS: u64 = 1_000_000;
const NS_PER_US: u64 = 1_000;

/// What a member says about the disk of its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSample {
    /// Age in ms of the oldest operation of the log that has not ended, 0 if none is running.
    pub in_flight_ms: u64,
    /// 99th percentile of the syncs of the last minute, microseconds, if there were enough.
    pub p99_us: Option<u64>,
    /// The disk hung and has not made enough good syncs since.
    pub recovering: bool,
    /// Term in which this member began to hand leadership over because of it, 0 for none.
    pub handed_over: u64,
}

/// The node thread keeps it, the links to other members read it with every batch they send.
#[derive(Debug)]
pub struct DiskHealth {
    io: Arc<IoStats>,
    /// 0: not known.
    p99_us: AtomicU64,
    recovering: AtomicBool,
    handed_over: AtomicU64,
    /// The process stood still up to here: a disk is not to blame for what was before.
    woke_ns: AtomicU64,
    counted: Mutex<Counted>,
}

#[derive(Debug)]
struct Counted {
    window: Window,
    next_ns: u64,
}

impl DiskHealth {
    /// Of the log whose operations are counted here.
    pub fn new(io: Arc<IoStats>) -> Self {
        let now = io.latency(FileKind::Wal, IoOp::SyncData).snapshot();
        let counted = Counted { window: Window::new(WINDOW_NS, clock::now_ns(), now), next_ns: 0 };
        DiskHealth {
            io,
            p99_us: AtomicU64::new(0),
            recovering: AtomicBool::new(false),
            handed_over: AtomicU64::new(0),
            woke_ns: AtomicU64::new(0),
            counted: Mutex::new(counted),
        }
    }

    /// Counts the syncs of the last minute, at most once a second.
    pub fn count(&self, now_ns: u64) {
        let mut counted = self.counted.lock();
        if now_ns < counted.next_ns {
            return;
        }
        counted.next_ns = now_ns + COUNT_EVERY_NS;
        let total = self.io.latency(FileKind::Wal, IoOp::SyncData).snapshot();
        let recent = counted.window.recent(now_ns, &total);
        let p99_ns = recent.quantile_ns(0.99).filter(|_| recent.count >= SYNCS_MIN);
        // A sync of no time at all is not an unknown one.
        self.p99_us.store(p99_ns.map_or(0, |ns| (ns / NS_PER_US).max(1)), Relaxed);
    }

    /// The process stood still until now.
    pub fn woke(&self, now_ns: u64) {
        self.woke_ns.store(now_ns, Relaxed);
    }

    /// Whether the disk hung and has not made enough good syncs since.
    pub fn set_recovering(&self, recovering: bool) {
        self.recovering.store(recovering, Relaxed);
    }

    /// Leadership of this term is being handed over because of the disk; 0: of none.
    pub fn set_handed_over(&self, term: u64) {
        self.handed_over.store(term, Relaxed);
    }

    /// What is known now.
    pub fn sample(&self) -> DiskSample {
        let now_ns = clock::now_ns();
        // The thread of the log prepares its next segment as well, and batches wait meanwhile.
        let kinds = [FileKind::Wal, FileKind::Spare];
        let age_ns = kinds.into_iter().filter_map(|kind| self.io.oldest_of(kind)).max();
        let awake_ns = now_ns.saturating_sub(self.woke_ns.load(Relaxed));
        DiskSample {
            in_flight_ms: age_ns.unwrap_or(0).min(awake_ns) / NS_PER_MS,
            p99_us: Some(self.p99_us.load(Relaxed)).filter(|us| *us > 0),
            recovering: self.recovering.load(Relaxed),
            handed_over: self.handed_over.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_enough_syncs_of_the_last_minute() {
        let io = Arc::new(IoStats::new());
        let health = DiskHealth::new(io.clone());
        let begin = clock::now_ns();
        let sync = |count: u64, ns| {
            (0..count).for_each(|_| io.latency(FileKind::Wal, IoOp::SyncData).record_ns(ns));
        };
        sync(SYNCS_MIN - 1, 2_000_000);
        health.count(begin);
        assert_eq!(health.sample().p99_us, None, "too few");
        sync(1, 2_000_000);
        health.count(begin + COUNT_EVERY_NS / 2);
        assert_eq!(health.sample().p99_us, None, "not counted again yet");
        health.count(begin + COUNT_EVERY_NS);
        assert!((1_000..4_000).contains(&health.sample().p99_us.expect("enough")));
        health.count(begin + 3 * WINDOW_NS);
        health.count(begin + 5 * WINDOW_NS);
        assert_eq!(health.sample().p99_us, None, "a minute without syncs");
    }

    #[test]
    fn whatever_the_log_waits_for_counts_and_a_pause_of_the_process_does_not() {
        let io = Arc::new(IoStats::new());
        let health = DiskHealth::new(io.clone());
        let other = io.begin(FileKind::Store, IoOp::SyncData);
        let write = io.begin(FileKind::Wal, IoOp::Write);
        let began = clock::now_ns();
        while clock::now_ns() < began + 20 * NS_PER_MS {
            std::hint::spin_loop();
        }
        assert!(health.sample().in_flight_ms >= 20);
        health.woke(clock::now_ns() + 3_600_000 * NS_PER_MS);
        assert_eq!(health.sample().in_flight_ms, 0);
        health.woke(0);
        write.end(1, true);
        assert_eq!(health.sample().in_flight_ms, 0, "the store's disk is not asked");
        other.end(0, true);
    }
}
