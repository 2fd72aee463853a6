//! Linearizable reads that wait for a long apply are counted as slow.

use super::common::{Clients, Launch};
use super::http::get;
use super::names;
use assay::proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use assay::proto::etcdserverpb::{PutRequest, RangeRequest, RequestOp, TxnRequest, request_op};
use std::time::{Duration, Instant};

/// Keys that each range of the long transaction walks.
const KEYS: usize = 5_000;
const LIMIT: Duration = Duration::from_secs(120);
const SERIES: &str = "etcd_server_slow_read_indexes_total";

fn op(request: request_op::Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn put(key: String) -> PutRequest {
    PutRequest { key: key.into(), ..PutRequest::default() }
}

/// A transaction that takes long to apply: a put, so that it goes through the log, and `ranges`
/// walks over all keys, whose rows have to be fetched to be put in order.
fn long(ranges: usize) -> TxnRequest {
    let range = RangeRequest {
        key: "k".into(),
        range_end: "l".into(),
        sort_order: SortOrder::Ascend as i32,
        sort_target: SortTarget::Value as i32,
        limit: 1,
        ..RangeRequest::default()
    };
    let mut success = vec![op(request_op::Request::RequestPut(put("long".into())))];
    success.resize(ranges + 1, op(request_op::Request::RequestRange(range)));
    TxnRequest { success, ..TxnRequest::default() }
}

async fn read(clients: &Clients) {
    let range = RangeRequest { key: "k0".into(), ..RangeRequest::default() };
    clients.kv.clone().range(range).await.expect("a read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_that_wait_for_a_long_apply_are_counted() {
    let node = Launch::assay().start();
    let clients = node.clients().await;
    let count = || names::value(&get(node.ports()[2], "/metrics"), SERIES).expect("the series");
    for from in (0..KEYS).step_by(100) {
        let puts = (from..from + 100)
            .map(|n| op(request_op::Request::RequestPut(put(format!("k{n}")))))
            .collect();
        let txn = TxnRequest { success: puts, ..TxnRequest::default() };
        clients.kv.clone().txn(txn).await.expect("puts");
    }
    let (start, before) = (Instant::now(), count());
    // Several in a row in one turn of applying: a read that comes meanwhile waits for the last one.
    for rounds in (1..).map(|n| 4 * n) {
        let tasks: Vec<_> = (0..rounds)
            .map(|_| {
                let mut kv = clients.kv.clone();
                tokio::spawn(async move { kv.txn(long(120)).await })
            })
            .collect();
        let mut reads = Vec::new();
        while !tasks.iter().all(tokio::task::JoinHandle::is_finished) && reads.len() < 500 {
            let clients = clients.clone();
            reads.push(tokio::spawn(async move { read(&clients).await }));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for task in reads {
            task.await.expect("a read");
        }
        for task in tasks {
            // One that waited too long is refused; the others made the reads wait.
            let _ = task.await.expect("a transaction");
        }
        if count() > before {
            return;
        }
        assert!(start.elapsed() < LIMIT, "no read was slow, with {rounds} transactions at once");
    }
}
