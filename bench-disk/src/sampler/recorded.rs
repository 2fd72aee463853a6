//! What a running node wrote, recorded by the node itself and replayed here.
//!
//! A node shows its recording as `disk.mix` at `/debug/vars`:
//!
//! ```sh
//! curl -s localhost:2379/debug/vars > mix.json
//! bench-disk run --dir /var/lib --mix mix.json
//! ```
//!
//! Sizes are classes, pairs of upper end and count, so that a recording stays small however long
//! the node runs. A replay draws from them with a fixed seed.

use crate::bounded;
use crate::sampler::mix::Random;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Version of the document.
pub const SCHEMA: u32 = 1;

/// Key of the recording in the document of `/debug/vars`.
pub const KEY: &str = "disk.mix";

/// Larger appends are replayed as this: a class beyond is one huge transaction, not a disk's
/// everyday life.
pub const MAX_APPEND: usize = 4 << 20;

/// A node counts longer pauses as having had nothing to do.
const MAX_GAP_MICROS: u64 = 1_000_000;

/// Millions of syncs a second for years.
const MAX_COUNT: u64 = 1 << 44;

/// A larger file is no recording.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Fewer syncs than this say nothing about a node.
const MIN_SYNCS: u64 = 100;

/// A node's recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name and version of the program that recorded.
    pub program: String,
    /// Seconds with at least one sync of the log: what rates are counted over.
    pub active_seconds: u64,
    /// Threads beside those that write the log and the store; none if nobody looked.
    #[serde(default)]
    pub threads: Vec<Work>,
    /// Synced appends of the log.
    pub log: Stream,
    /// Syncs of the store's file.
    pub store: Stream,
}

/// What a thread did while the node was at work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Its name.
    pub name: String,
    /// Processor time in microseconds.
    pub cpu_micros: u64,
    /// How often it waited for something to do.
    pub turns: u64,
}

/// What went to one kind of file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Write calls.
    pub writes: u64,
    /// Bytes of all writes.
    pub bytes: u64,
    /// Contiguous stretches that the bytes of each sync made up, all syncs together; 0 in recordings
    /// of nodes that did not look.
    #[serde(default)]
    pub extents: u64,
    /// Pairs of size and count: syncs with at most this many bytes written since the one before,
    /// and more than the size of the pair before.
    pub bytes_per_sync: Vec<(u64, u64)>,
    /// For each pair the microseconds from the end of the sync before to the start of such a sync,
    /// all of them together; empty in recordings of nodes that did not look.
    #[serde(default)]
    pub gap_micros: Vec<u64>,
    /// Processor time in microseconds of the thread that wrote; 0 if nobody looked.
    #[serde(default)]
    pub cpu_micros: u64,
}

/// The next sync of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// Bytes to write before it.
    pub bytes: u64,
    /// Mean time from the end of the sync before to the start of such a one, if it was recorded.
    pub gap: Option<Duration>,
}

