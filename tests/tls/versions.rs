//! Versions and cipher suites.

use crate::client::{connect_with, in_time};
use crate::files::Files;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, HandshakeKind};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_versions_asked_for_are_spoken() {
    let files = Files::new();
    let client = files.client();
    for (flag, old, new) in [
        ("--tls-min-version=TLS1.3", false, true),
        ("--tls-max-version=TLS1.2", true, false),
        ("--tls-min-version=TLS1.2", true, true),
    ] {
        let node = files.launch().arg(flag).start();
        for (version, works) in [(&TLS12, old), (&TLS13, new)] {
            let connected = client.clone().version(version).connect(node.ports()[0]).await;
            assert_eq!(connected.is_ok(), works, "{flag} {version:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_suites_asked_for_are_used() {
    let files = Files::new();
    let suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
    let weak = "TLS_RSA_WITH_AES_128_CBC_SHA";
    let node = files.launch().arg(format!("--cipher-suites={suite},{weak}")).start();
    let old = files.client().version(&TLS12);
    let stream = old.connect(node.ports()[0]).await.expect("TLS 1.2");
    let used = stream.get_ref().1.negotiated_cipher_suite().expect("a suite").suite();
    assert_eq!(used, CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256);
    files.client().version(&TLS13).connect(node.ports()[0]).await.expect("TLS 1.3 has its own");
    assert!(node.log().contains("TLS_RSA_WITH_AES_128_CBC_SHA is weak and not offered"));
    // A suite for RSA keys alone does not go with this certificate.
    let rsa = "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    let node = files.launch().arg(rsa).start();
    assert!(old.connect(node.ports()[0]).await.is_err());
}

/// A resumed session would carry a certificate past its revocation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_resumed() {
    let files = Files::new();
    let node = files.launch().start();
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(files.client().version(version).config());
        for _ in 0..3 {
            let connected = connect_with(config.clone(), node.ports()[0]).await;
            let mut stream = connected.expect("a handshake");
            assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
            // What a session is resumed with would come with the answer.
            let request = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.expect("send");
            let mut answer = Vec::new();
            in_time(stream.read_to_end(&mut answer)).await.expect("an answer");
            assert!(answer.starts_with(b"HTTP/1.1 200"));
        }
    }
}
