//! The API over real sockets, on a real state machine without raft.

mod calls;
mod kv;
mod local;
mod services;
mod status;
mod wire;

use super::{GrpcObserver, Method, service};
use crate::edge::{Edge, Limits as EdgeLimits, NoObserver, Options, Port, Routes, Spec, bind};
use bytes::{BufMut, Bytes};
use http::{HeaderMap, Request, StatusCode};
use local::Local;
use parking_lot::Mutex;
use prost::Message;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// Longest wait for anything in these tests: never reached when they pass.
const SOON: Duration = Duration::from_secs(20);

/// Remembers what it was told.
#[derive(Default)]
struct Seen {
    started: Mutex<Vec<Method>>,
    finished: Mutex<Vec<(Method, Code)>>,
    messages: Mutex<Vec<(Method, &'static str, u64)>>,
}

impl GrpcObserver for Seen {
    fn started(&self, method: Method) {
        self.started.lock().push(method);
    }
    fn finished(&self, method: Method, code: Code, _: u64) {
        self.finished.lock().push((method, code));
    }
    fn msg_received(&self, method: Method, bytes: u64) {
        self.messages.lock().push((method, "in", bytes));
    }
    fn msg_sent(&self, method: Method, bytes: u64) {
        self.messages.lock().push((method, "out", bytes));
    }
}

/// A served node.
struct Api {
    node: Local,
    seen: Arc<Seen>,
    address: SocketAddr,
    _edge: Edge,
}

/// Everything of one answer.
#[derive(Debug)]
struct Answered {
    http: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
}

impl Answered {
    /// Code and text, from wherever they are.
    fn status(&self) -> (Code, String) {
        let source =
            if self.headers.contains_key("grpc-status") { &self.headers } else { &self.trailers };
        let status = Status::from_header_map(source).expect("a status");
        (status.code(), status.message().to_owned())
    }
}

impl Api {
    fn start() -> Self {
        Self::of(Local::new())
    }

    fn of(node: Local) -> Self {
        let options =
            Options { runtimes: 2, limits: EdgeLimits::default(), observer: Arc::new(NoObserver) };
        let edge = Edge::start(options).unwrap();
        let spec = Spec {
            flag: "test",
            url: "http://127.0.0.1:0".to_owned(),
            port: Port::Client,
            reuse_port: false,
        };
        let bound = bind(&spec).unwrap();
        let address = bound.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let api = service(&node, seen.clone());
        edge.serve(vec![bound], |_, _| Routes {
            rpc: Some(api.clone()),
            http: axum::Router::new(),
            elsewhere: crate::edge::Elsewhere::default(),
        });
        Self { node, seen, address, _edge: edge }
    }

    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect().await.unwrap()
    }

    async fn h2(&self) -> h2::client::SendRequest<Bytes> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Sends one request with everything under control.
    async fn send(&self, request: Request<()>, body: Vec<u8>) -> Answered {
        let mut client = self.h2().await;
        let (response, mut stream) = client.send_request(request, false).unwrap();
        // The server may answer before it has seen everything.
        let _ = stream.send_data(body.into(), true);
        let response = tokio::time::timeout(SOON, response).await.unwrap().unwrap();
        let (parts, mut incoming) = response.into_parts();
        let mut body = Vec::new();
        while let Some(data) = incoming.data().await {
            let Ok(data) = data else { break };
            incoming.flow_control().release_capacity(data.len()).unwrap();
            body.extend_from_slice(&data);
        }
        let trailers = incoming.trailers().await.ok().flatten().unwrap_or_default();
        Answered { http: parts.status, headers: parts.headers, body, trailers }
    }

    /// A well-formed call of `path` with one message.
    async fn call(&self, path: &str, message: &impl Message) -> Answered {
        self.send(grpc(path).body(()).unwrap(), framed(0, &message.encode_to_vec())).await
    }

    /// Waits until this many calls have ended.
    async fn finished(&self, count: usize) -> Vec<(Method, Code)> {
        let wait = async {
            while self.seen.finished.lock().len() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, wait).await.expect("the calls to end");
        self.seen.finished.lock().clone()
    }
}

fn grpc(path: &str) -> http::request::Builder {
    Request::post(format!("http://api{path}")).header("content-type", "application/grpc")
}

/// A length-prefixed message.
fn framed(flag: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flag];
    bytes.put_u32(payload.len() as u32);
    bytes.extend_from_slice(payload);
    bytes
}
