//! Transactions: compares, the chosen path, its checks, and its execution.
//!
//! Three passes, because nothing may be half done: all compares (nested ones too) look at the state
//! before the transaction and fix the path; then everything on the path that can fail is checked;
//! only then is anything written, and later operations see earlier ones.

use super::rows::Parts;
use super::write::Write;
use super::{
    KeyRange, KeyValue, Live, NEVER_COMPACTED, RangeQuery, RangeResult, Rows, RowsError,
    SharedIndex,
};
use bytes::Bytes;
use prost::Message as _;
use std::cmp::Ordering;

/// Why a request on keys fails. The first four are the same on every member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// The revision lies below the compact revision.
    #[error("revision has been compacted; ask for a newer one")]
    Compacted,
    /// The revision lies above the current one.
    #[error("revision is in the future; ask for an existing one or 0")]
    FutureRevision,
    /// The put names a lease that does not exist.
    #[error("lease of the put does not exist; grant it first")]
    LeaseNotFound,
    /// A put that keeps value or lease needs an existing key.
    #[error("key of a put that keeps value or lease does not exist; put it with a value first")]
    KeyNotFound,
    /// The rows of an answer exceed the budget of the query.
    #[error("answer of more than {bytes} bytes exceeds the budget of {limit}; ask for fewer keys")]
    OverBudget {
        /// Bytes read when the budget was exceeded.
        bytes: u64,
        /// The budget.
        limit: u64,
    },
    /// A row could not be read.
    #[error(transparent)]
    Rows(#[from] RowsError),
}

/// A put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Bytes,
    /// The new value; empty with `ignore_value`.
    pub value: Bytes,
    /// The lease to hang on, 0 for none.
    pub lease: i64,
    /// Whether the answer holds the row before.
    pub prev_kv: bool,
    /// Keep the value.
    pub ignore_value: bool,
    /// Keep the lease.
    pub ignore_lease: bool,
}

/// A delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// What goes.
    pub range: KeyRange,
    /// Whether the answer holds the rows before.
    pub prev_kv: bool,
}

/// How a compare relates what is there to what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// Equal.
    Equal,
    /// Greater than asked.
    Greater,
    /// Less than asked.
    Less,
    /// Different.
    NotEqual,
    /// An operator this version does not know: always true, as in etcd.
    Unknown,
}

/// What a compare looks at, with the asked value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// Puts since creation.
    Version(i64),
    /// Create revision.
    Create(i64),
    /// Mod revision.
    Mod(i64),
    /// Value.
    Value(Bytes),
    /// Lease.
    Lease(i64),
    /// A target this version does not know: counts as equal, as in etcd.
    Unknown,
}

/// One condition; with a range it must hold for every existing key of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// Which keys.
    pub range: KeyRange,
    /// The relation.
    pub op: CompareOp,
    /// The target.
    pub test: Test,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read.
    Range(RangeQuery),
    /// A put.
    Put(Put),
    /// A delete.
    Delete(Delete),
    /// A nested transaction.
    Txn(Txn),
}

/// If all compares hold (none: they hold) do `success`, otherwise `failure`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Conditions on the state before the transaction.
    pub compares: Vec<Compare>,
    /// Operations if they hold.
    pub success: Vec<Op>,
    /// Operations if not.
    pub failure: Vec<Op>,
}

/// Answer of one operation. `revision` is what its header shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpAnswer {
    /// A range.
    Range {
        /// Revision the range ran at.
        revision: i64,
        /// What it found.
        result: RangeResult,
    },
    /// A put.
    Put {
        /// Revision of the transaction.
        revision: i64,
        /// The row before, if asked for and there.
        prev_kv: Option<Bytes>,
    },
    /// A delete.
    DeleteRange {
        /// Revision of the transaction if it changed anything so far, else the one before.
        revision: i64,
        /// Number of deleted keys.
        deleted: i64,
        /// Their rows in key order, if asked for.
        prev_kvs: Vec<Bytes>,
    },
    /// A nested transaction.
    Txn(TxnAnswer),
}

