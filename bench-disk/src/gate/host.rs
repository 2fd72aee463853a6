//! What the gate needs from a host, so that its table can be tested without disks.

use crate::ProbeError;
use crate::env::Environment;
use crate::lock::RunDir;
use crate::place::{self, Question};
use crate::probe::{self, Progress};
use crate::profile::Profile;
use crate::verdict::{self, Verdict};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Time beyond the profile's box after which another probe counts as stuck.
const LOCK_GRACE: Duration = Duration::from_secs(30);

/// The world as the gate sees it.
pub trait Host {
    /// What lies under a directory.
    fn inspect(&mut self, directory: &Path) -> Result<Environment, ProbeError>;

    /// Seconds since 1970.
    fn now(&mut self) -> u64;

    /// A verdict of the last minutes about this device, else a new measurement; the flag tells
    /// that nothing was measured. `files` are places that remember earlier runs.
    fn fresh_or_measure(
        &mut self,
        environment: &Environment,
        profile: &Profile,
        limit: Duration,
        question: &Question<'_>,
        files: &[PathBuf],
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(Verdict, bool), ProbeError>;
}

/// The real host.
#[derive(Debug)]
pub(crate) struct Real {
    interrupt: Arc<AtomicBool>,
}

impl Real {
    /// A host whose probes end when `interrupt` is set.
    pub(crate) fn new(interrupt: Arc<AtomicBool>) -> Self {
        Self { interrupt }
    }
}

impl Host for Real {
    fn inspect(&mut self, directory: &Path) -> Result<Environment, ProbeError> {
        Environment::inspect(directory)
    }

    fn now(&mut self) -> u64 {
        verdict::unix_now()
    }

    fn fresh_or_measure(
        &mut self,
        environment: &Environment,
        profile: &Profile,
        limit: Duration,
        question: &Question<'_>,
        files: &[PathBuf],
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(Verdict, bool), ProbeError> {
        let run_dir = RunDir::locate();
        if let Some(verdict) = question.fresh(run_dir.as_ref()) {
            return Ok((verdict, true));
        }
        locked(run_dir.as_ref(), question, profile, &self.interrupt, progress, |progress| {
            let mut verdict =
                probe::measure(environment, profile, limit, &self.interrupt, progress)?;
            verdict.remember(place::history(files, run_dir.as_ref(), question.identity));
            place::publish(run_dir.as_ref(), &verdict);
            Ok(verdict)
        })
    }
}

/// Runs `measure` as the only probe of the disk. While another one runs, its verdict is waited
/// for and used; the flag tells so.
fn locked(
    run_dir: Option<&RunDir>,
    question: &Question<'_>,
    profile: &Profile,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
    measure: impl FnOnce(&mut dyn FnMut(&Progress)) -> Result<Verdict, ProbeError>,
) -> Result<(Verdict, bool), ProbeError> {
    let Some(directory) = run_dir else { return Ok((measure(progress)?, false)) };
    let lock = directory.lock_of(&question.identity.disk_key())?;
    let lock = lock.take(profile.time_box + LOCK_GRACE, interrupt, progress)?;
    // Whoever held the lock may have answered meanwhile, or between our look and our lock.
    let question = Question { now: verdict::unix_now(), ..*question };
    match question.fresh(run_dir) {
        Some(verdict) => Ok((verdict, true)),
        None => {
            let verdict = measure(progress)?;
            drop(lock);
            Ok((verdict, false))
        }
    }
}
