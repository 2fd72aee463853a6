//! The write side: a frozen batch of effects becomes one durable transaction.

use bytes::Bytes;
use redb::{Database, Durability};

use super::content::{self, Content, Stored};
use super::tables::{
    REVS, STATE, STATE_APPLIED, STATE_CONF, STATE_CONTENT, STATE_REVISION, STATE_RUNNING, Table,
    row_key,
};
use super::view::{Shared, View, ViewAges};
use super::{StoreError, engine};
use crate::mvcc::Revision;

/// Rows that compaction should drop in one batch at most. Dropping costs about 5 microseconds a
/// row (two million rows in one transaction took 9 s), so this keeps a commit below a tenth of a
/// second; the rest goes into the next batch.
pub const DROPPED_PER_BATCH: usize = 16_384;

/// Effects of consecutive log entries, frozen by the apply thread. Everything in it becomes
/// durable in one transaction or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// New rows in revision order: revision, tombstone, encoded `mvccpb.KeyValue`.
    pub rows: Vec<(Revision, bool, Bytes)>,
    /// Rows that compaction removes; applied after `rows`. See [`DROPPED_PER_BATCH`].
    pub dropped: Vec<(Revision, bool)>,
    /// Changed keys of the small tables, in order; `None` deletes.
    pub small: Vec<(Table, Bytes, Option<Bytes>)>,
    /// Index and term of the last entry whose effects are in here.
    pub applied: (u64, u64),
    /// The raft configuration at `applied`, if an entry of this batch changed it.
    pub conf_state: Option<Bytes>,
    /// Newest revision at `applied`; all rows up to it are in this batch or an earlier one.
    pub revision: i64,
    /// The running hash at `applied`; `None` while it is not known.
    pub running: Option<u64>,
    /// The checksum of the file before this batch, by somebody who has read all of it: for a file
    /// that does not say.
    pub content_before: Option<Content>,
    /// Size for the bound on pending bytes, as the producer counts it.
    pub bytes: usize,
}

/// What one commit did to the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// Rows written.
    pub rows: usize,
    /// Rows dropped.
    pub dropped: usize,
    /// Write calls.
    pub writes: u64,
    /// Bytes in those calls.
    pub written_bytes: u64,
    /// Syncs; two for a plain commit with quick repair, more when the file grew.
    pub syncs: u64,
    /// Views held after it.
    pub views: ViewAges,
}

/// The only writer of the store file. Owned by the store thread.
pub struct Writer {
    db: Database,
    shared: Shared,
    applied: (u64, u64),
    revision: i64,
    traffic: std::sync::Arc<super::backend::Traffic>,
    failed: bool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("applied", &self.applied)
            .field("revision", &self.revision)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Writer {
    pub(crate) fn new(
        db: Database,
        shared: Shared,
        view: &View,
        traffic: std::sync::Arc<super::backend::Traffic>,
    ) -> Self {
        Self {
            db,
            shared,
            applied: view.applied(),
            revision: view.revision(),
            traffic,
            failed: false,
        }
    }

    /// The readers' side.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Makes a batch durable, publishes the view that holds it and lets its pending rows go. When
    /// it returns, `Shared::durable` reports the batch's applied index.
    ///
    /// # Errors
    /// Any error is final: whether the batch will be there after a restart is not known, and every
    /// later call fails. The process has to stop; nothing is retried.
    ///
    /// # Panics
    /// When the applied index or the revision goes back, or a row lies outside of the batch's
    /// revisions: the caller's state is broken and must not become durable.
    pub fn commit(&mut self, batch: Batch) -> Result<CommitStats, StoreError> {
        if self.failed {
            return Err(StoreError::Latched);
        }
        assert!(
            batch.applied.0 >= self.applied.0 && batch.applied.1 >= self.applied.1,
            "applied goes back from {:?} to {:?}",
            self.applied,
            batch.applied
        );
        assert!(batch.revision >= self.revision, "revision goes back to {}", batch.revision);
        assert!(
            batch.rows.iter().all(|(revision, ..)| {
                revision.main > self.revision && revision.main <= batch.revision
            }),
            "a row lies outside of revisions {} to {}",
            self.revision,
            batch.revision
        );
        self.try_commit(&batch).inspect_err(|error| {
            self.failed = true;
            self.shared.latch(error);
        })
    }

    fn try_commit(&mut self, batch: &Batch) -> Result<CommitStats, StoreError> {
        let before = self.traffic.count();
        write_batch(&self.db, batch, Keep::Now)?;
        self.applied = batch.applied;
        self.revision = batch.revision;
        self.shared.publish(View::open(&self.db, self.applied, self.revision)?);
        let after = self.traffic.count();
        Ok(CommitStats {
            rows: batch.rows.len(),
            dropped: batch.dropped.len(),
            writes: after.writes - before.writes,
            written_bytes: after.written_bytes - before.written_bytes,
            syncs: after.syncs - before.syncs,
            views: self.shared.views(),
        })
    }

    /// What is needed to go on with another file.
    #[expect(clippy::type_complexity, reason = "four parts that belong to nothing else")]
    pub(super) fn into_parts(
        self,
    ) -> Result<(Database, Shared, std::sync::Arc<super::backend::Traffic>, (u64, u64)), StoreError>
    {
        match self.failed {
            true => Err(StoreError::Latched),
            false => Ok((self.db, self.shared, self.traffic, self.applied)),
        }
    }

    #[cfg(test)]
    pub(crate) fn into_database(self) -> Database {
        self.db
    }

    /// Length of the store file, bytes.
    pub fn file_bytes(&self) -> u64 {
        self.traffic.file_bytes()
    }

    /// Ends a run in order, so that the next open finds a file that needs no recovery. Views still
    /// held read nothing any more.
    ///
    /// # Errors
    /// When the last writes fail. What was committed is durable all the same.
    pub fn close(self) -> Result<(), StoreError> {
        if self.failed {
            return Err(StoreError::Latched);
        }
        self.db.close().map_err(engine("close"))
    }
}

/// When a transaction has to be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// When it returns.
    Now,
    /// With the next one that is kept now; for a file that counts for nothing before that.
    Later,
}

