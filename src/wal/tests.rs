//! Tests of the log on the simulated disk; power cuts are in `tests/wal_crash.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::record::{self, FrameHeader, Kind, Place};
use super::*;
use crate::disk::{Action, Disk, FileKind, IoOp, Open, OsDisk, PowerLoss, SimDisk, SimRng};

const DIR: &str = "/member/wal";
const WHO: Identity = Identity { cluster_id: 0xc1, member_id: 0x3e, format: 1 };
const SEGMENT: u64 = 8192;

fn opts() -> Options {
    Options { segment_bytes: SEGMENT, ..Options::new(7) }
}

fn entry(index: u64, term: u64, bytes: usize) -> Entry {
    let data = Bytes::from(vec![index as u8 ^ term as u8; bytes]);
    Entry {
        index,
        term,
        kind: u8::from(index.is_multiple_of(5)),
        data,
        context: Bytes::from_static(b"ctx"),
    }
}

fn batch(entries: impl IntoIterator<Item = Entry>) -> Batch {
    Batch { entries: entries.into_iter().collect(), hard_state: None, sync: true }
}

fn state(term: u64, vote: u64, commit: u64) -> HardState {
    HardState { term, vote, commit }
}

fn create(disk: &SimDisk) -> Wal {
    let first = Batch { hard_state: Some(state(1, 0, 0)), ..batch([entry(1, 1, 10)]) };
    Wal::create(Arc::new(disk.clone()), Path::new(DIR), &opts(), WHO, (0, 0), &first).unwrap()
}

fn try_recover(disk: &SimDisk) -> Result<(Wal, Recovered), WalError> {
    Wal::recover(Arc::new(disk.clone()), Path::new(DIR), &opts(), &mut |_, _| {})
}

fn recover(disk: &SimDisk) -> (Wal, Recovered) {
    try_recover(disk).unwrap()
}

fn put(wal: &mut Wal, batch: &Batch) {
    wal.append(batch).unwrap();
    wal.commit().unwrap();
}

fn segments(disk: &SimDisk) -> Vec<PathBuf> {
    let names = disk.list(Path::new(DIR)).unwrap().into_iter().map(|e| e.name);
    names.filter(|n| n.ends_with(".wal")).map(|n| Path::new(DIR).join(n)).collect()
}

#[test]
fn everything_comes_back_and_later_entries_replace() {
    let disk = SimDisk::new();
    let mut wal = create(&disk);
    put(&mut wal, &batch((2..=6).map(|i| entry(i, 1, 100 * i as usize))));
    put(&mut wal, &Batch { hard_state: Some(state(2, 3, 4)), ..batch([entry(5, 2, 0)]) });
    put(&mut wal, &batch([entry(6, 2, 1)]));
    put(&mut wal, &Batch { hard_state: Some(state(2, 3, 6)), ..Batch::default() });
    wal.close_clean().unwrap();
    let (mut wal, found) = recover(&disk);
    let want: Vec<_> = [1, 2, 3, 4]
        .map(|i| entry(i, 1, if i == 1 { 10 } else { 100 * i as usize }))
        .into_iter()
        .chain([entry(5, 2, 0), entry(6, 2, 1)])
        .collect();
    assert_eq!(found.entries, want);
    assert_eq!((found.hard_state, found.base, found.clean), (state(2, 3, 6), (0, 0), true));
    assert_eq!(found.identity, Some(WHO));
    assert_eq!((found.report.rewritten_frames, found.report.cut_at), (0, None));
    put(&mut wal, &batch([entry(7, 2, 5)]));
    drop(wal);
    let (_, found) = recover(&disk);
    assert_eq!((found.entries.len(), found.clean), (7, false));
    assert_eq!(found.report.rewritten_frames, 1, "only what nothing vouches for");
}

