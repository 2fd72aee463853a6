//! Multi-version values: revisions, rows, the key index, ranges, transactions, compaction, hashes.
//!
//! Every change of a key makes a row: the encoded `mvccpb.KeyValue`, stored under its
//! [`Revision`] and never changed afterwards; a delete is a row too. [`KeyIndex`] knows which
//! revisions each key has and answers every question that needs no value. Values are fetched
//! through [`Rows`], so this module runs on a map in tests and on the store in the node.
//!
//! Readers name a revision, and what a revision shows never changes as long as it is not below
//! the index's floor. That is why a reader may take the index lock in slices of [`SLICE_KEYS`]
//! keys while writes go on: later records do not exist at its revision, and only the floor (looked
//! at again in each slice) can take earlier ones away.
//!
//! No clock, no thread, no file: order and time come from the caller.

mod compact;
mod event;
mod hash;
mod key_index;
mod key_range;
mod leaves;
mod range;
mod revision;
mod rows;
#[cfg(test)]
mod tests;
mod txn;
mod write;

pub use compact::{Compaction, Dropped, HashJob, Step};
pub use event::{Event, EventBatch, EventKind};
pub use hash::{HashKv, KvHasher, hash_kv};
pub use key_index::{Charge, KeyIndex, Live, Put as IndexPut, SharedIndex};
pub use key_range::{End, KeyRange};
pub use range::{Filters, RangeQuery, RangeResult, Sort, SortTarget, key_only_row, range};
pub use revision::Revision;
pub(crate) use rows::Parts;
pub use rows::{KeyValue, Rows, RowsError};
pub use txn::{
    Compare, CompareOp, Delete, KvError, Op, OpAnswer, Put, Test, Txn, TxnAnswer, evaluate,
};
pub use write::{Changes, Write};

/// Keys visited per hold of the index lock. A million keys under one hold stop applying for 58 ms;
/// 512 keys take some tens of microseconds.
pub const SLICE_KEYS: usize = 512;

/// Revision of a store that holds nothing; the first write gets the next one.
pub const FIRST_REVISION: i64 = 1;

/// Compact revision of a store that was never compacted.
pub const NEVER_COMPACTED: i64 = -1;
