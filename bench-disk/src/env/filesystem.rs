//! File system types: what `statfs` says, and which of them may hold a consensus log.

use crate::ProbeError;
use crate::env::mounts::Mount;
use crate::finding::Finding;
use nix::sys::statvfs::{FsFlags, statvfs};
use serde::Serialize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Families of file systems, by what they mean for durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// On block devices of this host.
    Local,
    /// In memory: gone after a restart.
    Volatile,
    /// A container's or another layered file system.
    Stacked,
    /// In user space: its sync is what a process makes of it.
    UserSpace,
    /// On another host.
    Network,
    /// Cannot be written by design.
    ReadOnly,
    /// Not in the table.
    Unknown,
}

/// `f_type` of `statfs`, from the kernel's `magic.h` and from the projects that live outside it.
const TABLE: &[(u32, &str, Class)] = &[
    (0x0000_EF53, "ext4", Class::Local),
    (0x5846_5342, "xfs", Class::Local),
    (0x9123_683E, "btrfs", Class::Local),
    (0xF2F5_2010, "f2fs", Class::Local),
    (0x2FC1_2FC1, "zfs", Class::Local),
    (0xCA45_1A4E, "bcachefs", Class::Local),
    (0x0102_1994, "tmpfs", Class::Volatile),
    (0x8584_58F6, "ramfs", Class::Volatile),
    (0x9584_58F6, "hugetlbfs", Class::Volatile),
    (0x0000_9FA0, "proc", Class::Volatile),
    (0x6265_6572, "sysfs", Class::Volatile),
    (0x0027_E0EB, "cgroup", Class::Volatile),
    (0x6367_7270, "cgroup2", Class::Volatile),
    (0x0000_1CD1, "devpts", Class::Volatile),
    (0x6462_6720, "debugfs", Class::Volatile),
    (0x7472_6163, "tracefs", Class::Volatile),
    (0x7363_6673, "securityfs", Class::Volatile),
    (0x6265_6570, "configfs", Class::Volatile),
    (0xCAFE_4A11, "bpf", Class::Volatile),
    (0x1980_0202, "mqueue", Class::Volatile),
    (0x794C_7630, "overlay", Class::Stacked),
    (0x0000_F15F, "ecryptfs", Class::Stacked),
    (0x6573_5546, "fuse", Class::UserSpace),
    (0x0000_6969, "nfs", Class::Network),
    (0x0000_517B, "smb", Class::Network),
    (0xFF53_4D42, "cifs", Class::Network),
    (0xFE53_4D42, "smb2", Class::Network),
    (0x0102_1997, "9p", Class::Network),
    (0x00C3_6400, "ceph", Class::Network),
    (0x5346_414F, "afs", Class::Network),
    (0x0116_1970, "gfs2", Class::Network),
    (0x7461_636F, "ocfs2", Class::Network),
    (0x0BD0_0BD0, "lustre", Class::Network),
    (0x4750_4653, "gpfs", Class::Network),
    (0x786F_4256, "vboxsf", Class::Network),
    (0x7371_7368, "squashfs", Class::ReadOnly),
    (0xE0F5_E1E2, "erofs", Class::ReadOnly),
    (0x0000_9660, "iso9660", Class::ReadOnly),
];

/// `_IOR(0x15, 0, struct fsuuid2)`: the file system's UUID, for any user, since Linux 6.9.
const FS_IOC_GETFSUUID: libc::c_ulong = 0x8011_1500;

/// Answer of [`FS_IOC_GETFSUUID`].
#[repr(C)]
struct FsUuid {
    len: u8,
    bytes: [u8; 16],
}

/// What the kernel says about an existing directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `f_type` of statfs.
    pub magic: u32,
    /// Mounted read-only.
    pub read_only: bool,
    /// Major and minor number of `st_dev`.
    pub device: (u32, u32),
    /// Bytes free for this user.
    pub free_bytes: u64,
    /// UUID of the file system, if the kernel tells.
    pub uuid: Option<String>,
}

impl Facts {
    /// Asks the kernel.
    pub fn read(directory: &Path) -> Result<Self, ProbeError> {
        let look = |error: nix::Error| ProbeError::io("look at", directory)(error.into());
        let kind = nix::sys::statfs::statfs(directory).map_err(look)?;
        let volume = statvfs(directory).map_err(look)?;
        let metadata =
            std::fs::metadata(directory).map_err(ProbeError::io("look at", directory))?;
        Ok(Self {
            // The constants are 32 bits wide; the field's width and sign depend on the target.
            magic: kind.filesystem_type().0 as u32,
            read_only: volume.flags().contains(FsFlags::ST_RDONLY),
            device: split(metadata.dev()),
            free_bytes: volume.blocks_available() as u64 * volume.fragment_size() as u64,
            uuid: uuid(directory),
        })
    }
}

/// The number of a device node; `None` if it is not a block device.
pub fn device_number(node: &Path) -> Option<(u32, u32)> {
    use std::os::unix::fs::FileTypeExt;
    let metadata = std::fs::metadata(node).ok()?;
    metadata.file_type().is_block_device().then(|| split(metadata.rdev()))
}

/// Family of a file system type.
pub fn class(magic: u32) -> Class {
    TABLE.iter().find(|row| row.0 == magic).map_or(Class::Unknown, |row| row.2)
}

