//! I/O limits of the control groups around this process: a slow disk may be a limit, not a disk.

use crate::env::mounts::Mount;
use crate::env::pressure::{self, Pressure};
use crate::finding::Finding;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Inode of the initial cgroup namespace, fixed in the kernel (`PROC_CGROUP_INIT_INO`).
const INITIAL_NAMESPACE: &str = "cgroup:[4026531835]";

/// The files of the older interface, and what they would be called in the newer one.
const V1_FILES: [(&str, &str); 4] = [
    ("blkio.throttle.read_iops_device", "riops"),
    ("blkio.throttle.write_iops_device", "wiops"),
    ("blkio.throttle.read_bps_device", "rbps"),
    ("blkio.throttle.write_bps_device", "wbps"),
];

/// One limit on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The group that sets it, as a path from the root of the hierarchy.
    pub group: String,
    /// Device number, `major:minor`.
    pub device: String,
    /// `riops`, `wiops`, `rbps` or `wbps`.
    pub kind: String,
    /// Operations or bytes per second.
    pub value: u64,
}

impl Limit {
    /// The remark for people.
    pub(crate) fn finding(&self) -> Finding {
        let text = format!(
            "control group {} limits device {} to {}={}: a slow result may be this limit, not the disk",
            self.group, self.device, self.kind, self.value
        );
        Finding::warn("cgroup-limit", text)
    }
}

/// What the control groups around this process say about a set of devices.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// Limits, from this process's group up to the root.
    pub limits: Vec<Limit>,
    /// Weights and latency targets, for people.
    pub shares: Vec<String>,
    /// Waiting in this process's own group.
    pub pressure: Vec<Pressure>,
    /// A namespace hides groups further up.
    pub hidden: bool,
    /// What could not be read.
    pub unread: Vec<String>,
}

/// Reads the groups of either version.
pub fn read(root: &Path, mounts: &[Mount], devices: &[(u32, u32)]) -> Groups {
    let mut groups = Groups::default();
    let membership =
        std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_else(|error| {
            groups.unread.push(format!("control groups: {error}"));
            String::new()
        });
    let names: Vec<String> = devices.iter().map(|(a, b)| format!("{a}:{b}")).collect();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let unified = controllers.is_empty();
        if !unified && !controllers.split(',').any(|name| name == "blkio") {
            continue;
        }
        let mount = mounts.iter().find(|mount| {
            let kind = if unified { "cgroup2" } else { "cgroup" };
            mount.kind == kind && (unified || mount.option("blkio").is_some())
        });
        if let Some(mount) = mount {
            collect(root, &mount.point, group, unified, &names, &mut groups);
        }
    }
    let namespace = std::fs::read_link(root.join("proc/self/ns/cgroup")).ok();
    groups.hidden = namespace.is_some_and(|link| link != Path::new(INITIAL_NAMESPACE));
    groups
}

fn collect(
    root: &Path,
    mount: &Path,
    group: &str,
    unified: bool,
    names: &[String],
    found: &mut Groups,
) {
    let base = root.join(mount.strip_prefix("/").unwrap_or(mount));
    let inside = PathBuf::from(group.trim_start_matches('/'));
    for ancestor in inside.ancestors() {
        let directory = base.join(ancestor);
        let group = format!("/{}", ancestor.display());
        let read = |file: &str| std::fs::read_to_string(directory.join(file)).unwrap_or_default();
        if unified {
            // The root group's account is the host's.
            if found.pressure.is_empty() && group != "/" {
                found.pressure.extend(pressure::read(&directory.join("io.pressure"), &group));
            }
            found.shares.extend(shares(&read("io.weight"), &read("io.latency"), &group, names));
            found
                .limits
                .extend(read("io.max").lines().flat_map(|line| parse_v2(line, &group, names)));
        } else {
            found.shares.extend(shares(&read("blkio.weight"), "", &group, names));
            for (file, kind) in V1_FILES {
                found.limits.extend(read(file).lines().filter_map(|line| {
                    let (device, value) = line.split_once(' ')?;
                    limit(&group, device, kind, value, names)
                }));
            }
        }
    }
}

/// Weights other than the default of 100 (500 in the older interface), and latency targets on one
/// of the devices.
fn shares(weight: &str, latency: &str, group: &str, names: &[String]) -> Vec<String> {
    let mut shares = Vec::new();
    let weight = weight.lines().next().unwrap_or_default().trim_start_matches("default").trim();
    if !weight.is_empty() && !["100", "500"].contains(&weight) {
        shares.push(format!("control group {group} has an I/O weight of {weight}"));
    }
    for line in latency.lines() {
        let Some((device, target)) = line.split_once(" target=") else { continue };
        if names.iter().any(|name| name == device) {
            shares.push(format!(
                "control group {group} asks for a latency of {} us on device {device}: others are \
                 throttled for it",
                target.trim()
            ));
        }
    }
    shares
}

/// `8:16 rbps=max wbps=1048576 riops=max wiops=120`
fn parse_v2(line: &str, group: &str, names: &[String]) -> Vec<Limit> {
    let mut words = line.split_whitespace();
    let device = words.next().unwrap_or_default();
    words
        .filter_map(|word| word.split_once('='))
        .filter_map(|(kind, value)| limit(group, device, kind, value, names))
        .collect()
}

fn limit(group: &str, device: &str, kind: &str, value: &str, names: &[String]) -> Option<Limit> {
    let value = value.trim().parse().ok()?;
    names.iter().any(|name| name == device).then(|| Limit {
        group: group.into(),
        device: device.into(),
        kind: kind.into(),
        value,
    })
}
