//! Random histories, judged by the model after every step.

use super::model::{Change, Model, Row};
use super::*;
use crate::mvcc::{Event, EventKind, HashKv};
use crate::store::row_footprint;
use pb::compare::TargetUnion;
use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::ops::ControlFlow;

/// Answer and changes of an entry.
type Told = (Result<Answer, AnswerError>, Option<Vec<Event>>);

struct Run {
    rng: ChaCha8Rng,
    node: Node,
    model: Model,
    /// Answers and changes of every entry, to be repeated by a replay.
    told: Vec<Told>,
    /// Hashes that compactions should have left.
    hashes: Vec<HashKv>,
    interrupted: bool,
    counts: Counts,
}

/// What happened, so that a test which stops testing is noticed.
#[derive(Debug, Default)]
struct Counts {
    oks: u64,
    errors: u64,
    reads: u64,
    read_errors: u64,
    compactions: u64,
    restarts: u64,
    txns_changing: u64,
    hashes: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            node: Node::new(),
            model: Model::new(),
            told: Vec::new(),
            hashes: Vec::new(),
            interrupted: false,
            counts: Counts::default(),
        }
    }

    fn key(&mut self) -> Bytes {
        const KEYS: [&[u8]; 12] = [
            b"\0",
            b"a",
            b"aa",
            b"ab",
            b"b",
            b"b\0",
            b"ba",
            b"c",
            b"ca",
            b"d",
            b"\xfe",
            b"\xff\xff",
        ];
        Bytes::from_static(KEYS[self.rng.random_range(0..KEYS.len())])
    }

    fn end(&mut self) -> Bytes {
        match self.rng.random_range(0..10) {
            0..4 => Bytes::new(),
            4..6 => Bytes::from_static(b"\0"),
            _ => self.key(),
        }
    }

    fn value(&mut self) -> Bytes {
        let len = self.rng.random_range(0..3);
        (0..len).map(|_| self.rng.random_range(b'x'..=b'z')).collect()
    }

    fn lease(&mut self) -> i64 {
        [0, 0, 0, 1, 2, -3][self.rng.random_range(0..6)]
    }

    fn some_revision(&mut self) -> i64 {
        match self.rng.random_range(0..8) {
            0..3 => 0,
            3 => self.model.revision(),
            4 => self.model.compacted,
            _ => self.rng.random_range(-2..=self.model.revision() + 1),
        }
    }

    fn put(&mut self) -> pb::PutRequest {
        let ignore_value = self.rng.random_ratio(1, 6);
        let ignore_lease = self.rng.random_ratio(1, 6);
        pb::PutRequest {
            key: self.key(),
            value: if ignore_value { Bytes::new() } else { self.value() },
            lease: if ignore_lease { 0 } else { self.lease() },
            prev_kv: self.rng.random(),
            ignore_value,
            ignore_lease,
        }
    }

    fn delete(&mut self) -> pb::DeleteRangeRequest {
        pb::DeleteRangeRequest {
            key: self.key(),
            range_end: self.end(),
            prev_kv: self.rng.random(),
        }
    }

    fn range(&mut self) -> pb::RangeRequest {
        let bound = |run: &mut Self| match run.rng.random_range(0..6) {
            0 => run.rng.random_range(0..=run.model.revision() + 1),
            _ => 0,
        };
        pb::RangeRequest {
            key: self.key(),
            range_end: self.end(),
            limit: [0, 0, 1, 2, 5, -1][self.rng.random_range(0..6)],
            revision: self.some_revision(),
            sort_order: self.rng.random_range(0..3),
            sort_target: self.rng.random_range(0..5),
            serializable: false,
            keys_only: self.rng.random_ratio(1, 4),
            count_only: self.rng.random_ratio(1, 8),
            min_mod_revision: bound(self),
            max_mod_revision: bound(self),
            min_create_revision: bound(self),
            max_create_revision: bound(self),
        }
    }

    fn compare(&mut self) -> pb::Compare {
        let number = match self.rng.random_range(0..3) {
            0 => self.rng.random_range(-1..4),
            _ => self.rng.random_range(0..=self.model.revision()),
        };
        let target_union = match self.rng.random_range(0..7) {
            0 | 1 => Some(TargetUnion::Version(self.rng.random_range(0..4))),
            2 => Some(TargetUnion::CreateRevision(number)),
            3 => Some(TargetUnion::ModRevision(number)),
            4 => Some(TargetUnion::Value(self.value())),
            5 => Some(TargetUnion::Lease(self.lease())),
            _ => None,
        };
        let target = match &target_union {
            Some(TargetUnion::Version(_)) => 0,
            Some(TargetUnion::CreateRevision(_)) => 1,
            Some(TargetUnion::ModRevision(_)) => 2,
            Some(TargetUnion::Value(_)) => 3,
            Some(TargetUnion::Lease(_)) => 4,
            None => self.rng.random_range(0..6),
        };
        pb::Compare {
            result: self.rng.random_range(0..5),
            target: if self.rng.random_ratio(1, 20) { self.rng.random_range(0..6) } else { target },
            key: self.key(),
            range_end: if self.rng.random_ratio(1, 4) { self.end() } else { Bytes::new() },
            target_union,
        }
    }

    fn ops(&mut self, depth: usize) -> Vec<pb::RequestOp> {
        let count = self.rng.random_range(0..4);
        let one = |run: &mut Self| match run.rng.random_range(0..10) {
            0..3 => Request::RequestRange(run.range()),
            3..7 => Request::RequestPut(run.put()),
            7 | 8 => Request::RequestDeleteRange(run.delete()),
            _ if depth > 0 => Request::RequestTxn(run.txn(depth - 1)),
            _ => Request::RequestPut(run.put()),
        };
        (0..count).map(|_| op(one(self))).collect()
    }

    fn txn(&mut self, depth: usize) -> pb::TxnRequest {
        let compares = [0, 0, 1, 1, 2][self.rng.random_range(0..5)];
        pb::TxnRequest {
            compare: (0..compares).map(|_| self.compare()).collect(),
            success: self.ops(depth),
            failure: self.ops(depth),
        }
    }

    fn request(&mut self) -> InternalRaftRequest {
        match self.rng.random_range(0..100) {
            0..35 => self.put().into(),
            35..50 => self.delete().into(),
            50..82 => loop {
                let txn = self.txn(2);
                if check::txn(&txn, 128).is_ok() {
                    break txn.into();
                }
            },
            82..88 => compact(self.some_revision()),
            88..95 => grant(self.lease(), [5, 0, -1, 9_000_000_001][self.rng.random_range(0..4)]),
            _ => revoke(self.lease()),
        }
    }

    fn step(&mut self) {
        let request = self.request();
        if let Some(compaction) = &request.compaction {
            let at = compaction.revision;
            let hash = self.model.compaction_hash(at);
            let accepted = at > self.model.compacted && at <= self.model.revision();
            if accepted && !self.interrupted {
                self.hashes.push(hash);
                let more = self.hashes.len().saturating_sub(10);
                self.hashes.drain(..more);
            }
            self.counts.compactions += u64::from(accepted);
        }
        let (answer, changes) = self.model.run(&request);
        let outcome = self.node.run(request.clone());
        assert_eq!(outcome.answer, answer, "{request:?}");
        if answer.is_ok() {
            self.counts.oks += 1
        } else {
            self.counts.errors += 1
        }
        self.counts.txns_changing += u64::from(request.txn.is_some() && !changes.is_empty());
        let events = outcome.events.map(|batch| {
            assert_eq!(batch.revision, self.model.revision());
            batch.events.clone()
        });
        self.events(events.as_deref().unwrap_or_default(), &changes);
        self.told.push((answer, events));
        assert_eq!(self.node.reader.revision(), self.model.revision());
        assert_eq!(self.node.reader.compact_revision(), self.model.compacted);
        for _ in 0..3 {
            self.read();
        }
        match self.rng.random_range(0..40) {
            0..8 => self.node.commit(),
            8..16 => {
                self.node.machine.compaction_step();
            }
            16..19 => self.drained(),
            19 => self.restart(),
            _ => {}
        }
    }

    fn events(&self, events: &[Event], changes: &[Change]) {
        assert_eq!(events.len(), changes.len());
        for (sub, (event, change)) in events.iter().zip(changes).enumerate() {
            assert_eq!(
                event.revision,
                crate::mvcc::Revision::new(self.model.revision(), sub as i64)
            );
            let prev = event.prev.map(|prev| self.node.reader.row(prev).unwrap().unwrap());
            let seen = Change {
                delete: event.kind == EventKind::Delete,
                key: event.key.to_vec(),
                row: event.row.clone(),
                create: event.is_create,
                prev,
                lease: event.lease,
            };
            assert_eq!(&seen, change);
        }
    }

    fn read(&mut self) {
        self.counts.reads += 1;
        let range = self.range();
        let expected = self.model.read(&range);
        let query: crate::mvcc::RangeQuery = range.clone().into();
        self.counts.read_errors += u64::from(expected.is_err());
        assert_eq!(self.node.reader.range(&query), expected, "{range:?}");
        if range.sort_target == 0 && range.sort_order != 2 && query.filters.is_empty() {
            let pieces = self.node.reader.stream(query, 16).and_then(|mut stream| {
                let mut kvs = Vec::new();
                let mut end = None;
                while let Some(chunk) = stream.next_chunk()? {
                    assert!(end.is_none(), "a chunk behind the last one");
                    kvs.extend(chunk.kvs);
                    end = chunk.end;
                }
                Ok((kvs, end.unwrap()))
            });
            match (pieces, expected) {
                (Ok((kvs, end)), Ok(whole)) => {
                    assert_eq!((kvs, end.more, end.count), (whole.kvs, whole.more, whole.count));
                    assert_eq!(end.revision, whole.revision);
                }
                (pieces, expected) => assert_eq!(pieces.err(), expected.err()),
            }
        }
        let at = self.some_revision();
        let stored = self.node.reader.compaction_hashes();
        if !stored.iter().any(|hash| hash.hash_revision == at.max(0))
            && !stored.iter().any(|hash| at <= 0 && hash.hash_revision == self.model.revision())
        {
            self.counts.hashes += 1;
            assert_eq!(self.node.reader.hash_kv(at), self.model.hash_kv(at), "hash at {at}");
        }
        for id in [1, 2, -3] {
            let attached = self.model.now().values().filter(|kv| kv.lease == id);
            let attached: Vec<Bytes> = attached.map(|kv| kv.key.clone()).collect();
            let keys = self.node.reader.lease_keys(id);
            assert_eq!(keys, self.model.leases.contains_key(&id).then_some(attached));
        }
    }

    /// With all compactions finished, the store holds exactly the model's rows.
    fn drained(&mut self) {
        self.node.drain();
        assert_eq!(self.node.reader.compaction_hashes(), self.hashes);
        self.interrupted = false;
        if let Some(last) = self.hashes.last() {
            let revision = self.model.revision();
            let told = self.node.reader.hash_kv(last.hash_revision);
            // Asking for revision 0 means the current one.
            if last.hash_revision > 0 {
                assert_eq!(told, Ok(HashKv { revision, ..*last }));
            }
        }
        if self.rng.random() {
            self.node.commit();
        }
        self.node.machine.publish();
        let sizes = self.node.reader.sizes();
        let leases = self.model.leases.len() as u64 * 64;
        let all = |rows: &mut dyn Iterator<Item = usize>| -> u64 { rows.map(row_footprint).sum() };
        let live = &mut self.model.now().values().map(|kv| kv.encoded_len());
        let total = all(&mut self.model.rows.iter().map(|row| row.bytes.len()));
        assert_eq!(sizes.total_bytes, total + leases);
        assert_eq!(sizes.in_use_bytes, all(live) + leases);
        assert_eq!(sizes.keys, self.model.now().len() as u64);
        self.node.commit();
        assert_eq!(self.rows(), self.model.rows);
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut take = |revision: crate::mvcc::Revision, tombstone, bytes: Bytes| {
            let key = pb_kv::KeyValue::decode(bytes.clone()).unwrap().key.to_vec();
            rows.push(Row { main: revision.main, sub: revision.sub, tombstone, key, bytes });
            ControlFlow::Continue(())
        };
        crate::mvcc::Rows::scan(self.node.reader.rows(), 0, i64::MAX, &mut take).unwrap();
        rows
    }

    /// What is replayed after a restart must say again what it said before.
    fn restart(&mut self) {
        self.counts.restarts += 1;
        self.interrupted |= self.node.machine.compaction_pending();
        let outcomes = self.node.restart();
        let from = self.told.len() - outcomes.len();
        for (outcome, (answer, events)) in outcomes.iter().zip(&self.told[from..]) {
            assert_eq!(&outcome.answer, answer);
            assert_eq!(outcome.events.as_ref().map(|batch| &batch.events), events.as_ref());
        }
        self.hashes.clear();
        self.drained_hashes_unknown();
        assert_eq!(self.node.reader.revision(), self.model.revision(), "revision after a restart");
        assert_eq!(self.node.reader.compact_revision(), self.model.compacted);
        for _ in 0..10 {
            self.read();
        }
    }

    /// A replayed compaction makes its hash again, or not, depending on what was durable: finish
    /// it and take what is there.
    fn drained_hashes_unknown(&mut self) {
        self.node.drain();
        self.hashes = self.node.reader.compaction_hashes();
        self.interrupted = false;
    }
}

