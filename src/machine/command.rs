//! From protobuf to commands and queries: the only place where the machine sees messages.

use super::answer::{Alarm, AlarmKind, AnswerError};
use super::level;
use super::members::Member;
use crate::mvcc::{
    Compare, CompareOp, Delete, Filters, KeyRange, Op, Put, RangeQuery, Sort, SortTarget, Test, Txn,
};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::InternalRaftRequest;
use bytes::Bytes;
use pb::compare::TargetUnion;
use pb::range_request::{SortOrder, SortTarget as PbTarget};
use pb::request_op::Request;
use prost::Message;

/// What a log entry asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    Put(Put),
    DeleteRange(Delete),
    Txn(Txn),
    Compact {
        revision: i64,
    },
    LeaseGrant {
        id: i64,
        ttl: i64,
    },
    LeaseRevoke {
        id: i64,
    },
    LeaseCheckpoint(Vec<(i64, i64)>),
    Alarm {
        action: AlarmAction,
        member: u64,
        kind: Option<AlarmKind>,
    },
    ClusterVersion(String),
    MemberAttributes {
        id: u64,
        name: String,
        client_urls: Vec<String>,
    },
    MemberUpdate {
        id: u64,
        peer_urls: Vec<String>,
    },
    Downgrade {
        enabled: bool,
        version: String,
    },
    /// The level of commands that the cluster may use.
    FeatureLevel(u32),
    /// The empty entry with which a leader begins its term.
    Nothing,
}

/// What to do with an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlarmAction {
    List,
    Raise,
    Clear,
    /// Fence the member, see [`super::fences`].
    Fence,
}

/// A decoded entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decoded {
    pub(super) request_id: u64,
    pub(super) command: Command,
}

/// etcd's `raftpb.ConfChange`, which change entries carry in their context.
#[derive(Clone, PartialEq, Message)]
struct ConfChange {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int32, tag = "2")]
    kind: i32,
    #[prost(uint64, tag = "3")]
    node_id: u64,
    #[prost(bytes = "bytes", tag = "4")]
    context: Bytes,
}

/// What a change entry does to the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberOp {
    /// Adds a voter or a learner, replaces what is known of it.
    Add(Member),
    /// A learner becomes a voter.
    Promote(u64),
    Remove(u64),
    Update {
        id: u64,
        peer_urls: Vec<String>,
    },
    /// Leaves a joint configuration.
    Nothing,
}

/// What a change says of its member: etcd's JSON. A key that is not known is part of a newer
/// version's command, and not dropped.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeContext {
    id: u64,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Vec<String>,
    /// The kind of the change says it.
    #[serde(default, rename = "isLearner")]
    _is_learner: bool,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "clientURLs")]
    client_urls: Vec<String>,
    #[serde(default, rename = "isPromote")]
    promote: bool,
}

/// `eraftpb.ConfChangeV2`, which consensus reads from the data of a change entry.
#[derive(Clone, PartialEq, Message)]
struct RaftChange {
    #[prost(int32, tag = "1")]
    transition: i32,
    #[prost(message, repeated, tag = "2")]
    steps: Vec<RaftStep>,
    #[prost(bytes = "bytes", tag = "3")]
    context: Bytes,
}

/// One step of a [`RaftChange`].
#[derive(Clone, PartialEq, Message)]
struct RaftStep {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint64, tag = "2")]
    node_id: u64,
}

impl RaftChange {
    /// Transitions (automatic, implicit, explicit) and kinds of steps (voter, removal, learner) have
    /// the numbers 0 to 2.
    const KNOWN: std::ops::RangeInclusive<i32> = 0..=2;

    /// Whether consensus knows all of it.
    fn is_known(data: &Bytes) -> bool {
        RaftChange::decode(data.clone()).is_ok_and(|change| {
            change.encoded_len() == data.len()
                && Self::KNOWN.contains(&change.transition)
                && change.steps.iter().all(|step| Self::KNOWN.contains(&step.kind))
        })
    }
}

