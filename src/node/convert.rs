//! Values of the consensus core and of the log are plain and alike; neither module knows the other.

use crate::{consensus, wal};

const NORMAL: u8 = 0;
const CHANGE: u8 = 1;

/// Kind of an entry as the log and the machine write it.
pub(super) fn kind(kind: consensus::EntryKind) -> u8 {
    match kind {
        consensus::EntryKind::Normal => NORMAL,
        consensus::EntryKind::Change => CHANGE,
    }
}

/// A batch of the core for the log. Data is shared, not copied.
pub(super) fn batch(batch: &consensus::Batch) -> wal::Batch {
    wal::Batch {
        entries: batch
            .entries
            .iter()
            .map(|entry| wal::Entry {
                index: entry.index,
                term: entry.term,
                kind: kind(entry.kind),
                data: entry.data.clone(),
                context: entry.context.clone(),
            })
            .collect(),
        hard_state: batch.hard_state.map(hard_state),
        sync: batch.sync,
    }
}

/// A hard state of the core for the log.
pub(super) fn hard_state(hard: consensus::HardState) -> wal::HardState {
    wal::HardState { term: hard.term, vote: hard.vote, commit: hard.commit }
}

/// What the log holds, for the core. An unknown kind is refused before anything is applied.
///
/// # Errors
/// The index of an entry whose kind this version does not know.
pub(super) fn restored(
    recovered: wal::Recovered,
    applied: (u64, u64),
    conf_state: consensus::ConfState,
) -> Result<consensus::Restored, u64> {
    let entries = recovered
        .entries
        .into_iter()
        .map(|entry| {
            let kind = match entry.kind {
                NORMAL => consensus::EntryKind::Normal,
                CHANGE => consensus::EntryKind::Change,
                _ => return Err(entry.index),
            };
            Ok(consensus::Entry {
                index: entry.index,
                term: entry.term,
                kind,
                data: entry.data,
                context: entry.context,
            })
        })
        .collect::<Result<_, _>>()?;
    let hard = recovered.hard_state;
    Ok(consensus::Restored {
        hard_state: consensus::HardState { term: hard.term, vote: hard.vote, commit: hard.commit },
        base: recovered.base,
        entries,
        applied,
        conf_state,
    })
}
