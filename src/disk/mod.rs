//! Files: the only module that opens, writes or syncs one.
//!
//! [`File`] is the one type that can write, and it always measures, failures too. After one failed
//! write or sync it refuses everything: the kernel may have dropped the dirty pages and marked them
//! clean, so a retried sync that succeeds proves nothing. [`OsDisk`] is the real thing, [`SimDisk`]
//! a deterministic one in memory that loses power, tears sectors and fails on demand.

mod fault;
mod os;
mod sim;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub use crate::telemetry::io::{FileKind, IoOp, IoStats};

pub use fault::Fault;
pub use os::OsDisk;
pub use sim::{Action, PowerLoss, SimDisk, SimOp, SimRng, StaleReads};

/// How to open a file. Files are created with mode 0600.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Existing file, for reading.
    Read,
    /// Existing file, for reading and writing.
    ReadWrite,
    /// New file for reading and writing; an existing one is an error.
    CreateNew,
    /// Existing or new file for reading and writing.
    CreateOrOpen,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name without the directory; a name that is not UTF-8 is shown with replacement characters.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Length in bytes; zero for directories.
    pub len: u64,
}

/// Room left in a file system, as an unprivileged process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Bytes that can still be allocated.
    pub bytes: u64,
    /// Size of the file system in bytes.
    pub total_bytes: u64,
    /// Files that can still be created; `u64::MAX` where the file system does not count them.
    pub inodes: u64,
}

/// A file system. Every call is measured under the kind it is given.
pub trait Disk: Send + Sync + 'static {
    /// Opens or creates a file. A new name is durable only after [`Disk::sync_dir`].
    fn open(&self, path: &Path, kind: FileKind, how: Open) -> Result<File, Fault>;
    /// Creates a directory and its missing parents with mode 0700. Each new name is synced into its
    /// parent before the call returns. An existing directory is left as it is.
    fn create_dir(&self, path: &Path) -> Result<(), Fault>;
    /// The names in a directory, sorted.
    fn list(&self, dir: &Path) -> Result<Vec<Entry>, Fault>;
    /// Whether a file or directory of this name exists.
    fn exists(&self, path: &Path) -> Result<bool, Fault>;
    /// Renames atomically, replacing `to`. Durable only after [`Disk::sync_dir`] of the directory.
    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> Result<(), Fault>;
    /// Removes a file. Durable only after [`Disk::sync_dir`].
    fn remove(&self, path: &Path, kind: FileKind) -> Result<(), Fault>;
    /// Makes creates, renames and removes in this directory durable.
    fn sync_dir(&self, dir: &Path, kind: FileKind) -> Result<(), Fault>;
    /// Room left in the file system of this directory.
    fn free(&self, dir: &Path) -> Result<Free, Fault>;
    /// The statistics every operation is counted in.
    fn stats(&self) -> &Arc<IoStats>;
}

/// What a file system provides below [`File`]; implemented once per disk, never used directly.
pub trait RawFile: Send + Sync {
    /// Fills the buffer or fails.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes the whole buffer or fails.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// `fdatasync`.
    fn sync_data(&self) -> io::Result<()>;
    /// `fsync`.
    fn sync_all(&self) -> io::Result<()>;
    /// `ftruncate`; growth reads as zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves space and grows the file to at least `len` bytes.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Length in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Begins to write dirty cached pages and drops clean ones.
    fn drop_cache(&self) -> io::Result<()>;
    /// Takes the exclusive lock of the file if it is free.
    fn try_lock(&self) -> io::Result<bool>;
}

/// An open file. Shared by reference; positions are explicit.
pub struct File {
    raw: Box<dyn RawFile>,
    path: PathBuf,
    kind: FileKind,
    stats: Arc<IoStats>,
    poisoned: AtomicBool,
}

impl File {
    /// Wraps what a disk opened.
    pub fn new(raw: Box<dyn RawFile>, path: &Path, kind: FileKind, stats: Arc<IoStats>) -> Self {
        File { raw, path: path.to_owned(), kind, stats, poisoned: AtomicBool::new(false) }
    }

