//! One kind of latency described for other programs: exact moments, seventeen percentiles, and how
//! it went over time.
//!
//! All of it is computed from the raw samples, never from histogram buckets, so that no percentile
//! is larger than the maximum.

use serde::{Deserialize, Serialize};

/// The percentiles that readers of fio's JSON expect.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// Points of it: as many as a plot can show and a verdict file should carry.
const SLICES: usize = 60;

/// Latencies of one kind of call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of samples.
    pub n: u64,
    /// Smallest, in nanoseconds.
    pub min_ns: u64,
    /// Largest, in nanoseconds.
    pub max_ns: u64,
    /// Mean, in nanoseconds.
    pub mean_ns: f64,
    /// Standard deviation, in nanoseconds.
    pub stddev_ns: f64,
    /// Values at [`PERCENTILES`], in nanoseconds.
    pub percentiles_ns: [u64; 17],
}

impl Distribution {
    /// Describes latencies in nanoseconds, in any order; `None` without samples.
    pub fn of(latencies: &[u64]) -> Option<Self> {
        let mut sorted = latencies.to_vec();
        sorted.sort_unstable();
        let (&min_ns, &max_ns) = (sorted.first()?, sorted.last()?);
        let n = sorted.len() as f64;
        let mean_ns = sorted.iter().map(|&ns| ns as f64).sum::<f64>() / n;
        let squares = sorted.iter().map(|&ns| (ns as f64 - mean_ns).powi(2)).sum::<f64>();
        Some(Self {
            n: sorted.len() as u64,
            min_ns,
            max_ns,
            mean_ns,
            stddev_ns: (squares / (n - 1.0).max(1.0)).sqrt(),
            percentiles_ns: PERCENTILES.map(|percentile| rank(&sorted, percentile / 100.0)),
        })
    }
}

/// One stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// When its last sample returned, in nanoseconds since the first sample began.
    pub end_ns: u64,
    /// Samples in it.
    pub n: u64,
    /// Median latency, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// Largest latency, in nanoseconds.
    pub max_ns: u64,
}

/// Cuts a run into stretches of equal duration; stretches without a sample are left out.
/// `finished` holds the time at which each sample returned, ascending.
pub fn course(latencies: &[u64], finished: &[u64]) -> Vec<Slice> {
    let Some(&end) = finished.last() else { return Vec::new() };
    let width = end.div_ceil(SLICES as u64).max(1);
    let mut slices = Vec::new();
    let mut from = 0;
    while from < finished.len().min(latencies.len()) {
        let number = finished[from] / width;
        let length = finished[from..].partition_point(|&at| at / width == number);
        let to = (from + length).min(latencies.len());
        let mut sorted = latencies[from..to].to_vec();
        sorted.sort_unstable();
        slices.push(Slice {
            end_ns: finished[to - 1],
            n: sorted.len() as u64,
            p50_ns: rank(&sorted, 0.50),
            p99_ns: rank(&sorted, 0.99),
            max_ns: rank(&sorted, 1.0),
        });
        from = to;
    }
    slices
}

/// The order statistic at a fraction; 0 of an empty set.
fn rank(sorted: &[u64], fraction: f64) -> u64 {
    let rank = (fraction * sorted.len() as f64).ceil() as usize;
    rank.clamp(1, sorted.len().max(1))
        .checked_sub(1)
        .and_then(|at| sorted.get(at))
        .map_or(0, |&v| v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_percentiles_are_exact() {
        let latencies: Vec<u64> = (1..=10_000).rev().collect();
        let described = Distribution::of(&latencies).expect("samples");
        assert_eq!((described.n, described.min_ns, described.max_ns), (10_000, 1, 10_000));
        assert!((described.mean_ns - 5_000.5).abs() < 1e-9);
        assert!((described.stddev_ns - 2_886.9).abs() < 0.1, "{}", described.stddev_ns);
        assert_eq!(described.percentiles_ns[12], 9_900);
        assert_eq!(described.percentiles_ns[16], 9_999);
        assert_eq!(Distribution::of(&[]), None);
        let single = Distribution::of(&[7]).expect("a sample");
        assert_eq!((single.percentiles_ns, single.stddev_ns), ([7; 17], 0.0));
    }

    #[test]
    fn a_course_has_at_most_sixty_one_slices_and_loses_no_sample() {
        let latencies: Vec<u64> = (0..5_000).map(|i| i % 97).collect();
        let mut finished: Vec<u64> = (0..5_000u64).map(|i| i * 1_000).collect();
        let slices = course(&latencies, &finished);
        assert!((SLICES..=SLICES + 1).contains(&slices.len()), "{}", slices.len());
        assert_eq!(slices.iter().map(|slice| slice.n).sum::<u64>(), 5_000);
        // A pause in which nothing finished leaves a gap, not empty slices.
        for at in &mut finished[2_500..] {
            *at += 5_000_000;
        }
        let slices = course(&latencies, &finished);
        assert!(slices.len() < 45 && slices.iter().all(|slice| slice.n > 0), "{}", slices.len());
        assert!(slices.is_sorted_by_key(|slice| slice.end_ns));
        assert_eq!(course(&[], &[]), []);
    }
}
