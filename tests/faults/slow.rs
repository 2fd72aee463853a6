//! Slow syncs: of everything, and of the store alone.

use crate::common::{Clients, Launch, Node, Strace};
use crate::{put, quantile};
use assay::proto::etcdserverpb::RangeRequest;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Delay of every sync in the first test.
const SYNC: Duration = Duration::from_millis(200);
/// Requests in flight for the group commit.
const IN_FLIGHT: u64 = 64;
/// Share of the puts in flight that must be done per two syncs: the one under way when a put comes,
/// and its own.
const GROUPED: f64 = 0.8;
/// Delay of the store's syncs in the second test, in microseconds.
const STORE_SYNC_US: u64 = 300_000;
/// Rounds of the second test, and the most of them.
const ROUNDS: usize = 7;
const ROUNDS_MAX: usize = 30;
/// Requests in flight in the second test.
const WRITERS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_syncs_delay_writes_in_groups_and_reads_not_at_all() {
    let Some(strace) = Strace::require() else { return };
    let slow = strace.inject(&format!("fdatasync:delay_enter={}", SYNC.as_micros()));
    let node = Launch::assay().wrapper(slow.words()).start();
    let mut clients = node.clients().await;
    let mut alone = Vec::new();
    for n in 0..12 {
        let took = put(&mut clients, &format!("alone/{n}"), 512).await.expect("a put");
        assert!(took >= SYNC, "a put was answered after {took:?}, before its sync had ended");
        alone.push(took);
    }
    // What a sync takes here with all that a busy machine and the tracer add.
    let sync = quantile(alone, 0.5);

    let acked = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..IN_FLIGHT)
        .map(|writer| {
            let (mut clients, acked) = (clients.clone(), acked.clone());
            tokio::spawn(async move {
                loop {
                    put(&mut clients, &format!("group/{writer}"), 512).await.expect("a put");
                    acked.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    // One round of everybody, so that the measurement begins in the middle of it.
    while acked.load(Relaxed) < IN_FLIGHT {
        tokio::time::sleep(SYNC / 20).await;
    }
    // A connection of its own: puts must not be in the way of gets on this side.
    let mut reader = node.clients().await;
    let mut best = Duration::MAX;
    // Three times: a busy machine delays one, a read that waits for a sync delays all.
    for _ in 0..3 {
        best = best.min(serializable_p99(&mut reader).await);
    }
    let mut per_two_syncs = 0_f64;
    for _ in 0..3 {
        let (before, start) = (acked.load(Relaxed), Instant::now());
        while start.elapsed() < 20 * SYNC {
            tokio::time::sleep(SYNC / 20).await;
        }
        let done = acked.load(Relaxed) - before;
        let rate = done as f64 * (2 * sync).as_secs_f64() / start.elapsed().as_secs_f64();
        per_two_syncs = per_two_syncs.max(rate);
        if per_two_syncs >= GROUPED * IN_FLIGHT as f64 {
            break;
        }
    }
    for writer in writers {
        writer.abort();
    }
    eprintln!("{per_two_syncs:.0} puts per two syncs of {sync:?}, serializable get p99 {best:?}");
    assert!(per_two_syncs >= GROUPED * IN_FLIGHT as f64, "{per_two_syncs} puts per two syncs");
    assert!(best < Duration::from_millis(20), "p99 of serializable gets {best:?}");
}

async fn serializable_p99(clients: &mut Clients) -> Duration {
    let mut times = Vec::new();
    for n in 0..400 {
        let get = RangeRequest {
            key: format!("alone/{}", n % 12).into(),
            serializable: true,
            ..RangeRequest::default()
        };
        let start = Instant::now();
        let answer = clients.kv.range(get).await.expect("a get").into_inner();
        times.push(start.elapsed());
        assert_eq!(answer.count, 1);
    }
    quantile(times, 0.99)
}

/// Puts for a while with some in flight; the 99th percentile of their times.
async fn put_p99(node: &Node, lasting: Duration) -> Duration {
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let mut clients = node.clients().await;
        writers.push(tokio::spawn(async move {
            let (start, mut times) = (Instant::now(), Vec::new());
            while start.elapsed() < lasting {
                let key = format!("{writer}/{}", times.len());
                times.push(put(&mut clients, &key, 512).await.expect("a put"));
            }
            times
        }));
    }
    let mut times = Vec::new();
    for writer in writers {
        times.append(&mut writer.await.expect("a writer"));
    }
    quantile(times, 0.99)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_store_delays_no_write() {
    let Some(strace) = Strace::require() else { return };
    let home = tempfile::tempdir().expect("temp dir");
    let started = |name: &str, rule: &str| {
        let data = home.path().join(name);
        let calls = home.path().join(format!("{name}.calls"));
        let store = data.join("member/store.redb");
        // Both under the same supervision; only the delay differs.
        let words = strace.clone().trace("fdatasync").only(&store).inject(rule).to(&calls).words();
        (Launch::assay().data_dir(&data).wrapper(words).start(), calls)
    };
    let (slow, slow_calls) = started("slow", &format!("fdatasync:delay_enter={STORE_SYNC_US}"));
    let (plain, plain_calls) = started("plain", "fdatasync:delay_enter=0");
    let (mut slow_p99, mut plain_p99) = (Duration::MAX, Duration::MAX);
    // A hundredth of the delay as slack: noise of a machine that is shared.
    let limit = |plain: Duration| plain.mul_f64(1.2) + Duration::from_micros(STORE_SYNC_US / 100);
    // In turn, so that what else the machine does meets both. A write that waited for the store would
    // do so in every round, a busy machine spares some: the best of each counts, and more rounds are
    // asked for only while they differ.
    for round in 1..=ROUNDS_MAX {
        plain_p99 = plain_p99.min(put_p99(&plain, Duration::from_millis(700)).await);
        slow_p99 = slow_p99.min(put_p99(&slow, Duration::from_millis(700)).await);
        if round >= ROUNDS && slow_p99 <= limit(plain_p99) {
            break;
        }
    }
    let commits = |calls| {
        let text: String = std::fs::read_to_string(calls).expect("what strace saw");
        text.matches("fdatasync").count()
    };
    assert!(commits(&slow_calls) >= 7, "the store was not synced during the measurement");
    assert!(commits(&plain_calls) >= 7, "the store was not synced during the measurement");
    eprintln!("p99 of puts: {slow_p99:?} with slow store syncs, {plain_p99:?} without");
    assert!(slow_p99 <= limit(plain_p99), "{slow_p99:?}, without the delay {plain_p99:?}");
}

/// Delay of the store's syncs in the last test: longer than the test takes.
const STORE_HANGS_US: u64 = 600_000_000;
/// What may wait for the store, MiB: as ARCHITECTURE.md says, and one put that was let in just below.
const WAITING_MIB: usize = 256 + 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_store_that_hangs_is_bounded_while_it_hangs() {
    let Some(strace) = Strace::require() else { return };
    let home = tempfile::tempdir().expect("temp dir");
    let data = home.path().join("hanging");
    // Counted by thread: the start and the first commits pass.
    let rule = format!("fdatasync:delay_enter={STORE_HANGS_US}:when=5+");
    let store = data.join("member/store.redb");
    let words = strace.trace("fdatasync").only(&store).inject(&rule).words();
    let mut node = Launch::assay().data_dir(&data).wrapper(words).start();
    let mut clients = node.clients().await;
    let mut taken = 0;
    let refused = loop {
        match put(&mut clients, &format!("mib/{taken}"), 1 << 20).await {
            Ok(_) => taken += 1,
            Err(status) => break status,
        }
        assert!(taken <= 2 * WAITING_MIB, "{taken} MiB were taken and nothing was refused");
    };
    assert_eq!(refused.message(), "etcdserver: too many requests");
    // Some are in the file, with the commits that passed.
    assert!((WAITING_MIB / 2..=WAITING_MIB + 128).contains(&taken), "{taken} MiB were taken");
    let get = RangeRequest { key: "mib/7".into(), ..RangeRequest::default() };
    assert_eq!(clients.kv.range(get).await.expect("a get").into_inner().count, 1);
    node.kill();
}
