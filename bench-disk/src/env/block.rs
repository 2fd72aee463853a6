//! The block devices under a file system, from `/sys`: partition, LVM, md, loop, down to disks.

use crate::env::meaning;
use crate::finding::Finding;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Layers deeper than this are a cycle or a joke.
const MAX_DEPTH: usize = 16;

/// A device at the bottom of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    /// Kernel name, for example `nvme0n1`. Not part of the identity: it changes between boots.
    pub name: String,
    /// Size in sectors of 512 bytes.
    pub sectors: u64,
    /// Worldwide id.
    pub wwid: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// Vendor.
    pub vendor: Option<String>,
    /// What the kernel believes about rotation; virtual disks often claim to rotate.
    pub rotational: Option<bool>,
    /// `write back` (flushes are needed and sent) or `write through`.
    pub write_cache: Option<String>,
    /// I/O scheduler in use.
    pub scheduler: Option<String>,
    /// Whether the disk can write one request past its cache, which saves flushes.
    #[serde(default)]
    pub fua: Option<bool>,
    /// Size of a logical block in bytes.
    #[serde(default)]
    pub logical_block: Option<u64>,
    /// Size of a physical block in bytes: smaller writes are read, changed and written.
    #[serde(default)]
    pub physical_block: Option<u64>,
    /// Latency target of the kernel's writeback throttling in microseconds; 0 is off.
    #[serde(default)]
    pub writeback_target_us: Option<u64>,
}

impl Leaf {
    /// Neither worldwide id nor serial: another disk of the same size looks the same.
    pub fn weak(&self) -> bool {
        self.wwid.is_none() && self.serial.is_none()
    }

    /// Claims to rotate and has the model of a real ATA or SCSI disk.
    pub fn really_rotates(&self) -> bool {
        const VIRTUAL: [&str; 7] =
            ["qemu", "vmware", "virtual", "vbox", "msft", "persistentdisk", "google"];
        let text = format!(
            "{} {}",
            self.vendor.as_deref().unwrap_or_default(),
            self.model.as_deref().unwrap_or_default()
        )
        .to_lowercase();
        self.rotational == Some(true)
            && self.name.starts_with("sd")
            && self.model.is_some()
            && !VIRTUAL.iter().any(|word| text.contains(word))
    }
}

/// What a walk from the file system's device down to the disks found.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// Every device passed, for people.
    pub layers: Vec<String>,
    /// Numbers of every device passed: cgroup limits may name any of them.
    pub devices: Vec<(u32, u32)>,
    /// The bottom.
    pub leaves: Vec<Leaf>,
    /// UUID of the partition that holds the file system.
    pub partition_uuid: Option<String>,
    /// UUIDs of device-mapper and md devices passed.
    pub layer_uuids: Vec<String>,
    /// Files that loop devices stand on.
    pub backing: Vec<PathBuf>,
    /// Remarkable layers.
    pub findings: Vec<Finding>,
    /// What could not be read.
    pub unread: Vec<String>,
}

impl Stack {
    /// Appends the stack below this one.
    pub fn merge(&mut self, below: Stack) {
        self.layers.extend(below.layers);
        self.devices.extend(below.devices);
        self.leaves.extend(below.leaves);
        self.layer_uuids.extend(below.layer_uuids);
        self.findings.extend(below.findings);
        self.unread.extend(below.unread);
    }
}

/// Counters of a disk from its `stat` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskStat {
    /// Milliseconds with at least one request in flight.
    pub busy_ms: u64,
    /// Flush requests completed; kernels before 5.5 do not count them.
    pub flushes: Option<u64>,
}

/// Walks down from a device number. An unknown number gives an empty stack with a remark.
pub fn walk(root: &Path, device: (u32, u32)) -> Stack {
    let mut stack = Stack::default();
    let link = root.join(format!("sys/dev/block/{}:{}", device.0, device.1));
    match link.canonicalize() {
        Ok(directory) => descend(root, &directory, &mut stack, MAX_DEPTH),
        Err(error) => stack.unread.push(format!("device {}:{}: {error}", device.0, device.1)),
    }
    stack
}

/// Counters of a device by its kernel name.
pub fn stat(root: &Path, name: &str) -> Option<DiskStat> {
    let text = std::fs::read_to_string(root.join("sys/class/block").join(name).join("stat"))
        .or_else(|_| std::fs::read_to_string(root.join("sys/block").join(name).join("stat")))
        .ok()?;
    parse_stat(&text)
}

/// Field 10 is the busy time and field 16 the flushes, counted from one.
fn parse_stat(text: &str) -> Option<DiskStat> {
    let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    Some(DiskStat { busy_ms: *fields.get(9)?, flushes: fields.get(15).copied() })
}

/// The UUID that udev's links give a device, for kernels that do not tell it themselves.
pub fn uuid_link(root: &Path, device: (u32, u32)) -> Option<String> {
    link_to(root, "dev/disk/by-uuid", device)
}

fn link_to(root: &Path, directory: &str, device: (u32, u32)) -> Option<String> {
    let target = root.join(format!("sys/dev/block/{}:{}", device.0, device.1));
    let name = target.canonicalize().ok()?.file_name()?.to_owned();
    for entry in std::fs::read_dir(root.join(directory)).ok()?.flatten() {
        let points_to = std::fs::read_link(entry.path()).ok();
        if points_to.is_some_and(|to| to.file_name() == Some(&name)) {
            return entry.file_name().into_string().ok();
        }
    }
    None
}