impl Command {
    /// Name in the apply metric (etcd's).
    pub(super) fn op(&self) -> &'static str {
        match self {
            Self::Put(_) => "Put",
            Self::DeleteRange(_) => "DeleteRange",
            Self::Txn(_) => "Txn",
            Self::Compact { .. } => "Compaction",
            Self::LeaseGrant { .. } => "LeaseGrant",
            Self::LeaseRevoke { .. } => "LeaseRevoke",
            Self::LeaseCheckpoint(_) => "LeaseCheckpoint",
            Self::Alarm { .. } => "Alarm",
            Self::ClusterVersion(_) => "ClusterVersionSet",
            Self::MemberAttributes { .. } => "ClusterMemberAttrSet",
            Self::MemberUpdate { .. } => "MemberUpdate",
            Self::Downgrade { .. } => "DowngradeInfoSet",
            Self::FeatureLevel(_) => "FeatureLevelSet",
            Self::Nothing => "unknown",
        }
    }

    /// Bytes of quota it asks for, as etcd counts them; 0 for what passes a NOSPACE alarm.
    pub(super) fn cost(&self) -> u64 {
        match self {
            Self::Put(put) => put_cost(put.key.len(), put.value.len()),
            Self::Txn(txn) => txn_cost(txn),
            Self::LeaseGrant { .. } => LEASE_COST,
            _ => 0,
        }
    }
}

/// Quota cost of a lease, bytes (etcd's figure).
pub(super) const LEASE_COST: u64 = 64;
/// Quota cost of a put besides key and value, bytes (etcd's figure).
const PUT_OVERHEAD: u64 = 256;

/// Quota cost of a put, bytes.
pub(super) fn put_cost(key: usize, value: usize) -> u64 {
    PUT_OVERHEAD + key as u64 + value as u64
}

/// The larger branch, nested transactions included.
fn txn_cost(txn: &Txn) -> u64 {
    let branch = |ops: &[Op]| {
        let cost = |op: &Op| match op {
            Op::Put(put) => put_cost(put.key.len(), put.value.len()),
            Op::Txn(nested) => txn_cost(nested),
            Op::Range(_) | Op::Delete(_) => 0,
        };
        ops.iter().map(cost).sum::<u64>()
    };
    branch(&txn.success).max(branch(&txn.failure))
}

/// Decodes the data of a normal entry for a program of level `own`. What is not wholly known is
/// refused before anything of it is applied.
pub(super) fn decode(data: &Bytes, own: u32) -> Result<Decoded, AnswerError> {
    if data.is_empty() {
        return Ok(Decoded { request_id: 0, command: Command::Nothing });
    }
    let request =
        InternalRaftRequest::decode(data.clone()).map_err(|_| AnswerError::UnknownCommand)?;
    level::check(&request, data.len(), own)?;
    let header_id = request.header.as_ref().map_or(0, |header| header.id);
    let request_id = if request.id != 0 { request.id } else { header_id };
    // Fields in the order in which etcd looks for them.
    let command = if let Some(put) = request.put {
        Command::Put(put.into())
    } else if let Some(delete) = request.delete_range {
        Command::DeleteRange(delete.into())
    } else if let Some(txn) = request.txn {
        Command::Txn(txn.into())
    } else if let Some(compaction) = request.compaction {
        Command::Compact { revision: compaction.revision }
    } else if let Some(grant) = request.lease_grant {
        Command::LeaseGrant { id: grant.id, ttl: grant.ttl }
    } else if let Some(revoke) = request.lease_revoke {
        Command::LeaseRevoke { id: revoke.id }
    } else if let Some(checkpoint) = request.lease_checkpoint {
        let pair = |c: &pb::LeaseCheckpoint| (c.id, c.remaining_ttl);
        Command::LeaseCheckpoint(checkpoint.checkpoints.iter().map(pair).collect())
    } else if let Some(alarm) = request.alarm {
        alarm_command(&alarm)?
    } else if let Some(set) = request.cluster_version_set {
        Command::ClusterVersion(set.ver)
    } else if let Some(set) = request.cluster_member_attr_set {
        let attributes = set.member_attributes.unwrap_or_default();
        Command::MemberAttributes {
            id: set.member_id,
            name: attributes.name,
            client_urls: attributes.client_urls,
        }
    } else if let Some(update) = request.member_update {
        Command::MemberUpdate { id: update.id, peer_urls: update.peer_ur_ls }
    } else if let Some(set) = request.downgrade_info_set {
        Command::Downgrade { enabled: set.enabled, version: set.ver }
    } else if let Some(set) = request.feature_level_set {
        Command::FeatureLevel(set.level)
    } else {
        return Err(AnswerError::UnknownCommand);
    };
    Ok(Decoded { request_id, command })
}

