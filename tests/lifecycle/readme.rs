//! The README's blocks, pasted one after the other into one shell.

use crate::common::{Process, Tool, own_network};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

const README: &str = include_str!("../../README.md");
/// Sections whose blocks need nothing but what the README has said up to there.
const SECTIONS: [&str; 3] = ["Start a node", "Three nodes in one minute", "Upgrades"];

/// The shell blocks below this heading.
fn blocks(section: &str) -> Vec<&'static str> {
    let text = README.split("\n## ").find(|text| text.lines().next() == Some(section));
    let text = text.unwrap_or_else(|| panic!("no section {section:?}"));
    let begun = text.split("```sh\n").skip(1);
    begun.map(|rest| rest.split("```").next().expect("an end")).collect()
}

fn program(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

#[test]
fn its_blocks_work_one_after_the_other_in_one_shell() {
    let Some(etcdctl) = Tool::Etcdctl.require() else { return };
    // The default ports.
    if !own_network() {
        return;
    }
    let home = tempdir().expect("temp dir");
    let at = |name: &str| home.path().join(name);
    // A clone in which everything is built.
    std::fs::create_dir_all(at("target/release")).expect("made");
    std::fs::create_dir(at("bin")).expect("made");
    symlink(env!("CARGO_BIN_EXE_assay"), at("target/release/assay")).expect("a link");
    symlink(&etcdctl, at("bin/etcdctl")).expect("a link");
    let cargo = "#!/bin/sh\n[ \"$1\" = build ] || exec target/release/assay\n";
    program(&at("bin/cargo"), cargo);
    let mut script = String::new();
    for (n, block) in SECTIONS.iter().flat_map(|section| blocks(section)).enumerate() {
        script += &format!("echo \"--- block {n}\"\n{block}\n");
    }
    script += "echo '--- end'\nsleep 1000\n";
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").expect("PATH"));
    let mut shell = Command::new("bash");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["ETCD_", "ETCDCTL_", "ASSAY_"].iter().any(|ours| text.starts_with(ours)) {
            shell.env_remove(&name);
        }
    }
    shell.current_dir(home.path()).env("PATH", path).env("ASSAY_DISK_GATE", "off");
    let mut shell = Process::start(shell.arg("-c").arg(script));
    let start = std::time::Instant::now();
    while !shell.stdout().contains("--- end") {
        assert!(shell.is_running(), "{}", shell.stderr());
        assert!(
            start.elapsed() < std::time::Duration::from_secs(180),
            "stuck:\n{}\n{}",
            shell.stdout(),
            shell.stderr()
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let (said, log) = (shell.stdout(), shell.stderr());
    let block = |n: usize| {
        let text = said.split("--- block ").find(|text| text.starts_with(&format!("{n}\n")));
        text.unwrap_or_else(|| panic!("no block {n} in:\n{said}"))
    };
    for (n, words) in [
        (1, &["greeting\nhello\n", "\netcd_disk_wal_fsync_duration_seconds_count "][..]),
        (2, &["127.0.0.1:12379", "127.0.0.1:22379", "127.0.0.1:32379"]),
        (3, &["added as learner to cluster", "ETCD_NAME=\"m4\""]),
        (4, &[" promoted in cluster ", "Leadership transferred from ", " updated in cluster "]),
        (5, &["feature level of the cluster: ", "nothing to finalize"]),
    ] {
        for word in words {
            assert!(block(n).contains(word), "no {word:?} in block {n}:\n{}\n{log}", block(n));
        }
    }
    let rows = block(2).lines().filter(|line| line.contains("127.0.0.1:"));
    let leaders =
        rows.filter(|line| line.split(['|', '│']).any(|cell| cell.trim() == "true")).count();
    assert_eq!(leaders, 1, "{}", block(2));
    for wrong in ["conflicting environment", "command not found", "No such file"] {
        assert!(!log.contains(wrong), "{wrong:?} in:\n{log}");
    }
}

/// A variable that one block sets changes what the others do, and etcdctl refuses a flag beside it.
#[test]
fn no_block_sets_what_a_later_one_gives_as_a_flag() {
    let all: Vec<&str> = README.split("```sh\n").skip(1).collect();
    assert!(all.len() > 5);
    for rest in all {
        let block = rest.split("```").next().expect("an end");
        assert!(!block.contains("export "), "{block}");
    }
}
