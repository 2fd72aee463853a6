//! What readers see: a durable view of the file and, above its revision, the pending rows.
//!
//! Two publishers work at the same time. The apply thread appends to the pending rows and then
//! raises the published revision; the store thread commits, publishes a view that holds the
//! committed rows and only then lets those pending rows go. So at every moment each row up to the
//! published revision is in the current view, in the pending rows, or in both, and a reader that
//! looks in the right order finds it:
//!
//! - one row: the view at hand if it reaches the revision; otherwise the pending rows; on a miss
//!   there the row was released meanwhile, and the current view, published before the release,
//!   has it;
//! - a scan: capture the pending rows first, then take the view. A row that had left the pending
//!   rows before the capture is in every later view. The view ends at its revision and the
//!   captured rows above that follow, so nothing appears twice.
//!
//! A row that compaction dropped is missing from views published after the drop. A [`Snapshot`]
//! taken before the revisions were chosen keeps the older view and so still has it.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable};

use super::backend::Traffic;
use super::fetch::Cursor;
use super::pending::Pending;
use super::tables::{REVS, RowKey, STATE, Table, parse_row_key, row_key};
use super::{StoreError, engine};
use crate::mvcc::{Revision, Rows, RowsError};

/// Where the other publisher may get in between; tests act here to try every interleaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    BeforePending,
    AfterPendingMiss,
    AfterCapture,
    AfterDurableScan,
    BeforeRelease,
}

#[cfg(not(test))]
fn pause(_: Point) {}

#[cfg(test)]
fn pause(point: Point) {
    super::tests::interleave(point);
}

/// One durable state of the file, pinned: as long as it is held, its pages cannot be reused. Hold
/// it for a request, not longer.
pub struct View {
    transaction: ReadTransaction,
    revs: ReadOnlyTable<&'static RowKey, &'static [u8]>,
    applied: (u64, u64),
    revision: i64,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("applied", &self.applied)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl View {
    pub(crate) fn open(
        db: &Database,
        applied: (u64, u64),
        revision: i64,
    ) -> Result<Self, StoreError> {
        let transaction = db.begin_read().map_err(engine("begin read"))?;
        let revs = transaction.open_table(REVS).map_err(engine("open table revs"))?;
        Ok(Self { transaction, revs, applied, revision })
    }

    /// Applied index and its term in this state.
    pub fn applied(&self) -> (u64, u64) {
        self.applied
    }

    /// Newest revision whose rows are in this state.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// The row of a revision.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn row(&self, revision: Revision) -> Result<Option<Bytes>, StoreError> {
        // Readers ask for tombstones hardly ever, so the second look-up is paid by misses only.
        for tombstone in [false, true] {
            let key = row_key(revision, tombstone);
            if let Some(value) = self.revs.get(&key).map_err(engine("read a row"))? {
                return Ok(Some(Bytes::copy_from_slice(value.value())));
            }
        }
        Ok(None)
    }

