//! Members are added, promoted, updated and removed; who must not come back does not.

use crate::basics::{get, put};
use crate::common::cluster::{SOON, Seat};
use crate::common::{Clients, Cluster, Etcdctl, Tool};
use assay::proto::etcdserverpb::{
    Member, MemberAddRequest, MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest,
    MoveLeaderRequest,
};
use std::time::{Duration, Instant};
use tonic::{Code, Status};

/// Pause before a change is tried again that the cluster was not ready for.
const RETRY: Duration = Duration::from_millis(100);

fn text(status: &Status) -> (Code, &str) {
    (status.code(), status.message())
}

/// Repeats a change while members have not been connected for long enough, or lag behind.
pub(crate) async fn when_ready<T>(mut change: impl AsyncFnMut() -> Result<T, Status>) -> T {
    let start = Instant::now();
    loop {
        match change().await {
            Ok(done) => return done,
            Err(status) => {
                let wait = [
                    "etcdserver: unhealthy cluster",
                    "etcdserver: can only promote a learner member which is in sync with leader",
                    "etcdserver: re-configuration failed due to not enough started members",
                ];
                assert!(wait.contains(&status.message()), "{status:?}");
                assert!(start.elapsed() < SOON, "still: {status:?}");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn add(clients: &Clients, seat: &Seat, is_learner: bool) -> (Member, Vec<Member>) {
    let done = when_ready(async || {
        let add = MemberAddRequest { peer_ur_ls: vec![seat.peer_url()], is_learner };
        clients.clone().cluster.member_add(add).await
    })
    .await
    .into_inner();
    (done.member.expect("the member"), done.members)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_joins_is_promoted_and_leaves_again() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    let mut clients = cluster.clients(follower).await;
    put(&mut clients, "before", "1").await.expect("put");
    let seat = Seat::free("m3");
    // Through a follower: it is passed on to the leader.
    let (added, members) = add(&clients, &seat, true).await;
    assert_eq!((members.len(), added.is_learner, added.name.as_str()), (4, true, ""));
    // With a second URL the id differs, which would be refused first.
    let urls = vec![seat.peer_url(), "http://127.0.0.1:1".into()];
    let again = MemberAddRequest { peer_ur_ls: urls, is_learner: false };
    let error = clients.cluster.member_add(again).await.expect_err("its URL is taken");
    let exists = (Code::FailedPrecondition, "etcdserver: Peer URLs already exists");
    assert_eq!(text(&error), exists);
    let second =
        MemberAddRequest { peer_ur_ls: vec!["http://127.0.0.1:1".into()], is_learner: true };
    let error = clients.cluster.member_add(second).await.expect_err("one learner at a time");
    let many = (Code::FailedPrecondition, "etcdserver: too many learner members in cluster");
    assert_eq!(text(&error), many);
    let promote = MemberPromoteRequest { id: added.id };
    let error = clients.cluster.member_promote(promote).await.expect_err("it has not started");
    let lags = "etcdserver: can only promote a learner member which is in sync with leader";
    assert_eq!(text(&error), (Code::FailedPrecondition, lags));

    let mut seats = cluster.seats.clone();
    seats.push(seat.clone());
    let named = cluster.initial_cluster(&seats);
    let mut joined = cluster.launch(&seat, &named, "existing").start();
    let mut learner = joined.clients().await;
    let start = Instant::now();
    while get(&mut learner, "before", true).await.expect("serializable read").is_none() {
        assert!(start.elapsed() < SOON, "the learner does not catch up");
        tokio::time::sleep(RETRY).await;
    }
    let refused = (Code::FailedPrecondition, "etcdserver: rpc not supported for learner");
    let error = put(&mut learner, "x", "1").await.expect_err("a learner takes no writes");
    assert_eq!(text(&error), refused);
    let error = get(&mut learner, "x", false).await.expect_err("no linearizable reads");
    assert_eq!(text(&error), refused);

    when_ready(async || clients.clone().cluster.member_promote(promote).await).await;
    let error = clients.cluster.member_promote(promote).await.expect_err("it votes already");
    let voter = (Code::FailedPrecondition, "etcdserver: can only promote a learner member");
    assert_eq!(text(&error), voter);
    let start = Instant::now();
    while put(&mut learner, "through", "4").await.is_err() {
        assert!(start.elapsed() < SOON, "the promoted member takes no writes");
        tokio::time::sleep(RETRY).await;
    }
    assert_eq!(get(&mut clients, "through", false).await.expect("get").as_deref(), Some("4"));

    let remove = MemberRemoveRequest { id: added.id };
    when_ready(async || clients.clone().cluster.member_remove(remove).await).await;
    assert!(joined.wait_exit(SOON).success(), "a removed member stops in order");
    assert!(joined.log().contains("was removed from the cluster"), "{}", joined.log());
    let error = clients.cluster.member_remove(remove).await.expect_err("it is gone");
    assert_eq!(text(&error), (Code::NotFound, "etcdserver: member not found"));
    // Its directory must not bring it back.
    joined.respawn();
    joined.wait_exit(SOON);
    put(&mut clients, "after", "1").await.expect("put");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_member_is_refused_until_it_is_added_anew() {
    let mut cluster = Cluster::start(3);
    cluster.leader().await;
    let mut clients = cluster.clients(0).await;
    put(&mut clients, "k", "1").await.expect("put");
    let (wiped, _) = cluster.status(2).await.expect("status");
    cluster.nodes[2].kill();
    let seat = cluster.seats[2].clone();
    std::fs::remove_dir_all(cluster.data_dir(&seat)).expect("wipe");
    for state in ["new", "existing"] {
        let named = cluster.initial_cluster(&cluster.seats);
        let mut node = cluster.launch(&seat, &named, state).spawn();
        assert_eq!(node.wait_exit(SOON).code(), Some(78), "{}", node.log());
        assert!(node.log().contains("has already been bootstrapped"), "{}", node.log());
        assert!(node.log().contains(&format!("member remove {wiped:x}")), "{}", node.log());
    }
    let remove = MemberRemoveRequest { id: wiped };
    when_ready(async || clients.clone().cluster.member_remove(remove).await).await;
    let (added, _) = add(&clients, &seat, false).await;
    assert_ne!(added.id, wiped);
    let named = cluster.initial_cluster(&cluster.seats);
    cluster.nodes[2] = cluster.launch(&seat, &named, "existing").start();
    let mut back = cluster.clients(2).await;
    assert_eq!(get(&mut back, "k", false).await.expect("get").as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_moves_when_told_and_when_the_leader_stops() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    let (old, _) = cluster.status(leader).await.expect("status");
    let target = (leader + 1) % 3;
    let (to, _) = cluster.status(target).await.expect("status");
    let mut follower = cluster.clients(target).await;
    let order = MoveLeaderRequest { target_id: to };
    let error = follower.maintenance.move_leader(order).await.expect_err("not the leader");
    assert_eq!(text(&error), (Code::FailedPrecondition, "etcdserver: not leader"));
    let mut clients = cluster.clients(leader).await;
    let nobody = MoveLeaderRequest { target_id: 1 };
    let error = clients.maintenance.move_leader(nobody).await.expect_err("nobody");
    assert_eq!(text(&error), (Code::FailedPrecondition, "etcdserver: bad leader transferee"));
    clients.maintenance.move_leader(order).await.expect("move");
    assert_eq!(cluster.leader_other_than(old).await, target);

    let status = cluster.nodes[target].terminate(SOON);
    assert!(status.success());
    let log = cluster.nodes[target].log();
    assert!(log.contains("handed leadership over before the stop"), "{log}");
    let next = cluster.leader_other_than(to).await;
    let mut clients = cluster.clients(next).await;
    put(&mut clients, "k", "1").await.expect("put");

    // A member that moves says so to the others, and is found at its new address.
    cluster.nodes[target].restart();
    let seat = Seat::free("moved");
    let update = MemberUpdateRequest { id: to, peer_ur_ls: vec![seat.peer_url()] };
    let members = clients.cluster.member_update(update).await.expect("update").into_inner().members;
    let moved = members.iter().find(|member| member.id == to).expect("the member");
    assert_eq!(moved.peer_ur_ls, [seat.peer_url()]);
    cluster.nodes[target].kill();
    let named = cluster.initial_cluster(&cluster.seats);
    let old_seat = cluster.seats[target].clone();
    let mut launch = cluster.launch(&old_seat, &named, "new");
    launch = launch.arg(format!("--listen-peer-urls={}", seat.peer_url()));
    cluster.nodes[target] = launch.start();
    let mut moved = cluster.clients(target).await;
    put(&mut moved, "through", "moved").await.expect("put");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_of_two_can_remove_itself_and_the_other_one_goes_on() {
    let mut cluster = Cluster::start(2);
    let leader = cluster.leader().await;
    let (id, _) = cluster.status(leader).await.expect("status");
    let mut clients = cluster.clients(leader).await;
    put(&mut clients, "k", "1").await.expect("put");
    let remove = MemberRemoveRequest { id };
    let left = when_ready(async || clients.clone().cluster.member_remove(remove).await).await;
    assert_eq!(left.into_inner().members.len(), 1);
    assert!(cluster.nodes[leader].wait_exit(SOON).success());
    // Alone it needs nobody's answer, and it knows that it is alone.
    let mut clients = cluster.clients(1 - leader).await;
    put(&mut clients, "k", "2").await.expect("put");
    assert_eq!(get(&mut clients, "k", false).await.expect("get").as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_sees_one_leader_and_changes_members() {
    let Some(etcdctl) = Tool::Etcdctl.require() else { return };
    let mut cluster = Cluster::start(3);
    cluster.leader().await;
    let all = Etcdctl::new(&etcdctl, &cluster.endpoints());
    let table = all.ok(&["endpoint", "status", "-w", "table"]);
    let rows: Vec<&str> = table.lines().filter(|line| line.contains("http://")).collect();
    assert_eq!(rows.len(), 3, "{table}");
    let leads = |row: &&&str| row.split(['|', '│']).map(str::trim).any(|cell| cell == "true");
    assert_eq!(rows.iter().filter(leads).count(), 1, "{table}");
    let list = all.ok(&["member", "list", "-w", "fields"]);
    assert_eq!(list.matches("\"Name\" : \"m").count(), 3, "{list}");
    all.ok(&["endpoint", "health", "--cluster"]);
    let one = Etcdctl::new(&etcdctl, &cluster.nodes[0].client_url());
    let start = Instant::now();
    let url = Seat::free("x").peer_url();
    let added = loop {
        let added = one.run(&["member", "add", "x", "--learner", &format!("--peer-urls={url}")]);
        if added.code == 0 {
            break added.stdout;
        }
        assert!(added.stderr.contains("unhealthy cluster"), "{}", added.stderr);
        assert!(start.elapsed() < SOON, "{}", added.stderr);
        tokio::time::sleep(RETRY).await;
    };
    assert!(added.contains("to cluster"), "{added}");
    let id = added.split_whitespace().nth(1).expect("the id").to_string();
    let removed = one.ok(&["member", "remove", &id]);
    assert!(removed.contains("removed from cluster"), "{removed}");
}
