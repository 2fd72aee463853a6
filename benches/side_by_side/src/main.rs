//! Compares Assay with a real etcd on the same disk in the same run. See `../README.md`.

#![allow(clippy::disallowed_methods, reason = "a benchmark owns its clocks, threads and files")]
#![allow(clippy::redundant_closure_for_method_calls, reason = "methods of types with lifetimes")]

mod closed_loop;
mod cluster;
mod connection;
mod cpu;
mod environment;
mod error;
mod http2;
mod messages;
mod nothing;
mod open_loop;
mod recording;
mod report;
mod scrape;
mod server;
mod watchers;
mod workloads;

use clap::{Parser, ValueEnum};
use cluster::figures::CLUSTER;
use environment::{Disk, Environment};
use error::{During, Error, Result};
use report::{Report, SINGLE};
use serde_json::json;
use server::{Kind, Programs, Server};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use workloads::{Bench, Sizes};

/// Share of etcd's highest measured rate at which the open loop runs.
const OPEN_SHARE: f64 = 0.5;

/// A part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Puts at 1, 64 and 1,024 in flight.
    Puts,
    /// Linearizable and serializable gets at 1 and 64 in flight.
    Gets,
    /// Ranges of 1,000 keys.
    Ranges,
    /// Many watchers of one prefix.
    Watch,
    /// Puts at a fixed rate.
    Open,
    /// Memory, restart and a listing client with a million keys.
    Many,
    /// Time without service after the death of a leader (clusters).
    Kills,
    /// Much is written at once, and what it takes in memory (clusters).
    Load,
    /// A member that missed much comes back (clusters).
    Behind,
}

impl Part {
    /// Whether it is measured on clusters, or on single servers.
    fn fits(self, cluster: bool) -> bool {
        match self {
            Self::Puts | Self::Gets | Self::Open => true,
            Self::Kills | Self::Load | Self::Behind => cluster,
            Self::Ranges | Self::Watch | Self::Many => !cluster,
        }
    }
}

/// Compares the speed, latency and memory of Assay with a real etcd.
#[derive(Debug, Parser)]
struct Options {
    /// A smoke run of less than a minute: shows that everything works, not how fast.
    #[arg(long)]
    quick: bool,
    /// Three members against three members, instead of one server against one.
    #[arg(long)]
    cluster: bool,
    /// Rounds; each measures both servers, in turn the one and the other first [default: 3].
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of each measurement [default: 5].
    #[arg(long)]
    seconds: Option<f64>,
    /// Only these parts, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Only these numbers of puts in flight.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 1_024], value_parser = in_flight)]
    in_flight: Vec<usize>,
    /// Only this server.
    #[arg(long, value_name = "assay|etcd", value_parser = ["assay", "etcd"])]
    server: Option<String>,
    /// Keys of puts, gets and ranges [default: 100000].
    #[arg(long)]
    keys: Option<u64>,
    /// Watchers of one prefix.
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// Keys for memory, restart and listing [default: 1000000].
    #[arg(long)]
    many_keys: Option<u64>,
    /// Puts per second of the open loop [default: half of etcd's highest rate].
    #[arg(long)]
    rate: Option<f64>,
    /// Deaths of a leader in each round [default: 34, so that three rounds are a hundred].
    #[arg(long)]
    kills: Option<usize>,
    /// Deaths of etcd's leaders in each round, if not as many.
    #[arg(long)]
    etcd_kills: Option<usize>,
    /// MiB that are written at once, and that the returning member missed [default: 1024].
    #[arg(long)]
    missed: Option<u64>,
    /// Directory for the servers' files, on the disk to measure.
    #[arg(long, default_value = "target/side-by-side")]
    dir: PathBuf,
    /// Also writes all figures of all rounds to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also saves what Assay recorded of its own syncs in the last measurement of puts, for
    /// `bench-disk run --mix`.
    #[arg(long, value_name = "FILE")]
    mix: Option<PathBuf>,
    /// Serves constant answers on this address (used by the program itself).
    #[arg(long, hide = true)]
    serve_nothing: Option<SocketAddr>,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        part.fits(self.cluster) && (self.only.is_empty() || self.only.contains(&part))
    }

    fn sizes(&self) -> Sizes {
        let pick = |quick: u64, full: u64| if self.quick { quick } else { full };
        let seconds = self.seconds.unwrap_or(if self.quick { 1.0 } else { 5.0 });
        Sizes {
            span: Duration::from_secs_f64(seconds),
            keys: self.keys.unwrap_or(pick(10_000, 100_000)),
            watchers: self.watchers,
            watched_puts: pick(200, 2_000),
            many: self.many_keys.unwrap_or(pick(20_000, 1_000_000)),
            missed: self.missed.unwrap_or(pick(64, 1_024)) << 20,
        }
    }

    /// Deaths of a leader in each round.
    fn kills(&self, kind: Kind) -> usize {
        let all = self.kills.unwrap_or(if self.quick { 3 } else { 34 });
        if kind == Kind::Etcd { self.etcd_kills.unwrap_or(all) } else { all }
    }

    /// Servers of a round, in turn the one and the other first.
    fn servers(&self, round: usize) -> Vec<Kind> {
        let mut kinds = vec![Kind::Assay, Kind::Etcd];
        if round % 2 == 1 {
            kinds.reverse();
        }
        kinds.retain(|kind| self.server.as_ref().is_none_or(|only| only == kind.name()));
        kinds
    }
}

