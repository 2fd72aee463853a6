//! What a disk of its own for the log saves: appends beside the store's commits, and apart from them.

use super::cell::{self, Cell};
use super::{Point, ROUNDS};
use crate::ProbeError;
use crate::env::Environment;
use crate::report::{millis, wrap};
use crate::sampler::companion::Companion;
use crate::sampler::node::Pulse;
use crate::sampler::scratch::Scratch;
use crate::sampler::shape::{SMALL_STORE_BYTES, Shape};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A log disk is advised if it brings the 99th percentile below this many percent.
const WORTH: u64 = 80;

/// The log in two places, the store in one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Separate {
    /// The log on the store's disk.
    pub together: Point,
    /// The log in the other directory.
    pub apart: Point,
    /// What that means.
    pub advice: String,
}

/// Measures both in turn; the store commits on its disk all the time.
pub(super) fn measure(
    store: &Environment,
    log: &Environment,
    cell: &Cell,
    time: Duration,
    interrupt: &AtomicBool,
    step: &mut dyn FnMut(),
) -> Result<Option<Separate>, ProbeError> {
    let scratch =
        |environment: &Environment| Scratch::new(&environment.judged, &environment.filesystem);
    let places = [scratch(store), scratch(log)];
    let shape = Shape::node(SMALL_STORE_BYTES);
    let companion = Companion::start(&places[0], &shape, Arc::new(Pulse::default()))?;
    let mut results = vec![cell::Samples::default(); places.len()];
    for _ in 0..ROUNDS {
        for (place, result) in places.iter().zip(&mut results) {
            result.add(cell::run(cell, place, time, interrupt)?);
            step();
        }
    }
    if let Some(error) = companion.failure() {
        return Err(error);
    }
    let mut points = results.into_iter().filter_map(|result| result.point(cell));
    let (Some(together), Some(apart)) = (points.next(), points.next()) else { return Ok(None) };
    let advice = advice(&together, &apart);
    Ok(Some(Separate { together, apart, advice }))
}

fn advice(together: &Point, apart: &Point) -> String {
    let percent = apart.p99_ns * 100 / together.p99_ns.max(1);
    let times = format!(
        "p99 {} beside the store's commits, {} apart from them",
        millis(Duration::from_nanos(together.p99_ns)),
        millis(Duration::from_nanos(apart.p99_ns))
    );
    match percent {
        0..WORTH => {
            format!("{times}: a log of its own there (--wal-dir) saves {} %", 100 - percent)
        }
        WORTH..=100 => format!("{times}: a log of its own there brings little"),
        _ => format!("{times}: leave the log beside the store"),
    }
}

impl Separate {
    pub(super) fn render(&self, out: &mut String) {
        super::table(out, "log", &[self.together.clone(), self.apart.clone()], |point| {
            if *point == self.together { "with store" } else { "apart" }.into()
        });
        out.push_str(&wrap("", 0, &self.advice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_follows_the_99th_percentile() {
        let point = |p99_ns| Point {
            bytes: 2_300,
            committers: 1,
            preparation: "fallocate",
            n: 100,
            p50_ns: 1,
            p99_ns,
            syncs_per_second: 1.0,
        };
        let of = |apart| advice(&point(10_000_000), &point(apart));
        assert!(of(2_500_000).ends_with("saves 75 %"), "{}", of(2_500_000));
        assert!(of(9_000_000).contains("little"));
        assert!(of(12_000_000).contains("leave the log"));
    }
}
