//! Rules of watches that need their own set-up: large answers, the clock, half a stream.

use crate::common::event;
use crate::ops::Side;
use crate::sides;
use crate::stream::PATIENCE;
use assay::proto::etcdserverpb::request_op::Request;
use assay::proto::etcdserverpb::watch_request::RequestUnion;
use assay::proto::etcdserverpb::{
    LeaseGrantRequest, LeaseTimeToLiveRequest, PutRequest, RequestOp, TxnRequest,
    WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use bytes::Bytes;
use nix::sys::signal::Signal;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

/// Three of these fit into a request; their events, with the rows before, need more than one answer.
const LARGE: usize = 500_000;
/// Largest answer that is not split, in bytes.
const UNSPLIT: usize = 1_572_864 + 524_288;

struct Watch {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl Watch {
    /// Opens a stream with one watch on it.
    async fn open(side: &mut Side, create: WatchCreateRequest) -> Self {
        let (requests, stream) = mpsc::channel(4);
        requests.send(request(RequestUnion::CreateRequest(create))).await.expect("room");
        let answers = side.clients.watch.watch(ReceiverStream::new(stream)).await;
        let mut watch = Self { requests, answers: answers.expect("a stream").into_inner() };
        assert!(watch.next().await.created);
        watch
    }

    async fn next(&mut self) -> WatchResponse {
        let answer = timeout(PATIENCE, self.answers.message()).await.expect("an answer in time");
        answer.expect("the stream is open").expect("an answer")
    }

    /// Answers until there are this many events.
    async fn until(&mut self, events: usize) -> Vec<WatchResponse> {
        let mut answers = Vec::new();
        while answers.iter().map(|answer: &WatchResponse| answer.events.len()).sum::<usize>()
            < events
        {
            answers.push(self.next().await);
        }
        answers
    }
}

fn request(union: RequestUnion) -> WatchRequest {
    WatchRequest { request_union: Some(union) }
}

fn everything() -> WatchCreateRequest {
    WatchCreateRequest { range_end: Bytes::from_static(b"\0"), ..Default::default() }
}

async fn put_large(side: &mut Side) {
    let put = |key: &'static [u8]| RequestOp {
        request: Some(Request::RequestPut(PutRequest {
            key: Bytes::from_static(key),
            value: vec![key[0]; LARGE].into(),
            ..Default::default()
        })),
    };
    let success = [&b"a"[..], b"b", b"c"].map(put).to_vec();
    let txn = TxnRequest { success, ..Default::default() };
    side.clients.kv.txn(txn).await.expect("a large transaction");
}

#[tokio::test]
async fn large_answers_are_split_only_when_asked() {
    let Some(mut sides) = sides(&[]).await else { return };
    for (index, side) in sides.iter_mut().enumerate() {
        put_large(side).await;
        let split = WatchCreateRequest { fragment: true, prev_kv: true, ..everything() };
        let whole = WatchCreateRequest { prev_kv: true, ..everything() };
        let (mut split, mut whole) =
            (Watch::open(side, split).await, Watch::open(side, whole).await);
        put_large(side).await;
        let (split, whole) = (split.until(3).await, whole.until(3).await);
        assert_eq!(whole.len(), 1, "side {index}: not asked to split");
        assert!(!whole[0].fragment, "side {index}");
        assert!(split.len() > 1, "side {index}: asked to split");
        for (place, answer) in split.iter().enumerate() {
            assert_eq!(answer.fragment, place + 1 < split.len(), "side {index}, part {place}");
            let bytes: usize = answer.events.iter().map(Bytes::len).sum();
            assert!(answer.events.len() == 1 || bytes <= UNSPLIT, "side {index}: {bytes} bytes");
        }
        let events = split.iter().flat_map(|answer| &answer.events).map(event);
        let events: Vec<_> = events.collect();
        assert_eq!(events, whole[0].events.iter().map(event).collect::<Vec<_>>(), "side {index}");
        let before = events
            .iter()
            .all(|(_, _, before)| before.as_ref().is_some_and(|row| row.value.len() == LARGE));
        assert!(before, "side {index}: the rows before");
    }
}

#[tokio::test]
async fn progress_comes_by_the_clock_for_those_who_ask() {
    let Some(mut sides) = sides(&["--watch-progress-notify-interval=200ms"]).await else { return };
    for (index, side) in sides.iter_mut().enumerate() {
        let asked = WatchCreateRequest { progress_notify: true, ..everything() };
        let mut asked = Watch::open(side, asked).await;
        let mut other = Watch::open(side, everything()).await;
        let put = PutRequest { key: Bytes::from_static(b"k"), ..Default::default() };
        side.clients.kv.put(put).await.expect("put");
        assert_eq!(asked.next().await.events.len(), 1, "side {index}");
        for _ in 0..2 {
            let answer = asked.next().await;
            let header = answer.header.as_ref().map(|header| header.revision);
            assert_eq!((answer.watch_id, header), (0, Some(2)), "side {index}");
            assert!(answer.events.is_empty() && !answer.created && !answer.canceled);
        }
        assert_eq!(other.next().await.events.len(), 1, "side {index}");
        let quiet = timeout(Duration::from_millis(600), other.answers.message()).await;
        assert!(quiet.is_err(), "side {index}: {quiet:?} for a watch that asked for nothing");
    }
}

#[tokio::test]
async fn a_client_that_ends_its_half_still_sees_events() {
    let Some(mut sides) = sides(&[]).await else { return };
    for (index, side) in sides.iter_mut().enumerate() {
        let watch = Watch::open(side, everything()).await;
        let Watch { requests, mut answers } = watch;
        drop(requests);
        for revision in 2..5 {
            let put = PutRequest { key: Bytes::from_static(b"k"), ..Default::default() };
            side.clients.kv.put(put).await.expect("put");
            let answer = timeout(PATIENCE, answers.message()).await.expect("an event in time");
            let answer = answer.expect("the stream is open").expect("an answer");
            let header = answer.header.map(|header| header.revision);
            assert_eq!((header, answer.events.len()), (Some(revision), 1), "side {index}");
        }
    }
}

#[tokio::test]
async fn progress_is_not_answered_while_a_watch_waits_for_the_future() {
    let Some(mut sides) = sides(&[]).await else { return };
    for (index, side) in sides.iter_mut().enumerate() {
        let future = WatchCreateRequest { start_revision: 3, ..everything() };
        let mut watch = Watch::open(side, future).await;
        let progress = || request(RequestUnion::ProgressRequest(WatchProgressRequest {}));
        watch.requests.send(progress()).await.expect("room");
        let put = |value: &'static [u8]| PutRequest {
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(value),
            ..Default::default()
        };
        side.clients.kv.put(put(b"2")).await.expect("put");
        side.clients.kv.put(put(b"3")).await.expect("put");
        // The first answer is the event of revision 3, not the progress and not revision 2.
        let first = watch.next().await;
        let (_, row, _) = event(first.events.first().expect("an event first"));
        assert_eq!(row.map(|row| row.mod_revision), Some(3), "side {index}");
        watch.requests.send(progress()).await.expect("room");
        let second = watch.next().await;
        let header = second.header.map(|header| header.revision);
        assert_eq!((second.watch_id, header), (-1, Some(3)), "side {index}");
        assert!(second.events.is_empty(), "side {index}");
    }
}

