//! What goes wrong around a probe: full disks, directories that vanish, links, kills; and the
//! plans that leave no verdict.
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

mod support;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::{Place, run, tool};

/// Exit codes of an honest answer: PASS, FAIL, INCONCLUSIVE.
const ANSWERS: [i32; 3] = [0, 1, 3];

/// Generous: machines that run tests are busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a probe and waits until it has a file of its own open in the directory.
fn measuring(place: &Place, arguments: &[&str]) -> Child {
    let mut command = place.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let data = place.path("data");
    let deadline = Instant::now() + PATIENCE;
    while !has_file_in(child.id(), &data) {
        assert!(Instant::now() < deadline, "it never opened a file in the directory");
        if let Some(status) = child.try_wait().expect("a status") {
            panic!("it ended before it measured: {status}");
        }
        std::thread::yield_now();
    }
    child
}

fn has_file_in(pid: u32, directory: &std::path::Path) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().any(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| target.starts_with(directory) && target.as_path() != directory)
    })
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).expect("a pid")), signal).expect("signalled");
}

/// A device that others keep busy is not written to at all.
fn contaminated(output: &std::process::Output) -> bool {
    String::from_utf8_lossy(&output.stdout).contains("contaminated") && output.stderr.is_empty()
}

#[test]
fn a_disk_that_fills_up_is_an_io_error_that_says_so() {
    if !tool("strace") {
        return;
    }
    for inject in ["inject=pwrite64:error=ENOSPC:when=300", "inject=fallocate:error=ENOSPC"] {
        let place = Place::new();
        let prefix = ["-f", "-qq", "-o", "/dev/null", "-e", inject];
        let output = run(place.under("strace", &prefix, &["--profile", "boot"]));
        if contaminated(&output) {
            continue;
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(5), "{inject}: {text}");
        assert!(text.contains("No space left"), "{text}");
        assert!(text.contains("write a file in") || text.contains("reserve space in"), "{text}");
        assert_eq!(place.entries(""), ["data"], "no verdict, nothing left");
        assert_eq!(place.entries("data"), [""; 0]);
    }
}

#[test]
fn a_failed_write_of_the_companion_ends_the_run_too() {
    if !tool("strace") {
        return;
    }
    let place = Place::new();
    // The companion writes whole pages, the log never exactly those at page offsets: every fourth
    // call from the hundredth on fails for whoever makes it first.
    let prefix = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=pwrite64:error=EIO:when=100+"];
    let output = run(place.under("strace", &prefix, &["--profile", "boot"]));
    if contaminated(&output) {
        return;
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("cannot write a file in") && text.contains("Input/output"), "{text}");
    assert_eq!(place.entries("data"), [""; 0]);
}

#[test]
fn a_directory_that_vanishes_ends_the_run_without_a_verdict() {
    let place = Place::new();
    let child = measuring(&place, &["--profile", "quick"]);
    fs::rename(place.path("data"), place.path("away")).expect("moved");
    let output = child.wait_with_output().expect("ended");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("removed or replaced while it was measured"), "{text}");
    assert_eq!(place.entries(""), ["away"]);
    assert_eq!(place.entries("away"), [""; 0]);
}

#[test]
fn kill_9_leaves_nothing_and_the_next_probe_starts() {
    let place = Place::new();
    let mut child = measuring(&place, &["--profile", "quick"]);
    signal(&child, Signal::SIGKILL);
    child.wait().expect("ended");
    let next = run(place.command(&["--profile", "boot"]));
    assert!(ANSWERS.map(Some).contains(&next.status.code()), "{next:?}");
    assert_eq!(place.entries("data"), [""; 0]);
    assert_eq!(place.entries(""), [".data.disk-verdict.json", "data"]);
}

