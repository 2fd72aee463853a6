//! How long a run takes and how hard it writes.

mod file;

pub use file::ProfileError;

use crate::sampler::neighbour::WRITER_BYTES_PER_SECOND;
use crate::sampler::recorded::Recorded;
use crate::sampler::shape::{Appends, Load, Preparation, SMALL_STORE_BYTES, STORE_BYTES, Shape};
use crate::stats::ALPHA;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Samples after which a run without any exceedance proves the limit at 99 % confidence with a
/// design effect of 10: ten times the 459 that independent samples would need.
pub const CLEAN_PASS_SAMPLES: usize = 4_590;

/// Most bytes that a boot probe writes. Nodes restart in loops; a probe must not wear out a disk.
pub const BOOT_BYTES: u64 = 100_000_000;

/// Room beyond the probe's own files that must be free, for the file system's own needs, in bytes.
const SPARE_BYTES: u64 = 16 << 20;

/// At most 500 syncs per second: a loaded node's rate, and low enough to leave a shared disk usable.
const MAX_RATE: Duration = Duration::from_millis(2);

/// Device writes after which a soak ends: burst allowances of common cloud volumes hold up to 5.4
/// million operations.
pub const SOAK_DEVICE_WRITES: u64 = 6_000_000;

/// Longest soak.
const SOAK_TIME: Duration = Duration::from_secs(120 * 60);

/// Most bytes that a soak writes: what six million synced appends come to.
const SOAK_BYTES: u64 = 64_000_000_000;

/// Syncs per second of a look at a disk in use.
const LIVE_RATE: u64 = 10;

/// Length of such a look, in seconds.
const LIVE_SECONDS: u64 = 60;

/// A measuring plan. The end is reached when `samples` and `min_time` are both reached, or at
/// `time_box`, or when `byte_budget` or `device_writes` is spent.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name, as given on the command line and stored in verdicts.
    pub name: &'static str,
    /// Samples to take.
    pub samples: usize,
    /// Shortest duration.
    pub min_time: Duration,
    /// Longest duration.
    pub time_box: Duration,
    /// With no exceedance after this many samples the run ends with a PASS.
    pub clean_pass: Option<usize>,
    /// Shortest distance between two samples; `None` runs unpaced.
    pub pace: Option<Duration>,
    /// Most bytes to write, the companion file included.
    pub byte_budget: u64,
    /// Writes completed by the disk after which the run ends.
    pub device_writes: Option<u64>,
    /// How long to wait for a device that others keep busy before giving up on it; `None` does not
    /// even look.
    pub quiet_wait: Option<Duration>,
    /// Syncs of at least an election timeout that prove a FAIL by themselves. A start must not
    /// fail for one busy moment; a person who runs the longer profiles wants to know of each.
    pub fatal_stalls: usize,
    /// Accepted chance of a wrong answer.
    pub alpha: f64,
    /// What is written.
    pub shape: Shape,
    /// Length of each of the phases that are reported beside the verdict (idle, burst, reader);
    /// zero leaves them out.
    pub side: Duration,
    /// A PASS of this plan qualifies the disk for a node.
    pub qualifies: bool,
}

impl Profile {
    /// What a node runs when it has no verdict for its device: about a second on an SSD. A disk
    /// that needs 10 ms per sync still gets its 4,590 samples inside the box.
    pub fn boot() -> Self {
        Self {
            name: "boot",
            samples: 10_000,
            min_time: Duration::ZERO,
            time_box: Duration::from_secs(60),
            clean_pass: Some(CLEAN_PASS_SAMPLES),
            pace: None,
            byte_budget: BOOT_BYTES,
            device_writes: None,
            quiet_wait: Some(Duration::from_secs(2)),
            fatal_stalls: 2,
            alpha: ALPHA,
            shape: Shape::node(SMALL_STORE_BYTES),
            side: Duration::ZERO,
            qualifies: true,
        }
    }

