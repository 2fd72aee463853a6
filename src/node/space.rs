//! Watches free space: refuses client writes before the file system is full, and keeps a ballast
//! to give back when it is.
//!
//! Below `--min-free-bytes` writes that need space get an error while deletes, compaction and the
//! log go on; room made on the file system is noticed within a second and the node goes on without
//! a restart (`operations.md` 3).

use super::data_dir::BALLAST_FILE;
use crate::disk::{Disk, Fault, Open};
use crate::telemetry::io::FileKind;
use crate::telemetry::node_metrics::NodeMetrics;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Space held back for the moment when the file system is full: about one log segment, enough for
/// the store to commit what was accepted before.
pub(super) const BALLAST_BYTES: u64 = 64 << 20;
/// How often free space is looked at. A disk that writes 256 MiB, the default reserve, within
/// this time is faster than anything the log could fill.
const PERIOD: Duration = Duration::from_secs(1);

/// The watcher of one data directory.
pub(super) struct Space {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) min_free: u64,
    pub(super) metrics: Arc<NodeMetrics>,
    pub(super) stop: Arc<AtomicBool>,
}

/// Gives the ballast back; false if there is none.
pub(super) fn release(disk: &dyn Disk, dir: &Path) -> Result<bool, Fault> {
    let ballast = dir.join(BALLAST_FILE);
    if !disk.exists(&ballast)? {
        return Ok(false);
    }
    disk.remove(&ballast, FileKind::Ballast)?;
    tracing::warn!(
        bytes = BALLAST_BYTES,
        "free space is far below the reserve: the ballast was released"
    );
    Ok(true)
}

impl Space {
    /// Looks once, before the node serves: a full disk refuses writes from the first one on.
    pub(super) fn look(&self) -> Result<(), Fault> {
        let free = self.disk.free(&self.dir)?;
        let m = &self.metrics;
        m.free_bytes.store(free.bytes, Relaxed);
        m.free_inodes.store(free.inodes, Relaxed);
        let ballast = self.dir.join(BALLAST_FILE);
        let has_ballast = self.disk.exists(&ballast)?;
        let short = free.bytes < self.min_free;
        if m.space_refused.swap(u64::from(short), Relaxed) != u64::from(short) {
            if short {
                tracing::warn!(
                    free_bytes = free.bytes,
                    min_free_bytes = self.min_free,
                    dir = %self.dir.display(),
                    "free space is below the reserve: client writes are refused, deletes and \
                     compaction go on; make room on the file system"
                );
            } else {
                tracing::info!(free_bytes = free.bytes, "enough free space again: writes go on");
            }
        }
        // Released at half the reserve, so that the log and the store never meet a full disk while
        // somebody else fills it; rebuilt when there is room for it beside the reserve.
        if has_ballast && self.min_free > 0 && free.bytes < self.min_free / 2 {
            release(&*self.disk, &self.dir)?;
        } else if !has_ballast && free.bytes > self.min_free + 2 * BALLAST_BYTES {
            let file = self.disk.open(&ballast, FileKind::Ballast, Open::CreateNew)?;
            file.allocate(BALLAST_BYTES)?;
        }
        Ok(())
    }

    /// Body of the `space` thread.
    pub(super) fn run(self) {
        while !self.stop.load(Relaxed) {
            std::thread::park_timeout(PERIOD);
            if let Err(error) = self.look() {
                // Losing the view of free space is no reason to stop: a write that fails is.
                tracing::warn!(%error, "cannot watch free space");
            }
        }
    }
}
