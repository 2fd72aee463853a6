//! Messages that prove that a member lost what it had on its disk.
//!
//! Raft is safe as long as nobody forgets what it synced. A data directory that was restored from an
//! older copy breaks that, and so does a disk that lies about a sync. The library aborts on some of
//! these messages and silently waits for ever on others; here each is recognized before the library
//! sees it, and the member ends. Only certain facts count: a leader has every committed entry in its
//! log, so that what is committed here and is another entry there was lost by somebody. A lag
//! contradicts nothing.

use super::core::Core;
use super::types::NodeId;
use super::wire::{Wire, WireKind};
use raft::eraftpb::{self, MessageType};

/// Two members cannot both be right. The one that finds out takes part in nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// The log of this member ends before an index that it had acknowledged.
    #[error(
        "this member lost entries that it had acknowledged: its log ends at index {last}, but leader \
         {leader:x} knows from this member that it had index {acknowledged} on its disk. The data \
         directory was restored from an older copy, or the disk lost writes that it had confirmed as \
         synced. A vote of such a member can undo acknowledged writes of the cluster, so it must not \
         be started again on this directory: remove this member from the cluster, and add it again \
         with an empty data directory. If other members were restored as well, keep all directories \
         until it is known who has which writes"
    )]
    LostHere {
        /// The leader that knows.
        leader: NodeId,
        /// Index that this member acknowledged, at least.
        acknowledged: u64,
        /// Where its log ends.
        last: u64,
    },
    /// The log of the leader differs from what this member knows to be committed.
    #[error(
        "the other members lost what this member knows to be committed: its log is committed up to \
         index {commit}, and entry {index} is of term {own_term} here but {} in the log of leader \
         {leader:x}. So a majority of the members was restored from older copies, or their disks lost \
         writes that they had confirmed as synced. Do not remove this member or its data: they may be \
         the only ones with acknowledged writes. Stop writing, keep a copy of the data directories of \
         all members, and decide which writes are to stay: to go on with what the others have, remove \
         this member and add it again with an empty data directory; to go on with what was there \
         before, stop all members and start all of them from copies of one and the same time",
        there(.leader_term)
    )]
    LostElsewhere {
        /// The leader whose log differs.
        leader: NodeId,
        /// First index at which the message proves it.
        index: u64,
        /// Term at this index, or, where the own log no longer holds it, the term that is not
        /// exceeded there.
        own_term: u64,
        /// Term at this index in the leader's log; 0 if it ends before.
        leader_term: u64,
        /// What this member knows to be committed.
        commit: u64,
    },
}

fn there(term: &u64) -> String {
    match term {
        0 => "missing".into(),
        term => format!("of term {term}"),
    }
}

impl Core {
    /// What this message proves, if it is of a leader and proves anything.
    pub(super) fn contradiction(&self, wire: &Wire) -> Option<Contradiction> {
        let (m, raft) = (&wire.0, &self.raft.raft);
        // An older leader may lack what was committed after it.
        if m.term < raft.term || (m.term == raft.term && self.leads()) {
            return None;
        }
        match wire.kind() {
            // A leader says what is committed up to what this member acknowledged to it.
            WireKind::Heartbeat => {
                let last = raft.raft_log.last_index();
                let lost = m.commit > last;
                let (leader, acknowledged) = (m.from, m.commit);
                lost.then_some(Contradiction::LostHere { leader, acknowledged, last })
            }
            WireKind::Append => {
                let commit = raft.raft_log.committed;
                let entries = m.entries.iter().map(|e| (e.index, e.term));
                let known = entries.take_while(|(index, _)| *index <= commit);
                let mut at = [(m.index, m.log_term)].into_iter().chain(known);
                at.find_map(|position| self.differs(m.from, position))
            }
            WireKind::Snapshot => {
                let meta = m.get_snapshot().get_metadata();
                self.differs(m.from, (meta.index, meta.term))
            }
            _ => None,
        }
    }

    /// Whether a leader whose log holds this position (of term 0: ends before it) cannot have what is
    /// committed here.
    fn differs(&self, leader: NodeId, (at, leader_term): (u64, u64)) -> Option<Contradiction> {
        let log = &self.raft.raft.raft_log;
        let commit = log.committed;
        let base = log.first_index().saturating_sub(1);
        // Where this log no longer, or not yet knowingly, holds the position, terms do not fall.
        let index = at.max(base).min(commit);
        let own_term = log.term(index).ok()?;
        let differs = match leader_term {
            0 if at <= commit => at > 0,
            term if at < base => term > own_term,
            term if at > commit => term < own_term,
            term => term != own_term,
        };
        differs.then_some(Contradiction::LostElsewhere {
            leader,
            index,
            own_term,
            leader_term,
            commit,
        })
    }

    /// Whether an acknowledgement names what is not in the log of this leader: who says so has other
    /// entries committed. The library would count it, and never send there what is missing.
    pub(super) fn acknowledges_too_much(&self, wire: &Wire) -> bool {
        let (m, raft) = (&wire.0, &self.raft.raft);
        self.leads()
            && wire.kind() == WireKind::AppendResponse
            && !m.reject
            && m.term == raft.term
            && m.index > raft.raft_log.last_index()
    }

    /// Shows such a member that this log ends before, which it judges itself.
    pub(super) fn show_end_of_log(&self, wire: &Wire) -> Option<Wire> {
        // What a leader says waits for its vote to be on disk; the member acknowledges again.
        if self.held.vote_unsynced() {
            return None;
        }
        let mut m = eraftpb::Message::default();
        m.set_msg_type(MessageType::MsgAppend);
        (m.from, m.to) = (self.config.id, wire.from());
        (m.term, m.index, m.log_term) = (self.raft.raft.term, wire.0.index, 0);
        m.commit = self.raft.raft.raft_log.committed.min(m.index);
        Some(Wire(m))
    }
}
