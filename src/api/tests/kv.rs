//! The KV service.

use super::*;
use crate::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::etcdserverpb::kv_client::KvClient;
use crate::proto::etcdserverpb::request_op::Request as Op;
use crate::proto::etcdserverpb::response_op::Response as Answer;
use crate::proto::etcdserverpb::*;
use crate::proto::mvccpb::KeyValue;
use std::sync::atomic::Ordering::SeqCst;

type Client = KvClient<Channel>;

async fn client(api: &Api) -> Client {
    KvClient::new(api.channel().await).max_decoding_message_size(usize::MAX)
}

fn put(key: &str, value: &str) -> PutRequest {
    PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..Default::default() }
}

fn get(key: &str) -> RangeRequest {
    RangeRequest { key: key.to_owned().into(), ..Default::default() }
}

fn all() -> RangeRequest {
    RangeRequest { key: vec![0].into(), range_end: vec![0].into(), ..Default::default() }
}

fn rows(kvs: &[Bytes]) -> Vec<(String, String, i64)> {
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let row = |row: &Bytes| {
        let kv = KeyValue::decode(row.clone()).unwrap();
        (text(kv.key), text(kv.value), kv.mod_revision)
    };
    kvs.iter().map(row).collect()
}

fn header(revision: i64) -> Option<ResponseHeader> {
    let (cluster_id, member_id) = (local::CLUSTER, local::MEMBER);
    Some(ResponseHeader { cluster_id, member_id, revision, raft_term: 7 })
}

#[tokio::test]
async fn put_get_delete_and_their_headers() {
    let api = Api::start();
    let mut kv = client(&api).await;
    let answer = kv.put(put("a", "1")).await.unwrap().into_inner();
    assert_eq!(answer, PutResponse { header: header(2), prev_kv: Bytes::new() });
    let answer = kv.put(PutRequest { prev_kv: true, ..put("a", "2") }).await.unwrap().into_inner();
    assert_eq!(answer.header, header(3));
    assert_eq!(rows(&[answer.prev_kv]), [("a".into(), "1".into(), 2)]);
    let answer = kv.range(get("a")).await.unwrap().into_inner();
    assert_eq!((answer.header, answer.count, answer.more), (header(3), 1, false));
    assert_eq!(rows(&answer.kvs), [("a".into(), "2".into(), 3)]);
    let old = kv.range(RangeRequest { revision: 2, ..get("a") }).await.unwrap().into_inner();
    assert_eq!((old.header, rows(&old.kvs)[0].1.as_str()), (header(3), "1"));
    let delete = DeleteRangeRequest { key: "a".into(), prev_kv: true, ..Default::default() };
    let answer = kv.delete_range(delete).await.unwrap().into_inner();
    assert_eq!((answer.header, answer.deleted), (header(4), 1));
    assert_eq!(rows(&answer.prev_kvs), [("a".into(), "2".into(), 3)]);
}

#[tokio::test]
async fn large_ranges_equal_small_ones() {
    let api = Api::start();
    let mut kv = client(&api).await;
    for n in 0..2_000 {
        let put = put(&format!("k{n:05}"), &"v".repeat(n % 300));
        let request = InternalRaftRequest { put: Some(put), ..Default::default() };
        api.node.apply(request).unwrap();
    }
    let answer = kv.range(all()).await.unwrap().into_inner();
    assert_eq!((answer.header, answer.count, answer.more), (header(2_001), 2_000, false));
    let listed = rows(&answer.kvs);
    assert_eq!(listed.len(), 2_000);
    for (n, (key, value, revision)) in listed.iter().enumerate() {
        assert_eq!((key, value.len()), (&format!("k{n:05}"), n % 300));
        assert_eq!(*revision, n as i64 + 2);
    }
    let limited = kv.range(RangeRequest { limit: 500, ..all() }).await.unwrap().into_inner();
    assert_eq!((limited.kvs.len(), limited.count, limited.more), (500, 2_000, true));
    let few = RangeRequest { key: "k00010".into(), range_end: "k00013".into(), ..all() };
    let few = kv.range(few).await.unwrap().into_inner();
    assert_eq!(rows(&few.kvs), listed[10..13]);
    let count = kv.range(RangeRequest { count_only: true, ..all() }).await.unwrap().into_inner();
    assert_eq!((count.kvs.len(), count.count), (0, 2_000));

    let mut stream = kv.range_stream(all()).await.unwrap().into_inner();
    let mut streamed = Vec::new();
    let mut ends = 0;
    while let Some(message) = stream.message().await.unwrap() {
        let response = message.range_response.unwrap();
        streamed.extend(rows(&response.kvs));
        if response.header.is_some() {
            assert_eq!((response.header, response.count), (header(2_001), 2_000));
            ends += 1;
        }
    }
    assert_eq!((streamed, ends), (listed, 1));
}

