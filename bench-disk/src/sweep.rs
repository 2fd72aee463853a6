//! What a disk does with other sizes, with several files that sync at the same time, and with other
//! ways to get space: no verdict, but advice, and the knee of each curve.

mod cell;
mod separate;

use crate::ProbeError;
use crate::env::Environment;
use crate::output::JSON_SCHEMA;
use crate::report::{millis, wrap};
use crate::sampler::scratch::Scratch;
use crate::sampler::shape::Preparation;
use cell::Cell;
pub use separate::Separate;
use serde::Serialize;
use std::fmt::Write;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Sizes of appends, in bytes.
const SIZES: [usize; 6] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// Files that are synced at the same time.
const COMMITTERS: [usize; 4] = [1, 2, 4, 8];

/// Append of the curves over committers and preparations, in bytes: as the fio recipe.
const APPEND: usize = 2_300;

/// Every point is measured this often in turn with the others, so that a busy moment hits all.
const ROUNDS: u32 = 3;

/// The median may grow this much, in percent of the smallest size's, before a size counts as slow.
const SIZE_KNEE: u64 = 150;

/// Another doubling of the committers is worth it if it brings this many percent of the rate.
const COMMITTER_KNEE: f64 = 120.0;

/// A preparation is advised if its median is below this many percent of plain reserved space.
const WORTH: u64 = 90;

/// Room for the files, in bytes.
pub const NEEDED_BYTES: u64 = COMMITTERS[3] as u64 * cell::FILE_BYTES + (16 << 20);

/// One point of a curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Bytes of an append.
    pub bytes: usize,
    /// Files that were synced at the same time.
    pub committers: usize,
    /// Space of the files.
    pub preparation: &'static str,
    /// Syncs measured.
    pub n: u64,
    /// Median of a sync, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// Syncs of all files per second.
    pub syncs_per_second: f64,
}

/// All curves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// Version of this document.
    pub schema: u32,
    /// Over the size of appends.
    pub sizes: Vec<Point>,
    /// Largest size whose median is at most half as much again as the smallest one's, in bytes.
    pub size_knee: usize,
    /// Over the number of files.
    pub committers: Vec<Point>,
    /// Files beyond which the rate hardly grows.
    pub committer_knee: usize,
    /// Over ways to get space.
    pub preparations: Vec<Point>,
    /// What the last curve advises.
    pub advice: String,
    /// The log beside the store and apart from it, if another directory was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separate: Option<Separate>,
}

/// Told the number of points done and of all.
pub type OnStep<'a> = dyn FnMut(usize, usize) + 'a;

/// Measures all curves; each round of a point takes `time`. `log` is another place for the log.
pub fn sweep(
    environment: &Environment,
    log: Option<&Environment>,
    time: Duration,
    interrupt: &AtomicBool,
    step: &mut OnStep<'_>,
) -> Result<Sweep, ProbeError> {
    for place in [Some(environment), log].into_iter().flatten() {
        if place.free_bytes < NEEDED_BYTES {
            return Err(ProbeError::NoSpace {
                path: place.judged.clone(),
                needed: NEEDED_BYTES >> 20,
                free: place.free_bytes >> 20,
            });
        }
    }
    let scratch = Scratch::new(&environment.judged, &environment.filesystem);
    let plain = Cell { bytes: APPEND, committers: 1, preparation: Preparation::Reserve };
    let sizes: Vec<Cell> = SIZES.iter().map(|&bytes| Cell { bytes, ..plain }).collect();
    let committers: Vec<Cell> =
        COMMITTERS.iter().map(|&committers| Cell { committers, ..plain }).collect();
    let preparations: Vec<Cell> =
        Preparation::COMPARED.iter().map(|&preparation| Cell { preparation, ..plain }).collect();
    let places = if log.is_some() { 2 } else { 0 };
    let all = (sizes.len() + committers.len() + preparations.len() + places) * ROUNDS as usize;
    let mut done = 0;
    let mut curve = |cells: &[Cell]| {
        let mut results = vec![cell::Samples::default(); cells.len()];
        for _ in 0..ROUNDS {
            for (cell, result) in cells.iter().zip(&mut results) {
                result.add(cell::run(cell, &scratch, time, interrupt)?);
                done += 1;
                step(done, all);
            }
        }
        Ok::<_, ProbeError>(
            cells.iter().zip(results).filter_map(|(cell, result)| result.point(cell)).collect(),
        )
    };
    let sizes: Vec<Point> = curve(&sizes)?;
    let committers: Vec<Point> = curve(&committers)?;
    let preparations: Vec<Point> = curve(&preparations)?;
    let separate = match log {
        Some(log) => {
            let mut step = || {
                done += 1;
                step(done, all);
            };
            separate::measure(environment, log, &plain, time, interrupt, &mut step)?
        }
        None => None,
    };
    Ok(Sweep {
        schema: JSON_SCHEMA,
        size_knee: size_knee(&sizes),
        committer_knee: committer_knee(&committers),
        advice: advice(&preparations),
        sizes,
        committers,
        preparations,
        separate,
    })
}