#[test]
fn real_files_too() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("member/wal");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(Arc::default()));
    assert_eq!(inspect(&*disk, &dir).unwrap(), Contents::Nothing);
    let opts = Options { segment_bytes: 64 * 1024, ..Options::new(1) };
    let first = batch([entry(1, 1, 10)]);
    let mut wal = Wal::create(Arc::clone(&disk), &dir, &opts, WHO, (0, 0), &first).unwrap();
    while !matches!(wal.prepare_spare(10_000).unwrap(), SpareStep::Done) {}
    (2..=400).for_each(|i| put(&mut wal, &batch([entry(i, 1, 1000)])));
    wal.truncate_front(200).unwrap();
    assert_eq!(wal.sizes().spare_segments, 2);
    drop(wal);
    let mut calls = Vec::new();
    let (wal, found) =
        Wal::recover(Arc::clone(&disk), &dir, &opts, &mut |done, all| calls.push((done, all)))
            .unwrap();
    assert!(found.base.0 > 0 && found.base.0 <= 200);
    assert_eq!(found.entries.last().unwrap(), &entry(400, 1, 1000));
    assert_eq!(found.entries.len() as u64, 400 - found.base.0);
    assert!(calls.last().is_some_and(|(done, all)| done == all && *all > 0));
    assert_eq!(inspect(&*disk, &dir).unwrap(), Contents::Log);
    assert_eq!(wal.sizes().last_index, 400);
}

#[test]
fn gaps_and_giants_are_refused_and_harm_nothing() {
    let disk = SimDisk::new();
    let mut wal = create(&disk);
    for indexes in [vec![3], vec![0], vec![2, 4], vec![2, 2]] {
        let wrong = batch(indexes.into_iter().map(|i| entry(i, 1, 1)));
        assert!(matches!(wal.append(&wrong), Err(WalError::Gap { .. })));
    }
    let giant = entry(2, 1, MAX_ENTRY_BYTES);
    assert!(matches!(wal.append(&batch([giant])), Err(WalError::TooLarge { index: 2, .. })));
    put(&mut wal, &batch([entry(2, 1, 1)]));
    drop(wal);
    assert_eq!(recover(&disk).1.entries.len(), 2);
}

#[test]
fn whatever_is_accepted_comes_back() {
    let disk = SimDisk::new();
    let mut wal = create(&disk);
    // The largest entry, a batch of many frames, and a normal one behind them.
    put(&mut wal, &batch([entry(2, 1, MAX_ENTRY_BYTES - 3)]));
    let many = batch((3..=14).map(|i| entry(i, 1, 1_500_000)));
    put(&mut wal, &Batch { hard_state: Some(state(1, 1, 14)), ..many });
    put(&mut wal, &batch([entry(15, 1, 1)]));
    drop(wal);
    let (_, found) = recover(&disk);
    assert_eq!(found.entries.len(), 15);
    assert_eq!(found.entries[1].data.len(), MAX_ENTRY_BYTES - 3);
    assert_eq!(found.entries[13], entry(14, 1, 1_500_000));
    assert_eq!(found.hard_state, state(1, 1, 14));
}

#[test]
fn one_write_and_at_most_one_sync_per_group() {
    let disk = SimDisk::new();
    let mut wal = create(&disk);
    disk.start_recording();
    for i in 2..=50 {
        wal.append(&batch([entry(i, 1, 10)])).unwrap();
    }
    wal.commit().unwrap();
    wal.append(&Batch { hard_state: Some(state(1, 0, 50)), ..Batch::default() }).unwrap();
    wal.commit().unwrap();
    wal.commit().unwrap();
    let ops: Vec<_> = disk.recorded().into_iter().map(|o| o.op).collect();
    assert_eq!(ops, [IoOp::Write, IoOp::SyncData, IoOp::Write]);
    // An empty batch that asks for a sync still gets one for what was written before.
    disk.start_recording();
    put(&mut wal, &batch([]));
    put(&mut wal, &batch([]));
    assert_eq!(disk.recorded().len(), 1);
}

