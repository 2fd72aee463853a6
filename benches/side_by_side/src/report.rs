//! Figures of all rounds: medians, spread, ratios, and the targets they are held against.

use crate::closed_loop::{self, quantile_us};
use crate::open_loop;
use crate::server::Kind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a figure should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// Nothing is asked.
    None,
    /// Assay's divided by etcd's at least this.
    RatioAtLeast(f64),
    /// Assay's divided by etcd's at most this.
    RatioAtMost(f64),
    /// Assay's own at most this.
    AtMost(f64),
}

use Target::{AtMost, None as Any, RatioAtLeast, RatioAtMost};

/// Largest p99 of the generator's own floor in microseconds: above it the open loop measures itself.
const FLOOR_LIMIT_US: f64 = 200.0;

/// A row of the table: id, title, unit, target.
pub(crate) type Figure = (&'static str, &'static str, &'static str, Target);

/// All figures of single servers in the order of the table.
#[rustfmt::skip]
pub(crate) const SINGLE: &[Figure] = &[
    ("start_written", "written after a start, before any load", "MiB", Any),
    ("put_1_rate", "puts, 1 in flight", "/s", Any),
    ("put_1_p50", "  p50", "us", Any),
    ("put_1_p99", "  p99", "us", Any),
    ("put_1_fsync_p50", "  the node's fdatasync p50", "us", Any),
    ("put_1_fsync_p99", "  the node's fdatasync p99", "us", Any),
    ("put_1_fsync_mean", "  the node's fdatasync mean", "us", Any),
    ("put_1_overhead", "  p50 - fdatasync p50 - do-nothing p50", "us", AtMost(40.0)),
    ("put_1_cpu", "  server CPU per put", "us", Any),
    ("put_1_client", "  client CPU per put", "us", Any),
    ("put_64_rate", "puts, 64 in flight", "/s", RatioAtLeast(1.4)),
    ("put_64_p50", "  p50", "us", Any),
    ("put_64_p99", "  p99", "us", Any),
    ("put_64_cpu", "  server CPU per put", "us", RatioAtMost(0.5)),
    ("put_64_client", "  client CPU per put", "us", Any),
    ("put_64_per_fsync", "  puts per fdatasync", "", Any),
    ("put_64_fsync_p50", "  the node's fdatasync p50", "us", Any),
    ("put_64_fsync_p99", "  the node's fdatasync p99", "us", Any),
    ("put_64_fsync_mean", "  the node's fdatasync mean", "us", Any),
    ("put_1024_rate", "puts, 1,024 in flight", "/s", RatioAtLeast(1.4)),
    ("put_1024_p50", "  p50", "us", Any),
    ("put_1024_p99", "  p99", "us", Any),
    ("put_1024_cpu", "  server CPU per put", "us", RatioAtMost(0.5)),
    ("put_1024_client", "  client CPU per put", "us", Any),
    ("put_1024_per_fsync", "  puts per fdatasync", "", Any),
    ("put_1024_fsync_p50", "  the node's fdatasync p50", "us", Any),
    ("put_1024_fsync_p99", "  the node's fdatasync p99", "us", Any),
    ("put_1024_fsync_mean", "  the node's fdatasync mean", "us", Any),
    ("get_lin_1_rate", "linearizable gets, 1 in flight", "/s", RatioAtLeast(1.3)),
    ("get_lin_1_p99", "  p99", "us", Any),
    ("get_lin_64_rate", "linearizable gets, 64 in flight", "/s", RatioAtLeast(1.3)),
    ("get_lin_64_p99", "  p99", "us", Any),
    ("get_lin_64_cpu", "  server CPU per get", "us", Any),
    ("get_lin_64_client", "  client CPU per get", "us", Any),
    ("get_ser_1_rate", "serializable gets, 1 in flight", "/s", RatioAtLeast(1.3)),
    ("get_ser_1_p99", "  p99", "us", Any),
    ("get_ser_64_rate", "serializable gets, 64 in flight", "/s", RatioAtLeast(1.3)),
    ("get_ser_64_p99", "  p99", "us", Any),
    ("get_ser_64_cpu", "  server CPU per get", "us", Any),
    ("get_ser_64_client", "  client CPU per get", "us", Any),
    ("range_1000_rate", "ranges of 1,000 keys of 512 B, 8 in flight", "/s", RatioAtLeast(2.0)),
    ("range_1000_p99", "  p99", "us", Any),
    ("range_1000_cpu", "  server CPU per range", "us", Any),
    ("range_1000_client", "  client CPU per range", "us", Any),
    ("watch_puts", "puts that all watchers received", "/s", Any),
    ("watch_events", "  events delivered", "/s", Any),
    ("watch_cpu", "  server CPU per event", "us", Any),
    ("watch_lag_p50", "  lag p50 (put sent to event received)", "us", Any),
    ("watch_lag_p99", "  lag p99", "us", Any),
    ("open_rate", "open loop, rate answered", "/s", Any),
    ("open_p50", "  p50 from the intended start", "us", Any),
    ("open_p99", "  p99", "us", RatioAtMost(0.5)),
    ("open_p999", "  p99.9", "us", Any),
    ("open_late_p99", "  generator late p99", "us", Any),
    ("many_load", "loading many keys of 256 B, 100 per txn", "keys/s", Any),
    ("many_rss", "  resident memory after loading", "MiB", RatioAtMost(0.7)),
    ("many_rss_anonymous", "  of it anonymous", "MiB", Any),
    ("many_rss_peak", "  peak resident memory", "MiB", Any),
    ("many_rss_restarted", "  resident memory after a restart", "MiB", RatioAtMost(0.7)),
    ("many_disk", "  files", "MiB", Any),
    ("many_restart_killed", "  restart after kill -9", "ms", RatioAtMost(0.7)),
    ("many_restart_clean", "  restart after SIGTERM", "ms", RatioAtMost(0.7)),
    ("many_stop", "  SIGTERM to end", "ms", Any),
    ("list_p99_alone", "puts at a fixed rate over many keys, p99", "us", Any),
    ("list_p99_beside", "  beside a client that lists all keys", "us", Any),
    ("list_factor", "  factor", "", AtMost(1.5)),
    ("list_floor", "  calls of a do-nothing server beside it, p99", "us", Any),
    ("list_late_p99", "  generator late p99 beside it", "us", Any),
    ("list_keys", "  keys listed", "/s", Any),
];

/// Figures by id and program.
pub(crate) struct Report {
    figures: &'static [Figure],
    samples: BTreeMap<(String, Kind), Vec<f64>>,
}

/// One figure over all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Summary {
    median: f64,
    min: f64,
    max: f64,
}

