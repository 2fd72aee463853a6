//! Caps, deadlines and counters of connections.

use super::conn::Closed;
use super::listen::Port;
use super::tls::Failure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// File descriptors kept for files, peers, metrics and listeners.
const RESERVED_FDS: u64 = 1_024;
/// Lowest limit of open files under which a node runs. Half of it is kept for the node: about 40
/// descriptors are open when it idles, and a log that cannot open its next segment ends it.
pub const FD_LIMIT_LEAST: u64 = 256;
/// Part of the reserve that connections of other members may take.
const PEER_SHARE: u64 = 4;
/// Part of the reserve that scrapes and health checks may take.
const METRICS_SHARE: u64 = 8;
/// A connection that has not said which protocol it speaks by then is closed.
pub(super) const FIRST_BYTES_DEADLINE: Duration = Duration::from_secs(10);
/// Longest time for the head of an HTTP/1 request, or for the first HTTP/2 frame.
pub(super) const HEADER_DEADLINE: Duration = Duration::from_secs(30);
/// Longest TLS handshake, on either side. Two round trips and a signature fit many times over, and
/// so do three retransmissions of a lost packet (1, 2 and 4 s).
pub(super) const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// HTTP/2 window of a whole connection: many parallel large puts must not wait for each other.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Limit of one request's headers.
pub(super) const HEADER_LIST_BYTES: u32 = 16 << 10;
/// Streams a client may open and reset before we accepted them (rapid-reset attacks).
pub(super) const PENDING_ACCEPT_RESETS: usize = 20;
/// Streams we may reset for a client's errors before the connection ends.
pub(super) const LOCAL_ERROR_RESETS: usize = 1_024;
/// Share of the connection cap above which a warning is written, in percent.
const WARN_PERCENT: usize = 80;

/// Limits that come from flags.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Highest number of open connections, for each kind of port.
    pub connections: Caps,
    /// `--max-concurrent-streams` per HTTP/2 connection; `None` for no limit.
    pub max_concurrent_streams: Option<u32>,
    /// `--grpc-keepalive-interval`: silence after which we ping; zero for never.
    pub keepalive_interval: Duration,
    /// `--grpc-keepalive-timeout`: time for the answer to our ping.
    pub keepalive_timeout: Duration,
    /// `--grpc-keepalive-min-time`: client pings that come faster are abuse.
    pub keepalive_min_time: Duration,
    /// See [`FIRST_BYTES_DEADLINE`].
    pub first_bytes: Duration,
    /// See [`HEADER_DEADLINE`].
    pub header: Duration,
    /// See [`HANDSHAKE_DEADLINE`].
    pub handshake: Duration,
}

impl Default for Limits {
    /// etcd's defaults for what has a flag.
    fn default() -> Self {
        Self {
            connections: Caps::of(20_000),
            max_concurrent_streams: None,
            keepalive_interval: Duration::from_secs(2 * 3_600),
            keepalive_timeout: Duration::from_secs(20),
            keepalive_min_time: Duration::from_secs(5),
            first_bytes: FIRST_BYTES_DEADLINE,
            header: HEADER_DEADLINE,
            handshake: HANDSHAKE_DEADLINE,
        }
    }
}

/// Raises the soft limit of open files to the hard one and returns it.
///
/// # Errors
/// What the operating system says; the old limit stays in force.
pub fn raise_fd_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// Highest number of open connections of each kind of port. Kinds do not share: a flood of clients
/// must leave descriptors for other members, for a scrape that shows the flood, and for files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps([usize; Port::COUNT]);

impl Caps {
    /// The division of a limit of open files: clients get all but 1,024 (half of a limit below
    /// 2,048), other members a quarter of the rest, scrapes and health checks an eighth.
    pub fn of(fd_limit: u64) -> Self {
        let clients = fd_limit.saturating_sub(RESERVED_FDS).max(fd_limit / 2);
        let rest = fd_limit - clients;
        Self(Port::ALL.map(|port| {
            let cap = match port {
                Port::Client => clients,
                Port::Peer => rest / PEER_SHARE,
                Port::Metrics => rest / METRICS_SHARE,
            };
            usize::try_from(cap).unwrap_or(usize::MAX)
        }))
    }

    /// The same number for every kind.
    pub fn each(cap: usize) -> Self {
        Self([cap; Port::COUNT])
    }

    /// The cap of one kind.
    pub fn cap(&self, port: Port) -> usize {
        self.0[port.index()]
    }
}

/// Told of every connection; called on edge threads, must not block.
pub trait ConnObserver: Send + Sync + 'static {
    /// A connection was accepted.
    fn opened(&self, _port: Port) {}
    /// A connection ended; bytes as read from and written to the socket.
    fn closed(&self, _port: Port, _why: Closed, _read: u64, _written: u64) {}
    /// `accept` failed (out of file descriptors, ...).
    fn accept_failed(&self, _port: Port) {}
    /// A connection did not become an encrypted one, or should not have tried.
    fn handshake_failed(&self, _port: Port, _why: Failure) {}
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl ConnObserver for NoObserver {}

/// Connections of this process.
#[derive(Debug, Default)]
pub struct Counters {
    open: [AtomicUsize; Port::COUNT],
    accepted: AtomicU64,
    refused: AtomicU64,
    /// Ports whose crowd was told of, and those that were full: once each.
    said_crowded: [AtomicBool; Port::COUNT],
    said_full: [AtomicBool; Port::COUNT],
}

/// What an operator can do about too many connections. Ports that are not for clients have fixed
/// shares of a fixed reserve.
fn remedy(port: Port) -> &'static str {
    match port {
        Port::Client => "raise the limit of open files (ulimit -n, LimitNOFILE=)",
        Port::Peer | Port::Metrics => "find out who holds so many: `ss -tnp` names them",
    }
}

impl Counters {
    /// Open connections of one port.
    pub fn open(&self, port: Port) -> usize {
        self.open[port.index()].load(Relaxed)
    }

    /// Open connections of all ports.
    pub fn open_total(&self) -> usize {
        self.open.iter().map(|n| n.load(Relaxed)).sum()
    }

    /// Connections accepted since the start.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Connections closed at once because the cap was reached.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Takes a place under `cap`; `None` if there is none left.
    pub(super) fn admit(self: &Arc<Self>, port: Port, cap: usize) -> Option<Place> {
        self.accepted.fetch_add(1, Relaxed);
        let open = self.open(port);
        if open >= cap {
            self.refused.fetch_add(1, Relaxed);
            if !self.said_full[port.index()].swap(true, Relaxed) {
                let name = port.as_str();
                tracing::error!(
                    port = name,
                    open,
                    cap,
                    "connection refused: the cap of this port is reached; {}",
                    remedy(port)
                );
            }
            return None;
        }
        let crowded = open >= cap / 100 * WARN_PERCENT && cap >= 100;
        if crowded && !self.said_crowded[port.index()].swap(true, Relaxed) {
            let name = port.as_str();
            tracing::warn!(
                port = name,
                open,
                cap,
                "open connections of this port are above 80 % of its cap; {}",
                remedy(port)
            );
        }
        self.open[port.index()].fetch_add(1, Relaxed);
        Some(Place { counters: Arc::clone(self), port })
    }
}

/// One counted connection; gives its place back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    counters: Arc<Counters>,
    port: Port,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.counters.open[self.port.index()].fetch_sub(1, Relaxed);
    }
}
