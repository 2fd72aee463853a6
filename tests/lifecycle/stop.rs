//! SIGTERM: an orderly end, soon, whatever hangs.

use crate::common::Launch;
use crate::{STOP, assert_log_lines};
use assay::proto::etcdserverpb::{PutRequest, RangeRequest};
use nix::sys::signal::Signal;
use std::process::Command;
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

/// Syncs that hang while a file exists. Under strace a delayed call would keep the whole process,
/// which could then not end; this one only waits.
const HANGING: &str = r#"
#include <stdlib.h>
#include <unistd.h>
int fdatasync(int fd) {
    const char *file = getenv("HANG_WHILE");
    while (file && access(file, F_OK) == 0) sleep(1);
    return fsync(fd);
}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_hangs_does_not_keep_the_node_from_ending() {
    let home = tempfile::tempdir().expect("temp dir");
    let at = |name: &str| home.path().join(name);
    std::fs::write(at("hang.c"), HANGING).expect("written");
    // The compiler that also links every test.
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(at("hang.so"));
    let compiled = compiler.arg(at("hang.c")).status().expect("run cc");
    assert!(compiled.success(), "{compiled}");
    let launch = Launch::assay().env("LD_PRELOAD", at("hang.so")).env("HANG_WHILE", at("hang"));
    let mut node = launch.start();
    let mut clients = node.clients().await;
    clients.kv.put(put(0)).await.expect("a put");
    std::fs::write(at("hang"), "").expect("written");
    let hung = tokio::time::timeout(Duration::from_secs(1), clients.kv.put(put(1))).await;
    assert!(hung.is_err(), "a put was answered without its sync: {hung:?}");
    node.signal(Signal::SIGTERM);
    let start = Instant::now();
    let status = node.wait_exit(2 * STOP);
    eprintln!("ended after {:?} with {status}", start.elapsed());
    assert!(start.elapsed() < STOP, "{:?}", start.elapsed());
    assert_eq!(status.code(), Some(EXIT_IO));
    assert!(node.log().contains("a disk operation hangs"), "{}", node.log());
    std::fs::remove_file(at("hang")).expect("removed");
    node.restart();
    let get = RangeRequest { key: "k0".into(), ..RangeRequest::default() };
    let answer = node.clients().await.kv.range(get).await.expect("a get").into_inner();
    assert_eq!(answer.count, 1, "an acknowledged put");
}
