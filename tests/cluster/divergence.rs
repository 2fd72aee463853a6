//! Members whose data differs from the others': they are found, named and fenced, the others go on.

use crate::basics::{get, put};
use crate::common::cluster::{SOON, Seat};
use crate::common::{Cluster, Etcdctl, Launch, Tool, http_get, rot};
use crate::snapshots::hashes_agree;
use assay::proto::etcdserverpb::{
    AlarmMember, AlarmRequest, MemberAddRequest, MemberRemoveRequest, MoveLeaderRequest,
};
use std::time::{Duration, Instant};
use tonic::Code;

/// Pause before something is looked at again.
const POLL: Duration = Duration::from_millis(100);
/// What a fenced member says in its log.
pub(crate) const FENCED: &str = "is fenced: its data differs";

pub(crate) async fn alarms(cluster: &Cluster, at: usize) -> Vec<AlarmMember> {
    let mut clients = cluster.clients(at).await;
    clients.maintenance.alarm(AlarmRequest::default()).await.expect("list").into_inner().alarms
}

pub(crate) async fn until(what: &str, mut found: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !found().await {
        assert!(start.elapsed() < SOON, "not in time: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// A series of the exposition without labels.
pub(crate) fn metric(cluster: &Cluster, at: usize, name: &str) -> f64 {
    let (_, text) = http_get(&cluster.nodes[at].metrics_url(), "/metrics").expect("metrics");
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).expect("the series");
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_stored_row_changed_is_fenced_and_replaced_while_the_others_go_on() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    let (odd, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut clients = cluster.clients(leader).await;
    for n in 0..20 {
        put(&mut clients, &format!("k{n:02}"), &format!("value-{n:02}")).await.expect("put");
    }
    let (id, _) = cluster.status(odd).await.expect("status");
    get(&mut cluster.clients(odd).await, "k19", false).await.expect("caught up");
    assert!(cluster.nodes[odd].terminate(SOON).success());
    rot(cluster.nodes[odd].data_dir(), "value-07");
    cluster.nodes[odd].respawn();
    cluster.nodes[odd].wait_log(SOON, |log| log.contains("gives back something else"));
    cluster.nodes[odd].wait_log(SOON, |log| log.contains(FENCED));

    // Named by everybody, and nobody else is.
    let corrupt = AlarmMember { member_id: id, alarm: 2 };
    for at in [leader, odd, other] {
        until("the alarm", async || alarms(&cluster, at).await == [corrupt]).await;
    }
    let log = cluster.nodes[leader].log();
    assert!(log.contains("fencing a member"), "{log}");
    assert!(!log.contains(FENCED) && !cluster.nodes[other].log().contains(FENCED));

    // The two go on, healthy; the fenced one shows no data, lives, and says what to do.
    for at in [leader, other] {
        let mut clients = cluster.clients(at).await;
        put(&mut clients, "after", &format!("{at}")).await.expect("put");
        get(&mut clients, "after", false).await.expect("get");
        let url = cluster.nodes[at].metrics_url();
        assert_eq!(http_get(&url, "/readyz").map(|(code, _)| code), Some(200));
        assert_eq!(http_get(&url, "/health").map(|(code, _)| code), Some(200));
        assert_eq!(metric(&cluster, at, "assay_divergence_fenced"), 0.0);
        assert_eq!(metric(&cluster, at, "assay_divergence_fenced_members"), 1.0);
    }
    let mut fenced = cluster.clients(odd).await;
    for serializable in [true, false] {
        let error = get(&mut fenced, "k07", serializable).await.expect_err("no reads");
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.message().contains("fenced"), "{error:?}");
    }
    assert_eq!(put(&mut fenced, "x", "1").await.expect_err("no writes").code(), Code::Unavailable);
    let url = cluster.nodes[odd].metrics_url();
    let (code, text) = http_get(&url, "/readyz").expect("readyz");
    assert!(code == 503 && text.contains("etcdctl member remove"), "{code} {text}");
    let (code, text) = http_get(&url, "/health?exclude=CORRUPT").expect("health");
    assert!(code == 503 && text.contains("FENCED"), "{code} {text}");
    for path in
        ["/readyz?exclude=data_corruption", "/readyz/serializable_read", "/readyz/non_learner"]
    {
        for url in [url.clone(), cluster.nodes[odd].client_url()] {
            let (code, text) = http_get(&url, path).expect("an answer");
            assert!(code == 503 && text.contains("is fenced"), "{path}: {code} {text}");
        }
    }
    assert_eq!(http_get(&url, "/livez").map(|(code, _)| code), Some(200));
    assert_eq!(metric(&cluster, odd, "assay_divergence_fenced"), 1.0);
    assert_eq!(metric(&cluster, odd, "assay_divergence_store_damaged"), 1.0);
    if let Some(etcdctl) = Tool::Etcdctl.require() {
        let all = Etcdctl::new(&etcdctl, &cluster.endpoints());
        let listed = all.ok(&["alarm", "list"]);
        let words: Vec<&str> = listed.split_whitespace().collect();
        assert_eq!(words, [format!("memberID:{id}").as_str(), "alarm:CORRUPT"]);
        let own = Etcdctl::new(&etcdctl, &cluster.nodes[odd].client_url());
        let health = own.run(&["endpoint", "health"]);
        assert!(health.code != 0 && health.stderr.contains("fenced"), "{health:?}");
    }

    // A restart does not help.
    assert!(cluster.nodes[odd].terminate(SOON).success());
    cluster.nodes[odd].respawn();
    let said = |log: &str| log.matches(FENCED).count() >= 2;
    cluster.nodes[odd].wait_log(SOON, said);
    until("the second start", async || {
        let Ok(mut clients) =
            crate::common::Clients::try_connect(&cluster.nodes[odd].client_url()).await
        else {
            return false;
        };
        get(&mut clients, "k07", true).await.is_err_and(|error| error.message().contains("fenced"))
    })
    .await;

    // Removed, emptied, added again: whole.
    let mut clients = cluster.clients(leader).await;
    // Not while its connections are seconds old.
    let remove = MemberRemoveRequest { id };
    until("the removal", async || clients.cluster.member_remove(remove).await.is_ok()).await;
    cluster.nodes[odd].wait_exit(SOON);
    assert!(alarms(&cluster, leader).await.is_empty(), "the fence went with the member");
    std::fs::remove_dir_all(cluster.nodes[odd].data_dir()).expect("wipe");
    let seat: Seat = cluster.seats[odd].clone();
    let add = MemberAddRequest { peer_ur_ls: vec![seat.peer_url()], is_learner: false };
    until("the add", async || clients.cluster.member_add(add.clone()).await.is_ok()).await;
    let named = cluster.initial_cluster(&cluster.seats);
    cluster.nodes[odd] = cluster.launch(&seat, &named, "existing").start();
    let mut whole = cluster.clients(odd).await;
    let value = get(&mut whole, "k07", false).await.expect("a linearizable read");
    assert_eq!(value.as_deref(), Some("value-07"));
    put(&mut whole, "through", "again").await.expect("put");
    hashes_agree(&cluster, 0).await;
    assert_eq!(http_get(&cluster.nodes[odd].metrics_url(), "/readyz").map(|(c, _)| c), Some(200));
    let at = cluster.leader().await;
    let since = metric(&cluster, at, "assay_divergence_all_equal_timestamp_seconds");
    until("all equal", async || {
        metric(&cluster, at, "assay_divergence_all_equal_timestamp_seconds") > since
    })
    .await;
}

/// One key, then a follower is stopped and its row of it changed: the leader's place, the follower's
/// place and its id.
pub(crate) async fn rotten_follower(cluster: &mut Cluster) -> (usize, usize, u64) {
    let leader = cluster.leader().await;
    let odd = (leader + 1) % 3;
    let mut clients = cluster.clients(leader).await;
    put(&mut clients, "k", "value-07").await.expect("put");
    get(&mut cluster.clients(odd).await, "k", false).await.expect("caught up");
    let (id, _) = cluster.status(odd).await.expect("status");
    assert!(cluster.nodes[odd].terminate(SOON).success());
    rot(cluster.nodes[odd].data_dir(), "value-07");
    (leader, odd, id)
}

/// A series of the exposition with one label.
pub(crate) fn compared(cluster: &Cluster, at: usize, verdict: &str) -> f64 {
    let name = format!("assay_divergence_comparisons_total{{verdict=\"{verdict}\"}}");
    metric(cluster, at, &name)
}

/// What is not known is not equal: nobody says that all members are, while one is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_away_is_not_equal() {
    const ALL_EQUAL: &str = "assay_divergence_all_equal_timestamp_seconds";
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    put(&mut cluster.clients(leader).await, "k", "1").await.expect("put");
    until("all equal", async || metric(&cluster, leader, ALL_EQUAL) > 0.0).await;
    cluster.nodes[(leader + 1) % 3].kill();
    let unknown = compared(&cluster, leader, "unknown");
    until("it is missed", async || compared(&cluster, leader, "unknown") > unknown).await;
    let (unknown, equal) =
        (compared(&cluster, leader, "unknown"), compared(&cluster, leader, "equal"));
    let since = metric(&cluster, leader, ALL_EQUAL);
    // Five seconds lie between two looks.
    until("two more looks", async || compared(&cluster, leader, "unknown") >= unknown + 2.0).await;
    assert!(compared(&cluster, leader, "equal") >= equal + 2.0, "the other one is");
    assert_eq!(metric(&cluster, leader, ALL_EQUAL).to_bits(), since.to_bits());
}

/// Two differ and the third is away, so nobody knows who is right: nobody is fenced, whoever leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_away_is_not_on_the_side_of_the_leader() {
    let mut cluster = Cluster::start(3);
    let (leader, odd, _) = rotten_follower(&mut cluster).await;
    cluster.nodes[3 - leader - odd].kill();
    cluster.nodes[odd].restart();
    // While two of three elect a leader, nobody answers.
    let listed = async || {
        let url = cluster.nodes[leader].client_url();
        let mut clients = crate::common::Clients::try_connect(&url).await.ok()?;
        let listed = clients.maintenance.alarm(AlarmRequest::default()).await;
        Some(listed.ok()?.into_inner().alarms)
    };
    let start = Instant::now();
    let alarms = loop {
        match listed().await {
            Some(alarms) if !alarms.is_empty() => break alarms,
            _ => assert!(start.elapsed() < 3 * SOON, "nobody says that they differ"),
        }
        tokio::time::sleep(POLL).await;
    };
    assert_eq!(alarms, [AlarmMember { member_id: 0, alarm: 2 }]);
    for at in [leader, odd] {
        assert!(!cluster.nodes[at].log().contains(FENCED), "{}", cluster.nodes[at].log());
    }
}

