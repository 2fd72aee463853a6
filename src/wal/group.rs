//! From batches to frames, and from frames to the head of a new segment.

use std::path::Path;

use bytes::Bytes;

use super::pool::{Pool, Reserve};
use super::record::{self, FRAME_TARGET, HEADER, Kind, MAX_ENTRY_BYTES, MAX_PAYLOAD, Place};
use super::segment::{self, HEADER_BYTES, Header};
use super::writer::Active;
use super::{Batch, Entry, HardState, Identity, WalError};
use crate::disk::{Disk, FileKind, Open};

/// Writes a segment with its head, syncs it, names it and syncs the directory, in this order.
pub(super) fn write_segment(
    disk: &dyn Disk,
    dir: &Path,
    pool: &mut Pool,
    mut header: Header,
    base: (u64, u64),
    frames: &[(Kind, Bytes)],
    reserve: Reserve,
) -> Result<Active, WalError> {
    header.head_through = header.first_frame + frames.len() as u64 - 1;
    let mut head = header.encode().to_vec();
    debug_assert_eq!(head.len(), HEADER_BYTES);
    for (sequence, (kind, payload)) in (header.first_frame..).zip(frames) {
        let place = Place {
            seed: record::segment_seed(header.sequence, header.salt),
            position: head.len() as u64,
            sequence,
            synced_through: header.first_frame - 1,
        };
        record::encode(&mut head, place, *kind, |out| out.extend_from_slice(payload));
    }
    let end = head.len() as u64;
    let (file, prepared) = pool.take(disk, end, reserve)?;
    if let Err(fault) = file.write_at(&head, 0) {
        if !fault.is_no_space() {
            return Err(fault.into());
        }
        // Only without reserved space, or where the file system copies on write.
        drop(file);
        disk.remove(&prepared, FileKind::Wal)?;
        return Err(WalError::NoSpace(fault));
    }
    file.sync_all()?;
    drop(file);
    let path = dir.join(segment::segment_name(header.sequence, base.0 + 1));
    disk.rename(&prepared, &path, FileKind::Wal)?;
    disk.sync_dir(dir, FileKind::Wal)?;
    let file = disk.open(&path, FileKind::Wal, Open::ReadWrite)?;
    let capacity = file.len()?;
    Ok(Active {
        file,
        path,
        header,
        capacity,
        position: end,
        head_end: end,
        base,
        max_index: base.0,
    })
}

/// The frames every segment begins with.
pub(super) fn head_frames(
    identity: &Identity,
    base: (u64, u64),
    hard_state: &HardState,
) -> Vec<(Kind, Bytes)> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    record::put_identity(&mut first, identity);
    record::put_base(&mut second, base, hard_state);
    vec![(Kind::Identity, first.into()), (Kind::Base, second.into())]
}

/// How many of these entries go into the next frame, and the payload bytes they take.
fn next_frame(entries: &[Entry]) -> (usize, usize) {
    let mut payload = record::BATCH_OVERHEAD;
    for (count, entry) in entries.iter().enumerate() {
        let more = record::entry_len(entry);
        if count > 0 && (payload >= FRAME_TARGET || payload + more > MAX_PAYLOAD) {
            return (count, payload);
        }
        payload += more;
    }
    (entries.len(), payload)
}

/// Splits a batch into frames; the hard state goes into the first. An empty batch has none.
pub(super) fn for_each_frame(batch: &Batch, mut frame: impl FnMut(Option<&HardState>, &[Entry])) {
    let mut hard_state = batch.hard_state.as_ref();
    let mut rest = batch.entries.as_slice();
    while !rest.is_empty() || hard_state.is_some() {
        let (now, later) = rest.split_at(next_frame(rest).0);
        frame(hard_state.take(), now);
        rest = later;
    }
}

/// Upper bound of the bytes a batch takes in a segment.
pub(super) fn batch_len(batch: &Batch) -> u64 {
    let mut bytes = 0;
    for_each_frame(batch, |_, entries| {
        let payload: usize = entries.iter().map(record::entry_len).sum();
        bytes += (HEADER + record::padded(record::BATCH_OVERHEAD + payload)) as u64;
    });
    bytes
}

/// Entries have to follow each other and the log; every one has to fit into a frame.
pub(super) fn check_entries(entries: &[Entry], base: u64, mut last: u64) -> Result<(), WalError> {
    for (at, entry) in entries.iter().enumerate() {
        let index = entry.index;
        let follows = if at == 0 { index <= last + 1 } else { index == last + 1 };
        if !follows || index <= base {
            return Err(WalError::Gap { index, last, base });
        }
        let bytes = entry.data.len().saturating_add(entry.context.len());
        if bytes > MAX_ENTRY_BYTES {
            return Err(WalError::TooLarge { index, bytes: bytes as u64 });
        }
        last = index;
    }
    Ok(())
}
