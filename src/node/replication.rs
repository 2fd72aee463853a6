//! What a leader sees of its followers' disks: how long entries take to get there, and how many were
//! committed before its own disk had them.
//!
//! A leader sends entries before its own sync, so that followers and the own disk work at the same
//! time. Without these two numbers nobody could tell whether they do.

use super::handle::Inner;
use crate::consensus::{NodeId, Wire, WireKind};
use crate::telemetry::node_metrics::NodeMetrics;
use crate::telemetry::peer_stats::{PeerNumbers, PeerStats};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Messages to one follower that are timed at once; those beyond are not. The library keeps fewer
/// under way, but messages to a follower that is gone are never acknowledged.
const TIMED_MAX: usize = 1024;

/// Messages under way to one follower: last index and when they were sent, ns, both rising.
struct Follower {
    sent: VecDeque<(u64, u64)>,
    numbers: Arc<PeerNumbers>,
}

/// Lives on the node thread.
pub(super) struct Replication {
    metrics: Arc<NodeMetrics>,
    stats: Arc<PeerStats>,
    followers: BTreeMap<NodeId, Follower>,
    /// Commit index after the last turn.
    committed: u64,
}

impl Replication {
    pub(super) fn new(node: &Inner) -> Self {
        Self::with(node.metrics.clone(), node.peers.stats().clone())
    }

    fn with(metrics: Arc<NodeMetrics>, stats: Arc<PeerStats>) -> Self {
        Replication { metrics, stats, followers: BTreeMap::new(), committed: 0 }
    }

    /// Messages are on their way to the connections.
    pub(super) fn sent(&mut self, wires: &[Wire], now_ns: u64) {
        for wire in wires.iter().filter(|wire| wire.kind() == WireKind::Append) {
            let Some(last) = wire.covers() else { continue };
            let follower = self.followers.entry(wire.to()).or_insert_with(|| Follower {
                sent: VecDeque::new(),
                numbers: self.stats.of(wire.to()),
            });
            // Sent again: what was sent before got lost, or a new leader's log replaces it.
            while follower.sent.back().is_some_and(|(index, _)| *index >= last) {
                follower.sent.pop_back();
            }
            if follower.sent.len() < TIMED_MAX {
                follower.sent.push_back((last, now_ns));
            }
        }
    }

    /// Messages of other members have arrived.
    pub(super) fn heard(&mut self, wires: &[Wire], now_ns: u64) {
        for wire in wires.iter().filter(|wire| wire.kind() == WireKind::AppendResponse) {
            let Some(index) = wire.covers() else { continue };
            let Some(follower) = self.followers.get_mut(&wire.from()) else { continue };
            while let Some((_, sent_ns)) = follower.sent.pop_front_if(|(last, _)| *last <= index) {
                follower.numbers.append.record_ns(now_ns.saturating_sub(sent_ns));
            }
        }
    }

