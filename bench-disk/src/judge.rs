//! The rule: when a run ends, and what its latencies mean.
//!
//! FAIL may be declared at a few planned looks, because a disk that is clearly bad needs no more
//! wear; PASS only at the planned end, because a quiet first thousand says nothing about bursts.
//! Everything between is INCONCLUSIVE. This file reads no clock: time comes with the samples.

use crate::ProbeError;
use crate::finding::Finding;
use crate::profile::Profile;
use crate::sampler::Sampler;
use crate::stats::{Percentiles, Summary};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Sample counts at which a FAIL may end the run early.
const LOOKS_AT: [usize; 5] = [1_000, 2_000, 4_000, 8_000, 16_000];

/// The default election timeout: a sync this long makes followers campaign.
pub const ELECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// The default heartbeat interval: a sync this long delays a heartbeat.
pub const HEARTBEAT: Duration = Duration::from_millis(100);

/// Slow-down from the first to the last third of a run that suggests an exhausted allowance.
const THROTTLE_FACTOR: u64 = 2;

/// Slow-downs below this part of the limit cannot matter for the verdict, and SSDs wander there.
const THROTTLE_FLOOR: u64 = 10;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Outcome {
    /// p99 is within the limit, with confidence.
    Pass,
    /// p99 is above the limit, with confidence.
    Fail,
    /// Neither is proven.
    Inconclusive,
    /// Not a place for a consensus log, whatever its speed.
    Refused,
}

impl Outcome {
    /// The word for people and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Pass => "PASS",
            Outcome::Fail => "FAIL",
            Outcome::Inconclusive => "INCONCLUSIVE",
            Outcome::Refused => "REFUSED",
        }
    }
}

/// What ended a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// All samples that were planned.
    #[default]
    Samples,
    /// The longest duration.
    TimeBox,
    /// The most bytes that may be written.
    Bytes,
    /// The disk's own writes that were planned.
    DeviceWrites,
    /// Enough samples without any above the limit.
    CleanPass,
    /// A FAIL was proven early.
    Proven,
    /// Syncs that decide by themselves.
    Stalls,
    /// A sync that did not return.
    Hung,
}

impl End {
    /// For people, after "ended by".
    pub fn words(self) -> &'static str {
        match self {
            End::Samples => "its number of samples",
            End::TimeBox => "its longest duration",
            End::Bytes => "its limit of bytes",
            End::DeviceWrites => "its number of device writes",
            End::CleanPass => "enough samples without a slow one",
            End::Proven => "enough slow syncs",
            End::Stalls => "a stall",
            End::Hung => "a sync that hangs",
        }
    }
}

/// Raw result of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What ended it.
    pub end: End,
    /// Latency of each sync, in nanoseconds, in order.
    pub latencies: Vec<u64>,
    /// Each latency without the time in which the thread waited for a processor, in nanoseconds.
    /// A FAIL is the disk's, so it is proven on these; a PASS is what a node sees, so it is not.
    pub disk: Vec<u64>,
    /// When each sync returned, in nanoseconds since the run began.
    pub finished: Vec<u64>,
    /// Duration of each write call, in nanoseconds; a change of segments has none.
    pub writes: Vec<u64>,
    /// Set when a sync never returned: for how long it had been waited for.
    pub hung: Option<Duration>,
    /// Bytes written, the companion file included.
    pub bytes: u64,
}

/// What a run means.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The answer.
    pub outcome: Outcome,
    /// Counts and bounds of the whole run; a decision on its last third is told by a finding.
    pub summary: Summary,
    /// Percentiles of the whole run; `None` without a single sample.
    pub percentiles: Option<Percentiles>,
    /// Why, in order of weight.
    pub findings: Vec<Finding>,
}

/// What somebody outside of a run wants of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Another sample.
    GoOn,
    /// A planned end that the samples do not show, such as spent device writes.
    End,
    /// To stop without a result.
    Interrupt,
}

