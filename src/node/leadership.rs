//! Who leads, since when, and why it changed: the numbers behind "silent elections".

use super::driver::Driver;
use super::handle::Inner;
use crate::consensus::{Role, RoleChange, Wire, WireKind};
use crate::telemetry::node_metrics::NodeMetrics;
use crate::telemetry::stage::LeaderCause;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What else is known when leadership changes; facts of this member, no guesses.
pub(super) trait Evidence {
    /// The leader before says that it gave way because of its disk.
    fn bad_disk(&self) -> bool;
    /// The leader before told this member to take over, and it did in the present term.
    fn was_told(&self) -> bool;
    /// There is a connection to this member.
    fn is_connected(&self, id: u64) -> bool;
    /// This one is in the configuration.
    fn is_member(&self, id: u64) -> bool;
}

impl Evidence for Driver {
    fn bad_disk(&self) -> bool {
        self.core.predecessor_had_a_bad_disk()
    }

    fn was_told(&self) -> bool {
        self.core.was_told_to_lead()
    }

    fn is_connected(&self, id: u64) -> bool {
        self.inner.peers.connected_since(id).is_some()
    }

    fn is_member(&self, id: u64) -> bool {
        self.core.has_member(id)
    }
}

/// Keeps the gauges and counters of leadership. Lives on the node thread.
pub(super) struct Leadership {
    metrics: Arc<NodeMetrics>,
    /// The last known leader; a lost leader alone is no change.
    known: u64,
    leader: u64,
    term_led: Option<u64>,
    leaderless_since: Option<u64>,
    led_since: Option<u64>,
    /// When the present leader, or the one that was lost, was heard last.
    heard: u64,
    /// Longest pause of the process since then, ns.
    paused_ns: u64,
    /// A pause of this length outlasts the patience of the other members.
    election_ns: u64,
    /// The connection to the lost leader is, or was at some time since, lost as well.
    disconnected: bool,
    /// This member led last, and gave up because no quorum answered.
    quorum_lost: bool,
}

impl Leadership {
    pub(super) fn new(node: &Inner) -> Self {
        Self::with(node.metrics.clone(), node.timing.election_ms)
    }

    fn with(metrics: Arc<NodeMetrics>, election_ms: u64) -> Self {
        const NS_PER_MS: u64 = 1_000_000;
        let now = crate::telemetry::clock::now_ns();
        metrics.leaderless_since.store(now + 1, Relaxed);
        Leadership {
            metrics,
            known: 0,
            leader: 0,
            term_led: None,
            leaderless_since: Some(now),
            led_since: None,
            heard: now,
            paused_ns: 0,
            election_ns: election_ms * NS_PER_MS,
            disconnected: false,
            quorum_lost: false,
        }
    }

    /// The term in which this member leads, if it does.
    pub(super) fn term_led(&self) -> Option<u64> {
        self.term_led
    }

    /// The process was paused for this long. Says so if others may have given this member up
    /// meanwhile: what is logged next, such as silent peers, is its own doing.
    pub(super) fn paused(&mut self, ns: u64) {
        // What a pause does to a leader is that others lead, and they have their own causes.
        if self.term_led.is_none() {
            self.paused_ns = self.paused_ns.max(ns);
        }
        if ns >= self.election_ns {
            tracing::warn!(
                "this process did not run for {:.1} s: it was stopped, or had no processor; other \
                 members may have taken it for dead",
                ns as f64 / 1e9
            );
        }
    }

    /// Messages have arrived. Those of the leader tell that it lives.
    pub(super) fn heard(&mut self, wires: &[Wire], now: u64) {
        let leads = |kind| {
            use WireKind::{Append, Heartbeat, Snapshot, TimeoutNow};
            matches!(kind, Append | Heartbeat | Snapshot | TimeoutNow)
        };
        if wires.iter().any(|wire| wire.from() == self.leader && leads(wire.kind())) {
            self.heard_leader(now);
        }
    }

    /// What was before this word did not end its leadership.
    fn heard_leader(&mut self, now: u64) {
        self.heard = now;
        self.paused_ns = 0;
    }

