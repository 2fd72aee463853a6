//! Certificates for `--auto-tls` and `--peer-auto-tls`: encryption without anybody's promise of who
//! is at the other end.

use super::build::TlsError;
use super::certificate;
use crate::telemetry::clock;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Clocks of clients may be behind by this much.
const BACKDATED: Duration = Duration::from_secs(3_600);
/// A kept certificate with less than this left is made anew at the start.
const LEFT: Duration = Duration::from_secs(24 * 3_600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A certificate and its key, PEM.
pub struct SelfSigned {
    /// The certificate.
    pub cert: String,
    /// The key: secret.
    pub key: String,
}

/// Makes a certificate for these names and addresses.
///
/// # Errors
/// A name that no certificate can carry.
pub fn self_signed(hosts: &[String], years: u32) -> Result<SelfSigned, TlsError> {
    let fail = |error: rcgen::Error| {
        TlsError::Settings(format!("cannot make a self-signed certificate for {hosts:?}: {error}"))
    };
    let now = clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut params = CertificateParams::new(hosts).map_err(fail)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "assay");
    params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(BACKDATED);
    params.not_after = date_time_ymd(1970, 1, 1) + now + YEAR * years;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().map_err(fail)?;
    let cert = params.self_signed(&key).map_err(fail)?;
    Ok(SelfSigned { cert: cert.pem(), key: key.serialize_pem() })
}

/// Whether a certificate kept from an earlier start can be used for another day.
pub fn still_valid(path: &Path) -> bool {
    let Ok(bytes) = std::fs::read(path) else { return false };
    let Ok(cert) = CertificateDer::from_pem_slice(&bytes) else { return false };
    let now = clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    certificate::dates("server", path, &[cert])
        .is_ok_and(|dates| dates.expires > (now + LEFT).as_secs() as i64)
}
