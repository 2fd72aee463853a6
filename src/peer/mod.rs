//! Members talking to members: one outgoing stream to each, one service on the peer port.
//!
//! ```text
//! node ──► Peers::send ──► queue (8 MiB) ──► stream to the peer's port
//! peer's stream ──► Service ──► Local::wires ──► node (bounded, drops and counts)
//! ```
//!
//! Messages of consensus may be late or lost; what is full or broken here drops them, says so to the
//! core and goes on with the other peers. Requests that only the leader can carry out are unary
//! calls on the same connection.
//!
//! No message arrives twice, and none may: a forwarded proposal has no identity below the state
//! machine, which would apply it twice. It leaves the queue for exactly one stream, a stream is one
//! connection, and what a broken connection has not delivered is dropped, never sent again on the
//! next one (`Queue::close`, `Link::connection`). Neither the raft library nor the node repeats one:
//! a follower that gets a proposal passes it on instead of keeping it, and commands that wait for a
//! leader (`node::parked`) are those that were refused before they left. A call that may have been
//! carried out ([`CallError::Lost`]) is not repeated either.

mod call;
mod dial;
mod disk;
mod identity;
mod join;
mod link;
mod queue;
mod server;
mod snapshot;
#[cfg(test)]
mod tests;

pub use call::CallError;
pub use dial::{DialError, Dialer};
pub use identity::{FORMAT, Identity};
pub use join::{Found, ask};
pub use server::Service;
pub use snapshot::Transfer;

use crate::consensus::{DiskFacts, NodeId, Wire};
use crate::proto::peer as pb;
use crate::telemetry::disk_health::DiskHealth;
use crate::telemetry::peer_stats::PeerStats;
use link::{Link, OwnUrls};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

/// Answer to a forwarded request.
pub type Answering = Pin<Box<dyn Future<Output = pb::CallResponse> + Send>>;

/// What the peers need of the node they belong to.
pub trait Local: Send + Sync + 'static {
    /// Takes in messages of a member, and what it says about its disk; there may be no messages.
    /// Returns how many were dropped for lack of room.
    fn wires(&self, from: NodeId, disk: Option<DiskFacts>, wires: Vec<Wire>) -> usize;
    /// Messages to this member were lost.
    fn unreachable(&self, id: NodeId);
    /// All members as applied here, for those who join.
    fn members(&self) -> Vec<pb::Member>;
    /// Level of the commands that the cluster uses, as applied here.
    fn feature_level(&self) -> u32;
    /// Members that must never come back.
    fn removed(&self) -> Vec<NodeId>;
    /// Whether this one of them is among those.
    fn is_removed(&self, id: NodeId) -> bool;
    /// Takes in a snapshot from this member; `message` announces it.
    ///
    /// # Errors
    /// Why it is not wanted now.
    fn stage(
        &self,
        from: NodeId,
        message: Wire,
        head: pb::SnapshotHead,
    ) -> Result<Arriving, String>;
    /// Newest raft term of this member.
    fn term(&self) -> u64;
    /// Others say that this member was removed from the cluster.
    fn we_are_removed(&self);
    /// Carries out a request that another member passed on.
    fn call(&self, what: pb::call_request::What) -> Answering;
    /// Turns true when the node stops.
    fn stopping(&self) -> watch::Receiver<bool>;
}

/// Where the parts of an arriving snapshot go.
pub struct Arriving {
    /// The parts behind the head, in order; closed early if the transfer broke.
    pub parts: mpsc::Sender<pb::snapshot_part::Part>,
    /// Whether the whole snapshot is checked and durable.
    pub done: oneshot::Receiver<Result<(), String>>,
}

/// Another member and where to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its id.
    pub id: NodeId,
    /// Its peer URLs, tried in turn.
    pub urls: Vec<String>,
}

/// The other members. Cheap to clone.
#[derive(Clone)]
pub struct Peers(Arc<Inner>);

struct Inner {
    own: Identity,
    own_urls: OwnUrls,
    /// Where the links' tasks run: all on the one that serves the connections of other members, so
    /// that a message that answers another one wakes no further thread.
    runtime: Option<Handle>,
    stats: Arc<PeerStats>,
    dialer: Dialer,
    disk: Arc<DiskHealth>,
    links: RwLock<BTreeMap<NodeId, Known>>,
}

/// A link, and whether its peer is a member by what was applied here. One that only said so itself
/// may be a member that was added a moment ago, even the leader.
struct Known {
    link: Arc<Link>,
    applied: bool,
}

