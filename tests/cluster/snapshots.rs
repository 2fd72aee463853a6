//! Members that are too far behind for the log get the whole state, and are right afterwards.

use crate::basics::{get, put};
use crate::common::cluster::{SOON, Seat};
use crate::common::{Clients, Cluster, Launch, event};
use assay::proto::etcdserverpb::watch_request::RequestUnion;
use assay::proto::etcdserverpb::{
    CompactionRequest, HashKvRequest, LeaseGrantRequest, LeaseTimeToLiveRequest, MemberAddRequest,
    PutRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use tonic::Streaming;

pub(crate) const INSTALLED: &str = "installed a snapshot";
/// Writes that a log of ten entries forgets, together more than one peer's queue holds.
const WRITES: usize = 150;

/// Pauses until one of them was long enough for the log.
const ROUNDS: usize = 10;

/// Logs keep so little that whoever misses a few writes needs a snapshot.
pub(crate) fn forgetful(launch: Launch) -> Launch {
    launch.arg("--snapshot-catchup-entries=10")
}

pub(crate) async fn fill(clients: &mut Clients, from: usize) -> i64 {
    let value = "v".repeat(250_000);
    let mut revision = 0;
    for n in from..from + WRITES {
        revision = put(clients, &format!("k{n:05}"), &value).await.expect("put");
    }
    revision
}

async fn watch(clients: &mut Clients, from: i64) -> Streaming<WatchResponse> {
    let create = WatchCreateRequest {
        key: "k".into(),
        range_end: "l".into(),
        start_revision: from,
        ..WatchCreateRequest::default()
    };
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    // The request stream stays open: its end would be the client's goodbye.
    let request = tokio_stream::StreamExt::chain(
        tokio_stream::iter([create]),
        tokio_stream::pending::<WatchRequest>(),
    );
    clients.watch.watch(request).await.expect("watch").into_inner()
}

/// Revisions of events up to `last`, each exactly once and in order.
async fn revisions(watch: &mut Streaming<WatchResponse>, last: i64) -> Vec<i64> {
    let mut seen: Vec<i64> = Vec::new();
    while seen.last().is_none_or(|seen| *seen < last) {
        let next = tokio::time::timeout(SOON, watch.message()).await.expect("events in time");
        let response = next.expect("no error").expect("no end");
        assert!(!response.canceled, "{response:?}");
        for bytes in &response.events {
            let (_, row, _) = event(bytes);
            seen.push(row.expect("a row").mod_revision);
        }
    }
    seen
}

pub(crate) async fn hashes_agree(cluster: &Cluster, revision: i64) {
    let mut hashes = Vec::new();
    for at in 0..cluster.nodes.len() {
        let mut clients = cluster.clients(at).await;
        get(&mut clients, "k", false).await.expect("caught up");
        let hash = HashKvRequest { revision };
        let hash = clients.maintenance.hash_kv(hash).await.expect("hash").into_inner();
        hashes.push((hash.hash, hash.hash_revision));
    }
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:x?}");
}

