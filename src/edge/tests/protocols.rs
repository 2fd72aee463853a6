//! One port, three protocols.

use super::*;
use crate::edge::Remote;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Sends one request and reads until the server closes.
pub(super) async fn http1<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, head: &str) -> String {
    let request = format!("{head}\r\nHost: edge\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(SOON, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

async fn h2_body(client: &mut h2::client::SendRequest<Bytes>, request: Request<()>) -> String {
    let (response, _) = client.send_request(request, true).unwrap();
    let mut body = response.await.unwrap().into_body();
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        bytes.extend_from_slice(&data.unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn http1_and_h2_and_grpc_share_a_port() {
    let served = Served::start(Limits::default());
    served.assert_serving().await;
    let (mut client, _ended) = h2_client(served.connect().await).await;
    assert_eq!(h2_body(&mut client, grpc("/a.B/C")).await, "rpc /a.B/C");
    let get = Request::get("http://edge/ping").body(()).unwrap();
    assert_eq!(h2_body(&mut client, get).await, "pong");
    // A gRPC path with another content type is refused by the gRPC service, not by HTTP.
    let wrong = Request::post("http://edge/a.B/C").header("content-type", "text/plain");
    assert_eq!(h2_body(&mut client, wrong.body(()).unwrap()).await, "rpc /a.B/C");
    // gRPC over HTTP/1 does not exist.
    let head = "POST /a.B/C HTTP/1.1\r\nContent-Type: application/grpc\r\nContent-Length: 0";
    assert!(http1(served.connect().await, head).await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn a_preface_in_pieces_is_understood() {
    let served = Served::start(Limits::default());
    let mut stream = served.connect().await;
    for piece in [&b"P"[..], b"RI * HTTP/2.0\r\n\r", b"\nSM\r\n\r\n"] {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    // The server's settings: the connection is HTTP/2.
    let mut head = [0u8; 9];
    tokio::time::timeout(SOON, stream.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!(head[3], 4, "SETTINGS");
}

#[tokio::test]
async fn unix_sockets_work_and_leave_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("client.sock");
    let url = format!("unix://{}", path.display());
    let served = Served::start(Limits::default());
    serve(&served.edge, bind(&spec(&url)).unwrap());
    let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    assert!(http1(stream, "GET /ping HTTP/1.1").await.ends_with("pong"));
    assert!(bind(&spec(&url)).unwrap_err().is_in_use());
    let edge = served.edge;
    tokio::task::spawn_blocking(move || edge.drain(SOON)).await.unwrap();
    assert!(!path.exists());
    assert_eq!(Remote::Unix.to_string(), "@");
}

#[tokio::test]
async fn a_stale_socket_file_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("client.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a killed process leaves its file");
    bind(&spec(&format!("unix://{}", path.display()))).unwrap();
}

/// What a gRPC client is told that came to a port without gRPC, or with another service.
#[tokio::test]
async fn grpc_on_the_wrong_port_is_told_which_is_right() {
    const TEXT: &str = "gRPC is served on port 7";
    let (send, _closed) = mpsc::unbounded_channel();
    let observer = Arc::new(Reports(send));
    let edge = Edge::start(Options { runtimes: 1, limits: Limits::default(), observer }).unwrap();
    let http = || axum::Router::new().route("/ping", axum::routing::get(|| async { "pong" }));
    let listen = || {
        let bound = bind(&spec("http://127.0.0.1:0")).unwrap();
        let address = bound.local_addr().unwrap();
        (bound, address)
    };
    let (bound, without) = listen();
    edge.serve(vec![bound], |_, _| NoRpc::routes(http(), TEXT.into()));
    let (bound, with) = listen();
    let elsewhere = Elsewhere { text: Some(TEXT.into()), served: Some("/own.Service/") };
    edge.serve(vec![bound], |_, _| Routes {
        rpc: Some(FakeRpc),
        http: http(),
        elsewhere: elsewhere.clone(),
    });
    for (address, path, served) in [
        (without, "/etcdserverpb.KV/Range", false),
        (without, "/own.Service/Call", false),
        (with, "/etcdserverpb.KV/Range", false),
        (with, "/own.ServiceAndMore/Call", false),
        (with, "/own.Service/Call", true),
    ] {
        let (mut client, _) = h2_client(TcpStream::connect(address).await.unwrap()).await;
        let (answer, _) = client.send_request(grpc(path), true).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200);
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap());
        let said = (header("grpc-status"), header("grpc-message"));
        let message = "gRPC%20is%20served%20on%20port%207";
        let refused = (Some("12"), Some(message));
        assert_eq!(said, if served { (None, None) } else { refused }, "{address} {path}");
        assert_eq!(header("content-type"), (!served).then_some("application/grpc"));
    }
    let answer = http1(TcpStream::connect(without).await.unwrap(), "GET /ping HTTP/1.1").await;
    assert!(answer.ends_with("pong"), "{answer}");
}
