//! The registry: what a scrape reads, and the counters that have no other home.

use super::collect;
use super::exposition::Exposition;
use super::io::IoStats;
use super::node_metrics::NodeMetrics;
use super::peer_stats::PeerStats;
use super::rpc::{ConnStats, RpcStats};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Values that other modules own and a scrape reads.
pub struct Sources {
    /// File operations.
    pub io: Arc<IoStats>,
    /// The node's threads.
    pub node: Arc<NodeMetrics>,
    /// Traffic with other members.
    pub peers: Arc<PeerStats>,
    /// Calls of clients.
    pub rpc: Arc<RpcStats>,
    /// Connections that ended.
    pub conns: Arc<ConnStats>,
    /// What the disk gate decided.
    pub gate: GateState,
    /// Limits of connections by port.
    pub connection_limits: Vec<(&'static str, u64)>,
    /// Bytes of rows waiting for the store above which proposals are refused.
    pub store_pending_limit: u64,
    /// Phases of a start in order; the last one is serving itself.
    pub phases: &'static [&'static str],
    /// Version of the interface.
    pub api_version: &'static str,
    /// Version of this program.
    pub version: &'static str,
}

/// Outcome of the disk gate.
#[derive(Debug, Clone)]
pub struct GateState {
    /// What is known now.
    pub reading: Arc<Mutex<GateReading>>,
    /// All states that there are.
    pub states: Vec<&'static str>,
    /// The limit in seconds.
    pub limit_seconds: f64,
}

/// What is known of the disk; the running node may settle what the gate left open.
#[derive(Debug, Clone, Copy)]
pub struct GateReading {
    /// State as a label.
    pub state: &'static str,
    /// Measured p99 in seconds, if there was a measurement.
    pub p99_seconds: Option<f64>,
}

/// State of the machine, sampled at a scrape. Implemented by whoever knows the machine.
pub trait StateSource: Send + Sync + 'static {
    /// Takes a sample; must not walk data or take the write transaction.
    fn sample(&self) -> StateSample;
}

