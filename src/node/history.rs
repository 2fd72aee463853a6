//! History as the watch hub reads it: the machine's reader and the store behind it.

use crate::machine::{ReadError, Reader};
use crate::mvcc::{Rows, RowsError};
use crate::watch::Source;
use bytes::Bytes;

impl Source for Reader {
    fn rows(&self) -> &dyn Rows {
        Reader::rows(self)
    }

    fn revision(&self) -> i64 {
        Reader::revision(self)
    }

    fn compact_revision(&self) -> i64 {
        Reader::compact_revision(self)
    }

    fn row_at(&self, key: &[u8], revision: i64) -> Result<Option<Bytes>, RowsError> {
        Reader::row_at(self, key, revision).map_err(|error| match error {
            ReadError::Fault(text) => RowsError::Fault(text),
            other => RowsError::Fault(other.to_string()),
        })
    }
}
