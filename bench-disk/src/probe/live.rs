//! The 99th percentile while the run goes on, for people who watch it.

use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Samples between two computations: a reader looks twenty times per second, a probe takes at most
/// some ten thousand samples in that time, and a computation costs a few microseconds.
const EVERY: u64 = 64;

/// The percentile as other threads see it, in nanoseconds; 0 before there is one.
#[derive(Debug, Default)]
pub(super) struct Live(AtomicU64);

impl Live {
    /// The writing end.
    pub(super) fn tail(self: &Arc<Self>) -> Tail {
        let histogram = Histogram::new(2).ok().map(|mut histogram: Histogram<u64>| {
            histogram.auto(true);
            histogram
        });
        Tail { histogram, seen: 0, live: self.clone() }
    }

    pub(super) fn p99(&self) -> Option<Duration> {
        let ns = self.0.load(Ordering::Relaxed);
        (ns > 0).then(|| Duration::from_nanos(ns))
    }
}

/// Collects latencies on the sampling thread.
pub(super) struct Tail {
    histogram: Option<Histogram<u64>>,
    seen: u64,
    live: Arc<Live>,
}

impl Extend<u64> for Tail {
    fn extend<T: IntoIterator<Item = u64>>(&mut self, latencies: T) {
        let Some(histogram) = &mut self.histogram else { return };
        for ns in latencies {
            let _ = histogram.record(ns);
            self.seen += 1;
            if self.seen.is_multiple_of(EVERY) {
                self.live.0.store(histogram.value_at_quantile(0.99), Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_follows_the_samples() {
        let live = Arc::new(Live::default());
        let mut tail = live.tail();
        tail.extend([1_000_000; 63]);
        assert_eq!(live.p99(), None);
        tail.extend([1_000_000; 1_000]);
        let first = live.p99().expect("a percentile").as_nanos() as f64;
        assert!((first / 1e6 - 1.0).abs() < 0.02, "{first}");
        tail.extend([50_000_000; 100]);
        let then = live.p99().expect("a percentile").as_nanos() as f64;
        assert!((then / 5e7 - 1.0).abs() < 0.02, "{then}");
    }
}
