//! What a server must refuse, and what must not stop it.
//!
//! Errors have the exact code and text of `errors.md`; a real etcd, where there is one, is asked the
//! same and must answer the same.
#![allow(clippy::disallowed_methods, reason = "tests own their clocks and threads")]

#[path = "limits/cases.rs"]
mod cases;
mod common;
#[path = "limits/connections.rs"]
mod connections;
#[path = "limits/raw.rs"]
mod raw;

use cases::{Ask, ENVELOPE, TOO_LARGE, TOO_MANY_OPS, put_of, send, txn_of};
use common::{Launch, Node, Tool};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use raw::{Raw, Reply, frame};
use std::io::Write;
use std::time::Duration;
use tonic::Code;

const RANGE: &str = "/etcdserverpb.KV/Range";
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The subject, and a real etcd if there is one (in CI there must be).
fn servers() -> Vec<(&'static str, Node)> {
    let mut servers = vec![("subject", Launch::subject().start())];
    if let Some(etcd) = Tool::Etcd.require() {
        servers.push(("etcd", Launch::etcd(&etcd).arg("--unsafe-no-fsync").start()));
    }
    servers
}

#[tokio::test]
async fn errors_at_the_limits_are_exact() {
    for (server, node) in servers() {
        let mut clients = node.clients().await;
        cases::prepare(&mut clients).await;
        let mut wrong = Vec::new();
        for case in cases::cases() {
            let answer = tokio::time::timeout(PATIENCE, send(&mut clients, case.ask)).await;
            let answer = answer.unwrap_or_else(|_| panic!("{server}, {}: no answer", case.name));
            let error = answer.err().map(|status| (status.code(), status.message().to_string()));
            if error != case.error {
                wrong.push(format!("{}: {error:?}, must be {:?}", case.name, case.error));
            }
        }
        assert!(wrong.is_empty(), "{server}:\n{}", wrong.join("\n"));
    }
}

#[tokio::test]
async fn the_limits_follow_the_flags() {
    let node = Launch::subject().arg("--max-txn-ops=10").arg("--max-request-bytes=100000").start();
    let mut clients = node.clients().await;
    let invalid = |text: &str| Err((Code::InvalidArgument, text.to_string()));
    let larger = "grpc: received message larger than max (624289 vs. 624288)".to_string();
    for (ask, expected) in [
        (Ask::Txn(txn_of(10)), Ok(())),
        (Ask::Txn(txn_of(11)), invalid(TOO_MANY_OPS)),
        (Ask::Put(put_of(100_000 - ENVELOPE)), Ok(())),
        (Ask::Put(put_of(100_001)), invalid(TOO_LARGE)),
        (Ask::Put(put_of(624_288)), invalid(TOO_LARGE)),
        (Ask::Put(put_of(624_289)), Err((Code::ResourceExhausted, larger))),
    ] {
        let answer = send(&mut clients, ask).await;
        assert_eq!(answer.map_err(|status| (status.code(), status.message().into())), expected);
    }
}

async fn ask(node: &Node, raw: Raw) -> Result<Reply, String> {
    let clients = node.clients().await;
    let answer = tokio::time::timeout(PATIENCE, raw.send(&clients.channel)).await;
    answer.unwrap_or_else(|_| Err("no answer".into()))
}

