//! Whoever does not fit is refused at every door, on both sides, whatever the other side lets pass.

use super::*;
use crate::proto::peer::peer_client::PeerClient;
use crate::proto::peer::peer_server::{Peer, PeerServer};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};

/// What member 1 says to member 2 of cluster 9, which uses level 2.
fn good() -> pb::Identity {
    Identity { cluster_id: 9, member_id: 1, feature_level: 2 }.to(2, Vec::new())
}

/// Identities of which none fits.
fn wrong() -> Vec<Option<pb::Identity>> {
    vec![
        None,
        Some(pb::Identity::default()),
        Some(pb::Identity { format: 0, ..good() }),
        Some(pb::Identity { cluster_id: 8, ..good() }),
        Some(pb::Identity { to: 3, ..good() }),
        Some(pb::Identity { from: 2, ..good() }),
        Some(pb::Identity { from: 0, ..good() }),
        Some(pb::Identity { feature_level: 1, ..good() }),
    ]
}

/// How each kind of request of somebody who says this is answered: messages, snapshot, call.
async fn doors(served: &Served, identity: Option<pb::Identity>) -> [Result<(), Status>; 3] {
    let channel = Dialer::default().channel(&served.url).await.expect("connect");
    let mut client = PeerClient::new(channel);
    let batch = pb::Batch { identity: identity.clone(), ..pb::Batch::default() };
    let messages = client.messages(tokio_stream::iter([batch])).await.map(drop);
    let head = pb::SnapshotHead { identity: identity.clone(), ..pb::SnapshotHead::default() };
    let part = pb::SnapshotPart { part: Some(pb::snapshot_part::Part::Head(head)) };
    let snapshot = client.snapshot(tokio_stream::iter([part])).await.map(drop);
    let what = Some(pb::call_request::What::LeaseRenew(1));
    let call = client.call(pb::CallRequest { identity, what }).await.map(drop);
    [messages, snapshot, call]
}

#[tokio::test]
async fn every_door_of_a_member_checks_who_comes() {
    let served = serve(9);
    let [messages, snapshot, call] = doors(&served, Some(good())).await;
    assert!(messages.is_ok() && call.is_ok(), "{messages:?} {call:?}");
    // The head is no message of consensus; that is looked at behind the door.
    assert_ne!(snapshot.expect_err("no snapshot").code(), Code::FailedPrecondition);
    for identity in wrong() {
        for (door, answer) in doors(&served, identity.clone()).await.into_iter().enumerate() {
            let code = answer.expect_err("refused").code();
            assert_eq!(code, Code::FailedPrecondition, "door {door}, {identity:?}");
        }
    }
    served.told.removed.lock().push(1);
    for answer in doors(&served, Some(good())).await {
        let status = answer.expect_err("refused");
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains("member add"), "{status:?}");
    }
    assert!(served.told.wires.lock().is_empty());
}

/// Lets everybody in, counts them, and says that it is this.
struct Careless(Option<pb::Identity>, Arc<AtomicUsize>);

#[tonic::async_trait]
impl Peer for Careless {
    type MessagesStream = Pin<Box<dyn Stream<Item = Result<pb::Note, Status>> + Send>>;

    async fn messages(
        &self,
        _: Request<Streaming<pb::Batch>>,
    ) -> Result<Response<Self::MessagesStream>, Status> {
        self.1.fetch_add(1, Relaxed);
        let hello = pb::Note { identity: self.0.clone(), ..pb::Note::default() };
        let notes = tokio_stream::iter([Ok(hello)]).chain(tokio_stream::pending());
        Ok(Response::new(Box::pin(notes)))
    }

    async fn snapshot(
        &self,
        _: Request<Streaming<pb::SnapshotPart>>,
    ) -> Result<Response<pb::SnapshotDone>, Status> {
        Ok(Response::new(pb::SnapshotDone {}))
    }

    async fn members(
        &self,
        _: Request<pb::MembersRequest>,
    ) -> Result<Response<pb::MembersResponse>, Status> {
        Ok(Response::new(pb::MembersResponse::default()))
    }

    async fn call(
        &self,
        _: Request<pb::CallRequest>,
    ) -> Result<Response<pb::CallResponse>, Status> {
        Ok(Response::new(pb::CallResponse::default()))
    }
}

/// A link of member 1 to what says that it is this, and how often it came.
fn link_to(identity: Option<pb::Identity>) -> (edge::Edge, Peers, Arc<AtomicUsize>) {
    let (edge, bound, url) = listen();
    let came = Arc::new(AtomicUsize::default());
    let careless = Arc::new(Careless(identity, came.clone()));
    edge.serve(vec![bound], |_, _| edge::Routes {
        rpc: Some(PeerServer::from_arc(careless.clone())),
        http: axum::Router::new(),
        elsewhere: edge::Elsewhere::default(),
    });
    let served = Served { edge, told: Arc::default(), url };
    let (peers, _) = member_one(&served);
    (served.edge, peers, came)
}

#[tokio::test]
async fn a_member_checks_whom_it_has_dialled() {
    // Member 2 answers member 1.
    let answer = || Identity { cluster_id: 9, member_id: 2, feature_level: 2 }.to(1, Vec::new());
    let (_edge, peers, _) = link_to(Some(answer()));
    wait_until("connected", || peers.connected_since(2).is_some()).await;
    let wrong = [
        None,
        Some(pb::Identity { format: 0, ..answer() }),
        Some(pb::Identity { cluster_id: 8, ..answer() }),
        Some(pb::Identity { to: 3, ..answer() }),
        Some(pb::Identity { from: 1, ..answer() }),
        // Another member at this address.
        Some(pb::Identity { from: 3, ..answer() }),
        Some(pb::Identity { feature_level: 1, ..answer() }),
    ];
    let links = wrong.map(|identity| (link_to(identity.clone()), identity));
    for ((_edge, peers, came), identity) in links {
        // Who has found what it looked for does not come again.
        let again = || came.load(Relaxed) >= 2;
        wait_until("refused", || again() || peers.connected_since(2).is_some()).await;
        assert_eq!(peers.connected_since(2), None, "{identity:?}");
    }
}
