//! The end of a start and the way of a stop.

use super::handle::{Handle, Phase, Refused};
use super::input::{ApplyInput, HashInput, NodeInput, StoreInput, WalInput};
use super::snapshot_in::SnapshotIn;
use super::snapshot_out::SnapshotOut;
use super::start::Node;
use crate::config::{CLUSTER_VERSION, Config};
use crate::proto::etcdserverpb::InternalRaftRequest;
use crate::proto::membershippb::{
    Attributes, ClusterMemberAttrSetRequest, ClusterVersionSetRequest,
};
use std::sync::atomic::Ordering;

/// Publishes name and client addresses of this member through the log, and the cluster version if
/// none is set yet, as etcd does; afterwards the node is ready.
///
/// # Errors
/// The node is stopping, or the log refused it.
pub async fn publish(handle: &Handle, config: &Config) -> Result<(), Refused> {
    let attributes = Attributes {
        name: config.name.clone(),
        client_urls: config.listen.advertise_client.texts(),
    };
    // A command that comes before there is a leader would count as failed.
    while handle.raft().leader == 0 && handle.phase() == Phase::Starting {
        tokio::time::sleep(ELECTION_POLL).await;
    }
    let mut published = false;
    while !published {
        let request = InternalRaftRequest {
            cluster_member_attr_set: Some(ClusterMemberAttrSetRequest {
                member_id: handle.identity().member_id,
                member_attributes: Some(attributes.clone()),
            }),
            ..InternalRaftRequest::default()
        };
        match handle.propose(request).await {
            // The others may not be there yet; a member waits for them as long as it takes.
            Err(Refused::NoLeader | Refused::Dropped) => {
                tokio::time::sleep(ELECTION_POLL).await;
            }
            Err(why) if why.is_timeout() => {}
            other => {
                other?;
                published = true;
            }
        }
    }
    if handle.reader().cluster_version().is_none() {
        let request = InternalRaftRequest {
            cluster_version_set: Some(ClusterVersionSetRequest { ver: CLUSTER_VERSION.into() }),
            ..InternalRaftRequest::default()
        };
        // Another member may have done it meanwhile; without it, the next one to start will.
        if let Err(refused) = handle.propose(request).await {
            tracing::warn!(%refused, "the cluster version is not set yet");
        }
    }
    handle.0.phase.store(Phase::Ready as u8, Ordering::Relaxed);
    Ok(())
}

/// Pause between two tries of the first command.
const ELECTION_POLL: std::time::Duration = std::time::Duration::from_millis(5);

impl Node {
    /// Says that the node is stopping: new requests are refused, streams end.
    pub fn announce_stop(&self) {
        self.handle.0.phase.store(Phase::Stopping as u8, Ordering::Relaxed);
        // Nobody may be listening yet.
        let _ = self.handle.0.stopping.send(true);
    }

    /// Stops the threads in the order of the data path: what is in the log is applied, what is
    /// applied is made durable, and the log is closed with a clean marker.
    pub fn stop(mut self) {
        self.announce_stop();
        self.stop.store(true, Ordering::Relaxed);
        self.threads.join("space");
        self.threads.join("divergence");
        self.node.push(NodeInput::Stop);
        self.threads.join("node");
        self.handle.0.peers.end();
        self.snapshots.push(SnapshotOut::Stop);
        self.threads.join("snapshot-out");
        // What arrives ends with the peers' streams.
        drop(self.handle.0.snapshots_in.blocking_send(SnapshotIn::Stop));
        self.threads.join("snapshot-in");
        self.wal.push(WalInput::Stop);
        self.threads.join("wal");
        self.apply.push(ApplyInput::Stop);
        self.threads.join("apply");
        self.hash.push(HashInput::Stop);
        self.threads.join("hash");
        self.store.push(StoreInput::Stop);
        self.threads.join("store");
        self.handle.0.watch.stop();
        self.threads.join("watch");
        drop(self.dir);
    }
}