/// The numbers of puts in flight that the report knows.
fn in_flight(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(number @ (1 | 64 | 1_024)) => Ok(number),
        _ => Err("1, 64 or 1024".into()),
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.serve_nothing {
        Some(address) => nothing::serve(address),
        None => run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("side-by-side: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    if let Some(part) = options.only.iter().find(|part| !part.fits(options.cluster)) {
        let which = if options.cluster { "one server" } else { "a cluster" };
        return Err(Error::Setup(format!("the part {part:?} is measured on {which} only")));
    }
    let programs = Programs::find()?;
    std::fs::create_dir_all(&options.dir).during(|| format!("create {}", options.dir.display()))?;
    let environment = Environment::look(&options.dir, &programs);
    print!("{}", environment.text());
    let before = Disk::probe(&options.dir)?;
    println!("fdatasync before      p50 {:.0} us, p99 {:.0} us", before.p50, before.p99);
    let doubt = environment.doubt();
    if let Some(doubt) = &doubt {
        println!("\n*** {doubt} ***");
    }
    let mut report = Report::new(if options.cluster { CLUSTER } else { SINGLE });
    let mut suite = Suite { options, programs: &programs, report: &mut report };
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 3 });
    if options.cluster {
        suite.clusters(rounds)?;
    } else {
        suite.closed_loops(rounds)?;
    }
    if options.wants(Part::Open) {
        suite.open_loops(rounds)?;
    }
    if options.wants(Part::Many) {
        suite.many(rounds)?;
    }
    let after = Disk::probe(&options.dir)?;
    println!("fdatasync after       p50 {:.0} us, p99 {:.0} us", after.p50, after.p99);
    println!("do-nothing server     {}", nothing::FLAVOUR);
    println!("\n{}", report.table());
    if let Some(doubt) = &doubt {
        println!("*** {doubt} ***");
    }
    if options.quick {
        println!("This was a smoke run: too short to conclude anything from.");
    }
    let Some(path) = &options.json else { return Ok(()) };
    let disk = |disk: Disk| json!({ "p50_us": disk.p50, "p99_us": disk.p99 });
    let everything = json!({
        "environment": environment.json(),
        "fdatasync": { "before": disk(before), "after": disk(after) },
        "nothing": nothing::FLAVOUR,
        "quick": options.quick,
        "rounds": rounds,
        "seconds": options.sizes().span.as_secs_f64(),
        "trustworthy": doubt.is_none() && !options.quick,
        "figures": report.json(),
    });
    std::fs::write(path, format!("{everything:#}\n")).during(|| format!("write {}", path.display()))
}

/// The parts of a run, round by round.
struct Suite<'a> {
    options: &'a Options,
    programs: &'a Programs,
    report: &'a mut Report,
}

