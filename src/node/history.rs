//! History as the watch hub reads it: the machine's reader and the store behind it.

use crate::machine::{ReadError, Reader};
use crate::mvcc::{Revision, Rows, RowsError};
use crate::watch::Source;
use bytes::Bytes;
use std::ops::ControlFlow;

impl Rows for Reader {
    fn row(&self, revision: Revision) -> Result<Bytes, RowsError> {
        Rows::row(Reader::rows(self), revision)
    }

    fn scan(
        &self,
        from_main: i64,
        to_main: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        Reader::rows(self).scan(from_main, to_main, f)
    }

    fn rows(&self, revisions: &[Revision]) -> Result<Vec<Bytes>, RowsError> {
        Rows::rows(Reader::rows(self), revisions)
    }

    fn scan_from(
        &self,
        from: Revision,
        to_main: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        Reader::rows(self).scan_from(from, to_main, f)
    }
}

impl Source for Reader {
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
