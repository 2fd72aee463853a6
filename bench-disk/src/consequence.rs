//! What the figures of a disk mean for a cluster's timeouts, in words.
//!
//! A leader that waits for its disk sends heartbeats late, and a follower that waits answers late;
//! after an election timeout without a heartbeat somebody campaigns. The settings named here leave a
//! rare slow sync half of a heartbeat interval.

use crate::judge::{ELECTION_TIMEOUT, HEARTBEAT, Outcome};
use crate::report::millis;
use crate::verdict::{Measured, Verdict};
use std::time::Duration;

/// Longest election timeout that a node accepts.
const LONGEST_ELECTION: Duration = Duration::from_secs(50);

/// Elections last this many heartbeats, as with the defaults.
const HEARTBEATS_PER_ELECTION: u32 = 10;

/// Steps of a recommended heartbeat interval.
const STEP: Duration = Duration::from_millis(50);

/// Timeouts with which a cluster on this disk does not campaign without need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `--heartbeat-interval`.
    pub heartbeat: Duration,
    /// `--election-timeout`.
    pub election: Duration,
}

impl Settings {
    /// The settings that are safe for these figures; `None` if no accepted setting is.
    pub fn safe(measured: &Measured) -> Option<Self> {
        let rare = Duration::from_nanos(measured.percentiles.p999_ns);
        let longest = Duration::from_nanos(measured.percentiles.max_ns);
        let heartbeat = up(2 * rare).max(HEARTBEAT);
        // One longest sync must not take half of an election timeout.
        let election = up(2 * longest).max(heartbeat * HEARTBEATS_PER_ELECTION);
        (election <= LONGEST_ELECTION).then_some(Self { heartbeat, election })
    }

    /// The defaults are safe.
    pub fn are_defaults(&self) -> bool {
        self.heartbeat <= HEARTBEAT && self.election <= ELECTION_TIMEOUT
    }

    /// As flags of a node.
    pub fn flags(&self) -> String {
        format!(
            "--heartbeat-interval={} --election-timeout={}",
            self.heartbeat.as_millis(),
            self.election.as_millis()
        )
    }
}

/// To the next step.
fn up(duration: Duration) -> Duration {
    let steps = duration.as_nanos().div_ceil(STEP.as_nanos());
    STEP * u32::try_from(steps).unwrap_or(u32::MAX / 4)
}

/// One or two sentences: how much of a heartbeat a slow sync takes, and which settings are safe.
pub fn timing(measured: &Measured) -> String {
    let rare = Duration::from_nanos(measured.percentiles.p999_ns);
    let share = rare.as_secs_f64() / HEARTBEAT.as_secs_f64() * 100.0;
    let heartbeat = HEARTBEAT.as_millis();
    match Settings::safe(measured) {
        Some(safe) if safe.are_defaults() => format!(
            "p99.9 takes {share:.1} % of a {heartbeat} ms heartbeat; the default timeouts are safe"
        ),
        Some(safe) => format!(
            "p99.9 takes {share:.0} % of a {heartbeat} ms heartbeat and the longest sync {}; with \
             this disk use at least {}",
            millis(Duration::from_nanos(measured.percentiles.max_ns)),
            safe.flags()
        ),
        None => format!(
            "the longest sync took {}: no election timeout up to {} s is safe on this disk",
            millis(Duration::from_nanos(measured.percentiles.max_ns)),
            LONGEST_ELECTION.as_secs()
        ),
    }
}

/// The way out for whoever has to live with a slower disk; `None` where none is needed or none is
/// honest.
pub fn way_out(verdict: &Verdict) -> Option<String> {
    let measured = verdict.measured.as_ref()?;
    let safe = Settings::safe(measured)?;
    let high = measured.percentiles.p99_high_ns?;
    if verdict.outcome != Outcome::Fail {
        return None;
    }
    let limit = Duration::from_nanos(high).as_millis().next_multiple_of(5) + 5;
    Some(format!(
        "every write waits for a sync: {} at the median and {} at p99. A disk like this can be \
         accepted on purpose with --disk-gate-p99={limit}ms {}",
        millis(Duration::from_nanos(measured.percentiles.p50_ns)),
        millis(Duration::from_nanos(measured.percentiles.p99_ns)),
        safe.flags()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Percentiles, Summary};

    fn measured(p99_ms: u64, p999_ms: u64, max_ms: u64) -> Measured {
        let ns = |ms: u64| ms * 1_000_000;
        Measured {
            summary: Summary::of(&[1], 10),
            percentiles: Percentiles {
                p50_ns: ns(1),
                p90_ns: ns(1),
                p99_ns: ns(p99_ms),
                p999_ns: ns(p999_ms),
                max_ns: ns(max_ms),
                p99_low_ns: ns(p99_ms),
                p99_high_ns: Some(ns(p99_ms)),
            },
            histogram: Vec::new(),
            elapsed_ns: 1,
            end: None,
            bytes: 1,
            syncs: 1,
            flushes: None,
            durability: "unverified".into(),
            busy_before: None,
            flush_cost: None,
            open_loop: None,
            sync: None,
            write: None,
            course: Vec::new(),
            timeline: Vec::new(),
            phases: Vec::new(),
        }
    }

    #[test]
    fn a_fast_disk_keeps_the_defaults() {
        let fast = measured(1, 3, 40);
        assert!(Settings::safe(&fast).expect("some").are_defaults());
        assert!(
            timing(&fast).contains("3.0 % of a 100 ms heartbeat; the default timeouts are safe")
        );
    }

    #[test]
    fn a_slow_disk_gets_settings_that_cover_twice_its_rare_syncs() {
        let slow = measured(40, 130, 900);
        let safe = Settings::safe(&slow).expect("some");
        assert_eq!(safe.flags(), "--heartbeat-interval=300 --election-timeout=3000");
        assert!(timing(&slow).ends_with(&safe.flags()));
        // One long stall asks for a longer election timeout and no longer heartbeat.
        let stall = Settings::safe(&measured(2, 4, 1_200)).expect("some");
        assert_eq!(stall.flags(), "--heartbeat-interval=100 --election-timeout=2400");
    }

    #[test]
    fn a_hopeless_disk_is_told_so() {
        assert_eq!(Settings::safe(&measured(900, 30_000, 40_000)), None);
        assert!(timing(&measured(900, 30_000, 40_000)).contains("no election timeout"));
    }
}
