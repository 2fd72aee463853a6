//! TLS of this process: files or self-signed certificates, for the client side and the peer side.

use assay::config::{self, Config, TlsSide, UrlList};
use assay::disk::{Disk, Fault, Open};
use assay::edge::tls::{self, Tls, TlsError};
use assay::edge::{Bound, Port};
use assay::telemetry::io::FileKind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Directory of self-signed certificates below the data directory, as etcd names it.
const FIXTURES: &str = "fixtures";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// Files that do not fit.
    #[error("TLS of the {name} port: {source}")]
    Tls { name: &'static str, source: TlsError },
    /// The self-signed certificate cannot be kept.
    #[error("cannot keep the self-signed certificate: {0}")]
    Keep(#[from] Fault),
}

/// TLS of both sides, where it was asked for.
#[derive(Default)]
pub(crate) struct Sides {
    pub(crate) client: Option<Arc<Tls>>,
    pub(crate) peer: Option<Arc<Tls>>,
}

impl Sides {
    /// Both, where they exist.
    pub(crate) fn all(&self) -> Vec<&Arc<Tls>> {
        self.client.iter().chain(&self.peer).collect()
    }

    /// Gives sockets what they need. The metrics port has the client port's certificate.
    pub(crate) fn secure(&self, bound: &mut [Bound]) {
        for bound in bound {
            let side = match bound.port() {
                Port::Client | Port::Metrics => &self.client,
                Port::Peer => &self.peer,
            };
            if let Some(tls) = side {
                bound.secure(tls);
            }
        }
    }

    /// Reads changed files from now on.
    pub(crate) fn follow_files(&self, runtime: &Handle) {
        self.all().into_iter().for_each(|tls| tls.follow_files(runtime));
    }
}

/// Loads every side that comes from files: before anything is bound, so that a wrong file is a clear
/// error without side effects.
pub(crate) fn from_files(config: &Config) -> Result<Sides, SetupError> {
    let load = |name, side: &TlsSide| match &side.identity {
        Some(_) => self::load(name, side.clone(), &config.tls).map(Some),
        None => Ok(None),
    };
    Ok(Sides { client: load("client", &config.tls.client)?, peer: load("peer", &config.tls.peer)? })
}

/// Adds the sides that sign their own certificate; it is kept in the data directory, which must be
/// ours by now.
pub(crate) fn add_self_signed(
    sides: &mut Sides,
    config: &Config,
    disk: &dyn Disk,
) -> Result<(), SetupError> {
    let (client, peer) = (&config.tls.client, &config.tls.peer);
    let listen = &config.listen;
    if client.is_self_signed() {
        let urls = [&listen.client, &listen.metrics];
        sides.client = Some(self_signed("client", client, &urls, config, disk)?);
    }
    if peer.is_self_signed() {
        sides.peer = Some(self_signed("peer", peer, &[&listen.peer], config, disk)?);
    }
    Ok(())
}

fn self_signed(
    name: &'static str,
    side: &TlsSide,
    urls: &[&UrlList],
    config: &Config,
    disk: &dyn Disk,
) -> Result<Arc<Tls>, SetupError> {
    let dir = config.paths.data_dir.join(FIXTURES).join(name);
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    let mut side = TlsSide { identity: Some((cert.clone(), key.clone())), ..side.clone() };
    // The key of a peer dials as well.
    side.dial_identity = None;
    if tls::still_valid(&cert)
        && let Ok(kept) = load(name, side.clone(), &config.tls)
    {
        return Ok(kept);
    }
    let urls = urls.iter().flat_map(|list| &list.0).filter(|url| !url.is_unix());
    let hosts: BTreeSet<String> = urls.map(|url| url.host().to_string()).collect();
    let hosts: Vec<String> = hosts.into_iter().filter(|host| !host.is_empty()).collect();
    let made = tls::self_signed(&hosts, config.tls.self_signed_years)
        .map_err(|source| SetupError::Tls { name, source })?;
    disk.create_dir(&dir)?;
    write(disk, &key, made.key.as_bytes())?;
    write(disk, &cert, made.cert.as_bytes())?;
    disk.sync_dir(&dir, FileKind::Meta)?;
    tracing::info!(
        path = %cert.display(),
        years = config.tls.self_signed_years,
        "made a self-signed certificate; clients cannot tell who signed it"
    );
    load(name, side, &config.tls)
}

/// Replaces a file as a whole.
fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), Fault> {
    let new: PathBuf = path.with_extension("new");
    let file = disk.open(&new, FileKind::Meta, Open::CreateOrOpen)?;
    file.set_len(0)?;
    file.write_at(bytes, 0)?;
    file.sync_all()?;
    disk.rename(&new, path, FileKind::Meta)
}

fn load(name: &'static str, side: TlsSide, common: &config::Tls) -> Result<Arc<Tls>, SetupError> {
    Tls::load(name, side, common).map_err(|source| SetupError::Tls { name, source })
}
