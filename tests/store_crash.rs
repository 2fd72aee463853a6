//! Power loss against the store: a scripted workload is repeated with a crash at each disk
//! operation, the power fails in several ways, and the real open has to find a whole commit.
//!
//! Checked after every crash: no commit that returned is lost; the applied index, the revision, the
//! small tables and the rows belong to one and the same batch; the store accepts more commits.
//! Sync errors are tried the same way, with pages that read well until the power fails.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use assay::disk::{Action, Disk, PowerLoss, SimDisk, SimRng, StaleReads};
use assay::mvcc::{Revision, Rows};
use assay::store::{self, Batch, Loaded, Shared, StoreError, Table, Writer};
use assay::telemetry::io::IoOp;
use bytes::Bytes;

const DIR: &str = "/data/member";
const PATH: &str = "/data/member/store.redb";

/// Batches of one workload.
const BATCHES: u64 = 6;

fn open(disk: &SimDisk) -> Result<(Writer, Shared, Loaded), StoreError> {
    // A small cache, so that dirty pages are also written before the commit.
    let options = store::Options { cache_bytes: 64 << 10, ..store::Options::default() };
    store::open(Arc::new(disk.clone()), Path::new(PATH), &options)
}

/// Batch `n` of the workload of `seed`; everything in it follows from these two numbers.
fn batch(seed: u64, n: u64) -> Batch {
    let mut rng = SimRng::new(seed.wrapping_mul(1_000_003).wrapping_add(n));
    let first = revision_after(seed, n - 1) + 1;
    let last = revision_after(seed, n);
    let rows = (first..=last)
        .map(|main| {
            let size = if rng.below(20) == 0 { 60_000 } else { 8 + rng.below(2_500) };
            (Revision { main, sub: 0 }, main % 7 == 0, value(main, size as usize))
        })
        .collect();
    let dropped = (1..first)
        .filter(|main| (main * 31 + n as i64) % 5 == 0)
        .map(|main| (Revision { main, sub: 0 }, main % 7 == 0))
        .collect();
    let alarm = n.is_multiple_of(2).then(|| Bytes::from_static(b"x"));
    let small = vec![
        (Table::Leases, Bytes::from(format!("lease {}", n % 3)), Some(Bytes::from(n.to_string()))),
        (Table::Alarms, Bytes::from_static(b"alarm"), alarm),
    ];
    Batch {
        rows,
        dropped,
        small,
        applied: (n * 10, n),
        conf_state: Some(Bytes::from(format!("conf {n}"))),
        revision: last,
        running: None,
        content_before: None,
        bytes: 0,
    }
}

fn revision_after(seed: u64, n: u64) -> i64 {
    (1..=n).map(|n| 1 + SimRng::new(seed ^ (n << 20)).below(25) as i64).sum()
}

fn value(main: i64, size: usize) -> Bytes {
    let mut value = vec![main as u8; size];
    value[..8].copy_from_slice(&main.to_be_bytes());
    Bytes::from(value)
}

/// What the file must hold after some batches.
#[derive(Default)]
struct Model {
    rows: BTreeMap<Revision, (bool, Bytes)>,
    small: BTreeMap<(Table, Bytes), Bytes>,
}

fn model(seed: u64, batches: u64) -> Model {
    let mut model = Model::default();
    for n in 1..=batches {
        let batch = batch(seed, n);
        model.rows.extend(batch.rows.into_iter().map(|(r, t, b)| (r, (t, b))));
        for (revision, _) in batch.dropped {
            model.rows.remove(&revision);
        }
        for (table, key, value) in batch.small {
            match value {
                Some(value) => model.small.insert((table, key), value),
                None => model.small.remove(&(table, key)),
            };
        }
    }
    model
}

/// Opens and checks that the state is that of a whole number of batches, at least `returned` and
/// at most `started`; returns that number.
fn check(disk: &SimDisk, seed: u64, returned: u64, started: u64, what: &str) -> (Writer, u64) {
    let (writer, shared, loaded) =
        open(disk).unwrap_or_else(|error| panic!("seed {seed}, {what}: open failed: {error}"));
    let n = loaded.applied.0 / 10;
    assert!(
        (returned..=started).contains(&n),
        "seed {seed}, {what}: {returned} commits returned, {started} started, {n} are there"
    );
    assert_eq!(loaded.applied, (n * 10, n), "seed {seed}, {what}");
    assert_eq!(loaded.revision, revision_after(seed, n), "seed {seed}, {what}: revision");
    let conf = if n == 0 { String::new() } else { format!("conf {n}") };
    assert_eq!(loaded.conf_state, Bytes::from(conf), "seed {seed}, {what}: configuration");
    let model = model(seed, n);
    assert_eq!(loaded.small, model.small, "seed {seed}, {what}: small tables");
    let mut rows = BTreeMap::new();
    shared
        .scan(0, i64::MAX, &mut |revision, tombstone, bytes| {
            rows.insert(revision, (tombstone, bytes));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(rows == model.rows, "seed {seed}, {what}: rows differ after batch {n}");
    (writer, n)
}

/// Runs batches after `done` until one fails; returns how many have returned in all.
fn run(seed: u64, writer: &mut Writer, done: u64) -> u64 {
    let failed = (done + 1..=BATCHES).find(|&n| writer.commit(batch(seed, n)).is_err());
    failed.map_or(BATCHES, |n| n - 1)
}

fn new_disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir(Path::new(DIR)).unwrap();
    disk
}

/// The whole workload with `action` at operation `at`; returns how many commits returned.
fn run_with(disk: &SimDisk, seed: u64, at: u64, action: Action) -> u64 {
    disk.plan(at, action);
    match open(disk) {
        Ok((mut writer, _shared, _)) => run(seed, &mut writer, 0),
        Err(_) => 0,
    }
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok());
    0..asked.unwrap_or(default)
}

