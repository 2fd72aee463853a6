//! Devices and limits that the first fixtures do not have.

use super::*;

#[test]
fn a_mirror_of_two_nvme_disks_leads_to_both() {
    let machine = Machine::new("22 1 9:0 / / rw - xfs /dev/md0 rw\n");
    for (number, name, wwid) in [("259:0", "nvme0n1", "eui.01"), ("259:1", "nvme1n1", "eui.02")] {
        let files = [
            ("size", "1000"),
            ("wwid", wwid),
            ("queue/write_cache", "write through"),
            ("queue/fua", "1"),
            ("queue/logical_block_size", "512"),
            ("queue/physical_block_size", "4096"),
            ("queue/wbt_lat_usec", "2000"),
        ];
        machine.device(number, &format!("pci/nvme/{name}"), &files);
    }
    let md = [("md/level", "raid1"), ("md/uuid", "11:22"), ("size", "1000")];
    machine.device("9:0", "virtual/block/md0", &md);
    machine.slave("virtual/block/md0", "pci/nvme/nvme0n1");
    machine.slave("virtual/block/md0", "pci/nvme/nvme1n1");
    let environment = machine.inspect(0x5846_5342, (9, 0), "/data");
    assert_eq!(environment.layers, ["md0 (raid1)", "nvme0n1 (NVMe)", "nvme1n1 (NVMe)"]);
    assert_eq!(environment.layer_uuids, ["11:22"]);
    let leaf = &environment.leaves[0];
    assert_eq!((leaf.fua, leaf.physical_block), (Some(true), Some(4_096)));
    assert_eq!((leaf.logical_block, leaf.writeback_target_us), (Some(512), Some(2_000)));
    assert!(!environment.write_back() && environment.unread.is_empty());
    let page = crate::report::inspect::render(&environment);
    assert!(page.contains("write through: the kernel sends no flushes"), "{page}");
    assert!(page.contains("512 B logical, 4096 B physical") && page.contains("(FUA)"), "{page}");
}

