//! Who does not belong here is told so, and the log is not filled with it.

use crate::common::cluster::{SOON, Seat};
use crate::common::{Cluster, Launch};
use assay::proto::peer::peer_client::PeerClient;
use assay::proto::peer::{Batch, Identity};
use std::time::{Duration, Instant};
use tonic::Code;
use tonic::transport::Endpoint;

const REFUSED: &str = "refused a connection on the peer port";
/// How often a refusal may be repeated.
const PERIOD: Duration = Duration::from_secs(60);

/// Members of another cluster, which try again and again, have a line a minute each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_that_take_turns_are_logged_once_a_minute_each() {
    let mut node = Launch::assay().start();
    let channel = Endpoint::new(node.peer_url()).expect("a URL").connect().await.expect("connect");
    let mut client = PeerClient::new(channel);
    let begun = Instant::now();
    let strangers = [0xa1_u64, 0xa2, 0xa3];
    let mut come = async |from| {
        let identity = Some(Identity { format: 1, cluster_id: 0xabc, from, ..Identity::default() });
        let batch = Batch { identity, ..Batch::default() };
        let answer = client.messages(tokio_stream::iter([batch])).await;
        assert_eq!(answer.expect_err("a stranger").code(), Code::FailedPrecondition);
    };
    for _ in 0..20 {
        for from in strangers {
            come(from).await;
        }
    }
    // Lines are in order: with this one all before it are there.
    come(0xff).await;
    node.wait_log(SOON, |log| log.contains("member ff belongs to cluster abc"));
    let most = 1 + (begun.elapsed().as_secs() / PERIOD.as_secs()) as usize;
    let log = node.log();
    for from in strangers {
        let text = format!("{REFUSED}: member {from:x} belongs to cluster abc");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(&text)).collect();
        assert!((1..=most).contains(&lines.len()), "{from:x}: {lines:?}");
        assert!(lines[0].contains("\"remote\":\"127.0.0.1\""), "{}", lines[0]);
    }
}

/// Without a list it has nobody to ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_joins_without_a_list_hears_that_it_names_nobody_else() {
    let cluster = Cluster::start(1);
    let seat = Seat::free("m1");
    let named = cluster.initial_cluster(std::slice::from_ref(&seat));
    let mut node = cluster.launch(&seat, &named, "existing").spawn();
    assert_eq!(node.wait_exit(SOON).code(), Some(1), "{}", node.log());
    assert!(node.log().contains("--initial-cluster names only this member (m1)"), "{}", node.log());
}
