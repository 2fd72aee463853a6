//! Tests of both disks: the real one in a temporary directory, the simulated one in all its moods.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::telemetry::io::{FileKind, IoOp, IoStats};

const KIND: FileKind = FileKind::Wal;

/// The promises every disk keeps, whatever is below.
fn contract(disk: &dyn Disk, root: &Path) {
    let dir = root.join("member/wal");
    disk.create_dir(&dir).unwrap();
    disk.create_dir(&dir).unwrap();
    let path = dir.join("a");
    assert!(disk.open(&path, KIND, Open::Read).unwrap_err().is_not_found());
    let file = disk.open(&path, KIND, Open::CreateNew).unwrap();
    assert!(disk.open(&path, KIND, Open::CreateNew).is_err());
    file.allocate(8192).unwrap();
    assert_eq!(file.len().unwrap(), 8192);
    file.allocate(100).unwrap();
    assert_eq!(file.len().unwrap(), 8192, "never shrinks");
    file.write_at(b"hello", 4090).unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    file.drop_cache().unwrap();
    let mut buf = [0; 6];
    file.read_at(&mut buf, 4089).unwrap();
    assert_eq!(&buf, b"\0hello");
    assert!(file.read_at(&mut buf, 8190).is_err(), "no short reads");
    file.set_len(4092).unwrap();
    file.set_len(4096).unwrap();
    file.read_at(&mut buf, 4090).unwrap();
    assert_eq!(&buf, b"he\0\0\0\0", "what was cut off reads as zeros");

    let to = dir.join("b");
    disk.rename(&path, &to, KIND).unwrap();
    disk.sync_dir(&dir, KIND).unwrap();
    let names = |dir: &Path| {
        disk.list(dir).unwrap().into_iter().map(|e| (e.name, e.is_dir, e.len)).collect::<Vec<_>>()
    };
    assert_eq!(names(&dir), [("b".to_owned(), false, 4096)]);
    assert_eq!(names(&root.join("member")), [("wal".to_owned(), true, 0)]);
    assert!(disk.exists(&to).unwrap() && !disk.exists(&path).unwrap());

    let lock = disk.open(&dir.join("lock"), FileKind::Lock, Open::CreateOrOpen).unwrap();
    let other = disk.open(&dir.join("lock"), FileKind::Lock, Open::CreateOrOpen).unwrap();
    assert!(lock.try_lock().unwrap());
    assert!(!other.try_lock().unwrap());
    drop(other);
    let other = disk.open(&dir.join("lock"), FileKind::Lock, Open::ReadWrite).unwrap();
    assert!(!other.try_lock().unwrap(), "closing a handle without the lock frees nothing");
    drop(lock);
    assert!(other.try_lock().unwrap());

    disk.remove(&to, KIND).unwrap();
    assert!(disk.remove(&to, KIND).unwrap_err().is_not_found());
    assert!(disk.free(&dir).unwrap().bytes > 0);
    let stats = disk.stats();
    assert_eq!(stats.latency(KIND, IoOp::SyncData).snapshot().count, 1);
    assert_eq!(stats.bytes(KIND, IoOp::Write), 5);
    assert_eq!(stats.errors(KIND, IoOp::Read), 1);
    assert_eq!(stats.errors(KIND, IoOp::Remove), 1);
}

#[test]
fn real_disk_keeps_the_contract() {
    let root = tempfile::tempdir().unwrap();
    let disk = OsDisk::new(Arc::new(IoStats::new()));
    contract(&disk, root.path());
    let mode = |p: PathBuf| p.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(root.path().join("member")), 0o700);
    assert_eq!(mode(root.path().join("member/wal/lock")), 0o600);
}

#[test]
fn simulated_disk_keeps_the_contract() {
    contract(&SimDisk::new(), Path::new("/data"));
}