    /// A turn is over: the log is committed up to the first of these positions, and on the own disk up
    /// to the second.
    pub(super) fn turn(&mut self, leads: bool, (committed, persisted): (u64, u64)) {
        let gained = committed.saturating_sub(self.committed);
        if leads && gained > 0 {
            let early = committed.saturating_sub(persisted.max(self.committed));
            self.metrics.committed_early.fetch_add(early, Relaxed);
            self.metrics.committed_late.fetch_add(gained - early, Relaxed);
        } else if !leads && !self.followers.is_empty() {
            self.followers.clear();
        }
        self.committed = committed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    const APPEND: i32 = 3;
    const RESPONSE: i32 = 4;

    /// A message as the wire has it; numbers as in `consensus::wire`.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Raw {
        #[prost(int32, tag = "1")]
        kind: i32,
        #[prost(uint64, tag = "2")]
        to: u64,
        #[prost(uint64, tag = "3")]
        from: u64,
        #[prost(uint64, tag = "4")]
        term: u64,
        #[prost(uint64, tag = "6")]
        index: u64,
        #[prost(message, repeated, tag = "7")]
        entries: Vec<RawEntry>,
        #[prost(bool, tag = "10")]
        reject: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct RawEntry {
        #[prost(uint64, tag = "2")]
        term: u64,
        #[prost(uint64, tag = "3")]
        index: u64,
    }

    fn wire(raw: &Raw) -> Wire {
        Wire::decode(raw.encode_to_vec().into()).expect("a message")
    }

    fn append(to: u64, before: u64, entries: u64) -> Wire {
        let entries = (1..=entries).map(|at| RawEntry { term: 1, index: before + at }).collect();
        let raw = Raw { kind: APPEND, to, from: 1, term: 1, index: before, entries, reject: false };
        wire(&raw)
    }

    fn response(from: u64, index: u64, reject: bool) -> Wire {
        wire(&Raw { kind: RESPONSE, to: 1, from, term: 1, index, entries: Vec::new(), reject })
    }

    fn replication() -> Replication {
        Replication::with(Arc::default(), Arc::default())
    }

    /// Count and sum in ns of the times of one follower.
    fn times(replication: &Replication, follower: u64) -> (u64, u64) {
        let times = replication.stats.of(follower).append.snapshot();
        (times.count, times.sum_ns)
    }

    #[test]
    fn a_message_is_timed_until_all_its_entries_are_acknowledged() {
        let mut replication = replication();
        replication
            .sent(&[append(2, 0, 3), append(3, 0, 3), append(2, 3, 2), append(2, 5, 0)], 100);
        replication.heard(&[response(2, 2, false), response(2, 5, true)], 200);
        assert_eq!(times(&replication, 2), (0, 0), "not all of them, and a refusal");
        replication.heard(&[response(2, 3, false)], 300);
        assert_eq!(times(&replication, 2), (1, 200));
        replication.heard(&[response(2, 5, false), response(3, 3, false)], 400);
        assert_eq!((times(&replication, 2), times(&replication, 3)), ((2, 500), (1, 300)));
        replication.heard(&[response(2, 5, false)], 500);
        assert_eq!(times(&replication, 2), (2, 500), "nothing is timed twice");
    }

    #[test]
    fn what_is_sent_again_is_timed_from_then_and_an_old_term_not_at_all() {
        let mut replication = replication();
        replication.sent(&[append(2, 0, 2), append(2, 2, 2)], 100);
        replication.sent(&[append(2, 0, 4)], 1_000);
        replication.heard(&[response(2, 4, false)], 1_100);
        assert_eq!(times(&replication, 2), (2, 1_100), "the second message went again");
        replication.sent(&[append(2, 4, 1)], 2_000);
        replication.turn(false, (4, 4));
        replication.heard(&[response(2, 5, false)], 2_100);
        assert_eq!(times(&replication, 2).0, 2);
        for index in 0..2 * TIMED_MAX as u64 {
            replication.sent(&[append(2, index, 1)], 3_000);
        }
        assert_eq!(replication.followers[&2].sent.len(), TIMED_MAX);
    }

    #[test]
    fn entries_are_counted_by_what_the_own_disk_has() {
        let mut replication = replication();
        let counts = |replication: &Replication| {
            let metrics = &replication.metrics;
            (metrics.committed_early.load(Relaxed), metrics.committed_late.load(Relaxed))
        };
        replication.turn(false, (10, 10));
        assert_eq!(counts(&replication), (0, 0), "a follower counts nothing");
        replication.turn(true, (14, 12));
        assert_eq!(counts(&replication), (2, 2));
        replication.turn(true, (14, 14));
        assert_eq!(counts(&replication), (2, 2), "counted once, when they were committed");
        replication.turn(true, (20, 12));
        assert_eq!(counts(&replication), (8, 2));
        replication.turn(true, (21, 30));
        assert_eq!(counts(&replication), (8, 3));
    }
}
