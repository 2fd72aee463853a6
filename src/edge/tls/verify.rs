//! Certificate checks beyond the chain: lists of allowed names, for those who connect and for
//! members that are dialled.

use super::build::TlsError;
use super::certificate;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use std::sync::Arc;

/// A certificate that is valid and not on the list.
#[derive(Debug, thiserror::Error)]
#[error("the certificate ({found}) is not among those that --{flag} allows")]
pub(super) struct NotAllowed {
    found: String,
    flag: &'static str,
}

/// Who may come with a valid certificate; everybody if both lists are empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowed {
    cns: Vec<String>,
    hostnames: Vec<ServerName<'static>>,
}

impl Allowed {
    pub(super) fn new(cns: &[String], hostnames: &[String]) -> Result<Self, TlsError> {
        let name = |text: &String| {
            ServerName::try_from(text.clone()).map_err(|_| {
                TlsError::Settings(format!(
                    "{text:?} is not a host name or address: check the list"
                ))
            })
        };
        Ok(Self {
            cns: cns.to_vec(),
            hostnames: hostnames.iter().map(name).collect::<Result<_, _>>()?,
        })
    }

    fn check(&self, end_entity: &CertificateDer<'_>) -> Result<(), Error> {
        let cn = || certificate::common_name(end_entity).unwrap_or_default();
        if !self.cns.is_empty() && !self.cns.contains(&cn()) {
            return Err(refuse(format!("common name {:?}", cn()), "peer-cert-allowed-cn"));
        }
        if self.hostnames.is_empty() {
            return Ok(());
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        if self.hostnames.iter().any(|name| verify_server_name(&parsed, name).is_ok()) {
            return Ok(());
        }
        Err(refuse(
            format!("common name {:?} and its alternatives", cn()),
            "...-cert-allowed-hostname",
        ))
    }
}

fn refuse(found: String, flag: &'static str) -> Error {
    let why = OtherError(Arc::new(NotAllowed { found, flag }));
    Error::InvalidCertificate(CertificateError::Other(why))
}

/// Checks those who connect.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    pub(super) inner: Arc<dyn ClientCertVerifier>,
    pub(super) allowed: Allowed,
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        self.allowed.check(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Checks members that are dialled.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    pub(super) inner: Arc<dyn ServerCertVerifier>,
    pub(super) allowed: Allowed,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )?;
        self.allowed.check(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Takes every certificate: between members that signed their own, as etcd's `--peer-auto-tls`.
#[derive(Debug)]
pub(super) struct AnyServer {
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
