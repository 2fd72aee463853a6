//! Addresses that cannot be had: told at once, with the flag, before a disk is measured.

use crate::common::{Clients, Ended, Launch, assay, free_port, run};
use assay::proto::etcdserverpb::RangeRequest;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use tempfile::{TempDir, tempdir};

const CONFIGURATION: i32 = 1;
const FLAGS: [&str; 3] = ["listen-client-urls", "listen-peer-urls", "listen-metrics-urls"];

/// Starts a node whose gate would measure; the listeners are free ones but for `replaced`.
fn start(home: &TempDir, replaced: &[(&str, &str)]) -> Ended {
    let mut command = assay();
    command.env("BENCH_DISK_RUN_DIR", home.path().join("run"));
    command.arg("--data-dir").arg(home.path().join("data"));
    command.arg("--advertise-client-urls=http://127.0.0.1:2379");
    for flag in FLAGS {
        let free = format!("http://127.0.0.1:{}", free_port());
        let given = replaced.iter().find(|(name, _)| *name == flag).map(|(_, url)| *url);
        command.arg(format!("--{flag}={}", given.unwrap_or(&free)));
    }
    run(&mut command)
}

/// Refused because of this flag and address, and nothing was measured or made.
fn assert_taken(home: &TempDir, ended: &Ended, flag: &str, url: &str) {
    assert_eq!(ended.code, CONFIGURATION, "{}", ended.stderr);
    let words = format!("--{flag}: {url} is already in use");
    assert!(ended.stderr.contains(&words), "no {words:?} in:\n{}", ended.stderr);
    assert!(!ended.stderr.contains("disk gate"), "the disk came first:\n{}", ended.stderr);
    for name in ["run", "data"] {
        assert!(!Path::new(&home.path().join(name)).exists(), "{name} was made");
    }
}

#[test]
fn a_taken_port_is_told_before_the_disk_is_measured() {
    let home = tempdir().expect("temp dir");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", taken.local_addr().expect("its address"));
    for flag in FLAGS {
        assert_taken(&home, &start(&home, &[(flag, &url)]), flag, &url);
    }
    let path = home.path().join("socket");
    let _taken = UnixListener::bind(&path).expect("a socket");
    let url = format!("unix://{}", path.display());
    for flag in FLAGS {
        assert_taken(&home, &start(&home, &[(flag, &url)]), flag, &url);
    }
}

#[test]
fn a_name_that_stands_for_a_taken_port_does_not_move_to_its_other_address() {
    let home = tempdir().expect("temp dir");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port();
    let url = format!("http://localhost:{port}");
    assert_taken(&home, &start(&home, &[(FLAGS[0], &url)]), FLAGS[0], &url);
}

#[test]
fn two_flags_with_one_address_are_told_before_the_disk_is_measured() {
    let home = tempdir().expect("temp dir");
    let url = format!("http://127.0.0.1:{}", free_port());
    for (first, second) in [(FLAGS[0], FLAGS[1]), (FLAGS[0], FLAGS[2]), (FLAGS[1], FLAGS[2])] {
        assert_taken(&home, &start(&home, &[(first, &url), (second, &url)]), second, &url);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grpc_client_on_the_wrong_port_is_told_the_right_one() {
    let node = Launch::assay().start();
    for (url, name) in [(node.metrics_url(), "metrics port"), (node.peer_url(), "peer port")] {
        let mut clients = Clients::connect(&url).await;
        let range = RangeRequest { key: "k".into(), ..RangeRequest::default() };
        let error = clients.kv.range(range).await.expect_err("not served here");
        assert_eq!(error.code(), tonic::Code::Unimplemented, "{error:?}");
        for words in [name, "client port", &node.client_url()] {
            assert!(error.message().contains(words), "no {words:?} in {error:?}");
        }
    }
}
