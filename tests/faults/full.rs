//! A full file system: writes are refused with a clear error, the rest goes on, and room is enough
//! to go on without a restart.

use crate::common::{Clients, Launch, LoopFs, Node, http_get};
use crate::put;
use assay::proto::etcdserverpb::{AlarmRequest, DeleteRangeRequest, RangeRequest, StatusRequest};
use std::time::{Duration, Instant};
use tonic::Code;

/// Room for the log's segments with its spares, the ballast, the store, and little else.
const IMAGE_MIB: u64 = 700;
const MIN_FREE_BYTES: u64 = 64 << 20;
/// The node looks at free space once a second; a busy machine may be late.
const NOTICE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(50);
const STOP: Duration = Duration::from_secs(20);
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
/// Bytes of a value: some rows make a store commit worth while.
const VALUE: usize = 8 << 10;

/// Puts until one answers as expected; the keys that were written.
async fn put_until(clients: &mut Clients, prefix: &str, ok: bool) -> Vec<String> {
    let (start, mut written) = (Instant::now(), Vec::new());
    for n in 0.. {
        let key = format!("{prefix}/{n}");
        match put(clients, &key, VALUE).await {
            Ok(_) => {
                written.push(key);
                if ok {
                    break;
                }
            }
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                assert_eq!(status.message(), NO_SPACE);
                if !ok {
                    break;
                }
            }
        }
        assert!(start.elapsed() < NOTICE, "puts succeed: {}, wanted {ok}", !ok);
        tokio::time::sleep(POLL).await;
    }
    written
}

async fn get(clients: &mut Clients, key: &str) -> i64 {
    let get = RangeRequest { key: key.to_string().into(), ..RangeRequest::default() };
    clients.kv.range(get).await.expect("reads go on").into_inner().count
}

async fn delete(clients: &mut Clients, key: &str) -> i64 {
    let delete =
        DeleteRangeRequest { key: key.to_string().into(), ..DeleteRangeRequest::default() };
    clients.kv.delete_range(delete).await.expect("deletes go on").into_inner().deleted
}

fn number(metrics: &str, name: &str) -> f64 {
    let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {name}"))
}

/// Everywhere that an operator looks, and nothing says that the member is unhealthy: it serves what
/// frees space, and a restart would not help.
async fn refusal_is_visible(node: &Node, clients: &mut Clients) {
    const TEXT: &str = "free space is below --min-free-bytes: writes are refused";
    for url in [node.client_url(), node.metrics_url()] {
        let (code, body) = http_get(&url, "/health").expect("an answer");
        let health: serde_json::Value = serde_json::from_str(&body).expect("an object");
        assert_eq!((code, health["health"].as_str()), (200, Some("true")), "{body}");
        assert_eq!(health["reason"], TEXT);
        let (code, body) = http_get(&url, "/readyz?verbose").expect("an answer");
        assert_eq!(code, 200, "{body}");
        assert!(body.contains(&format!("[!]{TEXT}\n")), "{body}");
    }
    let (_, metrics) = http_get(&node.metrics_url(), "/metrics").expect("an answer");
    assert_eq!(number(&metrics, "assay_fs_reserve_reached "), 1.0);
    assert!(number(&metrics, "assay_fs_refused_requests_total ") >= 1.0);
    let status = clients.maintenance.status(StatusRequest {}).await.expect("the status");
    assert_eq!(status.into_inner().errors, [TEXT]);
    // An alarm belongs to the cluster and has to be disarmed; this passes by itself.
    let alarms = clients.maintenance.alarm(AlarmRequest::default()).await.expect("the alarms");
    assert_eq!(alarms.into_inner().alarms, []);
}

fn refusal_is_gone(node: &Node) {
    let (code, body) = http_get(&node.client_url(), "/health").expect("an answer");
    assert_eq!((code, body.as_str()), (200, r#"{"health":"true","reason":""}"#));
    let (_, metrics) = http_get(&node.metrics_url(), "/metrics").expect("an answer");
    assert_eq!(number(&metrics, "assay_fs_reserve_reached "), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let Some(fs) = LoopFs::create(IMAGE_MIB) else { return };
    let mut node = Launch::assay()
        .data_dir(&fs.path().join("data"))
        .arg(format!("--min-free-bytes={MIN_FREE_BYTES}"))
        .start();
    let pid = node.pid();
    let mut clients = node.clients().await;
    let mut kept = Vec::new();
    for n in 0..50 {
        kept.push(format!("before/{n}"));
        put(&mut clients, &kept[n], VALUE).await.expect("a put");
    }
    for round in 0..2 {
        // The balloon takes the ballast too, once the node has released it.
        let mut balloons = vec![fs.inflate_balloon()];
        kept.extend(put_until(&mut clients, &format!("filling/{round}"), false).await);
        let start = Instant::now();
        while node.data_dir().join("ballast").exists() {
            assert!(start.elapsed() < NOTICE, "the ballast was not released:\n{}", node.log());
            tokio::time::sleep(POLL).await;
        }
        balloons.push(fs.inflate_balloon());
        assert!(fs.free_bytes() < 1 << 20, "{} bytes are free", fs.free_bytes());
        // Long enough for the node to look again, and for commits that must wait.
        let full = Instant::now();
        while full.elapsed() < Duration::from_secs(3) {
            let refused = put(&mut clients, "refused", VALUE).await.expect_err("no room");
            assert_eq!(refused.message(), NO_SPACE);
            assert_eq!(get(&mut clients, &kept[1]).await, 1);
            let gone = kept.pop().expect("a key");
            assert_eq!(delete(&mut clients, &gone).await, 1, "{gone}");
            assert_eq!(get(&mut clients, &gone).await, 0);
            tokio::time::sleep(POLL * 2).await;
        }
        refusal_is_visible(&node, &mut clients).await;
        drop(balloons);
        kept.extend(put_until(&mut clients, &format!("room/{round}"), true).await);
        for n in 0..30 {
            kept.push(format!("after/{round}/{n}"));
            put(&mut clients, &kept[kept.len() - 1], VALUE).await.expect("puts go on");
        }
        refusal_is_gone(&node);
        assert_eq!(node.pid(), pid);
        assert!(node.is_running(), "{}", node.log());
    }
    node.kill();
    node.restart();
    let mut clients = node.clients().await;
    for key in &kept {
        assert_eq!(get(&mut clients, key).await, 1, "{key}");
    }
    assert_eq!(get(&mut clients, "refused").await, 0);
    assert!(node.terminate(STOP).success());
    node.restart();
    drop(node);
}
