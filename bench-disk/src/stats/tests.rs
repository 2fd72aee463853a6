//! The published thresholds of the rule.

use super::*;

const LIMIT: u64 = 10_000_000;

/// `n` samples with `k` single exceedances spread evenly.
fn spread(n: usize, k: usize) -> Vec<u64> {
    let mut samples = vec![1_000_000; n];
    for i in 0..k {
        samples[i * n / k] = 20_000_000;
    }
    samples
}

#[test]
fn a_clean_run_passes_from_4590_samples_on() {
    // ln 0.01 / ln 0.99 is 458.2, and the rule rounds it up to 459 before it multiplies by ten.
    assert!(!Summary::of(&spread(4_582, 0), LIMIT).passes());
    assert!(Summary::of(&spread(4_590, 0), LIMIT).passes());
}

#[test]
fn passing_counts_with_the_design_floor_are_those_of_the_table() {
    for (n, most) in [(10_000, 29), (20_000, 99), (30_000, 175), (60_000, 423)] {
        assert!(Summary::of(&spread(n, most), LIMIT).passes(), "{most} of {n}");
        assert!(!Summary::of(&spread(n, most + 1), LIMIT).passes(), "{} of {n}", most + 1);
    }
}

#[test]
fn a_sample_at_the_limit_does_not_exceed_it() {
    assert_eq!(Summary::of(&[LIMIT, LIMIT + 1], LIMIT).exceeded, 1);
}

#[test]
fn a_disk_that_always_exceeds_fails_at_the_first_look_and_with_few_samples() {
    let summary = Summary::of(&[15_000_000; 1_000], LIMIT);
    assert_eq!((summary.runs, summary.longest_burst), (1, 1_000));
    assert!(summary.fails() && summary.design_effect < 2.0, "{summary:?}");
    assert!(Summary::of(&[900_000_000; 66], LIMIT).fails());
}

#[test]
fn one_long_burst_is_one_event_and_proves_nothing() {
    let mut samples = vec![1_000_000; 1_000];
    samples[500..].fill(20_000_000);
    let summary = Summary::of(&samples, LIMIT);
    assert!(!summary.fails() && !summary.passes(), "{summary:?}");
}

#[test]
fn bounds_enclose_the_observed_fraction() {
    let summary = Summary::of(&spread(10_000, 100), LIMIT);
    assert!(summary.fraction_low < 0.01 && summary.fraction_high > 0.01, "{summary:?}");
    let none = Summary::of(&spread(10_000, 0), LIMIT);
    assert_eq!(none.fraction_low, 0.0);
    assert!((0.0045..0.0047).contains(&none.fraction_high), "{none:?}");
}

#[test]
fn the_upper_limit_of_p99_is_within_the_limit_exactly_when_the_run_passes() {
    for k in [0, 10, 29, 30, 60] {
        let samples = spread(10_000, k);
        let summary = Summary::of(&samples, LIMIT);
        let high = Percentiles::of(&samples, &summary).expect("samples").p99_high_ns;
        assert_eq!(high.is_some_and(|high| high <= LIMIT), summary.passes(), "{k}");
    }
}

#[test]
fn percentiles_are_order_statistics() {
    let samples: Vec<u64> = (1..=1_000).rev().collect();
    let p = Percentiles::of(&samples, &Summary::of(&samples, LIMIT)).expect("samples");
    assert_eq!((p.p50_ns, p.p90_ns, p.p99_ns, p.p999_ns, p.max_ns), (500, 900, 990, 999, 1_000));
    assert!(p.p99_low_ns < 990 && p.p99_high_ns.is_none(), "{p:?}");
    assert_eq!(Percentiles::of(&[], &Summary::of(&[], LIMIT)), None);
}
