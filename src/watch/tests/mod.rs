//! The hub: its rules one by one, and a naive oracle under random interleavings.

pub(crate) mod oracle;
mod rules;
mod world;

use super::*;
use crate::mvcc::{End, Event, EventBatch, EventKind, KeyValue, Revision};
use prost::Message;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A store in a map: rows of all keys by revision, with the rules of compaction.
#[derive(Default)]
pub(crate) struct Store {
    rows: BTreeMap<(i64, i64), (bool, Bytes)>,
    /// Live rows by key.
    live: BTreeMap<Bytes, (Revision, KeyValue)>,
    /// Every event ever, for the oracle.
    pub(crate) history: Vec<Arc<EventBatch>>,
    /// Every row ever by key, `None` for a delete.
    versions: BTreeMap<Bytes, Vec<(i64, Option<Bytes>)>>,
    pub(crate) revision: i64,
    pub(crate) compact: i64,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Op {
    Put,
    Delete,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { revision: 1, compact: -1, ..Self::default() }
    }

    /// One transaction; `None` if it changes nothing.
    pub(crate) fn commit(&mut self, ops: &[(Op, &str)], len: usize) -> Option<Arc<EventBatch>> {
        let main = self.revision + 1;
        let mut events = Vec::new();
        for (op, key) in ops {
            let key = Bytes::copy_from_slice(key.as_bytes());
            let revision = Revision { main, sub: events.len() as i64 };
            let before = self.live.get(&key).cloned();
            if *op == Op::Delete && before.is_none() {
                continue;
            }
            let kv = match (op, &before) {
                (Op::Delete, _) => {
                    KeyValue { key: key.clone(), mod_revision: main, ..KeyValue::default() }
                }
                (Op::Put, before) => KeyValue {
                    key: key.clone(),
                    create_revision: before.as_ref().map_or(main, |(_, kv)| kv.create_revision),
                    mod_revision: main,
                    version: before.as_ref().map_or(1, |(_, kv)| kv.version + 1),
                    value: Bytes::from(vec![b'v'; len]),
                    lease: 0,
                },
            };
            let row = Bytes::from(kv.encode_to_vec());
            let tombstone = *op == Op::Delete;
            let stored = if tombstone {
                // As etcd stores it: the key alone.
                Bytes::from(KeyValue { mod_revision: 0, ..kv.clone() }.encode_to_vec())
            } else {
                row.clone()
            };
            self.rows.insert((main, revision.sub), (tombstone, stored));
            let version = (!tombstone).then(|| row.clone());
            self.versions.entry(key.clone()).or_default().push((main, version));
            events.push(Event {
                kind: if tombstone { EventKind::Delete } else { EventKind::Put },
                key: key.clone(),
                row,
                revision,
                is_create: !tombstone && kv.create_revision == main,
                prev: before.map(|(revision, _)| revision),
                lease: 0,
            });
            if tombstone {
                self.live.remove(&key);
            } else {
                self.live.insert(key, (revision, kv));
            }
        }
        if events.is_empty() {
            return None;
        }
        self.revision = main;
        let batch = Arc::new(EventBatch { revision: main, events });
        self.history.push(batch.clone());
        Some(batch)
    }

    /// Removes what compaction at `self.compact` allows: older versions of each key, and
    /// tombstones unless they are exactly at the compact revision.
    pub(crate) fn scrub(&mut self) {
        let compact = self.compact;
        let mut newest: BTreeMap<Bytes, i64> = BTreeMap::new();
        for ((main, _), (_, row)) in self.rows.range(..(compact + 1, 0)) {
            newest.insert(KeyValue::decode(row.clone()).unwrap().key, *main);
        }
        self.rows.retain(|(main, _), (tombstone, row)| {
            let key = KeyValue::decode(row.clone()).unwrap().key;
            *main >= compact || (!*tombstone && newest[&key] == *main)
        });
    }

