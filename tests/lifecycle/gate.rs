//! The disk gate on the node's side. Every test has a run directory of its own: verdicts are shared
//! by everything on a host otherwise.
//!
//! On a machine that is busy the honest answer can be INCONCLUSIVE; then a test asks again, with a
//! new run directory, until there is a verdict. One that never gets any fails.

use crate::common::{Process, Strace, assay, http_get, run, skip};
use crate::{STOP, on_free_ports};
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::{TempDir, tempdir};

const FAIL: i32 = 20;
const REFUSED: i32 = 22;
/// Longest probe and a bit: its own time box is a minute.
const PROBE: Duration = Duration::from_secs(150);
/// A delay that no disk behind it can pass with, as an injection of strace.
const SLOW: &str = "fdatasync:delay_enter=15000";
/// What the text says of a probe that decided nothing.
const DOUBT: &str = "INCONCLUSIVE";
/// What it says when one sync took all of its patience: true of a machine that stands still, and
/// not what is tested here.
const HUNG: &str = "a sync did not return within";
/// What the log says when a disk is measured, and only then.
const MEASURING: &str = "measuring the disk";
/// How long a test asks for a verdict.
const PATIENCE: Duration = Duration::from_secs(600);

/// A node whose gate is on, maybe under strace; its ports.
fn gated(wrapper: Option<Strace>, run_dir: &Path, data_dir: &Path) -> (Command, [u16; 3]) {
    let program: OsString = env!("CARGO_BIN_EXE_assay").into();
    let mut words = wrapper.map_or(Vec::new(), Strace::words);
    words.push(program);
    let mut command = match &words[..] {
        [_] => assay(),
        [first, rest @ ..] => {
            let mut command = crate::common::bare(Path::new(first));
            command.args(rest);
            command
        }
        [] => unreachable!("the program is there"),
    };
    command.env("BENCH_DISK_RUN_DIR", run_dir).arg("--data-dir").arg(data_dir);
    let ports = on_free_ports(&mut command);
    (command, ports)
}

/// Directories of one try: a run directory, and a parent for data directories.
fn places() -> (TempDir, TempDir) {
    (tempdir().expect("temp dir"), tempdir().expect("temp dir"))
}

