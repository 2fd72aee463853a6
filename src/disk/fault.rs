//! The one error of this module: which operation on which file failed, and how.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::telemetry::io::IoOp;

/// A failed file operation. A fault of a write or sync is never retried: the process stops.
#[derive(Debug)]
pub struct Fault {
    /// What was attempted.
    pub op: IoOp,
    /// On which file or directory.
    pub path: PathBuf,
    /// At which byte, for reads and writes.
    pub offset: Option<u64>,
    /// What the operating system said.
    pub source: io::Error,
}

impl Fault {
    pub(super) fn new(op: IoOp, path: &Path, offset: Option<u64>, source: io::Error) -> Self {
        Fault { op, path: path.to_owned(), offset, source }
    }

    pub(super) fn poisoned(op: IoOp, path: &Path) -> Self {
        let text = "refused because an earlier write or sync of this file failed";
        Fault::new(op, path, None, io::Error::other(text))
    }

    /// Whether the file system or a quota is full.
    pub fn is_no_space(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self.source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }

    /// Whether the file or directory does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.op.as_str(), self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at {offset}")?;
        }
        write!(f, " failed: {}", self.source)
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
