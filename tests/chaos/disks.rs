//! A disk fills up.

use crate::history::Load;
use crate::members::{Disks, Members, runtime, seed};
use std::time::Duration;
use tokio::time::sleep;

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
        eprintln!("a full disk: {}, all members hash alike", load.judge().await);
    });
}
