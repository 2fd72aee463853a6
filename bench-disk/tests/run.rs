//! The real program on real directories.
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Place, is_root, run, tool};

/// Exit codes of an honest answer about a directory that may hold data: PASS, FAIL, INCONCLUSIVE.
const ANSWERS: [i32; 3] = [0, 1, 3];

fn json(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON document on standard output")
}

#[test]
fn an_empty_directory_stays_empty_and_gets_an_honest_verdict_beside_it() {
    let place = Place::new();
    let output = run(place.command(&["--profile", "boot", "--json"]));
    let code = output.status.code().expect("an exit code");
    let document = json(&output);
    let outcome = document["verdict"]["outcome"].as_str().expect("an outcome");
    assert!(ANSWERS.contains(&code), "{code}");
    assert_eq!(
        code,
        match outcome {
            "PASS" => 0,
            "FAIL" => 1,
            _ => 3,
        },
        "{document:#}"
    );
    assert_eq!(place.entries("data"), [""; 0], "the directory was empty");
    assert_eq!(place.entries(""), [".data.disk-verdict.json", "data"]);
    let stored: Value =
        serde_json::from_slice(&fs::read(place.path(".data.disk-verdict.json")).expect("a file"))
            .expect("JSON");
    assert_eq!(stored["verdict"]["outcome"], outcome);
    assert_eq!(stored["verdict"]["attempts"].as_array().map(Vec::len), Some(1));
    let measured = &document["verdict"]["measured"];
    if !measured.is_null() {
        let bytes = measured["bytes"].as_u64().expect("bytes");
        assert!(bytes <= 100_300_000, "{bytes} bytes written");
        let counted: u64 = measured["histogram"]
            .as_array()
            .expect("pairs")
            .iter()
            .map(|pair| pair[1].as_u64().expect("a count"))
            .sum();
        assert_eq!(Some(counted), measured["summary"]["n"].as_u64());
        let last = measured["histogram"].as_array().and_then(|pairs| pairs.last()?[0].as_u64());
        assert!(last >= measured["percentiles"]["max_ns"].as_u64(), "{document:#}");
    }
}

#[test]
fn the_report_fits_80_columns_and_a_missing_directory_is_judged_at_its_parent() {
    let place = Place::new();
    let output = run(place.command_for("new/deep", &["--profile", "boot"]));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("judged at"), "{text}");
    assert!(text.contains("PASS:") || text.contains("FAIL:") || text.contains("INCONCLUSIVE:"));
    assert!(!text.contains('\u{1b}'), "colour or cursor movement in a pipe");
    // Paths and device names above the histogram are as long as they are.
    let below = text.lines().skip_while(|line| !line.is_empty());
    assert!(below.clone().all(|line| line.len() <= 80), "{text}");
    assert!(output.stderr.is_empty() || !String::from_utf8_lossy(&output.stderr).contains('['));
    assert!(!place.path("new").exists());
}

#[test]
fn a_delay_of_15_ms_fails_and_leaves_nothing() {
    if !tool("strace") {
        return;
    }
    let place = Place::new();
    let inject = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=fdatasync:delay_enter=15000"];
    let output = run(place.under("strace", &inject, &["--profile", "boot", "--json"]));
    let document = json(&output);
    let codes: Vec<&str> = document["verdict"]["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .filter_map(|finding| finding["code"].as_str())
        .collect();
    // On a device that others keep busy the only honest answer is that nothing can be said.
    if codes.contains(&"contaminated") {
        assert_eq!(output.status.code(), Some(3), "{document:#}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{document:#}");
    assert_eq!(codes[0], "above-limit");
    assert!(document["verdict"]["measured"]["percentiles"]["p50_ns"].as_u64() > Some(15_000_000));
    assert_eq!(place.entries("data"), [""; 0]);
}

#[test]
fn an_error_of_one_sync_is_an_io_error_and_is_not_retried() {
    if !tool("strace") {
        return;
    }
    let place = Place::new();
    // The first sixteen prepare the companion file.
    let inject = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=fdatasync:error=EIO:when=100"];
    let output = run(place.under("strace", &inject, &["--profile", "boot"]));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(3) && !text.contains("Input/output") {
        return; // Contaminated: nothing was synced.
    }
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(
        text.contains("cannot sync a file in") && text.contains("Input/output error"),
        "{text}"
    );
    assert_eq!(place.entries(""), ["data"], "an error leaves no verdict");
    assert_eq!(place.entries("data"), [""; 0]);
}

#[test]
fn a_file_system_in_memory_is_refused_by_name() {
    let shm = Path::new("/dev/shm");
    let in_memory = nix::sys::statfs::statfs(shm)
        .is_ok_and(|s| s.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC);
    if !in_memory {
        support::skip("/dev/shm is not a tmpfs");
        return;
    }
    let place = Place::new_in(shm);
    let output = run(place.command(&[]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("tmpfs") && text.contains("REFUSED"), "{text}");
    assert_eq!(place.entries(""), ["data"]);
}

#[test]
fn signals_clean_up_and_end_with_6() {
    for signal in [nix::sys::signal::Signal::SIGINT, nix::sys::signal::Signal::SIGTERM] {
        let place = Place::new();
        let mut child = place
            .command(&["--profile", "quick"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let pid = child.id();
        // Wait for the signal handler rather than for a time: the mask of caught signals shows it.
        let bit = 1u64 << (signal as i32 - 1);
        let deadline = Instant::now() + Duration::from_secs(20);
        while caught(pid) & bit == 0 {
            assert!(Instant::now() < deadline, "the handler was never installed");
            std::thread::yield_now();
        }
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a pid"));
        nix::sys::signal::kill(pid, signal).expect("signalled");
        let status = child.wait().expect("ended");
        assert_eq!(status.code(), Some(6), "{signal}");
        assert_eq!(place.entries(""), ["data"]);
        assert_eq!(place.entries("data"), [""; 0]);
    }
}

fn caught(pid: u32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_default()
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok())
        .unwrap_or(0)
}

#[test]
fn a_file_instead_of_a_directory_is_a_usage_error() {
    let place = Place::new();
    fs::write(place.path("file"), "content").expect("written");
    for target in ["file", "file/below"] {
        let output = run(place.command_for(target, &[]));
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("is not a directory"));
    }
    assert_eq!(fs::read_to_string(place.path("file")).expect("readable"), "content");
}

#[test]
fn wrong_arguments_are_usage_errors_and_help_is_not() {
    let place = Place::new();
    for wrong in [["--threshold", "10"], ["--profile", "huge"], ["--threshold", "0ms"]] {
        let output = run(place.command(&wrong));
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty());
    }
    let output = run(place.command(&["--help"]));
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("3 INCONCLUSIVE"));
}

#[test]
fn a_directory_that_cannot_be_written_is_an_io_error() {
    let place = Place::new();
    let mut command = place.command(&["--profile", "boot"]);
    if is_root() {
        // Root may write anywhere; "nobody" may not.
        fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).expect("changed");
        command.uid(65_534).gid(65_534).env("BENCH_DISK_RUN_DIR", "/proc/nowhere");
    } else {
        fs::set_permissions(place.path("data"), fs::Permissions::from_mode(0o555))
            .expect("changed");
    }
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(3) {
        return; // Contaminated: nothing was tried.
    }
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("Permission denied") && text.contains("data"), "{text}");
}

