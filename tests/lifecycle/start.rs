//! Starts: flags, ports, defaults, texts, log lines, health.

use crate::common::{Launch, Process, Strace, assay, free_port, http_get, own_network, run};
use crate::{STOP, assert_log_lines, node_in, on_free_ports};
use nix::sys::signal::Signal;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;
use tempfile::tempdir;

const USAGE: i32 = 2;
const CONFIGURATION: i32 = 1;

#[test]
fn an_unknown_flag_is_answered_with_the_nearest() {
    for (wrong, right) in
        [("--data-dirr=x", "--data-dir"), ("--listen-client-url=x", "--listen-client-urls")]
    {
        let ended = run(assay().arg(wrong));
        assert_eq!(ended.code, USAGE, "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("did you mean {right}?")), "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn the_version_has_four_lines() {
    let ended = run(assay().arg("--version"));
    assert_eq!(ended.code, 0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let [version, commit, runtime, platform] = lines[..] else { panic!("{}", ended.stdout) };
    let number = version.strip_prefix("etcd Version: ").expect(version);
    assert!(number.starts_with("3.7."), "{version}");
    assert!(commit.starts_with("Git SHA: "), "{commit}");
    assert!(runtime.starts_with("Go Version: "), "{runtime}");
    assert!(platform.starts_with("Go OS/Arch: linux/"), "{platform}");
}

/// A start without flags, in an empty directory and with the gate set by its variable.
fn default_node(dir: &std::path::Path) -> Command {
    let mut command = assay();
    command.current_dir(dir).env("ASSAY_DISK_GATE", "off");
    command
}

#[test]
fn without_flags_it_serves_on_the_default_addresses() {
    if !own_network() {
        return;
    }
    let home = tempdir().expect("temp dir");
    let mut node = Process::start(&mut default_node(home.path()));
    node.serves();
    for port in [2379, 2381] {
        let (code, _) =
            http_get(&format!("http://127.0.0.1:{port}"), "/readyz").expect("an answer");
        assert_eq!(code, 200);
    }
    node.signal(Signal::SIGTERM);
    let ended = node.wait(STOP);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_log_lines(&ended.stderr);
    for words in [
        "default.assay",
        "member 8e9e05c52164694d of cluster cdf818194e3a8c32",
        "http://localhost:2379",
        "http://localhost:2380",
        "http://127.0.0.1:2381",
        "--disk-gate=off",
        "insecure",
    ] {
        assert!(ended.stdout.contains(words), "no {words:?} in:\n{}", ended.stdout);
    }
    let mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt;
        home.path().join(path).metadata().expect(path).permissions().mode() & 0o7777
    };
    assert_eq!(mode("default.assay/member"), 0o700);
    let format = std::fs::read_to_string(home.path().join("default.assay/FORMAT"));
    let format: serde_json::Value =
        serde_json::from_str(&format.expect("FORMAT")).expect("an object");
    assert_eq!(format["member_id"], "8e9e05c52164694d");
    assert_eq!(format["cluster_id"], "cdf818194e3a8c32");
}

#[test]
fn a_metrics_port_in_use_is_an_error_only_if_it_was_asked_for() {
    if !own_network() {
        return;
    }
    let home = tempdir().expect("temp dir");
    let _taken = TcpListener::bind("127.0.0.1:2381").expect("a free network");
    let mut node = Process::start(&mut default_node(home.path()));
    node.serves();
    assert!(node.stderr().contains("no metrics listener"), "{}", node.stderr());
    let (code, metrics) = http_get("http://127.0.0.1:2379", "/metrics").expect("an answer");
    assert!(code == 200 && metrics.contains("etcd_server_has_leader 1"), "{code}");
    drop(node);

    let ended = run(default_node(home.path()).arg("--listen-metrics-urls=http://127.0.0.1:2381"));
    assert_eq!(ended.code, CONFIGURATION, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("--listen-metrics-urls: http://127.0.0.1:2381 is already in use")
    );
}

#[test]
fn a_client_port_in_use_is_an_error_before_anything_is_created() {
    let home = tempdir().expect("temp dir");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", taken.local_addr().expect("its address"));
    let data = home.path().join("data");
    let mut command = assay();
    command.arg("--data-dir").arg(&data).arg("--disk-gate=off");
    command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    command.arg(format!("--listen-peer-urls=http://127.0.0.1:{}", free_port()));
    command.arg(format!("--listen-metrics-urls=http://127.0.0.1:{}", free_port()));
    let ended = run(&mut command);
    assert_eq!(ended.code, CONFIGURATION, "{}", ended.stderr);
    let words = format!("--listen-client-urls: {url} is already in use");
    assert!(ended.stderr.contains(&words), "{}", ended.stderr);
    assert!(!data.exists(), "the data directory was created");
}

#[test]
fn under_the_name_etcd_there_are_log_lines_only() {
    let home = tempdir().expect("temp dir");
    let etcd = home.path().join("etcd");
    symlink(env!("CARGO_BIN_EXE_assay"), &etcd).expect("a link");
    let start = |data: &str| {
        let mut command = crate::common::bare(&etcd);
        command.arg("--data-dir").arg(home.path().join(data)).arg("--disk-gate=off");
        on_free_ports(&mut command);
        command
    };
    let mut node = Process::start(&mut start("data"));
    node.serves();
    // A refusal is a line of the log as well.
    let refused = run(&mut start("data"));
    assert_eq!((refused.code, refused.stdout.as_str()), (75, ""));
    assert_log_lines(&refused.stderr);
    node.signal(Signal::SIGTERM);
    let ended = node.wait(STOP);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""));
    assert_log_lines(&ended.stderr);
}

#[test]
fn flags_of_the_log_take_the_place_of_the_text() {
    let home = tempdir().expect("temp dir");
    let log = home.path().join("log");
    let mut command = node_in(&home.path().join("data"));
    let mut node = Process::start(command.arg(format!("--log-outputs={},stderr", log.display())));
    node.serves();
    node.signal(Signal::SIGTERM);
    let ended = node.wait(STOP);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""));
    assert_log_lines(&ended.stderr);
    assert_eq!(std::fs::read_to_string(log).expect("the log"), ended.stderr);
}

#[test]
fn health_answers_while_the_node_starts() {
    let Some(strace) = Strace::require() else { return };
    // Slow enough to be met in the middle of the start, whatever the machine.
    let slow = strace.inject("fdatasync:delay_enter=400000").words();
    let mut node = Launch::assay().wrapper(slow).spawn();
    let url = node.metrics_url();
    let mut starting = Vec::new();
    loop {
        assert!(node.is_running(), "{}", node.log());
        match http_get(&url, "/readyz") {
            Some((200, _)) => break,
            Some((code, body)) => {
                assert_eq!(code, 503, "{body}");
                assert_eq!(http_get(&url, "/livez").map(|(code, _)| code), Some(200));
                starting.push(body);
            }
            None => {}
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = starting.iter().any(|body| body.contains("startup"));
    assert!(said, "readyz while starting: {starting:?}");
    // Not before the client port serves.
    node.wait_ready();
}
