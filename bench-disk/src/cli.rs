//! Command line of the program: arguments, output, exit codes. One module per command.

mod compare;
mod measuring;
mod powercut;
mod run;
mod say;
mod signals;
mod sweep;
mod terminal;

use bench_disk::ProbeError;
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
#[derive(Parser)]
#[command(name = "bench-disk", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a directory's disk and say PASS, FAIL or INCONCLUSIVE.
    Run(run::Arguments),
    /// Compare the results of sibling nodes and name the odd one out.
    Compare(compare::Arguments),
    /// Curves over append size, parallel committers and ways to get space.
    Sweep(sweep::Arguments),
    /// Prove by a power cut that syncs are durable: write, witness, verify.
    Powercut(powercut::Arguments),
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
    let result = match &arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Sweep(arguments) => sweep::run(arguments),
        Command::Powercut(arguments) => powercut::run(arguments),
    };
    ExitCode::from(match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench-disk: {error}");
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
