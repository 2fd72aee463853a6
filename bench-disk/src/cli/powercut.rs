//! `bench-disk powercut`: pull the plug and see what is left.

use crate::cli::run::Failure;
use crate::cli::{exit, outputs, signals};
use bench_disk::env;
use bench_disk::powercut::{self, Ledger};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

#[derive(Args)]
#[command(after_help = "1. On a machine that keeps its power: bench-disk powercut witness \
    --listen 0.0.0.0:7400 --ledger ledger.json\n2. On the machine to test: bench-disk powercut write \
    --dir D --witness HOST:7400, and after a while pull its plug.\n3. Interrupt the witness, power \
    on, copy the ledger over: bench-disk powercut verify --dir D --ledger ledger.json\n\nExit codes \
    of verify: 0 everything acknowledged is there, 1 something is lost, 5 cannot tell.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand)]
enum Step {
    /// Sync numbered records and tell a witness, until the plug is pulled
    Write {
        /// Directory on the disk to test
        #[arg(long, value_name = "D")]
        dir: PathBuf,
        /// Address of the witness
        #[arg(long, value_name = "HOST:PORT")]
        witness: String,
        /// Give up after this many seconds and clean up
        #[arg(long, value_name = "S", default_value_t = 600)]
        seconds: u64,
    },
    /// Listen to a writer and remember what was acknowledged
    Witness {
        /// Address to listen at
        #[arg(long, value_name = "HOST:PORT")]
        listen: String,
        /// File to remember it in
        #[arg(long, value_name = "FILE")]
        ledger: PathBuf,
    },
    /// After power came back: look for everything that was acknowledged
    Verify {
        /// The writer's directory
        #[arg(long, value_name = "D")]
        dir: PathBuf,
        /// The witness' file
        #[arg(long, value_name = "FILE")]
        ledger: PathBuf,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    signals::listen();
    match &arguments.step {
        Step::Write { dir, witness, seconds } => {
            let directory = env::nearest_existing(dir)?;
            let run = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(1, |since| since.as_nanos() as u64);
            outputs::remark(
                "writing once the witness answers; pull the plug when it has seen some numbers",
            );
            let time = Duration::from_secs(*seconds);
            let interrupt = &signals::INTERRUPTED;
            let written = powercut::write(&directory, witness, run, time, interrupt)?;
            let records = written.records;
            outputs::remark(&format!(
                "{records} records, power never failed: the files are removed"
            ));
            Ok(exit::INTERRUPTED)
        }
        Step::Witness { listen, ledger } => {
            let ready = &mut |at| {
                outputs::remark(&format!("listening at {at}; interrupt this after the cut"))
            };
            match powercut::witness(listen, ledger, &signals::INTERRUPTED, ready)? {
                Some(known) => {
                    let number = known.acknowledged;
                    outputs::remark(&format!(
                        "acknowledged up to number {number}: {}",
                        ledger.display()
                    ));
                    Ok(exit::PASS)
                }
                None => Ok(exit::INTERRUPTED),
            }
        }
        Step::Verify { dir, ledger } => {
            let loss = powercut::verify(dir, &Ledger::load(ledger)?)?;
            let Some(first) = loss.first_lost else {
                outputs::say(&format!(
                    "PASS: the last {} acknowledged records are there; remove bench-disk-powercut.*\n",
                    loss.looked_for
                ))?;
                return Ok(exit::PASS);
            };
            outputs::say(&format!(
                "FAIL: {} of the last {} acknowledged records are lost, the first is number {first}: \
                 syncs do not make data durable here\n",
                loss.lost, loss.looked_for
            ))?;
            Ok(exit::FAIL)
        }
    }
}