/// Operations of the undisturbed workload.
fn operations(seed: u64) -> std::ops::Range<u64> {
    let disk = new_disk();
    let first = disk.ops();
    let (mut writer, _shared, _) = open(&disk).unwrap();
    assert_eq!(run(seed, &mut writer, 0), BATCHES);
    first..disk.ops()
}

#[test]
fn power_loss_at_every_operation_keeps_whole_commits() {
    let (mut rolled_forward, mut images) = (0, 0);
    for seed in seeds(2) {
        for at in operations(seed) {
            let action = if at.is_multiple_of(2) { Action::Crash } else { Action::CrashHalfway };
            let disk = new_disk();
            let returned = run_with(&disk, seed, at, action);
            assert!(disk.crashed());
            let mut rng = SimRng::new(seed ^ at);
            for mode in [
                PowerLoss::KeepAll,
                PowerLoss::LoseAll,
                PowerLoss::Random { torn: false },
                PowerLoss::Random { torn: true },
            ] {
                let image = disk.fork();
                image.power_loss(mode, &mut rng);
                let what = format!("{action:?} at {at}, {mode:?}");
                let (mut writer, n) = check(&image, seed, returned, returned + 1, &what);
                rolled_forward += u64::from(n > returned);
                images += 1;
                // The recovered file goes on, and survives the next cut as well.
                if at.is_multiple_of(5) {
                    assert_eq!(run(seed, &mut writer, n), BATCHES, "seed {seed}, {what}");
                    image.crash();
                    drop(writer);
                    image.power_loss(PowerLoss::LoseAll, &mut rng);
                    check(&image, seed, BATCHES, BATCHES, &format!("second cut after {what}"));
                }
            }
        }
    }
    assert!(rolled_forward > 0, "no image had a commit that had not returned");
    println!("{images} images, {rolled_forward} with a commit that had not returned");
}

#[test]
fn a_kill_at_every_operation_keeps_the_cache_and_whole_commits() {
    let seed = 77;
    for at in operations(seed) {
        let disk = new_disk();
        let returned = run_with(&disk, seed, at, Action::Crash);
        disk.restart();
        let what = format!("kill at {at}");
        let (mut writer, n) = check(&disk, seed, returned, returned + 1, &what);
        // What was only in the cache when the process died has to be durable by now.
        assert_eq!(run(seed, &mut writer, n), BATCHES, "{what}");
        disk.crash();
        drop(writer);
        disk.power_loss(PowerLoss::LoseAll, &mut SimRng::new(at));
        check(&disk, seed, BATCHES, BATCHES, &format!("{what}, then a power cut"));
    }
}

/// One sync error at operation `at`, a restart on what the cache shows, more commits, a power cut.
fn sync_error(seed: u64, at: u64, stale: StaleReads, cut: PowerLoss) {
    let what = format!("sync error at {at}, {stale:?}, {cut:?}");
    let disk = new_disk();
    disk.plan(at, Action::DropDirty(stale));
    let mut returned = 0;
    if let Ok((mut writer, shared, _)) = open(&disk) {
        returned = run(seed, &mut writer, 0);
        assert!(returned < BATCHES, "seed {seed}, {what}: nothing failed");
        let again = writer.commit(batch(seed, returned + 1));
        assert!(matches!(again, Err(StoreError::Latched)), "seed {seed}, {what}");
        assert!(shared.fault().is_some(), "seed {seed}, {what}");
        disk.crash();
    }
    disk.crash();
    disk.restart();
    let (mut writer, n) = check(&disk, seed, returned, returned + 1, &what);
    let mut rng = SimRng::new(seed ^ at);
    let image = disk.fork();
    image.power_loss(cut, &mut rng);
    check(&image, seed, n, n, &format!("{what}, cut at once"));
    disk.plan(disk.ops() + rng.below(40), Action::Crash);
    let later = run(seed, &mut writer, n);
    disk.crash();
    drop(writer);
    disk.power_loss(cut, &mut rng);
    check(&disk, seed, later, later + 1, &format!("{what}, cut later"));
}

#[test]
fn sync_errors_are_latched_and_lose_nothing_after_a_restart_and_a_power_cut() {
    let mut tried = 0;
    for seed in seeds(2) {
        let disk = new_disk();
        disk.start_recording();
        let (mut writer, _shared, _) = open(&disk).unwrap();
        run(seed, &mut writer, 0);
        let is_sync = |op: IoOp| matches!(op, IoOp::SyncData | IoOp::SyncAll);
        let recorded = disk.recorded();
        let syncs = recorded.iter().filter(|op| is_sync(op.op)).map(|op| op.number);
        for at in syncs {
            for stale in [StaleReads::New, StaleReads::Old] {
                for cut in [PowerLoss::LoseAll, PowerLoss::Random { torn: true }] {
                    sync_error(seed, at, stale, cut);
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 2 * 4 * 2 * BATCHES, "{tried} sync errors are too few");
    println!("{tried} sync errors");
}
