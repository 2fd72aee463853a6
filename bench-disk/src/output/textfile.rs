//! The result for the textfile collector of Prometheus' node exporter.
//!
//! All series carry the directory, so that files about several directories can lie side by side.

use crate::env::Environment;
use crate::judge::Outcome;
use crate::verdict::{Measured, PhaseFigures, Verdict};
use std::fmt::Write;

/// Upper edges of the histogram in nanoseconds: factor two, and the limit of etcd's advice. The
/// limit of the run joins them.
const EDGES: [u64; 20] = [
    15_625,
    31_250,
    62_500,
    125_000,
    250_000,
    500_000,
    1_000_000,
    2_000_000,
    4_000_000,
    8_000_000,
    10_000_000,
    16_000_000,
    32_000_000,
    64_000_000,
    100_000_000,
    128_000_000,
    256_000_000,
    512_000_000,
    1_024_000_000,
    4_096_000_000,
];

const OUTCOMES: [Outcome; 4] =
    [Outcome::Pass, Outcome::Fail, Outcome::Inconclusive, Outcome::Refused];

/// The whole file.
pub fn render(environment: &Environment, verdict: &Verdict) -> String {
    let place = format!("directory=\"{}\"", escape(&environment.directory.to_string_lossy()));
    let mut out = Writer { out: String::new(), place };
    out.family("bench_disk_info", "gauge", "What was measured; the value is always 1.");
    let durability = verdict.measured.as_ref().map_or("unverified", |m| m.durability.as_str());
    let labels = [
        ("tool", verdict.tool.as_str()),
        ("profile", &verdict.profile),
        ("filesystem", &environment.filesystem),
        ("device", &verdict.device),
        ("durability", durability),
    ];
    out.value("bench_disk_info", &labels, 1.0);
    out.family(
        "bench_disk_verdict",
        "gauge",
        "1 for the outcome of the last run, 0 for the others.",
    );
    for outcome in OUTCOMES {
        let word = outcome.as_str().to_lowercase();
        let holds = f64::from(u8::from(outcome == verdict.outcome));
        out.value("bench_disk_verdict", &[("outcome", &word)], holds);
    }
    out.gauge(
        "bench_disk_verdict_timestamp_seconds",
        "End of the last run, in seconds since 1970; the age is time() minus this.",
        verdict.created as f64,
    );
    out.gauge(
        "bench_disk_verdict_expiry_timestamp_seconds",
        "When the verdict expires unless a node runs on it, in seconds since 1970.",
        verdict.expires as f64,
    );
    out.gauge(
        "bench_disk_limit_seconds",
        "Limit for the 99th percentile of a sync.",
        seconds(verdict.limit_ns),
    );
    out.family("bench_disk_findings", "gauge", "Number of findings of the last run by severity.");
    for severity in ["note", "warn", "refuse"] {
        let count = verdict.findings.iter().filter(|f| f.severity.as_str() == severity).count();
        out.value("bench_disk_findings", &[("severity", severity)], count as f64);
    }
    if let Some(measured) = &verdict.measured {
        figures(&mut out, measured);
        histogram(&mut out, measured, verdict.limit_ns);
        phases(&mut out, measured);
        beside(&mut out, measured);
    }
    out.out
}

fn figures(out: &mut Writer, measured: &Measured) {
    let p = &measured.percentiles;
    let latency = "bench_disk_sync_latency_quantile_seconds";
    out.family(latency, "gauge", "Quantiles of the sync latency, exact.");
    let quantiles = [
        ("0.5", p.p50_ns),
        ("0.9", p.p90_ns),
        ("0.99", p.p99_ns),
        ("0.999", p.p999_ns),
        ("1", p.max_ns),
    ];
    for (name, ns) in quantiles {
        out.value(latency, &[("q", name)], seconds(ns));
    }
    out.gauge(
        "bench_disk_sync_p99_lower_seconds",
        "Lower confidence limit of the 99th percentile.",
        seconds(p.p99_low_ns),
    );
    out.gauge(
        "bench_disk_sync_p99_upper_seconds",
        "Upper confidence limit of the 99th percentile; +Inf if there are too few samples.",
        p.p99_high_ns.map_or(f64::INFINITY, seconds),
    );
    out.gauge(
        "bench_disk_confidence_ratio",
        "Confidence of the answer.",
        1.0 - measured.summary.alpha,
    );
    out.gauge("bench_disk_samples", "Syncs measured.", measured.summary.n as f64);
    out.gauge(
        "bench_disk_samples_above_limit",
        "Syncs that took longer than the limit.",
        measured.summary.exceeded as f64,
    );
    out.gauge(
        "bench_disk_longest_burst",
        "Most consecutive syncs above the limit.",
        measured.summary.longest_burst as f64,
    );
    out.gauge(
        "bench_disk_design_effect",
        "Factor by which bursts weaken the samples.",
        measured.summary.design_effect,
    );
    out.gauge("bench_disk_written_bytes", "Bytes that the run wrote.", measured.bytes as f64);
    if let Some(flushes) = measured.flushes {
        out.gauge(
            "bench_disk_flushes",
            "Flushes that the disk completed during the run.",
            flushes as f64,
        );
    }
}

