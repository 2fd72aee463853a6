//! What a request is told whose time is over. Clients of etcd look at the text, so each of them is
//! given in the situation in which etcd gives it:
//!
//! | text | a write, when the time is over |
//! |---|---|
//! | possibly due to previous leader failure | it began within two election timeouts before the present leader was learned of: it may have been on its way to the one before |
//! | possibly due to connection lost | the leader, or on the leader a quorum, was not connected all the while |
//! | request timed out | otherwise, without a leader too |
//!
//! A linearizable read asks a new leader again by itself, where etcd fails it at once. Only if its time
//! runs out all the same and the leader changed meanwhile, it says that ("leader changed").

use super::handle::{Handle, Refused};
use crate::machine::Member;
use std::sync::atomic::Ordering::Relaxed;

/// Election timeouts before a new leader is known in which the old one may have been gone already.
const LOST_ELECTION_TIMEOUTS: u64 = 2;
const NS_PER_MS: u64 = 1_000_000;

/// What is known when the time is over. Times are ns of the process clock.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// When the request began.
    began: u64,
    /// When this member learned of the leader that it knows, or knew last; `None` before the first.
    learned: Option<u64>,
    election_ns: u64,
    /// Whether the leader, or on the leader a quorum, was connected since the beginning; `None`
    /// without a leader.
    connected: Option<bool>,
}

impl Seen {
    fn write(self) -> Refused {
        let window = LOST_ELECTION_TIMEOUTS * self.election_ns;
        let lost_before = |learned: u64| self.began < learned && learned - self.began < window;
        if self.learned.is_some_and(lost_before) {
            return Refused::TimeoutLeaderFail;
        }
        match self.connected {
            Some(false) => Refused::TimeoutConnectionLost,
            Some(true) | None => Refused::Timeout,
        }
    }

    fn read(self) -> Refused {
        match self.learned {
            Some(learned) if learned > self.began => Refused::LeaderChanged,
            _ => Refused::Timeout,
        }
    }
}

impl Handle {
    /// A write that began at `began` has no outcome within its time.
    pub(super) fn write_timed_out(&self, began: u64) -> Refused {
        self.seen(began).write()
    }

    /// A linearizable read that began at `began` could not be confirmed within its time.
    pub(super) fn read_timed_out(&self, began: u64) -> Refused {
        self.seen(began).read()
    }

    fn seen(&self, began: u64) -> Seen {
        let raft = self.raft();
        Seen {
            began,
            learned: self.metrics().leader_learned.load(Relaxed).checked_sub(1),
            election_ns: self.timing().election_ms * NS_PER_MS,
            connected: match raft.leader {
                0 => None,
                _ if raft.is_leader => Some(self.quorum_connected_since(began)),
                leader => Some(self.connected_since(leader, began)),
            },
        }
    }

    fn connected_since(&self, member: u64, began: u64) -> bool {
        was_there(self.peers().connected_since(member), began)
    }

    fn quorum_connected_since(&self, began: u64) -> bool {
        let members = self.reader().members();
        let own = self.identity().member_id;
        is_quorum(members.iter(), |id| id == own || self.connected_since(id, began))
    }
}

/// Whether a connection that has been up since then was up all the while.
fn was_there(since: Option<u64>, began: u64) -> bool {
    since.is_some_and(|since| since < began)
}

/// Whether more than half of the voters are there.
fn is_quorum<'a>(members: impl Iterator<Item = &'a Member>, there: impl Fn(u64) -> bool) -> bool {
    let voters: Vec<u64> = members.filter(|m| !m.is_learner).map(|member| member.id).collect();
    voters.iter().filter(|id| there(**id)).count() > voters.len() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELECTION: u64 = 1_000;
    const SEEN: Seen =
        Seen { began: 10_000, learned: Some(5_000), election_ns: ELECTION, connected: Some(true) };

    #[test]
    fn a_write_learns_what_probably_happened() {
        let learned = |at| Seen { learned: Some(at), ..SEEN }.write();
        assert_eq!(learned(5_000), Refused::Timeout, "long before it began");
        assert_eq!(learned(10_000), Refused::Timeout, "it went to the present leader");
        assert_eq!(learned(10_001), Refused::TimeoutLeaderFail);
        assert_eq!(learned(11_999), Refused::TimeoutLeaderFail);
        assert_eq!(learned(12_000), Refused::Timeout, "the one before was there when it began");
        assert_eq!(Seen { learned: None, connected: None, ..SEEN }.write(), Refused::Timeout);
        assert_eq!(Seen { connected: None, ..SEEN }.write(), Refused::Timeout, "no leader");
        let cut = Seen { connected: Some(false), ..SEEN };
        assert_eq!(cut.write(), Refused::TimeoutConnectionLost);
        let both = Seen { learned: Some(10_500), ..cut };
        assert_eq!(both.write(), Refused::TimeoutLeaderFail, "the first that fits, as in etcd");
    }

    #[test]
    fn a_read_learns_of_a_new_leader_only() {
        assert_eq!(SEEN.read(), Refused::Timeout);
        assert_eq!(Seen { connected: Some(false), ..SEEN }.read(), Refused::Timeout);
        assert_eq!(Seen { learned: Some(10_001), ..SEEN }.read(), Refused::LeaderChanged);
        assert_eq!(Seen { learned: None, ..SEEN }.read(), Refused::Timeout);
    }

    #[test]
    fn a_connection_that_came_back_meanwhile_was_lost() {
        assert!(was_there(Some(9_999), 10_000));
        assert!(!was_there(Some(10_000), 10_000) && !was_there(Some(10_001), 10_000));
        assert!(!was_there(None, 10_000));
    }

    #[test]
    fn voters_alone_make_a_quorum() {
        let quorum = |voters: u64, learners: u64, there: &[u64]| {
            let member = |id| Member {
                id,
                peer_urls: Vec::new(),
                is_learner: id > voters,
                name: String::new(),
                client_urls: Vec::new(),
            };
            let members: Vec<Member> = (1..=voters + learners).map(member).collect();
            is_quorum(members.iter(), |id| there.contains(&id))
        };
        assert!(quorum(1, 0, &[1]) && quorum(3, 0, &[1, 3]) && quorum(4, 0, &[1, 2, 3]));
        assert!(!quorum(3, 0, &[1]) && !quorum(4, 0, &[1, 2]) && !quorum(2, 0, &[1]));
        // Learners neither help nor are missed.
        assert!(!quorum(3, 2, &[1, 4, 5]) && quorum(3, 2, &[1, 2]));
    }
}
