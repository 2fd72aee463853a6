//! What certificates say: dates, names, addresses.

use super::build::TlsError;
use rustls::pki_types::CertificateDer;
use std::net::IpAddr;
use std::path::Path;
use tokio::sync::Semaphore;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Names are looked up one at a time: the threads that a slow name server can hold are those that
/// encode large answers.
static LOOKUPS: Semaphore = Semaphore::const_new(1);

/// When a certificate in use was issued and when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dates {
    /// `server` (shown to those who connect), `client` (shown when dialling) or `ca`.
    pub cert: &'static str,
    /// Begin of its validity, seconds since 1970.
    pub issued: i64,
    /// End of its validity, seconds since 1970.
    pub expires: i64,
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    let parsed = X509Certificate::from_der(der);
    parsed.map(|(_, certificate)| certificate).map_err(|error| error.to_string())
}

/// Dates of the certificate of `all` that expires first: a chain is valid as long as its weakest
/// link.
pub(super) fn dates(
    cert: &'static str,
    path: &Path,
    all: &[CertificateDer<'_>],
) -> Result<Dates, TlsError> {
    let mut first: Option<Dates> = None;
    for der in all {
        let parsed = parse(der).map_err(|why| TlsError::File { path: path.to_path_buf(), why })?;
        let validity = parsed.validity();
        let (issued, expires) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        if first.is_none_or(|first| expires < first.expires) {
            first = Some(Dates { cert, issued, expires });
        }
    }
    first.ok_or_else(|| TlsError::File {
        path: path.to_path_buf(),
        why: "holds no certificate".into(),
    })
}

/// Common name of the subject; `None` if there is none or it is empty.
pub(super) fn common_name(der: &[u8]) -> Option<String> {
    let parsed = parse(der).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?;
    (!name.is_empty()).then(|| name.to_string())
}

/// Names and addresses for which it is valid.
fn alternatives(der: &[u8]) -> Result<(Vec<String>, Vec<IpAddr>), String> {
    let parsed = parse(der)?;
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    let extension = parsed.subject_alternative_name().map_err(|error| error.to_string())?;
    for name in extension.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.push((*name).to_string()),
            GeneralName::IPAddress(bytes) => {
                if let Ok(bytes) = <[u8; 4]>::try_from(*bytes) {
                    addresses.push(IpAddr::from(bytes));
                } else if let Ok(bytes) = <[u8; 16]>::try_from(*bytes) {
                    addresses.push(IpAddr::from(bytes));
                }
            }
            _ => {}
        }
    }
    Ok((names, addresses))
}

/// etcd's rule: a certificate that names hosts is good only from one of them. Without names and
/// addresses it is good from anywhere.
///
/// # Errors
/// Says which address did not fit what.
pub(super) async fn check_address(der: &[u8], from: IpAddr) -> Result<(), String> {
    let (names, addresses) = alternatives(der)?;
    let from = from.to_canonical();
    if names.is_empty() && addresses.is_empty() || addresses.contains(&from) {
        return Ok(());
    }
    for name in names.iter().filter(|name| !name.starts_with('*')) {
        let Ok(_one) = LOOKUPS.acquire().await else { break };
        if let Ok(mut found) = tokio::net::lookup_host((name.as_str(), 0)).await
            && found.any(|address| address.ip().to_canonical() == from)
        {
            return Ok(());
        }
    }
    Err(format!(
        "the client's address {from} is none of those that its certificate names ({})",
        names
            .into_iter()
            .chain(addresses.iter().map(IpAddr::to_string))
            .collect::<Vec<_>>()
            .join(", ")
    ))
}
