//! A fenced member: its log is as good as any, its state is not. It goes on receiving and storing
//! the log, so that it learns when it is removed, but gives no votes, stands for no election, and
//! hands over if it leads.

use super::core::Core;
use super::wire::WireKind;

impl Core {
    /// Tells the core whether this member is fenced.
    pub fn set_fenced(&mut self, fenced: bool) {
        self.fenced = fenced;
    }

    /// What a fenced member does not take in: requests for its vote, and calls to stand.
    pub(super) fn turns_away(&self, kind: WireKind) -> bool {
        self.fenced && matches!(kind, WireKind::Vote | WireKind::PreVote | WireKind::TimeoutNow)
    }

    /// Whether no election may begin here. A leader keeps its clock until it has handed over.
    pub(super) fn stands_back(&self) -> bool {
        self.fenced && !self.leads()
    }

    /// A fenced leader offers leadership to the voter that is furthest, until one has taken it.
    pub(super) fn hand_over_if_fenced(&mut self) {
        if !self.fenced || !self.leads() || self.raft.raft.lead_transferee.is_some() {
            return;
        }
        let own = self.config.id;
        let furthest = self
            .raft
            .raft
            .prs()
            .iter()
            .filter(|(id, _)| **id != own && self.conf.votes(**id) && self.is_active(**id))
            .max_by_key(|(id, progress)| (progress.matched, **id))
            .map(|(id, _)| *id);
        if let Some(to) = furthest {
            self.raft.transfer_leader(to);
            self.fix_election_timeout();
        }
    }
}
