//! Signals before the node serves: it ends soon, with the code of an orderly end, and leaves nothing.

use crate::common::{Ended, Process, assay};
use crate::gate::until_decided;
use crate::hanging::Hanging;
use crate::{assert_log_lines, node_in, on_free_ports};
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::tempdir;

/// A hung sync makes the gate fail after ten seconds: an end by then is the signal's.
const SOON: Duration = Duration::from_secs(8);

/// The same command with SIGINT ignored from birth, as a shell starts background jobs.
fn deaf(command: &Command) -> Command {
    let mut shell = crate::common::bare(Path::new("sh"));
    shell.args(["-c", r#"trap "" INT; exec "$@""#, "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell
}

/// Starts the command, signals it when its first sync hangs, and waits for the end.
fn signalled(mut command: Command, signal: Signal, ignored: bool) -> Ended {
    let place = tempdir().expect("temp dir");
    let hanging = Hanging::new(place.path());
    hanging.begin();
    command.envs(hanging.env());
    if ignored {
        command = deaf(&command);
    }
    let node = Process::start(&mut command);
    hanging.wait();
    if ignored {
        let status = std::fs::read_to_string(format!("/proc/{}/comm", node.pid()));
        assert_eq!(status.expect("its name").trim(), "assay", "the shell became the program");
    }
    let start = Instant::now();
    node.signal(signal);
    let ended = node.wait(2 * SOON);
    assert!(start.elapsed() < SOON, "{signal} took {:?}", start.elapsed());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_log_lines(&ended.stderr);
    let said = format!(r#""signal":"{signal}""#);
    assert!(ended.stderr.contains(&said), "{}", ended.stderr);
    ended
}

/// Signals, and whether the process is born with SIGINT ignored.
const CASES: [(Signal, bool); 4] = [
    (Signal::SIGTERM, false),
    (Signal::SIGINT, false),
    (Signal::SIGTERM, true),
    (Signal::SIGINT, true),
];

/// What the log has once the gate has answered without a measurement.
const UNMEASURED: &str = r#""state":"unqualified""#;

#[test]
fn a_signal_ends_the_gate_and_leaves_nothing_of_the_probe() {
    for (signal, ignored) in CASES {
        until_decided(|| ends_the_gate(signal, ignored));
    }
}

/// `false` if the gate did not measure: a device that others keep busy is not, and the first sync
/// that hangs is then one of the start.
fn ends_the_gate(signal: Signal, ignored: bool) -> bool {
    let (home, run_dir) = (tempdir().expect("temp dir"), tempdir().expect("temp dir"));
    let mut command = assay();
    command.env("BENCH_DISK_RUN_DIR", run_dir.path().join("run"));
    command.arg("--data-dir").arg(home.path().join("data"));
    on_free_ports(&mut command);
    let ended = signalled(command, signal, ignored);
    assert!(ended.stderr.contains("disk gate: there is no verdict"), "{}", ended.stderr);
    if ended.stderr.contains(UNMEASURED) {
        return false;
    }
    let left: Vec<OsString> = std::fs::read_dir(home.path())
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, Vec::<OsString>::new(), "the probe left something");
    // No verdict of a probe that was cut short; the lock's file stays by design.
    let verdicts = std::fs::read_dir(run_dir.path().join("run"))
        .expect("listed")
        .filter(|entry| {
            let name = entry.as_ref().expect("an entry").file_name();
            name.as_bytes().ends_with(b".json")
        })
        .count();
    assert_eq!(verdicts, 0);
    true
}

#[test]
fn a_signal_ends_a_start_that_takes_long() {
    for (signal, ignored) in CASES {
        let home = tempdir().expect("temp dir");
        let data = home.path().join("data");
        signalled(node_in(&data), signal, ignored);
        // And the next start goes on from there.
        Process::start(&mut node_in(&data)).serves();
    }
}
