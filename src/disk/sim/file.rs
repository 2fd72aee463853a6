//! An open file of the simulated disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::MutexGuard;

use super::state::Inode;
use super::{Action, SimDisk, State, crash_error, errno};
use crate::disk::{FileKind, IoOp, RawFile};

pub(super) struct SimFile {
    disk: SimDisk,
    inode: u64,
    epoch: u64,
    writable: bool,
    kind: FileKind,
    path: PathBuf,
    holds_lock: AtomicBool,
}

impl SimFile {
    pub(super) fn new(
        disk: &SimDisk,
        inode: u64,
        epoch: u64,
        writable: bool,
        kind: FileKind,
        path: &Path,
    ) -> Self {
        let holds_lock = AtomicBool::new(false);
        SimFile {
            disk: disk.clone(),
            inode,
            epoch,
            writable,
            kind,
            path: path.to_owned(),
            holds_lock,
        }
    }

    fn change(
        &self,
        op: IoOp,
        offset: u64,
        bytes: u64,
    ) -> io::Result<(MutexGuard<'_, State>, Action)> {
        if !self.writable && !matches!(op, IoOp::SyncData | IoOp::SyncAll) {
            return Err(errno(libc::EBADF));
        }
        self.disk.begin(self.kind, op, &self.path, offset, bytes, Some(self.epoch))
    }

    fn sync(&self, op: IoOp) -> io::Result<()> {
        let (mut state, action) = self.change(op, 0, 0)?;
        let inode = inode(&mut state, self.inode)?;
        match action {
            Action::DropDirty(reads) => {
                inode.fail_sync(reads);
                Err(errno(libc::EIO))
            }
            Action::Pretend => Ok(()),
            _ => {
                inode.sync();
                Ok(())
            }
        }
    }
}

fn inode(state: &mut State, id: u64) -> io::Result<&mut Inode> {
    state.files.inodes.get_mut(&id).ok_or_else(|| errno(libc::EBADF))
}

fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| errno(libc::EFBIG))
}

impl RawFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.alive(Some(self.epoch))?;
        let data = &inode(&mut state, self.inode)?.data;
        let from = position(offset)?;
        let part = from.checked_add(buf.len()).and_then(|to| data.get(from..to));
        buf.copy_from_slice(part.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let (mut state, action) = self.change(IoOp::Write, offset, buf.len() as u64)?;
        let from = position(offset)?;
        let half = &buf[..buf.len() / 2];
        let (part, result) = match action {
            Action::ShortWrite(number) => (half, Err(errno(number))),
            Action::CrashHalfway => (half, Err(crash_error())),
            Action::DropDirty(_) => return Err(errno(libc::EIO)),
            _ => (buf, Ok(())),
        };
        state.check_room(self.inode, offset.saturating_add(part.len() as u64))?;
        inode(&mut state, self.inode)?.write(part, from);
        result
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(IoOp::SyncData)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(IoOp::SyncAll)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let (mut state, _) = self.change(IoOp::SetLen, len, 0)?;
        inode(&mut state, self.inode)?.set_len(position(len)?);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let (mut state, _) = self.change(IoOp::Allocate, 0, len)?;
        state.check_room(self.inode, len)?;
        let inode = inode(&mut state, self.inode)?;
        if (inode.data.len() as u64) < len {
            inode.set_len(position(len)?);
        }
        inode.allocated = inode.allocated.max(len);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        let mut state = self.disk.alive(Some(self.epoch))?;
        Ok(inode(&mut state, self.inode)?.data.len() as u64)
    }

    fn drop_cache(&self) -> io::Result<()> {
        let mut state = self.disk.alive(Some(self.epoch))?;
        inode(&mut state, self.inode)?.drop_cache();
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        let mut state = self.disk.alive(Some(self.epoch))?;
        let inode = inode(&mut state, self.inode)?;
        if !inode.locked {
            inode.locked = true;
            self.holds_lock.store(true, Relaxed);
        }
        Ok(self.holds_lock.load(Relaxed))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.epoch != self.epoch {
            return;
        }
        if let Some(inode) = state.files.inodes.get_mut(&self.inode) {
            inode.handles = inode.handles.saturating_sub(1);
            if self.holds_lock.load(Relaxed) {
                inode.locked = false;
            }
        }
    }
}
