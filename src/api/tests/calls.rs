//! Rules that hold for every call, and its counting.

use super::*;
use crate::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use crate::proto::etcdserverpb::{PutRequest, RangeRequest, SnapshotRequest, StatusRequest};
use std::sync::atomic::Ordering::SeqCst;

const RANGE: &str = "/etcdserverpb.KV/Range";

fn text(text: &str) -> String {
    text.to_owned()
}

fn key() -> RangeRequest {
    RangeRequest { key: "k".into(), ..Default::default() }
}

#[tokio::test]
async fn client_api_versions_must_be_utf8() {
    let api = Api::start();
    let version = http::HeaderValue::from_bytes(b"3.\xff").unwrap();
    let request = grpc(RANGE).header("client-api-version", version).body(()).unwrap();
    let answered = api.send(request, framed(0, &key().encode_to_vec())).await;
    let expected = text("etcdserver: invalid client api version");
    assert_eq!(answered.status(), (Code::InvalidArgument, expected));
    assert_eq!(api.finished(1).await, [(Method::Range, Code::InvalidArgument)]);
}

#[tokio::test]
async fn clients_that_want_a_leader_are_refused_without_one() {
    let api = Api::start();
    let send = async || {
        let request = grpc(RANGE).header("hasleader", "true").body(()).unwrap();
        api.send(request, framed(0, &key().encode_to_vec())).await.status()
    };
    assert_eq!(send().await.0, Code::Ok);
    api.node.state.leader.store(0, SeqCst);
    assert_eq!(send().await, (Code::Unavailable, text("etcdserver: no leader")));
    let answered = api.call(RANGE, &key()).await;
    assert_eq!(answered.status().0, Code::Ok, "without the header a call waits for its quorum");
}

#[tokio::test]
async fn streams_that_want_a_leader_end_when_it_is_gone_for_long() {
    let api = Api::start();
    let request = grpc("/grpc.health.v1.Health/Watch").header("hasleader", "true");
    let mut client = api.h2().await;
    let (response, mut stream) = client.send_request(request.body(()).unwrap(), false).unwrap();
    stream.send_data(framed(0, &[]).into(), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert!(body.data().await.unwrap().is_ok(), "SERVING");
    api.node.state.leader.store(0, SeqCst);
    assert!(tokio::time::timeout(SOON, body.data()).await.unwrap().is_none());
    let status = Status::from_header_map(&body.trailers().await.unwrap().unwrap()).unwrap();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "etcdserver: no leader"));
}

#[tokio::test]
async fn learners_serve_status_and_serializable_ranges_only() {
    let api = Api::start();
    api.node.state.learner.store(true, SeqCst);
    let refused = (Code::FailedPrecondition, text("etcdserver: rpc not supported for learner"));
    assert_eq!(api.call(RANGE, &key()).await.status(), refused);
    let serializable = RangeRequest { serializable: true, ..key() };
    assert_eq!(api.call(RANGE, &serializable).await.status().0, Code::Ok);
    let status = "/etcdserverpb.Maintenance/Status";
    assert_eq!(api.call(status, &StatusRequest {}).await.status().0, Code::Ok);
    let put = PutRequest { key: "k".into(), ..Default::default() };
    assert_eq!(api.call("/etcdserverpb.KV/Put", &put).await.status(), refused);
    let txn = crate::proto::etcdserverpb::TxnRequest::default();
    assert_eq!(api.call("/etcdserverpb.KV/Txn", &txn).await.status(), refused);
    let answered = api.call("/etcdserverpb.Maintenance/Snapshot", &SnapshotRequest {}).await;
    assert_eq!(answered.status().0, Code::Unimplemented, "not the learner rule");
}

