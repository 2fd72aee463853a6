//! What the probe says about a disk against what a running node then finds there. See
//! `../../README.md`.
//!
//! Prints every round and the medians, and ends with 1 if on some disk the probe's p99 is more than
//! 25 % away from the node's.
#![allow(clippy::disallowed_methods, reason = "a benchmark has its own clock and files")]

mod disks;
#[path = "../../../bench-disk/tests/support/memory_fs.rs"]
mod memory_fs;
mod runs;
mod starts;
mod steady;

use clap::Parser;
use disks::{Disk, Kind};
use runs::{Figures, Programs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Allowed difference of the medians of p99, in percent.
const TOLERANCE: f64 = 25.0;

/// Compares the disk probe with a running node.
#[derive(Parser)]
enum Command {
    /// The probe's p99 of a sync against the node's own
    Syncs(Arguments),
    /// What the disk gate adds to a start
    Starts(starts::Arguments),
    /// What both say about a disk whose syncs all take the same time
    Steady(steady::Arguments),
}

/// Which disks, how long, how hard.
#[derive(clap::Args)]
struct Arguments {
    /// Directory on the disk to compare on; images are made there too
    #[arg(long, value_name = "D", default_value = "target/probe-predicts")]
    dir: PathBuf,
    /// Disks, separated by commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_values_t = [Kind::Plain, Kind::Throttled, Kind::Fuse]
    )]
    disk: Vec<Kind>,
    /// Rounds; each measures both, in turn the one and the other first
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Seconds of the node's load in each round
    #[arg(long, default_value_t = 8)]
    seconds: u32,
    /// Puts in flight of that load: 1, 64 or 1024
    #[arg(long, default_value_t = 64)]
    in_flight: u32,
    /// Writes per second of the throttled disk
    #[arg(long, default_value_t = 2_000)]
    write_iops: u32,
    /// Microseconds that a flush of the disk in memory takes
    #[arg(long, default_value_t = 2_000)]
    flush_us: u64,
    /// Also writes all figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot {what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{name} failed: {message}")]
    Program { name: String, message: String },
}

impl Failure {
    fn io(what: &str) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Io { what, source }
    }
}

fn main() -> ExitCode {
    let met = match Command::parse() {
        Command::Syncs(arguments) => run(&arguments),
        Command::Starts(arguments) => starts::run(&arguments),
        Command::Steady(arguments) => steady::run(&arguments),
    };
    match met {
        Ok(true) => {
            println!("all targets met");
            ExitCode::SUCCESS
        }
        Ok(false) => {
            println!("a target is missed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("probe-predicts: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let programs = Programs::find()?;
    disks::private_mounts()?;
    let (mut met, mut all) = (true, serde_json::Map::new());
    for &kind in &arguments.disk {
        let flush = Duration::from_micros(arguments.flush_us);
        let disk = Disk::make(kind, &arguments.dir, arguments.write_iops, flush)?;
        let (mut nodes, mut probes) = (Vec::new(), Vec::new());
        // A node has to run first: its recording is what the probe replays.
        runs::node(&programs, &disk.directory, arguments.seconds, arguments.in_flight)?;
        for round in 0..arguments.rounds {
            // In turn the one and the other first: a disk that changes hits both.
            for node in [round.is_multiple_of(2), !round.is_multiple_of(2)] {
                let (seconds, in_flight) = (arguments.seconds, arguments.in_flight);
                let (name, figures, list) = match node {
                    true => (
                        "node",
                        runs::node(&programs, &disk.directory, seconds, in_flight)?,
                        &mut nodes,
                    ),
                    false => ("probe", runs::probe(&programs, &disk.directory)?, &mut probes),
                };
                println!("{:<9} round {round} {name:<5} {figures}", kind.name(),);
                list.push(figures);
            }
        }
        met &= compare(kind.name(), "p50", &nodes, &probes, |figures| figures.p50_us, None);
        met &=
            compare(kind.name(), "p99", &nodes, &probes, |figures| figures.p99_us, Some(TOLERANCE));
        all.insert(
            kind.name().into(),
            serde_json::json!({
                "node": nodes.iter().map(Figures::json).collect::<Vec<_>>(),
                "probe": probes.iter().map(Figures::json).collect::<Vec<_>>(),
            }),
        );
    }
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", serde_json::Value::Object(all));
        std::fs::write(path, text).map_err(Failure::io("write the figures"))?;
    }
    Ok(met)
}

/// Prints the medians and how far the probe's is from the node's; `false` beyond the tolerance.
fn compare(
    disk: &str,
    name: &str,
    nodes: &[Figures],
    probes: &[Figures],
    value: fn(&Figures) -> f64,
    tolerance: Option<f64>,
) -> bool {
    let (node, probe) = (median(nodes, value), median(probes, value));
    let percent = (probe / node - 1.0) * 100.0;
    println!("{disk:<9} {name}: node {node:.0} us, probe {probe:.0} us, {percent:+.1} %");
    tolerance.is_none_or(|tolerance| percent.abs() <= tolerance)
}

fn median(rounds: &[Figures], value: fn(&Figures) -> f64) -> f64 {
    median_of(rounds.iter().map(value).collect())
}

fn median_of(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    let lower = values.len().saturating_sub(1) / 2;
    f64::midpoint(values[lower], values[upper])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_more_than_a_quarter_away_is_a_miss() {
        let rounds = |values: &[f64]| -> Vec<Figures> {
            values.iter().map(|&p99_us| Figures { p99_us, ..Figures::default() }).collect()
        };
        assert_eq!(median(&rounds(&[9.0, 1.0, 5.0]), |round| round.p99_us), 5.0);
        let met = |probe| {
            let (nodes, probes) = (rounds(&[100.0]), rounds(&[probe]));
            compare("d", "p99", &nodes, &probes, |round| round.p99_us, Some(TOLERANCE))
        };
        assert!(met(124.0) && met(76.0));
        assert!(!met(126.0) && !met(74.0));
    }
}
