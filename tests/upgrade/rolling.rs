//! A rolling upgrade under load, one member after the other, and the same way back.

use crate::common::{Cluster, Etcdctl, Launch, Node, Program, Tool};
use crate::history::Load;
use crate::members::SOON;
use assay::proto::etcdserverpb::{HashKvRequest, StatusRequest};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Poses as a program of this level.
pub(crate) const LEVEL: &str = "ASSAY_TEST_FEATURE_LEVEL";
/// Requests that must be answered between two exchanges of a program.
const BETWEEN: u64 = 100;
/// Longest time without any answer that a rolling upgrade may cause: an election is a second or two,
/// which a very busy machine has stretched to fifteen. A service that is gone is gone for longer.
const GAP_MAX: Duration = Duration::from_secs(60);

/// Where `.ci/build-previous` put the version before; `None` where it said that it cannot.
///
/// # Panics
/// When nobody ran it and `CI` is set.
pub(crate) fn previous() -> Option<PathBuf> {
    const VARIABLE: &str = "ASSAY_PREVIOUS";
    match std::env::var(VARIABLE) {
        Ok(path) if path == "none" => {
            eprintln!(
                "NOT TESTED: a rolling upgrade from a build of the landing before; this clone has no \
                 history to build it from"
            );
            None
        }
        Ok(path) => {
            let path = PathBuf::from(path);
            assert!(path.is_file(), "{VARIABLE}={} is not a file", path.display());
            Some(path)
        }
        Err(_) => {
            let ci = std::env::var_os("CI").is_some();
            assert!(
                !ci,
                "{VARIABLE} is not set: run .ci/build-previous, and set what --print says"
            );
            eprintln!("SKIPPED: run .ci/build-previous, and set what --print says");
            None
        }
    }
}

fn previous_build(launch: Launch) -> Launch {
    let path = previous().expect("looked for before");
    launch.program(Program::Build(path))
}

pub(crate) fn lowered(launch: Launch) -> Launch {
    launch.env(LEVEL, "1")
}

pub(crate) fn present(launch: Launch) -> Launch {
    launch.program(Program::Assay).without_env(LEVEL)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_the_landing_before_and_back() {
    if previous().is_some() {
        roll(previous_build, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_a_lower_level_and_back() {
    roll(lowered, true).await;
}

async fn roll(old: fn(Launch) -> Launch, old_says_its_level: bool) {
    let mut cluster = Cluster::start_with(3, old);
    cluster.leader().await;
    let urls: Vec<String> = cluster.nodes.iter().map(|node| node.client_url()).collect();
    let load = Load::start(urls, 7);
    load.wait_acked(BETWEEN).await;
    for (change, new) in [(present as fn(Launch) -> Launch, true), (old, false)] {
        for at in 0..3 {
            load.next_round();
            // In order, as people do it, and once as it also happens.
            match (new, at) {
                (false, 2) => cluster.nodes[at].kill(),
                _ => assert!(cluster.nodes[at].terminate(SOON).success(), "{}", cluster.logs()),
            }
            load.wait_acked(BETWEEN).await;
            cluster.nodes[at].relaunch_with(change);
            cluster.nodes[at].restart();
            cluster.leader().await;
            load.wait_acked(BETWEEN).await;
            through_etcdctl(&cluster, &format!("{new}-{at}"));
            if new || old_says_its_level {
                let claims = if new { 2 } else { 1 };
                assert_eq!(level(&cluster.nodes[at], "program"), claims);
                assert_eq!(level(&cluster.nodes[at], "cluster"), 1, "nobody finalized it");
            }
        }
    }
    let gap = load.longest_gap();
    let acked = load.judge().await.acked;
    equal_hashes(&cluster).await;
    eprintln!("{acked} acknowledged requests, longest time without one {} ms", gap.as_millis());
    assert!(gap < GAP_MAX, "nothing was answered for {gap:?}");
}

/// A busy machine may take longer than the five seconds that etcdctl waits.
const LONG: &str = "--command-timeout=60s";

/// A put and a read with etcdctl, which picks among the members itself.
fn through_etcdctl(cluster: &Cluster, value: &str) {
    let Some(path) = Tool::Etcdctl.require() else { return };
    let etcdctl = Etcdctl::new(&path, &cluster.endpoints());
    etcdctl.ok(&[LONG, "put", "rolling", value]);
    assert_eq!(etcdctl.ok(&[LONG, "get", "rolling", "--print-value-only"]).trim(), value);
}

/// `assay_feature_level` of a member.
pub(crate) fn level(node: &Node, kind: &str) -> u64 {
    let (_, text) = crate::common::http_get(&node.metrics_url(), "/metrics").expect("metrics");
    let name = format!("assay_feature_level{{kind=\"{kind}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(name.as_str()));
    line.expect("the metric").parse().expect("a whole number")
}

/// Waits until all members are equally far, and compares their hashes at that revision.
async fn equal_hashes(cluster: &Cluster) {
    let start = Instant::now();
    let revision = loop {
        let mut revisions = Vec::new();
        for at in 0..3 {
            let mut clients = cluster.clients(at).await;
            let status = clients.maintenance.status(StatusRequest {}).await.expect("status");
            revisions.push(status.into_inner().header.expect("header").revision);
        }
        if revisions.windows(2).all(|pair| pair[0] == pair[1]) {
            break revisions[0];
        }
        assert!(start.elapsed() < SOON, "the members stay apart: {revisions:?}");
    };
    let mut hashes = Vec::new();
    for at in 0..3 {
        let mut clients = cluster.clients(at).await;
        let hash = clients.maintenance.hash_kv(HashKvRequest { revision }).await.expect("hash");
        let hash = hash.into_inner();
        hashes.push((hash.hash, hash.hash_revision, hash.compact_revision));
    }
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:x?}");
}
