//! The servers under measurement, and the do-nothing server: processes on loopback ports.

use crate::closed_loop::runtime;
use crate::connection::{Method, call};
use crate::cpu::{Cpu, Memory};
use crate::error::{During, Error, Result};
use crate::messages;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest start: replay of a million keys on a slow disk.
const START_LIMIT: Duration = Duration::from_secs(180);
/// Longest end after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// How often a starting or ending server is looked at.
const POLL: Duration = Duration::from_millis(2);
/// A server is quiet when it writes less than this in bytes during such a time; the wait is bounded.
const QUIET_BYTES: u64 = 1 << 20;
const QUIET_TIME: Duration = Duration::from_secs(2);
const QUIET_LIMIT: Duration = Duration::from_secs(30);
/// Space quota of both servers in bytes: the largest that etcd recommends.
const QUOTA: &str = "--quota-backend-bytes=8589934592";
/// Lines of a log that an error shows.
const SHOWN_LINES: usize = 15;

/// A program to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The release build of Assay.
    Assay,
    /// A real etcd.
    Etcd,
    /// The do-nothing server.
    Nothing,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Assay => "assay",
            Self::Etcd => "etcd",
            Self::Nothing => "nothing",
        }
    }
}

/// Where the programs are.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) assay: PathBuf,
    pub(crate) etcd: PathBuf,
}

impl Programs {
    /// From the environment (`ASSAY_BIN`, `ASSAY_ETCD`), the target directory, the cache of
    /// `.ci/install-tools` and `PATH`.
    pub(crate) fn find() -> Result<Self> {
        let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("assay")));
        let target = PathBuf::from("target/release/assay");
        let assay = named("ASSAY_BIN")?.or_else(|| beside.filter(|path| path.is_file()));
        let assay =
            assay.or_else(|| Some(target).filter(|path| path.is_file())).ok_or_else(|| {
                Error::Setup("no release build of assay: run `cargo build --release`".into())
            })?;
        let tools = std::env::var_os("ASSAY_TOOLS").map(PathBuf::from).or_else(|| {
            std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/assay-tools"))
        });
        let mut places: Vec<PathBuf> = tools.iter().map(|tools| tools.join("bin")).collect();
        if let Some(path) = std::env::var_os("PATH") {
            places.extend(std::env::split_paths(&path));
        }
        let etcd = named("ASSAY_ETCD")?;
        let found = || places.iter().map(|place| place.join("etcd")).find(|path| path.is_file());
        let etcd = etcd.or_else(found).ok_or_else(|| {
            Error::Setup("no etcd: run .ci/install-tools, or set ASSAY_ETCD to its path".into())
        })?;
        Ok(Self { assay, etcd })
    }
}

fn named(variable: &str) -> Result<Option<PathBuf>> {
    let Some(path) = std::env::var_os(variable).map(PathBuf::from) else { return Ok(None) };
    if path.is_file() {
        return Ok(Some(path));
    }
    Err(Error::Setup(format!("{variable}={} is not a file", path.display())))
}

/// First line of what `PROGRAM --version` prints.
pub(crate) fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().take(2).collect::<Vec<_>>().join(", ")
}

/// A running server; dropping it kills the process and removes its files.
pub(crate) struct Server {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    pub(crate) metrics: SocketAddr,
    peer: SocketAddr,
    program: PathBuf,
    place: Place,
    child: Child,
}

/// What a server keeps over a restart.
struct Place {
    home: PathBuf,
    name: String,
    /// Value of `--initial-cluster`.
    founders: String,
}

/// Addresses of one server: client, peer and metrics.
pub(crate) type Ports = [SocketAddr; 3];

/// Free ports for so many servers, no two alike.
pub(crate) fn free_ports(servers: usize) -> Result<Vec<Ports>> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let held: std::io::Result<Vec<_>> = (0..servers * 3).map(|_| bind()).collect();
    let held = held.during(|| "find a port".into())?;
    let found: std::io::Result<Vec<_>> = held.iter().map(TcpListener::local_addr).collect();
    Ok(found.during(|| "find a port".into())?.as_chunks::<3>().0.to_vec())
}

impl Server {
    /// Starts a server on fresh files below `dir` and waits until it serves.
    pub(crate) fn start(kind: Kind, programs: &Programs, dir: &Path) -> Result<Self> {
        let ports = free_ports(1)?.first().copied();
        let ports = ports.ok_or_else(|| Error::Setup("no free ports".into()))?;
        let founders = format!("default=http://{}", ports[1]);
        let mut server = Self::launch(kind, programs, dir, "default", ports, &founders)?;
        server.wait_ready()?;
        Ok(server)
    }

