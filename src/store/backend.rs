//! The engine's file: every byte and every sync passes through `disk::File`, so it is measured on
//! the real disk and can be cut, failed and replayed on the simulated one.
//!
//! Locks are delegated as well, because an engine whose backend does not answer lock calls runs
//! without any. `disk::File` can lock the whole file and nothing smaller; the engine is told so
//! (`Unsupported` for a part of the file) and then asks for the whole. The lock ends with the file
//! handle. The data directory has a lock of its own, taken by the node before this one.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{BackendError, StorageBackend};

use crate::disk::{Fault, File};

/// What the store does when the file system is full.
///
/// The engine cannot go on after a write that found no room, so the write itself waits: rows stay
/// in memory and in the log meanwhile, and room made by somebody is noticed without a restart.
pub trait Room: Send + Sync {
    /// Called when a write found no room; returns when it may be tried again.
    fn wait(&self, fault: &Fault);
    /// Called when a write that waited has succeeded.
    fn found(&self);
}

/// What went to the store file since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    writes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
    file_bytes: AtomicU64,
}

/// A moment of [`Traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrafficCount {
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) syncs: u64,
}

impl Traffic {
    pub(crate) fn count(&self) -> TrafficCount {
        TrafficCount {
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
        }
    }

    /// Length of the store file, bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }
}

/// Bytes written after which the kernel is told to begin with its part.
#[derive(Debug)]
struct Behind {
    every: u64,
    unsent: AtomicU64,
}

/// The engine's storage on a `disk::File`.
pub(crate) struct Backend {
    file: File,
    traffic: Arc<Traffic>,
    room: Option<Arc<dyn Room>>,
    behind: Option<Behind>,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend").field("path", &self.file.path()).finish_non_exhaustive()
    }
}

impl Backend {
    pub(crate) fn new(
        file: File,
        traffic: Arc<Traffic>,
        room: Option<Arc<dyn Room>>,
        write_behind: Option<u64>,
    ) -> Result<Self, Fault> {
        traffic.file_bytes.store(file.len()?, Ordering::Relaxed);
        let behind = write_behind.map(|every| Behind { every, unsent: AtomicU64::new(0) });
        Ok(Self { file, traffic, room, behind })
    }

    /// Counts what was written, and has the kernel begin to write it when it is enough.
    fn write_behind(&self, bytes: u64) -> Result<(), Fault> {
        let Some(behind) = &self.behind else { return Ok(()) };
        if behind.unsent.fetch_add(bytes, Ordering::Relaxed) + bytes < behind.every {
            return Ok(());
        }
        behind.unsent.store(0, Ordering::Relaxed);
        self.file.drop_cache()
    }

    /// Writes, waiting for room if there is somebody who can.
    fn write_in_room(&self, data: &[u8], offset: u64) -> Result<(), Fault> {
        let Some(room) = &self.room else { return self.file.write_at(data, offset) };
        let mut waited = false;
        loop {
            match self.file.write_at_or_full(data, offset) {
                Err(fault) if fault.is_no_space() => {
                    waited = true;
                    room.wait(&fault);
                }
                other => {
                    if waited && other.is_ok() {
                        room.found();
                    }
                    return other;
                }
            }
        }
    }

    fn try_lock(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        if !is_whole_file(start, end) {
            return Err(BackendError::Unsupported);
        }
        self.file.try_lock().map_err(|fault| BackendError::Io(as_io(fault)))
    }
}

fn is_whole_file(start: Bound<u64>, end: Bound<u64>) -> bool {
    matches!(start, Bound::Unbounded | Bound::Included(0)) && end == Bound::Unbounded
}

/// Keeps the kind, so that "no space left" can still be told from a broken disk.
fn as_io(fault: Fault) -> io::Error {
    io::Error::new(fault.source.kind(), fault)
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len().map_err(as_io)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(out, offset).map_err(as_io)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len).map_err(as_io)?;
        self.traffic.file_bytes.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().map_err(as_io)?;
        self.traffic.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_in_room(data, offset).map_err(as_io)?;
        self.traffic.writes.fetch_add(1, Ordering::Relaxed);
        self.traffic.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.write_behind(data.len() as u64).map_err(as_io)
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.try_lock(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        // There is one writer and no second process; a shared lock may as well exclude.
        self.try_lock(start, end)
    }

    fn lock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<(), BackendError> {
        Err(BackendError::Unsupported)
    }

    fn lock_shared_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<(), BackendError> {
        Err(BackendError::Unsupported)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        // Only the whole-file lock is ever granted, and it ends when the handle is closed.
        if is_whole_file(start, end) { Ok(()) } else { Err(BackendError::Unsupported) }
    }

    fn query_lock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<bool, BackendError> {
        Err(BackendError::Unsupported)
    }
}
