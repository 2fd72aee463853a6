//! Rows that are applied but not yet in the durable file.
//!
//! Rows are immutable and arrive in revision order, so this is a queue of segments: the apply
//! thread fills the last one, the store thread drops whole ones from the front once their rows are
//! durable and visible in the published view. A slot is written once and then published by the
//! segment's length, so a reader inside a segment holds no lock; the lock on the list of segments
//! is held only to clone one pointer, to append a segment (once in [`SEGMENT_ROWS`] rows) or to
//! unlink the released ones.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::mvcc::Revision;

/// Rows of one segment: large enough that the list lock is taken for writing rarely, small enough
/// that an empty node keeps only 32 KiB.
const SEGMENT_ROWS: usize = 512;

/// A segment is closed above this many bytes, so that rows of large values are let go soon after
/// they are durable instead of waiting for 511 neighbours.
const SEGMENT_BYTES: usize = 256 << 10;

/// Accounting overhead of one row, bytes: its slot.
const ROW_OVERHEAD: usize = size_of::<OnceLock<Row>>();

struct Row {
    revision: Revision,
    tombstone: bool,
    bytes: Bytes,
}

/// A run of rows in revision order; rows are only ever added.
pub(crate) struct Segment {
    slots: Box<[OnceLock<Row>]>,
    /// Published rows. Stored with `Release` after the slot is set.
    len: AtomicUsize,
    bytes: AtomicUsize,
}

impl Segment {
    fn starting_with(row: Row) -> Self {
        let slots: Box<[OnceLock<Row>]> = (0..SEGMENT_ROWS).map(|_| OnceLock::new()).collect();
        let segment = Self { slots, len: AtomicUsize::new(0), bytes: AtomicUsize::new(0) };
        segment.push(row);
        segment
    }

    fn has_room(&self) -> bool {
        self.len.load(Ordering::Relaxed) < SEGMENT_ROWS
            && self.bytes.load(Ordering::Relaxed) < SEGMENT_BYTES
    }

    /// Only the appender calls this, under the tail lock.
    fn push(&self, row: Row) {
        let at = self.len.load(Ordering::Relaxed);
        self.bytes.fetch_add(row.bytes.len() + ROW_OVERHEAD, Ordering::Relaxed);
        assert!(self.slots[at].set(row).is_ok(), "a pending slot is written once");
        self.len.store(at + 1, Ordering::Release);
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        let len = self.len.load(Ordering::Acquire);
        self.slots[..len].iter().filter_map(OnceLock::get)
    }

    fn revision_at(&self, at: usize) -> Option<Revision> {
        self.slots[at].get().map(|row| row.revision)
    }

    fn first(&self) -> Option<Revision> {
        self.revision_at(0)
    }

    fn last(&self) -> Option<Revision> {
        let len = self.len.load(Ordering::Acquire);
        self.revision_at(len.checked_sub(1)?)
    }

    fn find(&self, revision: Revision) -> Option<&Row> {
        let len = self.len.load(Ordering::Acquire);
        let at = self.slots[..len]
            .binary_search_by(|slot| slot.get().map(|row| row.revision).cmp(&Some(revision)))
            .ok()?;
        self.slots[at].get()
    }
}

/// The rows between the durable view and the newest applied one. One thread appends, one
/// releases, any number read.
#[derive(Default)]
pub struct Pending {
    segments: RwLock<VecDeque<Arc<Segment>>>,
    tail: Mutex<Tail>,
    bytes: AtomicUsize,
}

