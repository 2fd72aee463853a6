//! The rule on synthetic disks, in virtual time.

mod table;

use super::*;
use crate::sampler::Sample;
use crate::sampler::mix::Random;

const LIMIT: Duration = Duration::from_millis(10);
const GOOD: u64 = 300_000;
const SLOW: u64 = 15_000_000;

/// A disk whose latencies come from a function of the sample's number.
struct Model<F> {
    latency: F,
    pace: u64,
    waited: u64,
    now: u64,
    number: u64,
}

impl<F: FnMut(u64) -> u64> Sampler for Model<F> {
    fn sample(&mut self) -> Result<Sample, ProbeError> {
        let latency = (self.latency)(self.number);
        self.number += 1;
        self.now += latency.max(self.pace);
        Ok(Sample {
            latency: Duration::from_nanos(latency),
            waited: Duration::from_nanos(self.waited),
            finished: Duration::from_nanos(self.now),
            bytes_written: self.number * 5_000,
        })
    }
}

fn probe(profile: &Profile, latency: impl FnMut(u64) -> u64) -> (Judgement, Run) {
    let pace = profile.pace.map_or(0, nanos);
    let mut model = Model { latency, pace, waited: 0, now: 0, number: 0 };
    let run =
        collect(&mut model, profile, LIMIT, &mut |_| Wish::GoOn).expect("a model has no errors");
    (judge(&run, profile, LIMIT), run)
}

fn outcome(profile: &Profile, latency: impl FnMut(u64) -> u64) -> Outcome {
    probe(profile, latency).0.outcome
}

fn uniform(random: &mut Random) -> f64 {
    (random.word() >> 11) as f64 / (1u64 << 53) as f64
}

/// Independent exceedances with this probability.
fn independent(seed: u64, p: f64) -> impl FnMut(u64) -> u64 {
    let mut random = Random(seed);
    move |_| if uniform(&mut random) < p { SLOW } else { GOOD }
}

/// Two states; a bad one lasts `burst` samples in the mean, and `p` of all samples are bad.
fn bursty(seed: u64, p: f64, burst: f64) -> impl FnMut(u64) -> u64 {
    let mut random = Random(seed);
    let (leave, enter) = (1.0 / burst, p / (burst * (1.0 - p)));
    let mut bad = uniform(&mut random) < p;
    move |_| {
        let change = uniform(&mut random) < if bad { leave } else { enter };
        bad ^= change;
        if bad { SLOW } else { GOOD }
    }
}

fn count(trials: u64, wanted: Outcome, mut run: impl FnMut(u64) -> Outcome) -> u64 {
    (1..=trials).filter(|&seed| run(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)) == wanted).count()
        as u64
}

#[test]
fn constant_4_and_8_ms_pass_ten_of_ten_within_the_time_box() {
    for ms in [4, 8] {
        for jitter in 0..10u64 {
            let (judgement, run) =
                probe(&Profile::boot(), |i| ms * 1_000_000 + (i * 7_919 + jitter) % 50_000);
            assert_eq!(judgement.outcome, Outcome::Pass, "{ms} ms: {judgement:?}");
            assert_eq!(run.latencies.len(), 4_590);
            assert!(run.finished.last() < Some(&60_000_000_000));
        }
    }
}

#[test]
fn a_disk_at_the_very_limit_gets_its_samples_in_the_box() {
    assert_eq!(outcome(&Profile::boot(), |_| 10_000_000), Outcome::Pass);
}

#[test]
fn constant_15_ms_fails_at_the_first_look_with_the_reason() {
    let (judgement, run) = probe(&Profile::boot(), |_| SLOW);
    assert_eq!(judgement.outcome, Outcome::Fail);
    assert_eq!(run.latencies.len(), 1_000);
    assert_eq!(judgement.findings[0].code, "above-limit");
}

#[test]
fn a_very_slow_disk_fails_at_the_time_box_with_few_samples() {
    let (judgement, run) = probe(&Profile::boot(), |_| 600_000_000);
    assert_eq!(judgement.outcome, Outcome::Fail);
    assert_eq!(run.latencies.len(), 100);
}

#[test]
fn a_boot_probe_with_a_rare_slow_sync_goes_on_to_ten_thousand_and_passes() {
    let (judgement, run) = probe(&Profile::boot(), |i| if i == 100 { SLOW } else { GOOD });
    assert_eq!(judgement.outcome, Outcome::Pass, "{judgement:?}");
    assert_eq!(run.latencies.len(), 10_000);
}

