//! Configuration: one table of options, what was typed, what was meant.
//!
//! [`flags`] declares every option once; [`parse`] turns a command line and the environment into
//! [`Raw`] texts; [`Config::from_raw`] validates them into one immutable value whose parts are
//! handed to the modules that need them. No other module reads the environment.

mod bootstrap;
pub mod flags;
mod parse;
#[cfg(test)]
mod tests;
mod tls;
mod urls;
mod validate;
mod value;

pub use parse::{Parsed, Source, parse};
pub use tls::{Tls, TlsSide, TlsVersion};
pub use urls::{ListenUrl, UrlList};
pub use validate::ConfigError;

use std::path::PathBuf;
use std::time::Duration;

/// Level of the etcd client interface that this node answers with (`Status.version`, `/version`).
///
/// Clients decide by it which calls they may use; it is not the version of this program.
pub const API_VERSION: &str = "3.7.1";
/// Cluster version that a new cluster decides on: API level without its patch number.
pub const CLUSTER_VERSION: &str = "3.7.0";
/// Storage version reported to clients.
pub const STORAGE_VERSION: &str = "3.7.0";

/// Texts of the options after command line and environment were read, by flag name.
pub type Raw = std::collections::BTreeMap<&'static str, (String, Source)>;

/// The validated configuration of one node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Member name (`--name`).
    pub name: String,
    /// Files of the node.
    pub paths: Paths,
    /// Addresses to listen on and to announce.
    pub listen: Listen,
    /// Encryption of the listeners and of connections to members.
    pub tls: Tls,
    /// First configuration of the cluster; ignored once a log exists.
    pub bootstrap: Bootstrap,
    /// Later changes of it.
    pub membership: Membership,
    /// Raft timing.
    pub timing: Timing,
    /// Sizes and rates that bound what a client can ask for.
    pub limits: Limits,
    /// Disk gate.
    pub gate: Gate,
    /// `--divergence-check`
    pub divergence: DivergenceCheck,
    /// Logging.
    pub log: Log,
    /// Who may use HTTP on the client port.
    pub access: Access,
    /// In tests: the level of commands that the program claims to know, lower than the true one, so
    /// that it behaves as an older version (`ASSAY_TEST_FEATURE_LEVEL`).
    pub feature_level: Option<u32>,
    /// The program was started under the name `etcd`, or logging was configured: the start-up text
    /// for people must not appear among lines that programs read.
    pub quiet: bool,
    /// Whether the metrics listener was asked for (then failing to open it is an error).
    pub metrics_listener_explicit: bool,
}

/// Where the node keeps its files.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Data directory (`--data-dir`, default `<name>.assay`).
    pub data_dir: PathBuf,
    /// Directory of the write-ahead log: `--wal-dir`, or `member/wal` below the data directory.
    pub wal_dir: PathBuf,
    /// Whether `--wal-dir` was given.
    pub wal_dir_explicit: bool,
}

/// Listening and advertised addresses.
#[derive(Debug, Clone)]
pub struct Listen {
    /// `--listen-client-urls`
    pub client: UrlList,
    /// `--listen-peer-urls`
    pub peer: UrlList,
    /// `--listen-metrics-urls`
    pub metrics: UrlList,
    /// `--advertise-client-urls`
    pub advertise_client: UrlList,
    /// `--initial-advertise-peer-urls`
    pub advertise_peer: UrlList,
    /// `--socket-reuse-port`
    pub reuse_port: bool,
    /// `--socket-reuse-address`
    pub reuse_address: bool,
}

/// How a new cluster begins.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// `--initial-cluster-token`
    pub token: String,
    /// `--initial-cluster`, names and peer URLs.
    pub members: Vec<(String, UrlList)>,
    /// `--initial-cluster-state=existing`: join by asking the listed peers.
    pub existing: bool,
}

/// Rules for changes of the membership.
#[derive(Debug, Clone, Copy)]
pub struct Membership {
    /// `--strict-reconfig-check`: refuse changes that would lose the quorum.
    pub strict: bool,
    /// `--max-learners`
    pub learners_max: usize,
}

