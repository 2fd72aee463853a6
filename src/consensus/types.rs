//! The plain values that cross the border of the core: inputs, effects and what they carry.
//!
//! None of them names a type of the raft crate or of its codec.

use super::change::MemberChange;
use super::conf::ConfState;
use super::contradiction::Contradiction;
use super::disk::{DiskEvent, DiskFacts, OwnDisk};
use super::wire::Wire;
use bytes::Bytes;

/// Identity of a member; zero means "none".
pub type NodeId = u64;

/// Milliseconds on a clock that only the caller reads. Only differences are used.
pub type Millis = u64;

/// Names one waiting request of the shell. The core hands it back and never looks inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// What a log entry means to the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A replicated command, or nothing at all: a new leader begins its term with an empty entry.
    Normal,
    /// A change of the configuration; [`MemberChange::of`] decodes it.
    Change,
}

/// One log entry. `data` and `context` are shared, never copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position in the log, from 1, without gaps.
    pub index: u64,
    /// Term of the leader that wrote it; never falls along the log.
    pub term: u64,
    /// Command or configuration change.
    pub kind: EntryKind,
    /// `Normal`: the command. `Change`: the encoded change in the library's numbering.
    pub data: Bytes,
    /// `Normal`: empty. `Change`: an etcd `raftpb.ConfChange`, whose own context is the member's
    /// JSON. Empty for the entry that leaves a joint configuration.
    pub context: Bytes,
}

/// What a member must not forget between two starts, besides its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HardState {
    /// Newest term this member has seen.
    pub term: u64,
    /// Whom it voted for in that term, 0 for nobody.
    pub vote: NodeId,
    /// Highest index known to be committed; may trail, because it is written without a sync.
    pub commit: u64,
}

/// One unit for the write-ahead log. Batches reach the disk in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Rising, not gapless. The answer is [`Input::Persisted`] with this number.
    pub number: u64,
    /// Entries to append. The first one replaces everything at and behind its index.
    pub entries: Vec<Entry>,
    /// The hard state, if it changed.
    pub hard_state: Option<HardState>,
    /// Whether the disk must confirm: false when only the commit index moved, and then the core waits
    /// for no report.
    pub sync: bool,
}

/// A committed entry on its way to the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The entry.
    pub entry: Entry,
    /// The configuration that holds from this entry on, if it changed it. The store saves it in
    /// the same transaction as the entry's effects.
    pub conf_state: Option<ConfState>,
}

/// Describes a snapshot. The rows travel on a connection of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// Index of the last entry whose effects are in the rows.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
    /// The configuration at that index, read in the same transaction as the rows.
    pub conf_state: ConfState,
}

/// What a member finds on its disks when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Newest hard state in the log.
    pub hard_state: HardState,
    /// Index and term of the position before the first entry; (0, 0) for a log from the beginning.
    pub base: (u64, u64),
    /// Entries from `base` on, without gaps.
    pub entries: Vec<Entry>,
    /// Index and term that the store holds, durably.
    pub applied: (u64, u64),
    /// Configuration that the store holds at that index.
    pub conf_state: ConfState,
}

/// A log that has to begin anew on disk before anything is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewLog {
    /// Index and term of the position before its first entry.
    pub base: (u64, u64),
    /// The hard state that belongs to it.
    pub hard_state: HardState,
}

/// Everything that can happen to a core.
#[derive(Debug)]
pub enum Input {
    /// One tick interval has passed. Several in one step count once, so a suspended machine does
    /// not start an election when it wakes.
    Tick,
    /// A command to replicate.
    Propose {
        /// Whose it is.
        token: Token,
        /// The encoded command.
        data: Bytes,
    },
    /// A command that only the leader of this term may propose, such as the end of a lease that its
    /// clock decided. Refused when this member no longer leads in it; never sent on to another
    /// leader, who may know better.
    ProposeInTerm {
        /// Whose it is.
        token: Token,
        /// The encoded command.
        data: Bytes,
        /// The term.
        term: u64,
    },
    /// A configuration change. Accepted by the leader only.
    Change {
        /// Whose it is.
        token: Token,
        /// The change.
        change: MemberChange,
    },
    /// A linearizable read wants to know from which index on it may be served.
    Read {
        /// Whose it is.
        token: Token,
    },
    /// A read that also proves that this member led in this term after the read was asked for, as
    /// what its lease clock said needs. Refused when it does not lead in it any more: the next
    /// leader's answer would prove something else.
    ReadInTerm {
        /// Whose it is.
        token: Token,
        /// The term.
        term: u64,
    },
    /// A message from another member.
    Wire(Wire),
    /// What the shell knows about the disk of the log; once per tick, before it.
    OwnDisk(OwnDisk),
    /// What another member said about its disk, before the messages that came with it.
    PeerDisk {
        /// Who said it.
        of: NodeId,
        /// What.
        facts: DiskFacts,
    },
    /// Every batch up to this number is on disk.
    Persisted {
        /// Number of the newest one.
        batch: u64,
    },
    /// The state machine has advanced.
    Applied {
        /// Index it has reached in memory. Never above what was handed out.
        index: u64,
        /// Index that the store holds durably.
        durable: u64,
    },
    /// A snapshot asked for by [`Effect::BuildSnapshot`] can be streamed.
    SnapshotReady {
        /// For whom.
        to: NodeId,
        /// What is in it.
        meta: SnapshotMeta,
    },
    /// Outcome of streaming a snapshot, or of building one if `ok` is false. Always reported, also
    /// after a timeout: without it the follower waits for ever.
    SnapshotSent {
        /// For whom.
        to: NodeId,
        /// Whether the follower holds it completely.
        ok: bool,
    },
    /// A snapshot was received completely, checked and synced aside.
    SnapshotStaged(SnapshotMeta),
    /// The store was swapped for the staged snapshot and the log begins at its position, durably.
    Installed(SnapshotMeta),
    /// A message to this peer could not be delivered.
    Unreachable(NodeId),
    /// Hand leadership to this member, if this node leads.
    TransferLeader {
        /// The new leader.
        to: NodeId,
    },
}

