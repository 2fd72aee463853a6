//! The running hash: equal whatever happens besides applying, different after any difference.

use super::*;
use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn command(request: InternalRaftRequest) -> Entry {
    let header = Some(pb::RequestHeader { id: 5, ..Default::default() });
    Entry(0, InternalRaftRequest { header, ..request }.encode_to_vec().into(), Bytes::new())
}

fn random_entry(rng: &mut ChaCha8Rng) -> Entry {
    let key = format!("k{}", rng.random_range(0..20));
    let id = rng.random_range(1..4);
    match rng.random_range(0..20) {
        0..9 => command(put(&key, &"v".repeat(rng.random_range(0..50))).into()),
        9 => command(pb::PutRequest { lease: id, ..put(&key, "leased") }.into()),
        10..12 => command(delete(&key, "").into()),
        12 => command(delete("k1", "k2").into()),
        13 => command(
            txn(vec![
                Request::RequestPut(put(&key, "in a transaction")),
                Request::RequestDeleteRange(delete("k7", "")),
            ])
            .into(),
        ),
        14 => command(grant(id, 60)),
        15 => command(revoke(id)),
        16 => match rng.random_range(0..=ACTION_FENCE) {
            ACTION_FENCE => command(alarm(ACTION_FENCE, id as u64, 2)),
            action => command(alarm(action, id as u64, 1)),
        },
        17 => change(rng.random_range(0..3), id as u64, "http://a:1"),
        18 => Entry(0, Bytes::new(), Bytes::new()),
        _ => command(compact(rng.random_range(1..400))),
    }
}

impl Node {
    fn running(&self) -> Option<u64> {
        self.machine.running.value()
    }

    /// The whole state, as another member would get it.
    fn send_to(&self, other: &mut Node) {
        let shared = self.writer.shared();
        let mut export = store::Export::new(shared);
        let (at, revision) = (export.applied(), export.revision());
        let options = store::Options { cache_bytes: 1 << 20, ..store::Options::default() };
        let disk: Arc<dyn Disk> = Arc::new(other.disk.clone());
        let path = Path::new(PATH);
        let mut staging =
            store::Staging::create(disk.clone(), path, at, revision, &options).unwrap();
        let (said, running) = export.said().unwrap();
        loop {
            let rows = export.rows(100).unwrap();
            if rows.is_empty() {
                break;
            }
            staging.rows(rows).unwrap();
        }
        let (staging, read) = staging.seal(export.small().unwrap(), Bytes::new(), running).unwrap();
        assert_eq!(Some(read), said, "what was written is what the sender holds");
        staging.finish().unwrap();
        let fresh = Node::new();
        let writer = std::mem::replace(&mut other.writer, fresh.writer);
        let (writer, swapped, _old) = writer.swap(&other.disk, path, at, &options).unwrap();
        other.writer = writer;
        other.machine.install(swapped, &mut |_, _| {}).unwrap();
        other.log = self.log.clone();
    }
}

#[test]
fn members_that_apply_the_same_have_the_same_hash_whatever_else_they_do() {
    let (mut restarts, mut snapshots) = (0, 0);
    for seed in 0..30 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut plain = Node::new();
        let mut busy = Node::new();
        for _ in 0..300 {
            let entry = random_entry(&mut rng);
            plain.entry(entry.clone());
            busy.entry(entry);
            match rng.random_range(0..30) {
                0..6 => busy.commit(),
                6..9 => busy.machine.publish(),
                9 => {
                    busy.machine.publish();
                    busy.drain();
                }
                10 => {
                    busy.restart();
                    restarts += 1;
                }
                11 => {
                    plain.commit();
                    if plain.machine.applied().0 > 0 {
                        plain.send_to(&mut busy);
                        snapshots += 1;
                    }
                }
                _ => {}
            }
            assert_eq!(plain.running(), busy.running(), "seed {seed}, entry {}", plain.log.len());
            assert!(plain.running().is_some());
            assert_eq!(busy.machine.store_differs(), None, "seed {seed}");
        }
        plain.machine.publish();
        busy.machine.publish();
        let (one, two) = (plain.reader.running_points(), busy.machine.reader().running_points());
        for point in &two.points {
            assert!(one.points.contains(point), "seed {seed}: {point:?}");
        }
    }
    assert!(restarts > 20 && snapshots > 20, "{restarts} restarts, {snapshots} snapshots");
}