fn histories(seeds: std::ops::Range<u64>, steps: usize) -> Counts {
    let mut all = Counts::default();
    for seed in seeds {
        let mut run = Run::new(seed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..steps {
                run.step();
            }
            run.drained();
        }));
        if let Err(panic) = result {
            eprintln!(
                "seed {seed} failed; run it alone with histories({seed}..{}, {steps})",
                seed + 1
            );
            std::panic::resume_unwind(panic);
        }
        let Counts { oks, errors, reads, read_errors, compactions, restarts, .. } = run.counts;
        all.oks += oks;
        all.errors += errors;
        all.reads += reads;
        all.read_errors += read_errors;
        all.compactions += compactions;
        all.restarts += restarts;
        all.txns_changing += run.counts.txns_changing;
        all.hashes += run.counts.hashes;
    }
    all
}

#[test]
fn random_histories_match_the_model() {
    let seeds = std::env::var("SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let counts = histories(0..seeds, 300);
    println!("{counts:?}");
    for (what, count) in [
        ("commands done", counts.oks),
        ("commands refused", counts.errors),
        ("changing transactions", counts.txns_changing),
        ("reads refused", counts.read_errors),
        ("compactions", counts.compactions),
        ("hashes", counts.hashes),
    ] {
        assert!(count > seeds * 5, "{what}: only {count}");
    }
    assert!(counts.restarts > seeds, "restarts: only {}", counts.restarts);
}
