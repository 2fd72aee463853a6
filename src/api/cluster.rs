//! The Cluster service of a single node.

use super::node::Node;
use super::status;
use crate::machine;
use crate::proto::etcdserverpb::cluster_server;
use crate::proto::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse,
};
use tonic::{Request, Response, Status};

/// The Cluster service.
#[derive(Clone)]
pub(super) struct Cluster<N> {
    node: N,
}

impl<N: Node> Cluster<N> {
    /// Of this node.
    pub(super) fn new(node: N) -> Self {
        Self { node }
    }
}

/// The message of a member.
fn message(member: &machine::Member) -> Member {
    Member {
        id: member.id,
        name: member.name.clone(),
        peer_ur_ls: member.peer_urls.clone(),
        client_ur_ls: member.client_urls.clone(),
        is_learner: member.is_learner,
    }
}

fn refused<T>() -> Result<Response<T>, Status> {
    Err(status::not_yet(
        "membership changes are not available in this version: a cluster has one member; \
         MemberList works",
    ))
}

#[tonic::async_trait]
impl<N: Node> cluster_server::Cluster for Cluster<N> {
    async fn member_list(
        &self,
        request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        if request.into_inner().linearizable {
            let done = self.node.linearize().await;
            done.map_err(|refused| status::of_refused(&refused))?;
        }
        // Membership has no revision of its own: etcd leaves it at 0.
        let header = Some(self.node.header(0));
        Ok(Response::new(MemberListResponse {
            header,
            members: self.node.members().iter().map(message).collect(),
        }))
    }

    async fn member_add(
        &self,
        _: Request<MemberAddRequest>,
    ) -> Result<Response<MemberAddResponse>, Status> {
        refused()
    }

    async fn member_remove(
        &self,
        _: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        refused()
    }

    async fn member_update(
        &self,
        _: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        refused()
    }

    async fn member_promote(
        &self,
        _: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        refused()
    }
}
