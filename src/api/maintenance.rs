//! The Maintenance service: status, alarms and hashes; the rest says that it is not there yet.

use super::budget::Pool;
use super::context::RequestContext;
use super::node::Node;
use super::status;
use crate::config::{API_VERSION, STORAGE_VERSION};
use crate::machine::{Alarm, AlarmKind, Answer};
use crate::proto::etcdserverpb::alarm_request::AlarmAction;
use crate::proto::etcdserverpb::downgrade_request::DowngradeAction;
use crate::proto::etcdserverpb::maintenance_server;
use crate::proto::etcdserverpb::{
    AlarmMember, AlarmRequest, AlarmResponse, AlarmType, DefragmentRequest, DefragmentResponse,
    DowngradeInfo, DowngradeRequest, DowngradeResponse, HashKvRequest, HashKvResponse, HashRequest,
    HashResponse, InternalRaftRequest, MoveLeaderRequest, MoveLeaderResponse, SnapshotRequest,
    SnapshotResponse, StatusRequest, StatusResponse,
};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// What the status of a member says while writes are refused because its file system is nearly full.
pub const SHORT_OF_SPACE: &str = "free space is below --min-free-bytes: writes are refused";

/// The Maintenance service.
#[derive(Clone)]
pub(super) struct Maintenance<N> {
    node: N,
    pool: Arc<Pool>,
}

impl<N: Node> Maintenance<N> {
    /// Of this node; hashes run on `pool`.
    pub(super) fn new(node: N, pool: Arc<Pool>) -> Self {
        Self { node, pool }
    }

    fn errors(&self, leader: u64) -> Vec<String> {
        let no_leader = (leader == 0).then(|| status::NO_LEADER.1.to_owned());
        let texts: Vec<String> = (self.node.alarms().iter())
            .map(|alarm| {
                let kind = number(alarm.kind).as_str_name();
                format!("memberID:{} alarm:{kind}", alarm.member)
            })
            .collect();
        // A state of this member alone, which passes by itself: no alarm of the cluster.
        let space = self.node.is_short_of_space().then(|| SHORT_OF_SPACE.to_owned());
        no_leader.into_iter().chain(texts).chain(space).collect()
    }

    /// Alarms of the answer to a GET.
    fn listed(&self, kind: i32) -> Vec<AlarmMember> {
        let all = kind == AlarmType::None as i32;
        self.node.alarms().iter().map(message).filter(|a| all || a.alarm == kind).collect()
    }
}

fn number(kind: AlarmKind) -> AlarmType {
    match kind {
        AlarmKind::NoSpace => AlarmType::Nospace,
        AlarmKind::Corrupt => AlarmType::Corrupt,
    }
}

fn message(alarm: &Alarm) -> AlarmMember {
    AlarmMember { member_id: alarm.member, alarm: number(alarm.kind) as i32 }
}

type Rpc<T> = Result<Response<T>, Status>;

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[tonic::async_trait]
impl<N: Node> maintenance_server::Maintenance for Maintenance<N> {
    async fn alarm(&self, request: Request<AlarmRequest>) -> Rpc<AlarmResponse> {
        let command_header = RequestContext::of(&request)?.command_header();
        let alarm = request.into_inner();
        if alarm.action == AlarmAction::Get as i32 {
            // Through the log in etcd; a read that waits for the quorum says the same.
            let done = self.node.linearize().await;
            done.map_err(|refused| status::of_refused(&refused))?;
            let header = Some(self.node.header(self.node.revision()));
            return Ok(Response::new(AlarmResponse { header, alarms: self.listed(alarm.alarm) }));
        }
        // What applying does not know stops every member: it must not reach the log.
        if AlarmAction::try_from(alarm.action).is_err() || AlarmType::try_from(alarm.alarm).is_err()
        {
            return Err(Status::invalid_argument("assay: unknown action or kind of an alarm"));
        }
        let command = InternalRaftRequest {
            header: Some(command_header),
            alarm: Some(alarm),
            ..InternalRaftRequest::default()
        };
        match self.node.propose(command).await {
            Ok(Answer::Alarm { revision, alarms }) => {
                let header = Some(self.node.header(revision));
                let alarms = alarms.iter().map(message).collect();
                Ok(Response::new(AlarmResponse { header, alarms }))
            }
            Ok(_) => Err(Status::internal("assay: an alarm got the answer of another command")),
            Err(refused) => Err(status::of_refused(&refused)),
        }
    }

