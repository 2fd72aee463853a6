//! Disks hang, and disks are busy: leadership leaves one bad disk once, stays when all are bad, and
//! comes back when everything starts anew beside a writer that leaves no room.

use crate::common::{http_get, number};
use crate::history::Load;
use crate::members::{Disks, Members, SOON, runtime, seed};
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Length of a stall.
const STALL: Duration = Duration::from_secs(3);
/// From one stall to the next in a long run.
const EVERY: Duration = Duration::from_secs(30);
/// Within this time a cluster must serve again (acceptance 7 of the cluster's issue).
const QUORUM_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// File systems on which every write and sync waits, until this is dropped.
struct Frozen(Vec<PathBuf>);

impl Frozen {
    /// Freezes all of them as nearly at once as it goes.
    fn new(paths: Vec<PathBuf>) -> Self {
        Self::all("-f", &paths);
        Self(paths)
    }

    fn all(what: &str, paths: &[PathBuf]) {
        let begin = |path: &PathBuf| Command::new("fsfreeze").arg(what).arg(path).spawn();
        let running: Vec<_> = paths.iter().map(begin).collect();
        for child in running {
            let status = child.and_then(|mut child| child.wait()).expect("run fsfreeze");
            assert!(status.success(), "fsfreeze {what}");
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        Self::all("-u", &self.0);
    }
}

/// Counters of all members together, by metric and labels.
fn counters(members: &Members) -> BTreeMap<String, f64> {
    let mut sum = BTreeMap::new();
    for node in &members.nodes {
        let (_, text) = http_get(&node.metrics_url(), "/metrics").expect("metrics");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, value)) = line.rsplit_once(' ') {
                *sum.entry(name.to_string()).or_default() += value.parse().unwrap_or(0.0);
            }
        }
    }
    sum
}

/// What became more, among the metrics that begin so.
fn grown(
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
    prefix: &str,
) -> BTreeMap<String, f64> {
    let more = |(name, value): (&String, &f64)| {
        let more = value - before.get(name).copied().unwrap_or(0.0);
        (name.starts_with(prefix) && more > 0.0).then(|| (name.clone(), more))
    };
    after.iter().filter_map(more).collect()
}

async fn term(members: &Members) -> u64 {
    let leader = members.leader().await;
    members.status(leader).await.map_or(0, |(_, _, term)| term)
}

/// How often members said that all disks are slow.
fn all_slow(members: &Members) -> usize {
    members.nodes.iter().map(|node| node.log().matches("all disks slow").count()).sum()
}

