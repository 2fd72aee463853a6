//! Frames: the bytes of one batch, base, identity or clean marker.
//!
//! ```text
//! 0   u32  payload length in bytes        8   u64  sequence, one more than the frame before
//! 4   u8   kind                           16  u64  synced_through
//! 5   3 B  zero                           24  u32  checksum of segment, position, bytes 0..24
//!                                         28  u32  checksum of that and the padded payload
//! 32  payload, zeros up to a multiple of 8
//! ```
//!
//! All numbers are little-endian. The header has a checksum of its own so that a length is never
//! believed before it is checked, and so that evidence survives in the header of a frame whose
//! payload is damaged. The second checksum continues the first and thus covers everything.

use bytes::Bytes;
use crc32c::crc32c_append;

use super::{Entry, HardState, Identity};

/// Size of a frame header in bytes.
pub(super) const HEADER: usize = 32;
/// Frames start at multiples of this many bytes.
pub(super) const ALIGN: usize = 8;
/// Largest payload in bytes; writer and reader share it. One raft message holds 1 MiB of entries
/// and one entry 1.5 MiB by default; a configured request limit may be much larger.
pub(super) const MAX_PAYLOAD: usize = 64 * 1024 * 1024;
/// A frame is closed when its payload reaches this many bytes: recovered entries share the memory
/// of their frame, so one entry that is kept pins no more than this, or itself.
pub(super) const FRAME_TARGET: usize = 4 * 1024 * 1024;
/// Largest data and context of one entry together, in bytes.
pub const MAX_ENTRY_BYTES: usize = MAX_PAYLOAD - 1024;

const HARD_STATE: usize = 24;
const ENTRY_HEAD: usize = 25;
const BATCH_HEAD: usize = 8;
const HAS_HARD_STATE: u32 = 1;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Batch = 1,
    Base = 2,
    Identity = 3,
    Clean = 4,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Kind::Batch),
            2 => Some(Kind::Base),
            3 => Some(Kind::Identity),
            4 => Some(Kind::Clean),
            _ => None,
        }
    }
}

/// A frame header whose checksum was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: usize,
    pub(super) kind: Kind,
    pub(super) sequence: u64,
    pub(super) synced_through: u64,
    payload_crc: u32,
    header_crc: u32,
}

/// Bytes a payload of this length takes with its padding.
pub(super) fn padded(length: usize) -> usize {
    length.next_multiple_of(ALIGN)
}

/// First part of every checksum of a segment.
pub(super) fn segment_seed(sequence: u64, salt: u64) -> u32 {
    crc32c_append(crc32c::crc32c(&sequence.to_le_bytes()), &salt.to_le_bytes())
}

fn header_crc(seed: u32, position: u64, header: &[u8]) -> u32 {
    crc32c_append(crc32c_append(seed, &position.to_le_bytes()), header)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl FrameHeader {
    /// The header at `position` of a segment, if it is one.
    pub(super) fn decode(seed: u32, position: u64, bytes: &[u8]) -> Option<Self> {
        let stored = u32_at(bytes, 24)?;
        let length = u32_at(bytes, 0)? as usize;
        if length > MAX_PAYLOAD || stored != header_crc(seed, position, &bytes[..24]) {
            return None;
        }
        Some(FrameHeader {
            length,
            kind: Kind::from_byte(bytes[4])?,
            sequence: u64_at(bytes, 8)?,
            synced_through: u64_at(bytes, 16)?,
            payload_crc: u32_at(bytes, 28)?,
            header_crc: stored,
        })
    }

    /// Whether the bytes at hand could be evidence that frame `n` was on disk. Cheap, so that a
    /// scan over a whole segment computes almost no checksum.
    pub(super) fn may_vouch(bytes: &[u8], n: u64, highest: u64) -> bool {
        let sequence = u64_at(bytes, 8).unwrap_or(0);
        let synced = u64_at(bytes, 16).unwrap_or(0);
        sequence > n && sequence <= highest && synced >= n && synced < sequence
    }

    /// Whether this is the payload, padding included.
    pub(super) fn matches(&self, padded_payload: &[u8]) -> bool {
        crc32c_append(self.header_crc, padded_payload) == self.payload_crc
    }

    /// Bytes of the whole frame.
    pub(super) fn frame_len(&self) -> usize {
        HEADER + padded(self.length)
    }
}

/// Where the next frame goes and what its header says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) seed: u32,
    pub(super) position: u64,
    pub(super) sequence: u64,
    pub(super) synced_through: u64,
}

