//! Plots as inline SVG: logarithmic latencies, the limit as a line, no script.

use crate::distribution::Slice;
use crate::report::millis;
use std::fmt::Write;
use std::time::Duration;

/// Size of a plot in its own units; the page scales it.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;

/// Room for labels: left, right, top, bottom.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 36.0;

/// A logarithmic or linear scale from values to places.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    log: bool,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let scale = |v: f64| if self.log { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let (low, high) = (scale(self.low), scale(self.high));
        let part = if high > low { (scale(value) - low) / (high - low) } else { 0.5 };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Powers of ten, with 2 and 5 between them when there is room.
    fn ticks(&self) -> Vec<f64> {
        if !self.log {
            return (0..=4)
                .map(|i| self.low + (self.high - self.low) * f64::from(i) / 4.0)
                .collect();
        }
        let few = (self.high / self.low.max(1.0)).log10() < 2.5;
        let steps: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        (first..=last)
            .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
            .filter(|&tick| tick >= self.low * 0.999 && tick <= self.high * 1.001)
            .collect()
    }
}

/// A whole number of steps of a quarter decade around the values and the limit.
fn latency_range(low_ns: u64, high_ns: u64, limit_ns: u64) -> (f64, f64) {
    let step = |v: f64| (v.max(1.0).log10() * 4.0).clamp(0.0, 72.0);
    let low = 10f64.powf(step(low_ns.min(limit_ns) as f64).floor() / 4.0);
    let high = 10f64.powf((step(high_ns.max(limit_ns) as f64).ceil() + 1.0) / 4.0);
    (low, high)
}

fn across(low: f64, high: f64, log: bool) -> Axis {
    Axis { low, high, from: LEFT, to: WIDTH - RIGHT, log }
}

fn upwards(low: f64, high: f64, log: bool) -> Axis {
    Axis { low, high, from: HEIGHT - BOTTOM, to: TOP, log }
}

fn latency(ns: f64) -> String {
    millis(Duration::from_nanos(ns.round() as u64))
}

/// How many syncs took how long.
pub(super) fn histogram(pairs: &[(u64, u64)], limit_ns: u64) -> String {
    let (Some(first), Some(last)) = (pairs.first(), pairs.last()) else { return String::new() };
    let (low, high) = latency_range(first.0, last.0, limit_ns);
    let x = across(low, high, true);
    // Classes of a twentieth of a decade: fine enough to show two humps, coarse enough to be read.
    let class = |ns: u64| ((ns.max(1) as f64 / low).log10() * 20.0).floor().max(0.0) as usize;
    let mut counts = vec![0u64; class(last.0) + 1];
    for &(ns, count) in pairs {
        counts[class(ns)] += count;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let y = upwards(0.5, most as f64 * 1.3, true);
    let mut out = begin("Number of syncs by latency, both axes logarithmic");
    frame(&mut out, &x, &y, latency, |count| format!("{count:.0}"));
    for (number, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let edge = |n: usize| low * 10f64.powf(n as f64 / 20.0);
        let (left, right) = (x.at(edge(number)), x.at(edge(number + 1)));
        let top = y.at(count as f64);
        let kind = if edge(number) >= limit_ns as f64 { "bar above" } else { "bar" };
        let _ = write!(
            out,
            "<rect class=\"{kind}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
             <title>{count} syncs up to {}</title></rect>",
            (right - left - 1.0).max(1.0),
            HEIGHT - BOTTOM - top,
            latency(edge(number + 1))
        );
    }
    vertical(&mut out, x.at(limit_ns as f64), limit_ns);
    end(out)
}

/// Latency against the share of syncs that are faster, stretched towards the tail.
pub(super) fn tail(pairs: &[(u64, u64)], limit_ns: u64) -> String {
    let (Some(first), Some(last)) = (pairs.first(), pairs.last()) else { return String::new() };
    let n: u64 = pairs.iter().map(|pair| pair.1).sum();
    let (low, high) = latency_range(first.0, last.0, limit_ns);
    // One in how many: 2 is the median, 100 the 99th percentile.
    let x = across(1.0, (n as f64).max(1_000.0), true);
    let y = upwards(low, high, true);
    let mut out = begin("Latency by percentile, stretched towards the slowest syncs");
    let percentile = |one_in: f64| match one_in {
        v if v < 1.5 => "0".into(),
        v => format!("p{}", 100.0 - 100.0 / v),
    };
    frame(&mut out, &x, &y, percentile, latency);
    let mut seen = 0;
    let mut points = String::new();
    for &(ns, count) in pairs {
        let before = n as f64 / (n - seen).max(1) as f64;
        seen += count;
        let _ = write!(points, "{:.1},{:.1} ", x.at(before), y.at(ns as f64));
    }
    let _ = write!(out, "<polyline class=\"line\" points=\"{}\"/>", points.trim_end());
    horizontal(&mut out, y.at(limit_ns as f64), limit_ns);
    end(out)
}

/// Median, 99th percentile and maximum over the run.
pub(super) fn course(slices: &[Slice], limit_ns: u64) -> String {
    let (Some(last), true) = (slices.last(), slices.len() > 1) else { return String::new() };
    let low = slices.iter().map(|slice| slice.p50_ns).min().unwrap_or(1);
    let high = slices.iter().map(|slice| slice.max_ns).max().unwrap_or(1);
    let (low, high) = latency_range(low, high, limit_ns);
    let x = across(0.0, last.end_ns as f64 / 1e9, false);
    let y = upwards(low, high, true);
    let mut out = begin("Median, 99th percentile and maximum over the run");
    frame(&mut out, &x, &y, |seconds| format!("{seconds:.1} s"), latency);
    type Value = fn(&Slice) -> u64;
    let lines: [(&str, Value); 3] =
        [("line p50", |s| s.p50_ns), ("line p99", |s| s.p99_ns), ("line max", |s| s.max_ns)];
    for (kind, value) in lines {
        let mut points = String::new();
        for slice in slices {
            let place = (x.at(slice.end_ns as f64 / 1e9), y.at(value(slice) as f64));
            let _ = write!(points, "{:.1},{:.1} ", place.0, place.1);
        }
        let _ = write!(out, "<polyline class=\"{kind}\" points=\"{}\"/>", points.trim_end());
    }
    horizontal(&mut out, y.at(limit_ns as f64), limit_ns);
    end(out)
}

fn begin(title: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">")
}

