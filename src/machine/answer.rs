//! What the state machine says to commands and reads: values that are equal on every member.

use super::members::Members;
use crate::mvcc::{EventBatch, KvError, RowsError};
use bytes::Bytes;
use std::sync::Arc;

pub use crate::mvcc::{OpAnswer, TxnAnswer};

/// Answer to a command. `revision` is what the response header shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A put.
    Put {
        /// Revision of the put.
        revision: i64,
        /// The row before, if asked for and there.
        prev_kv: Option<Bytes>,
    },
    /// A delete.
    DeleteRange {
        /// Revision of the delete; the current one if nothing was there.
        revision: i64,
        /// Number of deleted keys.
        deleted: i64,
        /// Their rows in key order, if asked for.
        prev_kvs: Vec<Bytes>,
    },
    /// A transaction.
    Txn(TxnAnswer),
    /// A compaction was accepted; the deletion goes on in the background.
    Compact {
        /// Current revision.
        revision: i64,
    },
    /// A lease was granted.
    LeaseGrant {
        /// Current revision.
        revision: i64,
        /// Its id.
        id: i64,
        /// Its time to live, seconds; raised to the minimum.
        ttl: i64,
    },
    /// A lease was revoked and its keys deleted.
    LeaseRevoke {
        /// Revision after the deletes.
        revision: i64,
    },
    /// The listed or changed alarms.
    Alarm {
        /// Current revision.
        revision: i64,
        /// Alarms.
        alarms: Vec<Alarm>,
    },
    /// All members after a change.
    Members(Arc<Members>),
    /// Done; nothing to say.
    Done {
        /// Current revision.
        revision: i64,
    },
}

/// Kind of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmKind {
    /// The quota is used up.
    NoSpace,
    /// The member's data differs from the others'.
    Corrupt,
}

/// An active alarm. Orders by member, then kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alarm {
    /// Member it is about; 0 if no single one is to blame.
    pub member: u64,
    /// What is wrong.
    pub kind: AlarmKind,
}

/// Why a command changed nothing. Texts for clients are in `api::status`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Revision at or below the compact revision.
    #[error("revision has been compacted")]
    Compacted,
    /// Revision above the current one.
    #[error("revision is in the future")]
    FutureRevision,
    /// No such lease.
    #[error("lease does not exist")]
    LeaseNotFound,
    /// The lease id is in use.
    #[error("lease exists already")]
    LeaseExists,
    /// Time to live above `lease::MAX_TTL_S`.
    #[error("time to live of the lease is too large")]
    LeaseTtlTooLarge,
    /// A put that keeps value or lease of a key that does not exist.
    #[error("key does not exist")]
    KeyNotFound,
    /// A NOSPACE alarm is active.
    #[error("an alarm says that the quota is used up; free space, then disarm it")]
    NoSpace,
    /// A CORRUPT alarm is active.
    #[error("an alarm says that the data is corrupt; repair the member, then disarm it")]
    Corrupt,
    /// No such member.
    #[error("member does not exist")]
    MemberNotFound,
    /// The log holds a command of a newer version. The node has to stop: other members may know
    /// the command, and going on without it would make this one different.
    #[error("it holds a command, or a part of one, that this version does not know")]
    UnknownCommand,
    /// The log holds a command that says itself that this version does not know all of it.
    #[error("its command needs feature level {needs}, this program knows up to {own}")]
    AboveLevel {
        /// Level that the command names.
        needs: u32,
        /// Level of this program.
        own: u32,
    },
    /// The store could not be read. The node has to stop; nothing of the command counts, and the
    /// machine takes no further one.
    #[error("store is broken: {0}")]
    Fault(String),
}

impl AnswerError {
    /// Whether the node has to stop instead of answering.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.is_newer() || matches!(self, Self::Fault(_))
    }

    /// Whether a newer version of the program goes on where this one has to stop.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::UnknownCommand | Self::AboveLevel { .. })
    }
}

impl From<KvError> for AnswerError {
    fn from(error: KvError) -> Self {
        match error {
            KvError::Compacted => Self::Compacted,
            KvError::FutureRevision => Self::FutureRevision,
            KvError::LeaseNotFound => Self::LeaseNotFound,
            KvError::KeyNotFound => Self::KeyNotFound,
            // Commands carry no budget, and while applying nothing is compacted away.
            KvError::OverBudget { .. } => Self::Fault("a command ran over a budget".into()),
            KvError::Rows(error) => error.into(),
        }
    }
}

impl From<RowsError> for AnswerError {
    fn from(error: RowsError) -> Self {
        Self::Fault(error.to_string())
    }
}

/// Why a read fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Revision below the compact revision.
    #[error("revision has been compacted")]
    Compacted,
    /// Revision above the current one.
    #[error("revision is in the future")]
    FutureRevision,
    /// The rows exceed the budget of the query.
    #[error("answer of more than {bytes} bytes exceeds the budget of {limit}; ask for fewer keys")]
    OverBudget {
        /// Bytes read when it was noticed.
        bytes: u64,
        /// The budget.
        limit: u64,
    },
    /// The store could not be read; the node stops.
    #[error("store is broken: {0}")]
    Fault(String),
}

impl From<KvError> for ReadError {
    fn from(error: KvError) -> Self {
        match error {
            KvError::Compacted => Self::Compacted,
            KvError::FutureRevision => Self::FutureRevision,
            KvError::OverBudget { bytes, limit } => Self::OverBudget { bytes, limit },
            KvError::Rows(error) => Self::Fault(error.to_string()),
            other @ (KvError::LeaseNotFound | KvError::KeyNotFound) => {
                Self::Fault(format!("a read tried to write: {other}"))
            }
        }
    }
}

/// What happened to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// Granted, with its time to live in seconds.
    Granted {
        /// Lease id.
        id: i64,
        /// Seconds.
        ttl: i64,
    },
    /// Gone.
    Revoked {
        /// Lease id.
        id: i64,
    },
    /// Its replicated remaining time changed; 0 is the full time to live.
    Checkpointed {
        /// Lease id.
        id: i64,
        /// Seconds.
        remaining: i64,
    },
}

/// What applying one entry did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Id of the request that proposed it, 0 if there was none.
    pub request_id: u64,
    /// The answer. Do not send it if [`AnswerError::is_fatal`].
    pub answer: Result<Answer, AnswerError>,
    /// Changes of keys, for the watch hub.
    pub events: Option<Arc<EventBatch>>,
    /// Changes of leases, for the leader's clock.
    pub lease: Vec<LeaseChange>,
    /// Label of the apply metric.
    pub op: &'static str,
    /// Whether the members are others now.
    pub membership_changed: bool,
    /// Whether a compaction was accepted, so that `Machine::compaction_step` has work.
    pub compacted: bool,
    /// The write was done, but the quota is used up now: raise NOSPACE.
    pub over_quota: bool,
}
