//! What grpc-go says where tonic and h2 would use words of their own.

use super::*;
use crate::proto::etcdserverpb::{PutRequest, RangeRequest, RangeResponse};
use flate2::{Compression, write::GzEncoder};
use std::io::Write;

const RANGE: &str = "/etcdserverpb.KV/Range";
const PUT: &str = "/etcdserverpb.KV/Put";

fn range() -> Vec<u8> {
    framed(0, &RangeRequest { key: "k".into(), ..Default::default() }.encode_to_vec())
}

#[tokio::test]
async fn unknown_services_methods_and_malformed_paths() {
    let api = Api::start();
    for (path, text) in [
        ("/foo.Bar/Baz", "unknown service foo.Bar"),
        ("/etcdserverpb.KV/Nope", "unknown method Nope for service etcdserverpb.KV"),
        ("/etcdserverpb.KV", r#"malformed method name: "/etcdserverpb.KV""#),
        ("/", r#"malformed method name: "/""#),
    ] {
        let answered = api.send(grpc(path).body(()).unwrap(), range()).await;
        assert_eq!(answered.http, 200, "{path}");
        assert_eq!(answered.status(), (Code::Unimplemented, text.to_owned()));
    }
    assert!(api.seen.started.lock().is_empty(), "unknown methods are not counted");
}

#[tokio::test]
async fn a_service_that_is_not_built_says_so() {
    let api = Api::start();
    let answered = api.send(grpc("/v3lockpb.Lock/Lock").body(()).unwrap(), framed(0, &[])).await;
    let text = "assay: v3lockpb.Lock/Lock is not served by this version";
    assert_eq!(answered.status(), (Code::Unimplemented, text.to_owned()));
    assert_eq!(api.finished(1).await, [(Method::Lock, Code::Unimplemented)]);
}

#[tokio::test]
async fn wrong_content_types() {
    let api = Api::start();
    for (value, shown) in
        [("application/json", "application/json"), ("application/grpcweb", "application/grpcweb")]
    {
        let request = Request::post(format!("http://api{RANGE}")).header("content-type", value);
        let answered = api.send(request.body(()).unwrap(), range()).await;
        assert_eq!(answered.http, 415);
        assert_eq!(answered.headers["content-type"], "application/grpc");
        let text = format!("invalid gRPC request content-type {shown:?}");
        assert_eq!(answered.status(), (Code::InvalidArgument, text));
    }
    for value in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
        let request = Request::post(format!("http://api{RANGE}")).header("content-type", value);
        let answered = api.send(request.body(()).unwrap(), range()).await;
        assert_eq!(answered.status().0, Code::Ok, "{value}");
    }
}

#[tokio::test]
async fn other_http_methods_and_bad_timeouts() {
    let api = Api::start();
    let put = Request::put(format!("http://api{RANGE}")).header("content-type", "application/grpc");
    let answered = api.send(put.body(()).unwrap(), range()).await;
    let text = r#"Received a HEADERS frame with :method "PUT" which should be POST"#;
    assert_eq!((answered.http.as_u16(), answered.status()), (405, (Code::Internal, text.into())));
    for value in ["18f6n", "1", "S", "123456789S", "5x"] {
        let request = grpc(RANGE).header("grpc-timeout", value).body(()).unwrap();
        let answered = api.send(request, range()).await;
        assert_eq!(answered.http, 400, "{value}");
        let (code, text) = answered.status();
        assert_eq!(code, Code::Internal);
        assert!(text.starts_with("malformed grpc-timeout: "), "{text}");
    }
}

#[tokio::test]
async fn the_clients_deadline_is_kept() {
    let api = Api::start();
    api.node.state.hang.store(true, std::sync::atomic::Ordering::SeqCst);
    let request = grpc(RANGE).header("grpc-timeout", "30m").body(()).unwrap();
    let answered = api.send(request, range()).await;
    let text = "context deadline exceeded".to_owned();
    assert_eq!(answered.status(), (Code::DeadlineExceeded, text));
    assert_eq!(api.finished(1).await, [(Method::Range, Code::DeadlineExceeded)]);
}

#[tokio::test]
async fn messages_above_the_limit() {
    let api = Api::start();
    for len in [2_097_153u32, u32::MAX] {
        // Only the announced length counts: nothing is waited for or allocated.
        let mut body = vec![0];
        body.put_u32(len);
        body.put_bytes(7, 100);
        let answered = api.send(grpc(PUT).body(()).unwrap(), body).await;
        let text = format!("grpc: received message larger than max ({len} vs. 2097152)");
        assert_eq!(answered.status(), (Code::ResourceExhausted, text));
    }
    // One byte less reaches the check of the command's size.
    let put =
        PutRequest { key: "k".into(), value: vec![0; 2_097_130].into(), ..Default::default() };
    let payload = put.encode_to_vec();
    assert!(payload.len() <= 2_097_152);
    let answered = api.send(grpc(PUT).body(()).unwrap(), framed(0, &payload)).await;
    assert_eq!(
        answered.status(),
        (Code::InvalidArgument, "etcdserver: request is too large".to_owned())
    );
}

#[tokio::test]
async fn messages_that_are_none() {
    let api = Api::start();
    let cases = [
        (framed(1, b"x"), "grpc: compressed flag set with identity or empty encoding"),
        (framed(9, b"x"), "grpc: received unexpected payload format 9"),
        (range()[..7].to_vec(), "unexpected EOF"),
    ];
    for (body, text) in cases {
        let answered = api.send(grpc(RANGE).body(()).unwrap(), body).await;
        assert_eq!(answered.status(), (Code::Internal, text.to_owned()));
    }
    let answered = api.send(grpc(RANGE).body(()).unwrap(), framed(0, &[0xff; 20])).await;
    let (code, text) = answered.status();
    assert_eq!(code, Code::Internal);
    assert!(text.starts_with("grpc: error unmarshalling request: proto: "), "{text}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn gzip_is_understood_and_other_encodings_are_refused() {
    let api = Api::start();
    let payload = RangeRequest { key: "k".into(), ..Default::default() }.encode_to_vec();
    let request = || grpc(RANGE).header("grpc-encoding", "gzip").body(()).unwrap();
    let answered = api.send(request(), framed(1, &gzip(&payload))).await;
    assert_eq!(answered.status().0, Code::Ok);
    assert!(RangeResponse::decode(&answered.body[5..]).unwrap().header.is_some());
    assert_eq!(answered.body[0], 0, "answers are not compressed");

    let answered = api.send(request(), framed(1, b"no gzip")).await;
    let (code, text) = answered.status();
    assert_eq!(code, Code::Internal);
    assert!(text.starts_with("grpc: failed to decompress the received message: "), "{text}");

    let bomb = gzip(&vec![0; 3 << 20]);
    let answered = api.send(request(), framed(1, &bomb)).await;
    let text = "grpc: received message after decompression larger than max 2097152";
    assert_eq!(answered.status(), (Code::ResourceExhausted, text.to_owned()));

    let snappy = grpc(RANGE).header("grpc-encoding", "snappy").body(()).unwrap();
    let answered = api.send(snappy, range()).await;
    let text = r#"grpc: Decompressor is not installed for grpc-encoding "snappy""#;
    assert_eq!(answered.status(), (Code::Unimplemented, text.to_owned()));
}
