//! Files for segments to come: prepared ahead, or recycled from segments no longer needed.
//!
//! A sync of a write into space that was never written also converts the extent, which costs about
//! a fifth of a small sync. So spare files are filled with zeros in advance, in steps that the
//! writer's thread takes when it is idle; a recycled file is as good. Old content is harmless:
//! checksums are bound to the segment.

use std::path::{Path, PathBuf};

use super::segment::{SPARE, TEMPORARY};
use super::{Options, WalError};
use crate::disk::{Disk, Fault, File, FileKind, Open};

/// Zeros written by one call.
const CHUNK: usize = 1024 * 1024;

/// What a step of preparation came to.
#[derive(Debug)]
pub enum SpareStep {
    /// All spare segments are ready.
    Done,
    /// There is more to do; call again when idle.
    More,
    /// No room. The log goes on with what it has; try again when there is some.
    NoRoom(Fault),
}

/// Whether a new file may do without reserved space.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reserve {
    /// No: running out of space later would end the process.
    Must,
    /// Yes: at a start, a full disk must not keep the node from coming up.
    Try,
}

struct Growing {
    file: File,
    path: PathBuf,
    written: u64,
}

pub(super) struct Pool {
    dir: PathBuf,
    segment_bytes: u64,
    want: usize,
    prewrite: bool,
    next_number: u64,
    ready: Vec<PathBuf>,
    growing: Option<Growing>,
}

impl Pool {
    /// A pool over the spare files found; those of another size are removed.
    pub(super) fn new(
        disk: &dyn Disk,
        dir: &Path,
        opts: &Options,
        found: Vec<(PathBuf, u64)>,
    ) -> Result<Self, WalError> {
        let number = |path: &Path| {
            let name = path.file_name()?.to_str()?.split('.').next()?;
            u64::from_str_radix(name, 16).ok()
        };
        let highest = found.iter().filter_map(|(path, _)| number(path)).max();
        let mut ready = Vec::new();
        for (path, len) in found {
            if len == opts.segment_bytes && ready.len() < opts.spare_segments {
                ready.push(path);
            } else {
                disk.remove(&path, FileKind::Wal)?;
            }
        }
        Ok(Pool {
            dir: dir.to_owned(),
            segment_bytes: opts.segment_bytes,
            want: opts.spare_segments,
            prewrite: opts.prewrite,
            next_number: highest.map_or(0, |n| n.wrapping_add(1)),
            ready,
            growing: None,
        })
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    fn new_path(&mut self, ending: &str) -> PathBuf {
        let path = self.dir.join(format!("{:016x}{ending}", self.next_number));
        self.next_number = self.next_number.wrapping_add(1);
        path
    }

    fn create(&mut self, disk: &dyn Disk, kind: FileKind) -> Result<(File, PathBuf), WalError> {
        let path = self.new_path(TEMPORARY);
        Ok((disk.open(&path, kind, Open::CreateNew)?, path))
    }

    /// An open file of at least `bytes` bytes for a new segment, and its present path.
    pub(super) fn take(
        &mut self,
        disk: &dyn Disk,
        bytes: u64,
        reserve: Reserve,
    ) -> Result<(File, PathBuf), WalError> {
        let (file, path) = match self.ready.pop() {
            Some(path) => (disk.open(&path, FileKind::Wal, Open::ReadWrite)?, path),
            None => self.create(disk, FileKind::Wal)?,
        };
        match file.allocate(bytes.max(self.segment_bytes)) {
            Ok(()) => Ok((file, path)),
            Err(fault) if fault.is_no_space() && reserve == Reserve::Try => Ok((file, path)),
            Err(fault) => {
                let full = fault.is_no_space();
                drop(file);
                disk.remove(&path, FileKind::Wal)?;
                Err(if full { WalError::NoSpace(fault) } else { WalError::Fault(fault) })
            }
        }
    }

    /// Writes at most `budget` bytes towards the next spare segment.
    pub(super) fn prepare(&mut self, disk: &dyn Disk, budget: u64) -> Result<SpareStep, WalError> {
        if self.ready.len() >= self.want {
            return self.abandon(disk).map(|()| SpareStep::Done);
        }
        let mut growing = match self.growing.take() {
            Some(growing) => growing,
            None => {
                let (file, path) = self.create(disk, FileKind::Spare)?;
                Growing { file, path, written: 0 }
            }
        };
        match self.grow(&mut growing, budget) {
            Ok(()) if growing.written >= self.segment_bytes => {
                let Growing { file, path, .. } = growing;
                drop(file);
                let spare = self.new_path(SPARE);
                disk.rename(&path, &spare, FileKind::Wal)?;
                self.ready.push(spare);
                let done = self.ready.len() >= self.want;
                Ok(if done { SpareStep::Done } else { SpareStep::More })
            }
            Ok(()) => {
                self.growing = Some(growing);
                Ok(SpareStep::More)
            }
            Err(fault) if fault.is_no_space() => {
                self.growing = Some(growing);
                self.abandon(disk)?;
                Ok(SpareStep::NoRoom(fault))
            }
            Err(fault) => Err(fault.into()),
        }
    }

    fn grow(&self, growing: &mut Growing, budget: u64) -> Result<(), Fault> {
        if growing.written == 0 {
            growing.file.allocate(self.segment_bytes)?;
        }
        if self.prewrite {
            let until = growing.written.saturating_add(budget.max(1)).min(self.segment_bytes);
            let zeros = vec![0; CHUNK];
            while growing.written < until {
                let part = (until - growing.written).min(CHUNK as u64);
                growing.file.write_at(&zeros[..part as usize], growing.written)?;
                growing.written += part;
            }
        } else {
            growing.written = self.segment_bytes;
        }
        // Every step is synced: a pile of dirty pages would make the next commit wait for it.
        growing.file.sync_data()
    }

    fn abandon(&mut self, disk: &dyn Disk) -> Result<(), WalError> {
        if let Some(Growing { file, path, .. }) = self.growing.take() {
            drop(file);
            disk.remove(&path, FileKind::Wal)?;
        }
        Ok(())
    }

    /// Takes a segment that is no longer needed out of the log. The caller syncs the directory
    /// before it takes a file again.
    pub(super) fn recycle(
        &mut self,
        disk: &dyn Disk,
        path: &Path,
        len: u64,
    ) -> Result<(), WalError> {
        if self.ready.len() < self.want && len == self.segment_bytes {
            let spare = self.new_path(SPARE);
            disk.rename(path, &spare, FileKind::Wal)?;
            self.ready.push(spare);
        } else {
            disk.remove(path, FileKind::Wal)?;
        }
        Ok(())
    }
}
