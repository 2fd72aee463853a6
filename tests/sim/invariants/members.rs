//! Configurations: the same at the same index everywhere, adjacent ones share a quorum, and the
//! members that the machine knows are those of the configuration.

use std::collections::{BTreeMap, BTreeSet};

use assay::consensus::{Committed, ConfState, MemberChange};
use assay::machine::Machine;

use super::super::frame::Verdict;
use crate::check;

#[derive(Default)]
pub struct Members {
    /// Configuration from an index on.
    by_index: BTreeMap<u64, ConfState>,
    /// A change of several members at once was made: the machine is told the first step only.
    several: bool,
    pub changes: u64,
}

impl Members {
    /// The newest configuration that was handed to any member.
    pub fn newest(&self) -> Option<&ConfState> {
        self.by_index.last_key_value().map(|(_, conf)| conf)
    }

    /// A committed entry changes the configuration.
    pub fn committed(&mut self, committed: &Committed) -> Verdict {
        let Some(conf) = &committed.conf_state else { return Ok(()) };
        let index = committed.entry.index;
        if let Some(known) = self.by_index.get(&index) {
            check!(known == conf, "configuration at {index} is {conf:?} here and {known:?} there");
            return Ok(());
        }
        let change = MemberChange::of(&committed.entry);
        self.several |= change.is_some_and(|change| change.steps.len() > 1);
        if let Some((_, before)) = self.by_index.last_key_value()
            && !before.is_joint()
            && !conf.is_joint()
        {
            let set = |conf: &ConfState| conf.voters.iter().copied().collect::<BTreeSet<u64>>();
            let apart = set(before).symmetric_difference(&set(conf)).count();
            // The entries that found a cluster add one voter each.
            check!(apart <= 1, "from {before:?} to {conf:?} without a joint configuration");
        }
        self.changes += 1;
        self.by_index.insert(index, conf.clone());
        Ok(())
    }

    /// A machine has applied a change.
    pub fn applied(&self, id: u64, machine: &Machine, conf: &ConfState) -> Verdict {
        if self.several || conf.is_joint() {
            return Ok(());
        }
        let reader = machine.reader();
        let members = reader.members();
        let known: Vec<(u64, bool)> = members.iter().map(|m| (m.id, m.is_learner)).collect();
        let voters = conf.voters.iter().map(|id| (*id, false));
        let mut expected: Vec<(u64, bool)> =
            voters.chain(conf.learners.iter().map(|id| (*id, true))).collect();
        expected.sort_unstable();
        check!(known == expected, "{id} lists members {known:?}, the configuration {expected:?}");
        Ok(())
    }
}