#[test]
fn messages_say_what_where_and_why() {
    let disk = SimDisk::new();
    let file = disk.open(Path::new("/x"), KIND, Open::CreateNew).unwrap();
    disk.set_capacity(Some(1024));
    let fault = file.write_at(&[1; 2048], 123).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "write of /x at 123 failed: No space left on device (os error 28)"
    );
    assert!(fault.is_no_space());
    let fault = file.sync_data().unwrap_err();
    assert!(fault.to_string().contains("earlier write or sync"), "{fault}");
    assert!(file.read_at(&mut [0], 0).is_err(), "a poisoned file refuses everything");
}

#[test]
fn a_write_that_may_wait_for_room_poisons_for_every_other_reason_only() {
    let disk = SimDisk::new();
    let file = disk.open(Path::new("/x"), KIND, Open::CreateNew).unwrap();
    disk.set_capacity(Some(1024));
    assert!(file.write_at_or_full(&[1; 2048], 0).unwrap_err().is_no_space());
    disk.set_capacity(None);
    file.write_at_or_full(&[2; 2048], 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.contents(Path::new("/x")).unwrap(), [2; 2048]);
    disk.plan(disk.ops(), Action::ShortWrite(libc::EIO));
    assert!(!file.write_at_or_full(&[3; 2048], 0).unwrap_err().is_no_space());
    assert!(file.sync_data().unwrap_err().to_string().contains("earlier write or sync"));
}

fn two_sectors() -> (SimDisk, File) {
    let disk = SimDisk::new();
    let file = disk.open(Path::new("/f"), KIND, Open::CreateNew).unwrap();
    file.write_at(&[1; 1024], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/"), KIND).unwrap();
    (disk, file)
}

#[test]
fn power_loss_chooses_per_sector() {
    let (disk, file) = two_sectors();
    file.write_at(&[2; 600], 300).unwrap();
    assert_eq!(disk.unsynced(), 2);
    for bits in 0..4 {
        let copy = disk.fork();
        copy.power_loss(PowerLoss::Subset(bits), &mut SimRng::new(1));
        let data = copy.contents(Path::new("/f")).unwrap();
        assert_eq!((data[299], data[900]), (1, 1));
        assert_eq!(data[300] == 2, bits & 1 == 1);
        assert_eq!(data[899] == 2, bits & 2 == 2);
        assert_eq!(copy.unsynced(), 0);
    }
    file.sync_data().unwrap();
    assert_eq!(disk.unsynced(), 0);
    disk.power_loss(PowerLoss::LoseAll, &mut SimRng::new(1));
    assert_eq!(disk.contents(Path::new("/f")).unwrap()[300], 2);
    assert!(file.len().is_err(), "handles do not survive");
}

#[test]
fn length_and_content_are_lost_separately() {
    let (disk, file) = two_sectors();
    file.write_at(&[7; 512], 1024).unwrap();
    assert_eq!(disk.unsynced(), 2);
    let image = |bits| {
        let copy = disk.fork();
        copy.power_loss(PowerLoss::Subset(bits), &mut SimRng::new(1));
        copy.contents(Path::new("/f")).unwrap()
    };
    assert_eq!(image(0).len(), 1024);
    assert_eq!(image(2).len(), 1024, "content without length is gone");
    assert_eq!(image(1)[1024..], [0; 512], "length without content reads as zeros");
    assert_eq!(image(3)[1024..], [7; 512]);
    // A truncation that did not happen leaves the old content, whatever was written since.
    file.sync_data().unwrap();
    file.set_len(100).unwrap();
    disk.power_loss(PowerLoss::LoseAll, &mut SimRng::new(1));
    let data = disk.contents(Path::new("/f")).unwrap();
    assert_eq!((data.len(), data[99], data[100], data[1500]), (1536, 1, 1, 7));
}

#[test]
fn random_power_loss_shows_every_kind_of_survivor() {
    let (disk, file) = two_sectors();
    file.write_at(&[2; 512], 0).unwrap();
    file.write_at(&[3; 512], 0).unwrap();
    let mut rng = SimRng::new(3);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let copy = disk.fork();
        copy.power_loss(PowerLoss::Random { torn: true }, &mut rng);
        let data = copy.contents(Path::new("/f")).unwrap();
        seen.insert(if data[0] == data[511] { data[0] } else { 99 });
        assert_eq!(data[512], 1);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 3, 99]);
}

