//! Members that are started on older copies of their data directories: what they lost is noticed.

use crate::basics::put;
use crate::common::Cluster;
use crate::common::cluster::SOON;
use std::path::{Path, PathBuf};

/// What is written while there are copies, and afterwards.
const WRITES: usize = 60;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("directory");
    for entry in std::fs::read_dir(from).expect("list") {
        let entry = entry.expect("entry");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("type").is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).expect("copy")),
        }
    }
}

/// Stops a member, copies its data directory and starts it again.
fn copied(cluster: &mut Cluster, at: usize) -> PathBuf {
    cluster.nodes[at].terminate(SOON);
    let aside = cluster.home().join(format!("copy-{at}"));
    copy(cluster.nodes[at].data_dir(), &aside);
    cluster.nodes[at].restart();
    aside
}

/// Puts the copy in place of the data directory of a member that does not run.
fn restore(cluster: &Cluster, at: usize, aside: &Path) {
    let dir = cluster.nodes[at].data_dir();
    std::fs::remove_dir_all(dir).expect("remove");
    copy(aside, dir);
}

async fn write(cluster: &Cluster, at: usize, what: &str) {
    let mut clients = cluster.clients(at).await;
    for n in 0..WRITES {
        put(&mut clients, &format!("{what}{n}"), "v").await.expect("put");
    }
}

/// Starts the member, which ends in order with these words.
fn stops_and_says(cluster: &mut Cluster, at: usize, words: [&str; 2]) {
    cluster.nodes[at].respawn();
    let status = cluster.nodes[at].wait_exit(SOON);
    let log = cluster.nodes[at].log();
    assert_eq!(status.code(), Some(78), "{log}");
    for words in words {
        assert!(log.contains(words), "{log}");
    }
    assert!(!log.contains("panic"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_restored_from_an_older_copy_stops_and_says_what_to_do() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    let away = (leader + 1) % 3;
    let aside = copied(&mut cluster, away);
    assert_eq!(cluster.leader().await, leader, "nobody else was elected");
    write(&cluster, leader, "k").await;
    // It has acknowledged all of it once it serves the last.
    let mut clients = cluster.clients(away).await;
    crate::basics::get(&mut clients, "k0", false).await.expect("get");
    cluster.nodes[away].kill();
    restore(&cluster, away, &aside);
    stops_and_says(
        &mut cluster,
        away,
        ["this member lost entries that it had acknowledged", "empty data directory"],
    );
    write(&cluster, leader, "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_committed_entries_the_others_lost_stops_and_is_not_to_be_removed() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    let asides = others.map(|at| copied(&mut cluster, at));
    assert_eq!(cluster.leader().await, leader, "nobody else was elected");
    write(&cluster, leader, "lost").await;
    for at in others {
        cluster.nodes[at].kill();
    }
    // In order: what it knows to be committed is on its disk.
    cluster.nodes[leader].terminate(SOON);
    for (at, aside) in others.into_iter().zip(&asides) {
        restore(&cluster, at, aside);
        cluster.nodes[at].respawn();
    }
    for at in others {
        cluster.nodes[at].wait_ready();
    }
    write(&cluster, others[0], "other").await;
    stops_and_says(
        &mut cluster,
        leader,
        [
            "the other members lost what this member knows to be committed",
            "Do not remove this member",
        ],
    );
    write(&cluster, others[1], "after").await;
}
