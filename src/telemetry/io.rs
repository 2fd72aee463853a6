//! Statistics of file operations: latency, bytes, errors and the age of what is still running.
//!
//! A hung sync must be visible before it ends, so every operation leaves its start in a slot while
//! it runs. Failed operations are timed too: a disk that answers errors after 30 s is not fast.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::telemetry::clock;
use crate::telemetry::histogram::LatencyHistogram;
use crate::telemetry::sync_mix::SyncMix;

/// What a file is for; the first label of every I/O metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// Segments of the write-ahead log.
    Wal,
    /// The key-value store.
    Store,
    /// Small files: identity, format, verdict.
    Meta,
    /// A log segment that is being prepared: nobody waits for its writes and syncs.
    Spare,
    /// The lock of the data directory.
    Lock,
    /// Space held back for a full disk.
    Ballast,
    /// Snapshots received or being written.
    Snapshot,
}

impl FileKind {
    /// Every kind, in label order.
    pub const ALL: [FileKind; 7] = [
        FileKind::Wal,
        FileKind::Store,
        FileKind::Meta,
        FileKind::Spare,
        FileKind::Lock,
        FileKind::Ballast,
        FileKind::Snapshot,
    ];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            FileKind::Wal => "wal",
            FileKind::Store => "store",
            FileKind::Meta => "meta",
            FileKind::Spare => "wal_spare",
            FileKind::Lock => "lock",
            FileKind::Ballast => "ballast",
            FileKind::Snapshot => "snapshot",
        }
    }
}

/// A file operation; the second label of every I/O metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IoOp {
    /// Open or create.
    Open,
    /// Positioned read.
    Read,
    /// Positioned write.
    Write,
    /// `fdatasync`.
    SyncData,
    /// `fsync`.
    SyncAll,
    /// `ftruncate`.
    SetLen,
    /// `fallocate`.
    Allocate,
    /// `rename`.
    Rename,
    /// `unlink`.
    Remove,
    /// `fsync` of a directory.
    SyncDir,
    /// Listing a directory, creating one, asking for free space.
    List,
}

impl IoOp {
    /// Every operation, in label order.
    pub const ALL: [IoOp; 11] = [
        IoOp::Open,
        IoOp::Read,
        IoOp::Write,
        IoOp::SyncData,
        IoOp::SyncAll,
        IoOp::SetLen,
        IoOp::Allocate,
        IoOp::Rename,
        IoOp::Remove,
        IoOp::SyncDir,
        IoOp::List,
    ];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            IoOp::Open => "open",
            IoOp::Read => "read",
            IoOp::Write => "write",
            IoOp::SyncData => "sync_data",
            IoOp::SyncAll => "sync_all",
            IoOp::SetLen => "set_len",
            IoOp::Allocate => "allocate",
            IoOp::Rename => "rename",
            IoOp::Remove => "remove",
            IoOp::SyncDir => "sync_dir",
            IoOp::List => "list",
        }
    }
}

/// Operations of one kind and name whose start is remembered at the same time. Writers are single
/// threads; only store reads run in parallel, on as many threads as the edge has. What finds no
/// free slot is still timed, only its age is not shown while it runs.
const SLOTS: usize = 8;

#[derive(Debug)]
struct Cell {
    latency: LatencyHistogram,
    errors: AtomicU64,
    bytes: AtomicU64,
    /// Start stamp plus one; zero is free.
    slots: [AtomicU64; SLOTS],
}

impl Cell {
    const fn new() -> Self {
        Cell {
            latency: LatencyHistogram::new(),
            errors: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            slots: [const { AtomicU64::new(0) }; SLOTS],
        }
    }
}

/// Counters of every kind and operation; shared by all files of a process. About 160 KiB.
#[derive(Debug)]
pub struct IoStats {
    cells: Box<[Cell]>,
    wal_mix: SyncMix,
    store_mix: SyncMix,
}

impl IoStats {
    /// All zero.
    pub fn new() -> Self {
        let count = FileKind::ALL.len() * IoOp::ALL.len();
        IoStats {
            cells: (0..count).map(|_| Cell::new()).collect(),
            wal_mix: SyncMix::new(),
            store_mix: SyncMix::new(),
        }
    }

    fn cell(&self, kind: FileKind, op: IoOp) -> &Cell {
        &self.cells[kind as usize * IoOp::ALL.len() + op as usize]
    }

