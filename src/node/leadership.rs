//! Who leads, since when, and why it changed: the numbers behind "silent elections".

use crate::consensus::{Role, RoleChange};
use crate::telemetry::node_metrics::NodeMetrics;
use crate::telemetry::stage::LeaderCause;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Keeps the gauges and counters of leadership. Lives on the node thread.
pub(super) struct Leadership {
    metrics: Arc<NodeMetrics>,
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
    pub(super) fn new(metrics: Arc<NodeMetrics>) -> Self {
        let now = crate::telemetry::clock::now_ns();
        metrics.leaderless_since.store(now + 1, Relaxed);
        Leadership {
            metrics,
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

    /// Takes in a change of role, term or leader. `bad_disk`: the leader before says that it gave way
    /// because of its disk.
    pub(super) fn changed(&mut self, change: &RoleChange, now: u64, bad_disk: bool) {
        let m = self.metrics.clone();
        let before = self.known;
        m.term.store(change.term, Relaxed);
        say(change);
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
            let cause = self.cause(before, bad_disk);
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

    /// Only what this member has evidence for; `unknown` beats a guess. `before`: the leader that it
    /// knew last, 0 for none since its start.
    fn cause(&self, before: u64, bad_disk: bool) -> LeaderCause {
        // Longer than any scheduling hiccup: the shortest election timeout that can be configured
        // is five heartbeats, and a pause of this length outlasts the default one.
        const PAUSE_NS: u64 = 1_000_000_000;
        if bad_disk {
            LeaderCause::Disk
        } else if before == 0 {
            LeaderCause::Start
        } else if self.paused_ns >= PAUSE_NS {
            LeaderCause::ProcessPause
        } else {
            LeaderCause::Unknown
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
mod tests {
    use super::*;

    const OWN: u64 = 7;

    fn causes(metrics: &NodeMetrics) -> Vec<(&'static str, u64)> {
        let count = |cause: LeaderCause| metrics.leader_changes[cause as usize].load(Relaxed);
        let all = LeaderCause::ALL.into_iter().map(|cause| (cause.as_str(), count(cause)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    fn leads(leadership: &mut Leadership, term: u64, bad_disk: bool) {
        let change = RoleChange { role: Role::Leader, term, leader: OWN };
        leadership.changed(&change, term, bad_disk);
    }

    fn follows(leadership: &mut Leadership, term: u64, leader: u64) {
        let change = RoleChange { role: Role::Follower, term, leader };
        leadership.changed(&change, term, false);
    }

    #[test]
    fn causes_do_not_lie() {
        let metrics = Arc::new(NodeMetrics::default());
        let mut leadership = Leadership::new(metrics.clone());
        follows(&mut leadership, 2, 3);
        leads(&mut leadership, 3, true);
        assert_eq!(causes(&metrics), [("disk", 1)], "its first leadership is no start");
        follows(&mut leadership, 4, 3);
        leads(&mut leadership, 5, false);
        assert_eq!(causes(&metrics), [("disk", 1), ("unknown", 1)]);
        follows(&mut leadership, 6, 0);
        leadership.paused(2_000_000_000);
        leads(&mut leadership, 7, false);
        assert_eq!(causes(&metrics), [("disk", 1), ("process_pause", 1), ("unknown", 1)]);
    }

    #[test]
    fn who_never_knew_a_leader_starts() {
        let metrics = Arc::new(NodeMetrics::default());
        let mut leadership = Leadership::new(metrics.clone());
        leads(&mut leadership, 1, false);
        assert_eq!(causes(&metrics), [("start", 1)]);
    }
}