#[test]
fn first_failure_is_final() {
    for op in [IoOp::Write, IoOp::SyncData] {
        let disk = SimDisk::new();
        let mut wal = create(&disk);
        disk.set_hook(move |o| if o.op == op { Action::Fail(5) } else { Action::Proceed });
        wal.append(&batch([entry(2, 1, 10)])).unwrap();
        assert!(matches!(wal.commit(), Err(WalError::Fault(_))));
        disk.clear_faults();
        assert!(matches!(wal.commit(), Err(WalError::Failed)));
        assert!(matches!(wal.append(&batch([entry(2, 1, 10)])), Err(WalError::Failed)));
        assert!(matches!(wal.truncate_front(1), Err(WalError::Failed)));
        assert!(wal.close_clean().is_err());
    }
}

#[test]
fn segments_roll_are_dropped_and_their_files_used_again() {
    let disk = SimDisk::new();
    let mut wal = create(&disk);
    let mut last = 1;
    for round in 0..12 {
        for _ in 0..20 {
            last += 1;
            put(&mut wal, &batch([entry(last, 1, 300)]));
        }
        if round >= 2 {
            let keep = wal.index_leaving(SEGMENT);
            assert!(keep < last);
            wal.truncate_front(keep).unwrap();
        }
        // Killed at every stage of reuse: leftovers of former lives must not be taken for frames.
        let copy = disk.fork();
        let (_, found) = recover(&copy);
        assert_eq!(found.entries.last(), Some(&entry(last, 1, 300)));
        assert_eq!(found.base.0 + found.entries.len() as u64, last);
    }
    let sizes = wal.sizes();
    assert!(sizes.rolls > sizes.rolls_without_spare + 3, "{sizes:?}");
    assert!(sizes.segments <= 4 && sizes.base_index > 100, "{sizes:?}");
    assert_eq!(disk.list(Path::new(DIR)).unwrap().len(), sizes.segments + sizes.spare_segments);
}

#[test]
fn restarts_neither_grow_nor_rewrite_much() {
    let disk = SimDisk::new();
    let mut wal = create(&disk);
    while !matches!(wal.prepare_spare(4096).unwrap(), SpareStep::Done) {}
    drop(wal);
    let written = disk.stats().bytes(FileKind::Wal, IoOp::Write);
    for _ in 0..20 {
        let (mut wal, found) = recover(&disk);
        assert_eq!(found.entries.len(), 1);
        assert!(matches!(wal.prepare_spare(4096).unwrap(), SpareStep::Done));
        assert_eq!((wal.sizes().segments, wal.sizes().spare_segments), (1, 2));
    }
    assert!(disk.stats().bytes(FileKind::Wal, IoOp::Write) - written < 20 * 1024);
}

#[test]
fn a_large_last_segment_is_continued_and_not_copied() {
    let disk = SimDisk::new();
    let opts = Options { segment_bytes: 4 << 20, ..Options::new(7) };
    let first = batch([entry(1, 1, 10)]);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut wal =
        Wal::create(Arc::clone(&shared), Path::new(DIR), &opts, WHO, (0, 0), &first).unwrap();
    (2..=12).for_each(|i| put(&mut wal, &batch([entry(i, 1, 100_000)])));
    wal.append(&Batch { hard_state: Some(state(1, 2, 12)), ..Batch::default() }).unwrap();
    wal.commit().unwrap();
    drop(wal);
    for restart in 0..3 {
        let written = disk.stats().bytes(FileKind::Wal, IoOp::Write);
        let (wal, found) =
            Wal::recover(Arc::clone(&shared), Path::new(DIR), &opts, &mut |_, _| {}).unwrap();
        assert_eq!(found.entries.len(), 12);
        assert_eq!(found.hard_state, state(1, 2, 12));
        assert!(disk.stats().bytes(FileKind::Wal, IoOp::Write) - written < 4096);
        assert_eq!(wal.sizes().segments, 2, "restart {restart}");
        drop(wal);
        disk.power_loss(PowerLoss::LoseAll, &mut SimRng::new(1));
    }
}

