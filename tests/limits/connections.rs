//! Connections that do nothing, do it wrongly, or are very many.

use crate::cases::{Ask, put, send};
use crate::common::{Clients, Launch, Node};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Idle connections that must not matter.
const IDLE: usize = 10_000;
/// Files that the test and the server each need beside the connections.
const OTHER_FILES: u64 = 1_000;
/// Longest wait for a request among all that.
const PATIENCE: Duration = Duration::from_secs(10);

/// Beginning of every HTTP/2 connection of a client, and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const SETTINGS_ACK: [u8; 9] = [0, 0, 0, 4, 1, 0, 0, 0, 0];
const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
/// Frame type that ends a connection, and the error code for clients that ask too much.
const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).expect("connect")
}

/// A put and a read of it over a new connection, in time.
async fn serves(node: &Node) {
    let work = async {
        let mut clients = Clients::connect(&node.client_url()).await;
        send(&mut clients, Ask::Put(put(b"k"))).await.expect("put");
        let asked = assay::proto::etcdserverpb::RangeRequest {
            key: bytes::Bytes::from_static(b"k"),
            ..Default::default()
        };
        let got = clients.kv.range(asked).await.expect("range").into_inner();
        assert_eq!(got.count, 1);
    };
    tokio::time::timeout(PATIENCE, work).await.expect("an answer in time");
}

#[tokio::test]
async fn garbage_does_not_stop_service() {
    let mut node = Launch::subject().start();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for round in 0..60 {
        let mut garbage = vec![0; random.random_range(1..20_000)];
        random.fill(&mut garbage[..]);
        // A third is random from the first byte, the others begin as HTTP/2 or TLS do.
        let start: &[u8] = match round % 3 {
            0 => b"",
            1 => PREFACE,
            _ => &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        };
        for port in node.ports() {
            let mut stream = connect(port);
            // The server may hang up in the middle.
            let _ = stream.write_all(start).and_then(|()| stream.write_all(&garbage));
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
    // Nonsense with correct framing: frames that HTTP/2 does not know, and one too large.
    for frame in [[0, 0, 0, 99, 0, 0, 0, 0, 0], [0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]] {
        let mut stream = connect(node.ports()[0]);
        let _ = stream.write_all(&[PREFACE, &SETTINGS, &frame].concat());
    }
    // An HTTP/1 request with headers without end.
    let mut stream = connect(node.ports()[0]);
    let _ = stream.write_all(b"GET /version HTTP/1.1\r\n");
    let _ = stream.write_all(&b"a: b\r\n".repeat(1_000_000));
    assert!(node.is_running());
    serves(&node).await;
}

#[tokio::test]
async fn half_open_connections_do_not_stop_service() {
    let node = Launch::subject().start();
    let beginnings: [&[u8]; 6] = [
        b"",
        b"PRI * HT",
        PREFACE,
        b"GET /health HT",
        &[0x16, 3, 1, 2],
        b"POST / HTTP/1.1\r\nconte",
    ];
    let mut open = Vec::new();
    for port in node.ports() {
        for number in 0..120 {
            let mut stream = connect(port);
            stream.write_all(beginnings[number % beginnings.len()]).expect("write");
            if number % 2 == 1 {
                stream.shutdown(Shutdown::Write).expect("shutdown");
            }
            open.push(stream);
        }
    }
    serves(&node).await;
    drop(open);
    serves(&node).await;
}

/// Lets this process, and the servers it starts, open as many files as the system allows.
fn raise_file_limit() -> u64 {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("file limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("raise the file limit");
    hard
}

#[tokio::test]
async fn ten_thousand_idle_connections_do_not_stop_service() {
    let limit = raise_file_limit();
    if limit < IDLE as u64 + OTHER_FILES {
        eprintln!("SKIPPED: needs {IDLE} connections, the hard limit of open files is {limit}");
        return;
    }
    let node = Launch::subject().start();
    let files = || std::fs::read_dir(format!("/proc/{}/fd", node.pid())).expect("fds").count();
    let before = files();
    let mut idle = Vec::with_capacity(IDLE);
    for number in 0..IDLE {
        let mut stream = connect(node.ports()[0]);
        // Half of them say nothing at all, half are clients without requests.
        if number % 2 == 0 {
            stream.write_all(&[PREFACE, &SETTINGS, &SETTINGS_ACK].concat()).expect("write");
        }
        idle.push(stream);
    }
    serves(&node).await;
    let held = files();
    assert!(held >= before + IDLE / 2, "the server holds {held} files, {before} before");
    serves(&node).await;
    drop(idle);
    let start = Instant::now();
    while files() > before + 100 {
        assert!(start.elapsed() < PATIENCE, "{} files still open, {before} before", files());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    serves(&node).await;
}

/// Pings without a stream, more often than allowed: the connection is ended with a reason.
#[test]
fn a_client_that_pings_too_often_is_disconnected() {
    let node = Launch::subject().start();
    let mut stream = connect(node.ports()[0]);
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream.write_all(&[PREFACE, &SETTINGS, &SETTINGS_ACK].concat()).expect("write");
    for _ in 0..20 {
        if stream.write_all(&PING).is_err() {
            break;
        }
    }
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("the connection stays open: {error}"),
        }
    }
    let (code, reason) = goaway(&received).expect("a GOAWAY frame");
    assert_eq!((code, reason.as_str()), (ENHANCE_YOUR_CALM, "too_many_pings"));
}

/// Error code and reason of the last GOAWAY frame.
fn goaway(mut frames: &[u8]) -> Option<(u32, String)> {
    let mut found = None;
    while let [a, b, c, kind, _flags, _, _, _, _, rest @ ..] = frames {
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let payload = rest.get(..len)?;
        if *kind == GOAWAY {
            let code = u32::from_be_bytes(payload.get(4..8)?.try_into().ok()?);
            found = Some((code, String::from_utf8_lossy(&payload[8..]).into_owned()));
        }
        frames = &rest[len..];
    }
    found
}
