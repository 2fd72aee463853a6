//! Random operations from a seed.
//!
//! Few keys, few values and small numbers, so that operations meet: a range finds rows, a compare is
//! sometimes true, a lease holds several keys. Every sixth operation is one that must fail
//! (`mistakes.rs`), in turn, so that each failure comes up often enough.

use crate::ops::Op;
use assay::proto::etcdserverpb::{
    DeleteRangeRequest, LeaseGrantRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest,
};
use bytes::Bytes;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Beginnings of keys: plain ones, one inside another, and both ends of the byte range.
pub(crate) const PREFIXES: [&[u8]; 5] = [b"a/", b"a/b/", b"b", b"\x00", b"\xff\xff"];
/// Keys with each beginning.
pub(crate) const PER_PREFIX: usize = 10;
/// Most leases alive at a time.
const MOST_LEASES: usize = 12;
/// Every this many operations one must fail.
const MISTAKE_EVERY: usize = 6;

/// The generator and what it knows of the state: enough to aim operations at edges.
pub(crate) struct Generator {
    pub(crate) rng: ChaCha8Rng,
    /// Current revision.
    pub(crate) revision: i64,
    /// Compact revision, -1 if never compacted.
    pub(crate) compacted: i64,
    /// Leases that exist.
    pub(crate) leases: Vec<i64>,
    pub(crate) turn: usize,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self { rng, revision: 1, compacted: -1, leases: Vec::new(), turn: 0 }
    }

    /// The next operation.
    pub(crate) fn next(&mut self) -> Op {
        self.turn += 1;
        if self.turn.is_multiple_of(MISTAKE_EVERY) {
            return self.mistake(self.turn / MISTAKE_EVERY);
        }
        match self.rng.random_range(0..100) {
            0..24 => Op::Range(self.range()),
            24..30 => Op::RangeStream(self.stream_range()),
            30..54 => Op::Put(self.put()),
            54..63 => Op::Delete(self.delete()),
            63..83 => Op::Txn(self.txn()),
            83..84 => Op::HashKv(self.hash_revision()),
            _ => self.lease(),
        }
    }

    /// True in `percent` of the cases.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_ratio(percent, 100)
    }

    /// A key that may exist.
    pub(crate) fn key(&mut self) -> Bytes {
        let prefix = PREFIXES.choose(&mut self.rng).expect("prefixes");
        let number = self.rng.random_range(0..PER_PREFIX);
        [prefix, number.to_string().as_bytes()].concat().into()
    }

    /// A key and a range end: one key, an interval, a prefix, everything from a key, everything,
    /// and intervals that are empty or the wrong way round.
    pub(crate) fn interval(&mut self) -> (Bytes, Bytes) {
        let zero = Bytes::from_static(b"\0");
        match self.rng.random_range(0..16) {
            0..5 => (self.key(), Bytes::new()),
            5..8 => {
                let (one, other) = (self.key(), self.key());
                if one < other { (one, other) } else { (other, one) }
            }
            8..12 => {
                let prefix = PREFIXES.choose(&mut self.rng).expect("prefixes");
                (Bytes::from_static(prefix), prefix_end(prefix))
            }
            12..13 => (self.key(), zero),
            13..14 => (zero.clone(), zero),
            14..15 => {
                let key = self.key();
                (key.clone(), key)
            }
            _ => {
                let (one, other) = (self.key(), self.key());
                if one > other { (one, other) } else { (other, one) }
            }
        }
    }

    /// A revision that can be read: 0, a negative one, or one from the compact revision on.
    pub(crate) fn readable_revision(&mut self) -> i64 {
        match self.rng.random_range(0..20) {
            0..10 => 0,
            10 => -self.rng.random_range(1..5),
            11 => self.compacted.max(1),
            12 => self.revision,
            _ => self.rng.random_range(self.compacted.max(1)..=self.revision),
        }
    }

    /// A revision near the ones that exist, for filters and compares.
    pub(crate) fn near_revision(&mut self) -> i64 {
        let low = (self.revision - 200).max(1);
        self.rng.random_range(low..=self.revision + 2)
    }

    /// Any valid range.
    pub(crate) fn range(&mut self) -> RangeRequest {
        let mut range = self.stream_range();
        if self.chance(45) {
            range.sort_order = self.rng.random_range(0..3);
            range.sort_target = self.rng.random_range(0..5);
        }
        if self.chance(12) {
            range.min_mod_revision = self.near_revision();
        }
        if self.chance(12) {
            range.max_mod_revision = self.near_revision();
        }
        if self.chance(12) {
            range.min_create_revision = self.near_revision();
        }
        if self.chance(12) {
            range.max_create_revision = self.near_revision();
        }
        range
    }

    /// A range without sort and filters.
    pub(crate) fn stream_range(&mut self) -> RangeRequest {
        let (key, range_end) = self.interval();
        let mut range = RangeRequest { key, range_end, ..Default::default() };
        range.revision = self.readable_revision();
        if self.chance(35) {
            range.limit = self.rng.random_range(1..8);
        }
        range.serializable = self.chance(50);
        range.keys_only = self.chance(20);
        range.count_only = self.chance(10);
        range
    }

    /// A valid put; with `ignore_*` it may meet a missing key.
    pub(crate) fn put(&mut self) -> PutRequest {
        let mut put = PutRequest { key: self.key(), value: self.value(), ..Default::default() };
        put.prev_kv = self.chance(40);
        if self.chance(35)
            && let Some(lease) = self.leases.choose(&mut self.rng)
        {
            put.lease = *lease;
        }
        if self.chance(12) {
            put.ignore_value = true;
            put.value = Bytes::new();
        }
        if self.chance(12) {
            put.ignore_lease = true;
            put.lease = 0;
        }
        put
    }

    fn value(&mut self) -> Bytes {
        match self.rng.random_range(0..10) {
            0 => Bytes::new(),
            1..7 => vec![b'v', self.rng.random_range(b'0'..b'4')].into(),
            7..9 => {
                let len = self.rng.random_range(1..40);
                (0..len).map(|_| self.rng.random::<u8>()).collect::<Vec<_>>().into()
            }
            _ => vec![self.rng.random(); self.rng.random_range(100..2000)].into(),
        }
    }

    /// A valid delete. Wide ones are rare: they would keep the store empty.
    pub(crate) fn delete(&mut self) -> DeleteRangeRequest {
        let (key, range_end) =
            if self.chance(30) { self.interval() } else { (self.key(), Bytes::new()) };
        DeleteRangeRequest { key, range_end, prev_kv: self.chance(50) }
    }

    /// Hashes of a finished compaction are remembered by etcd under rules of their own: the compact
    /// revision itself is left out.
    fn hash_revision(&mut self) -> i64 {
        if self.revision <= self.compacted + 1 || self.chance(50) {
            return 0;
        }
        self.rng.random_range(self.compacted.max(0) + 1..=self.revision)
    }

    fn lease(&mut self) -> Op {
        let known = self.leases.choose(&mut self.rng).copied();
        let id = match known {
            Some(id) if !self.chance(15) => id,
            _ => self.unknown_lease(),
        };
        match self.rng.random_range(0..100) {
            0..30 if self.leases.len() < MOST_LEASES => Op::Grant(self.grant()),
            0..12 => known.map_or(Op::Leases, Op::Revoke),
            12..30 => Op::GrantAny { ttl: self.rng.random_range(-2..5) },
            30..55 => Op::KeepAlive(id),
            55..85 => Op::TimeToLive(LeaseTimeToLiveRequest { id, keys: self.chance(60) }),
            85..92 => known.map_or(Op::Leases, Op::Revoke),
            _ => Op::Leases,
        }
    }

    /// Long-lived leases, positive and negative identities, up to the longest TTL.
    fn grant(&mut self) -> LeaseGrantRequest {
        let id = loop {
            let id = self.unknown_lease();
            if id != 0 {
                break id;
            }
        };
        let ttl = match self.rng.random_range(0..4) {
            0 => 9_000_000_000,
            _ => self.rng.random_range(5_000..1_000_000),
        };
        LeaseGrantRequest { ttl, id }
    }

    /// An identity that no lease has.
    pub(crate) fn unknown_lease(&mut self) -> i64 {
        loop {
            let id = match self.rng.random_range(0..4) {
                0 => -self.rng.random_range(1..1_000_000),
                1 => self.rng.random_range(1..1_000),
                _ => self.rng.random_range(1..i64::MAX),
            };
            if !self.leases.contains(&id) {
                return id;
            }
        }
    }
}

/// First key after all keys with this prefix, `\0` if there is none.
pub(crate) fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(b"\0")
}
