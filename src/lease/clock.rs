//! The leader's lease timers.
//!
//! A follower's clock only remembers which leases exist. On promotion every lease starts with its
//! full time (or its replicated remaining time) plus one election timeout: the holder may have
//! been promised that much by the former leader a moment before. What expires is handed out as a
//! revoke proposal of the current term and stays in the table until the revoke is applied.
//!
//! Callers promote once the first entry of their own term is applied. All older revokes and
//! checkpoints are then known here, and none can surprise a lease granted later under the same id.

use std::collections::{BTreeMap, BTreeSet};

use super::{MAX_TTL_S, Record};

/// Length of one expiry round: etcd's leader looks every 500 ms.
const ROUND_MS: u64 = 500;
/// Expired leases handed out per round; two rounds make 1,000 per second. A mass expiry is then a
/// steady load on the log and not a burst that delays everything else.
const MAX_PER_ROUND: usize = 500;
/// Leases that may come due per second after a promotion: three quarters of what can be revoked,
/// so that the rest of the rate is left for leases granted meanwhile (etcd's factor).
const PROMOTION_PER_SECOND: usize = 750;
/// Leases per checkpoint command: keeps one command near 16 KiB.
const MAX_CHECKPOINTS: usize = 1_000;

/// Settings of a clock.
#[derive(Debug, Clone, Copy)]
pub struct ClockOptions {
    /// Election timeout, ms: by how much a new leader extends every lease.
    pub election_ms: u64,
    /// Period of remaining-time checkpoints, ms; `None` writes none. etcd's period is 300,000.
    pub checkpoint_ms: Option<u64>,
}

/// A lease whose time is up: propose its revoke, valid in `term` only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    /// The lease.
    pub id: i64,
    /// The term the proposal must be dropped outside of.
    pub term: u64,
}

/// Answer to a keep-alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Renewed: the lease lives for `ttl` seconds from now.
    Renewed {
        /// Granted time to live, seconds.
        ttl: i64,
    },
    /// No such lease: answer TTL 0.
    Unknown,
    /// Time is up but the revoke is not applied yet: wait until the lease is gone, then answer
    /// TTL 0. It cannot be saved any more.
    Ending,
    /// A remaining time is, or may soon be, in the replicated state; a new leader would count from
    /// it. Propose a checkpoint of 0 for this lease, wait until it is applied, then ask again.
    ClearRemaining,
    /// This member does not lead: forward the request.
    NotLeader,
}

#[derive(Debug, Clone, Copy)]
struct Timer {
    ttl: i64,
    /// Replicated remaining time, seconds, 0 = full.
    remaining: i64,
    /// When time is up; meaningful on the leader only.
    due: u64,
    /// Handed out as [`Expired`] and not returned since.
    ending: bool,
    /// A checkpoint with a remaining time was proposed and may be in the log.
    checkpointing: bool,
    /// A checkpoint of 0 was asked for and is not applied yet.
    clearing: bool,
    /// When the next checkpoint is due; `u64::MAX` for leases that get none.
    checkpoint_due: u64,
}

impl Timer {
    fn full_ms(&self) -> u64 {
        let seconds = if self.remaining > 0 { self.remaining } else { self.ttl };
        // Bounded by MAX_TTL_S, so the product fits with room to spare.
        seconds.clamp(0, MAX_TTL_S) as u64 * 1_000
    }
}

/// Timers of all leases. One per member, owned by the node thread.
#[derive(Debug)]
pub struct Clock {
    options: ClockOptions,
    timers: BTreeMap<i64, Timer>,
    /// (due, id) of every lease not ending; empty on a follower.
    queue: BTreeSet<(u64, i64)>,
    /// (checkpoint due, id); empty on a follower and without checkpoints.
    checkpoints: BTreeSet<(u64, i64)>,
    term: Option<u64>,
    round_start: u64,
    round_used: usize,
}

impl Clock {
    /// A follower's clock with the leases of the restored table.
    #[must_use]
    pub fn new(options: ClockOptions, leases: impl IntoIterator<Item = Record>) -> Self {
        let mut clock = Self {
            options,
            timers: BTreeMap::new(),
            queue: BTreeSet::new(),
            checkpoints: BTreeSet::new(),
            term: None,
            round_start: 0,
            round_used: 0,
        };
        for record in leases {
            clock.insert(record.id, record.ttl, record.remaining);
        }
        clock
    }

