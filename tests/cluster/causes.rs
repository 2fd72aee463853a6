//! What members say about the end of a leader: why another one leads, and what did not work.

use crate::common::cluster::SOON;
use crate::common::{Cluster, http_get};
use assay::proto::etcdserverpb::MoveLeaderRequest;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// Pause of a leader: longer than an election, shorter than the silence that ends a connection.
const PAUSE: Duration = Duration::from_secs(3);

/// Pause between two looks.
const POLL: Duration = Duration::from_millis(20);
/// A connection on which nothing was heard for 5 s counts as lost: an election that took almost as
/// long tells nothing.
const CONNECTED: Duration = Duration::from_secs(4);

/// Value of a metric of a member.
fn metric(cluster: &Cluster, at: usize, series: &str) -> f64 {
    let (_, text) = http_get(&cluster.nodes[at].metrics_url(), "/metrics").expect("metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).expect("the series")
}

fn changes(cluster: &Cluster, at: usize, cause: &str) -> f64 {
    metric(cluster, at, &format!("assay_leader_changes_total{{cause=\"{cause}\"}}"))
}

/// Whether a member counts one of these causes. A machine that stands still pauses members, too.
fn counts(cluster: &Cluster, at: usize, cause: &str) -> bool {
    changes(cluster, at, cause) > 0.0 || changes(cluster, at, "process_pause") > 0.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_leader_knows_what_became_of_the_last_one() {
    let mut cluster = Cluster::start(3);
    let first = cluster.leader().await;
    let (first_id, _) = cluster.status(first).await.expect("status");
    let second = (first + 1) % 3;
    let (second_id, _) = cluster.status(second).await.expect("status");
    let order = MoveLeaderRequest { target_id: second_id };
    cluster.clients(first).await.maintenance.move_leader(order).await.expect("move");
    assert_eq!(cluster.leader_other_than(first_id).await, second);
    assert_eq!(changes(&cluster, second, "transfer"), 1.0);

    // Its connections stand, so the others just miss it.
    let sum = "assay_leaderless_duration_seconds_sum";
    let others = [first, (first + 2) % 3];
    let before = others.map(|at| metric(&cluster, at, sum));
    cluster.nodes[second].signal(Signal::SIGSTOP);
    let stopped = Instant::now();
    let third = loop {
        let mut leads = None;
        for at in others {
            let said = cluster.status(at).await;
            leads = leads.or(said.filter(|(own, leader)| own == leader).map(|_| at));
        }
        if let Some(at) = leads {
            break at;
        }
        assert!(stopped.elapsed() < SOON, "nobody else leads");
        tokio::time::sleep(POLL).await;
    };
    let misses = counts(&cluster, third, "timeout") || stopped.elapsed() > CONNECTED;
    assert!(misses, "{}", cluster.nodes[third].log());
    let begin = before[usize::from(third != first)];
    let gained = metric(&cluster, third, sum) - begin;
    assert!(gained > 0.8, "{gained} s without a leader, an election timeout is 1 s");
    tokio::time::sleep(PAUSE.saturating_sub(stopped.elapsed())).await;
    cluster.nodes[second].signal(Signal::SIGCONT);
    cluster.nodes[second].wait_log(SOON, |log| log.contains("this process did not run for"));

    let leader = cluster.leader().await;
    let (leader_id, _) = cluster.status(leader).await.expect("status");
    cluster.nodes[leader].kill();
    let last = cluster.leader_other_than(leader_id).await;
    assert!(counts(&cluster, last, "network"), "{}", cluster.nodes[last].log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_that_is_not_taken_is_a_warning() {
    // A leader that misses the others gives up after an election timeout: not before it is stopped.
    let mut cluster = Cluster::start_with(3, |launch| launch.arg("--election-timeout=5000"));
    let leader = cluster.leader().await;
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    let (id, _) = cluster.status(others[0]).await.expect("status");
    let mut clients = cluster.clients(leader).await;
    cluster.nodes[others[0]].signal(Signal::SIGSTOP);
    let order = MoveLeaderRequest { target_id: id };
    let error = clients.maintenance.move_leader(order).await.expect_err("it does not run");
    assert!(error.message().contains("timed out"), "{error:?}");
    let warning = |cluster: &Cluster, what: &str| {
        let log = cluster.nodes[leader].log();
        let line = log.lines().find(|line| line.contains(what)).map(str::to_owned);
        let line = line.unwrap_or_else(|| panic!("no line says {what}: {log}"));
        assert!(line.to_lowercase().contains("warn"), "{line}");
        line
    };
    let line = warning(&cluster, "leadership was not handed over as it was asked for");
    assert!(line.contains(&format!("{id:x}")), "{line}");
    cluster.nodes[others[1]].signal(Signal::SIGSTOP);
    cluster.nodes[leader].terminate(SOON);
    warning(&cluster, "leadership was not handed over before the stop");
}
