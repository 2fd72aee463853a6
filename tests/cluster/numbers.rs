//! Numbers of the traffic between members.

use crate::basics::put;
use crate::common::{Cluster, http_get};

/// Puts, one after the other.
const PUTS: u32 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_between_members_is_on_the_metrics_port() {
    let mut cluster = Cluster::start(3);
    cluster.leader().await;
    let mut clients = cluster.clients(0).await;
    put(&mut clients, "k", "v").await.expect("put");
    for node in &cluster.nodes {
        let (_, text) = http_get(&node.metrics_url(), "/metrics").expect("metrics");
        let active = text
            .lines()
            .filter(|line| line.starts_with("etcd_network_active_peers{") && line.ends_with(" 1"));
        assert_eq!(active.count(), 2, "{text}");
        for family in [
            "assay_peer_append_duration_seconds_count",
            "etcd_network_disconnected_peers_total",
            "etcd_network_peer_sent_bytes_total",
            "etcd_network_peer_received_bytes_total",
            "etcd_network_peer_sent_failures_total",
            "etcd_network_peer_received_failures_total",
            "etcd_network_peer_round_trip_time_seconds_count",
            "etcd_network_snapshot_send_success",
            "etcd_network_snapshot_send_failures",
            "etcd_network_snapshot_send_inflights_total",
            "etcd_network_snapshot_send_total_duration_seconds_count",
            "etcd_network_snapshot_receive_success",
            "etcd_network_snapshot_receive_failures",
            "etcd_network_snapshot_receive_inflights_total",
            "etcd_network_snapshot_receive_total_duration_seconds_count",
        ] {
            assert!(text.contains(&format!("\n{family}{{")), "{family} is missing");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_tells_how_its_followers_keep_up() {
    let mut cluster = Cluster::start(3);
    cluster.leader().await;
    let mut clients = cluster.clients(0).await;
    // Of all members: on a busy machine another one may lead in the end.
    let all = |begin: &str| -> f64 {
        let urls = cluster.nodes.iter().map(|node| node.metrics_url());
        urls.map(|url| sum(&http_get(&url, "/metrics").expect("metrics").1, begin)).sum()
    };
    let committed = "assay_raft_leader_committed_entries_total{";
    let before = all(committed);
    for n in 0..PUTS {
        put(&mut clients, "k", &n.to_string()).await.expect("put");
    }
    let gained = all(committed) - before;
    assert!(gained >= f64::from(PUTS), "{gained} of {PUTS} entries were counted");
    // Each put was acknowledged by a follower before it was answered.
    let timed = all("assay_peer_append_duration_seconds_count{");
    assert!(timed >= f64::from(PUTS), "{timed} of {PUTS} messages were timed");
}

/// Sum of all series that begin so.
fn sum(text: &str, begin: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(begin));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