impl Stream {
    /// Syncs recorded.
    pub fn syncs(&self) -> u64 {
        self.bytes_per_sync.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The next sync, drawn from the classes; its bytes evenly inside a class, 0 without any.
    pub fn draw(&self, random: &mut Random) -> Draw {
        let total = self.syncs();
        if total == 0 {
            return Draw::default();
        }
        let mut left = random.below(total);
        let mut below = 0;
        for (class, &(upper, count)) in self.bytes_per_sync.iter().enumerate() {
            if left < count {
                let bytes = below + 1 + random.below((upper - below).max(1));
                let gap = self.gap_micros.get(class);
                return Draw { bytes, gap: gap.map(|&sum| Duration::from_micros(sum / count)) };
            }
            left -= count;
            below = upper;
        }
        Draw { bytes: below, gap: None }
    }

    /// Processor time that belongs to this many bytes.
    pub fn cpu_of(&self, bytes: u64) -> Duration {
        let share = bytes as f64 / self.bytes.max(1) as f64;
        Duration::from_micros((self.cpu_micros as f64 * share.min(1.0)) as u64)
    }

    /// Mean bytes that lie together, at least one: by extents, or by write calls if nobody looked.
    pub fn extent_bytes(&self) -> u64 {
        let parts = if self.extents > 0 { self.extents } else { self.writes };
        (self.bytes / parts.max(1)).max(1)
    }
}

/// Why a file is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// The file cannot be read.
    #[error("cannot read the recorded mix {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The content is something else.
    #[error(
        "{} is no recorded mix ({reason}): save a node's /debug/vars to a file and name that", path.display()
    )]
    Invalid {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl Recorded {
    /// Reads a recording: the object alone, or a saved `/debug/vars`.
    pub fn load(path: &Path) -> Result<Self, RecordedError> {
        let failed = |source| RecordedError::Io { path: path.to_path_buf(), source };
        let invalid = |reason: String| RecordedError::Invalid { path: path.to_path_buf(), reason };
        Self::parse(&bounded::read(path, MAX_FILE_BYTES).map_err(failed)?).map_err(invalid)
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut document: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let object = match document.get_mut(KEY) {
            Some(inner) => inner.take(),
            None => document,
        };
        let recorded: Self = serde_json::from_value(object).map_err(|error| error.to_string())?;
        recorded.check()?;
        Ok(recorded)
    }

    fn check(&self) -> Result<(), String> {
        if self.schema != SCHEMA {
            return Err(format!("version {}, this program reads {SCHEMA}", self.schema));
        }
        for stream in [&self.log, &self.store] {
            let sizes = stream.bytes_per_sync.iter().map(|(size, _)| *size);
            if !sizes.clone().is_sorted_by(|a, b| a < b) || sizes.clone().any(|size| size == 0) {
                return Err("sizes must ascend from above zero".into());
            }
            if stream.bytes_per_sync.iter().any(|(_, count)| *count > MAX_COUNT) {
                return Err("a count is out of range".into());
            }
            let gaps = &stream.gap_micros;
            if !gaps.is_empty() && gaps.len() != stream.bytes_per_sync.len() {
                return Err("there must be a gap for each size".into());
            }
            let counts = stream.bytes_per_sync.iter().map(|(_, count)| *count);
            if gaps.iter().zip(counts).any(|(gap, count)| *gap > count * MAX_GAP_MICROS) {
                return Err("gaps are longer than a second".into());
            }
        }
        let syncs = self.log.syncs();
        if syncs < MIN_SYNCS || self.active_seconds == 0 {
            return Err(format!("{syncs} syncs of the log are too few"));
        }
        // A second is active by a sync of the log. One more: the two are not read at once.
        if self.active_seconds > syncs.saturating_add(1) {
            return Err(format!("{} active seconds with {syncs} syncs", self.active_seconds));
        }
        Ok(())
    }

    /// Mean distance of the log's syncs while the node was at work.
    pub fn log_interval(&self) -> Duration {
        interval(self.active_seconds, self.log.syncs())
    }

    /// The same for the store; `None` if it never synced.
    pub fn store_interval(&self) -> Option<Duration> {
        let syncs = self.store.syncs();
        (syncs > 0).then(|| interval(self.active_seconds, syncs))
    }
}

fn interval(seconds: u64, count: u64) -> Duration {
    Duration::from_secs_f64(seconds as f64 / count.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> serde_json::Value {
        serde_json::json!({
            "schema": 1, "program": "assay 0.1.0", "active_seconds": 50,
            "log": {"writes": 100, "bytes": 70_000, "bytes_per_sync": [[512, 90], [4_096, 10]]},
            "store": {"writes": 40, "bytes": 163_840, "bytes_per_sync": [[16_384, 10]]},
        })
    }

    #[test]
    fn a_recording_is_read_alone_and_inside_the_debug_document() {
        let alone = Recorded::parse(document().to_string().as_bytes()).expect("valid");
        assert_eq!(alone.log_interval(), Duration::from_millis(500));
        assert_eq!(alone.store_interval(), Some(Duration::from_secs(5)));
        assert_eq!(alone.store.extent_bytes(), 4_096);
        let looked = Stream { extents: 10, ..alone.store.clone() };
        assert_eq!(looked.extent_bytes(), 16_384);
        let vars = serde_json::json!({"cmdline": [], KEY: document()});
        assert_eq!(Recorded::parse(vars.to_string().as_bytes()), Ok(alone));
    }

    #[test]
    fn draws_follow_the_classes() {
        let recorded = Recorded::parse(document().to_string().as_bytes()).expect("valid");
        let mut random = Random(7);
        let log = Stream { gap_micros: vec![50 * 90, 900 * 10], ..recorded.log };
        let draws: Vec<Draw> = (0..10_000).map(|_| log.draw(&mut random)).collect();
        let gaps = draws.iter().map(|draw| draw.gap.expect("recorded").as_micros() as u64);
        assert!(gaps.zip(&draws).all(|(gap, draw)| gap == if draw.bytes > 512 { 900 } else { 50 }));
        let sizes: Vec<u64> = draws.iter().map(|draw| draw.bytes).collect();
        assert!(sizes.iter().all(|size| (1..=4_096).contains(size)));
        let large = sizes.iter().filter(|&&size| size > 512).count();
        assert!((850..1_150).contains(&large), "{large} of the upper class");
        assert_eq!(Stream::default().draw(&mut random), Draw::default());
        assert_eq!(recorded.store.draw(&mut random).gap, None, "of a node that did not look");
        let store = Stream { cpu_micros: 8_000, ..recorded.store };
        assert_eq!(store.cpu_of(store.bytes / 4), Duration::from_micros(2_000));
    }

    #[test]
    fn other_documents_are_refused_with_the_reason() {
        let refused = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut document = document();
            change(&mut document);
            Recorded::parse(document.to_string().as_bytes()).expect_err("refused")
        };
        assert!(refused(&|d| d["schema"] = 2.into()).contains("version 2"));
        assert!(refused(&|d| d["log"]["bytes_per_sync"][0][1] = 1.into()).contains("too few"));
        assert!(refused(&|d| d["log"]["bytes_per_sync"][0][0] = 5_000.into()).contains("ascend"));
        assert!(
            refused(&|d| d["log"]["gap_micros"] = serde_json::json!([5])).contains("each size")
        );
        let long = serde_json::json!([5, 10_000_001]);
        assert!(refused(&|d| d["log"]["gap_micros"] = long.clone()).contains("longer"));
        assert!(refused(&|d| d["active_seconds"] = 0.into()).contains("too few"));
        assert!(refused(&|d| d["active_seconds"] = 102.into()).contains("102 active seconds"));
        assert!(refused(&|d| d["active_seconds"] = u64::MAX.into()).contains("active seconds"));
        assert!(Recorded::parse(b"{}").is_err());
    }
}
