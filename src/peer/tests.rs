//! Queues, handshakes and links against a real service on a loopback port.

mod handshake;

use super::identity::Identity;
use super::queue::Queue;
use super::{Address, Answering, Arriving, Dialer, Local, Peers, Service};
use crate::consensus::{DiskFacts, NodeId, Wire, WireKind};
use crate::edge;
use crate::proto::peer as pb;
use crate::telemetry::disk_health::DiskHealth;
use crate::telemetry::io::IoStats;
use crate::telemetry::peer_stats::{PeerNumbers, PeerStats};
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::watch;
use tokio_stream::StreamExt;

/// A message as the wire has it; numbers as in `consensus::wire`.
#[derive(Clone, PartialEq, prost::Message)]
struct Raw {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint64, tag = "2")]
    to: u64,
    #[prost(uint64, tag = "3")]
    from: u64,
    #[prost(uint64, tag = "4")]
    term: u64,
    #[prost(message, repeated, tag = "7")]
    entries: Vec<RawEntry>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawEntry {
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(uint64, tag = "3")]
    index: u64,
    #[prost(bytes = "bytes", tag = "4")]
    data: Bytes,
}

const APPEND: i32 = 3;
const HEARTBEAT: i32 = 8;

fn heartbeat(from: u64, to: u64, term: u64) -> Wire {
    let raw = Raw { kind: HEARTBEAT, to, from, term, entries: Vec::new() };
    Wire::decode(raw.encode_to_vec().into()).expect("a heartbeat")
}

fn append(from: u64, to: u64, bytes: usize) -> Wire {
    let entries = vec![RawEntry { term: 1, index: 1, data: vec![7; bytes].into() }];
    let raw = Raw { kind: APPEND, to, from, term: 1, entries };
    Wire::decode(raw.encode_to_vec().into()).expect("an append")
}

fn healthy() -> Arc<DiskHealth> {
    Arc::new(DiskHealth::new(Arc::new(IoStats::new())))
}

/// A node that remembers what it was told.
struct Told {
    wires: Mutex<Vec<Wire>>,
    disks: Mutex<Vec<(NodeId, DiskFacts)>>,
    unreachable: Mutex<Vec<NodeId>>,
    removed: Mutex<Vec<NodeId>>,
    we_are_removed: watch::Sender<bool>,
    arrived: watch::Sender<usize>,
    stop: watch::Sender<bool>,
}

impl Default for Told {
    fn default() -> Self {
        Told {
            wires: Mutex::default(),
            disks: Mutex::default(),
            unreachable: Mutex::default(),
            removed: Mutex::default(),
            we_are_removed: watch::channel(false).0,
            arrived: watch::channel(0).0,
            stop: watch::channel(false).0,
        }
    }
}

impl Local for Told {
    fn wires(&self, from: NodeId, disk: Option<DiskFacts>, wires: Vec<Wire>) -> usize {
        let count = wires.len();
        self.disks.lock().extend(disk.map(|facts| (from, facts)));
        self.wires.lock().extend(wires);
        self.arrived.send_modify(|arrived| *arrived += count);
        0
    }

    fn unreachable(&self, id: NodeId) {
        self.unreachable.lock().push(id);
    }

    fn members(&self) -> Vec<pb::Member> {
        vec![pb::Member { id: 2, name: "b".into(), ..pb::Member::default() }]
    }

    fn feature_level(&self) -> u32 {
        2
    }

    fn removed(&self) -> Vec<NodeId> {
        self.removed.lock().clone()
    }

    fn is_removed(&self, id: NodeId) -> bool {
        self.removed.lock().contains(&id)
    }

    fn stage(&self, _: NodeId, _: Wire, _: pb::SnapshotHead) -> Result<Arriving, String> {
        Err("not wanted".into())
    }

    fn term(&self) -> u64 {
        1
    }

    fn we_are_removed(&self) {
        self.we_are_removed.send_replace(true);
    }

    fn call(&self, _: pb::call_request::What) -> Answering {
        Box::pin(async { pb::CallResponse { refused: 7, ..pb::CallResponse::default() } })
    }

    fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }
}

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Member 2 of `cluster_id`, served on a port of its own.
struct Served {
    edge: edge::Edge,
    told: Arc<Told>,
    url: String,
}

