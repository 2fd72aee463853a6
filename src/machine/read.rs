//! Reads of what is published, from any thread.

use super::published::{Published, Tables};
use super::{
    Alarm, AuthStatus, Downgrade, Machine, Members, RangeStream, ReadError, RunningPoints, Sizes,
};
use crate::lease;
use crate::mvcc::{
    self, HashKv, KvError, RangeQuery, RangeResult, Revision, Rows, RowsError, SharedIndex, Txn,
    TxnAnswer,
};
use crate::store::{Shared, Table};
use bytes::Bytes;
use parking_lot::RwLock;
use std::ops::ControlFlow;
use std::sync::Arc;

/// How often a read of the current revision begins anew because a compaction overtook it.
const ATTEMPTS: usize = 8;

/// A reader; cheap to clone, one per thread or shared.
#[derive(Clone, Debug)]
pub struct Reader {
    pub(super) index: SharedIndex,
    pub(super) store: Shared,
    pub(super) published: Arc<Published>,
    leases: Arc<RwLock<lease::Table>>,
    quota_bytes: Option<u64>,
}

/// A lease and what hangs on it.
pub type Lease = lease::Lease;

impl Reader {
    pub(super) fn new(machine: &Machine) -> Self {
        Self {
            index: Arc::clone(&machine.index),
            store: machine.store.clone(),
            published: Arc::clone(&machine.published),
            leases: Arc::clone(&machine.leases),
            quota_bytes: machine.options.quota_bytes,
        }
    }

