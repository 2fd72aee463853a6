//! Command line of the program: arguments, output, exit codes. One module per command.

mod colour;
mod compare;
mod explain;
mod export_fio;
mod inspect;
mod manual;
mod measuring;
mod outputs;
mod powercut;
mod run;
mod signals;
mod sweep;
mod terminal;
mod verify;

use bench_disk::ProbeError;
use bench_disk::report::printable;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Exit codes; they are part of the interface.
pub(crate) mod exit {
    pub(crate) const PASS: u8 = 0;
    pub(crate) const FAIL: u8 = 1;
    pub(crate) const USAGE: u8 = 2;
    pub(crate) const INCONCLUSIVE: u8 = 3;
    pub(crate) const REFUSED: u8 = 4;
    pub(crate) const IO: u8 = 5;
    pub(crate) const INTERRUPTED: u8 = 6;
}

/// Finds out whether a directory's disk is fit for a consensus log.
///
/// Nodes of etcd-like stores wait for a synced append before they acknowledge a write. This program
/// loads a disk as such a node does, measures every sync, and says with a stated confidence whether
/// the 99th percentile is within a limit (10 ms, as etcd advises). It leaves a verdict with which a
/// node starts without measuring again.
#[derive(Parser)]
#[command(name = "bench-disk", version, arg_required_else_help = true, max_term_width = 80,
    after_long_help = TUTORIAL)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What a first-time reader needs, below the list of commands.
const TUTORIAL: &str = "\
Before an installation:
  bench-disk inspect --dir /var/lib/etcd    what is this disk? (reads only)
  bench-disk run --dir /var/lib/etcd        is it fast enough? (1 to 3 minutes)
  bench-disk verify --dir /var/lib/etcd     does the stored answer still hold?
  bench-disk explain CODE                   what a [code] in a report means

For a cluster:
  bench-disk run --dir D --profile soak     what remains after a burst allowance?
  bench-disk compare a.json b.json c.json   is one of the disks the odd one out?
  bench-disk sweep --dir D                  where are the knees of this disk?
  bench-disk powercut --help                is what was synced really there?

In a pipeline:
  bench-disk run --dir D --json result.json || exit 1
  jq -e '.outcome == \"PASS\"' result.json

Existing files are never touched, and a directory that a running node holds is
left alone. The verdict stands beside the directory, as .NAME.disk-verdict.json,
so that an empty directory stays empty.

Exit codes: 0 PASS, 1 FAIL, 2 usage, 3 INCONCLUSIVE, 4 REFUSED, 5 I/O error,
6 interrupted.

Environment: BENCH_DISK_RUN_DIR names the directory in which probes of one host
meet (default /run/bench-disk); NO_COLOR switches colour off.";

#[derive(Subcommand)]
enum Command {
    /// Measure a directory's disk and say PASS, FAIL or INCONCLUSIVE.
    Run(Box<run::Arguments>),
    /// Show what lies under a directory and what each part of it means; writes nothing.
    Inspect(inspect::Arguments),
    /// Say whether a stored verdict holds for this device now, and if not, why.
    Verify(verify::Arguments),
    /// Say what a finding means and what to do about it.
    Explain(explain::Arguments),
    /// Compare the results of sibling nodes and name the odd one out.
    Compare(compare::Arguments),
    /// Curves over append size, parallel committers and ways to get space.
    Sweep(sweep::Arguments),
    /// Prove by a power cut that syncs are durable: write, witness, verify.
    Powercut(powercut::Arguments),
    /// Print the same load as a fio job file.
    ExportFio(Box<export_fio::Arguments>),
    /// Print a manual page.
    #[command(hide = true)]
    Manual(manual::Arguments),
}

pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let shown = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return ExitCode::from(if shown { exit::PASS } else { exit::USAGE });
        }
    };
    let done = match &arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Sweep(arguments) => sweep::run(arguments),
        Command::Powercut(arguments) => powercut::run(arguments),
        Command::ExportFio(arguments) => export_fio::run(arguments),
        Command::Manual(arguments) => manual::run(arguments),
    };
    ExitCode::from(match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench-disk: {}", printable(&error.to_string()));
            code(&error)
        }
    })
}

fn code(error: &run::Failure) -> u8 {
    match error {
        run::Failure::Live { .. } | run::Failure::Usage(_) => exit::USAGE,
        run::Failure::Probe(ProbeError::NotADirectory(_)) => exit::USAGE,
        run::Failure::Probe(ProbeError::Interrupted) => exit::INTERRUPTED,
        run::Failure::Probe(_) | run::Failure::Output { .. } => exit::IO,
    }
}
