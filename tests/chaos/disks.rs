//! Disks stall and fill up.

use crate::common::number;
use crate::history::Load;
use crate::members::{Disks, Members, runtime, seed};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::sleep;

/// Length of a stall.
const STALL: Duration = Duration::from_secs(3);
/// From one stall to the next in a long run.
const EVERY: Duration = Duration::from_secs(30);

/// A file system on which every write and sync waits, until this is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn new(path: &Path) -> Self {
        let status = Command::new("fsfreeze").arg("-f").arg(path).status();
        assert!(status.expect("run fsfreeze").success());
        Self(path.to_path_buf())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).status();
    }
}

async fn term(members: &Members) -> u64 {
    let leader = members.leader().await;
    members.status(leader).await.map_or(0, |(_, _, term)| term)
}

#[test]
fn all_disks_stall_at_once() {
    let (stalls, seed) = (number("STALLS", 2), seed());
    let long = std::env::var_os("STALLS").is_some();
    let Some(members) = Members::start(3, Disks::Own, |_, launch| launch) else { return };
    runtime().block_on(async {
        let load = Load::start(members.urls(), seed);
        load.wait_acked(100).await;
        let before = term(&members).await;
        for _ in 0..stalls {
            load.next_round();
            let frozen: Vec<Frozen> =
                members.disks.iter().map(|disk| Frozen::new(&disk.path())).collect();
            sleep(STALL).await;
            drop(frozen);
            load.wait_acked(50).await;
            if long {
                sleep(EVERY - STALL).await;
            }
        }
        let changes = term(&members).await - before;
        // How long a stall is for a busy machine nobody knows: a short run only reports it.
        assert!(!long || changes <= 2, "{changes} leader changes in {stalls} stalls");
        members.agree().await;
        let acked = load.judge().await;
        eprintln!("{stalls} stalls of all disks, {changes} terms, {acked} acknowledged");
    });
}

#[test]
fn the_disk_of_the_leader_stalls() {
    let (stalls, seed) = (number("STALLS", 2), seed());
    let Some(members) = Members::start(3, Disks::Own, |_, launch| launch) else { return };
    runtime().block_on(async {
        let load = Load::start(members.urls(), seed);
        for _ in 0..stalls {
            load.next_round();
            load.wait_acked(100).await;
            let leader = members.leader().await;
            let frozen = Frozen::new(&members.disks[leader].path());
            sleep(STALL).await;
            drop(frozen);
            load.wait_acked(50).await;
            let now = members.leader().await;
            eprintln!("leader {leader} stalled, {now} leads");
        }
        members.agree().await;
        eprintln!("{stalls} stalls of the leader's disk, {} acknowledged", load.judge().await);
    });
}

#[test]
fn the_disk_of_a_follower_is_full() {
    let seed = seed();
    let Some(members) = Members::start(3, Disks::Own, |_, launch| launch) else { return };
    runtime().block_on(async {
        let load = Load::start(members.urls(), seed);
        load.wait_acked(100).await;
        let follower = (members.leader().await + 1) % 3;
        let others: Vec<usize> = (0..3).filter(|at| *at != follower).collect();
        let balloon = members.disks[follower].inflate_balloon();
        let before: u64 = others.iter().map(|at| load.of_member(*at).0).sum();
        let start = std::time::Instant::now();
        while others.iter().map(|at| load.of_member(*at).0).sum::<u64>() < before + 200 {
            assert!(start.elapsed() < crate::members::SOON, "a full follower stops the others");
            sleep(Duration::from_millis(10)).await;
        }
        drop(balloon);
        load.next_round();
        load.wait_acked(100).await;
        members.agree().await;
        eprintln!("a full disk, {} acknowledged", load.judge().await);
    });
}