fn end(mut out: String) -> String {
    out.push_str("</svg>");
    out
}

fn frame(
    out: &mut String,
    x: &Axis,
    y: &Axis,
    name_x: impl Fn(f64) -> String,
    name_y: impl Fn(f64) -> String,
) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            name_y(tick)
        );
    }
    for tick in x.ticks() {
        let at = x.at(tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM + 18.0,
            name_x(tick)
        );
    }
}

fn vertical(out: &mut String, at: f64, limit_ns: u64) {
    let _ = write!(
        out,
        "<line class=\"limit\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
         <text class=\"limit\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">limit {}</text>",
        HEIGHT - BOTTOM,
        at - 5.0,
        TOP + 12.0,
        latency(limit_ns as f64)
    );
}

fn horizontal(out: &mut String, at: f64, limit_ns: u64) {
    let right = WIDTH - RIGHT;
    let _ = write!(
        out,
        "<line class=\"limit\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
         <text class=\"limit\" x=\"{:.1}\" y=\"{:.1}\">limit {}</text>",
        LEFT + 6.0,
        at - 5.0,
        latency(limit_ns as f64)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_inside_the_plot_whatever_the_values() {
        for pairs in [vec![(1, 1)], vec![(0, 1), (u64::MAX, 3)], vec![(10_000_000, 5)]] {
            for plot in [histogram(&pairs, 10_000_000), tail(&pairs, 10_000_000)] {
                assert!(plot.starts_with("<svg") && plot.ends_with("</svg>"));
                assert!(!plot.contains("NaN") && !plot.contains("inf"), "{plot}");
            }
        }
        assert_eq!(histogram(&[], 1), "");
    }

    #[test]
    fn bars_above_the_limit_are_marked() {
        let plot = histogram(&[(300_000, 900), (20_000_000, 3)], 10_000_000);
        assert_eq!(plot.matches("class=\"bar above\"").count(), 1);
        assert_eq!(plot.matches("class=\"bar\"").count(), 1);
    }

    #[test]
    fn a_timeline_needs_two_points() {
        let slice = |end_ns| Slice { end_ns, n: 1, p50_ns: 1_000, p99_ns: 2_000, max_ns: 3_000 };
        assert_eq!(course(&[slice(1)], 1_000_000), "");
        let plot = course(&[slice(1_000_000_000), slice(2_000_000_000)], 1_000_000);
        assert_eq!(plot.matches("<polyline").count(), 3);
    }
}