/// Number of [`AlarmAction::Fence`] in `AlarmRequest.action`; a client cannot ask for it.
pub const ACTION_FENCE: i32 = 3;

fn alarm_command(alarm: &pb::AlarmRequest) -> Result<Command, AnswerError> {
    let action = match alarm.action {
        0 => AlarmAction::List,
        1 => AlarmAction::Raise,
        2 => AlarmAction::Clear,
        ACTION_FENCE if alarm.alarm == AlarmKind::Corrupt.number() => AlarmAction::Fence,
        _ => return Err(AnswerError::UnknownCommand),
    };
    let kind = match alarm.alarm {
        0 => None,
        1 => Some(AlarmKind::NoSpace),
        2 => Some(AlarmKind::Corrupt),
        _ => return Err(AnswerError::UnknownCommand),
    };
    Ok(Command::Alarm { action, member: alarm.member_id, kind })
}

/// Decodes a change entry: request id and what it does to the members. What is not wholly known, in
/// this or in the part that consensus reads, is refused before anything of it is applied.
pub(super) fn decode_change(data: &Bytes, context: &Bytes) -> Result<(u64, MemberOp), AnswerError> {
    if !RaftChange::is_known(data) {
        return Err(AnswerError::UnknownCommand);
    }
    if context.is_empty() {
        return Ok((0, MemberOp::Nothing));
    }
    let change = ConfChange::decode(context.clone()).map_err(|_| AnswerError::UnknownCommand)?;
    if change.encoded_len() != context.len() {
        return Err(AnswerError::UnknownCommand);
    }
    let said = || {
        let said: Result<ChangeContext, _> = serde_json::from_slice(&change.context);
        said.map_err(|_| AnswerError::UnknownCommand)
    };
    let id = change.node_id;
    // The kind decides, so that members and configuration cannot differ.
    let is_learner = change.kind == 3;
    let op = match change.kind {
        _ if id == 0 => MemberOp::Nothing,
        // An add without a member object (nobody but a test makes one) still names the member.
        0 | 3 if change.context.is_empty() => {
            MemberOp::Add(Member { id, is_learner, ..Member::default() })
        }
        0 | 3 => match said()? {
            said if said.promote => MemberOp::Promote(id),
            ChangeContext { id, peer_urls, name, client_urls, .. } => {
                MemberOp::Add(Member { id, peer_urls, is_learner, name, client_urls })
            }
        },
        1 => MemberOp::Remove(id),
        2 => MemberOp::Update { id, peer_urls: said()?.peer_urls },
        _ => return Err(AnswerError::UnknownCommand),
    };
    Ok((change.id, op))
}

impl Alarm {
    /// The message that is the alarm's key in the store.
    pub(super) fn to_key(self) -> Bytes {
        pb::AlarmMember { member_id: self.member, alarm: self.kind.number() }.encode_to_vec().into()
    }

    pub(super) fn from_key(key: &[u8]) -> Option<Self> {
        let message = pb::AlarmMember::decode(key).ok()?;
        let kind = match message.alarm {
            1 => AlarmKind::NoSpace,
            2 => AlarmKind::Corrupt,
            _ => return None,
        };
        Some(Self { member: message.member_id, kind })
    }
}

impl AlarmKind {
    /// Number in the client interface.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::NoSpace => 1,
            Self::Corrupt => 2,
        }
    }
}

