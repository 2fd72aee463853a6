//! A program run as people run it: own flags and environment, standard output and error apart.

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often files and processes are looked at: there is no event to wait for.
const POLL: Duration = Duration::from_millis(5);
/// Longest start or refusal that a test accepts: a debug build on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A running program. Dropping it kills it and what it started.
pub struct Process {
    child: Child,
    home: TempDir,
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The program under test, without flags and with no setting from the environment.
pub fn assay() -> Command {
    bare(Path::new(env!("CARGO_BIN_EXE_assay")))
}

/// A program with no setting from the environment.
pub fn bare(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("ETCD_") || text.starts_with("ASSAY_") {
            command.env_remove(&name);
        }
    }
    command
}

impl Process {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        let home = tempfile::Builder::new().prefix("assay-run-").tempdir().expect("temp dir");
        let file = |name| File::create(home.path().join(name)).expect("a file for the output");
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).process_group(0);
        let child = command.spawn().expect("start the program");
        Self { child, home }
    }

    /// Process id of the program itself.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.file(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Standard output so far.
    pub fn stdout(&self) -> String {
        self.read("out")
    }

    /// Standard error so far.
    pub fn stderr(&self) -> String {
        self.read("err")
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("state of the program").is_none()
    }

    /// Waits until standard error has this text; `false` when the program ended without it.
    ///
    /// # Panics
    /// When neither happens within two minutes.
    pub fn says(&mut self, text: &str) -> bool {
        let start = Instant::now();
        loop {
            let running = self.is_running();
            if self.stderr().contains(text) {
                return true;
            }
            if !running {
                return false;
            }
            assert!(start.elapsed() < LIMIT, "neither {text:?} nor an end:\n{}", self.stderr());
            std::thread::sleep(POLL);
        }
    }

    /// Waits until it serves clients.
    ///
    /// # Panics
    /// When it does not.
    pub fn serves(&mut self) {
        assert!(self.says("ready to serve client requests"), "not started:\n{}", self.stderr());
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("signal the program");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it still runs after `limit`.
    pub fn wait(mut self, limit: Duration) -> Ended {
        let status = self.wait_status(limit);
        let stderr = self.stderr();
        assert_eq!(doubled_prefix(&stderr), None, "{stderr}");
        Ended { code: status.code().unwrap_or(-1), stdout: self.stdout(), stderr }
    }

    fn wait_status(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("state of the program") {
                return status;
            }
            assert!(start.elapsed() < limit, "still running after {limit:?}:\n{}", self.stderr());
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = killpg(Pid::from_raw(self.pid()), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// A prefix that a message carries twice in a row, as in `log: log: cannot read`: two layers that
/// both say where an error comes from.
fn doubled_prefix(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let parts: Vec<&str> = line.split(": ").collect();
        parts.windows(2).find_map(|pair| {
            let word = pair[1].rsplit('"').next().unwrap_or_default();
            let long = word.len() > 3 && word.chars().any(char::is_alphabetic);
            (long && pair[0].ends_with(word)).then_some(word)
        })
    })
}

#[test]
fn doubled_prefixes_are_found() {
    let log = r#"{"msg":"write-ahead log: write-ahead log: gone"}"#;
    assert_eq!(doubled_prefix(log), Some("write-ahead log"));
    assert_eq!(doubled_prefix(r#"{"level":"warn","msg":"store: gone"}"#), None);
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> Ended {
    Process::start(command).wait(LIMIT)
}
