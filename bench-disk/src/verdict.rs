//! The verdict and its file: checksummed, replaced atomically, with a bounded history.

use crate::ProbeError;
use crate::distribution::{Distribution, Slice};
use crate::finding::Finding;
use crate::identity::{Conditions, Identity};
use crate::judge::{End, Outcome};
use crate::stats::{Percentiles, Summary};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Version of the file's layout. Readers refuse others; the file is then measured anew.
pub const SCHEMA: u32 = 1;

/// Name of the file inside a data directory.
pub const FILE_NAME: &str = "disk-verdict.json";

/// Attempts that are remembered: enough to see a pattern, small enough to never grow.
pub const MAX_ATTEMPTS: usize = 32;

/// A larger file is not ours.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Life of a verdict that no node runs on yet.
const LIFE: Duration = Duration::from_secs(30 * DAY);

/// The same, for a device that cannot be recognised for certain.
const WEAK_LIFE: Duration = Duration::from_secs(7 * DAY);

const DAY: u64 = 24 * 60 * 60;

/// The answer about one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name and version of the program that measured.
    pub tool: String,
    /// The answer.
    pub outcome: Outcome,
    /// The limit that it is about, in nanoseconds.
    pub limit_ns: u64,
    /// Seconds since 1970 at the end of the measurement.
    pub created: u64,
    /// Seconds since 1970 after which it is void if no node has run on it.
    pub expires: u64,
    /// Name of the profile.
    pub profile: String,
    /// Bottom device, for people.
    pub device: String,
    /// The figures; absent when nothing was measured.
    pub measured: Option<Measured>,
    /// What was noticed, the decisive reason first.
    pub findings: Vec<Finding>,
    /// Which device.
    pub identity: Identity,
    /// Under which circumstances.
    pub conditions: Conditions,
    /// Earlier runs on this device, oldest first, this one last.
    pub attempts: Vec<Attempt>,
    /// The file system of the store, if it is another one than the log's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Box<Verdict>>,
}

/// Figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Counts and bounds of the fraction above the limit.
    pub summary: Summary,
    /// Percentiles, and the interval of the 99th.
    pub percentiles: Percentiles,
    /// Pairs of latency in nanoseconds (three significant digits) and count, ascending.
    pub histogram: Vec<(u64, u64)>,
    /// Duration of the run, in nanoseconds.
    pub elapsed_ns: u64,
    /// What ended it; absent in files of versions that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// Bytes written.
    pub bytes: u64,
    /// Syncs of all files of the probe.
    pub syncs: u64,
    /// Flush requests that the disks completed meanwhile, if the kernel counts them.
    pub flushes: Option<u64>,
    /// What the flush count says: `verified-path`, `unverified`, `suspect` or `refused`.
    pub durability: String,
    /// Share of time that others kept the device busy before the run, 0 to 1.
    pub busy_before: Option<f64>,
    /// The syncs for other programs; absent in files of versions that did not describe them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Distribution>,
    /// The write calls before the syncs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Distribution>,
    /// How the syncs went over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub course: Vec<Slice>,
    /// What a flush adds to a write; absent in short profiles and where it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_cost: Option<FlushCost>,
    /// What requests would have seen that arrive at fixed times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<OpenLoop>,
    /// One entry per minute of a run of at least two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Minute>,
    /// The phase that decides, and those measured beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseFigures>,
}

/// Medians of writes of 4 KiB that pass the page cache, on blocks written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushCost {
    /// The write alone, in nanoseconds.
    pub write_ns: u64,
    /// Write and sync, in nanoseconds.
    pub synced_ns: u64,
}

/// Latencies from fixed times of arrival, so that one stall counts for all it delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenLoop {
    /// Distance of the arrivals, in nanoseconds.
    pub interval_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile, in nanoseconds.
    pub p999_ns: u64,
    /// Longest, in nanoseconds.
    pub max_ns: u64,
}

/// One minute of a long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minute {
    /// Number of the minute, from 0.
    pub minute: u64,
    /// Samples in it.
    pub n: u64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// Longest, in nanoseconds.
    pub max_ns: u64,
}

/// Figures of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// `idle`, `loaded`, `burst`, `reader`, `writer` or `all`.
    pub name: String,
    /// Samples.
    pub n: u64,
    /// Samples above the limit.
    pub exceeded: u64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile, in nanoseconds.
    pub p999_ns: u64,
    /// Longest, in nanoseconds.
    pub max_ns: u64,
    /// Samples per second.
    pub syncs_per_second: f64,
}

/// One line of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Seconds since 1970.
    pub at: u64,
    /// The answer then.
    pub outcome: Outcome,
    /// The profile then.
    pub profile: String,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: Option<u64>,
}

