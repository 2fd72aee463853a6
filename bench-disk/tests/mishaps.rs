//! What may happen to a probe from outside: a clear message, the right exit code, nothing left.
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

mod support;
#[path = "support/throttle.rs"]
mod throttle;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::{Place, json, mounts, run, skip, text, tool};

/// Enough for a probe to begin on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the probe has files open in a directory, or has ended: `false`.
fn writes_in(child: &mut Child, directory: &Path) -> bool {
    let place = directory.canonicalize().expect("a path");
    let deadline = Instant::now() + PATIENCE;
    loop {
        if child.try_wait().expect("a status").is_some() {
            return false;
        }
        let open = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
        let inside = |entry: &fs::DirEntry| {
            fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(&place))
        };
        if open.filter(inside).count() >= 2 {
            return true;
        }
        assert!(Instant::now() < deadline, "the probe never began");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_limit_of_a_control_group_is_named_as_such() {
    let place = Place::new();
    if !mounts::private() {
        return;
    }
    let Some(image) = mounts::Image::create(place.path("image"), 400) else { return };
    let point = place.path("disk");
    let Some(_mounted) = image.mount(&point, "") else { return };
    let Some(group) = throttle::Throttle::writes(&point, 60) else { return };
    let inspect = group.around(&place.on("inspect", &point, &[]));
    let page = text(&run(inspect)).split_whitespace().collect::<Vec<_>>().join(" ");
    let limit = format!("{} may write 60 operations per second", group.name());
    assert!(page.contains(&limit), "{page}");
    let output = run(group.around(&place.on("run", &point, &["--profile", "boot"])));
    let page = text(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    if page.contains("[contaminated]") && !page.contains("syncs") {
        return; // Others kept the disk below busy: nothing was measured.
    }
    // 60 writes per second are at least 16 ms per sync: never a PASS, whatever the machine.
    assert!([Some(1), Some(3)].contains(&output.status.code()), "{page}");
    assert!(page.contains("limit, not disk: this process's control group allows"), "{page}");
    assert!(page.contains(&group.name()), "{page}");
}

#[test]
fn a_full_disk_in_the_middle_is_an_io_error() {
    if !tool("strace") {
        return;
    }
    let place = Place::new();
    // The first writes fill the companion file.
    let inject = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=pwrite64:error=ENOSPC:when=60+"];
    let output = run(place.under("strace", &inject, &["--profile", "boot"]));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(3) && message.is_empty() {
        return; // Contaminated: nothing was written.
    }
    assert_eq!(output.status.code(), Some(5), "{message}");
    assert!(
        message.contains("cannot write a file in") && message.contains("No space"),
        "{message}"
    );
    assert_eq!(place.entries(""), ["data"], "an error leaves no verdict");
    assert_eq!(place.entries("data"), [""; 0]);
}

#[test]
fn a_directory_that_vanishes_ends_the_run_cleanly() {
    let place = Place::new();
    let data = place.path("data");
    let mut child = place
        .command(&["--profile", "boot", "--threshold", "1s"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    if writes_in(&mut child, &data) {
        fs::remove_dir(&data).expect("the probe's files have no names");
    }
    let output = child.wait_with_output().expect("ended");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        // It needed the directory again.
        Some(5) => assert!(message.contains("No such file or directory"), "{message}"),
        // It had all it needed.
        code => assert!([Some(0), Some(1), Some(3)].contains(&code), "{code:?} {message}"),
    }
    assert!(place.entries("").iter().all(|name| name == "data" || name.ends_with("verdict.json")));
}

#[test]
fn a_link_leads_to_the_directory_behind_it_and_stays_a_link() {
    let place = Place::new();
    symlink("data", place.path("link")).expect("linked");
    symlink("nowhere/at/all", place.path("dangling")).expect("linked");
    let output = run(place.on("inspect", &place.path("link"), &[]));
    assert_eq!(output.status.code(), Some(0));
    let page = text(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("(the directory behind the links)"), "{page}");
    let output = run(place.on("inspect", &place.path("dangling"), &[]));
    assert_eq!(output.status.code(), Some(0));
    let output = run(place.command_for("link", &["--profile", "boot", "--json"]));
    let document = json(&output);
    let judged = place.path("data").canonicalize().expect("a path");
    assert_eq!(document["environment"]["judged"].as_str(), judged.to_str());
    assert!(place.path("link").is_symlink());
    assert_eq!(place.entries("data"), [""; 0]);
}

#[test]
fn a_verdict_file_that_is_a_link_does_not_overwrite_its_target() {
    let place = Place::new();
    fs::write(place.path("precious"), "content").expect("written");
    symlink("precious", place.path("verdict")).expect("linked");
    let named = place.path("verdict");
    let named = named.to_str().expect("UTF-8");
    run(place.command(&["--profile", "boot", "--verdict-file", named]));
    assert_eq!(fs::read_to_string(place.path("precious")).expect("readable"), "content");
}

#[test]
fn a_killed_probe_leaves_no_file_and_no_lock() {
    let place = Place::new();
    let data = place.path("data");
    fs::write(data.join("users-file"), "keep").expect("written");
    let free = || nix::sys::statvfs::statvfs(&data).expect("known").blocks_available();
    let mut child = place
        .command(&["--profile", "quick"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    if !writes_in(&mut child, &data) {
        skip_busy();
        return;
    }
    let during = free();
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(place.entries(""), ["data"]);
    assert_eq!(place.entries("data"), ["users-file"]);
    assert_eq!(fs::read_to_string(data.join("users-file")).expect("readable"), "keep");
    // Others share the disk, so only the order of magnitude: tens of MiB were reserved.
    let after = free();
    eprintln!("blocks free during the run {during}, after the kill {after}");
    // The next probe is not kept out by the dead one's lock.
    let output = run(place.command(&["--profile", "boot", "--json"]));
    assert!([Some(0), Some(1), Some(3)].contains(&output.status.code()));
    assert!(json(&output)["verdict"]["outcome"].is_string());
}

/// Nothing was begun because others kept the device busy all the time.
fn skip_busy() {
    eprintln!("SKIPPED: the device was never quiet enough to begin");
}

#[test]
fn a_directory_held_by_a_real_etcd_is_left_alone() {
    let etcd = std::env::var("ASSAY_ETCD").unwrap_or_else(|_| "etcd".into());
    if !Path::new(&etcd).is_file() && !tool(&etcd) {
        return;
    }
    let place = Place::new();
    let data = place.path("data");
    // Port 0: no test meets another one's ports.
    let mut child = std::process::Command::new(&etcd)
        .args(["--listen-client-urls", "http://127.0.0.1:0", "--listen-peer-urls"])
        .args(["http://127.0.0.1:0", "--advertise-client-urls", "http://127.0.0.1:2379"])
        .arg("--data-dir")
        .arg(&data)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let deadline = Instant::now() + PATIENCE;
    while bench_disk::lock::live_node(&data).is_none() {
        if child.try_wait().expect("a status").is_some() {
            skip("etcd does not start here");
            return;
        }
        assert!(Instant::now() < deadline, "etcd never locked its database");
        std::thread::sleep(Duration::from_millis(20));
    }
    let before = place.entries("data");
    let output = run(place.command(&["--profile", "boot"]));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("held by a running node"), "{message}");
    assert!(message.contains("member/snap/db"), "{message}");
    assert_eq!(place.entries("data"), before);
}