impl From<pb::PutRequest> for Put {
    fn from(put: pb::PutRequest) -> Self {
        let pb::PutRequest { key, value, lease, prev_kv, ignore_value, ignore_lease } = put;
        Self { key, value, lease, prev_kv, ignore_value, ignore_lease }
    }
}

impl From<pb::DeleteRangeRequest> for Delete {
    fn from(delete: pb::DeleteRangeRequest) -> Self {
        let range = KeyRange::from_request(delete.key, delete.range_end);
        Self { range, prev_kv: delete.prev_kv }
    }
}

impl From<pb::RangeRequest> for RangeQuery {
    fn from(request: pb::RangeRequest) -> Self {
        let target = match request.sort_target() {
            PbTarget::Key => SortTarget::Key,
            PbTarget::Version => SortTarget::Version,
            PbTarget::Create => SortTarget::Create,
            PbTarget::Mod => SortTarget::Mod,
            PbTarget::Value => SortTarget::Value,
        };
        let descending = request.sort_order() == SortOrder::Descend;
        let limit_first = request.sort_order() == SortOrder::None;
        Self {
            revision: request.revision,
            limit: request.limit,
            sort: Sort { target, descending, limit_first },
            filters: Filters {
                min_mod: request.min_mod_revision,
                max_mod: request.max_mod_revision,
                min_create: request.min_create_revision,
                max_create: request.max_create_revision,
            },
            keys_only: request.keys_only,
            count_only: request.count_only,
            ..Self::new(KeyRange::from_request(request.key, request.range_end))
        }
    }
}

impl From<pb::Compare> for Compare {
    fn from(compare: pb::Compare) -> Self {
        use pb::compare::{CompareResult, CompareTarget};
        let op = match CompareResult::try_from(compare.result) {
            Ok(CompareResult::Equal) => CompareOp::Equal,
            Ok(CompareResult::Greater) => CompareOp::Greater,
            Ok(CompareResult::Less) => CompareOp::Less,
            Ok(CompareResult::NotEqual) => CompareOp::NotEqual,
            Err(_) => CompareOp::Unknown,
        };
        // An asked value of another kind than the target counts as absent: zero or empty.
        let test = match (CompareTarget::try_from(compare.target), compare.target_union) {
            (Ok(CompareTarget::Version), Some(TargetUnion::Version(n))) => Test::Version(n),
            (Ok(CompareTarget::Version), _) => Test::Version(0),
            (Ok(CompareTarget::Create), Some(TargetUnion::CreateRevision(n))) => Test::Create(n),
            (Ok(CompareTarget::Create), _) => Test::Create(0),
            (Ok(CompareTarget::Mod), Some(TargetUnion::ModRevision(n))) => Test::Mod(n),
            (Ok(CompareTarget::Mod), _) => Test::Mod(0),
            (Ok(CompareTarget::Value), Some(TargetUnion::Value(value))) => Test::Value(value),
            (Ok(CompareTarget::Value), _) => Test::Value(Bytes::new()),
            (Ok(CompareTarget::Lease), Some(TargetUnion::Lease(n))) => Test::Lease(n),
            (Ok(CompareTarget::Lease), _) => Test::Lease(0),
            (Err(_), _) => Test::Unknown,
        };
        Self { range: KeyRange::from_request(compare.key, compare.range_end), op, test }
    }
}

impl From<pb::TxnRequest> for Txn {
    fn from(txn: pb::TxnRequest) -> Self {
        let branch = |ops: Vec<pb::RequestOp>| ops.into_iter().filter_map(op).collect();
        Self {
            compares: txn.compare.into_iter().map(Into::into).collect(),
            success: branch(txn.success),
            failure: branch(txn.failure),
        }
    }
}

/// `None` for an operation without content, which `check::txn` refuses before it is proposed.
fn op(op: pb::RequestOp) -> Option<Op> {
    Some(match op.request? {
        Request::RequestRange(range) => Op::Range(range.into()),
        Request::RequestPut(put) => Op::Put(put.into()),
        Request::RequestDeleteRange(delete) => Op::Delete(delete.into()),
        Request::RequestTxn(txn) => Op::Txn(txn.into()),
    })
}
