//! The service on the peer port.

use super::disk;
use super::identity::{FORMAT, Identity};
use super::link::BATCH_MAX_BYTES;
use super::snapshot::STALLED;
use super::{Address, Arriving, Local, Peers};
use crate::consensus::Wire;
use crate::edge::ConnInfo;
use crate::proto::peer as pb;
use crate::proto::peer::peer_server::{self, PeerServer};
use crate::proto::peer::snapshot_part::Part;
use crate::telemetry::clock;
use crate::telemetry::peer_stats::{PeerNumbers, PeerStats};
use crate::telemetry::repeats::Repeats;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_stream::Stream;
use tonic::codec::Streaming;
use tonic::{Request, Response, Status};

/// Time for the first message of a stream.
const FIRST_MESSAGE: Duration = Duration::from_secs(5);
/// How often an arriving snapshot is looked at when no part of it comes.
const LOOK: Duration = Duration::from_millis(500);

/// The service. It is served from the first moment, so that nobody waits for a member that starts;
/// until [`Service::begin`] it says that it does.
#[derive(Clone, Default)]
pub struct Service(Arc<OnceLock<Inner>>);

struct Inner {
    peers: Peers,
    own: Identity,
    stats: Arc<PeerStats>,
    local: Arc<dyn Local>,
    /// Refusals that were logged: who was refused, and why.
    said: Repeats<(Option<IpAddr>, String)>,
}

impl Service {
    /// Beginning of the paths of its calls.
    pub const PATHS: &str = "/assay.peer.v1.Peer/";

    /// As a gRPC service.
    pub fn server(&self) -> PeerServer<Service> {
        PeerServer::new(self.clone()).max_decoding_message_size(BATCH_MAX_BYTES)
    }

    /// From here on peers are served.
    pub fn begin(&self, peers: &Peers, local: Arc<dyn Local>) {
        // Begun twice it stays with the first node.
        let _ = self.0.set(Inner {
            peers: peers.clone(),
            own: peers.own(),
            stats: peers.stats().clone(),
            local,
            said: Repeats::default(),
        });
    }

    fn inner(&self) -> Result<&Inner, Status> {
        self.0.get().ok_or_else(|| Status::unavailable("this member is starting"))
    }
}

impl Inner {
    /// Who speaks, if it is one of us.
    fn known(&self, said: Option<&pb::Identity>, origin: Option<IpAddr>) -> Result<u64, Status> {
        let from = match self.own.check(said, self.local.feature_level()) {
            Ok(from) => from,
            Err(text) => {
                self.say(origin, &text);
                return Err(Status::failed_precondition(text));
            }
        };
        if self.local.is_removed(from) {
            let text = removed(from, self.own.cluster_id);
            self.say(origin, &text);
            return Err(Status::permission_denied(text));
        }
        Ok(from)
    }

    /// Passes the parts on to whoever writes them.
    async fn receive(
        &self,
        from: u64,
        head: pb::SnapshotHead,
        mut parts: Streaming<pb::SnapshotPart>,
    ) -> Result<(), Status> {
        let message = Wire::decode(head.message.clone())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let fits = (message.from(), message.to()) == (from, self.own.member_id);
        if !fits || message.snapshot().is_none() {
            return Err(Status::invalid_argument("a snapshot that another message announces"));
        }
        let term = message.term();
        let arriving = self.local.stage(from, message, head).map_err(Status::unavailable)?;
        let Arriving { parts: out, done } = arriving;
        let mut stopping = self.local.stopping();
        let mut heard = tokio::time::Instant::now();
        loop {
            let part = tokio::select! {
                part = tokio::time::timeout(LOOK, parts.message()) => part,
                _ = stopping.wait_for(|stopping| *stopping) => {
                    return Err(Status::unavailable("this member is stopping"));
                }
            };
            // Its message would be ignored. Whoever leads now waits until this one is out of the way.
            if self.local.term() > term {
                return Err(Status::aborted("the sender no longer leads"));
            }
            let Ok(part) = part else {
                if heard.elapsed() < STALLED {
                    continue;
                }
                return Err(Status::deadline_exceeded("the snapshot stalled"));
            };
            heard = tokio::time::Instant::now();
            let Some(part) = part? else { break };
            let Some(part) = part.part else {
                return Err(Status::invalid_argument("a part of a snapshot without content"));
            };
            if out.send(part).await.is_err() {
                // Whoever writes has given up and says why.
                break;
            }
        }
        drop(out);
        match done.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(text)) => Err(Status::aborted(text)),
            Err(_) => Err(Status::unavailable("this member is stopping")),
        }
    }

    fn say(&self, from: Option<IpAddr>, text: &str) {
        let Some(withheld) = self.said.admit((from, text.to_owned()), clock::now_ns()) else {
            return;
        };
        let remote = from.map_or_else(|| "@".to_owned(), |from| from.to_string());
        tracing::warn!(remote, withheld, "refused a connection on the peer port: {text}");
    }
}

/// Where a request came from, without the port.
fn origin<T>(request: &Request<T>) -> Option<IpAddr> {
    request.extensions().get::<Arc<ConnInfo>>().and_then(|info| info.remote.ip())
}

/// What a removed member and its operator are told.
fn removed(member: u64, cluster: u64) -> String {
    format!(
        "member {member:x} was removed from cluster {cluster:x}; add it again with `member add` and \
         start it with an empty data directory and --initial-cluster-state=existing"
    )
}

#[tonic::async_trait]
impl peer_server::Peer for Service {
    type MessagesStream = Incoming;

