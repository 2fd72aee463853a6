//! Numbers of the traffic with each other member.

use super::histogram::LatencyHistogram;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers of one peer. They stay when the peer leaves, as counters do.
#[derive(Default)]
pub struct PeerNumbers {
    /// Bytes of messages sent to it.
    pub sent_bytes: AtomicU64,
    /// Bytes of messages received from it.
    pub received_bytes: AtomicU64,
    /// Messages that were dropped or lost with a connection.
    pub sent_failures: AtomicU64,
    /// Messages that were refused or dropped after they arrived.
    pub received_failures: AtomicU64,
    /// Level of replicated commands that it knows, as it said last; 0 before.
    pub feature_level: AtomicU64,
    /// 1 while messages can be sent to it.
    pub active: AtomicU64,
    /// Connections to it that were lost.
    pub disconnected: AtomicU64,
    /// Time from a ping to its answer.
    pub round_trip: LatencyHistogram,
    /// Time from sending it entries to its word that they are on its disk.
    pub append: LatencyHistogram,
    /// Snapshots sent to it.
    pub snapshots_sent: AtomicU64,
    /// Snapshots that did not reach it.
    pub snapshots_failed: AtomicU64,
    /// Snapshots on their way to it.
    pub snapshots_in_flight: AtomicU64,
    /// Length of successful transfers to it.
    pub snapshot_send: LatencyHistogram,
    /// Snapshots received from it.
    pub snapshots_received: AtomicU64,
    /// Snapshots from it that were broken off or refused.
    pub snapshots_refused: AtomicU64,
    /// Snapshots on their way from it.
    pub snapshots_arriving: AtomicU64,
    /// Length of successful transfers from it.
    pub snapshot_receive: LatencyHistogram,
}

impl PeerNumbers {
    /// Adds to one of the counters.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }
}

/// Numbers of all peers, by member id. The set is bounded by the members a cluster ever had.
#[derive(Default)]
pub struct PeerStats(RwLock<BTreeMap<u64, Arc<PeerNumbers>>>);

impl PeerStats {
    /// Numbers of one member.
    pub fn of(&self, id: u64) -> Arc<PeerNumbers> {
        if let Some(numbers) = self.0.read().get(&id) {
            return numbers.clone();
        }
        self.0.write().entry(id).or_default().clone()
    }

    /// Numbers of everybody so far.
    pub fn all(&self) -> Vec<(u64, Arc<PeerNumbers>)> {
        self.0.read().iter().map(|(id, numbers)| (*id, numbers.clone())).collect()
    }
}
