//! Machines as trees of small files.

use super::*;
use crate::identity::{Conditions, Identity};
use std::fs;
use std::os::unix::fs::symlink;

/// A root directory with `/proc` and `/sys` of a machine.
struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new(mountinfo: &str) -> Self {
        let machine = Self { root: tempfile::tempdir().expect("a directory") };
        machine.file("proc/self/mountinfo", mountinfo);
        machine.file("proc/self/cgroup", "0::/\n");
        machine.file("proc/sys/kernel/osrelease", "6.1.0-test\n");
        machine
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, content).expect("written");
    }

    /// A device at `sys/devices/<place>`, findable by its number.
    fn device(&self, number: &str, place: &str, files: &[(&str, &str)]) {
        self.file(&format!("sys/devices/{place}/dev"), &format!("{number}\n"));
        for (name, content) in files {
            self.file(&format!("sys/devices/{place}/{name}"), &format!("{content}\n"));
        }
        let link = self.root.path().join(format!("sys/dev/block/{number}"));
        fs::create_dir_all(link.parent().expect("a parent")).expect("made");
        symlink(format!("../../devices/{place}"), link).expect("linked");
    }

    /// `upper` stands on `lower`.
    fn slave(&self, upper: &str, lower: &str) {
        let slaves = self.root.path().join(format!("sys/devices/{upper}/slaves"));
        fs::create_dir_all(&slaves).expect("made");
        let name = Path::new(lower).file_name().expect("a name");
        symlink(self.root.path().join("sys/devices").join(lower), slaves.join(name))
            .expect("linked");
    }

    fn inspect(&self, magic: u32, device: (u32, u32), directory: &str) -> Environment {
        let facts = Facts { magic, read_only: false, device, free_bytes: 1 << 40, uuid: None };
        Environment::assemble(Path::new(directory), Path::new(directory), &facts, self.root.path())
    }
}

const EXT4: u32 = 0xEF53;
const DISK: &[(&str, &str)] = &[
    ("size", "2097152"),
    ("queue/rotational", "0"),
    ("queue/write_cache", "write back"),
    ("queue/scheduler", "none [mq-deadline] kyber"),
    ("device/model", "Fast Disk 9000"),
    ("device/vendor", "ACME"),
    ("wwid", "eui.0011"),
];

fn codes(environment: &Environment) -> Vec<&str> {
    environment.findings.iter().map(|finding| finding.code.as_str()).collect()
}

#[test]
fn a_partition_leads_to_its_disk_and_the_longest_mount_prefix_wins() {
    let machine = Machine::new(
        "22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro\n\
         30 22 8:1 / /var/lib rw,noatime shared:2 - ext4 /dev/sda1 rw,discard\n\
         31 22 8:3 / /var/lib/data\\040one rw - xfs /dev/sda3 rw\n",
    );
    machine.device("8:0", "pci0/block/sda", DISK);
    let uevent = "MAJOR=8\nPARTUUID=aaaa-01";
    machine.device("8:1", "pci0/block/sda/sda1", &[("partition", "1"), ("uevent", uevent)]);
    let environment = machine.inspect(EXT4, (8, 1), "/var/lib/data");
    let mount = environment.mount.as_ref().expect("a mount");
    assert_eq!((mount.point.to_str(), mount.kind.as_str()), (Some("/var/lib"), "ext4"));
    assert!(mount.option("noatime").is_some() && mount.option("discard").is_some());
    assert_eq!(environment.layers, ["sda1 (partition)", "sda"]);
    assert_eq!(environment.partition_uuid.as_deref(), Some("aaaa-01"));
    let leaf = &environment.leaves[0];
    assert_eq!((leaf.name.as_str(), leaf.sectors, leaf.weak()), ("sda", 2_097_152, false));
    assert_eq!(leaf.scheduler.as_deref(), Some("mq-deadline"));
    assert_eq!(environment.refusals().count(), 0);
    assert!(environment.write_back() && environment.rotating().is_none());
    assert!(!Identity::of(&environment).weak());
    let escaped = machine.inspect(0x5846_5342, (8, 3), "/var/lib/data one/x");
    assert_eq!(escaped.filesystem, "xfs");
}

