//! SIGTERM: an orderly end, soon, whatever hangs.

use crate::common::Launch;
use crate::hanging::Hanging;
use crate::{STOP, assert_log_lines};
use assay::proto::etcdserverpb::{PutRequest, RangeRequest};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// Exit code after a disk that failed, or hung.
const EXIT_IO: i32 = 74;

fn put(n: usize) -> PutRequest {
    PutRequest { key: format!("k{n}").into(), value: "v".into(), ..PutRequest::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_the_node_in_order() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut node = Launch::assay().start();
        let mut clients = node.clients().await;
        clients.kv.put(put(1)).await.expect("a put");
        // An open watch must not hold it up.
        let watch = tokio_stream::pending::<assay::proto::etcdserverpb::WatchRequest>();
        let _watch = clients.watch.watch(watch);
        let start = Instant::now();
        node.signal(signal);
        let status = node.wait_exit(STOP);
        assert_eq!(status.code(), Some(0), "{}", node.log());
        // Seconds, not the deadline for what hangs.
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        let log: String =
            node.log().lines().filter(|line| line.starts_with('{')).collect::<Vec<_>>().join("\n");
        assert_log_lines(&log);
        assert!(log.contains("closed etcd server"), "{log}");
        // Stopped in order: nothing to repair.
        node.restart();
        assert!(node.log().contains(r#""clean":true"#), "{}", node.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_hangs_does_not_keep_the_node_from_ending() {
    let home = tempfile::tempdir().expect("temp dir");
    let hanging = Hanging::new(home.path());
    let launch = hanging
        .env()
        .into_iter()
        .fold(Launch::assay(), |launch, (name, value)| launch.env(name, value));
    let mut node = launch.start();
    let mut clients = node.clients().await;
    clients.kv.put(put(0)).await.expect("a put");
    hanging.begin();
    let hung = tokio::time::timeout(Duration::from_secs(1), clients.kv.put(put(1))).await;
    assert!(hung.is_err(), "a put was answered without its sync: {hung:?}");
    node.signal(Signal::SIGTERM);
    let start = Instant::now();
    let status = node.wait_exit(2 * STOP);
    eprintln!("ended after {:?} with {status}", start.elapsed());
    assert!(start.elapsed() < STOP, "{:?}", start.elapsed());
    assert_eq!(status.code(), Some(EXIT_IO));
    assert!(node.log().contains("a disk operation hangs"), "{}", node.log());
    hanging.end();
    node.restart();
    let get = RangeRequest { key: "k0".into(), ..RangeRequest::default() };
    let answer = node.clients().await.kv.range(get).await.expect("a get").into_inner();
    assert_eq!(answer.count, 1, "an acknowledged put");
}
