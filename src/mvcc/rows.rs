//! Rows: encoded `mvccpb.KeyValue` messages by revision.

use super::Revision;
use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{
    DecodeContext, decode_key, decode_varint, encode_varint, encoded_len_varint, skip_field,
};
use std::ops::ControlFlow;

/// A key with its value and history numbers; wire-identical to `mvccpb.KeyValue`. A row is its
/// encoded form; a tombstone's row has only the key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyValue {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Main revision of the put that created the key since its last delete.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// Main revision of the newest change.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// Puts since creation, the creating one included.
    #[prost(int64, tag = "4")]
    pub version: i64,
    /// The value.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    /// Lease the key hangs on, 0 for none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// Why a row could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowsError {
    /// No such row. Only a compaction takes rows away, so for a reader this means that its
    /// revision was compacted meanwhile; otherwise the store and the index disagree.
    #[error("row is missing")]
    Missing,
    /// The store is broken; it stays broken, and the process has to stop.
    #[error("row could not be read: {0}")]
    Fault(String),
}

/// Where rows come from.
pub trait Rows {
    /// One row.
    ///
    /// # Errors
    /// See [`RowsError`].
    fn row(&self, revision: Revision) -> Result<Bytes, RowsError>;

    /// Several rows, in the order of `revisions` (any order). All or an error.
    ///
    /// # Errors
    /// See [`RowsError`].
    fn rows(&self, revisions: &[Revision]) -> Result<Vec<Bytes>, RowsError> {
        revisions.iter().map(|revision| self.row(*revision)).collect()
    }

    /// Hands over the rows with main revisions from `from_main` to `to_main`, both included, in
    /// revision order (revision, tombstone, row) until `f` breaks.
    ///
    /// # Errors
    /// [`RowsError::Fault`].
    fn scan(
        &self,
        from_main: i64,
        to_main: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError>;

    /// As [`Rows::scan`], from the middle of a main revision on. The default skips what comes
    /// before; a store that can seek should.
    ///
    /// # Errors
    /// [`RowsError::Fault`].
    fn scan_from(
        &self,
        from: Revision,
        to_main: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        self.scan(from.main, to_main, &mut |revision, tombstone, row| {
            if revision < from { ControlFlow::Continue(()) } else { f(revision, tombstone, row) }
        })
    }
}

/// Field tags of `mvccpb.KeyValue`: number and wire type.
const TAG_KEY: u8 = 1 << 3 | 2;
const TAG_CREATE: u8 = 2 << 3;
const TAG_MOD: u8 = 3 << 3;
const TAG_VERSION: u8 = 4 << 3;
const TAG_VALUE: u8 = 5 << 3 | 2;
const TAG_LEASE: u8 = 6 << 3;

/// What [`encode`] writes: a [`KeyValue`] whose key and value are borrowed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) create: i64,
    pub(crate) modified: i64,
    pub(crate) version: i64,
    pub(crate) value: &'a [u8],
    pub(crate) lease: i64,
}

impl<'a> Parts<'a> {
    /// Reads an encoded row without copying; `None` if it is not one. Unknown fields are skipped
    /// and of a field that comes twice the last one counts, as in any protobuf message.
    pub(crate) fn decode(mut row: &'a [u8]) -> Option<Self> {
        let mut parts = Self::default();
        while !row.is_empty() {
            let (key, wire_type) = decode_key(&mut row).ok()?;
            let field = (key << 3) as u8 | wire_type as u8;
            match (key, field) {
                (..16, TAG_KEY) => parts.key = take_bytes(&mut row)?,
                (..16, TAG_VALUE) => parts.value = take_bytes(&mut row)?,
                (..16, TAG_CREATE) => parts.create = decode_varint(&mut row).ok()? as i64,
                (..16, TAG_MOD) => parts.modified = decode_varint(&mut row).ok()? as i64,
                (..16, TAG_VERSION) => parts.version = decode_varint(&mut row).ok()? as i64,
                (..16, TAG_LEASE) => parts.lease = decode_varint(&mut row).ok()? as i64,
                (1..=6, _) => return None,
                _ => skip_field(wire_type, key, &mut row, DecodeContext::default()).ok()?,
            }
        }
        Some(parts)
    }
}

/// Takes a length-delimited field.
fn take_bytes<'a>(row: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(decode_varint(row).ok()?).ok()?;
    let (bytes, rest) = row.split_at_checked(len)?;
    *row = rest;
    Some(bytes)
}

impl Parts<'_> {
    /// Bytes of the encoded row. As in any proto3 message, zero and empty fields take none.
    pub(crate) fn encoded_len(&self) -> usize {
        let bytes = |b: &[u8]| match b.len() {
            0 => 0,
            len => 1 + encoded_len_varint(len as u64) + len,
        };
        let number = |n: i64| if n == 0 { 0 } else { 1 + encoded_len_varint(n as u64) };
        bytes(self.key)
            + bytes(self.value)
            + number(self.create)
            + number(self.modified)
            + number(self.version)
            + number(self.lease)
    }

    /// Appends the row to `out`, fields in the order of their numbers.
    pub(crate) fn encode_to(&self, out: &mut BytesMut) {
        let bytes = |out: &mut BytesMut, tag: u8, b: &[u8]| {
            if !b.is_empty() {
                out.put_u8(tag);
                encode_varint(b.len() as u64, out);
                out.put_slice(b);
            }
        };
        let number = |out: &mut BytesMut, tag: u8, n: i64| {
            if n != 0 {
                out.put_u8(tag);
                encode_varint(n as u64, out);
            }
        };
        bytes(out, TAG_KEY, self.key);
        number(out, TAG_CREATE, self.create);
        number(out, TAG_MOD, self.modified);
        number(out, TAG_VERSION, self.version);
        bytes(out, TAG_VALUE, self.value);
        number(out, TAG_LEASE, self.lease);
    }

    /// The row in a buffer of exactly its size: rows live for long and must not hold more.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        self.encode_to(&mut out);
        out.freeze()
    }
}

/// The key inside a row, sharing the row's buffer; empty if the row does not begin with one.
pub(crate) fn key_in(row: &Bytes) -> Bytes {
    let mut rest = &row[..];
    if rest.first() != Some(&TAG_KEY) {
        return Bytes::new();
    }
    rest = &rest[1..];
    let Ok(len) = prost::encoding::decode_varint(&mut rest) else { return Bytes::new() };
    let start = row.len() - rest.len();
    match usize::try_from(len).ok().and_then(|len| start.checked_add(len)) {
        Some(end) if end <= row.len() => row.slice(start..end),
        _ => Bytes::new(),
    }
}