    async fn messages(
        &self,
        request: Request<Streaming<pb::Batch>>,
    ) -> Result<Response<Incoming>, Status> {
        let inner = self.inner()?;
        let origin = origin(&request);
        let mut batches = request.into_inner();
        let first = tokio::time::timeout(FIRST_MESSAGE, batches.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no first message"))??;
        let identity = first.and_then(|batch| batch.identity);
        let from = inner.known(identity.as_ref(), origin)?;
        let urls = identity.map(|identity| identity.peer_urls).unwrap_or_default();
        inner.peers.meet(&Address { id: from, urls }, &inner.local);
        inner.peers.is_back(from);
        let mut stopping = inner.local.stopping();
        Ok(Response::new(Incoming {
            batches,
            hello: Some(inner.own.to(from, Vec::new())),
            from,
            own: inner.own,
            local: inner.local.clone(),
            numbers: inner.stats.of(from),
            stop: Box::pin(async move {
                // An error means that the node is gone, which is an end as well.
                let _ = stopping.wait_for(|stopping| *stopping).await;
            }),
        }))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<pb::SnapshotPart>>,
    ) -> Result<Response<pb::SnapshotDone>, Status> {
        let inner = self.inner()?;
        let origin = origin(&request);
        let mut parts = request.into_inner();
        let first = tokio::time::timeout(FIRST_MESSAGE, parts.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no first message"))??;
        let Some(Part::Head(head)) = first.and_then(|part| part.part) else {
            return Err(Status::invalid_argument("a snapshot without a head"));
        };
        let from = inner.known(head.identity.as_ref(), origin)?;
        let numbers = inner.stats.of(from);
        numbers.snapshots_arriving.fetch_add(1, Relaxed);
        let began = clock::now_ns();
        let outcome = inner.receive(from, head, parts).await;
        numbers.snapshots_arriving.fetch_sub(1, Relaxed);
        match outcome {
            Ok(()) => {
                PeerNumbers::add(&numbers.snapshots_received, 1);
                numbers.snapshot_receive.record_ns(clock::now_ns().saturating_sub(began));
                Ok(Response::new(pb::SnapshotDone {}))
            }
            Err(status) => {
                PeerNumbers::add(&numbers.snapshots_refused, 1);
                tracing::warn!(
                    peer = format!("{from:x}"),
                    "a snapshot did not arrive: {}",
                    status.message()
                );
                Err(status)
            }
        }
    }

    async fn members(
        &self,
        _: Request<pb::MembersRequest>,
    ) -> Result<Response<pb::MembersResponse>, Status> {
        let inner = self.inner()?;
        Ok(Response::new(pb::MembersResponse {
            cluster_id: inner.own.cluster_id,
            from: inner.own.member_id,
            members: inner.local.members(),
            removed: inner.local.removed(),
            format: FORMAT,
            feature_level: inner.local.feature_level(),
        }))
    }

    async fn call(
        &self,
        request: Request<pb::CallRequest>,
    ) -> Result<Response<pb::CallResponse>, Status> {
        let origin = origin(&request);
        let request = request.into_inner();
        let inner = self.inner()?;
        inner.known(request.identity.as_ref(), origin)?;
        let what = request.what.ok_or_else(|| {
            Status::unimplemented("a request that this version does not know; upgrade this member")
        })?;
        Ok(Response::new(inner.local.call(what).await))
    }
}

/// Reads the messages of one peer while it is polled for notes.
pub struct Incoming {
    batches: Streaming<pb::Batch>,
    hello: Option<pb::Identity>,
    from: u64,
    own: Identity,
    local: Arc<dyn Local>,
    numbers: Arc<PeerNumbers>,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Incoming {
    /// Takes in the messages of a batch.
    fn take(&self, batch: pb::Batch) -> Result<(), Status> {
        if self.local.is_removed(self.from) {
            // It may not have been told by the log: nobody sends to it any more.
            return Err(Status::permission_denied(removed(self.from, self.own.cluster_id)));
        }
        let facts = disk::heard(batch.disk);
        let mut wires = Vec::with_capacity(batch.messages.len());
        for bytes in batch.messages {
            PeerNumbers::add(&self.numbers.received_bytes, bytes.len() as u64);
            let wire =
                Wire::decode(bytes).map_err(|error| error.to_string()).and_then(|wire| {
                    match (wire.from(), wire.to()) == (self.from, self.own.member_id) {
                        true => Ok(wire),
                        false => Err("a message of another sender or for another receiver".into()),
                    }
                });
            match wire {
                Ok(wire) => wires.push(wire),
                Err(text) => {
                    PeerNumbers::add(&self.numbers.received_failures, 1);
                    tracing::warn!(peer = format!("{:x}", self.from), "{text}; disconnecting");
                    return Err(Status::invalid_argument(text));
                }
            }
        }
        if !wires.is_empty() || facts.is_some() {
            let dropped = self.local.wires(self.from, facts, wires);
            PeerNumbers::add(&self.numbers.received_failures, dropped as u64);
        }
        Ok(())
    }
}

impl Stream for Incoming {
    type Item = Result<pb::Note, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(identity) = self.hello.take() {
            return Poll::Ready(Some(Ok(pb::Note { identity: Some(identity), pong: 0 })));
        }
        if self.stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        loop {
            let batch = match Pin::new(&mut self.batches).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Some(Err(status))),
                Poll::Ready(Some(Ok(batch))) => batch,
            };
            let ping = batch.ping;
            if let Err(status) = self.take(batch) {
                return Poll::Ready(Some(Err(status)));
            }
            if ping != 0 {
                return Poll::Ready(Some(Ok(pb::Note { identity: None, pong: ping })));
            }
        }
    }
}
