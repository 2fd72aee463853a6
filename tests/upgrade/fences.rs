//! A member that differs in the middle of an upgrade: nothing may be said to the version before that it
//! does not know, so it is named and left alone until the upgrade is finalized.

use crate::common::{Cluster, assay, http_get, rot, run};
use crate::members::SOON;
use crate::rolling::{level, lowered, present};
use assay::proto::etcdserverpb::{AlarmRequest, PutRequest, RangeRequest};

const FENCED: &str = "is fenced: its data differs";
const WAITS: &str = "is not fenced before the upgrade is finalized";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_named_and_fenced_only_when_the_upgrade_is_finalized() {
    let mut cluster = Cluster::start_with(3, lowered);
    let leader = cluster.leader().await;
    let odd = (leader + 1) % 3;
    let mut clients = cluster.clients(leader).await;
    let put = PutRequest { key: "k".into(), value: "value-07".into(), ..PutRequest::default() };
    clients.kv.put(put).await.expect("put");
    let range = RangeRequest { key: "k".into(), ..RangeRequest::default() };
    cluster.clients(odd).await.kv.range(range.clone()).await.expect("caught up");
    for at in 0..3 {
        cluster.nodes[at].terminate(SOON);
        if at == odd {
            rot(cluster.nodes[at].data_dir(), "value-07");
        }
        cluster.nodes[at].relaunch_with(present);
        cluster.nodes[at].restart();
    }
    // Whoever leads: one that is in the minority itself hands over first.
    let start = std::time::Instant::now();
    while !(0..3).any(|at| cluster.nodes[at].log().contains(WAITS)) {
        assert!(start.elapsed() < SOON, "nobody says so");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let leader = cluster.leader().await;
    let mut clients = cluster.clients(leader).await;
    let listed = clients.maintenance.alarm(AlarmRequest::default()).await.expect("alarms");
    assert!(listed.into_inner().alarms.is_empty(), "an alarm of a level 1 cluster refuses writes");
    let log = cluster.nodes[leader].log();
    assert!(log.contains("assay upgrade finalize"), "says what to do: {log}");
    for at in 0..3 {
        assert_eq!(level(&cluster.nodes[at], "cluster"), 1);
        assert!(!cluster.nodes[at].log().contains(FENCED));
        let ready = http_get(&cluster.nodes[at].metrics_url(), "/readyz").map(|(code, _)| code);
        assert_eq!(ready, Some(200));
    }
    cluster.clients(odd).await.kv.range(range).await.expect("it serves");

    let url = cluster.nodes[leader].client_url();
    let done = run(assay().args(["upgrade", "finalize", "--endpoint", &url]));
    assert_eq!(done.code, 0, "{done:?}");
    cluster.nodes[odd].wait_log(SOON, |log| log.contains(FENCED));
}
