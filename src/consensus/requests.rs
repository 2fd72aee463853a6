//! Requests of clients: proposals, configuration changes and reads, offered once per step.
//!
//! All waiting proposals become one message: 300 single ones would fill the window of messages
//! under way to every follower.

use super::change::{ChangeOp, MemberChange};
use super::config::{BrokenRule, LEARNER_READY_PERCENT, MESSAGE_BYTES_MAX, UNCOMMITTED_BYTES_MAX};
use super::core::Core;
use super::types::{Effect, Millis, NodeId, Refusal, Token};
use bytes::Bytes;
use raft::eraftpb::{self, EntryType, MessageType};
use raft::{StateRole, eraftpb::Message};

/// What arrived since the last step. The buffers are kept between steps.
#[derive(Default)]
pub(super) struct Requests {
    proposals: Vec<(Token, Bytes)>,
    in_term: Vec<(Token, Bytes, u64)>,
    changes: Vec<(Token, MemberChange)>,
}

impl Requests {
    pub(super) fn propose(&mut self, token: Token, data: Bytes) {
        self.proposals.push((token, data));
    }

    pub(super) fn propose_in_term(&mut self, token: Token, data: Bytes, term: u64) {
        self.in_term.push((token, data, term));
    }

    pub(super) fn change(&mut self, token: Token, change: MemberChange) {
        self.changes.push((token, change));
    }
}

impl Core {
    pub(super) fn offer_requests(&mut self, now: Millis, out: &mut Vec<Effect>) {
        self.offer_changes(out);
        self.admit_in_term(out);
        self.offer_proposals(out);
        self.offer_reads(now, out);
    }

    /// Messages of this step may have ended the leadership that a proposal counts on.
    fn admit_in_term(&mut self, out: &mut Vec<Effect>) {
        let led = self.leads().then_some(self.raft.raft.term);
        for (token, data, term) in self.requests.in_term.drain(..) {
            if led == Some(term) {
                self.requests.proposals.push((token, data));
            } else {
                out.push(Effect::Refuse { token, why: Refusal::NotLeader });
            }
        }
    }

    fn offer_proposals(&mut self, out: &mut Vec<Effect>) {
        if self.requests.proposals.is_empty() {
            return;
        }
        let mut proposals = std::mem::take(&mut self.requests.proposals);
        let refusal = match () {
            () if self.raft.raft.leader_id == 0 || self.installing.is_some() => {
                Some(Refusal::NoLeader)
            }
            () if self.overloaded() => Some(Refusal::Overloaded),
            () => None,
        };
        match refusal {
            Some(why) => {
                let refuse = |(token, _)| Effect::Refuse { token, why };
                out.extend(proposals.drain(..).map(refuse));
            }
            None if self.leads() => self.append(&mut proposals, out),
            None => self.forward(&mut proposals, out),
        }
        self.requests.proposals = proposals;
    }

    /// Puts proposals into the own log, as many as the bound of uncommitted bytes allows.
    fn append(&mut self, proposals: &mut Vec<(Token, Bytes)>, out: &mut Vec<Effect>) {
        let max = UNCOMMITTED_BYTES_MAX as usize;
        let mut uncommitted = self.raft.raft.uncommitted_size();
        let mut tokens = Vec::with_capacity(proposals.len());
        let mut entries = Vec::with_capacity(proposals.len());
        for (token, data) in proposals.drain(..) {
            // One proposal is always allowed, however large, or it could never be made.
            if uncommitted > 0 && uncommitted + data.len() > max {
                out.push(Effect::Refuse { token, why: Refusal::Overloaded });
                continue;
            }
            uncommitted += data.len();
            tokens.push(token);
            entries.push(normal(data));
        }
        if tokens.is_empty() {
            return;
        }
        let first_index = self.raft.raft.raft_log.last_index() + 1;
        match self.raft.step(self.proposal(entries)) {
            Ok(()) => {
                let term = self.raft.raft.term;
                out.push(Effect::Proposed { first_index, term, tokens });
            }
            Err(_) => refuse_all(tokens, out),
        }
        self.fix_election_timeout();
    }

    /// Sends proposals to the leader, in messages of a size that the peers' connection takes.
    fn forward(&mut self, proposals: &mut Vec<(Token, Bytes)>, out: &mut Vec<Effect>) {
        let mut proposals = proposals.drain(..).peekable();
        while proposals.peek().is_some() {
            let (mut tokens, mut entries, mut bytes) = (Vec::new(), Vec::new(), 0);
            while let Some((token, data)) = proposals
                .next_if(|(_, data)| bytes == 0 || bytes + data.len() as u64 <= MESSAGE_BYTES_MAX)
            {
                bytes += data.len() as u64 + 1;
                tokens.push(token);
                entries.push(normal(data));
            }
            if self.raft.step(self.proposal(entries)).is_err() {
                refuse_all(tokens, out);
            }
        }
        self.fix_election_timeout();
    }