fn histogram(out: &mut Writer, measured: &Measured, limit_ns: u64) {
    let name = "bench_disk_sync_latency_seconds";
    out.family(name, "histogram", "Latency of the syncs of the last run.");
    let n = measured.summary.n;
    let mut edges = EDGES.to_vec();
    edges.push(limit_ns);
    edges.sort_unstable();
    edges.dedup();
    let bucket = format!("{name}_bucket");
    let mut below = 0;
    for edge in edges {
        // The recorded values are upper ends of classes of 1 %; at the limit the count is exact.
        let counted: u64 =
            measured.histogram.iter().filter(|pair| pair.0 <= edge).map(|pair| pair.1).sum();
        let counted = if edge == limit_ns { n - measured.summary.exceeded.min(n) } else { counted };
        below = counted.clamp(below, n);
        out.value(&bucket, &[("le", &seconds(edge).to_string())], below as f64);
    }
    out.value(&bucket, &[("le", "+Inf")], n as f64);
    let sum = match &measured.sync {
        Some(sync) => sync.mean_ns * sync.n as f64 / 1e9,
        None => measured.histogram.iter().map(|pair| seconds(pair.0) * pair.1 as f64).sum(),
    };
    out.value(&format!("{name}_sum"), &[], sum);
    out.value(&format!("{name}_count"), &[], n as f64);
}

/// The phase that decides, and those measured beside it.
fn phases(out: &mut Writer, measured: &Measured) {
    if measured.phases.is_empty() {
        return;
    }
    let name = "bench_disk_phase_latency_quantile_seconds";
    out.family(name, "gauge", "Quantiles of the sync latency by phase, exact.");
    for phase in &measured.phases {
        let quantiles = [
            ("0.5", phase.p50_ns),
            ("0.99", phase.p99_ns),
            ("0.999", phase.p999_ns),
            ("1", phase.max_ns),
        ];
        for (q, ns) in quantiles {
            out.value(name, &[("phase", &phase.name), ("q", q)], seconds(ns));
        }
    }
    type Value = fn(&PhaseFigures) -> f64;
    let families: [(&str, &str, Value); 3] = [
        ("bench_disk_phase_samples", "Syncs measured by phase.", |phase| phase.n as f64),
        ("bench_disk_phase_samples_above_limit", "Syncs above the limit by phase.", |phase| {
            phase.exceeded as f64
        }),
        ("bench_disk_phase_syncs_per_second", "Rate of the syncs by phase.", |phase| {
            phase.syncs_per_second
        }),
    ];
    for (name, help, value) in families {
        out.family(name, "gauge", help);
        for phase in &measured.phases {
            out.value(name, &[("phase", &phase.name)], value(phase));
        }
    }
}

/// The open-loop view, and what a flush adds to a write.
fn beside(out: &mut Writer, measured: &Measured) {
    if let Some(open) = &measured.open_loop {
        let name = "bench_disk_open_loop_latency_quantile_seconds";
        let help = "Quantiles that requests at fixed times would have seen, queueing included.";
        out.family(name, "gauge", help);
        for (q, ns) in [("0.99", open.p99_ns), ("0.999", open.p999_ns), ("1", open.max_ns)] {
            out.value(name, &[("q", q)], seconds(ns));
        }
    }
    if let Some(cost) = &measured.flush_cost {
        let name = "bench_disk_block_write_seconds";
        out.family(name, "gauge", "Median of a 4 KiB write past the page cache.");
        for (synced, ns) in [("no", cost.write_ns), ("yes", cost.synced_ns)] {
            out.value(name, &[("synced", synced)], seconds(ns));
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

struct Writer {
    out: String,
    place: String,
}

impl Writer {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help);
        self.value(name, &[], value);
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.out, "{name}{{{}", self.place);
        for (label, content) in labels {
            let _ = write!(self.out, ",{label}=\"{}\"", escape(content));
        }
        let value = if value == f64::INFINITY { "+Inf".into() } else { value.to_string() };
        let _ = writeln!(self.out, "}} {value}");
    }
}

/// Label values may hold anything but these three characters.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::sample;
    use std::path::Path;

    fn rendered(directory: &str, outcome: Outcome) -> String {
        let mut environment = Environment::inspect(Path::new("/")).expect("a root");
        environment.directory = directory.into();
        render(&environment, &sample(outcome, 1_000))
    }

    #[test]
    fn buckets_rise_to_the_count_and_are_exact_at_the_limit() {
        let text = rendered("/data", Outcome::Fail);
        let buckets: Vec<(&str, u64)> = text
            .lines()
            .filter_map(|line| {
                line.strip_prefix("bench_disk_sync_latency_seconds_bucket")?.split_once("le=\"")
            })
            .filter_map(|(_, rest)| rest.split_once("\"} "))
            .map(|(edge, count)| (edge, count.parse().expect("a count")))
            .collect();
        assert!(buckets.is_sorted_by_key(|bucket| bucket.1), "{buckets:?}");
        assert_eq!(buckets.last(), Some(&("+Inf", 3)));
        assert!(buckets.contains(&("0.01", 2)), "{buckets:?}");
        assert!(text.contains("bench_disk_verdict{directory=\"/data\",outcome=\"fail\"} 1"));
        assert!(text.contains("bench_disk_verdict{directory=\"/data\",outcome=\"pass\"} 0"));
        assert!(text.contains("bench_disk_sync_p99_upper_seconds{directory=\"/data\"} +Inf"));
        let burst = "bench_disk_phase_samples{directory=\"/data\",phase=\"burst\"} 2";
        assert!(text.contains(burst), "{text}");
    }

    #[test]
    fn labels_are_escaped() {
        let text = rendered("/a\"b\\c\nd", Outcome::Pass);
        assert!(text.contains(r#"directory="/a\"b\\c\nd""#), "{text}");
        assert!(text.lines().all(|line| line.starts_with('#') || line.starts_with("bench_disk_")));
    }
}
