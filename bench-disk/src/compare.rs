//! Disks of sibling nodes side by side: one of three identical machines with a bad disk is easy to
//! overlook and hard on a cluster.

use crate::bounded;
use crate::judge::Outcome;
use crate::report::millis;
use crate::verdict::Verdict;
use serde::Serialize;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Fewer have no odd one out.
pub const LEAST: usize = 2;

/// A disk is odd if its p99 is more than this many times the median of the others, or less than
/// this part of it, and the confidence intervals agree that it differs.
const ODD_FACTOR: u64 = 2;

/// A larger file is no result.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Why a file cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no result of bench-disk run: {reason}", path.display())]
    Invalid {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Verdicts under different plans or limits say nothing about each other.
    #[error("{} and {} differ in {what}: measure all nodes alike", first.display(), second.display())]
    Unlike {
        /// The first file.
        first: PathBuf,
        /// The one that differs from it.
        second: PathBuf,
        /// In what.
        what: &'static str,
    },
}

/// One node's disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node {
    /// The file.
    pub file: PathBuf,
    /// Device, for people.
    pub device: String,
    /// The answer.
    pub outcome: Outcome,
    /// Samples.
    pub n: u64,
    /// Samples above the limit.
    pub exceeded: u64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// Interval of it, in nanoseconds; the upper end may be unknown.
    pub p99_interval_ns: (u64, Option<u64>),
    /// 99.9th percentile, in nanoseconds.
    pub p999_ns: u64,
    /// Longest, in nanoseconds.
    pub max_ns: u64,
    /// p99 over the median of the others' p99.
    pub ratio: f64,
    /// It differs from the others, beyond chance.
    pub odd: bool,
}

/// Reads a `--json` document or a verdict file.
pub fn load(path: &Path) -> Result<Verdict, CompareError> {
    let failed = |source| CompareError::Io { path: path.to_path_buf(), source };
    let invalid = |reason: String| CompareError::Invalid { path: path.to_path_buf(), reason };
    let bytes = bounded::read(path, MAX_FILE_BYTES).map_err(failed)?;
    let mut document: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
    let verdict = document
        .get_mut("verdict")
        .map(serde_json::Value::take)
        .ok_or_else(|| invalid("it has no verdict".into()))?;
    serde_json::from_value(verdict).map_err(|error| invalid(error.to_string()))
}

/// Compares two or more results.
pub fn compare(files: Vec<(PathBuf, Verdict)>) -> Result<Vec<Node>, CompareError> {
    if let Some((first, one)) = files.first() {
        for (second, other) in &files[1..] {
            let what = match () {
                () if one.limit_ns != other.limit_ns => "the limit",
                () if one.profile != other.profile => "the profile",
                () => continue,
            };
            let (first, second) = (first.clone(), second.clone());
            return Err(CompareError::Unlike { first, second, what });
        }
    }
    let mut nodes = Vec::new();
    for (file, verdict) in files {
        let Some(measured) = verdict.measured else {
            let reason = "nothing was measured".to_string();
            return Err(CompareError::Invalid { path: file, reason });
        };
        let percentiles = measured.percentiles;
        nodes.push(Node {
            file,
            device: verdict.device,
            outcome: verdict.outcome,
            n: measured.summary.n,
            exceeded: measured.summary.exceeded,
            p50_ns: percentiles.p50_ns,
            p99_ns: percentiles.p99_ns,
            p99_interval_ns: (percentiles.p99_low_ns, percentiles.p99_high_ns),
            p999_ns: percentiles.p999_ns,
            max_ns: percentiles.max_ns,
            ratio: 1.0,
            odd: false,
        });
    }
    let judged: Vec<(f64, bool)> = (0..nodes.len()).map(|at| against_others(&nodes, at)).collect();
    for (node, (ratio, odd)) in nodes.iter_mut().zip(judged) {
        (node.ratio, node.odd) = (ratio, odd);
    }
    Ok(nodes)
}

/// Ratio of a node's p99 to the median of the others, and whether that is more than chance. Of two
/// nodes the slower one is the odd one.
fn against_others(nodes: &[Node], at: usize) -> (f64, bool) {
    let node = &nodes[at];
    let others = || nodes.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, n)| n);
    let mut values: Vec<u64> = others().map(|other| other.p99_ns).collect();
    values.sort_unstable();
    // Of an even number the upper one of the middle is what a slow disk has to exceed.
    let (Some(&lower), Some(&upper)) =
        (values.get(values.len().saturating_sub(1) / 2), values.get(values.len() / 2))
    else {
        return (1.0, false);
    };
    let ratio = node.p99_ns as f64 / lower.midpoint(upper).max(1) as f64;
    let apart = |low: u64, high: Option<u64>| high.is_some_and(|high| low > high);
    // The intervals must be apart from most of the others.
    let slower =
        others().filter(|other| apart(node.p99_interval_ns.0, other.p99_interval_ns.1)).count();
    let faster =
        others().filter(|other| apart(other.p99_interval_ns.0, node.p99_interval_ns.1)).count();
    let most = |count: usize| 2 * count > values.len();
    let odd = (node.p99_ns > ODD_FACTOR * upper && most(slower))
        || (values.len() > 1 && ODD_FACTOR * node.p99_ns < lower && most(faster));
    (ratio, odd)
}

/// The table for people, in 80 columns as far as names allow.
pub fn render(nodes: &[Node]) -> String {
    let mut out = String::new();
    let ms = |ns: u64| millis(Duration::from_nanos(ns));
    let _ = writeln!(
        out,
        "{:<24} {:>10} {:>10} {:>10} {:>7}  answer",
        "node", "p50", "p99", "p99.9", "ratio"
    );
    for node in nodes {
        let name = node.file.file_name().map(|name| name.to_string_lossy().into_owned());
        let _ = writeln!(
            out,
            "{:<24} {:>10} {:>10} {:>10} {:>7.2}  {}{}",
            name.unwrap_or_default(),
            ms(node.p50_ns),
            ms(node.p99_ns),
            ms(node.p999_ns),
            node.ratio,
            node.outcome.as_str(),
            if node.odd { "  <- odd" } else { "" }
        );
    }
    let odd: Vec<String> = nodes
        .iter()
        .filter(|node| node.odd)
        .map(|node| format!("{} ({:.1} times the others)", node.file.display(), node.ratio))
        .collect();
    let _ = match odd.as_slice() {
        [] => writeln!(out, "no disk stands out"),
        odd => writeln!(out, "odd one out: {}", odd.join(", ")),
    };
    out
}

#[cfg(test)]
mod tests;
