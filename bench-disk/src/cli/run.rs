//! `bench-disk run`: measure now, whatever is stored, and leave the verdict for the node.

use crate::cli::exit;
use crate::cli::measuring;
use crate::cli::outputs::Outputs;
use crate::cli::signals;
use crate::cli::terminal::Bar;
use bench_disk::ProbeError;
use bench_disk::env::Environment;
use bench_disk::judge::Outcome;
use bench_disk::lock::{self, RunDir};
use bench_disk::profile::Profile;
use bench_disk::report::printable;
use bench_disk::verdict::Verdict;
use bench_disk::{identity, place, probe};
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The standard profile with all its phases, twice: whoever soaks a disk wants it alone.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(500);

#[derive(Args)]
#[command(after_help = "Exit codes: 0 PASS, 1 FAIL, 2 usage, 3 INCONCLUSIVE, 4 REFUSED, \
    5 I/O error, 6 interrupted.\n\nExisting files are never touched. The verdict is left beside \
    the directory as .NAME.disk-verdict.json, where a node looks for it.")]
pub(crate) struct Arguments {
    /// Directory that will hold the data; if it does not exist, its nearest parent is measured
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// boot: what a node does at its first start; quick: 20 s; standard: one to three minutes;
    /// soak: until burst allowances are spent, up to two hours; fio: the known recipe; or a JSON file
    #[arg(long, default_value = "standard", value_parser = profile, value_name = "NAME|FILE")]
    profile: Profile,
    /// Limit for the 99th percentile of a sync
    #[arg(long, default_value = "10ms", value_parser = duration, value_name = "TIME")]
    threshold: Duration,
    #[command(flatten)]
    measuring: measuring::Options,
    /// Where to leave the verdict for the node
    #[arg(long, value_name = "F")]
    verdict_file: Option<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A node runs here.
    #[error("{} is held by a running node ({} is locked): stop it first", directory.display(), lock.display())]
    Live { directory: PathBuf, lock: PathBuf },
    /// The arguments do not fit together, or name nothing.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The result is known but could not be written.
    #[error("cannot write {what}: {source}")]
    Output { what: String, source: io::Error },
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    signals::listen();
    arguments.outputs.check()?;
    let profile = arguments.measuring.plan(&arguments.profile);
    unheld(&arguments.dir, arguments.measuring.live)?;
    let mut environment = Environment::inspect(&arguments.dir)?;
    // What stands in the way is told now, and looked for again when the time has come.
    if environment.refusals().next().is_none() && arguments.measuring.wait()? {
        unheld(&arguments.dir, arguments.measuring.live)?;
        environment = Environment::inspect(&arguments.dir)?;
    }
    let target = arguments.verdict_file.clone().or_else(|| place::target(&environment));
    let verdict = if environment.refusals().next().is_some() {
        probe::blank(&environment, profile.name, arguments.threshold, Outcome::Refused)
    } else {
        let verdict = measure(arguments, &profile, &environment, target.as_deref())?;
        if profile.qualifies {
            keep(&verdict, target.as_deref());
        }
        verdict
    };
    arguments.outputs.write(&environment, &verdict)?;
    Ok(match verdict.outcome {
        Outcome::Pass => exit::PASS,
        Outcome::Fail => exit::FAIL,
        Outcome::Inconclusive => exit::INCONCLUSIVE,
        Outcome::Refused => exit::REFUSED,
    })
}

/// The directory of a node at work is not measured, but for a gentle look.
pub(crate) fn unheld(directory: &Path, live: bool) -> Result<(), Failure> {
    match lock::live_node(directory) {
        Some(lock) if !live => Err(Failure::Live { directory: directory.to_path_buf(), lock }),
        _ => Ok(()),
    }
}

fn measure(
    arguments: &Arguments,
    profile: &Profile,
    environment: &Environment,
    target: Option<&Path>,
) -> Result<Verdict, Failure> {
    let run_dir = RunDir::locate();
    let identity = identity::Identity::of(environment);
    let bar = Bar::new();
    let mut show = |progress: &probe::Progress| bar.show(progress, profile.min_time);
    let _lock = match &run_dir {
        Some(run_dir) => Some(run_dir.lock_of(&identity.disk_key())?.take(
            LOCK_PATIENCE,
            &signals::INTERRUPTED,
            &mut show,
        )?),
        None => None,
    };
    // A node may have started while this waited for another probe.
    unheld(&arguments.dir, arguments.measuring.live)?;
    let mut verdict = probe::measure(
        environment,
        profile,
        arguments.threshold,
        &signals::INTERRUPTED,
        &mut show,
    )?;
    if !profile.qualifies {
        return Ok(verdict);
    }
    let files: Vec<PathBuf> =
        place::candidates(&arguments.dir, target).into_iter().map(|(path, _)| path).collect();
    verdict.remember(place::history(&files, run_dir.as_ref(), &identity));
    place::publish(run_dir.as_ref(), &verdict);
    Ok(verdict)
}

/// Leaves the verdict for the node. A place that cannot be written does not change the answer.
fn keep(verdict: &Verdict, target: Option<&Path>) {
    match target {
        Some(target) => {
            if let Err(error) = verdict.store(target) {
                let error = printable(&error.to_string());
                eprintln!("bench-disk: {error}; name another place with --verdict-file");
            }
        }
        None => eprintln!("bench-disk: no place beside this directory; use --verdict-file"),
    }
}

pub(crate) fn profile(name: &str) -> Result<Profile, String> {
    Profile::named(name).map_err(|error| error.to_string())
}

/// A number with `us`, `ms` or `s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(format!("{text:?} is no number with a unit us, ms or s, such as 10ms")),
    };
    let value: f64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    Duration::try_from_secs_f64(value * scale)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("{text:?} is out of range"))
}
