//! Rules of the module on rows in a map. The model-based tests of whole histories are in
//! `machine::tests`.

use super::*;
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Rows in a map.
#[derive(Default)]
struct Map(BTreeMap<Revision, (bool, Bytes)>);

impl Rows for Map {
    fn row(&self, revision: Revision) -> Result<Bytes, RowsError> {
        self.0.get(&revision).map(|(_, row)| row.clone()).ok_or(RowsError::Missing)
    }
    fn scan(
        &self,
        from: i64,
        to: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        for (revision, (tombstone, row)) in self.0.range(Revision::new(from, 0)..) {
            if revision.main > to || f(*revision, *tombstone, row.clone()).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// A store without leases: index and rows.
struct Store {
    index: SharedIndex,
    rows: Map,
    revision: i64,
}

impl Store {
    fn new() -> Self {
        Self {
            index: Arc::new(RwLock::new(KeyIndex::default())),
            rows: Map::default(),
            revision: FIRST_REVISION,
        }
    }

    fn change<T>(&mut self, f: impl FnOnce(&mut Write<'_, Map>) -> T) -> (T, Vec<Event>) {
        let mut write =
            Write::new(&self.index, &self.rows, self.revision, self.index.read().floor());
        let result = f(&mut write);
        let changes = write.finish();
        if !changes.rows.is_empty() {
            self.revision += 1;
        }
        for (revision, tombstone, row) in changes.rows {
            assert_eq!(revision.main, self.revision);
            assert!(self.rows.0.insert(revision, (tombstone, row)).is_none());
        }
        (result, changes.events)
    }

    fn put(&mut self, key: &str, value: &str) {
        let put = put(key, value);
        self.change(|w| w.put_checked(&put, &|_| true)).0.unwrap();
    }

    fn delete(&mut self, key: &str) -> i64 {
        let range = KeyRange::single(bytes(key));
        self.change(|w| w.delete(&Delete { range, prev_kv: false })).0.unwrap().0
    }

    fn compact(&mut self, at: i64, hashed: bool) -> Option<HashKv> {
        let previous = self.index.read().floor();
        self.index.write().raise_floor(at);
        let mut job = Compaction::new(previous, at, hashed);
        let mut dropped = Vec::new();
        loop {
            let step = job.step(&self.index, &self.rows, &mut dropped).unwrap();
            for row in dropped.drain(..) {
                let (tombstone, _) = self.rows.0.remove(&row.revision).unwrap();
                assert_eq!(tombstone, row.tombstone);
            }
            if let Step::Done(hash) = step {
                self.index.read().check();
                return hash;
            }
        }
    }

    fn hash(&self, at: i64) -> HashKv {
        hash_kv(&self.index, &self.rows, at, self.revision).unwrap()
    }

    fn at(&self, key: &str, at: i64) -> Option<(i64, i64, i64)> {
        let live = self.index.read().get(key.as_bytes(), at)?;
        let row = self.rows.row(live.revision).expect("the row of a live key");
        let kv = <KeyValue as prost::Message>::decode(row).unwrap();
        assert_eq!((kv.create_revision, kv.version), (live.create, live.version));
        assert_eq!(kv.mod_revision, live.revision.main);
        Some((live.create, live.revision.main, live.version))
    }

    fn records(&self) -> Vec<(i64, i64)> {
        self.rows.0.keys().map(|r| (r.main, r.sub)).collect()
    }
}

fn bytes(s: &str) -> Bytes {
    Bytes::copy_from_slice(s.as_bytes())
}

fn put(key: &str, value: &str) -> Put {
    Put { key: bytes(key), value: bytes(value), ..Put::default() }
}

#[test]
fn revisions_have_the_bytes_of_etcd() {
    let revision = Revision::new(0x0102, 3);
    assert_eq!(&revision.to_bytes(), b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03");
    assert_eq!(&revision.to_tombstone_bytes(), b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03t");
    assert_eq!(Revision::parse(&revision.to_bytes()), Some((revision, false)));
    assert_eq!(Revision::parse(&revision.to_tombstone_bytes()), Some((revision, true)));
    // A sub revision that ends in the byte of the mark must not be taken for one.
    let t = Revision::new(1, i64::from(b't'));
    assert_eq!(Revision::parse(&t.to_bytes()), Some((t, false)));
    assert_eq!(Revision::parse(&revision.to_bytes()[1..]), None);
    assert_eq!(Revision::parse(&[b'x'; 17]), None);
}

#[test]
fn rows_are_wire_identical_to_key_value() {
    let kv = KeyValue {
        key: bytes("k"),
        create_revision: 300,
        mod_revision: -1,
        version: 1 << 40,
        value: Bytes::from(vec![7; 200]),
        lease: i64::MIN,
    };
    let parts = rows::Parts {
        key: &kv.key,
        create: kv.create_revision,
        modified: kv.mod_revision,
        version: kv.version,
        value: &kv.value,
        lease: kv.lease,
    };
    let row = parts.encode();
    assert_eq!(row, prost::Message::encode_to_vec(&kv));
    assert_eq!(row.len(), parts.encoded_len());
    assert_eq!(rows::key_in(&row), kv.key);
    for damaged in [&b""[..], b"\x12\x01a", b"\x0a", b"\x0a\x05abc", b"\x0a\xff\xff\xff\xff"] {
        assert_eq!(rows::key_in(&Bytes::copy_from_slice(damaged)), Bytes::new());
    }
}

#[test]
fn charges_are_exact_or_rounded_up() {
    for bytes in [0, 1, 134, 2048, 4096, Charge::EXACT] {
        assert_eq!(Charge::new(bytes).bytes(), bytes);
    }
    for (bytes, rounded) in [(Charge::EXACT + 1, 1 << 15), (40_000, 1 << 16), (2 << 20, 2 << 20)] {
        assert_eq!(Charge::new(bytes).bytes(), rounded);
    }
}

#[test]
fn a_key_with_one_version_costs_at_most_its_length_and_96_bytes() {
    for (name, step) in [("in order", 1_u64), ("scattered", 0x9E37_79B9_7F4A_7C15)] {
        let mut index = KeyIndex::default();
        let count = 100_000_u64;
        let mut key_bytes = 0;
        for i in 0..count {
            let key = format!("/registry/pods/{:016x}", i.wrapping_mul(step));
            key_bytes += key.len();
            index.put(key.as_bytes(), Revision::new(i as i64 + 2, 0), |_| Charge::new(100));
        }
        let per_key = (index.heap_bytes() - key_bytes) as f64 / count as f64;
        println!("{name}: {per_key:.1} bytes above the key");
        assert!(per_key <= 96.0, "{name}: {per_key:.1} bytes above the key");
        index.check();
    }
}

#[test]
fn history_numbers_follow_puts_and_deletes() {
    let mut store = Store::new();
    store.put("a", "1"); // 2
    store.put("a", "2"); // 3
    assert_eq!(store.delete("a"), 1); // 4
    assert_eq!(store.delete("a"), 0);
    assert_eq!(store.revision, 4, "a delete of nothing makes no revision");
    store.put("a", "3"); // 5
    assert_eq!(store.at("a", 1), None);
    assert_eq!(store.at("a", 2), Some((2, 2, 1)));
    assert_eq!(store.at("a", 3), Some((2, 3, 2)));
    assert_eq!(store.at("a", 4), None);
    assert_eq!(store.at("a", 5), Some((5, 5, 1)));
}

#[test]
fn compaction_keeps_the_newest_put_and_a_tombstone_exactly_at_its_revision() {
    let build = || {
        let mut store = Store::new();
        store.put("a", "1"); // 2
        store.put("a", "2"); // 3
        store.delete("a"); // 4
        store.put("b", "1"); // 5
        store.put("b", "2"); // 6
        store
    };
    for (at, left) in [
        (1, vec![(2, 0), (3, 0), (4, 0), (5, 0), (6, 0)]),
        (2, vec![(2, 0), (3, 0), (4, 0), (5, 0), (6, 0)]),
        (3, vec![(3, 0), (4, 0), (5, 0), (6, 0)]),
        (4, vec![(4, 0), (5, 0), (6, 0)]),
        (5, vec![(5, 0), (6, 0)]),
        (6, vec![(6, 0)]),
    ] {
        let mut store = build();
        store.compact(at, true);
        assert_eq!(store.records(), left, "compacted at {at}");
        assert_eq!(store.index.read().len(), if at >= 5 { 1 } else { 2 });
    }
    let mut store = build();
    store.compact(4, true);
    store.compact(5, true);
    assert_eq!(store.records(), [(5, 0), (6, 0)], "the tombstone goes with the next compaction");
    store.put("a", "again"); // 7
    assert_eq!(store.at("a", 7), Some((7, 7, 1)));
}

#[test]
fn a_key_deleted_and_put_in_one_transaction_survives_compaction_there() {
    let mut store = Store::new();
    store.put("k", "old"); // 2
    let everything = Delete { range: KeyRange::all(), prev_kv: false };
    let txn =
        Txn { success: vec![Op::Delete(everything), Op::Put(put("k", "new"))], ..Txn::default() };
    let (answer, events) = store.change(|w| w.txn(&txn, &|_| true));
    assert_eq!(answer.unwrap().revision, 3);
    assert_eq!(events[0].prev, Some(Revision::new(2, 0)));
    assert!(events[1].is_create && events[1].prev.is_none());
    store.compact(3, true);
    assert_eq!(store.at("k", 3), Some((3, 3, 1)));
    assert_eq!(store.records(), [(3, 0), (3, 1)], "a watch may still start at 3");
    store.put("x", ""); // 4
    store.compact(4, true);
    assert_eq!(store.records(), [(3, 1), (4, 0)]);
}

#[test]
fn the_hash_of_a_finished_compaction_covers_what_it_says() {
    let mut store = Store::new();
    store.put("a", "1"); // 2
    store.put("b", "1"); // 3
    store.put("a", "2"); // 4
    store.delete("b"); // 5
    store.put("c", "1"); // 6
    store.compact(3, true);
    // Rows up to 3 that stay at 5, then everything in (3, 5].
    let mut expected = KvHasher::default();
    for (main, tombstone) in [(4, false), (5, true)] {
        let revision = Revision::new(main, 0);
        expected.add(revision, tombstone, &store.rows.row(revision).unwrap());
    }
    let hash = store.compact(5, true).unwrap();
    assert_eq!(hash.hash, expected.finish());
    assert_eq!((hash.compact_revision, hash.hash_revision), (3, 5));
    assert_eq!(store.compact(6, false), None);
}

#[test]
fn the_hash_does_not_depend_on_how_far_the_deletion_has_come() {
    // All keys dead at the hashed revision is the odd case: etcd then leaves nothing out.
    for alive in [true, false] {
        let mut store = Store::new();
        for i in 0..2_000 {
            store.put(&format!("k{i:04}"), "1");
        }
        let everything = Delete { range: KeyRange::all(), prev_kv: false };
        store.change(|w| w.delete(&everything)).0.unwrap();
        store.put("p", "1");
        store.delete("p");
        if alive {
            store.put("q", "1");
        }
        let at = 1_500;
        store.index.write().raise_floor(at);
        let expected = store.hash(store.revision);
        let mut job = Compaction::new(NEVER_COMPACTED, at, true);
        let mut steps = 0;
        loop {
            let mut dropped = Vec::new();
            let step = job.step(&store.index, &store.rows, &mut dropped).unwrap();
            for row in dropped {
                store.rows.0.remove(&row.revision).unwrap();
            }
            assert_eq!(store.hash(store.revision), expected, "alive {alive}, step {steps}");
            steps += 1;
            if step != Step::More {
                break;
            }
        }
        assert!(steps > 4, "{steps} steps are no background work");
    }
}

#[test]
fn leaves_shrink_and_merge_when_keys_go() {
    let mut store = Store::new();
    for i in 0..5_000 {
        store.put(&format!("{:04}", i * 7 % 5_000), "");
    }
    for i in (0..5_000).filter(|i| i % 50 != 0) {
        store.delete(&format!("{i:04}"));
    }
    store.put("9999", "");
    store.compact(store.revision, false);
    assert_eq!(store.index.read().len(), 101);
    assert!(store.index.read().heap_bytes() < 101 * 160, "leaves were not merged");
    for i in 0..5_000 {
        assert_eq!(store.at(&format!("{i:04}"), store.revision).is_some(), i % 50 == 0);
    }
}

#[test]
fn borrowed_rows_read_as_decoded_ones() {
    use super::rows::Parts;
    use prost::Message as _;
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 33) % below
    };
    let (mut good, mut bad) = (0, 0);
    for _ in 0..20_000 {
        let number = |bits: u64| if bits > 62 { -1 } else { (1_i64 << bits) - 1 };
        let kv = KeyValue {
            key: vec![1; random(20) as usize].into(),
            create_revision: number(random(64)),
            mod_revision: number(random(64)),
            version: number(random(64)),
            value: vec![2; random(200) as usize].into(),
            lease: number(random(64)),
        };
        let mut row = kv.encode_to_vec();
        // Changed, cut or followed by something else.
        if let (Some(_), choice) = (row.first(), random(4)) {
            let at = random(row.len() as u64) as usize;
            match choice {
                0 => row[at] = random(256) as u8,
                1 => row.truncate(at),
                2 => row.extend_from_slice(&[0x3a, 2, 7, 7, 0x40, 9]),
                _ => {}
            }
        }
        let read = Parts::decode(&row).map(|p| KeyValue {
            key: p.key.to_vec().into(),
            create_revision: p.create,
            mod_revision: p.modified,
            version: p.version,
            value: p.value.to_vec().into(),
            lease: p.lease,
        });
        let decoded = KeyValue::decode(&row[..]).ok();
        assert_eq!(read, decoded, "{row:?}");
        *if read.is_some() { &mut good } else { &mut bad } += 1;
    }
    assert!(good > 1_000 && bad > 1_000, "{good} good, {bad} bad");
}
