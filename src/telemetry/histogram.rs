//! A lock-free latency histogram that is exact at its classic edges and fine in between.
//!
//! Prometheus' native buckets (schema 3: eight per octave) give 4.4 % worst error, but no native
//! boundary of any schema falls on 10 ms, the limit of the disk gate. The cells are therefore cut
//! at the union of the native boundaries and the classic edges: one counter is raised per sample
//! and both forms are sums of cells, so the two can never disagree.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Schema of the native form: bucket `i` covers `(2^((i-1)/8), 2^(i/8)]` seconds.
pub const NATIVE_SCHEMA: i32 = 3;
/// Index of the first native bucket; its lower boundary is 2^-21 s = 476.8 ns.
pub const NATIVE_FIRST_INDEX: i32 = -167;
/// Number of native buckets. The last, index 57, begins at 128 s and takes everything above.
pub const NATIVE_BUCKETS: usize = 225;
/// Samples at or below this many seconds (2^-21) are counted as zero in the native form.
pub const NATIVE_ZERO_THRESHOLD: f64 = 1.0 / 2_097_152.0;

/// Upper edges of all classic buckets in nanoseconds, ascending: what any family of the exposition
/// shows is a part of these ([`HistogramSnapshot::at_or_below`]). They are the edges that existing
/// etcd boards know, finer ones from 10 microseconds on, and 10 ms exactly because the disk gate and
/// the alerts compare with it.
pub const EDGES_NS: [u64; 66] = [
    10_000,
    25_000,
    50_000,
    100_000,
    200_000,
    250_000,
    400_000,
    500_000,
    800_000,
    1_000_000,
    1_600_000,
    2_000_000,
    2_500_000,
    3_200_000,
    4_000_000,
    5_000_000,
    6_400_000,
    8_000_000,
    10_000_000,
    12_800_000,
    16_000_000,
    20_000_000,
    25_000_000,
    25_600_000,
    30_000_000,
    32_000_000,
    40_000_000,
    50_000_000,
    51_200_000,
    64_000_000,
    80_000_000,
    100_000_000,
    102_400_000,
    128_000_000,
    160_000_000,
    204_800_000,
    250_000_000,
    256_000_000,
    320_000_000,
    409_600_000,
    500_000_000,
    512_000_000,
    640_000_000,
    819_200_000,
    1_000_000_000,
    1_024_000_000,
    1_280_000_000,
    1_638_400_000,
    2_048_000_000,
    2_500_000_000,
    2_560_000_000,
    3_276_800_000,
    4_096_000_000,
    5_000_000_000,
    5_120_000_000,
    6_553_600_000,
    8_192_000_000,
    10_000_000_000,
    10_240_000_000,
    13_107_200_000,
    20_480_000_000,
    26_214_400_000,
    40_960_000_000,
    52_428_800_000,
    81_920_000_000,
    163_840_000_000,
];

const _: () = {
    let mut at = 1;
    while at < EDGES_NS.len() {
        assert!(EDGES_NS[at - 1] < EDGES_NS[at], "edges ascend");
        at += 1;
    }
};

/// 2^(k/8) for k in 0..8 in units of 2^-60, rounded down.
const EIGHTHS: [u128; 8] = [
    1_152_921_504_606_846_976,
    1_257_269_815_929_830_108,
    1_371_062_456_318_104_877,
    1_495_154_210_581_915_421,
    1_630_477_228_166_597_776,
    1_778_048_025_250_290_523,
    1_938_975_120_585_633_118,
    2_114_467_362_444_183_333,
];

/// Upper boundaries of the native buckets (all but the last, which has none) below the zero
/// boundary in front, in whole nanoseconds. A whole number is at most 2^(i/8) s exactly when it is
/// at most that value rounded down.
const NATIVE_BOUNDS_NS: [u64; NATIVE_BUCKETS] = {
    let mut bounds = [0; NATIVE_BUCKETS];
    let mut at = 0;
    while at < NATIVE_BUCKETS {
        let index = NATIVE_FIRST_INDEX - 1 + at as i32;
        let octave = index.div_euclid(8);
        let scaled = EIGHTHS[index.rem_euclid(8) as usize] * 1_000_000_000;
        bounds[at] = (scaled >> (60 - octave)) as u64;
        at += 1;
    }
    bounds
};

const CELLS: usize = NATIVE_BUCKETS + EDGES_NS.len() + 1;

/// Upper boundaries of the cells: the sorted union of both sets; the last cell has none.
const CELL_BOUNDS_NS: [u64; CELLS] = {
    let mut cells = [u64::MAX; CELLS];
    let (mut native, mut classic, mut at) = (0, 0, 0);
    while at < CELLS - 1 {
        let from_native = native < NATIVE_BUCKETS
            && (classic == EDGES_NS.len() || NATIVE_BOUNDS_NS[native] <= EDGES_NS[classic]);
        if from_native {
            cells[at] = NATIVE_BOUNDS_NS[native];
            native += 1;
        } else {
            cells[at] = EDGES_NS[classic];
            classic += 1;
        }
        at += 1;
    }
    cells
};