#[test]
fn reset_voids_everything_before() {
    let disk = SimDisk::new();
    let mut wal = create(&disk);
    (2..=60).for_each(|i| put(&mut wal, &batch([entry(i, 1, 300)])));
    wal.reset((1000, 4), state(5, 2, 1000)).unwrap();
    assert!(matches!(wal.append(&batch([entry(1000, 4, 1)])), Err(WalError::Gap { .. })));
    put(&mut wal, &batch([entry(1001, 5, 9)]));
    assert_eq!(wal.sizes().segments, 1);
    drop(wal);
    let (_, found) = recover(&disk);
    assert_eq!((found.base, found.hard_state), ((1000, 4), state(5, 2, 1000)));
    assert_eq!(found.entries, [entry(1001, 5, 9)]);
}

#[test]
fn full_disk_refuses_the_batch_and_recovers_without_a_restart() {
    let disk = SimDisk::new();
    let mut wal = create(&disk);
    disk.set_capacity(Some(2 * SEGMENT + 100));
    let mut last = 1;
    let fault = loop {
        match wal.append(&batch([entry(last + 1, 1, 500)])) {
            Ok(()) => last += 1,
            Err(error) => break error,
        }
        wal.commit().unwrap();
    };
    assert!(matches!(fault, WalError::NoSpace(_)), "{fault}");
    assert!(fault.to_string().contains("free space"), "{fault}");
    assert!(matches!(wal.prepare_spare(1 << 20).unwrap(), SpareStep::NoRoom(_)));
    assert!(matches!(wal.reset((999, 9), state(9, 9, 999)), Err(WalError::NoSpace(_))));
    // A small batch still fits, and nothing of the refused calls is in the log.
    put(&mut wal, &Batch { hard_state: Some(state(1, 0, 1)), ..batch([]) });
    let copy = disk.fork();
    assert!(matches!(try_recover(&copy), Err(WalError::NoSpace(_))), "not one sector is free");
    copy.set_capacity(Some(3 * SEGMENT));
    let (_, found) = recover(&copy);
    assert_eq!((found.entries.len() as u64, found.hard_state), (last, state(1, 0, 1)));
    disk.set_capacity(None);
    put(&mut wal, &batch([entry(last + 1, 1, 500)]));
    assert!(matches!(wal.prepare_spare(1 << 20).unwrap(), SpareStep::More));
    let (_, found) = recover(&disk.fork());
    assert_eq!(found.entries.len() as u64, last + 1);
}

#[test]
fn a_full_disk_does_not_prevent_a_start() {
    let disk = SimDisk::new();
    let mut wal = create(&disk);
    put(&mut wal, &batch([entry(2, 1, 500)]));
    drop(wal);
    disk.set_capacity(Some(SEGMENT + 4096));
    let (mut wal, found) = recover(&disk);
    assert_eq!(found.entries.len(), 2);
    disk.set_capacity(None);
    (3..40).for_each(|i| put(&mut wal, &batch([entry(i, 1, 500)])));
    assert_eq!(recover(&disk).1.entries.len(), 39);
}

/// Every byte of a log that was closed in order, one bit each: refused with the place, or harmless.
#[test]
fn every_flipped_bit_is_noticed() {
    let disk = SimDisk::new();
    let mut wal = create(&disk);
    (2..=24).for_each(|i| put(&mut wal, &batch([entry(i, 1, 333)])));
    assert!(wal.sizes().segments > 1);
    let used: Vec<_> = wal.older.iter().map(|o| o.used).chain([wal.active.position]).collect();
    wal.close_clean().unwrap();
    let (_, whole) = recover(&disk.fork());
    for (path, used) in segments(&disk).into_iter().zip(used) {
        let mut rng = SimRng::new(used);
        for offset in 0..SEGMENT {
            let copy = disk.fork();
            assert!(copy.flip_bit(&path, offset, rng.below(8) as u8));
            match try_recover(&copy) {
                Err(WalError::Damage { path: where_, .. }) => {
                    assert!(where_ == path && offset < used, "{where_:?} {offset}");
                }
                Err(other) => panic!("{other}"),
                Ok((_, found)) => {
                    assert!(offset >= used, "a flip at {offset} of {path:?} went unnoticed");
                    assert_eq!(found.entries, whole.entries);
                }
            }
        }
    }
}

