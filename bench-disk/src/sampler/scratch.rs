//! The probe's own files, which vanish whatever happens to the probe.
//!
//! On ext4 and XFS a file without a name behaves like any other, and the kernel frees it even after
//! `kill -9`. btrfs and ZFS do not log nameless files, so a sync of one would be too cheap: there
//! the files have names, are locked, and leftovers of a killed probe are removed by the next one.

use crate::ProbeError;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Start of the names of all files of a probe.
pub const PREFIX: &str = ".bench-disk.";

/// File systems on which a file without a name is synced like one with a name.
const NAMELESS: [&str; 2] = ["ext4", "xfs"];

/// Makes files in one directory.
#[derive(Clone, Debug)]
pub struct Scratch {
    directory: PathBuf,
    nameless: bool,
}

/// A file of the probe; a named one is removed when this is dropped.
#[derive(Debug)]
pub struct ScratchFile {
    /// The open file.
    pub file: File,
    /// For messages: the path, or the directory of a file without a name.
    pub path: PathBuf,
    named: bool,
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        if self.named {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Scratch {
    /// Prepares a directory on a file system of this type, and removes leftovers of dead probes.
    pub fn new(directory: &Path, filesystem: &str) -> Self {
        sweep(directory);
        let nameless = NAMELESS.contains(&filesystem);
        Self { directory: directory.to_path_buf(), nameless }
    }

    /// Creates an empty file of its final length, with its blocks reserved.
    pub fn create(&self, length: u64) -> Result<ScratchFile, ProbeError> {
        let made = self.empty()?;
        reserve(&made.file, length).map_err(ProbeError::io("reserve space in", &self.directory))?;
        Ok(made)
    }

    /// Creates a file without any space.
    pub fn empty(&self) -> Result<ScratchFile, ProbeError> {
        self.open().map_err(ProbeError::io("create a probe file in", &self.directory))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Syncs the directory, as a node does after it changes segments.
    pub fn sync_directory(&self) -> Result<(), ProbeError> {
        File::open(&self.directory)
            .and_then(|directory| directory.sync_all())
            .map_err(ProbeError::io("sync the directory", &self.directory))
    }

    fn open(&self) -> io::Result<ScratchFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        if self.nameless
            && let Ok(file) = options.custom_flags(libc::O_TMPFILE).open(&self.directory)
        {
            return Ok(ScratchFile { file, path: self.directory.clone(), named: false });
        }
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("{PREFIX}{}.{number}", std::process::id()));
        options.custom_flags(libc::O_NOFOLLOW);
        let file = options.create_new(true).open(&path)?;
        let made = ScratchFile { file, path, named: true };
        // Held until the process ends: it tells the next probe that this file is alive.
        let _ = made.file.try_lock();
        Ok(made)
    }
}

/// Reserves blocks; file systems that cannot get the length alone.
pub(crate) fn reserve(file: &File, length: u64) -> io::Result<()> {
    use nix::errno::Errno;
    use nix::fcntl::{FallocateFlags, fallocate};
    let signed = i64::try_from(length).map_err(io::Error::other)?;
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, signed) {
            Err(Errno::EINTR) => {}
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => return file.set_len(length),
            other => return other.map_err(io::Error::from),
        }
    }
}

/// Removes named files of probes that are gone. Whatever fails here is left to the next probe.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let regular = entry.file_type().is_ok_and(|kind| kind.is_file());
        if ours
            && regular
            && let Ok(file) =
                OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(directory: &Path) -> usize {
        fs::read_dir(directory).expect("listed").count()
    }

    #[test]
    fn a_file_without_a_name_is_never_seen_and_has_its_length() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = Scratch::new(directory.path(), "ext4").create(8_192).expect("created");
        assert_eq!(file.file.metadata().expect("known").len(), 8_192);
        assert_eq!(entries(directory.path()), usize::from(file.named));
    }

    #[test]
    fn a_named_file_goes_with_its_owner_and_a_dead_probes_file_with_the_next_probe() {
        let directory = tempfile::tempdir().expect("a directory");
        let scratch = Scratch::new(directory.path(), "btrfs");
        let alive = scratch.create(4_096).expect("created");
        fs::write(directory.path().join(format!("{PREFIX}1.0")), "left over").expect("written");
        fs::write(directory.path().join("users-file"), "keep").expect("written");
        Scratch::new(directory.path(), "btrfs");
        assert!(alive.path.exists(), "a live probe's file was removed");
        assert_eq!(entries(directory.path()), 2);
        drop(alive);
        assert_eq!(entries(directory.path()), 1, "only the user's file stays");
    }

    #[test]
    fn reserving_more_than_there_is_fails() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = Scratch::new(directory.path(), "btrfs").create(1 << 60);
        assert!(matches!(error, Err(ProbeError::Io { .. })), "{error:?}");
        assert_eq!(entries(directory.path()), 0);
    }
}
