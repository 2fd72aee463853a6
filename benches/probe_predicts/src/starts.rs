//! What the disk gate adds to a start: with a new directory, with a stored verdict, and without it.

use crate::{Failure, median_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest probe of a disk without a verdict.
const FIRST: Duration = Duration::from_secs(2);

/// What a stored verdict may add to a start.
const ADDED: Duration = Duration::from_millis(50);

/// A node that is not ready by then never will be.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often a starting node is asked: well below what is measured.
const POLL: Duration = Duration::from_micros(500);

/// Compares starts of a node with and without the disk gate.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Directory on the disk to compare on
    #[arg(long, value_name = "D", default_value = "target/probe-predicts")]
    dir: PathBuf,
    /// Rounds; each starts a node on a new directory, then with the stored verdict and without the
    /// gate, in turn the one and the other first
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
}

/// One start.
pub(crate) struct Start {
    /// From the start of the process to "ready".
    ready: Duration,
    /// The gate's own phase.
    gate: Duration,
    /// What the gate said.
    pub(crate) state: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let program = assay()?;
    fs::create_dir_all(&arguments.dir).map_err(Failure::io("make the directory"))?;
    let (mut first, mut stored, mut off) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        let home = tempfile::tempdir_in(&arguments.dir).map_err(Failure::io("make a directory"))?;
        let start = start(&program, home.path(), "enforce")?;
        println!("round {round} new directory    {start}");
        first.push(start.gate);
        for with_gate in [round.is_multiple_of(2), !round.is_multiple_of(2)] {
            let start =
                self::start(&program, home.path(), if with_gate { "enforce" } else { "off" })?;
            let (name, list) = match with_gate {
                true => ("stored verdict", &mut stored),
                false => ("gate off", &mut off),
            };
            println!("round {round} {name:<16} {start}");
            list.push(start.ready);
        }
    }
    let seconds =
        |times: &[Duration]| -> Vec<f64> { times.iter().map(Duration::as_secs_f64).collect() };
    let first = median_of(seconds(&first));
    let (stored, off) = (median_of(seconds(&stored)), median_of(seconds(&off)));
    println!("gate on a new directory: median {first:.3} s, target {:.3} s", FIRST.as_secs_f64());
    println!(
        "ready with a stored verdict {:.1} ms, without the gate {:.1} ms: {:+.1} ms, target {:.0} ms",
        stored * 1e3,
        off * 1e3,
        (stored - off) * 1e3,
        ADDED.as_secs_f64() * 1e3
    );
    Ok(first <= FIRST.as_secs_f64() && stored - off <= ADDED.as_secs_f64())
}

impl std::fmt::Display for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ready, gate) = (self.ready.as_secs_f64() * 1e3, self.gate.as_secs_f64() * 1e3);
        write!(f, "ready after {ready:>8.1} ms, gate {gate:>8.1} ms, {}", self.state)
    }
}

pub(crate) fn assay() -> Result<PathBuf, Failure> {
    let beside = || std::env::current_exe().ok().map(|own| own.with_file_name("assay"));
    let path = std::env::var_os("ASSAY_BIN").map(PathBuf::from).or_else(beside).unwrap_or_default();
    if path.is_file() {
        return Ok(path);
    }
    let message = format!("{} is missing: cargo build --release", path.display());
    Err(Failure::Program { name: "assay".into(), message })
}

fn start(program: &Path, home: &Path, gate: &str) -> Result<Start, Failure> {
    under(Command::new(program), home, gate)
}

/// Starts a node by a command to which its flags are added, waits until it is ready, and ends it.
pub(crate) fn under(mut command: Command, home: &Path, gate: &str) -> Result<Start, Failure> {
    let [client, peer, metrics] = [free()?, free()?, free()?];
    let url = |address: SocketAddr| format!("http://{address}");
    let log = fs::File::create(home.join("log")).map_err(Failure::io("make a log"))?;
    let again = log.try_clone().map_err(Failure::io("make a log"))?;
    let began = Instant::now();
    let child = command
        .arg("--data-dir")
        .arg(home.join("data"))
        .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
        .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
        .args(["--initial-cluster", &format!("default={}", url(peer))])
        .args(["--listen-metrics-urls", &url(metrics), &format!("--disk-gate={gate}")])
        // Neither meets a probe of this host nor reuses what one found.
        .env("BENCH_DISK_RUN_DIR", home.join("run"))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(again)
        .spawn()
        .map_err(Failure::io("start the node"))?;
    let mut node = Node(child);
    loop {
        if get(metrics, "/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            break;
        }
        let ended = node.0.try_wait().map_err(Failure::io("look at the node"))?;
        if ended.is_some() || began.elapsed() > PATIENCE {
            let message = fs::read_to_string(home.join("log")).unwrap_or_default();
            return Err(Failure::Program { name: "assay".into(), message });
        }
        std::thread::sleep(POLL);
    }
    let ready = began.elapsed();
    let page = get(metrics, "/metrics").unwrap_or_default();
    let value = |series: &str| {
        page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok())
    };
    let gate = value("assay_start_phase_seconds{phase=\"gate\"}").unwrap_or(0.0);
    let state = page
        .lines()
        .filter_map(|line| {
            line.strip_prefix("assay_disk_gate_state{state=\"")?.strip_suffix("\"} 1")
        })
        .collect();
    node.end()?;
    Ok(Start { ready, gate: Duration::from_secs_f64(gate), state })
}

/// A running node; killed if it is not ended.
struct Node(Child);

impl Node {
    fn end(mut self) -> Result<(), Failure> {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM)
            .map_err(|errno| Failure::io("end the node")(errno.into()))?;
        self.0.wait().map(drop).map_err(Failure::io("wait for the node"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    listener.and_then(|listener| listener.local_addr()).map_err(Failure::io("find a port"))
}

/// An answer over HTTP, or nothing yet.
fn get(server: SocketAddr, path: &str) -> Option<String> {
    let mut socket = TcpStream::connect(server).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    Some(answer)
}
