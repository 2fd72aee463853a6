//! Records, turns of the files, and a run from writer over witness to verification.

use super::*;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn a_record_is_itself_and_nothing_else() {
    let record = encode(7, 42);
    assert_eq!(decode(7, &record), Some(42));
    assert_eq!(decode(8, &record), None, "another run");
    for at in 0..RECORD {
        let mut damaged = record;
        damaged[at] ^= 1;
        assert_ne!(decode(7, &damaged), Some(42), "byte {at}");
    }
    assert_eq!(decode(7, &[0; RECORD]), None);
}

#[test]
fn the_newest_records_of_a_whole_file_are_never_overwritten() {
    let newest = 5 * PER_FILE + 17;
    let places: std::collections::BTreeSet<(usize, u64)> =
        (newest + 1 - PER_FILE..=newest).map(place).collect();
    assert_eq!(places.len() as u64, PER_FILE);
    assert!(!places.contains(&place(newest + 1)), "the next record goes over an old one");
}

/// Files as after a power cut: what a writer left that never ended.
fn left(directory: &Path, run: u64, numbers: std::ops::RangeInclusive<u64>) {
    let opened = files(directory).map(|path| std::fs::File::create(path).expect("made"));
    for number in numbers {
        let (which, offset) = place(number);
        opened[which].write_all_at(&encode(run, number), offset).expect("written");
    }
}

#[test]
fn what_is_missing_is_counted_and_the_first_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let newest = PER_FILE + 1_000;
    left(directory.path(), 9, 0..=newest);
    let ledger = Ledger { run: 9, acknowledged: newest };
    let whole = verify(directory.path(), &ledger).expect("readable");
    assert_eq!(whole, Loss { looked_for: PER_FILE, lost: 0, first_lost: None });
    // One more was acknowledged than is there; then one in the middle is zeros.
    let more = Ledger { acknowledged: newest + 1, ..ledger };
    assert_eq!(verify(directory.path(), &more).expect("readable").first_lost, Some(newest + 1));
    let (which, offset) = place(PER_FILE + 500);
    let path = &files(directory.path())[which];
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("opened");
    file.write_all_at(&[0; RECORD], offset).expect("written");
    let loss = verify(directory.path(), &ledger).expect("readable");
    assert_eq!((loss.lost, loss.first_lost), (1, Some(PER_FILE + 500)));
    assert!(verify(&directory.path().join("none"), &ledger).is_err());
}

#[test]
fn a_witness_keeps_what_a_writer_told_and_the_writer_cleans_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    std::fs::create_dir(&data).expect("made");
    let path = directory.path().join("ledger");
    let (go, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sender, address) = channel();
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| {
            witness("127.0.0.1:0", &path, &go, &mut |at| sender.send(at).expect("received"))
        });
        let at = address.recv().expect("listening").to_string();
        let (data, stop) = (&data, &stop);
        let writer = scope
            .spawn(move || write(data, &at, 5, Duration::from_secs(60), stop).expect("written"));
        // Known to the witness means synced before.
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while !Ledger::load(&path).is_ok_and(|ledger| ledger.acknowledged >= 10) {
            assert!(std::time::Instant::now() < deadline, "no number reached the ledger");
            std::thread::yield_now();
        }
        let ledger = Ledger::load(&path).expect("a ledger");
        let loss = verify(data, &ledger).expect("readable while it runs");
        assert_eq!((ledger.run, loss.lost), (5, 0));
        stop.store(true, Ordering::Relaxed);
        let written = writer.join().expect("no panic");
        let known = keeper.join().expect("no panic").expect("no error").expect("a writer came");
        assert_eq!(known.acknowledged + 1, written.records);
        assert_eq!(Ledger::load(&path).expect("a ledger"), known);
    });
    assert_eq!(std::fs::read_dir(&data).expect("listed").count(), 0);
}

#[test]
fn existing_files_are_not_touched() {
    let directory = tempfile::tempdir().expect("a directory");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = listener.local_addr().expect("an address").to_string();
    let path = &files(directory.path())[0];
    std::fs::write(path, "evidence").expect("written");
    let stop = AtomicBool::new(false);
    let error = write(directory.path(), &at, 1, Duration::from_secs(1), &stop).expect_err("there");
    assert!(error.to_string().contains("remove what an earlier run left"), "{error}");
    assert_eq!(std::fs::read(path).expect("readable"), b"evidence");
}
