//! Is the device quiet? A disk that others keep busy cannot be judged.

use crate::ProbeError;
use crate::env::{Environment, block};
use crate::finding::Finding;
use crate::probe::{OnProgress, Phase, Progress};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Share of time with requests in flight above which a device counts as busy.
const BUSY: f64 = 0.2;

/// Length of one look.
const WINDOW: Duration = Duration::from_millis(250);

/// How long a device may take to calm down after a FAIL: our own leftovers have to drain.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// Length of the look after that. Others often write in bursts.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// The quietest look.
#[derive(Clone, Copy, Debug)]
pub struct Quiet {
    /// Share of time busy, 0 to 1; `None` if the kernel does not tell.
    pub busy: Option<f64>,
}

impl Quiet {
    /// The finding for a device that never was quiet.
    pub fn contaminated(&self, when: &str) -> Option<Finding> {
        let busy = self.busy.filter(|&busy| busy > BUSY)?;
        let text = format!(
            "contaminated: {:.0} % busy by others {when}; try again when the device is quiet",
            busy * 100.0
        );
        Some(Finding::warn("contaminated", text))
    }
}

/// Looks until the device is quiet for one window, at most for `patience`.
pub(super) fn wait(
    environment: &Environment,
    patience: Duration,
    interrupt: &AtomicBool,
    progress: &mut OnProgress<'_>,
) -> Result<Quiet, ProbeError> {
    let began = Instant::now();
    let mut least: Option<f64> = None;
    loop {
        let Some(busy) = look(environment, WINDOW, interrupt)? else {
            return Ok(Quiet { busy: None });
        };
        least = Some(least.map_or(busy, |least| least.min(busy)));
        if busy <= BUSY || began.elapsed() >= patience {
            return Ok(Quiet { busy: least });
        }
        progress(&Progress {
            phase: Phase::Quiet,
            samples: 0,
            exceeded: 0,
            target: 0,
            elapsed: began.elapsed(),
            time_box: patience,
            p99: None,
        });
    }
}

/// After a FAIL: lets our own leftovers drain, then looks whether others are at work.
pub(super) fn afterwards(
    environment: &Environment,
    interrupt: &AtomicBool,
    progress: &mut OnProgress<'_>,
) -> Result<Quiet, ProbeError> {
    let drained = wait(environment, AFTERWARDS, interrupt, progress)?;
    match drained.busy {
        Some(busy) if busy <= BUSY => {
            Ok(Quiet { busy: look(environment, SECOND_LOOK, interrupt)? })
        }
        _ => Ok(drained),
    }
}

/// Share of a window in which the busiest disk had requests in flight.
fn look(
    environment: &Environment,
    window: Duration,
    interrupt: &AtomicBool,
) -> Result<Option<f64>, ProbeError> {
    let (start, before) = (Instant::now(), busy_ms(environment));
    std::thread::sleep(window);
    if interrupt.load(Ordering::Relaxed) {
        return Err(ProbeError::Interrupted);
    }
    let elapsed = start.elapsed().as_secs_f64() * 1e3;
    let (Some(before), Some(after)) = (before, busy_ms(environment)) else { return Ok(None) };
    let busiest = before.iter().zip(&after).map(|(b, a)| a.saturating_sub(*b)).max();
    Ok(Some((busiest.unwrap_or(0) as f64 / elapsed).min(1.0)))
}

/// Share of a run with tasks waiting for a processor above which slow syncs prove nothing about
/// the disk, unless most of them are slow.
const STARVED: f64 = 0.5;

/// Microseconds since boot in which some task of the machine waited for a processor; `None` if the
/// kernel keeps no account.
pub(super) fn starved_us(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/pressure/cpu")).ok()?;
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// The finding for a run on a machine without free processors.
pub(super) fn starved(before: Option<u64>, after: Option<u64>, run: Duration) -> Option<Finding> {
    let waited = Duration::from_micros(after?.checked_sub(before?)?);
    let share = (waited.as_secs_f64() / run.as_secs_f64()).min(1.0);
    let text = format!(
        "contaminated: tasks waited for a processor in {:.0} % of the run, so slow syncs may not \
         be the disk's; try again when the machine is less busy",
        share * 100.0
    );
    (share > STARVED).then(|| Finding::warn("processor-busy", text))
}

fn busy_ms(environment: &Environment) -> Option<Vec<u64>> {
    let root = Path::new("/");
    let counts: Option<Vec<u64>> = environment
        .leaves
        .iter()
        .map(|leaf| block::stat(root, &leaf.name).map(|stat| stat.busy_ms))
        .collect();
    counts.filter(|counts| !counts.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_pressure_is_read_and_judged_by_its_share_of_the_run() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(starved_us(root.path()), None);
        std::fs::create_dir_all(root.path().join("proc/pressure")).expect("made");
        let text = "some avg10=0.00 avg60=1.00 avg300=2.00 total=1234\nfull avg10=0.00 total=9\n";
        std::fs::write(root.path().join("proc/pressure/cpu"), text).expect("written");
        assert_eq!(starved_us(root.path()), Some(1_234));
        let second = Duration::from_secs(1);
        assert_eq!(starved(Some(0), Some(400_000), second), None);
        assert_eq!(starved(None, Some(900_000), second), None);
        let finding = starved(Some(0), Some(900_000), second).expect("starved");
        assert!(finding.text.contains("90 %"), "{finding:?}");
    }
}