    async fn status(&self, _: Request<StatusRequest>) -> Rpc<StatusResponse> {
        let (raft, sizes) = (self.node.raft(), self.node.sizes());
        Ok(Response::new(StatusResponse {
            header: Some(self.node.header(self.node.revision())),
            version: API_VERSION.to_owned(),
            // Never 0: etcdctl divides by it, and a store without a row is a file all the same.
            db_size: signed(sizes.total_bytes.max(1)),
            leader: raft.leader,
            raft_index: raft.committed,
            raft_term: raft.term,
            raft_applied_index: raft.applied,
            errors: self.errors(raft.leader),
            db_size_in_use: signed(sizes.in_use_bytes.max(1)),
            is_learner: raft.is_learner,
            storage_version: STORAGE_VERSION.to_owned(),
            db_size_quota: self.node.quota().map_or(0, signed),
            downgrade_info: Some(DowngradeInfo::default()),
        }))
    }

    async fn hash(&self, _: Request<HashRequest>) -> Rpc<HashResponse> {
        let done = self.node.commit_store().await;
        done.map_err(|refused| status::of_refused(&refused))?;
        let node = self.node.clone();
        let hash = self.pool.run(move || node.hash()).await?;
        let hash = hash.map_err(|error| status::of_read(&error))?;
        let header = Some(self.node.header(self.node.revision()));
        Ok(Response::new(HashResponse { header, hash }))
    }

    async fn hash_kv(&self, request: Request<HashKvRequest>) -> Rpc<HashKvResponse> {
        let revision = request.into_inner().revision;
        let node = self.node.clone();
        let hashed = self.pool.run(move || node.hash_kv(revision)).await?;
        let hashed = hashed.map_err(|error| status::of_read(&error))?;
        Ok(Response::new(HashKvResponse {
            header: Some(self.node.header(hashed.revision)),
            hash: hashed.hash,
            compact_revision: hashed.compact_revision,
            hash_revision: hashed.hash_revision,
        }))
    }

    async fn defragment(&self, _: Request<DefragmentRequest>) -> Rpc<DefragmentResponse> {
        Err(status::not_yet(
            "Defragment is not available in this version: space of deleted rows is reused, the \
             file does not shrink",
        ))
    }

    type SnapshotStream = tokio_stream::Empty<Result<SnapshotResponse, Status>>;

    async fn snapshot(&self, _: Request<SnapshotRequest>) -> Rpc<Self::SnapshotStream> {
        Err(status::not_yet(
            "Snapshot is not available in this version: stop the node and copy its data directory. \
             Never start such a copy as a member of a cluster that ran on, which would lose \
             acknowledged writes: only the copies of all members together, or that of a lone node",
        ))
    }

    async fn move_leader(&self, request: Request<MoveLeaderRequest>) -> Rpc<MoveLeaderResponse> {
        let target = request.into_inner().target_id;
        let done = self.node.move_leader(target).await;
        done.map_err(|refused| status::of_refused(&refused))?;
        Ok(Response::new(MoveLeaderResponse { header: None }))
    }

    async fn downgrade(&self, request: Request<DowngradeRequest>) -> Rpc<DowngradeResponse> {
        let action = DowngradeAction::try_from(request.into_inner().action);
        if action.is_err() {
            return Err(status::UNKNOWN_DOWNGRADE_ACTION.into());
        }
        Err(status::not_yet("Downgrade is not available in this version"))
    }
}
