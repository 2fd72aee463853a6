//! A node with certificates, and the files it reads.

use crate::client::Client;
use crate::common::{Authority, Cert, Identity, Launch};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An authority, a server certificate signed by it, and the directory of the files.
pub(crate) struct Files {
    pub(crate) dir: TempDir,
    pub(crate) ca: Authority,
}

impl Files {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("assay-pki-").tempdir().expect("temp dir");
        let files = Self { dir, ca: Authority::new("test authority") };
        files.write("ca.crt", &files.ca.pem());
        files.server(&files.ca);
        files
    }

    /// Writes the server's certificate, signed by `ca`.
    pub(crate) fn server(&self, ca: &Authority) -> Identity {
        let identity = ca.issue(&Cert::named("server").hosts(&["127.0.0.1", "localhost"]));
        identity.write(self.path(), "server");
        identity
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).expect("write a file");
    }

    /// `--NAME=FILE` for a file of this directory.
    pub(crate) fn flag(&self, name: &str, file: &str) -> String {
        format!("--{name}={}", self.file(file).display())
    }

    /// A node that shows the server's certificate on every port and asks clients for nothing.
    pub(crate) fn launch(&self) -> Launch {
        Launch::subject()
            .tls([true; 3])
            .arg(self.flag("cert-file", "server.crt"))
            .arg(self.flag("key-file", "server.key"))
            .arg(self.flag("peer-cert-file", "server.crt"))
            .arg(self.flag("peer-key-file", "server.key"))
    }

    /// The same, demanding certificates of the authority on every port.
    pub(crate) fn launch_mutual(&self) -> Launch {
        self.launch()
            .arg("--client-cert-auth")
            .arg(self.flag("trusted-ca-file", "ca.crt"))
            .arg("--peer-client-cert-auth")
            .arg(self.flag("peer-trusted-ca-file", "ca.crt"))
    }

    /// A client that trusts the authority.
    pub(crate) fn client(&self) -> Client {
        Client::trusting(Some(&self.ca.pem()))
    }
}
