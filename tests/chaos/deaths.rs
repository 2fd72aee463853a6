//! Members die, hang and lose power.

use crate::common::number;
use crate::history::Load;
use crate::members::{Disks, Members, runtime, seed};
use nix::sys::signal::Signal;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// Acknowledged requests between two faults.
const REQUESTS: std::ops::Range<u64> = 20..200;

#[test]
fn the_leader_is_killed_under_load() {
    let (kills, seed) = (number("KILLS", 4), seed());
    let Some(mut members) = Members::start(3, Disks::Shared, |_, launch| launch) else { return };
    runtime().block_on(async {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let load = Load::start(members.urls(), seed);
        let mut outages = Vec::new();
        for _ in 0..kills {
            load.next_round();
            load.wait_acked(rng.random_range(REQUESTS)).await;
            let leader = members.leader().await;
            members.nodes[leader].kill();
            // What was on its way when it died is counted; the next one needs a new leader.
            let before = load.of_member(leader).0;
            outages.push(load.wait_acked(20).await);
            assert!(load.of_member(leader).0 <= before + 4, "a dead member answers");
            members.nodes[leader].restart();
        }
        members.agree().await;
        let account = load.judge().await;
        outages.sort();
        let at = |share: f64| outages[((outages.len() - 1) as f64 * share) as usize];
        eprintln!(
            "{kills} kills of the leader: {account}, all members hash alike; first answer after \
             {:.2} s (p50), {:.2} s (max)",
            at(0.5).as_secs_f64(),
            at(1.0).as_secs_f64()
        );
    });
}

#[test]
fn members_hang_and_wake() {
    let (rounds, seed) = (number("ROUNDS", 3), seed());
    let Some(members) = Members::start(3, Disks::Shared, |_, launch| launch) else { return };
    runtime().block_on(async {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let load = Load::start(members.urls(), seed);
        for round in 0..rounds {
            load.next_round();
            load.wait_acked(rng.random_range(REQUESTS)).await;
            // The leader in turn with any: it wakes believing that it still leads.
            let leader = members.leader().await;
            let at = if round % 2 == 0 { leader } else { rng.random_range(0..3) };
            members.nodes[at].signal(Signal::SIGSTOP);
            let others: Vec<usize> = (0..3).filter(|other| *other != at).collect();
            members.leader_of(&others).await;
            load.wait_acked(20).await;
            members.nodes[at].signal(Signal::SIGCONT);
        }
        members.agree().await;
        eprintln!("{rounds} pauses: {}, all members hash alike", load.judge().await);
    });
}

#[test]
fn members_lose_power() {
    let (rounds, seed) = (number("ROUNDS", 3), seed());
    let Some(mut members) = Members::start(3, Disks::Own, |_, launch| launch) else { return };
    runtime().block_on(async {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let load = Load::start(members.urls(), seed);
        for round in 0..rounds {
            load.next_round();
            load.wait_acked(rng.random_range(REQUESTS)).await;
            // One of them, or all at once.
            let dark: Vec<usize> =
                if round % 3 == 2 { (0..3).collect() } else { vec![members.leader().await] };
            for at in &dark {
                members.disks[*at].cut();
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..50))).await;
            for at in &dark {
                members.nodes[*at].kill();
                members.disks[*at].power_on();
            }
            if dark.len() == 1 {
                load.wait_acked(20).await;
            }
            for at in &dark {
                members.nodes[*at].respawn();
            }
            for at in dark {
                members.nodes[at].wait_ready();
            }
            load.wait_acked(20).await;
        }
        members.agree().await;
        eprintln!("{rounds} power cuts: {}, all members hash alike", load.judge().await);
    });
}