#[test]
fn names_are_lost_in_order_and_never_half() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/d")).unwrap();
    for name in ["/d/a", "/d/b", "/d/c"] {
        disk.open(Path::new(name), KIND, Open::CreateNew).unwrap();
    }
    disk.sync_dir(Path::new("/d"), KIND).unwrap();
    disk.rename(Path::new("/d/a"), Path::new("/d/z"), KIND).unwrap();
    disk.remove(Path::new("/d/b"), KIND).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let copy = disk.fork();
        copy.power_loss(PowerLoss::Random { torn: false }, &mut SimRng::new(seed));
        let names = copy.list(Path::new("/d")).unwrap();
        seen.insert(names.into_iter().map(|e| e.name).collect::<Vec<_>>().join(""));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["abc", "bcz", "cz"]);
}

#[test]
fn failed_sync_drops_dirty_sectors_and_lies_afterwards() {
    for reads in [StaleReads::New, StaleReads::Old] {
        let (disk, file) = two_sectors();
        file.write_at(&[2; 512], 0).unwrap();
        disk.plan(disk.ops(), Action::DropDirty(reads));
        assert!(file.sync_data().is_err());
        disk.restart();
        let file = disk.open(Path::new("/f"), KIND, Open::ReadWrite).unwrap();
        file.sync_data().unwrap();
        let seen = disk.contents(Path::new("/f")).unwrap()[0];
        assert_eq!(seen, if reads == StaleReads::New { 2 } else { 1 });
        let powerless = disk.fork();
        powerless.power_loss(PowerLoss::KeepAll, &mut SimRng::new(1));
        assert_eq!(powerless.contents(Path::new("/f")).unwrap()[0], 1, "the sync was a lie");
        // Dropping the cache shows what the device has; rewriting and syncing makes it good.
        file.write_at(&[2; 512], 0).unwrap();
        file.sync_data().unwrap();
        disk.power_loss(PowerLoss::LoseAll, &mut SimRng::new(1));
        assert_eq!(disk.contents(Path::new("/f")).unwrap()[0], 2);
    }
}

#[test]
fn crashes_errors_and_hooks_at_an_operation() {
    let (disk, file) = two_sectors();
    let first = disk.ops();
    disk.plan(first, Action::ShortWrite(libc::ENOSPC));
    assert!(file.write_at(&[9; 100], 0).unwrap_err().is_no_space());
    assert_eq!(disk.contents(Path::new("/f")).unwrap()[49..51], [9, 1]);
    disk.plan(first + 1, Action::CrashHalfway);
    let file = disk.open(Path::new("/f"), KIND, Open::ReadWrite).unwrap();
    assert!(file.write_at(&[8; 100], 0).is_err());
    assert!(disk.crashed());
    assert!(disk.list(Path::new("/")).is_err(), "a dead process does nothing");
    disk.restart();
    assert_eq!(disk.contents(Path::new("/f")).unwrap()[49..51], [8, 1], "the cache survives");

    let file = disk.open(Path::new("/f"), KIND, Open::ReadWrite).unwrap();
    disk.start_recording();
    disk.set_hook(|op| match op.op {
        IoOp::SyncData => Action::Fail(libc::EIO),
        _ => Action::Proceed,
    });
    file.write_at(&[5], 3).unwrap();
    assert!(file.sync_data().is_err());
    let seen: Vec<_> = disk.recorded().into_iter().map(|o| (o.op, o.offset, o.bytes)).collect();
    assert_eq!(seen, [(IoOp::Write, 3, 1), (IoOp::SyncData, 0, 0)]);
    assert!(disk.flip_bit(Path::new("/f"), 3, 1));
    assert_eq!(disk.contents(Path::new("/f")).unwrap()[3], 7);
}