/// Every kind of change, against the same history with an entry of another effect in its place.
#[test]
fn every_kind_of_change_shows_in_the_hash_and_stays_there() {
    let kinds = [
        ("put", command(put("k", "w").into()), command(put("k", "v").into())),
        ("key", command(put("l", "v").into()), command(put("k", "v").into())),
        (
            "lease of a key",
            command(pb::PutRequest { lease: 1, ..put("k", "v") }.into()),
            command(put("k", "v").into()),
        ),
        ("delete", command(delete("b", "").into()), command(delete("c", "").into())),
        (
            "transaction",
            command(txn(vec![Request::RequestPut(put("k", "v"))]).into()),
            command(txn(vec![]).into()),
        ),
        ("grant", command(grant(7, 60)), command(grant(7, 61))),
        ("revoke", command(revoke(1)), command(revoke(9))),
        (
            "checkpoint",
            command(
                pb::LeaseCheckpointRequest {
                    checkpoints: vec![pb::LeaseCheckpoint { id: 1, remaining_ttl: 9 }],
                }
                .into(),
            ),
            Entry(0, Bytes::new(), Bytes::new()),
        ),
        ("alarm", command(alarm(1, 2, 1)), command(alarm(1, 3, 1))),
        ("fence", command(alarm(ACTION_FENCE, 2, 2)), command(alarm(0, 2, 2))),
        ("member", change(0, 9, "http://x:1"), change(0, 9, "http://x:2")),
        ("removal", change(1, 2, ""), change(1, 77, "")),
        (
            "cluster version",
            command(InternalRaftRequest {
                cluster_version_set: Some(crate::proto::membershippb::ClusterVersionSetRequest {
                    ver: "3.7.0".into(),
                }),
                ..Default::default()
            }),
            Entry(0, Bytes::new(), Bytes::new()),
        ),
        (
            "downgrade",
            command(InternalRaftRequest {
                downgrade_info_set: Some(crate::proto::membershippb::DowngradeInfoSetRequest {
                    enabled: true,
                    ver: "3.6.0".into(),
                }),
                ..Default::default()
            }),
            Entry(0, Bytes::new(), Bytes::new()),
        ),
    ];
    for (kind, one, other) in kinds {
        let run = |entry: &Entry, commit: bool| {
            let mut node = Node::new();
            node.entry(change(0, 2, "http://b:1"));
            node.entry(command(grant(1, 60)));
            for key in ["a", "b", "c"] {
                node.entry(command(put(key, "1").into()));
            }
            node.entry(entry.clone());
            if commit {
                node.commit();
                node.restart();
            }
            let first = node.running();
            node.entry(command(put("later", "x").into()));
            (first, node.running())
        };
        let (a, b) = (run(&one, false), run(&other, false));
        assert_ne!(a.0, b.0, "{kind}");
        assert_ne!(a.1, b.1, "{kind} is forgotten");
        assert_eq!(a, run(&one, true), "{kind} over a restart");
    }
}

#[test]
fn the_configuration_and_the_order_of_entries_are_in_the_hash() {
    let with = |conf: Option<&'static [u8]>, term| {
        let mut node = Node::new();
        node.machine.apply(Applied {
            index: 1,
            term,
            kind: 0,
            data: &Bytes::new(),
            context: &Bytes::new(),
            conf_state: conf.map(Bytes::from_static),
        });
        node.running()
    };
    assert_ne!(with(None, 1), with(Some(b"a"), 1));
    assert_ne!(with(Some(b"b"), 1), with(Some(b"a"), 1));
    assert_ne!(with(None, 1), with(None, 2));
}

/// The last two keys of `state` are unknown to a former version, which leaves them behind.
#[test]
fn a_store_of_a_former_version_knows_its_hash_from_the_next_compaction_on() {
    let mut new = Node::new();
    let mut old = Node::new();
    for n in 0..20 {
        let entry = command(put(&format!("k{n}"), "v").into());
        new.entry(entry.clone());
        old.entry(entry);
    }
    // What such a version does: the batch without hash, its index ahead of what the file says.
    let mut batch = old.machine.take_batch().unwrap();
    (batch.running, batch.content_before) = (None, None);
    old.writer.commit(batch).unwrap();
    forget_hashes(&mut old);
    old.restart();
    assert_eq!(old.running(), None);
    assert_eq!(old.machine.store_differs(), None, "nothing said is nothing wrong");
    assert!(old.reader.running_points().points.is_empty());
    for entry in [command(put("x", "y").into()), command(compact(5))] {
        new.entry(entry.clone());
        old.entry(entry);
    }
    assert!(new.running().is_some());
    assert_eq!(new.running(), old.running(), "both begin anew at the compaction");
    old.commit();
    old.restart();
    assert_eq!(new.running(), old.running());
    let loaded = {
        let open = store::Options { cache_bytes: 1 << 20, ..store::Options::default() };
        let Node { disk, machine, writer, reader, .. } = old;
        drop((machine, writer, reader));
        store::open(Arc::new(disk), Path::new(PATH), &open).unwrap().2
    };
    assert!(loaded.content.is_some(), "and the checksum of the file is kept again");
}

