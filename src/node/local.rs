//! The node as its peers see it.

use super::handle::{Handle, Inner};
use super::input::NodeInput;
use super::lane::Taker;
use super::snapshot_in::{Begin, SnapshotIn};
use crate::consensus::{DiskFacts, NodeId, Wire};
use crate::machine::{Member, Members};
use crate::peer::{Address, Answering, Arriving, Local};
use crate::proto::peer as pb;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::{mpsc, oneshot, watch};

/// Messages of peers that may wait for the node thread (`architecture.md` 4). Raft tolerates loss.
const WIRES_MAX: usize = 4096;

/// Parts of a snapshot between the network and the disk.
const PARTS_AHEAD: usize = 2;

/// See the module text.
pub(super) struct NodeLocal(pub(super) Arc<Inner>);

impl Local for NodeLocal {
    fn wires(&self, from: NodeId, disk: Option<DiskFacts>, mut wires: Vec<Wire>) -> usize {
        let arrived = wires.len();
        let waiting = self.0.wires.fetch_add(arrived, Relaxed);
        let fits = WIRES_MAX.saturating_sub(waiting).min(arrived);
        wires.truncate(fits);
        self.0.wires.fetch_sub(arrived - fits, Relaxed);
        // A node that has no room for messages has none for this either.
        if !wires.is_empty() || arrived == 0 {
            let disk = disk.map(|facts| (from, facts));
            // A few messages are handled on this thread: waking another one takes longer.
            self.0.node.push_quietly(NodeInput::Wires { wires, disk });
            self.0.node.offer(Taker::Edge);
        }
        arrived - fits
    }

    fn unreachable(&self, id: NodeId) {
        self.0.node.push(NodeInput::Unreachable(id));
    }

    fn members(&self) -> Vec<pb::Member> {
        self.0.reader.members().iter().map(message).collect()
    }

    fn feature_level(&self) -> u32 {
        self.0.reader.feature_level()
    }

    fn removed(&self) -> Vec<NodeId> {
        self.0.reader.members().removed().collect()
    }

    fn is_removed(&self, id: NodeId) -> bool {
        self.0.reader.members().is_removed(id)
    }

    fn stage(
        &self,
        from: NodeId,
        message: Wire,
        head: pb::SnapshotHead,
    ) -> Result<Arriving, String> {
        let (parts, receiver) = mpsc::channel(PARTS_AHEAD);
        let (done_sender, done) = oneshot::channel();
        let begin = Begin { from, message, head, parts: receiver, done: done_sender };
        let queued = self.0.snapshots_in.try_send(SnapshotIn::Begin(Box::new(begin)));
        queued.map_err(|_| "another snapshot is arriving at this member".to_owned())?;
        Ok(Arriving { parts, done })
    }

    fn term(&self) -> u64 {
        self.0.metrics.term.load(Relaxed)
    }

    fn we_are_removed(&self) {
        self.0.end(super::handle::End::Removed);
    }

    fn call(&self, what: pb::call_request::What) -> Answering {
        let handle = Handle(self.0.clone());
        Box::pin(async move { super::remote::answer(&handle, what).await })
    }

    fn stopping(&self) -> watch::Receiver<bool> {
        self.0.stopping.subscribe()
    }
}

/// A member as peers tell it to each other.
pub(super) fn message(member: &Member) -> pb::Member {
    pb::Member {
        id: member.id,
        name: member.name.clone(),
        peer_urls: member.peer_urls.clone(),
        client_urls: member.client_urls.clone(),
        is_learner: member.is_learner,
    }
}

/// Where the members can be reached.
pub(super) fn addresses(members: &Members) -> Vec<Address> {
    let address = |member: &Member| Address { id: member.id, urls: member.peer_urls.clone() };
    members.iter().map(address).collect()
}
