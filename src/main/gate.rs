//! The disk gate: asks bench-disk before anything opens the data directory.

use assay::config::Config;
use bench_disk::gate::{self, Decision, Mode, Options, Progress};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs the gate; `interrupt` ends it early.
pub(crate) fn check(config: &Config, interrupt: Arc<AtomicBool>) -> Decision {
    let dir = config.paths.data_dir.display().to_string();
    let mut said = false;
    // Only a disk without a stored verdict that holds gets here.
    let progress = move |_: &Progress| {
        if !std::mem::replace(&mut said, true) {
            tracing::info!(
                dir,
                "disk gate: there is no verdict that holds; measuring the disk, up to 60 s"
            );
        }
    };
    // The flag was validated against the same four words.
    let mode = config.gate.mode.parse().unwrap_or(Mode::Enforce);
    gate::check(Options {
        data_dir: config.paths.data_dir.clone(),
        wal_dir: config.paths.wal_dir_explicit.then(|| config.paths.wal_dir.clone()),
        mode,
        p99_limit: config.gate.p99,
        verdict_file: config.gate.verdict_file.clone(),
        progress: Some(Box::new(progress)),
        interrupt,
    })
}
