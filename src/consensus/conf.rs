//! The configuration: who votes, who learns, and whether two configurations hold at once.

use super::types::{Error, NodeId};
use prost::Message as _;
use raft::eraftpb;

/// Members of the group at one index. All lists are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConfState {
    /// Voters.
    pub voters: Vec<NodeId>,
    /// Members that receive the log and do not vote.
    pub learners: Vec<NodeId>,
    /// Voters of the configuration that is being left; empty unless two hold at once.
    pub voters_outgoing: Vec<NodeId>,
    /// Voters that become learners when the old configuration is left.
    pub learners_next: Vec<NodeId>,
    /// Whether the leader leaves the joint configuration by itself.
    pub auto_leave: bool,
}

/// `raftpb.ConfState` (fields 1 to 5). Proto 2, hence not packed.
#[derive(Clone, PartialEq, prost::Message)]
struct Encoded {
    #[prost(uint64, repeated, packed = "false", tag = "1")]
    voters: Vec<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    learners: Vec<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    voters_outgoing: Vec<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "4")]
    learners_next: Vec<u64>,
    #[prost(bool, tag = "5")]
    auto_leave: bool,
}

impl ConfState {
    /// The stable form: an encoded `raftpb.ConfState`. Equal configurations give equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        let c = self.clone();
        Encoded {
            voters: c.voters,
            learners: c.learners,
            voters_outgoing: c.voters_outgoing,
            learners_next: c.learners_next,
            auto_leave: c.auto_leave,
        }
        .encode_to_vec()
    }

    /// Reads what [`ConfState::encode`] wrote.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the bytes are no `raftpb.ConfState` or contradict themselves.
    pub fn decode(bytes: &[u8]) -> Result<ConfState, Error> {
        let e =
            Encoded::decode(bytes).map_err(|_| Error::Configuration("not a raftpb.ConfState"))?;
        let conf = ConfState {
            voters: sorted(e.voters),
            learners: sorted(e.learners),
            voters_outgoing: sorted(e.voters_outgoing),
            learners_next: sorted(e.learners_next),
            auto_leave: e.auto_leave,
        };
        conf.check()?;
        Ok(conf)
    }

    /// Whether this member votes, in the new or the old configuration.
    pub fn votes(&self, id: NodeId) -> bool {
        self.voters.contains(&id) || self.voters_outgoing.contains(&id)
    }

    /// Whether this member is in the configuration in any part.
    pub fn contains(&self, id: NodeId) -> bool {
        self.votes(id) || self.learners.contains(&id) || self.learners_next.contains(&id)
    }

    /// Whether two configurations hold at once.
    pub fn is_joint(&self) -> bool {
        !self.voters_outgoing.is_empty()
    }

    /// Refuses what the library would abort on.
    pub(super) fn check(&self) -> Result<(), Error> {
        let bad = |what| Err(Error::Configuration(what));
        if self.voters.is_empty() && *self != ConfState::default() {
            return bad("no voters");
        }
        if self.contains(0) {
            return bad("member id zero");
        }
        if self.learners.iter().any(|id| self.votes(*id)) {
            return bad("a learner votes");
        }
        if self.learners_next.iter().any(|id| !self.voters_outgoing.contains(id)) {
            return bad("a learner-to-be does not vote in the old configuration");
        }
        if self.learners_next.iter().any(|id| self.voters.contains(id)) {
            return bad("a learner-to-be votes in the new configuration");
        }
        if self.auto_leave && !self.is_joint() {
            return bad("nothing to leave");
        }
        Ok(())
    }

    pub(super) fn from_raft(c: &eraftpb::ConfState) -> ConfState {
        ConfState {
            voters: sorted(c.voters.to_vec()),
            learners: sorted(c.learners.to_vec()),
            voters_outgoing: sorted(c.voters_outgoing.to_vec()),
            learners_next: sorted(c.learners_next.to_vec()),
            auto_leave: c.auto_leave,
        }
    }

    pub(super) fn to_raft(&self) -> eraftpb::ConfState {
        eraftpb::ConfState {
            voters: self.voters.clone(),
            learners: self.learners.clone(),
            voters_outgoing: self.voters_outgoing.clone(),
            learners_next: self.learners_next.clone(),
            auto_leave: self.auto_leave,
            ..Default::default()
        }
    }
}

/// The library keeps members in hash sets; sorted lists make equal configurations equal bytes.
fn sorted(mut ids: Vec<NodeId>) -> Vec<NodeId> {
    ids.sort_unstable();
    ids.dedup();
    ids
}