    /// Takes in a change of role, term or leader.
    pub(super) fn changed(&mut self, change: &RoleChange, now: u64, evidence: &impl Evidence) {
        let m = self.metrics.clone();
        let before = self.known;
        m.term.store(change.term, Relaxed);
        say(change);
        // A leader ends its own term only if no quorum answers, or if it is removed.
        let gave_up = change.leader == 0 && self.term_led == Some(change.term);
        self.quorum_lost |= gave_up && evidence.is_member(before);
        if before != 0 && self.term_led.is_none() {
            self.disconnected |= !evidence.is_connected(before);
        }
        if change.leader != self.leader {
            self.leader_changed(change, now);
        }
        let leads = change.role == Role::Leader;
        let term_led = leads.then_some(change.term);
        if term_led == self.term_led {
            return;
        }
        if let Some(since) = self.led_since.take() {
            m.led.record_ns(now.saturating_sub(since));
        }
        m.leads.store(u64::from(leads), Relaxed);
        self.term_led = term_led;
        if leads {
            self.led_since = Some(now);
            let cause = self.cause(before, evidence);
            m.leader_change(cause);
            tracing::info!(
                term = change.term,
                cause = cause.as_str(),
                "this member became the leader"
            );
        } else if self.quorum_lost {
            tracing::warn!(
                term = change.term,
                "this member no longer leads: no quorum answered for an election timeout"
            );
        } else {
            tracing::warn!(term = change.term, "this member no longer leads");
        }
        m.led_since.store(self.led_since.map_or(0, |since| since + 1), Relaxed);
        if leads {
            self.paused_ns = 0;
        }
    }

    fn leader_changed(&mut self, change: &RoleChange, now: u64) {
        let m = &self.metrics;
        m.leader.store(change.leader, Relaxed);
        // Without a leader since the last word of the last one, however late that is noticed. A
        // leader is its own witness.
        let last_word = if self.term_led.is_some() { now } else { self.heard };
        if change.leader == 0 || self.term_led.is_none() {
            self.leaderless_since.get_or_insert(last_word);
        }
        self.leader = change.leader;
        if change.leader != 0 {
            self.heard = now;
            if change.role != Role::Leader {
                self.paused_ns = 0;
                self.disconnected = false;
                self.quorum_lost = false;
            }
            m.leader_learned.store(now + 1, Relaxed);
            if let Some(since) = self.leaderless_since.take() {
                m.leaderless.record_ns(now.saturating_sub(since));
            }
            if change.leader != self.known {
                m.leader_changes_seen.fetch_add(1, Relaxed);
                self.known = change.leader;
            }
        }
        m.leaderless_since.store(self.leaderless_since.map_or(0, |since| since + 1), Relaxed);
    }

    /// Only what this member has evidence for; `unknown` beats a guess. `before`: the leader that it
    /// knew last, 0 for none since its start.
    fn cause(&mut self, before: u64, evidence: &impl Evidence) -> LeaderCause {
        let disconnected = std::mem::take(&mut self.disconnected);
        let quorum_lost = std::mem::take(&mut self.quorum_lost);
        let led_before = before == self.leader;
        if evidence.bad_disk() {
            LeaderCause::Disk
        } else if before == 0 {
            LeaderCause::Start
        } else if evidence.was_told() {
            LeaderCause::Transfer
        } else if !evidence.is_member(before) {
            LeaderCause::Shutdown
        } else if self.paused_ns >= self.election_ns {
            LeaderCause::ProcessPause
        } else if quorum_lost {
            LeaderCause::QuorumLost
        } else if led_before {
            LeaderCause::Unknown
        } else if disconnected {
            LeaderCause::Network
        } else {
            LeaderCause::Timeout
        }
    }
}

/// One line for every step of an election: enough to tell afterwards what a time without a leader
/// was spent on. That this member leads is said with its cause.
fn say(change: &RoleChange) {
    let term = change.term;
    match (change.role, change.leader) {
        (Role::Follower, 0) => tracing::info!(term, "no leader is known"),
        (Role::Follower, leader) => {
            tracing::info!(term, leader = format!("{leader:x}"), "following a leader");
        }
        (Role::PreCandidate, _) => tracing::info!(
            term,
            "no leader was heard for an election timeout: asking whether others would vote for this \
             member"
        ),
        (Role::Candidate, _) => tracing::info!(term, "standing for election"),
        (Role::Leader, _) => {}
    }
}

#[cfg(test)]
mod tests;
