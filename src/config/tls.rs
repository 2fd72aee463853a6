//! Options of TLS, with etcd's checks and texts.

use super::validate::{ConfigError, Reader};
use super::{Listen, ListenUrl, UrlList};
use std::path::PathBuf;

/// Longest validity of a self-signed certificate in years: what is beyond outlives its machine.
const SELF_SIGNED_YEARS_MAX: u64 = 100;

/// A version of TLS that can be asked for; older ones are not offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// `TLS1.2`
    V12,
    /// `TLS1.3`
    V13,
}

/// Encryption of all ports.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Client and metrics ports.
    pub client: TlsSide,
    /// Peer port, and connections to other members.
    pub peer: TlsSide,
    /// `--tls-min-version`
    pub min: TlsVersion,
    /// `--tls-max-version`
    pub max: TlsVersion,
    /// `--cipher-suites` in Go's names; empty for all that are offered. TLS 1.3 has no choice.
    pub cipher_suites: Vec<String>,
    /// `--self-signed-cert-validity` in years.
    pub self_signed_years: u32,
}

/// Encryption of one kind of port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSide {
    /// Certificate and its intermediates, and the key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Certificate and key to show when dialling, where they differ from `identity`.
    pub dial_identity: Option<(PathBuf, PathBuf)>,
    /// Authorities of the other side; client certificates are mandatory if they are given.
    pub trusted_ca: Option<PathBuf>,
    /// Revoked certificates.
    pub crl: Option<PathBuf>,
    /// Whether client certificates are required and name the user.
    pub client_cert_auth: bool,
    /// Whether a self-signed certificate is made when there is no `identity`.
    pub auto: bool,
    /// Common names of which a certificate must have one; empty for any.
    pub allowed_cns: Vec<String>,
    /// Names or addresses for one of which a certificate must be valid; empty for any.
    pub allowed_hostnames: Vec<String>,
    /// Whether a client's address need not be among those of its certificate.
    pub skip_address_check: bool,
}

impl TlsSide {
    /// Whether listeners can be encrypted.
    pub fn is_configured(&self) -> bool {
        self.identity.is_some() || self.auto
    }

    /// Whether the certificate is made here.
    pub fn is_self_signed(&self) -> bool {
        self.auto && self.identity.is_none()
    }
}

impl Tls {
    /// What is configured and has no effect, as etcd warns of it.
    pub fn warnings(&self, listen: &Listen) -> Vec<String> {
        let mut warnings = Vec::new();
        let sides = [("client", &self.client, &listen.client), ("peer", &self.peer, &listen.peer)];
        for (name, side, urls) in sides {
            if side.auto && side.identity.is_some() {
                warnings.push(format!("ignoring {name} auto TLS since certs given"));
            }
            for url in urls.0.iter().filter(|url| !url.is_tls()) {
                if side.identity.is_some() {
                    warnings.push(format!(
                        "scheme is http or unix while key and cert files are present; ignoring \
                         key and cert files for {url}"
                    ));
                }
                if side.client_cert_auth {
                    warnings.push(format!(
                        "scheme is http or unix while --{}client-cert-auth is enabled; ignoring \
                         client cert auth for {url}",
                        if name == "peer" { "peer-" } else { "" }
                    ));
                }
            }
        }
        warnings
    }
}

pub(super) fn tls(read: &Reader<'_>, listen: &Listen) -> Result<Tls, ConfigError> {
    let (client, peer) = (client(read)?, peer(read)?);
    let https = |urls: &UrlList| urls.0.iter().find(|url| url.is_tls()).map(ListenUrl::to_string);
    let invalid = |text: String| Err(ConfigError::Invalid(text));
    if !client.is_configured() {
        if let Some(url) = https(&listen.client) {
            return invalid(format!(
                "TLS key/cert (--cert-file, --key-file) must be provided for client url {url} with \
                 HTTPS scheme"
            ));
        }
        if https(&listen.metrics).is_some() {
            return invalid(
                "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure \
                 url"
                .into(),
            );
        }
    }
    if !peer.is_configured()
        && let Some(url) = https(&listen.peer)
    {
        return invalid(format!(
            "cannot listen on TLS for {url}: KeyFile and CertFile are not presented; give \
             --peer-cert-file and --peer-key-file, or --peer-auto-tls"
        ));
    }
    let min = version(read, "tls-min-version")?.unwrap_or(TlsVersion::V12);
    let max = version(read, "tls-max-version")?.unwrap_or(TlsVersion::V13);
    if min > max {
        return invalid(format!(
            "min version ({}) is greater than max version ({})",
            read.text("tls-min-version"),
            read.text("tls-max-version")
        ));
    }
    let cipher_suites = names(read, "cipher-suites");
    if min == TlsVersion::V13 && !cipher_suites.is_empty() {
        return invalid("cipher suites cannot be configured when only TLS1.3 is enabled".into());
    }
    let years = read.within("self-signed-cert-validity", 0, SELF_SIGNED_YEARS_MAX)?;
    if years == 0 && (client.is_self_signed() || peer.is_self_signed()) {
        return Err(read.bad("self-signed-cert-validity", "at least one year is expected"));
    }
    Ok(Tls { client, peer, min, max, cipher_suites, self_signed_years: years as u32 })
}

