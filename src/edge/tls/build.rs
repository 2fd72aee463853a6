//! Files to configurations.

use super::certificate::{self, Dates};
use super::verify::{Allowed, AnyServer, ClientVerifier, ServerVerifier};
use crate::config::{self, TlsSide, TlsVersion};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Protocols offered to clients, best first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// Suites of TLS 1.2 that are offered, in Go's names; every one has forward secrecy and
/// authenticated encryption. TLS 1.3 has no others.
const SUITES: [(&str, rustls::CipherSuite); 8] = [
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        rustls::CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        rustls::CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        rustls::CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    // Older names of the same.
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        rustls::CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// Why certificates cannot be used. Every text names the file.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong and what is expected.
        why: String,
    },
    /// Settings that do not go together.
    #[error("{0}")]
    Settings(String),
}

/// Bytes of all files of one side, by path.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Texts(BTreeMap<PathBuf, Vec<u8>>);

impl Texts {
    pub(super) fn read(side: &TlsSide) -> Result<Self, TlsError> {
        let pairs = [&side.identity, &side.dial_identity];
        let pairs = pairs.into_iter().flatten().flat_map(|(cert, key)| [cert, key]);
        let mut texts = BTreeMap::new();
        for path in pairs.chain(&side.trusted_ca).chain(&side.crl) {
            let bytes = std::fs::read(path)
                .map_err(|source| TlsError::Read { path: path.clone(), source })?;
            texts.insert(path.clone(), bytes);
        }
        Ok(Self(texts))
    }

    fn get(&self, path: &Path) -> &[u8] {
        self.0.get(path).map_or(&[], Vec::as_slice)
    }
}

/// Everything made of one version of the files.
pub(super) struct Built {
    pub(super) server: Arc<ServerConfig>,
    /// `None` without authorities.
    pub(super) dial: Option<Arc<ClientConfig>>,
    pub(super) dates: Vec<Dates>,
    pub(super) warnings: Vec<String>,
    /// Whether a client's address must be among those of its certificate.
    pub(super) check_address: bool,
    /// Whether the common name of a client's certificate is the user.
    pub(super) names_user: bool,
}

impl Built {
    pub(super) fn new(
        side: &TlsSide,
        common: &config::Tls,
        texts: &Texts,
    ) -> Result<Self, TlsError> {
        let mut warnings = Vec::new();
        let provider = Arc::new(provider(common, &mut warnings)?);
        let versions = versions(common);
        let Some(identity) = &side.identity else {
            return Err(TlsError::Settings("there is no certificate".into()));
        };
        let (chain, key) = pair(identity, texts)?;
        let roots = side.trusted_ca.as_ref().map(|path| roots(path, texts)).transpose()?;
        let crls = side.crl.as_ref().map(|path| crls(path, texts)).transpose()?;
        let allowed = Allowed::new(&side.allowed_cns, &side.allowed_hostnames)?;

        let mut dates = vec![certificate::dates("server", &identity.0, &chain)?];
        let ca_path = side.trusted_ca.as_deref().unwrap_or(Path::new(""));
        if let Some((_, cas)) = &roots {
            dates.push(certificate::dates("ca", ca_path, cas)?);
        }
        let settings = |error: rustls::Error| TlsError::Settings(error.to_string());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(settings)?;
        let server = match &roots {
            None => server.with_no_client_auth(),
            Some((store, _)) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(store.clone(), provider.clone())
                        .with_crls(crls.clone().unwrap_or_default())
                        .only_check_end_entity_revocation()
                        .allow_unknown_revocation_status()
                        .build()
                        .map_err(|error| unfit(ca_path, error))?;
                server.with_client_cert_verifier(Arc::new(ClientVerifier {
                    inner: verifier,
                    allowed: allowed.clone(),
                }))
            }
        };
        let mut server = server
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| unfit(&identity.0, error))?;
        server.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;

        let (dial_chain, dial_key) = match &side.dial_identity {
            Some(other) => {
                let (chain, key) = pair(other, texts)?;
                dates.push(certificate::dates("client", &other.0, &chain)?);
                (chain, key)
            }
            None => (chain, key),
        };
        let dial = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(settings)?
            .dangerous();
        let dial = match &roots {
            Some((store, _)) => {
                let verifier = WebPkiServerVerifier::builder_with_provider(store.clone(), provider)
                    .with_crls(crls.unwrap_or_default())
                    .only_check_end_entity_revocation()
                    .allow_unknown_revocation_status()
                    .build()
                    .map_err(|error| unfit(ca_path, error))?;
                Some(dial.with_custom_certificate_verifier(Arc::new(ServerVerifier {
                    inner: verifier,
                    allowed,
                })))
            }
            // Self-signed members cannot be told apart: encryption against listeners only.
            None if side.auto => {
                Some(dial.with_custom_certificate_verifier(Arc::new(AnyServer { provider })))
            }
            None => None,
        };
        let dial_path = &side.dial_identity.as_ref().unwrap_or(identity).0;
        let dial = dial
            .map(|dial| {
                let mut dial = dial
                    .with_client_auth_cert(dial_chain, dial_key)
                    .map_err(|error| unfit(dial_path, error))?;
                dial.alpn_protocols = vec![ALPN[0].to_vec()];
                dial.resumption = Resumption::disabled();
                Ok(Arc::new(dial))
            })
            .transpose()?;
        Ok(Self {
            server: Arc::new(server),
            dial,
            dates,
            warnings,
            check_address: !side.skip_address_check && roots.is_some(),
            names_user: side.client_cert_auth,
        })
    }
}

