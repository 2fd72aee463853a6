//! Power cuts, crashes and failed syncs at every operation of the write-ahead log.
//!
//! A scripted writer runs once on the simulated disk; before every changing operation the disk is
//! copied together with what the writer was promised so far. From each copy the power fails in
//! every possible way (or 64 random ones), and the shipped recovery code has to come up with the
//! acknowledged log, or one of the states written after it, and has to keep what it returned.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "wal_crash/script.rs"]
mod script;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use assay::disk::{Action, Disk, IoOp, PowerLoss, SimDisk, SimOp, SimRng, StaleReads};
use assay::wal::{Batch, Options, WalError};

use script::{DIR, Model, Promise, SEGMENT, Writer, entry, options, recover};

/// Subsets of unsynced sectors are tried exhaustively up to this number of sectors.
const EXHAUSTIVE: usize = 12;
/// Random survivors tried where there are more.
const RANDOM: u64 = 64;

/// A moment: the disk before an operation, and the promise at that time.
struct Moment {
    op: SimOp,
    disk: SimDisk,
    promise: Promise,
}

/// Runs the script and remembers the moment before every changing operation.
fn moments(seed: u64, steps: usize) -> Vec<Moment> {
    let disk = SimDisk::new();
    let promise = Arc::new(Mutex::new(Promise::default()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (all, now, origin) = (Arc::clone(&seen), Arc::clone(&promise), disk.clone());
    disk.set_hook(move |op| {
        let (op, promise) = (op.clone(), now.lock().unwrap().clone());
        all.lock().unwrap().push(Moment { op, disk: origin.fork(), promise });
        Action::Proceed
    });
    let mut writer = Writer::new(&disk, &promise, seed);
    writer.start().unwrap();
    for _ in 0..steps {
        writer.step().unwrap();
    }
    disk.clear_faults();
    std::mem::take(&mut *seen.lock().unwrap())
}

/// How many futures were tried, and which promises were broken.
#[derive(Default)]
struct Tally {
    images: u64,
    cut: u64,
    broken: Vec<String>,
}

impl Tally {
    fn assert_kept(&self) {
        let broken = &self.broken;
        assert!(broken.is_empty(), "{} of {}, first:\n{}", broken.len(), self.images, broken[0]);
    }
}

/// Recovers from an image, checks the promise, then goes on, loses the power again, and checks that
/// all that recovery returned is still there.
fn check(image: &SimDisk, promise: &Promise, opts: &Options, tally: &mut Tally, what: &str) {
    tally.images += 1;
    let (mut wal, found) = match recover(image, opts) {
        Ok(recovered) => recovered,
        // Before the first promise there may be no log yet.
        Err(WalError::Missing { .. }) if promise.states.is_empty() => return,
        Err(error) => return tally.broken.push(format!("{what}: {error}")),
    };
    tally.cut += u64::from(found.report.cut_at.is_some());
    if !promise.states.is_empty() && !promise.kept(&found) {
        let summary = Model::of(&found).summary();
        let promised: Vec<_> = promise.states.iter().map(Model::summary).collect();
        return tally.broken.push(format!(
            "{what}: recovered {summary} ({:?}), promised one of {promised:#?}",
            found.report
        ));
    }
    let mut expected = Model::of(&found);
    let next = Batch { sync: true, ..Batch::default() };
    let next = Batch { entries: vec![entry(expected.last + 1, 999, 30)], ..next };
    expected.apply(&next);
    if let Err(error) = wal.append(&next).and_then(|()| wal.commit()) {
        return tally.broken.push(format!("{what}: {error}"));
    }
    drop(wal);
    image.power_loss(PowerLoss::LoseAll, &mut SimRng::new(1));
    let again = Options { salt: opts.salt ^ 0x5555, ..opts.clone() };
    match recover(image, &again) {
        Ok((_, found)) if expected.is(&found, 0) => {}
        Ok((_, found)) => tally.broken.push(format!("{what}: lost later: {:?}", found.report)),
        Err(error) => tally.broken.push(format!("{what}: later: {error}")),
    }
}

/// Every survivor of a power cut at this moment, or a sample if there are too many.
fn power_cuts(moment: &Moment, rng: &mut SimRng, mut image: impl FnMut(SimDisk, String)) {
    let unsynced = moment.disk.unsynced();
    let modes: Vec<PowerLoss> = if unsynced <= EXHAUSTIVE {
        let torn = (0..8).map(|_| PowerLoss::Random { torn: true });
        (0..1_u64 << unsynced).map(PowerLoss::Subset).chain(torn).collect()
    } else {
        (0..RANDOM).map(|i| PowerLoss::Random { torn: i % 2 == 0 }).collect()
    };
    for mode in modes {
        let copy = moment.disk.fork();
        copy.power_loss(mode, rng);
        image(copy, format!("power cut before {:?}, {mode:?} of {unsynced}", moment.op));
    }
}

#[test]
fn no_power_cut_loses_what_was_acknowledged() {
    let mut tally = Tally::default();
    let mut rng = SimRng::new(42);
    for seed in 0..6 {
        for moment in moments(seed, 70) {
            let opts = options(rng.next_u64());
            power_cuts(&moment, &mut rng, |image, what| {
                check(&image, &moment.promise, &opts, &mut tally, &format!("seed {seed}: {what}"));
            });
            // The process dies, the page cache survives.
            let what = format!("seed {seed}: killed before {:?}", moment.op);
            check(&moment.disk, &moment.promise, &opts, &mut tally, &what);
        }
    }
    println!("{} images, {} with a torn tail", tally.images, tally.cut);
    tally.assert_kept();
    assert!(tally.images > 15_000, "{}", tally.images);
    assert!(tally.cut > tally.images / 50, "{}", tally.cut);
}

/// Syncs that do nothing must be noticed, one kind at a time, or the test above proves nothing.
#[test]
fn forgotten_syncs_are_noticed() {
    for forgotten in [IoOp::SyncData, IoOp::SyncAll, IoOp::SyncDir] {
        let mut tally = Tally::default();
        let mut rng = SimRng::new(7);
        for seed in 0..3 {
            let disk = SimDisk::new();
            let promise = Arc::new(Mutex::new(Promise::default()));
            disk.set_hook(
                move |op| {
                    if op.op == forgotten { Action::Pretend } else { Action::Proceed }
                },
            );
            let mut writer = Writer::new(&disk, &promise, seed);
            writer.start().unwrap();
            for _ in 0..30 {
                writer.step().unwrap();
                let promise = promise.lock().unwrap().clone();
                for _ in 0..4 {
                    let image = disk.fork();
                    image.power_loss(PowerLoss::Random { torn: false }, &mut rng);
                    check(&image, &promise, &options(rng.next_u64()), &mut tally, "");
                }
            }
        }
        println!("{forgotten:?}: {} of {}", tally.broken.len(), tally.images);
        assert!(!tally.broken.is_empty(), "{forgotten:?} forgotten in {} images", tally.images);
    }
}

/// Recovery itself dies at every operation, with and without a power cut, and is started again.
#[test]
fn recovery_of_recovery_loses_nothing() {
    let mut tally = Tally::default();
    let mut rng = SimRng::new(9);
    for moment in moments(3, 60).into_iter().step_by(5) {
        for _ in 0..2 {
            let image = moment.disk.fork();
            image.power_loss(PowerLoss::Random { torn: true }, &mut rng);
            for action in [Action::Crash, Action::CrashHalfway] {
                for at in 0.. {
                    let copy = image.fork();
                    copy.plan(copy.ops() + at, action);
                    let outcome = recover(&copy, &options(rng.next_u64()));
                    if outcome.is_ok() || !copy.crashed() {
                        break;
                    }
                    let opts = options(rng.next_u64());
                    let what = format!("recovery died at {at}, before {:?}", moment.op);
                    let killed = copy.fork();
                    copy.power_loss(PowerLoss::Random { torn: true }, &mut rng);
                    check(&killed, &moment.promise, &opts, &mut tally, &what);
                    check(&copy, &moment.promise, &opts, &mut tally, &what);
                }
            }
        }
    }
    println!("{} images", tally.images);
    tally.assert_kept();
    assert!(tally.images > 500, "{}", tally.images);
}

/// A failed sync drops the dirty sectors; the process stops, starts again on the same page cache,
/// acts upon what it reads, and then the power fails.
fn failed_syncs(trust_tail: bool) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..3 {
        let syncs: Vec<u64> = moments(seed, 50)
            .iter()
            .filter(|m| matches!(m.op.op, IoOp::SyncData | IoOp::SyncAll))
            .map(|m| m.op.number)
            .collect();
        for (nth, number) in syncs.into_iter().enumerate() {
            let disk = SimDisk::new();
            let promise = Arc::new(Mutex::new(Promise::default()));
            let reads = if nth % 3 == 0 { StaleReads::Old } else { StaleReads::New };
            disk.plan(number, Action::DropDirty(reads));
            let mut writer = Writer::new(&disk, &promise, seed);
            let mut outcome = writer.start();
            for _ in 0..50 {
                outcome = outcome.and_then(|()| writer.step());
            }
            assert!(outcome.is_err(), "a failed sync must stop the writer");
            drop(writer);
            disk.restart();
            let opts = Options { trust_tail, ..options(seed ^ number) };
            let promise = promise.lock().unwrap().clone();
            check(&disk, &promise, &opts, &mut tally, &format!("sync {number} of seed {seed}"));
        }
    }
    tally
}

#[test]
fn failed_sync_then_restart_then_power_cut_loses_nothing() {
    let tally = failed_syncs(false);
    tally.assert_kept();
    assert!(tally.images > 100, "{}", tally.images);
}

#[test]
fn trusting_the_tail_is_noticed() {
    let tally = failed_syncs(true);
    println!("{} of {} runs lose what recovery returned", tally.broken.len(), tally.images);
    assert!(tally.broken.len() > 10, "{} of {}", tally.broken.len(), tally.images);
}

/// A bit flips at rest in a log that was killed: refused with the place, or nothing that is
/// vouched for is missing. Only the last group, which nothing follows, cannot be told from a tail
/// that was never synced.
#[test]
fn flipped_bits_are_refused_or_only_cost_the_unproven_tail() {
    let mut rng = SimRng::new(5);
    let (mut refused, mut cut) = (0, 0);
    for last in moments(1, 90).into_iter().skip(20).step_by(9) {
        let (_, whole) = recover(&last.disk.fork(), &options(1)).unwrap();
        // The clean marker proves others and needs no proof.
        let marker = u64::from(whole.clean);
        let proven = whole.report.frames - whole.report.rewritten_frames - marker;
        let names = last.disk.list(Path::new(DIR)).unwrap();
        let files: Vec<PathBuf> = names
            .into_iter()
            .filter(|e| e.name.ends_with(".wal"))
            .map(|e| Path::new(DIR).join(e.name))
            .collect();
        for path in files {
            for offset in (rng.below(7)..SEGMENT).step_by(7) {
                let copy = last.disk.fork();
                copy.flip_bit(&path, offset, rng.below(8) as u8);
                match recover(&copy, &options(2)) {
                    Err(WalError::Damage { path: named, .. }) => {
                        assert_eq!(named, path);
                        refused += 1;
                    }
                    Err(other) => panic!("{other}"),
                    Ok((_, found)) => {
                        assert!(found.report.frames >= proven, "{offset} of {path:?}: {whole:?}");
                        if found.report.frames < whole.report.frames {
                            assert!(found.report.cut_at.is_some());
                            cut += 1;
                        } else {
                            assert_eq!(found.entries, whole.entries);
                        }
                    }
                }
            }
        }
    }
    println!("{refused} flips refused, {cut} cut an unproven tail");
    assert!(refused > 1000, "{refused}");
}
