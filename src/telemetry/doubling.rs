//! Histograms whose edges double, for what is no latency in seconds: etcd's milliseconds, lease
//! times.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Most edges that a histogram of this kind has, plus the cell above them.
const CELLS: usize = 25;

/// Counts values by `EDGES` edges, the first at `LEAST_MILLI` thousandths, each twice the one
/// before. Safe to share, never locks.
#[derive(Debug, Default)]
pub struct Doubling<const LEAST_MILLI: u64, const EDGES: usize> {
    cells: [AtomicU64; CELLS],
    /// Thousandths.
    sum_milli: AtomicU64,
}

/// What a [`Doubling`] held at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DoublingSnapshot {
    /// Upper edges with the number of values at or below, ascending.
    pub buckets: Vec<(f64, u64)>,
    /// Number of values.
    pub count: u64,
    /// Sum of the values.
    pub sum: f64,
}

impl<const LEAST_MILLI: u64, const EDGES: usize> Doubling<LEAST_MILLI, EDGES> {
    /// Counts a value in thousandths of the histogram's unit.
    pub fn record_milli(&self, milli: u64) {
        const { assert!(EDGES < CELLS && LEAST_MILLI > 0) };
        let above = milli.saturating_sub(1) / LEAST_MILLI;
        let cell = (u64::BITS - above.leading_zeros()) as usize;
        self.cells[cell.min(EDGES)].fetch_add(1, Relaxed);
        self.sum_milli.fetch_add(milli, Relaxed);
    }

    /// The edges with their counts.
    pub fn snapshot(&self) -> DoublingSnapshot {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(EDGES);
        for (at, cell) in self.cells.iter().enumerate().take(EDGES + 1) {
            count += cell.load(Relaxed);
            if at < EDGES {
                buckets.push(((LEAST_MILLI << at) as f64 / 1e3, count));
            }
        }
        DoublingSnapshot { buckets, count, sum: self.sum_milli.load(Relaxed) as f64 / 1e3 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_at_its_edge_and_above() {
        let histogram = Doubling::<500, 14>::default();
        for milli in [0, 1, 500, 501, 1_000, 1_001, 4_096_000, 4_096_001, u64::MAX >> 1] {
            histogram.record_milli(milli);
        }
        let snapshot = histogram.snapshot();
        let edges: Vec<f64> = snapshot.buckets.iter().map(|(edge, _)| *edge).collect();
        assert_eq!((edges[0], edges[1], edges[13]), (0.5, 1.0, 4096.0));
        let at = |edge: f64| snapshot.buckets.iter().find(|(e, _)| *e == edge).unwrap().1;
        assert_eq!((at(0.5), at(1.0), at(2.0), at(2048.0), at(4096.0)), (3, 5, 6, 6, 7));
        assert_eq!(snapshot.count, 9);
        assert_eq!(Doubling::<1_000, 24>::default().snapshot().buckets[23].0, 8_388_608.0);
    }
}
