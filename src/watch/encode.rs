//! Event bytes as clients get them, encoded once and shared by all watchers.

use super::{HubError, Source};
use crate::mvcc::{Event, EventKind, KeyValue, Revision, RowsError};
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// Field numbers of `mvccpb.Event`.
const TYPE: u32 = 1;
const KV: u32 = 2;
const PREV_KV: u32 = 3;
/// `mvccpb.Event.EventType.DELETE`; PUT is 0 and not on the wire.
const DELETE: u64 = 1;

/// One event and its two encodings, made when first needed.
pub(super) struct Shared {
    event: Event,
    plain: Option<Bytes>,
    with_prev: Option<Bytes>,
}

impl Shared {
    pub(super) fn new(event: Event) -> Self {
        Self { event, plain: None, with_prev: None }
    }

    /// The event of a stored row.
    pub(super) fn from_row(rev: Revision, tombstone: bool, row: Bytes) -> Result<Self, HubError> {
        let kv = KeyValue::decode(row.clone())
            .map_err(|_| HubError::Row { main: rev.main, sub: rev.sub })?;
        // A delete event shows the key and the revision of the delete, which a stored tombstone
        // may not repeat.
        let row = if tombstone && kv.mod_revision != rev.main {
            let shown =
                KeyValue { key: kv.key.clone(), mod_revision: rev.main, ..KeyValue::default() };
            Bytes::from(shown.encode_to_vec())
        } else {
            row
        };
        Ok(Self::new(Event {
            kind: if tombstone { EventKind::Delete } else { EventKind::Put },
            key: kv.key,
            row,
            revision: rev,
            is_create: !tombstone && kv.create_revision == rev.main,
            prev: None,
            lease: kv.lease,
        }))
    }

    pub(super) fn event(&self) -> &Event {
        &self.event
    }

    /// Encoded size without the previous row.
    pub(super) fn size(&self) -> usize {
        self.event.row.len() + 8
    }

    /// The bytes for a watcher.
    pub(super) fn bytes(&mut self, prev: bool, source: &dyn Source) -> Result<Bytes, HubError> {
        let slot = if prev { &mut self.with_prev } else { &mut self.plain };
        if let Some(bytes) = slot {
            return Ok(bytes.clone());
        }
        let before = if prev { previous(&self.event, source)? } else { None };
        let bytes = match before {
            // The same bytes serve both kinds of watchers when there is no row before.
            None => self.plain.get_or_insert_with(|| encode(&self.event, None)).clone(),
            Some(row) => encode(&self.event, Some(&row)),
        };
        if prev {
            self.with_prev = Some(bytes.clone());
        }
        Ok(bytes)
    }
}

/// The row of the key one revision before the event: none for a creation, and none once that
/// revision is compacted, even if the row happens to be there still.
fn previous(event: &Event, source: &dyn Source) -> Result<Option<Bytes>, RowsError> {
    let before = event.revision.main - 1;
    if event.is_create || before < source.compact_revision() {
        return Ok(None);
    }
    match event.prev {
        Some(prev) if prev.main <= before => match source.rows().row(prev) {
            Ok(row) => Ok(Some(row)),
            // Compacted between the check and the read.
            Err(RowsError::Missing) => Ok(None),
            Err(fault) => Err(fault),
        },
        // Not known, or written by the same transaction.
        _ => source.row_at(&event.key, before),
    }
}

fn encode(event: &Event, prev: Option<&Bytes>) -> Bytes {
    let mut out = BytesMut::with_capacity(event.row.len() + prev.map_or(0, Bytes::len) + 16);
    if event.kind == EventKind::Delete {
        encode_key(TYPE, WireType::Varint, &mut out);
        encode_varint(DELETE, &mut out);
    }
    field(KV, &event.row, &mut out);
    if let Some(row) = prev {
        field(PREV_KV, row, &mut out);
    }
    out.freeze()
}

fn field(number: u32, bytes: &Bytes, out: &mut BytesMut) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.put_slice(bytes);
}

/// Size of one event inside a response: key, length, bytes.
pub(super) fn wire_len(event: &Bytes) -> usize {
    1 + encoded_len_varint(event.len() as u64) + event.len()
}
