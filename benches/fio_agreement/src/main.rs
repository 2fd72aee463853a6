//! The probe's `fio` load shape against real fio, in alternating rounds on the same directory.
//!
//! Prints every round and the medians, and ends with 1 if a target is missed: p50 and p99 within
//! 5 % of fio's, at most 2 microseconds of the probe's own work per sample.
#![allow(clippy::disallowed_methods, reason = "a benchmark has its own clock and files")]

mod fio;
mod ours;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Allowed difference of a median of rounds, in percent.
const TOLERANCE: f64 = 5.0;

/// Allowed work of the probe per sample.
const OVERHEAD: Duration = Duration::from_micros(2);

/// Compares the probe with fio.
#[derive(Parser)]
struct Arguments {
    /// Directory on the disk to compare on
    #[arg(long, value_name = "D", default_value = ".")]
    dir: PathBuf,
    /// Rounds per engine; the medians of these are compared
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Engine of fio: sync or psync; both if not given
    #[arg(long)]
    engine: Option<String>,
    /// fio itself
    #[arg(long, default_value = "fio")]
    fio: PathBuf,
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot run fio ({0}): install it, or name it with --fio")]
    Start(std::io::Error),
    #[error("fio failed: {0}")]
    Fio(String),
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Probe(#[from] bench_disk::ProbeError),
}

/// Figures of one round.
#[derive(Clone, Copy, Debug)]
struct Round {
    n: u64,
    p50_us: f64,
    p99_us: f64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fio-agreement: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let engines = match &arguments.engine {
        Some(engine) => vec![engine.as_str()],
        None => vec!["sync", "psync"],
    };
    let mut met = true;
    for engine in engines {
        let (mut fios, mut ours) = (Vec::new(), Vec::new());
        for round in 0..arguments.rounds {
            // In turn the one and the other first: a disk that changes hits both.
            if round.is_multiple_of(2) {
                fios.push(fio::round(&arguments.fio, engine, &arguments.dir)?);
                ours.push(ours::round(&arguments.dir)?);
            } else {
                ours.push(ours::round(&arguments.dir)?);
                fios.push(fio::round(&arguments.fio, engine, &arguments.dir)?);
            }
            if let (Some(fio), Some(ours)) = (fios.last(), ours.last()) {
                println!(
                    "{engine:<6} round {round}: fio n={} p50 {:.1} p99 {:.1}, ours n={} p50 {:.1} \
                     p99 {:.1} us",
                    fio.n, fio.p50_us, fio.p99_us, ours.n, ours.p50_us, ours.p99_us
                );
            }
        }
        met &= compare(engine, "p50", &fios, &ours, |round| round.p50_us);
        met &= compare(engine, "p99", &fios, &ours, |round| round.p99_us);
    }
    match ours::overhead()? {
        Some(overhead) => {
            println!("overhead per sample {:.2} us", overhead.as_secs_f64() * 1e6);
            met &= overhead <= OVERHEAD;
        }
        None => println!("overhead per sample not measured: /dev/shm is not in memory"),
    }
    println!("{}", if met { "all targets met" } else { "a target is missed" });
    Ok(met)
}

fn compare(
    engine: &str,
    name: &str,
    fio: &[Round],
    ours: &[Round],
    value: fn(&Round) -> f64,
) -> bool {
    let (fio, ours) = (median(fio, value), median(ours, value));
    let percent = (ours / fio - 1.0) * 100.0;
    println!("{engine:<6} {name}: fio {fio:.1} us, ours {ours:.1} us, {percent:+.1} %");
    percent.abs() <= TOLERANCE
}

fn median(rounds: &[Round], value: fn(&Round) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    let lower = values.len().saturating_sub(1) / 2;
    f64::midpoint(values[lower], values[upper])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_and_a_difference_above_five_percent_is_a_miss() {
        let rounds = |values: &[f64]| -> Vec<Round> {
            values.iter().map(|&p50_us| Round { n: 1, p50_us, p99_us: 0.0 }).collect()
        };
        assert_eq!(median(&rounds(&[9.0, 1.0, 5.0]), |round| round.p50_us), 5.0);
        assert_eq!(median(&rounds(&[1.0, 2.0]), |round| round.p50_us), 1.5);
        let met = |ours| compare("sync", "p50", &rounds(&[100.0]), &rounds(&[ours]), |r| r.p50_us);
        assert!(met(104.9) && met(95.1));
        assert!(!met(105.1) && !met(94.9));
    }
}
