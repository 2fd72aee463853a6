//! Levels of commands: raised when all members know the next one and somebody says so, and a member
//! that meets a command above its own stops before it applies it.

use crate::common::cluster::Seat;
use crate::common::{Cluster, Launch, Node, Program, http_post};
use crate::members::SOON;
use crate::rolling::{LEVEL, level, lowered, present};
use assay::proto::etcdserverpb::{MemberAddRequest, PutRequest, RangeRequest};
use std::time::Instant;

const FINALIZE: &str = "/debug/upgrade/finalize";
/// Exit code for "only a newer version goes on".
const NEWER: i32 = 78;

fn finalize(node: &Node) -> (u16, String) {
    http_post(&node.client_url(), FINALIZE, "").expect("an answer")
}

/// Finalizes on the leader, whoever it is by now. The others are connected within a second.
async fn finalize_on_leader(cluster: &mut Cluster) -> (u16, String) {
    let start = Instant::now();
    loop {
        let leader = cluster.leader().await;
        let (code, text) = finalize(&cluster.nodes[leader]);
        let passing = text.contains("does not lead") || text.contains("is not connected");
        if !passing {
            return (code, text);
        }
        assert!(start.elapsed() < SOON, "{text}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_cluster_begins_at_the_level_of_its_founders() {
    assert_eq!(level(&Launch::assay().start(), "cluster"), 2, "before it is ready");
    let cluster = Cluster::start(3);
    let start = Instant::now();
    while (0..3).any(|at| level(&cluster.nodes[at], "cluster") != 2) {
        assert!(start.elapsed() < SOON, "nobody raised it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_level_rises_when_all_members_know_it_and_somebody_says_so() {
    let mut cluster = Cluster::start_with(3, lowered);
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    for at in (0..3).filter(|at| *at != follower) {
        cluster.nodes[at].terminate(SOON);
        cluster.nodes[at].relaunch_with(present);
        cluster.nodes[at].restart();
    }
    let (code, text) = finalize_on_leader(&mut cluster).await;
    assert_eq!(code, 409, "{text}");
    assert!(text.contains("knows no higher one"), "{text}");
    let leader = cluster.leader().await;
    let (code, text) = finalize(&cluster.nodes[(leader + 1) % 3]);
    assert_eq!(code, 409);
    assert!(text.contains(&cluster.nodes[leader].client_url()), "names the leader: {text}");
    for at in 0..3 {
        assert_eq!(level(&cluster.nodes[at], "cluster"), 1);
    }
    // A member that is away may be of any version.
    cluster.nodes[follower].terminate(SOON);
    let start = Instant::now();
    loop {
        let leader = cluster.leader().await;
        let (code, text) = finalize(&cluster.nodes[leader]);
        assert_eq!(code, 409, "{text}");
        if text.contains("is not connected") {
            break;
        }
        assert!(start.elapsed() < SOON, "{text}");
    }
    cluster.nodes[follower].relaunch_with(present);
    cluster.nodes[follower].restart();
    // A page elsewhere could make a browser send it.
    let url = cluster.nodes[leader].client_url();
    let origin = "origin: http://elsewhere\r\n";
    assert_eq!(http_post(&url, FINALIZE, origin).expect("an answer").0, 403);
    let (code, text) = finalize_on_leader(&mut cluster).await;
    assert_eq!(code, 200, "{text}");
    let start = Instant::now();
    while (0..3).any(|at| level(&cluster.nodes[at], "cluster") != 2) {
        assert!(start.elapsed() < SOON, "not applied everywhere");
    }
    assert!((0..3).all(|at| level(&cluster.nodes[at], "program") == 2));
    // It is in the store by the end: the version before does not start on it.
    cluster.nodes[follower].terminate(SOON);
    cluster.nodes[follower].relaunch_with(lowered);
    cluster.nodes[follower].respawn();
    let ended = cluster.nodes[follower].wait_exit(SOON);
    assert_eq!(ended.code(), Some(NEWER));
    let log = cluster.nodes[follower].log();
    assert!(log.contains("start the newer version again"), "{log}");
    cluster.nodes[follower].relaunch_with(present);
    cluster.nodes[follower].restart();
    assert_eq!(level(&cluster.nodes[follower], "cluster"), 2);
    // Nor does it join.
    let leader = cluster.leader().await;
    let mut clients = cluster.clients(leader).await;
    let seat = Seat::free("m3");
    let add = MemberAddRequest { peer_ur_ls: vec![seat.peer_url()], is_learner: true };
    let start = Instant::now();
    while let Err(status) = clients.cluster.member_add(add.clone()).await {
        assert!(start.elapsed() < SOON, "{status:?}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let seats = [&cluster.seats[..], std::slice::from_ref(&seat)].concat();
    let named = cluster.initial_cluster(&seats);
    let mut below = lowered(cluster.launch(&seat, &named, "existing")).spawn();
    assert_eq!(below.wait_exit(SOON).code(), Some(NEWER), "{}", below.log());
    assert!(below.log().contains("cannot join cluster"), "{}", below.log());
    assert!(below.log().contains("it uses commands of feature level 2"), "{}", below.log());
    clients.kv.put(PutRequest { key: "k".into(), ..PutRequest::default() }).await.expect("put");
}

/// The command is in the log, its effects are not in the store: as after a power cut of a member
/// that is then started with the version before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_above_the_own_level_stops_the_member_before_it_is_applied() {
    let home = tempfile::Builder::new().prefix("assay-upgrade-").tempdir().expect("temp dir");
    // The store commits when it is told to.
    let launch =
        Launch::assay().data_dir(&home.path().join("data")).arg("--backend-batch-interval=1h");
    let mut node = lowered(launch).start();
    node.terminate(SOON);
    node.relaunch_with(present);
    node.restart();
    let mut clients = node.clients().await;
    let put = |key: &'static str| PutRequest { key: key.into(), ..PutRequest::default() };
    clients.kv.put(put("before")).await.expect("put");
    let (code, text) = finalize(&node);
    assert_eq!(code, 200, "{text}");
    clients.kv.put(put("behind")).await.expect("put");
    node.kill();
    // Twice: it neither skips the command nor counts it as applied.
    for _ in 0..2 {
        node.relaunch_with(lowered);
        node.respawn();
        let ended = node.wait_exit(SOON);
        assert_eq!(ended.code(), Some(NEWER), "{}", node.log());
        node.relaunch_with(|launch| launch.without_env(LEVEL));
    }
    let log = node.log();
    assert!(log.contains("needs feature level 2, this program knows up to 1"), "{log}");
    assert!(log.contains("start a newer version of the program on the same data"), "{log}");
    // The landing before says less, and stops as well.
    if let Some(path) = crate::rolling::previous() {
        node.relaunch_with(|launch| launch.program(Program::Build(path)));
        node.respawn();
        assert!(!node.wait_exit(SOON).success(), "it must not go on");
        node.relaunch_with(present);
    }
    node.restart();
    let mut clients = node.clients().await;
    for key in ["before", "behind"] {
        let range = RangeRequest { key: key.into(), ..RangeRequest::default() };
        let answer = clients.kv.range(range).await.expect("range").into_inner();
        assert_eq!(answer.count, 1, "{key}");
    }
    let (code, text) = finalize(&node);
    assert_eq!(code, 409, "the level is 2: {text}");
}