fn unfit(path: &Path, why: impl ToString) -> TlsError {
    TlsError::File { path: path.to_path_buf(), why: why.to_string() }
}

fn versions(common: &config::Tls) -> Vec<&'static SupportedProtocolVersion> {
    let all = [(TlsVersion::V13, &version::TLS13), (TlsVersion::V12, &version::TLS12)];
    let asked = |version: TlsVersion| common.min <= version && version <= common.max;
    all.into_iter().filter(|(version, _)| asked(*version)).map(|(_, version)| version).collect()
}

/// ring with the suites that were asked for. Suites that are known and too weak are left out with a
/// warning, names that nobody knows are an error.
fn provider(common: &config::Tls, warnings: &mut Vec<String>) -> Result<CryptoProvider, TlsError> {
    let mut provider = ring::default_provider();
    if common.cipher_suites.is_empty() {
        return Ok(provider);
    }
    let mut asked = Vec::new();
    for name in &common.cipher_suites {
        if let Some((_, suite)) = SUITES.iter().find(|(known, _)| known == name) {
            asked.push(*suite);
        } else if name.starts_with("TLS_AES_") || name == "TLS_CHACHA20_POLY1305_SHA256" {
            // TLS 1.3: always offered.
        } else if name.starts_with("TLS_RSA_") || name.starts_with("TLS_ECDHE_") {
            warnings.push(format!("cipher suite {name} is weak and not offered"));
        } else {
            return Err(TlsError::Settings(format!(
                "--cipher-suites: unexpected TLS cipher suite {name:?}; known are {}",
                SUITES.map(|(name, _)| name).join(", ")
            )));
        }
    }
    if asked.is_empty() && common.max == TlsVersion::V12 {
        return Err(TlsError::Settings(format!(
            "--cipher-suites leaves no suite for TLS 1.2; give one of {}",
            SUITES.map(|(name, _)| name).join(", ")
        )));
    }
    provider.cipher_suites.retain(|suite| match suite {
        rustls::SupportedCipherSuite::Tls12(suite) => asked.contains(&suite.common.suite),
        rustls::SupportedCipherSuite::Tls13(_) => true,
    });
    Ok(provider)
}

pub(super) type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

pub(super) fn pair((cert, key): &(PathBuf, PathBuf), texts: &Texts) -> Result<Pair, TlsError> {
    let chain = certificates(cert, texts)?;
    let private = PrivateKeyDer::from_pem_slice(texts.get(key)).map_err(|error| match error {
        pem::Error::NoItemsFound => unfit(key, "holds no private key; PEM is expected"),
        error => unfit(key, error),
    })?;
    Ok((chain, private))
}

fn certificates(path: &Path, texts: &Texts) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(texts.get(path)).collect();
    let all = all.map_err(|error| unfit(path, error))?;
    if all.is_empty() {
        return Err(unfit(path, "holds no certificate; PEM is expected"));
    }
    Ok(all)
}

pub(super) type Roots = (Arc<RootCertStore>, Vec<CertificateDer<'static>>);

pub(super) fn roots(path: &Path, texts: &Texts) -> Result<Roots, TlsError> {
    let all = certificates(path, texts)?;
    let mut store = RootCertStore::empty();
    for certificate in &all {
        store.add(certificate.clone()).map_err(|error| unfit(path, error))?;
    }
    Ok((Arc::new(store), all))
}

fn crls(
    path: &Path,
    texts: &Texts,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let bytes = texts.get(path);
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(bytes).collect();
    let all = all.map_err(|error| unfit(path, error))?;
    if !all.is_empty() {
        return Ok(all);
    }
    if bytes.is_empty() {
        return Err(unfit(path, "holds no revocation list; PEM or DER is expected"));
    }
    Ok(vec![CertificateRevocationListDer::from(bytes.to_vec())])
}
