//! Streams of keep-alives with renewals that finish in any order.

use super::*;
use crate::api::watch_session::until_stop;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

type Requests = UnboundedReceiverStream<Result<LeaseKeepAliveRequest, Status>>;
type Started = mpsc::UnboundedReceiver<(i64, oneshot::Sender<Answer>)>;

struct Bench {
    requests: Option<mpsc::UnboundedSender<Result<LeaseKeepAliveRequest, Status>>>,
    started: Started,
    stop: watch::Sender<bool>,
    /// Held: a channel that closes ends the stream.
    _fence: watch::Sender<bool>,
    stream: KeepAlives<Requests, Box<dyn Fn(i64) -> Work>>,
}

fn bench() -> Bench {
    let (requests, received) = mpsc::unbounded_channel();
    let (start, started) = mpsc::unbounded_channel();
    let (stop, stopping) = watch::channel(false);
    let (fence, fenced) = watch::channel(false);
    let renew = move |id| -> Work {
        let (done, wait) = oneshot::channel();
        start.send((id, done)).unwrap();
        Box::pin(async move { wait.await.unwrap() })
    };
    let stream = KeepAlives::new(
        UnboundedReceiverStream::new(received),
        Box::new(renew) as Box<dyn Fn(i64) -> Work>,
        until_stop(stopping, fenced),
    );
    Bench { requests: Some(requests), started, stop, _fence: fence, stream }
}

impl Bench {
    fn ask(&self, id: i64) {
        self.requests.as_ref().unwrap().send(Ok(LeaseKeepAliveRequest { id })).unwrap();
    }

    /// Lets the stream take what was asked, without an answer being there.
    async fn idle(&mut self) {
        tokio::select! {
            biased;
            answer = self.stream.next() => panic!("{answer:?}"),
            () = std::future::ready(()) => {}
        }
    }
}

fn answer(id: i64) -> Answer {
    Ok(LeaseKeepAliveResponse { header: None, id, ttl: 7 })
}

#[tokio::test]
async fn answers_come_in_the_order_of_the_requests() {
    let mut bench = bench();
    for id in 1..=3 {
        bench.ask(id);
    }
    bench.idle().await;
    let mut waits = Vec::new();
    while let Ok(started) = bench.started.try_recv() {
        waits.push(started);
    }
    assert_eq!(waits.len(), 3, "all are in work at once");
    for (id, done) in waits.into_iter().rev() {
        done.send(answer(id)).unwrap();
    }
    for id in 1..=3 {
        assert_eq!(bench.stream.next().await.unwrap().unwrap().id, id);
    }
}

#[tokio::test]
async fn a_half_close_ends_after_the_last_answer() {
    let mut bench = bench();
    bench.ask(1);
    bench.idle().await;
    bench.requests = None;
    bench.idle().await;
    bench.started.try_recv().unwrap().1.send(answer(1)).unwrap();
    assert_eq!(bench.stream.next().await.unwrap().unwrap().id, 1);
    assert!(bench.stream.next().await.is_none());
}

#[tokio::test]
async fn at_most_64_are_in_work() {
    let mut bench = bench();
    for id in 0..100 {
        bench.ask(id);
    }
    bench.idle().await;
    assert_eq!(bench.started.len(), IN_WORK);
}

#[tokio::test]
async fn an_error_ends_the_stream() {
    let mut bench = bench();
    bench.ask(1);
    bench.ask(2);
    bench.idle().await;
    let no_leader = Status::unavailable("etcdserver: no leader");
    bench.started.try_recv().unwrap().1.send(Err(no_leader)).unwrap();
    let end = bench.stream.next().await.unwrap().unwrap_err();
    assert_eq!(end.message(), "etcdserver: no leader");
    assert!(bench.stream.next().await.is_none());
}

#[tokio::test]
async fn a_stop_ends_the_stream() {
    let mut bench = bench();
    bench.ask(1);
    bench.idle().await;
    bench.stop.send(true).unwrap();
    let end = bench.stream.next().await.unwrap().unwrap_err();
    assert_eq!(end.message(), "etcdserver: server stopped");
}
