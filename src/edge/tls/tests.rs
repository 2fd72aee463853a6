//! Both sides of a handshake in one process: how members dial each other.

use super::*;
use crate::config::TlsVersion;
use crate::edge::conn::Remote;
use crate::edge::listen::Port;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::path::{Path, PathBuf};

fn common() -> config::Tls {
    config::Tls {
        client: TlsSide::default(),
        peer: TlsSide::default(),
        min: TlsVersion::V12,
        max: TlsVersion::V13,
        cipher_suites: Vec::new(),
        self_signed_years: 1,
    }
}

struct Pki {
    dir: tempfile::TempDir,
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        write(&dir.path().join("ca"), &ca.pem());
        Self { dir, ca }
    }

    /// Member `cn`, valid for `host`.
    fn member(&self, cn: &str, host: &str) -> TlsSide {
        let mut params = CertificateParams::new([host.to_string()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, cn);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.ca).unwrap();
        let path = |end: &str| self.dir.path().join(format!("{cn}.{end}"));
        write(&path("crt"), &cert.pem());
        write(&path("key"), &key.serialize_pem());
        TlsSide {
            identity: Some((path("crt"), path("key"))),
            trusted_ca: Some(self.dir.path().join("ca")),
            client_cert_auth: true,
            ..TlsSide::default()
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a file of the test")]
fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn load(side: TlsSide) -> Arc<Tls> {
    Tls::load("peer", side, &common()).unwrap()
}

/// `from` dials `to` under the name `host`; what each of them says.
async fn meet(from: &Tls, to: &Tls, host: &str) -> (Result<(), Failure>, Result<String, Failure>) {
    let (near, far) = tokio::io::duplex(16 << 10);
    let dial = async {
        let mut stream = from.dial(host, near).await?;
        // With TLS 1.3 the dialling side hears of a refusal when it reads.
        tokio::io::AsyncReadExt::read_u8(&mut stream).await
    };
    let accept = async {
        let (mut stream, proven) = to.accept(far, Remote::Unix, Duration::from_secs(60)).await?;
        tokio::io::AsyncWriteExt::write_u8(&mut stream, 1).await.unwrap();
        tokio::io::AsyncWriteExt::flush(&mut stream).await.unwrap();
        Ok::<_, (Failure, String)>(proven.user.unwrap_or_default().to_string())
    };
    let (dialled, accepted) = tokio::join!(dial, accept);
    (dialled.map(|_| ()).map_err(|e| Failure::of(&e)), accepted.map_err(|(failure, _)| failure))
}

#[tokio::test]
async fn members_prove_who_they_are() {
    let pki = Pki::new();
    let (one, two) = (load(pki.member("one", "one.test")), load(pki.member("two", "two.test")));
    assert_eq!(meet(&one, &two, "two.test").await, (Ok(()), Ok("one".to_string())));
    // The dialled address belongs to somebody else.
    assert_eq!(meet(&one, &two, "three.test").await.0, Err(Failure::Name));
    // Another authority.
    let stranger = load(Pki::new().member("one", "one.test"));
    assert_eq!(meet(&stranger, &two, "two.test").await.0, Err(Failure::UnknownAuthority));
}

#[tokio::test]
async fn allowed_names_bind_both_sides() {
    let pki = Pki::new();
    let strict = |allowed: &str| TlsSide {
        allowed_cns: vec![allowed.to_string()],
        ..pki.member("two", "two.test")
    };
    let one = load(pki.member("one", "one.test"));
    let (open, shut) = (load(strict("one")), load(strict("three")));
    assert_eq!(meet(&one, &open, "two.test").await.1, Ok("one".to_string()));
    assert_eq!(meet(&one, &shut, "two.test").await.1, Err(Failure::Name));
    assert_eq!(meet(&shut, &one, "one.test").await.0, Err(Failure::Name));
}

#[tokio::test]
async fn a_separate_identity_dials_and_nobody_dials_without_authorities() {
    let pki = Pki::new();
    let mut side = pki.member("one", "one.test");
    side.dial_identity = pki.member("dialler", "x.test").identity;
    let (one, two) = (load(side), load(pki.member("two", "two.test")));
    assert_eq!(meet(&one, &two, "two.test").await.1, Ok("dialler".to_string()));
    assert_eq!(
        one.dates().iter().map(|dates| dates.cert).collect::<Vec<_>>(),
        ["server", "ca", "client"]
    );
    let blind = TlsSide { trusted_ca: None, client_cert_auth: false, ..pki.member("a", "a.test") };
    assert!(
        load(blind).client_config().unwrap_err().to_string().contains("--peer-trusted-ca-file")
    );
}

#[tokio::test]
async fn self_signed_members_meet() {
    let dir = tempfile::tempdir().unwrap();
    let member = |name: &str| {
        let made = self_signed(&["127.0.0.1".to_string()], 1).unwrap();
        let path = |end: &str| -> PathBuf { dir.path().join(format!("{name}.{end}")) };
        write(&path("crt"), &made.cert);
        write(&path("key"), &made.key);
        assert!(still_valid(&path("crt")));
        let identity = Some((path("crt"), path("key")));
        load(TlsSide { identity, auto: true, ..TlsSide::default() })
    };
    let (one, two) = (member("one"), member("two"));
    assert_eq!(meet(&one, &two, "127.0.0.1").await, (Ok(()), Ok(String::new())));
    assert!(!still_valid(&dir.path().join("absent")));
}

/// Each (port, address without port, reason) has a line a minute, whoever comes in between.
#[test]
fn the_log_is_not_flooded() {
    let logs = super::handshake::Logs::default();
    let from = |address: &str, port| {
        let remote = Remote::Tcp(address.parse().unwrap());
        crate::edge::conn::ConnInfo::new(remote, port)
    };
    let mut lines = Vec::new();
    for second in 0..=60 {
        for port in [Port::Client, Port::Peer] {
            for failure in [Failure::Expired, Failure::UnknownAuthority] {
                for host in ["127.0.0.1", "127.0.0.2"] {
                    // Every try comes from another port.
                    let info = from(&format!("{host}:{}", 2_000 + second), port);
                    lines.extend(logs.admit(&info, failure, second * 1_000_000_000));
                }
            }
        }
    }
    assert_eq!(lines, [[0; 8], [59; 8]].concat());
}

#[test]
fn reasons_are_in_order() {
    for (at, failure) in Failure::ALL.into_iter().enumerate() {
        assert_eq!(failure.index(), at, "{}", failure.as_str());
    }
}
