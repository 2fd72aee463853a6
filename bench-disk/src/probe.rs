//! One probe from end to end: wait for a quiet device, write, count flushes, judge.

mod live;
pub mod quiet;

use crate::ProbeError;
use crate::distribution::{self, Distribution};
use crate::env::{Environment, block};
use crate::finding::Finding;
use crate::identity::{Conditions, Identity};
use crate::judge::{self, Judgement, Outcome, Run, nanos};
use crate::profile::{BOOT_BYTES, Profile};
use crate::sampler::node::{NEEDED_BYTES, NodeSampler, Pulse, SEGMENT_BYTES};
use crate::sampler::scratch::Scratch;
use crate::verdict::{self, Measured, SCHEMA, Verdict};
use hdrhistogram::Histogram;
use live::Live;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A sync in flight for ten election timeouts is not waited for any longer.
const HUNG: Duration = Duration::from_secs(10);

/// How often progress is reported.
const TICK: Duration = Duration::from_millis(50);

/// Preparing the files may take this long beyond the time box.
const GRACE: Duration = Duration::from_secs(20);

/// Fewer flushes per sync than this on a disk with a volatile cache: suspicious. Merged flushes
/// and forced-unit-access writes keep honest disks above it.
const FLUSHES_SUSPECT: f64 = 0.5;

/// Practically no flushes: syncs do not reach the disk.
const FLUSHES_NONE: f64 = 0.05;

/// Too few syncs to say anything about flushes.
const FLUSH_SAMPLE: u64 = 100;

/// What a probe is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Another probe of this disk runs.
    Locked,
    /// Others keep the device busy.
    Quiet,
    /// Files are being made.
    Prepare,
    /// Samples are being taken.
    Measure,
}

/// State of a running probe.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What it does.
    pub phase: Phase,
    /// Samples so far.
    pub samples: u64,
    /// Samples above the limit so far.
    pub exceeded: u64,
    /// Samples planned.
    pub target: u64,
    /// Time since the phase began.
    pub elapsed: Duration,
    /// Longest duration of the phase.
    pub time_box: Duration,
    /// 99th percentile so far; `None` before there are samples.
    pub p99: Option<Duration>,
}

/// Receives [`Progress`] about twenty times per second.
pub type OnProgress<'a> = dyn FnMut(&Progress) + 'a;

/// Measures the disk under an environment. Refusals are the caller's business: this writes.
pub fn measure(
    environment: &Environment,
    profile: &Profile,
    limit: Duration,
    interrupt: &AtomicBool,
    progress: &mut OnProgress<'_>,
) -> Result<Verdict, ProbeError> {
    let needed = needed_bytes(profile);
    if environment.free_bytes < needed {
        return Err(ProbeError::NoSpace {
            path: environment.judged.clone(),
            needed: needed >> 20,
            free: environment.free_bytes >> 20,
        });
    }
    let before = quiet::wait(environment, profile.quiet_wait, interrupt, progress)?;
    if let Some(finding) = before.contaminated("before we began") {
        let mut verdict = blank(environment, profile.name, limit, Outcome::Inconclusive);
        verdict.findings.insert(0, finding);
        return Ok(verdict);
    }
    let flushes = flush_counts(environment);
    let starved = quiet::starved_us(Path::new("/"));
    let began = Instant::now();
    let (run, syncs) = run(environment, profile, limit, interrupt, progress)?;
    let elapsed = began.elapsed();
    let starved = quiet::starved(starved, quiet::starved_us(Path::new("/")), elapsed);
    let flushes =
        flushes.and_then(|before| Some(largest_rise(&before, &flush_counts(environment)?)));
    let judgement = judge::judge(&run, profile, limit);
    let mut verdict = blank(environment, profile.name, limit, judgement.outcome);
    verdict.findings.splice(0..0, judgement.findings.iter().cloned());
    let durability = durability(environment, syncs, flushes, &mut verdict);
    verdict.measured = measured(&run, &judgement).map(|measured| Measured {
        elapsed_ns: nanos(elapsed),
        syncs,
        flushes,
        durability: durability.into(),
        busy_before: before.busy,
        ..measured
    });
    if verdict.outcome == Outcome::Fail && run.hung.is_none() {
        // A FAIL must be the disk's fault. Others who started meanwhile are still there now.
        let after = quiet::afterwards(environment, interrupt, progress)?;
        let starved = starved.filter(|_| mostly_fast(&run, limit));
        if let Some(finding) = after.contaminated("right after the run").or(starved) {
            verdict.outcome = Outcome::Inconclusive;
            verdict.findings.insert(0, finding);
        }
    }
    Ok(verdict)
}

