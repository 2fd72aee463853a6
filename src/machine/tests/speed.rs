//! Figures, not verdicts: `cargo test --release --lib machine::tests::speed -- --ignored --nocapture`.

use super::*;
use crate::mvcc::RangeQuery;

/// Processor time of this thread: other load on the machine does not count.
fn now_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

fn command(key: &str, value: &[u8], id: u64) -> Bytes {
    let request = InternalRaftRequest {
        header: Some(pb::RequestHeader { id, ..Default::default() }),
        put: Some(pb::PutRequest { key: bytes(key), value: bytes(value), ..Default::default() }),
        ..Default::default()
    };
    request.encode_to_vec().into()
}

#[test]
#[ignore = "prints figures"]
fn figures() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/data")).unwrap();
    let open = store::Options { cache_bytes: 1 << 30, ..store::Options::default() };
    let arc: Arc<dyn Disk> = Arc::new(disk.clone());
    let (mut writer, shared, loaded) = store::open(arc, Path::new(PATH), &open).unwrap();
    let mut machine = Machine::restore(loaded, shared, OPTIONS, &mut |_, _| {}).unwrap();
    let reader = machine.reader();
    let keys: usize = std::env::var("KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let value = vec![b'v'; 512];
    let key = |i: usize| {
        format!("/registry/pods/{:016x}", (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    };
    let context = Bytes::new();
    let mut index = 0;
    for round in ["new keys", "overwrites"] {
        let commands: Vec<Bytes> =
            (0..keys).map(|i| command(&key(i), &value, i as u64 + 1)).collect();
        let began = now_ns();
        for data in &commands {
            index += 1;
            let outcome = machine.apply(Applied {
                index,
                term: 1,
                kind: 0,
                data,
                context: &context,
                conf_state: None,
            });
            assert!(outcome.answer.is_ok());
            if index % 64 == 0 {
                machine.publish();
            }
        }
        println!("{round}: {} ns per put", (now_ns() - began) / keys as u64);
        machine.publish();
        if round == "new keys" {
            ranges(&reader, "pending");
        }
        let began = now_ns();
        writer.commit(machine.take_batch().unwrap()).unwrap();
        println!("{round}: commit of {keys} rows {} ms", (now_ns() - began) / 1_000_000);
        ranges(&reader, "durable");
    }
    let began = now_ns();
    let revision = reader.revision();
    let hash = reader.hash_kv(0).unwrap();
    println!("hash of {} rows: {} ms", 2 * keys, (now_ns() - began) / 1_000_000);
    let data = compact(revision).encode_to_vec().into();
    index += 1;
    let entry =
        Applied { index, term: 1, kind: 0, data: &data, context: &context, conf_state: None };
    assert!(machine.apply(entry).answer.is_ok());
    machine.publish();
    let (mut steps, mut longest, mut all) = (0, 0, 0);
    loop {
        let began = now_ns();
        let more = machine.compaction_step();
        let took = now_ns() - began;
        (steps, longest, all) = (steps + 1, longest.max(took), all + took);
        if !more {
            break;
        }
        if machine.batch.dropped.len() >= store::DROPPED_PER_BATCH {
            writer.commit(machine.take_batch().unwrap()).unwrap();
        }
    }
    println!(
        "compaction: {steps} steps, longest {} us, all {} ms",
        longest / 1_000,
        all / 1_000_000
    );
    machine.publish();
    let after = reader.hash_kv(revision).unwrap();
    assert_eq!(after.hash_revision, hash.hash_revision);
    if let Some(batch) = machine.take_batch() {
        writer.commit(batch).unwrap();
    }
    drop((machine, writer, reader));
    let arc: Arc<dyn Disk> = Arc::new(disk);
    let (_writer, shared, loaded) = store::open(arc, Path::new(PATH), &open).unwrap();
    let began = now_ns();
    let machine = Machine::restore(loaded, shared, OPTIONS, &mut |_, _| {}).unwrap();
    let took = now_ns() - began;
    println!("rebuild of {keys} rows: {} ms, {} ns per row", took / 1_000_000, took / keys as u64);
    assert_eq!(machine.reader().sizes().keys, keys as u64);
}

fn ranges(reader: &Reader, what: &str) {
    let query = RangeQuery { limit: 0, ..get("/registry/pods/8", "/registry/pods/80").into() };
    let whole = reader.range(&query).unwrap();
    let mut query: RangeQuery = get("/registry/pods/8", "\0").into();
    query.limit = 1_000;
    // The count behind the limit walks the rest of the range; a page of exactly 1,000 does not.
    let last = reader.range(&query).unwrap().kvs.pop().unwrap();
    let last = pb_kv::KeyValue::decode(last).unwrap().key;
    let exact: RangeQuery =
        pb::RangeRequest { key: bytes("/registry/pods/8"), range_end: last, ..Default::default() }
            .into();
    for (name, query) in [
        ("1,000 keys", exact.clone()),
        ("1,000 keys only", RangeQuery { keys_only: true, ..exact }),
        ("1,000 of half", query),
    ] {
        let rounds = 200;
        let began = now_ns();
        for _ in 0..rounds {
            assert!(reader.range(&query).unwrap().kvs.len() >= 999);
        }
        println!("{what}: {name}: {} us", (now_ns() - began) / 1_000 / rounds);
    }
    let began = now_ns();
    for _ in 0..10_000 {
        assert!(reader.row_at(b"/registry/pods/0000000000000000", reader.revision()).is_ok());
    }
    println!("{what}: get {} ns ({} keys around)", (now_ns() - began) / 10_000, whole.count);
}

/// What the running hash adds to a put, on the thread that applies.
#[test]
#[ignore = "prints figures"]
fn running_hash_figures() {
    const PUTS: u64 = 200_000;
    for size in [64, 512, 4096] {
        let value = vec![b'v'; size];
        let puts: Vec<Bytes> =
            (0..PUTS).map(|n| command(&format!("/k/{n:016}"), &value, n + 1)).collect();
        let mut took = [Vec::new(), Vec::new()];
        for round in 0..6 {
            let mut node = Node::new();
            let known = round % 2;
            if known == 0 {
                node.machine.running = super::super::Running::restored(None, 0);
            }
            let began = now_ns();
            for (n, data) in puts.iter().enumerate() {
                let context = Bytes::new();
                let entry = Applied {
                    index: n as u64 + 1,
                    term: 1,
                    kind: 0,
                    data,
                    context: &context,
                    conf_state: None,
                };
                assert!(node.machine.apply(entry).answer.is_ok());
            }
            took[known].push((now_ns() - began) / PUTS);
        }
        println!("{size} bytes: without {:?}, with {:?} ns per put", took[0], took[1]);
        let mut running = super::super::Running::restored(Some(1), 0);
        let rows = [(crate::mvcc::Revision { main: 7, sub: 0 }, false, Bytes::from(value))];
        let began = now_ns();
        for index in 0..PUTS {
            let effects =
                super::super::running::Effects { rows: &rows, small: &[], conf_state: None };
            running.entry((index, 1), std::hint::black_box(&effects));
        }
        std::hint::black_box(running.value());
        println!("{size} bytes: the hash alone {} ns", (now_ns() - began) / PUTS);
    }
}

/// What a large delete takes alone and beside readers that walk the index all the time.
#[test]
#[ignore = "prints figures"]
fn delete_figures() {
    use crate::telemetry::clock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    const KEYS: usize = 100_000;
    for readers in [0, 2] {
        let mut node = Node::new();
        for i in 0..KEYS {
            let put = command(&format!("/registry/pods/{i:08}"), &[b'v'; 256], i as u64 + 1);
            assert!(node.entry(Entry(0, put, Bytes::new())).answer.is_ok());
        }
        node.machine.publish();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..readers {
                let (reader, stop) = (node.reader.clone(), &stop);
                let mut query: RangeQuery = get("/", "0").into();
                query.count_only = true;
                query.revision = reader.revision();
                scope.spawn(move || {
                    while !stop.load(Relaxed) {
                        reader.range(&query).unwrap();
                    }
                });
            }
            let request = InternalRaftRequest {
                header: Some(pb::RequestHeader { id: 1 << 40, ..Default::default() }),
                delete_range: Some(pb::DeleteRangeRequest {
                    key: bytes("/"),
                    range_end: bytes("0"),
                    ..Default::default()
                }),
                ..Default::default()
            };
            let (wall, own) = (clock::now_ns(), now_ns());
            let data = request.encode_to_vec().into();
            assert!(node.entry(Entry(0, data, Bytes::new())).answer.is_ok());
            let (wall, own) = (clock::now_ns() - wall, now_ns() - own);
            println!(
                "delete of {KEYS} keys beside {readers} readers: {} ms, {} ms of its own",
                wall / 1_000_000,
                own / 1_000_000
            );
            stop.store(true, Relaxed);
        });
    }
}
