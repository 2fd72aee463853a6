//! How long tasks have been waiting for I/O: the kernel's pressure accounts.

use serde::Serialize;
use std::path::Path;

/// One account.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pressure {
    /// `host`, or the path of a control group.
    pub of: String,
    /// Share of the last minute in which some task waited for I/O, in percent.
    pub some_avg60: f64,
    /// Share of the last minute in which no task could do anything else, in percent.
    pub full_avg60: f64,
}

/// The account in a file; `None` where the kernel keeps none.
pub(crate) fn read(file: &Path, of: &str) -> Option<Pressure> {
    let text = std::fs::read_to_string(file).ok()?;
    let average = |kind: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.split_whitespace().find_map(|word| word.strip_prefix("avg60="))?.parse().ok()
    };
    let full_avg60 = average("full ").unwrap_or(0.0);
    Some(Pressure { of: of.into(), some_avg60: average("some ")?, full_avg60 })
}
