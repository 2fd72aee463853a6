//! The phases beside the one that decides: what the same disk does without load, in a burst, and
//! while somebody reads a snapshot.

use crate::ProbeError;
use crate::env::Environment;
use crate::judge::{Run, nanos};
use crate::probe::{OnProgress, Phase, Progress};
use crate::profile::Profile;
use crate::sampler::shape::{Appends, Load, SMALL_STORE_BYTES};
use crate::verdict::{Minute, OpenLoop, PhaseFigures};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Append of the burst phase, in bytes: full batches of a loaded node.
const BURST_APPEND: usize = 64 << 10;

/// Most bytes that one of these phases writes.
const SIDE_BYTES: u64 = 200_000_000;

/// Arrivals of the open-loop view where the run itself was unpaced.
const ARRIVAL: Duration = Duration::from_millis(2);

/// Nanoseconds of a minute.
const MINUTE: u64 = 60_000_000_000;

/// Name of the phase that decides.
pub(super) fn main_name(load: Load) -> &'static str {
    match load {
        Load::None => "idle",
        Load::Node => "loaded",
        Load::Reader => "reader",
        Load::Writer => "writer",
        Load::All => "all",
    }
}

/// The plans of the side phases, with their names.
pub(super) fn plans(profile: &Profile) -> Vec<(&'static str, Profile)> {
    if profile.side.is_zero() {
        return Vec::new();
    }
    let mut base = Profile {
        samples: usize::MAX,
        min_time: profile.side,
        time_box: profile.side,
        clean_pass: None,
        device_writes: None,
        byte_budget: SIDE_BYTES,
        side: Duration::ZERO,
        ..profile.clone()
    };
    base.shape.store_bytes = SMALL_STORE_BYTES;
    let with = |load, change: fn(&mut Profile)| {
        let mut plan = base.clone();
        plan.shape.load = load;
        change(&mut plan);
        plan
    };
    let burst = |plan: &mut Profile| {
        plan.pace = None;
        plan.shape.appends = Appends::Fixed(BURST_APPEND);
    };
    let plans = [
        ("idle", with(Load::None, |_| {})),
        ("loaded", with(Load::Node, |_| {})),
        ("burst", with(Load::Node, burst)),
        ("reader", with(Load::Reader, |_| {})),
    ];
    plans.into_iter().filter(|(name, _)| *name != main_name(profile.shape.load)).collect()
}

/// Runs one plan; `take` does the measuring.
pub(super) fn run(
    environment: &Environment,
    profile: &Profile,
    limit: Duration,
    interrupt: &AtomicBool,
    progress: &mut OnProgress<'_>,
) -> Result<Vec<PhaseFigures>, ProbeError> {
    let mut all = Vec::new();
    for (name, plan) in plans(profile) {
        let mut show =
            |state: &Progress| progress(&Progress { phase: Phase::Side(name), ..*state });
        let (run, _) = super::run(environment, &plan, limit, interrupt, &mut show)?;
        all.extend(figures(name, &run, limit));
        if run.hung.is_some() {
            break;
        }
    }
    Ok(all)
}

/// The figures of a run; `None` without samples.
pub(super) fn figures(name: &'static str, run: &Run, limit: Duration) -> Option<PhaseFigures> {
    let mut sorted = run.latencies.clone();
    sorted.sort_unstable();
    let seconds = Duration::from_nanos(*run.finished.last()?).as_secs_f64();
    let n = sorted.len() as u64;
    Some(PhaseFigures {
        name: name.into(),
        n,
        exceeded: sorted.iter().filter(|&&latency| latency > nanos(limit)).count() as u64,
        p50_ns: at(&sorted, 0.5),
        p99_ns: at(&sorted, 0.99),
        p999_ns: at(&sorted, 0.999),
        max_ns: *sorted.last()?,
        syncs_per_second: if seconds > 0.0 { n as f64 / seconds } else { 0.0 },
    })
}

/// What requests would have seen that arrive at fixed times and are served one after the other: a
/// stall of a second counts for all that would have waited in it.
pub(super) fn open_loop(run: &Run, profile: &Profile) -> Option<OpenLoop> {
    let arrival = nanos(profile.pace.unwrap_or(ARRIVAL));
    let mut free = 0u64;
    let mut waits: Vec<u64> = (0u64..)
        .zip(&run.latencies)
        .map(|(number, latency)| {
            let arrives = number.saturating_mul(arrival);
            free = free.max(arrives).saturating_add(*latency);
            free - arrives
        })
        .collect();
    waits.sort_unstable();
    Some(OpenLoop {
        interval_ns: arrival,
        p99_ns: at(&waits, 0.99),
        p999_ns: at(&waits, 0.999),
        max_ns: *waits.last()?,
    })
}

/// One line per minute, for runs that are long enough to show an allowance running out.
pub(super) fn timeline(run: &Run) -> Vec<Minute> {
    if run.finished.last().is_none_or(|&end| end < 2 * MINUTE) {
        return Vec::new();
    }
    let mut minutes = Vec::new();
    let mut from = 0;
    while let Some(&first) = run.finished.get(from) {
        let minute = first / MINUTE;
        let length = run.finished[from..].partition_point(|&at| at / MINUTE == minute);
        let mut sorted = run.latencies[from..from + length].to_vec();
        sorted.sort_unstable();
        minutes.push(Minute {
            minute,
            n: length as u64,
            p50_ns: at(&sorted, 0.5),
            p99_ns: at(&sorted, 0.99),
            max_ns: at(&sorted, 1.0),
        });
        from += length;
    }
    minutes
}

fn at(sorted: &[u64], fraction: f64) -> u64 {
    let rank = (fraction * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(latencies: Vec<u64>, gap: u64) -> Run {
        let finished = (1..=latencies.len() as u64).map(|i| i * gap).collect();
        Run { disk: latencies.clone(), latencies, finished, ..Run::default() }
    }

    #[test]
    fn every_load_has_its_side_phases_and_the_boot_probe_has_none() {
        let names = |load| -> Vec<&str> {
            plans(&Profile::standard().with_load(load)).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(Load::Node), ["idle", "burst", "reader"]);
        assert_eq!(names(Load::None), ["loaded", "burst", "reader"]);
        assert_eq!(names(Load::Writer), ["idle", "loaded", "burst", "reader"]);
        assert!(plans(&Profile::boot()).is_empty());
    }

    #[test]
    fn one_stall_counts_for_all_that_would_have_waited() {
        let mut latencies = vec![100_000; 1_000];
        latencies[500] = 1_000_000_000;
        let open = open_loop(&run_of(latencies, 2_000_000), &Profile::quick()).expect("samples");
        assert_eq!(open.max_ns, 1_000_000_000);
        // A second of arrivals each 2 ms waits: half of the run.
        assert!(open.p99_ns > 900_000_000, "{open:?}");
    }

    #[test]
    fn a_long_run_has_a_line_per_minute() {
        let run = run_of(vec![100_000; 300], 1_000_000_000);
        let minutes = timeline(&run);
        assert_eq!(minutes.iter().map(|m| m.n).sum::<u64>(), 300);
        assert_eq!(minutes.len(), 6);
        assert!(timeline(&run_of(vec![1; 100], 1_000)).is_empty());
    }
}
