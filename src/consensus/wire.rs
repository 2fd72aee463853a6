//! Messages between members: opaque to everybody else, protobuf on the wire.
//!
//! The fields are numbered as in the raft library's own message, but they are read by `prost`; the
//! old codec inside the library never sees a byte from the network. What the library would abort on
//! in any state is refused here, what it would abort on in the state of this member in `contradiction.rs`.

use super::conf::ConfState;
use super::types::{NodeId, SnapshotMeta};
use bytes::Bytes;
use prost::Message as _;
use raft::eraftpb::{self, EntryType, MessageType};

/// A message from one member to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire(pub(super) eraftpb::Message);

/// What a message is for; for metrics and for the choice of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WireKind {
    /// Proposals forwarded to the leader.
    Propose,
    /// Entries or a new commit index.
    Append,
    /// Acknowledgement or refusal of entries.
    AppendResponse,
    /// Request for a vote.
    Vote,
    /// Answer to it.
    VoteResponse,
    /// Question whether an election could be won.
    PreVote,
    /// Answer to it.
    PreVoteResponse,
    /// Announces a snapshot; the rows go with it on a connection of their own.
    Snapshot,
    /// The leader lives; may carry the context of a read.
    Heartbeat,
    /// Answer to it.
    HeartbeatResponse,
    /// Asks the leader to hand over.
    TransferLeader,
    /// Tells a member to stand for election now.
    TimeoutNow,
    /// Asks the leader for its commit index.
    ReadIndex,
    /// Answer to it.
    ReadIndexResponse,
}

impl WireKind {
    /// Lower-case name for a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            WireKind::Propose => "propose",
            WireKind::Append => "append",
            WireKind::AppendResponse => "append_response",
            WireKind::Vote => "vote",
            WireKind::VoteResponse => "vote_response",
            WireKind::PreVote => "pre_vote",
            WireKind::PreVoteResponse => "pre_vote_response",
            WireKind::Snapshot => "snapshot",
            WireKind::Heartbeat => "heartbeat",
            WireKind::HeartbeatResponse => "heartbeat_response",
            WireKind::TransferLeader => "transfer_leader",
            WireKind::TimeoutNow => "timeout_now",
            WireKind::ReadIndex => "read_index",
            WireKind::ReadIndexResponse => "read_index_response",
        }
    }
}

/// Why bytes from a peer are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Not this protobuf message.
    #[error("peer message does not decode: {0}")]
    Decode(String),
    /// Decodes, and must not be handed to the library.
    #[error("peer message refused: {0}")]
    Refused(&'static str),
}

impl Wire {
    /// Receiver.
    pub fn to(&self) -> NodeId {
        self.0.to
    }

    /// Sender.
    pub fn from(&self) -> NodeId {
        self.0.from
    }

    /// Term and index of the last entry of a member that asks for a vote, in the order in which logs
    /// are compared.
    pub fn position(&self) -> (u64, u64) {
        (self.0.log_term, self.0.index)
    }

    /// Term of the sender; 0 for forwarded requests.
    pub fn term(&self) -> u64 {
        self.0.term
    }

    /// What it is for.
    pub fn kind(&self) -> WireKind {
        match self.0.get_msg_type() {
            MessageType::MsgPropose => WireKind::Propose,
            MessageType::MsgAppend => WireKind::Append,
            MessageType::MsgRequestVote => WireKind::Vote,
            MessageType::MsgRequestVoteResponse => WireKind::VoteResponse,
            MessageType::MsgRequestPreVote => WireKind::PreVote,
            MessageType::MsgRequestPreVoteResponse => WireKind::PreVoteResponse,
            MessageType::MsgSnapshot => WireKind::Snapshot,
            MessageType::MsgHeartbeat => WireKind::Heartbeat,
            MessageType::MsgHeartbeatResponse => WireKind::HeartbeatResponse,
            MessageType::MsgTransferLeader => WireKind::TransferLeader,
            MessageType::MsgTimeoutNow => WireKind::TimeoutNow,
            MessageType::MsgReadIndex => WireKind::ReadIndex,
            MessageType::MsgReadIndexResp => WireKind::ReadIndexResponse,
            // The rest are local events, which never become a `Wire`.
            _ => WireKind::AppendResponse,
        }
    }

