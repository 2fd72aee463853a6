//! A member that missed a lot comes back under load: one snapshot is enough, whoever sends it.

use crate::basics::{get, put};
use crate::common::cluster::SOON;
use crate::common::{Cluster, Launch};
use crate::snapshots::{INSTALLED, hashes_agree, wait_installed};
use assay::proto::etcdserverpb::MoveLeaderRequest;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Writes that the member misses, and bytes of each: a snapshot takes a second or two.
const MISSED: usize = 240;
const MISSED_BYTES: usize = 250_000;
/// Writers beside it, each with one write in flight, and bytes of each write: far more is written
/// meanwhile than a log keeps and a connection's queue holds.
const WRITERS: usize = 4;
const BESIDE_BYTES: usize = 60_000;
const POLL: Duration = Duration::from_millis(5);
/// What a receiver says of a snapshot that broke off.
const BROKEN_OFF: &str = "a snapshot did not arrive";

fn forgetful(launch: Launch) -> Launch {
    launch.arg("--snapshot-catchup-entries=100")
}

/// A cluster whose member `away` is down and has missed a lot; leader and `away`.
async fn one_is_behind() -> (Cluster, usize, usize) {
    let mut cluster = Cluster::start_with(3, forgetful);
    let leader = cluster.leader().await;
    let away = (leader + 1) % 3;
    cluster.nodes[away].kill();
    let mut clients = cluster.clients(leader).await;
    let value = "m".repeat(MISSED_BYTES);
    for n in 0..MISSED {
        put(&mut clients, &format!("k{n:05}"), &value).await.expect("put");
    }
    (cluster, leader, away)
}

/// Writers through one member, until they are told to stop.
struct Writers {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<i64>,
}

impl Writers {
    async fn start(cluster: &Cluster, at: usize) -> Self {
        let (stop, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for writer in 0..WRITERS {
            let (mut clients, stop) = (cluster.clients(at).await, stop.clone());
            tasks.spawn(async move {
                let (key, value) = (format!("beside{writer}"), "b".repeat(BESIDE_BYTES));
                let mut last = 0;
                while !stop.load(SeqCst) {
                    last = put(&mut clients, &key, &value).await.expect("put");
                }
                last
            });
        }
        Self { stop, tasks }
    }

    /// Ends them; returns the last revision that was written.
    async fn stop(mut self) -> i64 {
        self.stop.store(true, SeqCst);
        let mut last = 0;
        while let Some(task) = self.tasks.join_next().await {
            last = last.max(task.expect("a writer"));
        }
        last
    }
}

/// Bytes of files below `dir` into which a snapshot is written.
fn arriving_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => arriving_bytes(&entry.path()),
        Ok(meta) if entry.file_name().to_string_lossy().contains(".incoming-") => meta.len(),
        _ => 0,
    };
    entries.flatten().map(bytes).sum()
}

/// Waits until the member has a part of a snapshot on disk.
async fn wait_arriving(cluster: &mut Cluster, at: usize) {
    let start = Instant::now();
    while arriving_bytes(cluster.nodes[at].data_dir()) < MISSED_BYTES as u64 {
        assert!(cluster.nodes[at].is_running(), "{}", cluster.nodes[at].log());
        assert!(start.elapsed() < SOON, "no snapshot arrives:\n{}", cluster.logs());
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_snapshot_is_enough_however_much_is_written_meanwhile() {
    let (mut cluster, leader, away) = one_is_behind().await;
    let writers = Writers::start(&cluster, leader).await;
    cluster.nodes[away].respawn();
    wait_installed(&mut cluster, away, 1).await;
    cluster.nodes[away].wait_ready();
    // It keeps up: a read that waits for what is committed is answered while writes go on.
    let mut back = cluster.clients(away).await;
    assert!(get(&mut back, "beside0", false).await.expect("caught up").is_some());
    let last = writers.stop().await;
    hashes_agree(&cluster, last).await;
    let installed = cluster.nodes[away].log().matches(INSTALLED).count();
    assert_eq!(installed, 1, "the log was cut while it fetched the rest:\n{}", cluster.logs());
}

/// What becomes of a leader while it sends a snapshot.
enum Fate {
    Dies,
    IsReplaced,
}

async fn sender_changes(fate: Fate) {
    let (mut cluster, leader, away) = one_is_behind().await;
    let third = 3 - leader - away;
    let (heir, _) = cluster.status(third).await.expect("status");
    let mut clients = cluster.clients(leader).await;
    cluster.nodes[away].respawn();
    wait_arriving(&mut cluster, away).await;
    match fate {
        Fate::Dies => cluster.nodes[leader].kill(),
        Fate::IsReplaced => {
            let order = MoveLeaderRequest { target_id: heir };
            clients.maintenance.move_leader(order).await.expect("move");
        }
    }
    wait_installed(&mut cluster, away, 1).await;
    cluster.nodes[away].wait_ready();
    if matches!(fate, Fate::Dies) {
        cluster.nodes[leader].restart();
    }
    let log = cluster.nodes[away].log();
    assert!(log.contains(BROKEN_OFF), "the change came too late to say anything:\n{log}");
    assert_eq!(log.matches(INSTALLED).count(), 1, "{log}");
    let mut clients = cluster.clients(away).await;
    let last = put(&mut clients, "k", "after").await.expect("put");
    hashes_agree(&cluster, last).await;
    assert_eq!(arriving_bytes(cluster.nodes[away].data_dir()), 0, "nothing is left over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_while_it_sends_a_snapshot_is_followed_by_one_that_does() {
    sender_changes(Fate::Dies).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_replaced_stops_sending_its_snapshot() {
    sender_changes(Fate::IsReplaced).await;
}
