//! A disk in memory whose syncs all take the same time: what the probe and a node's gate say.

use crate::disks::{self, Disk, Kind};
use crate::runs::Programs;
use crate::{Failure, starts};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What a sync of that disk takes by itself, with the tracer's own work.
const OWN: Duration = Duration::from_micros(300);

/// Asks the probe and a node about a disk with a constant sync time.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Directory for the mounts
    #[arg(long, value_name = "D", default_value = "target/probe-predicts")]
    dir: PathBuf,
    /// Milliseconds that each sync takes
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    sync_ms: u64,
    /// What both must say
    #[arg(long, default_value = "PASS", value_parser = ["PASS", "FAIL"])]
    expect: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let programs = Programs::find()?;
    disks::private_mounts()?;
    let disk = Disk::make(Kind::Fuse, &arguments.dir, 0, Duration::ZERO)?;
    let delay = Duration::from_millis(arguments.sync_ms).saturating_sub(OWN);
    let probe = probe(&programs, &disk.directory, delay)?;
    println!("probe {probe}");
    // A run directory of its own: the node must not reuse what the probe just found.
    let home = disk.directory.join("node");
    std::fs::create_dir(&home).map_err(Failure::io("make a directory"))?;
    let node = match starts::under(slowed(&starts::assay()?, delay), &home, "enforce") {
        Ok(start) if start.state == "pass" => format!("PASS {start}"),
        Ok(start) => format!("no PASS {start}"),
        Err(Failure::Program { message, .. }) => format!("FAIL {message}"),
        Err(other) => return Err(other),
    };
    println!("node  {node}");
    Ok(probe.starts_with(&arguments.expect) && node.starts_with(&arguments.expect))
}

/// A program whose every `fdatasync` takes so much longer. It keeps its process id.
fn slowed(program: &Path, delay: Duration) -> Command {
    let mut command = Command::new("strace");
    command
        .args([
            "-D",
            "-f",
            "-qq",
            "--seccomp-bpf",
            "-o",
            "/dev/null",
            "-e",
            "trace=fdatasync",
            "-e",
        ])
        .arg(format!("inject=fdatasync:delay_enter={}", delay.as_micros()))
        .arg(program);
    command
}

fn probe(programs: &Programs, directory: &Path, delay: Duration) -> Result<String, Failure> {
    let data = directory.join("probe");
    std::fs::create_dir_all(&data).map_err(Failure::io("make a directory"))?;
    let mut command = slowed(&programs.bench_disk, delay);
    command.args(["run", "--profile", "boot", "--json", "--dir"]).arg(&data);
    command.env("BENCH_DISK_RUN_DIR", directory.join("run"));
    let output = command.output().map_err(Failure::io("start strace"))?;
    let document: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        let message = format!("{error}: {}", String::from_utf8_lossy(&output.stderr));
        Failure::Program { name: "bench-disk".into(), message }
    })?;
    let verdict = &document["verdict"];
    let measured = &verdict["measured"];
    let ms = |name: &str| measured["percentiles"][name].as_f64().unwrap_or(0.0) / 1e6;
    Ok(format!(
        "{} p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms, {} of {} above the limit, {:.1} s",
        verdict["outcome"].as_str().unwrap_or("nothing"),
        ms("p50_ns"),
        ms("p99_ns"),
        ms("max_ns"),
        measured["summary"]["exceeded"],
        measured["summary"]["n"],
        measured["elapsed_ns"].as_f64().unwrap_or(0.0) / 1e9,
    ))
}
