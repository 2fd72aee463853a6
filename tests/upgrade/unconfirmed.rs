//! A leader that is alone and does not know it: its word counts for nobody.

use crate::common::{Cluster, Launch, http_post, run};
use crate::members::SOON;
use crate::rolling::{level, lowered, present};
use assay::proto::etcdserverpb::PutRequest;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// Long enough that a leader whose followers have just been paused still takes itself for one.
fn patient(launch: Launch) -> Launch {
    lowered(launch).arg("--election-timeout=4000")
}

/// The text of `assay upgrade status`.
fn status(url: &str) -> String {
    let ended = run(crate::common::assay().args(["upgrade", "status", "--endpoint", url]));
    ended.stdout + &ended.stderr
}

/// On a busy machine threads of a process run on for a while after it was told to stop.
fn wait_stopped(pid: i32) {
    let start = Instant::now();
    let stopped = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:\tT"))
    };
    let all = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
        tasks.flatten().all(stopped)
    };
    while !all() {
        assert!(start.elapsed() < SOON, "{pid} runs on");
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_cannot_confirm_that_it_leads_finalizes_nothing() {
    let mut cluster = Cluster::start_with(3, patient);
    cluster.leader().await;
    for at in 0..3 {
        cluster.nodes[at].terminate(SOON);
        cluster.nodes[at].relaunch_with(present);
        cluster.nodes[at].restart();
    }
    let start = Instant::now();
    loop {
        let leader = cluster.leader().await;
        let url = cluster.nodes[leader].client_url();
        while !status(&url).contains("ready: every member knows feature level 2") {
            assert!(start.elapsed() < SOON, "{}", status(&url));
        }
        // Their connections stay open, and what they said of themselves stays known for a while.
        for at in (0..3).filter(|at| *at != leader) {
            cluster.nodes[at].signal(Signal::SIGSTOP);
        }
        for at in (0..3).filter(|at| *at != leader) {
            wait_stopped(cluster.nodes[at].pid());
        }
        let (code, text) =
            http_post(&url, "/debug/upgrade/finalize", "").expect("an answer of the leader");
        for at in (0..3).filter(|at| *at != leader) {
            cluster.nodes[at].signal(Signal::SIGCONT);
        }
        match (code, &text) {
            (503, text) if text.contains("could not confirm that it leads") => break,
            // Too late: it knew already that it does not lead, or that nobody is there.
            (503, text) if text.contains("knows no leader") => {}
            (409, text) if text.contains("does not lead") => {}
            (409, text) if text.contains("is not connected") => {}
            _ => panic!("{code} {text}"),
        }
        assert!(start.elapsed() < 3 * SOON, "never in time: {text}");
    }
    // Nothing was left in a log that takes effect now.
    let leader = cluster.leader().await;
    let put = PutRequest { key: "k".into(), ..PutRequest::default() };
    let start = Instant::now();
    while cluster.clients(leader).await.kv.put(put.clone()).await.is_err() {
        assert!(start.elapsed() < SOON, "no writes");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for at in 0..3 {
        assert_eq!(level(&cluster.nodes[at], "cluster"), 1);
    }
}