/// Answer of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnAnswer {
    /// Revision after the transaction; 0 in nested ones, whose headers are empty in etcd.
    pub revision: i64,
    /// Whether the compares held.
    pub succeeded: bool,
    /// Answers of the chosen branch, in order.
    pub results: Vec<OpAnswer>,
}

/// Which branch each transaction of a tree takes, outermost first, then in order of appearance.
pub(super) type Path = Vec<bool>;

/// Runs a transaction that only reads, at main revision `current`.
///
/// # Errors
/// See [`KvError`]; [`KvError::KeyNotFound`] if it does write after all.
pub fn evaluate<R: Rows + ?Sized>(
    txn: &Txn,
    index: &SharedIndex,
    rows: &R,
    current: i64,
    compacted: i64,
) -> Result<TxnAnswer, KvError> {
    let mut write = Write::new(index, rows, current, compacted);
    let answer = write.txn(txn, &|_| false)?;
    debug_assert!(write.is_empty());
    Ok(answer)
}

/// Chooses the path: evaluates the compares of `txn` and of what is nested in the chosen branches.
pub(super) fn choose<R: Rows + ?Sized>(
    txn: &Txn,
    write: &Write<'_, R>,
    path: &mut Path,
) -> Result<(), KvError> {
    let mut holds = true;
    for compare in &txn.compares {
        if !compare_holds(compare, write)? {
            holds = false;
            break;
        }
    }
    path.push(holds);
    for op in branch(txn, holds) {
        if let Op::Txn(nested) = op {
            choose(nested, write, path)?;
        }
    }
    Ok(())
}

pub(super) fn branch(txn: &Txn, holds: bool) -> &[Op] {
    if holds { &txn.success } else { &txn.failure }
}

fn compare_holds<R: Rows + ?Sized>(
    compare: &Compare,
    write: &Write<'_, R>,
) -> Result<bool, KvError> {
    let mut found = false;
    let mut after: Option<Vec<u8>> = None;
    loop {
        let mut keys = Vec::new();
        after = write.slice(&compare.range, after.as_deref(), |_, live| keys.push(live));
        for live in keys {
            found = true;
            if !live_holds(compare, &live, write)? {
                return Ok(false);
            }
        }
        if after.is_none() {
            break;
        }
    }
    // A missing key has no value to compare, and zero for everything else.
    Ok(found
        || match &compare.test {
            Test::Value(_) => false,
            Test::Version(asked) | Test::Create(asked) | Test::Mod(asked) | Test::Lease(asked) => {
                matches(compare.op, 0.cmp(asked))
            }
            Test::Unknown => matches(compare.op, Ordering::Equal),
        })
}

fn live_holds<R: Rows + ?Sized>(
    compare: &Compare,
    live: &Live,
    write: &Write<'_, R>,
) -> Result<bool, KvError> {
    let order = match &compare.test {
        Test::Version(asked) => live.version.cmp(asked),
        Test::Create(asked) => live.create.cmp(asked),
        Test::Mod(asked) => live.revision.main.cmp(asked),
        Test::Value(asked) => write.key_value(live)?.value.cmp(asked),
        Test::Lease(asked) => write.key_value(live)?.lease.cmp(asked),
        Test::Unknown => Ordering::Equal,
    };
    Ok(matches(compare.op, order))
}

fn matches(op: CompareOp, order: Ordering) -> bool {
    match op {
        CompareOp::Equal => order.is_eq(),
        CompareOp::Greater => order.is_gt(),
        CompareOp::Less => order.is_lt(),
        CompareOp::NotEqual => order.is_ne(),
        CompareOp::Unknown => true,
    }
}

