//! One operation, carried out on one side.

use crate::answer::{self, Answer};
use crate::common::{Clients, Node};
use crate::stream::PATIENCE;
use assay::proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, HashKvRequest, LeaseGrantRequest, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest,
    PutRequest, RangeRequest, RangeResponse, TxnRequest,
};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status, Streaming};

/// A start gives every lease its full time plus an election timeout, in seconds rounded up.
const RESTART_GRACE: i64 = 2;
/// Longest stop on SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// An operation with one answer.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Range(RangeRequest),
    RangeStream(RangeRequest),
    /// A range with a client version that is no text.
    BadApiVersion(RangeRequest),
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Txn(TxnRequest),
    Compact(CompactionRequest),
    Grant(LeaseGrantRequest),
    /// A grant whose identity the server picks, a look at it, and its end: the two sides pick
    /// different identities, so none may stay behind.
    GrantAny {
        ttl: i64,
    },
    Revoke(i64),
    KeepAlive(i64),
    TimeToLive(LeaseTimeToLiveRequest),
    Leases,
    HashKv(i64),
}

struct Renewals {
    asked: mpsc::Sender<LeaseKeepAliveRequest>,
    answers: Streaming<LeaseKeepAliveResponse>,
}

/// One server with everything open on it.
pub(crate) struct Side {
    pub(crate) node: Node,
    pub(crate) clients: Clients,
    /// Since when the lease clocks of this side run at most ahead of what was granted.
    opened: Instant,
    restarted: bool,
    /// The stream of lease renewals, opened with the first of them.
    renewals: Option<Renewals>,
}

impl Op {
    /// Whether this is about leases.
    pub(crate) fn is_lease(&self) -> bool {
        matches!(
            self,
            Self::Grant(_)
                | Self::GrantAny { .. }
                | Self::Revoke(_)
                | Self::KeepAlive(_)
                | Self::TimeToLive(_)
                | Self::Leases
        )
    }
}

impl Side {
    /// Opens the connection.
    pub(crate) async fn open(node: Node) -> Self {
        let clients = node.clients().await;
        Self { node, clients, opened: Instant::now(), restarted: false, renewals: None }
    }

    /// Starts the server again, after `kill -9` or SIGTERM, and opens everything anew.
    pub(crate) async fn restart(self, kill: bool) -> Self {
        let Self { mut node, clients, renewals, .. } = self;
        drop((clients, renewals));
        if kill {
            node.kill();
        } else {
            node.terminate(STOP_LIMIT);
        }
        node.restart();
        Self { restarted: true, ..Self::open(node).await }
    }

