//! Confidence bounds for "at most 1 % of syncs exceed the limit", honest about bursts.
//!
//! A sample exceeds when its raw nanoseconds are above the limit. With `K` exceedances in `n`
//! independent samples the Clopper-Pearson bounds would settle the matter, but stalls come in
//! bursts, so both numbers are first divided by a design effect: the factor by which dependence
//! inflates the variance of the count. The forms for real-valued `n / D` and `K / D` go through
//! the regularised incomplete beta function.

use serde::{Deserialize, Serialize};
use statrs::function::beta::checked_beta_reg;

/// The fraction of samples that may exceed the limit: the definition of a 99th percentile.
pub const ALLOWED_FRACTION: f64 = 0.01;

/// The chance of a wrong PASS, and of a wrong FAIL over all looks together, unless somebody asks for
/// another confidence. Nodes trust no verdict with a larger one.
pub const ALPHA: f64 = 0.01;

/// Looks at which a FAIL may be declared, the end included. A FAIL spends `ALPHA / LOOKS` each.
pub const LOOKS: f64 = 6.0;

/// A PASS assumes at least this much dependence. Simulated two-state bursts of ten and more slip
/// through in up to 45 % of trials without a floor, and in at most 2 % with this one.
pub const PASS_DESIGN_FLOOR: f64 = 10.0;

/// Batch counts whose variance ratios look for slow waves.
const BATCHES: [usize; 3] = [20, 40, 80];

/// Halvings of `[0, 1]` when a bound is printed: far below any digit shown.
const BISECTIONS: u32 = 60;

/// What a set of latencies says about the fraction above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Samples.
    pub n: u64,
    /// Samples above the limit.
    pub exceeded: u64,
    /// Maximal runs of consecutive samples above the limit.
    pub runs: u64,
    /// Length of the longest such run, in samples.
    pub longest_burst: u64,
    /// Estimated design effect, at least 1.
    pub design_effect: f64,
    /// Chance of a wrong answer that was accepted: 0.01 for a confidence of 99 %.
    #[serde(default = "default_alpha")]
    pub alpha: f64,
    /// Lower confidence bound (split over the looks) of the fraction above the limit.
    pub fraction_low: f64,
    /// Upper confidence bound of the fraction above the limit.
    pub fraction_high: f64,
}

impl Summary {
    /// Summarises latencies in nanoseconds, in the order of their measurement, at 99 % confidence.
    pub fn of(latencies: &[u64], limit_ns: u64) -> Self {
        Self::at(latencies, limit_ns, ALPHA)
    }

    /// The same with another accepted chance of a wrong answer, above 0 and below 1.
    pub fn at(latencies: &[u64], limit_ns: u64, alpha: f64) -> Self {
        let n = latencies.len();
        let (mut exceeded, mut runs, mut longest, mut current) = (0u64, 0u64, 0u64, 0u64);
        for &latency in latencies {
            if latency > limit_ns {
                exceeded += 1;
                runs += u64::from(current == 0);
                current += 1;
                longest = longest.max(current);
            } else {
                current = 0;
            }
        }
        let design_effect = design_effect(latencies, limit_ns, exceeded, runs);
        let mut summary = Self {
            n: n as u64,
            exceeded,
            runs,
            longest_burst: longest,
            design_effect,
            alpha,
            fraction_low: 0.0,
            fraction_high: 1.0,
        };
        summary.fraction_low = bisect(|p| summary.lower_tail(p) < alpha / LOOKS);
        summary.fraction_high = bisect(|p| summary.upper_tail(p) < 1.0 - alpha);
        summary
    }

    /// More than the allowed fraction exceeds, with confidence.
    pub fn fails(&self) -> bool {
        self.lower_tail(ALLOWED_FRACTION) < self.alpha / LOOKS
    }

    /// At most the allowed fraction exceeds, with confidence. Only meaningful at a planned end.
    pub fn passes(&self) -> bool {
        self.upper_tail(ALLOWED_FRACTION) >= 1.0 - self.alpha
    }

    /// The design effect that a PASS reckons with.
    pub fn pass_design(&self) -> f64 {
        self.design_effect.max(PASS_DESIGN_FLOOR)
    }

    /// The confidence of a PASS in percent, for people: 99 or 99.9.
    pub fn confidence_percent(&self) -> f64 {
        ((1.0 - self.alpha) * 1e6).round() / 1e4
    }

    /// Longest bursts, in operations, against which a run without exceedance protects: `n` over the
    /// samples that would be needed if they were independent (459 at 99 % confidence).
    pub fn covered_burst(&self) -> u64 {
        self.n / clean_samples(self.alpha)
    }

    /// Chance of at least this many exceedances if the true fraction were `p`.
    fn lower_tail(&self, p: f64) -> f64 {
        let n = self.n as f64 / self.design_effect;
        let k = self.exceeded as f64 / self.design_effect;
        if k <= 0.0 { 1.0 } else { beta_reg(k, n - k + 1.0, p) }
    }

    /// Chance of more than this many exceedances if the true fraction were `p`.
    fn upper_tail(&self, p: f64) -> f64 {
        let design = self.pass_design();
        let n = self.n as f64 / design;
        let k = self.exceeded as f64 / design;
        if n - k <= 0.0 { 0.0 } else { beta_reg(k + 1.0, n - k, p) }
    }
}

