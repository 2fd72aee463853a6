//! One run of the node under the put load of `side-by-side`, and one of the probe.

use crate::Failure;
use serde_json::{Value, json};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the node recorded of its own syncs in its last run.
const MIX: &str = "mix.json";

/// The programs beside this one.
pub(crate) struct Programs {
    side_by_side: PathBuf,
    pub(crate) bench_disk: PathBuf,
}

impl Programs {
    pub(crate) fn find() -> Result<Self, Failure> {
        let own = std::env::current_exe().map_err(Failure::io("find this program"))?;
        let beside = |name: &str| {
            let path = own.with_file_name(name);
            if path.is_file() {
                return Ok(path);
            }
            let message =
                format!("{} is missing: cargo build --release --workspace", path.display());
            Err(Failure::Program { name: name.into(), message })
        };
        Ok(Self { side_by_side: beside("side-by-side")?, bench_disk: beside("bench-disk")? })
    }
}

/// Syncs of the log in one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Syncs per second.
    pub(crate) rate: f64,
}

impl Figures {
    pub(crate) fn json(&self) -> Value {
        json!({ "p50_us": self.p50_us, "p99_us": self.p99_us, "syncs_per_second": self.rate })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50_us, p99_us, rate } = self;
        write!(f, "p50 {p50_us:>8.0} us  p99 {p99_us:>8.0} us  {rate:>6.0} syncs/s")
    }
}

/// A node on fresh files under puts of 512 bytes; the figures are from its own histogram.
pub(crate) fn node(
    programs: &Programs,
    directory: &Path,
    seconds: u32,
    in_flight: u32,
) -> Result<Figures, Failure> {
    let figures = directory.join("figures.json");
    let mut command = Command::new(&programs.side_by_side);
    command
        .args(["--server", "assay", "--only", "puts", "--rounds", "1"])
        .args(["--in-flight", &in_flight.to_string(), "--seconds", &seconds.to_string()])
        .arg("--dir")
        .arg(directory.join("node"))
        .arg("--mix")
        .arg(directory.join(MIX))
        .arg("--json")
        .arg(&figures);
    output(&mut command, &[0])?;
    let document = read(&figures)?;
    let figure = |name: &str| {
        let id = format!("put_{in_flight}_{name}");
        document["figures"][&id]["assay"]["median"].as_f64().ok_or_else(|| Failure::Program {
            name: "side-by-side".into(),
            message: format!("no {id} among its figures"),
        })
    };
    let rate = figure("rate")? / figure("per_fsync")?;
    Ok(Figures { p50_us: figure("fsync_p50")?, p99_us: figure("fsync_p99")?, rate })
}

/// The probe's loaded phase with what the node recorded.
pub(crate) fn probe(programs: &Programs, directory: &Path) -> Result<Figures, Failure> {
    let (plan, data) = (directory.join("plan.json"), directory.join("probe"));
    fs::create_dir_all(&data).map_err(Failure::io("make a directory"))?;
    let mix = directory.join(MIX);
    // As many syncs as the node made: the same part of them in a new segment, for one.
    let pairs = read(&mix)?["log"]["bytes_per_sync"].clone();
    let counts = pairs.as_array().into_iter().flatten().filter_map(|pair| pair[1].as_u64());
    let text = json!({
        "base": "quick", "samples": counts.sum::<u64>().max(1_000), "min_seconds": 0,
        "time_box_seconds": 120, "max_bytes": 4_000_000_000_u64, "side_seconds": 0,
    });
    fs::write(&plan, text.to_string()).map_err(Failure::io("write a plan"))?;
    let mut command = Command::new(&programs.bench_disk);
    command.args(["run", "--json", "--dir"]).arg(&data).arg("--profile").arg(&plan);
    // Longer than any sync: a FAIL must not end the run early.
    command.arg("--mix").arg(mix).args(["--threshold", "10s"]);
    // Neither meets a probe of this host nor reuses what one found.
    command.env("BENCH_DISK_RUN_DIR", directory.join("run"));
    let bytes = output(&mut command, &[0, 1, 3])?;
    let document: Value = serde_json::from_slice(&bytes).map_err(|error| Failure::Program {
        name: "bench-disk".into(),
        message: error.to_string(),
    })?;
    let phase = &document["verdict"]["measured"]["phases"][0];
    match (phase["p50_ns"].as_f64(), phase["p99_ns"].as_f64(), phase["syncs_per_second"].as_f64()) {
        (Some(p50), Some(p99), Some(rate)) => {
            Ok(Figures { p50_us: p50 / 1e3, p99_us: p99 / 1e3, rate })
        }
        _ => Err(Failure::Program {
            name: "bench-disk".into(),
            message: document["verdict"]["findings"].to_string(),
        }),
    }
}

fn output(command: &mut Command, allowed: &[i32]) -> Result<Vec<u8>, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(Failure::io(&format!("start {name}")))?;
    if output.status.code().is_some_and(|code| allowed.contains(&code)) {
        return Ok(output.stdout);
    }
    Err(Failure::Program { name, message: String::from_utf8_lossy(&output.stderr).into_owned() })
}

fn read(path: &Path) -> Result<Value, Failure> {
    let bytes = fs::read(path).map_err(Failure::io("read figures"))?;
    serde_json::from_slice(&bytes).map_err(|error| Failure::Program {
        name: path.display().to_string(),
        message: error.to_string(),
    })
}
