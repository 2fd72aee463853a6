//! Recognising a device again, and noticing what changed around it.

use crate::env::Environment;
use crate::env::cgroup::Limit;
use serde::{Deserialize, Serialize};

/// What identifies a device. Names and numbers change between boots and are not part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// File system UUID.
    pub fs_uuid: Option<String>,
    /// Partition UUID.
    pub partition_uuid: Option<String>,
    /// UUIDs of device-mapper and md layers.
    pub layer_uuids: Vec<String>,
    /// The disks at the bottom, sorted.
    pub leaves: Vec<LeafIdentity>,
}

/// The part of a disk that does not change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeafIdentity {
    /// Worldwide id.
    pub wwid: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Size in sectors of 512 bytes.
    pub sectors: u64,
}

impl LeafIdentity {
    /// For people.
    fn describe(&self) -> String {
        let name = self.serial.as_ref().or(self.wwid.as_ref());
        let size = self.sectors as f64 * 512.0 / 1e9;
        match name {
            Some(name) => format!("{name} ({size:.1} GB)"),
            None => format!("one of {} sectors without a serial number", self.sectors),
        }
    }
}

impl Identity {
    /// The identity of the devices under an environment.
    pub fn of(environment: &Environment) -> Self {
        let mut leaves: Vec<LeafIdentity> = environment
            .leaves
            .iter()
            .map(|leaf| LeafIdentity {
                wwid: leaf.wwid.clone(),
                serial: leaf.serial.clone(),
                sectors: leaf.sectors,
            })
            .collect();
        leaves.sort();
        Self {
            fs_uuid: environment.fs_uuid.clone(),
            partition_uuid: environment.partition_uuid.clone(),
            layer_uuids: environment.layer_uuids.clone(),
            leaves,
        }
    }

    /// Two different devices could look like this: the verdict lives shorter.
    pub fn weak(&self) -> bool {
        self.leaves.is_empty()
            || self.leaves.iter().any(|leaf| leaf.wwid.is_none() && leaf.serial.is_none())
    }

    /// Nothing at all is known: such an identity equals nothing, not even itself.
    pub fn unknown(&self) -> bool {
        self.fs_uuid.is_none() && self.leaves.is_empty() && self.layer_uuids.is_empty()
    }

    /// The same device, as far as can be told.
    pub fn same_device(&self, other: &Self) -> bool {
        !self.unknown() && self == other
    }

    /// What differs from a stored identity, for people; empty for the same device.
    pub fn differences(&self, stored: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut note = |what: &str, before: String, now: String| {
            if before != now {
                differences.push(format!("{what} was {before}, is {now}"));
            }
        };
        let told = |uuid: &Option<String>| uuid.clone().unwrap_or_else(|| "unknown".into());
        note("file system UUID", told(&stored.fs_uuid), told(&self.fs_uuid));
        note("partition UUID", told(&stored.partition_uuid), told(&self.partition_uuid));
        let layers = |identity: &Self| identity.layer_uuids.join(", ");
        note("layers", layers(stored), layers(self));
        let disks = |identity: &Self| {
            let names: Vec<String> = identity.leaves.iter().map(LeafIdentity::describe).collect();
            names.join(", ")
        };
        note("disk", disks(stored), disks(self));
        differences
    }

    /// A short name for files about this file system on this device.
    pub fn key(&self) -> String {
        digest(&serde_json::to_string(self).unwrap_or_default())
    }

    /// A short name for the disks alone: file systems on one disk share its lock.
    pub fn disk_key(&self) -> String {
        if self.leaves.is_empty() {
            return self.key();
        }
        digest(&serde_json::to_string(&self.leaves).unwrap_or_default())
    }
}

/// Circumstances of a measurement that can change while the device stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Kernel release.
    pub kernel: String,
    /// File system type.
    pub filesystem: String,
    /// Mount options, sorted.
    pub mount_options: Vec<String>,
    /// Write-cache mode of each disk.
    pub write_cache: Vec<String>,
    /// I/O limits of the control groups.
    pub limits: Vec<Limit>,
}

/// Options that change what a sync means, or what is written for it.
const DECISIVE: [&str; 6] =
    ["barrier", "nobarrier", "data", "journal_async_commit", "sync", "logbufs"];

impl Conditions {
    /// The conditions of an environment.
    pub fn of(environment: &Environment) -> Self {
        let mut mount_options =
            environment.mount.as_ref().map(|m| m.options.clone()).unwrap_or_default();
        mount_options.sort();
        Self {
            kernel: environment.kernel.clone(),
            filesystem: environment.filesystem.clone(),
            mount_options,
            write_cache: environment
                .leaves
                .iter()
                .map(|leaf| leaf.write_cache.clone().unwrap_or_else(|| "unknown".into()))
                .collect(),
            limits: environment.limits.clone(),
        }
    }

    /// What differs now, for people. The flag is set if a new measurement is needed: barrier and
    /// data-mode options. Everything else is judged again from the running node's own syncs.
    pub fn changes(&self, now: &Self) -> (Vec<String>, bool) {
        let mut changes = Vec::new();
        let mut note = |what: &str, before: &str, after: &str| {
            if before != after {
                changes.push(format!("{what} was {before}, is {after}"));
            }
        };
        note("kernel", &self.kernel, &now.kernel);
        note("file system", &self.filesystem, &now.filesystem);
        note("mount options", &self.mount_options.join(","), &now.mount_options.join(","));
        note("write cache", &self.write_cache.join(","), &now.write_cache.join(","));
        if self.limits != now.limits {
            changes.push("the control groups' I/O limits changed".into());
        }
        let decisive = |conditions: &Self| -> Vec<String> {
            let name = |option: &String| option.split('=').next().unwrap_or_default().to_string();
            let options = conditions.mount_options.iter();
            options.filter(|option| DECISIVE.contains(&name(option).as_str())).cloned().collect()
        };
        let forced = decisive(self) != decisive(now) || self.filesystem != now.filesystem;
        (changes, forced)
    }
}

/// 64 bits of two checksums: short, and good enough to tell apart the disks of one host. A hit is
/// always confirmed by comparing the whole identity.
fn digest(text: &str) -> String {
    let first = crc32c::crc32c(text.as_bytes());
    let second = crc32c::crc32c_append(!first, text.as_bytes());
    format!("{first:08x}{second:08x}")
}
