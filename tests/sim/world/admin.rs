//! Changes of the membership: somebody adds, promotes and removes members while things fail.

use assay::consensus::{ChangeOp, ConfState, Input, MemberChange, Token};
use bytes::Bytes;

use super::super::frame::Verdict;
use super::super::node::{Birth, member_json};
use super::super::plan::MEMBERS_MAX;
use super::{Event, World};

/// Voters that a change leaves at most.
const VOTERS_MAX: usize = 5;

impl World {
    /// Asks the leader for a change, if there is one.
    pub(super) fn admin(&mut self) -> Verdict {
        if self.healed.is_some() {
            return Ok(());
        }
        let election = self.plan.election();
        let next = election / 2 + self.client_rng.below(3 * election);
        self.push(next, Event::Admin);
        let Some(leader) = self.leader() else { return Ok(()) };
        let Some(conf) = self.members[leader].node.as_ref().map(|n| n.core.status().conf_state)
        else {
            return Ok(());
        };
        let steps = self.draw_steps(&conf, self.members[leader].id);
        let Some((op, id)) = steps.first().copied() else { return Ok(()) };
        let context = match op {
            ChangeOp::AddVoter if conf.learners.contains(&id) => promotion(id),
            ChangeOp::AddVoter => member_json(id, false),
            ChangeOp::AddLearner => member_json(id, true),
            ChangeOp::Remove => Bytes::new(),
        };
        self.next_id += 1;
        let change = MemberChange { request: self.next_id, steps, context };
        let token = Token(self.next_id);
        self.trace(leader, "change", op as u64 | id << 4);
        self.say(leader, &format!("is asked for {:?}", change.steps));
        self.with_node(leader, |world, node| {
            node.inputs.push(Input::Change { token, change });
            world.wake_node(leader, node);
            Ok(())
        })
    }

    fn draw_steps(&mut self, conf: &ConfState, leader: u64) -> Vec<(ChangeOp, u64)> {
        let fresh = (self.members.len() < MEMBERS_MAX).then(|| self.members.len() as u64 + 1);
        let one_of = |ids: &[u64], n: u64| ids.get(n as usize % ids.len().max(1)).copied();
        let n = self.client_rng.below(1_000);
        let learner = one_of(&conf.learners, n);
        let leaves =
            self.plan.leaders_leave && !n.is_multiple_of(4) && conf.voters.contains(&leader);
        let voter = if leaves { Some(leader) } else { one_of(&conf.voters, n) };
        let room = conf.voters.len() < VOTERS_MAX;
        match self.client_rng.below(10) {
            0..3 => match fresh {
                Some(id) => vec![(ChangeOp::AddLearner, self.join(id))],
                None => Vec::new(),
            },
            3..6 => {
                learner.filter(|_| room).map(|id| (ChangeOp::AddVoter, id)).into_iter().collect()
            }
            6 => match fresh.filter(|_| room) {
                Some(id) => vec![(ChangeOp::AddVoter, self.join(id))],
                None => Vec::new(),
            },
            7 => learner.map(|id| (ChangeOp::Remove, id)).into_iter().collect(),
            8 => voter
                .filter(|_| conf.voters.len() > 1)
                .map(|id| (ChangeOp::Remove, id))
                .into_iter()
                .collect(),
            // Two at once: a joint configuration.
            _ => match (fresh, learner, voter) {
                (_, Some(learner), Some(voter)) => {
                    vec![(ChangeOp::AddVoter, learner), (ChangeOp::Remove, voter)]
                }
                (Some(id), None, Some(voter)) => {
                    vec![(ChangeOp::AddVoter, self.join(id)), (ChangeOp::Remove, voter)]
                }
                _ => Vec::new(),
            },
        }
    }

    /// The process of a member that is about to be added.
    fn join(&mut self, id: u64) -> u64 {
        self.add_member(id, Birth::Joiner);
        id
    }
}

/// etcd's form of a promotion: the member with a mark.
fn promotion(id: u64) -> Bytes {
    format!(r#"{{"id":{id},"peerURLs":["http://m{id}:2380"],"isPromote":true}}"#).into()
}
