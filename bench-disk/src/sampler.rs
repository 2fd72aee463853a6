//! Where latencies come from: the seam between the rule and the disk.

pub mod companion;
pub mod mix;
pub mod neighbour;
pub mod node;
pub mod processors;
pub mod recorded;
pub mod scratch;
pub mod segments;
pub mod shape;

use crate::ProbeError;
use std::time::Duration;

/// One synced append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Duration of the sync call alone, which is what a node's log histogram records.
    pub latency: Duration,
    /// The part of it in which the disk had answered and the thread waited for a processor.
    pub waited: Duration,
    /// When it returned, since the run began.
    pub finished: Duration,
    /// Bytes that the whole run has written so far.
    pub bytes_written: u64,
}

/// A source of latencies: a disk, or a model of one in tests.
pub trait Sampler {
    /// Takes the next sample. An error ends the run: a failed sync is never retried.
    fn sample(&mut self) -> Result<Sample, ProbeError>;

    /// Duration of the write call before the last sample's sync; `None` if there was none.
    fn last_write(&self) -> Option<Duration> {
        None
    }
}
