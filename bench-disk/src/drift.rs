//! Has the disk under a running node become another than the one that was judged?
//!
//! The verdict's own inequality, on the syncs of the last hour: more than 1 % of them are slower than
//! a threshold, with confidence. One threshold is the limit of the gate, the other one follows from
//! the stored verdict, so that a fast disk that slows down is noticed long before the limit. How the
//! disk compares with those of the other members is for whoever sees them all.

use crate::stats;
use crate::verdict::Verdict;

/// Fewer syncs say nothing.
pub const LEAST_SYNCS: u64 = 2_000;

/// A slow-down counts from this many times the stored p99 on.
const FACTOR: u64 = 2;

/// Slow-downs below this part of the limit cannot matter, and SSDs wander there.
const FLOOR: u64 = 10;

/// What the stored verdict lets expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// 99th percentile of the verdict, in nanoseconds.
    pub p99_ns: u64,
    /// At most 1 % of the syncs should be slower than this, in nanoseconds.
    pub threshold_ns: u64,
}

impl Baseline {
    /// The baseline of a verdict; `None` if nothing was measured for it.
    pub fn of(verdict: &Verdict) -> Option<Self> {
        let percentiles = verdict.measured.as_ref()?.percentiles;
        let usual = percentiles.p99_high_ns.unwrap_or(percentiles.p99_ns).max(percentiles.p99_ns);
        let threshold_ns = usual.saturating_mul(FACTOR).max(verdict.limit_ns / FLOOR);
        Some(Self { p99_ns: percentiles.p99_ns, threshold_ns })
    }
}

/// More than 1 % of `n` syncs are slow, with 99 % confidence and as much dependence as a PASS
/// reckons with: a histogram does not tell bursts from single syncs.
pub fn exceeds(n: u64, slow: u64) -> bool {
    n >= LEAST_SYNCS && stats::too_many(n, slow, stats::PASS_DESIGN_FLOOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Outcome;
    use crate::verdict;

    #[test]
    fn only_enough_syncs_and_clearly_more_than_one_percent_count() {
        assert!(!exceeds(1_999, 1_999), "too few");
        assert!(exceeds(2_000, 200));
        assert!(!exceeds(2_000, 40), "2 % of 2,000 may be chance in bursts");
        assert!(!exceeds(1_000_000, 10_000), "1 % is allowed");
        assert!(exceeds(1_000_000, 12_000));
        assert!(!exceeds(1_000_000, 0));
    }

    #[test]
    fn the_threshold_follows_the_verdict_and_not_below_a_tenth_of_the_limit() {
        let mut verdict = verdict::tests::sample(Outcome::Pass, 1_000);
        let measured = verdict.measured.as_mut().expect("measured");
        measured.percentiles.p99_ns = 200_000;
        measured.percentiles.p99_high_ns = Some(250_000);
        assert_eq!(Baseline::of(&verdict).expect("one").threshold_ns, 1_000_000);
        let measured = verdict.measured.as_mut().expect("measured");
        measured.percentiles.p99_high_ns = Some(3_000_000);
        let baseline = Baseline::of(&verdict).expect("one");
        assert_eq!((baseline.p99_ns, baseline.threshold_ns), (200_000, 6_000_000));
        verdict.measured = None;
        assert_eq!(Baseline::of(&verdict), None);
    }
}
