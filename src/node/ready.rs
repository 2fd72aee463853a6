//! The end of a start and the way of a stop.

use super::handle::{Handle, Phase, Refused};
use super::input::{ApplyInput, HashInput, NodeInput, StoreInput, WalInput};
use super::snapshot_in::SnapshotIn;
use super::snapshot_out::SnapshotOut;
use super::start::Node;
use super::threads::{LOG_THREAD, STORE_THREAD};
use super::upgrade::UpgradeError;
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
    // A cluster that has a version was founded before, perhaps by the program before this one.
    let founds = !config.bootstrap.existing && handle.reader().cluster_version().is_none();
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
            // The others may not be there yet, or so much has to be caught up with that writes are
            // refused; a member waits as long as it takes.
            Err(Refused::NoLeader | Refused::Dropped | Refused::TooManyRequests) => {
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
    if founds {
        // Alone there is nobody to wait for.
        let alone = handle.reader().members().iter().count() == 1;
        let begins = begin_at_own_level(handle.clone());
        if alone { begins.await } else { drop(tokio::spawn(begins)) }
    }
    handle.0.phase.store(Phase::Ready as u8, Ordering::Relaxed);
    Ok(())
}

/// A new cluster has nothing that an older version would have to read, so it begins at the level of
/// its founders. If they do not come together in time, somebody finalizes it later.
async fn begin_at_own_level(handle: Handle) {
    let start = tokio::time::Instant::now();
    while start.elapsed() < FOUNDING && handle.phase() != Phase::Stopping {
        match handle.finalize_upgrade().await {
            Ok(_) | Err(UpgradeError::Nothing { .. }) => return,
            Err(UpgradeError::NotLeader { leader, .. })
                if leader != 0
                    && handle.feature_levels().cluster == handle.feature_levels().own =>
            {
                return;
            }
            Err(_) => tokio::time::sleep(FOUNDING_POLL).await,
        }
    }
}

/// Time in which founders of a cluster are expected to be connected to each other.
const FOUNDING: std::time::Duration = std::time::Duration::from_secs(60);
/// Pause between two looks at them.
const FOUNDING_POLL: std::time::Duration = std::time::Duration::from_millis(200);

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
        self.threads.join(LOG_THREAD);
        self.apply.push(ApplyInput::Stop);
        self.threads.join("apply");
        self.hash.push(HashInput::Stop);
        self.threads.join("hash");
        self.store.push(StoreInput::Stop);
        self.threads.join(STORE_THREAD);
        self.handle.0.watch.stop();
        self.threads.join("watch");
        drop(self.dir);
    }
}
