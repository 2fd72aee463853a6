//! Directories and commands for tests of the real program.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

pub(crate) mod made;
pub(crate) mod mounts;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A scratch directory with an empty `data` in it, and a run directory of its own outside, so
/// that tests neither see nor disturb this host's probes.
pub(crate) struct Place {
    base: tempfile::TempDir,
    run: tempfile::TempDir,
}

impl Place {
    /// On the disk of the build directory.
    pub(crate) fn new() -> Self {
        Self::new_in(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// Below another directory.
    pub(crate) fn new_in(directory: &Path) -> Self {
        let base = tempfile::tempdir_in(directory).expect("a directory");
        std::fs::create_dir(base.path().join("data")).expect("made");
        Self { base, run: tempfile::tempdir().expect("a directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.run.path().join("run")
    }

    /// Sorted names below a directory of the place.
    pub(crate) fn entries(&self, name: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path(name))
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// `bench-disk run --dir data ...`
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_for("data", arguments)
    }

    /// The same for another directory of the place.
    pub(crate) fn command_for(&self, directory: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench-disk"));
        self.complete(&mut command, directory, arguments);
        command
    }

    /// Any command of the program, with its words as they are.
    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench-disk"));
        command.args(arguments).env("BENCH_DISK_RUN_DIR", self.run_dir());
        command
    }

    /// `bench-disk COMMAND --dir DIRECTORY`, for a directory anywhere.
    pub(crate) fn on(&self, command: &str, directory: &Path, arguments: &[&str]) -> Command {
        let mut command = self.program(&[command, "--dir"]);
        command.arg(directory).args(arguments);
        command
    }

    /// The same under another program, such as strace.
    pub(crate) fn under(&self, program: &str, prefix: &[&str], arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(prefix).arg(env!("CARGO_BIN_EXE_bench-disk"));
        self.complete(&mut command, "data", arguments);
        command
    }

    fn complete(&self, command: &mut Command, directory: &str, arguments: &[&str]) {
        command.arg("run").arg("--dir").arg(self.path(directory)).args(arguments);
        command.env("BENCH_DISK_RUN_DIR", self.run_dir());
    }
}

/// Runs to the end.
pub(crate) fn run(mut command: Command) -> Output {
    command.output().expect("the program starts")
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether an outside program can be started; in CI it must be.
pub(crate) fn tool(name: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()));
    if !found {
        skip(&format!("{name} is not installed"));
    }
    found
}

/// Says that a test does nothing here; in CI that is a failure.
pub(crate) fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "must not be skipped in CI: {reason}");
    eprintln!("SKIPPED: {reason}");
}

/// Standard output as text.
pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// One JSON document on standard output.
pub(crate) fn json(output: &Output) -> serde_json::Value {
    let complaint = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {complaint}"))
}
