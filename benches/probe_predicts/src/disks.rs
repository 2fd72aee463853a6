//! Disks of different speed: the directory itself, an image whose writes are throttled, and an image
//! in the memory of a file system in user space.
//!
//! Images and mounts belong to a mount namespace of this process and go with it.

use crate::Failure;
use crate::memory_fs;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of the images: the log's segments, the store of a hundred thousand keys, and the probe.
const IMAGE_MIB: usize = 2_048;

/// Where version 1 of control groups keeps the limits of the root group.
const ROOT_LIMIT: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device";

/// A disk to compare on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// What is under the directory.
    Plain,
    /// An image in the directory with a limit of writes per second.
    Throttled,
    /// An image in memory behind a file system in user space, with a fixed time per flush.
    Fuse,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Throttled => "throttled",
            Kind::Fuse => "fuse",
        }
    }
}

/// A disk that is ready; its mounts are undone when this is dropped.
pub(crate) struct Disk {
    pub(crate) directory: PathBuf,
    // Dropped in this order: the file system, its limit, what it lies on.
    _mounted: Option<Mounted>,
    _limit: Option<Limit>,
    _memory: Option<fuser::BackgroundSession>,
    _scratch: tempfile::TempDir,
}

/// Gives this process mounts of its own. To be called before it has threads.
#[allow(unsafe_code, reason = "the safe wrapper is a feature of its crate that nothing else needs")]
pub(crate) fn private_mounts() -> Result<(), Failure> {
    // SAFETY: takes no pointer; it changes only what this process sees of the file system.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(Failure::Io {
            what: "make mounts of one's own (run as root)".into(),
            source: std::io::Error::last_os_error(),
        });
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .map_err(|errno| Failure::io("make mounts private")(errno.into()))
}

impl Disk {
    /// Makes one below `directory`.
    pub(crate) fn make(
        kind: Kind,
        directory: &Path,
        write_iops: u32,
        flush: std::time::Duration,
    ) -> Result<Self, Failure> {
        fs::create_dir_all(directory).map_err(Failure::io("make the directory"))?;
        let scratch = tempfile::tempdir_in(directory).map_err(Failure::io("make a directory"))?;
        let path = |name: &str| scratch.path().join(name);
        let (mut mounted, mut limit, mut memory) = (None, None, None);
        let point = path("disk");
        fs::create_dir(&point).map_err(Failure::io("make a directory"))?;
        match kind {
            Kind::Plain => {}
            Kind::Throttled => {
                let image = path("image");
                let made = fs::File::create(&image);
                made.and_then(|file| file.set_len((IMAGE_MIB as u64) << 20))
                    .map_err(Failure::io("make an image"))?;
                mounted = Some(Mounted::image(&image, &point)?);
                limit = Some(Limit::writes(&point, write_iops)?);
            }
            Kind::Fuse => {
                let outer = path("memory");
                let session = memory_fs::mount(&outer, IMAGE_MIB, Box::new(move |_| flush));
                memory = Some(session.map_err(Failure::io("mount a file system in user space"))?);
                mounted = Some(Mounted::image(&outer.join(memory_fs::FILE), &point)?);
            }
        }
        Ok(Self {
            directory: point,
            _mounted: mounted,
            _limit: limit,
            _memory: memory,
            _scratch: scratch,
        })
    }
}

/// A mounted ext4 image. Its loop device detaches itself with the last mount.
struct Mounted(PathBuf);

impl Mounted {
    fn image(image: &Path, point: &Path) -> Result<Self, Failure> {
        // Everything written now: the kernel would fill tables in the background otherwise.
        let options = ["-qF", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        command(Command::new("mkfs.ext4").args(options).arg(image))?;
        command(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).args([image, point]))?;
        Ok(Self(point.into()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if umount2(&self.0, MntFlags::empty()).is_err() {
            let _ = umount2(&self.0, MntFlags::MNT_DETACH);
        }
    }
}

/// A limit of a device in the root group: it holds for the kernel's own threads too, as the speed
/// of a disk does.
struct Limit(String);

impl Limit {
    fn writes(directory: &Path, per_second: u32) -> Result<Self, Failure> {
        let device = fs::metadata(directory).map_err(Failure::io("look at the disk"))?.dev();
        let device = format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device));
        fs::write(ROOT_LIMIT, format!("{device} {per_second}"))
            .map_err(Failure::io("limit writes (needs version 1 of the blkio control group)"))?;
        Ok(Self(device))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        let _ = fs::write(ROOT_LIMIT, format!("{} 0", self.0));
    }
}

fn command(command: &mut Command) -> Result<(), Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(Failure::io(&format!("start {name}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::Program { name, message: String::from_utf8_lossy(&output.stderr).into_owned() })
}
