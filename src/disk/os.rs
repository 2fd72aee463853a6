//! The real file system.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use nix::sys::statvfs::statvfs;

use super::{Disk, Entry, Fault, File, Free, Open, RawFile, measured};
use crate::telemetry::io::{FileKind, IoOp, IoStats};

/// Mode of new files: the log and the store hold keys and values of all users.
const FILE_MODE: u32 = 0o600;
/// Mode of new directories, as in an etcd data directory.
const DIR_MODE: u32 = 0o700;

/// The file system of the operating system.
#[derive(Clone, Debug)]
pub struct OsDisk {
    stats: Arc<IoStats>,
}

impl OsDisk {
    /// A disk that counts into `stats`.
    pub fn new(stats: Arc<IoStats>) -> Self {
        OsDisk { stats }
    }

    fn sync_path(&self, dir: &Path, kind: FileKind) -> Result<(), Fault> {
        measured(&self.stats, kind, IoOp::SyncDir, dir, || {
            #[expect(clippy::disallowed_methods, reason = "this module owns files")]
            fs::File::open(dir).and_then(|d| d.sync_all())
        })
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, kind: FileKind, how: Open) -> Result<File, Fault> {
        let mut options = fs::OpenOptions::new();
        options.read(true).mode(FILE_MODE);
        match how {
            Open::Read => {}
            Open::ReadWrite => _ = options.write(true),
            Open::CreateNew => _ = options.write(true).create_new(true),
            Open::CreateOrOpen => _ = options.write(true).create(true),
        }
        let file = measured(&self.stats, kind, IoOp::Open, path, || options.open(path))?;
        Ok(File::new(Box::new(OsFile(file)), path, kind, Arc::clone(&self.stats)))
    }

    fn create_dir(&self, path: &Path) -> Result<(), Fault> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        if let Some(parent) = parent {
            self.create_dir(parent)?;
        }
        measured(&self.stats, FileKind::Meta, IoOp::List, path, || {
            match fs::DirBuilder::new().mode(DIR_MODE).create(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                    Ok(())
                }
                other => other,
            }
        })?;
        self.sync_path(parent.unwrap_or(Path::new(".")), FileKind::Meta)
    }

    fn list(&self, dir: &Path) -> Result<Vec<Entry>, Fault> {
        measured(&self.stats, FileKind::Meta, IoOp::List, dir, || {
            let mut entries = Vec::new();
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                let is_dir = metadata.is_dir();
                let len = if is_dir { 0 } else { metadata.len() };
                let name = entry.file_name().to_string_lossy().into_owned();
                entries.push(Entry { name, is_dir, len });
            }
            entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        })
    }

    fn exists(&self, path: &Path) -> Result<bool, Fault> {
        measured(&self.stats, FileKind::Meta, IoOp::List, path, || path.try_exists())
    }

    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> Result<(), Fault> {
        measured(&self.stats, kind, IoOp::Rename, from, || {
            #[expect(clippy::disallowed_methods, reason = "this module owns files")]
            fs::rename(from, to)
        })
    }

    fn remove(&self, path: &Path, kind: FileKind) -> Result<(), Fault> {
        measured(&self.stats, kind, IoOp::Remove, path, || fs::remove_file(path))
    }

    fn sync_dir(&self, dir: &Path, kind: FileKind) -> Result<(), Fault> {
        self.sync_path(dir, kind)
    }

    fn free(&self, dir: &Path) -> Result<Free, Fault> {
        measured(&self.stats, FileKind::Meta, IoOp::List, dir, || {
            let room = statvfs(dir)?;
            let unit = room.fragment_size();
            // btrfs and others report no inode counts at all.
            let inodes = if room.files() == 0 { u64::MAX } else { room.files_available() };
            Ok(Free {
                bytes: room.blocks_available().saturating_mul(unit),
                total_bytes: room.blocks().saturating_mul(unit),
                inodes,
            })
        })
    }

    fn stats(&self) -> &Arc<IoStats> {
        &self.stats
    }
}

struct OsFile(fs::File);

impl RawFile for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        #[expect(clippy::disallowed_methods, reason = "this module owns files")]
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        #[expect(clippy::disallowed_methods, reason = "this module owns files")]
        self.0.sync_all()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let outcome = loop {
            // A signal may interrupt a long reservation; what was reserved so far is kept.
            match fallocate(&self.0, FallocateFlags::empty(), 0, as_offset(len)?) {
                Err(Errno::EINTR) => {}
                other => break other,
            }
        };
        match outcome {
            Ok(()) => Ok(()),
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) if self.size()? < len => self.0.set_len(len),
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn drop_cache(&self) -> io::Result<()> {
        match posix_fadvise(&self.0, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED) {
            Ok(()) | Err(Errno::EINVAL | Errno::ENOSYS | Errno::ESPIPE) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.0.try_lock() {
            Ok(()) => Ok(true),
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

fn as_offset(len: u64) -> io::Result<i64> {
    i64::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
}