#[test]
fn damage_is_refused_again_and_again_and_changes_nothing() {
    let disk = SimDisk::new();
    let mut wal = create(&disk);
    (2..=40).for_each(|i| put(&mut wal, &batch([entry(i, 1, 333)])));
    drop(wal);
    let paths = segments(&disk);
    disk.flip_bit(&paths[1], 1000, 3);
    let before = disk.ops();
    for _ in 0..2 {
        let error = try_recover(&disk).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&paths[1].display().to_string()), "{text}");
        assert!(text.contains("restore this member from a backup"), "{text}");
    }
    assert_eq!(disk.ops(), before);
    // A missing segment in the middle.
    disk.flip_bit(&paths[1], 1000, 3);
    disk.remove(&paths[1], FileKind::Wal).unwrap();
    let error = try_recover(&disk).unwrap_err();
    assert!(error.to_string().contains("is missing"), "{error}");
}

#[test]
fn frames_are_bound_to_segment_salt_and_position() {
    let seed = record::segment_seed(3, 7);
    let place = Place { seed, position: 512, sequence: 9, synced_through: 8 };
    let mut frame = Vec::new();
    record::encode(&mut frame, place, Kind::Batch, |out| out.extend_from_slice(b"payload"));
    let header = FrameHeader::decode(seed, 512, &frame).unwrap();
    assert_eq!((header.length, header.sequence, header.frame_len()), (7, 9, 40));
    assert!(header.matches(&frame[record::HEADER..]));
    assert_eq!(FrameHeader::decode(seed, 520, &frame), None);
    assert_eq!(FrameHeader::decode(record::segment_seed(4, 7), 512, &frame), None);
    assert_eq!(FrameHeader::decode(record::segment_seed(3, 8), 512, &frame), None);
    assert_eq!(FrameHeader::decode(seed, 512, &frame[..31]), None);
    for garbage in [[0xff_u8; 32], [0; 32]] {
        assert_eq!(FrameHeader::decode(seed, 512, &garbage), None);
    }
}

#[test]
fn garbage_payloads_are_refused_without_reserving_memory() {
    let mut rng = SimRng::new(11);
    let mut good = Vec::new();
    record::put_batch(&mut good, Some(&state(1, 2, 3)), &[entry(1, 1, 20), entry(2, 1, 0)]);
    assert!(record::get_batch(&Bytes::from(good.clone())).is_some());
    for _ in 0..20_000 {
        let mut bad = good.clone();
        bad.truncate(rng.below(good.len() as u64 + 1) as usize);
        for _ in 0..=rng.below(3) {
            let at = rng.below(bad.len() as u64) as usize;
            if let Some(byte) = bad.get_mut(at) {
                *byte = rng.next_u64() as u8;
            }
        }
        if let Some((_, entries)) = record::get_batch(&Bytes::from(bad.clone())) {
            assert!(entries.iter().map(record::entry_len).sum::<usize>() <= bad.len());
        }
    }
}

#[test]
fn foreign_directories_are_named() {
    let plant = |name: &str, content: &[u8]| {
        let disk = SimDisk::new();
        disk.create_dir(Path::new(DIR)).unwrap();
        let file = disk.open(&Path::new(DIR).join(name), FileKind::Wal, Open::CreateNew).unwrap();
        file.write_at(content, 0).unwrap();
        (inspect(&disk, Path::new(DIR)).unwrap(), try_recover(&disk).unwrap_err())
    };
    // etcd: a checksum record of 4 bytes and 4 bytes of padding.
    let mut etcd = vec![4, 0, 0, 0, 0, 0, 0, 0x84, 0x08, 0x04, 0x10, 0];
    etcd.resize(1024, 0);
    let (contents, error) = plant("0000000000000000-0000000000000000.wal", &etcd);
    assert!(matches!(contents, Contents::Etcd(_)));
    assert!(error.to_string().contains("assay migrate"), "{error}");
    let (contents, error) = plant("other.wal", b"something");
    assert!(matches!(contents, Contents::Foreign(_)));
    assert!(matches!(error, WalError::Foreign { .. }), "{error}");
    let (contents, error) = plant("note.txt", b"something");
    assert_eq!(contents, Contents::Nothing);
    assert!(matches!(error, WalError::Missing { .. }), "{error}");

    let disk = SimDisk::new();
    drop(create(&disk));
    let path = segments(&disk).remove(0);
    let mut sector = disk.contents(&path).unwrap()[..512].to_vec();
    sector[8] = 2;
    let crc = crc32c::crc32c(&sector[..508]);
    sector[508..].copy_from_slice(&crc.to_le_bytes());
    let file = disk.open(&path, FileKind::Wal, Open::ReadWrite).unwrap();
    file.write_at(&sector, 0).unwrap();
    let error = try_recover(&disk).unwrap_err();
    assert!(matches!(error, WalError::NewerFormat { found: 2, .. }), "{error}");
    let again = Wal::create(Arc::new(disk), Path::new(DIR), &opts(), WHO, (0, 0), &batch([]));
    assert!(again.is_err());
}

