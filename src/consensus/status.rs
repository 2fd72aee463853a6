//! What a core says about itself, for pages, metrics and tests.

use super::conf::ConfState;
use super::core::Core;
use super::types::{NodeId, Role};
use raft::ProgressState;

/// Heartbeats that a leader may be late with before it counts as silent.
const SILENT_HEARTBEATS: usize = 1;

/// A snapshot of a core's state. Cheap: nothing is walked but the list of peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Own identity.
    pub id: NodeId,
    /// Own role.
    pub role: Role,
    /// Own term.
    pub term: u64,
    /// Vote in that term, 0 for nobody.
    pub vote: NodeId,
    /// The leader, 0 if none is known.
    pub leader: NodeId,
    /// Highest committed index.
    pub commit: u64,
    /// Highest index given to the state machine.
    pub handed_out: u64,
    /// Highest index applied in memory.
    pub applied: u64,
    /// Highest index applied durably.
    pub durable: u64,
    /// First index in the in-memory log.
    pub first: u64,
    /// Last index in the log.
    pub last: u64,
    /// Term of the last entry.
    pub last_term: u64,
    /// Highest index on the own disk. The distance of `commit` shows how much slower it is than the
    /// others'.
    pub persisted: u64,
    /// Bytes of the in-memory log.
    pub log_bytes: usize,
    /// Bytes handed out and not applied.
    pub unapplied_bytes: usize,
    /// Bytes proposed by this leader and not committed.
    pub uncommitted_bytes: usize,
    /// Batches given to the disk and not confirmed.
    pub batches_in_flight: usize,
    /// Messages that wait for the disk.
    pub messages_held: usize,
    /// Reads that are not answered.
    pub reads_waiting: usize,
    /// Whether a snapshot is being installed.
    pub installing: bool,
    /// Whether proposals are refused for lack of room.
    pub overloaded: bool,
    /// Newest configuration handed out.
    pub conf_state: ConfState,
    /// The other members and this one, by identity; empty unless this member leads.
    pub peers: Vec<Peer>,
}

/// A leader's view of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Identity.
    pub id: NodeId,
    /// Whether it does not vote.
    pub learner: bool,
    /// Highest index known to be in its log.
    pub matched: u64,
    /// Next index to send.
    pub next: u64,
    /// How the leader sends to it.
    pub flow: Flow,
    /// Whether it was heard within the last election timeout.
    pub active: bool,
}

/// How a leader sends entries to a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// One message at a time, to find the last common entry.
    Probe,
    /// A stream.
    Replicate,
    /// Nothing, until a snapshot has arrived.
    Snapshot,
}

impl Core {
    /// State for pages, metrics and tests.
    pub fn status(&self) -> Status {
        let raft = &self.raft.raft;
        let log = self.raft.store();
        Status {
            id: self.config.id,
            role: self.role.role,
            term: raft.term,
            vote: raft.vote,
            leader: raft.leader_id,
            commit: raft.raft_log.committed,
            handed_out: self.handed,
            applied: self.applied,
            durable: self.durable,
            first: log.first(),
            last: raft.raft_log.last_index(),
            last_term: self.raft.raft.raft_log.last_term(),
            persisted: raft.raft_log.persisted,
            log_bytes: log.bytes(),
            unapplied_bytes: self.unapplied_bytes,
            uncommitted_bytes: raft.uncommitted_size(),
            batches_in_flight: self.held.batches(),
            messages_held: self.held.messages(),
            reads_waiting: self.reads.len(),
            installing: self.installing.is_some(),
            overloaded: self.overloaded(),
            conf_state: self.conf.clone(),
            peers: if self.leads() { self.peers() } else { Vec::new() },
        }
    }

    /// Commit index, and the highest index that is on the own disk.
    pub fn positions(&self) -> (u64, u64) {
        let log = &self.raft.raft.raft_log;
        (log.committed, log.persisted)
    }

    /// Whether no leader is heard as often as one speaks: an election may be near.
    pub fn leader_is_silent(&self) -> bool {
        let raft = &self.raft.raft;
        let silent = raft.election_elapsed > SILENT_HEARTBEATS * self.config.heartbeat_tick;
        !self.leads() && (raft.leader_id == 0 || silent)
    }

    /// Whether this member stood for election in the present term because the leader before told it
    /// to, not because it missed one.
    pub fn was_told_to_lead(&self) -> bool {
        self.told_in != 0 && self.told_in == self.raft.raft.term
    }

    /// Whether this one is in the newest configuration that was handed out.
    pub fn has_member(&self, id: NodeId) -> bool {
        self.conf.contains(id)
    }

    fn peers(&self) -> Vec<Peer> {
        let peer = |(id, progress): (&NodeId, &raft::Progress)| Peer {
            id: *id,
            learner: !self.conf.votes(*id),
            matched: progress.matched,
            next: progress.next_idx,
            flow: match progress.state {
                ProgressState::Probe => Flow::Probe,
                ProgressState::Replicate => Flow::Replicate,
                ProgressState::Snapshot => Flow::Snapshot,
            },
            active: self.is_active(*id),
        };
        let mut peers: Vec<Peer> = self.raft.raft.prs().iter().map(peer).collect();
        peers.sort_unstable_by_key(|p| p.id);
        peers
    }
}