    /// Starts the clock of one operation.
    pub fn begin(&self, kind: FileKind, op: IoOp) -> InFlight<'_> {
        let cell = self.cell(kind, op);
        let start_ns = clock::now_ns();
        let slot = cell
            .slots
            .iter()
            .find(|s| s.compare_exchange(0, start_ns.wrapping_add(1), Relaxed, Relaxed).is_ok());
        let part = match op {
            IoOp::Write => Some(Part::Write),
            IoOp::SyncData | IoOp::SyncAll => Some(Part::Sync),
            _ => None,
        };
        InFlight { cell, slot, start_ns, outcome: None, offset: 0, mix: self.mix(kind).zip(part) }
    }

    /// Writes and syncs of the log or the store; other files have no mix worth knowing.
    pub fn mix(&self, kind: FileKind) -> Option<&SyncMix> {
        match kind {
            FileKind::Wal => Some(&self.wal_mix),
            FileKind::Store => Some(&self.store_mix),
            _ => None,
        }
    }

    /// Latencies of an operation, of the failed ones as well.
    pub fn latency(&self, kind: FileKind, op: IoOp) -> &LatencyHistogram {
        &self.cell(kind, op).latency
    }

    /// Operations that failed since the start.
    pub fn errors(&self, kind: FileKind, op: IoOp) -> u64 {
        self.cell(kind, op).errors.load(Relaxed)
    }

    /// Bytes moved by operations that succeeded since the start.
    pub fn bytes(&self, kind: FileKind, op: IoOp) -> u64 {
        self.cell(kind, op).bytes.load(Relaxed)
    }

    /// Age in nanoseconds of the oldest operation on files of this kind, whatever it is, that has not
    /// ended yet.
    pub fn oldest_of(&self, kind: FileKind) -> Option<u64> {
        IoOp::ALL.into_iter().filter_map(|op| self.oldest_in_flight_ns(kind, op)).max()
    }

    /// Age in nanoseconds of the oldest operation of this kind that has not ended yet.
    pub fn oldest_in_flight_ns(&self, kind: FileKind, op: IoOp) -> Option<u64> {
        let starts = self.cell(kind, op).slots.iter().map(|s| s.load(Relaxed));
        let oldest = starts.filter(|s| *s != 0).min()?;
        Some(clock::now_ns().saturating_sub(oldest - 1))
    }
}

impl Default for IoStats {
    fn default() -> Self {
        Self::new()
    }
}

/// One running operation. Dropping it without [`InFlight::end`] counts as a failure.
#[derive(Debug)]
#[must_use = "the operation counts as failed when this is dropped without `end`"]
pub struct InFlight<'a> {
    cell: &'a Cell,
    slot: Option<&'a AtomicU64>,
    start_ns: u64,
    outcome: Option<u64>,
    offset: u64,
    mix: Option<(&'a SyncMix, Part)>,
}

/// What an operation is to the mix of its file.
#[derive(Clone, Copy, Debug)]
enum Part {
    Write,
    Sync,
}

impl InFlight<'_> {
    /// Says where in its file the operation takes place.
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// Ends the operation: `bytes` were moved, or it failed.
    pub fn end(mut self, bytes: u64, ok: bool) {
        self.outcome = ok.then_some(bytes);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let now_ns = clock::now_ns();
        self.cell.latency.record_ns(now_ns.saturating_sub(self.start_ns));
        match (self.mix, self.outcome) {
            (Some((mix, Part::Write)), Some(bytes)) => mix.wrote(self.offset, bytes),
            (Some((mix, Part::Sync)), Some(_)) => mix.synced(self.start_ns, now_ns),
            _ => {}
        }
        match self.outcome {
            Some(bytes) => self.cell.bytes.fetch_add(bytes, Relaxed),
            None => self.cell.errors.fetch_add(1, Relaxed),
        };
        if let Some(slot) = self.slot {
            slot.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_failure_and_age() {
        let stats = IoStats::new();
        let (kind, op) = (FileKind::Wal, IoOp::SyncData);
        assert_eq!(stats.oldest_in_flight_ns(kind, op), None);
        let running = stats.begin(kind, op);
        assert!(stats.oldest_in_flight_ns(kind, op).is_some());
        assert_eq!(stats.oldest_in_flight_ns(kind, IoOp::Write), None);
        running.end(512, true);
        stats.begin(kind, op).end(512, false);
        drop(stats.begin(kind, op));
        assert_eq!(stats.oldest_in_flight_ns(kind, op), None);
        assert_eq!(stats.latency(kind, op).snapshot().count, 3, "failures are timed too");
        assert_eq!((stats.bytes(kind, op), stats.errors(kind, op)), (512, 2));
    }

    #[test]
    fn only_what_succeeded_is_part_of_the_mix() {
        let stats = IoStats::new();
        stats.begin(FileKind::Wal, IoOp::Write).end(100, true);
        stats.begin(FileKind::Wal, IoOp::Write).end(100, false);
        stats.begin(FileKind::Spare, IoOp::Write).end(5_000, true);
        stats.begin(FileKind::Wal, IoOp::SyncData).end(0, true);
        stats.begin(FileKind::Wal, IoOp::SyncData).end(0, false);
        let seen = stats.mix(FileKind::Wal).expect("a mix").snapshot();
        assert_eq!((seen.writes, seen.bytes, seen.extents), (1, 100, 1));
        assert_eq!(seen.bytes_per_sync, [(112, 1)]);
        assert!(stats.mix(FileKind::Meta).is_none());
    }

    #[test]
    fn more_operations_than_slots_are_all_counted() {
        let stats = IoStats::new();
        let running: Vec<_> =
            (0..SLOTS + 3).map(|_| stats.begin(FileKind::Store, IoOp::Read)).collect();
        running.into_iter().for_each(|r| r.end(1, true));
        assert_eq!(stats.bytes(FileKind::Store, IoOp::Read), SLOTS as u64 + 3);
    }

    #[test]
    fn labels_are_distinct_and_tables_match_the_enums() {
        for (at, kind) in FileKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, at);
        }
        for (at, op) in IoOp::ALL.iter().enumerate() {
            assert_eq!(*op as usize, at);
        }
    }
}