    fn proposal(&self, entries: Vec<eraftpb::Entry>) -> Message {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.config.id;
        message.set_entries(entries.into());
        message
    }

    fn offer_changes(&mut self, out: &mut Vec<Effect>) {
        for (token, change) in std::mem::take(&mut self.requests.changes) {
            if let Err(why) = self.offer_change(token, &change, out) {
                out.push(Effect::Refuse { token, why });
            }
        }
    }

    /// Checks first: the library silently replaces a change that it refuses by an empty entry.
    fn offer_change(
        &mut self,
        token: Token,
        change: &MemberChange,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        if !self.leads() {
            return Err(Refusal::NotLeader);
        }
        if self.overloaded() {
            return Err(Refusal::Overloaded);
        }
        if self.raft.raft.has_pending_conf() || self.conf.is_joint() {
            return Err(Refusal::ChangePending);
        }
        change.fits(&self.conf)?;
        self.leaves_a_healthy_quorum(change)?;
        self.promotes_only_ready_learners(change)?;
        let mut entry = eraftpb::Entry::default();
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        entry.data = change.data();
        entry.context = change.etcd_context();
        let first_index = self.raft.raft.raft_log.last_index() + 1;
        self.raft.step(self.proposal(vec![entry])).map_err(|_| Refusal::Dropped)?;
        self.fix_election_timeout();
        let term = self.raft.raft.term;
        out.push(Effect::Proposed { first_index, term, tokens: vec![token] });
        Ok(())
    }

    /// A change must not make the group depend on members that are not there. A voter that is added
    /// counts as inactive until it has been heard, as in etcd, except when it joins a sole voter.
    fn leaves_a_healthy_quorum(&self, change: &MemberChange) -> Result<(), Refusal> {
        let after = change.voters_after(&self.conf);
        let active = after.iter().filter(|id| self.is_active(**id)).count();
        let grows_from_one = self.conf.voters.len() == 1 && after.len() == 2;
        let unchanged = after.iter().all(|id| self.conf.voters.contains(id))
            && after.len() == self.conf.voters.len();
        let quorum = after.len() / 2 + 1;
        let healthy = active >= quorum || (grows_from_one && active >= 1) || unchanged;
        if after.is_empty() || !healthy {
            return Err(Refusal::UnhealthyQuorum);
        }
        Ok(())
    }

    /// Heard within the last election timeout.
    pub(super) fn is_active(&self, id: NodeId) -> bool {
        let recently = |tick: &u64| self.ticks - tick <= self.config.election_tick as u64;
        id == self.config.id || self.heard.get(&id).is_some_and(recently)
    }

    fn promotes_only_ready_learners(&self, change: &MemberChange) -> Result<(), Refusal> {
        let last = self.raft.raft.raft_log.last_index();
        for (op, id) in &change.steps {
            if *op != ChangeOp::AddVoter || !self.conf.learners.contains(id) {
                continue;
            }
            let matched = self.raft.raft.prs().get(*id).map_or(0, |p| p.matched);
            if matched.saturating_mul(100) < last.saturating_mul(LEARNER_READY_PERCENT) {
                return Err(Refusal::LearnerNotReady);
            }
        }
        Ok(())
    }

    /// Asks for one commit index for all waiting reads.
    pub(super) fn offer_reads(&mut self, now: Millis, out: &mut Vec<Effect>) {
        let led = self.leads().then_some(self.raft.raft.term);
        let misled = self.reads.misled(led).into_iter();
        out.extend(misled.map(|token| Effect::Refuse { token, why: Refusal::NotLeader }));
        let raft = &self.raft.raft;
        let answerable = match raft.state {
            StateRole::Leader => raft.commit_to_current_term(),
            StateRole::Follower => raft.leader_id != 0,
            StateRole::PreCandidate | StateRole::Candidate => false,
        };
        if !answerable || self.installing.is_some() {
            return;
        }
        let Some(context) = self.reads.ask(now) else { return };
        let shared = self.config.breaks(BrokenRule::SharedReadContext);
        let sent = if shared { context[16..].to_vec() } else { context.to_vec() };
        let before = self.read_traces();
        self.raft.read_index(sent);
        self.fix_election_timeout();
        if self.read_traces() == before {
            // Neither waiting, nor answered, nor on its way to the leader: it vanished.
            self.reads.dropped();
        }
    }

    /// Where a read request can be after it was made.
    fn read_traces(&self) -> (usize, usize, usize) {
        let raft = &self.raft.raft;
        (raft.pending_read_count(), raft.ready_read_count(), raft.msgs.len())
    }
}

fn normal(data: Bytes) -> eraftpb::Entry {
    eraftpb::Entry { data, ..Default::default() }
}

fn refuse_all(tokens: Vec<Token>, out: &mut Vec<Effect>) {
    out.extend(tokens.into_iter().map(|token| Effect::Refuse { token, why: Refusal::Dropped }));
}