/// One transaction: rows, drops, small tables, and the applied index that vouches for them.
pub(super) fn write_batch(db: &Database, batch: &Batch, keep: Keep) -> Result<(), StoreError> {
    let mut transaction = db.begin_write().map_err(engine("begin write"))?;
    let durability = match keep {
        Keep::Now => Durability::Immediate,
        Keep::Later => Durability::None,
    };
    transaction.set_durability(durability).map_err(engine("set durability"))?;
    // The allocator state goes into the commit: a start after a kill reads it instead of walking
    // the whole file (milliseconds against seconds), for the price of the second sync.
    transaction.set_quick_repair(keep == Keep::Now);
    let known = {
        let state = transaction.open_table(STATE).map_err(engine("open table state"))?;
        content::current(&state).map_err(engine("read table state"))?.or(batch.content_before)
    };
    // Kept in step even if the sum before is not known: then it counts from nothing and is dropped.
    let mut content = known.unwrap_or_default();
    {
        let mut revs = transaction.open_table(REVS).map_err(engine("open table revs"))?;
        for (revision, tombstone, value) in &batch.rows {
            let key = row_key(*revision, *tombstone);
            let old = revs.insert(&key, &value[..]).map_err(engine("insert a row"))?;
            if let Some(old) = old {
                content.drop_row(*revision, *tombstone, old.value());
            }
            content.add_row(*revision, *tombstone, value);
        }
        for (revision, tombstone) in &batch.dropped {
            let key = row_key(*revision, *tombstone);
            if let Some(old) = revs.remove(&key).map_err(engine("drop a row"))? {
                content.drop_row(*revision, *tombstone, old.value());
            }
        }
    }
    for table in Table::ALL {
        let mut changes = batch.small.iter().filter(|(of, ..)| *of == table).peekable();
        if changes.peek().is_none() {
            continue;
        }
        let mut open =
            transaction.open_table(table.definition()).map_err(engine("open a small table"))?;
        for (_, key, value) in changes {
            let old = match value {
                Some(value) => open.insert(&key[..], &value[..]),
                None => open.remove(&key[..]),
            }
            .map_err(engine("write a small table"))?;
            if let Some(old) = old {
                content.drop_pair(table, key, old.value());
            }
            if let Some(value) = value {
                content.add_pair(table, key, value);
            }
        }
    }
    {
        let mut state = transaction.open_table(STATE).map_err(engine("open table state"))?;
        let mut put = |key: &[u8], value: &[u8]| {
            state.insert(key, value).map(drop).map_err(engine("write the applied index"))
        };
        put(STATE_APPLIED, &applied_value(batch.applied))?;
        put(STATE_REVISION, &batch.revision.to_be_bytes())?;
        if let Some(conf_state) = &batch.conf_state {
            put(STATE_CONF, conf_state)?;
        }
        if known.is_some() {
            put(STATE_CONTENT, &Stored { applied: batch.applied.0, content }.encode())?;
        }
        // Of another index it counts as not known.
        if let Some(running) = batch.running {
            put(STATE_RUNNING, &applied_value((batch.applied.0, running)))?;
        }
    }
    transaction.commit().map_err(engine("commit"))
}

pub(crate) fn applied_value(applied: (u64, u64)) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&applied.0.to_be_bytes());
    value[8..].copy_from_slice(&applied.1.to_be_bytes());
    value
}

/// The running hash, if the value belongs to this applied index.
pub(crate) fn running_of(value: &[u8], applied: u64) -> Option<u64> {
    let value = u128::from_be_bytes(value.try_into().ok()?);
    ((value >> 64) as u64 == applied).then_some(value as u64)
}
