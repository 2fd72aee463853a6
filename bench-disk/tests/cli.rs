//! The command line as people and packages use it.
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Place, json, run, skip, text, tool};

const COMMANDS: [&str; 8] =
    ["run", "inspect", "verify", "explain", "compare", "sweep", "powercut", "export-fio"];

#[test]
fn every_finding_can_be_explained_and_a_mistyped_one_is_a_usage_error() {
    let place = Place::new();
    let list = text(&run(place.program(&["explain"])));
    assert!(list.lines().count() > 25 && list.lines().all(|line| line.len() <= 80), "{list}");
    for line in list.lines() {
        let code = line.split(' ').next().expect("a code");
        let output = run(place.program(&["explain", code]));
        let page = text(&output);
        assert_eq!(output.status.code(), Some(0));
        assert!(
            page.starts_with(&format!("{code}: ")) && page.contains("\nWhat to do\n"),
            "{page}"
        );
        assert!(page.lines().all(|line| line.len() <= 80), "{page}");
    }
    let output = run(place.program(&["explain", "barrier-off"]));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("did you mean barriers-off?"), "{message}");
    // As reports print it.
    assert_eq!(run(place.program(&["explain", "[barriers-off]"])).status.code(), Some(0));
}

#[test]
fn a_mistyped_word_or_flag_names_the_nearest() {
    let place = Place::new();
    for (words, meant) in [
        (&["runn"][..], "'run'"),
        (&["inspekt"], "'inspect'"),
        (&["export-foi"], "'export-fio'"),
        (&["run", "--dirr", "x"], "'--dir'"),
        (&["run", "--dir", "x", "--profil", "quick"], "'--profile'"),
        (&["verify", "--dirr", "x"], "'--dir'"),
    ] {
        let output = run(place.program(words));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("similar") && said.contains(meant), "{words:?}: {said}");
    }
}

#[test]
fn a_directory_that_a_job_file_cannot_name_is_a_usage_error() {
    let place = Place::new();
    let output = run(place.on("export-fio", &place.path("a\nrw=read"), &[]));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty());
}

