//! What lasts over restarts: leases, ids, and that no request id comes twice.

use crate::STOP;
use crate::common::{Launch, entries};
use assay::proto::etcdserverpb::{
    InternalRaftRequest, LeaseGrantRequest, LeaseTimeToLiveRequest, MemberListRequest, PutRequest,
    RangeRequest,
};
use prost::Message;
use std::collections::HashSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_last_over_restarts() {
    let mut node = Launch::assay().start();
    let mut clients = node.clients().await;
    let grant = |id, ttl| LeaseGrantRequest { id, ttl };
    clients.lease.lease_grant(grant(77, 600)).await.expect("a lease");
    clients.lease.lease_grant(grant(78, 2)).await.expect("a lease");
    for (key, lease) in [("long", 77), ("short", 78)] {
        let put = PutRequest { key: key.into(), lease, ..PutRequest::default() };
        clients.kv.put(put).await.expect("a put");
    }
    for orderly in [false, true] {
        if orderly {
            assert!(node.terminate(STOP).success());
        } else {
            node.kill();
        }
        node.restart();
        let mut clients = node.clients().await;
        let ask = LeaseTimeToLiveRequest { id: 77, keys: true };
        let left = clients.lease.lease_time_to_live(ask).await.expect("an answer").into_inner();
        assert_eq!((left.id, left.granted_ttl), (77, 600));
        assert!((1..=601).contains(&left.ttl), "{} s left", left.ttl);
        assert_eq!(left.keys, ["long"]);
    }
    // The short one ends in the new process.
    let mut clients = node.clients().await;
    let get = || RangeRequest { key: "short".into(), ..RangeRequest::default() };
    let start = std::time::Instant::now();
    while clients.kv.range(get()).await.expect("a get").into_inner().count > 0 {
        assert!(start.elapsed() < STOP, "the lease does not end");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_last_and_request_ids_are_unique() {
    let mut node = Launch::assay().start();
    let mut identities = HashSet::new();
    let mut written = 0;
    for start in 0..4 {
        let mut clients = node.clients().await;
        let list = clients.cluster.member_list(MemberListRequest::default()).await;
        let list = list.expect("the members").into_inner();
        let header = list.header.expect("a header");
        assert_eq!(list.members.len(), 1);
        assert_eq!(list.members[0].id, header.member_id);
        identities.insert((header.cluster_id, header.member_id));
        for n in 0..20 {
            let put = PutRequest { key: format!("{start}/{n}").into(), ..PutRequest::default() };
            clients.kv.put(put).await.expect("a put");
            written += 1;
        }
        if start % 2 == 0 {
            node.kill()
        } else {
            assert!(node.terminate(STOP).success())
        }
        node.restart();
    }
    assert_eq!(identities.len(), 1, "{identities:?}");
    assert!(node.terminate(STOP).success());
    let commands: Vec<InternalRaftRequest> = entries(&node.data_dir().join("member/wal"))
        .into_iter()
        .filter(|entry| entry.kind == 0 && !entry.data.is_empty())
        .map(|entry| InternalRaftRequest::decode(entry.data).expect("a command"))
        .collect();
    let ids: Vec<u64> =
        commands.iter().map(|it| it.header.as_ref().expect("a header").id).collect();
    assert!(ids.len() >= written, "{} commands in the log", ids.len());
    assert!(!ids.contains(&0));
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "a request id came twice");
}
