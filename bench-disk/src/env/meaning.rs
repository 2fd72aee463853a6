//! What the words of the kernel mean for a consensus log, for people.

use crate::env::block::Leaf;
use crate::env::filesystem::Class;

/// What a family of file systems is.
pub(crate) fn class(class: Class) -> &'static str {
    match class {
        Class::Local => "a file system on block devices of this host",
        Class::Volatile => "in memory: its content is gone after a restart",
        Class::Stacked => "a layer over another file system, usually a container's",
        Class::UserSpace => "a process decides what a sync means",
        Class::Network => "the data is on another host",
        Class::ReadOnly => "cannot be written by design",
        Class::Unknown => "not in the table of judged types",
    }
}

/// What a mount option does to syncs; `None` for options without a bearing on them.
pub(crate) fn option(option: &str) -> Option<&'static str> {
    Some(match option {
        "ro" => "read-only",
        "sync" => "every single write waits for the disk: slow, and of no use here",
        "dirsync" => "directory updates wait for the disk: segment changes are slower",
        "relatime" | "noatime" | "lazytime" => "reads cause few or no writes: good",
        "strictatime" => "every read causes a write: use noatime",
        "nobarrier" | "barrier=0" => "syncs do not empty the disk's cache: data loss",
        "barrier" | "barrier=1" => "syncs empty the disk's cache: needed",
        "discard" | "discard=sync" => "deletions send discards at once, which can delay syncs",
        "discard=async" => "deletions send discards later: good",
        "data=ordered" => "file data is written before its metadata: the usual mode",
        "data=writeback" => "metadata may be written before file data: faster, riskier",
        "data=journal" => "every byte is written twice",
        "journal_async_commit" => "the journal's commit block may overtake its content",
        "nodatacow" => "no copy-on-write: good for a log",
        "datacow" => "copy-on-write: every overwrite goes to a new place",
        "inode64" | "inode32" | "attr2" | "noquota" => return None,
        other if other.starts_with("compress") => "content is compressed: latency depends on it",
        other if other.starts_with("commit=") => "seconds between journal commits without a sync",
        other if other.starts_with("errors=") => "what happens after an error of the metadata",
        other if other.starts_with("logbufs") || other.starts_with("logbsize") => {
            "size of the journal's buffers in memory"
        }
        _ => return None,
    })
}

/// How the kernel talks to a disk, by its name.
pub(crate) fn transport(name: &str) -> Option<&'static str> {
    let kinds: [(&str, &str); 6] = [
        ("nvme", "NVMe"),
        ("vd", "virtio"),
        ("xvd", "Xen"),
        ("mmcblk", "SD card or eMMC"),
        ("pmem", "persistent memory"),
        ("dasd", "DASD"),
    ];
    kinds.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, kind)| *kind)
}

/// What the write cache means for a sync.
pub(crate) fn write_cache(leaf: &Leaf) -> &'static str {
    match leaf.write_cache.as_deref() {
        Some("write back") => {
            "write back: the disk has a volatile cache, so a sync must end with a flush; a run \
             counts them"
        }
        Some("write through") => {
            "write through: the kernel sends no flushes; right for a protected cache, data loss \
             if the layer below has a volatile one"
        }
        _ => "unknown: whether flushes are needed cannot be told",
    }
}

/// What the scheduler means for a sync.
pub(crate) fn scheduler(name: &str) -> &'static str {
    match name {
        "none" => "requests go straight to the disk: right for SSDs",
        "mq-deadline" => "bounds waiting; good for rotating disks, fine for SSDs",
        "bfq" => "fair between processes at the cost of latency: prefer none or mq-deadline",
        "kyber" => "limits queues to meet latency targets: fine",
        _ => "",
    }
}

/// A cloud volume, by its model name: which one.
pub(crate) fn cloud(leaf: &Leaf) -> Option<&'static str> {
    let model = leaf.model.as_deref()?.to_lowercase();
    let known: [(&str, &str); 6] = [
        ("elastic block store", "Amazon EBS"),
        ("persistentdisk", "Google Persistent Disk"),
        ("nvme_card-pd", "Google Persistent Disk"),
        ("msft nvme accelerator", "Azure managed disk"),
        ("virtual disk", "a virtual disk"),
        ("blockvolume", "Oracle block volume"),
    ];
    known.iter().find(|(part, _)| model.contains(part)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloud_volumes_are_known_by_their_model() {
        let model = |text: &str| Leaf { model: Some(text.into()), ..Leaf::default() };
        assert_eq!(cloud(&model("Amazon Elastic Block Store")), Some("Amazon EBS"));
        assert_eq!(cloud(&model("PersistentDisk")), Some("Google Persistent Disk"));
        assert_eq!(cloud(&model("Samsung SSD 990")), None);
        assert_eq!(cloud(&Leaf::default()), None);
    }

    #[test]
    fn options_without_a_bearing_on_syncs_are_left_out() {
        assert!(option("barrier=0").is_some_and(|text| text.contains("data loss")));
        assert!(option("commit=30").is_some() && option("compress-force=zstd:3").is_some());
        assert_eq!(option("seclabel"), None);
        assert_eq!(transport("nvme0n1"), Some("NVMe"));
        assert_eq!(transport("dm-0"), None);
    }
}
