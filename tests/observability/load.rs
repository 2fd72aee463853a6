//! Requests of every kind, so that every metric moves.

use super::common::Clients;
use assay::proto::etcdserverpb::watch_request::RequestUnion;
use assay::proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, HashKvRequest, HashRequest, LeaseGrantRequest,
    LeaseRevokeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest,
    WatchRequest, request_op,
};
use tokio::sync::mpsc;

/// What has to stay open for gauges to show it.
pub(crate) struct Held {
    _requests: mpsc::Sender<WatchRequest>,
    _events: tonic::Streaming<assay::proto::etcdserverpb::WatchResponse>,
    _clients: Clients,
}

fn put(key: String, bytes: usize) -> PutRequest {
    PutRequest { key: key.into(), value: vec![b'v'; bytes].into(), ..PutRequest::default() }
}

/// One put after the other: each is one group of the log.
pub(crate) async fn puts(clients: &Clients, count: usize) {
    let mut kv = clients.kv.clone();
    for number in 0..count {
        kv.put(put(format!("key/{:05}", number % 500), 256)).await.expect("a put");
    }
}

/// Puts from `workers` at a time.
pub(crate) async fn parallel_puts(clients: &Clients, workers: usize, each: usize) {
    let tasks: Vec<_> = (0..workers)
        .map(|worker| {
            let mut kv = clients.kv.clone();
            tokio::spawn(async move {
                for number in 0..each {
                    kv.put(put(format!("{worker}/{number}"), 1024)).await.expect("a put");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a worker");
    }
}

/// Every kind of request once, errors too. Watch, lease and connection stay open.
pub(crate) async fn everything(url: &str) -> Held {
    let clients = Clients::connect(url).await;
    let (mut kv, mut lease) = (clients.kv.clone(), clients.lease.clone());
    let create =
        WatchCreateRequest { key: "key".into(), range_end: "kez".into(), ..Default::default() };
    let (requests, receiver) = mpsc::channel(1);
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    requests.send(create).await.expect("a request");
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut events = clients.watch.clone().watch(stream).await.expect("a watch").into_inner();
    events.message().await.expect("created").expect("a message");

    let granted = lease.lease_grant(LeaseGrantRequest { ttl: 600, id: 7 }).await.expect("a lease");
    assert_eq!(granted.into_inner().id, 7);
    lease.lease_grant(LeaseGrantRequest { ttl: 600, id: 8 }).await.expect("a lease");
    lease.lease_revoke(LeaseRevokeRequest { id: 8 }).await.expect("revoked");
    lease.lease_revoke(LeaseRevokeRequest { id: 9 }).await.expect_err("no such lease");

    puts(&clients, 50).await;
    let op = |number: usize| RequestOp {
        request: Some(request_op::Request::RequestPut(put(format!("txn/{number}"), 10))),
    };
    let txn = TxnRequest { success: vec![op(1), op(2)], ..TxnRequest::default() };
    kv.txn(txn).await.expect("a transaction");
    let range = RangeRequest { key: "key/".into(), range_end: "key0".into(), ..Default::default() };
    let kvs = kv.range(range).await.expect("a range").into_inner().kvs;
    assert_eq!(kvs.len(), 50);
    let delete = DeleteRangeRequest { key: "key/00001".into(), ..Default::default() };
    let revision = kv.delete_range(delete).await.expect("a delete").into_inner().header;
    let revision = revision.expect("a header").revision;
    kv.put(put(String::new(), 1)).await.expect_err("an empty key");
    let compact = CompactionRequest { revision: revision - 10, physical: true };
    kv.compact(compact).await.expect("a compaction");
    kv.compact(compact).await.expect_err("compacted already");
    let mut maintenance = clients.maintenance.clone();
    maintenance.hash(HashRequest {}).await.expect("a hash");
    maintenance.hash_kv(HashKvRequest::default()).await.expect("a hash");

    // A client that goes.
    drop(Clients::connect(url).await);
    Held { _requests: requests, _events: events, _clients: clients }
}
