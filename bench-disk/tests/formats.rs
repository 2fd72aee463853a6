//! Outputs as their readers see them: scripts for fio, Prometheus, a browser.
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

mod support;

use bench_disk::judge::Outcome;
use bench_disk::output::{Document, fio, html, textfile};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{made, tool};

/// Runs a filter over a text.
fn filter(program: &str, arguments: &[&str], input: &str) -> (i32, String) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("ended");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("a code"), text + &errors)
}

/// A block of latency statistics as one of the known readers declares it: 64-bit integers and floats,
/// and every one of the seventeen percentiles.
#[derive(serde::Deserialize)]
struct ReaderLatency {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    n: u64,
    #[serde(default)]
    percentile: Option<ReaderPercentiles>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "that they parse is the test")]
struct ReaderPercentiles {
    #[serde(rename = "1.000000")]
    p1: u64,
    #[serde(rename = "5.000000")]
    p5: u64,
    #[serde(rename = "10.000000")]
    p10: u64,
    #[serde(rename = "20.000000")]
    p20: u64,
    #[serde(rename = "30.000000")]
    p30: u64,
    #[serde(rename = "40.000000")]
    p40: u64,
    #[serde(rename = "50.000000")]
    p50: u64,
    #[serde(rename = "60.000000")]
    p60: u64,
    #[serde(rename = "70.000000")]
    p70: u64,
    #[serde(rename = "80.000000")]
    p80: u64,
    #[serde(rename = "90.000000")]
    p90: u64,
    #[serde(rename = "95.000000")]
    p95: u64,
    #[serde(rename = "99.000000")]
    p99: u64,
    #[serde(rename = "99.500000")]
    p995: u64,
    #[serde(rename = "99.900000")]
    p999: u64,
    #[serde(rename = "99.950000")]
    p9995: u64,
    #[serde(rename = "99.990000")]
    p9999: u64,
}

fn latency(value: &Value) -> ReaderLatency {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value:#}"))
}

#[test]
fn the_four_known_readers_of_fio_find_their_numbers() {
    let (environment, verdict) = made::verdict(Outcome::Fail);
    let document = fio::document(&environment, &verdict);
    let text = serde_json::to_string(&document).expect("JSON");
    let measured = verdict.measured.as_ref().expect("figures");
    // The container check of etcd's disk.
    if tool("jq") {
        let path = ".jobs[0].sync.lat_ns.percentile[\"99.000000\"]";
        let (code, p99) = filter("jq", &["-e", path], &text);
        assert_eq!((code, p99.trim().parse()), (0, Ok(measured.percentiles.p99_ns)));
    }
    // An installer: writes per second beside the percentile.
    let job = &document["jobs"][0];
    let seconds = measured.elapsed_ns as f64 / 1e9;
    let iops = job["write"]["iops"].as_f64().expect("a number");
    assert!((iops - 10_000.0 / seconds).abs() < 1e-6, "{iops}");
    // A support bundle: all seventeen, as integers.
    let sync = latency(&job["sync"]["lat_ns"]);
    let percentiles = sync.percentile.expect("percentiles");
    assert_eq!((sync.n, percentiles.p99), (10_000, measured.percentiles.p99_ns));
    assert!(percentiles.p9999 <= sync.max && percentiles.p1 >= sync.min);
    assert!(sync.mean > sync.min as f64 && sync.stddev > 0.0);
    assert_eq!(job["sync"]["total_ios"], 10_000);
    let write = latency(&job["write"]["clat_ns"]);
    assert!((write.n, write.min) == (10_000, 2_000) && write.percentile.is_some());
    // A cluster check: rates and means of both directions.
    assert!((job["write"]["lat_ns"]["mean"].as_f64().expect("a mean") - 2_049.5).abs() < 1e-6);
    assert_eq!(job["read"]["lat_ns"]["mean"].as_f64(), Some(0.0));
    assert_eq!(job["read"]["iops"].as_f64(), Some(0.0));
}

/// Every key of fio's own document must be in ours, with a value of the same kind.
fn compare(theirs: &Value, ours: &Value, path: &str, missing: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            // What a job was told differs between jobs.
            if path.ends_with("job options") {
                return;
            }
            for (key, value) in theirs {
                match ours.get(key) {
                    Some(found) => compare(value, found, &format!("{path}.{key}"), missing),
                    None => missing.push(format!("{path}.{key}")),
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            if let (Some(theirs), Some(ours)) = (theirs.first(), ours.first()) {
                compare(theirs, ours, &format!("{path}[0]"), missing);
            }
        }
        (Value::Number(theirs), Value::Number(ours)) => {
            // A reader with an integer field fails on a fraction.
            if theirs.is_u64() && !ours.is_u64() {
                missing.push(format!("{path}: {ours} is no integer"));
            }
        }
        (Value::String(_), Value::String(_)) => {}
        _ => missing.push(format!("{path}: {ours} instead of {theirs}")),
    }
}

