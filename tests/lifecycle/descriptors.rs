//! Few file descriptors: a flood of clients leaves some for scrapes, for other members and for files.

use crate::common::{Launch, Process, assay, http_get};
use crate::{STOP, on_free_ports};
use assay::proto::etcdserverpb::PutRequest;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const CONFIGURATION: i32 = 1;
/// The lowest limit that a node takes; half of it is for clients.
const LIMIT: usize = 256;
const CLIENTS: usize = LIMIT / 2;
const NOTICE: Duration = Duration::from_secs(60);
/// A client that has said which protocol it speaks is not idle: preface and empty settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// Words that start a program with few descriptors.
fn few(limit: usize) -> [String; 4] {
    let script = format!(r#"ulimit -n {limit} && exec "$@""#);
    ["sh".into(), "-c".into(), script, "sh".into()]
}

fn number(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_clients_starves_neither_scrapes_nor_peers_nor_files() {
    let mut node = Launch::assay().wrapper(few(LIMIT)).start();
    let mut clients = node.clients().await;
    let port = node.ports()[0];
    // A connection is held by the node once it has sent its own settings.
    let mut held = Vec::new();
    let start = Instant::now();
    let mut refused = 0;
    while refused < LIMIT {
        assert!(start.elapsed() < NOTICE, "{} connections are open", held.len());
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_read_timeout(Some(NOTICE)).expect("a deadline");
        let mut first = [0; 9];
        match stream.write_all(HELLO).and_then(|()| stream.read_exact(&mut first)) {
            Ok(()) => held.push(stream),
            Err(error) => {
                let closed = matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                );
                assert!(closed, "{error}");
                refused += 1;
            }
        }
    }
    let (code, metrics) = http_get(&node.metrics_url(), "/metrics").expect("a scrape");
    assert_eq!(code, 200);
    let open = number(&metrics, r#"assay_connections{port="client"}"#).expect("open connections");
    assert_eq!(open as usize, CLIENTS);
    assert_eq!(held.len(), CLIENTS - 1, "one is the client of this test");
    let limit = number(&metrics, r#"assay_connection_limit{port="client"}"#).expect("the limit");
    assert_eq!(limit as usize, CLIENTS);
    assert!(number(&metrics, "assay_connections_refused_total").expect("refused") >= LIMIT as f64);
    let (used, max) = ("process_open_fds", "process_max_fds");
    let [used, max] = [used, max].map(|name| number(&metrics, name).expect("descriptors"));
    eprintln!("{used} of {max} descriptors are used");
    assert!(max as usize == LIMIT && used < max - 32.0, "{used} of {max} descriptors are used");
    for (url, path) in [(node.metrics_url(), "/readyz"), (node.peer_url(), "/version")] {
        let (code, body) = http_get(&url, path).expect("an answer");
        assert_eq!(code, 200, "{path}: {body}");
    }
    // Enough for the log to change its segments, which takes descriptors.
    for n in 0..160 {
        let put = PutRequest {
            key: format!("k{n}").into(),
            value: vec![b'v'; 1 << 20].into(),
            ..PutRequest::default()
        };
        clients.kv.put(put).await.expect("a put");
    }
    drop(held);
    assert!(node.terminate(STOP).success());
}

#[test]
fn a_limit_that_is_too_low_is_refused_with_what_to_do() {
    let home = tempfile::tempdir().expect("temp dir");
    let mut inner = assay();
    inner.arg("--data-dir").arg(home.path().join("data")).arg("--disk-gate=off");
    on_free_ports(&mut inner);
    let words = few(LIMIT - 1);
    let mut command: Command = crate::common::bare(Path::new(&words[0]));
    command.args(&words[1..]).arg(inner.get_program()).args(inner.get_args());
    let ended = Process::start(&mut command).wait(STOP);
    assert_eq!(ended.code, CONFIGURATION, "{}", ended.stderr);
    for word in ["limit of open files is 255", "256", "ulimit -n"] {
        assert!(ended.stderr.contains(word), "no {word:?} in:\n{}", ended.stderr);
    }
    assert!(!home.path().join("data").exists());
}
