//! What travels between the node's threads.

use super::handle::{Done, Refused};
use super::leases::Times;
use crate::mvcc::{HashKv, RowsError};
use crate::{consensus, lease, machine};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Where an answer goes: the edge runtime that waits for it and its one-shot.
///
/// Waking a runtime of another thread costs a system call. Answers are therefore collected per
/// runtime and sent as one message per turn ([`super::answers`]).
#[derive(Debug)]
pub(super) struct Reply<T> {
    /// Index of the edge runtime, or `None` for a caller outside of them.
    pub(super) runtime: Option<usize>,
    /// The waiting caller.
    pub(super) to: oneshot::Sender<T>,
}

/// Reply to a proposal.
pub(super) type ProposeReply = Reply<Result<Done, Refused>>;
/// Reply to a barrier: a linearizable read, a store commit, a finished compaction.
pub(super) type BarrierReply = Reply<Result<(), Refused>>;

/// What a leader's lease clock said, and the term that it led in then.
#[derive(Debug, Clone, Copy)]
pub(super) struct InTerm<T> {
    pub(super) said: T,
    pub(super) term: u64,
}

/// A command on its way into the log.
#[derive(Debug)]
pub(super) struct Proposal {
    /// Request id, also inside `data`.
    pub(super) id: u64,
    /// Encoded command.
    pub(super) data: Bytes,
    /// Process clock when the request was received.
    pub(super) received_ns: u64,
    /// Who waits; `None` for the node's own commands.
    pub(super) reply: Option<ProposeReply>,
}

/// What the node thread is told.
pub(super) enum NodeInput {
    /// A client's command.
    Propose(Proposal),
    /// A linearizable read; with a term, only as the leader of that term.
    Read { term: Option<u64>, reply: BarrierReply },
    /// Batches up to `batch` are on disk.
    Persisted(Persisted),
    /// The machine has advanced to `index`.
    Applied {
        /// Index reached in memory.
        index: u64,
        /// Term of its entry.
        term: u64,
        /// What leases became.
        leases: Vec<machine::LeaseChange>,
    },
    /// The store holds everything up to this index.
    Durable(u64),
    /// A keep-alive.
    LeaseRenew { id: i64, reply: Reply<Result<InTerm<lease::Renewal>, Refused>> },
    /// Remaining and granted seconds of a lease.
    LeaseRemaining { id: i64, reply: Reply<Result<InTerm<Times>, Refused>> },
    /// All leases, the next to end first.
    LeaseOrder { reply: Reply<Result<Vec<i64>, Refused>> },
    /// A command of the node itself was applied and answered with an error.
    OwnFailed {
        /// Its request id.
        id: u64,
    },
    /// A change of the membership; the proposal has no data and waits for its entry.
    Change { change: consensus::MemberChange, proposal: Proposal },
    /// A view of the store is pinned for this follower.
    SnapshotReady { to: u64, meta: consensus::SnapshotMeta },
    /// A snapshot was sent to this follower, or not.
    SnapshotSent { to: u64, ok: bool },
    /// A snapshot arrived and is durable in a file aside.
    SnapshotStaged(consensus::SnapshotMeta),
    /// The message that announces it.
    Snapshot(consensus::Wire),
    /// The store holds the snapshot at this position, and the machine lives behind it.
    Installed { meta: consensus::SnapshotMeta, leases: Vec<lease::Record> },
    /// Messages of other members, and what the sender says about its disk.
    Wires { wires: Vec<consensus::Wire>, disk: Option<(u64, consensus::DiskFacts)> },
    /// Messages to this member were lost.
    Unreachable(u64),
    /// Hand leadership to this member, if this one leads.
    TransferLeader(u64),
    /// The quota is used up: raise NOSPACE.
    OverQuota,
    /// Members were fenced, or are not fenced any more.
    Fenced,
    /// No further requests; finish and leave the loop.
    Stop,
}

impl NodeInput {
    /// How many things it tells.
    pub(super) fn parts(&self) -> usize {
        match self {
            NodeInput::Wires { wires, .. } => wires.len().max(1),
            _ => 1,
        }
    }
}

/// Report of the WAL thread for one group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Persisted {
    /// Number of the newest batch of the group.
    pub(super) batch: u64,
    /// When its bytes were handed to the file system.
    pub(super) written_ns: u64,
    /// When the sync had returned.
    pub(super) synced_ns: u64,
}

/// What the WAL thread is told.
pub(super) enum WalInput {
    /// Write this batch.
    Persist(consensus::Batch),
    /// Begin anew behind this position: a snapshot was installed.
    Reset { base: (u64, u64), hard_state: consensus::HardState },
    /// Segments that hold only entries up to this index may go.
    Truncate { index: u64 },
    /// Close with a clean marker and end.
    Stop,
}

/// Stamps of a stretch of entries: everything up to `index` that no earlier stretch covers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stamps {
    pub(super) index: u64,
    pub(super) written_ns: u64,
    pub(super) synced_ns: u64,
}

/// What the apply thread is told.
pub(super) enum ApplyInput {
    /// Callers of commands that are now in the log.
    Waiters(Vec<Waiter>),
    /// Committed entries, in order.
    Entries { entries: Vec<consensus::Committed>, handed_ns: u64, stamps: Vec<Stamps> },
    /// Reads to answer once `index` is applied.
    ReadAt { index: u64, replies: Vec<BarrierReply> },
    /// Freeze what is open and answer when it is durable.
    CommitStore(BarrierReply),
    /// Answer when the compaction at `revision` has removed its rows and they are durable.
    CompactionDone { revision: i64, reply: BarrierReply },
    /// The hash of the compaction at `at` is made.
    Hashed { at: i64, hash: Result<HashKv, RowsError> },
    /// The store thread has finished a commit.
    StoreIdle,
    /// Take over the snapshot that was staged at this position.
    Install(consensus::SnapshotMeta),
    /// The store thread has exchanged the file for it.
    Swapped(Box<crate::store::Swapped>),
    /// Commit what is open and end.
    Stop,
}

/// A caller that waits for its command to be applied.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) id: u64,
    pub(super) received_ns: u64,
    pub(super) proposed_ns: u64,
    pub(super) reply: Option<ProposeReply>,
}

/// What the hash thread is told.
pub(super) enum HashInput {
    /// Make this hash.
    Make(machine::CompactionHash),
    /// Hash all rows up to this revision, for the comparison of members.
    Rows {
        reader: machine::Reader,
        revision: i64,
        reply: Reply<Result<HashKv, machine::ReadError>>,
    },
    /// End.
    Stop,
}

/// What the store thread is told.
pub(super) enum StoreInput {
    /// Exchange the file for the one staged at this index and term.
    Swap { at: (u64, u64) },
    /// Make this batch durable, then answer these.
    Commit { batch: Option<crate::store::Batch>, replies: Vec<BarrierReply> },
    /// End.
    Stop,
}

/// Events of one applied entry, for the watch hub.
pub(super) type Events = Arc<crate::mvcc::EventBatch>;
