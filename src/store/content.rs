//! A checksum over everything that the file holds, kept in step by every transaction.
//!
//! It is a sum of one hash per row, so that adding and dropping rows costs as much as the rows that
//! change, in any order. At a start all rows are read anyway: a sum over what was read that differs
//! from the stored one means that the disk gives back something else than what was written. The
//! same sum travels with a snapshot, over what the sender meant to send.

use super::tables::{STATE_APPLIED, STATE_CONTENT, Table};
use crate::mvcc::Revision;
use redb::{ReadableTable, Table as Open};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Seeds of the hashes of rows and of rows of small tables.
const ROW_SEED: u64 = 0x726f_7773;
const PAIR_SEED: u64 = 0x7061_6972;

/// Sum of the hashes of rows, modulo 2^64, and their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Number of rows, small tables included.
    pub count: u64,
    /// Sum of their hashes.
    pub sum: u64,
}

impl Content {
    /// Takes in a row.
    pub fn add_row(&mut self, revision: Revision, tombstone: bool, row: &[u8]) {
        self.add(hash_row(revision, tombstone, row));
    }

    /// Takes in a row of a small table.
    pub fn add_pair(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.add(hash_pair(table, key, value));
    }

    pub(super) fn drop_row(&mut self, revision: Revision, tombstone: bool, row: &[u8]) {
        self.drop(hash_row(revision, tombstone, row));
    }

    pub(super) fn drop_pair(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.drop(hash_pair(table, key, value));
    }

    fn add(&mut self, hash: u64) {
        self.count = self.count.wrapping_add(1);
        self.sum = self.sum.wrapping_add(hash);
    }

    fn drop(&mut self, hash: u64) {
        self.count = self.count.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(hash);
    }
}

/// Hash of a row, the running hash of the machine is made of the same.
pub fn hash_row(revision: Revision, tombstone: bool, row: &[u8]) -> u64 {
    // A seed makes the hash of a long input slower: it goes into a short one.
    let mut all = [0; 25];
    all[..8].copy_from_slice(&revision.main.to_be_bytes());
    all[8..16].copy_from_slice(&revision.sub.to_be_bytes());
    all[16] = u8::from(tombstone);
    all[17..].copy_from_slice(&xxh3_64(row).to_be_bytes());
    xxh3_64_with_seed(&all, ROW_SEED)
}

/// Hash of a row of a small table.
pub fn hash_pair(table: Table, key: &[u8], value: &[u8]) -> u64 {
    let mut all = [0; 24];
    all[..8].copy_from_slice(&xxh3_64(table.name().as_bytes()).to_be_bytes());
    all[8..16].copy_from_slice(&xxh3_64(key).to_be_bytes());
    all[16..].copy_from_slice(&xxh3_64(value).to_be_bytes());
    xxh3_64_with_seed(&all, PAIR_SEED)
}

/// What the file says of itself at an applied index: a former version of the program leaves it
/// behind while it goes on, so it counts only together with that index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) applied: u64,
    pub(super) content: Content,
}

/// Bytes of its value: applied index, count, sum, 8 bytes big-endian each.
const STORED_BYTES: usize = 24;

impl Stored {
    pub(super) fn encode(self) -> [u8; STORED_BYTES] {
        let mut value = [0; STORED_BYTES];
        value[..8].copy_from_slice(&self.applied.to_be_bytes());
        value[8..16].copy_from_slice(&self.content.count.to_be_bytes());
        value[16..].copy_from_slice(&self.content.sum.to_be_bytes());
        value
    }

    pub(super) fn decode(value: &[u8]) -> Option<Stored> {
        let value: &[u8; STORED_BYTES] = value.try_into().ok()?;
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&value[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        let content = Content { count: number(8), sum: number(16) };
        Some(Stored { applied: number(0), content })
    }
}

type State<'t> = Open<'t, &'static [u8], &'static [u8]>;

/// The checksum as of the last transaction, if it belongs to its applied index.
pub(super) fn current(state: &State<'_>) -> Result<Option<Content>, redb::StorageError> {
    let applied = state.get(STATE_APPLIED)?.map(|value| value.value().to_vec());
    let stored = state.get(STATE_CONTENT)?.and_then(|value| Stored::decode(value.value()));
    let fits = |stored: &Stored| {
        applied.as_ref().is_some_and(|applied| applied[..8] == stored.applied.to_be_bytes())
    };
    Ok(stored.filter(fits).map(|stored| stored.content))
}
