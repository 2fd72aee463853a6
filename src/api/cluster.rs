//! The Cluster service: members and their changes.

use super::node::Node;
use super::status;
use crate::config::ListenUrl;
use crate::machine;
use crate::node::{Changed, MemberOp};
use crate::proto::etcdserverpb::cluster_server;
use crate::proto::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse, ResponseHeader,
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

impl<N: Node> Cluster<N> {
    async fn change(&self, op: MemberOp) -> Result<(ResponseHeader, u64, Vec<Member>), Status> {
        let changed = self.node.change_members(op).await;
        let Changed { member, members } = changed.map_err(|why| status::of_refused(&why))?;
        let mut members: Vec<Member> = members.iter().map(message).collect();
        members.sort_by_key(|member| member.id);
        // Membership has no revision of its own: etcd leaves it at 0.
        Ok((self.node.header(0), member, members))
    }
}

/// Peer URLs of a new member, sorted as its id is made of them.
fn peer_urls(urls: Vec<String>) -> Result<Vec<String>, Status> {
    let parsed = urls.iter().map(|url| ListenUrl::parse(url)).collect::<Result<Vec<_>, _>>();
    match parsed {
        Ok(parsed) if !parsed.is_empty() => {
            let mut parsed = parsed;
            parsed.sort();
            Ok(parsed.iter().map(|url| url.as_str().to_owned()).collect())
        }
        _ => Err(status::MEMBER_BAD_URLS.into()),
    }
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
        request: Request<MemberAddRequest>,
    ) -> Result<Response<MemberAddResponse>, Status> {
        let request = request.into_inner();
        let peer_urls = peer_urls(request.peer_ur_ls)?;
        let add = MemberOp::Add { peer_urls, learner: request.is_learner };
        let (header, id, members) = self.change(add).await?;
        let member = members.iter().find(|member| member.id == id).cloned();
        Ok(Response::new(MemberAddResponse { header: Some(header), member, members }))
    }

    async fn member_remove(
        &self,
        request: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        let remove = MemberOp::Remove(request.into_inner().id);
        let (header, _, members) = self.change(remove).await?;
        Ok(Response::new(MemberRemoveResponse { header: Some(header), members }))
    }

    async fn member_update(
        &self,
        request: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        let MemberUpdateRequest { id, peer_ur_ls: peer_urls } = request.into_inner();
        let (header, _, members) = self.change(MemberOp::Update { id, peer_urls }).await?;
        Ok(Response::new(MemberUpdateResponse { header: Some(header), members }))
    }

    async fn member_promote(
        &self,
        request: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        let promote = MemberOp::Promote(request.into_inner().id);
        let (header, _, members) = self.change(promote).await?;
        Ok(Response::new(MemberPromoteResponse { header: Some(header), members }))
    }
}
