//! Requests at and beyond a limit, and the exact answer to each.

use crate::common::Clients;
use assay::proto::etcdserverpb::request_op::Request;
use assay::proto::etcdserverpb::watch_request::RequestUnion;
use assay::proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp,
    TxnRequest, WatchCreateRequest, WatchRequest,
};
use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};

/// Default of `--max-request-bytes`.
pub(crate) const REQUEST_BYTES: usize = 1_572_864;
/// Largest message that the transport takes by default.
pub(crate) const MESSAGE_BYTES: usize = REQUEST_BYTES + 524_288;
/// Default of `--max-txn-ops`.
pub(crate) const TXN_OPS: usize = 128;
/// More than the server adds to a put before it measures it, in bytes.
pub(crate) const ENVELOPE: usize = 100;

pub(crate) const TOO_LARGE: &str = "etcdserver: request is too large";
pub(crate) const TOO_MANY_OPS: &str = "etcdserver: too many operations in txn request";
const EMPTY_KEY: &str = "etcdserver: key is not provided";
const DUPLICATE_KEY: &str = "etcdserver: duplicate key given in txn request";
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";
const NO_LEASE: &str = "etcdserver: requested lease not found";

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Range(RangeRequest),
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Txn(TxnRequest),
    Compact(i64),
    Watch(WatchCreateRequest),
}

/// A request, its name, and the error that must come, if any.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) ask: Ask,
    pub(crate) error: Option<(Code, String)>,
}

/// Sends a request.
pub(crate) async fn send(clients: &mut Clients, ask: Ask) -> Result<(), Status> {
    match ask {
        Ask::Range(asked) => clients.kv.range(asked).await.map(drop),
        Ask::Put(asked) => clients.kv.put(asked).await.map(drop),
        Ask::Delete(asked) => clients.kv.delete_range(asked).await.map(drop),
        Ask::Txn(asked) => clients.kv.txn(asked).await.map(drop),
        Ask::Compact(revision) => {
            let asked = CompactionRequest { revision, physical: true };
            clients.kv.compact(asked).await.map(drop)
        }
        Ask::Watch(asked) => {
            let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(asked)) };
            let requests = tokio_stream::iter([request]);
            let mut answers = clients.watch.watch(requests).await?.into_inner();
            answers.message().await.map(drop)
        }
    }
}

/// A put whose message is exactly this long.
pub(crate) fn put_of(message_bytes: usize) -> PutRequest {
    let mut put = put(b"large");
    let value = Bytes::from(vec![b'x'; message_bytes]);
    // Key, tags and lengths take up to twenty bytes; the length of the value's length depends on it.
    for overhead in 0..20 {
        put.value = value.slice(overhead..);
        if put.encoded_len() == message_bytes {
            return put;
        }
    }
    unreachable!("no put of {message_bytes} bytes")
}

pub(crate) fn put(key: &'static [u8]) -> PutRequest {
    PutRequest { key: Bytes::from_static(key), ..Default::default() }
}

fn range(key: &'static [u8], revision: i64) -> RangeRequest {
    RangeRequest { key: Bytes::from_static(key), revision, ..Default::default() }
}

