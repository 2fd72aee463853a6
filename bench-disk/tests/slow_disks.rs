//! Disks that are slow for real: throttled, slow in bursts, near the limit. They lie in memory, so
//! that how slow they are does not depend on what else the machine's disk has to do.
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

#[path = "support/memory_fs.rs"]
mod memory_fs;
mod support;
#[path = "support/throttle.rs"]
mod throttle;

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use support::{Place, json, mounts, run, skip};

/// What a slow flush takes here: half as much again as the limit.
const SLOW: Duration = Duration::from_millis(15);

/// A disk in memory with a file system on it.
struct Disk {
    place: Place,
    point: PathBuf,
    // Dropped in this order: what lies on top, then what it lies on.
    _mounted: mounts::Mounted,
    _memory: fuser::BackgroundSession,
}

/// Makes one; `None`, with a visible word, where the machine cannot.
fn disk(times: impl Fn(u64) -> Duration + Send + Sync + 'static) -> Option<Disk> {
    let place = Place::new();
    if !std::path::Path::new("/dev/fuse").exists() {
        skip("there is no /dev/fuse");
        return None;
    }
    if !mounts::private() {
        return None;
    }
    let outer = place.path("memory");
    let memory = memory_fs::mount(&outer, 512, Box::new(times)).expect("mounted");
    let image = mounts::Image::format(outer.join(memory_fs::FILE))?;
    let point = place.path("disk");
    let mounted = image.mount(&point, "")?;
    fs::create_dir(point.join("data")).expect("made");
    Some(Disk { place, point, _mounted: mounted, _memory: memory })
}

/// Outcome, codes of the findings and exit code of a run of ten thousand samples at most.
fn answer(disk: &Disk, profile: &str) -> (Value, Vec<String>) {
    let plan = disk.place.path("plan.json");
    fs::write(
        &plan,
        r#"{"base": "quick", "min_seconds": 0, "syncs_per_second": 0, "side_seconds": 0}"#,
    )
    .expect("written");
    let plan = plan.to_str().expect("UTF-8");
    let profile = if profile == "plan" { plan } else { profile };
    let data = disk.point.join("data");
    let output = run(disk.place.on("run", &data, &["--json", "--profile", profile]));
    let document = json(&output);
    let verdict = &document["verdict"];
    let code = match verdict["outcome"].as_str() {
        Some("PASS") => 0,
        Some("FAIL") => 1,
        _ => 3,
    };
    assert_eq!(output.status.code(), Some(code), "{verdict:#}");
    assert_eq!(fs::read_dir(&data).expect("listed").count(), 0, "something was left");
    let findings = verdict["findings"].as_array().expect("findings");
    let codes = findings.iter().filter_map(|f| f["code"].as_str()).map(str::to_string).collect();
    (verdict.clone(), codes)
}

/// The machine had no processor for the probe, which says so: the disk was not to blame.
fn busy(codes: &[String]) -> bool {
    let busy = codes.iter().any(|code| code == "processor-busy" || code == "contaminated");
    if busy {
        eprintln!("the machine was too busy to judge: {codes:?}");
    }
    busy
}

#[test]
fn one_and_a_half_percent_slow_in_bursts_is_a_fail() {
    // Three in a row of two hundred.
    let Some(disk) = disk(|number| if number % 200 < 3 { SLOW } else { Duration::ZERO }) else {
        return;
    };
    let (verdict, codes) = answer(&disk, "plan");
    if verdict["outcome"] == "INCONCLUSIVE" && busy(&codes) {
        return;
    }
    assert_eq!(verdict["outcome"], "FAIL", "{verdict:#}");
    assert_eq!(codes[0], "above-limit", "{codes:?}");
    let summary = &verdict["measured"]["summary"];
    assert!(summary["longest_burst"].as_u64() >= Some(2), "{summary}");
    assert!(summary["fraction_low"].as_f64() > Some(0.01), "{summary}");
}

#[test]
fn just_below_the_limit_is_neither_a_pass_nor_a_fail() {
    // 0.7 % of the flushes, one by one: the truth is a PASS, and ten thousand samples cannot prove it.
    let Some(disk) = disk(|number| if number % 143 == 7 { SLOW } else { Duration::ZERO }) else {
        return;
    };
    let (verdict, codes) = answer(&disk, "plan");
    assert_ne!(verdict["outcome"], "PASS", "{verdict:#}");
    if verdict["outcome"] == "FAIL" && busy(&codes) {
        return;
    }
    assert_eq!(verdict["outcome"], "INCONCLUSIVE", "{verdict:#}");
    assert!(codes.contains(&"near-limit".to_string()) || busy(&codes), "{codes:?}");
}

#[test]
fn twenty_writes_per_second_are_a_fail() {
    let Some(disk) = disk(|_| Duration::ZERO) else { return };
    let Some(_limit) = throttle::DeviceLimit::writes(&disk.point, 20) else { return };
    let (verdict, codes) = answer(&disk, "boot");
    assert_eq!(verdict["outcome"], "FAIL", "{verdict:#}");
    assert!(
        codes.iter().any(|code| code == "above-limit" || code == "election-stall"),
        "{codes:?}"
    );
    // The limit of the root group is named, since it cannot be told from the disk otherwise.
    assert!(codes.contains(&"limit-not-disk".to_string()), "{codes:?}");
}