    /// Entries it carries.
    pub fn entries(&self) -> usize {
        self.0.entries.len()
    }

    /// Highest index of the log that it brings, or that it says is on its sender's disk. `None` for
    /// what brings no entries, for refusals and for all other kinds.
    pub fn covers(&self) -> Option<u64> {
        match self.kind() {
            WireKind::Append if !self.0.entries.is_empty() => {
                Some(self.0.index + self.0.entries.len() as u64)
            }
            WireKind::AppendResponse if !self.0.reject => Some(self.0.index),
            _ => None,
        }
    }

    /// Roughly the bytes it has on the wire, for bounds.
    pub fn weight(&self) -> usize {
        /// Fixed fields of a message, and of an entry.
        const FIELDS_BYTES: usize = 48;
        let entry = |e: &eraftpb::Entry| e.data.len() + e.context.len() + FIELDS_BYTES;
        FIELDS_BYTES + self.0.context.len() + self.0.entries.iter().map(entry).sum::<usize>()
    }

    /// The snapshot it announces.
    pub fn snapshot(&self) -> Option<SnapshotMeta> {
        if self.0.get_msg_type() != MessageType::MsgSnapshot {
            return None;
        }
        Some(meta(self.0.get_snapshot()))
    }

    /// The bytes for the wire.
    pub fn encode(&self) -> Vec<u8> {
        Encoded::from_raft(&self.0).encode_to_vec()
    }

    /// Reads a message. Entries share `bytes`.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are no message, or one that no member sends: a local event, a
    /// configuration change outside the log, a proposal or read without content.
    pub fn decode(bytes: Bytes) -> Result<Wire, WireError> {
        let encoded = Encoded::decode(bytes).map_err(|e| WireError::Decode(e.to_string()))?;
        let message = encoded.into_raft()?;
        check(&message)?;
        Ok(Wire(message))
    }
}

pub(super) fn meta(s: &eraftpb::Snapshot) -> SnapshotMeta {
    let m = s.get_metadata();
    SnapshotMeta {
        index: m.index,
        term: m.term,
        conf_state: ConfState::from_raft(m.get_conf_state()),
    }
}

