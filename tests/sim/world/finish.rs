//! Healing: progress in time, then quiet, and at the end everybody is equal.

use super::super::frame::{Verdict, Violation};
use super::super::linear::{self, Verdict as Judged};
use super::super::node::Node;
use super::super::plan::RATE_PERMILLE;
use super::{CHECK_EVERY, Event, MS, Report, SETTLE_LIMIT, World};
use crate::check;
use assay::mvcc::{KeyRange, RangeQuery};
use bytes::Bytes;

impl World {
    /// Whether a member is alive and in the newest configuration.
    pub(super) fn belongs(&self, at: usize) -> bool {
        let member = &self.members[at];
        let conf = self.oracle.members.newest();
        member.node.is_some() && !member.retired && conf.is_none_or(|conf| conf.contains(member.id))
    }

    /// Ten election timeouts after the last fault.
    pub(super) fn progress(&mut self) -> Verdict {
        let since = self.oracle.acked_count - self.acked_at_heal;
        check!(since > 0, "no request was answered in the ten election timeouts after healing");
        self.quiet = Some(self.now);
        Ok(())
    }

    /// Looks at idle members; true when everything has settled.
    pub(super) fn check(&mut self) -> Result<bool, Violation> {
        self.push(CHECK_EVERY, Event::Check);
        let Some(quiet) = self.quiet else {
            let at = self.fault_rng.below(self.members.len() as u64) as usize;
            self.hash(at)?;
            return Ok(false);
        };
        let Some(why) = self.unsettled() else {
            for at in 0..self.members.len() {
                if self.belongs(at) {
                    self.hash(at)?;
                }
            }
            self.all_equal()?;
            self.watchers.iter().try_for_each(|watcher| watcher.finished(&self.oracle.model))?;
            self.levels_agree()?;
            self.judge_histories()?;
            return Ok(true);
        };
        self.leases_end(quiet)?;
        check!(
            self.now < quiet + SETTLE_LIMIT,
            "not settled after {} ms: {why}",
            SETTLE_LIMIT / MS
        );
        Ok(false)
    }

    /// Nobody keeps a lease alive any more: it ends with the time that the leader gave it, a try
    /// that was refused, and what the disks take.
    fn leases_end(&self, quiet: u64) -> Verdict {
        let longest = self.oracle.model.leases.values().map(|lease| lease.ttl).max();
        let Some(ttl_s) = longest else { return Ok(()) };
        let ttl = ttl_s.max(0) as u64 * (1_000 + RATE_PERMILLE) * MS;
        let most = ttl + 3 * self.plan.election() + 2_000 * MS;
        check!(
            self.now < quiet.max(self.led_since) + most,
            "leases {:?} should have ended",
            self.oracle.model.leases
        );
        Ok(())
    }

    /// Compares a member's state with the others' and the model, if nothing is under way there.
    fn hash(&mut self, at: usize) -> Verdict {
        let Some(node) = self.members[at].node.take() else { return Ok(()) };
        let result = match node.apply_queue.is_empty() && any_key(&node)? {
            true => node
                .reader
                .hash_kv(0)
                .map_err(|e| Violation(format!("hash: {e}")))
                .and_then(|hash| self.oracle.hashed(node.id, node.applied, &hash)),
            false => Ok(()),
        };
        self.members[at].node = Some(node);
        result
    }

    /// What still has to happen, if anything.
    fn unsettled(&self) -> Option<String> {
        let handed = self.oracle.handed();
        let conf = self.oracle.members.newest()?;
        if conf.is_joint() {
            return Some("the configuration is joint".to_owned());
        }
        for id in conf.voters.iter().chain(&conf.learners) {
            let member = &self.members[self.index_of(*id)?];
            if member.lost {
                continue;
            }
            let Some(node) = &member.node else { return Some(format!("{id} is down")) };
            if node.applied < handed {
                return Some(format!("{id} applied {} of {handed}", node.applied));
            }
            if !node.idle() {
                return Some(format!("a queue of {id} is not empty"));
            }
            if node.core.status().leader == 0 {
                return Some(format!("{id} knows no leader"));
            }
        }
        if self.leader().is_none_or(|at| !self.members[at].node.as_ref().is_some_and(|n| n.ready)) {
            return Some("nobody leads".to_owned());
        }
        if !self.oracle.model.leases.is_empty() {
            return Some(format!("leases {:?}", self.oracle.model.leases));
        }
        for (n, watcher) in self.watchers.iter().enumerate() {
            let (at, life) = watcher.at;
            let member = &self.members[at];
            let there = member.life == life && self.belongs(at) && !watcher.lost;
            if !there
                || member.node.as_ref().is_some_and(|node| !node.queues.is_drained(watcher.stream))
            {
                return Some(format!("watcher {n} is behind"));
            }
        }
        None
    }

    /// The histories of the registers, each judged without knowing the log.
    fn judge_histories(&mut self) -> Verdict {
        for (key, history) in self.histories.iter().enumerate() {
            self.report.histories += 1;
            match linear::check(history) {
                Judged::Linearizable => {}
                Judged::Unknown => self.report.histories_unknown += 1,
                Judged::NotLinearizable => {
                    if self.verbose {
                        history.iter().for_each(|op| println!("a{key}: {op:?}"));
                    }
                    let n = history.len();
                    return Err(Violation(format!(
                        "the history of a{key} is not linearizable ({n} operations)"
                    )));
                }
            }
        }
        Ok(())
    }

    pub(super) fn finished(mut self) -> Report {
        let report = &mut self.report;
        report.simulated_us = self.now;
        report.elections = self.oracle.raft.elections;
        report.entries = self.oracle.handed();
        report.acknowledged = self.oracle.acked_count;
        report.changes = self.oracle.members.changes - self.plan.voters as u64;
        report.packets_lost = self.net.lost;
        report.packets_doubled = self.net.doubled;
        report.events_seen = self.watchers.iter().map(|watcher| watcher.seen).sum();
        report.compacted_watches = self.watchers.iter().map(|watcher| watcher.compacted).sum();
        report.expired = self.oracle.leases.expired;
        report.lease_promises = self.oracle.leases.promises;
        report.leases_told_gone = self.oracle.leases.told_gone;
        report.states_compared = self.oracle.compared;
        let operations: u64 = self.members.iter().map(|member| member.disk.ops()).sum();
        super::mix(&mut self.report.hash, operations);
        self.report
    }
}

/// Where no key is alive, the hash covers what happens to be stored still.
fn any_key(node: &Node) -> Result<bool, Violation> {
    let all = KeyRange::from_request(Bytes::from_static(b"\0"), Bytes::from_static(b"\0"));
    let query = RangeQuery { limit: 1, ..RangeQuery::new(all) };
    let result = node.reader.range(&query).map_err(|e| Violation(format!("read: {e}")))?;
    Ok(!result.kvs.is_empty())
}
