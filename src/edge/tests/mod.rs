//! Edge with real sockets: protocols, deadlines, abuse, caps, drain.

mod abuse;
mod drain;
mod listen;
mod protocols;
mod share;

use super::{
    Address, Bound, Caps, Closed, ConnObserver, Edge, Elsewhere, Limits, NoRpc, Options, Port,
    Routes, Spec, bind, reserve,
};
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tower::Service;

/// Longest wait for anything in these tests: never reached when they pass.
const SOON: Duration = Duration::from_secs(20);

/// Answers every call with its path; `/x.Y/Hang` never ends.
#[derive(Clone)]
struct FakeRpc;

impl Service<Request<Incoming>> for FakeRpc {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let path = request.uri().path().to_owned();
        let body = if path.ends_with("/Hang") {
            Body::from_stream(tokio_stream::pending::<Result<Bytes, Infallible>>())
        } else {
            Body::from(format!("rpc {path}"))
        };
        ready(Ok(Response::new(body)))
    }
}

/// Reports ends of connections.
struct Reports(mpsc::UnboundedSender<Closed>);

impl ConnObserver for Reports {
    fn closed(&self, _: Port, why: Closed, _: u64, _: u64) {
        let _ = self.0.send(why);
    }
}

struct Served {
    edge: Edge,
    address: SocketAddr,
    closed: mpsc::UnboundedReceiver<Closed>,
}

impl Served {
    fn start(limits: Limits) -> Self {
        let (send, closed) = mpsc::unbounded_channel();
        let options = Options { runtimes: 2, limits, observer: Arc::new(Reports(send)) };
        let edge = Edge::start(options).unwrap();
        let bound = bind(&spec("http://127.0.0.1:0")).unwrap();
        let address = bound.local_addr().unwrap();
        serve(&edge, bound);
        Self { edge, address, closed }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Why the next connection ended.
    async fn next_closed(&mut self) -> Closed {
        tokio::time::timeout(SOON, self.closed.recv()).await.unwrap().unwrap()
    }

    /// The listener still serves.
    async fn assert_serving(&self) {
        let answer = protocols::http1(self.connect().await, "GET /ping HTTP/1.1").await;
        assert!(answer.ends_with("\r\n\r\npong"), "{answer}");
    }
}

fn serve(edge: &Edge, bound: Bound) {
    let http = axum::Router::new().route("/ping", axum::routing::get(|| async { "pong" }));
    edge.serve(vec![bound], |_, _| Routes {
        rpc: Some(FakeRpc),
        http: http.clone(),
        elsewhere: Elsewhere::default(),
    });
}

fn spec(url: &str) -> Spec {
    Spec { flag: "listen-client-urls", url: url.to_owned(), port: Port::Client, reuse_port: false }
}

/// An h2 client; its connection is driven until it ends, and the result is sent.
async fn h2_client(
    stream: TcpStream,
) -> (h2::client::SendRequest<Bytes>, mpsc::UnboundedReceiver<Result<(), h2::Error>>) {
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let (send, ended) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let _ = send.send(connection.await);
    });
    (client, ended)
}

fn grpc(path: &str) -> Request<()> {
    Request::post(format!("http://edge{path}"))
        .header("content-type", "application/grpc")
        .body(())
        .unwrap()
}