/// etcd reads eight bytes as a length: zero would be an empty log, and a record that ends behind
/// the file would be repaired by cutting. Ours is far above its limit for a single record.
#[test]
fn etcd_takes_our_files_for_an_impossible_record() {
    let disk = SimDisk::new();
    drop(create(&disk));
    for path in segments(&disk) {
        let content = disk.contents(&path).unwrap();
        let word = i64::from_le_bytes(content[..8].try_into().unwrap());
        let record = word & 0x00ff_ffff_ffff_ffff;
        assert!(word > 0, "a negative word would announce padding");
        assert!(record > 1 << 50, "{record}");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(name.len(), 16 + 1 + 16 + 4);
    }
}

/// Group commits of one entry on a real disk, and a recovery of full segments.
/// `cargo test --release wal::tests::real_speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn real_speed() {
    let now = crate::telemetry::clock::now_ns;
    for prewrite in [false, true, false, true] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("wal");
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(Arc::default()));
        let opts = Options { prewrite, ..Options::new(now()) };
        let first = batch([entry(1, 1, 1)]);
        let mut wal = Wal::create(Arc::clone(&disk), &dir, &opts, WHO, (0, 0), &first).unwrap();
        while !matches!(wal.prepare_spare(1 << 20).unwrap(), SpareStep::Done) {}
        wal.reset((1, 1), state(1, 1, 1)).unwrap();
        let mut times = Vec::new();
        for i in 2..2002 {
            wal.append(&batch([entry(i, 1, 600)])).unwrap();
            let start = now();
            wal.commit().unwrap();
            times.push((now() - start) / 1000);
        }
        times.sort_unstable();
        println!("prewrite {prewrite}: commit p50 {} us, p99 {} us", times[1000], times[1980]);
        (2002..2402).for_each(|i| put(&mut wal, &batch([entry(i, 1, 500_000)])));
        println!("{:?}", wal.sizes());
        drop(wal);
        let start = now();
        let (wal, found) = Wal::recover(Arc::clone(&disk), &dir, &opts, &mut |_, _| {}).unwrap();
        let ms = (now() - start) / 1_000_000;
        println!(
            "recovered {} entries, {} MiB in {ms} ms",
            found.entries.len(),
            found.report.bytes >> 20
        );
        drop((wal, found));
        let start = now();
        drop(Wal::recover(disk, &dir, &opts, &mut |_, _| {}).unwrap());
        println!("again in {} ms", (now() - start) / 1_000_000);
    }
}

/// `cargo test --release wal::tests::encode -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn encode_speed() {
    let disk = SimDisk::new();
    let opts = Options::new(7);
    let mut wal =
        Wal::create(Arc::new(disk), Path::new(DIR), &opts, WHO, (0, 0), &batch([])).unwrap();
    let batches: Vec<_> = (1..=200_000).map(|i| batch([entry(i, 1, 128)])).collect();
    let start = crate::telemetry::clock::now_ns();
    for one in &batches {
        wal.append(one).unwrap();
    }
    let seconds = (crate::telemetry::clock::now_ns() - start) as f64 / 1e9;
    println!("{:.0} batches of one entry of 128 B per second", 200_000.0 / seconds);
}