impl Suite<'_> {
    /// Starts a server on fresh files, measures, and removes it.
    fn with<T>(
        &mut self,
        kind: Kind,
        measure: impl FnOnce(&mut Bench<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut server = Server::start(kind, self.programs, &self.options.dir)?;
        let sizes = self.options.sizes();
        if kind != Kind::Nothing {
            let written = server.settle()?;
            self.report.add("start_written", kind, written as f64 / f64::from(1 << 20));
        }
        measure(&mut Bench { server: &mut server, report: self.report, sizes })
    }

    fn closed_loops(&mut self, rounds: usize) -> Result<()> {
        let options = self.options;
        let [puts, gets, ranges, watch] =
            [Part::Puts, Part::Gets, Part::Ranges, Part::Watch].map(|part| options.wants(part));
        if !(puts || gets || ranges || watch) {
            return Ok(());
        }
        for round in 0..rounds {
            eprintln!("round {} of {rounds}", round + 1);
            let nothing =
                if puts { self.with(Kind::Nothing, |bench| bench.measure_nothing())? } else { 0.0 };
            for kind in options.servers(round) {
                self.with(kind, |bench| {
                    if puts {
                        bench.measure_puts(&options.in_flight, nothing, options.mix.as_deref())?;
                    }
                    if gets || ranges {
                        bench.fill()?;
                    }
                    if gets {
                        bench.measure_gets()?;
                    }
                    if ranges {
                        bench.measure_ranges()?;
                    }
                    if watch { bench.measure_watchers() } else { Ok(()) }
                })?;
            }
        }
        Ok(())
    }

    /// Starts three members on fresh files.
    fn cluster(&mut self, kind: Kind) -> Result<cluster::Bench<'_>> {
        let sizes = self.options.sizes();
        cluster::Bench::start(kind, self.programs, &self.options.dir, self.report, sizes)
    }

    fn clusters(&mut self, rounds: usize) -> Result<()> {
        let options = self.options;
        let [puts, gets, kills, load, behind] =
            [Part::Puts, Part::Gets, Part::Kills, Part::Load, Part::Behind]
                .map(|part| options.wants(part));
        for round in 0..rounds {
            eprintln!("round {} of {rounds}", round + 1);
            for kind in options.servers(round) {
                if puts || gets || kills {
                    let mut bench = self.cluster(kind)?;
                    if puts {
                        bench.measure_puts(&options.in_flight)?;
                    }
                    if gets {
                        bench.measure_gets()?;
                    }
                    if kills {
                        bench.measure_kills(options.kills(kind))?;
                    }
                }
                if load {
                    self.cluster(kind)?.measure_load()?;
                }
                if behind {
                    self.cluster(kind)?.measure_behind()?;
                }
            }
        }
        Ok(())
    }

    fn open_loops(&mut self, rounds: usize) -> Result<()> {
        let rate = match self.options.rate {
            Some(rate) => rate,
            None => self.etcd_highest()? * OPEN_SHARE,
        };
        if rate < 1.0 {
            return Err(Error::Setup(format!("the open loop cannot run at {rate} per second")));
        }
        for round in 0..rounds {
            eprintln!("open loop at {rate:.0}/s, round {} of {rounds}", round + 1);
            self.with(Kind::Nothing, |bench| bench.measure_open(rate))?;
            for kind in self.options.servers(round) {
                match self.options.cluster {
                    true => self.cluster(kind)?.measure_open(rate)?,
                    false => self.with(kind, |bench| bench.measure_open(rate))?,
                }
            }
        }
        Ok(())
    }

    /// etcd's highest rate of puts: measured before, or now.
    fn etcd_highest(&mut self) -> Result<f64> {
        let ids = ["put_64_rate", "put_1024_rate"];
        if ids.iter().any(|id| self.report.median(id, Kind::Etcd).is_none()) {
            eprintln!("etcd's highest rate");
            match self.options.cluster {
                true => self.cluster(Kind::Etcd)?.measure_puts(&[64, 1_024])?,
                false => {
                    self.with(Kind::Etcd, |bench| bench.measure_puts(&[64, 1_024], 0.0, None))?
                }
            }
        }
        let found = ids.map(|id| self.report.median(id, Kind::Etcd).unwrap_or(0.0));
        Ok(found[0].max(found[1]))
    }

    fn many(&mut self, rounds: usize) -> Result<()> {
        for round in 0..rounds {
            eprintln!("many keys, round {} of {rounds}", round + 1);
            for kind in self.options.servers(round) {
                let nothing = Server::start(Kind::Nothing, self.programs, &self.options.dir)?;
                self.with(kind, |bench| {
                    bench.measure_many()?;
                    bench.measure_listing(nothing.address)
                })?;
            }
        }
        Ok(())
    }
}