#[derive(Default)]
struct Tail {
    segment: Option<Arc<Segment>>,
    last: Option<Revision>,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Pending {
    /// Appends rows (revision, tombstone, encoded `mvccpb.KeyValue`). They are visible to readers
    /// when this returns, so call it before the revision is published.
    ///
    /// # Panics
    /// When revisions do not grow: rows would be lost to readers.
    pub fn append(&self, rows: &[(Revision, bool, Bytes)]) {
        let mut tail = self.tail.lock();
        for (revision, tombstone, bytes) in rows {
            assert!(
                tail.last < Some(*revision),
                "pending rows must arrive in revision order: {revision:?} after {:?}",
                tail.last
            );
            tail.last = Some(*revision);
            self.bytes.fetch_add(bytes.len() + ROW_OVERHEAD, Ordering::Relaxed);
            let row = Row { revision: *revision, tombstone: *tombstone, bytes: bytes.clone() };
            match tail.segment.as_ref().filter(|segment| segment.has_room()) {
                Some(segment) => segment.push(row),
                None => {
                    let segment = Arc::new(Segment::starting_with(row));
                    self.segments.write().push_back(Arc::clone(&segment));
                    tail.segment = Some(segment);
                }
            }
        }
    }

    /// Lets go of rows up to and including `main`. Rows that share a segment with later ones stay
    /// until those are released too. Call it only after a view that holds them is published.
    pub(crate) fn release(&self, main: i64) {
        // Freed after the locks: dropping 64 MiB of rows takes milliseconds.
        let mut released = Vec::new();
        {
            let mut tail = self.tail.lock();
            let mut segments = self.segments.write();
            while let Some(front) = segments.front() {
                if front.last().is_some_and(|last| last.main > main) {
                    break;
                }
                released.extend(segments.pop_front());
            }
            if segments.is_empty() {
                tail.segment = None;
            }
        }
        let bytes: usize =
            released.iter().map(|segment| segment.bytes.load(Ordering::Relaxed)).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes held: rows and their slots.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The row of a revision, if it is still here.
    pub(crate) fn row(&self, revision: Revision) -> Option<Bytes> {
        let segment = {
            let segments = self.segments.read();
            let after = segments.partition_point(|segment| segment.first() <= Some(revision));
            Arc::clone(segments.get(after.checked_sub(1)?)?)
        };
        segment.find(revision).map(|row| row.bytes.clone())
    }

    /// The segments of this moment. Later releases do not take rows out of it.
    pub(crate) fn capture(&self) -> Captured {
        Captured(self.segments.read().iter().cloned().collect())
    }
}

/// Segments held by a scan.
pub(crate) struct Captured(Vec<Arc<Segment>>);

impl Captured {
    /// Rows from revision `from` on, in order.
    pub(crate) fn rows_from(
        &self,
        from: Revision,
    ) -> impl Iterator<Item = (Revision, bool, &Bytes)> {
        self.0
            .iter()
            .skip_while(move |segment| segment.last() < Some(from))
            .flat_map(|segment| segment.rows())
            .skip_while(move |row| row.revision < from)
            .map(|row| (row.revision, row.tombstone, &row.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(main: i64, sub: i64, size: usize) -> (Revision, bool, Bytes) {
        (Revision { main, sub }, sub == 1, Bytes::from(vec![main as u8; size]))
    }

    #[test]
    fn finds_rows_across_segments_and_forgets_released_ones() {
        let pending = Pending::default();
        for main in 1..=2_000 {
            pending.append(&[row(main, 0, 10), row(main, 1, 10)]);
        }
        assert_eq!(pending.row(Revision { main: 1_234, sub: 1 }), Some(row(1_234, 1, 10).2));
        assert_eq!(pending.row(Revision { main: 1_234, sub: 2 }), None);
        assert_eq!(pending.row(Revision { main: 0, sub: 0 }), None);
        assert_eq!(pending.row(Revision { main: 2_001, sub: 0 }), None);
        let captured = pending.capture();
        pending.release(1_000);
        assert_eq!(pending.row(Revision { main: 200, sub: 0 }), None);
        assert!(pending.row(Revision { main: 1_001, sub: 0 }).is_some());
        assert_eq!(
            captured.rows_from(Revision { main: 500, sub: 0 }).count(),
            3_002,
            "a scan keeps what it captured"
        );
        pending.release(2_000);
        assert_eq!(pending.bytes(), 0);
        pending.append(&[row(2_001, 0, 10)]);
        assert_eq!(pending.capture().rows_from(Revision::default()).count(), 1);
    }

    #[test]
    fn large_rows_are_let_go_one_by_one() {
        let pending = Pending::default();
        for main in 1..=10 {
            pending.append(&[row(main, 0, 1 << 20)]);
        }
        pending.release(4);
        assert_eq!(pending.bytes(), 6 * ((1 << 20) + ROW_OVERHEAD));
    }

    #[test]
    #[should_panic(expected = "revision order")]
    fn refuses_revisions_that_do_not_grow() {
        let pending = Pending::default();
        pending.append(&[row(5, 0, 1), row(4, 0, 1)]);
    }
}