/// The file around the verdict: the checksum is over the verdict's text as it stands.
#[derive(Serialize, Deserialize)]
struct Envelope {
    crc32c: String,
    verdict: Box<RawValue>,
}

/// Why a file is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the verdict file {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The content is damaged, edited, or of another version.
    #[error("the verdict file {} is not valid ({reason}): it is ignored and replaced", path.display())]
    Invalid {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl Verdict {
    /// 99th percentile, if measured.
    pub fn p99(&self) -> Option<Duration> {
        self.measured.as_ref().map(|m| Duration::from_nanos(m.percentiles.p99_ns))
    }

    /// Age by the wall clock; `None` if it claims to come from the future.
    pub fn age(&self, now: u64) -> Option<Duration> {
        now.checked_sub(self.created).map(Duration::from_secs)
    }

    /// Adds the history of earlier runs and this run itself, and says so when a PASS follows a
    /// FAIL within a day: nobody shall roll the dice until they fit in silence.
    pub fn remember(&mut self, mut earlier: Vec<Attempt>) {
        earlier.push(Attempt {
            at: self.created,
            outcome: self.outcome,
            profile: self.profile.clone(),
            p99_ns: self.measured.as_ref().map(|m| m.percentiles.p99_ns),
        });
        earlier.sort_by_key(|attempt| attempt.at);
        earlier.dedup();
        let excess = earlier.len().saturating_sub(MAX_ATTEMPTS);
        earlier.drain(..excess);
        let failed = earlier.iter().rev().find(|attempt| {
            attempt.outcome == Outcome::Fail && self.created.saturating_sub(attempt.at) < DAY
        });
        if let (Outcome::Pass, Some(failed)) = (self.outcome, failed) {
            let minutes = self.created.saturating_sub(failed.at) / 60;
            let text = format!("this PASS follows a FAIL on the same device {minutes} min earlier");
            self.findings.insert(0, Finding::warn("pass-after-fail", text));
        }
        self.attempts = earlier;
    }

    /// Replaces the file: temporary file, sync, rename, sync of the directory.
    pub fn store(&self, path: &Path) -> Result<(), ProbeError> {
        let fail = |action| ProbeError::io(action, path);
        let text = serde_json::to_string(self)
            .map_err(io::Error::other)
            .map_err(fail("encode the verdict for"))?;
        let crc32c = format!("{:08x}", crc32c::crc32c(text.as_bytes()));
        let envelope = RawValue::from_string(text)
            .and_then(|verdict| serde_json::to_vec(&Envelope { crc32c, verdict }))
            .map_err(io::Error::other)
            .map_err(fail("encode the verdict for"))?;
        replace(path, &envelope).map_err(fail("store the verdict file"))
    }

    /// Reads a file. `Ok(None)` if there is none.
    pub fn load(path: &Path) -> Result<Option<Self>, ReadError> {
        let failed = |source| ReadError::Io { path: path.to_path_buf(), source };
        let bytes = match fs::metadata(path) {
            Err(error) if missing(&error) => return Ok(None),
            Err(error) => return Err(failed(error)),
            Ok(metadata) if metadata.len() > MAX_FILE_BYTES || !metadata.is_file() => {
                let reason = "not a regular file of at most 1 MiB".to_string();
                return Err(ReadError::Invalid { path: path.to_path_buf(), reason });
            }
            Ok(_) => fs::read(path).map_err(failed)?,
        };
        decode(&bytes)
            .map(Some)
            .map_err(|reason| ReadError::Invalid { path: path.to_path_buf(), reason })
    }
}

fn missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn decode(bytes: &[u8]) -> Result<Verdict, String> {
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let text = envelope.verdict.get();
    if format!("{:08x}", crc32c::crc32c(text.as_bytes())) != envelope.crc32c {
        return Err("its checksum does not fit".into());
    }
    let verdict: Verdict = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if verdict.schema != SCHEMA {
        return Err(format!("it has version {}, this program reads {SCHEMA}", verdict.schema));
    }
    Ok(verdict)
}

/// Writes a whole file so that a crash leaves the old one or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let name = name.trim_start_matches('.');
    let temporary = directory.join(format!(".{name}.{}.tmp", std::process::id()));
    let result = (|| {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o644);
        let mut file = options.custom_flags(libc::O_NOFOLLOW).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(directory)?.sync_all()
    })();
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Seconds since 1970.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Life of a verdict that no node runs on yet.
pub(crate) fn life(identity: &Identity) -> Duration {
    if identity.weak() { WEAK_LIFE } else { LIFE }
}

/// Expiry of a verdict made now.
pub(crate) fn expiry(created: u64, identity: &Identity) -> u64 {
    created + life(identity).as_secs()
}

#[cfg(test)]
pub(crate) mod tests;
