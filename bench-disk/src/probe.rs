//! One probe from end to end: wait for a quiet device, write, count flushes, judge.

mod device;
mod honesty;
mod live;
mod phases;
pub mod quiet;

use crate::ProbeError;
use crate::distribution::{self, Distribution};
use crate::env::Environment;
use crate::finding::Finding;
use crate::identity::{Conditions, Identity};
use crate::judge::{self, End, Judgement, Outcome, Run, Wish, nanos};
use crate::profile::Profile;
use crate::sampler::node::{NodeSampler, Pulse};
use crate::sampler::scratch::Scratch;
use crate::sampler::shape::Load;
use crate::verdict::{self, Measured, PhaseFigures, SCHEMA, Verdict};
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

/// Preparing the files may take this long beyond the time box: a disk that allows 20 writes per
/// second needs most of it.
const GRACE: Duration = Duration::from_secs(60);

/// The measuring thread gets this long to end a sync and clean up before it is left behind.
const STOPPING: Duration = Duration::from_secs(2);

/// Samples between two looks at the disks' own counters.
const COUNTER_EVERY: usize = 512;

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
    /// The verdict is known; the phase of this name is measured beside it.
    Side(&'static str),
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
    let mut busy_before = None;
    if let Some(patience) = profile.quiet_wait {
        let before = quiet::wait(environment, patience, interrupt, progress)?;
        if let Some(finding) = before.contaminated("before we began") {
            let mut verdict = blank(environment, profile.name, limit, Outcome::Inconclusive);
            verdict.findings.insert(0, finding);
            return Ok(verdict);
        }
        busy_before = before.busy;
    }
    let flushes = device::flushes(environment);
    let starved = quiet::starved_us(Path::new("/"));
    let began = Instant::now();
    let (run, syncs) = run(environment, profile, limit, interrupt, progress)?;
    let elapsed = began.elapsed();
    let starved = quiet::starved(starved, quiet::starved_us(Path::new("/")), elapsed);
    let flushes = flushes
        .and_then(|before| Some(device::largest_rise(&before, &device::flushes(environment)?)));
    let judgement = judge::judge(&run, profile, limit);
    let mut verdict = blank(environment, profile.name, limit, judgement.outcome);
    verdict.findings.splice(0..0, judgement.findings.iter().cloned());
    if let Some(mut measured) = measured(&run, &judgement, profile) {
        measured.elapsed_ns = nanos(elapsed);
        measured.syncs = syncs;
        measured.flushes = flushes;
        measured.busy_before = busy_before;
        if run.hung.is_none() && profile.clean_pass.is_none() && profile.quiet_wait.is_some() {
            let scratch = Scratch::new(&environment.judged, &environment.filesystem);
            measured.flush_cost = honesty::cost(&scratch)?;
        }
        measured.durability = honesty::durability(environment, &measured, &mut verdict).to_string();
        verdict.measured = Some(measured);
    }
    if verdict.outcome == Outcome::Fail && run.hung.is_none() && profile.quiet_wait.is_some() {
        // A FAIL must be the disk's fault. Others who started meanwhile are still there now.
        let after = quiet::afterwards(environment, interrupt, progress)?;
        let starved = starved.filter(|_| mostly_fast(&run, limit));
        if let Some(finding) = after.contaminated("right after the run").or(starved) {
            verdict.outcome = Outcome::Inconclusive;
            verdict.findings.insert(0, finding);
        }
    }
    name_limit(environment, &mut verdict);
    if !profile.qualifies {
        let text =
            "this plan is gentler than a node: its answer is for people, and no node trusts it";
        verdict.findings.push(Finding::note("does-not-qualify", text));
    }
    if let Some(measured) = verdict.measured.as_mut().filter(|_| run.hung.is_none()) {
        measured.phases.extend(phases::run(environment, profile, limit, interrupt, progress)?);
    }
    Ok(verdict)
}

/// Inside a limited control group a slow result is the limit's, as far as anybody can tell.
fn name_limit(environment: &Environment, verdict: &mut Verdict) {
    let open = matches!(verdict.outcome, Outcome::Fail | Outcome::Inconclusive);
    let limits: Vec<String> = environment
        .limits
        .iter()
        .map(|limit| {
            format!("{}={} on {} by {}", limit.kind, limit.value, limit.device, limit.group)
        })
        .collect();
    if open && verdict.measured.is_some() && !limits.is_empty() {
        let text = format!(
            "limit, not disk: this process's control group allows {}; raise the limit or measure \
             outside of the group to judge the disk",
            limits.join(", ")
        );
        verdict.findings.insert(0, Finding::warn("limit-not-disk", text));
    }
}

