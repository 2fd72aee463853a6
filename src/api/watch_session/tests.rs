//! Sessions on a real hub thread, with clients that are channels.

use super::*;
use crate::node::watch_thread::tests::{Bench, SharedStore};
use crate::proto::etcdserverpb::{WatchCancelRequest, WatchProgressRequest};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// Longest wait for the end of a stream; never reached when the tests pass.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

type Requests = UnboundedReceiverStream<Result<WatchRequest, Status>>;

struct Client {
    bench: Bench,
    requests: Option<mpsc::UnboundedSender<Result<WatchRequest, Status>>>,
    stop: watch::Sender<bool>,
    fence: watch::Sender<bool>,
    session: Session<Requests, fn(i64) -> ResponseHeader>,
}

fn header(revision: i64) -> ResponseHeader {
    ResponseHeader { cluster_id: 1, member_id: 2, revision, raft_term: 3 }
}

impl Client {
    fn new() -> Self {
        let bench = Bench::start();
        let (requests, received) = mpsc::unbounded_channel();
        let (stop, stopping) = watch::channel(false);
        let (fence, fenced) = watch::channel(false);
        let session = Session::new(
            UnboundedReceiverStream::new(received),
            bench.lane.open(),
            header as fn(i64) -> ResponseHeader,
            until_stop(stopping, fenced),
        );
        Self { bench, requests: Some(requests), stop, fence, session }
    }

    fn send(&self, request: RequestUnion) {
        let request = WatchRequest { request_union: Some(request) };
        self.requests.as_ref().unwrap().send(Ok(request)).unwrap();
    }

    fn create(&self, create: WatchCreateRequest) {
        self.send(RequestUnion::CreateRequest(create));
    }

    async fn next(&mut self) -> WatchResponse {
        self.session.next().await.unwrap().unwrap()
    }

    /// Why the stream ends; it must be soon.
    async fn ended(&mut self) -> Status {
        let end = tokio::time::timeout(LIMIT, self.session.next()).await.expect("no end");
        end.unwrap().unwrap_err()
    }

    fn store(&self) -> &SharedStore {
        &self.bench.store
    }
}

fn create(key: &[u8], range_end: &[u8], start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest {
        key: Bytes::copy_from_slice(key),
        range_end: Bytes::copy_from_slice(range_end),
        start_revision,
        ..WatchCreateRequest::default()
    }
}

#[tokio::test]
async fn an_empty_key_and_a_zero_end_watch_everything() {
    let mut client = Client::new();
    client.create(create(b"", b"\0", 0));
    let created = client.next().await;
    assert!(created.created && !created.canceled);
    assert_eq!(created.header, Some(header(1)));
    client.bench.put("z", 3);
    let event = client.next().await;
    assert_eq!((event.watch_id, event.events.len()), (0, 1));
    assert_eq!(event.header, Some(header(2)));
}

#[tokio::test]
async fn refusals_keep_the_stream_open() {
    let mut client = Client::new();
    client.create(create(b"b", b"a", 0));
    client.create(create(b"b", b"", -5));
    client.create(create(b"b", b"", 0));
    let refused = [client.next().await, client.next().await];
    for refusal in &refused {
        assert!(refusal.created && refusal.canceled && refusal.watch_id == -1);
        assert_eq!(refusal.compact_revision, 0);
    }
    assert_eq!(refused[0].cancel_reason, "mvcc: watcher range is empty");
    assert_eq!(refused[1].cancel_reason, "etcdserver: mvcc: required revision has been compacted");
    assert!(!client.next().await.canceled);
}

#[tokio::test]
async fn a_compacted_cancel_has_revision_0_and_the_other_header_fields() {
    let mut client = Client::new();
    for _ in 0..5 {
        client.bench.put("a", 3);
    }
    client.store().0.write().compact = 4;
    client.create(create(b"a", b"", 2));
    assert!(client.next().await.created);
    let cancel = client.next().await;
    assert!(cancel.canceled && !cancel.created && cancel.cancel_reason.is_empty());
    assert_eq!((cancel.compact_revision, cancel.header), (4, Some(header(0))));
}

#[tokio::test]
async fn filters_cancel_and_progress_reach_the_hub() {
    let mut client = Client::new();
    let filters = vec![FilterType::Noput as i32, 99];
    client.create(WatchCreateRequest { filters, ..create(b"a", b"", 0) });
    client.next().await;
    client.bench.put("a", 3);
    client.send(RequestUnion::ProgressRequest(WatchProgressRequest {}));
    let progress = client.next().await;
    assert!(progress.events.is_empty() && progress.watch_id == -1);
    assert_eq!(progress.header, Some(header(2)));
    client.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: 9 }));
    client.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: 0 }));
    let canceled = client.next().await;
    assert!(canceled.canceled && canceled.watch_id == 0 && canceled.cancel_reason.is_empty());
}

#[tokio::test]
async fn a_half_close_does_not_end_the_stream() {
    let mut client = Client::new();
    client.create(create(b"a", b"", 0));
    client.requests = None;
    assert!(client.next().await.created);
    client.bench.put("a", 3);
    assert_eq!(client.next().await.events.len(), 1);
}

#[tokio::test]
async fn a_fence_ends_the_stream_so_that_the_client_goes_elsewhere() {
    let mut client = Client::new();
    client.create(create(b"k", b"", 0));
    assert!(client.next().await.created);
    client.fence.send(true).unwrap();
    let end = client.ended().await;
    assert_eq!((end.code(), end.message()), (Code::Unavailable, status::FENCED.1));
    assert!(client.session.next().await.is_none());
}

#[tokio::test]
async fn a_stop_ends_the_stream_with_unavailable() {
    let mut client = Client::new();
    client.create(create(b"a", b"", 0));
    assert!(client.next().await.created);
    client.stop.send(true).unwrap();
    let end = client.ended().await;
    assert_eq!((end.code(), end.message()), (Code::Unavailable, "etcdserver: server stopped"));
    assert!(client.session.next().await.is_none());
}

#[tokio::test]
async fn a_client_that_cancels_gets_etcds_status() {
    let mut client = Client::new();
    let gone = Status::cancelled("reset by the client");
    client.requests.take().unwrap().send(Err(gone)).unwrap();
    let end = client.ended().await;
    assert_eq!((end.code(), end.message()), (Code::Cancelled, "etcdserver: watch canceled"));
}

/// A flood of requests from a client that reads no answers stays in the connection.
#[tokio::test]
async fn requests_wait_while_their_answers_do() {
    let mut client = Client::new();
    const FLOOD: usize = 20_000;
    for _ in 0..FLOOD {
        // Without an answer, and still they do not pile up or stop the stream.
        client.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: 77 }));
        client.create(create(b"b", b"a", 0));
    }
    for _ in 0..FLOOD {
        assert!(client.next().await.canceled);
        let load = client.session.hub.as_ref().unwrap().queue_load();
        assert!(load.events <= 4_096 + 512, "{load:?}");
    }
}
