//! What can go wrong in a run; every kind ends it, since figures after a fault mean nothing.

use std::io;
use std::path::PathBuf;

/// A fault that ends the run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's word.
        source: io::Error,
    },
    /// A server broke the protocol, or asked for a part of it that this client does not have.
    #[error("connection to {server}: {what}")]
    Protocol {
        /// Address of the server.
        server: String,
        /// What came.
        what: String,
    },
    /// A server answered with an error or too little.
    #[error("wrong answer: {0}")]
    Answer(String),
    /// A server did not start, or ended.
    #[error("{what}; the end of its log {log}:\n{end}")]
    Server {
        /// What happened.
        what: String,
        /// Its log file.
        log: PathBuf,
        /// Last lines.
        end: String,
    },
    /// The command line or the machine does not allow the run.
    #[error("{0}")]
    Setup(String),
}

/// Result of everything here.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Adds what was being done to an I/O error.
pub(crate) trait During<T> {
    /// `what` is a noun phrase, for example "write of FILE".
    fn during(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { what: what(), source })
    }
}

impl<T> During<T> for nix::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|errno| Error::Io { what: what(), source: errno.into() })
    }
}