impl Peers {
    /// No links yet; see [`Peers::set`]. Without a `runtime` there never will be any. `urls` is where
    /// this member can be reached; others are told how its disk is.
    pub fn new(
        own: Identity,
        urls: Vec<String>,
        runtime: Option<Handle>,
        stats: Arc<PeerStats>,
        dialer: Dialer,
        disk: Arc<DiskHealth>,
    ) -> Peers {
        Peers(Arc::new(Inner {
            own,
            own_urls: Arc::new(RwLock::new(urls)),
            runtime,
            stats,
            dialer,
            disk,
            links: RwLock::default(),
        }))
    }

    /// Whom this node is.
    pub fn own(&self) -> Identity {
        self.0.own
    }

    /// Numbers by peer.
    pub fn stats(&self) -> &Arc<PeerStats> {
        &self.0.stats
    }

    /// What was applied here: begins links to new members, ends those to `removed` ones and moves
    /// those whose address changed.
    pub fn set(
        &self,
        members: &[Address],
        is_removed: impl Fn(NodeId) -> bool,
        local: &Arc<dyn Local>,
    ) {
        let inner = &*self.0;
        if let Some(own) = members.iter().find(|m| m.id == inner.own.member_id) {
            inner.own_urls.write().clone_from(&own.urls);
        }
        let mut links = inner.links.write();
        links.retain(|id, known| {
            let member = members.iter().find(|m| m.id == *id);
            let stays = match member {
                Some(member) => member.urls == known.link.urls(),
                None => !known.applied && !is_removed(*id),
            };
            known.applied = member.is_some();
            if !stays {
                known.link.end();
            }
            stays
        });
        for member in members {
            self.begin(&mut links, member, true, local);
        }
    }

    /// A member that is not known from the log yet: from a list that was asked for, or it said so.
    pub fn meet(&self, member: &Address, local: &Arc<dyn Local>) {
        if !self.0.links.read().contains_key(&member.id) {
            self.begin(&mut self.0.links.write(), member, false, local);
        }
    }

    fn begin(
        &self,
        links: &mut BTreeMap<NodeId, Known>,
        member: &Address,
        applied: bool,
        local: &Arc<dyn Local>,
    ) {
        let inner = &*self.0;
        let Some(runtime) = &inner.runtime else { return };
        let pointless = member.urls.is_empty() || member.id == inner.own.member_id;
        if pointless || links.contains_key(&member.id) {
            return;
        }
        let link = Link::start(
            runtime,
            inner.own,
            inner.own_urls.clone(),
            member.clone(),
            local.clone(),
            inner.stats.of(member.id),
            inner.dialer.clone(),
            inner.disk.clone(),
        );
        links.insert(member.id, Known { link, applied });
    }

    /// Hands messages to the links of their receivers. Never waits: what has no room or no
    /// connection is dropped and counted.
    pub fn send(&self, wires: Vec<Wire>) {
        let links = self.0.links.read();
        let mut wires = wires.into_iter().peekable();
        while let Some(to) = wires.peek().map(Wire::to) {
            let run: Vec<Wire> = std::iter::from_fn(|| wires.next_if(|w| w.to() == to)).collect();
            // A member that was added a moment ago has no link yet; raft sends again.
            if let Some(known) = links.get(&to) {
                known.link.send(run);
            }
        }
    }

    /// Since when a connection to this member has been up, in ns of the process clock; `None` if
    /// there is none now.
    pub fn connected_since(&self, id: NodeId) -> Option<u64> {
        self.0.links.read().get(&id)?.link.connected_since()
    }

    /// Level of commands that another member knows, as it said when the present connection came
    /// up; `None` without one.
    pub fn feature_level(&self, id: NodeId) -> Option<u32> {
        self.connected_since(id)?;
        u32::try_from(self.0.stats.of(id).feature_level.load(Relaxed)).ok()
    }

    /// Passes a request on to another member.
    ///
    /// # Errors
    /// [`CallError`] if it could not be delivered or its answer was lost.
    pub async fn call(
        &self,
        to: NodeId,
        what: pb::call_request::What,
    ) -> Result<pb::CallResponse, CallError> {
        let link = self.0.links.read().get(&to).map(|known| known.link.clone());
        link.ok_or(CallError::NotConnected)?.call(what).await
    }

    /// Begins to stream a snapshot to another member, with this head; `None` if there is no
    /// connection to it.
    pub fn transfer(&self, to: NodeId, head: pb::SnapshotHead) -> Option<Transfer> {
        let link = self.0.links.read().get(&to).map(|known| known.link.clone())?;
        let transfer = link.transfer()?;
        let head = pb::SnapshotHead { identity: Some(link.hello()), ..head };
        transfer.send(pb::snapshot_part::Part::Head(head)).ok()?;
        Some(transfer)
    }

    /// Ends all links.
    pub fn end(&self) {
        for known in std::mem::take(&mut *self.0.links.write()).into_values() {
            known.link.end();
        }
    }
}
