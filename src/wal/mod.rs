//! The write-ahead log: raft entries and hard state on disk, in group commits of one writer.
//!
//! # On disk
//!
//! Segments `<sequence>-<first index>.wal` (16 hex digits each) begin with one sector of
//! [`segment::Header`] and then hold frames. A frame ([`record`]) carries its own sequence number
//! and `synced_through`, the highest frame known to be on disk when it was written. Checksums are
//! seeded with the segment and the position, so neither a recycled file nor a misplaced block can
//! pass for a frame. Every segment starts with identity, base (the log position before its first
//! entry) and hard state: older segments can be dropped without writing anything.
//!
//! # Rules
//!
//! - A segment gets its name only after its head is synced, and counts only after its directory is.
//! - An entry at an index replaces everything from that index on.
//! - The first bad frame `n` is damage if the head of the segment or any later frame says that `n`
//!   was on disk; then recovery refuses. Otherwise it is the end of an unsynced tail and is cut.
//! - What was read back without such evidence is not durable, however well it reads: a failed sync
//!   leaves pages that read well and vanish with the power. Recovery copies it into a new segment
//!   and syncs that before it returns. It never appends to a segment of an earlier process.
//! - The first failed write or sync is final for this process.

mod error;
mod group;
mod pool;
mod read;
mod record;
mod recover;
mod segment;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::disk::Disk;

pub use error::WalError;
pub use pool::SpareStep;
pub use record::MAX_ENTRY_BYTES;
pub use segment::{Contents, inspect};
pub use writer::{Wal, WalSizes};

/// Default size of a segment file in bytes: etcd's, large enough that a roll is rare and small
/// enough that what truncation cannot yet drop stays small.
pub const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// Version of the format written by this program. Recovery refuses a newer one.
pub const FORMAT: u32 = 1;

/// One raft log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position in the log, from 1.
    pub index: u64,
    /// Term of the leader that created it.
    pub term: u64,
    /// 0 normal, 1 configuration change.
    pub kind: u8,
    /// The command.
    pub data: Bytes,
    /// What travels beside the command, such as the details of a configuration change.
    pub context: Bytes,
}

/// Raft's durable variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// Current term.
    pub term: u64,
    /// Member voted for in this term; zero for none.
    pub vote: u64,
    /// Highest index known to be committed.
    pub commit: u64,
}

/// Whose log this is; repeated at the head of every segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Cluster id.
    pub cluster_id: u64,
    /// Member id.
    pub member_id: u64,
    /// Format of the commands inside the entries.
    pub format: u32,
}

/// What one raft ready wants persisted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Entries with consecutive indexes; the first may replace existing ones.
    pub entries: Vec<Entry>,
    /// The new hard state, if it changed.
    pub hard_state: Option<HardState>,
    /// Whether anything may be told to others only after this is on disk.
    pub sync: bool,
}

/// How to keep the log.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a segment file in bytes. A larger batch makes a larger segment.
    pub segment_bytes: u64,
    /// Segments prepared ahead by [`Wal::prepare_spare`].
    pub spare_segments: usize,
    /// Whether spare segments are filled with zeros and not only reserved: a sync of a write into
    /// space that was never written has to convert the extent too.
    pub prewrite: bool,
    /// A number that differs at every start of a process, mixed into the checksums of the segments
    /// it creates: what an earlier attempt left in a file can then never pass for a frame.
    pub salt: u64,
    /// Broken on purpose, for tests that must notice: take what was read back as durable and go on
    /// appending behind it.
    pub trust_tail: bool,
}

impl Options {
    /// The defaults; `salt` has to be random, or different at every start.
    pub fn new(salt: u64) -> Self {
        Options {
            segment_bytes: SEGMENT_BYTES,
            spare_segments: 2,
            prewrite: true,
            salt,
            trust_tail: false,
        }
    }
}

/// The log as it was found. All of it is durable when [`Wal::recover`] returns.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Whose log it is.
    pub identity: Option<Identity>,
    /// Index and term of the position before the first entry.
    pub base: (u64, u64),
    /// The entries from `base.0 + 1` on, without gaps.
    pub entries: Vec<Entry>,
    /// The last hard state; its commit index is at most the last entry's.
    pub hard_state: HardState,
    /// Whether the last process closed the log in order.
    pub clean: bool,
    /// What recovery saw and did.
    pub report: RecoveryReport,
}

/// What recovery saw and did, for one log line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Segments read.
    pub segments: usize,
    /// Good frames read.
    pub frames: u64,
    /// Bytes of good frames.
    pub bytes: u64,
    /// File and offset of the torn tail that was cut, if there was one.
    pub cut_at: Option<(PathBuf, u64)>,
    /// Bytes behind that offset that were not zero, counted to the last such byte. In a recycled
    /// file these can be leftovers of its former life.
    pub cut_bytes: u64,
    /// Frames without evidence of being on disk, copied into the new segment and synced.
    pub rewritten_frames: u64,
    /// Whether the commit index pointed behind the last entry and was lowered to it.
    pub commit_lowered: bool,
}

/// Whose log `dir` holds; changes nothing. `None` if there is none, or if its head is damaged.
///
/// # Errors
/// As [`exists`]; damage of a segment's header, or a newer format.
pub fn identity(disk: &dyn Disk, dir: &Path) -> Result<Option<Identity>, WalError> {
    let listing = segment::list(disk, dir)?;
    // Every head repeats it, and a head is on disk before its file has a name.
    let Some(last) = listing.segments.last() else { return Ok(None) };
    let first =
        read::Reader::new(last).next(segment::HEADER_BYTES as u64, last.header.first_frame)?;
    Ok(match first {
        read::Next::Frame(frame) if frame.kind == record::Kind::Identity => {
            record::get_identity(&frame.payload)
        }
        _ => None,
    })
}

/// Whether `dir` holds a log of ours, be it damaged or of a newer format.
///
/// # Errors
/// A log of etcd or of another program, or a disk operation that failed.
pub fn exists(disk: &dyn Disk, dir: &Path) -> Result<bool, WalError> {
    match inspect(disk, dir)? {
        Contents::Nothing => Ok(false),
        Contents::Log => Ok(true),
        Contents::Etcd(path) => Err(WalError::Etcd { path }),
        Contents::Foreign(path) => Err(WalError::Foreign { path }),
    }
}
