//! Numbers of the traffic between members.

use crate::basics::put;
use crate::common::{Cluster, http_get};

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
