//! The boards as files: what Grafana's own linter demands, and what their panels promise.

use super::names::in_expression;
use super::repository;
use assay::telemetry::families::{self, Kind};
use serde_json::Value;
use std::collections::BTreeSet;

/// Files of the boards.
pub(crate) const BOARDS: [&str; 2] = ["dashboards/overview.json", "dashboards/disk.json"];
const SELECTOR: &str = r#"job=~"$job", instance=~"$instance""#;
/// Units of Grafana that our boards use.
const UNITS: [&str; 9] =
    ["none", "short", "s", "bytes", "Bps", "percentunit", "ops", "reqps", "cps"];
/// Width of the grid.
const COLUMNS: u64 = 24;

/// A panel and the board it is on.
pub(crate) struct Panel {
    /// `uid/title`.
    pub(crate) name: String,
    pub(crate) json: Value,
}

impl Panel {
    pub(crate) fn expressions(&self) -> Vec<String> {
        let targets = self.json["targets"].as_array().expect("targets");
        targets.iter().map(|target| text(&target["expr"]).to_string()).collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn board(file: &str) -> Value {
    let bytes = std::fs::read(repository(file)).expect("a board");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// All panels with data.
pub(crate) fn panels() -> Vec<Panel> {
    let mut panels = Vec::new();
    for file in BOARDS {
        let board = board(file);
        for panel in board["panels"].as_array().expect("panels") {
            if panel["type"] != "row" {
                let name = format!("{}/{}", text(&board["uid"]), text(&panel["title"]));
                panels.push(Panel { name, json: panel.clone() });
            }
        }
    }
    assert!(panels.len() > 40, "the boards were not understood");
    panels
}

#[test]
fn boards_can_be_imported_and_chosen() {
    let mut uids = BTreeSet::new();
    for file in BOARDS {
        let board = board(file);
        assert_eq!(board["id"], Value::Null, "{file}: an id belongs to one server");
        assert!(uids.insert(text(&board["uid"]).to_string()), "{file}: uid is taken");
        assert_eq!(board["schemaVersion"], 39, "{file}");
        assert_eq!(board["editable"], false, "{file}");
        assert!(board["tags"].as_array().is_some_and(|tags| tags.contains(&"assay".into())));
        let variables = board["templating"]["list"].as_array().expect("variables");
        let names: Vec<&str> = variables.iter().map(|variable| text(&variable["name"])).collect();
        assert_eq!(names, ["datasource", "job", "instance"], "{file}");
        assert_eq!(variables[0]["type"], "datasource");
        assert_eq!(variables[0]["label"], "Data Source");
        for variable in &variables[1..] {
            let name = text(&variable["name"]);
            assert_eq!(variable["datasource"]["uid"], "${datasource}", "{file} {name}");
            assert_eq!((&variable["multi"], &variable["allValue"]), (&true.into(), &".+".into()));
            assert_eq!(variable["refresh"], 2, "{file} {name}: read again when the time changes");
            assert!(text(&variable["definition"]).starts_with("label_values(assay_build_info"));
        }
    }
}

#[test]
fn panels_have_what_a_reader_needs() {
    for file in BOARDS {
        let mut ids = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for panel in board(file)["panels"].as_array().expect("panels") {
            let title = text(&panel["title"]);
            assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{file} {title}: id");
            let place = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
            let (x, y, w, h) = (place("x"), place("y"), place("w"), place("h"));
            assert!(x + w <= COLUMNS, "{file} {title}: too wide");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "{file} {title}: lies over another panel");
            }
            if panel["type"] == "row" {
                continue;
            }
            assert!(matches!(text(&panel["type"]), "timeseries" | "stat"), "{file} {title}");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{file} {title}");
            let unit = text(&panel["fieldConfig"]["defaults"]["unit"]);
            assert!(UNITS.contains(&unit), "{file} {title}: unit {unit}");
            assert!(text(&panel["description"]).len() > 30, "{file} {title}: description");
        }
    }
}

#[test]
fn a_panel_reads_the_metrics_that_it_promises() {
    for panel in panels() {
        let description = text(&panel.json["description"]);
        let (_, promised) = description.rsplit_once("\n\nmetrics: ").expect("a metrics: hint");
        let promised: BTreeSet<String> = promised.split(", ").map(str::to_string).collect();
        let read: BTreeSet<String> =
            panel.expressions().iter().flat_map(|expression| in_expression(expression)).collect();
        assert_eq!(read, promised, "{}", panel.name);
        for name in read {
            let known = families::all().any(|family| family.name == name);
            assert!(known, "{}: there is no {name}", panel.name);
        }
    }
}

#[test]
fn expressions_follow_the_rules() {
    let counters: BTreeSet<&str> = families::all()
        .filter(|family| matches!(family.kind, Kind::Counter))
        .map(|family| family.name)
        .collect();
    for panel in panels() {
        for expression in panel.expressions() {
            let at = format!("{}: {expression}", panel.name);
            let selectors = expression.matches('{').count();
            assert!(selectors > 0, "{at}");
            let chosen = expression.matches(&format!("{{{SELECTOR}")).count();
            assert_eq!(chosen, selectors, "{at}: every selector has job and instance");
            let ranges = expression.matches('[').count();
            assert_eq!(expression.matches("[$__rate_interval]").count(), ranges, "{at}");
            assert!(
                !expression.contains("le=\"1\""),
                "{at}: versions write whole edges differently"
            );
            for name in in_expression(&expression) {
                if counters.contains(name.as_str()) {
                    let all = expression.matches(&format!("{name}{{")).count();
                    let within = ["rate", "increase"].map(|function| {
                        expression.matches(&format!("{function}({name}{{")).count()
                    });
                    assert_eq!(within.iter().sum::<usize>(), all, "{at}: {name} is a counter");
                }
            }
            // A server with native histograms has no `_bucket` series, any other has nothing else.
            if expression.contains("_bucket{") {
                assert!(expression.contains(" or "), "{at}: native or classic");
            }
        }
    }
}

#[test]
fn sync_panels_show_the_limit() {
    let panels = panels();
    let limited: Vec<&Panel> =
        panels.iter().filter(|panel| panel.name.ends_with("/Log sync time")).collect();
    assert_eq!(limited.len(), 2, "one on each board");
    for panel in limited {
        let defaults = &panel.json["fieldConfig"]["defaults"];
        assert_eq!(defaults["custom"]["thresholdsStyle"]["mode"], "line", "{}", panel.name);
        assert_eq!(defaults["thresholds"]["steps"][1]["value"], 0.01, "{}", panel.name);
        for quantile in ["0.5,", "0.99,", "0.999,"] {
            let shown = panel.expressions().iter().any(|expression| expression.contains(quantile));
            assert!(shown, "{}: no {quantile}", panel.name);
        }
    }
}