/// Requests that are no calls of a known method, with HTTP status, gRPC status and message.
fn not_calls() -> Vec<(Raw, u16, u32, &'static str)> {
    let unknown_type = |value| Raw::to(RANGE).header("content-type", value);
    vec![
        (
            Raw::to("/etcdserverpb.KV/Nope"),
            200,
            12,
            "unknown method Nope for service etcdserverpb.KV",
        ),
        (
            Raw::to("/etcdserverpb.Lease/Range"),
            200,
            12,
            "unknown method Range for service etcdserverpb.Lease",
        ),
        (Raw::to("/no.Such/Thing"), 200, 12, "unknown service no.Such"),
        (Raw::to("/a/b/c"), 200, 12, "unknown service a/b"),
        (
            Raw::to("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
            200,
            12,
            "unknown service grpc.reflection.v1.ServerReflection",
        ),
        (Raw::to("/etcdserverpb.KV"), 200, 12, "malformed method name: \"/etcdserverpb.KV\""),
        (Raw::to("/"), 200, 12, "malformed method name: \"/\""),
        (unknown_type("text/plain"), 415, 3, "invalid gRPC request content-type \"text/plain\""),
        (
            unknown_type("application/json"),
            415,
            3,
            "invalid gRPC request content-type \"application/json\"",
        ),
        (
            unknown_type("application/grpc-web"),
            415,
            3,
            "invalid gRPC request content-type \"application/grpc-web\"",
        ),
        (Raw::to(RANGE).without("content-type"), 415, 3, "invalid gRPC request content-type \"\""),
        (
            Raw::to(RANGE).method(Method::GET),
            405,
            13,
            "Received a HEADERS frame with :method \"GET\" which should be POST",
        ),
        (
            Raw::to(RANGE).body(vec![0, 0xff, 0xff, 0xff, 0xff, 1]),
            200,
            8,
            "grpc: received message larger than max (4294967295 vs. 2097152)",
        ),
    ]
}

#[tokio::test]
async fn requests_that_are_no_calls_are_refused_in_the_same_words() {
    for (server, node) in servers() {
        let mut wrong = Vec::new();
        for (raw, http, status, message) in not_calls() {
            let name = format!("{raw:?}");
            let reply = ask(&node, raw).await;
            let got = reply.as_ref().map(|reply| {
                let (status, message) = (reply.status.clone(), unescape(&reply.message));
                (reply.http, status, message, reply.content_type.clone())
            });
            let grpc = "application/grpc".to_string();
            if got != Ok((http, status.to_string(), message.to_string(), grpc)) {
                wrong.push(format!("{name}:\n  {reply:?}\n  must be {http}, {status}, {message}"));
            }
        }
        assert!(wrong.is_empty(), "{server}:\n{}", wrong.join("\n"));
    }
}

/// Undoes the escapes that gRPC puts into messages: `%` and two hexadecimal digits.
fn unescape(message: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = message.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = (*first == b'%').then(|| tail.get(..2)).flatten();
        let code = code.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Calls whose message is damaged: the code is etcd's, the words are those of the library.
#[tokio::test]
async fn damaged_messages_are_refused_with_the_same_code() {
    let gzip = |message: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(message).expect("compress");
        let mut body = frame(&encoder.finish().expect("compress")).to_vec();
        body[0] = 1;
        body
    };
    let get = [0x0a, 1, b'k'];
    let to = || Raw::to(RANGE);
    let cases: [(&str, Raw, &str); 8] = [
        ("not protobuf", to().body(frame(&[0xff; 40])), "13"),
        ("cut protobuf", to().body(frame(&[0x0a, 200])), "13"),
        ("unknown frame flag", to().body(vec![7, 0, 0, 0, 0]), "13"),
        ("compressed without a method", to().body(vec![1, 0, 0, 0, 1, 7]), "13"),
        (
            "unknown compression",
            to().header("grpc-encoding", "snappy").body(vec![1, 0, 0, 0, 1, 7]),
            "12",
        ),
        ("compressed", to().header("grpc-encoding", "gzip").body(gzip(&get)), "0"),
        (
            "protobuf named",
            to().header("content-type", "application/grpc+proto").body(frame(&get)),
            "0",
        ),
        ("watch of garbage", Raw::to("/etcdserverpb.Watch/Watch").body(frame(&[0xff; 40])), "13"),
    ];
    for (server, node) in servers() {
        let mut wrong = Vec::new();
        for (name, raw, status) in cases.clone() {
            let reply = ask(&node, raw).await;
            let got = reply.as_ref().map(|reply| (reply.http, reply.status.as_str()));
            if got != Ok((200, status)) {
                wrong.push(format!("{name}: {reply:?}, must be gRPC status {status}"));
            }
        }
        assert!(wrong.is_empty(), "{server}:\n{}", wrong.join("\n"));
        // None of it has hurt the server.
        let reply = ask(&node, to().body(frame(&get))).await;
        assert_eq!(reply.map(|reply| reply.status), Ok("0".into()), "{server}");
    }
}