#[test]
fn nothing_that_the_real_fio_prints_is_missing() {
    if !tool("fio") {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let output = Command::new("fio")
        .args(["--name=recipe", "--rw=write", "--ioengine=sync", "--fdatasync=1", "--bs=2300"])
        .args(["--size=230k", "--output-format=json", "--directory"])
        .arg(directory.path())
        .output()
        .expect("fio ran");
    let theirs: Value = serde_json::from_slice(&output.stdout).expect("JSON of fio");
    let (environment, verdict) = made::verdict(Outcome::Pass);
    let ours = fio::document(&environment, &verdict);
    let mut missing = Vec::new();
    compare(&theirs, &ours, "", &mut missing);
    if theirs["fio version"] == fio::SCHEMA_OF {
        assert!(missing.is_empty(), "{missing:#?}");
    } else {
        // Another fio may have more; what the four readers need, every version has.
        missing.retain(|path| path.contains(".sync.") || path.contains(".write.iops:"));
        assert!(missing.is_empty(), "{missing:#?}");
    }
    assert_eq!(ours["bench_disk"]["outcome"], "PASS");
}

#[test]
fn a_refusal_has_documents_too() {
    let (environment, mut verdict) = made::verdict(Outcome::Refused);
    verdict.measured = None;
    let document = fio::document(&environment, &verdict);
    assert_eq!(document["jobs"].as_array().map(Vec::len), Some(0));
    assert_eq!(document["bench_disk"]["outcome"], "REFUSED");
    let own = serde_json::to_value(Document::new(&environment, &verdict)).expect("JSON");
    assert_eq!((&own["schema"], &own["outcome"]), (&1.into(), &"REFUSED".into()));
    let metrics = textfile::render(&environment, &verdict);
    assert!(metrics.contains("outcome=\"refused\"} 1\n"), "{metrics}");
}

#[test]
fn prometheus_accepts_the_textfile_and_the_check_can_fail() {
    let promtool = std::env::var("ASSAY_PROMTOOL").unwrap_or_else(|_| "promtool".into());
    if !Path::new(&promtool).is_file() && !tool(&promtool) {
        return;
    }
    let (environment, verdict) = made::verdict(Outcome::Fail);
    let metrics = textfile::render(&environment, &verdict);
    let (code, complaints) = filter(&promtool, &["check", "metrics"], &metrics);
    assert!(code == 0 && complaints.is_empty(), "{complaints}\n{metrics}");
    let broken = metrics.replace("# HELP bench_disk_samples Syncs measured.\n", "");
    let (code, complaints) = filter(&promtool, &["check", "metrics"], &broken);
    assert!(code != 0 && complaints.contains("bench_disk_samples"), "{complaints}");
}

/// What a page says on the console of a headless Chromium.
fn console(page: &str) -> Option<Vec<String>> {
    let browsers = ["chromium-headless-shell", "chromium", "chromium-browser"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed =
        |name: &&&str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    let Some(browser) = browsers.iter().find(installed) else {
        support::skip("no chromium is installed");
        return None;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("page.html");
    std::fs::write(&file, page).expect("written");
    let output = Command::new(browser)
        // Root has no sandbox, and CI runs as root; the page is our own.
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .args(["--log-level=0", "--dump-dom"])
        .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("the browser ran");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && dom.contains("</html>"), "{log}");
    assert!(dom.matches("<svg").count() == 3, "the plots are in the document: {dom}");
    Some(log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_string).collect())
}

#[test]
fn a_browser_opens_the_page_without_a_word_on_the_console() {
    let (environment, verdict) = made::verdict(Outcome::Fail);
    let page = html::render(&environment, &verdict);
    let Some(said) = console(&page) else { return };
    assert!(said.is_empty(), "{said:#?}");
    // The same way of looking must see an error.
    let broken = page.replace("</body>", "<script>nothing.at.all()</script></body>");
    let said = console(&broken).expect("a browser");
    assert!(said.iter().any(|line| line.contains("nothing is not defined")), "{said:#?}");
}

/// The part of the documentation between two marks.
fn documented(mark: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/bench-disk.md");
    let text = std::fs::read_to_string(file).expect("documentation");
    let (_, rest) = text.split_once(&format!("<!-- {mark} -->")).expect("a mark");
    rest.split_once("<!-- end -->").expect("an end").0.to_string()
}

/// Names of all fields, at every depth.
fn fields(value: &Value, found: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                fields(value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_and_every_metric_is_documented() {
    let (environment, verdict) = made::verdict(Outcome::Fail);
    let document = serde_json::to_value(Document::new(&environment, &verdict)).expect("JSON");
    let mut found = std::collections::BTreeSet::new();
    fields(&document, &mut found);
    let text = documented("json");
    let told =
        |name: &String| text.contains(&format!(".{name}`")) || text.contains(&format!("`{name}`"));
    let missing: Vec<&String> = found.iter().filter(|name| !told(name)).collect();
    assert!(missing.is_empty(), "docs/bench-disk.md does not tell about {missing:?}");

    let metrics = textfile::render(&environment, &verdict);
    let text = documented("metrics");
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().expect("a name");
        assert!(
            text.contains(&format!("`{name}`")),
            "docs/bench-disk.md does not tell about {name}"
        );
    }
}
