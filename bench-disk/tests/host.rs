//! What the host does to a probe: limits on its control group, and nodes that live in the directory.
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

mod support;
#[path = "support/throttle.rs"]
mod throttle;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Place, mounts, run, skip, text, tool};

/// Enough for etcd to begin on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

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