/// First cell that can hold a value with this many leading bits: the search starts here and needs
/// at most the cells of one octave.
const FIRST_CELL: [u16; 65] = {
    let mut first = [0; 65];
    let mut bits = 0;
    while bits < 65 {
        let smallest = if bits == 0 { 0 } else { 1_u64 << (bits - 1) };
        let mut cell = 0;
        while CELL_BOUNDS_NS[cell] < smallest {
            cell += 1;
        }
        first[bits] = cell as u16;
        bits += 1;
    }
    first
};

fn cell_of(ns: u64) -> usize {
    let mut cell = usize::from(FIRST_CELL[(64 - ns.leading_zeros()) as usize]);
    while CELL_BOUNDS_NS[cell] < ns {
        cell += 1;
    }
    cell
}

/// Latencies from 0.5 microseconds to 128 s; about 2.3 KiB, safe to share, never locks.
#[derive(Debug)]
pub struct LatencyHistogram {
    cells: [AtomicU64; CELLS],
    sum_ns: AtomicU64,
}

impl LatencyHistogram {
    /// An empty histogram.
    pub const fn new() -> Self {
        LatencyHistogram { cells: [const { AtomicU64::new(0) }; CELLS], sum_ns: AtomicU64::new(0) }
    }

    /// Counts one sample of `ns` nanoseconds.
    pub fn record_ns(&self, ns: u64) {
        self.cells[cell_of(ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    /// Both forms, derived from one reading of the cells. The sum may include a sample that the
    /// counts do not (or the reverse) when another thread records at this moment.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut snapshot =
            HistogramSnapshot { sum_ns: self.sum_ns.load(Relaxed), ..Default::default() };
        let (mut native, mut classic) = (0, 0);
        for (bound, cell) in CELL_BOUNDS_NS.iter().zip(&self.cells) {
            let count = cell.load(Relaxed);
            while classic < EDGES_NS.len() && EDGES_NS[classic] < *bound {
                snapshot.classic[classic] = snapshot.count;
                classic += 1;
            }
            while native < NATIVE_BUCKETS && NATIVE_BOUNDS_NS[native] < *bound {
                native += 1;
            }
            snapshot.count += count;
            match native.checked_sub(1) {
                None => snapshot.native_zero += count,
                Some(bucket) => snapshot.native[bucket] += count,
            }
        }
        snapshot
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

/// What a [`LatencyHistogram`] held at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Number of samples.
    pub count: u64,
    /// Sum of the samples in nanoseconds.
    pub sum_ns: u64,
    /// Cumulative counts: samples at or below the edge of the same position in
    /// [`EDGES_NS`]; the bucket without an edge is `count`.
    pub classic: [u64; EDGES_NS.len()],
    /// Samples at or below [`NATIVE_ZERO_THRESHOLD`].
    pub native_zero: u64,
    /// Samples of the native bucket with index [`NATIVE_FIRST_INDEX`] + position.
    pub native: [u64; NATIVE_BUCKETS],
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        HistogramSnapshot {
            count: 0,
            sum_ns: 0,
            classic: [0; EDGES_NS.len()],
            native_zero: 0,
            native: [0; NATIVE_BUCKETS],
        }
    }
}

impl HistogramSnapshot {
    /// Number of samples at or below an edge, which has to be one of [`EDGES_NS`]: for others the
    /// answer is that of the next lower edge.
    pub fn at_or_below(&self, edge_ns: u64) -> u64 {
        match EDGES_NS.binary_search(&edge_ns) {
            Ok(at) => self.classic[at],
            Err(0) => 0,
            Err(at) => self.classic[at - 1],
        }
    }

    /// Adds the samples of another histogram.
    pub fn add(&mut self, other: &HistogramSnapshot) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.native_zero += other.native_zero;
        for (mine, theirs) in self.classic.iter_mut().zip(other.classic) {
            *mine += theirs;
        }
        for (mine, theirs) in self.native.iter_mut().zip(other.native) {
            *mine += theirs;
        }
    }

    /// Number of samples that are surely above `ns`: those above the next boundary of either form.
    pub fn above(&self, ns: u64) -> u64 {
        let edge = EDGES_NS.partition_point(|edge| *edge < ns);
        let bound = NATIVE_BOUNDS_NS.partition_point(|bound| *bound < ns);
        let next = NATIVE_BOUNDS_NS.get(bound).copied().unwrap_or(u64::MAX);
        let below = match EDGES_NS.get(edge) {
            Some(exact) if *exact <= next => self.classic[edge],
            // Bound `i` is the lower end of bucket `i`.
            _ => self.native_zero + self.native[..bound].iter().sum::<u64>(),
        };
        self.count.saturating_sub(below)
    }

    /// What was added since an older snapshot of the same histogram.
    pub fn since(&self, older: &HistogramSnapshot) -> HistogramSnapshot {
        let mut since = self.clone();
        since.count = self.count.saturating_sub(older.count);
        since.sum_ns = self.sum_ns.saturating_sub(older.sum_ns);
        since.native_zero = self.native_zero.saturating_sub(older.native_zero);
        for (mine, theirs) in since.classic.iter_mut().zip(older.classic) {
            *mine = mine.saturating_sub(theirs);
        }
        for (mine, theirs) in since.native.iter_mut().zip(older.native) {
            *mine = mine.saturating_sub(theirs);
        }
        since
    }

    /// Upper boundary in nanoseconds of the native bucket that holds the `q` quantile (0 to 1):
    /// never below the true value and at most 9.1 % above it. `None` without samples.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = self.native_zero;
        if seen >= rank {
            return Some(NATIVE_BOUNDS_NS[0]);
        }
        for (bucket, count) in self.native.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(NATIVE_BOUNDS_NS.get(bucket + 1).copied().unwrap_or(u64::MAX));
            }
        }
        Some(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classic_edges_are_inclusive_and_exact() {
        let histogram = LatencyHistogram::new();
        histogram.record_ns(10_000_000);
        histogram.record_ns(10_000_001);
        histogram.record_ns(9_999_999);
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.at_or_below(8_000_000), 0);
        assert_eq!(snapshot.at_or_below(10_000_000), 2);
        assert_eq!(snapshot.at_or_below(12_800_000), 3);
        assert_eq!((snapshot.count, snapshot.sum_ns), (3, 30_000_000));
    }

    #[test]
    fn native_bucket_agrees_with_the_definition() {
        // Every octave, every eighth, one nanosecond to both sides of each boundary.
        for bound in NATIVE_BOUNDS_NS {
            for ns in [bound.saturating_sub(1), bound, bound + 1] {
                let histogram = LatencyHistogram::new();
                histogram.record_ns(ns);
                let snapshot = histogram.snapshot();
                let seconds = ns as f64 / 1e9;
                match snapshot.native.iter().position(|c| *c == 1) {
                    None => assert!(seconds <= NATIVE_ZERO_THRESHOLD, "{ns}"),
                    Some(bucket) => {
                        let index = NATIVE_FIRST_INDEX + bucket as i32;
                        let lower = 2_f64.powf(f64::from(index - 1) / 8.0);
                        let upper = 2_f64.powf(f64::from(index) / 8.0);
                        assert!(seconds > lower, "{ns} in {index}");
                        assert!(seconds <= upper || bucket + 1 == NATIVE_BUCKETS, "{ns} {index}");
                    }
                }
            }
        }
    }

    #[test]
    fn extremes_are_counted_once() {
        let histogram = LatencyHistogram::new();
        for ns in [0, 1, 476, 477, 127_999_999_999, 128_000_000_000, 128_000_000_001] {
            histogram.record_ns(ns);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.count, 7);
        assert_eq!(snapshot.native_zero, 3);
        assert_eq!(snapshot.native.iter().sum::<u64>() + snapshot.native_zero, 7);
        assert_eq!(snapshot.native[NATIVE_BUCKETS - 1], 1);
        assert_eq!(snapshot.at_or_below(52_428_800_000), 4);
        assert_eq!(snapshot.at_or_below(163_840_000_000), 7);
        assert_eq!(cell_of(u64::MAX), CELLS - 1);
    }

    #[test]
    fn sums_of_snapshots_are_snapshots_of_sums() {
        let (one, two, both) =
            (LatencyHistogram::new(), LatencyHistogram::new(), LatencyHistogram::new());
        for ns in [5, 900_000, 11_000_000] {
            one.record_ns(ns);
            both.record_ns(ns);
        }
        two.record_ns(70_000);
        both.record_ns(70_000);
        let mut sum = one.snapshot();
        sum.add(&two.snapshot());
        assert_eq!(sum, both.snapshot());
    }

    #[test]
    fn quantile_is_an_upper_bound_within_one_bucket() {
        let histogram = LatencyHistogram::new();
        assert_eq!(histogram.snapshot().quantile_ns(0.5), None);
        for ms in 1..=1_000_u64 {
            histogram.record_ns(ms * 1_000_000);
        }
        let p99 = histogram.snapshot().quantile_ns(0.99).unwrap();
        assert!((990_000_000..1_080_000_000).contains(&p99), "{p99}");
    }
}
