//! What clients do and see: writers and readers, one that keeps leases alive, and watchers.

use assay::consensus::{Input, Refusal, Token};
use assay::machine::ReadError;
use assay::mvcc::{KeyRange, RangeQuery};
use assay::proto::etcdserverpb::InternalRaftRequest;
use bytes::Bytes;
use prost::Message as _;

use super::super::broken::Broken;
use super::super::frame::{Verdict, Violation};
use super::super::linear::{Action, Op, Seen};
use super::super::model::Kv;
use super::super::node::{Done, End, Node};
use super::super::workload;
use super::holders::{KeepAlive, Kept};
use super::{Event, MS, World};

/// One client: at most one request under way.
#[derive(Default)]
pub(super) struct Client {
    /// Place of the member it talks to.
    at: usize,
    /// Counts its requests.
    op: u64,
    under_way: Option<UnderWay>,
}

struct UnderWay {
    /// The request, or the token of a read.
    id: u64,
    life: u64,
    invoked: u64,
    /// Newest index that any client had been told when it began.
    floor: u64,
    register: Option<(usize, Action)>,
}

/// What waits for a read index.
pub(super) enum Reading {
    /// A client's read: revision that it must see at least.
    Client { client: usize, floor: i64 },
    /// A keep-alive that wants to be sure that its leader still is one.
    KeepAlive { asked: KeepAlive, kept: Option<Kept> },
}

impl World {
    fn patience(&mut self) -> u64 {
        let election = self.plan.election();
        election / 2 + self.client_rng.below(3 * election)
    }

    pub(super) fn serving(&self) -> bool {
        self.quiet.is_none()
    }

    /// A place to ask at. Some clients ask whoever leads, some ask anybody.
    fn choose(&mut self) -> usize {
        if self.client_rng.below(2) == 0
            && let Some(leader) = self.leader().filter(|at| !self.is_rotten(*at))
        {
            return leader;
        }
        let at = self.client_rng.below(self.members.len() as u64) as usize;
        // In the runs where one member's state is wrong nobody asks it: what it says is its fault.
        if self.is_rotten(at) { (at + 1) % self.members.len() } else { at }
    }

    pub(super) fn client(&mut self, client: usize) -> Verdict {
        if !self.serving() || self.clients[client].under_way.is_some() {
            return Ok(());
        }
        let at = self.clients[client].at;
        let bad = self.members[at].node.is_none() || self.members[at].retired;
        let bad = bad || self.is_rotten(self.clients[client].at);
        if bad || self.client_rng.below(20) == 0 {
            self.clients[client].at = self.choose();
        }
        let at = self.clients[client].at;
        if self.members[at].node.is_none() {
            self.push(20 * MS, Event::Client(client));
            return Ok(());
        }
        if let Some(data) = self.smuggled.take() {
            self.with_node(at, |_, node| {
                node.inputs.push(Input::Propose { token: Token(0), data });
                Ok(())
            })?;
        }
        let kind = self.client_rng.below(100);
        self.with_node(at, |world, node| match kind {
            0..45 => {
                let rng = &mut world.client_rng;
                let request = match world.plan.leases && rng.below(3) == 0 {
                    true => workload::grant(rng),
                    false => workload::draw(rng, &world.oracle.model, world.next_id),
                };
                world.ask(client, at, node, request, None);
                Ok(())
            }
            45..70 => world.ask_register(client, at, node),
            70..75 => world.read_locally(client, at, node),
            _ => world.read_linearizably(client, at, node, None),
        })
    }

    fn begin_op(&mut self, client: usize, at: usize, id: u64, register: Option<(usize, Action)>) {
        let (life, floor) = (self.members[at].life, self.oracle.acked);
        let entry = &mut self.clients[client];
        entry.op += 1;
        let op = entry.op;
        entry.under_way = Some(UnderWay { id, life, invoked: self.now, floor, register });
        self.waiting.insert(id, client);
        let patience = self.patience();
        self.push(patience, Event::Timeout(client, op));
    }

