//! Several cores joined by a queue without faults, except those that a test asks for.

use crate::consensus::*;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) struct Group {
    pub(super) cores: Vec<Core>,
    pub(super) now: Millis,
    mail: VecDeque<Wire>,
    /// Everything a test may want to look at, in order, by member.
    pub(super) seen: Vec<(NodeId, Effect)>,
    /// Messages that get lost.
    pub(super) lose: fn(&Wire) -> bool,
    pub(super) sent: Vec<Wire>,
    /// Members whose disk confirms nothing, with the newest batch that waits for it.
    pub(super) frozen: BTreeMap<NodeId, Option<u64>>,
    /// Members that apply in memory and make nothing durable.
    pub(super) idle_stores: BTreeSet<NodeId>,
    /// What members know about their disks, told before each tick.
    pub(super) own: BTreeMap<NodeId, OwnDisk>,
    /// What members say about their disks with every message.
    pub(super) facts: BTreeMap<NodeId, DiskFacts>,
}

/// Inputs by which a shell answers an effect at once.
fn answer(effect: &Effect, idle_store: bool) -> Option<Input> {
    match effect {
        Effect::Persist(batch) => Some(Input::Persisted { batch: batch.number }),
        Effect::Apply(entries) => {
            let index = entries.last().map_or(0, |c| c.entry.index);
            Some(Input::Applied { index, durable: if idle_store { 0 } else { index } })
        }
        _ => None,
    }
}

impl Group {
    /// Members 1 to `voters`, and `learners` more that learn.
    pub(super) fn new(voters: u64, learners: u64, broken: Option<BrokenRule>) -> Group {
        Group::configured(voters, learners, |config| config.broken = broken)
    }

    pub(super) fn configured(voters: u64, learners: u64, configure: impl Fn(&mut Config)) -> Group {
        let all: Vec<u64> = (1..=voters + learners).collect();
        let conf_state = ConfState {
            voters: all[..voters as usize].to_vec(),
            learners: all[voters as usize..].to_vec(),
            ..ConfState::default()
        };
        let core = |id: &u64| {
            let mut config = Config::new(*id);
            configure(&mut config);
            let at = (1, 1);
            let conf_state = conf_state.clone();
            let restored = Restored { base: at, applied: at, conf_state, ..Restored::default() };
            Core::new(&config, restored).unwrap()
        };
        Group {
            cores: all.iter().map(core).collect(),
            now: 0,
            mail: VecDeque::new(),
            seen: Vec::new(),
            lose: |_| false,
            sent: Vec::new(),
            frozen: BTreeMap::new(),
            idle_stores: BTreeSet::new(),
            own: BTreeMap::new(),
            facts: BTreeMap::new(),
        }
    }

    pub(super) fn core(&mut self, id: NodeId) -> &mut Core {
        &mut self.cores[id as usize - 1]
    }

    pub(super) fn status(&self, id: NodeId) -> Status {
        self.cores[id as usize - 1].status()
    }

    /// Gives a member inputs, answers what it asks of its disk and state machine, and collects its
    /// messages.
    pub(super) fn give(&mut self, id: NodeId, inputs: impl IntoIterator<Item = Input>) {
        let mut inputs: Vec<Input> = inputs.into_iter().collect();
        loop {
            let mut out = Vec::new();
            let now = self.now;
            self.core(id).step(now, &mut inputs, &mut out);
            let idle_store = self.idle_stores.contains(&id);
            for effect in &out {
                match (effect, self.frozen.get_mut(&id)) {
                    (Effect::Persist(batch), Some(waiting)) => *waiting = Some(batch.number),
                    _ => inputs.extend(answer(effect, idle_store)),
                }
            }
            for effect in out {
                match effect {
                    Effect::Send(wires) => {
                        let lose = self.lose;
                        self.sent.extend(wires.iter().cloned());
                        self.mail.extend(wires.into_iter().filter(|w| !lose(w)));
                    }
                    other => {
                        if let Effect::Disk(DiskEvent::HandsOver { term, .. }) = other {
                            self.facts.entry(id).or_default().handed_over = term;
                        }
                        self.seen.push((id, other));
                    }
                }
            }
            if inputs.is_empty() {
                break;
            }
        }
    }

    /// Delivers messages until there are none left.
    pub(super) fn deliver(&mut self) {
        while let Some(wire) = self.mail.pop_front() {
            let facts = self.facts.get(&wire.from()).copied();
            let said = facts.map(|facts| Input::PeerDisk { of: wire.from(), facts });
            self.give(wire.to(), said.into_iter().chain([Input::Wire(wire.clone())]));
        }
    }

    /// One tick for everybody.
    pub(super) fn tick(&mut self) {
        self.now += 100;
        for id in 1..=self.cores.len() as u64 {
            let own = self.own.get(&id).map(|own| Input::OwnDisk(*own));
            self.give(id, own.into_iter().chain([Input::Tick]));
        }
        self.deliver();
    }

    /// The disk of a member confirms what waited for it.
    pub(super) fn thaw(&mut self, id: NodeId) {
        if let Some(batch) = self.frozen.remove(&id).flatten() {
            self.give(id, [Input::Persisted { batch }]);
        }
    }

    /// The stores of all members make durable what was applied.
    pub(super) fn catch_up_stores(&mut self) {
        for id in 1..=self.cores.len() as u64 {
            let index = self.status(id).applied;
            self.give(id, [Input::Applied { index, durable: index }]);
        }
    }

    /// Ticks until the given member leads.
    pub(super) fn elect(&mut self, id: NodeId) {
        for _ in 0..200 {
            self.tick();
            let led = self.cores.iter().map(Core::status).find(|s| s.role == Role::Leader);
            match led {
                Some(leader) if leader.id == id => return,
                Some(leader) => self.give(leader.id, [Input::TransferLeader { to: id }]),
                None => {}
            }
            self.deliver();
        }
        panic!("member {id} is not elected");
    }

    pub(super) fn propose(&mut self, id: NodeId, token: u64, data: impl Into<Bytes>) {
        self.give(id, [Input::Propose { token: Token(token), data: data.into() }]);
    }

    pub(super) fn change(&mut self, id: NodeId, token: u64, steps: &[(ChangeOp, NodeId)]) {
        let change = MemberChange { request: token, steps: steps.to_vec(), context: Bytes::new() };
        self.give(id, [Input::Change { token: Token(token), change }]);
    }

    pub(super) fn refusal(&self, token: u64) -> Option<Refusal> {
        self.seen.iter().find_map(|(_, effect)| match effect {
            Effect::Refuse { token: t, why } if *t == Token(token) => Some(*why),
            _ => None,
        })
    }

    /// The index at which a read may be served, by its member.
    pub(super) fn read_at(&self, token: u64) -> Option<(NodeId, u64)> {
        self.seen.iter().find_map(|(id, effect)| match effect {
            Effect::ReadAt { index, tokens } if tokens.contains(&Token(token)) => {
                Some((*id, *index))
            }
            _ => None,
        })
    }

    /// How often a member applied this command.
    pub(super) fn applied(&self, id: NodeId, data: &[u8]) -> usize {
        let count = |effect: &Effect| match effect {
            Effect::Apply(entries) => entries.iter().filter(|c| c.entry.data == data).count(),
            _ => 0,
        };
        self.seen.iter().filter(|(member, _)| *member == id).map(|(_, e)| count(e)).sum()
    }
}