    /// Carries out `op`. No answer in time is an error of its own.
    pub(crate) async fn apply(&mut self, op: &Op) -> Answer {
        match timeout(PATIENCE, self.try_apply(op)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(status)) => status.into(),
            Err(_) => Status::cancelled(format!("no answer within {PATIENCE:?}")).into(),
        }
    }

    async fn try_apply(&mut self, op: &Op) -> Result<Answer, Status> {
        let mut out = Answer::default();
        match op {
            Op::Range(asked) => {
                let got = self.clients.kv.range(asked.clone()).await?.into_inner();
                out.header("header", got.header.as_ref());
                answer::range(&mut out, "", asked, &got);
            }
            Op::RangeStream(asked) => self.range_stream(asked, &mut out).await?,
            Op::BadApiVersion(asked) => {
                let mut request = Request::new(asked.clone());
                let version = MetadataValue::try_from(&b"\xff\xfe"[..]).expect("header bytes");
                request.metadata_mut().insert("client-api-version", version);
                let got = self.clients.kv.range(request).await?.into_inner();
                out.header("header", got.header.as_ref());
            }
            Op::Put(asked) => {
                let got = self.clients.kv.put(asked.clone()).await?.into_inner();
                out.header("header", got.header.as_ref());
                answer::put(&mut out, "", &got);
            }
            Op::Delete(asked) => {
                let got = self.clients.kv.delete_range(asked.clone()).await?.into_inner();
                out.header("header", got.header.as_ref());
                answer::delete(&mut out, "", &got);
            }
            Op::Txn(asked) => {
                let got = self.clients.kv.txn(asked.clone()).await?.into_inner();
                out.header("header", got.header.as_ref());
                answer::txn(&mut out, "", asked, &got);
            }
            Op::Compact(asked) => {
                let got = self.clients.kv.compact(*asked).await?.into_inner();
                out.header("header", got.header.as_ref());
            }
            Op::HashKv(revision) => {
                let asked = HashKvRequest { revision: *revision };
                let got = self.clients.maintenance.hash_kv(asked).await?.into_inner();
                out.header("header", got.header.as_ref());
                out.add("hash", got.hash);
                out.add("compact_revision", got.compact_revision);
                out.add("hash_revision", got.hash_revision);
            }
            lease => self.lease(lease, &mut out).await?,
        }
        Ok(out)
    }

    /// Chunks put together: where they are cut is the server's affair, what they hold is not.
    async fn range_stream(&mut self, asked: &RangeRequest, out: &mut Answer) -> Result<(), Status> {
        let mut chunks = self.clients.kv.range_stream(asked.clone()).await?.into_inner();
        let mut whole = RangeResponse::default();
        let mut last = None;
        while let Some(chunk) = chunks.message().await? {
            let chunk = chunk.range_response.unwrap_or_default();
            if let Some(RangeResponse { header, more, count, .. }) = last.replace(chunk.clone()) {
                let bare = header.is_none() && !more && count == 0;
                assert!(bare, "a chunk before the last one has header, more or count");
            }
            whole.kvs.extend(chunk.kvs);
        }
        let last = last.unwrap_or_default();
        whole.more = last.more;
        whole.count = last.count;
        out.header("header", last.header.as_ref());
        answer::range(out, "", asked, &whole);
        Ok(())
    }

    async fn renew(&mut self, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
        let asked = LeaseKeepAliveRequest { id };
        if let Some(renewals) = &self.renewals {
            renewals.asked.send(asked).await.expect("the renewal stream is open");
        } else {
            // A server sends headers with its first answer: the request goes with the opening.
            let (sender, requests) = mpsc::channel(1);
            sender.send(asked).await.expect("room in the channel");
            let stream = self.clients.lease.lease_keep_alive(ReceiverStream::new(requests)).await?;
            self.renewals = Some(Renewals { asked: sender, answers: stream.into_inner() });
        }
        let renewals = self.renewals.as_mut().expect("just opened");
        let got = renewals.answers.message().await?;
        got.ok_or_else(|| Status::unknown("the renewal stream ended"))
    }

    async fn lease(&mut self, op: &Op, out: &mut Answer) -> Result<(), Status> {
        match op {
            Op::Grant(asked) => {
                let got = self.clients.lease.lease_grant(*asked).await?.into_inner();
                out.header("header", got.header.as_ref());
                out.add("id", got.id);
                out.add("ttl", got.ttl);
                out.add("error", format!("{:?}", got.error));
            }
            Op::GrantAny { ttl } => {
                let asked = LeaseGrantRequest { ttl: *ttl, id: 0 };
                let granted = self.clients.lease.lease_grant(asked).await?.into_inner();
                out.header("header", granted.header.as_ref());
                out.add("id is positive", granted.id > 0);
                out.add("ttl", granted.ttl);
                let asked = LeaseTimeToLiveRequest { id: granted.id, keys: true };
                let left = self.clients.lease.lease_time_to_live(asked).await?.into_inner();
                out.add("granted_ttl", left.granted_ttl);
                out.add("keys", left.keys.len());
                let asked = LeaseRevokeRequest { id: granted.id };
                let gone = self.clients.lease.lease_revoke(asked).await?.into_inner();
                out.header("revoked", gone.header.as_ref());
            }
            Op::Revoke(id) => {
                let asked = LeaseRevokeRequest { id: *id };
                let got = self.clients.lease.lease_revoke(asked).await?.into_inner();
                out.header("header", got.header.as_ref());
            }
            Op::KeepAlive(id) => {
                let got = self.renew(*id).await?;
                out.header("header", got.header.as_ref());
                out.add("id", got.id);
                out.add("ttl", got.ttl);
            }
            Op::TimeToLive(asked) => {
                let got = self.clients.lease.lease_time_to_live(*asked).await?.into_inner();
                out.header("header", got.header.as_ref());
                out.add("id", got.id);
                out.add("granted_ttl", got.granted_ttl);
                // Time passes: what is left may be less by the age of the connection, cut to whole
                // seconds, and more only by what a new leader grants on top.
                let age = self.opened.elapsed().as_secs() as i64 + 1;
                let most = got.granted_ttl + if self.restarted { RESTART_GRACE } else { 0 };
                let fits = (got.granted_ttl - age..=most).contains(&got.ttl);
                match got.ttl {
                    -1 => out.add("ttl", -1),
                    _ if fits => out.add("ttl", "within the time that passed"),
                    ttl => out.add("ttl", format!("{ttl} after at most {age} s")),
                }
                let mut keys: Vec<_> = got.keys.iter().map(|key| answer::show(key)).collect();
                keys.sort();
                out.add("keys", keys.join(" "));
            }
            Op::Leases => {
                let got = self.clients.lease.lease_leases(LeaseLeasesRequest {}).await?;
                let got = got.into_inner();
                out.header("header", got.header.as_ref());
                let mut ids: Vec<_> = got.leases.iter().map(|lease| lease.id).collect();
                ids.sort_unstable();
                out.add("leases", format!("{ids:?}"));
            }
            other => unreachable!("{other:?} is no lease operation"),
        }
        Ok(())
    }
}