/// etcd closes the connection in the middle of the stream or sends a status, as it happens: what can
/// be asked for is that the end comes, and that it is an error after which clients try elsewhere.
#[tokio::test]
async fn a_server_that_stops_ends_watches_with_an_error() {
    let Some(mut sides) = sides(&[]).await else { return };
    for (index, side) in sides.iter_mut().enumerate() {
        let mut watch = Watch::open(side, everything()).await;
        side.node.signal(Signal::SIGTERM);
        let end = timeout(PATIENCE, watch.answers.message()).await.expect("an end in time");
        let status = end.expect_err("an error");
        let lost = status.code() == Code::Unknown || status.code() == Code::Unavailable;
        assert!(lost, "side {index}: {status:?}");
        side.node.wait_exit(PATIENCE);
    }
}

/// Shortest lease that both grant, in seconds.
const SHORTEST: i64 = 2;

#[tokio::test]
async fn a_lease_that_runs_out_takes_its_keys_along_in_one_revision() {
    let Some([mut a, mut b]) = sides(&[]).await else { return };
    // Both at once: the time to wait is the same.
    tokio::join!(expire(&mut a), expire(&mut b));
}

async fn expire(side: &mut Side) {
    let mut watch = Watch::open(side, everything()).await;
    let grant = LeaseGrantRequest { ttl: 1, id: 7 };
    let granted = side.clients.lease.lease_grant(grant).await.expect("grant").into_inner();
    assert_eq!(granted.ttl, SHORTEST);
    let start = Instant::now();
    for key in [&b"b"[..], b"c", b"a"] {
        let key = Bytes::from_static(key);
        let put = PutRequest { key, lease: granted.id, ..Default::default() };
        side.clients.kv.put(put).await.expect("put");
        watch.next().await;
    }
    let gone = watch.next().await;
    let time = start.elapsed();
    let events: Vec<_> = gone.events.iter().map(event).collect();
    let rows = events.iter().filter_map(|(_, row, _)| row.as_ref());
    let rows: Vec<_> = rows.map(|row| (&row.key[..], row.mod_revision)).collect();
    assert_eq!(rows, [(&b"a"[..], 5), (b"b", 5), (b"c", 5)]);
    assert!(events.iter().all(|(kind, _, _)| *kind == 1), "deletions");
    // Granted time, plus the period of the check and the way through the log, on a busy machine.
    let seconds = time.as_secs_f64();
    assert!((1.9..8.0).contains(&seconds), "ran out after {time:?}");
    let asked = LeaseTimeToLiveRequest { id: granted.id, keys: true };
    let left = side.clients.lease.lease_time_to_live(asked).await.expect("answer").into_inner();
    assert_eq!((left.ttl, left.granted_ttl, left.keys.len()), (-1, 0, 0));
}