#[tokio::test]
async fn an_answer_beyond_the_budget_is_refused_with_numbers() {
    let api = Api::of(Local::with(|limits| limits.memory_budget = 16 << 20));
    let mut kv = client(&api).await;
    for n in 0..8 {
        kv.put(put(&format!("k{n}"), &"v".repeat(1 << 20))).await.unwrap();
    }
    let refused = kv.range(all()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("of 4194300 in use"), "{refused}");
    let three = kv.range(RangeRequest { limit: 3, ..all() }).await.unwrap().into_inner();
    assert_eq!(three.kvs.len(), 3);
    // The budget was given back.
    let three = kv.range(RangeRequest { limit: 3, ..all() }).await.unwrap().into_inner();
    assert_eq!(three.kvs.len(), 3);
}

fn op(request: Op) -> RequestOp {
    RequestOp { request: Some(request) }
}

#[tokio::test]
async fn transactions_write_through_the_log_and_read_without_it() {
    let api = Api::start();
    let mut kv = client(&api).await;
    let compare = Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Version as i32,
        key: "a".into(),
        target_union: Some(TargetUnion::Version(0)),
        ..Default::default()
    };
    let nested = TxnRequest { success: vec![op(Op::RequestRange(get("a")))], ..Default::default() };
    let txn = TxnRequest {
        compare: vec![compare],
        success: vec![op(Op::RequestPut(put("a", "1"))), op(Op::RequestTxn(nested))],
        failure: vec![op(Op::RequestRange(get("a")))],
    };
    let answer = kv.txn(txn.clone()).await.unwrap().into_inner();
    assert_eq!((answer.header, answer.succeeded), (header(2), true));
    let inner = |revision| Some(ResponseHeader { revision, ..Default::default() });
    let [first, second] = &answer.responses[..] else { panic!("{answer:?}") };
    let Some(Answer::ResponsePut(first)) = &first.response else { panic!("{first:?}") };
    assert_eq!(first.header, inner(2));
    let Some(Answer::ResponseTxn(second)) = &second.response else { panic!("{second:?}") };
    assert_eq!(second.header, inner(0));
    let proposed = api.node.state.proposed.load(SeqCst);
    let answer = kv.txn(txn).await.unwrap().into_inner();
    assert_eq!((answer.header, answer.succeeded), (header(2), false));
    assert_eq!(api.node.state.proposed.load(SeqCst), proposed + 1, "it could have written");

    let reads = TxnRequest {
        success: vec![op(Op::RequestRange(get("a"))), op(Op::RequestRange(all()))],
        ..Default::default()
    };
    let linearized = api.node.state.linearized.load(SeqCst);
    let answer = kv.txn(reads.clone()).await.unwrap().into_inner();
    assert_eq!((answer.succeeded, answer.responses.len()), (true, 2));
    assert_eq!(api.node.state.proposed.load(SeqCst), proposed + 1, "reads are not proposed");
    assert_eq!(api.node.state.linearized.load(SeqCst), linearized + 1);
    // Without operations there is nothing to linearize.
    kv.txn(TxnRequest::default()).await.unwrap();
    assert_eq!(api.node.state.linearized.load(SeqCst), linearized + 1);
}

#[tokio::test]
async fn serializable_reads_need_no_quorum() {
    let api = Api::start();
    let mut kv = client(&api).await;
    kv.put(put("a", "1")).await.unwrap();
    api.node.state.hang.store(true, SeqCst);
    let read = kv.range(RangeRequest { serializable: true, ..get("a") }).await.unwrap();
    assert_eq!(read.into_inner().count, 1);
}

async fn refused(answer: impl Future<Output = Result<impl Sized, Status>>) -> (Code, String) {
    let Err(status) = answer.await else { panic!("it was not refused") };
    (status.code(), status.message().to_owned())
}

fn error(code: Code, text: &str) -> (Code, String) {
    (code, format!("etcdserver: {text}"))
}

