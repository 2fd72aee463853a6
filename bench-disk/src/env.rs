//! What lies under a path: file system, mount options, block devices, cgroup limits.
//!
//! Works without root and says what it could not read. All parsing starts at a given root
//! directory, so that tests describe machines as trees of small files.

pub mod block;
pub mod cgroup;
pub mod filesystem;
pub(crate) mod meaning;
pub mod mounts;
pub mod pressure;

use crate::ProbeError;
use crate::finding::{Finding, Severity};
use block::{Leaf, Stack};
use cgroup::Limit;
use filesystem::{Class, Facts};
use mounts::Mount;
use pressure::Pressure;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Loop devices on files on loop devices: deeper nesting is not looked at.
const MAX_NESTING: usize = 4;

/// Everything known about the place of a data directory.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// The directory as the caller named it.
    pub directory: PathBuf,
    /// The existing directory that was judged: the same, or its nearest existing parent.
    pub judged: PathBuf,
    /// Free space there for this user, in bytes.
    pub free_bytes: u64,
    /// Name of the file system type.
    pub filesystem: String,
    /// Its family.
    pub class: Class,
    /// UUID of the file system, where the kernel or udev tells.
    pub fs_uuid: Option<String>,
    /// Its mount, if `/proc` shows it.
    pub mount: Option<Mount>,
    /// From the file system down, for people: `vda1 (partition)`, `dm-0 (LVM)`.
    pub layers: Vec<String>,
    /// The devices at the bottom.
    pub leaves: Vec<Leaf>,
    /// UUID of the partition.
    pub partition_uuid: Option<String>,
    /// UUIDs of device-mapper and md layers.
    pub layer_uuids: Vec<String>,
    /// I/O limits of this process's control groups on these devices.
    pub limits: Vec<Limit>,
    /// Weights and latency targets of its control groups: they act only under contention.
    pub shares: Vec<String>,
    /// How long tasks have been waiting for I/O.
    pub pressure: Vec<Pressure>,
    /// Release of the running kernel.
    pub kernel: String,
    /// What is remarkable about all this.
    pub findings: Vec<Finding>,
    /// What could not be read.
    pub unread: Vec<String>,
}

impl Environment {
    /// Inspects the directory, or its nearest existing parent. Writes nothing.
    pub fn inspect(directory: &Path) -> Result<Self, ProbeError> {
        let judged = nearest_existing(directory)?;
        let facts = Facts::read(&judged)?;
        let absolute = std::path::absolute(directory)
            .map_err(ProbeError::io("find the absolute path of", directory))?;
        Ok(Self::assemble(&absolute, &judged, &facts, Path::new("/")))
    }

    /// Assembles from facts about the directory and the kernel's trees below `root`.
    pub fn assemble(directory: &Path, judged: &Path, facts: &Facts, root: &Path) -> Self {
        let mut unread = Vec::new();
        let mounts = mounts::read(root).unwrap_or_else(|error| {
            unread.push(format!("mounts: {error}"));
            Vec::new()
        });
        let mount = mounts::of(&mounts, judged).cloned();
        let class = filesystem::class(facts.magic);
        let filesystem = filesystem::name(facts.magic, mount.as_ref());
        let device = mount.as_ref().and_then(|m| source_device(facts, m));
        let stack = match device.or((facts.device.0 != 0).then_some(facts.device)) {
            Some(device) => nested(root, device, &mounts, MAX_NESTING),
            None => Stack::default(),
        };
        let kernel = std::fs::read_to_string(root.join("proc/sys/kernel/osrelease"))
            .map(|text| text.trim().to_string())
            .unwrap_or_else(|_| "unknown".into());
        let groups = cgroup::read(root, &mounts, &stack.devices);
        let (limits, hidden) = (groups.limits, groups.hidden);
        let mut findings = Vec::new();
        findings.extend(filesystem::judge(class, &filesystem, facts, mount.as_ref(), judged));
        findings.extend(stack.findings.clone());
        findings.extend(stack.leaves.iter().filter_map(block::judge));
        findings.extend(limits.iter().map(Limit::finding));
        if hidden {
            findings.push(Finding::note(
                "cgroup-namespace",
                "this process is in a cgroup namespace: I/O limits of enclosing groups cannot be seen",
            ));
        }
        if stack.leaves.is_empty() && class == Class::Local {
            unread.push("block devices: no entry in /sys for this file system".into());
        }
        unread.extend(stack.unread);
        unread.extend(groups.unread);
        let mut pressure = groups.pressure;
        pressure.extend(pressure::read(&root.join("proc/pressure/io"), "host"));
        let fs_uuid = facts.uuid.clone().or_else(|| block::uuid_link(root, facts.device));
        Self {
            directory: directory.to_path_buf(),
            judged: judged.to_path_buf(),
            free_bytes: facts.free_bytes,
            filesystem,
            class,
            fs_uuid,
            mount,
            layers: stack.layers,
            leaves: stack.leaves,
            partition_uuid: stack.partition_uuid,
            layer_uuids: stack.layer_uuids,
            limits,
            shares: groups.shares,
            pressure,
            kernel,
            findings,
            unread,
        }
    }

