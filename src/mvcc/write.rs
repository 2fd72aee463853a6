//! One change of the store: everything that happens at one main revision.

use super::range::range;
use super::rows::{Parts, key_in};
use super::txn::{Path, check, check_put, choose, decode, execute, tombstone_row};
use super::{
    Charge, Delete, Event, EventKind, KeyIndex, KeyRange, KeyValue, KvError, Live, Put, RangeQuery,
    RangeResult, Revision, Rows, RowsError, SharedIndex, Txn, TxnAnswer,
};
use bytes::Bytes;
use std::ops::ControlFlow;

/// What a [`Write`] leaves behind.
#[derive(Debug, Default)]
pub struct Changes {
    /// New rows in revision order: revision, tombstone, row.
    pub rows: Vec<(Revision, bool, Bytes)>,
    /// The same as watchers see them.
    pub events: Vec<Event>,
    /// Charge of all new rows, bytes.
    pub charged: u64,
    /// Change of the charge of live rows, bytes.
    pub live: i64,
    /// Change of the number of keys.
    pub keys: i64,
}

/// Collects the rows and events of one transaction. The index is changed as it goes; readers do
/// not see that, because they read at published revisions.
#[derive(Debug)]
pub struct Write<'a, R: ?Sized> {
    index: &'a SharedIndex,
    rows: &'a R,
    current: i64,
    compacted: i64,
    /// Bytes that a row of this encoded length takes from the quota.
    charge: fn(usize) -> u64,
    changes: Changes,
}

/// Keys deleted per hold of the index. With a hold for each, a large delete waits for the slice of
/// some reader at every key; in one hold, readers would wait for all of it. This many take less than
/// a reader's slice.
const DELETE_HOLD_KEYS: usize = 128;

/// Rows of the store and, before them, those of the open transaction.
struct Fresh<'a, R: ?Sized> {
    rows: &'a R,
    main: i64,
    fresh: &'a [(Revision, bool, Bytes)],
}

impl<R: Rows + ?Sized> Rows for Fresh<'_, R> {
    fn row(&self, revision: Revision) -> Result<Bytes, RowsError> {
        if revision.main != self.main {
            return self.rows.row(revision);
        }
        // Sub revisions count from 0, so they are positions.
        let at = usize::try_from(revision.sub).ok();
        let row = at.and_then(|at| self.fresh.get(at)).map(|(_, _, row)| row.clone());
        row.ok_or(RowsError::Missing)
    }

    fn rows(&self, revisions: &[Revision]) -> Result<Vec<Bytes>, RowsError> {
        if revisions.iter().all(|revision| revision.main != self.main) {
            return self.rows.rows(revisions);
        }
        revisions.iter().map(|revision| self.row(*revision)).collect()
    }

    fn scan(
        &self,
        from: i64,
        to: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        self.rows.scan(from, to, f)
    }
}

impl<'a, R: Rows + ?Sized> Write<'a, R> {
    /// A change on top of main revision `current` of a store compacted at `compacted`.
    pub fn new(index: &'a SharedIndex, rows: &'a R, current: i64, compacted: i64) -> Self {
        let charge = |bytes| bytes as u64;
        Self { index, rows, current, compacted, charge, changes: Changes::default() }
    }

    /// Counts rows by `charge`, which turns an encoded length into bytes taken from the quota.
    #[must_use]
    pub fn charged_by(self, charge: fn(usize) -> u64) -> Self {
        Self { charge, ..self }
    }