    /// Starts the timers of a leader of `term` at `now` ms. Leases that would come due faster than
    /// they can be revoked are moved later, never earlier.
    pub fn promote(&mut self, term: u64, now: u64) {
        self.demote();
        self.term = Some(term);
        self.round_start = now;
        self.round_used = 0;
        let mut order: Vec<(u64, i64)> = self
            .timers
            .iter()
            .map(|(&id, timer)| (now + timer.full_ms() + self.options.election_ms, id))
            .collect();
        order.sort_unstable();
        let mut second = 0;
        let mut in_second = 0;
        for (due, id) in order {
            // `second` never goes back: a full second pushes the following leases on.
            if due / 1_000 > second {
                second = due / 1_000;
                in_second = 0;
            } else if in_second == PROMOTION_PER_SECOND {
                second += 1;
                in_second = 0;
            }
            in_second += 1;
            self.start(id, due.max(second * 1_000), now);
        }
    }

    /// Stops all timers. Nothing expires and nothing can be renewed until the next promotion.
    pub fn demote(&mut self) {
        self.term = None;
        self.queue.clear();
        self.checkpoints.clear();
        for timer in self.timers.values_mut() {
            timer.ending = false;
            timer.checkpointing = false;
            timer.clearing = false;
        }
    }

    /// The term this clock leads in, if it leads.
    #[must_use]
    pub fn leads(&self) -> Option<u64> {
        self.term
    }

    /// A grant was applied.
    pub fn granted(&mut self, id: i64, ttl: i64, now: u64) {
        self.revoked(id);
        self.insert(id, ttl, 0);
        if self.term.is_some() {
            let due = now + ttl.clamp(0, MAX_TTL_S) as u64 * 1_000;
            self.start(id, due, now);
        }
    }

    /// A revoke was applied.
    pub fn revoked(&mut self, id: i64) {
        if let Some(timer) = self.timers.remove(&id) {
            self.queue.remove(&(timer.due, id));
            self.checkpoints.remove(&(timer.checkpoint_due, id));
        }
    }

    /// A checkpoint was applied: `remaining` seconds, 0 = full.
    pub fn checkpointed(&mut self, id: i64, remaining: i64) {
        let Some(timer) = self.timers.get_mut(&id) else { return };
        timer.remaining = remaining.clamp(0, timer.ttl);
        if timer.remaining == 0 {
            timer.checkpointing = false;
            timer.clearing = false;
        }
    }

    /// Keeps a lease alive from `now` ms on. In a cluster the caller confirms by a read index
    /// taken after this call that it still leads before it answers.
    pub fn renew(&mut self, id: i64, now: u64) -> Renewal {
        if self.term.is_none() {
            return Renewal::NotLeader;
        }
        let Some(timer) = self.timers.get_mut(&id) else { return Renewal::Unknown };
        if timer.ending || timer.due <= now {
            return Renewal::Ending;
        }
        if timer.remaining > 0 || timer.checkpointing || timer.clearing {
            // No checkpoint may be decided between the clearing one and its application.
            timer.clearing = true;
            return Renewal::ClearRemaining;
        }
        let ttl = timer.ttl;
        let due = timer.due.max(now + timer.full_ms());
        self.start(id, due, now);
        Renewal::Renewed { ttl }
    }

    /// Remaining and granted time in whole seconds; `None` for an unknown or expired lease and on
    /// a follower.
    #[must_use]
    pub fn remaining(&self, id: i64, now: u64) -> Option<(i64, i64)> {
        self.term?;
        let timer = self.timers.get(&id)?;
        if timer.ending || timer.due <= now {
            return None;
        }
        Some((i64::try_from((timer.due - now) / 1_000).unwrap_or(i64::MAX), timer.ttl))
    }

