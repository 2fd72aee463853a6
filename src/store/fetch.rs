//! Many rows at once, in whatever order the reader wants them.
//!
//! A reader that lists keys wants rows whose revisions are often neighbours in the file: keys that
//! were written in order, or in one transaction. Looking up each of them walks the tree from the
//! root again, three or four pages per row. Here the wanted revisions are visited in rising order;
//! while the next one is near, a cursor steps there from leaf to leaf, otherwise the tree is
//! searched anew. Rows are copied into shared buffers, so that a thousand rows cost a few
//! allocations.

use bytes::{Bytes, BytesMut};
use redb::{OwnedRange, ReadOnlyTable};

use super::tables::{RowKey, parse_row_key, row_key};
use super::{StoreError, engine};
use crate::mvcc::Revision;

/// Main revisions between two wanted rows up to which stepping is tried instead of a search: a
/// search costs about as much as this many steps.
const NEAR_REVISIONS: i64 = 16;
/// Steps towards a wanted row before a search is cheaper after all: a main revision may have many
/// rows.
const STEPS_MAX: usize = 24;
/// Buffers hold about this much: large enough for a hundred small rows, small enough that a row
/// which outlives its neighbours does not hold much more than itself.
const BUFFER_BYTES: usize = 64 << 10;

/// A place in the table of rows.
pub(super) struct Cursor<'a> {
    table: &'a ReadOnlyTable<&'static RowKey, &'static [u8]>,
    /// Behind the row of `last`.
    rows: Option<OwnedRange<&'static RowKey, &'static [u8]>>,
    last: Revision,
    buffer: BytesMut,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(table: &'a ReadOnlyTable<&'static RowKey, &'static [u8]>) -> Self {
        Self { table, rows: None, last: Revision::default(), buffer: BytesMut::new() }
    }

    /// The row of `wanted`. `next` is what will be wanted after it: it decides whether the cursor
    /// stays here. Cheap only if revisions rise from call to call; correct in any order.
    pub(super) fn row(
        &mut self,
        wanted: Revision,
        next: Option<Revision>,
    ) -> Result<Option<Bytes>, StoreError> {
        if is_near(self.last, wanted)
            && let Some(row) = self.step_to(wanted)?
        {
            return Ok(Some(row));
        }
        self.rows = None;
        if next.is_some_and(|next| is_near(wanted, next)) {
            // The owned iterator keeps the read transaction alive, the plain one does not.
            let from = row_key(wanted, false);
            let rows = self.table.range_owned::<&RowKey>(&from..).map_err(engine("seek a row"))?;
            self.rows = Some(rows);
            return self.step_to(wanted);
        }
        // Readers ask for tombstones hardly ever, so the second look-up is paid by misses only.
        for tombstone in [false, true] {
            let key = row_key(wanted, tombstone);
            if let Some(value) = self.table.get(&key).map_err(engine("read a row"))? {
                return Ok(Some(copy(&mut self.buffer, value.value())));
            }
        }
        Ok(None)
    }

    /// Steps to `wanted`; `None`, and no place any more, if it does not come soon.
    fn step_to(&mut self, wanted: Revision) -> Result<Option<Bytes>, StoreError> {
        let Some(rows) = &mut self.rows else { return Ok(None) };
        for row in rows.take(STEPS_MAX) {
            let (key, value) = row.map_err(engine("step to a row"))?;
            let (revision, _) = parse_row_key(key.value());
            if revision == wanted {
                self.last = wanted;
                return Ok(Some(copy(&mut self.buffer, value.value())));
            }
            if revision > wanted {
                break;
            }
        }
        self.rows = None;
        Ok(None)
    }
}

fn is_near(from: Revision, to: Revision) -> bool {
    from < to && to.main - from.main <= NEAR_REVISIONS
}

/// Copies a row behind the others of its buffer; large ones get their own.
fn copy(buffer: &mut BytesMut, row: &[u8]) -> Bytes {
    if row.len() >= BUFFER_BYTES / 4 {
        return Bytes::copy_from_slice(row);
    }
    if buffer.capacity() < row.len() {
        *buffer = BytesMut::with_capacity(BUFFER_BYTES);
    }
    buffer.extend_from_slice(row);
    buffer.split().freeze()
}
