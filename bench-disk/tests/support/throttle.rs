//! A control group that limits writes on a device, of whichever version the machine has.

#![allow(dead_code, reason = "each test program uses a part of it")]

use super::skip;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A group; it is removed when this is dropped and its processes have ended.
pub(crate) struct Throttle(PathBuf);

impl Throttle {
    /// Limits writes per second on the device of a directory. `None`, with a visible word, where
    /// there is no I/O controller.
    pub(crate) fn writes(directory: &Path, per_second: u32) -> Option<Self> {
        let device = fs::metadata(directory).expect("a directory").dev();
        let device = format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let point = |is: &dyn Fn(&str) -> bool| {
            let line = mounts
                .lines()
                .find(|line| line.split_once(" - ").is_some_and(|(_, end)| is(end)))?;
            line.split(' ').nth(4).map(PathBuf::from)
        };
        let name = format!("bench-disk-test-{}", std::process::id());
        let old = point(&|end| end.starts_with("cgroup ") && end.contains("blkio"));
        let new = point(&|end| end.starts_with("cgroup2 "));
        let (group, file, limit) = if let Some(old) = old {
            (old.join(name), "blkio.throttle.write_iops_device", format!("{device} {per_second}"))
        } else if let Some(new) = new {
            // Children get the controller only if the root hands it on.
            let _ = fs::write(new.join("cgroup.subtree_control"), "+io");
            (new.join(name), "io.max", format!("{device} wiops={per_second}"))
        } else {
            skip("no control groups are mounted");
            return None;
        };
        if let Err(error) = fs::create_dir(&group) {
            skip(&format!("cannot make the control group {}: {error}", group.display()));
            return None;
        }
        let throttle = Self(group);
        if let Err(error) = fs::write(throttle.0.join(file), limit) {
            skip(&format!("no I/O controller here: {file}: {error}"));
            return None;
        }
        Some(throttle)
    }

    /// The group's name as the program tells it.
    pub(crate) fn name(&self) -> String {
        self.0.file_name().expect("a name").to_string_lossy().into_owned()
    }

    /// The same command inside the group.
    pub(crate) fn around(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        let join = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        inside.args(["-c", join]).arg(&self.0).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                inside.env(name, value);
            }
        }
        inside
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A limit of a device for everybody, as a slow disk is slow for everybody: the kernel's own threads
/// too. Undone when this is dropped.
pub(crate) struct DeviceLimit(String);

impl DeviceLimit {
    /// Where version 1 of control groups keeps the limits of the root group; version 2 has none
    /// there.
    const FILE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device";

    /// Limits writes per second on the device of a directory. `None`, with a visible word, where
    /// the kernel offers no such limit.
    pub(crate) fn writes(directory: &Path, per_second: u32) -> Option<Self> {
        let device = fs::metadata(directory).expect("a directory").dev();
        let device = format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device));
        match fs::write(Self::FILE, format!("{device} {per_second}")) {
            Ok(()) => Some(Self(device)),
            Err(error) => {
                eprintln!("SKIPPED: no limit for all of a device: {}: {error}", Self::FILE);
                None
            }
        }
    }
}

impl Drop for DeviceLimit {
    fn drop(&mut self) {
        let _ = fs::write(Self::FILE, format!("{} 0", self.0));
    }
}