/// Appends one frame to `out`, which must end where `place` says; `payload` appends the payload.
pub(super) fn encode(
    out: &mut Vec<u8>,
    place: Place,
    kind: Kind,
    payload: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    payload(out);
    let length = out.len() - start - HEADER;
    debug_assert!(length <= MAX_PAYLOAD);
    out.resize(start + HEADER + padded(length), 0);
    let (header, body) = out[start..].split_at_mut(HEADER);
    header[0..4].copy_from_slice(&(length as u32).to_le_bytes());
    header[4] = kind as u8;
    header[8..16].copy_from_slice(&place.sequence.to_le_bytes());
    header[16..24].copy_from_slice(&place.synced_through.to_le_bytes());
    let crc = header_crc(place.seed, place.position, &header[..24]);
    header[24..28].copy_from_slice(&crc.to_le_bytes());
    header[28..32].copy_from_slice(&crc32c_append(crc, body).to_le_bytes());
}

/// Payload bytes of one entry.
pub(super) fn entry_len(entry: &Entry) -> usize {
    ENTRY_HEAD + entry.context.len() + entry.data.len()
}

/// Payload bytes of a batch without its entries.
pub(super) const BATCH_OVERHEAD: usize = BATCH_HEAD + HARD_STATE;

fn put_hard_state(out: &mut Vec<u8>, hard_state: &HardState) {
    for number in [hard_state.term, hard_state.vote, hard_state.commit] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn hard_state_at(bytes: &[u8], at: usize) -> Option<HardState> {
    let number = |i: usize| u64_at(bytes, at + 8 * i);
    Some(HardState { term: number(0)?, vote: number(1)?, commit: number(2)? })
}

/// Appends the payload of a batch frame.
pub(super) fn put_batch(out: &mut Vec<u8>, hard_state: Option<&HardState>, entries: &[Entry]) {
    let flags = if hard_state.is_some() { HAS_HARD_STATE } else { 0 };
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    if let Some(hard_state) = hard_state {
        put_hard_state(out, hard_state);
    }
    for entry in entries {
        let mut head = [0; ENTRY_HEAD];
        head[0..8].copy_from_slice(&entry.index.to_le_bytes());
        head[8..16].copy_from_slice(&entry.term.to_le_bytes());
        head[16] = entry.kind;
        head[17..21].copy_from_slice(&(entry.context.len() as u32).to_le_bytes());
        head[21..25].copy_from_slice(&(entry.data.len() as u32).to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(&entry.context);
        out.extend_from_slice(&entry.data);
    }
}

/// The payload of a batch frame; entries share its memory.
pub(super) fn get_batch(payload: &Bytes) -> Option<(Option<HardState>, Vec<Entry>)> {
    let flags = u32_at(payload, 0)?;
    let count = u32_at(payload, 4)? as usize;
    let mut at = BATCH_HEAD;
    let hard_state = if flags & HAS_HARD_STATE != 0 {
        at += HARD_STATE;
        Some(hard_state_at(payload, BATCH_HEAD)?)
    } else {
        None
    };
    // Garbage counts must not reserve memory: an entry takes at least its head.
    if count > payload.len() / ENTRY_HEAD {
        return None;
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let context_len = u32_at(payload, at + 17)? as usize;
        let data_len = u32_at(payload, at + 21)? as usize;
        let context_at = at + ENTRY_HEAD;
        let data_at = context_at.checked_add(context_len)?;
        let end = data_at.checked_add(data_len)?;
        if end > payload.len() {
            return None;
        }
        entries.push(Entry {
            index: u64_at(payload, at)?,
            term: u64_at(payload, at + 8)?,
            kind: payload[at + 16],
            context: payload.slice(context_at..data_at),
            data: payload.slice(data_at..end),
        });
        at = end;
    }
    (at == payload.len()).then_some((hard_state, entries))
}

/// Appends the payload of a base frame: the log position and hard state at the head of a segment.
pub(super) fn put_base(out: &mut Vec<u8>, base: (u64, u64), hard_state: &HardState) {
    out.extend_from_slice(&base.0.to_le_bytes());
    out.extend_from_slice(&base.1.to_le_bytes());
    put_hard_state(out, hard_state);
}

/// The payload of a base frame.
pub(super) fn get_base(payload: &[u8]) -> Option<((u64, u64), HardState)> {
    let complete = payload.len() == 16 + HARD_STATE;
    let base = (u64_at(payload, 0)?, u64_at(payload, 8)?);
    if complete { Some((base, hard_state_at(payload, 16)?)) } else { None }
}

/// Appends the payload of an identity frame.
pub(super) fn put_identity(out: &mut Vec<u8>, identity: &Identity) {
    out.extend_from_slice(&identity.cluster_id.to_le_bytes());
    out.extend_from_slice(&identity.member_id.to_le_bytes());
    out.extend_from_slice(&identity.format.to_le_bytes());
}

/// The payload of an identity frame.
pub(super) fn get_identity(payload: &[u8]) -> Option<Identity> {
    Some(Identity {
        cluster_id: u64_at(payload, 0)?,
        member_id: u64_at(payload, 8)?,
        format: u32_at(payload, 16)?,
    })
}
