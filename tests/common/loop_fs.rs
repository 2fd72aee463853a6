//! A file system of our own on a loop device, which can lose power.
//!
//! # What a power cut is here
//!
//! [`LoopFs::cut`] asks ext4 to shut down without flushing its journal (`EXT4_IOC_SHUTDOWN` with
//! `NOLOGFLUSH`, what `xfs_io -x -c shutdown` sends and what xfstests use for this purpose). From
//! that moment nothing reaches the image any more: dirty pages, dirty inodes and the running journal
//! transaction are dropped, every later write and sync fails with EIO. Only what the file system had
//! already sent to its device is in the image, and the next mount replays the journal as after a
//! real cut. Copying the image of a running loop device instead would read it while it is written,
//! and show states that no disk was ever in. What this does not model: a disk that keeps completed
//! writes in a volatile cache and loses those too (the simulated disk of the library does).
//!
//! # What is left behind
//!
//! The mount belongs to a mount namespace of the test's own thread, so that nobody else sees it and
//! it goes with the thread, whatever becomes of the test; the loop device detaches itself with the
//! last mount (`mount -o loop`). Only that thread, and processes it starts, see the files.

use super::{Tool, require_root, skip};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// `_IOR('X', 125, __u32)`
const EXT4_IOC_SHUTDOWN: u64 = 0x8004_587d;
/// `EXT4_GOING_FLAGS_NOLOGFLUSH`
const NOLOGFLUSH: u32 = 2;
/// A killed process may hold the file system for a moment.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(10);

/// A mounted ext4 image. Dropping it unmounts it and removes the image.
pub struct LoopFs {
    home: TempDir,
    mounted: bool,
}

impl LoopFs {
    /// A new file system of this many MiB, or `None` with a visible word when the machine cannot
    /// (a failure when `CI` is set). To be called on the thread of the test.
    ///
    /// # Panics
    /// When making or mounting it fails although the test may.
    pub fn create(mib: u64) -> Option<Self> {
        let mkfs = Tool::Mkfs.require()?;
        if !require_root("mounting a file system image") {
            return None;
        }
        if let Err(error) = private_mounts() {
            skip(&format!("no mount namespace: {error}"));
            return None;
        }
        let home = tempfile::Builder::new().prefix("assay-loop-").tempdir().expect("temp dir");
        let mut fs = Self { home, mounted: false };
        let image = File::create(fs.image()).expect("image file");
        image.set_len(mib << 20).expect("image size");
        std::fs::create_dir(fs.path()).expect("mount point");
        // Initialised at once: nothing goes on in the background of a measurement.
        let made = Command::new(mkfs)
            .args(["-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(fs.image())
            .status();
        assert!(made.expect("run mkfs").success(), "mkfs failed");
        fs.mount();
        Some(fs)
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.home.path().join("mnt")
    }

    fn image(&self) -> PathBuf {
        self.home.path().join("image")
    }

    fn mount(&mut self) {
        let output = Command::new("mount")
            .args(["-t", "ext4", "-o", "loop"])
            .arg(self.image())
            .arg(self.path())
            .output();
        let output = output.expect("run mount");
        assert!(output.status.success(), "mount: {}", String::from_utf8_lossy(&output.stderr));
        self.mounted = true;
    }

    /// Cuts the power: see the module text. Processes that have files open get errors from now on.
    pub fn cut(&self) {
        let root = File::open(self.path()).expect("root of the file system");
        shutdown(&root);
    }

    /// Unmounts after a cut or after the last process has ended, and mounts again: the journal is
    /// replayed and nothing of the page cache is left.
    pub fn power_on(&mut self) {
        let start = Instant::now();
        while let Err(error) = umount2(&self.path(), MntFlags::empty()) {
            assert!(start.elapsed() < UNMOUNT_LIMIT, "umount: {error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.mounted = false;
        self.mount();
    }

    /// Free bytes for an unprivileged user.
    pub fn free_bytes(&self) -> u64 {
        let stat = nix::sys::statvfs::statvfs(&self.path()).expect("statvfs");
        stat.blocks_available() * stat.fragment_size()
    }

    /// Takes all free space with one file.
    pub fn inflate_balloon(&self) -> Balloon {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let path = self.path().join(format!("balloon{}", COUNT.fetch_add(1, Relaxed)));
        let file = File::create(&path).expect("balloon");
        let mut held = 0;
        // Halving steps take the last block too, beside a process that takes and frees others.
        let mut step = self.free_bytes().next_power_of_two();
        while step >= 4096 {
            let none = nix::fcntl::FallocateFlags::empty();
            match nix::fcntl::fallocate(&file, none, held as i64, step as i64) {
                Ok(()) => held += step,
                Err(_) => step /= 2,
            }
        }
        Balloon(path)
    }
}

/// A file that takes all space of a file system until it is dropped.
pub struct Balloon(PathBuf);

impl Drop for Balloon {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Gives the calling thread, and the processes it starts, mounts of their own.
#[allow(unsafe_code, reason = "the safe wrapper is a feature of its crate that nothing else needs")]
fn private_mounts() -> std::io::Result<()> {
    // SAFETY: takes no pointer; it changes only what the calling thread sees of the file system.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?)
}

#[allow(unsafe_code, reason = "there is no safe wrapper for this request")]
fn shutdown(root: &File) {
    let flags = NOLOGFLUSH;
    // SAFETY: the descriptor is open for the whole call, and the request reads one `u32` from the
    // pointer, which points to one.
    let result = unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const flags) };
    let error = std::io::Error::last_os_error();
    assert_eq!(result, 0, "shutting the file system down: {error}");
}

impl Drop for LoopFs {
    fn drop(&mut self) {
        if self.mounted {
            let _ = umount2(&self.path(), MntFlags::MNT_DETACH);
        }
    }
}