/// Most syncs are within the limit. A machine without free processors delays some syncs, but a disk
/// on which most are slow is slow.
fn mostly_fast(run: &Run, limit: Duration) -> bool {
    let slow = run.disk.iter().filter(|&&latency| latency > nanos(limit)).count();
    2 * slow <= run.disk.len()
}

/// Room for the probe's files, in bytes. A boot probe stays within one segment.
pub fn needed_bytes(profile: &Profile) -> u64 {
    let spare = if profile.byte_budget <= BOOT_BYTES { SEGMENT_BYTES } else { 0 };
    NEEDED_BYTES - spare
}

/// A verdict without figures, with what the environment has to say.
pub fn blank(
    environment: &Environment,
    profile: &str,
    limit: Duration,
    outcome: Outcome,
) -> Verdict {
    let identity = Identity::of(environment);
    let created = verdict::unix_now();
    Verdict {
        schema: SCHEMA,
        tool: concat!("bench-disk ", env!("CARGO_PKG_VERSION")).into(),
        outcome,
        limit_ns: nanos(limit),
        created,
        expires: verdict::expiry(created, &identity),
        profile: profile.into(),
        device: environment.device_name(),
        measured: None,
        findings: environment.findings.clone(),
        identity,
        conditions: Conditions::of(environment),
        attempts: Vec::new(),
        store: None,
    }
}

/// Runs the sampler on a thread of its own, so that a sync that never returns cannot hold up the
/// caller. Such a thread is left behind; it owns nothing but its files.
fn run(
    environment: &Environment,
    profile: &Profile,
    limit: Duration,
    interrupt: &AtomicBool,
    progress: &mut OnProgress<'_>,
) -> Result<(Run, u64), ProbeError> {
    let pulse = Arc::new(Pulse::default());
    let live = Arc::new(Live::default());
    let stop = Arc::new(AtomicBool::new(false));
    let epoch = Instant::now();
    let (sender, result) = channel();
    let worker = {
        let (pulse, stop, profile) = (pulse.clone(), stop.clone(), profile.clone());
        let (directory, kind) = (environment.judged.clone(), environment.filesystem.clone());
        let live = live.clone();
        move || {
            let mut tail = live.tail();
            let scratch = Scratch::new(&directory, &kind);
            let outcome = NodeSampler::start(scratch, &profile, pulse.clone(), epoch).and_then(
                |mut sampler| {
                    judge::collect(&mut sampler, &profile, limit, &mut |run| {
                        pulse.samples.store(run.latencies.len() as u64, Ordering::Relaxed);
                        if run.latencies.last().is_some_and(|&last| last > nanos(limit)) {
                            pulse.exceeded.fetch_add(1, Ordering::Relaxed);
                        }
                        tail.extend(run.latencies.last().copied());
                        stop.load(Ordering::Relaxed)
                    })
                },
            );
            let _ = sender.send(outcome);
        }
    };
    std::thread::Builder::new()
        .name("probe-log".into())
        .spawn(worker)
        .map_err(ProbeError::io("start a thread for", &environment.judged))?;
    let mut stopping = None;
    loop {
        match result.recv_timeout(TICK) {
            Ok(outcome) => {
                let syncs = pulse.syncs.load(Ordering::Relaxed);
                return outcome.map(|run| (run, syncs));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let error = std::io::Error::other("the measuring thread ended unexpectedly");
                return Err(ProbeError::io("measure in", &environment.judged)(error));
            }
        }
        if interrupt.load(Ordering::Relaxed) {
            stop.store(true, Ordering::Relaxed);
            let since = *stopping.get_or_insert_with(Instant::now);
            if since.elapsed() > Duration::from_secs(2) {
                return Err(ProbeError::Interrupted);
            }
        }
        if let Some(age) = hung(&pulse, epoch, profile) {
            stop.store(true, Ordering::Relaxed);
            let run = Run { hung: Some(age), ..Run::default() };
            return Ok((run, pulse.syncs.load(Ordering::Relaxed)));
        }
        let samples = pulse.samples.load(Ordering::Relaxed);
        progress(&Progress {
            phase: if samples == 0 { Phase::Prepare } else { Phase::Measure },
            samples,
            exceeded: pulse.exceeded.load(Ordering::Relaxed),
            target: profile.samples as u64,
            elapsed: epoch.elapsed(),
            time_box: profile.time_box,
            p99: live.p99(),
        });
    }
}

