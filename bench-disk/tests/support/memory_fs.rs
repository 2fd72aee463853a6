//! A file system in user space with one file, `disk.img`, in memory.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// Name of the file.
pub(crate) const FILE: &str = "disk.img";

const FILE_NODE: INodeNo = INodeNo(2);
/// The kernel may remember attributes for this long; they never change.
const TTL: Duration = Duration::from_secs(60);

/// The content of the file.
struct MemoryFs(Mutex<Vec<u8>>);

/// Mounts one with a file of this many MiB, until the session is dropped.
pub(crate) fn mount(point: &Path, mib: usize) -> std::io::Result<BackgroundSession> {
    std::fs::create_dir_all(point)?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("memory".into())];
    fuser::spawn_mount(MemoryFs(Mutex::new(vec![0; mib << 20])), point, &config)
}

impl MemoryFs {
    fn attributes(&self, node: INodeNo) -> FileAttr {
        let file = node == FILE_NODE;
        let length = self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        FileAttr {
            ino: node,
            size: if file { length } else { 0 },
            blocks: if file { length / 512 } else { 0 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if file { FileType::RegularFile } else { FileType::Directory },
            perm: if file { 0o600 } else { 0o755 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4_096,
        }
    }
}

impl Filesystem for MemoryFs {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == FILE {
            reply.entry(&TTL, &self.attributes(FILE_NODE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(node));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = (offset as usize).min(content.len());
        let to = (from + size as usize).min(content.len());
        reply.data(&content[from..to]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = offset as usize;
        match content.get_mut(from..from + data.len()) {
            Some(place) => {
                place.copy_from_slice(data);
                reply.written(data.len() as u32);
            }
            None => reply.error(Errno::ENOSPC),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            let _ = reply.add(FILE_NODE, 1, FileType::RegularFile, FILE);
        }
        reply.ok();
    }
}
