//! What is told beside the verdict: the other phases, the open-loop view, the price of a flush, and
//! the minutes of a long run.

use super::{millis, wrap};
use crate::alike::alike;
use crate::verdict::Measured;
use std::fmt::Write;
use std::time::Duration;

/// Most lines of a timeline; longer ones show every second, third, ... minute.
const LINES: usize = 24;

pub(super) fn render(measured: &Measured) -> String {
    let mut out = String::new();
    let ms = |ns: u64| millis(Duration::from_nanos(ns));
    if measured.phases.len() > 1 {
        let _ = writeln!(
            out,
            "\n{:<8} {:>11} {:>11} {:>11} {:>11} {:>9} {:>9}",
            "phase", "p50", "p99", "p99.9", "max", "syncs/s", "slow"
        );
        for phase in &measured.phases {
            let _ = writeln!(
                out,
                "{:<8} {:>11} {:>11} {:>11} {:>11} {:>9.0} {:>9}",
                phase.name,
                ms(phase.p50_ns),
                ms(phase.p99_ns),
                ms(phase.p999_ns),
                ms(phase.max_ns),
                phase.syncs_per_second,
                phase.exceeded
            );
        }
        out.push_str("the first phase decides\n");
    }
    if let Some(open) = &measured.open_loop {
        let _ = writeln!(
            out,
            "open loop   p99 {}, p99.9 {}, max {} for requests each {}",
            ms(open.p99_ns),
            ms(open.p999_ns),
            ms(open.max_ns),
            ms(open.interval_ns)
        );
    }
    if let Some(cost) = &measured.flush_cost {
        let _ = writeln!(
            out,
            "flush       a write of 4 KiB takes {}, with a sync {}",
            ms(cost.write_ns),
            ms(cost.synced_ns)
        );
    }
    let median = Duration::from_nanos(measured.percentiles.p50_ns);
    let kind = format!("kind        a median of {} is usual for {}", millis(median), alike(median));
    out.push_str(&wrap("", 12, &kind));
    let step = measured.timeline.len().div_ceil(LINES).max(1);
    for minute in measured.timeline.iter().step_by(step) {
        let _ = writeln!(
            out,
            "minute {:>4} {:>9} syncs  p50 {:>9}  p99 {:>9}  max {:>9}",
            minute.minute,
            minute.n,
            ms(minute.p50_ns),
            ms(minute.p99_ns),
            ms(minute.max_ns)
        );
    }
    out
}
