//! Tests of the store on a simulated disk; power loss is in `tests/store_crash.rs`.

pub(crate) mod edit;
mod interleavings;
mod many_rows;
mod staged;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;

use super::*;
use crate::disk::{Action, PowerLoss, SimDisk, SimRng, StaleReads};
use crate::mvcc::{Revision, Rows, RowsError};
use crate::telemetry::io::IoOp;

pub(super) use interleavings::interleave;

type Row = (Revision, bool, Bytes);

const PATH: &str = "/data/member/store.redb";

fn new_disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/data/member")).unwrap();
    disk
}

fn try_open(disk: &SimDisk) -> Result<(Writer, Shared, Loaded), StoreError> {
    let options = Options { cache_bytes: 1 << 20, ..Options::default() };
    open(Arc::new(disk.clone()), Path::new(PATH), &options)
}

fn open_store(disk: &SimDisk) -> (Writer, Shared, Loaded) {
    try_open(disk).unwrap()
}

fn rev(main: i64, sub: i64) -> Revision {
    Revision { main, sub }
}

/// A row whose bytes follow from its revision.
fn row(main: i64, sub: i64) -> Row {
    let tombstone = (main + sub) % 5 == 0;
    (rev(main, sub), tombstone, Bytes::from(format!("row {main}.{sub}")))
}

/// The batch that brings a store from revision `from - 1` to `to`, one row per revision.
fn batch(from: i64, to: i64) -> Batch {
    Batch {
        rows: (from..=to).map(|main| row(main, 0)).collect(),
        applied: (to as u64 * 2, 3),
        revision: to,
        ..Batch::default()
    }
}