    /// A first answer for people, in about 20 s.
    pub fn quick() -> Self {
        Self {
            name: "quick",
            min_time: Duration::from_secs(15),
            clean_pass: None,
            pace: Some(MAX_RATE),
            byte_budget: 400_000_000,
            quiet_wait: Some(Duration::from_secs(10)),
            fatal_stalls: 1,
            shape: Shape::node(STORE_BYTES),
            side: Duration::from_secs(1),
            ..Self::boot()
        }
    }

    /// The qualification before an installation, in one to three minutes.
    pub fn standard() -> Self {
        Self {
            name: "standard",
            samples: 30_000,
            min_time: Duration::from_secs(60),
            time_box: Duration::from_secs(180),
            byte_budget: 1_000_000_000,
            side: Duration::from_secs(4),
            ..Self::quick()
        }
    }

    /// As fast as the disk goes, until every burst allowance is spent.
    pub fn soak() -> Self {
        Self {
            name: "soak",
            samples: usize::MAX,
            min_time: SOAK_TIME,
            time_box: SOAK_TIME,
            pace: None,
            byte_budget: SOAK_BYTES,
            device_writes: Some(SOAK_DEVICE_WRITES),
            ..Self::standard()
        }
    }

    /// The recipe that people know from fio: to compare, not to qualify.
    pub fn fio() -> Self {
        let shape = Shape::fio();
        let Appends::Fixed(append) = shape.appends else { return Self::boot() };
        Self {
            name: "fio",
            // The last sync of the recipe is the end of the job and not among its samples.
            samples: (shape.segment_bytes / append as u64) as usize,
            min_time: Duration::ZERO,
            time_box: Duration::from_secs(180),
            pace: None,
            byte_budget: shape.segment_bytes,
            shape,
            side: Duration::ZERO,
            qualifies: false,
            ..Self::quick()
        }
    }

    /// A gentle look at a disk in use: proves no PASS and qualifies nothing.
    pub fn live() -> Self {
        let mut shape = Shape::node(SMALL_STORE_BYTES);
        shape.load = Load::None;
        shape.segment_bytes = 8 << 20;
        shape.preparation = Preparation::Reserve;
        Self {
            name: "live",
            samples: (LIVE_RATE * LIVE_SECONDS) as usize,
            min_time: Duration::ZERO,
            time_box: Duration::from_secs(LIVE_SECONDS),
            pace: Some(Duration::from_millis(1_000 / LIVE_RATE)),
            byte_budget: 16_000_000,
            quiet_wait: None,
            side: Duration::ZERO,
            shape,
            qualifies: false,
            ..Self::quick()
        }
    }

    /// The profile of this name, or the one described by the file of this name.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let known = [Self::boot(), Self::quick(), Self::standard(), Self::soak(), Self::fio()];
        match known.into_iter().find(|profile| profile.name == name) {
            Some(profile) => Ok(profile),
            None => file::load(Path::new(name)),
        }
    }

    /// The same with somebody else beside the log. Without the store's commits it does not qualify.
    pub fn with_load(mut self, load: Load) -> Self {
        self.shape.load = load;
        self.qualifies &= load.store();
        if load.writer() {
            let written = WRITER_BYTES_PER_SECOND.saturating_mul(self.time_box.as_secs());
            self.byte_budget = self.byte_budget.saturating_add(written);
        }
        self
    }

    /// The same with what a node recorded: its sizes and its rates. That node may have had little
    /// to do, so this does not qualify a disk for others.
    pub fn with_mix(mut self, recorded: Recorded) -> Self {
        self.pace = Some(recorded.log_interval());
        self.qualifies = false;
        self.shape.appends = Appends::Recorded(Arc::new(recorded));
        self
    }

    /// The same at another confidence, above 0.5 and below 1. Nodes ask for 99 %.
    pub fn with_confidence(mut self, confidence: f64) -> Self {
        self.alpha = 1.0 - confidence;
        self.qualifies &= self.alpha <= ALPHA + f64::EPSILON;
        self
    }

    /// Room for the files, in bytes. A boot probe stays within one segment.
    pub fn needed_bytes(&self) -> u64 {
        let one = self.byte_budget <= BOOT_BYTES;
        SPARE_BYTES + self.shape.room(one)
    }
}

#[cfg(test)]
mod tests;