    /// A cursor for many rows.
    fn cursor(&self) -> Cursor<'_> {
        Cursor::new(&self.revs)
    }

    /// Calls `f` with every row (revision, tombstone, encoded `mvccpb.KeyValue`) whose main
    /// revision is in `from..=to`, in revision order, until it breaks.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn scan(
        &self,
        from: i64,
        to: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        self.scan_from(Revision { main: from, sub: 0 }, to, f)
    }

    /// As [`View::scan`], from the middle of a main revision on.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn scan_from(
        &self,
        from: Revision,
        to: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        self.scan_borrowed(from, to, |revision, tombstone, row| {
            f(revision, tombstone, Bytes::copy_from_slice(row))
        })
    }

    /// As [`View::scan_from`], without a copy of each row.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn scan_borrowed(
        &self,
        from: Revision,
        to: i64,
        mut f: impl FnMut(Revision, bool, &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let from = row_key(from.max(Revision::default()), false);
        let to = row_key(Revision { main: to.max(0), sub: i64::MAX }, true);
        if from > to {
            return Ok(ControlFlow::Continue(()));
        }
        // The owned iterator keeps the read transaction alive, the plain one does not.
        let rows = self.revs.range_owned::<&RowKey>(&from..=&to).map_err(engine("scan rows"))?;
        for row in rows {
            let (key, value) = row.map_err(engine("scan rows"))?;
            let (revision, tombstone) = parse_row_key(key.value());
            if f(revision, tombstone, value.value()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Calls `f` with every key and value of a small table, in key order.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn small(&self, table: Table, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
        self.pairs(table.definition(), f)
    }

    pub(crate) fn pairs(
        &self,
        table: super::tables::SmallTable,
        f: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), StoreError> {
        let table = self.transaction.open_table(table).map_err(engine("open table"))?;
        for pair in table.iter().map_err(engine("read table"))? {
            let (key, value) = pair.map_err(engine("read table"))?;
            f(key.value(), value.value());
        }
        Ok(())
    }

    /// CRC-32C over every table: name, then each key and value in order. It covers the bytes of
    /// this member (applied index included) and so is equal on two members only by accident; to
    /// compare members use the hash over revisions.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn hash(&self) -> Result<u32, StoreError> {
        let mut crc = crc32c::crc32c(b"revs");
        let rows = self.revs.iter().map_err(engine("hash rows"))?;
        for row in rows {
            let (key, value) = row.map_err(engine("hash rows"))?;
            crc = crc32c::crc32c_append(crc, key.value());
            crc = crc32c::crc32c_append(crc, value.value());
        }
        let small = Table::ALL.iter().map(|table| (table.name(), table.definition()));
        for (name, definition) in small.chain([("state", STATE)]) {
            crc = crc32c::crc32c_append(crc, name.as_bytes());
            self.pairs(definition, &mut |key, value| {
                crc = crc32c::crc32c_append(crc, key);
                crc = crc32c::crc32c_append(crc, value);
            })?;
        }
        Ok(crc)
    }
}

struct Inner {
    pending: Pending,
    current: RwLock<Arc<View>>,
    /// Views that may still be held by somebody, oldest first.
    views: Mutex<Vec<Weak<View>>>,
    traffic: Arc<Traffic>,
    fault: OnceLock<String>,
}

/// The readers' side of the store. Cheap to clone, one per thread or shared.
#[derive(Clone)]
pub struct Shared(Arc<Inner>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("durable", &self.durable())
            .field("pending_bytes", &self.pending_bytes())
            .finish_non_exhaustive()
    }
}

/// How many views are alive and how far the oldest lies behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewAges {
    /// Views somebody holds, the current one included.
    pub alive: usize,
    /// Applied index of the oldest one.
    pub oldest_applied: u64,
}

impl Shared {
    pub(crate) fn new(view: View, traffic: Arc<Traffic>) -> Self {
        let view = Arc::new(view);
        Self(Arc::new(Inner {
            pending: Pending::default(),
            views: Mutex::new(vec![Arc::downgrade(&view)]),
            current: RwLock::new(view),
            traffic,
            fault: OnceLock::new(),
        }))
    }

    /// Makes `view` the current one, then lets the pending rows go that it holds.
    pub(crate) fn publish(&self, view: View) {
        let revision = view.revision;
        let view = Arc::new(view);
        {
            let mut views = self.0.views.lock();
            views.retain(|view| view.strong_count() > 0);
            views.push(Arc::downgrade(&view));
        }
        let previous = std::mem::replace(&mut *self.0.current.write(), view);
        // Not under the lock: the last holder of a view ends a read transaction.
        drop(previous);
        pause(Point::BeforeRelease);
        self.0.pending.release(revision);
    }

    /// The rows that are applied but not durable; the apply thread appends here.
    pub fn pending(&self) -> &Pending {
        &self.0.pending
    }

    /// Bytes in [`Shared::pending`].
    pub fn pending_bytes(&self) -> usize {
        self.0.pending.bytes()
    }