    /// Fills `buf` from `offset`; a file that ends before is an error.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Fault> {
        let bytes = buf.len() as u64;
        self.run(IoOp::Read, Some(offset), bytes, |raw| raw.read_at(buf, offset))
    }

    /// Writes all of `buf` at `offset`. A failure poisons the file.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), Fault> {
        self.run(IoOp::Write, Some(offset), buf.len() as u64, |raw| raw.write_at(buf, offset))
    }

    /// Like [`File::write_at`], for a caller that can wait for room: a full file system is an error
    /// that does not poison the file. Some of the bytes may be there; the same write may be made
    /// again. Nothing was promised for them, so this is not the retry of a lost write.
    pub fn write_at_or_full(&self, buf: &[u8], offset: u64) -> Result<(), Fault> {
        let call = |raw: &dyn RawFile| raw.write_at(buf, offset);
        self.run_unless_full(IoOp::Write, Some(offset), buf.len() as u64, call)
    }

    /// Makes the content and the length durable (`fdatasync`). A failure poisons the file.
    pub fn sync_data(&self) -> Result<(), Fault> {
        self.run(IoOp::SyncData, None, 0, |raw| raw.sync_data())
    }

    /// Like [`File::sync_data`], and all metadata (`fsync`). A failure poisons the file.
    pub fn sync_all(&self) -> Result<(), Fault> {
        self.run(IoOp::SyncAll, None, 0, |raw| raw.sync_all())
    }

    /// Sets the length; growth reads as zeros and reserves nothing.
    pub fn set_len(&self, len: u64) -> Result<(), Fault> {
        self.run(IoOp::SetLen, None, 0, |raw| raw.set_len(len))
    }

    /// Grows the file to at least `len` bytes and reserves the space, or only sets the length where
    /// the file system cannot reserve. No room is an error and does not poison the file.
    pub fn allocate(&self, len: u64) -> Result<(), Fault> {
        self.run(IoOp::Allocate, None, len, |raw| raw.allocate(len))
    }

    /// Length in bytes.
    pub fn len(&self) -> Result<u64, Fault> {
        self.refuse_poisoned(IoOp::List)?;
        self.raw.size().map_err(|source| Fault::new(IoOp::List, &self.path, None, source))
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> Result<bool, Fault> {
        Ok(self.len()? == 0)
    }

    /// Drops clean pages of this file from the page cache, so that the next read comes from the
    /// device. Dirty pages stay, but the kernel begins to write them: a failure of that is reported
    /// by the next sync. Where the file system knows no such advice nothing happens.
    pub fn drop_cache(&self) -> Result<(), Fault> {
        self.refuse_poisoned(IoOp::Read)?;
        self.raw.drop_cache().map_err(|source| Fault::new(IoOp::Read, &self.path, None, source))
    }

    /// Takes the exclusive lock of the file; `false` when another process or handle holds it. Held
    /// until the file is dropped.
    pub fn try_lock(&self) -> Result<bool, Fault> {
        self.raw.try_lock().map_err(|source| Fault::new(IoOp::Open, &self.path, None, source))
    }

    /// The path the file was opened under.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn refuse_poisoned(&self, op: IoOp) -> Result<(), Fault> {
        if self.poisoned.load(Relaxed) { Err(Fault::poisoned(op, &self.path)) } else { Ok(()) }
    }

    fn run(
        &self,
        op: IoOp,
        offset: Option<u64>,
        bytes: u64,
        call: impl FnOnce(&dyn RawFile) -> io::Result<()>,
    ) -> Result<(), Fault> {
        self.run_unless_full(op, offset, bytes, call).inspect_err(|_| {
            if matches!(op, IoOp::Write | IoOp::SyncData | IoOp::SyncAll) {
                self.poisoned.store(true, Relaxed);
            }
        })
    }

    /// Runs and measures; poisons only when a write fails for another reason than room.
    fn run_unless_full(
        &self,
        op: IoOp,
        offset: Option<u64>,
        bytes: u64,
        call: impl FnOnce(&dyn RawFile) -> io::Result<()>,
    ) -> Result<(), Fault> {
        self.refuse_poisoned(op)?;
        let running = self.stats.begin(self.kind, op).at(offset.unwrap_or(0));
        let result = call(&*self.raw);
        running.end(bytes, result.is_ok());
        result.map_err(|source| {
            let fault = Fault::new(op, &self.path, offset, source);
            if op == IoOp::Write && !fault.is_no_space() {
                self.poisoned.store(true, Relaxed);
            }
            fault
        })
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("path", &self.path).field("kind", &self.kind).finish()
    }
}

/// Times one operation on a directory or name and turns its error into a [`Fault`].
fn measured<T>(
    stats: &IoStats,
    kind: FileKind,
    op: IoOp,
    path: &Path,
    call: impl FnOnce() -> io::Result<T>,
) -> Result<T, Fault> {
    let running = stats.begin(kind, op);
    let result = call();
    running.end(0, result.is_ok());
    result.map_err(|source| Fault::new(op, path, None, source))
}
