//! One run of fio with the known recipe.

use crate::{Failure, Round};
use std::path::Path;
use std::process::Command;

pub(crate) fn round(fio: &Path, engine: &str, directory: &Path) -> Result<Round, Failure> {
    let output = Command::new(fio)
        .args(["--name=agreement", "--rw=write", "--fdatasync=1", "--bs=2300", "--size=22m"])
        .args(["--unlink=1", "--output-format=json"])
        .arg(format!("--ioengine={engine}"))
        .arg(format!("--directory={}", directory.display()))
        .output()
        .map_err(Failure::Start)?;
    if !output.status.success() {
        return Err(Failure::Fio(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::Fio(format!("no JSON: {error}")))?;
    let times = &document["jobs"][0]["sync"]["lat_ns"];
    let percentile = |key: &str| times["percentile"][key].as_u64().map(|ns| ns as f64 / 1e3);
    match (times["N"].as_u64(), percentile("50.000000"), percentile("99.000000")) {
        (Some(n), Some(p50_us), Some(p99_us)) => Ok(Round { n, p50_us, p99_us }),
        _ => Err(Failure::Fio("its JSON has no percentiles of syncs".into())),
    }
}