/// Most syncs are within the limit. A machine without free processors delays some syncs, but a disk
/// on which most are slow is slow.
fn mostly_fast(run: &Run, limit: Duration) -> bool {
    let slow = run.disk.iter().filter(|&&latency| latency > nanos(limit)).count();
    2 * slow <= run.disk.len()
}

/// Room for the probe's files, in bytes, those of the side phases included.
pub fn needed_bytes(profile: &Profile) -> u64 {
    let reader = || profile.clone().with_load(Load::Reader).needed_bytes();
    let side = if profile.side.is_zero() { 0 } else { reader() };
    profile.needed_bytes().max(side)
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
    let place = device::Place::of(&environment.judged)?;
    let pulse = Arc::new(Pulse::default());
    let live = Arc::new(Live::default());
    let stop = Arc::new(AtomicBool::new(false));
    let epoch = Instant::now();
    let (sender, result) = channel();
    let worker = {
        let (pulse, stop, profile) = (pulse.clone(), stop.clone(), profile.clone());
        let (directory, kind) = (environment.judged.clone(), environment.filesystem.clone());
        let leaves: Vec<String> = environment.leaves.iter().map(|leaf| leaf.name.clone()).collect();
        let live = live.clone();
        move || {
            let mut spent = Allowance::start(profile.device_writes, leaves);
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
                        match stop.load(Ordering::Relaxed) {
                            true => Wish::Interrupt,
                            false if spent.spent(run) => Wish::End,
                            false => Wish::GoOn,
                        }
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
                // Files without a name outlive their directory: an answer about a place that is
                // gone is none.
                place.check(&environment.judged)?;
                return outcome.map(|run| (run, syncs));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let error = std::io::Error::other("the measuring thread ended unexpectedly");
                return Err(ProbeError::io("measure in", &environment.judged)(error));
            }
        }
        if let Err(error) = place.check(&environment.judged) {
            stop.store(true, Ordering::Relaxed);
            let _ = result.recv_timeout(STOPPING);
            return Err(error);
        }
        if interrupt.load(Ordering::Relaxed) {
            stop.store(true, Ordering::Relaxed);
            let since = *stopping.get_or_insert_with(Instant::now);
            if since.elapsed() > STOPPING {
                return Err(ProbeError::Interrupted);
            }
        }
        if let Some(age) = hung(&pulse, epoch, profile) {
            stop.store(true, Ordering::Relaxed);
            let run = Run { hung: Some(age), end: End::Hung, ..Run::default() };
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

/// Device writes that a run may cause, by the disks' own counters; where they do not count, each
/// sample is one.
struct Allowance {
    most: Option<u64>,
    leaves: Vec<String>,
    before: Option<Vec<u64>>,
}

impl Allowance {
    fn start(most: Option<u64>, leaves: Vec<String>) -> Self {
        let before = most.and_then(|_| device::writes(&leaves));
        Self { most, leaves, before }
    }

    fn spent(&mut self, run: &Run) -> bool {
        let n = run.latencies.len();
        let Some(most) = self.most.filter(|_| n > 0 && n.is_multiple_of(COUNTER_EVERY)) else {
            return false;
        };
        let counted = self
            .before
            .as_ref()
            .and_then(|before| Some(device::largest_rise(before, &device::writes(&self.leaves)?)));
        counted.unwrap_or(n as u64) >= most
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

fn measured(run: &Run, judgement: &Judgement, profile: &Profile) -> Option<Measured> {
    let mut histogram = Histogram::<u64>::new(3).ok()?;
    histogram.auto(true);
    for &latency in &run.latencies {
        histogram.record(latency).ok()?;
    }
    let limit = Duration::MAX;
    let main = phases::figures(phases::main_name(profile.shape.load), run, limit);
    Some(Measured {
        summary: judgement.summary,
        percentiles: judgement.percentiles?,
        histogram: histogram
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect(),
        elapsed_ns: 0,
        end: Some(run.end),
        bytes: run.bytes,
        syncs: 0,
        flushes: None,
        durability: String::new(),
        busy_before: None,
        flush_cost: None,
        open_loop: phases::open_loop(run, profile),
        timeline: phases::timeline(run),
        phases: main
            .map(|main| PhaseFigures { exceeded: judgement.summary.exceeded, ..main })
            .into_iter()
            .collect(),
        sync: Distribution::of(&run.latencies),
        write: Distribution::of(&run.writes),
        course: distribution::course(&run.latencies, &run.finished),
    })
}

#[cfg(test)]
mod tests;
