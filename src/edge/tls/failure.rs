//! Why a handshake failed: few enough for a label, exact enough to act on.

use rustls::{CertificateError, Error};
use std::io;

/// Why a connection did not become an encrypted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// It spoke plain HTTP on a TLS listener.
    Plaintext,
    /// It spoke TLS on a plain listener.
    PlainListener,
    /// The handshake did not end in time.
    Timeout,
    /// It went away in the middle.
    Gone,
    /// No common version, suite or rule; or bytes that are not TLS.
    Protocol,
    /// It showed no certificate.
    NoCertificate,
    /// The certificate was signed by nobody who is trusted here.
    UnknownAuthority,
    /// The certificate has expired or is not valid yet.
    Expired,
    /// The certificate was revoked.
    Revoked,
    /// The certificate is valid for another name, or not on the list of allowed names.
    Name,
    /// The client's address is not among those of its certificate.
    Address,
    /// The certificate is wrong in another way, for example not made for clients.
    BadCertificate,
    /// The other side refused our certificate.
    RefusedOurs,
}

impl Failure {
    /// Number of reasons.
    pub const COUNT: usize = 13;
    /// Every reason, in the order of [`Failure::index`].
    pub const ALL: [Failure; Failure::COUNT] = [
        Failure::Plaintext,
        Failure::PlainListener,
        Failure::Timeout,
        Failure::Gone,
        Failure::Protocol,
        Failure::NoCertificate,
        Failure::UnknownAuthority,
        Failure::Expired,
        Failure::Revoked,
        Failure::Name,
        Failure::Address,
        Failure::BadCertificate,
        Failure::RefusedOurs,
    ];

    /// Position in [`Failure::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Label in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::PlainListener => "plain_listener",
            Self::Timeout => "timeout",
            Self::Gone => "gone",
            Self::Protocol => "protocol",
            Self::NoCertificate => "no_certificate",
            Self::UnknownAuthority => "unknown_authority",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Name => "name",
            Self::Address => "address",
            Self::BadCertificate => "bad_certificate",
            Self::RefusedOurs => "refused_ours",
        }
    }

    /// Words for the log: what it means and what to do.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::Plaintext => "the client speaks plain HTTP; use an https:// endpoint",
            Self::PlainListener => {
                "the client began a TLS handshake, but this listener is plain; use an http:// \
                 endpoint"
            }
            Self::Timeout => "the client did not finish the TLS handshake in time",
            Self::Gone => "the client went away during the TLS handshake",
            Self::Protocol => "client and server have no TLS version or cipher suite in common",
            Self::NoCertificate => {
                "client certificate authentication failed: the client shows no certificate"
            }
            Self::UnknownAuthority => {
                "client certificate authentication failed: it was signed by an authority that is \
                 not in the trusted CA file"
            }
            Self::Expired => {
                "client certificate authentication failed: it has expired or is not valid yet; \
                 check the clocks of both machines"
            }
            Self::Revoked => "client certificate authentication failed: it was revoked",
            Self::Name => "client certificate authentication failed: its name is not allowed",
            Self::Address => {
                "client certificate authentication failed: it names other hosts than the one it \
                 came from"
            }
            Self::BadCertificate => "client certificate authentication failed",
            Self::RefusedOurs => {
                "the client refused this server's certificate: it does not trust the authority, or \
                 the certificate names other hosts"
            }
        }
    }

    /// Reads the error of a handshake, on either side of it.
    pub fn of(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match inner {
            Some(error) => Self::of_tls(error),
            None if error.kind() == io::ErrorKind::TimedOut => Self::Timeout,
            None => Self::Gone,
        }
    }

    /// The error of a dialled handshake in words for the log: what is wrong with whom.
    pub fn explain(error: io::Error) -> io::Error {
        let what = match Self::of(&error) {
            Self::UnknownAuthority => {
                "the member's certificate was signed by an authority that is not in the trusted CA \
                 file"
            }
            Self::Expired => "the member's certificate has expired or is not valid yet",
            Self::Revoked => "the member's certificate was revoked",
            Self::Name => {
                "the member's certificate is not valid for this host, or its name is not allowed"
            }
            Self::RefusedOurs => "the member refused our certificate",
            Self::Protocol => {
                "the member speaks no TLS there, or has no version and cipher suite in common"
            }
            Self::Timeout => "the member did not finish the handshake in time",
            Self::Gone => return error,
            _ => "the member's certificate cannot be used",
        };
        io::Error::new(error.kind(), format!("{what} ({error})"))
    }

    fn of_tls(error: &Error) -> Self {
        match error {
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::AlertReceived(_) => Self::RefusedOurs,
            Error::InvalidCertificate(error) => Self::of_certificate(error),
            _ => Self::Protocol,
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Self::Expired,
            CertificateError::Revoked => Self::Revoked,
            // Another authority of the same name has another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::UnknownAuthority
            }
            CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. }
            | CertificateError::Other(_) => Self::Name,
            _ => Self::BadCertificate,
        }
    }
}
