//! HashKV: a checksum over the history that two members must agree on.
//!
//! It covers the stored rows up to a revision, but of those at or below the compact revision only
//! what still counts, so that it does not depend on how far the background deletion has come.

use super::rows::key_in;
use super::{KvError, Revision, Rows, SharedIndex};
use bytes::Bytes;
use std::ops::ControlFlow;

/// Name of the row bucket in etcd's file, which begins the hashed bytes.
const ROWS_BUCKET: &[u8] = b"key";

/// Attempts to hash between two compactions before giving up with "compacted".
const ATTEMPTS: usize = 4;

/// Answer to HashKV. Two are comparable if both revisions are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashKv {
    /// CRC-32C.
    pub hash: u32,
    /// Compact revision the hash was made at, −1 if never compacted.
    pub compact_revision: i64,
    /// The hash covers history up to this main revision.
    pub hash_revision: i64,
    /// Current revision of the store.
    pub revision: i64,
}

/// CRC-32C over rows in revision order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvHasher(u32);

impl Default for KvHasher {
    fn default() -> Self {
        Self(crc32c::crc32c(ROWS_BUCKET))
    }
}

impl KvHasher {
    /// Adds a row with its encoded revision.
    pub fn add(&mut self, revision: Revision, tombstone: bool, row: &[u8]) {
        let Self(crc) = *self;
        let crc = if tombstone {
            crc32c::crc32c_append(crc, &revision.to_tombstone_bytes())
        } else {
            crc32c::crc32c_append(crc, &revision.to_bytes())
        };
        *self = Self(crc32c::crc32c_append(crc, row));
    }

    /// The checksum so far.
    #[must_use]
    pub fn finish(self) -> u32 {
        let Self(crc) = self;
        crc
    }
}

/// Hashes the history up to main revision `at` of a store whose current revision is `current`.
/// Reads every row up to `at`.
///
/// # Errors
/// [`KvError::Compacted`] if `at` is below the floor or compactions overtake the hash again and
/// again; [`KvError::Rows`].
pub fn hash_kv<R: Rows + ?Sized>(
    index: &SharedIndex,
    rows: &R,
    at: i64,
    current: i64,
) -> Result<HashKv, KvError> {
    for _ in 0..ATTEMPTS {
        let floor = index.read().floor();
        if at < floor {
            return Err(KvError::Compacted);
        }
        let hash = attempt(index, rows, at, floor)?;
        // A compaction that began meanwhile may have taken rows away behind or before the scan.
        if index.read().floor() == floor {
            return Ok(HashKv {
                hash,
                compact_revision: floor,
                hash_revision: at,
                revision: current,
            });
        }
    }
    Err(KvError::Compacted)
}

fn attempt<R: Rows + ?Sized>(
    index: &SharedIndex,
    rows: &R,
    at: i64,
    floor: i64,
) -> Result<u32, KvError> {
    // Of the rows up to the floor, those that are still the newest put of their key at `at`; so
    // never a tombstone, not even the one that a compaction keeps for watches.
    let mut keep: Vec<Revision> = Vec::new();
    let mut any_alive = false;
    let mut after: Option<Vec<u8>> = None;
    loop {
        after = index.read().records(after.as_deref(), at, |revision, tombstone| {
            any_alive |= !tombstone;
            if !tombstone && revision.main <= floor {
                keep.push(revision);
            }
        });
        if after.is_none() {
            break;
        }
    }
    keep.sort_unstable();
    let mut hasher = KvHasher::default();
    let mut keep = keep.into_iter().peekable();
    rows.scan(0, at, &mut |revision, tombstone, row: Bytes| {
        let counts = if revision.main > floor {
            true
        } else if any_alive {
            while keep.next_if(|kept| *kept < revision).is_some() {}
            keep.next_if_eq(&revision).is_some()
        } else {
            // With no key alive there is nothing to leave out rows by, and etcd hashes what its
            // finished compaction has left. Asking the index for exactly that makes the hash
            // independent of the deletion's progress.
            !tombstone && index.read().keeps(&key_in(&row), revision, floor)
        };
        if counts {
            hasher.add(revision, tombstone, &row);
        }
        ControlFlow::Continue(())
    })?;
    Ok(hasher.finish())
}
