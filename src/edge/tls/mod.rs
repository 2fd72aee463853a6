//! TLS of one kind of port: one constructor for every listener, and for dialling members.
//!
//! ```text
//! files ──read every second──> changed? ──build──> ServerConfig, ClientConfig   (used from the
//!                                  └─ does not fit: the old one stays, one warning    next handshake)
//! ```
//!
//! Nothing is resumed: a resumed session would carry a verified certificate past its revocation, and
//! connections here live long.

mod build;
mod caller;
mod certificate;
mod failure;
mod handshake;
mod self_signed;
mod verify;

#[cfg(test)]
mod tests;

pub use build::TlsError;
pub use caller::Caller;
pub use certificate::Dates;
pub use failure::Failure;
pub use self_signed::{SelfSigned, self_signed, still_valid};

pub(super) use handshake::{Logs, Prefixed, refuse_plaintext, refuse_tls};

use crate::config::{self, TlsSide};
use build::{Built, Texts};
use parking_lot::{Mutex, RwLock};
use rustls::ClientConfig;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::runtime::Handle;

/// How often the files are read: a rotated certificate is used a second later. Reading five small
/// files costs microseconds, and comparing bytes cannot miss a change as time stamps can.
const READ_PERIOD: Duration = Duration::from_secs(1);

/// Certificates, keys and rules of one kind of port, always as the files last fitted together.
pub struct Tls {
    name: &'static str,
    side: TlsSide,
    common: config::Tls,
    current: RwLock<Arc<Built>>,
    /// What was read last, whether it fitted or not: every version is complained of once.
    tried: Mutex<Result<Texts, String>>,
    rejected: AtomicBool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({})", self.name)
    }
}

impl Tls {
    /// Reads the files. `name` (`client` or `peer`) is a label of metrics and log lines; `side` is
    /// that side of `common`, with files in place of what is made here.
    ///
    /// # Errors
    /// A file that cannot be read or does not fit, by name.
    pub fn load(
        name: &'static str,
        side: TlsSide,
        common: &config::Tls,
    ) -> Result<Arc<Self>, TlsError> {
        let texts = Texts::read(&side)?;
        let built = Built::new(&side, common, &texts)?;
        for warning in &built.warnings {
            tracing::warn!(listener = name, "{warning}");
        }
        Ok(Arc::new(Self {
            name,
            side,
            common: common.clone(),
            current: RwLock::new(Arc::new(built)),
            tried: Mutex::new(Ok(texts)),
            rejected: AtomicBool::new(false),
        }))
    }

    /// `client` or `peer`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Reads the files on `runtime` from now on until it ends.
    pub fn follow_files(self: &Arc<Self>, runtime: &Handle) {
        let tls = Arc::clone(self);
        runtime.spawn(async move {
            let mut tick = tokio::time::interval(READ_PERIOD);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                let tls = Arc::clone(&tls);
                // An error means that the runtime is ending.
                let _ = tokio::task::spawn_blocking(move || tls.reload()).await;
            }
        });
    }

    /// Reads the files; what changed and fits is used from the next handshake on, what does not fit
    /// is refused with a warning and the old one stays in force. Blocks on files.
    pub fn reload(&self) {
        let read = Texts::read(&self.side).map_err(|error| error.to_string());
        let mut tried = self.tried.lock();
        if *tried == read {
            return;
        }
        let built = match &read {
            Ok(texts) => {
                Built::new(&self.side, &self.common, texts).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.clone()),
        };
        *tried = read;
        drop(tried);
        self.rejected.store(built.is_err(), Relaxed);
        match built {
            Ok(built) => {
                tracing::info!(listener = self.name, "certificate files changed and are in use");
                *self.current.write() = Arc::new(built);
            }
            Err(error) => tracing::warn!(
                listener = self.name,
                error,
                "certificate files changed and do not fit: the old ones stay in use; repair the \
                 files before those expire"
            ),
        }
    }

    /// Whether the files on disk are not the ones in use because they do not fit.
    pub fn is_rejecting_files(&self) -> bool {
        self.rejected.load(Relaxed)
    }

    /// Validity of every certificate in use.
    pub fn dates(&self) -> Vec<Dates> {
        self.current().dates.clone()
    }

    /// How to dial another member: shows our certificate, demands one of the trusted authorities
    /// that is valid for the dialled name and passes the allowed lists. ALPN offers HTTP/2. To be
    /// asked for before every connection: certificates change.
    ///
    /// # Errors
    /// When there are no authorities to check a member with.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        self.current().dial.clone().ok_or_else(|| {
            TlsError::Settings(
                "members cannot be dialled over TLS: --peer-trusted-ca-file is missing".into(),
            )
        })
    }

    /// Does the client's side of a handshake with the member `host` (a name or an address).
    ///
    /// # Errors
    /// As [`Tls::client_config`]; what the handshake says (see [`Failure::of`]); a member that does
    /// not finish within [`super::HANDSHAKE_DEADLINE`].
    pub async fn dial<S>(
        &self,
        host: &str,
        socket: S,
    ) -> io::Result<tokio_rustls::client::TlsStream<S>>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let config = self.client_config().map_err(io::Error::other)?;
        shake_hands(config, host, socket).await
    }

    fn current(&self) -> Arc<Built> {
        Arc::clone(&self.current.read())
    }
}

/// The client's side of a handshake with `host`, a name or an address.
async fn shake_hands<S>(
    config: Arc<ClientConfig>,
    host: &str,
    socket: S,
) -> io::Result<tokio_rustls::client::TlsStream<S>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let name = rustls::pki_types::ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let shake = tokio_rustls::TlsConnector::from(config).connect(name, socket);
    match tokio::time::timeout(super::limits::HANDSHAKE_DEADLINE, shake).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake does not end")),
    }
}
