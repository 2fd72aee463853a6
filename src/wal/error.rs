//! What can go wrong with the log, and what to do about it.

use std::path::PathBuf;

use thiserror::Error;

use crate::disk::Fault;

/// An error of the log. Only [`WalError::NoSpace`] may be answered by trying again; after any other
/// the writer is finished.
#[derive(Debug, Error)]
pub enum WalError {
    /// A file operation failed.
    #[error("write-ahead log: {0}")]
    Fault(#[from] Fault),
    /// No room for another segment. Nothing of the batch counts; append it again when there is.
    #[error("write-ahead log: no room for a segment: {0}; free space in this file system")]
    NoSpace(Fault),
    /// Something that was on disk is not readable any more.
    #[error(
        "write-ahead log: {} is damaged at byte {offset}: {what}; nothing was changed; restore this \
         member from a backup, or remove it from the cluster and add it again with an empty directory",
        .path.display()
    )]
    Damage {
        /// The damaged segment.
        path: PathBuf,
        /// Offset of the first bad frame in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// One entry is larger than a frame may be.
    #[error(
        "write-ahead log: entry {index} has {bytes} bytes, the limit is {}",
        super::MAX_ENTRY_BYTES
    )]
    TooLarge {
        /// Its index.
        index: u64,
        /// Bytes of data and context.
        bytes: u64,
    },
    /// The caller left out entries.
    #[error("write-ahead log: entry {index} does not follow {last} (log starts behind {base})")]
    Gap {
        /// Index of the entry.
        index: u64,
        /// Index of the last one.
        last: u64,
        /// Index before the first one.
        base: u64,
    },
    /// The log of another program.
    #[error(
        "write-ahead log: {} was not written by this program; choose another data directory",
        .path.display()
    )]
    Foreign {
        /// The file in question.
        path: PathBuf,
    },
    /// The log of etcd.
    #[error(
        "write-ahead log: {} belongs to etcd; convert it with `assay migrate` or choose another data \
         directory",
        .path.display()
    )]
    Etcd {
        /// The file in question.
        path: PathBuf,
    },
    /// A format from the future.
    #[error(
        "write-ahead log: {} has format {found}, this program reads up to {}; start a newer version",
        .path.display(),
        super::FORMAT
    )]
    NewerFormat {
        /// The file in question.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// There is no log to recover.
    #[error("write-ahead log: {} holds no log", .dir.display())]
    Missing {
        /// The directory.
        dir: PathBuf,
    },
    /// There is a log already.
    #[error("write-ahead log: {} holds a log already", .dir.display())]
    Exists {
        /// The directory.
        dir: PathBuf,
    },
    /// An earlier call failed.
    #[error("write-ahead log: closed by an earlier failure")]
    Failed,
}

impl WalError {
    /// Whether the files belong to another program or a newer version.
    pub fn is_foreign(&self) -> bool {
        matches!(
            self,
            WalError::Foreign { .. } | WalError::Etcd { .. } | WalError::NewerFormat { .. }
        )
    }
}
