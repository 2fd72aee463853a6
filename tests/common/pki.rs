//! Certificates of every kind, made in the test.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevocationReason, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: Duration = Duration::from_secs(24 * 3_600);

static SERIAL: AtomicU64 = AtomicU64::new(1);

/// Signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// What a certificate says; by default good for clients and servers from yesterday on for a month.
#[derive(Clone, Debug)]
pub struct Cert {
    /// Common name.
    pub cn: String,
    /// Host names and addresses.
    pub hosts: Vec<String>,
    /// Whether its time is over.
    pub expired: bool,
}

/// A certificate with its key, PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub cert: String,
    /// The key.
    pub key: String,
    serial: u64,
}

impl Cert {
    /// For this common name, without host names.
    pub fn named(cn: &str) -> Self {
        Self { cn: cn.to_string(), hosts: Vec::new(), expired: false }
    }

    /// For these hosts.
    #[must_use]
    pub fn hosts(mut self, hosts: &[&str]) -> Self {
        self.hosts = hosts.iter().map(|host| (*host).to_string()).collect();
        self
    }

    /// Whose time was over an hour ago.
    #[must_use]
    pub fn expired(mut self) -> Self {
        self.expired = true;
        self
    }
}

impl Authority {
    /// A new authority with its own key.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// Its certificate, PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate.
    pub fn issue(&self, cert: &Cert) -> Identity {
        let mut params = CertificateParams::new(cert.hosts.clone()).expect("hosts");
        let serial = SERIAL.fetch_add(1, Relaxed);
        params.serial_number = Some(SerialNumber::from(serial));
        params.distinguished_name = subject(&cert.cn);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let end = if cert.expired { now - DAY / 24 } else { now + 30 * DAY };
        params.not_before = date_time_ymd(1970, 1, 1) + (now - DAY);
        params.not_after = date_time_ymd(1970, 1, 1) + end;
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.0).expect("a certificate");
        Identity { cert: signed.pem(), key: key.serialize_pem(), serial }
    }

    /// A list that revokes these certificates, PEM.
    pub fn revoke(&self, revoked: &[&Identity]) -> String {
        let revoke = |identity: &&Identity| RevokedCertParams {
            serial_number: SerialNumber::from(identity.serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2099, 1, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(revoke).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).expect("a revocation list").pem().expect("PEM")
    }
}

impl Identity {
    /// Writes `NAME.crt` and `NAME.key`; returns their paths.
    pub fn write(&self, dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let paths = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        std::fs::write(&paths.0, &self.cert).expect("write a certificate");
        std::fs::write(&paths.1, &self.key).expect("write a key");
        paths
    }
}

fn subject(cn: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, cn);
    name
}