fn descend(root: &Path, directory: &Path, stack: &mut Stack, depth: usize) {
    let name = directory.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let number = value(directory, "dev").and_then(|text| parse_number(&text));
    stack.devices.extend(number);
    if depth == 0 {
        stack.unread.push(format!("devices under {name}: nested too deep"));
        return;
    }
    if directory.join("partition").exists() {
        stack.layers.push(format!("{name} (partition)"));
        if stack.partition_uuid.is_none() {
            stack.partition_uuid = uevent(directory, "PARTUUID")
                .or_else(|| number.and_then(|n| link_to(root, "dev/disk/by-partuuid", n)));
        }
        match directory.parent() {
            Some(disk) => descend(root, disk, stack, depth - 1),
            None => stack.unread.push(format!("the disk of partition {name}")),
        }
        return;
    }
    let kind = kind(directory, &name, stack);
    let kind = kind.or_else(|| meaning::transport(&name).map(str::to_string));
    stack.layers.push(match &kind {
        Some(kind) => format!("{name} ({kind})"),
        None => name.clone(),
    });
    let mut slaves: Vec<PathBuf> = std::fs::read_dir(directory.join("slaves"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    slaves.sort();
    if slaves.is_empty() {
        let hidden = ["wwid", "device/wwid", "serial", "device/serial", "queue/write_cache"];
        stack.unread.extend(hidden.iter().filter_map(|file| forbidden(directory, &name, file)));
        stack.leaves.push(leaf(directory, name));
    }
    for slave in slaves {
        match slave.canonicalize() {
            Ok(below) => descend(root, &below, stack, depth - 1),
            Err(error) => stack.unread.push(format!("{}: {error}", slave.display())),
        }
    }
}

/// Names the kind of a whole device and notes what is remarkable about it.
fn kind(directory: &Path, name: &str, stack: &mut Stack) -> Option<String> {
    if let Some(uuid) = value(directory, "dm/uuid") {
        let label = match uuid.split('-').next().unwrap_or_default() {
            "LVM" => "LVM",
            "CRYPT" => "encrypted",
            "mpath" => "multipath",
            _ => "device mapper",
        };
        let title = value(directory, "dm/name").unwrap_or_default();
        stack.layer_uuids.push(uuid);
        return Some(format!("{label} {title}").trim_end().into());
    }
    if let Some(level) = value(directory, "md/level") {
        stack.layer_uuids.extend(value(directory, "md/uuid"));
        return Some(level);
    }
    if let Some(file) = value(directory, "loop/backing_file") {
        stack.backing.push(PathBuf::from(file));
        return Some("loop".into());
    }
    if name.starts_with("zram") || (name.starts_with("ram") && name[3..].parse::<u32>().is_ok()) {
        stack.findings.push(Finding::refuse(
            "volatile-device",
            format!("{name} is a disk in memory: every acknowledged write is lost at a restart"),
        ));
        return Some("memory".into());
    }
    if ["rbd", "nbd", "drbd"].iter().any(|prefix| name.starts_with(prefix)) {
        stack.findings.push(Finding::warn(
            "network-device",
            format!("{name} is a network block device: its latency includes the network's"),
        ));
        return Some("network".into());
    }
    None
}

fn leaf(directory: &Path, name: String) -> Leaf {
    let any = |files: &[&str]| files.iter().find_map(|file| value(directory, file));
    let scheduler = value(directory, "queue/scheduler").map(|text| {
        let chosen = text.split(['[', ']']).nth(1).map(str::to_string);
        chosen.unwrap_or(text)
    });
    let number = |file: &str| value(directory, file).and_then(|text| text.parse::<u64>().ok());
    Leaf {
        sectors: number("size").unwrap_or(0),
        wwid: any(&["wwid", "device/wwid"]),
        serial: any(&["serial", "device/serial"]),
        model: any(&["device/model"]),
        vendor: any(&["device/vendor"]),
        rotational: value(directory, "queue/rotational").map(|text| text == "1"),
        write_cache: value(directory, "queue/write_cache"),
        scheduler,
        fua: value(directory, "queue/fua").map(|text| text == "1"),
        logical_block: number("queue/logical_block_size"),
        physical_block: number("queue/physical_block_size"),
        writeback_target_us: number("queue/wbt_lat_usec"),
        name,
    }
}

/// What is remarkable about a disk.
pub(crate) fn judge(leaf: &Leaf) -> Option<Finding> {
    if leaf.really_rotates() {
        let model = leaf.model.as_deref().unwrap_or_default();
        let text = format!(
            "{} is a rotating disk ({model}): a sync that reaches the platter takes about a turn",
            leaf.name
        );
        return Some(Finding::warn("rotating-disk", text));
    }
    let cloud = meaning::cloud(leaf)?;
    let text = format!(
        "{} is {cloud}: a short run may see a burst allowance, --profile soak sees what remains",
        leaf.name
    );
    Some(Finding::note("cloud-disk", text))
}

/// The remark about a file that exists and that this user may not read.
fn forbidden(directory: &Path, name: &str, file: &str) -> Option<String> {
    let error = std::fs::read(directory.join(file)).err()?;
    let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
    denied.then(|| format!("{file} of {name}: {error} (root may)"))
}

/// Content of a small file without blanks at its ends; `None` if absent, unreadable or empty.
fn value(directory: &Path, file: &str) -> Option<String> {
    let text = std::fs::read(directory.join(file)).ok()?;
    let text = String::from_utf8_lossy(&text).trim_matches(['\0', ' ', '\n', '\t']).to_string();
    (!text.is_empty()).then_some(text)
}

fn uevent(directory: &Path, key: &str) -> Option<String> {
    value(directory, "uevent")?
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('=').map(str::to_string))
}

fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
