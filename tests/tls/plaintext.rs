//! The wrong protocol on a port, and clients that say nothing.

use crate::client::{Client, SOON, in_time};
use crate::common::Launch;
use crate::files::Files;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends bytes and reads to the end.
async fn exchange(port: u16, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.expect("connect");
    socket.write_all(bytes).await.expect("send");
    let mut answer = Vec::new();
    let _ = in_time(socket.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_on_a_tls_port_is_told_so() {
    let files = Files::new();
    let mut node = files.launch().start();
    for (at, endpoint) in ["client", "peer", "metrics"].into_iter().enumerate() {
        for request in
            ["GET /health HTTP/1.1\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
        {
            let answer = exchange(node.ports()[at], request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{answer:?}");
            assert!(answer.ends_with("Client sent an HTTP request to an HTTPS server.\n"));
        }
        node.wait_log(SOON, |log| {
            log.lines().any(|line| {
                line.contains(&format!("rejected connection on {endpoint} endpoint"))
                    && line.contains("\"reason\":\"plaintext\"")
                    && line.contains("https://")
            })
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_on_a_plain_port_is_told_in_the_log() {
    let mut node = Launch::assay().start();
    for (at, endpoint) in ["client", "peer", "metrics"].into_iter().enumerate() {
        let refused = Client::trusting(None).connect(node.ports()[at]).await;
        assert!(refused.is_err());
        node.wait_log(SOON, |log| {
            log.lines().any(|line| {
                line.contains(&format!("rejected connection on {endpoint} endpoint"))
                    && line.contains("\"reason\":\"plain_listener\"")
                    && line.contains("http://")
            })
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_does_not_end_is_closed() {
    let files = Files::new();
    let mut node = files.launch().start();
    // The head of a handshake record, and nothing more.
    let answer = exchange(node.ports()[0], &[0x16, 3, 1, 2, 0]).await;
    assert_eq!(answer, "");
    node.wait_log(SOON, |log| log.contains("\"reason\":\"timeout\""));
    // A finished handshake without a request ends as well.
    let mut stream = files.client().connect(node.ports()[0]).await.expect("a handshake");
    let mut bytes = Vec::new();
    let _ = in_time(stream.read_to_end(&mut bytes)).await;
    assert!(bytes.is_empty());
    // Bytes that begin as a handshake and are none.
    exchange(node.ports()[0], &[0x16; 64]).await;
    node.wait_log(SOON, |log| log.contains("\"reason\":\"protocol\""));
    let answer = files.client().get(node.ports()[0], "/health").await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
