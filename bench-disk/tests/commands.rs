//! The commands beside `run`: sweep, compare, powercut.
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

mod support;

use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{Place, run};

/// Generous: machines that run tests are busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn bench_disk(place: &Place, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-disk"));
    command.args(arguments).env("BENCH_DISK_RUN_DIR", place.run_dir());
    command
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_sweep_prints_curves_or_json_and_leaves_nothing() {
    let place = Place::new();
    let data = place.path("data");
    let arguments = ["sweep", "--dir", text(&data), "--point-ms", "10"];
    let tables = run(bench_disk(&place, &arguments));
    assert_eq!(tables.status.code(), Some(0), "{tables:?}");
    let shown = out(&tables);
    assert_eq!(shown.matches("knee:").count(), 2, "{shown}");
    assert!(shown.contains("pre-written") && shown.lines().all(|line| line.len() <= 80), "{shown}");
    let mut arguments = arguments.to_vec();
    arguments.push("--json");
    let document: Value =
        serde_json::from_slice(&run(bench_disk(&place, &arguments)).stdout).expect("JSON");
    assert_eq!(document["schema"], 1);
    assert_eq!(document["committers"].as_array().map(Vec::len), Some(4));
    assert_eq!(place.entries("data"), [""; 0]);
    assert_eq!(place.entries(""), ["data"]);
}

/// A result of this p99, as `run --json` writes it.
fn result(place: &Place, name: &str, p99_us: u64) -> String {
    let ns = p99_us * 1_000;
    let document = json!({"schema": 1, "environment": {}, "verdict": {
        "schema": 1, "tool": "t", "outcome": "PASS", "limit_ns": 10_000_000, "created": 1,
        "expires": 2, "profile": "standard", "device": "sda", "findings": [], "attempts": [],
        "identity": {"fs_uuid": null, "partition_uuid": null, "layer_uuids": [], "leaves": []},
        "conditions": {"kernel": "k", "filesystem": "ext4", "mount_options": [],
            "write_cache": [], "limits": []},
        "measured": {
            "summary": {"n": 30_000, "exceeded": 0, "runs": 0, "longest_burst": 0,
                "design_effect": 1.0, "fraction_low": 0.0, "fraction_high": 0.001},
            "percentiles": {"p50_ns": ns / 2, "p90_ns": ns / 2, "p99_ns": ns, "p999_ns": ns * 2,
                "max_ns": ns * 3, "p99_low_ns": ns * 95 / 100, "p99_high_ns": ns * 105 / 100},
            "histogram": [], "elapsed_ns": 1, "bytes": 1, "syncs": 1, "flushes": null,
            "durability": "unverified", "busy_before": null}}});
    let path = place.path(name);
    fs::write(&path, document.to_string()).expect("written");
    text(&path).to_string()
}

#[test]
fn compare_names_the_odd_node_by_its_exit_code() {
    let place = Place::new();
    let files = [("a.json", 300), ("b.json", 310), ("c.json", 2_900), ("d.json", 305)]
        .map(|(name, us)| result(&place, name, us));
    let compare = |chosen: &[usize]| {
        let mut arguments = vec!["compare"];
        arguments.extend(chosen.iter().map(|&at| files[at].as_str()));
        run(bench_disk(&place, &arguments))
    };
    let alike = compare(&[0, 1, 3]);
    assert_eq!(alike.status.code(), Some(0), "{alike:?}");
    assert!(out(&alike).contains("no disk stands out"));
    let odd = compare(&[0, 1, 2]);
    assert_eq!(odd.status.code(), Some(1), "{odd:?}");
    assert!(out(&odd).contains("odd one out") && out(&odd).contains("c.json"), "{}", out(&odd));
    assert_eq!(compare(&[0]).status.code(), Some(2), "one alone");
    fs::write(place.path("b.json"), "{}").expect("written");
    assert_eq!(compare(&[0, 1]).status.code(), Some(2), "no result");
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn verify(place: &Place, ledger: &str) -> Output {
    let data = place.path("data");
    run(bench_disk(place, &["powercut", "verify", "--dir", text(&data), "--ledger", ledger]))
}

#[test]
fn a_power_cut_is_survived_or_its_loss_is_told() {
    let place = Place::new();
    let ledger = place.path("ledger.json");
    let ledger = text(&ledger);
    let arguments = ["powercut", "witness", "--listen", "127.0.0.1:0", "--ledger", ledger];
    let witness = bench_disk(&place, &arguments).stdout(Stdio::piped()).spawn().expect("started");
    let mut witness = Running(witness);
    let mut first = String::new();
    let stdout = witness.0.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut first).expect("a line");
    let address = first.split_whitespace().nth(2).expect("an address").trim_end_matches(';');
    let data = place.path("data");
    let arguments = ["powercut", "write", "--dir", text(&data), "--witness", address];
    let writer = bench_disk(&place, &arguments).stdout(Stdio::null()).spawn().expect("started");
    let mut writer = Running(writer);
    let acknowledged = || -> Option<u64> {
        let ledger: Value = serde_json::from_slice(&fs::read(ledger).ok()?).ok()?;
        ledger["acknowledged"].as_u64()
    };
    let deadline = Instant::now() + PATIENCE;
    while acknowledged().is_none_or(|number| number < 20) {
        assert!(Instant::now() < deadline, "nothing reached the ledger");
        std::thread::yield_now();
    }
    // As sudden as a cut, but the page cache survives: nothing may be lost.
    writer.0.kill().expect("killed");
    writer.0.wait().expect("ended");
    let deadline = Instant::now() + PATIENCE;
    let ended = loop {
        if let Some(status) = witness.0.try_wait().expect("a status") {
            break status;
        }
        assert!(Instant::now() < deadline, "the witness did not notice that the writer is gone");
        std::thread::yield_now();
    };
    assert_eq!(ended.code(), Some(0), "nobody reads what the witness says any more");
    let whole = verify(&place, ledger);
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    // What a disk does that lies: an acknowledged record is not there.
    let file = fs::OpenOptions::new().write(true).open(data.join("bench-disk-powercut.0"));
    file.expect("there").write_all_at(&[0; 512], 7 * 512).expect("written");
    let lost = verify(&place, ledger);
    assert_eq!(lost.status.code(), Some(1), "{lost:?}");
    assert!(out(&lost).contains("the first is number 7"), "{}", out(&lost));
    assert_eq!(verify(&place, "/nowhere").status.code(), Some(5));
}