/// Name of a file system type; the mount table knows best, since ext2, ext3 and ext4 share a number.
pub fn name(magic: u32, mount: Option<&Mount>) -> String {
    let known = TABLE.iter().find(|row| row.0 == magic).map(|row| row.1);
    match (mount, known) {
        (Some(mount), _) if agrees(&mount.kind, known) => mount.kind.clone(),
        (_, Some(known)) => known.into(),
        (Some(mount), None) => mount.kind.clone(),
        (None, None) => format!("unknown type {magic:#x}"),
    }
}

/// A hidden or moved mount can make the table speak of another file system than `statfs`.
fn agrees(kind: &str, known: Option<&str>) -> bool {
    match known {
        Some("ext4") => kind.starts_with("ext"),
        Some("fuse") => kind.starts_with("fuse"),
        Some("nfs") => kind.starts_with("nfs"),
        Some(name) => kind == name,
        None => true,
    }
}

/// What the file system and its options mean for a consensus log.
pub fn judge(
    class: Class,
    name: &str,
    facts: &Facts,
    mount: Option<&Mount>,
    directory: &Path,
) -> Vec<Finding> {
    let place = directory.display();
    let mut findings = Vec::new();
    match class {
        Class::Local => {}
        Class::Volatile => findings.push(Finding::refuse(
            "volatile-file-system",
            format!("{place} is on {name}, which lives in memory: every acknowledged write is lost at a restart"),
        )),
        Class::Stacked => findings.push(Finding::refuse("stacked-file-system", stacked(name, mount, directory))),
        // With a block device below, flushes can be counted: then the probe has the last word.
        Class::UserSpace => {
            let text = format!("{place} is on {name}: whether a sync reaches a disk is up to a process");
            findings.push(if facts.device.0 == 0 {
                Finding::refuse("user-space-file-system", format!("{text}, and nothing can verify it"))
            } else {
                Finding::warn("user-space-file-system", text)
            });
        }
        Class::Network => findings.push(Finding::refuse(
            "network-file-system",
            format!("{place} is on {name}, a network or shared file system: its latency and its locks are not this host's"),
        )),
        Class::ReadOnly => {}
        Class::Unknown => findings.push(Finding::warn(
            "unknown-file-system",
            format!("{place} is on a file system of {name}, which is not in the table of judged types"),
        )),
    }
    if facts.read_only || class == Class::ReadOnly {
        findings.push(Finding::refuse(
            "read-only-file-system",
            format!("{place} is on a read-only file system ({name})"),
        ));
    }
    if let Some(mount) = mount {
        findings.extend(options(mount));
    }
    match name {
        "btrfs" => findings.push(Finding::warn(
            "copy-on-write",
            "btrfs: set the directory to nodatacow (chattr +C) before the first start",
        )),
        "zfs" => findings.push(Finding::note(
            "sync-property",
            "zfs: a dataset with sync=disabled loses acknowledged writes, and that cannot be seen from here",
        )),
        _ => {}
    }
    findings
}

fn stacked(name: &str, mount: Option<&Mount>, directory: &Path) -> String {
    let upper = mount.and_then(|mount| mount.option("upperdir"));
    let place = directory.display();
    match upper {
        Some(upper) => format!(
            "{place} is on {name}, a container's layer (upper directory {upper}): it goes away with the container"
        ),
        None => format!("{place} is on {name}, a layer over another file system, not a volume"),
    }
}

/// Mount options that change what a sync means.
fn options(mount: &Mount) -> Vec<Finding> {
    let mut findings = Vec::new();
    if mount.option("nobarrier").is_some() || mount.option("barrier") == Some("0") {
        findings.push(Finding::refuse(
            "barriers-off",
            format!(
                "{} is mounted with barriers off: a sync does not reach the device's stable storage",
                mount.point.display()
            ),
        ));
    }
    for (option, text) in [
        ("sync", "every write is synchronous: slow, and of no use here"),
        ("dirsync", "directory updates are synchronous: segment changes get slower"),
        ("journal_async_commit", "the journal's commit block may be reordered"),
        ("discard", "online discard can delay syncs after deletions"),
    ] {
        if mount.option(option).is_some() {
            findings.push(Finding::note("mount-option", format!("mount option {option}: {text}")));
        }
    }
    if mount.option("data") == Some("journal") {
        findings.push(Finding::note("mount-option", "data=journal: every byte is written twice"));
    }
    findings
}

fn split(device: u64) -> (u32, u32) {
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    (narrow(nix::sys::stat::major(device)), narrow(nix::sys::stat::minor(device)))
}

#[allow(unsafe_code)]
fn uuid(directory: &Path) -> Option<String> {
    let handle = std::fs::File::open(directory).ok()?;
    let mut answer = FsUuid { len: 0, bytes: [0; 16] };
    // SAFETY: the descriptor is open for the whole call, and the kernel writes at most the 17
    // bytes of `struct fsuuid2`, which `FsUuid` mirrors, into a live local.
    let status = unsafe { libc::ioctl(handle.as_raw_fd(), FS_IOC_GETFSUUID as _, &raw mut answer) };
    if status != 0 || answer.len != 16 || answer.bytes == [0; 16] {
        return None;
    }
    let hex: String = answer.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}
