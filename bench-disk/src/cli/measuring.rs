//! Options of `run` about how to measure.

use crate::cli::signals;
use bench_disk::ProbeError;
use bench_disk::profile::Profile;
use bench_disk::sampler::recorded::Recorded;
use bench_disk::sampler::shape::Load;
use clap::Args;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// Start times further away are mistakes.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Clocks of a fleet differ, and so does the time a command takes to reach a machine: this late is
/// still together.
const LATE: Duration = Duration::from_secs(60);

/// How often a waiting start looks at signals.
const POLL: Duration = Duration::from_millis(50);

#[derive(Args)]
pub(crate) struct Options {
    /// Confidence of the answer, above 0.5 and below 1; nodes trust no verdict below 0.99
    #[arg(long, value_name = "P", value_parser = confidence)]
    confidence: Option<f64>,
    /// Who else uses the disk: none, node (the store's commits), reader, writer or all
    #[arg(long, value_name = "WHO", value_parser = load)]
    load: Option<Load>,
    /// Replay what a node recorded: a saved /debug/vars of an assay node
    #[arg(long, value_name = "FILE", value_parser = mix)]
    mix: Option<Recorded>,
    /// A gentle look at a disk in use: at most 10 syncs per second for 60 s, never a PASS
    #[arg(long, conflicts_with_all = ["profile", "confidence", "load", "mix"])]
    pub(crate) live: bool,
    /// Begin at this time, so that a fleet measures shared storage together: 2026-03-01T10:00:00Z
    /// or @SECONDS since 1970
    #[arg(long, value_name = "TIME", value_parser = time)]
    start_at: Option<SystemTime>,
}

impl Options {
    /// The plan to run.
    pub(crate) fn plan(&self, named: &Profile) -> Profile {
        if self.live {
            return Profile::live();
        }
        let mut profile = named.clone();
        if let Some(recorded) = &self.mix {
            profile = profile.with_mix(recorded.clone());
        }
        if let Some(load) = self.load {
            profile = profile.with_load(load);
        }
        if let Some(confidence) = self.confidence {
            profile = profile.with_confidence(confidence);
        }
        profile
    }

    /// Waits for the time to begin; `false` if there is none.
    pub(crate) fn wait(&self) -> Result<bool, ProbeError> {
        let Some(start) = self.start_at else { return Ok(false) };
        while let Ok(left) = start.duration_since(SystemTime::now()) {
            if signals::INTERRUPTED.load(Ordering::Relaxed) {
                return Err(ProbeError::Interrupted);
            }
            std::thread::sleep(left.min(POLL));
        }
        Ok(true)
    }
}

fn confidence(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| *value > 0.5 && *value <= 0.999_999)
        .ok_or_else(|| format!("{text:?} is not between 0.5 and 0.999999, for example 0.99"))
}

pub(super) fn load(text: &str) -> Result<Load, String> {
    text.parse()
}

pub(super) fn mix(text: &str) -> Result<Recorded, String> {
    Recorded::load(&PathBuf::from(text)).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<SystemTime, String> {
    let time = match text.strip_prefix('@') {
        Some(seconds) => seconds
            .parse()
            .ok()
            .and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))),
        None => humantime::parse_rfc3339_weak(text).ok(),
    };
    let time = time.ok_or_else(|| {
        format!("{text:?} is no time: use 2026-03-01T10:00:00Z or @SECONDS since 1970")
    })?;
    let now = SystemTime::now();
    if now.duration_since(time).is_ok_and(|late| late > LATE) {
        return Err(format!("{text} is over: check the clock of this machine"));
    }
    if time.duration_since(now).is_ok_and(|wait| wait > MAX_WAIT) {
        return Err(format!("{text} is more than a day away"));
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_those_long_over_or_far_away_are_refused() {
        let now = SystemTime::now();
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
        assert!(time(&format!("@{}", seconds + 60)).is_ok());
        assert!(time(&humantime::format_rfc3339_seconds(now).to_string()).is_ok());
        assert!(time("2001-01-01T00:00:00Z").expect_err("over").contains("is over"));
        assert!(time(&format!("@{}", seconds + 200_000)).expect_err("far").contains("a day"));
        assert!(time("tomorrow").is_err() && time("@").is_err());
    }

    #[test]
    fn confidence_has_a_range() {
        assert_eq!(confidence("0.99"), Ok(0.99));
        for wrong in ["99", "0.5", "1", "nan", "x"] {
            assert!(confidence(wrong).is_err(), "{wrong}");
        }
    }
}