fn unchecked(launch: Launch) -> Launch {
    launch.arg("--divergence-check=off")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_in_the_minority_hands_over_and_an_unchecked_cluster_does_nothing() {
    let mut cluster = Cluster::start_with(3, unchecked);
    let (_, odd, id) = rotten_follower(&mut cluster).await;
    cluster.nodes[odd].relaunch_with(|launch| launch.arg("--divergence-check=fence"));
    cluster.nodes[odd].restart();
    // The others do not look: nothing happens to it until it leads and looks itself.
    until("it leads", async || {
        let at = cluster.leader().await;
        let mut clients = cluster.clients(at).await;
        let moved = clients.maintenance.move_leader(MoveLeaderRequest { target_id: id }).await;
        moved.is_ok()
    })
    .await;
    cluster.nodes[odd].wait_log(SOON, |log| log.contains("handing leadership over"));
    let next = cluster.leader_other_than(id).await;
    assert_ne!(next, odd);
    assert!(alarms(&cluster, next).await.is_empty());
    let mut clients = cluster.clients(next).await;
    put(&mut clients, "after", "1").await.expect("put");
}

fn alarming(launch: Launch) -> Launch {
    launch.arg("--divergence-check=alarm")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_alarm_writes_are_refused_everywhere_as_in_etcd() {
    let mut cluster = Cluster::start_with(3, alarming);
    let (leader, odd, id) = rotten_follower(&mut cluster).await;
    let mut clients = cluster.clients(leader).await;
    cluster.nodes[odd].restart();
    let corrupt = AlarmMember { member_id: id, alarm: 2 };
    until("the alarm", async || alarms(&cluster, leader).await == [corrupt]).await;
    let error = put(&mut clients, "x", "1").await.expect_err("refused");
    assert_eq!((error.code(), error.message()), (Code::DataLoss, "etcdserver: corrupt cluster"));
    get(&mut clients, "k", false).await.expect("reads pass");
    assert!(!cluster.nodes[odd].log().contains(FENCED));
}
