//! What the node's threads record: plain atomics and histograms, read by a scrape.
//!
//! Nothing here allocates or locks on the way of a request; names and texts of the exposition are
//! in `metrics`.

use super::divergence::Divergence;
use super::doubling::Doubling;
use super::histogram::LatencyHistogram;
use super::pending::PendingAges;
use super::stage::{LeaderCause, Outcome, Stage, StepDown};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Numbers of one node. Built once in `main` and handed down; two nodes of one process share none.
#[derive(Default)]
pub struct NodeMetrics {
    /// Time of each stage of a proposal.
    pub stages: [LatencyHistogram; Stage::ALL.len()],
    /// Proposals by outcome.
    pub outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Proposals waiting for their result.
    pub pending: AtomicI64,
    /// When those proposals began to wait.
    pub pending_ages: PendingAges,
    /// Commit index.
    pub committed: AtomicU64,
    /// Applied index.
    pub applied: AtomicU64,
    /// Index up to which the log is on disk.
    pub persisted: AtomicU64,
    /// Index up to which the store is on disk.
    pub durable: AtomicU64,
    /// Raft term.
    pub term: AtomicU64,
    /// Member that leads, 0 if none.
    pub leader: AtomicU64,
    /// When this member learned of that leader, or of the last one it had, in ns of the process
    /// clock plus 1; 0 before the first.
    pub leader_learned: AtomicU64,
    /// 1 while this member leads.
    pub leads: AtomicU64,
    /// Changes of leader seen by this member.
    pub leader_changes_seen: AtomicU64,
    /// Leaderships that this member won, by cause.
    pub leader_changes: [AtomicU64; LeaderCause::ALL.len()],
    /// Leaders with a hung disk, by what became of it.
    pub disk_step_downs: [AtomicU64; StepDown::ALL.len()],
    /// 1 while the disk of this member hung lately and has not made enough good syncs since.
    pub disk_recovering: AtomicU64,
    /// Stretches of time without a leader.
    pub leaderless: LatencyHistogram,
    /// Start of the present time without a leader in ns of the process clock plus 1; 0 = has one.
    pub leaderless_since: AtomicU64,
    /// Stretches of time that this member led.
    pub led: LatencyHistogram,
    /// Start of the present leadership in ns of the process clock plus 1; 0 = does not lead.
    pub led_since: AtomicU64,
    /// Durable store commits.
    pub store_commits: LatencyHistogram,
    /// Entries per WAL group: number of groups and sum of entries.
    pub wal_groups: AtomicU64,
    /// Entries written in all groups.
    pub wal_group_entries: AtomicU64,
    /// Entries that were committed while this member led and its own disk did not have them.
    pub committed_early: AtomicU64,
    /// Entries that were committed while this member led and its own disk had them.
    pub committed_late: AtomicU64,
    /// Time of applying one command, by command and success.
    pub applies: Applies,
    /// Puts applied, also those in transactions.
    pub puts: AtomicU64,
    /// Bytes of the rows put.
    pub put_bytes: AtomicU64,
    /// Delete operations applied, also those in transactions.
    pub deletes: AtomicU64,
    /// Ranges read by applied transactions.
    pub ranges: AtomicU64,
    /// Transactions applied that have more than one operation.
    pub txns: AtomicU64,
    /// Linearizable reads that found no leader or lost it.
    pub reads_failed: AtomicU64,
    /// Linearizable reads that took longer than a retry interval.
    pub reads_slow: AtomicU64,
    /// Requests whose apply or local read took longer than `--warning-apply-duration`.
    pub slow_applies: AtomicU64,
    /// Ticks that came more than one heartbeat late.
    pub late_ticks: AtomicU64,
    /// Leases ended by expiry.
    pub leases_expired: AtomicU64,
    /// Keep-alives answered.
    pub leases_renewed: AtomicU64,
    /// Leases granted.
    pub leases_granted: AtomicU64,
    /// Leases revoked.
    pub leases_revoked: AtomicU64,
    /// 1 while client writes are refused because the file system is nearly full.
    pub space_refused: AtomicU64,
    /// Requests refused for it.
    pub space_refusals: AtomicU64,
    /// Ranges read outside of transactions: failed ones, and those that succeeded.
    pub ranges_read: [LatencyHistogram; 2],
    /// Times to live of granted leases.
    pub lease_ttls: Doubling<1_000, 24>,
    /// Compactions.
    pub compactions: Compactions,
    /// Comparison of members.
    pub divergence: Divergence,
    /// Free bytes of the data directory's file system.
    pub free_bytes: AtomicU64,
    /// Free inodes of the data directory's file system.
    pub free_inodes: AtomicU64,
}

impl NodeMetrics {
    /// Records the length of a stage.
    pub fn stage(&self, stage: Stage, ns: u64) {
        self.stages[stage as usize].record_ns(ns);
    }

    /// Counts an outcome.
    pub fn outcome(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Counts a leadership won.
    pub fn leader_change(&self, cause: LeaderCause) {
        self.leader_changes[cause as usize].fetch_add(1, Relaxed);
    }
}

/// What compactions took and did.
#[derive(Default)]
pub struct Compactions {
    /// Each step, ms.
    pub step: Doubling<1_000, 13>,
    /// All steps of a compaction together, ms.
    pub work: Doubling<500, 14>,
    /// From the start of a compaction to its end, ms.
    pub total: Doubling<100_000, 14>,
    /// Seconds since 1970 at the end of the last one, 0 if there was none.
    pub last: AtomicU64,
    /// Rows dropped.
    pub rows: AtomicU64,
}

/// Histograms of apply times by command and success; the commands are a fixed set of names.
#[derive(Default)]
pub struct Applies(RwLock<BTreeMap<(&'static str, bool), Arc<LatencyHistogram>>>);

impl Applies {
    /// Records one apply.
    pub fn record(&self, op: &'static str, ok: bool, ns: u64) {
        if let Some(histogram) = self.0.read().get(&(op, ok)) {
            histogram.record_ns(ns);
            return;
        }
        self.0.write().entry((op, ok)).or_default().record_ns(ns);
    }

    /// All histograms so far.
    pub fn all(&self) -> Vec<(&'static str, bool, Arc<LatencyHistogram>)> {
        self.0.read().iter().map(|((op, ok), histogram)| (*op, *ok, histogram.clone())).collect()
    }
}
