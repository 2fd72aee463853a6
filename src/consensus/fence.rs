//! Fenced members: their log is as good as any, their state is not. One goes on receiving and storing
//! the log, so that it learns when it is removed, but gives no votes, stands for no election, and
//! hands over if it leads and the sound members can elect another. No leader hands over to one.

use super::core::Core;
use super::disk::is_quorum;
use super::types::NodeId;
use super::wire::WireKind;
use std::collections::BTreeSet;

/// What the shell says of fenced members, and what a fenced leader has tried.
#[derive(Default)]
pub(super) struct Fences {
    members: BTreeSet<NodeId>,
    /// To whom this fenced leader offered leadership last.
    offered: Option<NodeId>,
}

impl Core {
    /// Tells the core which members are fenced.
    pub fn set_fences(&mut self, members: impl IntoIterator<Item = NodeId>) {
        self.fences.members = members.into_iter().collect();
    }

    /// Whether this member is fenced: it would not follow a call to stand, and its vote is not
    /// given.
    pub(super) fn is_fenced(&self, id: NodeId) -> bool {
        self.fences.members.contains(&id)
    }

    /// What a fenced member does not take in: requests for its vote, and calls to stand.
    pub(super) fn turns_away(&self, kind: WireKind) -> bool {
        matches!(kind, WireKind::Vote | WireKind::PreVote | WireKind::TimeoutNow)
            && self.is_fenced(self.config.id)
    }

    /// Whether no election may begin here. A leader keeps its clock until it has handed over.
    pub(super) fn stands_back(&self) -> bool {
        self.is_fenced(self.config.id) && !self.leads()
    }

    /// Others notice that their leader is gone when they stand for election. One that does not would
    /// show a leader for ever that it has not heard of for an election timeout.
    pub(super) fn forget_silent_leader(&mut self) {
        let raft = &self.raft.raft;
        let (leader, term) = (raft.leader_id, raft.term);
        if leader != 0 && self.stands_back() && !self.is_active(leader) {
            self.raft.raft.become_follower(term, 0);
            self.fix_election_timeout();
        }
    }

    /// A fenced leader offers leadership to the voter that is furthest, until one has taken it. One
    /// that did not (its disk may hang) is asked again after another. While those that would vote
    /// are no quorum it leads on: its log is sound, and nobody could take its place.
    pub(super) fn hand_over_if_fenced(&mut self) {
        let own = self.config.id;
        if !self.is_fenced(own) || !self.leads() {
            self.fences.offered = None;
            return;
        }
        if self.raft.raft.lead_transferee.is_some() {
            return;
        }
        let takes = |id: NodeId| {
            id != own && self.conf.votes(id) && self.is_active(id) && !self.is_fenced(id)
        };
        let voters = self.conf.voters.iter().chain(&self.conf.voters_outgoing).copied();
        let sound: Vec<NodeId> = voters.filter(|id| takes(*id)).collect();
        if !is_quorum(&self.conf, &sound) {
            return;
        }
        let furthest = self
            .raft
            .raft
            .prs()
            .iter()
            .filter(|(id, _)| takes(**id))
            .max_by_key(|(id, progress)| {
                (self.fences.offered != Some(**id), progress.matched, **id)
            })
            .map(|(id, _)| *id);
        if let Some(to) = furthest {
            self.fences.offered = Some(to);
            self.raft.transfer_leader(to);
            self.fix_election_timeout();
        }
    }
}
