//! Wall clocks step: no lease ends early and no election is held for it.

use crate::common::{Clients, event};
use crate::history::Load;
use crate::members::{Disks, Members, SOON, runtime, seed};
use assay::proto::etcdserverpb::watch_request::RequestUnion;
use assay::proto::etcdserverpb::{
    LeaseGrantRequest, LeaseTimeToLiveRequest, PutRequest, WatchCreateRequest, WatchRequest,
};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

const HOUR_S: i64 = 3_600;
/// Time to live of the lease, seconds: both steps happen within it.
const TTL_S: i64 = 12;
/// Between grant and steps.
const BETWEEN: Duration = Duration::from_secs(2);

/// The library that adds the step, built for this test.
fn build(dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chaos/step_clock.c");
    let library = dir.join("step_clock.so");
    let mut cc = Command::new("cc");
    let status = cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&library).arg(source);
    assert!(status.status().expect("run cc").success(), "the C compiler refuses the shim");
    library
}

/// Waits until every member's log has a line whose time is `step` seconds off: only then does the
/// step do what it should. The line tells of a knock at `port`; there is one a minute for each port.
async fn wait_stepped(members: &mut Members, step: i64, port: u16) {
    for at in 0..members.nodes.len() {
        let host = members.lan.address(at);
        let near = |line: &str| {
            let at = line.split_once("\"ts\":\"").map(|(_, rest)| &rest[..19.min(rest.len())]);
            let off = Duration::from_secs(step.unsigned_abs());
            let now = SystemTime::now();
            let shown = if step > 0 { now + off } else { now - off };
            let window = [shown - Duration::from_secs(60), shown + Duration::from_secs(60)];
            let window = window.map(|time| humantime::format_rfc3339_seconds(time).to_string());
            at.is_some_and(|at| at > &window[0][..19] && at < &window[1][..19])
        };
        // A line to look at: a TLS handshake on a plain port is logged.
        let socket = tokio::net::TcpStream::connect((host.as_str(), port)).await;
        socket.expect("connect").write_all(&[0x16; 8]).await.expect("send");
        members.nodes[at].wait_log(SOON, |log| {
            log.lines().any(|line| line.contains("plain_listener") && near(line))
        });
    }
}

#[test]
fn steps_of_the_wall_clock_change_nothing() {
    let seed = seed();
    let home = tempfile::tempdir().expect("temp dir");
    let (library, steps) = (build(home.path()), home.path().join("step"));
    std::fs::write(&steps, 0i64.to_ne_bytes()).expect("the step");
    let file = std::fs::File::options().write(true).open(&steps).expect("the step");
    let set = |seconds: i64| file.write_all_at(&seconds.to_ne_bytes(), 0).expect("step");
    let members = Members::start(3, Disks::Shared, |_, launch| {
        launch.env("LD_PRELOAD", &library).env("STEP_CLOCK", &steps)
    });
    let Some(mut members) = members else { return };
    runtime().block_on(async {
        let load = Load::start(members.urls(), seed);
        load.wait_acked(50).await;
        let leader = members.leader().await;
        let before = members.status(leader).await.expect("status");
        let mut clients = Clients::connect(&members.urls()[leader]).await;

        let create = WatchCreateRequest { key: "leased".into(), ..WatchCreateRequest::default() };
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let (send, requests) = tokio::sync::mpsc::channel(1);
        send.send(create).await.expect("a request");
        let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
        let mut watch = clients.watch.watch(requests).await.expect("watch").into_inner();

        let start = Instant::now();
        let grant = LeaseGrantRequest { ttl: TTL_S, id: 0 };
        let id = clients.lease.lease_grant(grant).await.expect("grant").into_inner().id;
        let put = PutRequest { key: "leased".into(), lease: id, ..PutRequest::default() };
        clients.kv.put(put).await.expect("put");
        for (step, port) in [(HOUR_S, 2379), (-24 * HOUR_S, 2380)] {
            sleep(BETWEEN).await;
            set(step);
            wait_stepped(&mut members, step, port).await;
            let ask = LeaseTimeToLiveRequest { id, keys: false };
            let left = clients.lease.lease_time_to_live(ask).await.expect("it").into_inner().ttl;
            let passed = start.elapsed().as_secs() as i64;
            // Unless the machine was so slow that its time was up.
            assert!(left > 0 || passed >= TTL_S, "{left} s left after {passed} s");
            assert!(left <= TTL_S, "{left} s left of {TTL_S}");
        }
        // It goes when its time is up on a clock that does not step: not before, and it does go.
        let gone = timeout(SOON, async {
            loop {
                let answer = watch.message().await.expect("watch").expect("an answer");
                if answer.events.iter().any(|bytes| event(bytes).0 == 1) {
                    return start.elapsed();
                }
            }
        });
        let gone = gone.await.expect("a lease that ends");
        assert!(gone >= Duration::from_secs(TTL_S as u64), "gone after {gone:?}");
        let after = members.status(leader).await.expect("status");
        eprintln!("lease of {TTL_S} s gone after {gone:?}; terms {} to {}", before.2, after.2);
        assert_eq!((after.1, after.2), (before.1, before.2), "an election was held");
        members.agree().await;
        eprintln!("clocks stepped: {}, all members hash alike", load.judge().await);
    });
}
