//! Flags that name odd places, and words that are no flags: mistakes of the configuration, told with
//! what to do, and nothing is made.

use crate::common::{Ended, Process, assay, require_root, run};
use crate::{on_free_ports, picture};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::tempdir;

const CONFIGURATION: i32 = 1;
const USAGE: i32 = 2;
/// A user that owns nothing.
const NOBODY: u32 = 65_534;

/// A node with the gate as it comes, on free ports.
fn node(flag: &str, dir: &Path, gate: &str, run_dir: &Path) -> Command {
    let mut command = assay();
    let mut word = OsString::from(format!("--{flag}="));
    word.push(dir);
    command.env("BENCH_DISK_RUN_DIR", run_dir).arg(word).arg(format!("--disk-gate={gate}"));
    on_free_ports(&mut command);
    command
}

fn assert_refused(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.code, CONFIGURATION, "{}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "no {word:?} in:\n{}", ended.stderr);
    }
    // No mode of the gate makes a wrong path right.
    let said = ended.stderr.lines().filter(|line| !line.contains("Running: "));
    let wrong: Vec<&str> = said.filter(|line| line.contains("--disk-gate")).collect();
    assert!(wrong.is_empty(), "a way out that is none: {wrong:?}");
}

#[test]
fn a_place_that_cannot_hold_data_is_named_with_what_to_do() {
    let home = tempdir().expect("temp dir");
    let at = |name: &str| home.path().join(name);
    std::fs::write(at("file"), "mine").expect("written");
    symlink(at("loop"), at("loop")).expect("a link");
    symlink(at("nowhere"), at("dangling")).expect("a link");
    let name = "x".repeat(300);
    let long = "x".repeat(5_000);
    let path = "y/".repeat(2_500);
    let cases: [(PathBuf, &[&str]); 12] = [
        (at("file"), &["is not a directory", "name a directory"]),
        (at("file/below"), &["its parent", "is not a directory"]),
        ("/etc/passwd".into(), &["/etc/passwd", "is not a directory"]),
        ("/proc/x".into(), &["on proc", "choose a directory on a disk"]),
        ("/sys/x".into(), &["on sysfs", "choose a directory on a disk"]),
        (at("loop"), &["loop of symbolic links"]),
        (at("loop/below"), &["loop of symbolic links"]),
        (at("dangling"), &["nowhere", "make that one, or remove the link"]),
        (at("dangling/below"), &["its parent", "make that one, or remove the link"]),
        (at(&name), &["a name of 300 bytes", "shorter"]),
        (at(&long), &["too long", "shorter"]),
        (at(&path), &["too long", "shorter"]),
    ];
    let run_dir = tempdir().expect("temp dir");
    let before = picture(home.path());
    for (dir, words) in &cases {
        for gate in ["enforce", "warn", "off"] {
            let ended = run(&mut node("data-dir", dir, gate, run_dir.path()));
            assert_refused(&ended, words);
            assert!(ended.stderr.contains("--data-dir: "), "{}", ended.stderr);
            let longest = ended.stderr.lines().filter(|line| !line.contains("Running: "));
            let longest = longest.map(str::len).max().unwrap_or_default();
            assert!(longest < 1_000, "a line of {longest} bytes");
        }
        let mut command = node("wal-dir", dir, "off", run_dir.path());
        let ended = run(command.arg("--data-dir").arg(at("data")));
        assert_refused(&ended, words);
        assert!(ended.stderr.contains("--wal-dir: "), "{}", ended.stderr);
    }
    assert_eq!(picture(home.path()), before, "a refused start made something");
}

#[test]
fn a_read_only_mount_is_named() {
    if !require_root("mounting") {
        return;
    }
    let home = tempdir().expect("temp dir");
    let run_dir = tempdir().expect("temp dir");
    for dir in [home.path().to_path_buf(), home.path().join("new")] {
        for gate in ["enforce", "warn", "off"] {
            let inner = node("data-dir", &dir, gate, run_dir.path());
            // A mount of the process's own, gone with it.
            let script = r#"mount -t tmpfs -o ro none "$1" && shift && exec "$@""#;
            let mut command = crate::common::bare(Path::new("unshare"));
            command.args(["-m", "sh", "-c", script, "sh"]).arg(home.path());
            command.arg(inner.get_program()).args(inner.get_args());
            command.env("BENCH_DISK_RUN_DIR", run_dir.path());
            assert_refused(&run(&mut command), &["mounted read-only", "mount it writable"]);
        }
    }
}

