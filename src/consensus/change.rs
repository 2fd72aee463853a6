//! Configuration changes, in etcd's meaning and in the library's numbering.
//!
//! The entry's `data` is what the library reads (2 = add learner); its `context` is an etcd
//! `raftpb.ConfChange` (3 = add learner) with the request id and the member's JSON, so that the
//! state machine and tools see what etcd's would see. An update of a member is a normal entry.

use super::conf::ConfState;
use super::types::{Entry, EntryKind, HardState, NodeId, Refusal};
use bytes::Bytes;
use prost::Message as _;
use protobuf2::Message as _;
use raft::eraftpb;

/// What happens to one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeOp {
    /// Becomes a voter. Promotes the member if it is a learner.
    AddVoter,
    /// Becomes a learner.
    AddLearner,
    /// Leaves.
    Remove,
}

/// A change of the configuration. One step takes effect at once; several take effect together
/// through a joint configuration that the leader leaves by itself; etcd's form in the entry's
/// context then describes the first step only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberChange {
    /// Identity of the request, for the member that waits for it.
    pub request: u64,
    /// What happens to whom. Empty: leave the joint configuration.
    pub steps: Vec<(ChangeOp, NodeId)>,
    /// etcd's member object as JSON, empty for a removal.
    pub context: Bytes,
}

/// etcd's `raftpb.ConfChange`.
#[derive(Clone, PartialEq, prost::Message)]
struct EtcdConfChange {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int32, tag = "2")]
    kind: i32,
    #[prost(uint64, tag = "3")]
    node_id: u64,
    #[prost(bytes = "bytes", tag = "4")]
    context: Bytes,
}

impl ChangeOp {
    /// The number in etcd's `raftpb.ConfChangeType`; 2 is a member update, never a change here.
    pub fn etcd_number(self) -> i32 {
        match self {
            ChangeOp::AddVoter => 0,
            ChangeOp::Remove => 1,
            ChangeOp::AddLearner => 3,
        }
    }

    fn to_raft(self) -> eraftpb::ConfChangeType {
        match self {
            ChangeOp::AddVoter => eraftpb::ConfChangeType::AddNode,
            ChangeOp::Remove => eraftpb::ConfChangeType::RemoveNode,
            ChangeOp::AddLearner => eraftpb::ConfChangeType::AddLearnerNode,
        }
    }

    fn from_raft(kind: eraftpb::ConfChangeType) -> ChangeOp {
        match kind {
            eraftpb::ConfChangeType::AddNode => ChangeOp::AddVoter,
            eraftpb::ConfChangeType::RemoveNode => ChangeOp::Remove,
            eraftpb::ConfChangeType::AddLearnerNode => ChangeOp::AddLearner,
        }
    }
}

impl MemberChange {
    /// A change of one member.
    pub fn one(request: u64, op: ChangeOp, node: NodeId, context: Bytes) -> MemberChange {
        MemberChange { request, steps: vec![(op, node)], context }
    }

    /// Decodes a committed change. `None` for a normal entry and for bytes that are no change; a
    /// change without steps leaves the joint configuration.
    pub fn of(entry: &Entry) -> Option<MemberChange> {
        if entry.kind != EntryKind::Change {
            return None;
        }
        let raft = decode(&entry.data)?;
        let etcd = EtcdConfChange::decode(entry.context.clone()).ok()?;
        let step =
            |c: &eraftpb::ConfChangeSingle| (ChangeOp::from_raft(c.get_change_type()), c.node_id);
        Some(MemberChange {
            request: etcd.id,
            steps: raft.changes.iter().map(step).collect(),
            context: etcd.context,
        })
    }

    /// The entry's `data`.
    pub(super) fn data(&self) -> Bytes {
        let mut change = eraftpb::ConfChangeV2::default();
        for (op, node) in &self.steps {
            let mut single = eraftpb::ConfChangeSingle::default();
            single.set_change_type(op.to_raft());
            single.node_id = *node;
            change.mut_changes().push(single);
        }
        // Writing to memory cannot fail; an empty change would be refused by every reader.
        change.write_to_bytes().unwrap_or_default().into()
    }

    /// The entry's `context`.
    pub(super) fn etcd_context(&self) -> Bytes {
        let Some((op, node)) = self.steps.first() else { return Bytes::new() };
        EtcdConfChange {
            id: self.request,
            kind: op.etcd_number(),
            node_id: *node,
            context: self.context.clone(),
        }
        .encode_to_vec()
        .into()
    }

    /// Whether the change makes sense in this configuration.
    pub(super) fn fits(&self, conf: &ConfState) -> Result<(), Refusal> {
        if self.steps.is_empty() {
            return Err(Refusal::NoSuchChange);
        }
        for (i, (op, node)) in self.steps.iter().enumerate() {
            let known = match op {
                ChangeOp::AddVoter => !conf.voters.contains(node),
                ChangeOp::AddLearner => !conf.learners.contains(node),
                ChangeOp::Remove => conf.contains(*node),
            };
            let twice = self.steps[..i].iter().any(|(_, other)| other == node);
            if *node == 0 || !known || twice {
                return Err(Refusal::NoSuchChange);
            }
        }
        Ok(())
    }

    /// The voters after this change, from a configuration that is not joint.
    pub(super) fn voters_after(&self, conf: &ConfState) -> Vec<NodeId> {
        let mut voters = conf.voters.clone();
        for (op, node) in &self.steps {
            voters.retain(|id| id != node);
            if *op == ChangeOp::AddVoter {
                voters.push(*node);
            }
        }
        voters
    }
}

/// The change in a committed entry's `data`, for the library. `None`: not a change, or one of a newer
/// version, of which the library would take what it does not know for something else (a step of an
/// unknown kind for a new voter). The state machine stops at such an entry.
pub(super) fn decode(data: &[u8]) -> Option<eraftpb::ConfChangeV2> {
    let mut change = eraftpb::ConfChangeV2::default();
    change.merge_from_bytes(data).ok()?;
    let is_known = |fields: &protobuf2::UnknownFields| fields.fields.is_none();
    let known = is_known(change.get_unknown_fields())
        && change.changes.iter().all(|step| is_known(step.get_unknown_fields()));
    known.then_some(change)
}

/// A member of a new cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapMember {
    /// Its identity, not zero.
    pub id: NodeId,
    /// etcd's member object as JSON.
    pub context_json: Bytes,
}

/// The log and hard state with which every founding member of a cluster begins: one change entry
/// per member at index 1 to n, term 1, all of them committed, as etcd does.
///
/// The configuration and the applied index are still empty; they fill when the entries are applied.
pub fn bootstrap(members: &[BootstrapMember]) -> (Vec<Entry>, HardState) {
    let entry = |(index, member): (u64, &BootstrapMember)| {
        let change =
            MemberChange::one(0, ChangeOp::AddVoter, member.id, member.context_json.clone());
        Entry {
            index,
            term: 1,
            kind: EntryKind::Change,
            data: change.data(),
            context: change.etcd_context(),
        }
    };
    let entries: Vec<Entry> = (1..).zip(members).map(entry).collect();
    let commit = entries.len() as u64;
    (entries, HardState { term: 1, vote: 0, commit })
}