fn summary(samples: &[f64]) -> Option<Summary> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let half = sorted.len() / 2;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(Summary { median: (lower + sorted[half]) / 2.0, min, max })
}

/// Whether a target is met; `None` when there is none or a figure is missing.
fn met(target: Target, own: Option<f64>, other: Option<f64>) -> Option<bool> {
    match target {
        Any => None,
        AtMost(limit) => Some(own? <= limit),
        RatioAtLeast(limit) => Some(own? / other? >= limit),
        RatioAtMost(limit) => Some(own? / other? <= limit),
    }
}

fn words(target: Target) -> String {
    match target {
        Any => String::new(),
        AtMost(limit) => format!("<= {limit}"),
        RatioAtLeast(limit) => format!(">= {limit}x"),
        RatioAtMost(limit) => format!("<= {limit}x"),
    }
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

impl Report {
    /// Nothing measured yet; the table will have these rows.
    pub(crate) fn new(figures: &'static [Figure]) -> Self {
        Self { figures, samples: BTreeMap::new() }
    }

    /// Figures of a closed loop under `PREFIX_rate` and so on.
    pub(crate) fn add_outcome(&mut self, prefix: &str, kind: Kind, outcome: &closed_loop::Outcome) {
        let quantile = |quantile| quantile_us(&outcome.latency, quantile);
        let (p50, p99) = (quantile(0.5), quantile(0.99));
        let (server, client) = (outcome.server_us(), outcome.client_us());
        for (name, figure) in [
            ("rate", outcome.rate()),
            ("p50", p50),
            ("p99", p99),
            ("cpu", server),
            ("client", client),
        ] {
            self.add(&format!("{prefix}_{name}"), kind, figure);
        }
        eprintln!(
            "  {:<7} {prefix:<12} {:>9.0}/s  p50 {p50:>8.0} us  p99 {p99:>8.0} us  server \
             {server:>6.1} us  client {client:>5.1} us",
            kind.name(),
            outcome.rate(),
        );
    }

    /// Figures of the open loop.
    pub(crate) fn add_open(&mut self, kind: Kind, outcome: &open_loop::Outcome) {
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
            let figure = quantile_us(&outcome.latency, quantile);
            self.add(&format!("open_{name}"), kind, figure);
        }
        self.add("open_rate", kind, outcome.rate);
        self.add("open_late_p99", kind, quantile_us(&outcome.late, 0.99));
        eprintln!(
            "  {:<7} open         {:>9.0}/s  p50 {:>8.0} us  p99 {:>8.0} us  sent late p99 {:.0} us",
            kind.name(),
            outcome.rate,
            quantile_us(&outcome.latency, 0.5),
            quantile_us(&outcome.latency, 0.99),
            quantile_us(&outcome.late, 0.99),
        );
    }

    /// One figure of one round.
    pub(crate) fn add(&mut self, id: &str, kind: Kind, figure: f64) {
        self.samples.entry((id.to_string(), kind)).or_default().push(figure);
    }

    /// Median over the rounds so far.
    pub(crate) fn median(&self, id: &str, kind: Kind) -> Option<f64> {
        self.summary(id, kind).map(|summary| summary.median)
    }

    fn summary(&self, id: &str, kind: Kind) -> Option<Summary> {
        summary(self.samples.get(&(id.to_string(), kind))?)
    }

    /// The table for people.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        let heads = ["", "assay (min..max)", "etcd (min..max)", "nothing", "ratio", "target"];
        let [a, b, c, d, e, f] = heads;
        let _ = writeln!(out, "{a:<45} {b:>26} {c:>26} {d:>9} {e:>7} {f:>9}");
        for (id, title, unit, target) in self.figures {
            let [own, other, nothing] =
                [Kind::Assay, Kind::Etcd, Kind::Nothing].map(|kind| self.summary(id, kind));
            if own.is_none() && other.is_none() && nothing.is_none() {
                continue;
            }
            let cell = |found: Option<Summary>| match found {
                Some(Summary { median, min, max }) if min < max => {
                    format!("{} ({}..{})", number(median), number(min), number(max))
                }
                Some(only) => number(only.median),
                None => "-".into(),
            };
            let (own_median, other_median) = (own.map(|x| x.median), other.map(|x| x.median));
            let ratio = own_median.zip(other_median).map(|(own, other)| own / other);
            let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
            let word = match met(*target, own_median, other_median) {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            let title = if unit.is_empty() { (*title).into() } else { format!("{title}, {unit}") };
            let nothing = nothing.map_or(String::new(), |found| number(found.median));
            let _ = writeln!(
                out,
                "{title:<45} {:>26} {:>26} {nothing:>9} {ratio:>7} {:>9} {word}",
                cell(own),
                cell(other),
                words(*target),
            );
        }
        if let Some(floor) = self.median("open_p99", Kind::Nothing) {
            let verdict = if floor < FLOOR_LIMIT_US {
                "met"
            } else {
                "MISSED: latencies of the open \
                loop hold that much of the generator and the scheduler"
            };
            let _ = writeln!(
                out,
                "floor of the open loop (do-nothing server): p99 {floor:.0} us, limit \
                 {FLOOR_LIMIT_US:.0} us: {verdict}"
            );
        }
        out
    }

    /// Everything for programs.
    pub(crate) fn json(&self) -> Value {
        let figures = self.figures.iter().filter_map(|(id, title, unit, target)| {
            let mut figure = serde_json::Map::new();
            for kind in [Kind::Assay, Kind::Etcd, Kind::Nothing] {
                if let Some(samples) = self.samples.get(&((*id).to_string(), kind)) {
                    let found = summary(samples)?;
                    let (median, min, max) = (found.median, found.min, found.max);
                    let value = json!({
                        "median": median, "min": min, "max": max, "rounds": samples,
                    });
                    figure.insert(kind.name().into(), value);
                }
            }
            if figure.is_empty() {
                return None;
            }
            let own = self.median(id, Kind::Assay);
            let other = self.median(id, Kind::Etcd);
            figure.insert("title".into(), json!(title.trim()));
            figure.insert("unit".into(), json!(unit));
            figure.insert("ratio".into(), json!(own.zip(other).map(|(own, other)| own / other)));
            figure.insert("target".into(), json!(words(*target)));
            figure.insert("met".into(), json!(met(*target, own, other)));
            Some(((*id).to_string(), Value::Object(figure)))
        });
        Value::Object(figures.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_spread_and_targets() {
        let found = summary(&[3.0, 1.0, 10.0]).expect("samples");
        assert_eq!(found, Summary { median: 3.0, min: 1.0, max: 10.0 });
        assert_eq!(summary(&[1.0, 2.0]).map(|found| found.median), Some(1.5));
        assert_eq!(summary(&[]), None);
        assert_eq!(met(RatioAtLeast(1.4), Some(14.0), Some(10.0)), Some(true));
        assert_eq!(met(RatioAtMost(0.5), Some(6.0), Some(10.0)), Some(false));
        assert_eq!(met(RatioAtMost(0.5), Some(6.0), None), None);
        assert_eq!(met(AtMost(40.0), Some(41.0), None), Some(false));
    }

    #[test]
    fn the_table_shows_a_missed_target() {
        let mut report = Report::new(SINGLE);
        report.add("put_64_rate", Kind::Assay, 100.0);
        report.add("put_64_rate", Kind::Etcd, 100.0);
        assert!(report.table().contains("MISSED"));
        assert_eq!(report.json()["put_64_rate"]["met"], json!(false));
    }
}