/// One sample of the process' state. What belongs to the node is zero or empty before it exists.
#[derive(Debug, Clone, Default)]
pub struct StateSample {
    /// What the node says, once it exists.
    pub node: Option<NodeSample>,
    /// Phases of the start with their length in seconds.
    pub start_phases: Vec<(&'static str, f64)>,
    /// Open connections by port.
    pub connections: Vec<(&'static str, u64)>,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections refused because of their limit.
    pub refused: u64,
    /// Whether the node is ready.
    pub ready: bool,
    /// Certificates in use.
    pub certificates: Vec<CertificateSample>,
    /// Listeners with TLS, and whether the files on disk are not the ones in use because they do not
    /// fit.
    pub tls_files_rejected: Vec<(&'static str, bool)>,
    /// How the disk does against its verdict; `None` where nobody asks.
    pub drift: Option<DriftSample>,
}

/// The log's syncs of the last hour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriftSample {
    /// Their 99th percentile in seconds, if there were any.
    pub p99_seconds: Option<f64>,
    /// What they are compared with, and whether they are too slow for it.
    pub against: [(&'static str, bool); 2],
}

/// Validity of one certificate, seconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct CertificateSample {
    /// `client` (and metrics) or `peer`.
    pub listener: &'static str,
    /// `server`, `client` or `ca`.
    pub cert: &'static str,
    /// Begin of its validity.
    pub issued: i64,
    /// End of its validity.
    pub expires: i64,
}

/// One sample of the node's state.
#[derive(Debug, Clone, Default)]
pub struct NodeSample {
    /// Member id.
    pub member_id: u64,
    /// Ids of all members, this one included.
    pub members: Vec<u64>,
    /// Members with a vote.
    pub voters: u64,
    /// Levels of commands, by kind.
    pub feature_levels: [(&'static str, u64); 3],
    /// Whether this member has no vote.
    pub is_learner: bool,
    /// Bytes counted against the quota.
    pub total_bytes: u64,
    /// Bytes of live rows.
    pub in_use_bytes: u64,
    /// Length of the store's file.
    pub store_file_bytes: u64,
    /// Rows that are committed and not durable in the store, bytes.
    pub store_pending_bytes: u64,
    /// Views of the store that somebody holds.
    pub store_views: u64,
    /// Quota in bytes; negative when switched off.
    pub quota_bytes: i64,
    /// Live keys.
    pub keys: u64,
    /// Current revision.
    pub revision: i64,
    /// Compact revision, -1 if never compacted.
    pub compact_revision: i64,
    /// Revision of users and roles.
    pub auth_revision: u64,
    /// Active alarms of this member.
    pub alarms: Vec<&'static str>,
    /// Cluster version as `major.minor`, once decided.
    pub cluster_version: Option<String>,
    /// Watches.
    pub watch: WatchSample,
    /// Leases.
    pub leases: u64,
}

/// Numbers of the watch hub.
#[derive(Debug, Clone, Copy, Default)]
pub struct WatchSample {
    /// Open streams.
    pub streams: u64,
    /// Watchers.
    pub watchers: u64,
    /// Watchers that read history or wait for their client.
    pub slow: u64,
    /// Watchers that wait for their client.
    pub blocked: u64,
    /// Events that wait to be sent.
    pub pending: u64,
    /// Events handed out since the start.
    pub events: u64,
    /// Watchers that could not keep up, since the start.
    pub fell_behind: u64,
    /// Watchers cancelled because of compaction, since the start.
    pub compacted: u64,
}

/// Results of one check of `/livez` or `/readyz`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Checked {
    /// The last result.
    pub(super) ok: bool,
    /// How often it was right.
    pub(super) passed: u64,
    /// How often not.
    pub(super) failed: u64,
}

/// Counters that only the registry keeps.
#[derive(Default)]
pub(super) struct Own {
    pub(super) healthy: AtomicU64,
    pub(super) unhealthy: AtomicU64,
    pub(super) checks: Mutex<BTreeMap<(&'static str, &'static str), Checked>>,
    pub(super) scrapes: AtomicU64,
    pub(super) failed_scrapes: AtomicU64,
    pub(super) scraping: AtomicU64,
}

/// The registry.
#[derive(Default)]
pub struct Metrics {
    sources: OnceLock<Sources>,
    state: OnceLock<Arc<dyn StateSource>>,
    own: Own,
}

impl Metrics {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Hands in what a scrape reads; once.
    pub fn set_sources(&self, sources: Sources) {
        let _ = self.sources.set(sources);
    }

    /// Hands in the state of process and node; once.
    pub fn set_state(&self, state: Arc<dyn StateSource>) {
        let _ = self.state.set(state);
    }

    /// Text format 0.0.4.
    pub fn text(&self) -> Vec<u8> {
        self.scrape(|exposition| Some(exposition.text())).unwrap_or_default()
    }

    /// Delimited protobuf with native histograms; `None` if it cannot be encoded.
    pub fn protobuf(&self) -> Option<Vec<u8>> {
        self.scrape(Exposition::protobuf)
    }

    /// `/health` was answered.
    pub fn health_answered(&self, healthy: bool) {
        let count = if healthy { &self.own.healthy } else { &self.own.unhealthy };
        count.fetch_add(1, Relaxed);
    }

    /// A check of `/livez` or `/readyz` was made.
    pub fn health_checked(&self, kind: &'static str, name: &'static str, ok: bool) {
        let mut checks = self.own.checks.lock();
        let check = checks.entry((kind, name)).or_default();
        check.ok = ok;
        *if ok { &mut check.passed } else { &mut check.failed } += 1;
    }

    fn scrape(&self, encode: impl FnOnce(&Exposition) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        self.own.scraping.fetch_add(1, Relaxed);
        let bytes = encode(&self.collect());
        self.own.scraping.fetch_sub(1, Relaxed);
        let count = if bytes.is_some() { &self.own.scrapes } else { &self.own.failed_scrapes };
        count.fetch_add(1, Relaxed);
        bytes
    }

    fn collect(&self) -> Exposition {
        let mut out = Exposition::default();
        collect::process(&mut out, &self.own);
        let state = self.state.get().map(|state| state.sample()).unwrap_or_default();
        if let Some(sources) = self.sources.get() {
            collect::sources(&mut out, sources, &state);
        }
        out
    }
}

#[cfg(test)]
mod tests;
