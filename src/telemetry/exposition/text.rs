//! Text format 0.0.4, number for number as a Go server writes it.

use prometheus::proto::{Metric, MetricFamily, MetricType};
use std::fmt::Write;

pub(super) fn family(out: &mut String, family: &MetricFamily) {
    let name = family.name();
    let kind = match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::HISTOGRAM => "histogram",
        _ => "gauge",
    };
    // Writing to a string cannot fail.
    let _ = write!(out, "# HELP {name} ");
    escape(out, family.help(), false);
    let _ = write!(out, "\n# TYPE {name} {kind}\n");
    for metric in family.get_metric() {
        match family.get_field_type() {
            MetricType::HISTOGRAM => histogram(out, name, metric),
            MetricType::COUNTER => {
                sample(out, name, "", metric, None, metric.get_counter().value());
            }
            _ => sample(out, name, "", metric, None, metric.get_gauge().value()),
        }
    }
}

fn histogram(out: &mut String, name: &str, metric: &Metric) {
    let histogram = metric.get_histogram();
    for bucket in histogram.get_bucket() {
        let count = bucket.cumulative_count() as f64;
        sample(out, name, "_bucket", metric, Some(bucket.upper_bound()), count);
    }
    let count = histogram.get_sample_count() as f64;
    sample(out, name, "_bucket", metric, Some(f64::INFINITY), count);
    sample(out, name, "_sum", metric, None, histogram.get_sample_sum());
    sample(out, name, "_count", metric, None, count);
}

fn sample(
    out: &mut String,
    name: &str,
    suffix: &str,
    metric: &Metric,
    le: Option<f64>,
    value: f64,
) {
    out.push_str(name);
    out.push_str(suffix);
    let mut separator = '{';
    for label in metric.get_label() {
        out.push(separator);
        separator = ',';
        let _ = write!(out, "{}=\"", label.name());
        escape(out, label.value(), true);
        out.push('"');
    }
    if let Some(le) = le {
        let _ = write!(out, "{separator}le=\"");
        number(out, le);
        out.push('"');
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    out.push(' ');
    number(out, value);
    out.push('\n');
}

fn escape(out: &mut String, text: &str, quotes: bool) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            other => out.push(other),
        }
    }
}

/// As Go's `strconv.FormatFloat(value, 'g', -1, 64)`: shortest digits, with an exponent below 1e-4
/// and from 1e6 on.
pub(super) fn number(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        let magnitude = value.abs();
        if value == 0.0 || (1e-4..1e6).contains(&magnitude) {
            let _ = write!(out, "{value}");
            return;
        }
        // Rust writes 1.5e6, Go 1.5e+06.
        let scientific = format!("{value:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
    }
}