#[test]
fn lvm_on_two_disks_shows_both_and_carries_the_volume_uuid() {
    let machine = Machine::new("22 1 253:0 / / rw - ext4 /dev/mapper/vg-root rw\n");
    machine.device("8:0", "a/block/sda", DISK);
    machine.device("8:16", "b/block/sdb", &[("size", "99"), ("device/serial", "B7")]);
    let dm = [("dm/uuid", "LVM-abcdef"), ("dm/name", "vg-root")];
    machine.device("253:0", "virtual/block/dm-0", &dm);
    machine.slave("virtual/block/dm-0", "a/block/sda");
    machine.slave("virtual/block/dm-0", "b/block/sdb");
    let environment = machine.inspect(EXT4, (253, 0), "/data");
    assert_eq!(environment.layers, ["dm-0 (LVM vg-root)", "sda", "sdb"]);
    assert_eq!(environment.layer_uuids, ["LVM-abcdef"]);
    assert_eq!(environment.device_name(), "sda, sdb");
    let identity = Identity::of(&environment);
    assert_eq!(identity.leaves.len(), 2);
    assert!(identity.same_device(&identity.clone()) && identity.key().len() == 16);
    machine.file("sys/devices/virtual/block/dm-0/dm/uuid", "LVM-other");
    assert!(!identity.same_device(&Identity::of(&machine.inspect(EXT4, (253, 0), "/data"))));
}

#[test]
fn a_loop_device_leads_to_its_file() {
    let backing = tempfile::NamedTempFile::new().expect("a file");
    let machine = Machine::new("22 1 7:3 / / rw - ext4 /dev/loop3 rw\n");
    let file = backing.path().to_str().expect("a name");
    machine.device("7:3", "virtual/block/loop3", &[("loop/backing_file", file), ("size", "8")]);
    let environment = machine.inspect(EXT4, (7, 3), "/data");
    assert_eq!(environment.layers[0], "loop3 (loop)");
    assert!(environment.layers[1].contains(file), "{:?}", environment.layers);
    machine.file("sys/devices/virtual/block/loop3/loop/backing_file", "/gone/away (deleted)");
    let environment = machine.inspect(EXT4, (7, 3), "/data");
    assert_eq!(environment.device_name(), "loop3");
    assert!(environment.unread[0].contains("/gone/away"), "{:?}", environment.unread);
}

#[test]
fn unfit_file_systems_are_refused_by_name() {
    let machine = Machine::new(
        "22 1 0:30 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/up/diff,workdir=/w\n\
         23 22 0:40 / /mem rw - tmpfs tmpfs rw,size=1024k\n\
         24 22 0:41 / /net rw - nfs4 server:/export rw,vers=4.2\n\
         25 22 0:42 / /share rw - cifs //server/share rw\n\
         26 22 0:43 / /host rw - 9p host rw\n",
    );
    for (magic, directory, code, name) in [
        (0x794C_7630, "/var", "stacked-file-system", "overlay"),
        (0x0102_1994, "/mem/x", "volatile-file-system", "tmpfs"),
        (0x6969, "/net/x", "network-file-system", "nfs4"),
        (0xFF53_4D42, "/share/x", "network-file-system", "cifs"),
        (0x0102_1997, "/host/x", "network-file-system", "9p"),
        (0x7371_7368, "/host/x", "read-only-file-system", "squashfs"),
    ] {
        let environment = machine.inspect(magic, (0, 40), directory);
        let finding = environment.refusals().next().expect("refused");
        assert_eq!(finding.code, code);
        assert!(finding.text.contains(name) && finding.text.contains(directory), "{finding:?}");
    }
    let overlay = machine.inspect(0x794C_7630, (0, 30), "/var");
    assert!(overlay.findings[0].text.contains("/up/diff"));
    assert_eq!(overlay.device_name(), "overlay");
}

