//! Leaders are killed and quorums lost: nothing acknowledged is lost, nothing stale is served.

use crate::basics::{get, put};
use crate::common::cluster::SOON;
use crate::common::{Clients, Cluster, number};
use assay::proto::etcdserverpb::watch_request::RequestUnion;
use assay::proto::etcdserverpb::{HashKvRequest, WatchCreateRequest, WatchRequest};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tonic::{Code, Request};

/// Pause of a client whose member does not answer.
const PAUSE: Duration = Duration::from_millis(20);

/// A client that writes rising numbers to a key of its own and reads them back, through one member
/// after another. Whatever was acknowledged must be there in every later linearizable read.
struct Writer {
    acked: AtomicU64,
    stop: AtomicBool,
}

async fn write(state: Arc<Writer>, urls: Vec<String>, me: usize) -> Result<(), String> {
    let key = format!("w{me}");
    let mut at = me;
    let mut clients: Option<Clients> = None;
    let mut next = 0;
    while !state.stop.load(SeqCst) {
        let Some(client) = &mut clients else {
            at += 1;
            clients = Clients::try_connect(&urls[at % urls.len()]).await.ok();
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        next += 1;
        let before = state.acked.load(SeqCst);
        match put(client, &key, &next.to_string()).await {
            Ok(_) => state.acked.store(next, SeqCst),
            Err(_) => clients = None,
        }
        let Some(client) = &mut clients else { continue };
        match get(client, &key, false).await {
            Ok(value) => {
                let value: u64 = value.and_then(|text| text.parse().ok()).unwrap_or(0);
                let acked = state.acked.load(SeqCst).max(before);
                if value < acked || value > next {
                    return Err(format!("{key}: read {value}, acknowledged {acked}, sent {next}"));
                }
            }
            Err(_) => clients = None,
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_leaders_lose_nothing() {
    const WRITERS: usize = 6;
    let kills = number("KILLS", 5);
    let mut cluster = Cluster::start(3);
    let mut leader = cluster.leader().await;
    let urls: Vec<String> = cluster.nodes.iter().map(|node| node.client_url()).collect();
    let writers: Vec<Arc<Writer>> = (0..WRITERS)
        .map(|_| Arc::new(Writer { acked: AtomicU64::new(0), stop: AtomicBool::new(false) }))
        .collect();
    let mut tasks = Vec::new();
    for (me, writer) in writers.iter().enumerate() {
        tasks.push(tokio::spawn(write(writer.clone(), urls.clone(), me)));
    }
    let acked = || writers.iter().map(|writer| writer.acked.load(SeqCst)).sum::<u64>();
    for _ in 0..kills {
        let before = acked();
        let start = Instant::now();
        while acked() < before + 50 {
            assert!(start.elapsed() < SOON, "writes do not go on");
            tokio::time::sleep(PAUSE).await;
        }
        let (id, _) = cluster.status(leader).await.expect("status");
        cluster.nodes[leader].kill();
        let next = cluster.leader_other_than(id).await;
        cluster.nodes[leader].restart();
        leader = next;
    }
    for writer in &writers {
        writer.stop.store(true, SeqCst);
    }
    for task in tasks {
        task.await.expect("writer").expect("no stale read and no lost write");
    }
    let mut hashes = Vec::new();
    for at in 0..3 {
        let mut clients = cluster.clients(at).await;
        for (me, writer) in writers.iter().enumerate() {
            let value = get(&mut clients, &format!("w{me}"), false).await.expect("get");
            let value: u64 = value.expect("a value").parse().expect("a number");
            assert!(value >= writer.acked.load(SeqCst), "member {at}, writer {me}");
        }
        let hash = clients.maintenance.hash_kv(HashKvRequest::default()).await.expect("hash");
        let hash = hash.into_inner();
        hashes.push((hash.hash, hash.hash_revision, hash.compact_revision));
    }
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:x?}");
    eprintln!("{kills} kills, {} acknowledged writes", acked());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_only_serializable_reads_are_answered() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    let mut clients = cluster.clients(leader).await;
    put(&mut clients, "k", "1").await.expect("put");
    let create = WatchCreateRequest { key: "k".into(), ..WatchCreateRequest::default() };
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let mut watch = Request::new(tokio_stream::iter([create]));
    watch.metadata_mut().insert("hasleader", "true".parse().expect("ascii"));
    let mut watch = clients.watch.watch(watch).await.expect("watch").into_inner();
    assert!(watch.message().await.expect("created").expect("an answer").created);
    let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    for at in &others {
        cluster.nodes[*at].kill();
    }
    // Three election timeouts without a leader end a watch that requires one.
    let ended = loop {
        match watch.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the watch ended without a status"),
            Err(status) => break status,
        }
    };
    assert_eq!((ended.code(), ended.message()), (Code::Unavailable, "etcdserver: no leader"));
    let write = put(&mut clients, "k", "2").await.expect_err("no quorum");
    assert_eq!(write.code(), Code::Unavailable, "{write:?}");
    assert!(write.message().starts_with("etcdserver: request timed out"), "{write:?}");
    let read = get(&mut clients, "k", false).await.expect_err("no quorum");
    assert_eq!(read.code(), Code::Unavailable, "{read:?}");
    let value = get(&mut clients, "k", true).await.expect("a local read");
    assert_eq!(value.as_deref(), Some("1"));
    for at in others {
        cluster.nodes[at].respawn();
    }
    let start = Instant::now();
    while put(&mut clients, "k", "3").await.is_err() {
        assert!(start.elapsed() < SOON, "the cluster does not heal");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_follower_slows_nobody_and_catches_up() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    let mut clients = cluster.clients(leader).await;
    cluster.nodes[follower].signal(Signal::SIGSTOP);
    let value = "x".repeat(100_000);
    for n in 0..200 {
        put(&mut clients, &format!("k{n}"), &value).await.expect("two of three are enough");
    }
    cluster.nodes[follower].signal(Signal::SIGCONT);
    let mut back = cluster.clients(follower).await;
    let start = Instant::now();
    loop {
        match get(&mut back, "k199", false).await {
            Ok(found) => {
                assert_eq!(found.map(|text| text.len()), Some(value.len()));
                break;
            }
            Err(status) => assert!(start.elapsed() < SOON, "{status:?}"),
        }
    }
}