/// Takes samples until the profile's end or a proven FAIL. `wish` is asked before every sample
/// with what there is so far.
pub fn collect(
    sampler: &mut dyn Sampler,
    profile: &Profile,
    limit: Duration,
    wish: &mut dyn FnMut(&Run) -> Wish,
) -> Result<Run, ProbeError> {
    let limit_ns = nanos(limit);
    let mut run = Run::default();
    let (mut exceeded, mut stalls) = (0usize, 0usize);
    loop {
        match wish(&run) {
            Wish::GoOn => {}
            Wish::End => {
                run.end = End::DeviceWrites;
                return Ok(run);
            }
            Wish::Interrupt => return Err(ProbeError::Interrupted),
        }
        let sample = sampler.sample()?;
        run.latencies.push(nanos(sample.latency));
        run.disk.push(nanos(sample.latency.saturating_sub(sample.waited)));
        run.finished.push(nanos(sample.finished));
        run.bytes = sample.bytes_written;
        run.writes.extend(sampler.last_write().map(nanos));
        exceeded += usize::from(sample.latency > limit);
        stalls += usize::from(run.disk.last().is_some_and(|&l| l >= nanos(ELECTION_TIMEOUT)));
        let n = run.latencies.len();
        let elapsed = sample.finished;
        let end = if stalls >= profile.fatal_stalls {
            End::Stalls
        } else if LOOKS_AT.contains(&n) && Summary::at(&run.disk, limit_ns, profile.alpha).fails() {
            End::Proven
        } else if profile.clean_pass == Some(n) && exceeded == 0 && !throttled(&run, limit_ns) {
            End::CleanPass
        } else if n >= profile.samples && elapsed >= profile.min_time {
            End::Samples
        } else if run.bytes >= profile.byte_budget {
            End::Bytes
        } else if elapsed >= profile.time_box {
            End::TimeBox
        } else {
            continue;
        };
        run.end = end;
        return Ok(run);
    }
}

/// Judges a finished run.
pub fn judge(run: &Run, profile: &Profile, limit: Duration) -> Judgement {
    let limit_ns = nanos(limit);
    let summary_of = |latencies: &[u64]| Summary::at(latencies, limit_ns, profile.alpha);
    let whole = summary_of(&run.latencies);
    let percentiles = Percentiles::of(&run.latencies, &whole);
    let mut findings = Vec::new();
    let throttled = throttled(run, limit_ns);
    let from = if throttled { run.latencies.len() * 2 / 3 } else { 0 };
    if throttled {
        findings.push(Finding::warn(
            "throttling-suspected",
            "the disk slowed down by more than half during the run, as an exhausted burst \
             allowance does: judged on the last third alone",
        ));
    }
    let summary = summary_of(&run.latencies[from..]);
    let last = summary_of(&run.disk[from..]);
    let disk = [(&last, &summary), (&summary_of(&run.disk), &whole)];
    let stalled = stalled(run, profile, &mut findings);
    let outcome = if stalled == Some(Outcome::Fail) {
        Outcome::Fail
    } else if let Some((failed, seen)) = disk.iter().find(|(disk, _)| disk.fails()) {
        // Before a stall that only leaves the question open: this one is answered.
        findings.insert(0, exceeds(failed, seen, limit));
        Outcome::Fail
    } else if let Some(open) = stalled {
        open
    } else if summary.passes() && profile.quiet_wait.is_some() {
        Outcome::Pass
    } else if profile.quiet_wait.is_none() {
        findings.insert(0, in_use(&summary, limit));
        Outcome::Inconclusive
    } else {
        findings.insert(0, undecided(&summary, limit));
        if last.exceeded < summary.exceeded {
            findings.insert(0, processor(&summary, &last));
        }
        Outcome::Inconclusive
    };
    Judgement { outcome, summary: whole, percentiles, findings }
}