#[test]
fn fuse_and_unknown_types_warn_and_a_read_only_mount_is_refused() {
    let machine = Machine::new("22 1 0:30 / / rw - fuse.sshfs remote rw\n");
    let environment = machine.inspect(0x6573_5546, (0, 30), "/x");
    assert_eq!(codes(&environment), ["user-space-file-system"]);
    assert_eq!(environment.filesystem, "fuse.sshfs");
    assert_eq!(codes(&machine.inspect(0x1234, (0, 30), "/x")), ["unknown-file-system"]);
    let facts = Facts { magic: EXT4, read_only: true, device: (8, 1), free_bytes: 0, uuid: None };
    let place = Path::new("/x");
    let environment = Environment::assemble(place, place, &facts, machine.root.path());
    assert_eq!(
        environment.refusals().next().map(|f| f.code.as_str()),
        Some("read-only-file-system")
    );
}

#[test]
fn barriers_off_are_refused_and_other_options_noted() {
    for options in ["rw,nobarrier", "rw,barrier=0"] {
        let machine = Machine::new(&format!("22 1 8:1 / / rw - ext4 /dev/sda1 {options}\n"));
        let environment = machine.inspect(EXT4, (8, 1), "/x");
        assert_eq!(environment.refusals().next().map(|f| f.code.as_str()), Some("barriers-off"));
    }
    let machine = Machine::new("22 1 8:1 / / rw,sync - ext4 /dev/sda1 rw,data=journal,barrier=1\n");
    let environment = machine.inspect(EXT4, (8, 1), "/x");
    assert_eq!(codes(&environment), ["mount-option", "mount-option"]);
}

#[test]
fn memory_disks_are_refused_and_network_disks_warned_about() {
    let machine = Machine::new("22 1 252:0 / / rw - ext4 /dev/zram0 rw\n");
    machine.device("252:0", "virtual/block/zram0", &[("size", "8")]);
    machine.device("43:0", "virtual/block/nbd0", &[("size", "8")]);
    assert_eq!(machine.inspect(EXT4, (252, 0), "/").refusals().count(), 1);
    assert_eq!(codes(&machine.inspect(EXT4, (43, 0), "/")), ["network-device"]);
}

#[test]
fn only_a_real_model_makes_a_rotating_disk() {
    let machine = Machine::new("22 1 8:0 / / rw - ext4 /dev/sda rw\n");
    let disk =
        [("queue/rotational", "1"), ("device/model", "ST4000NM0035"), ("device/vendor", "ATA")];
    machine.device("8:0", "block/sda", &disk);
    machine.device("254:0", "block/vda", &[("queue/rotational", "1")]);
    assert!(machine.inspect(EXT4, (8, 0), "/").rotating().is_some());
    assert!(machine.inspect(EXT4, (254, 0), "/").rotating().is_none());
    machine.file("sys/devices/block/sda/device/vendor", "QEMU");
    assert!(machine.inspect(EXT4, (8, 0), "/").rotating().is_none());
}

#[test]
fn cgroup_limits_on_any_layer_are_named_for_both_versions() {
    let machine = Machine::new(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
         40 22 0:35 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
         41 22 0:36 / /sys/fs/blkio rw - cgroup cgroup rw,blkio\n",
    );
    machine.device("8:0", "block/sda", DISK);
    machine.device("8:1", "block/sda/sda1", &[("partition", "1")]);
    machine.file("proc/self/cgroup", "5:blkio:/old\n0::/pods/one\n");
    machine.file(
        "sys/fs/cgroup/pods/io.max",
        "8:0 rbps=max wbps=max riops=max wiops=120\n9:9 wiops=1\n",
    );
    machine.file("sys/fs/blkio/old/blkio.throttle.write_bps_device", "8:0 1048576\n");
    let environment = machine.inspect(EXT4, (8, 1), "/x");
    let limits: Vec<_> =
        environment.limits.iter().map(|l| (l.group.as_str(), l.kind.as_str(), l.value)).collect();
    assert_eq!(limits, [("/old", "wbps", 1_048_576), ("/pods", "wiops", 120)]);
    assert!(environment.findings[0].text.contains("not the disk"));
    let namespace = machine.root.path().join("proc/self/ns");
    fs::create_dir_all(&namespace).expect("made");
    symlink("cgroup:[4026532999]", namespace.join("cgroup")).expect("linked");
    assert!(codes(&machine.inspect(EXT4, (8, 1), "/x")).contains(&"cgroup-namespace"));
}