/// An edge and a peer port of its own that nothing is served on yet, with its URL.
fn listen() -> (edge::Edge, edge::Bound, String) {
    let options = edge::Options {
        runtimes: 1,
        limits: edge::Limits::default(),
        observer: Arc::new(edge::NoObserver),
    };
    let edge = edge::Edge::start(options).expect("edge");
    let url = "http://127.0.0.1:0".to_string();
    let spec =
        edge::Spec { flag: "listen-peer-urls", url, port: edge::Port::Peer, reuse_port: false };
    let bound = edge::bind(&spec).expect("bind");
    let url = format!("http://{}", bound.local_addr().expect("an address"));
    (edge, bound, url)
}

fn serve(cluster_id: u64) -> Served {
    let (edge, bound, url) = listen();
    let told = Arc::new(Told::default());
    let identity = Identity { cluster_id, member_id: 2, feature_level: 2 };
    serve_peers((&edge, bound), identity, &url, None, told.clone());
    Served { edge, told, url }
}

/// Serves this member on a peer port; its links run on the runtime, if it has any.
fn serve_peers(
    (edge, bound): (&edge::Edge, edge::Bound),
    own: Identity,
    url: &str,
    runtime: Option<tokio::runtime::Handle>,
    local: Arc<dyn Local>,
) -> Peers {
    let urls = vec![url.to_owned()];
    let stats = Arc::new(PeerStats::default());
    let peers = Peers::new(own, urls, runtime, stats, Dialer::default(), healthy());
    let service = Service::default();
    edge.serve(vec![bound], |_, _| edge::Routes {
        rpc: Some(service.server()),
        http: axum::Router::new(),
        elsewhere: edge::Elsewhere::default(),
    });
    service.begin(&peers, local);
    peers
}

/// Member 1 of cluster 9 with a link to member 2.
fn member_one(served: &Served) -> (Peers, Arc<Told>) {
    let told = Arc::new(Told::default());
    let peers = Peers::new(
        Identity { cluster_id: 9, member_id: 1, feature_level: 2 },
        Vec::new(),
        served.edge.runtimes().first().cloned(),
        Arc::new(PeerStats::default()),
        Dialer::default(),
        healthy(),
    );
    let local: Arc<dyn Local> = told.clone();
    peers.set(&[Address { id: 2, urls: vec![served.url.clone()] }], |_| false, &local);
    (peers, told)
}

async fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let poll = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, poll).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

#[tokio::test]
async fn messages_arrive_in_order_and_the_round_trip_is_measured() {
    let served = serve(9);
    let (peers, _) = member_one(&served);
    wait_until("connected", || peers.connected_since(2).is_some()).await;
    for term in 1..=500 {
        peers.send(vec![heartbeat(1, 2, term)]);
    }
    let mut arrived = served.told.arrived.subscribe();
    tokio::time::timeout(LIMIT, arrived.wait_for(|n| *n == 500))
        .await
        .expect("in time")
        .expect("n");
    let disks = served.told.disks.lock().clone();
    let quiet = disks.iter().all(|(from, facts)| (*from, facts.in_flight_ms) == (1, 0));
    assert!(quiet && !disks.is_empty(), "every batch says how the disk is: {disks:?}");
    let terms: Vec<u64> = served.told.wires.lock().iter().map(Wire::term).collect();
    assert_eq!(terms, (1..=500).collect::<Vec<u64>>());
    let numbers = peers.stats().of(2);
    assert!(numbers.sent_bytes.load(Relaxed) > 0);
    wait_until("a pong", || numbers.round_trip.snapshot().count > 0).await;
    let answer = peers.call(2, pb::call_request::What::LeaseRenew(1)).await.expect("an answer");
    assert_eq!(answer.refused, 7);
}

/// A way to the served member whose connections can be cut.
async fn cuttable(to: &str) -> (String, watch::Sender<u32>) {
    let to = to.trim_start_matches("http://").to_owned();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (cut, cuts) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (to, mut cuts) = (to.clone(), cuts.clone());
            cuts.mark_unchanged();
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(to).await.expect("connect");
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = cuts.changed() => {}
                }
            });
        }
    });
    (url, cut)
}

