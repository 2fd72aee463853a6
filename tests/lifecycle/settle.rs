//! A disk that the gate left in doubt: the running node's log settles it.

use crate::common::{Process, assay, http_get};
use crate::{STOP, on_free_ports};
use assay::proto::etcdserverpb::PutRequest;
use bench_disk::env::Environment;
use bench_disk::identity::Identity;
use bench_disk::judge::Outcome;
use bench_disk::lock::RunDir;
use bench_disk::probe;
use bench_disk::verdict::Verdict;
use nix::sys::signal::Signal;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::tempdir;

/// Syncs without which nothing is settled.
const SYNCS: u64 = 10_000;
/// That many syncs one after the other, on a slow and busy disk.
const LIMIT: Duration = Duration::from_secs(600);
/// Writers at the same time: one group of writes is one sync, so more of them would not help much.
const WRITERS: usize = 2;

/// Leaves the answer of a probe where probes of this host meet: the gate takes it as its own.
fn plant(run_dir: &Path, dir: &Path, limit: Duration, outcome: Outcome) {
    let environment = Environment::inspect(dir).expect("the disk");
    let verdict = probe::blank(&environment, "boot", limit, outcome);
    let run_dir = RunDir::at(run_dir.to_path_buf()).expect("a run directory");
    let file = run_dir.verdict_file(&Identity::of(&environment).key());
    verdict.store(&file).expect("stored");
}

fn states(metrics: &str) -> Vec<String> {
    let one = |line: &str| {
        let rest = line.strip_prefix(r#"assay_disk_gate_state{state=""#)?;
        rest.strip_suffix(r#""} 1"#).map(str::to_string)
    };
    metrics.lines().filter_map(one).collect()
}

/// Starts a node in doubt under this limit, writes until the log has settled it, and returns the
/// node, its data directory's verdict and its metrics.
async fn settle(limit: Duration, run_dir: &Path, data: &Path) -> (Process, String) {
    plant(run_dir, data.parent().expect("a parent"), limit, Outcome::Inconclusive);
    let mut command = assay();
    command.env("BENCH_DISK_RUN_DIR", run_dir).arg("--data-dir").arg(data);
    command.arg(format!("--disk-gate-p99={}ns", limit.as_nanos()));
    let [client, _, metrics] = on_free_ports(&mut command);
    let url = format!("http://127.0.0.1:{client}");
    let mut node = Process::start(&mut command);
    node.serves();
    let scrape =
        || http_get(&format!("http://127.0.0.1:{metrics}"), "/metrics").expect("a scrape").1;
    assert_eq!(states(&scrape()), ["unqualified"], "{}", node.stderr());
    assert!(node.stdout().contains("INCONCLUSIVE, unqualified"), "{}", node.stdout());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let url = url.clone();
            tokio::spawn(async move {
                let mut clients = crate::common::Clients::connect(&url).await;
                for n in 0.. {
                    let key = format!("{writer}/{}", n % 100);
                    let put = PutRequest { key: key.into(), ..PutRequest::default() };
                    clients.kv.put(put).await.expect("a put");
                }
            })
        })
        .collect();
    let start = Instant::now();
    let settled = loop {
        let text = scrape();
        if states(&text) != ["unqualified"] {
            break text;
        }
        assert!(start.elapsed() < LIMIT, "not settled: {}", node.stderr());
        assert!(writers.iter().all(|writer| !writer.is_finished()), "a writer ended");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    eprintln!("settled after {:?}", start.elapsed());
    writers.iter().for_each(tokio::task::JoinHandle::abort);
    (node, settled)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_running_log_settles_a_disk_in_doubt() {
    let (home, run_dir) = (tempdir().expect("temp dir"), tempdir().expect("temp dir"));
    let data = home.path().join("data");
    // Every disk of a build machine keeps this limit: the log proves it fit.
    let limit = Duration::from_secs(5);
    let (node, metrics) = settle(limit, &run_dir.path().join("a"), &data).await;
    assert_eq!(states(&metrics), ["pass"]);
    let p99 = metrics
        .lines()
        .find_map(|line| line.strip_prefix("assay_disk_gate_p99_seconds "))
        .expect("the p99");
    assert!(p99.parse::<f64>().expect("seconds") <= limit.as_secs_f64(), "{p99}");
    let log = node.stderr();
    assert!(log.contains("disk gate: PASS, settled by the running log"), "{log}");
    node.signal(Signal::SIGTERM);
    assert_eq!(node.wait(STOP).code, 0);
    // The next start trusts it and measures nothing.
    let verdict = Verdict::load(&data.join("disk-verdict.json")).expect("valid").expect("there");
    assert_eq!((verdict.outcome, verdict.profile.as_str()), (Outcome::Pass, "live"));
    assert!(verdict.measured.expect("figures").syncs >= SYNCS);
    let mut command = assay();
    command.env("BENCH_DISK_RUN_DIR", run_dir.path().join("b")).arg("--data-dir").arg(&data);
    command.arg(format!("--disk-gate-p99={}ns", limit.as_nanos()));
    on_free_ports(&mut command);
    let mut node = Process::start(&mut command);
    node.serves();
    assert!(node.stdout().contains("PASS, p99 "), "{}", node.stdout());
    assert!(node.stdout().contains("(stored "), "{}", node.stdout());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_running_log_says_that_a_disk_in_doubt_is_too_slow_and_goes_on() {
    let (home, run_dir) = (tempdir().expect("temp dir"), tempdir().expect("temp dir"));
    let data = home.path().join("data");
    // No disk keeps this one.
    let (mut node, metrics) =
        settle(Duration::from_micros(1), &run_dir.path().join("a"), &data).await;
    assert_eq!(states(&metrics), ["fail"]);
    assert!(node.stderr().contains("FAIL, settled by the running log"), "{}", node.stderr());
    assert!(node.is_running());
}
