//! What a fenced member does not do, and who leads around it.

use crate::basics::{get, put};
use crate::common::cluster::SOON;
use crate::common::{Clients, Cluster, http_get};
use crate::divergence::{FENCED, alarms, metric, rotten_follower, until};
use assay::proto::etcdserverpb::{AlarmMember, AlarmRequest, MoveLeaderRequest};
use std::time::{Duration, Instant};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Several election timeouts, within which somebody who stands for election has done so.
const ELECTIONS: Duration = Duration::from_secs(5);
const CORRUPT: i32 = 2;
const DISARM: i32 = 2;

/// Three members of which one is fenced: places of the leader, the fenced one and the third, and
/// the fenced one's id.
async fn fenced(cluster: &mut Cluster) -> (usize, usize, usize, u64) {
    let (_, odd, id) = rotten_follower(cluster).await;
    cluster.nodes[odd].restart();
    cluster.nodes[odd].wait_log(SOON, |log| log.contains(FENCED));
    let leader = cluster.leader().await;
    (leader, odd, 3 - leader - odd, id)
}

/// What the gRPC health service of a member says.
async fn health(cluster: &Cluster, at: usize) -> ServingStatus {
    let endpoint = tonic::transport::Endpoint::from_shared(cluster.nodes[at].client_url());
    let channel = endpoint.expect("a URL").connect().await.expect("connect");
    let mut client = HealthClient::new(channel);
    let answer = client.check(HealthCheckRequest::default()).await.expect("an answer");
    answer.into_inner().status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_elects_nobody_and_is_not_elected_after_a_kill_as_well() {
    let mut cluster = Cluster::start(3);
    let (leader, odd, other, _) = fenced(&mut cluster).await;
    // Nothing but log and store carries the fence over.
    cluster.nodes[odd].kill();
    cluster.nodes[odd].restart();
    let twice = |log: &str| log.matches(FENCED).count() >= 2;
    cluster.nodes[odd].wait_log(SOON, twice);
    assert_eq!(metric(&cluster, odd, "assay_divergence_fenced"), 1.0);

    // Nothing is left to be applied again at the next start.
    until("the store has it all", async || {
        let vars = http_get(&cluster.nodes[odd].client_url(), "/debug/vars").expect("vars").1;
        let vars: serde_json::Value = serde_json::from_str(&vars).expect("JSON");
        let raft = &vars["raft.status"];
        raft["applied"].is_u64() && raft["applied"] == raft["durable"]
    })
    .await;
    // It starts while nobody leads, so that nothing but its own store tells it.
    cluster.nodes[leader].kill();
    cluster.nodes[odd].kill();
    cluster.nodes[odd].respawn();
    until("the loss of the leader", async || {
        cluster.status(other).await.is_some_and(|(_, leads)| leads == 0)
    })
    .await;
    let start = Instant::now();
    while start.elapsed() < ELECTIONS {
        let status = cluster.status(other).await;
        let leads = status.map_or(0, |(_, leads)| leads);
        assert_eq!(leads, 0, "elected with the vote of a fenced member, or that one itself");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut sound = cluster.clients(other).await;
    let value = get(&mut sound, "k", true).await.expect("a serializable read");
    assert_eq!(value.as_deref(), Some("value-07"));

    cluster.nodes[leader].restart();
    cluster.nodes[odd].wait_ready();
    let leads = cluster.leader().await;
    assert_ne!(leads, odd);
    put(&mut cluster.clients(leads).await, "after", "1").await.expect("put");
    let mut clients = cluster.clients(odd).await;
    assert!(get(&mut clients, "k", true).await.is_err(), "fenced as before");
    let led = cluster.nodes[odd].log().matches("this member became the leader").count();
    assert_eq!(led, 0);

    // It is told that nobody leads, as everybody is.
    cluster.nodes[leads].kill();
    cluster.nodes[3 - leads - odd].kill();
    until("the loss is seen", async || {
        cluster.status(odd).await.is_some_and(|(_, leads)| leads == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_not_handed_to_it() {
    let mut cluster = Cluster::start(3);
    let (leader, _, other, id) = fenced(&mut cluster).await;
    let mut clients = cluster.clients(leader).await;
    let moved = clients.maintenance.move_leader(MoveLeaderRequest { target_id: id }).await;
    let error = moved.expect_err("refused");
    assert!(error.message().contains("bad leader transferee"), "{error:?}");
    // The fenced one has been connected longest, which a leader that stops goes by.
    cluster.nodes[other].terminate(SOON);
    cluster.nodes[other].restart();
    let (sound, _) = cluster.status(other).await.expect("status");
    assert_eq!(cluster.leader().await, leader);
    until("it is connected", async || metric(&cluster, leader, "assay_cluster_voters") == 3.0)
        .await;
    put(&mut cluster.clients(other).await, "through", "it").await.expect("put");
    assert!(cluster.nodes[leader].terminate(SOON).success());
    let log = cluster.nodes[leader].log();
    let line = log.lines().find(|line| line.contains("handed leadership over")).expect("a line");
    assert!(line.contains(&format!("{sound:x}")), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_disarmed_serves_until_it_is_found_again() {
    let mut cluster = Cluster::start(3);
    let (leader, odd, other, id) = fenced(&mut cluster).await;
    assert_eq!(health(&cluster, odd).await, ServingStatus::NotServing);
    assert_eq!(health(&cluster, other).await, ServingStatus::Serving);
    let mut clients = cluster.clients(leader).await;
    let disarm = AlarmRequest { action: DISARM, member_id: id, alarm: CORRUPT };
    let done = clients.maintenance.alarm(disarm).await.expect("disarmed").into_inner();
    assert_eq!(done.alarms, [AlarmMember { member_id: id, alarm: CORRUPT }]);
    cluster.nodes[odd].wait_log(SOON, |log| log.contains("is not fenced any more"));
    // It differs as before.
    let again = |log: &str| log.matches(FENCED).count() >= 2;
    cluster.nodes[odd].wait_log(SOON, again);
    until("the alarm", async || {
        alarms(&cluster, leader).await == [AlarmMember { member_id: id, alarm: CORRUPT }]
    })
    .await;
    let mut clients = Clients::connect(&cluster.nodes[odd].client_url()).await;
    assert!(get(&mut clients, "k", true).await.is_err());
}