fn scan(rows: &impl Rows, from: i64, to: i64) -> Vec<Row> {
    let mut found = Vec::new();
    rows.scan(from, to, &mut |revision, tombstone, bytes| {
        found.push((revision, tombstone, bytes));
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

#[test]
fn a_new_store_is_empty_and_a_reopened_one_has_everything() {
    let disk = new_disk();
    let (mut writer, shared, loaded) = open_store(&disk);
    let (running, content) = (Some(0), Some(Content::default()));
    assert_eq!(loaded, Loaded { empty: true, running, content, ..Loaded::default() });
    let mut first = batch(2, 9);
    first.conf_state = Some(Bytes::from_static(b"conf"));
    first.small = vec![
        (Table::Leases, Bytes::from_static(b"1"), Some(Bytes::from_static(b"old"))),
        (Table::Leases, Bytes::from_static(b"1"), Some(Bytes::from_static(b"new"))),
        (Table::Members, Bytes::from_static(b"m"), Some(Bytes::from_static(b"x"))),
        (Table::Members, Bytes::from_static(b"m"), None),
        (
            Table::Meta,
            Bytes::from_static(META_SCHEDULED_COMPACT),
            Some(Bytes::copy_from_slice(&revision_value(4))),
        ),
    ];
    let stats = writer.commit(first).unwrap();
    assert_eq!((stats.rows, stats.dropped, stats.views.alive), (8, 0, 1));
    assert!(stats.syncs >= 2 && stats.writes > 0 && stats.written_bytes > 0, "{stats:?}");
    assert_eq!(shared.durable(), (18, 9));
    let hash = shared.view().hash().unwrap();
    writer.close().unwrap();
    drop(shared);

    let (_writer, shared, loaded) = open_store(&disk);
    assert_eq!(loaded.applied, (18, 3));
    assert_eq!(loaded.revision, 9);
    assert_eq!(&loaded.conf_state[..], b"conf");
    assert_eq!((loaded.scheduled_compact, loaded.finished_compact), (4, 0));
    assert!(!loaded.empty);
    let leases: Vec<_> = loaded.small.iter().filter(|((t, _), _)| *t == Table::Leases).collect();
    assert_eq!(leases.len(), 1);
    assert_eq!(&leases[0].1[..], b"new");
    assert_eq!(loaded.small.len(), 2, "the deleted member is gone");
    assert_eq!(scan(&shared, 0, i64::MAX), (2..=9).map(|main| row(main, 0)).collect::<Vec<_>>());
    assert_eq!(scan(&shared, 4, 6).len(), 3);
    assert_eq!(shared.view().hash().unwrap(), hash);
    assert_eq!(shared.file_bytes(), disk.contents(Path::new(PATH)).unwrap().len() as u64);
}

#[test]
fn an_unclean_stop_keeps_every_commit() {
    let disk = new_disk();
    for life in 0..5 {
        let (mut writer, _shared, loaded) = open_store(&disk);
        let from = loaded.revision.max(1) + 1;
        assert_eq!(from, life * 10 + 2);
        writer.commit(batch(from, from + 9)).unwrap();
        disk.crash();
        drop(writer);
        disk.restart();
    }
}

#[test]
fn rows_are_fetched_in_any_order_and_missing_ones_are_named() {
    let disk = new_disk();
    let (mut writer, shared, _) = open_store(&disk);
    let all: Vec<Row> = (1..=30).map(|main| row(main, 0)).collect();
    shared.pending().append(&all);
    writer.commit(batch(1, 20)).unwrap();
    let wanted = [rev(30, 0), rev(1, 0), rev(25, 0), rev(20, 0), rev(21, 0)];
    let found = shared.rows(&wanted).unwrap();
    let expected: Vec<Bytes> = wanted.iter().map(|r| row(r.main, r.sub).2).collect();
    assert_eq!(found, expected);
    for missing in [rev(31, 0), rev(20, 1), rev(0, 0), rev(25, 1)] {
        assert!(matches!(shared.row(missing), Err(RowsError::Missing)), "{missing:?}");
    }
    assert_eq!(shared.fault(), None);
}

#[test]
fn dropped_rows_vanish_for_new_readers_and_stay_for_old_ones() {
    let disk = new_disk();
    let (mut writer, shared, _) = open_store(&disk);
    writer.commit(batch(1, 10)).unwrap();
    let old = shared.snapshot();
    let dropped = Batch {
        dropped: (1..=5).map(|main| (rev(main, 0), row(main, 0).1)).collect(),
        ..batch(11, 12)
    };
    let stats = writer.commit(dropped).unwrap();
    assert_eq!((stats.dropped, stats.views.alive, stats.views.oldest_applied), (5, 2, 20));
    assert_eq!(old.row(rev(3, 0)).unwrap(), row(3, 0).2);
    assert!(matches!(shared.row(rev(3, 0)), Err(RowsError::Missing)));
    assert_eq!(scan(&shared, 0, i64::MAX).len(), 7);
    drop(old);
    let alive = writer.commit(batch(13, 13)).unwrap().views;
    assert_eq!(alive, ViewAges { alive: 1, oldest_applied: 26 });
}

#[test]
fn a_scan_stops_when_told() {
    let disk = new_disk();
    let (mut writer, shared, _) = open_store(&disk);
    shared.pending().append(&(1..=20).map(|main| row(main, 0)).collect::<Vec<_>>());
    writer.commit(batch(1, 10)).unwrap();
    for stop_after in [1, 10, 11, 20] {
        let mut seen = 0;
        shared
            .scan(1, 20, &mut |_, _, _| {
                seen += 1;
                if seen == stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert_eq!(seen, stop_after);
    }
    for (from, first) in [(rev(0, 0), 1), (rev(5, 0), 5), (rev(5, 1), 6), (rev(15, 3), 16)] {
        let mut seen = Vec::new();
        shared
            .scan_from(from, 18, &mut |revision, _, _| {
                seen.push(revision.main);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(seen, (first..=18).collect::<Vec<_>>(), "from {from:?}");
    }
    assert_eq!(scan(&shared, 15, 14), []);
    assert_eq!(scan(&shared, 5, 4), []);
    assert_eq!(scan(&shared, -5, 0), []);
}

#[test]
fn the_first_failed_sync_is_final() {
    for stale in [StaleReads::New, StaleReads::Old] {
        let disk = new_disk();
        let (mut writer, shared, _) = open_store(&disk);
        writer.commit(batch(1, 10)).unwrap();
        disk.set_hook(move |op| match op.op {
            IoOp::SyncData => Action::DropDirty(stale),
            _ => Action::Proceed,
        });
        let error = writer.commit(batch(11, 20)).unwrap_err();
        assert!(matches!(error, StoreError::Engine { .. }), "{error}");
        disk.clear_faults();
        assert!(matches!(writer.commit(batch(11, 20)), Err(StoreError::Latched)));
        assert_eq!(shared.durable(), (20, 10), "a failed commit is never published");
        assert!(shared.fault().is_some_and(|fault| fault.contains("nothing is retried")));
        assert!(matches!(writer.close(), Err(StoreError::Latched)));
    }
}

#[test]
fn a_full_disk_is_reported_as_such() {
    let disk = new_disk();
    let (mut writer, _shared, _) = open_store(&disk);
    disk.set_hook(|op| match op.op {
        IoOp::Write => Action::Fail(libc::ENOSPC),
        _ => Action::Proceed,
    });
    let error = writer.commit(batch(1, 10)).unwrap_err();
    let StoreError::Engine { source, .. } = &error else { panic!("{error}") };
    let redb::Error::Io(io) = &**source else { panic!("{source}") };
    assert_eq!(io.kind(), std::io::ErrorKind::StorageFull);
    assert!(error.to_string().contains(PATH), "{error}");
}

#[test]
fn a_second_open_is_refused_while_the_first_lives() {
    let disk = new_disk();
    let first = open_store(&disk);
    let error = try_open(&disk).unwrap_err();
    assert!(error.to_string().contains("open"), "{error}");
    drop(first);
    open_store(&disk);
}

#[test]
fn foreign_and_newer_files_are_refused() {
    let disk = new_disk();
    let file = disk.open(Path::new(PATH), FileKind::Store, Open::CreateNew).unwrap();
    file.write_at(b"this is not a store file, it is a letter to my aunt", 0).unwrap();
    drop(file);
    assert!(matches!(try_open(&disk), Err(StoreError::Engine { what: "open the file", .. })));

    let disk = new_disk();
    let (writer, shared, _) = open_store(&disk);
    drop(shared);
    let mut transaction = writer.into_database().begin_write().map(Some).unwrap();
    if let Some(transaction) = transaction.take() {
        transaction
            .open_table(STATE)
            .unwrap()
            .insert(STATE_FORMAT, &(FORMAT + 1).to_be_bytes()[..])
            .unwrap();
        transaction.commit().unwrap();
    }
    let error = try_open(&disk).unwrap_err();
    assert!(matches!(error, StoreError::NewerFormat { found, .. } if found == FORMAT + 1));
}

#[test]
#[should_panic(expected = "goes back")]
fn the_applied_index_never_goes_back() {
    let disk = new_disk();
    let (mut writer, _shared, _) = open_store(&disk);
    writer.commit(batch(1, 10)).unwrap();
    let _ = writer.commit(Batch { applied: (19, 3), revision: 10, ..Batch::default() });
}

#[test]
#[should_panic(expected = "outside of revisions")]
fn a_batch_holds_exactly_its_revisions() {
    let disk = new_disk();
    let (mut writer, _shared, _) = open_store(&disk);
    writer.commit(batch(1, 10)).unwrap();
    let _ = writer.commit(Batch { revision: 12, ..batch(10, 12) });
}

/// Makes room after it was asked `rounds` times.
struct Later {
    disk: SimDisk,
    rounds: AtomicU32,
    found: AtomicBool,
}

impl Room for Later {
    fn wait(&self, fault: &Fault) {
        assert!(fault.is_no_space(), "{fault}");
        if self.rounds.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.disk.set_capacity(None);
        }
    }

    fn found(&self) {
        self.found.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_commit_that_meets_a_full_disk_anywhere_waits_for_room_and_goes_on() {
    // Every amount of room up to what the commits need: the disk fills up at each of their writes.
    for kib in (0..).step_by(64) {
        let disk = new_disk();
        let later = Arc::new(Later {
            disk: disk.clone(),
            rounds: AtomicU32::new(3),
            found: AtomicBool::new(false),
        });
        let options = Options {
            cache_bytes: 1 << 20,
            room: Some(Arc::clone(&later) as _),
            ..Options::default()
        };
        let (mut writer, shared, _) =
            open(Arc::new(disk.clone()), Path::new(PATH), &options).unwrap();
        let used = disk.contents(Path::new(PATH)).unwrap().len() as u64;
        disk.set_capacity(Some(used + (kib << 10)));
        for first in [2, 102, 202] {
            let mut rows = batch(first, first + 99);
            for row in &mut rows.rows {
                row.2 = Bytes::from(vec![7; 8 << 10]);
            }
            writer.commit(rows).unwrap();
        }
        assert_eq!(shared.durable(), (602, 301));
        writer.close().unwrap();
        drop(shared);
        disk.power_loss(PowerLoss::LoseAll, &mut SimRng::new(1));
        let (_writer, shared, loaded) = open_store(&disk);
        assert_eq!(loaded.applied, (602, 3));
        assert_eq!(scan(&shared, 0, i64::MAX).len(), 300);
        if !later.found.load(Ordering::Relaxed) {
            assert!(kib > 0, "the disk was never full");
            return;
        }
    }
}
