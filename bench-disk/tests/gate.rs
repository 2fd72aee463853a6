//! The gate as a node calls it, with real probes. One test: the run directory is chosen by the
//! environment, which all tests of a program share.
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

mod support;

use bench_disk::gate::{Decision, Mode, Options, State, adopt, check};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::Place;

fn options(data_dir: &Path) -> Options {
    Options {
        data_dir: data_dir.to_path_buf(),
        wal_dir: None,
        mode: Mode::Enforce,
        p99_limit: Duration::from_millis(10),
        verdict_file: None,
        progress: None,
        interrupt: Arc::default(),
    }
}

fn written(decisions: &[Decision]) -> u64 {
    decisions
        .iter()
        .filter(|decision| !decision.from_stored)
        .filter_map(|decision| Some(decision.verdict.as_ref()?.measured.as_ref()?.bytes))
        .sum()
}

#[test]
#[allow(unsafe_code)]
fn nodes_of_one_host_share_a_probe() {
    let place = Place::new();
    // SAFETY: this is the only test of this program, and no thread has been started yet.
    unsafe { std::env::set_var(bench_disk::lock::RUN_DIR_VARIABLE, place.run_dir()) };

    // Three nodes in the same second.
    let starts: Vec<Decision> = std::thread::scope(|scope| {
        let nodes: Vec<_> = ["a", "b", "c"]
            .map(|name| place.path(name))
            .into_iter()
            .map(|data_dir| scope.spawn(move || check(options(&data_dir))))
            .collect();
        nodes.into_iter().map(|node| node.join().expect("no panic")).collect()
    });
    for decision in &starts {
        // A slow or busy build machine may be in doubt, but a probe beside a probe must not fail.
        assert_eq!(decision.exit_code == 20, decision.state == State::Fail);
        assert!(decision.text.contains("disk gate:"), "{}", decision.text);
    }
    let measured = starts.iter().filter(|d| written(std::slice::from_ref(d)) > 0).count();
    assert!(measured <= 1, "{measured} nodes measured one device");
    assert_eq!(place.entries(""), ["data"], "a probe left something behind");

    // Twenty starts of a node that crashes before it has a directory.
    let loops: Vec<Decision> = (0..20).map(|_| check(options(&place.path("a")))).collect();
    let bytes = written(&starts) + written(&loops);
    assert!(bytes < 150_000_000, "{bytes} bytes");

    // A node that got through keeps the verdict and does not measure again.
    let Some(decision) = loops.iter().chain(&starts).find(|d| d.state == State::Pass) else {
        return;
    };
    adopt(decision, &place.path("data")).expect("adopted");
    assert_eq!(place.entries("data"), ["disk-verdict.json"]);
    // SAFETY: as above; the threads of the first part have been joined.
    unsafe { std::env::set_var(bench_disk::lock::RUN_DIR_VARIABLE, place.path("other")) };
    let again = check(options(&place.path("data")));
    assert!(again.from_stored && again.start, "{}", again.text);
    assert!(again.elapsed < Duration::from_millis(50), "{:?}", again.elapsed);
    assert!(again.summary.starts_with("PASS, p99 "), "{}", again.summary);
}
