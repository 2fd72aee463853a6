//! Names of metrics: in expressions, in an exposition, in the declarations.

use assay::telemetry::families::{self, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// Beginnings of the names that a node exposes.
const OURS: [&str; 6] = ["assay_", "etcd_", "grpc_", "os_", "process_", "promhttp_"];

/// Families named in an expression. Series of a histogram count as the histogram; labels, strings,
/// recorded series and functions do not count.
pub(crate) fn in_expression(expression: &str) -> BTreeSet<String> {
    let histograms: BTreeSet<&str> = families::all()
        .filter(|family| matches!(family.kind, Kind::Histogram(_) | Kind::Doubling))
        .map(|family| family.name)
        .collect();
    let base = |name: &str| {
        let ends = ["_bucket", "_count", "_sum"];
        let base = ends.iter().filter_map(|end| name.strip_suffix(end));
        base.into_iter().find(|base| histograms.contains(base)).unwrap_or(name).to_string()
    };
    words(&without_labels(expression))
        .filter(|word| OURS.iter().any(|ours| word.starts_with(ours)))
        .map(base)
        .collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .filter(|word| !word.contains(':'))
}

/// The expression without `{...}`, and without the lists behind `by`, `on` and `ignoring`.
fn without_labels(expression: &str) -> String {
    let mut out = String::new();
    let mut depth = 0;
    let mut in_string = false;
    for character in expression.chars() {
        match character {
            '"' => in_string = !in_string,
            '{' if !in_string => depth += 1,
            '}' if !in_string => depth -= 1,
            _ if depth == 0 && !in_string => out.push(character),
            _ => {}
        }
    }
    for keyword in ["by", "on", "ignoring", "without"] {
        let opening = format!("{keyword} (");
        while let Some(start) = out.find(&opening) {
            let end = out[start..].find(')').expect("a closing parenthesis") + start;
            out.replace_range(start..=end, " ");
        }
    }
    out
}

/// Types of all families of an exposition in text format.
pub(crate) fn exposed(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| (name.to_string(), kind.to_string())).collect()
}

/// Value of the series that begins with `series` and a space.
pub(crate) fn value(text: &str, series: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(rest.parse().expect("a number"))
}

#[test]
fn names_are_found_in_expressions() {
    let found = in_expression(
        "histogram_quantile(0.99, sum by (grpc_method, le) (rate(\
         grpc_server_handling_seconds_bucket{job=~\"etcd_x\"}[5m]))) \
         and on (instance) etcd_server_is_leader == 1 or instance:etcd_disk_x:rate5m > 0",
    );
    let expected = ["etcd_server_is_leader", "grpc_server_handling_seconds"];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    let text = "# TYPE a gauge\na{x=\"1\"} 5\na{x=\"11\"} 6\n";
    assert_eq!(value(text, "a{x=\"11\"}"), Some(6.0));
    assert_eq!(exposed(text)["a"], "gauge");
}