/// Syncs so long that they decide by themselves, or deserve a word.
fn stalled(run: &Run, profile: &Profile, findings: &mut Vec<Finding>) -> Option<Outcome> {
    if let Some(age) = run.hung {
        let text = format!("a sync did not return within {:.0} s", age.as_secs_f64());
        findings.insert(0, Finding::warn("hung-sync", text));
        return Some(Outcome::Fail);
    }
    let longest = run.latencies.iter().copied().max().unwrap_or(0);
    let stalls = run.disk.iter().filter(|&&l| l >= nanos(ELECTION_TIMEOUT)).count();
    if stalls > 0 {
        let text = format!(
            "{stalls} sync(s) took a whole election timeout ({} ms) or longer, the longest {:.0} ms",
            ELECTION_TIMEOUT.as_millis(),
            millis(longest)
        );
        findings.insert(0, Finding::warn("election-stall", text));
        let fatal = stalls >= profile.fatal_stalls;
        return Some(if fatal { Outcome::Fail } else { Outcome::Inconclusive });
    }
    if longest >= nanos(HEARTBEAT) {
        let text = format!(
            "the longest sync took {:.0} ms, longer than the default heartbeat interval of {} ms",
            millis(longest),
            HEARTBEAT.as_millis()
        );
        findings.push(Finding::warn("heartbeat-stall", text));
    }
    None
}

/// The last third is much slower than the first, at a level that matters for the limit.
fn throttled(run: &Run, limit_ns: u64) -> bool {
    let third = run.latencies.len() / 3;
    if third < 100 {
        return false;
    }
    let first = median(&run.latencies[..third]);
    let last = median(&run.latencies[run.latencies.len() - third..]);
    let floor = limit_ns / THROTTLE_FLOOR;
    let slower = last > THROTTLE_FACTOR * first && last >= floor;
    let end = run.finished.len() - 1;
    let first_span = run.finished[third - 1];
    let last_span = run.finished[end] - run.finished[end - third];
    let rarer = last_span > THROTTLE_FACTOR * first_span
        && last_span / third as u64 >= floor
        && last >= floor;
    slower || rarer
}

fn median(latencies: &[u64]) -> u64 {
    let mut sorted = latencies.to_vec();
    let middle = sorted.len() / 2;
    *sorted.select_nth_unstable(middle).1
}

/// What is proven is proven of the disk alone; where that differs from what was seen, it is said.
fn exceeds(summary: &Summary, seen: &Summary, limit: Duration) -> Finding {
    let alone = match summary.exceeded < seen.exceeded {
        true => ", waits for a processor left out",
        false => "",
    };
    let text = format!(
        "{} of {} syncs took longer than {} ms{alone}: at least {:.2} % do, with {} % confidence, \
         and 1 % is allowed",
        summary.exceeded,
        summary.n,
        limit.as_secs_f64() * 1e3,
        summary.fraction_low * 100.0,
        summary.confidence_percent()
    );
    Finding::warn("above-limit", text)
}

/// A look at a disk in use says how it does and never that it is fit.
fn in_use(summary: &Summary, limit: Duration) -> Finding {
    let text = format!(
        "the disk is in use: {} of {} syncs took longer than {} ms; a gentle look proves no PASS",
        summary.exceeded,
        summary.n,
        limit.as_secs_f64() * 1e3
    );
    Finding::note("live", text)
}

/// Syncs that were slow because the machine's processors were busy.
fn processor(seen: &Summary, disk: &Summary) -> Finding {
    let text = format!(
        "contaminated: {} of {} slow syncs were slow because this process waited for a processor; \
         try again when the machine is less busy",
        seen.exceeded - disk.exceeded,
        seen.exceeded
    );
    Finding::warn("processor-busy", text)
}

fn undecided(summary: &Summary, limit: Duration) -> Finding {
    let text = format!(
        "{} of {} syncs took longer than {} ms (longest burst {}): between {:.2} % and {:.2} % do, \
         and 1 % is allowed; a longer profile may settle it",
        summary.exceeded,
        summary.n,
        limit.as_secs_f64() * 1e3,
        summary.longest_burst,
        summary.fraction_low * 100.0,
        summary.fraction_high * 100.0
    );
    Finding::warn("near-limit", text)
}

fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Nanoseconds of a duration; 584 years saturate.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