    pub(super) fn propose(
        &mut self,
        at: usize,
        node: &mut Node,
        request: InternalRaftRequest,
    ) -> u64 {
        self.propose_in(at, node, request, None)
    }

    /// Proposes something; with a term, only as the leader of that term.
    pub(super) fn propose_in(
        &mut self,
        at: usize,
        node: &mut Node,
        request: InternalRaftRequest,
        term: Option<u64>,
    ) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        let (token, data) = (Token(id), workload::encode(request, id));
        let unfenced = matches!(self.plan.broken, Broken::RevokeForwarded | Broken::LeaseUnfenced);
        node.inputs.push(match term.filter(|_| !unfenced) {
            Some(term) => Input::ProposeInTerm { token, data, term },
            None => Input::Propose { token, data },
        });
        self.wake_node(at, node);
        id
    }

    fn ask(
        &mut self,
        client: usize,
        at: usize,
        node: &mut Node,
        request: InternalRaftRequest,
        register: Option<(usize, Action)>,
    ) {
        let asked = request.lease_revoke.as_ref().map(|revoke| revoke.id);
        let id = self.propose(at, node, request);
        if let Some(lease) = asked {
            self.oracle.leases.asked.insert(id, lease);
        }
        self.begin_op(client, at, id, register);
    }

    fn ask_register(&mut self, client: usize, at: usize, node: &mut Node) -> Result<(), End> {
        let key = self.client_rng.below(workload::REGISTERS) as usize;
        let value = self.next_id + 1;
        let action = match self.client_rng.below(20) {
            0..7 => Action::Put(value),
            7 => Action::Delete,
            8..13 => {
                // What it may be: a value that somebody wrote lately.
                let history = &self.histories[key];
                let back = 1 + self.client_rng.below(6) as usize;
                let guess = history.get(history.len().saturating_sub(back)).and_then(|op| match op
                    .action
                {
                    Action::Put(value) | Action::Cas(_, value) => Some(value),
                    Action::Delete | Action::Get => None,
                });
                Action::Cas(guess, value)
            }
            _ => return self.read_linearizably(client, at, node, Some((key, Action::Get))),
        };
        let request = workload::write_register(key as u64, action);
        self.ask(client, at, node, request, Some((key, action)));
        Ok(())
    }

    fn read_linearizably(
        &mut self,
        client: usize,
        at: usize,
        node: &mut Node,
        register: Option<(usize, Action)>,
    ) -> Result<(), End> {
        let floor = self.oracle.known_revision;
        let id = self.read_input(at, node, None);
        self.begin_op(client, at, id, register);
        self.reading.insert(id, Reading::Client { client, floor });
        if self.plan.broken == Broken::StaleRead && node.is_leader() {
            node.reads.push((0, Token(id)));
            return self.serve_reads(at, node);
        }
        Ok(())
    }

    /// A read of what this member has, now and in the past.
    fn read_locally(&mut self, client: usize, at: usize, node: &mut Node) -> Result<(), End> {
        let (revision, rows) = read_range(node, 0)?;
        self.trace(at, "local", revision as u64);
        if revision < node.last_read {
            return World::violation(format!("a read saw {revision} after {}", node.last_read));
        }
        node.last_read = revision;
        self.oracle.read_past(revision, &rows)?;
        let (newest, compact) = (node.reader.revision(), node.reader.compact_revision());
        let past = 1 + self.client_rng.below(newest as u64) as i64;
        match node.reader.range(&RangeQuery { revision: past, ..all() }) {
            Err(ReadError::Compacted) if past < compact => {}
            Ok(result) if past >= compact => {
                let rows: Vec<Vec<u8>> = result.kvs.iter().map(|row| row.to_vec()).collect();
                self.oracle.read_past(past, &rows)?;
            }
            other => {
                let text = format!("read at {past}, compacted at {compact}: {other:?}");
                return World::violation(text);
            }
        }
        self.again(client);
        Ok(())
    }

    /// Reads whose index is applied are answered.
    pub(super) fn serve_reads(&mut self, at: usize, node: &mut Node) -> Result<(), End> {
        let applied = node.applied;
        let ready = node.reads.extract_if(.., |(index, _)| *index <= applied);
        let ready: Vec<Token> = ready.map(|(_, token)| token).collect();
        for token in ready {
            match self.reading.remove(&token.0) {
                None => {}
                Some(Reading::KeepAlive { asked, kept }) => {
                    self.confirmed(node, asked, kept)?;
                }
                Some(Reading::Client { client, floor }) => {
                    self.trace(at, "read", token.0);
                    self.report.reads += 1;
                    let (revision, rows) = read_range(node, 0)?;
                    self.oracle.read(floor, revision, &rows)?;
                    let register = self.clients[client].under_way.as_ref().and_then(|u| u.register);
                    let seen = match register {
                        Some((key, _)) => Seen::Found(read_register(node, key as u64)?),
                        None => Seen::Done,
                    };
                    self.complete(client, seen);
                }
            }
        }
        Ok(())
    }

    /// An entry was applied where it was asked for.
    pub(super) fn answered(&mut self, at: usize, done: &Done) -> Verdict {
        self.expiring.remove(&done.request);
        self.acknowledge(at, done.request)
    }

    pub(super) fn acknowledge(&mut self, at: usize, request: u64) -> Verdict {
        let Some(&client) = self.waiting.get(&request) else { return Ok(()) };
        let Some(under_way) = &self.clients[client].under_way else { return Ok(()) };
        if self.clients[client].at != at || under_way.life != self.members[at].life {
            return Ok(());
        }
        let (register, invoked) = (under_way.register, under_way.invoked);
        let index = self.oracle.acknowledged(request, under_way.floor)?;
        self.trace(at, "answered", index);
        let answer = self.oracle.answer(index);
        let seen = register.map_or(Seen::Done, |(_, action)| workload::found(action, answer));
        // A grant that was answered is a promise.
        let granted = answer.strip_prefix("grant ").and_then(|text| text.split(' ').nth(1));
        let granted = granted.and_then(|text| text.parse().ok());
        if let Some(lease) = granted {
            self.oracle.leases.promised(lease, index, invoked, self.now)?;
        }
        let revoked = self.oracle.leases.asked.get(&request).copied();
        self.complete(client, seen);
        if let Some(lease) = granted.or(revoked).filter(|_| self.plan.leases) {
            self.holds(lease);
        }
        Ok(())
    }

    /// Notes the outcome of a client's request and lets it go on.
    fn complete(&mut self, client: usize, seen: Seen) {
        let Some(under_way) = self.clients[client].under_way.take() else { return };
        self.waiting.remove(&under_way.id);
        self.reading.remove(&under_way.id);
        if let Some((key, action)) = under_way.register {
            let (invoked, returned) = (under_way.invoked, self.now);
            self.histories[key].push(Op { invoked, returned, action, seen });
        }
        self.again(client);
    }

    fn again(&mut self, client: usize) {
        let think = self.plan.think;
        let rare = self.client_rng.below(4) == 0;
        let delay = 1 + self.client_rng.below(if rare { think } else { 2 * think });
        self.push(delay, Event::Client(client));
    }

    pub(super) fn timeout(&mut self, client: usize, op: u64) {
        if self.clients[client].op == op && self.clients[client].under_way.is_some() {
            self.report.unanswered += 1;
            self.clients[client].at = self.choose();
            self.complete(client, Seen::Unknown);
        }
    }

    /// A member said that it did not propose something.
    pub(super) fn refused(
        &mut self,
        at: usize,
        node: &mut Node,
        token: Token,
        _why: Refusal,
    ) -> Result<(), End> {
        if let Some((member, life, lease)) = self.expiring.remove(&token.0)
            && (member, life) == (at, self.members[at].life)
        {
            node.clock.returned(lease, self.lease_ms(at) + 1_000);
        }
        self.reading.remove(&token.0);
        let Some(&client) = self.waiting.get(&token.0) else { return Ok(()) };
        self.report.refused += 1;
        self.oracle.refused(token.0)?;
        if self.plan.broken == Broken::RefusedButProposed {
            let request = workload::write_register(0, Action::Put(token.0));
            self.smuggled = Some(workload::encode(request, token.0));
        }
        // It had no effect, so it is no part of any history.
        if let Some(under_way) = &mut self.clients[client].under_way {
            under_way.register = None;
        }
        self.clients[client].at = self.choose();
        self.complete(client, Seen::Unknown);
        Ok(())
    }

    /// One watching client reads its stream, or goes to another member.
    pub(super) fn drain(&mut self, watcher: usize) -> Verdict {
        let rare = if self.healed.is_some() { 10 * MS } else { 200 * MS };
        let slow = self.client_rng.below(10) == 0;
        let delay = 1 + self.client_rng.below(if slow { rare } else { 10 * MS });
        self.push(delay, Event::Drain(watcher));
        let (at, life) = self.watchers[watcher].at;
        let member = &self.members[at];
        let gone = member.node.is_none() || member.life != life || !self.belongs(at);
        if gone || self.watchers[watcher].lost {
            return self.watch_elsewhere(watcher);
        }
        if member.paused_until > self.now {
            return Ok(());
        }
        let most = 1 + self.client_rng.below(6) as usize;
        self.with_node(at, |world, node| {
            let watcher = &mut world.watchers[watcher];
            let (deliveries, waits) = node.queues.take(watcher.stream, most);
            for delivery in &deliveries {
                watcher.receive(delivery, &world.oracle.model)?;
            }
            if waits {
                node.hub.drained(watcher.stream);
                world.wake(at, node, "hub", 200, super::Turn::Hub);
            }
            Ok(())
        })
    }

    fn watch_elsewhere(&mut self, watcher: usize) -> Verdict {
        self.watchers[watcher].lost = true;
        let at = self.client_rng.below(self.members.len() as u64) as usize;
        if !self.belongs(at) || self.members[at].paused_until > self.now {
            return Ok(());
        }
        let (now, life, broken) = (self.clock_ms(at), self.members[at].life, self.plan.broken);
        self.next_stream += 1;
        let stream = self.next_stream;
        self.with_node(at, |world, node| {
            let watcher = &mut world.watchers[watcher];
            node.hub.close(watcher.stream, &mut node.queues);
            (watcher.stream, watcher.at) = (stream, (at, life));
            node.queues.open(stream);
            let create = watcher.create(broken);
            node.hub
                .create(stream, &create, now, &node.reader, &mut node.queues)
                .map_err(|error| Violation(format!("hub: {error}")))?;
            world.trace(at, "watch", create.start_revision as u64);
            world.wake(at, node, "hub", 200, super::Turn::Hub);
            Ok(())
        })
    }
}

fn all() -> RangeQuery {
    RangeQuery::new(KeyRange::from_request(Bytes::from_static(b"k"), Bytes::from_static(b"l")))
}

/// Revision and rows of the general keys.
pub(super) fn read_range(node: &Node, revision: i64) -> Result<(i64, Vec<Vec<u8>>), End> {
    let result = node
        .reader
        .range(&RangeQuery { revision, ..all() })
        .map_err(|error| Violation(format!("read: {error}")))?;
    Ok((result.revision, result.kvs.iter().map(|row| row.to_vec()).collect()))
}

fn read_register(node: &Node, key: u64) -> Result<Option<u64>, End> {
    let result = node
        .reader
        .range(&workload::read_register(key))
        .map_err(|error| Violation(format!("read: {error}")))?;
    let Some(row) = result.kvs.first() else { return Ok(None) };
    let kv = Kv::decode(&row[..]).map_err(|e| Violation(format!("row: {e}")))?;
    Ok(workload::parse_number(&kv.value))
}
