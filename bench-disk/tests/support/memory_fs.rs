//! A file system in user space with one file, `disk.img`, in memory; a flush may take its time.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Name of the file.
pub(crate) const FILE: &str = "disk.img";

const FILE_NODE: INodeNo = INodeNo(2);
/// The kernel may remember attributes for this long; they never change.
const TTL: Duration = Duration::from_secs(60);

/// The last part of a wait is spent turning: a sleeping thread comes back when the machine likes.
const TURN: Duration = Duration::from_micros(150);

/// How long the flush of this number takes.
type Times = Box<dyn Fn(u64) -> Duration + Send + Sync>;

/// The content of the file, and where flushes wait.
struct MemoryFs {
    content: Mutex<Vec<u8>>,
    flushes: Mutex<(u64, Sender<(Instant, ReplyEmpty)>)>,
    times: Times,
}

/// Mounts one with a file of this many MiB, until the session is dropped. Flushes take as long as
/// `times` says for their number; one that comes while another is under way waits for it.
pub(crate) fn mount(point: &Path, mib: usize, times: Times) -> std::io::Result<BackgroundSession> {
    std::fs::create_dir_all(point)?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("memory".into())];
    let (flushes, waiting) = channel();
    std::thread::Builder::new().name("flushes".into()).spawn(move || answer(&waiting))?;
    let (content, flushes) = (Mutex::new(vec![0; mib << 20]), Mutex::new((0, flushes)));
    fuser::spawn_mount(MemoryFs { content, flushes, times }, point, &config)
}

/// Answers flushes when their time has come, one after the other.
fn answer(waiting: &Receiver<(Instant, ReplyEmpty)>) {
    for (due, reply) in waiting {
        std::thread::sleep(due.saturating_duration_since(Instant::now() + TURN));
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        reply.ok();
    }
}

impl MemoryFs {
    fn attributes(&self, node: INodeNo) -> FileAttr {
        let file = node == FILE_NODE;
        let length = self.content.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
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
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut flushes = self.flushes.lock().unwrap_or_else(PoisonError::into_inner);
        let time = (self.times)(flushes.0);
        flushes.0 += 1;
        if time.is_zero() {
            return reply.ok();
        }
        if let Err(lost) = flushes.1.send((Instant::now() + time, reply)) {
            lost.0.1.error(Errno::EIO);
        }
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