fn client(read: &Reader<'_>) -> Result<TlsSide, ConfigError> {
    side(
        read,
        TlsSide {
            identity: pair(read, "cert-file", "key-file")?,
            dial_identity: None,
            trusted_ca: path(read, "trusted-ca-file"),
            crl: path(read, "client-crl-file"),
            client_cert_auth: read.boolean("client-cert-auth")?,
            auto: read.boolean("auto-tls")?,
            allowed_cns: Vec::new(),
            allowed_hostnames: names(read, "client-cert-allowed-hostname"),
            // As etcd: clients may come from anywhere, through translated addresses too.
            skip_address_check: true,
        },
        ["client-cert-auth", "trusted-ca-file", "client-crl-file"],
    )
}

fn peer(read: &Reader<'_>) -> Result<TlsSide, ConfigError> {
    let peer = side(
        read,
        TlsSide {
            identity: pair(read, "peer-cert-file", "peer-key-file")?,
            dial_identity: pair(read, "peer-client-cert-file", "peer-client-key-file")?,
            trusted_ca: path(read, "peer-trusted-ca-file"),
            crl: path(read, "peer-crl-file"),
            client_cert_auth: read.boolean("peer-client-cert-auth")?,
            auto: read.boolean("peer-auto-tls")?,
            allowed_cns: names(read, "peer-cert-allowed-cn"),
            allowed_hostnames: names(read, "peer-cert-allowed-hostname"),
            skip_address_check: read.boolean("peer-skip-client-san-verification")?,
        },
        ["peer-client-cert-auth", "peer-trusted-ca-file", "peer-crl-file"],
    )?;
    if !peer.allowed_cns.is_empty() && !peer.allowed_hostnames.is_empty() {
        return Err(ConfigError::Invalid(format!(
            "AllowedCN and AllowedHostname are mutually exclusive (cns={:?}, hostnames={:?}): give \
             --peer-cert-allowed-cn or --peer-cert-allowed-hostname",
            peer.allowed_cns, peer.allowed_hostnames
        )));
    }
    Ok(peer)
}

/// Checks that hold for both sides; `flags` are the names of the requirement, the authorities and
/// the revocation list.
fn side(
    read: &Reader<'_>,
    side: TlsSide,
    flags: [&'static str; 3],
) -> Result<TlsSide, ConfigError> {
    let [auth, ca, crl] = flags;
    let is_self_signed = side.is_self_signed();
    // The system's own authorities would let in everybody who can buy a certificate.
    let flag = if side.client_cert_auth {
        Some(auth)
    } else if side.crl.is_some() {
        Some(crl)
    } else {
        (!side.allowed_cns.is_empty()).then_some("peer-cert-allowed-cn")
    };
    if let (Some(flag), None, Some(_)) = (flag, &side.trusted_ca, &side.identity) {
        return Err(ConfigError::Invalid(format!(
            "--{flag} needs --{ca}: without authorities no certificate can be checked"
        )));
    }
    if is_self_signed && (side.client_cert_auth || side.trusted_ca.is_some()) {
        return Err(ConfigError::Invalid(format!(
            "--{} does not go with self-signed TLS: give certificate and key files",
            if read.is_set(auth) { auth } else { ca }
        )));
    }
    Ok(side)
}

fn version(read: &Reader<'_>, flag: &'static str) -> Result<Option<TlsVersion>, ConfigError> {
    match read.text(flag) {
        "" => Ok(None),
        "TLS1.2" => Ok(Some(TlsVersion::V12)),
        "TLS1.3" => Ok(Some(TlsVersion::V13)),
        _ => Err(read.bad(flag, "TLS1.2 or TLS1.3 is expected")),
    }
}

fn path(read: &Reader<'_>, flag: &'static str) -> Option<PathBuf> {
    Some(read.text(flag)).filter(|text| !text.is_empty()).map(PathBuf::from)
}

fn pair(
    read: &Reader<'_>,
    cert: &'static str,
    key: &'static str,
) -> Result<Option<(PathBuf, PathBuf)>, ConfigError> {
    match (path(read, cert), path(read, key)) {
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        (None, None) => Ok(None),
        (_, _) => Err(ConfigError::Invalid(format!(
            "KeyFile and CertFile must both be present [key: {}, cert: {}]: give --{cert} and \
             --{key}",
            read.text(key),
            read.text(cert)
        ))),
    }
}

/// A comma-separated list; empty entries do not count.
fn names(read: &Reader<'_>, flag: &'static str) -> Vec<String> {
    let parts = read.text(flag).split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).map(str::to_string).collect()
}