#[test]
fn links_are_followed_to_measure_and_never_to_write() {
    let place = Place::new();
    std::os::unix::fs::symlink(place.path("data"), place.path("link")).expect("linked");
    fs::write(place.path("precious"), "keep me").expect("written");
    let verdict = place.path("verdict.json");
    std::os::unix::fs::symlink(place.path("precious"), &verdict).expect("linked");
    let file = verdict.to_str().expect("UTF-8");
    let output = run(place.command_for("link", &["--profile", "boot", "--verdict-file", file]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(ANSWERS.map(Some).contains(&output.status.code()), "{output:?}");
    assert!(text.contains("the directory behind the links"), "{text}");
    assert_eq!(fs::read_to_string(place.path("precious")).expect("readable"), "keep me");
    assert!(fs::symlink_metadata(place.path("link")).expect("there").is_symlink());
    assert_eq!(place.entries("data"), [""; 0]);
}

#[test]
fn a_link_to_nowhere_is_judged_at_its_parent() {
    let place = Place::new();
    std::os::unix::fs::symlink("/nowhere/at/all", place.path("dangling")).expect("linked");
    let output = run(place.command_for("dangling", &["--profile", "boot"]));
    assert!(ANSWERS.map(Some).contains(&output.status.code()), "{output:?}");
    assert!(fs::symlink_metadata(place.path("dangling")).expect("there").is_symlink());
}

#[test]
fn plans_gentler_than_a_node_leave_no_verdict() {
    for arguments in [["--profile", "fio"], ["--profile", "boot"]] {
        let place = Place::new();
        let mut arguments = arguments.to_vec();
        arguments.extend(["--load", "none", "--json"]);
        let output = run(place.command(&arguments));
        assert!(ANSWERS.map(Some).contains(&output.status.code()), "{output:?}");
        assert_eq!(place.entries(""), ["data"], "{arguments:?}");
        let document: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("one JSON document");
        let n = document["verdict"]["measured"]["summary"]["n"].as_u64();
        if let (Some(n), "fio", "PASS") =
            (n, arguments[1], document["verdict"]["outcome"].as_str().unwrap_or_default())
        {
            assert_eq!(n, 10_029, "as many syncs as the recipe");
        }
    }
}

#[test]
fn a_live_directory_may_be_looked_at_gently() {
    let place = Place::new();
    fs::write(place.path("data/LOCK"), "").expect("written");
    let lock = fs::File::open(place.path("data/LOCK")).expect("opened");
    lock.lock().expect("locked");
    let child = measuring(&place, &["--live"]);
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert_eq!(place.entries("data"), ["LOCK"]);
    assert_eq!(place.entries(""), ["data"]);
    let both = run(place.command(&["--live", "--load", "all"]));
    assert_eq!(both.status.code(), Some(2), "gentle and loaded exclude each other");
}

#[test]
fn a_start_in_the_future_is_waited_for_and_one_in_the_past_is_an_error() {
    let place = Place::new();
    let past = run(place.command(&["--start-at", "2001-01-01T00:00:00Z"]));
    assert_eq!(past.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&past.stderr).contains("is over"));
    let start = std::time::SystemTime::now() + Duration::from_secs(2);
    let seconds = start.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let output = run(place.command(&["--profile", "boot", "--start-at", &format!("@{seconds}")]));
    assert!(ANSWERS.map(Some).contains(&output.status.code()), "{output:?}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    assert!(now.expect("after 1970").as_secs() >= seconds, "it did not wait");
}

#[test]
fn a_profile_and_a_mix_come_from_files_and_nonsense_is_a_usage_error() {
    let place = Place::new();
    let plan = place.path("plan.json");
    fs::write(
        &plan,
        r#"{"base": "quick", "samples": 200, "min_seconds": 0, "syncs_per_second": 0,
            "side_seconds": 0}"#,
    )
    .expect("written");
    let mix = place.path("mix.json");
    fs::write(
        &mix,
        r#"{"cmdline": [], "disk.mix": {"schema": 1, "program": "t", "active_seconds": 1,
            "log": {"writes": 1000, "bytes": 512000, "bytes_per_sync": [[512, 1000]]},
            "store": {"writes": 40, "bytes": 163840, "bytes_per_sync": [[16384, 10]]}}}"#,
    )
    .expect("written");
    let (plan, mix) = (plan.to_str().expect("UTF-8"), mix.to_str().expect("UTF-8"));
    let output = run(place.command(&["--profile", plan, "--mix", mix, "--json"]));
    assert!(ANSWERS.map(Some).contains(&output.status.code()), "{output:?}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document["verdict"]["profile"], "file");
    for wrong in [["--profile", mix], ["--mix", plan], ["--load", "heavy"], ["--confidence", "2"]] {
        let output = run(place.command(&wrong));
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {output:?}");
    }
}