#[test]
fn names_of_files_do_not_steer_the_terminal() {
    let place = Place::new();
    let odd = place.path("a\nb\u{1b}[2Jc");
    for command in ["inspect", "verify"] {
        let output = run(place.on(command, &odd, &[]));
        let page = String::from_utf8_lossy(&output.stdout);
        assert!(!page.contains('\u{1b}') && page.contains("a\\nb\\u{1b}[2Jc"), "{page}");
    }
    fs::write(&odd, "").expect("written");
    let output = run(place.on("run", &odd, &[]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn the_job_file_runs_under_the_real_fio() {
    let place = Place::new();
    let file = place.path("wal.fio");
    let named = file.to_str().expect("UTF-8");
    for (profile, load) in [
        ("boot", "none"),
        ("quick", "all"),
        ("soak", "writer"),
        ("fio", "none"),
        ("standard", "node"),
    ] {
        let data = place.path("data");
        let words = ["--profile", profile, "--load", load, "--output", named];
        let command = place.on("export-fio", &data, &words);
        assert_eq!(run(command).status.code(), Some(0));
        if !tool("fio") {
            continue;
        }
        let output = Command::new("fio").args(["--parse-only", named]).output().expect("fio ran");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    if !tool("fio") {
        return;
    }
    // For real, with a fraction of the data.
    let job = fs::read_to_string(&file).expect("readable");
    let size = job.lines().find(|line| line.starts_with("size=")).expect("a size");
    fs::write(&file, job.replacen(size, "size=500k", 1)).expect("written");
    let output =
        Command::new("fio").args(["--output-format=json", named]).output().expect("fio ran");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document = json(&output);
    let (log, store) = (&document["jobs"][0], &document["jobs"][1]);
    assert_eq!((&log["jobname"], &log["error"]), (&"wal".into(), &0.into()));
    let syncs = log["sync"]["lat_ns"]["N"].as_u64().expect("a count");
    let writes = log["write"]["total_ios"].as_u64().expect("a count");
    assert!(syncs > 20 && syncs.abs_diff(writes) <= 1, "every write is synced: {syncs}, {writes}");
    assert_eq!(store["jobname"], "store");
    assert_eq!(place.entries("data"), [""; 0], "fio removes its files");
}

#[test]
fn one_run_writes_all_forms_and_only_one_fits_on_standard_output() {
    let place = Place::new();
    let forms = ["json", "fio-json", "textfile", "html"];
    let mut arguments = vec!["--profile".to_string(), "boot".into()];
    for form in forms {
        let file = place.path(&format!("result.{form}"));
        fs::write(&file, "old").expect("written");
        arguments.extend([format!("--{form}"), file.display().to_string()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = run(place.command(&arguments));
    assert!([Some(0), Some(1), Some(3)].contains(&output.status.code()));
    assert!(text(&output).contains("directory"), "the text is there too");
    let result =
        |form: &str| fs::read_to_string(place.path(&format!("result.{form}"))).expect("readable");
    let own: serde_json::Value = serde_json::from_str(&result("json")).expect("JSON");
    let fio: serde_json::Value = serde_json::from_str(&result("fio-json")).expect("JSON");
    assert_eq!(own["outcome"], own["verdict"]["outcome"]);
    assert_eq!(fio["bench_disk"]["outcome"], own["outcome"]);
    if !own["verdict"]["measured"].is_null() {
        let job = &fio["jobs"][0];
        let p99 = &own["verdict"]["measured"]["percentiles"]["p99_ns"];
        assert_eq!(&job["sync"]["lat_ns"]["percentile"]["99.000000"], p99);
        assert!(job["write"]["clat_ns"]["N"].as_u64() > Some(0), "write calls are timed");
    }
    assert!(result("textfile").contains("bench_disk_verdict{"));
    assert!(result("html").starts_with("<!DOCTYPE html>"));
    let left = place.entries("");
    assert!(left.iter().all(|name| !name.ends_with(".tmp")), "{left:?}");

    let output = run(place.command(&["--json", "--html"]));
    assert_eq!(output.status.code(), Some(2), "two forms on standard output");
}

/// Runs a command on a terminal of its own.
fn on_a_terminal(place: &Place, words: &str, no_colour: &str) -> Option<String> {
    if !tool("script") {
        return None;
    }
    let program = env!("CARGO_BIN_EXE_bench-disk");
    let output = Command::new("script")
        .args(["-qec", &format!("{program} {words}"), "/dev/null"])
        .env("BENCH_DISK_RUN_DIR", place.run_dir())
        .env("TERM", "xterm")
        .env("NO_COLOR", no_colour)
        .stdin(Stdio::null())
        .output()
        .expect("started");
    Some(text(&output))
}

#[test]
fn colour_is_for_terminals_and_not_where_it_is_unwanted() {
    let place = Place::new();
    let words = format!("inspect --dir {}", place.path("data").display());
    let Some(coloured) = on_a_terminal(&place, &words, "") else { return };
    assert!(coloured.contains("\u{1b}[1mFILE SYSTEM"), "{coloured}");
    let plain = on_a_terminal(&place, &words, "1").expect("a terminal");
    assert!(plain.contains("FILE SYSTEM") && !plain.contains('\u{1b}'), "{plain}");
    let piped = text(&run(place.on("inspect", &place.path("data"), &[])));
    assert!(piped.contains("FILE SYSTEM") && !piped.contains('\u{1b}'), "{piped}");
}

#[test]
fn a_terminal_shows_time_left_and_the_percentile_so_far() {
    let place = Place::new();
    let words = format!("run --profile quick --dir {}", place.path("data").display());
    let Some(seen) = on_a_terminal(&place, &words, "1") else { return };
    if seen.contains("[contaminated]") && !seen.contains("p50") {
        return; // Nothing was measured.
    }
    assert!(seen.contains(" s left") && seen.contains(", p99 "), "{seen}");
}

#[test]
fn manual_pages_are_made_for_every_command() {
    let place = Place::new();
    let mut pages = vec![run(place.program(&["manual"]))];
    pages.extend(COMMANDS.map(|command| run(place.program(&["manual", command]))));
    pages.push(run(place.program(&["manual", "powercut", "witness"])));
    for page in &pages {
        assert_eq!(page.status.code(), Some(0));
        let source = text(page);
        assert!(
            source.contains(".TH bench\\-disk") || source.contains(".TH bench-disk"),
            "{source}"
        );
        if !Path::new("/usr/bin/groff").is_file() {
            skip("groff is not installed");
            continue;
        }
        let directory = place.path("page.1");
        fs::write(&directory, &page.stdout).expect("written");
        let set = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-rLL=78n"])
            .arg(&directory)
            .output()
            .expect("groff ran");
        let complaints = String::from_utf8_lossy(&set.stderr).into_owned();
        assert!(set.status.success() && complaints.is_empty(), "{complaints}");
    }
    assert!(text(&pages[0]).contains("6 interrupted"), "exit codes are in the manual");
    assert_eq!(run(place.program(&["manual", "nothing"])).status.code(), Some(2));
}

#[test]
fn help_teaches_and_fits_80_columns() {
    let place = Place::new();
    let page = text(&run(place.program(&["--help"])));
    for needed in COMMANDS.iter().chain(&["Exit codes:", "NO_COLOR", "99th percentile"]) {
        assert!(page.contains(needed), "{needed} is missing: {page}");
    }
    for command in COMMANDS {
        let output = run(place.program(&[command, "--help"]));
        let page = text(&output);
        assert_eq!(output.status.code(), Some(0));
        assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    }
}

fn fleet(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fleet").join(name);
    fs::read_to_string(&file).expect("shipped")
}

/// The manifest, as YAML readers see it.
fn manifest() -> serde_json::Value {
    serde_yaml_ng::from_str(&fleet("kubernetes-job.yaml")).expect("YAML")
}

/// Words of the unit file's `ExecStart=` or of the manifest's `args:` after the program's name.
fn shipped(name: &str) -> Vec<Vec<String>> {
    if name.ends_with(".yaml") {
        let container = &manifest()["spec"]["template"]["spec"]["containers"][0];
        return vec![serde_json::from_value(container["args"].clone()).expect("a list of words")];
    }
    fleet(name)
        .replace("\\\n", " ")
        .lines()
        .filter_map(|line| line.strip_prefix("ExecStart="))
        .map(|command| command.split_whitespace().skip(1).map(str::to_string).collect())
        .collect()
}

#[test]
fn the_manifest_is_a_job_that_runs_once_and_reaches_what_it_names() {
    let job = manifest();
    assert_eq!((&job["apiVersion"], &job["kind"]), (&"batch/v1".into(), &"Job".into()));
    assert_eq!(job["spec"]["backoffLimit"], 0, "a run must not be repeated until it passes");
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Never");
    let container = &pod["containers"][0];
    assert_eq!(container["command"], serde_json::json!(["bench-disk"]));
    assert!(container["resources"]["limits"].is_null(), "a limit would be what is measured");
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let volumes = pod["volumes"].as_array().expect("volumes");
    for mount in mounts {
        assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
    }
    let mounted = |path: &Path| {
        mounts.iter().any(|mount| path.starts_with(mount["mountPath"].as_str().expect("a path")))
    };
    let words = &shipped("kubernetes-job.yaml")[0];
    let at = words.iter().position(|word| word == "--dir").expect("a directory") + 1;
    let directory = Path::new(&words[at]);
    // The verdict stands beside the directory, so the parent must be the host's too.
    assert!(mounted(directory.parent().expect("a parent")), "{words:?}");
    let run_dir = &container["env"][0];
    assert_eq!(run_dir["name"], "BENCH_DISK_RUN_DIR");
    assert!(mounted(Path::new(run_dir["value"].as_str().expect("a path"))), "{run_dir}");
}

#[test]
fn shipped_units_and_manifests_call_the_program_as_it_is() {
    let place = Place::new();
    for name in ["bench-disk@.service", "kubernetes-job.yaml"] {
        let commands = shipped(name);
        assert!(!commands.is_empty(), "{name} starts nothing");
        for mut words in commands {
            // Every word must be understood; the directory is replaced by one that cannot be used,
            // so that nothing is measured.
            fs::write(place.path("file"), "").expect("written");
            let at = words.iter().position(|word| word == "--dir").expect("a directory") + 1;
            words[at] = place.path("file").display().to_string();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = run(place.program(&words));
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(message.contains("is not a directory"), "{name}: {message}");
        }
    }
}

#[test]
fn systemd_accepts_the_unit() {
    if !tool("systemd-analyze") {
        return;
    }
    let place = Place::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fleet/bench-disk@.service");
    let unit = fs::read_to_string(source).expect("shipped");
    // It checks that the program exists.
    let unit = unit.replace("/usr/bin/bench-disk", env!("CARGO_BIN_EXE_bench-disk"));
    let file = place.path("bench-disk@data.service");
    fs::write(&file, unit).expect("written");
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&file)
        .output()
        .expect("ran");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    let ours: Vec<&str> = complaints.lines().filter(|line| line.contains("bench-disk@")).collect();
    assert!(ours.is_empty(), "{complaints}");
}