#[test]
fn leadership_stays_while_all_disks_stall() {
    let (stalls, seed) = (number("STALLS", 2), seed());
    let long = std::env::var_os("STALLS").is_some();
    let Some(members) = Members::start(3, Disks::Own, |_, launch| launch) else { return };
    runtime().block_on(async {
        let load = Load::start(members.urls(), seed);
        load.wait_acked(100).await;
        let (before, term_before) = (counters(&members), term(&members).await);
        for _ in 0..stalls {
            load.next_round();
            let begin = Instant::now();
            let said = all_slow(&members);
            let frozen = Frozen::new(members.disks.iter().map(|disk| disk.path()).collect());
            sleep(STALL).await;
            // A leader on a busy machine may need longer to notice; the rule holds for any length.
            while !long && all_slow(&members) == said {
                assert!(begin.elapsed() < SOON, "no leader says that all disks are slow");
                sleep(POLL).await;
            }
            drop(frozen);
            load.wait_acked(50).await;
            if long {
                sleep(EVERY.saturating_sub(begin.elapsed())).await;
            }
        }
        let changes = term(&members).await - term_before;
        let causes = grown(&before, &counters(&members), "assay_leader_changes_total");
        let said = all_slow(&members);
        eprintln!(
            "{stalls} stalls of all disks, {changes} terms {causes:?}, said {said} times that all are \
             slow"
        );
        assert!(changes <= 2, "{changes} leader changes in {stalls} stalls: {causes:?}");
        assert_eq!(causes.get(r#"assay_leader_changes_total{cause="disk"}"#), None);
        members.agree().await;
        eprintln!("{stalls} stalls of all disks: {}, all members hash alike", load.judge().await);
    });
}

#[test]
fn one_stalled_disk_moves_leadership_once_and_it_stays() {
    let (stalls, seed) = (number("STALLS", 2), seed());
    let Some(members) = Members::start(3, Disks::Own, |_, launch| launch) else { return };
    runtime().block_on(async {
        let load = Load::start(members.urls(), seed);
        for _ in 0..stalls {
            load.next_round();
            load.wait_acked(300).await;
            let (before, old) = (counters(&members), members.leader().await);
            let others: Vec<usize> = (0..3).filter(|at| *at != old).collect();
            let begin = Instant::now();
            let frozen = Frozen::new(vec![members.disks[old].path()]);
            let new = loop {
                let leader = members.leader_of(&others).await;
                if leader != old {
                    break leader;
                }
            };
            let moved = begin.elapsed();
            sleep(STALL.saturating_sub(moved)).await;
            drop(frozen);
            // Long enough for the stalled one to ask for leadership again, if it did.
            load.wait_acked(300).await;
            sleep(STALL).await;
            let last = members.leader().await;
            let after = counters(&members);
            let causes = grown(&before, &after, "assay_leader_changes_total");
            let late = grown(&before, &after, "etcd_server_heartbeat_send_failures_total");
            eprintln!(
                "leader {old} stalled, {new} leads after {moved:?}, in the end {last}: {causes:?}"
            );
            let disk = causes.get(r#"assay_leader_changes_total{cause="disk"}"#).copied();
            let all: f64 = causes.values().sum();
            // A machine that stands still for longer than an election timeout elects as well.
            let once = all == 1.0 && last == new || !late.is_empty();
            assert!(disk == Some(1.0) && once, "{causes:?}, {late:?}");
            let said = grown(&before, &after, "assay_disk_step_downs_total");
            let done = said.get(r#"assay_disk_step_downs_total{outcome="handed_over"}"#);
            assert_eq!(done, Some(&1.0), "{said:?}");
            let log = members.nodes[old].log();
            assert!(log.contains("this leader's disk hangs: handing leadership"), "{log}");
        }
        members.agree().await;
        eprintln!(
            "{stalls} stalls of the leader's disk: {}, all members hash alike",
            load.judge().await
        );
    });
}

/// Threads that write and sync without a pause until this is dropped.
struct Writers {
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    fn start(dir: &Path, count: usize) -> Self {
        let (stop, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..count).map(|at| {
            let path = dir.join(format!("saturate{at}"));
            let (stop, bytes) = (stop.clone(), bytes.clone());
            std::thread::spawn(move || write(&path, &stop, &bytes))
        });
        let threads = threads.collect();
        Self { stop, bytes, threads }
    }
}

/// Over and over the same 256 MiB, synced after each 8 MiB.
fn write(path: &Path, stop: &AtomicBool, bytes: &AtomicU64) {
    const STEP: usize = 8 << 20;
    const STEPS: usize = 32;
    let mut file = std::fs::File::create(path).expect("a file to write to");
    let data = vec![0x5au8; STEP];
    while !stop.load(Relaxed) {
        file.seek(SeekFrom::Start(0)).expect("seek");
        for _ in 0..STEPS {
            if stop.load(Relaxed) {
                return;
            }
            file.write_all(&data).expect("write");
            file.sync_data().expect("sync");
            bytes.fetch_add(STEP as u64, Relaxed);
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn three_killed_members_serve_again_beside_a_saturating_writer() {
    let (rounds, seed) = (number("ROUNDS", 1), seed());
    let Some(mut members) = Members::start(3, Disks::Shared, |_, launch| launch) else { return };
    let dir = members.nodes[0].scratch().to_path_buf();
    runtime().block_on(async {
        let load = Load::start(members.urls(), seed);
        let mut times = Vec::new();
        for _ in 0..rounds {
            load.next_round();
            load.wait_acked(100).await;
            let writers = Writers::start(&dir, 2);
            // It must have filled what caches there are.
            while writers.bytes.load(Relaxed) < 256 << 20 {
                sleep(POLL).await;
            }
            members.nodes.iter_mut().for_each(|node| node.kill());
            let begin = Instant::now();
            members.nodes.iter_mut().for_each(|node| node.respawn());
            // More than were on their way.
            load.wait_acked(20).await;
            let took = begin.elapsed();
            assert!(took < QUORUM_LIMIT, "the first answer came after {took:?}");
            times.push(took);
            drop(writers);
            members.nodes.iter_mut().for_each(|node| node.wait_ready());
        }
        members.agree().await;
        let account = load.judge().await;
        eprintln!(
            "three killed beside a saturating writer, {rounds} times: served after {times:.2?}, \
             {account}, all members hash alike"
        );
    });
}