    /// The findings that forbid a consensus log here.
    pub fn refusals(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|f| f.severity == Severity::Refuse)
    }

    /// Why another directory than the named one was judged, for people; empty if none was.
    pub fn judged_because(&self) -> &'static str {
        if self.judged == self.directory {
            ""
        } else if self.directory.exists() {
            "the directory behind the links"
        } else {
            "nearest existing parent"
        }
    }

    /// The bottom device for people, for example `vda` or `sda, sdb`.
    pub fn device_name(&self) -> String {
        match (&self.mount, self.leaves.is_empty()) {
            (_, false) => {
                self.leaves.iter().map(|l| l.name.as_str()).collect::<Vec<_>>().join(", ")
            }
            (Some(mount), true) => mount.source.clone(),
            (None, true) => "unknown".into(),
        }
    }

    /// The directory's writes only become durable when the device is told to flush its cache.
    pub fn write_back(&self) -> bool {
        self.leaves.iter().any(|leaf| leaf.write_cache.as_deref() == Some("write back"))
    }

    /// A rotating disk with a real model name. Virtual disks claim to rotate on any back end.
    pub fn rotating(&self) -> Option<&Leaf> {
        self.leaves.iter().find(|leaf| leaf.really_rotates())
    }
}

/// The path itself if it is a directory, else the nearest parent that exists.
pub fn nearest_existing(directory: &Path) -> Result<PathBuf, ProbeError> {
    let absolute = std::path::absolute(directory)
        .map_err(ProbeError::io("find the absolute path of", directory))?;
    let mut candidate = absolute.as_path();
    loop {
        match std::fs::metadata(candidate) {
            Ok(metadata) if metadata.is_dir() => {
                return candidate
                    .canonicalize()
                    .map_err(ProbeError::io("resolve the links of", candidate));
            }
            Ok(_) => return Err(ProbeError::NotADirectory(candidate.to_path_buf())),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(ProbeError::io("look at", candidate)(error)),
        }
        match candidate.parent() {
            Some(parent) => candidate = parent,
            None => {
                let error = std::io::Error::from(std::io::ErrorKind::NotFound);
                return Err(ProbeError::io("look at", candidate)(error));
            }
        }
    }
}

/// btrfs and ZFS report anonymous device numbers; the mount's source names a real device.
fn source_device(facts: &Facts, mount: &Mount) -> Option<(u32, u32)> {
    (facts.device.0 == 0 && mount.source.starts_with("/dev/"))
        .then(|| filesystem::device_number(Path::new(&mount.source)))
        .flatten()
}

/// Walks the block stack, and through the files that loop devices stand on.
fn nested(root: &Path, device: (u32, u32), mounts: &[Mount], depth: usize) -> Stack {
    let mut stack = block::walk(root, device);
    for backing in std::mem::take(&mut stack.backing) {
        let facts = backing.parent().and_then(|parent| Facts::read(parent).ok());
        let (Some(facts), true) = (facts, depth > 0) else {
            stack.unread.push(format!("what lies under the loop file {}", backing.display()));
            continue;
        };
        let class = filesystem::class(facts.magic);
        let name = filesystem::name(facts.magic, mounts::of(mounts, &backing));
        stack.layers.push(format!("{} (file on {name})", backing.display()));
        if class == Class::UserSpace {
            stack.findings.push(Finding::warn(
                "user-space-backing",
                format!(
                    "the loop device stands on {}, a file on {name}: a process decides what its \
                     flushes mean",
                    backing.display()
                ),
            ));
            continue;
        }
        if class == Class::Network {
            stack.findings.push(Finding::warn(
                "network-device",
                format!(
                    "the loop device stands on {}, a file on {name}: its latency includes the \
                     network's",
                    backing.display()
                ),
            ));
            continue;
        }
        if class == Class::Volatile {
            stack.findings.push(Finding::refuse(
                "volatile-backing",
                format!(
                    "the loop device stands on {}, a file in memory ({name})",
                    backing.display()
                ),
            ));
            continue;
        }
        let below = nested(root, facts.device, mounts, depth - 1);
        if !below.leaves.is_empty() {
            stack.leaves.retain(|leaf| !leaf.name.starts_with("loop"));
        }
        stack.merge(below);
    }
    stack
}

#[cfg(test)]
mod tests;