#[tokio::test]
async fn a_fenced_member_says_how_it_is_and_shows_no_data() {
    let api = Api::start();
    api.node.state.fenced.send_replace(true);
    let refused = (Code::Unavailable, text(crate::api::status::FENCED.1));
    let serializable = RangeRequest { serializable: true, ..key() };
    assert_eq!(api.call(RANGE, &key()).await.status(), refused);
    assert_eq!(api.call(RANGE, &serializable).await.status(), refused);
    let served = |method: &&Method| method.on_fenced();
    let mut names: Vec<&str> = Method::ALL.iter().filter(served).map(|m| m.name()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "Alarm",
            "AuthStatus",
            "Check",
            "Hash",
            "HashKV",
            "MemberAdd",
            "MemberList",
            "MemberPromote",
            "MemberRemove",
            "MemberUpdate",
            "MoveLeader",
            "Status",
            "Watch"
        ],
        "the one named Watch is that of health"
    );
    assert!(!Method::Watch.on_fenced() && Method::HealthWatch.on_fenced());
    let status = "/etcdserverpb.Maintenance/Status";
    assert_eq!(api.call(status, &StatusRequest {}).await.status().0, Code::Ok);
}

#[tokio::test]
async fn calls_are_counted() {
    let api = Api::start();
    let put = PutRequest { key: "k".into(), value: "v".into(), ..Default::default() };
    api.call("/etcdserverpb.KV/Put", &put).await;
    assert_eq!(api.finished(1).await, [(Method::Put, Code::Ok)]);
    api.call("/etcdserverpb.KV/Put", &PutRequest::default()).await;
    assert_eq!(api.finished(2).await[1], (Method::Put, Code::InvalidArgument));
    assert_eq!(*api.seen.started.lock(), [Method::Put, Method::Put]);
    let messages = api.seen.messages.lock().clone();
    assert_eq!(messages[0], (Method::Put, "in", 6));
    assert_eq!((messages[1].0, messages[1].1), (Method::Put, "out"));
    assert_eq!(messages[2], (Method::Put, "in", 0));
    assert_eq!(messages.len(), 3, "a refused call sends no message");
}

#[tokio::test]
async fn calls_whose_client_goes_away_end_as_canceled() {
    let api = Api::start();
    api.node.state.hang.store(true, SeqCst);
    let mut client = api.h2().await;
    let (response, mut stream) = client.send_request(grpc(RANGE).body(()).unwrap(), false).unwrap();
    stream.send_data(framed(0, &key().encode_to_vec()).into(), true).unwrap();
    while api.node.state.linearized.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    stream.send_reset(h2::Reason::CANCEL);
    drop(response);
    assert_eq!(api.finished(1).await, [(Method::Range, Code::Cancelled)]);
}

#[tokio::test]
async fn a_stream_that_its_client_leaves_counts_as_canceled() {
    let api = Api::start();
    let mut client = tonic_health::pb::health_client::HealthClient::new(api.channel().await);
    let request = tonic_health::pb::HealthCheckRequest::default();
    let mut stream = client.watch(request).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().status, 1);
    drop((stream, client));
    assert_eq!(api.finished(1).await, [(Method::HealthWatch, Code::Cancelled)]);
}

#[tokio::test]
async fn refusals_of_the_node_have_etcds_texts() {
    let api = Api::start();
    let mut client = MaintenanceClient::new(api.channel().await);
    *api.node.state.refuse.lock() = Some(crate::node::Refused::Timeout);
    let answered = api.call(RANGE, &key()).await;
    let expected = (Code::Unavailable, text("etcdserver: request timed out"));
    assert_eq!(answered.status(), expected);
    assert_eq!(client.status(StatusRequest {}).await.unwrap().into_inner().version, "3.7.1");
}

#[test]
fn the_user_of_a_certificate_is_known_to_the_call() {
    use crate::api::context::{Identity, RequestContext};
    use crate::edge::{ConnInfo, Remote};
    let context = |user: Option<&str>| {
        let connection = ConnInfo {
            remote: Remote::Unix,
            port: Port::Client,
            tls: true,
            verified: true,
            user: user.map(Arc::from),
        };
        let mut request = http::Request::new(());
        request.extensions_mut().insert(Arc::new(connection));
        RequestContext::new(Method::Put, &request).unwrap()
    };
    assert_eq!(context(Some("alice")).certificate_user.as_deref(), Some("alice"));
    assert_eq!(context(None).certificate_user, None);
    // Knowing a name grants nothing: whoever checks tokens decides.
    assert_eq!(context(Some("alice")).identity, Identity::Anonymous);
}
