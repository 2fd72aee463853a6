//! A server process: Assay or a real etcd, started with the same flags.

use super::{Clients, Tool, free_port};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The line that both servers log when clients are served.
const READY: &str = "ready to serve client requests";
/// Longest start that a test accepts: a debug build on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often files and processes are looked at: there is no event to wait for.
const POLL: Duration = Duration::from_millis(5);

/// How much of a log a failed test shows.
const SHOWN_LINES: usize = 12;
const SHOWN_CHARS: usize = 400;

/// Which server to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// The program under test.
    Assay,
    /// Another build of it.
    Build(PathBuf),
    /// A real etcd at this path.
    Etcd(PathBuf),
}

/// How to start a server. Ports are free ones, the data directory is a new temporary one.
#[derive(Clone, Debug)]
pub struct Launch {
    program: Program,
    data_dir: Option<PathBuf>,
    ports: Option<[u16; 3]>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    wrapper: Vec<OsString>,
    disk_gate: &'static str,
    tls: [bool; 3],
    host: String,
}

impl Launch {
    fn new(program: Program) -> Self {
        Self {
            program,
            data_dir: None,
            ports: None,
            args: Vec::new(),
            env: Vec::new(),
            wrapper: Vec::new(),
            disk_gate: "off",
            tls: [false; 3],
            host: "127.0.0.1".to_string(),
        }
    }

    /// The program under test; with `ASSAY_SUBJECT=etcd` a real etcd in its place.
    pub fn subject() -> Self {
        if std::env::var_os("ASSAY_SUBJECT").is_some_and(|subject| subject == "etcd") {
            let etcd = Tool::Etcd.find().expect("ASSAY_SUBJECT=etcd needs an etcd");
            return Self::etcd(&etcd);
        }
        Self::assay()
    }

    /// Assay, with the disk gate off: most tests are not about the disk.
    pub fn assay() -> Self {
        Self::new(Program::Assay)
    }

    /// A real etcd.
    pub fn etcd(path: &Path) -> Self {
        Self::new(Program::Etcd(path.to_path_buf()))
    }

    /// Whether this starts Assay.
    pub fn is_assay(&self) -> bool {
        self.program == Program::Assay
    }

    /// Starts this program, with the same flags.
    #[must_use]
    pub fn program(mut self, program: Program) -> Self {
        self.program = program;
        self
    }

    /// Value of `--disk-gate` (Assay only; `off` unless set).
    #[must_use]
    pub fn disk_gate(mut self, gate: &'static str) -> Self {
        self.disk_gate = gate;
        self
    }

    /// Keeps the data in this directory, which outlives the node.
    #[must_use]
    pub fn data_dir(mut self, dir: &Path) -> Self {
        self.data_dir = Some(dir.to_path_buf());
        self
    }

    /// Ports for clients, peers and metrics, known before the start.
    #[must_use]
    pub fn ports(mut self, ports: [u16; 3]) -> Self {
        self.ports = Some(ports);
        self
    }

    /// Address of all ports.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.to_string();
        self
    }

    /// Which of the client, peer and metrics ports have `https` URLs.
    #[must_use]
    pub fn tls(mut self, tls: [bool; 3]) -> Self {
        self.tls = tls;
        self
    }

    /// One more flag.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Without this environment variable again.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts the server under another program, for example `strace -f -o FILE`.
    #[must_use]
    pub fn wrapper<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, words: I) -> Self {
        self.wrapper = words.into_iter().map(Into::into).collect();
        self
    }

    /// Starts the server and waits until it serves.
    pub fn start(self) -> Node {
        let mut node = self.spawn();
        node.wait_ready();
        node
    }

    /// Starts the server and waits for nothing.
    pub fn spawn(self) -> Node {
        let home = tempfile::Builder::new().prefix("assay-test-").tempdir().expect("temp dir");
        let data_dir = self.data_dir.clone().unwrap_or_else(|| home.path().join("data"));
        let ports = self.ports.unwrap_or_else(|| [free_port(), free_port(), free_port()]);
        let log = home.path().join("log");
        let child = launch(&self, &data_dir, ports, &log);
        Node { launch: self, home, data_dir, ports, log, child, starts: 1 }
    }
}

/// `http://127.0.0.1:PORT` or the same with TLS.
fn url(launch: &Launch, at: usize, ports: [u16; 3]) -> String {
    let scheme = if launch.tls[at] { "https" } else { "http" };
    format!("{scheme}://{}:{}", launch.host, ports[at])
}