#[test]
fn good_disks_pass_and_bad_disks_fail_when_syncs_are_independent() {
    let standard = Profile::standard();
    let passed = |p| count(40, Outcome::Pass, |seed| outcome(&standard, independent(seed, p)));
    let failed = |p| count(40, Outcome::Fail, |seed| outcome(&standard, independent(seed, p)));
    assert_eq!(passed(0.001), 40);
    assert_eq!(passed(0.0025), 40);
    assert_eq!(passed(0.0101), 0);
    assert_eq!(failed(0.02), 40);
    assert_eq!(failed(0.10), 40);
    assert_eq!(failed(0.008), 0);
}

#[test]
fn a_bad_bursty_disk_does_not_pass_at_boot() {
    for burst in [1.0, 3.0, 10.0] {
        let boot = Profile::boot();
        let passed = count(100, Outcome::Pass, |seed| outcome(&boot, bursty(seed, 0.02, burst)));
        assert!(passed <= 2, "burst {burst}: {passed} of 100");
    }
}

#[test]
fn a_look_at_a_disk_in_use_never_passes_and_may_fail() {
    let live = Profile { samples: 30_000, time_box: Duration::MAX, ..Profile::live() };
    let (judgement, run) = probe(&live, |_| GOOD);
    assert_eq!((judgement.outcome, run.latencies.len()), (Outcome::Inconclusive, 3_200));
    assert_eq!(judgement.findings[0].code, "live");
    assert_eq!(outcome(&live, |_| SLOW), Outcome::Fail);
}

#[test]
fn a_higher_confidence_asks_for_more() {
    let spread = |every: u64| move |i: u64| if i.is_multiple_of(every) { SLOW } else { GOOD };
    let standard = Profile::standard();
    assert_eq!(outcome(&standard, spread(180)), Outcome::Pass);
    let strict = Profile::standard().with_confidence(0.9999);
    assert_eq!(outcome(&strict, spread(180)), Outcome::Inconclusive);
    let loose = Profile::standard().with_confidence(0.9);
    assert_eq!(outcome(&standard, spread(150)), Outcome::Inconclusive);
    assert_eq!(outcome(&loose, spread(150)), Outcome::Pass);
}

#[test]
fn near_the_limit_is_inconclusive() {
    let (judgement, _) = probe(&Profile::standard(), independent(7, 0.009));
    assert_eq!(judgement.outcome, Outcome::Inconclusive);
    assert_eq!(judgement.findings[0].code, "near-limit");
}

#[test]
fn an_exhausted_allowance_is_suspected_and_judged_on_the_last_third() {
    let throttle = |i| if i < 5_000 { GOOD } else { 6_000_000 };
    let profile = Profile { clean_pass: None, ..Profile::boot() };
    let (judgement, _) = probe(&profile, throttle);
    assert!(judgement.findings.iter().any(|f| f.code == "throttling-suspected"), "{judgement:?}");
    assert_eq!(judgement.outcome, Outcome::Inconclusive);
    let (judgement, _) = probe(&profile, |i| if i < 5_000 { GOOD } else { SLOW });
    assert_eq!(judgement.outcome, Outcome::Fail);
}

#[test]
fn an_ssd_that_wanders_far_below_the_limit_is_not_throttled() {
    let (judgement, _) = probe(&Profile::boot(), |i| if i < 2_000 { 80_000 } else { 400_000 });
    assert_eq!(judgement.outcome, Outcome::Pass);
    assert!(judgement.findings.is_empty());
}

#[test]
fn stalls_of_an_election_timeout_decide_by_the_profile() {
    let stall_at =
        |numbers: &'static [u64]| move |i| if numbers.contains(&i) { 1_200_000_000 } else { GOOD };
    assert_eq!(outcome(&Profile::quick(), stall_at(&[50])), Outcome::Fail);
    assert_eq!(outcome(&Profile::boot(), stall_at(&[50])), Outcome::Inconclusive);
    assert_eq!(outcome(&Profile::boot(), stall_at(&[50, 900])), Outcome::Fail);
    // One stall must not hide that the disk is proven to be too slow.
    let slow = |i| if i == 50 { 1_200_000_000 } else { SLOW };
    let (judgement, _) = probe(&Profile::boot(), slow);
    assert_eq!(judgement.outcome, Outcome::Fail);
    assert_eq!(judgement.findings[0].code, "above-limit");
    let (judgement, _) = probe(&Profile::boot(), |i| if i == 9 { 150_000_000 } else { GOOD });
    assert_eq!(judgement.outcome, Outcome::Pass);
    assert_eq!(judgement.findings[0].code, "heartbeat-stall");
}

