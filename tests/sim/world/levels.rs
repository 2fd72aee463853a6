//! Members of two versions: which one a start is of, and somebody who finalizes the upgrade.

use assay::machine::level::{FIRST, OWN, stamp};
use assay::proto::etcdserverpb::{FeatureLevelSetRequest, InternalRaftRequest};

use super::super::frame::Verdict;
use super::lives::Ending;
use super::{Event, World};
use crate::check;

impl World {
    /// Level of the program that a member is started with: people go forth and back with one, until
    /// it meets a command that only the newer one knows.
    pub(super) fn level_of_start(&mut self, at: usize) -> u32 {
        let wanted = self.members[at].next_level.take();
        if !self.plan.levels || self.healed.is_some() || self.members[at].upgraded {
            return OWN;
        }
        wanted.unwrap_or_else(|| if self.level_rng.below(2) == 0 { FIRST } else { OWN })
    }

    /// A member ended before it applied what it does not know.
    pub(super) fn newer_needed(&mut self, at: usize, text: &str) -> Verdict {
        self.say(at, &format!("needs a newer program: {text}"));
        let level = self.members[at].level;
        let cluster = self.oracle.model.level;
        check!(level < OWN && cluster == OWN, "level {level} of {cluster} stopped: {text}");
        self.trace(at, "newer", 0);
        self.report.stopped_for_newer += 1;
        self.members[at].upgraded = true;
        self.members[at].disk.crash();
        self.gone(at, Ending::Killed);
        Ok(())
    }

    /// A step of somebody who upgrades one member after the other, finalizes that when all are
    /// there, and then goes back with some all the same.
    pub(super) fn upgrade(&mut self) -> Verdict {
        if self.healed.is_some() {
            return Ok(());
        }
        let election = self.plan.election();
        let next = election / 4 + self.level_rng.below(election);
        self.push(next, Event::Upgrade);
        let raised = self.oracle.model.level == OWN;
        let next = if raised { FIRST } else { OWN };
        let members: Vec<usize> = (0..self.members.len())
            .filter(|at| {
                let member = &self.members[*at];
                member.node.is_some() && !member.upgraded && member.level != next
            })
            .collect();
        if members.is_empty() {
            return if raised { Ok(()) } else { self.finalize() };
        }
        let at = members[self.level_rng.below(members.len() as u64) as usize];
        self.trace(at, "exchange", u64::from(next));
        self.members[at].next_level = Some(next);
        // What a process that is killed has applied may be in its log alone.
        if self.level_rng.below(2) == 0 {
            return self.close(at);
        }
        self.kill(at, Ending::Killed);
        Ok(())
    }

    /// Raises the level if every member is there, as the node does; all of them know it.
    fn finalize(&mut self) -> Verdict {
        let here = |member: &super::Member| member.retired || member.node.is_some();
        if !self.members.iter().all(here) {
            return Ok(());
        }
        let Some(leader) = self.leader() else { return Ok(()) };
        self.trace(leader, "finalize", 0);
        let mut request = InternalRaftRequest {
            feature_level_set: Some(FeatureLevelSetRequest { level: OWN }),
            ..InternalRaftRequest::default()
        };
        stamp(&mut request);
        self.with_node(leader, |world, node| {
            world.propose_in(leader, node, request, None);
            Ok(())
        })
    }

    /// In the end every member is at the level that the log says.
    pub(super) fn levels_agree(&self) -> Verdict {
        for at in (0..self.members.len()).filter(|at| self.belongs(*at)) {
            let Some(node) = &self.members[at].node else { continue };
            let (level, expected) = (node.reader.feature_level(), self.oracle.model.level);
            check!(level == expected, "{} is at level {level}, the log says {expected}", node.id);
        }
        Ok(())
    }
}