    /// The newest durable view.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.0.current.read())
    }

    /// Applied index and revision of the newest durable state.
    pub fn durable(&self) -> (u64, i64) {
        let view = self.0.current.read();
        (view.applied.0, view.revision)
    }

    /// A view for one request. Take it before choosing revisions from the key index.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { view: self.view(), shared: self.clone() }
    }

    /// Views that are held.
    pub fn views(&self) -> ViewAges {
        let views = self.0.views.lock();
        let mut alive = views.iter().filter_map(Weak::upgrade).peekable();
        let oldest_applied = alive.peek().map_or(0, |view| view.applied.0);
        ViewAges { alive: alive.count(), oldest_applied }
    }

    /// Length of the store file, bytes. It grows in jumps; it is not what the quota counts.
    pub fn file_bytes(&self) -> u64 {
        self.0.traffic.file_bytes()
    }

    /// The first error of the file, if there was one. It is final: the process has to stop.
    pub fn fault(&self) -> Option<&str> {
        self.0.fault.get().map(String::as_str)
    }

    pub(crate) fn latch(&self, error: &StoreError) {
        // Only the first one counts; the others are its consequences.
        let _ = self.0.fault.set(error.to_string());
    }

    fn rows_fault(&self, error: &StoreError) -> RowsError {
        self.latch(error);
        RowsError::Fault(error.to_string())
    }
}

/// Rows as one request sees them, whatever is published meanwhile.
#[derive(Clone, Debug)]
pub struct Snapshot {
    view: Arc<View>,
    shared: Shared,
}

impl Snapshot {
    fn find(&self, revision: Revision) -> Result<Option<Bytes>, StoreError> {
        if revision.main <= self.view.revision {
            return self.view.row(revision);
        }
        pause(Point::BeforePending);
        if let Some(row) = self.shared.pending().row(revision) {
            return Ok(Some(row));
        }
        pause(Point::AfterPendingMiss);
        // Released since our view was taken, so the current view, published first, has it.
        let current = self.shared.view();
        if revision.main <= current.revision { current.row(revision) } else { Ok(None) }
    }
}

impl Rows for Snapshot {
    fn row(&self, revision: Revision) -> Result<Bytes, RowsError> {
        self.find(revision)
            .map_err(|error| self.shared.rows_fault(&error))?
            .ok_or(RowsError::Missing)
    }

    fn rows(&self, revisions: &[Revision]) -> Result<Vec<Bytes>, RowsError> {
        if let [revision] = revisions {
            return Ok(vec![self.row(*revision)?]);
        }
        // Neighbouring revisions share leaves of the file: fetch in that order, answer in theirs.
        let mut order: Vec<usize> = (0..revisions.len()).collect();
        if !revisions.is_sorted() {
            order.sort_unstable_by_key(|&at| revisions[at]);
        }
        let mut rows = vec![Bytes::new(); revisions.len()];
        let durable = order.partition_point(|&at| revisions[at].main <= self.view.revision);
        let (durable, pending) = order.split_at(durable);
        let mut cursor = self.view.cursor();
        for (ix, &at) in durable.iter().enumerate() {
            let next = durable.get(ix + 1).map(|&next| revisions[next]);
            let found = cursor.row(revisions[at], next);
            rows[at] =
                found.map_err(|error| self.shared.rows_fault(&error))?.ok_or(RowsError::Missing)?;
        }
        for &at in pending {
            rows[at] = self.row(revisions[at])?;
        }
        Ok(rows)
    }

    fn scan(
        &self,
        from_main: i64,
        to_main: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        self.scan_from(Revision { main: from_main, sub: 0 }, to_main, f)
    }

    fn scan_from(
        &self,
        from: Revision,
        to_main: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        // Capture first, then the view: the module's header has the reason.
        let captured = self.shared.pending().capture();
        pause(Point::AfterCapture);
        let view = self.shared.view();
        let durable_to = to_main.min(view.revision);
        if view
            .scan_from(from, durable_to, f)
            .map_err(|error| self.shared.rows_fault(&error))?
            .is_break()
        {
            return Ok(());
        }
        pause(Point::AfterDurableScan);
        let from = from.max(Revision { main: view.revision.saturating_add(1), sub: 0 });
        for (revision, tombstone, bytes) in captured.rows_from(from) {
            if revision.main > to_main || f(revision, tombstone, bytes.clone()).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Rows for Shared {
    fn row(&self, revision: Revision) -> Result<Bytes, RowsError> {
        self.snapshot().row(revision)
    }

    fn rows(&self, revisions: &[Revision]) -> Result<Vec<Bytes>, RowsError> {
        self.snapshot().rows(revisions)
    }

    fn scan(
        &self,
        from_main: i64,
        to_main: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        self.snapshot().scan(from_main, to_main, f)
    }

    fn scan_from(
        &self,
        from: Revision,
        to_main: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        self.snapshot().scan_from(from, to_main, f)
    }
}
