//! The machine: what a reader must know to judge the figures.

use crate::closed_loop::{histogram, quantile_us};
use crate::error::{During, Result};
use crate::server::{Programs, version};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Load average per CPU above which a run is not worth believing.
const LOAD_PER_CPU: f64 = 0.25;
/// Writes of the disk probe, and their size in bytes.
const PROBES: u64 = 300;
const PROBE_BYTES: usize = 4_096;

/// p50 and p99 of fdatasync after an overwrite of 4 KiB, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Disk {
    /// Measures the disk of a directory.
    pub(crate) fn probe(dir: &Path) -> Result<Self> {
        let path = dir.join(format!("probe-{}", std::process::id()));
        let probe = || -> std::io::Result<Self> {
            let file = File::create(&path)?;
            file.write_all_at(&vec![1; PROBES as usize * PROBE_BYTES], 0)?;
            file.sync_all()?;
            let mut latency = histogram();
            for at in 0..PROBES {
                file.write_all_at(&[2; PROBE_BYTES], at * PROBE_BYTES as u64)?;
                let start = Instant::now();
                file.sync_data()?;
                latency.saturating_record(start.elapsed().as_nanos() as u64);
            }
            Ok(Self { p50: quantile_us(&latency, 0.5), p99: quantile_us(&latency, 0.99) })
        };
        let found = probe();
        let _ = std::fs::remove_file(&path);
        found.during(|| format!("probe of {}", path.display()))
    }
}

/// What does not change during a run.
pub(crate) struct Environment {
    facts: Vec<(&'static str, String)>,
    cpus: usize,
    load: f64,
}

impl Environment {
    /// Looks at the machine; `dir` is where the servers keep their files.
    pub(crate) fn look(dir: &Path, programs: &Programs) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let facts = vec![
            ("cpus", format!("{cpus} x {}", after(&read("/proc/cpuinfo"), "model name"))),
            ("memory", after(&read("/proc/meminfo"), "MemTotal")),
            ("kernel", read("/proc/sys/kernel/osrelease").trim().to_string()),
            ("file system", file_system(dir)),
            ("assay", version(&programs.assay)),
            ("etcd", version(&programs.etcd)),
            ("load average before", read("/proc/loadavg").trim().to_string()),
        ];
        let load = read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok());
        Self { facts, cpus, load: load.unwrap_or(f64::NAN) }
    }

    /// Why the figures mean nothing, if other programs were running.
    pub(crate) fn doubt(&self) -> Option<String> {
        let limit = LOAD_PER_CPU * self.cpus as f64;
        // A load that cannot be read is no good sign either.
        (self.load.is_nan() || self.load > limit).then(|| {
            format!(
                "load average {:.2} before the start (limit {limit:.2}): other programs use this \
                 machine, the figures below are NOT TRUSTWORTHY",
                self.load
            )
        })
    }

    /// Lines for people.
    pub(crate) fn text(&self) -> String {
        self.facts.iter().map(|(name, fact)| format!("{name:<20} {fact}\n")).collect()
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> Value {
        self.facts.iter().map(|(name, fact)| ((*name).to_string(), json!(fact))).collect()
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn after(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim_start_matches([' ', '\t', ':']).to_string()
}

/// Type and device of the mount that holds a directory.
fn file_system(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    let mounts = read("/proc/self/mounts");
    let mounts = mounts.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [device, point, kind, options, ..] = words[..] else { return None };
        dir.starts_with(point).then(|| (point.len(), format!("{kind} on {device} ({options})")))
    });
    mounts.max().map_or_else(|| "unknown".into(), |(_, text)| text)
}
