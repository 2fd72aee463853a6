//! `kill -9` at random moments under load: nothing acknowledged is lost, nothing goes back, watches
//! resume without gap or duplicate, and no start is refused.
//!
//! `KILLS=100` for the full run (15 otherwise), `SEED=N` to repeat the moments of a run.
#![allow(clippy::disallowed_methods, reason = "tests own their clocks and threads")]

mod common;

use common::{Launch, Load, Shape, number};
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// Writes between two kills: less than a segment, so that some kills hit a young log, and enough
/// that store commits and segment changes are hit too.
const WRITES: std::ops::Range<u64> = 1..600;
/// Every how many kills the server is killed a second time while it starts.
const KILL_AGAIN: u64 = 4;
/// Longest time into a start at which it is killed, in microseconds: about a whole start.
const INTO_START_US: u64 = 150_000;
/// Longest time after the last counted write at which it is killed, in microseconds.
const AFTER_WRITE_US: u64 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_loses_nothing() {
    let kills = number("KILLS", 15);
    let seed = number("SEED", rand::random());
    eprintln!("SEED={seed}");
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut node = Launch::assay().start();
    let mut load = Load::start(&node.client_url(), Shape::default());
    for kill in 1..=kills {
        load.wait_acked(rng.random_range(WRITES)).await;
        tokio::time::sleep(Duration::from_micros(rng.random_range(0..AFTER_WRITE_US))).await;
        node.kill();
        if kill % KILL_AGAIN == 0 {
            node.respawn();
            tokio::time::sleep(Duration::from_micros(rng.random_range(0..INTO_START_US))).await;
            assert!(node.is_running(), "a start was refused:\n{}", node.log());
            node.kill();
        }
        node.restart();
        let wrong = load.audit().await;
        assert!(wrong.is_empty(), "SEED={seed}, kill {kill}:\n{}", wrong.join("\n"));
    }
    let acked = load.finish().await;
    eprintln!("{kills} kills, {acked} acknowledged writes");
}