fn launch(launch: &Launch, data_dir: &Path, ports: [u16; 3], log: &Path) -> Child {
    let [client, peer, metrics] = [0, 1, 2].map(|at| url(launch, at, ports));
    let program = match &launch.program {
        Program::Assay => PathBuf::from(env!("CARGO_BIN_EXE_assay")),
        Program::Build(path) | Program::Etcd(path) => path.clone(),
    };
    let mut words: Vec<OsString> = launch.wrapper.clone();
    words.push(program.into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command.args(["--name", "default", "--data-dir"]).arg(data_dir);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    command.args(["--listen-metrics-urls", &metrics]);
    match &launch.program {
        Program::Etcd(_) => command.arg("--log-outputs=stderr"),
        _ => command.arg(format!("--disk-gate={}", launch.disk_gate)),
    };
    command.args(&launch.args).envs(launch.env.iter().cloned());
    let out = File::options().create(true).append(true).open(log).expect("log file");
    command.stdin(Stdio::null());
    command.stdout(out.try_clone().expect("log handle")).stderr(out);
    // A group of its own: killing it reaches the server under a wrapper too, and nothing else.
    command.process_group(0);
    command.spawn().unwrap_or_else(|error| panic!("cannot start {words:?}: {error}"))
}

/// A running server. Dropping it kills the process and removes its files.
pub struct Node {
    launch: Launch,
    home: TempDir,
    data_dir: PathBuf,
    ports: [u16; 3],
    log: PathBuf,
    child: Child,
    starts: usize,
}

impl Node {
    /// `http://127.0.0.1:PORT` (or `https`) for clients.
    pub fn client_url(&self) -> String {
        url(&self.launch, 0, self.ports)
    }

    /// `http://127.0.0.1:PORT` (or `https`) for peers.
    pub fn peer_url(&self) -> String {
        url(&self.launch, 1, self.ports)
    }

    /// `http://127.0.0.1:PORT` (or `https`) of `/metrics`.
    pub fn metrics_url(&self) -> String {
        url(&self.launch, 2, self.ports)
    }

    /// Ports for clients, peers and metrics.
    pub fn ports(&self) -> [u16; 3] {
        self.ports
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// A directory for the test's own files, removed with the node.
    pub fn scratch(&self) -> &Path {
        self.home.path()
    }

    /// Everything logged so far, over all starts.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Process id of the server itself, also under a wrapper.
    pub fn pid(&self) -> i32 {
        let pid = self.child.id() as i32;
        if self.launch.wrapper.is_empty() {
            return pid;
        }
        let children = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        children.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(pid)
    }

    /// Resident set size in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the server's status file");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("VmRSS in kB");
        kib * 1024
    }

    /// Waits until the server says that it serves clients.
    ///
    /// # Panics
    /// When it ends or says nothing for a minute; the end of the log is in the message.
    pub fn wait_ready(&mut self) {
        let starts = self.starts;
        self.wait_log(START_LIMIT, |log| log.matches(READY).count() >= starts);
    }

    /// Waits until the log satisfies `found`.
    ///
    /// # Panics
    /// As [`Node::wait_ready`].
    pub fn wait_log(&mut self, limit: Duration, found: impl Fn(&str) -> bool) {
        let start = Instant::now();
        loop {
            let ended = self.child.try_wait().expect("state of the server");
            if found(&self.log()) {
                return;
            }
            if let Some(status) = ended {
                panic!("the server ended ({status}) before it was ready:\n{}", self.log_end());
            }
            assert!(start.elapsed() < limit, "not in the log in time:\n{}", self.log_end());
            std::thread::sleep(POLL);
        }
    }

    /// Waits until the process ends by itself.
    ///
    /// # Panics
    /// When it still runs after `limit`.
    pub fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("state of the server") {
                return status;
            }
            assert!(start.elapsed() < limit, "still running after {limit:?}:\n{}", self.log_end());
            std::thread::sleep(POLL);
        }
    }

    /// Whether the process is still there.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("state of the server").is_none()
    }

    /// Sends a signal to the server itself.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("signal the server");
    }

    /// `kill -9`, and waits for the process to be gone.
    pub fn kill(&mut self) {
        if self.child.try_wait().expect("state of the server").is_none() {
            let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }

    /// SIGTERM, and the exit status.
    ///
    /// # Panics
    /// When the server does not end within `limit`.
    pub fn terminate(&mut self, limit: Duration) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait_exit(limit)
    }

    /// Starts the server again on the same data and ports; it must have ended before.
    pub fn restart(&mut self) {
        self.respawn();
        self.wait_ready();
    }

    /// As [`Node::restart`], waiting for nothing.
    pub fn respawn(&mut self) {
        assert!(!self.is_running(), "the server still runs");
        // A start that was refused logged no ready line: count what is there.
        self.starts = self.log().matches(READY).count() + 1;
        self.child = launch(&self.launch, &self.data_dir, self.ports, &self.log);
    }

    /// Changes the flags for the next start.
    pub fn relaunch_with(&mut self, change: impl FnOnce(Launch) -> Launch) {
        self.launch = change(self.launch.clone());
    }

    /// Clients over one new connection.
    pub async fn clients(&self) -> Clients {
        Clients::connect(&self.client_url()).await
    }

    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        let brief = |line: &&str| line.chars().take(SHOWN_CHARS).collect::<String>();
        last.iter().map(brief).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let ended = self.child.try_wait().ok().flatten();
        if std::thread::panicking() {
            let state = match ended {
                Some(status) => format!("ended, signal {:?}, {status}", status.signal()),
                None => "running".into(),
            };
            eprintln!("--- log of {:?} ({state})\n{}\n---", self.launch.program, self.log_end());
        }
        self.kill();
    }
}
