//! A TLS client that knows nothing of the server's code.

use crate::common::Identity;
use bytes::Bytes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, SupportedProtocolVersion,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Longest wait for anything; never reached when the tests pass.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// How to connect.
#[derive(Clone)]
pub(crate) struct Client {
    ca: Option<String>,
    identity: Option<Identity>,
    versions: Vec<&'static SupportedProtocolVersion>,
    alpn: Vec<Vec<u8>>,
}

impl Client {
    /// Trusts this authority (PEM) and nobody else; `None` trusts everybody.
    pub(crate) fn trusting(ca: Option<&str>) -> Self {
        let versions = vec![&rustls::version::TLS13, &rustls::version::TLS12];
        Self { ca: ca.map(str::to_string), identity: None, versions, alpn: Vec::new() }
    }

    /// Shows this certificate when asked.
    pub(crate) fn showing(mut self, identity: &Identity) -> Self {
        self.identity = Some(identity.clone());
        self
    }

    /// Speaks only this version.
    pub(crate) fn version(mut self, version: &'static SupportedProtocolVersion) -> Self {
        self.versions = vec![version];
        self
    }

    /// Offers this protocol.
    pub(crate) fn alpn(mut self, protocol: &str) -> Self {
        self.alpn = vec![protocol.as_bytes().to_vec()];
        self
    }

    /// Its configuration; one that is used again remembers sessions.
    pub(crate) fn config(&self) -> ClientConfig {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)
            .expect("versions");
        let builder = match &self.ca {
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for root in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                    roots.add(root.expect("PEM")).expect("an authority");
                }
                builder.with_root_certificates(roots)
            }
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Everybody)),
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = CertificateDer::pem_slice_iter(identity.cert.as_bytes());
                let chain: Vec<_> = chain.map(|cert| cert.expect("PEM")).collect();
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("an identity")
            }
        };
        config.alpn_protocols = self.alpn.clone();
        config
    }

    /// Connects and shakes hands. With TLS 1.3 a refusal comes with the first read only.
    pub(crate) async fn connect(&self, port: u16) -> io::Result<TlsStream<TcpStream>> {
        connect_with(Arc::new(self.config()), port).await
    }

    /// `GET`s a path over HTTP/1 and returns the whole answer.
    pub(crate) async fn get(&self, port: u16, path: &str) -> io::Result<String> {
        let mut stream = self.connect(port).await?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        in_time(stream.read_to_end(&mut answer)).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// `grpc.health.v1.Health/Check`: bytes of the answer and the gRPC status.
    pub(crate) async fn health(&self, port: u16) -> (Vec<u8>, String) {
        let stream = self.clone().alpn("h2").connect(port).await.expect("a connection");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        let driver = tokio::spawn(connection);
        let request = http::Request::post("https://localhost/grpc.health.v1.Health/Check")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("a request");
        let (answer, mut body) = client.send_request(request, false).expect("a stream");
        body.send_data(Bytes::from_static(&[0, 0, 0, 0, 0]), true).expect("the message");
        let mut body = answer.await.expect("an answer").into_body();
        let mut bytes = Vec::new();
        while let Some(data) = body.data().await {
            bytes.extend_from_slice(&data.expect("data"));
        }
        let trailers = body.trailers().await.expect("trailers").expect("trailers");
        driver.abort();
        (bytes, trailers["grpc-status"].to_str().expect("text").to_string())
    }
}

/// As [`Client::connect`], with a configuration that remembers sessions.
pub(crate) async fn connect_with(
    config: Arc<ClientConfig>,
    port: u16,
) -> io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    in_time(tokio_rustls::TlsConnector::from(config).connect(name, socket)).await
}

/// The future's result.
///
/// # Panics
/// When it does not come for a minute.
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("in time")
}

#[derive(Debug)]
struct Everybody;

impl ServerCertVerifier for Everybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