#[test]
fn an_encrypted_partition_of_a_virtual_disk_is_followed_to_the_disk() {
    let machine = Machine::new("22 1 253:1 / / rw - ext4 /dev/mapper/safe rw\n");
    let disk = [("size", "4096"), ("queue/rotational", "1"), ("queue/write_cache", "write back")];
    machine.device("254:0", "virtio0/block/vda", &disk);
    machine.device("254:3", "virtio0/block/vda/vda3", &[("partition", "3")]);
    let dm = [("dm/uuid", "CRYPT-LUKS2-77"), ("dm/name", "safe")];
    machine.device("253:1", "virtual/block/dm-1", &dm);
    machine.slave("virtual/block/dm-1", "virtio0/block/vda/vda3");
    let environment = machine.inspect(EXT4, (253, 1), "/data");
    assert_eq!(environment.layers, ["dm-1 (encrypted safe)", "vda3 (partition)", "vda (virtio)"]);
    assert!(Identity::of(&environment).weak() && codes(&environment).is_empty());
    let page = crate::report::inspect::render(&environment);
    assert!(page.contains("weak: no serial number") && page.contains("7 days"), "{page}");
    assert!(page.contains("it is not believed"), "virtual disks claim to rotate: {page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
}

#[test]
fn rotating_disks_cloud_volumes_and_btrfs_are_warned_about() {
    let machine = Machine::new("22 1 0:44 / / rw,compress=zstd:1 - btrfs /dev/sdz rw\n");
    let environment = machine.inspect(0x9123_683E, (0, 44), "/data");
    assert_eq!(codes(&environment), ["copy-on-write"]);
    assert_eq!(environment.findings[0].severity, Severity::Warn);

    let machine = Machine::new("22 1 8:0 / / rw - ext4 /dev/sda rw\n");
    let disk =
        [("queue/rotational", "1"), ("device/model", "ST4000NM0035"), ("device/vendor", "ATA")];
    machine.device("8:0", "block/sda", &disk);
    let environment = machine.inspect(EXT4, (8, 0), "/data");
    assert_eq!(codes(&environment), ["rotating-disk"]);
    assert_eq!(environment.findings[0].severity, Severity::Warn);

    let machine = Machine::new("22 1 259:0 / / rw - ext4 /dev/nvme0n1 rw\n");
    let disk = [("device/model", "Amazon Elastic Block Store"), ("size", "8")];
    machine.device("259:0", "block/nvme0n1", &disk);
    let environment = machine.inspect(EXT4, (259, 0), "/data");
    assert_eq!(codes(&environment), ["cloud-disk"]);
    assert_eq!(environment.refusals().count(), 0);
}

#[test]
fn fuse_on_a_block_device_is_a_warning_and_fuse_on_nothing_a_refusal() {
    let machine = Machine::new("22 1 8:1 / / rw - fuseblk /dev/sda1 rw\n");
    machine.device("8:0", "block/sda", DISK);
    machine.device("8:1", "block/sda/sda1", &[("partition", "1")]);
    let environment = machine.inspect(0x6573_5546, (8, 1), "/data");
    assert_eq!(codes(&environment), ["user-space-file-system"]);
    assert_eq!(environment.refusals().count(), 0);
    let machine = Machine::new("22 1 0:30 / / rw - fuse.sshfs remote rw\n");
    let environment = machine.inspect(0x6573_5546, (0, 30), "/data");
    let refusal = environment.refusals().next().expect("refused");
    assert!(refusal.text.contains("fuse.sshfs"), "{refusal:?}");
}

#[test]
fn weights_targets_and_waiting_are_told() {
    let machine = Machine::new(
        "22 1 8:0 / / rw - ext4 /dev/sda rw\n40 22 0:35 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    );
    machine.device("8:0", "block/sda", DISK);
    machine.file("proc/self/cgroup", "0::/pods/one\n");
    machine.file("proc/pressure/io", "some avg10=1 avg60=2.50 total=1\nfull avg60=0.50 total=1\n");
    machine.file("sys/fs/cgroup/pods/one/io.pressure", "some avg60=7.25 total=1\n");
    machine.file("sys/fs/cgroup/pods/one/io.weight", "default 50\n8:0 80\n");
    machine.file("sys/fs/cgroup/pods/io.weight", "default 100\n");
    machine.file("sys/fs/cgroup/pods/io.latency", "8:0 target=75000\n9:9 target=1\n");
    let environment = machine.inspect(EXT4, (8, 0), "/data");
    assert_eq!(environment.shares.len(), 2, "{:?}", environment.shares);
    assert!(environment.shares[0].contains("/pods/one has an I/O weight of 50"));
    assert!(environment.shares[1].contains("75000 us on device 8:0"));
    let waiting: Vec<(&str, f64, f64)> = environment
        .pressure
        .iter()
        .map(|pressure| (pressure.of.as_str(), pressure.some_avg60, pressure.full_avg60))
        .collect();
    assert_eq!(waiting, [("/pods/one", 7.25, 0.0), ("host", 2.5, 0.5)]);
    assert!(environment.limits.is_empty(), "neither is a limit");
}

#[test]
fn every_page_about_a_refused_place_says_so_last() {
    let machine = Machine::new(
        "22 1 0:40 / /mem rw - tmpfs tmpfs rw\n23 1 0:41 / /net rw - nfs4 server:/export rw\n",
    );
    for (magic, place) in [(0x0102_1994, "/mem"), (0x6969, "/net")] {
        let page = crate::report::inspect::render(&machine.inspect(magic, (0, 40), place));
        let last = page.rsplit("\n\n").next().expect("a paragraph");
        assert!(last.starts_with("REFUSED:"), "{page}");
        assert!(page.contains("no block device of this host"), "{page}");
    }
}
