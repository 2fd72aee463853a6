//! Settling a doubt: the running node's own log syncs say what a probe could not.
//!
//! A node that started unqualified writes its log on the disk in question, so every sync is a
//! sample. The rule is that of a probe, with as many samples as its full run; only the order of the
//! samples is not known, so bursts are assumed for a PASS and for a FAIL alike.

use crate::finding::Finding;
use crate::judge::{Outcome, nanos};
use crate::stats::{ALPHA, PASS_DESIGN_FLOOR, Percentiles, Summary};
use crate::verdict::{self, Measured, Verdict};
use std::time::Duration;

/// Syncs without which nothing is settled: those of a full probe.
pub const LIVE_SYNCS: u64 = 10_000;
/// Syncs of an earlier day say nothing about the disk of today.
pub const LIVE_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);
/// Name of the profile in a verdict that came about here.
const PROFILE: &str = "live";

/// Latencies of log syncs: upper edges in nanoseconds, ascending, with the number of syncs in the
/// bucket below each. The last edge is `u64::MAX`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Syncs(pub Vec<(u64, u64)>);

impl Syncs {
    /// Number of syncs.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// What they prove about a limit. Between two edges each way is reckoned with: a bucket that
    /// the limit cuts counts as too slow for a PASS, and as fast enough for a FAIL.
    pub fn judge(&self, limit: Duration) -> Outcome {
        let limit_ns = nanos(limit);
        if self.count() < LIVE_SYNCS {
            return Outcome::Inconclusive;
        }
        let (mut at_most, mut at_least, mut below) = (0, 0, 0);
        for &(edge, count) in &self.0 {
            at_most += if edge > limit_ns { count } else { 0 };
            at_least += if below >= limit_ns { count } else { 0 };
            below = edge;
        }
        if self.summary(at_most).passes() {
            Outcome::Pass
        } else if self.summary(at_least).fails() {
            Outcome::Fail
        } else {
            Outcome::Inconclusive
        }
    }

    fn summary(&self, exceeded: u64) -> Summary {
        Summary {
            n: self.count(),
            exceeded,
            runs: exceeded,
            longest_burst: 0,
            design_effect: PASS_DESIGN_FLOOR,
            alpha: ALPHA,
            fraction_low: 0.0,
            fraction_high: 1.0,
        }
    }

    /// Upper edge of the bucket that holds a quantile (0 to 1), in nanoseconds.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let rank = ((quantile * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.0.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map_or(0, |(edge, _)| *edge)
    }

    /// The verdict that takes the place of one in doubt about the same device.
    pub fn verdict(&self, doubt: &Verdict, outcome: Outcome, elapsed: Duration) -> Verdict {
        let limit = Duration::from_nanos(doubt.limit_ns);
        let above = self.0.iter().filter(|(edge, _)| *edge > doubt.limit_ns);
        let summary = self.summary(above.map(|(_, count)| count).sum());
        let text = format!(
            "settled by the running node: {} log syncs in {} s, p99 at most {:.2} ms",
            self.count(),
            elapsed.as_secs(),
            self.quantile_ns(0.99) as f64 / 1e6
        );
        let created = verdict::unix_now();
        let mut settled = Verdict {
            outcome,
            limit_ns: nanos(limit),
            created,
            expires: verdict::expiry(created, &doubt.identity),
            profile: PROFILE.into(),
            findings: vec![Finding::note("settled-live", text)],
            measured: Some(Measured {
                summary,
                percentiles: Percentiles {
                    p50_ns: self.quantile_ns(0.5),
                    p90_ns: self.quantile_ns(0.9),
                    p99_ns: self.quantile_ns(0.99),
                    p999_ns: self.quantile_ns(0.999),
                    max_ns: self.quantile_ns(1.0),
                    p99_low_ns: self.quantile_ns(0.98),
                    p99_high_ns: Some(self.quantile_ns(0.999)),
                },
                histogram: self.0.iter().copied().filter(|(_, count)| *count > 0).collect(),
                elapsed_ns: nanos(elapsed),
                end: None,
                bytes: 0,
                syncs: self.count(),
                flushes: None,
                durability: "unverified".into(),
                busy_before: None,
                sync: None,
                write: None,
                course: Vec::new(),
                flush_cost: None,
                open_loop: None,
                timeline: Vec::new(),
                phases: Vec::new(),
            }),
            ..doubt.clone()
        };
        settled.remember(doubt.attempts.clone());
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(10);

    fn syncs(fast: u64, slow: u64) -> Syncs {
        Syncs(vec![(4_000_000, fast), (10_000_000, 0), (20_000_000, slow), (u64::MAX, 0)])
    }

    #[test]
    fn ten_thousand_syncs_settle_it_and_fewer_do_not() {
        for (fast, slow, outcome) in [
            (9_999, 0, Outcome::Inconclusive),
            (10_000, 0, Outcome::Pass),
            (9_990, 10, Outcome::Pass),
            (9_900, 100, Outcome::Inconclusive),
            (9_000, 1_000, Outcome::Fail),
            (0, 9_999, Outcome::Inconclusive),
            // More of the same settle what was too near.
            (995_000, 5_000, Outcome::Pass),
            (985_000, 15_000, Outcome::Fail),
        ] {
            assert_eq!(syncs(fast, slow).judge(LIMIT), outcome, "{fast} fast, {slow} slow");
        }
    }

    #[test]
    fn a_limit_inside_of_a_bucket_is_given_neither_benefit() {
        // All are between 4 and 10 ms: they prove nothing about 7 ms.
        let syncs = Syncs(vec![(4_000_000, 0), (10_000_000, 20_000), (u64::MAX, 0)]);
        assert_eq!(syncs.judge(Duration::from_millis(7)), Outcome::Inconclusive);
        assert_eq!(syncs.judge(Duration::from_millis(10)), Outcome::Pass);
        assert_eq!(syncs.judge(Duration::from_millis(4)), Outcome::Fail);
        assert_eq!(syncs.quantile_ns(0.5), 10_000_000);
    }
}
