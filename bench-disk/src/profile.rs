//! How long a run takes and how hard it writes.

use std::time::Duration;

/// Samples after which a run without any exceedance proves the limit at 99 % confidence with a
/// design effect of 10: ten times the 459 that independent samples would need.
pub const CLEAN_PASS_SAMPLES: usize = 4_590;

/// Most bytes that a boot probe writes. Nodes restart in loops; a probe must not wear out a disk.
pub const BOOT_BYTES: u64 = 100_000_000;

/// A measuring plan. The end is reached when `samples` and `min_time` are both reached, or at
/// `time_box`, or when `byte_budget` is spent.
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
    /// How long to wait for a device that others keep busy before giving up on it.
    pub quiet_wait: Duration,
    /// Syncs of at least an election timeout that prove a FAIL by themselves. A start must not
    /// fail for one busy moment; a person who runs the longer profiles wants to know of each.
    pub fatal_stalls: usize,
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
            quiet_wait: Duration::from_secs(2),
            fatal_stalls: 2,
        }
    }

    /// A first answer for people, in about 20 s.
    pub fn quick() -> Self {
        Self {
            name: "quick",
            samples: 10_000,
            min_time: Duration::from_secs(15),
            time_box: Duration::from_secs(60),
            clean_pass: None,
            pace: Some(MAX_RATE),
            byte_budget: 400_000_000,
            quiet_wait: Duration::from_secs(10),
            fatal_stalls: 1,
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
            ..Self::quick()
        }
    }

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::boot(), Self::quick(), Self::standard()].into_iter().find(|p| p.name == name)
    }
}

/// At most 500 syncs per second: a loaded node's rate, and low enough to leave a shared disk usable.
const MAX_RATE: Duration = Duration::from_millis(2);