#[test]
fn whose_directory_it_is_comes_before_what_its_disk_can() {
    let (run_dir, home) = places();
    std::fs::write(home.path().join("notes.txt"), "mine").expect("written");
    let (mut command, _) = gated(None, run_dir.path(), home.path());
    let ended = run(&mut command);
    assert_eq!(ended.code, 78, "{}", ended.stderr);
    assert!(ended.stderr.contains("not ours"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("disk gate"), "nobody waited for a probe: {}", ended.stderr);
    assert!(names(run_dir.path()).is_empty());
}

/// The probe would load the disk on which the first one works, and its figures would be about both.
#[test]
fn a_directory_in_use_is_told_before_its_disk_is_measured() {
    let (run_dir, home) = places();
    let at = |name: &str| home.path().join(name);
    let wal = format!("--wal-dir={}", at("wal").display());
    let mut first = Process::start(crate::node_in(&at("data")).arg(&wal));
    first.serves();
    // The same data directory, and another one with the same directory of the log.
    for (data, locked) in [("data", "data"), ("other", "wal")] {
        let (mut second, _) = gated(None, run_dir.path(), &at(data));
        let ended = run(second.arg(&wal));
        assert_eq!(ended.code, 75, "{}", ended.stderr);
        let words = format!("{} is locked by another process", at(locked).display());
        assert!(ended.stderr.contains(&words), "{}", ended.stderr);
        assert!(!ended.stderr.contains("disk gate"), "it was measured: {}", ended.stderr);
    }
    assert!(names(run_dir.path()).is_empty(), "{:?}", names(run_dir.path()));
    assert!(!at("other").exists(), "a refused start made a directory");
    assert!(first.is_running());
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    entries.map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// Tries until a try is decided.
///
/// # Panics
/// When none is for [`PATIENCE`]: a test that decided nothing must not look like one that passed.
pub(crate) fn until_decided(mut decided: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut tries = 0;
    while !decided() {
        tries += 1;
        eprintln!("probe {tries} was inconclusive: this machine is busy");
        assert!(start.elapsed() < PATIENCE, "no verdict after {tries} probes of this machine");
    }
}

#[test]
fn a_slow_disk_is_refused_before_any_listener_opens() {
    let Some(strace) = Strace::require() else { return };
    until_decided(|| {
        let (run_dir, home) = places();
        let calls = run_dir.path().join("calls");
        let strace = strace.clone().trace("fdatasync,bind,listen").inject(SLOW).to(&calls);
        let data = home.path().join("data");
        let (mut command, _) = gated(Some(strace), &run_dir.path().join("run"), &data);
        let mut node = Process::start(&mut command);
        if node.says("ready to serve client requests") {
            assert!(node.stdout().contains(DOUBT), "{}", node.stdout());
            return false;
        }
        let ended = node.wait(STOP);
        if ended.stderr.contains(HUNG) {
            return false;
        }
        assert_eq!(ended.code, FAIL, "{}", ended.stderr);
        let data = data.display().to_string();
        for words in [
            "FAIL, not starting",
            &data,
            "device",
            "p99 sync",
            "limit      10 ms",
            "--disk-gate=warn",
        ] {
            assert!(ended.stderr.contains(words), "no {words:?} in:\n{}", ended.stderr);
        }
        assert_eq!(names(home.path()), Vec::<String>::new(), "the probe left something");
        let calls = std::fs::read_to_string(calls).expect("what strace saw");
        assert!(calls.contains("fdatasync("), "nothing was measured");
        // Addresses are taken, so that a taken one is told at once; to clients they look closed.
        assert!(calls.contains("bind("), "no address was taken");
        let listeners: Vec<&str> = calls.lines().filter(|line| line.contains("listen(")).collect();
        assert!(listeners.is_empty(), "{listeners:?}");
        true
    });
}

#[test]
fn a_slow_disk_starts_under_warn_and_stays_visible() {
    let Some(strace) = Strace::require() else { return };
    until_decided(|| {
        let (run_dir, home) = places();
        let slow = strace.clone().inject(SLOW);
        let (mut command, [client, ..]) =
            gated(Some(slow), &run_dir.path().join("run"), &home.path().join("data"));
        let mut node = Process::start(command.arg("--disk-gate=warn"));
        node.serves();
        let (code, metrics) =
            http_get(&format!("http://127.0.0.1:{client}"), "/metrics").expect("an answer");
        assert_eq!(code, 200);
        let line = r#"assay_disk_gate_state{state="overridden"} 1"#;
        assert!(metrics.contains(line), "{metrics}");
        let (out, log) = (node.stdout(), node.stderr());
        if out.contains(DOUBT) || out.contains("hung-sync") {
            return false;
        }
        for text in [&out, &log] {
            assert!(text.contains("FAIL OVERRIDDEN"), "{text}");
        }
        true
    });
}

#[test]
fn a_directory_in_memory_is_refused_by_name() {
    if !Path::new("/dev/shm").is_dir() {
        return skip("there is no /dev/shm");
    }
    let home = tempfile::tempdir_in("/dev/shm").expect("temp dir");
    let (run_dir, _) = places();
    let (mut command, _) = gated(None, run_dir.path(), &home.path().join("data"));
    let ended = Process::start(&mut command).wait(PROBE);
    assert_eq!(ended.code, REFUSED, "{}", ended.stderr);
    assert!(ended.stderr.contains("is on tmpfs"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--disk-gate=warn"), "{}", ended.stderr);
    assert_eq!(names(home.path()), Vec::<String>::new());
}

/// Three nodes at once, then one of them again. The limit is one that every disk of a build machine
/// keeps: this is about sharing a probe and keeping its answer.
#[test]
fn nodes_that_start_together_all_start_and_a_verdict_is_kept() {
    until_decided(|| {
        let (run_dir, home) = places();
        let start = |name: &str, run_dir: &Path| {
            let (mut command, ports) = gated(None, run_dir, &home.path().join(name));
            (Process::start(command.arg("--disk-gate-p99=500ms")), ports)
        };
        let mut nodes = ["a", "b", "c"].map(|name| start(name, &run_dir.path().join("run")));
        for (node, _) in &mut nodes {
            node.serves();
        }
        let states = nodes.each_ref().map(|(node, _)| node.stdout());
        let Some(passed) = states.iter().position(|text| text.contains("PASS, p99 ")) else {
            return false;
        };
        let said = nodes.iter().any(|(node, _)| node.stderr().contains(MEASURING));
        assert!(said, "nobody says that it measures");
        let name = ["a", "b", "c"][passed];
        for (node, _) in nodes {
            node.signal(Signal::SIGTERM);
            assert_eq!(node.wait(STOP).code, 0);
        }
        assert!(home.path().join(name).join("disk-verdict.json").is_file());
        // Without the run directory, from what the node keeps.
        let (mut node, [client, ..]) = start(name, &run_dir.path().join("other"));
        node.serves();
        assert!(node.stdout().contains("(stored "), "{}", node.stdout());
        assert!(!node.stderr().contains(MEASURING), "{}", node.stderr());
        let url = format!("http://127.0.0.1:{client}");
        let (_, metrics) = http_get(&url, "/metrics").expect("an answer");
        assert!(metrics.contains(r#"assay_disk_gate_state{state="pass"} 1"#), "{metrics}");
        let gate = metrics
            .lines()
            .find_map(|line| line.strip_prefix(r#"assay_start_phase_seconds{phase="gate"} "#))
            .expect("the length of the gate");
        let gate: f64 = gate.parse().expect("seconds");
        eprintln!("the gate took {gate} s with a stored verdict");
        assert!(gate < 2.0, "a stored verdict was measured again: {gate} s");
        true
    });
}