/// Takes the rows out that a former version does not write.
fn forget_hashes(node: &mut Node) {
    let fresh = Node::new();
    let writer = std::mem::replace(&mut node.writer, fresh.writer);
    node.machine = fresh.machine;
    node.reader = fresh.reader;
    store::edit(writer.into_database(), |state, _| {
        state.remove(&b"content"[..]).unwrap();
        state.remove(&b"running"[..]).unwrap();
    });
    let (machine, writer) = Node::open(&node.disk, node.options);
    (node.reader, node.machine, node.writer) = (machine.reader(), machine, writer);
}

/// One byte of one stored value.
fn rot(node: &mut Node) {
    node.commit();
    let fresh = Node::new();
    let writer = std::mem::replace(&mut node.writer, fresh.writer);
    node.machine = fresh.machine;
    node.reader = fresh.reader;
    store::edit(writer.into_database(), |_, revs| {
        let (key, mut row) = revs.pop_first().unwrap();
        *row.last_mut().unwrap() ^= 1;
        revs.insert(key, row);
    });
    node.restart_from_disk();
}

impl Node {
    fn restart_from_disk(&mut self) {
        let fresh = Node::new();
        self.machine = fresh.machine;
        self.writer = fresh.writer;
        let (machine, writer) = Self::open(&self.disk, self.options);
        (self.reader, self.machine, self.writer) = (machine.reader(), machine, writer);
    }
}

#[test]
fn rows_that_rot_on_disk_are_found_at_the_start_and_stay_in_the_hash() {
    let mut sound = Node::new();
    let mut rotten = Node::new();
    for n in 0..20 {
        let entry = command(put(&format!("k{n}"), "value").into());
        sound.entry(entry.clone());
        rotten.entry(entry);
    }
    sound.commit();
    sound.restart();
    rot(&mut rotten);
    assert_eq!(sound.machine.store_differs(), None);
    let (written, read) = rotten.machine.store_differs().expect("found");
    assert_eq!(written.count, read.count);
    assert_ne!(sound.running(), rotten.running());
    // Neither a compaction, at which the hash begins anew, nor a restart makes it well.
    for entry in [command(put("x", "y").into()), command(compact(3)), command(put("x", "z").into())]
    {
        sound.entry(entry.clone());
        rotten.entry(entry);
        assert_ne!(sound.running(), rotten.running());
    }
    rotten.commit();
    rotten.restart();
    assert!(rotten.machine.store_differs().is_some());
    assert_ne!(sound.running(), rotten.running());
    // A snapshot of a sound member does.
    sound.commit();
    sound.send_to(&mut rotten);
    assert_eq!(rotten.machine.store_differs(), None);
    assert_eq!(sound.running(), rotten.running());
}

#[test]
fn points_are_kept_at_multiples_and_at_the_newest_index() {
    let mut node = Node::new();
    for _ in 0..POINT_EVERY * 3 + 10 {
        node.entry(Entry(0, Bytes::new(), Bytes::new()));
    }
    node.machine.publish();
    let points = node.reader.running_points().points;
    let indexes: Vec<u64> = points.iter().map(|(index, _)| *index).collect();
    assert_eq!(indexes, [POINT_EVERY, 2 * POINT_EVERY, 3 * POINT_EVERY, 3 * POINT_EVERY + 10]);
    for _ in 0..POINT_EVERY * (POINTS_KEPT as u64 + 2) {
        node.entry(Entry(0, Bytes::new(), Bytes::new()));
    }
    assert_eq!(node.reader.running_points().points.len(), POINTS_KEPT);
}

#[test]
fn a_snapshot_brings_and_takes_fences() {
    const MEMBER: u64 = 7;
    let (mut one, mut other) = (Node::new(), Node::new());
    let send = |from: &mut Node, to: &mut Node| {
        from.commit();
        from.machine.publish();
        from.send_to(to);
        from.reader.fences()
    };
    one.entry(change(0, MEMBER, "http://m:1"));
    one.ok(alarm(ACTION_FENCE, MEMBER, 2));
    assert_eq!(*send(&mut one, &mut other), [MEMBER]);
    assert_eq!(*other.reader.fences(), [MEMBER]);
    one.ok(alarm(2, MEMBER, 2));
    assert!(send(&mut one, &mut other).is_empty());
    assert!(other.reader.fences().is_empty());
}
