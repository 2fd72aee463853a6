//! Runs etcdctl.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An etcdctl that talks to one endpoint.
#[derive(Clone, Debug)]
pub struct Etcdctl {
    path: PathBuf,
    endpoint: String,
}

/// What a run of etcdctl left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit code; -1 after a signal.
    pub code: i32,
    /// Standard output, bytes that are no text replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// Standard output as it came.
    pub bytes: Vec<u8>,
}

impl Etcdctl {
    /// The program at `path` against `endpoint`.
    pub fn new(path: &Path, endpoint: &str) -> Self {
        Self { path: path.to_path_buf(), endpoint: endpoint.to_string() }
    }

    /// The command, ready to be spawned: endpoint set, no settings from the environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.env_clear();
        command.arg(format!("--endpoints={}", self.endpoint)).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, "")
    }

    /// Runs a command to its end with this standard input.
    pub fn run_with(&self, args: &[&str], input: &str) -> Output {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().expect("start etcdctl");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A command that reads nothing may be gone already.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("run etcdctl");
        Output {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            bytes: output.stdout,
        }
    }

    /// Runs a command that must succeed and returns its output.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.code, 0, "etcdctl {args:?} failed: {}", output.stderr);
        output.stdout
    }
}
