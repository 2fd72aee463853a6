//! Holders of leases: they ask for keep-alives, are told things by members that may have been
//! deposed or asleep meanwhile, and rely on them.

use assay::lease::Renewal;

use super::super::broken::Broken;
use super::super::frame::Verdict;
use super::super::node::{End, Node};
use super::super::workload;
use super::{Event, MS, Reading, World};

/// Before a keep-alive that waits for the log looks again.
const PAUSE: u64 = 3 * MS;
/// Longer than any pause and any lease.
const PATIENCE: u64 = 15_000 * MS;
/// It looks so often at most.
const LOOKS_MAX: u64 = 30;

/// A keep-alive on its way to a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepAlive {
    at: usize,
    /// The life of the member that the connection belongs to.
    life: u64,
    lease: i64,
    /// When its holder asked.
    since: u64,
    /// How often it waited for the log.
    looks: u64,
    /// The member has applied what others had before it was asked.
    caught_up: bool,
}

/// What a clock kept alive: the index of the grant, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    granted: u64,
    ttl: i64,
}

impl World {
    /// Somebody keeps leases alive, at whoever believes to be the leader.
    pub(super) fn keeper(&mut self) -> Verdict {
        if !self.serving() {
            return Ok(());
        }
        let delay = 30 * MS + self.client_rng.below(300 * MS);
        self.push(delay, Event::Keeper);
        let anybody = self.plan.leases && self.client_rng.below(4) == 0;
        let ready: Vec<usize> = (0..self.members.len())
            .filter(|at| {
                let member = &self.members[*at];
                member.node.as_ref().is_some_and(|node| match self.plan.leases {
                    true => anybody || node.is_leader(),
                    false => node.ready && member.paused_until <= self.now,
                })
            })
            .collect();
        if ready.is_empty() {
            return Ok(());
        }
        let at = ready[self.client_rng.below(ready.len() as u64) as usize];
        let lease = 1 + self.client_rng.below(workload::LEASES) as i64;
        let asked = self.asks(at, lease);
        if !self.plan.leases {
            return self.keep_alive(asked);
        }
        let waits = self.patient.get(&lease).filter(|(until, _)| *until > self.now);
        if waits.is_none_or(|(_, of)| *of == Some(at)) {
            // Who asked somebody that sleeps asks nobody else, waits for the answer and relies on it.
            if self.members[at].paused_until > self.now {
                self.patient.insert(lease, (self.now + PATIENCE, Some(at)));
            }
            self.push(MS / 3, Event::KeepAlive(asked));
        }
        Ok(())
    }

    fn asks(&self, at: usize, lease: i64) -> KeepAlive {
        let life = self.members[at].life;
        KeepAlive { at, life, lease, since: self.now, looks: 0, caught_up: false }
    }

    /// A holder that was just told of a lease, or of its end, asks its leader about it at once.
    pub(super) fn holds(&mut self, lease: i64) {
        if let Some(at) = self.leader() {
            let asked = self.asks(at, lease);
            let delay = 1 + self.client_rng.below(MS);
            self.push(delay, Event::KeepAlive(asked));
        }
    }

    /// A keep-alive arrives. A member that sleeps finds it when it wakes.
    pub(super) fn keep_alive(&mut self, asked: KeepAlive) -> Verdict {
        let member = &self.members[asked.at];
        if member.life != asked.life || self.quiet.is_some() {
            return Ok(());
        }
        if member.paused_until > self.now {
            let wait = self.until_awake(asked.at);
            self.push(wait, Event::KeepAlive(asked));
            return Ok(());
        }
        self.with_node(asked.at, |world, node| world.renew(node, asked))
    }

    fn renew(&mut self, node: &mut Node, asked: KeepAlive) -> Result<(), End> {
        let (at, lease) = (asked.at, asked.lease);
        let now = self.lease_ms(at);
        node.note_leases(now);
        let term = node.clock.leads();
        let kept = match node.clock.renew(lease, now) {
            Renewal::NotLeader => return Ok(()),
            Renewal::Unknown => None,
            Renewal::Renewed { ttl } => {
                let granted = self.oracle.leases.life(lease, node.applied);
                granted.map(|granted| Kept { granted, ttl })
            }
            Renewal::Ending | Renewal::ClearRemaining if asked.looks == LOOKS_MAX => return Ok(()),
            Renewal::Ending => return self.looks_again(asked),
            Renewal::ClearRemaining => {
                self.propose(at, node, workload::checkpoint(&[(lease, 0)]));
                return self.looks_again(asked);
            }
        };
        self.trace(at, "renew", lease as u64);
        if self.plan.broken == Broken::LeaseRenewUnconfirmed && kept.is_some() {
            return self.confirmed(node, asked, kept);
        }
        let anyone =
            matches!(self.plan.broken, Broken::LeaseRenewConfirmedByNext | Broken::LeaseUnfenced);
        let id = self.read_input(at, node, term.filter(|_| !anyone));
        self.reading.insert(id, Reading::KeepAlive { asked, kept });
        Ok(())
    }

    fn looks_again(&mut self, asked: KeepAlive) -> Result<(), End> {
        self.push(PAUSE, Event::KeepAlive(KeepAlive { looks: asked.looks + 1, ..asked }));
        Ok(())
    }

    /// The member led for as long as it took to say so, and has applied what was known by then.
    pub(super) fn confirmed(
        &mut self,
        node: &mut Node,
        asked: KeepAlive,
        kept: Option<Kept>,
    ) -> Result<(), End> {
        let KeepAlive { at, lease, since, .. } = asked;
        let broken = self.plan.broken;
        let there = node.reader.lease(lease).map(|lease| lease.record.ttl);
        let known = match kept {
            Some(kept) if broken == Broken::LeaseKeptWhenGone => Some(kept.granted),
            // Of another grant perhaps, but nothing that the holder can tell.
            Some(kept) if there == Some(kept.ttl) => self.oracle.leases.life(lease, node.applied),
            Some(_) if there.is_none() => None,
            None if asked.caught_up || broken == Broken::LeaseGoneTooSoon => None,
            _ => {
                self.push(1, Event::KeepAlive(KeepAlive { caught_up: true, ..asked }));
                return Ok(());
            }
        };
        let Some(granted) = known else {
            self.trace(at, "gone", lease as u64);
            return Ok(self.oracle.leases.gone(lease, since)?);
        };
        self.trace(at, "kept", lease as u64);
        self.oracle.leases.promised(lease, granted, since, self.now)?;
        if self.plan.leases {
            // What was cleared from the log a moment ago is most easily forgotten.
            let one_in = if asked.looks > 0 { 4 } else { 60 };
            if self.fault_rng.below(one_in) == 0 {
                self.patient.insert(lease, (self.now + PATIENCE, None));
                let soon = self.fault_rng.below(2) * self.fault_rng.below(20 * MS);
                self.push(soon, Event::Strike);
            }
        }
        Ok(())
    }
}