#[test]
fn a_directory_held_by_a_live_node_is_refused() {
    let place = Place::new();
    fs::write(place.path("data/LOCK"), "").expect("written");
    let lock = fs::File::open(place.path("data/LOCK")).expect("opened");
    lock.lock().expect("locked");
    let output = run(place.command(&["--profile", "boot"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("held by a running node"));
    assert_eq!(place.entries("data"), ["LOCK"]);
}

/// Lets a probe wait for another one of its device, and does something meanwhile. Its output.
fn behind_another_probe(place: &Place, meanwhile: impl FnOnce()) -> std::process::Output {
    let run_dir = place.run_dir();
    let directory = bench_disk::lock::RunDir::at(run_dir).expect("a run directory");
    let environment = bench_disk::env::Environment::inspect(&place.path("data")).expect("seen");
    let key = bench_disk::identity::Identity::of(&environment).disk_key();
    let lock = directory.lock_of(&key).expect("opened");
    assert!(lock.try_take().expect("no error"));
    let second = directory.lock_of(&key).expect("opened");
    assert!(!second.try_take().expect("no error"), "a second holder");
    let mut command = place.command(&["--profile", "boot"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
    // The program must have the lock file open and still not have begun to write.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds_open(child.id(), &format!("{key}.lock")) {
        assert!(Instant::now() < deadline, "it never tried to lock");
        std::thread::yield_now();
    }
    assert!(child.try_wait().expect("a status").is_none());
    meanwhile();
    drop(lock);
    child.wait_with_output().expect("ended")
}

#[test]
fn two_probes_of_one_device_run_one_after_the_other() {
    let output = behind_another_probe(&Place::new(), || {});
    assert!(ANSWERS.map(Some).contains(&output.status.code()), "{output:?}");
}

#[test]
fn a_node_that_starts_while_a_probe_waits_is_left_alone() {
    let place = Place::new();
    let mut held = None;
    let output = behind_another_probe(&place, || {
        fs::write(place.path("data/LOCK"), "").expect("written");
        let lock = fs::File::open(place.path("data/LOCK")).expect("opened");
        lock.lock().expect("locked");
        held = Some(lock);
    });
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("held by a running node"));
    assert_eq!(place.entries("data"), ["LOCK"]);
}

/// Whether the process has a file of this name open.
fn holds_open(pid: u32, name: &str) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().any(|entry| {
        fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().ends_with(name))
    })
}

#[test]
fn too_little_space_is_told_before_anything_is_written() {
    if !is_root() || !tool("mkfs.ext4") || !tool("unshare") {
        support::skip("needs root to mount an image");
        return;
    }
    let place = Place::new();
    let image = place.path("image");
    fs::File::create(&image).and_then(|file| file.set_len(48 << 20)).expect("an image");
    let made = std::process::Command::new("mkfs.ext4").arg("-qF").arg(&image).output();
    assert!(made.expect("mkfs ran").status.success());
    // A private mount namespace: the mount, and its loop device, end with the command.
    let script = format!(
        "mount -o loop '{}' '{}' && exec \"$0\" \"$@\"",
        image.display(),
        place.path("data").display()
    );
    let prefix = ["-m", "--propagation", "private", "sh", "-c", &script];
    let output = run(place.under("unshare", &prefix, &["--profile", "boot"]));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if text.contains("mount:") {
        support::skip("this host cannot mount loop devices");
        return;
    }
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("96 MiB free"), "{text}");
}
