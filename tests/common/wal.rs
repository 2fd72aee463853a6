//! Reads the log of a stopped node.

use assay::disk::{IoStats, OsDisk};
use assay::wal::{Entry, Options, Wal};
use std::path::Path;
use std::sync::Arc;

/// The entries of a log, as recovery sees them, from a copy: recovery writes.
pub fn entries(wal_dir: &Path) -> Vec<Entry> {
    let copy = tempfile::tempdir().expect("temp dir");
    for entry in std::fs::read_dir(wal_dir).expect("the log's directory") {
        let entry = entry.expect("an entry");
        if entry.path().extension().is_some_and(|ending| ending == "wal") {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
        }
    }
    let disk = Arc::new(OsDisk::new(Arc::new(IoStats::new())));
    let recovered = Wal::recover(disk, copy.path(), &Options::new(1), &mut |_, _| ());
    recovered.expect("the log recovers").1.entries
}
