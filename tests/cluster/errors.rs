//! What clients are told whose requests time out: the text says what probably happened.

use crate::basics::{get, put};
use crate::common::cluster::SOON;
use crate::common::{Cluster, http_get};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tonic::Code;

const LEADER_FAIL: &str = "etcdserver: request timed out, possibly due to previous leader failure";
const CONNECTION_LOST: &str = "etcdserver: request timed out, possibly due to connection lost";
const TIMED_OUT: &str = "etcdserver: request timed out";
const LEADER_CHANGED: &str = "etcdserver: leader changed";

/// Writes that were sent on to a leader that no longer answers are lost with it. Those from the last
/// moments before the next one is elected learn of it; the leader that is gone must not come back,
/// or it would still carry them out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_died_with_the_leader_says_so() {
    // Two election timeouts are the window: a long one leaves room for a slow election.
    let mut cluster = Cluster::start_with(3, |launch| launch.arg("--election-timeout=5000"));
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    let (id, _) = cluster.status(leader).await.expect("status");
    let mut clients = cluster.clients(follower).await;
    put(&mut clients, "k", "0").await.expect("put");
    // It still takes what the others send, and does nothing with it.
    cluster.nodes[leader].signal(Signal::SIGSTOP);
    let mut writes = JoinSet::new();
    let start = Instant::now();
    while cluster.status(follower).await.is_some_and(|(_, leader)| leader == id) {
        assert!(start.elapsed() < SOON, "nobody misses the leader");
        let mut clients = clients.clone();
        let key = format!("k{}", writes.len());
        writes.spawn(async move { put(&mut clients, &key, "1").await });
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.nodes[leader].kill();
    let mut said = Vec::new();
    while let Some(answer) = writes.join_next().await {
        if let Err(status) = answer.expect("a task") {
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
            said.push(status.message().to_owned());
        }
    }
    assert!(said.iter().any(|text| text == LEADER_FAIL), "{said:?}");
    let allowed = [LEADER_FAIL, TIMED_OUT, CONNECTION_LOST];
    assert!(said.iter().all(|text| allowed.contains(&text.as_str())), "{said:?}");
    put(&mut clients, "k", "2").await.expect("the next leader takes writes");
}

/// A write that could not be sent on, because the connection to the leader was down, although the
/// leader never changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_a_connection_to_the_leader_says_so() {
    // A connection counts as dead after five silent seconds, which nobody must take for a dead leader.
    // Its later attempts are told in debug lines only.
    let mut cluster = Cluster::start_with(3, |launch| {
        launch.arg("--election-timeout=20000").arg("--log-level=debug")
    });
    let leader = cluster.leader().await;
    let (id, _) = cluster.status(leader).await.expect("status");
    let follower = (leader + 1) % 3;
    let mut clients = cluster.clients(follower).await;
    put(&mut clients, "k", "0").await.expect("put");
    let lost = |log: &str| log.matches("no connection to a peer").count();
    let before = lost(&cluster.nodes[follower].log());
    cluster.nodes[leader].signal(Signal::SIGSTOP);
    cluster.nodes[follower].wait_log(SOON, |log| lost(log) > before);
    let mut writer = clients.clone();
    let write = tokio::spawn(async move { put(&mut writer, "k", "1").await });
    // What the member has taken in it sends on at once, or cannot.
    let start = Instant::now();
    let url = cluster.nodes[follower].metrics_url();
    let pending = || {
        let (_, text) = http_get(&url, "/metrics").expect("metrics");
        text.lines().any(|line| line == "etcd_server_proposals_pending 1")
    };
    while !pending() {
        assert!(start.elapsed() < SOON, "the write did not arrive");
    }
    // The leader's kernel still accepts connections: what was sent into one is lost with it, when it
    // too has been silent for too long.
    let before = lost(&cluster.nodes[follower].log());
    cluster.nodes[follower].wait_log(SOON, |log| lost(log) > before);
    cluster.nodes[leader].signal(Signal::SIGCONT);
    let status = write.await.expect("a task").expect_err("it was never sent");
    assert_eq!((status.code(), status.message()), (Code::Unavailable, CONNECTION_LOST));
    assert_eq!(cluster.leader().await, leader, "the leader never changed");
    assert_eq!(cluster.status(follower).await.map(|(_, leader)| leader), Some(id));
    assert_eq!(get(&mut clients, "k", false).await.expect("a read").as_deref(), Some("0"));
    put(&mut clients, "k", "2").await.expect("all is well again");
}

/// Without a quorum there is nobody whose failure could be named. A read asks a new leader by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_writes_and_reads_just_time_out() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    let mut clients = cluster.clients(leader).await;
    put(&mut clients, "k", "0").await.expect("put");
    for at in [(leader + 1) % 3, (leader + 2) % 3] {
        cluster.nodes[at].kill();
    }
    let start = Instant::now();
    while cluster.status(leader).await.is_none_or(|(_, leader)| leader != 0) {
        assert!(start.elapsed() < SOON, "it still leads");
    }
    let mut reader = clients.clone();
    let read = tokio::spawn(async move { get(&mut reader, "k", false).await });
    let status = put(&mut clients, "k", "1").await.expect_err("no quorum");
    assert_eq!((status.code(), status.message()), (Code::Unavailable, TIMED_OUT));
    let status = read.await.expect("a task").expect_err("no quorum");
    assert_eq!((status.code(), status.message()), (Code::Unavailable, TIMED_OUT));
    // A read that waits while a quorum comes back is answered.
    let mut reader = clients.clone();
    let read = tokio::spawn(async move { get(&mut reader, "k", false).await });
    for at in [(leader + 1) % 3, (leader + 2) % 3] {
        cluster.nodes[at].respawn();
    }
    match read.await.expect("a task") {
        Ok(value) => assert!(value.is_some_and(|value| value == "0" || value == "1")),
        // On a machine that took too long for it.
        Err(status) => assert!([TIMED_OUT, LEADER_CHANGED].contains(&status.message())),
    }
}
