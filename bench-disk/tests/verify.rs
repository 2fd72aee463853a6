//! Stored verdicts and devices that change under them.
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

mod support;

use bench_disk::gate::{Mode, Options, check};
use bench_disk::judge::Outcome;
use bench_disk::verdict::{FILE_NAME, Verdict};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{Place, json, mounts, run, text};

const LIMIT: Duration = Duration::from_millis(10);

/// Stores a PASS about the device under a directory, as a run there would have left it.
fn plant(file: &Path, directory: &Path, place: &Place) {
    let seen = run(place.on("run", directory, &["--profile", "boot", "--json"]));
    // What the disk says does not matter here; a PASS is made of it, so that slow machines pass too.
    let mut verdict: Verdict =
        serde_json::from_value(json(&seen)["verdict"].clone()).expect("a verdict");
    verdict.outcome = Outcome::Pass;
    verdict.store(file).expect("stored");
    // The host's memory of recent runs would answer instead of the file.
    fs::remove_dir_all(place.run_dir()).expect("forgotten");
}

fn verify(place: &Place, directory: &Path) -> (i32, Value) {
    let output = run(place.on("verify", directory, &["--json"]));
    (output.status.code().expect("a code"), json(&output))
}

/// What a node's gate says, in a process that sees this thread's mounts.
fn gate(place: &Place, directory: &Path) -> String {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "gate_in_a_process_of_its_own", "--ignored", "--nocapture"])
        .env("TEST_GATE_DIRECTORY", directory)
        .env("BENCH_DISK_RUN_DIR", place.run_dir())
        .output()
        .expect("started");
    text(&output).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "started by the other tests of this file"]
fn gate_in_a_process_of_its_own() {
    let Some(directory) = std::env::var_os("TEST_GATE_DIRECTORY") else { return };
    let decision = check(Options {
        data_dir: directory.into(),
        wal_dir: None,
        mode: Mode::Enforce,
        p99_limit: LIMIT,
        verdict_file: None,
        progress: None,
        interrupt: std::sync::Arc::default(),
    });
    println!("stored={} {} {}", decision.from_stored, decision.summary, decision.text);
}

struct Disks {
    place: Place,
    first: PathBuf,
    second: PathBuf,
    _mounted: Vec<mounts::Mounted>,
}

/// Two file systems on two loop devices.
fn two_disks() -> Option<Disks> {
    let place = Place::new();
    if !mounts::private() {
        return None;
    }
    let (first, second) = (place.path("first"), place.path("second"));
    let mut mounted = Vec::new();
    for (name, point) in [("a", &first), ("b", &second)] {
        let image = mounts::Image::create(place.path(name), 400)?;
        mounted.push(image.mount(point, "")?);
    }
    Some(Disks { place, first, second, _mounted: mounted })
}