/// What a proposal relies on: it may be lost, but the next connection does not bring it again.
#[tokio::test]
async fn no_message_arrives_twice_however_often_the_connection_breaks() {
    const CUTS: u32 = 15;
    let served = serve(9);
    let (url, cut) = cuttable(&served.url).await;
    // Its edge gives the link a runtime.
    let through = Served { url, ..serve(9) };
    let (peers, _) = member_one(&through);
    let mut sent = 0;
    for round in 0..CUTS {
        wait_until("connected", || peers.connected_since(2).is_some()).await;
        let before = served.told.wires.lock().len();
        let lost = peers.stats().of(2).disconnected.load(Relaxed);
        // Cut while messages are in every place between the queue and the other side.
        for _ in 0..200 {
            sent += 1;
            peers.send(vec![heartbeat(1, 2, sent)]);
            if sent % 50 == 0 {
                tokio::task::yield_now().await;
            }
        }
        wait_until("some arrive", || served.told.wires.lock().len() > before).await;
        cut.send_replace(round);
        let gone = || peers.stats().of(2).disconnected.load(Relaxed) > lost;
        wait_until("noticed", gone).await;
    }
    wait_until("connected", || peers.connected_since(2).is_some()).await;
    peers.send(vec![heartbeat(1, 2, sent + 1)]);
    let last = || served.told.wires.lock().iter().any(|wire| wire.term() == sent + 1);
    wait_until("the last one", last).await;
    let mut terms: Vec<u64> = served.told.wires.lock().iter().map(Wire::term).collect();
    let arrived = terms.len();
    terms.sort_unstable();
    terms.dedup();
    assert_eq!(terms.len(), arrived, "a message arrived twice");
}

/// A member that returns gets messages as soon as it sends some, however long others have been
/// trying to reach it: before that it can neither vote nor be elected.
#[tokio::test]
async fn who_connects_is_dialled_at_once() {
    const ROUNDS: u32 = 8;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (dialled, mut dials) = watch::channel(0);
    tokio::spawn(async move {
        // It hangs up, like a member that is only just starting.
        while let Ok((socket, _)) = listener.accept().await {
            drop(socket);
            dialled.send_modify(|dials| *dials += 1);
        }
    });
    let (edge, bound, own_url) = listen();
    let local: Arc<dyn Local> = Arc::new(Told::default());
    let identity = Identity { cluster_id: 9, member_id: 2, feature_level: 2 };
    let runtime = edge.runtimes().first().cloned();
    let peers = serve_peers((&edge, bound), identity, &own_url, runtime, local.clone());
    peers.set(&[Address { id: 1, urls: vec![url] }], |_| false, &local);
    let next = async |dials: &mut watch::Receiver<u32>, before: u32| {
        tokio::time::timeout(LIMIT, dials.wait_for(|n| *n > before))
            .await
            .expect("in time")
            .expect("n");
    };
    // The pause is the longest by then.
    next(&mut dials, 12).await;
    let began = tokio::time::Instant::now();
    for _ in 0..ROUNDS {
        let before = *dials.borrow_and_update();
        next(&mut dials, before).await;
    }
    let by_itself = began.elapsed();
    let began = tokio::time::Instant::now();
    for _ in 0..ROUNDS {
        let before = *dials.borrow_and_update();
        let channel = Dialer::default().channel(&own_url).await.expect("connect");
        let mut client = pb::peer_client::PeerClient::new(channel);
        let hello = Identity { cluster_id: 9, member_id: 1, feature_level: 2 }.to(2, Vec::new());
        let batch = pb::Batch { identity: Some(hello), ..pb::Batch::default() };
        client.messages(tokio_stream::iter([batch])).await.expect("let in");
        next(&mut dials, before).await;
    }
    let asked = began.elapsed();
    assert!(asked < by_itself / 2, "{asked:?}, by itself {by_itself:?}");
    peers.end();
}

#[tokio::test]
async fn a_member_of_another_cluster_is_refused() {
    let served = serve(8);
    let (peers, _) = member_one(&served);
    let service_said = super::ask(&Dialer::default(), std::slice::from_ref(&served.url))
        .await
        .expect("anybody may ask");
    assert_eq!((service_said.cluster_id, service_said.members.len()), (8, 1));
    peers.send(vec![heartbeat(1, 2, 1)]);
    // Two tries lie at least this far apart; neither may have connected.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(peers.connected_since(2), None);
    assert!(served.told.wires.lock().is_empty());
}

