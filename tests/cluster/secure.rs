//! Members that show each other certificates, and one that cannot.

use crate::basics::{get, put};
use crate::common::cluster::SOON;
use crate::common::{Authority, Cert, Cluster, Launch, http_get};
use std::path::PathBuf;

/// Writes a certificate for this machine and the authority's own.
fn files(dir: &std::path::Path, ca: &Authority) {
    std::fs::create_dir_all(dir).expect("directory");
    std::fs::write(dir.join("ca.crt"), ca.pem()).expect("write");
    ca.issue(&Cert::named("member").hosts(&["127.0.0.1", "localhost"])).write(dir, "member");
}

fn mutual(launch: Launch, dir: &std::path::Path) -> Launch {
    let file = |name: &str| dir.join(name).display().to_string();
    launch
        .tls([false, true, false])
        .arg("--peer-client-cert-auth")
        .arg(format!("--peer-cert-file={}", file("member.crt")))
        .arg(format!("--peer-key-file={}", file("member.key")))
        .arg(format!("--peer-trusted-ca-file={}", file("ca.crt")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_one_authority_form_a_cluster_and_a_stranger_is_refused() {
    let home = tempfile::Builder::new().prefix("assay-pki-").tempdir().expect("temp dir");
    let (good, bad): (PathBuf, PathBuf) = (home.path().join("good"), home.path().join("bad"));
    files(&good, &Authority::new("ours"));
    files(&bad, &Authority::new("theirs"));
    let dir = good.clone();
    let mut cluster = Cluster::planned(3, "https", move |launch| mutual(launch, &dir));
    let named = cluster.initial_cluster(&cluster.seats);
    for at in 0..2 {
        let launch = cluster.launch(&cluster.seats[at].clone(), &named, "new");
        cluster.nodes.push(launch.spawn());
    }
    // The last flag counts.
    let stranger = cluster.launch(&cluster.seats[2].clone(), &named, "new");
    let mut stranger = mutual(stranger, &bad).spawn();
    for node in &mut cluster.nodes {
        node.wait_ready();
    }
    let leader = cluster.leader().await;
    let mut clients = cluster.clients(leader).await;
    put(&mut clients, "k", "v").await.expect("put");
    stranger.wait_log(SOON, |log| log.contains("no connection to a peer"));
    assert!(!stranger.log().contains("connected to a peer"), "{}", stranger.log());
    stranger.kill();
    let launch = cluster.launch(&cluster.seats[2].clone(), &named, "new");
    cluster.nodes.push(launch.start());
    let mut third = cluster.clients(2).await;
    assert_eq!(get(&mut third, "k", false).await.expect("get").as_deref(), Some("v"));
}

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