    /// What `prev_kv` shows of a key before `main`, were nothing compacted.
    pub(crate) fn before(&self, key: &[u8], main: i64) -> Option<Bytes> {
        let versions = self.versions.get(key)?;
        let earlier = versions.partition_point(|(at, _)| *at < main);
        versions[..earlier].last().and_then(|(_, row)| row.clone())
    }
}

impl Rows for Store {
    fn row(&self, rev: Revision) -> Result<Bytes, RowsError> {
        let row = self.rows.get(&(rev.main, rev.sub)).ok_or(RowsError::Missing)?;
        Ok(row.1.clone())
    }

    fn rows(&self, revs: &[Revision]) -> Result<Vec<Bytes>, RowsError> {
        revs.iter().map(|&rev| self.row(rev)).collect()
    }

    fn scan(
        &self,
        from_main: i64,
        to_main: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        for (&(main, sub), (tombstone, row)) in self.rows.range((from_main, 0)..(to_main + 1, 0)) {
            if f(Revision { main, sub }, *tombstone, row.clone()).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Source for Store {
    fn rows(&self) -> &dyn Rows {
        self
    }

    fn revision(&self) -> i64 {
        self.revision
    }

    fn compact_revision(&self) -> i64 {
        self.compact
    }

    fn row_at(&self, key: &[u8], revision: i64) -> Result<Option<Bytes>, RowsError> {
        Ok(self.before(key, revision + 1))
    }
}

/// Queues without bound of their own: what the hub puts in is checked against its promise.
#[derive(Default)]
pub(crate) struct Queues {
    pub(crate) queues: BTreeMap<StreamId, Vec<Delivery>>,
    pub(crate) loads: BTreeMap<StreamId, Load>,
    pub(crate) waits: std::collections::BTreeSet<StreamId>,
    pub(crate) limit: Option<Load>,
    parts: bool,
}

impl Outbox for Queues {
    fn load(&self, stream: StreamId) -> Load {
        self.loads.get(&stream).copied().unwrap_or_default()
    }

    fn deliver(&mut self, delivery: Delivery) {
        let load = self.loads.entry(delivery.stream).or_default();
        if let Some(limit) = self.limit
            && !delivery.events.is_empty()
            && !self.parts
        {
            assert!(
                load.bytes < limit.bytes && load.events < limit.events,
                "events for a full queue: {load:?}"
            );
        }
        self.parts = delivery.fragment;
        load.bytes += delivery.bytes;
        load.events += delivery.weight();
        self.queues.entry(delivery.stream).or_default().push(delivery);
    }

    fn wait_for_room(&mut self, stream: StreamId) {
        self.waits.insert(stream);
    }
}

impl Queues {
    /// Takes everything out of one queue.
    pub(crate) fn take(&mut self, stream: StreamId) -> Vec<Delivery> {
        self.loads.remove(&stream);
        self.queues.remove(&stream).unwrap_or_default()
    }
}

pub(crate) fn range(start: &str, end: End) -> KeyRange {
    KeyRange { start: Bytes::copy_from_slice(start.as_bytes()), end }
}

pub(crate) fn to(end: &str) -> End {
    End::To(Bytes::copy_from_slice(end.as_bytes()))
}

pub(crate) fn watch(range: KeyRange, start_revision: i64) -> Create {
    Create {
        range,
        start_revision,
        watch_id: 0,
        no_put: false,
        no_delete: false,
        prev_kv: false,
        progress_notify: false,
        fragment: false,
    }
}

/// A decoded event: delete?, key, mod revision, is creation, previous row.
pub(crate) type Seen = (bool, Bytes, i64, bool, Bytes);

pub(crate) fn decode(event: &Bytes) -> Seen {
    let event = crate::proto::mvccpb::Event::decode(event.clone()).unwrap();
    let kv = KeyValue::decode(event.kv).unwrap();
    let delete = event.r#type == 1;
    let create = !delete && kv.create_revision == kv.mod_revision;
    (delete, kv.key, kv.mod_revision, create, event.prev_kv)
}