pub(crate) async fn wait_installed(cluster: &mut Cluster, at: usize, times: usize) {
    let start = Instant::now();
    while cluster.nodes[at].log().matches(INSTALLED).count() < times {
        assert!(cluster.nodes[at].is_running(), "{}", cluster.nodes[at].log());
        assert!(start.elapsed() < SOON, "no snapshot was installed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_away_gets_the_state_with_leases_and_history() {
    let mut cluster = Cluster::start_with(3, forgetful);
    let leader = cluster.leader().await;
    let away = (leader + 1) % 3;
    let mut clients = cluster.clients(leader).await;
    put(&mut clients, "k", "first").await.expect("put");
    cluster.nodes[away].kill();
    let grant = LeaseGrantRequest { ttl: 1000, id: 77 };
    clients.lease.lease_grant(grant).await.expect("grant");
    let leased = PutRequest { key: "leased".into(), lease: 77, ..PutRequest::default() };
    clients.kv.put(leased).await.expect("put");
    let last = fill(&mut clients, 0).await;
    let compact = CompactionRequest { revision: last - 100, physical: true };
    clients.kv.compact(compact).await.expect("compact");
    cluster.nodes[away].respawn();
    wait_installed(&mut cluster, away, 1).await;
    cluster.nodes[away].wait_ready();
    hashes_agree(&cluster, last).await;
    let mut back = cluster.clients(away).await;
    assert_eq!(get(&mut back, "k", true).await.expect("get").as_deref(), Some("first"));
    // What is left of history can be watched, what is compacted says so.
    let mut all = watch(&mut back, last - 50).await;
    let expected: Vec<i64> = (last - 50..=last).collect();
    assert_eq!(revisions(&mut all, last).await, expected);
    let mut old = watch(&mut back, 2).await;
    let created = old.message().await.expect("created").expect("an answer");
    assert!(created.created);
    let gone = old.message().await.expect("gone").expect("an answer");
    assert!(gone.canceled && gone.compact_revision == last - 100, "{gone:?}");
    // It goes on by the log, survives a kill, and can lead with the leases it was given.
    let more = fill(&mut clients, 500).await;
    hashes_agree(&cluster, more).await;
    cluster.nodes[away].kill();
    cluster.nodes[away].restart();
    hashes_agree(&cluster, more).await;
    let (id, _) = cluster.status(away).await.expect("status");
    let order = assay::proto::etcdserverpb::MoveLeaderRequest { target_id: id };
    let current = cluster.leader().await;
    let mut clients = cluster.clients(current).await;
    if current != away {
        clients.maintenance.move_leader(order).await.expect("move");
    }
    let start = Instant::now();
    let lease = loop {
        let ask = LeaseTimeToLiveRequest { id: 77, keys: true };
        let mut back = cluster.clients(away).await;
        match back.lease.lease_time_to_live(ask).await {
            Ok(answer) if answer.get_ref().ttl > 0 => break answer.into_inner(),
            other => assert!(start.elapsed() < SOON, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((lease.granted_ttl, lease.keys), (1000, vec!["leased".into()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_member_takes_a_snapshot_over_while_it_serves() {
    let mut cluster = Cluster::start_with(3, forgetful);
    let leader = cluster.leader().await;
    let paused = (leader + 1) % 3;
    let mut clients = cluster.clients(leader).await;
    let first = put(&mut clients, "k", "first").await.expect("put");
    let mut back = cluster.clients(paused).await;
    get(&mut back, "k", false).await.expect("it has the first write");
    let mut events = watch(&mut back, first).await;
    assert_eq!(revisions(&mut events, first).await, [first]);
    // What sockets and queues hold may be enough to catch up without; not every time.
    for round in 0.. {
        cluster.nodes[paused].signal(Signal::SIGSTOP);
        let last = fill(&mut clients, 1000 * round).await;
        cluster.nodes[paused].signal(Signal::SIGCONT);
        let from = last - WRITES as i64 + 1;
        let expected: Vec<i64> = (from..=last).collect();
        assert_eq!(revisions(&mut events, last).await, expected, "round {round}");
        hashes_agree(&cluster, last).await;
        if round >= 2 && cluster.nodes[paused].log().contains(INSTALLED) {
            return;
        }
        assert!(round < ROUNDS, "no snapshot was installed:\n{}", cluster.logs());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_joins_by_snapshot_while_writes_go_on() {
    let mut cluster = Cluster::start_with(1, forgetful);
    let mut clients = cluster.clients(0).await;
    fill(&mut clients, 0).await;
    let seat = Seat::free("m1");
    let add = MemberAddRequest { peer_ur_ls: vec![seat.peer_url()], is_learner: true };
    clients.cluster.member_add(add).await.expect("add");
    let mut seats = cluster.seats.clone();
    seats.push(seat.clone());
    let named = cluster.initial_cluster(&seats);
    let joined = cluster.launch(&seat, &named, "existing").spawn();
    cluster.nodes.push(joined);
    cluster.seats = seats;
    let last = fill(&mut clients, 500).await;
    wait_installed(&mut cluster, 1, 1).await;
    cluster.nodes[1].wait_ready();
    let mut learner = cluster.clients(1).await;
    let start = Instant::now();
    let key = format!("k{:05}", 500 + WRITES - 1);
    while get(&mut learner, &key, true).await.expect("get").is_none() {
        assert!(start.elapsed() < SOON, "the learner does not catch up to {last}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