#[tokio::test]
async fn a_removed_member_is_told_so_in_the_middle_of_a_stream() {
    let served = serve(9);
    let (peers, told) = member_one(&served);
    wait_until("connected", || peers.connected_since(2).is_some()).await;
    served.told.removed.lock().push(1);
    let mut removed = told.we_are_removed.subscribe();
    peers.send(vec![heartbeat(1, 2, 1)]);
    tokio::time::timeout(LIMIT, removed.wait_for(|removed| *removed))
        .await
        .expect("in time")
        .expect("told");
    assert!(served.told.wires.lock().is_empty(), "a removed member is not listened to");
}

#[tokio::test]
async fn a_peer_that_stops_is_reported() {
    let served = serve(9);
    let (peers, told) = member_one(&served);
    wait_until("connected", || peers.connected_since(2).is_some()).await;
    served.told.stop.send_replace(true);
    wait_until("lost", || told.unreachable.lock().contains(&2)).await;
    assert_eq!(peers.stats().of(2).disconnected.load(Relaxed), 1);
}

#[test]
fn identities_that_do_not_fit_say_what_to_do() {
    let own = Identity { cluster_id: 9, member_id: 2, feature_level: 2 };
    let good = Identity { cluster_id: 9, member_id: 1, feature_level: 2 }.to(2, Vec::new());
    assert_eq!(own.check(Some(&good), 2), Ok(1));
    assert_eq!(own.check(Some(&pb::Identity { feature_level: 1, ..good.clone() }), 1), Ok(1));
    // A newer member may know more.
    assert_eq!(own.check(Some(&pb::Identity { feature_level: 7, ..good.clone() }), 2), Ok(1));
    let wrong = [
        (pb::Identity { cluster_id: 8, ..good.clone() }, "--initial-cluster-token"),
        (pb::Identity { to: 3, ..good.clone() }, "check the peer URLs"),
        (pb::Identity { from: 2, ..good.clone() }, "its own data directory"),
        (pb::Identity { format: 0, ..good.clone() }, "upgrade"),
        (pb::Identity { feature_level: 1, ..good }, "start the newer version"),
    ];
    for (said, text) in wrong {
        let refused = own.check(Some(&said), 2).expect_err("refused");
        assert!(refused.contains(text), "{refused}");
    }
    assert!(own.check(None, 1).is_err());
}

#[tokio::test]
async fn a_full_queue_drops_entries_and_lets_heartbeats_overtake() {
    let queue = Arc::new(Queue::default());
    assert_eq!(queue.offer(vec![heartbeat(1, 2, 1)]), 1, "no connection");
    let numbers = Arc::new(PeerNumbers::default());
    let hello = Identity { cluster_id: 9, member_id: 1, feature_level: 2 }.to(2, Vec::new());
    let mut first = queue.open(hello.clone(), numbers.clone(), healthy());
    assert!(first.next().await.expect("hello").identity.is_some());
    let mut dropped = 0;
    for _ in 0..12 {
        dropped += queue.offer(vec![append(1, 2, 1 << 20)]);
    }
    // 8 MiB hold seven messages of a megabyte and their fields.
    assert_eq!(dropped, 5);
    let small = heartbeat(1, 2, 1);
    let room = queue.offer(vec![small.clone()]);
    assert_eq!(room, 0, "there is room for a small one");
    let batch = first.next().await.expect("a batch");
    let kinds: Vec<WireKind> =
        batch.messages.into_iter().map(|m| Wire::decode(m).expect("message").kind()).collect();
    assert_eq!(kinds, [WireKind::Heartbeat, WireKind::Append]);
    // A new connection: the stream of the old one must not take its messages.
    assert_eq!(queue.close(), 6);
    let mut second = queue.open(hello, numbers, healthy());
    queue.offer(vec![small]);
    assert!(first.next().await.is_none());
    assert!(second.next().await.expect("hello").identity.is_some());
    assert_eq!(second.next().await.expect("a batch").messages.len(), 1);
}