#[test]
fn a_busy_processor_is_not_the_disks_fault_and_no_pass_either() {
    let boot = Profile::boot();
    let mut model = Model { latency: |_| SLOW, pace: 0, waited: SLOW / 2, now: 0, number: 0 };
    let run = collect(&mut model, &boot, LIMIT, &mut |_| Wish::GoOn).expect("no errors");
    let judgement = judge(&run, &boot, LIMIT);
    assert_eq!(judgement.outcome, Outcome::Inconclusive);
    assert_eq!(judgement.findings[0].code, "processor-busy");
    // Waiting for a processor does not excuse a disk that is too slow by itself.
    let mut model = Model { latency: |_| 2 * SLOW, pace: 0, waited: SLOW, now: 0, number: 0 };
    let run = collect(&mut model, &boot, LIMIT, &mut |_| Wish::GoOn).expect("no errors");
    assert_eq!(judge(&run, &boot, LIMIT).outcome, Outcome::Fail);
}

#[test]
fn the_byte_budget_ends_a_run() {
    let profile = Profile { byte_budget: 10_000_000, ..Profile::boot() };
    let (_, run) = probe(&profile, |_| GOOD);
    assert_eq!(run.latencies.len(), 2_000);
}

#[test]
fn a_hung_sync_fails_without_samples() {
    let run = Run { hung: Some(Duration::from_secs(11)), ..Run::default() };
    let judgement = judge(&run, &Profile::boot(), LIMIT);
    assert_eq!((judgement.outcome, judgement.percentiles), (Outcome::Fail, None));
}

#[test]
fn no_sample_at_all_is_inconclusive() {
    let judgement = judge(&Run::default(), &Profile::boot(), LIMIT);
    assert_eq!(judgement.outcome, Outcome::Inconclusive);
}

#[test]
fn a_request_to_stop_and_an_error_end_a_run() {
    let mut model = Model { latency: |_| GOOD, pace: 0, waited: 0, now: 0, number: 0 };
    let at_seven = |wish| move |run: &Run| if run.latencies.len() == 7 { wish } else { Wish::GoOn };
    let mut stop = at_seven(Wish::Interrupt);
    let end = collect(&mut model, &Profile::boot(), LIMIT, &mut stop);
    assert!(matches!(end, Err(ProbeError::Interrupted)));
    let end = collect(&mut model, &Profile::boot(), LIMIT, &mut at_seven(Wish::End));
    assert_eq!(end.expect("a planned end").latencies.len(), 7);

    struct Broken;
    impl Sampler for Broken {
        fn sample(&mut self) -> Result<Sample, ProbeError> {
            Err(ProbeError::io("sync a file in", "/x")(std::io::ErrorKind::Other.into()))
        }
    }
    let end = collect(&mut Broken, &Profile::boot(), LIMIT, &mut |_| Wish::GoOn);
    assert!(matches!(end, Err(ProbeError::Io { .. })));
}

#[test]
fn a_fail_counts_what_is_the_disks_and_says_so_where_more_was_slow() {
    let text = |waited| {
        let pace = Profile::boot().pace.map_or(0, nanos);
        let latency = |i: u64| if i.is_multiple_of(4) { SLOW } else { GOOD };
        let mut model = Model { latency, pace, waited: 0, now: 0, number: 0 };
        let profile = Profile::boot();
        let mut run = collect(&mut model, &profile, LIMIT, &mut |_| Wish::GoOn).expect("a run");
        // Half of the slow ones had waited for a processor.
        for (i, disk) in run.disk.iter_mut().enumerate() {
            *disk -= if i.is_multiple_of(8) { waited } else { 0 };
        }
        let judgement = judge(&run, &profile, LIMIT);
        assert_eq!(judgement.outcome, Outcome::Fail);
        judgement.findings[0].text.clone()
    };
    assert!(text(0).starts_with("250 of 1000 syncs took longer than 10 ms: at least"));
    let left_out = "125 of 1000 syncs took longer than 10 ms, waits for a processor left out: at";
    assert!(text(SLOW - GOOD).starts_with(left_out), "{}", text(SLOW - GOOD));
}
