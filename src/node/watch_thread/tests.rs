//! The real lane, thread and queues, with clients on real threads.

use super::*;
use crate::mvcc::{End, EventBatch, Revision, Rows, RowsError};
use crate::watch::Create;
use crate::watch::tests::oracle::Client;
use crate::watch::tests::{Op, Store, range, to, watch};
use bytes::Bytes;
use parking_lot::RwLock;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::task::Poll;

#[derive(Clone)]
pub(crate) struct SharedStore(pub(crate) Arc<RwLock<Store>>);

impl Rows for SharedStore {
    fn row(&self, rev: Revision) -> Result<Bytes, RowsError> {
        self.0.read().row(rev)
    }

    fn scan(
        &self,
        from_main: i64,
        to_main: i64,
        f: &mut dyn FnMut(Revision, bool, Bytes) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        self.0.read().scan(from_main, to_main, f)
    }
}

impl Source for SharedStore {
    fn rows(&self) -> &dyn Rows {
        self
    }

    fn revision(&self) -> i64 {
        self.0.read().revision
    }

    fn compact_revision(&self) -> i64 {
        self.0.read().compact
    }

    fn row_at(&self, key: &[u8], revision: i64) -> Result<Option<Bytes>, RowsError> {
        self.0.read().row_at(key, revision)
    }
}

pub(crate) struct Bench {
    pub(crate) store: SharedStore,
    pub(crate) lane: Arc<WatchLane>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Bench {
    #[expect(clippy::disallowed_methods, reason = "the test is the owner of its threads")]
    pub(crate) fn start() -> Self {
        let store = SharedStore(Arc::new(RwLock::new(Store::new())));
        let lane = Arc::new(WatchLane::default());
        let hub = WatchThread::new(lane.clone(), store.clone(), Duration::from_secs(600), 2 << 20);
        let thread = Some(std::thread::spawn(move || hub.run()));
        Self { store, lane, thread }
    }

    pub(crate) fn put(&self, key: &str, len: usize) -> Arc<EventBatch> {
        let batch = self.store.0.write().commit(&[(Op::Put, key)], len).unwrap();
        self.lane.publish(batch.clone());
        batch
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.lane.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn all(start_revision: i64) -> Create {
    watch(range("a", End::Unbounded), start_revision)
}

async fn next(stream: &mut WatchStream) -> Option<Delivery> {
    poll_fn(|cx| stream.poll_delivery(cx)).await
}

/// Clients of every speed see every event of a fast writer once and in order, with a lane that
/// overflows on the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_every_speed_get_every_event() {
    const REVISIONS: i64 = 12_000;
    let bench = Bench::start();
    let mut clients = Vec::new();
    for n in 0..8_u64 {
        let (lane, store) = (bench.lane.clone(), bench.store.clone());
        clients.push(tokio::spawn(async move {
            let mut stream = lane.open();
            let mut client = Client::default();
            for w in 0..4 {
                let create = Create {
                    prev_kv: w == 3,
                    ..watch(range("a", if w == 0 { End::Single } else { to("z") }), w)
                };
                client.ask(create.clone(), &store.0.read());
                stream.create(create);
            }
            let mut taken = 0;
            loop {
                let delivery = next(&mut stream).await.unwrap();
                client.receive(&delivery, &store.0.read());
                taken += 1;
                if taken % 16 < n {
                    tokio::task::yield_now().await;
                }
                let store = store.0.read();
                if store.revision == REVISIONS + 1 && client.is_done(&store) {
                    return client.events;
                }
            }
        }));
    }
    let writer = {
        let (lane, store) = (bench.lane.clone(), bench.store.clone());
        tokio::task::spawn_blocking(move || {
            let keys = ["a", "b", "c"];
            for n in 0..REVISIONS as usize {
                let op = [(Op::Put, keys[n % 3])];
                let batch = store.0.write().commit(&op, 50 + n % 300).unwrap();
                lane.publish(batch);
            }
        })
    };
    writer.await.unwrap();
    for client in clients {
        let events = client.await.unwrap();
        assert!(events > REVISIONS as usize, "{events}");
    }
    let stats = bench.lane.stats();
    assert!(stats.events > 0);
}

/// Batches published while nobody watches are found in history by who comes later.
#[tokio::test]
async fn a_late_stream_sees_what_was_published_before() {
    let bench = Bench::start();
    for _ in 0..10 {
        bench.put("a", 10);
    }
    let mut stream = bench.lane.open();
    stream.create(all(5));
    assert!(next(&mut stream).await.unwrap().created);
    let mut seen = 0;
    while seen < 7 {
        seen += next(&mut stream).await.unwrap().events.len();
    }
    bench.put("b", 10);
    let live = next(&mut stream).await.unwrap();
    assert_eq!((live.revision, live.events.len()), (12, 1));
    stream.cancel(0);
    let end = next(&mut stream).await.unwrap();
    assert!(end.canceled);
    drop(stream);
    let mut other = bench.lane.open();
    other.create(watch(range("q", to("a")), 0));
    assert!(next(&mut other).await.unwrap().canceled);
    assert_eq!(bench.lane.stats().watchers, 0);
}

/// A client that reads nothing holds one queue's worth of memory and no more; it gets everything
/// when it comes back, and its neighbour never waits.
#[tokio::test]
async fn a_stuck_client_is_bounded_and_catches_up() {
    let bench = Bench::start();
    let mut stuck = bench.lane.open();
    let mut quick = bench.lane.open();
    for stream in [&stuck, &quick] {
        stream.create(all(0));
    }
    assert!(next(&mut quick).await.unwrap().created);
    let mut got = 0;
    const COUNT: usize = 3_000;
    for n in 0..COUNT {
        bench.put("a", 2_000);
        if n % 10 == 9 {
            while got <= n {
                got += next(&mut quick).await.unwrap().events.len();
            }
        }
    }
    let load = stuck.queue_load();
    assert!(load.bytes < 2 * (1 << 20), "bounded: {load:?}");
    assert!(poll_fn(|cx| Poll::Ready(stuck.poll_room(cx).is_pending())).await);
    assert_eq!(bench.lane.stats().blocked, 1);
    let mut got = 0;
    while got < COUNT {
        got += next(&mut stuck).await.unwrap().events.len();
    }
    assert_eq!(got, COUNT);
}

/// Stopping ends every stream.
#[tokio::test]
async fn stopping_ends_streams() {
    let bench = Bench::start();
    let mut stream = bench.lane.open();
    stream.create(all(0));
    assert!(next(&mut stream).await.unwrap().created);
    bench.lane.stop();
    assert_eq!(next(&mut stream).await, None);
}