fn delete(key: &'static [u8], end: &'static [u8]) -> DeleteRangeRequest {
    let (key, range_end) = (Bytes::from_static(key), Bytes::from_static(end));
    DeleteRangeRequest { key, range_end, prev_kv: false }
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn then(ops: impl IntoIterator<Item = Request>) -> Ask {
    let success = ops.into_iter().map(op).collect();
    Ask::Txn(TxnRequest { success, ..Default::default() })
}

/// A transaction with this many ranges in its success branch.
pub(crate) fn txn_of(ops: usize) -> TxnRequest {
    let op = op(Request::RequestRange(range(b"k", 0)));
    TxnRequest { success: vec![op; ops], ..Default::default() }
}

/// What [`prepare`] leaves: revision 5, compacted at 3.
pub(crate) async fn prepare(clients: &mut Clients) {
    for key in [&b"k"[..], b"k", b"k", b"j"] {
        send(clients, Ask::Put(put(key))).await.expect("put");
    }
    send(clients, Ask::Compact(3)).await.expect("compact");
}

/// The requests, after [`prepare`], with every limit at its default.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name, ask, error: Option<(Code, &str)>| {
        let error = error.map(|(code, text)| (code, text.to_string()));
        cases.push(Case { name, ask, error });
    };
    let invalid = |text| Some((Code::InvalidArgument, text));
    let out = |text| Some((Code::OutOfRange, text));

    case("range without key", Ask::Range(range(b"", 0)), invalid(EMPTY_KEY));
    case("put without key", Ask::Put(put(b"")), invalid(EMPTY_KEY));
    case("delete without key", Ask::Delete(delete(b"", b"")), invalid(EMPTY_KEY));
    case("put in a txn without key", then([Request::RequestPut(put(b""))]), invalid(EMPTY_KEY));
    let compare = vec![Compare::default()];
    let ask = Ask::Txn(TxnRequest { compare, ..Default::default() });
    case("compare without key", ask, invalid(EMPTY_KEY));
    let nested = TxnRequest { success: vec![op(Request::RequestPut(put(b"")))], ..txn_of(0) };
    case("nested without key", then([Request::RequestTxn(nested)]), invalid(EMPTY_KEY));

    case("range in the future", Ask::Range(range(b"k", 6)), out(FUTURE));
    case("range at the last revision", Ask::Range(range(b"k", 5)), None);
    case("range at the compacted revision", Ask::Range(range(b"k", 3)), None);
    case("range in the past", Ask::Range(range(b"k", 2)), out(COMPACTED));
    let ask = then([Request::RequestPut(put(b"no")), Request::RequestRange(range(b"k", 99))]);
    case("txn in the future", ask, out(FUTURE));
    case("txn in the past", then([Request::RequestRange(range(b"k", 2))]), out(COMPACTED));
    case("compaction in the future", Ask::Compact(6), out(FUTURE));
    case("compaction again", Ask::Compact(3), out(COMPACTED));
    case("compaction in the past", Ask::Compact(-1), out(COMPACTED));

    case("txn with all ops", Ask::Txn(txn_of(TXN_OPS)), None);
    case("txn with too many ops", Ask::Txn(txn_of(TXN_OPS + 1)), invalid(TOO_MANY_OPS));
    let failure = txn_of(TXN_OPS + 1).success;
    let ask = Ask::Txn(TxnRequest { failure, ..Default::default() });
    case("txn with too many ops in failure", ask, invalid(TOO_MANY_OPS));
    let compare = vec![Compare { key: Bytes::from_static(b"k"), ..Default::default() }; 129];
    let ask = Ask::Txn(TxnRequest { compare, ..Default::default() });
    case("txn with too many compares", ask, invalid(TOO_MANY_OPS));
    let ask = then([Request::RequestTxn(txn_of(TXN_OPS - 1))]);
    case("nested txn with what is left", ask, None);
    let ask = then([Request::RequestTxn(txn_of(TXN_OPS))]);
    case("nested txn with more than is left", ask, invalid(TOO_MANY_OPS));

    let twice = [Request::RequestPut(put(b"d")), Request::RequestPut(put(b"d"))];
    case("two puts of one key", then(twice.clone()), invalid(DUPLICATE_KEY));
    let failure = twice.map(op).to_vec();
    let ask = Ask::Txn(TxnRequest { failure, ..Default::default() });
    case("two puts of one key in failure", ask, invalid(DUPLICATE_KEY));
    let delete_all = Request::RequestDeleteRange(delete(b"a", b"z"));
    let ask = then([Request::RequestPut(put(b"d")), delete_all.clone()]);
    case("put and delete of one key", ask, invalid(DUPLICATE_KEY));
    case("two deletes", then([delete_all.clone(), delete_all]), None);

    let unknown = PutRequest { lease: 4711, ..put(b"k") };
    case("put with an unknown lease", Ask::Put(unknown), Some((Code::NotFound, NO_LEASE)));

    let fits = REQUEST_BYTES - ENVELOPE;
    case("largest put", Ask::Put(put_of(fits)), None);
    case("put beyond the limit", Ask::Put(put_of(REQUEST_BYTES + 1)), invalid(TOO_LARGE));
    let put = put_of(REQUEST_BYTES + 1);
    case("large put in a txn", then([Request::RequestPut(put)]), invalid(TOO_LARGE));
    case("largest message", Ask::Put(put_of(MESSAGE_BYTES)), invalid(TOO_LARGE));
    let text = "grpc: received message larger than max (2097153 vs. 2097152)";
    let exhausted = Some((Code::ResourceExhausted, text));
    case("message beyond the limit", Ask::Put(put_of(MESSAGE_BYTES + 1)), exhausted);
    let text = "grpc: received message larger than max (2097172 vs. 2097152)";
    let key = vec![b'k'; MESSAGE_BYTES + 10].into();
    let watch = WatchCreateRequest { key, ..Default::default() };
    let exhausted = Some((Code::ResourceExhausted, text));
    case("watch request beyond the limit", Ask::Watch(watch), exhausted);
    let text = "grpc: received message larger than max (9000009 vs. 2097152)";
    let exhausted = Some((Code::ResourceExhausted, text));
    case("message far beyond the limit", Ask::Put(put_of(9_000_009)), exhausted);
    cases
}