#[test]
fn a_place_that_this_user_may_not_use_is_named() {
    let home = tempdir().expect("temp dir");
    let at = |name: &str| home.path().join(name);
    // Nobody may look into temporary directories of others, and into where the program was built.
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("allowed");
    };
    mode(home.path(), 0o755);
    for dir in ["bin", "closed", "readable"] {
        std::fs::create_dir(at(dir)).expect("made");
    }
    mode(&at("bin"), 0o755);
    mode(&at("closed"), 0o000);
    mode(&at("readable"), 0o555);
    let root = nix::unistd::geteuid().is_root();
    let program = at("bin/assay");
    std::fs::copy(env!("CARGO_BIN_EXE_assay"), &program).expect("copied");
    mode(&program, 0o755);
    for (dir, words) in [
        ("closed/data", &["out of reach", "chmod"]),
        ("closed", &["closed to this user", "chmod"]),
        ("readable", &["closed to this user", "chmod"]),
        ("readable/data", &["closed to this user", "cannot be made"]),
    ] {
        for gate in ["enforce", "warn", "off"] {
            let inner = node("data-dir", &at(dir), gate, &at("run"));
            let mut command = crate::common::bare(&program);
            command.args(inner.get_args());
            if root {
                use std::os::unix::process::CommandExt;
                command.uid(NOBODY).gid(NOBODY);
            }
            assert_refused(&run(&mut command), words);
        }
    }
    mode(&at("closed"), 0o755);
}

#[test]
fn a_name_with_a_path_in_it_does_not_become_one() {
    let home = tempdir().expect("temp dir");
    let inner = home.path().join("inner");
    std::fs::create_dir(&inner).expect("made");
    for name in ["../up", "a/b", "/tmp/assay-absolute"] {
        let mut command = assay();
        command.current_dir(&inner).arg(format!("--name={name}")).arg("--disk-gate=off");
        on_free_ports(&mut command);
        let ended = run(command.arg(format!("--initial-cluster={name}=http://localhost:2380")));
        assert_eq!(ended.code, CONFIGURATION, "{}", ended.stderr);
        for word in ["--name", name, "--data-dir"] {
            assert!(ended.stderr.contains(word), "no {word:?} in:\n{}", ended.stderr);
        }
    }
    assert_eq!(picture(home.path()).len(), 1, "{:?}", picture(home.path()));
}

#[test]
fn a_word_that_is_no_flag_is_a_mistake_of_usage() {
    let cases: [&[&OsStr]; 3] = [
        &[OsStr::new("extra-word")],
        &[OsStr::new("--socket-reuse-port"), OsStr::new("true")],
        &[OsStr::new("start"), OsStr::new("--help")],
    ];
    for words in cases {
        let ended = run(assay().args(words));
        assert_eq!((ended.code, ended.stdout.as_str()), (USAGE, ""), "{}", ended.stderr);
        assert!(ended.stderr.contains("usage: assay [--FLAG=VALUE"), "{}", ended.stderr);
        assert!(ended.stderr.contains("--help"), "{}", ended.stderr);
    }
}

#[test]
fn words_that_are_no_texts_are_refused_and_foreign_ones_ignored() {
    let odd = OsString::from_vec(b"--data-dir=/tmp/\xff".to_vec());
    let ended = run(assay().arg(&odd));
    assert_eq!(ended.code, USAGE, "{}", ended.stderr);
    assert!(ended.stderr.contains("not valid UTF-8"), "{}", ended.stderr);
    let value = OsString::from_vec(b"\xff".to_vec());
    let ended = run(assay().env("ETCD_NAME", &value));
    assert_eq!(ended.code, USAGE, "{}", ended.stderr);
    // Somebody else's variable is none of our business.
    let home = tempdir().expect("temp dir");
    let mut command = crate::node_in(&home.path().join("data"));
    Process::start(command.env("SOMEBODY_ELSES", &value)).serves();
}
