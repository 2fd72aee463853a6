//! The Lease service.

use super::context::RequestContext;
use super::keep_alive::{Answer as Renewed, KeepAlives, Work};
use super::node::Node;
use super::quota;
use super::status;
use super::watch_session::until_stop;
use crate::machine::{Answer, check};
use crate::node::{Done, Handle};
use crate::proto::etcdserverpb::lease_server;
use crate::proto::etcdserverpb::{
    InternalRaftRequest, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, LeaseStatus, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    RequestHeader,
};
use std::pin::Pin;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

type Rpc<T> = Result<Response<T>, Status>;

/// The Lease service.
#[derive(Clone)]
pub struct Lease {
    node: Handle,
}

impl Lease {
    /// Of this node.
    #[must_use]
    pub fn new(node: Handle) -> Self {
        Self { node }
    }

    async fn propose(
        &self,
        header: RequestHeader,
        request: InternalRaftRequest,
    ) -> Result<Answer, Status> {
        let request = InternalRaftRequest { header: Some(header), ..request };
        match self.node.propose(request).await {
            Ok(Done { answer, .. }) => Ok(answer),
            Err(refused) => Err(status::of_refused(&refused)),
        }
    }
}

#[tonic::async_trait]
impl lease_server::Lease for Lease {
    type LeaseKeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_grant(&self, request: Request<LeaseGrantRequest>) -> Rpc<LeaseGrantResponse> {
        let header = RequestContext::of(&request)?.command_header();
        quota::check(&self.node, check::cost_of_lease()).await?;
        let mut grant = request.into_inner();
        if grant.id == 0 {
            grant.id = random_id()?;
        }
        // Raised before it is replicated, so that members with different timing agree.
        grant.ttl = grant.ttl.max(self.node.timing().lease_ttl_min_s());
        let request =
            InternalRaftRequest { lease_grant: Some(grant), ..InternalRaftRequest::default() };
        match self.propose(header, request).await? {
            Answer::LeaseGrant { revision, id, ttl } => Ok(Response::new(LeaseGrantResponse {
                header: Some(self.node.header(revision)),
                id,
                ttl,
                error: String::new(),
            })),
            _ => Err(foreign("grant")),
        }
    }

    async fn lease_revoke(&self, request: Request<LeaseRevokeRequest>) -> Rpc<LeaseRevokeResponse> {
        let header = RequestContext::of(&request)?.command_header();
        let request = InternalRaftRequest {
            lease_revoke: Some(request.into_inner()),
            ..InternalRaftRequest::default()
        };
        match self.propose(header, request).await? {
            Answer::LeaseRevoke { revision } => {
                let header = Some(self.node.header(revision));
                Ok(Response::new(LeaseRevokeResponse { header }))
            }
            _ => Err(foreign("revoke")),
        }
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Rpc<Self::LeaseKeepAliveStream> {
        RequestContext::of(&request)?;
        let node = self.node.clone();
        let renewals = KeepAlives::new(
            request.into_inner(),
            move |id| -> Work { Box::pin(keep_alive(node.clone(), id)) },
            until_stop(self.node.stopping(), self.node.fenced()),
        );
        Ok(Response::new(Box::pin(renewals)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Rpc<LeaseTimeToLiveResponse> {
        RequestContext::of(&request)?;
        let LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let times = self.node.time_to_live(id).await;
        let times = times.map_err(|refused| status::of_refused(&refused))?;
        // Unknown and expired leases are no error.
        let (ttl, granted_ttl) = times.unwrap_or((-1, 0));
        let attached = match times {
            Some(_) if keys => {
                // Not older than what the leader said.
                let done = self.node.linearize().await;
                done.map_err(|refused| status::of_refused(&refused))?;
                self.node.reader().lease_keys(id)
            }
            _ => None,
        };
        let header = Some(self.node.header(self.node.revision()));
        let keys = attached.unwrap_or_default();
        Ok(Response::new(LeaseTimeToLiveResponse { header, id, ttl, granted_ttl, keys }))
    }

    async fn lease_leases(&self, request: Request<LeaseLeasesRequest>) -> Rpc<LeaseLeasesResponse> {
        RequestContext::of(&request)?;
        let order = self.node.lease_order().await;
        let order = order.map_err(|refused| status::of_refused(&refused))?;
        let leases = order.into_iter().map(|id| LeaseStatus { id }).collect();
        let header = Some(self.node.header(self.node.revision()));
        Ok(Response::new(LeaseLeasesResponse { header, leases }))
    }
}

/// Renews one lease. The header is taken before the renewal, as in etcd.
async fn keep_alive(node: Handle, id: i64) -> Renewed {
    let header = Some(node.header(node.revision()));
    let ttl = node.keep_alive(id).await.map_err(|refused| status::of_refused(&refused))?;
    Ok(LeaseKeepAliveResponse { header, id, ttl })
}

/// A positive id from the system's generator: whoever knows the id of a lease can end it, so it
/// must not be guessable.
fn random_id() -> Result<i64, Status> {
    loop {
        let random = getrandom::u64().map_err(|error| {
            Status::unavailable(format!("assay: the system gives no random numbers: {error}"))
        })?;
        let id = (random >> 1).cast_signed();
        if id != 0 {
            return Ok(id);
        }
    }
}

fn foreign(what: &str) -> Status {
    Status::internal(format!("assay: a lease {what} got the answer of another command"))
}