    /// Whether nothing changed so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.rows.is_empty()
    }

    /// The revision before.
    #[must_use]
    pub fn current(&self) -> i64 {
        self.current
    }

    /// The compact revision.
    #[must_use]
    pub fn compacted(&self) -> i64 {
        self.compacted
    }

    /// The store's revision at this point: one more once something changed.
    #[must_use]
    pub fn revision(&self) -> i64 {
        if self.is_empty() { self.current } else { self.main() }
    }

    /// Ends the change. If there are rows, the store's revision is one more now.
    #[must_use]
    pub fn finish(self) -> Changes {
        self.changes
    }

    fn main(&self) -> i64 {
        self.current + 1
    }

    fn next(&self) -> Revision {
        Revision::new(self.main(), self.changes.rows.len() as i64)
    }

    fn view(&self) -> Fresh<'_, R> {
        Fresh { rows: self.rows, main: self.main(), fresh: &self.changes.rows }
    }

    /// The key as it is at this point.
    pub(super) fn get(&self, key: &[u8]) -> Option<Live> {
        self.index.read().get(key, self.revision())
    }

    pub(super) fn slice(
        &self,
        range: &KeyRange,
        after: Option<&[u8]>,
        visit: impl FnMut(&[u8], Live),
    ) -> Option<Vec<u8>> {
        self.index.read().slice(range, after, self.revision(), visit)
    }

    pub(super) fn key_value(&self, live: &Live) -> Result<KeyValue, KvError> {
        decode(self.view().row(live.revision)?)
    }

    /// A range as of this point, own changes included.
    pub(super) fn range(&self, query: &RangeQuery) -> Result<RangeResult, KvError> {
        let at = if query.revision > 0 { query.revision } else { self.revision() };
        range(self.index, &self.view(), query, at, self.revision())
    }

    /// A put on its own: checked, then done. Returns the row before if asked for.
    ///
    /// # Errors
    /// [`KvError::LeaseNotFound`], [`KvError::KeyNotFound`], [`KvError::Rows`]; nothing is changed.
    pub fn put_checked(
        &mut self,
        put: &Put,
        lease_exists: &dyn Fn(i64) -> bool,
    ) -> Result<Option<Bytes>, KvError> {
        check_put(put, self, lease_exists, &[])?;
        self.put(put)
    }

    /// A transaction: path, checks, execution.
    ///
    /// # Errors
    /// See [`KvError`]. Nothing is changed, except after [`KvError::Rows`]: then the store is
    /// broken and this change must not be used.
    pub fn txn(
        &mut self,
        txn: &Txn,
        lease_exists: &dyn Fn(i64) -> bool,
    ) -> Result<TxnAnswer, KvError> {
        let mut path = Path::new();
        choose(txn, self, &mut path)?;
        check(txn, self, lease_exists, &mut path.iter(), &mut Vec::new())?;
        let answer = execute(txn, self, &mut path.iter())?;
        Ok(TxnAnswer { revision: self.revision(), ..answer })
    }

    /// A put whose checks have passed.
    pub(super) fn put(&mut self, put: &Put) -> Result<Option<Bytes>, KvError> {
        let mut value = put.value.clone();
        let mut lease = put.lease;
        let mut prev_kv = None;
        if put.prev_kv || put.ignore_value || put.ignore_lease {
            let before = self.get(&put.key);
            prev_kv = before.map(|live| self.view().row(live.revision)).transpose()?;
            if put.ignore_value || put.ignore_lease {
                let before = decode(prev_kv.clone().ok_or(KvError::KeyNotFound)?)?;
                if put.ignore_value {
                    value = before.value;
                }
                if put.ignore_lease {
                    lease = before.lease;
                }
            }
        }
        let revision = self.next();
        let key: &[u8] = &put.key;
        let mut row = Bytes::new();
        let mut charge = Charge::default();
        let mut index = self.index.write();
        let done = index.put(key, revision, |live| {
            let Live { revision, create, version } = live;
            let parts =
                Parts { key, create, modified: revision.main, version, value: &value, lease };
            row = parts.encode();
            charge = Charge::new((self.charge)(row.len()));
            charge
        });
        let prev = prev_of(done.before.filter(|_| done.now.version > 1), revision.main, || {
            index.get(key, revision.main - 1)
        });
        drop(index);
        let changes = &mut self.changes;
        changes.charged += charge.bytes();
        changes.live += charge.bytes() as i64;
        match done.before {
            Some(_) => changes.live -= done.before_charge.bytes() as i64,
            None => changes.keys += 1,
        }
        changes.events.push(Event {
            kind: EventKind::Put,
            key: key_in(&row),
            row: row.clone(),
            revision,
            is_create: done.now.version == 1,
            prev,
            lease,
        });
        changes.rows.push((revision, false, row));
        Ok(if put.prev_kv { prev_kv } else { None })
    }

    /// Deletes what exists in the range; returns the number and, if asked for, the rows before.
    ///
    /// # Errors
    /// [`KvError::Rows`].
    pub fn delete(&mut self, delete: &Delete) -> Result<(i64, Vec<Bytes>), KvError> {
        let mut keys: Vec<(Box<[u8]>, Live)> = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let from = after.as_deref();
            after = self.slice(&delete.range, from, |key, live| keys.push((key.into(), live)));
            if after.is_none() {
                break;
            }
        }
        // All at once: the store reads them in its own order.
        let prev_kvs = if delete.prev_kv {
            let revisions: Vec<Revision> = keys.iter().map(|(_, live)| live.revision).collect();
            self.view().rows(&revisions)?
        } else {
            Vec::new()
        };
        self.delete_keys(keys.iter().map(|(key, _)| &**key));
        Ok((keys.len() as i64, prev_kvs))
    }

    /// Deletes those of the keys that exist, [`DELETE_HOLD_KEYS`] per hold of the index.
    pub fn delete_keys<'k>(&mut self, keys: impl IntoIterator<Item = &'k [u8]>) {
        let mut keys = keys.into_iter().peekable();
        let shared = self.index;
        while keys.peek().is_some() {
            let mut index = shared.write();
            for key in keys.by_ref().take(DELETE_HOLD_KEYS) {
                self.delete_key(&mut index, key);
            }
        }
    }

    fn delete_key(&mut self, index: &mut KeyIndex, key: &[u8]) {
        let revision = self.next();
        let row = tombstone_row(key);
        let charge = Charge::new((self.charge)(row.len()));
        let Some((before, before_charge)) = index.tombstone(key, revision, charge) else { return };
        let prev = prev_of(Some(before), revision.main, || index.get(key, revision.main - 1));
        let shown = Parts { key, modified: revision.main, ..Parts::default() }.encode();
        let changes = &mut self.changes;
        changes.charged += charge.bytes();
        changes.live -= before_charge.bytes() as i64;
        changes.keys -= 1;
        changes.events.push(Event {
            kind: EventKind::Delete,
            key: key_in(&shown),
            row: shown,
            revision,
            is_create: false,
            prev,
            lease: 0,
        });
        changes.rows.push((revision, true, row));
    }
}

/// The row that an event's `prev_kv` shows: the key's before this main revision, even if the same
/// transaction changed the key twice.
fn prev_of(
    before: Option<Live>,
    main: i64,
    before_main: impl FnOnce() -> Option<Live>,
) -> Option<Revision> {
    match before {
        Some(live) if live.revision.main == main => before_main().map(|live| live.revision),
        other => other.map(|live| live.revision),
    }
}