fn default_alpha() -> f64 {
    ALPHA
}

/// More than the allowed fraction of `n` samples exceeds, at 99 % confidence, with this design effect.
pub fn too_many(n: u64, exceeded: u64, design: f64) -> bool {
    let (n, k) = (n as f64 / design, exceeded as f64 / design);
    k > 0.0 && beta_reg(k, n - k + 1.0, ALLOWED_FRACTION) < ALPHA
}

/// Independent samples without any exceedance that prove the limit.
pub fn clean_samples(alpha: f64) -> u64 {
    (alpha.ln() / (1.0 - ALLOWED_FRACTION).ln()).ceil().max(1.0) as u64
}

/// Percentiles of a run, in nanoseconds, with the interval of the 99th.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest sample.
    pub max_ns: u64,
    /// Lower confidence limit of the 99th percentile.
    pub p99_low_ns: u64,
    /// Upper confidence limit of the 99th percentile; `None` if the run is too short for one,
    /// so that it may lie above every sample seen.
    pub p99_high_ns: Option<u64>,
}

impl Percentiles {
    /// Order statistics of the samples; `None` without samples.
    pub fn of(latencies: &[u64], summary: &Summary) -> Option<Self> {
        let mut sorted = latencies.to_vec();
        sorted.sort_unstable();
        let max_ns = *sorted.last()?;
        let at = |fraction: f64| {
            let rank = (fraction * sorted.len() as f64).ceil() as usize;
            sorted[rank.clamp(1, sorted.len()) - 1]
        };
        let n = sorted.len() as f64;
        let high = upper_rank(n, summary.pass_design(), summary.alpha);
        let low = lower_rank(n, summary.design_effect, summary.alpha);
        Some(Self {
            p50_ns: at(0.50),
            p90_ns: at(0.90),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns,
            p99_low_ns: sorted[low.clamp(1, sorted.len()) - 1],
            p99_high_ns: high.map(|rank| sorted[rank.clamp(1, sorted.len()) - 1]),
        })
    }
}

/// Largest `K` that still passes at this `n`, turned into the rank of the upper limit: the p99 is
/// below `x(n - K)` exactly when at most `K` samples above it are compatible with a PASS.
fn upper_rank(n: f64, design: f64, alpha: f64) -> Option<usize> {
    let passes = |k: f64| {
        let (n, k) = (n / design, k / design);
        n > k && beta_reg(k + 1.0, n - k, ALLOWED_FRACTION) >= 1.0 - alpha
    };
    if !passes(0.0) {
        return None;
    }
    let (mut good, mut bad) = (0u64, n as u64);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if passes(middle as f64) { good = middle } else { bad = middle }
    }
    Some(n as usize - good as usize)
}

/// Smallest `K` that would prove too many exceedances at this `n`, as a rank from below.
fn lower_rank(n: f64, design: f64, alpha: f64) -> usize {
    let proves = |k: f64| {
        let (n, k) = (n / design, k / design);
        beta_reg(k, n - k + 1.0, ALLOWED_FRACTION) < alpha
    };
    let (mut bad, mut good) = (0u64, n as u64);
    while good - bad > 1 {
        let middle = good.midpoint(bad);
        if proves(middle as f64) { good = middle } else { bad = middle }
    }
    n as usize - good as usize + 1
}

/// Estimates how much dependence inflates the variance of the count, at least 1.
fn design_effect(latencies: &[u64], limit_ns: u64, exceeded: u64, runs: u64) -> f64 {
    if exceeded == 0 {
        return 1.0;
    }
    let p = exceeded as f64 / latencies.len() as f64;
    // Exact for a two-state Markov chain: (1 + r) / (1 - r) with r = 1 - 1 / (b (1 - p)). For a
    // small p this is 2b - 1; a disk that always exceeds has one long run and still no dependence.
    let markov = 2.0 * (exceeded as f64 / runs as f64) * (1.0 - p) - 1.0;
    BATCHES
        .iter()
        .map(|&batches| variance_ratio(latencies, limit_ns, batches))
        .fold(markov.max(1.0), f64::max)
}

/// Variance of the exceedances per batch over what independence predicts.
fn variance_ratio(latencies: &[u64], limit_ns: u64, batches: usize) -> f64 {
    let size = latencies.len() / batches;
    if size < 2 {
        return 1.0;
    }
    let counts: Vec<f64> = latencies
        .chunks_exact(size)
        .take(batches)
        .map(|batch| batch.iter().filter(|&&latency| latency > limit_ns).count() as f64)
        .collect();
    let mean = counts.iter().sum::<f64>() / batches as f64;
    let p = mean / size as f64;
    let expected = size as f64 * p * (1.0 - p);
    if expected <= 0.0 {
        return 1.0;
    }
    let variance =
        counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (batches - 1) as f64;
    variance / expected
}

/// `I_x(a, b)`, with the limits that the library rejects.
fn beta_reg(a: f64, b: f64, x: f64) -> f64 {
    checked_beta_reg(a, b, x.clamp(0.0, 1.0)).unwrap_or(if x <= 0.0 { 0.0 } else { 1.0 })
}

/// The point of `[0, 1]` where a monotone predicate turns false.
fn bisect(holds_below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0f64, 1.0f64);
    if !holds_below(low) {
        return 0.0;
    }
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        if holds_below(middle) { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests;
