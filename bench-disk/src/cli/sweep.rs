//! `bench-disk sweep`: curves over sizes, committers and ways to get space.

use crate::cli::run::{Failure, LOCK_PATIENCE, unheld};
use crate::cli::{exit, outputs, signals};
use bench_disk::env::Environment;
use bench_disk::identity::Identity;
use bench_disk::lock::RunDir;
use bench_disk::report::printable;
use bench_disk::sweep;
use clap::Args;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 measured, 2 usage, 4 REFUSED, 5 I/O error, 6 interrupted.\n\nA \
    sweep gives advice and leaves no verdict."
)]
pub(crate) struct Arguments {
    /// Directory on the disk in question
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// Another directory: what would the log gain there, away from the store's commits?
    #[arg(long, value_name = "W")]
    wal_dir: Option<PathBuf>,
    /// Milliseconds per point and round; there are 14 points and 3 rounds
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    point_ms: u64,
    /// Print JSON instead of the tables
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    signals::listen();
    let mut places = Vec::new();
    for directory in [Some(&arguments.dir), arguments.wal_dir.as_ref()].into_iter().flatten() {
        unheld(directory, false)?;
        let environment = Environment::inspect(directory)?;
        if let Some(refusal) = environment.refusals().next() {
            eprintln!("bench-disk: {}", printable(&refusal.text));
            return Ok(exit::REFUSED);
        }
        places.push(environment);
    }
    let (environment, log) = (&places[0], places.get(1));
    let _lock = match RunDir::locate() {
        Some(run_dir) => Some(run_dir.lock_of(&Identity::of(environment).disk_key())?.take(
            LOCK_PATIENCE,
            &signals::INTERRUPTED,
            &mut |_| {},
        )?),
        None => None,
    };
    // A node may have started while this waited for another probe.
    for place in &places {
        unheld(&place.directory, false)?;
    }
    let terminal = std::io::stderr().is_terminal();
    let time = Duration::from_millis(arguments.point_ms);
    let result = sweep::sweep(environment, log, time, &signals::INTERRUPTED, &mut |done, all| {
        if terminal {
            eprint!("\r{done} of {all} {}", if done == all { "\n" } else { "" });
        }
    })?;
    if arguments.json {
        outputs::say_json(&result)?;
    } else {
        outputs::say(&result.render())?;
    }
    Ok(exit::PASS)
}
