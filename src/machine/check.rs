//! Checks of requests before they are proposed: what is wrong in itself, whatever the state.
//!
//! Order of checks and errors are etcd's; texts are in `api::status`.

use super::command::put_cost;
use super::intervals::Intervals;
use crate::proto::etcdserverpb as pb;
use pb::range_request::{SortOrder, SortTarget};
use pb::request_op::Request;
use std::collections::BTreeSet;

/// Deepest nesting of transactions, the outermost counted. Ours: etcd has no limit but the size of
/// the request, and recursion must end somewhere.
pub const NESTING_MAX: usize = 8;

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequestError {
    /// No key.
    #[error("key is not provided")]
    EmptyKey,
    /// An operation without content.
    #[error("operation of the transaction has no content")]
    KeyNotFound,
    /// A put that keeps the value has one.
    #[error("value is provided although it is to be kept")]
    ValueProvided,
    /// A put that keeps the lease has one.
    #[error("lease is provided although it is to be kept")]
    LeaseProvided,
    /// Too many operations or compares, or nested deeper than [`NESTING_MAX`].
    #[error("too many operations in the transaction")]
    TooManyOps,
    /// Two changes of one key.
    #[error("transaction changes a key twice")]
    DuplicateKey,
    /// Sort order or target outside the enum.
    #[error("sort option is not known")]
    InvalidSortOption,
}

/// Checks a range.
///
/// # Errors
/// [`RequestError::EmptyKey`], [`RequestError::InvalidSortOption`].
pub fn range(range: &pb::RangeRequest) -> Result<(), RequestError> {
    if range.key.is_empty() {
        return Err(RequestError::EmptyKey);
    }
    SortOrder::try_from(range.sort_order).map_err(|_| RequestError::InvalidSortOption)?;
    SortTarget::try_from(range.sort_target).map_err(|_| RequestError::InvalidSortOption)?;
    Ok(())
}

/// Checks a put.
///
/// # Errors
/// [`RequestError::EmptyKey`], [`RequestError::ValueProvided`], [`RequestError::LeaseProvided`].
pub fn put(put: &pb::PutRequest) -> Result<(), RequestError> {
    if put.key.is_empty() {
        return Err(RequestError::EmptyKey);
    }
    if put.ignore_value && !put.value.is_empty() {
        return Err(RequestError::ValueProvided);
    }
    if put.ignore_lease && put.lease != 0 {
        return Err(RequestError::LeaseProvided);
    }
    Ok(())
}

/// Checks a delete.
///
/// # Errors
/// [`RequestError::EmptyKey`].
pub fn delete_range(delete: &pb::DeleteRangeRequest) -> Result<(), RequestError> {
    if delete.key.is_empty() { Err(RequestError::EmptyKey) } else { Ok(()) }
}

/// Checks a transaction: at most `ops_max` compares and operations per branch (a nested
/// transaction gets what its parent leaves), each of them right, no key changed twice.
///
/// # Errors
/// Any [`RequestError`].
pub fn txn(txn: &pb::TxnRequest, ops_max: usize) -> Result<(), RequestError> {
    tree(txn, ops_max, NESTING_MAX)?;
    changes(&txn.success)?;
    changes(&txn.failure)?;
    Ok(())
}

fn tree(txn: &pb::TxnRequest, ops_max: usize, depth: usize) -> Result<(), RequestError> {
    let ops = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    let left = ops_max.checked_sub(ops).ok_or(RequestError::TooManyOps)?;
    let deeper = depth.checked_sub(1).ok_or(RequestError::TooManyOps)?;
    if txn.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(RequestError::EmptyKey);
    }
    for op in txn.success.iter().chain(&txn.failure) {
        match &op.request {
            Some(Request::RequestRange(request)) => range(request)?,
            Some(Request::RequestPut(request)) => put(request)?,
            Some(Request::RequestDeleteRange(request)) => delete_range(request)?,
            Some(Request::RequestTxn(nested)) => tree(nested, left, deeper)?,
            None => return Err(RequestError::KeyNotFound),
        }
    }
    Ok(())
}

/// Keys that a branch puts and intervals that it deletes.
#[derive(Default)]
struct Changes<'a> {
    puts: BTreeSet<&'a [u8]>,
    deletes: Intervals<'a>,
}

/// Finds keys that would be changed twice in one branch: first the deletes of this level, then what
/// nested transactions put (either branch of one may put the same key, but not two of them), then
/// the puts of this level. A nested delete counts for what comes after it.
fn changes(ops: &[pb::RequestOp]) -> Result<Changes<'_>, RequestError> {
    let mut all = Changes::default();
    for op in ops {
        if let Some(Request::RequestDeleteRange(delete)) = &op.request {
            all.deletes.insert(&delete.key, &delete.range_end);
        }
    }
    for op in ops {
        let Some(Request::RequestTxn(nested)) = &op.request else { continue };
        let success = changes(&nested.success)?;
        let failure = changes(&nested.failure)?;
        let clashes = |key: &&[u8]| all.puts.contains(*key) || all.deletes.contains(key);
        if success.puts.iter().chain(&failure.puts).any(clashes) {
            return Err(RequestError::DuplicateKey);
        }
        all.puts.extend(success.puts);
        all.puts.extend(failure.puts);
        all.deletes.merge(success.deletes);
        all.deletes.merge(failure.deletes);
    }
    for op in ops {
        if let Some(Request::RequestPut(put)) = &op.request
            && (all.deletes.contains(&put.key) || !all.puts.insert(&put.key))
        {
            return Err(RequestError::DuplicateKey);
        }
    }
    Ok(all)
}

/// Whether a transaction only reads and need not go through the log. One with a nested transaction
/// never does, whatever is in it.
#[must_use]
pub fn is_read_only(txn: &pb::TxnRequest) -> bool {
    let mut ops = txn.success.iter().chain(&txn.failure);
    ops.all(|op| matches!(op.request, Some(Request::RequestRange(_))))
}

/// Whether a read-only transaction may be answered from local state: all its ranges say so, or
/// there are none.
#[must_use]
pub fn is_serializable(txn: &pb::TxnRequest) -> bool {
    let mut ops = txn.success.iter().chain(&txn.failure);
    ops.all(|op| match &op.request {
        Some(Request::RequestRange(range)) => range.serializable,
        _ => false,
    })
}

/// Bytes of quota that a put asks for.
#[must_use]
pub fn cost_of_put(put: &pb::PutRequest) -> u64 {
    put_cost(put.key.len(), put.value.len())
}

/// Bytes of quota that a transaction asks for: its larger branch, nested ones included.
#[must_use]
pub fn cost_of_txn(txn: &pb::TxnRequest) -> u64 {
    let branch = |ops: &[pb::RequestOp]| {
        let cost = |op: &pb::RequestOp| match &op.request {
            Some(Request::RequestPut(put)) => cost_of_put(put),
            Some(Request::RequestTxn(nested)) => cost_of_txn(nested),
            _ => 0,
        };
        ops.iter().map(cost).sum::<u64>()
    };
    branch(&txn.success).max(branch(&txn.failure))
}

/// Bytes of quota that a lease asks for.
#[must_use]
pub fn cost_of_lease() -> u64 {
    super::command::LEASE_COST
}