/// The library trusts its caller with these; a peer is not trusted.
fn check(m: &eraftpb::Message) -> Result<(), WireError> {
    use MessageType::*;
    let refuse = |why| Err(WireError::Refused(why));
    let kind = m.get_msg_type();
    if m.from == 0 || m.to == 0 {
        return refuse("no sender or receiver");
    }
    match kind {
        MsgHup | MsgBeat | MsgUnreachable | MsgSnapStatus | MsgCheckQuorum => {
            return refuse("a local event");
        }
        MsgPropose | MsgReadIndex | MsgTransferLeader => {}
        _ if m.term == 0 => return refuse("no term"),
        _ => {}
    }
    match kind {
        MsgPropose if m.entries.is_empty() => refuse("a proposal without entries"),
        MsgPropose if m.entries.iter().any(|e| e.get_entry_type() != EntryType::EntryNormal) => {
            refuse("a configuration change outside the log")
        }
        MsgReadIndex | MsgReadIndexResp if m.entries.len() != 1 => refuse("a read without context"),
        MsgSnapshot => {
            let meta = meta(m.get_snapshot());
            if meta.index == 0 || meta.conf_state.voters.is_empty() {
                return refuse("an empty snapshot");
            }
            meta.conf_state
                .check()
                .map_err(|_| WireError::Refused("a snapshot with a broken configuration"))
        }
        MsgAppend => {
            let mut before = (m.index, m.log_term);
            for e in m.entries.iter() {
                if e.index != before.0 + 1 || e.term < before.1 || e.term > m.term {
                    return refuse("entries out of order");
                }
                if e.get_entry_type() == EntryType::EntryConfChange {
                    return refuse("a configuration change of an old form");
                }
                before = (e.index, e.term);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct EncodedEntry {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(uint64, tag = "3")]
    index: u64,
    #[prost(bytes = "bytes", tag = "4")]
    data: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    context: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EncodedMetadata {
    #[prost(bytes = "vec", tag = "1")]
    conf_state: Vec<u8>,
    #[prost(uint64, tag = "2")]
    index: u64,
    #[prost(uint64, tag = "3")]
    term: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EncodedSnapshot {
    #[prost(message, optional, tag = "2")]
    metadata: Option<EncodedMetadata>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Encoded {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint64, tag = "2")]
    to: u64,
    #[prost(uint64, tag = "3")]
    from: u64,
    #[prost(uint64, tag = "4")]
    term: u64,
    #[prost(uint64, tag = "5")]
    log_term: u64,
    #[prost(uint64, tag = "6")]
    index: u64,
    #[prost(message, repeated, tag = "7")]
    entries: Vec<EncodedEntry>,
    #[prost(uint64, tag = "8")]
    commit: u64,
    #[prost(message, optional, tag = "9")]
    snapshot: Option<EncodedSnapshot>,
    #[prost(bool, tag = "10")]
    reject: bool,
    #[prost(uint64, tag = "11")]
    reject_hint: u64,
    #[prost(bytes = "bytes", tag = "12")]
    context: Bytes,
    #[prost(uint64, tag = "13")]
    request_snapshot: u64,
    #[prost(uint64, tag = "15")]
    commit_term: u64,
    #[prost(int64, tag = "16")]
    priority: i64,
}

impl Encoded {
    fn from_raft(m: &eraftpb::Message) -> Encoded {
        let entry = |e: &eraftpb::Entry| EncodedEntry {
            kind: e.get_entry_type() as i32,
            term: e.term,
            index: e.index,
            data: e.data.clone(),
            context: e.context.clone(),
        };
        let snapshot = m.has_snapshot().then(|| {
            let s = meta(m.get_snapshot());
            let conf_state = s.conf_state.encode();
            let metadata = EncodedMetadata { conf_state, index: s.index, term: s.term };
            EncodedSnapshot { metadata: Some(metadata) }
        });
        Encoded {
            kind: m.get_msg_type() as i32,
            to: m.to,
            from: m.from,
            term: m.term,
            log_term: m.log_term,
            index: m.index,
            entries: m.entries.iter().map(entry).collect(),
            commit: m.commit,
            snapshot,
            reject: m.reject,
            reject_hint: m.reject_hint,
            context: m.context.clone(),
            request_snapshot: m.request_snapshot,
            commit_term: m.commit_term,
            priority: m.priority,
        }
    }

    fn into_raft(self) -> Result<eraftpb::Message, WireError> {
        let kind = protobuf2::ProtobufEnum::from_i32(self.kind)
            .ok_or(WireError::Refused("an unknown kind"))?;
        let mut m = eraftpb::Message::default();
        m.set_msg_type(kind);
        m.to = self.to;
        m.from = self.from;
        m.term = self.term;
        m.log_term = self.log_term;
        m.index = self.index;
        let entries: Result<Vec<_>, _> = self.entries.into_iter().map(entry_to_raft).collect();
        m.set_entries(entries?.into());
        m.commit = self.commit;
        if let Some(metadata) = self.snapshot.and_then(|s| s.metadata) {
            let conf_state = ConfState::decode(&metadata.conf_state)
                .map_err(|_| WireError::Refused("a snapshot with a broken configuration"))?;
            let to = m.mut_snapshot().mut_metadata();
            to.index = metadata.index;
            to.term = metadata.term;
            to.set_conf_state(conf_state.to_raft());
        }
        m.reject = self.reject;
        m.reject_hint = self.reject_hint;
        m.context = self.context;
        m.request_snapshot = self.request_snapshot;
        m.commit_term = self.commit_term;
        m.priority = self.priority;
        Ok(m)
    }
}

fn entry_to_raft(e: EncodedEntry) -> Result<eraftpb::Entry, WireError> {
    let kind = protobuf2::ProtobufEnum::from_i32(e.kind)
        .ok_or(WireError::Refused("an entry of an unknown kind"))?;
    let mut r = eraftpb::Entry::default();
    r.set_entry_type(kind);
    r.term = e.term;
    r.index = e.index;
    r.data = e.data;
    r.context = e.context;
    Ok(r)
}