    /// Starts a server as one of `founders` on fresh files below `dir`, without waiting for it.
    pub(crate) fn launch(
        kind: Kind,
        programs: &Programs,
        dir: &Path,
        name: &str,
        [address, peer, metrics]: Ports,
        founders: &str,
    ) -> Result<Self> {
        let program = match kind {
            Kind::Assay => programs.assay.clone(),
            Kind::Etcd => programs.etcd.clone(),
            Kind::Nothing => std::env::current_exe().during(|| "find this program".into())?,
        };
        let home = dir.join(format!("{}-{name}-{}", kind.name(), std::process::id()));
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).during(|| format!("create {}", home.display()))?;
        let place = Place { home, name: name.into(), founders: founders.into() };
        let child = spawn(kind, &program, &place, [address, peer, metrics])?;
        Ok(Self { kind, address, metrics, peer, program, place, child })
    }

    /// Starts the server again on the same files; returns the time until the first answer to a
    /// linearizable read.
    pub(crate) fn restart(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.respawn()?;
        self.wait_ready()?;
        Ok(start.elapsed())
    }

    /// Starts the server again on the same files, without waiting for it.
    pub(crate) fn respawn(&mut self) -> Result<()> {
        let ports = [self.address, self.peer, self.metrics];
        self.child = spawn(self.kind, &self.program, &self.place, ports)?;
        Ok(())
    }

    /// CPU clock of the process.
    pub(crate) fn cpu(&self) -> Result<Cpu> {
        Cpu::of(self.pid())
    }

    /// Resident memory now.
    pub(crate) fn memory(&self) -> Result<Memory> {
        Memory::of(self.pid())
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Bytes of all files of the server.
    pub(crate) fn disk_bytes(&self) -> u64 {
        allocated_bytes(&self.place.home)
    }

    /// Waits until the server has done what it does once after a start, such as preparing segments
    /// of its log; returns how many bytes that took.
    pub(crate) fn settle(&self) -> Result<u64> {
        settle(|| self.written_bytes())
    }

    /// Bytes given to the disk so far.
    pub(crate) fn written_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/io", self.pid());
        let text = std::fs::read_to_string(&path).during(|| format!("read of {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        Ok(line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0))
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().during(|| "kill the server".into())?;
        self.child.wait().during(|| "wait for the server".into())?;
        Ok(())
    }

    /// SIGTERM; returns the time until the process is gone.
    pub(crate) fn terminate(&mut self) -> Result<Duration> {
        let start = Instant::now();
        kill(Pid::from_raw(self.pid()), Signal::SIGTERM).during(|| "end the server".into())?;
        while self.child.try_wait().during(|| "wait for the server".into())?.is_none() {
            if start.elapsed() > STOP_LIMIT {
                return Err(self.fault("the server does not end"));
            }
            std::thread::sleep(POLL);
        }
        Ok(start.elapsed())
    }

    /// Waits until the server answers a linearizable read.
    pub(crate) fn wait_ready(&mut self) -> Result<()> {
        let (start, runtime) = (Instant::now(), runtime()?);
        let mut request = Vec::new();
        messages::range(&mut request, b"ready", b"", 1, false);
        loop {
            let answer = call(self.address, Method::Range, &request);
            let answer = async { tokio::time::timeout(Duration::from_secs(10), answer).await };
            if matches!(runtime.block_on(answer), Ok(Ok(_))) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().during(|| "look at the server".into())? {
                return Err(self.fault(&format!("{} ended: {status}", self.kind.name())));
            }
            if start.elapsed() > START_LIMIT {
                return Err(self.fault("the server does not serve"));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Length of its log in bytes, a place to read on from.
    pub(crate) fn log_end(&self) -> u64 {
        std::fs::metadata(self.place.home.join("log")).map_or(0, |meta| meta.len())
    }

    /// What it logged behind such a place.
    pub(crate) fn log_from(&self, at: u64) -> String {
        let text = std::fs::read(self.place.home.join("log")).unwrap_or_default();
        let from = text.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
        String::from_utf8_lossy(from).into_owned()
    }

    fn fault(&self, what: &str) -> Error {
        let log = self.place.home.join("log");
        let text = std::fs::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
        Error::Server { what: what.into(), log, end }
    }
}

/// Waits until `written_bytes` hardly grows any more; returns by how much it grew.
pub(crate) fn settle(written_bytes: impl Fn() -> Result<u64>) -> Result<u64> {
    let (start, first) = (Instant::now(), written_bytes()?);
    let mut before = first;
    loop {
        std::thread::sleep(QUIET_TIME);
        let now = written_bytes()?;
        if now.saturating_sub(before) < QUIET_BYTES || start.elapsed() > QUIET_LIMIT {
            return Ok(now.saturating_sub(first));
        }
        before = now;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = std::fs::remove_dir_all(&self.place.home);
        // The next server must not pay for what this one left to the kernel.
        if let Some(dir) = self.place.home.parent().and_then(|dir| File::open(dir).ok()) {
            let _ = nix::unistd::syncfs(&dir);
        }
    }
}

fn spawn(kind: Kind, program: &Path, place: &Place, ports: Ports) -> Result<Child> {
    let Place { home, name, founders } = place;
    let log = home.join("log");
    let out = File::options().create(true).append(true).open(&log);
    let out = out.during(|| format!("open {}", log.display()))?;
    let [client, peer, metrics] = ports.map(|port| format!("http://{port}"));
    let mut command = Command::new(program);
    if kind == Kind::Nothing {
        command.args(["--serve-nothing", &ports[0].to_string()]);
    } else {
        command.args(["--name", name, "--data-dir"]).arg(home.join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", founders]);
        command.args(["--listen-metrics-urls", &metrics, QUOTA]);
        // Members say at "info" how an election went; there are a few such lines a second at most.
        let alone = !founders.contains(',');
        command.arg(if alone { "--log-level=warn" } else { "--log-level=info" });
    }
    if kind == Kind::Assay {
        // The probe of the disk runs before the first answer: outside of every measurement but the
        // restarts, and there it finds its stored verdict.
        command.arg("--disk-gate=warn");
    }
    let error = out.try_clone().during(|| "open the log twice".into())?;
    command.stdin(Stdio::null()).stdout(out).stderr(error);
    command.spawn().during(|| format!("start {}", program.display()))
}

fn allocated_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => allocated_bytes(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}
