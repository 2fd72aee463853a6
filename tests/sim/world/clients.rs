//! What clients do and see, and whether everything has settled at the end.

use assay::consensus::{Input, Refusal, Token};
use assay::lease::Renewal;
use assay::machine::ReadError;
use assay::mvcc::{KeyRange, RangeQuery};
use assay::proto::etcdserverpb::InternalRaftRequest;
use bytes::Bytes;

use super::super::node::{Done, End, Node};
use super::super::oracle::Violation;
use super::super::workload;
use super::{Event, MS, Next, World};

impl World {
    pub(super) fn serving(&self, node: &Node) -> bool {
        node.ready && self.quiet_at.is_none_or(|quiet| self.now < quiet)
    }

    pub(super) fn propose(&mut self, node: &mut Node, request: InternalRaftRequest) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        if request.lease_revoke.is_some() {
            self.asked_revokes.insert(id);
        }
        let token = Token(id);
        node.inputs.push(Input::Propose { token, data: workload::encode(request, id) });
        self.wake("node", 200, Event::Node);
        id
    }

    pub(super) fn client(&mut self, node: &mut Node, at: usize) {
        if !self.serving(node) {
            self.push(5 * MS, Event::Client(at));
            return;
        }
        let request = workload::draw(&mut self.rng, &self.oracle.model, self.next_id);
        let id = self.propose(node, request);
        self.clients[at].waiting = Some(id);
    }

    pub(super) fn answered(&mut self, done: &Done) {
        self.expiring.remove(&done.request);
        let waiting = self.clients.iter().position(|client| client.waiting == Some(done.request));
        if let Some(at) = waiting {
            self.trace("answered", done.index);
            self.oracle.acknowledged(done.index);
            self.again(at);
        }
    }

    pub(super) fn again(&mut self, at: usize) {
        self.clients[at].waiting = None;
        let think = self.one_of(4, 30 * MS, 2 * MS);
        self.push(think, Event::Client(at));
    }

    pub(super) fn refused(&mut self, node: &mut Node, token: Token, _why: Refusal) {
        self.reads.remove(&token.0);
        if let Some(lease) = self.expiring.remove(&token.0) {
            node.clock.returned(lease, self.now_ms() + 1_000);
        }
        if let Some(at) = self.clients.iter().position(|c| c.waiting == Some(token.0)) {
            self.again(at);
        }
    }

    /// A linearizable read, and a local one beside it.
    pub(super) fn reader(&mut self, node: &mut Node) -> Result<(), End> {
        let delay = MS + self.rng.below(15 * MS);
        self.push(delay, Event::Reader);
        if !self.serving(node) {
            return Ok(());
        }
        self.next_id += 1;
        self.reads.insert(self.next_id, self.oracle.acked_revision);
        node.inputs.push(Input::Read { token: Token(self.next_id) });
        self.wake("node", 200, Event::Node);
        self.read(node, 0)?;
        self.read_past(node)
    }

    /// A read of history: all of it down to the compaction is there, nothing below.
    fn read_past(&mut self, node: &Node) -> Result<(), End> {
        let (newest, compact) = (node.reader.revision(), node.reader.compact_revision());
        let revision = 1 + self.rng.below(newest as u64) as i64;
        let range = KeyRange::from_request(Bytes::from_static(b"k"), Bytes::from_static(b"l"));
        match node.reader.range(&RangeQuery { revision, ..RangeQuery::new(range) }) {
            Err(ReadError::Compacted) if revision < compact => Ok(()),
            Ok(result) if revision >= compact => {
                let rows: Vec<Vec<u8>> = result.kvs.iter().map(|row| row.to_vec()).collect();
                Ok(self.oracle.read_past(revision, &rows)?)
            }
            other => {
                let text = format!("read at {revision}, compacted at {compact}: {other:?}");
                Err(Violation(text).into())
            }
        }
    }

    pub(super) fn read(&mut self, node: &Node, floor: i64) -> Result<(), End> {
        let range = KeyRange::from_request(Bytes::from_static(b"k"), Bytes::from_static(b"l"));
        let result = node
            .reader
            .range(&RangeQuery::new(range))
            .map_err(|error| Violation(format!("read: {error}")))?;
        let rows: Vec<Vec<u8>> = result.kvs.iter().map(|row| row.to_vec()).collect();
        self.oracle.read(floor.max(self.last_read), result.revision, &rows)?;
        self.last_read = result.revision;
        Ok(())
    }

    pub(super) fn serve_reads(&mut self, node: &mut Node) -> Result<(), End> {
        let applied = node.applied;
        let (now, later) =
            std::mem::take(&mut node.reads).into_iter().partition(|r| r.0 <= applied);
        node.reads = later;
        let now: Vec<(u64, Token)> = now;
        for (_, token) in now {
            if let Some(floor) = self.reads.remove(&token.0) {
                self.trace("read", token.0);
                self.read(node, floor)?;
            }
        }
        Ok(())
    }

    pub(super) fn renew(&mut self, node: &mut Node) {
        let delay = 50 * MS + self.rng.below(400 * MS);
        self.push(delay, Event::Renew);
        if !self.serving(node) {
            return;
        }
        let id = 1 + self.rng.below(workload::LEASES) as i64;
        match node.clock.renew(id, self.now_ms()) {
            Renewal::Renewed { ttl } => self.oracle.lease_held(id, ttl, self.now / MS),
            Renewal::ClearRemaining => {
                self.propose(node, workload::checkpoint(&[(id, 0)]));
            }
            _ => {}
        }
    }

    /// Expired leases become proposals to revoke them, remaining times become checkpoints.
    pub(super) fn expire(&mut self, node: &mut Node) -> Result<(), End> {
        let now = self.now_ms();
        for expired in node.clock.expired(now, 16) {
            self.oracle.lease_expires(expired.id, now)?;
            let id = self.propose(node, workload::revoke(expired.id));
            self.asked_revokes.remove(&id);
            self.expiring.insert(id, expired.id);
        }
        let checkpoints = node.clock.checkpoints(now);
        if !checkpoints.is_empty() {
            self.propose(node, workload::checkpoint(&checkpoints));
        }
        Ok(())
    }

    /// Looks whether the machine equals the model, and at the end whether all has settled.
    pub(super) fn look(&mut self, node: &mut Node) -> Result<Next, End> {
        if node.apply_queue.is_empty() {
            node.hash(&self.oracle)?;
        }
        if self.quiet_at.is_some_and(|quiet| self.now > quiet + 300 * MS)
            && self.settled(node).is_none()
        {
            self.streams.finished(&self.oracle.model)?;
            node.hash(&self.oracle)?;
            return Ok(Next::Settled);
        }
        Ok(Next::Live)
    }

    pub(super) fn unsettled(&self) -> Option<String> {
        self.node.as_ref().and_then(|node| self.settled(node))
    }

    /// What still has to happen, if anything.
    pub(super) fn settled(&self, node: &Node) -> Option<String> {
        if !node.ready {
            return Some("it does not lead".to_owned());
        }
        if !node.idle() || !node.inputs.is_empty() {
            return Some("a queue is not empty".to_owned());
        }
        if node.applied < self.oracle.handed() {
            return Some(format!("applied {} of {}", node.applied, self.oracle.handed()));
        }
        if !self.oracle.model.leases.is_empty() {
            return Some(format!("leases {:?}", self.oracle.model.leases));
        }
        if !self.streams.is_empty() || self.streams.lags(node) {
            return Some("a stream is not drained".to_owned());
        }
        if !self.reads.is_empty() {
            return Some("a read is not answered".to_owned());
        }
        None
    }
}