fn size_knee(points: &[Point]) -> usize {
    let Some(first) = points.first() else { return 0 };
    let cheap = |point: &&Point| point.p50_ns * 100 <= first.p50_ns * SIZE_KNEE;
    points.iter().take_while(cheap).last().map_or(0, |point| point.bytes)
}

fn committer_knee(points: &[Point]) -> usize {
    let worth = |pair: &&[Point]| {
        pair[1].syncs_per_second * 100.0 >= pair[0].syncs_per_second * COMMITTER_KNEE
    };
    let last = points.windows(2).take_while(worth).last().map(|pair| &pair[1]);
    last.or(points.first()).map_or(0, |point| point.committers)
}

fn advice(points: &[Point]) -> String {
    let of = |preparation: Preparation| {
        points.iter().find(|point| point.preparation == preparation.as_str())
    };
    let (Some(reserve), Some(prewrite)) = (of(Preparation::Reserve), of(Preparation::Prewrite))
    else {
        return "not measured".into();
    };
    let percent = prewrite.p50_ns * 100 / reserve.p50_ns.max(1);
    if percent < WORTH {
        format!(
            "writing segments ahead saves {} % of a sync here: leave the node's spare segments on",
            100 - percent
        )
    } else {
        "writing segments ahead brings little here: reserved space is as good".into()
    }
}

impl Sweep {
    /// The curves for people, in 80 columns.
    pub fn render(&self) -> String {
        let mut out = String::new();
        table(&mut out, "append", &self.sizes, |point| bytes(point.bytes));
        let knee = bytes(self.size_knee);
        let _ = writeln!(out, "knee: appends of up to {knee} cost about the same\n");
        table(&mut out, "committers", &self.committers, |point| point.committers.to_string());
        let knee = self.committer_knee;
        let _ = writeln!(out, "knee: more than {knee} at a time bring hardly more\n");
        table(&mut out, "space", &self.preparations, |point| point.preparation.to_string());
        out.push_str(&wrap("", 0, &self.advice));
        if let Some(separate) = &self.separate {
            out.push('\n');
            separate.render(&mut out);
        }
        out
    }
}

fn table(out: &mut String, title: &str, points: &[Point], name: impl Fn(&Point) -> String) {
    let columns = ("p50", "p99", "syncs/s", "MB/s");
    let _ = writeln!(
        out,
        "{title:<14} {:>11} {:>11} {:>10} {:>10}",
        columns.0, columns.1, columns.2, columns.3
    );
    for point in points {
        let _ = writeln!(
            out,
            "{:<14} {:>11} {:>11} {:>10.0} {:>10.1}",
            name(point),
            millis(Duration::from_nanos(point.p50_ns)),
            millis(Duration::from_nanos(point.p99_ns)),
            point.syncs_per_second,
            point.syncs_per_second * point.bytes as f64 / 1e6
        );
    }
}

fn bytes(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

#[cfg(test)]
mod tests;
