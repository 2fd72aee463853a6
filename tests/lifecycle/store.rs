//! A store that does not belong to its log: refused while nothing more is lost.

use crate::common::{Launch, entries};
use crate::{STOP, node_in};
use assay::proto::etcdserverpb::{PutRequest, RangeRequest};
use std::time::{Duration, Instant};

const NOT_OURS: i32 = 78;
/// Largest value that a request takes, nearly.
const VALUE_BYTES: usize = 1 << 20;
/// More than two segments of 64 MiB: the first ones are dropped.
const PUTS: usize = 160;
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trimmed_log_without_its_store_is_refused() {
    let mut node = Launch::assay().arg("--snapshot-catchup-entries=1").start();
    let data = node.data_dir().to_path_buf();
    let store = data.join("member/store.redb");
    let aside = node.scratch().join("aside.redb");
    let old = node.scratch().join("old.redb");
    let mut clients = node.clients().await;
    let put = |n: usize| PutRequest {
        key: format!("k{n}").into(),
        value: vec![b'v'; VALUE_BYTES].into(),
        ..PutRequest::default()
    };
    clients.kv.put(put(0)).await.expect("a put");
    assert!(node.terminate(STOP).success());
    std::fs::copy(&store, &old).expect("an older copy");
    node.restart();
    let mut clients = node.clients().await;
    let start = Instant::now();
    let mut written = 1;
    // Until the log has let something go, which it does when it changes segments.
    loop {
        for _ in 0..PUTS {
            clients.kv.put(put(written)).await.expect("a put");
            written += 1;
        }
        assert!(node.terminate(STOP).success());
        let first = entries(&data.join("member/wal")).first().map_or(u64::MAX, |entry| entry.index);
        if first > 1 {
            break;
        }
        assert!(start.elapsed() < LIMIT, "the log is never trimmed");
        node.restart();
        clients = node.clients().await;
    }
    std::fs::rename(&store, &aside).expect("moved");

    // Lost, empty, of another file system's restore, or an older copy: each is told, again and again.
    for (what, words) in [
        ("lost", "is missing or empty"),
        ("lost", "is missing or empty"),
        ("empty", "is missing or empty"),
        ("older", "ends at entry"),
    ] {
        match what {
            "empty" => std::fs::write(&store, "").expect("written"),
            "older" => drop(std::fs::copy(&old, &store).expect("copied")),
            _ => assert!(!store.exists(), "a refused start made a store"),
        }
        let ended = crate::common::run(&mut node_in(&data));
        assert_eq!(ended.code, NOT_OURS, "{what}: {}", ended.stderr);
        for word in [words, "store.redb", "begins behind entry", "backup", "remove"] {
            assert!(ended.stderr.contains(word), "{what}: no {word:?} in:\n{}", ended.stderr);
        }
    }

    // What a refused start did has cost nothing.
    std::fs::rename(&aside, &store).expect("moved back");
    node.restart();
    let range = RangeRequest {
        key: "k".into(),
        range_end: "l".into(),
        count_only: true,
        ..RangeRequest::default()
    };
    let answer = node.clients().await.kv.range(range).await.expect("a range").into_inner();
    assert_eq!(answer.count, written as i64);
}
