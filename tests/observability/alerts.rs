//! The alerts: rules that promtool accepts, a test and a runbook for each.

use super::common::Tool;
use super::names::in_expression;
use super::repository;
use assay::telemetry::families;
use serde_yaml_ng::Value;
use std::collections::BTreeSet;
use std::process::Command;

const RULES: &str = "alerts/assay.rules.yml";

/// A rule of the file.
struct Rule(Value);

impl Rule {
    fn text(&self, path: &[&str]) -> &str {
        let value = path.iter().fold(&self.0, |value, key| &value[*key]);
        value.as_str().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.text(&["alert"])
    }
}

fn rules() -> Vec<Rule> {
    let file = std::fs::read_to_string(repository(RULES)).expect("the rules");
    let file: Value = serde_yaml_ng::from_str(&file).expect("YAML");
    let groups = file["groups"].as_sequence().expect("groups");
    let rules = groups.iter().flat_map(|group| group["rules"].as_sequence().expect("rules"));
    rules.cloned().map(Rule).collect()
}

fn alerts() -> Vec<Rule> {
    rules().into_iter().filter(|rule| !rule.name().is_empty()).collect()
}

/// Families that rules read.
pub(crate) fn metrics() -> BTreeSet<String> {
    rules().iter().flat_map(|rule| in_expression(rule.text(&["expr"]))).collect()
}

fn names_in(dir: &str, end: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(repository(dir)).expect(dir);
    let names = entries.map(|entry| entry.expect("entry").file_name().into_string().expect("text"));
    names.map(|name| name.strip_suffix(end).expect("only such files").to_string()).collect()
}

#[test]
fn every_alert_has_a_test_and_a_runbook_and_the_reverse() {
    let alerts: BTreeSet<String> = alerts().iter().map(|rule| rule.name().to_string()).collect();
    assert!(alerts.len() >= 20, "the rules were not understood");
    assert_eq!(names_in("alerts/tests", ".yml"), alerts);
    assert_eq!(names_in("alerts/runbooks", ".md"), alerts);
    for alert in &alerts {
        let file = format!("alerts/runbooks/{alert}.md");
        let runbook = std::fs::read_to_string(repository(&file)).expect(&file);
        assert!(runbook.starts_with(&format!("# {alert}\n")), "{file}");
        let parts: Vec<&str> =
            runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(parts, ["Meaning", "Impact", "Diagnosis", "Mitigation"], "{file}");
    }
}

#[test]
fn alerts_say_how_urgent_they_are_and_what_to_do() {
    for rule in alerts() {
        let name = rule.name();
        let severity = rule.text(&["labels", "severity"]);
        assert!(matches!(severity, "page" | "ticket" | "info"), "{name}: severity {severity}");
        for annotation in ["summary", "description"] {
            assert!(rule.text(&["annotations", annotation]).ends_with('.'), "{name}: {annotation}");
        }
        assert!(!rule.text(&["annotations", "summary"]).contains("{{"), "{name}: static summary");
        let runbook = format!("runbooks/{name}.md");
        assert_eq!(rule.text(&["annotations", "runbook_url"]), runbook);
        let runbook = std::fs::read_to_string(repository(&format!("alerts/{runbook}")));
        let says = format!("Severity: {severity}.");
        assert!(runbook.expect("a runbook").contains(&says), "{name}: {says}");
    }
}

#[test]
fn rules_read_metrics_that_exist() {
    for name in metrics() {
        assert!(families::all().any(|family| family.name == name), "there is no {name}");
    }
    for rule in rules() {
        let expression = rule.text(&["expr"]);
        // A server with native histograms has no `_bucket` series, any other has nothing else.
        if expression.contains("_bucket{") {
            assert!(expression.contains("\nor\n"), "native or classic: {expression}");
        }
    }
}

#[test]
fn inhibitions_name_alerts_that_exist() {
    let names: BTreeSet<String> = alerts().iter().map(|rule| rule.name().to_string()).collect();
    let file = std::fs::read_to_string(repository("alerts/inhibit.yml")).expect("inhibitions");
    let mentioned: Vec<&str> = file
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| word.starts_with("Assay"))
        .collect();
    assert!(mentioned.len() > 10);
    for name in mentioned {
        assert!(names.contains(name), "there is no {name}");
    }
}

fn promtool(arguments: &[&str]) -> Option<(bool, String)> {
    let promtool = Tool::Promtool.require()?;
    let output = Command::new(promtool).args(arguments).output().expect("run promtool");
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn promtool_accepts_the_rules() {
    let rules = repository(RULES);
    let rules = rules.to_str().expect("text");
    if let Some((ok, text)) = promtool(&["check", "rules", "--lint=all", "--lint-fatal", rules]) {
        assert!(ok, "{text}");
    }
}

#[test]
fn rule_tests_pass() {
    for alert in alerts() {
        let name = alert.name();
        let file = repository(&format!("alerts/tests/{name}.yml"));
        let text = std::fs::read_to_string(&file).expect("a rule test");
        let test: Value = serde_yaml_ng::from_str(&text).expect("YAML");
        // One case fires, the others do not: a healthy cluster, and one without the metric.
        let cases = test["tests"].as_sequence().expect("tests");
        let firing: Vec<bool> = cases
            .iter()
            .map(|case| {
                let alert = &case["alert_rule_test"][0];
                assert_eq!(alert["alertname"].as_str(), Some(name), "{name}");
                alert["exp_alerts"].as_sequence().is_some_and(|alerts| !alerts.is_empty())
            })
            .collect();
        let least = if name == "AssayScrapeMissing" { 2 } else { 3 };
        let ones = firing.iter().filter(|fires| **fires).count();
        assert!(firing.len() >= least && firing[0] && ones == 1, "{name}: {firing:?}");
        let Some((ok, text)) = promtool(&["test", "rules", file.to_str().expect("text")]) else {
            return;
        };
        assert!(ok, "{text}");
    }
}

/// All alerts together, over whole clusters.
#[test]
fn whole_clusters_are_quiet_when_they_are_well_and_loud_when_they_are_not() {
    let file = repository("alerts/scenarios.yml");
    let text = std::fs::read_to_string(&file).expect("the scenarios");
    let test: Value = serde_yaml_ng::from_str(&text).expect("YAML");
    let cases = test["tests"].as_sequence().expect("tests");
    let begins = |word: &str| {
        let named =
            |case: &&Value| case["name"].as_str().is_some_and(|name| name.starts_with(word));
        cases.iter().filter(named).count()
    };
    assert_eq!((begins("quiet"), begins("loud")), (2, 4));
    if let Some((ok, text)) = promtool(&["test", "rules", file.to_str().expect("text")]) {
        assert!(ok, "{text}");
    }
}
