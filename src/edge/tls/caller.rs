//! TLS of a command that calls a member's client port, as one of its clients.

use super::build::{Texts, TlsError, pair, roots};
use crate::config::TlsSide;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::{ClientConfig, version};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// What a caller speaks inside of TLS.
const ALPN: &[u8] = b"http/1.1";

/// Calls members over TLS. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Caller(Arc<ClientConfig>);

impl Caller {
    /// Trusts servers whose certificates the authorities in the file `ca` signed, and shows the
    /// certificate of `identity` (certificate, key) to those that ask for one.
    ///
    /// # Errors
    /// A file that cannot be read or does not fit, by name.
    pub fn new(ca: PathBuf, identity: Option<(PathBuf, PathBuf)>) -> Result<Self, TlsError> {
        let side = TlsSide { trusted_ca: Some(ca.clone()), identity, ..TlsSide::default() };
        let texts = Texts::read(&side)?;
        let settings = |error: rustls::Error| TlsError::Settings(error.to_string());
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(settings)?
            .with_root_certificates(roots(&ca, &texts)?.0);
        let mut config = match &side.identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = pair(identity, &texts)?;
                config.with_client_auth_cert(chain, key).map_err(|error| TlsError::File {
                    path: identity.0.clone(),
                    why: error.to_string(),
                })?
            }
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// Does the client's side of a handshake with `host`, a name or an address.
    ///
    /// # Errors
    /// What the handshake says (see [`super::Failure::of`]); a server that does not finish it in
    /// time.
    pub async fn dial<S>(
        &self,
        host: &str,
        socket: S,
    ) -> io::Result<tokio_rustls::client::TlsStream<S>>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        super::shake_hands(Arc::clone(&self.0), host, socket).await
    }
}
