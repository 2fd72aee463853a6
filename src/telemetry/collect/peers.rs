//! Traffic with the other members.

use crate::telemetry::exposition::Exposition;
use crate::telemetry::families::{assay, etcd};
use crate::telemetry::peer_stats::PeerStats;
use std::sync::atomic::Ordering::Relaxed;

pub(super) fn collect(out: &mut Exposition, member_id: u64, peers: &PeerStats) {
    let local = format!("{member_id:x}");
    for (id, numbers) in peers.all() {
        let remote = format!("{id:x}");
        let both = [local.as_str(), remote.as_str()];
        let one = [remote.as_str()];
        for (family, value) in [
            (&etcd::ACTIVE_PEERS, &numbers.active),
            (&etcd::DISCONNECTED_PEERS, &numbers.disconnected),
        ] {
            out.family(family).value(&both, value.load(Relaxed) as f64);
        }
        for (family, value) in [
            (&etcd::PEER_SENT, &numbers.sent_bytes),
            (&etcd::PEER_RECEIVED, &numbers.received_bytes),
            (&etcd::PEER_SENT_FAILURES, &numbers.sent_failures),
            (&etcd::PEER_RECEIVED_FAILURES, &numbers.received_failures),
            (&etcd::SNAPSHOT_SENT, &numbers.snapshots_sent),
            (&etcd::SNAPSHOT_SEND_FAILURES, &numbers.snapshots_failed),
            (&etcd::SNAPSHOT_SENDING, &numbers.snapshots_in_flight),
            (&etcd::SNAPSHOT_RECEIVED, &numbers.snapshots_received),
            (&etcd::SNAPSHOT_RECEIVE_FAILURES, &numbers.snapshots_refused),
            (&etcd::SNAPSHOT_RECEIVING, &numbers.snapshots_arriving),
        ] {
            out.family(family).value(&one, value.load(Relaxed) as f64);
        }
        for (family, times) in [
            (&etcd::PEER_ROUND_TRIP, &numbers.round_trip),
            (&assay::PEER_APPEND, &numbers.append),
            (&etcd::SNAPSHOT_SEND, &numbers.snapshot_send),
            (&etcd::SNAPSHOT_RECEIVE, &numbers.snapshot_receive),
        ] {
            out.family(family).histogram(&one, &times.snapshot());
        }
    }
}