    /// All lease ids, the next to end first; a follower, which knows no times, in id order.
    #[must_use]
    pub fn ordered(&self) -> Vec<i64> {
        if self.term.is_none() {
            return self.timers.keys().copied().collect();
        }
        let mut all: Vec<(u64, i64)> =
            self.timers.iter().map(|(&id, timer)| (timer.due, id)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// Leases whose time is up, the most overdue first: at most `max`, and at most 500 per round
    /// of 500 ms. Each is handed out once until [`Clock::returned`] or a new term.
    pub fn expired(&mut self, now: u64, max: usize) -> Vec<Expired> {
        let Some(term) = self.term else { return Vec::new() };
        if now >= self.round_start + ROUND_MS {
            self.round_start = now;
            self.round_used = 0;
        }
        let room = max.min(MAX_PER_ROUND - self.round_used);
        let mut out = Vec::new();
        while out.len() < room {
            let Some(&(due, id)) = self.queue.first() else { break };
            if due > now {
                break;
            }
            self.queue.pop_first();
            if let Some(timer) = self.timers.get_mut(&id) {
                timer.ending = true;
                self.checkpoints.remove(&(timer.checkpoint_due, id));
                out.push(Expired { id, term });
            }
        }
        self.round_used += out.len();
        out
    }

    /// A revoke proposal failed for certain (refused before it entered the log, or answered with an
    /// error): the lease becomes due again at `at` ms; leave a second or so. Never call it for a
    /// proposal with an unknown fate: it may still commit, and a second one could hit a lease
    /// granted again under the same id.
    pub fn returned(&mut self, id: i64, at: u64) {
        if self.term.is_none() {
            return;
        }
        if let Some(timer) = self.timers.get_mut(&id)
            && timer.ending
        {
            timer.ending = false;
            timer.due = at;
            self.queue.insert((at, id));
        }
    }

    /// Remaining times to replicate now, (id, whole seconds rounded up), at most 1,000; propose
    /// them in one command. Empty on a follower, without checkpoints, and for leases with less
    /// than one interval left.
    pub fn checkpoints(&mut self, now: u64) -> Vec<(i64, i64)> {
        let Some(interval) = self.options.checkpoint_ms else { return Vec::new() };
        let mut out = Vec::new();
        while out.len() < MAX_CHECKPOINTS {
            let Some(&(at, id)) = self.checkpoints.first() else { break };
            if at > now {
                break;
            }
            self.checkpoints.pop_first();
            let Some(timer) = self.timers.get_mut(&id) else { continue };
            let left = timer.due.saturating_sub(now);
            timer.checkpoint_due = if left > interval { now + interval } else { u64::MAX };
            if timer.checkpoint_due != u64::MAX {
                self.checkpoints.insert((timer.checkpoint_due, id));
            }
            // Rounded up, and skipped while a keep-alive waits for the clearing one: a lease may
            // end late, never early.
            let seconds = i64::try_from(left.div_ceil(1_000)).unwrap_or(MAX_TTL_S);
            if left > interval && seconds < timer.ttl && !timer.clearing {
                timer.checkpointing = true;
                out.push((id, seconds));
            }
        }
        out
    }

    /// When [`Clock::expired`] or [`Clock::checkpoints`] next has something to say, ms; `None`
    /// while nothing can become due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let expiry = self.queue.first().map(|&(due, _)| {
            let full = self.round_used >= MAX_PER_ROUND;
            if full { due.max(self.round_start + ROUND_MS) } else { due }
        });
        let checkpoint = self.checkpoints.first().map(|&(at, _)| at);
        match (expiry, checkpoint) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Number of leases.
    #[must_use]
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Whether there is no lease.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    /// How long the most overdue lease that is not handed out has been due, ms; 0 if none is. A
    /// measure of the revoke backlog.
    #[must_use]
    pub fn overdue_ms(&self, now: u64) -> u64 {
        self.queue.first().map_or(0, |&(due, _)| now.saturating_sub(due))
    }

    fn insert(&mut self, id: i64, ttl: i64, remaining: i64) {
        let timer = Timer {
            ttl,
            remaining: remaining.clamp(0, ttl.max(0)),
            due: u64::MAX,
            ending: false,
            checkpointing: false,
            clearing: false,
            checkpoint_due: u64::MAX,
        };
        self.timers.insert(id, timer);
    }

    /// Sets when a lease is due and, from `now` on, its next checkpoint.
    fn start(&mut self, id: i64, due: u64, now: u64) {
        let Some(timer) = self.timers.get_mut(&id) else { return };
        self.queue.remove(&(timer.due, id));
        self.checkpoints.remove(&(timer.checkpoint_due, id));
        timer.due = due;
        self.queue.insert((due, id));
        timer.checkpoint_due = match self.options.checkpoint_ms {
            Some(interval) if due.saturating_sub(now) > interval => now + interval,
            _ => u64::MAX,
        };
        if timer.checkpoint_due != u64::MAX {
            self.checkpoints.insert((timer.checkpoint_due, id));
        }
    }
}
