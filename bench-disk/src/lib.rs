//! Measures whether the disk under a directory is fit for a consensus log.
//!
//! The crate answers one question, "is the 99th percentile of a synced log append within the
//! limit?", with PASS, FAIL or INCONCLUSIVE and a stated confidence. From the bottom up:
//!
//! - [`stats`] and [`judge`] turn latencies into a verdict; they know no clock and no file.
//! - [`sampler`] produces the latencies: the real one writes as a node writes.
//! - [`env`](mod@env) and [`identity`] say what lies under a path and recognise it later.
//! - [`verdict`], [`lock`] and [`place`] keep the answer and make one probe per device enough.
//! - [`sweep`], [`compare`] and [`powercut`] answer other questions than the verdict's.
//! - [`gate`] is what a node calls before it opens its data directory; the `bench-disk` program
//!   gives the same answer to people.
//!
//! Nothing here depends on the server.
#![allow(
    clippy::disallowed_methods,
    reason = "the probe measures wall-clock latency of real files: it has its own file access and clock"
)]

pub mod alike;
mod bounded;
pub mod compare;
pub mod consequence;
pub mod distribution;
pub mod drift;
pub mod env;
pub mod explain;
pub mod finding;
pub mod gate;
pub mod identity;
pub mod judge;
pub mod lock;
pub mod output;
pub mod place;
pub mod powercut;
pub mod probe;
pub mod profile;
pub mod report;
pub mod sampler;
pub mod stats;
pub mod sweep;
pub mod verdict;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A file operation of the probe failed. Never retried: after a failed sync the state of the
    /// page cache is unknown, and a disk that fails one sync has failed the probe.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted, as a verb phrase.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The path names something that is not a directory.
    #[error("{} is not a directory: name the directory that will hold the data", .0.display())]
    NotADirectory(PathBuf),
    /// Too little room for the probe's own files.
    #[error("the probe needs {needed} MiB free in {} and finds {free} MiB: free some space", path.display())]
    NoSpace {
        /// Where.
        path: PathBuf,
        /// MiB that the probe's files take at most.
        needed: u64,
        /// MiB that are available to this user.
        free: u64,
    },
    /// The directory was removed or replaced during the measurement.
    #[error("{} was removed or replaced while it was measured: nothing is known about it", .0.display())]
    Vanished(PathBuf),
    /// Another probe of the same device did not finish in time.
    #[error("another probe of this device has been running for {} s: wait for it or end it", .0.as_secs())]
    Locked(Duration),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl ProbeError {
    /// Builds the adapter that turns an [`io::Error`] into [`ProbeError::Io`].
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| ProbeError::Io { action, path, source }
    }
}
