//! Mounts that nobody else sees and that go with the test.
//!
//! They belong to a mount namespace of the test's own thread; only that thread and processes that it
//! starts see them. A loop device detaches itself with its last mount.

use super::{is_root, skip, tool};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Gives the calling thread mounts of its own. `false`, with a visible word, where the machine
/// cannot; a failure when `CI` is set.
#[allow(unsafe_code, reason = "the safe wrapper is a feature of its crate that nothing else needs")]
pub(crate) fn private() -> bool {
    if !is_root() {
        skip("mounting needs root");
        return false;
    }
    // SAFETY: takes no pointer; it changes only what the calling thread sees of the file system.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        skip(&format!("no mount namespace: {}", std::io::Error::last_os_error()));
        return false;
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("private mounts");
    true
}

/// A mount that is undone when this is dropped.
pub(crate) struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// Mounts `kind` at a new directory. `None`, with a visible word, where the kernel lacks it.
pub(crate) fn at(point: &Path, kind: &str, flags: MsFlags, options: &str) -> Option<Mounted> {
    std::fs::create_dir_all(point).expect("made");
    match mount(Some(kind), point, Some(kind), flags, Some(options)) {
        Ok(()) => Some(Mounted(point.into())),
        Err(error) => {
            skip(&format!("cannot mount {kind}: {error}"));
            None
        }
    }
}

/// An ext4 image.
pub(crate) struct Image(PathBuf);

impl Image {
    /// Makes one of this many MiB; `None` where mkfs is missing.
    pub(crate) fn create(path: PathBuf, mib: u64) -> Option<Self> {
        File::create(&path).and_then(|file| file.set_len(mib << 20)).expect("an image");
        Self::format(path)
    }

    /// Makes one of a file that is there.
    pub(crate) fn format(path: PathBuf) -> Option<Self> {
        if !tool("mkfs.ext4") {
            return None;
        }
        let made = Command::new("mkfs.ext4")
            .args(["-qF", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(&path)
            .output()
            .expect("mkfs ran");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(Self(path))
    }

    /// Mounts it through a loop device, with further options.
    pub(crate) fn mount(&self, point: &Path, options: &str) -> Option<Mounted> {
        std::fs::create_dir_all(point).expect("made");
        let output = Command::new("mount")
            .args(["-t", "ext4", "-o", &format!("loop{options}")])
            .args([&self.0, point])
            .output()
            .expect("mount ran");
        if output.status.success() {
            return Some(Mounted(point.into()));
        }
        skip(&format!("mount: {}", String::from_utf8_lossy(&output.stderr)));
        None
    }
}
