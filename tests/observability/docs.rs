//! `docs/metrics.md` against the declarations, boards and alerts.

use super::{alerts, boards, repository};
use crate::names::in_expression;
use assay::telemetry::families;
use std::collections::BTreeSet;

const FILE: &str = "docs/metrics.md";
/// Heading of the metrics that no board and no alert shows.
const ONLY_FOR_QUERIES: &str = "## Only for queries";

fn row(family: &families::Family) -> String {
    let labels = family.labels.join(", ");
    let (kind, unit) = (family.kind.as_str(), family.unit.as_str());
    format!("| `{}` | {kind} | {unit} | {labels} | {} |", family.name, family.help)
}

/// Replaces the two generated tables of the document. To write it after a change:
/// `ASSAY_WRITE_DOCS=1 cargo test --test observability docs`.
fn with_tables(document: &str) -> String {
    let mut out = document.to_string();
    for (name, all) in [("own", families::assay::ALL), ("etcd", families::etcd::ALL)] {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
        let from = out.find(&begin).expect("the beginning of a table") + begin.len();
        let to = out.find(&end).expect("the end of a table");
        let mut rows: Vec<String> = all.iter().map(|family| row(family)).collect();
        rows.sort();
        let head = "| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n";
        out.replace_range(from..to, &format!("{head}{}\n", rows.join("\n")));
    }
    out
}

#[test]
fn docs_list_every_metric() {
    let document = std::fs::read_to_string(repository(FILE)).expect(FILE);
    let expected = with_tables(&document);
    if std::env::var_os("ASSAY_WRITE_DOCS").is_some() {
        std::fs::write(repository(FILE), &expected).expect(FILE);
    }
    assert!(document == expected, "{FILE} is out of date: set ASSAY_WRITE_DOCS and run this again");
}

#[test]
fn own_metrics_are_on_a_board_in_an_alert_or_listed_with_a_reason() {
    let document = std::fs::read_to_string(repository(FILE)).expect(FILE);
    let (_, listed) = document.split_once(ONLY_FOR_QUERIES).expect("the list");
    let listed: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("- `")?.split_once("`: "))
        .map(|(name, reason)| {
            assert!(reason.len() > 20, "{name}: a reason");
            name.to_string()
        })
        .collect();
    let mut shown = alerts::metrics();
    for panel in boards::panels() {
        shown.extend(panel.expressions().iter().flat_map(|expression| in_expression(expression)));
    }
    for family in families::assay::ALL {
        let name = family.name.to_string();
        let places = (shown.contains(&name), listed.contains(&name));
        assert!(
            places.0 != places.1,
            "{name}: on a board or alert {}, listed {}",
            places.0,
            places.1
        );
    }
}
