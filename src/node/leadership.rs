//! Who leads, since when, and why it changed: the numbers behind "silent elections".

use crate::consensus::{Role, RoleChange};
use crate::telemetry::node_metrics::NodeMetrics;
use crate::telemetry::stage::LeaderCause;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Keeps the gauges and counters of leadership. Lives on the node thread.
pub(super) struct Leadership {
    metrics: Arc<NodeMetrics>,
    own: u64,
    /// The last known leader; a lost leader alone is no change.
    known: u64,
    leader: u64,
    term_led: Option<u64>,
    leaderless_since: Option<u64>,
    led_since: Option<u64>,
    /// Longest pause of the process since the last change, ns.
    paused_ns: u64,
}

impl Leadership {
    pub(super) fn new(metrics: Arc<NodeMetrics>, own: u64) -> Self {
        let now = crate::telemetry::clock::now_ns();
        metrics.leaderless_since.store(now + 1, Relaxed);
        Leadership {
            metrics,
            own,
            known: 0,
            leader: 0,
            term_led: None,
            leaderless_since: Some(now),
            led_since: None,
            paused_ns: 0,
        }
    }

    /// The term in which this member leads, if it does.
    pub(super) fn term_led(&self) -> Option<u64> {
        self.term_led
    }

    /// The process was paused for this long.
    pub(super) fn paused(&mut self, ns: u64) {
        self.paused_ns = self.paused_ns.max(ns);
    }

    /// Takes in a change of role, term or leader.
    pub(super) fn changed(&mut self, change: &RoleChange, now: u64) {
        let m = self.metrics.clone();
        m.term.store(change.term, Relaxed);
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
            let cause = self.cause();
            m.leader_change(cause);
            tracing::info!(
                term = change.term,
                cause = cause.as_str(),
                "this member became the leader"
            );
        } else {
            tracing::warn!(term = change.term, "this member no longer leads");
        }
        m.led_since.store(self.led_since.map_or(0, |since| since + 1), Relaxed);
        self.paused_ns = 0;
    }

    fn leader_changed(&mut self, change: &RoleChange, now: u64) {
        let m = &self.metrics;
        m.leader.store(change.leader, Relaxed);
        self.leader = change.leader;
        if change.leader == 0 {
            self.leaderless_since.get_or_insert(now);
        } else {
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

    /// Only what this member has evidence for; `unknown` beats a guess.
    fn cause(&self) -> LeaderCause {
        // Longer than any scheduling hiccup: the shortest election timeout that can be configured
        // is five heartbeats, and a pause of this length outlasts the default one.
        const PAUSE_NS: u64 = 1_000_000_000;
        if self.known == 0 || (self.known == self.own && self.metrics.leader_changes_won() == 0) {
            LeaderCause::Start
        } else if self.paused_ns >= PAUSE_NS {
            LeaderCause::ProcessPause
        } else {
            LeaderCause::Unknown
        }
    }
}
