//! Which runtime serves what, over real sockets: members, clients and scrapes.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// An edge of two runtimes whose ports say which of them answers.
fn edge_that_says_where() -> (Edge, [SocketAddr; Port::COUNT]) {
    let options = Options {
        runtimes: 2,
        limits: Limits::default(),
        observer: Arc::new(crate::edge::NoObserver),
    };
    let edge = Edge::start(options).unwrap();
    let addresses = Port::ALL.map(|port| {
        let url = "http://127.0.0.1:0".to_owned();
        let bound =
            bind(&Spec { flag: "listen-client-urls", url, port, reuse_port: false }).unwrap();
        let address = bound.local_addr().unwrap();
        edge.serve(vec![bound], |runtime, _| {
            let where_am_i = move || async move { format!("runtime {runtime}") };
            let http = axum::Router::new().route("/ping", axum::routing::get(where_am_i));
            Routes { rpc: Some(FakeRpc), http, elsewhere: Elsewhere::default() }
        });
        address
    });
    (edge, addresses)
}

/// Asks over a connection that stays open.
async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /ping HTTP/1.1\r\nhost: edge\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(8).any(|part| part == b"runtime ") || answer.ends_with(b" ") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "closed");
    }
    String::from_utf8(answer.split_off(answer.len() - 9)).unwrap()
}

#[tokio::test]
async fn members_share_a_runtime_and_clients_are_spread() {
    let (_edge, [clients, members, scrapes]) = edge_that_says_where();
    let mut open = Vec::new();
    for (address, runtime) in [
        (members, 0),
        (members, 0),
        (clients, 0),
        (members, 0),
        (clients, 1),
        (clients, 0),
        (scrapes, 1),
        (scrapes, 1),
        (clients, 1),
        (members, 0),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let answer = tokio::time::timeout(SOON, ask(&mut stream)).await.unwrap();
        assert_eq!(answer, format!("runtime {runtime}"), "connection {}", open.len());
        open.push(stream);
    }
}
