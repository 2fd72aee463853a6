//! Leases in a cluster: every member passes keep-alives on, nothing ends early, all end in the end.

use crate::basics::get;
use crate::common::cluster::SOON;
use crate::common::{Clients, Cluster};
use assay::proto::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseTimeToLiveRequest, PutRequest,
};
use std::time::{Duration, Instant};
use tonic::Status;

const LEASE: i64 = 42;
const TTL: i64 = 3;
const OFTEN: Duration = Duration::from_millis(200);

async fn keep_alive(clients: &mut Clients) -> Result<i64, Status> {
    let request = LeaseKeepAliveRequest { id: LEASE };
    let answers = clients.lease.lease_keep_alive(tokio_stream::iter([request])).await?;
    let answer = answers.into_inner().message().await?;
    answer.map(|answer| answer.ttl).ok_or_else(|| Status::internal("no answer"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_kept_through_any_member_over_a_change_of_leaders() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    let mut clients = cluster.clients(leader).await;
    let grant = LeaseGrantRequest { ttl: TTL, id: LEASE };
    clients.lease.lease_grant(grant).await.expect("grant");
    let put = PutRequest { key: "k".into(), value: "v".into(), lease: LEASE, ..Default::default() };
    clients.kv.put(put).await.expect("put");
    for at in 0..3 {
        let mut clients = cluster.clients(at).await;
        assert_eq!(keep_alive(&mut clients).await.expect("keep alive"), TTL, "member {at}");
        let ask = LeaseTimeToLiveRequest { id: LEASE, keys: true };
        let answer = clients.lease.lease_time_to_live(ask).await.expect("times").into_inner();
        assert!((1..=TTL).contains(&answer.ttl), "{answer:?}");
        assert_eq!((answer.granted_ttl, answer.keys), (TTL, vec!["k".into()]));
    }
    let (id, _) = cluster.status(leader).await.expect("status");
    let follower = (leader + 1) % 3;
    let mut clients = cluster.clients(follower).await;
    cluster.nodes[leader].kill();
    // Longer than the lease lives by itself: only renewals keep it.
    let start = Instant::now();
    let mut kept = Instant::now();
    while start.elapsed() < Duration::from_secs(3 * TTL as u64) {
        match keep_alive(&mut clients).await {
            Ok(TTL) => kept = Instant::now(),
            Ok(other) => panic!("the lease ended with {other} although it was kept"),
            // While there is no leader.
            Err(status) => assert!(kept.elapsed() < SOON, "{status:?}"),
        }
        tokio::time::sleep(OFTEN).await;
    }
    cluster.leader_other_than(id).await;
    let last = Instant::now();
    assert_eq!(keep_alive(&mut clients).await.expect("keep alive"), TTL);
    while get(&mut clients, "k", false).await.expect("get").is_some() {
        assert!(last.elapsed() < SOON, "the lease does not end");
        tokio::time::sleep(OFTEN).await;
    }
    assert!(last.elapsed() >= Duration::from_secs(TTL as u64), "ended after {:?}", last.elapsed());
    assert_eq!(keep_alive(&mut clients).await.expect("an answer"), 0, "the lease is gone");
}