#[tokio::test]
async fn wrong_requests_have_etcds_errors() {
    let api = Api::start();
    let mut kv = client(&api).await;
    kv.put(put("a", "1")).await.unwrap();
    let invalid = |text| error(Code::InvalidArgument, text);
    let no_key = invalid("key is not provided");
    assert_eq!(refused(kv.clone().put(put("", "1"))).await, no_key);
    assert_eq!(refused(kv.clone().range(get(""))).await, no_key);
    assert_eq!(refused(kv.clone().range_stream(get(""))).await, no_key);
    let empty = DeleteRangeRequest::default();
    assert_eq!(refused(kv.clone().delete_range(empty)).await, no_key);
    let sort = RangeRequest { sort_order: 9, ..get("a") };
    assert_eq!(refused(kv.clone().range(sort)).await, invalid("invalid sort option"));
    let lease = PutRequest { lease: 5, ..put("a", "1") };
    assert_eq!(
        refused(kv.clone().put(lease)).await,
        error(Code::NotFound, "requested lease not found")
    );
    let ignore = PutRequest { ignore_value: true, ..put("b", "") };
    assert_eq!(refused(kv.clone().put(ignore)).await, invalid("key not found"));
    let twice = vec![op(Op::RequestPut(put("a", "1"))), op(Op::RequestPut(put("a", "2")))];
    let twice = TxnRequest { success: twice, ..Default::default() };
    assert_eq!(refused(kv.clone().txn(twice)).await, invalid("duplicate key given in txn request"));
    let many = vec![op(Op::RequestRange(get("a"))); 129];
    let many = TxnRequest { success: many, ..Default::default() };
    assert_eq!(refused(kv.clone().txn(many)).await, invalid("too many operations in txn request"));
    let future = RangeRequest { revision: 99, ..get("a") };
    let text = "mvcc: required revision is a future revision";
    assert_eq!(refused(kv.clone().range(future)).await, error(Code::OutOfRange, text));
    let compact = |revision| CompactionRequest { revision, physical: true };
    assert_eq!(refused(kv.clone().compact(compact(99))).await, error(Code::OutOfRange, text));
    kv.put(put("a", "2")).await.unwrap();
    let done = kv.compact(compact(3)).await.unwrap().into_inner();
    assert_eq!(done.header, header(3));
    let text = "mvcc: required revision has been compacted";
    assert_eq!(refused(kv.clone().compact(compact(3))).await, error(Code::OutOfRange, text));
    let old = RangeRequest { revision: 2, ..get("a") };
    assert_eq!(refused(kv.clone().range(old.clone())).await, error(Code::OutOfRange, text));
    let mut stream = kv.range_stream(RangeRequest { range_end: "b".into(), ..old }).await;
    let first = match &mut stream {
        Ok(stream) => stream.get_mut().message().await.unwrap_err(),
        Err(status) => status.clone(),
    };
    assert_eq!(
        (first.code(), first.message()),
        (Code::OutOfRange, &*format!("etcdserver: {text}"))
    );
}

#[tokio::test]
async fn streams_refuse_orders_and_filters() {
    let api = Api::start();
    let kv = client(&api).await;
    let unimplemented = |text: &str| (Code::Unimplemented, text.to_owned());
    for (order, target) in [(2, 0), (0, 1), (1, 4)] {
        let sorted = RangeRequest { sort_order: order, sort_target: target, ..all() };
        assert_eq!(
            refused(kv.clone().range_stream(sorted)).await,
            unimplemented("RangeStream does not support custom sort orders")
        );
    }
    let filtered = RangeRequest { min_mod_revision: 1, ..all() };
    assert_eq!(
        refused(kv.clone().range_stream(filtered)).await,
        unimplemented("RangeStream does not support revision filters")
    );
    let ascending = RangeRequest { sort_order: 1, ..all() };
    kv.clone().range_stream(ascending).await.unwrap();
}

#[tokio::test]
async fn the_quota_comes_before_everything_and_raises_the_alarm() {
    let api = Api::of(Local::with(|limits| limits.quota_bytes = Some(64 << 10)));
    let mut kv = client(&api).await;
    let no_space = error(Code::ResourceExhausted, "mvcc: database space exceeded");
    let mut n = 0;
    let first = loop {
        n += 1;
        match kv.put(put(&format!("k{n}"), &"v".repeat(4_000))).await {
            Ok(_) => assert!(n < 100),
            Err(status) => break status,
        }
    };
    assert_eq!((first.code(), first.message().to_owned()), no_space);
    use crate::api::Node;
    assert_eq!(api.node.alarms().len(), 1, "the alarm is up");
    // An empty key is wrong too, but the quota is looked at first.
    let large = PutRequest { value: vec![0; 60_000].into(), ..Default::default() };
    assert_eq!(refused(kv.clone().put(large)).await, no_space);
    let delete = DeleteRangeRequest { key: "k1".into(), ..Default::default() };
    assert_eq!(kv.delete_range(delete).await.unwrap().into_inner().deleted, 1);
}

#[tokio::test]
async fn a_full_file_system_refuses_what_needs_space() {
    let api = Api::start();
    let mut kv = client(&api).await;
    api.node.state.short_of_space.store(true, SeqCst);
    let no_space = error(Code::ResourceExhausted, "mvcc: database space exceeded");
    assert_eq!(refused(kv.clone().put(put("a", "1"))).await, no_space);
    kv.delete_range(DeleteRangeRequest { key: "a".into(), ..Default::default() }).await.unwrap();
    api.node.state.short_of_space.store(false, SeqCst);
    kv.put(put("a", "1")).await.unwrap();
}
