//! A measuring plan of one's own, as a JSON file.
//!
//! ```json
//! { "base": "standard", "samples": 60000, "min_seconds": 120, "time_box_seconds": 300,
//!   "syncs_per_second": 200, "max_bytes": 2000000000, "append_bytes": 8000,
//!   "device_writes": 6000000, "preparation": "prewrite", "load": "all", "side_seconds": 10 }
//! ```
//!
//! Everything but `base` may be left out. A plan that is easier than its base does not qualify a
//! disk for a node.

use super::Profile;
use crate::bounded;
use crate::sampler::shape::{Appends, Load, Preparation};
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A larger file is no plan.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Longest duration, in seconds: bounded whatever a file says.
const MAX_SECONDS: u64 = 3 * 60 * 60;

/// Most samples: each costs 32 bytes of memory.
const MAX_SAMPLES: usize = 6_000_000;

/// Largest append, in bytes.
const MAX_APPEND: usize = 4 << 20;

/// Why there is no such profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither a name nor a file.
    #[error(
        "no profile and no file {}: use quick, standard, soak, fio, boot or a JSON file", .0.display()
    )]
    Unknown(PathBuf),
    /// The file cannot be read.
    #[error("cannot read the profile {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The file describes no plan.
    #[error("the profile {} is not valid: {reason}", path.display())]
    Invalid {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    base: String,
    samples: Option<usize>,
    min_seconds: Option<u64>,
    time_box_seconds: Option<u64>,
    /// 0 is unpaced.
    syncs_per_second: Option<u64>,
    max_bytes: Option<u64>,
    device_writes: Option<u64>,
    append_bytes: Option<usize>,
    preparation: Option<Preparation>,
    load: Option<Load>,
    side_seconds: Option<u64>,
}

pub(super) fn load(path: &Path) -> Result<Profile, ProfileError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => ProfileError::Unknown(path.to_path_buf()),
        _ => ProfileError::Io { path: path.to_path_buf(), source },
    };
    let invalid = |reason: String| ProfileError::Invalid { path: path.to_path_buf(), reason };
    parse(&bounded::read(path, MAX_FILE_BYTES).map_err(failed)?).map_err(invalid)
}

pub(super) fn parse(bytes: &[u8]) -> Result<Profile, String> {
    let plan: Plan = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let base = match plan.base.as_str() {
        "quick" => Profile::quick(),
        "standard" => Profile::standard(),
        "soak" => Profile::soak(),
        other => return Err(format!("base {other:?}: use quick, standard or soak")),
    };
    let mut profile = Profile { name: "file", ..base.clone() };
    let seconds = |value: Option<u64>, otherwise: Duration, what: &str| match value {
        Some(value) if value > MAX_SECONDS => Err(format!("{what} {value} is above {MAX_SECONDS}")),
        value => Ok(value.map_or(otherwise, Duration::from_secs)),
    };
    profile.samples = plan.samples.unwrap_or(base.samples);
    if plan.samples.is_some_and(|samples| !(100..=MAX_SAMPLES).contains(&samples)) {
        return Err(format!("samples must be 100 to {MAX_SAMPLES}"));
    }
    profile.min_time = seconds(plan.min_seconds, base.min_time, "min_seconds")?;
    profile.time_box = seconds(plan.time_box_seconds, base.time_box, "time_box_seconds")?;
    profile.side = seconds(plan.side_seconds, base.side, "side_seconds")?;
    if profile.time_box.is_zero() || profile.min_time > profile.time_box {
        return Err("time_box_seconds must be above zero and at least min_seconds".into());
    }
    match plan.syncs_per_second {
        None => {}
        Some(0) => profile.pace = None,
        Some(rate) => profile.pace = Some(Duration::from_secs_f64(1.0 / rate as f64)),
    }
    profile.byte_budget = plan.max_bytes.unwrap_or(base.byte_budget);
    profile.device_writes = plan.device_writes.or(base.device_writes);
    if let Some(bytes) = plan.append_bytes {
        if !(8..=MAX_APPEND).contains(&bytes) {
            return Err(format!("append_bytes must be 8 to {MAX_APPEND}"));
        }
        profile.shape.appends = Appends::Fixed(bytes);
    }
    profile.shape.preparation = plan.preparation.unwrap_or(base.shape.preparation);
    profile.qualifies = harder(&profile, &base);
    Ok(match plan.load {
        Some(load) => profile.with_load(load),
        None => profile,
    })
}

/// At least as hard to pass as the base: no fewer samples, no gentler pace, the node's own writes.
fn harder(profile: &Profile, base: &Profile) -> bool {
    let pace = profile.pace.unwrap_or(Duration::ZERO) <= base.pace.unwrap_or(Duration::ZERO);
    profile.samples >= base.samples
        && profile.min_time >= base.min_time
        && profile.byte_budget >= base.byte_budget
        && profile.time_box >= base.time_box
        && profile.device_writes.unwrap_or(u64::MAX) >= base.device_writes.unwrap_or(u64::MAX)
        && pace
        && profile.shape == base.shape
}