#[test]
fn a_verdict_does_not_move_to_another_device_and_the_node_says_why() {
    let Some(disks) = two_disks() else { return };
    let place = &disks.place;
    let data = disks.first.join("data");
    fs::create_dir(&data).expect("made");
    plant(&data.join(FILE_NAME), &data, place);
    let (code, document) = verify(place, &data);
    assert_eq!((code, &document["holds"]), (0, &"PASS".into()), "{document:#}");
    assert_eq!(document["next_start"], "starts without measuring");
    assert!(gate(place, &data).contains("stored=true"));

    // The directory moves, verdict and all.
    let moved = disks.second.join("data");
    fs::create_dir(&moved).expect("made");
    fs::copy(data.join(FILE_NAME), moved.join(FILE_NAME)).expect("copied");
    let (code, document) = verify(place, &moved);
    assert_eq!((code, &document["holds"]), (3, &Value::Null), "{document:#}");
    let reason = document["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("about another device"), "{reason}");
    assert!(reason.contains("file system UUID was"), "{reason}");
    let page = text(&run(place.on("verify", &moved, &[])));
    assert!(page.contains("NOT VALID") && page.lines().all(|line| line.len() <= 120), "{page}");
    let said = gate(place, &moved);
    assert!(said.contains("stored=false"), "the node measured: {said}");
    assert!(said.contains("does not count: it is about another device"), "{said}");
}

#[test]
fn other_data_options_void_a_verdict_and_harmless_ones_do_not() {
    let place = Place::new();
    if !mounts::private() {
        return;
    }
    let Some(image) = mounts::Image::create(place.path("image"), 400) else { return };
    let point = place.path("disk");
    let data = point.join("data");
    let Some(mounted) = image.mount(&point, "") else { return };
    fs::create_dir(&data).expect("made");
    plant(&data.join(FILE_NAME), &data, &place);
    drop(mounted);

    let Some(mounted) = image.mount(&point, ",noatime") else { return };
    let (code, document) = verify(&place, &data);
    assert_eq!((code, &document["holds"]), (0, &"PASS".into()), "{document:#}");
    let changed = document["reasons"][0].as_str().expect("what changed");
    assert!(changed.starts_with("mount options was") && changed.contains("noatime"), "{changed}");
    assert!(gate(&place, &data).contains("stored=true"));
    drop(mounted);

    let Some(mounted) = image.mount(&point, ",data=journal") else { return };
    let (code, document) = verify(&place, &data);
    assert_eq!((code, &document["holds"]), (3, &Value::Null), "{document:#}");
    let reason = document["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("data=journal"), "{reason}");
    let said = gate(&place, &data);
    assert!(said.contains("stored=false") && said.contains("data=journal"), "{said}");
    drop(mounted);

    let Some(_mounted) = image.mount(&point, ",barrier=0") else { return };
    let (code, document) = verify(&place, &data);
    assert_eq!((code, &document["next_start"]), (4, &"refused".into()), "{document:#}");
    assert!(gate(&place, &data).contains("REFUSED, not starting"));
}

#[test]
fn a_damaged_an_expired_and_a_missing_verdict_are_told_apart() {
    let place = Place::new();
    let data = place.path("data");
    let (code, document) = verify(&place, &data);
    assert_eq!((code, &document["looked"][0]["state"]), (3, &"absent".into()), "{document:#}");
    assert_eq!(document["next_start"], "measures at its next start");

    plant(&place.path(".data.disk-verdict.json"), &data, &place);
    assert_eq!(verify(&place, &data).0, 0);
    let (code, document) =
        (run(place.on("verify", &data, &["--threshold", "5ms"])), verify(&place, &data).1);
    assert_eq!(code.status.code(), Some(3), "a PASS for 10 ms says nothing about 5 ms");
    assert_eq!(document["looked"][1]["state"], "valid");

    let file = place.path(".data.disk-verdict.json");
    let mut old = Verdict::load(&file).expect("readable").expect("there");
    old.created -= 40 * 24 * 60 * 60;
    old.expires -= 40 * 24 * 60 * 60;
    old.store(&file).expect("stored");
    let (code, document) = verify(&place, &data);
    assert_eq!(code, 3);
    let reason = document["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("it expired unused after"), "{reason}");
    // In a data directory a node has run on it: there it does not expire.
    old.store(&data.join(FILE_NAME)).expect("stored");
    assert_eq!(verify(&place, &data).0, 0);

    // Somebody set the clock back, or had it wrong: by hours that is believed, by days not.
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    for (hours, expected) in [(20, 0), (50, 3)] {
        let mut early = old.clone();
        early.created = now + hours * 60 * 60;
        early.expires = early.created + 60;
        early.store(&file).expect("stored");
        fs::remove_file(data.join(FILE_NAME)).ok();
        let (code, document) = verify(&place, &data);
        assert_eq!(code, expected, "{document:#}");
        let said = document["looked"][1]["reason"].as_str().expect("a reason");
        assert!(said.contains("by this clock"), "{said}");
        early.store(&data.join(FILE_NAME)).expect("stored");
        assert_eq!(verify(&place, &data).0, 0, "a node runs on it");
    }
    old.store(&data.join(FILE_NAME)).expect("stored");

    let mut bytes = fs::read(data.join(FILE_NAME)).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(data.join(FILE_NAME), bytes).expect("written");
    let (code, document) = verify(&place, &data);
    assert_eq!((code, &document["looked"][0]["state"]), (3, &"unreadable".into()), "{document:#}");
    assert_eq!(place.entries("data"), [FILE_NAME], "looking changed something");
}

#[test]
fn a_stored_fail_ends_with_1() {
    let place = Place::new();
    let data = place.path("data");
    let file = place.path("elsewhere.json");
    plant(&file, &data, &place);
    let mut verdict = Verdict::load(&file).expect("readable").expect("there");
    verdict.outcome = Outcome::Fail;
    verdict.store(&file).expect("stored");
    fs::remove_file(place.path(".data.disk-verdict.json")).expect("removed");
    let named = file.to_str().expect("UTF-8");
    let output = run(place.on("verify", &data, &["--verdict-file", named]));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("FAIL: a stored FAIL holds"));
}