/// Raft timing, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// `--heartbeat-interval`, the raft tick.
    pub heartbeat_ms: u64,
    /// `--election-timeout`
    pub election_ms: u64,
    /// `--disk-stall-step-down`: age of an operation of the log's disk at which a leader hands
    /// leadership over; `None` when switched off.
    pub disk_stall_ms: Option<u64>,
    /// `--backend-batch-interval`: longest time between two durable store commits.
    pub store_interval: Duration,
    /// `--watch-progress-notify-interval`
    pub watch_progress: Duration,
    /// `--warning-apply-duration`
    pub warning_apply: Duration,
    /// `--warning-unary-request-duration`
    pub warning_unary: Duration,
    /// `--compaction-sleep-interval`
    pub compaction_pause: Duration,
}

impl Timing {
    /// Time after which a proposal or a linearizable read is given up: 5 s for the disk and two
    /// elections, as etcd computes it (`reference/semantics.md` 3).
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + Duration::from_millis(2 * self.election_ms)
    }

    /// Smallest time to live of a lease in seconds: one and a half elections, rounded up.
    pub fn lease_ttl_min_s(&self) -> i64 {
        i64::try_from((3 * self.election_ms).div_ceil(2).div_ceil(1000)).unwrap_or(i64::MAX)
    }
}

/// Bounds on what a client can ask for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// `--max-request-bytes`: largest replicated request; the transport accepts 512 KiB more.
    pub request_bytes: usize,
    /// `--max-txn-ops`
    pub txn_ops: usize,
    /// `--max-concurrent-streams` per connection.
    pub concurrent_streams: u32,
    /// `--quota-backend-bytes`; `None` when switched off by a negative value.
    pub quota_bytes: Option<u64>,
    /// `--grpc-keepalive-min-time`
    pub keepalive_min: Duration,
    /// `--grpc-keepalive-interval`, zero when off.
    pub keepalive_interval: Duration,
    /// `--grpc-keepalive-timeout`
    pub keepalive_timeout: Duration,
    /// `--min-free-bytes`: free space below which client writes are refused.
    pub min_free_bytes: u64,
    /// `--memory-budget` in bytes.
    pub memory_budget: u64,
    /// `--compaction-batch-limit`
    pub compaction_batch: usize,
    /// `--snapshot-catchup-entries`: entries kept in memory for followers that lag behind.
    pub catchup_entries: u64,
}

impl Limits {
    /// What the transport accepts for one message beyond [`Limits::request_bytes`].
    pub const TRANSPORT_OVERHEAD_BYTES: usize = 512 * 1024;

    /// Largest gRPC message that the node receives.
    pub fn receive_bytes(&self) -> usize {
        self.request_bytes + Self::TRANSPORT_OVERHEAD_BYTES
    }
}

/// What becomes of a member whose data differs from the majority's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DivergenceCheck {
    /// It is fenced, the others go on.
    #[default]
    Fence,
    /// A CORRUPT alarm refuses writes everywhere, as in etcd.
    Alarm,
    /// Nothing is compared.
    Off,
}

/// Disk gate options.
#[derive(Debug, Clone)]
pub struct Gate {
    /// `--disk-gate`: `enforce`, `strict`, `warn` or `off`.
    pub mode: String,
    /// `--disk-gate-p99`
    pub p99: Duration,
    /// `--disk-verdict-file`
    pub verdict_file: Option<PathBuf>,
}

/// Rules for HTTP on the client port.
#[derive(Debug, Clone)]
pub struct Access {
    /// `--host-whitelist`
    pub hosts: Vec<String>,
    /// `--cors`
    pub origins: Vec<String>,
}

/// Logging options.
#[derive(Debug, Clone)]
pub struct Log {
    /// Lowest level written.
    pub level: Level,
    /// `json` or `console`.
    pub json: bool,
    /// Sinks in the order given.
    pub outputs: Vec<LogOutput>,
}

/// Log levels of `--log-level`; `panic` and `fatal` read as `error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// One sink of `--log-outputs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogOutput {
    /// Standard error, also the meaning of `default`.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file, appended to.
    File(PathBuf),
}