#[test]
fn udev_links_give_the_uuid_where_the_kernel_does_not() {
    let machine = Machine::new("22 1 8:0 / / rw - ext4 /dev/sda rw\n");
    machine.device("8:0", "block/sda", &[("size", "8")]);
    let links = machine.root.path().join("dev/disk/by-uuid");
    fs::create_dir_all(&links).expect("made");
    symlink("../../sdb", links.join("0000-wrong")).expect("linked");
    symlink("../../sda", links.join("1111-right")).expect("linked");
    let environment = machine.inspect(EXT4, (8, 0), "/");
    assert_eq!(environment.fs_uuid.as_deref(), Some("1111-right"));
    assert!(Identity::of(&environment).weak());
}

#[test]
fn only_decisive_changes_force_a_new_probe() {
    let machine = Machine::new("22 1 8:0 / / rw,relatime - ext4 /dev/sda rw,data=ordered\n");
    machine.device("8:0", "block/sda", DISK);
    let before = Conditions::of(&machine.inspect(EXT4, (8, 0), "/"));
    machine.file("proc/sys/kernel/osrelease", "6.2.0\n");
    machine
        .file("proc/self/mountinfo", "22 1 8:0 / / rw,noatime - ext4 /dev/sda rw,data=ordered\n");
    let (changes, forced) = before.changes(&Conditions::of(&machine.inspect(EXT4, (8, 0), "/")));
    assert!(changes.len() == 2 && !forced, "{changes:?}");
    machine.file("proc/self/mountinfo", "22 1 8:0 / / rw - ext4 /dev/sda rw,data=writeback\n");
    let (_, forced) = before.changes(&Conditions::of(&machine.inspect(EXT4, (8, 0), "/")));
    assert!(forced);
}

#[test]
fn a_machine_without_sys_and_proc_is_inspected_and_says_what_is_missing() {
    let empty = tempfile::tempdir().expect("a directory");
    let facts = Facts { magic: EXT4, read_only: false, device: (8, 1), free_bytes: 1, uuid: None };
    let environment = Environment::assemble(Path::new("/x"), Path::new("/x"), &facts, empty.path());
    assert_eq!(environment.filesystem, "ext4");
    assert!(environment.unread.len() >= 2, "{:?}", environment.unread);
    assert!(Identity::of(&environment).unknown());
    let identity = Identity::of(&environment);
    assert!(!identity.same_device(&identity.clone()));
}

#[test]
fn the_nearest_existing_parent_is_found_and_a_file_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let base = directory.path().canonicalize().expect("a path");
    assert_eq!(nearest_existing(&base.join("a/b/c")).expect("found"), base);
    fs::write(base.join("file"), "").expect("written");
    for path in ["file", "file/below"] {
        let found = nearest_existing(&base.join(path));
        assert!(matches!(found, Err(ProbeError::NotADirectory(_))), "{found:?}");
    }
    symlink("nowhere", base.join("dangling")).expect("linked");
    assert_eq!(nearest_existing(&base.join("dangling/x")).expect("found"), base);
}

#[test]
fn the_real_host_has_a_file_system() {
    let environment = Environment::inspect(Path::new("/")).expect("a root");
    assert!(!environment.filesystem.is_empty() && environment.free_bytes > 0);
}

#[test]
fn disk_counters_are_read_by_position() {
    let machine = Machine::new("");
    let stat = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n";
    machine.file("sys/block/sda/stat", stat);
    machine.file("sys/block/old/stat", "1 2 3 4 5 6 7 8 9 10 11\n");
    let read = block::stat(machine.root.path(), "sda").expect("read");
    assert_eq!((read.busy_ms, read.flushes), (10, Some(16)));
    assert_eq!(block::stat(machine.root.path(), "old").expect("read").flushes, None);
    assert_eq!(block::stat(machine.root.path(), "gone"), None);
}

mod stacks;