/// Everything a shell must do, in this order.
#[derive(Debug)]
pub enum Effect {
    /// These messages may leave now.
    Send(Vec<Wire>),
    /// Write this batch and answer [`Input::Persisted`].
    Persist(Batch),
    /// Apply these entries in order and answer [`Input::Applied`].
    Apply(Vec<Committed>),
    /// Open a view of the store and answer [`Input::SnapshotReady`], or [`Input::SnapshotSent`]
    /// with `ok: false`.
    BuildSnapshot {
        /// For whom.
        to: NodeId,
    },
    /// Swap the store for the staged snapshot, begin a new log at its position, and answer
    /// [`Input::Installed`]. The next effect is the batch that belongs behind that position.
    Install(SnapshotMeta),
    /// These reads may be served once the applied index has reached `index`.
    ReadAt {
        /// Commit index at the leader when it was asked.
        index: u64,
        /// The reads.
        tokens: Vec<Token>,
    },
    /// These proposals are in the log of this leader at `first_index` and the following positions.
    /// Nothing is said about a proposal that a follower forwarded to its leader.
    Proposed {
        /// Position of the first token.
        first_index: u64,
        /// Term of all of them.
        term: u64,
        /// In log order.
        tokens: Vec<Token>,
    },
    /// This request was not accepted and has no effect.
    Refuse {
        /// Whose it is.
        token: Token,
        /// Why.
        why: Refusal,
    },
    /// Role, term or leader changed.
    Role(RoleChange),
    /// Something was decided about leading with a bad disk; for logs and counters. What it says about
    /// handing over has to be told to others with the messages that follow.
    Disk(DiskEvent),
    /// The in-memory log now begins behind this position. Log segments that hold only entries up to
    /// `index` may be removed; the position and its term are the new base record.
    Truncated {
        /// Index of the last dropped entry.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// This member must end at once and be started again by nobody who has not read why. The core
    /// takes part in nothing any more.
    Stop(Contradiction),
}

/// Why a request was not accepted. Nothing was proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// No leader is known.
    #[error("no leader is known")]
    NoLeader,
    /// Too much is waiting for the disk, the quorum or the state machine.
    #[error("too much is waiting for the log or the state machine")]
    Overloaded,
    /// Another configuration change is under way.
    #[error("another configuration change is under way")]
    ChangePending,
    /// Only the leader accepts this.
    #[error("only the leader accepts this request")]
    NotLeader,
    /// Leadership is being handed over, or the node is no member; nothing was proposed.
    #[error("the request was dropped; nothing was proposed")]
    Dropped,
    /// The node is stopping. Never given by the core; for the shell.
    #[error("the node is stopping")]
    Stopping,
    /// The learner to promote is too far behind the leader.
    #[error("the learner is not in sync with the leader yet")]
    LearnerNotReady,
    /// The change would leave fewer active voters than a quorum, or no voter at all.
    #[error("the change would leave too few active voters")]
    UnhealthyQuorum,
    /// The member to change is not in the configuration, or it is in it already.
    #[error("the change does not fit the configuration")]
    NoSuchChange,
}

/// Part a member plays in its term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Follows a leader, or waits for one.
    #[default]
    Follower,
    /// Asks whether an election could be won, without raising its term.
    PreCandidate,
    /// Stands for election.
    Candidate,
    /// Leads.
    Leader,
}

/// Role, term and leader after a step that changed one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoleChange {
    /// Own role.
    pub role: Role,
    /// Own term.
    pub term: u64,
    /// The leader, 0 if none is known.
    pub leader: NodeId,
}

/// Why a core cannot be built. None of these is repaired by trying again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A setting is out of range.
    #[error("consensus setting {0}; correct it and start again")]
    Setting(&'static str),
    /// The restored log contradicts itself.
    #[error("restored log is damaged at index {index}: {what}; restore the member from its peers")]
    Damaged {
        /// Where.
        index: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The restored configuration contradicts itself.
    #[error("restored configuration is damaged: {0}; restore the member from its peers")]
    Configuration(&'static str),
    /// The raft library refused to start.
    #[error("raft refused to start: {0}")]
    Library(String),
}