/// How long the log's sync, or the whole run, has been stuck.
fn hung(pulse: &Pulse, epoch: Instant, profile: &Profile) -> Option<Duration> {
    let elapsed = epoch.elapsed();
    let since = pulse.in_flight.load(Ordering::Relaxed);
    let in_flight = match since {
        0 => Duration::ZERO,
        since => elapsed.saturating_sub(Duration::from_nanos(since - 1)),
    };
    if in_flight >= HUNG {
        Some(in_flight)
    } else {
        (elapsed >= profile.time_box + GRACE).then_some(elapsed)
    }
}

fn measured(run: &Run, judgement: &Judgement) -> Option<Measured> {
    let mut histogram = Histogram::<u64>::new(2).ok()?;
    histogram.auto(true);
    for &latency in &run.latencies {
        histogram.record(latency).ok()?;
    }
    Some(Measured {
        summary: judgement.summary,
        percentiles: judgement.percentiles?,
        histogram: histogram
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect(),
        elapsed_ns: 0,
        bytes: run.bytes,
        syncs: 0,
        flushes: None,
        durability: String::new(),
        busy_before: None,
        sync: Distribution::of(&run.latencies),
        write: Distribution::of(&run.writes),
        timeline: distribution::timeline(&run.latencies, &run.finished),
    })
}

/// Flushes completed by each disk; `None` if one of them does not count.
fn flush_counts(environment: &Environment) -> Option<Vec<u64>> {
    let root = Path::new("/");
    let counts: Option<Vec<u64>> =
        environment.leaves.iter().map(|leaf| block::stat(root, &leaf.name)?.flushes).collect();
    counts.filter(|counts| !counts.is_empty())
}

/// The disk with the most flushes counts: several paths to one disk share them.
fn largest_rise(before: &[u64], after: &[u64]) -> u64 {
    before.iter().zip(after).map(|(b, a)| a.saturating_sub(*b)).max().unwrap_or(0)
}

/// Compares flushes with syncs. A disk that announces a volatile cache must be told to flush it.
fn durability(
    environment: &Environment,
    syncs: u64,
    flushes: Option<u64>,
    verdict: &mut Verdict,
) -> &'static str {
    let Some(flushes) = flushes.filter(|_| environment.write_back() && syncs >= FLUSH_SAMPLE)
    else {
        return "unverified";
    };
    let ratio = flushes as f64 / syncs as f64;
    let text = format!("{flushes} flushes reached the disk for {syncs} syncs");
    if ratio < FLUSHES_NONE {
        let text = format!("{text}: syncs do not make data durable here (barriers off?)");
        verdict.outcome = Outcome::Refused;
        verdict.findings.insert(0, Finding::refuse("flushes-missing", text));
        "refused"
    } else if ratio < FLUSHES_SUSPECT {
        verdict.findings.push(Finding::warn("flushes-few", text));
        "suspect"
    } else {
        "verified-path"
    }
}
