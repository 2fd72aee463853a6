//! Comparisons and fences while members come and go: under one leader, who is there is compared, who
//! left is not asked, and nothing that was said of a member meets the one that comes in its place.

use crate::basics::{get, put};
use crate::common::cluster::{SOON, Seat};
use crate::common::{Cluster, rot};
use crate::divergence::{FENCED, alarms, compared, metric, rotten_follower, until};
use crate::members::when_ready;
use crate::snapshots::{INSTALLED, fill, forgetful, wait_installed};
use assay::proto::etcdserverpb::{
    AlarmMember, MemberAddRequest, MemberRemoveRequest, StatusRequest,
};

/// Adds a learner in this seat and starts it; returns its place and id.
async fn join(cluster: &mut Cluster, leader: usize, seat: &Seat) -> (usize, u64) {
    let mut clients = cluster.clients(leader).await;
    let add = MemberAddRequest { peer_ur_ls: vec![seat.peer_url()], is_learner: true };
    let added = when_ready(async || clients.cluster.member_add(add.clone()).await).await;
    let id = added.into_inner().member.expect("the member").id;
    let known = cluster.seats.iter().position(|other| other.name == seat.name);
    if known.is_none() {
        cluster.seats.push(seat.clone());
    }
    let named = cluster.initial_cluster(&cluster.seats);
    let node = cluster.launch(seat, &named, "existing").start();
    match known {
        Some(at) => cluster.nodes[at] = node,
        None => cluster.nodes.push(node),
    }
    (known.unwrap_or(cluster.nodes.len() - 1), id)
}

/// Waits until the leader has said that this member's data is equal to its own.
fn wait_equal(cluster: &mut Cluster, leader: usize, id: u64) {
    let member = format!("{id:x}");
    cluster.nodes[leader].wait_log(SOON, |log| {
        let mut lines = log.lines().filter(|line| line.contains("is equal to this leader's"));
        lines.any(|line| line.contains(&member))
    });
}

async fn term(cluster: &Cluster, at: usize) -> u64 {
    let mut clients = cluster.clients(at).await;
    clients.maintenance.status(StatusRequest {}).await.expect("status").into_inner().raft_term
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_is_compared_and_who_left_is_not_asked() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    put(&mut cluster.clients(leader).await, "k", "value-07").await.expect("put");
    until("all equal", async || {
        metric(&cluster, leader, "assay_divergence_all_equal_timestamp_seconds") > 0.0
    })
    .await;
    let led = term(&cluster, leader).await;
    let seat = Seat::free("m3");
    let (at, id) = join(&mut cluster, leader, &seat).await;
    wait_equal(&mut cluster, leader, id);

    // It is judged as everybody is.
    assert!(cluster.nodes[at].terminate(SOON).success());
    rot(cluster.nodes[at].data_dir(), "value-07");
    cluster.nodes[at].respawn();
    cluster.nodes[at].wait_log(SOON, |log| log.contains(FENCED));
    let corrupt = AlarmMember { member_id: id, alarm: 2 };
    until("the alarm", async || alarms(&cluster, leader).await == [corrupt]).await;

    // It leaves, and everything that was said of it.
    let mut clients = cluster.clients(leader).await;
    when_ready(async || clients.cluster.member_remove(MemberRemoveRequest { id }).await).await;
    cluster.nodes[at].wait_exit(SOON);
    for sound in 0..3 {
        until("the end of the fence", async || {
            metric(&cluster, sound, "assay_divergence_fenced_members") == 0.0
        })
        .await;
    }
    assert!(alarms(&cluster, leader).await.is_empty());
    let equal = compared(&cluster, leader, "equal");
    // The look that was going on may have missed it.
    until("a look", async || compared(&cluster, leader, "equal") >= equal + 4.0).await;
    let (equal, unknown) =
        (compared(&cluster, leader, "equal"), compared(&cluster, leader, "unknown"));
    until("two more looks", async || compared(&cluster, leader, "equal") >= equal + 4.0).await;
    let asked = compared(&cluster, leader, "unknown");
    assert_eq!(asked.to_bits(), unknown.to_bits(), "somebody is asked who is not there");

    // The same place again, another member: whole, and compared anew.
    std::fs::remove_dir_all(cluster.nodes[at].data_dir()).expect("wipe");
    let (at, again) = join(&mut cluster, leader, &seat).await;
    assert_ne!(id, again);
    wait_equal(&mut cluster, leader, again);
    assert!(!cluster.nodes[at].log().contains(FENCED), "{}", cluster.nodes[at].log());
    let value = get(&mut cluster.clients(at).await, "k", true).await.expect("it serves");
    assert_eq!(value.as_deref(), Some("value-07"));
    assert_eq!(metric(&cluster, at, "assay_divergence_fenced"), 0.0);
    assert_eq!(term(&cluster, leader).await, led, "another leadership begins with what it sees");
}

/// A member that was away while another was fenced, and gets a snapshot in place of the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_is_known_to_who_comes_by_snapshot() {
    const FENCED_MEMBERS: &str = "assay_divergence_fenced_members";
    let mut cluster = Cluster::start_with(3, forgetful);
    let leader = cluster.leader().await;
    let (learner, _) = join(&mut cluster, leader, &Seat::free("m3")).await;
    cluster.nodes[learner].kill();
    let (leader, odd, _) = rotten_follower(&mut cluster).await;
    cluster.nodes[odd].restart();
    cluster.nodes[odd].wait_log(SOON, |log| log.contains(FENCED));
    fill(&mut cluster.clients(leader).await, 0).await;
    let before = cluster.nodes[learner].log().matches(INSTALLED).count();
    cluster.nodes[learner].respawn();
    wait_installed(&mut cluster, learner, before + 1).await;
    cluster.nodes[learner].wait_ready();
    assert_eq!(metric(&cluster, learner, FENCED_MEMBERS), 1.0);
}
