//! The Lease service.

use super::context::RequestContext;
use super::keep_alive::{Answer as Renewed, KeepAlives, Work};
use super::node::Node;
use super::quota;
use super::status;
use super::watch_session::until_stop;
use crate::lease::Renewal;
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
use std::time::Duration;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// First and longest pause before a keep-alive that has to wait for the log looks again. What it
/// waits for takes one write to the log, about a millisecond on a good disk.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);

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
            until_stop(self.node.stopping()),
        );
        Ok(Response::new(Box::pin(renewals)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Rpc<LeaseTimeToLiveResponse> {
        RequestContext::of(&request)?;
        let LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let times = self.node.lease_remaining(id).await;
        let times = times.map_err(|refused| status::of_refused(&refused))?;
        if times.is_none() && !self.node.raft().is_leader {
            // Only the leader knows times; "unknown" would be a lie.
            return Err(status::NO_LEADER.into());
        }
        // Unknown and expired leases are no error.
        let (ttl, granted_ttl) = times.unwrap_or((-1, 0));
        let attached =
            if keys && times.is_some() { self.node.reader().lease_keys(id) } else { None };
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
    let renewed = tokio::time::timeout(node.timing().request_timeout(), renew(&node, id)).await;
    match renewed {
        Ok(ttl) => Ok(LeaseKeepAliveResponse { header, id, ttl: ttl? }),
        Err(_) => Err(status::TIMEOUT.into()),
    }
}

/// The new time to live, 0 for a lease that is gone.
async fn renew(node: &Handle, id: i64) -> Result<i64, Status> {
    let mut pause = PAUSE_FIRST;
    loop {
        let renewal = node.lease_renew(id).await;
        match renewal.map_err(|refused| status::of_refused(&refused))? {
            Renewal::Renewed { ttl } => return Ok(ttl),
            Renewal::Unknown => return Ok(0),
            Renewal::NotLeader => return Err(status::NO_LEADER.into()),
            // Both end with a log entry that is on its way.
            Renewal::Ending | Renewal::ClearRemaining => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
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
