//! Power cuts under load: every acknowledged write is there, and no start is refused.
//!
//! The data directory is on a file system of its own that loses power while the node writes
//! (`common::LoopFs` says what that is). `CUTS=50` for the full run (6 otherwise), `SEED=N` to
//! repeat the moments of a run.
#![allow(clippy::disallowed_methods, reason = "tests own their clocks and threads")]

mod common;

use common::{Launch, Load, LoopFs, Shape, Strace, number};
use rand::{Rng, SeedableRng};
use std::time::Duration;

const WRITES: std::ops::Range<u64> = 1..800;
/// Longest time after the last counted write at which power fails, in microseconds.
const AFTER_WRITE_US: u64 = 20_000;
/// Longest time into a start at which power fails again, in microseconds: about a whole start.
const INTO_START_US: u64 = 150_000;
/// Time for a node to notice that its disk is gone.
const NOTICE: Duration = Duration::from_secs(20);
/// Room for the log's segments with its spares, the ballast, and the store.
const IMAGE_MIB: u64 = 1024;
/// Exit code after a failed disk operation.
const EXIT_IO: i32 = 74;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_loses_nothing() {
    let Some(mut fs) = LoopFs::create(IMAGE_MIB) else { return };
    let cuts = number("CUTS", 6);
    let seed = number("SEED", rand::random());
    eprintln!("SEED={seed}");
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut node = Launch::assay().data_dir(&fs.path().join("data")).start();
    let mut load = Load::start(&node.client_url(), Shape::default());
    for cut in 0..cuts {
        load.wait_acked(rng.random_range(WRITES)).await;
        tokio::time::sleep(Duration::from_micros(rng.random_range(0..AFTER_WRITE_US))).await;
        fs.cut();
        // In turn: the machine is gone at once, or the node lives long enough to see its disk fail.
        if cut % 2 == 0 {
            node.kill();
        } else {
            let status = node.wait_exit(NOTICE);
            assert_eq!(status.code(), Some(EXIT_IO), "after its disk was gone:\n{}", node.log());
        }
        fs.power_on();
        if cut % 3 == 2 {
            node.respawn();
            tokio::time::sleep(Duration::from_micros(rng.random_range(0..INTO_START_US))).await;
            assert!(node.is_running(), "a start was refused:\n{}", node.log());
            fs.cut();
            node.kill();
            fs.power_on();
        }
        node.restart();
        let wrong = load.audit().await;
        assert!(wrong.is_empty(), "SEED={seed}, cut {cut}:\n{}", wrong.join("\n"));
    }
    let acked = load.finish().await;
    eprintln!("{cuts} cuts, {acked} acknowledged writes");
    drop(node);
}

/// The cut is a real one: a node whose syncs do nothing loses what it acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_takes_what_was_not_synced() {
    let Some(mut fs) = LoopFs::create(IMAGE_MIB) else { return };
    let Some(strace) = Strace::require() else { return };
    let node = Launch::assay().data_dir(&fs.path().join("data"));
    // One clean run first, so that the directory itself is in order.
    let mut node = node.start();
    assert!(node.terminate(NOTICE).success());
    let lies = strace.inject("fdatasync,fsync:retval=0").words();
    node.relaunch_with(|launch| launch.wrapper(lies));
    node.restart();
    let mut load = Load::start(&node.client_url(), Shape::default());
    load.wait_acked(500).await;
    load.stop_writing().await;
    fs.cut();
    node.kill();
    fs.power_on();
    node.relaunch_with(|launch| launch.wrapper(Vec::<String>::new()));
    node.restart();
    let wrong = load.audit().await;
    assert!(wrong.iter().any(|it| it.starts_with("lost")), "nothing was lost: {wrong:?}");
}