/// Checks everything on the path that can fail, on the state before the transaction. `before` is
/// what the path does before this branch, in order.
pub(super) fn check<'t, R: Rows + ?Sized>(
    txn: &'t Txn,
    write: &Write<'_, R>,
    lease_exists: &dyn Fn(i64) -> bool,
    path: &mut std::slice::Iter<'_, bool>,
    before: &mut Vec<&'t Op>,
) -> Result<(), KvError> {
    let holds = path.next().copied().unwrap_or(false);
    for op in branch(txn, holds) {
        match op {
            Op::Range(query) => check_revision(query, write)?,
            Op::Put(put) => check_put(put, write, lease_exists, before)?,
            Op::Delete(_) => {}
            Op::Txn(nested) => {
                check(nested, write, lease_exists, path, before)?;
                continue;
            }
        }
        before.push(op);
    }
    Ok(())
}

/// Unlike a plain range, a range in a transaction takes a negative revision at its word: it is
/// below the compact revision as soon as there is one.
fn check_revision<R: Rows + ?Sized>(
    query: &RangeQuery,
    write: &Write<'_, R>,
) -> Result<(), KvError> {
    match query.revision {
        0 => Ok(()),
        revision if revision > write.current() => Err(KvError::FutureRevision),
        revision if revision < write.compacted().max(NEVER_COMPACTED) => Err(KvError::Compacted),
        _ => Ok(()),
    }
}

/// A plain put has nothing `before`.
pub(super) fn check_put<R: Rows + ?Sized>(
    put: &Put,
    write: &Write<'_, R>,
    lease_exists: &dyn Fn(i64) -> bool,
    before: &[&Op],
) -> Result<(), KvError> {
    if put.lease != 0 && !lease_exists(put.lease) {
        return Err(KvError::LeaseNotFound);
    }
    if !put.ignore_value && !put.ignore_lease {
        return Ok(());
    }
    // The key must exist before the transaction, and an earlier delete of the path must not take
    // it away: found out only while writing, that would leave half a transaction.
    let gone = before.iter().rev().find_map(|op| match op {
        Op::Put(earlier) if earlier.key == put.key => Some(false),
        Op::Delete(delete) if delete.range.contains(&put.key) => Some(true),
        _ => None,
    });
    if write.get(&put.key).is_none() || gone == Some(true) {
        return Err(KvError::KeyNotFound);
    }
    Ok(())
}

/// Does what is on the path.
pub(super) fn execute<R: Rows + ?Sized>(
    txn: &Txn,
    write: &mut Write<'_, R>,
    path: &mut std::slice::Iter<'_, bool>,
) -> Result<TxnAnswer, KvError> {
    let succeeded = path.next().copied().unwrap_or(false);
    let mut results = Vec::with_capacity(branch(txn, succeeded).len());
    for op in branch(txn, succeeded) {
        results.push(match op {
            Op::Range(query) => {
                let result = write.range(query)?;
                OpAnswer::Range { revision: result.revision, result }
            }
            Op::Put(put) => {
                let prev_kv = write.put(put)?;
                OpAnswer::Put { revision: write.revision(), prev_kv }
            }
            Op::Delete(delete) => {
                let (deleted, prev_kvs) = write.delete(delete)?;
                OpAnswer::DeleteRange { revision: write.revision(), deleted, prev_kvs }
            }
            Op::Txn(nested) => OpAnswer::Txn(execute(nested, write, path)?),
        });
    }
    Ok(TxnAnswer { revision: 0, succeeded, results })
}

/// Decodes a stored row.
pub(super) fn decode(row: Bytes) -> Result<KeyValue, KvError> {
    KeyValue::decode(row).map_err(|error| {
        KvError::Rows(RowsError::Fault(format!("a stored row is damaged: {error}")))
    })
}

/// The row of a tombstone.
pub(super) fn tombstone_row(key: &[u8]) -> Bytes {
    Parts { key, ..Parts::default() }.encode()
}