    /// The current revision.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.published.revision()
    }

    /// The compact revision; −1 if the store was never compacted.
    #[must_use]
    pub fn compact_revision(&self) -> i64 {
        self.published.compacted()
    }

    /// The last compaction whose rows are all in a batch (not necessarily durable); −1 if none.
    #[must_use]
    pub fn finished_compaction(&self) -> i64 {
        self.published.finished()
    }

    /// Index and term of the newest published entry.
    #[must_use]
    pub fn applied(&self) -> (u64, u64) {
        self.published.applied()
    }

    /// The main revision a request for `revision` reads at, and the current one.
    pub(super) fn pin(&self, revision: i64) -> Result<(i64, i64), ReadError> {
        let current = self.revision();
        if revision > current {
            return Err(ReadError::FutureRevision);
        }
        Ok((if revision > 0 { revision } else { current }, current))
    }

    /// Runs `read` at `revision` (0 or below: the current one, again if a compaction overtakes it).
    fn attempts<T>(
        &self,
        revision: i64,
        mut read: impl FnMut(i64, i64) -> Result<T, KvError>,
    ) -> Result<T, ReadError> {
        let mut attempt = 0;
        loop {
            let (at, current) = self.pin(revision)?;
            attempt += 1;
            match read(at, current) {
                Err(KvError::Compacted) if revision <= 0 && attempt < ATTEMPTS => {}
                other => return other.map_err(Into::into),
            }
        }
    }

    /// A range.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn range(&self, query: &RangeQuery) -> Result<RangeResult, ReadError> {
        self.attempts(query.revision, |at, current| {
            let rows = self.store.snapshot();
            mvcc::range(&self.index, &rows, query, at, current)
        })
    }

    /// A range in pieces, for answers that do not fit in one message. See [`RangeStream`].
    ///
    /// # Errors
    /// [`ReadError::FutureRevision`]; others when it is read.
    pub fn stream(&self, query: RangeQuery, chunk_bytes: u64) -> Result<RangeStream, ReadError> {
        RangeStream::new(self.clone(), query, chunk_bytes)
    }

    /// A transaction that only reads.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_txn(&self, txn: &Txn) -> Result<TxnAnswer, ReadError> {
        let mut overtaken = 0;
        loop {
            let rows = self.store.snapshot();
            let (current, compacted) = (self.revision(), self.compact_revision());
            let answer = mvcc::evaluate(txn, &self.index, &rows, current, compacted);
            // Compares look at the current revision without asking whether it is readable.
            if self.index.read().floor() <= current {
                return answer.map_err(Into::into);
            }
            overtaken += 1;
            if overtaken == ATTEMPTS {
                return Err(ReadError::Compacted);
            }
        }
    }

    /// The row of `key` as it was at main revision `at`; `None` if it did not exist or its history
    /// there is compacted away.
    ///
    /// # Errors
    /// [`ReadError::Fault`].
    pub fn row_at(&self, key: &[u8], at: i64) -> Result<Option<Bytes>, ReadError> {
        let rows = self.store.snapshot();
        let live = {
            let index = self.index.read();
            if at < index.floor() { None } else { index.get(key, at) }
        };
        live.map_or(Ok(None), |live| self.found(rows.row(live.revision)))
    }

    /// A row by its revision, for the `prev_kv` of an event; `None` if it is compacted away.
    ///
    /// # Errors
    /// [`ReadError::Fault`].
    pub fn row(&self, revision: Revision) -> Result<Option<Bytes>, ReadError> {
        self.found(self.store.row(revision))
    }

    fn found(&self, row: Result<Bytes, RowsError>) -> Result<Option<Bytes>, ReadError> {
        match row {
            Ok(row) => Ok(Some(row)),
            Err(RowsError::Missing) => Ok(None),
            Err(error) => Err(ReadError::Fault(error.to_string())),
        }
    }

    /// All rows, for catching up from history.
    #[must_use]
    pub fn rows(&self) -> &Shared {
        &self.store
    }

    /// The hash over history up to `revision` (0: the current one). At the revision of one of the
    /// last finished compactions it is the hash that compaction made.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn hash_kv(&self, revision: i64) -> Result<HashKv, ReadError> {
        let (at, current) = self.pin(revision)?;
        // As in etcd a remembered hash outlives later compactions, and it is found by the revision
        // as asked for: 0 means "now" only as long as no compaction at 0 is remembered.
        if let Some(stored) = self.published.hash_at(revision) {
            return Ok(HashKv { revision: current, ..stored });
        }
        if at < self.compact_revision() {
            return Err(ReadError::Compacted);
        }
        self.attempts(revision, |at, current| mvcc::hash_kv(&self.index, &self.store, at, current))
    }

    /// As [`Reader::hash_kv`], but always over the rows as they are read now.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn hash_rows(&self, revision: i64) -> Result<HashKv, ReadError> {
        let (_, current) = self.pin(revision)?;
        Ok(mvcc::hash_kv(&self.index, &self.store, revision, current)?)
    }

    /// Hashes of the last finished compactions, oldest first.
    #[must_use]
    pub fn compaction_hashes(&self) -> Vec<HashKv> {
        self.published.hashes()
    }

    /// The running hash at some of the indexes applied last; none while it is not known.
    #[must_use]
    pub fn running_points(&self) -> RunningPoints {
        self.published.points().all()
    }

    /// CRC-32C over everything durable, in the form of etcd's tables: names in order, each followed
    /// by its keys and values, without applied index, term and format. Force a store commit first
    /// if acknowledged writes have to be in it.
    ///
    /// # Errors
    /// [`ReadError::Fault`].
    pub fn hash(&self) -> Result<u32, ReadError> {
        let view = self.store.view();
        let fault = |error: &dyn std::fmt::Display| ReadError::Fault(error.to_string());
        let mut crc = 0;
        let mut add = |bytes: &[u8]| crc = crc32c::crc32c_append(crc, bytes);
        // The tables in the order of their names; rows are in `key`, as in etcd's file.
        let mut tables: Vec<(&str, Option<Table>)> =
            Table::ALL.iter().map(|table| (table.name(), Some(*table))).collect();
        tables.push(("key", None));
        tables.sort_unstable_by_key(|(name, _)| *name);
        for (name, table) in tables {
            add(name.as_bytes());
            if let Some(table) = table {
                view.small(table, &mut |key, value| {
                    add(key);
                    add(value);
                })
                .map_err(|error| fault(&error))?;
                continue;
            }
            let _: ControlFlow<()> = view
                .scan(0, i64::MAX, &mut |revision, tombstone, row| {
                    match tombstone {
                        true => add(&revision.to_tombstone_bytes()),
                        false => add(&revision.to_bytes()),
                    }
                    add(&row);
                    ControlFlow::Continue(())
                })
                .map_err(|error| fault(&error))?;
        }
        Ok(crc)
    }

    fn tables(&self) -> Arc<Tables> {
        self.published.tables()
    }

    /// All members.
    #[must_use]
    pub fn members(&self) -> Arc<Members> {
        Arc::clone(&self.tables().members)
    }

    /// Members that are fenced because their data differs, in order.
    #[must_use]
    pub fn fences(&self) -> Arc<[u64]> {
        Arc::clone(&self.tables().fences)
    }

    /// Active alarms; a fenced member shows as CORRUPT.
    #[must_use]
    pub fn alarms(&self) -> Arc<[Alarm]> {
        Arc::clone(&self.tables().alarms)
    }

    /// Version of the cluster; `None` until it is decided.
    #[must_use]
    pub fn cluster_version(&self) -> Option<String> {
        self.tables().cluster_version.clone()
    }

    /// Level of commands that the cluster may use; see [`super::level`].
    #[must_use]
    pub fn feature_level(&self) -> u32 {
        self.tables().feature_level
    }

    /// State of a downgrade.
    #[must_use]
    pub fn downgrade(&self) -> Downgrade {
        self.tables().downgrade.clone()
    }

    /// State of authentication.
    #[must_use]
    pub fn auth(&self) -> AuthStatus {
        self.tables().auth
    }

    /// A lease with its keys.
    #[must_use]
    pub fn lease(&self, id: i64) -> Option<Lease> {
        self.leases.read().get(id).cloned()
    }

    /// Keys attached to a lease, in order; `None` if there is no such lease.
    #[must_use]
    pub fn lease_keys(&self, id: i64) -> Option<Vec<Bytes>> {
        self.leases.read().get(id).map(|lease| lease.keys.iter().cloned().collect())
    }

    /// All leases as they are stored, in the order of their ids.
    #[must_use]
    pub fn leases(&self) -> Vec<lease::Record> {
        self.leases.read().iter().map(|lease| lease.record).collect()
    }

    /// Number of leases.
    #[must_use]
    pub fn lease_count(&self) -> usize {
        self.leases.read().len()
    }

    /// Sizes of the state.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.published.sizes()
    }

    /// The quota, bytes; `None` if there is none.
    #[must_use]
    pub fn quota(&self) -> Option<u64> {
        self.quota_bytes
    }

    /// Whether a request that costs `cost` bytes runs into the quota.
    #[must_use]
    pub fn exceeds_quota(&self, cost: u64) -> bool {
        let total = self.sizes().total_bytes;
        self.quota_bytes.is_some_and(|quota| total.saturating_add(cost) >= quota)
    }
}
