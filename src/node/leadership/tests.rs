//! Causes of leader changes and lengths of times without a leader.

use super::*;

const OWN: u64 = 7;
const SECOND: u64 = 1_000_000_000;

/// What a member knows beside the change.
#[derive(Clone, Copy)]
struct Facts {
    bad_disk: bool,
    told: bool,
    connected: bool,
    member: bool,
}

/// A leader that falls silent while everything else is in order.
const SILENT: Facts = Facts { bad_disk: false, told: false, connected: true, member: true };

impl Evidence for Facts {
    fn bad_disk(&self) -> bool {
        self.bad_disk
    }

    fn was_told(&self) -> bool {
        self.told
    }

    fn is_connected(&self, _: u64) -> bool {
        self.connected
    }

    fn is_member(&self, _: u64) -> bool {
        self.member
    }
}

/// A member in its time, which knows nothing yet.
struct Member {
    metrics: Arc<NodeMetrics>,
    leadership: Leadership,
    now: u64,
}

impl Member {
    fn new() -> Member {
        let metrics = Arc::new(NodeMetrics::default());
        let leadership = Leadership::with(metrics.clone(), 1_000);
        Member { metrics, leadership, now: crate::telemetry::clock::now_ns() }
    }

    /// A member that follows this leader in term 1, and has never led.
    fn following(leader: u64) -> Member {
        let mut member = Member::new();
        member.goes(Role::Follower, 1, leader, SILENT);
        member
    }

    fn goes(&mut self, role: Role, term: u64, leader: u64, facts: Facts) {
        self.leadership.changed(&RoleChange { role, term, leader }, self.now, &facts);
    }

    fn leads(&mut self, term: u64, facts: Facts) {
        self.goes(Role::Leader, term, OWN, facts);
    }

    fn causes(&self) -> Vec<&'static str> {
        let count = |cause: LeaderCause| self.metrics.leader_changes[cause as usize].load(Relaxed);
        let all = LeaderCause::ALL.into_iter().filter(|cause| count(*cause) > 0);
        all.map(LeaderCause::as_str).collect()
    }

    /// Number and sum of the times without a leader, seconds.
    fn leaderless(&self) -> (u64, f64) {
        let ended = self.metrics.leaderless.snapshot();
        (ended.count, ended.sum_ns as f64 / 1e9)
    }
}

#[test]
fn the_cause_is_what_the_new_leader_knows() {
    let gone = Facts { connected: false, ..SILENT };
    let told = Facts { told: true, ..SILENT };
    for (facts, cause) in [
        (SILENT, "timeout"),
        (gone, "network"),
        (told, "transfer"),
        (Facts { told: true, ..gone }, "transfer"),
        (Facts { bad_disk: true, ..told }, "disk"),
        (Facts { member: false, ..gone }, "shutdown"),
    ] {
        let mut member = Member::following(3);
        member.goes(Role::PreCandidate, 1, 0, facts);
        member.leads(2, facts);
        assert_eq!(member.causes(), [cause], "its first leadership is no start");
    }
}

#[test]
fn a_connection_lost_when_the_leader_was_missed_is_not_forgotten() {
    let mut member = Member::following(3);
    member.goes(Role::PreCandidate, 1, 0, Facts { connected: false, ..SILENT });
    // It has started again before the election is over.
    member.leads(2, SILENT);
    assert_eq!(member.causes(), ["network"]);
    // One outage is not the next one.
    member.goes(Role::Follower, 3, 3, SILENT);
    member.goes(Role::PreCandidate, 3, 0, SILENT);
    member.leads(4, SILENT);
    assert_eq!(member.causes(), ["timeout", "network"]);
}

#[test]
fn who_never_knew_a_leader_starts() {
    let mut member = Member::new();
    member.leads(1, SILENT);
    assert_eq!(member.causes(), ["start"]);
}

#[test]
fn a_leader_without_a_quorum_says_so_when_it_is_back() {
    let mut member = Member::following(3);
    member.leads(2, SILENT);
    member.goes(Role::Follower, 2, 0, SILENT);
    member.goes(Role::PreCandidate, 2, 0, SILENT);
    member.leads(3, SILENT);
    assert_eq!(member.causes(), ["timeout", "quorum_lost"]);
    // A leader that stood still leads on, or others do.
    member.leadership.paused(2 * SECOND);
    // A candidate of a newer term that did not win: why it stood is not known here.
    member.goes(Role::Follower, 4, 0, SILENT);
    member.leads(5, SILENT);
    assert_eq!(member.causes(), ["timeout", "quorum_lost", "unknown"]);
}

#[test]
fn a_pause_counts_until_the_leader_is_heard_again() {
    let mut member = Member::following(3);
    member.leadership.paused(2 * SECOND);
    member.goes(Role::PreCandidate, 1, 0, SILENT);
    member.leads(2, SILENT);
    assert_eq!(member.causes(), ["process_pause"]);
    let mut member = Member::following(3);
    member.leadership.paused(2 * SECOND);
    member.leadership.heard_leader(member.now);
    member.goes(Role::PreCandidate, 1, 0, SILENT);
    member.leads(2, SILENT);
    assert_eq!(member.causes(), ["timeout"]);
}

#[test]
fn a_time_without_a_leader_begins_with_its_last_word() {
    for notices in [true, false] {
        let mut member = Member::following(3);
        let started = member.leaderless();
        member.now += 10 * SECOND;
        member.leadership.heard_leader(member.now);
        member.now += 2 * SECOND;
        if notices {
            member.goes(Role::Follower, 2, 0, SILENT);
            let since = member.metrics.leaderless_since.load(Relaxed);
            assert_eq!(since, member.now - 2 * SECOND + 1, "what the gauge counts from");
        }
        member.goes(Role::Follower, 2, 4, SILENT);
        let (count, sum) = member.leaderless();
        assert_eq!(count, started.0 + 1);
        assert!((sum - started.1 - 2.0).abs() < 0.2, "{sum} s, 2 s were without a leader");
        assert_eq!(member.metrics.leaderless_since.load(Relaxed), 0);
    }
}

#[test]
fn only_words_of_the_leader_tell_that_it_lives() {
    let wire = |from, kind: u8| {
        // The kind, receiver, sender and term of a message.
        Wire::decode(vec![8, kind, 16, OWN as u8, 24, from, 32, 1].into()).expect("a message")
    };
    let (heartbeat, answer) = (8, 4);
    let mut member = Member::following(3);
    let before = member.leadership.heard;
    member.leadership.heard(&[wire(4, heartbeat), wire(3, answer)], before + SECOND);
    assert_eq!(member.leadership.heard, before);
    member.leadership.heard(&[wire(4, heartbeat), wire(3, heartbeat)], before + SECOND);
    assert_eq!(member.leadership.heard, before + SECOND);
}