/// A recording is a file that somebody brings: no number in it may end the program or hold it up.
#[test]
fn hostile_recordings_are_refused_or_replayed_within_the_time_box() {
    const MOST: u64 = u64::MAX;
    let place = Place::new();
    let (plan, mix) = (place.path("plan.json"), place.path("mix.json"));
    let text = r#"{"base": "quick", "samples": 100, "min_seconds": 0, "time_box_seconds": 1,
                   "side_seconds": 0}"#;
    fs::write(&plan, text).expect("written");
    let good = serde_json::json!({
        "schema": 1, "program": "t", "active_seconds": 1, "threads": [],
        "log": {"writes": 1000, "bytes": 512_000, "bytes_per_sync": [[512, 1000]]},
        "store": {"writes": 40, "bytes": 163_840, "bytes_per_sync": [[16_384, 10]]}});
    for changes in [
        serde_json::json!({"/active_seconds": MOST, "/store/bytes_per_sync": [[1, 1]]}),
        serde_json::json!({"/active_seconds": 1_000_000, "/store/bytes_per_sync": []}),
        serde_json::json!({"/store/cpu_micros": MOST}),
        serde_json::json!({"/store": {"writes": MOST, "bytes": MOST, "extents": MOST,
            "bytes_per_sync": [[MOST, 1u64 << 44]], "gap_micros": [0], "cpu_micros": MOST}}),
        serde_json::json!({"/log/bytes_per_sync": [[1, 0], [MOST, 1u64 << 44]],
            "/log/gap_micros": [0, MOST], "/log/cpu_micros": MOST}),
        serde_json::json!({"/threads": vec![serde_json::json!(
            {"name": "\u{1b}\n", "cpu_micros": 990_000, "turns": MOST}); 2]}),
        serde_json::json!({"/log/bytes": MOST, "/threads": [
            {"name": "", "cpu_micros": MOST, "turns": 0}]}),
    ] {
        let mut document = good.clone();
        for (at, value) in changes.as_object().expect("an object") {
            let (parent, name) = at.rsplit_once('/').expect("a path");
            document.pointer_mut(parent).expect("there")[name] = value.clone();
        }
        fs::write(&mix, document.to_string()).expect("written");
        let words = ["--profile", plan.to_str().expect("UTF-8"), "--mix"];
        let mut command = place.command(&[&words[..], &[mix.to_str().expect("UTF-8")]].concat());
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().expect("a status") {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    child.kill().expect("killed");
                    child.wait().expect("ended");
                    panic!("it does not end: {changes:#}");
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert!([0, 1, 2, 3].map(Some).contains(&status.code()), "{status}: {changes:#}");
    }
}

#[test]
fn a_short_soak_ends_by_the_disks_own_writes_or_by_its_time() {
    let ended = |plan: &str| {
        let place = Place::new();
        fs::write(place.path("plan.json"), plan).expect("written");
        let plan = place.path("plan.json").display().to_string();
        let output = run(place.command(&["--profile", &plan, "--json"]));
        assert!(ANSWERS.map(Some).contains(&output.status.code()), "{output:?}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(place.entries(""), ["data", "plan.json"], "a gentler plan leaves no verdict");
        assert_eq!(place.entries("data"), [""; 0]);
        let findings = document["verdict"]["findings"].to_string();
        assert!(findings.contains("does-not-qualify") || findings.contains("contaminated"));
        document["verdict"]["measured"].clone()
    };
    let early = |measured: &serde_json::Value| {
        // Others kept the disk busy, or it is a bad disk: a FAIL needs no more wear.
        measured.is_null() || measured["end"] == "proven" || measured["end"] == "stalls"
    };
    let writes = r#"{"base": "soak", "min_seconds": 0, "device_writes": 2000, "side_seconds": 0}"#;
    let measured = ended(writes);
    if !early(&measured) {
        assert_eq!(measured["end"], "device-writes", "{measured:#}");
        assert!(measured["summary"]["n"].as_u64() >= Some(512), "{measured:#}");
    }
    let time = r#"{"base": "soak", "min_seconds": 0, "time_box_seconds": 2, "side_seconds": 0}"#;
    let measured = ended(time);
    if !early(&measured) {
        assert_eq!(measured["end"], "time-box", "{measured:#}");
        assert!(measured["elapsed_ns"].as_u64() >= Some(2_000_000_000), "{measured:#}");
        let phases = measured["phases"].as_array().expect("phases");
        assert_eq!((phases.len(), &phases[0]["name"]), (1, &"loaded".into()), "{measured:#}");
    }
}
