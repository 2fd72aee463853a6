//! Snapshots at a member: build one for another, keep what arrived aside, put it in place.

use assay::consensus::{Input, SnapshotMeta};
use assay::lease;
use assay::machine::Machine;
use assay::store;
use std::path::Path;

use super::super::broken::Broken;
use super::super::frame::Violation;
use super::super::oracle::Oracle;
use super::super::snapshot::{self, Rows};
use super::{End, Node, fault, start};

/// Snapshots kept aside: the core may still want the one before the newest.
const STAGED_MAX: usize = 2;

impl Node {
    /// Opens a view for another member and reports it, or that there is none.
    pub fn build_snapshot(&mut self, to: u64, fails: bool) -> Result<(), End> {
        let rows = Rows::read(&self.shared, &self.confs).map_err(|error| fault("view", &error))?;
        match rows.filter(|_| !fails) {
            None => self.inputs.push(Input::SnapshotSent { to, ok: false }),
            Some(mut rows) => {
                if self.plan.broken == Broken::SnapshotClaimsMore {
                    (rows.meta.index, rows.meta.term) = self.machine.applied();
                }
                self.inputs.push(Input::SnapshotReady { to, meta: rows.meta.clone() });
                self.views.insert(to, rows);
            }
        }
        Ok(())
    }

    /// Whether another snapshot can be taken in.
    pub fn can_stage(&self) -> bool {
        self.installing.is_none() && !self.core.status().installing
    }

    /// Writes what arrived aside, durably.
    pub fn stage(&mut self, rows: &Rows) -> Result<(), End> {
        let path = snapshot::staged_path(&rows.meta);
        let with_tables = self.plan.broken != Broken::SnapshotWithoutTables;
        rows.stage(&self.dyn_disk(), &path, with_tables)
            .map_err(|error| fault("staged snapshot", &error))?;
        self.staged.push(rows.meta.clone());
        if self.staged.len() > STAGED_MAX {
            let oldest = snapshot::staged_path(&self.staged.remove(0));
            snapshot::remove(&self.disk, &oldest)
                .map_err(|error| fault("staged snapshot", &error))?;
        }
        Ok(())
    }

    /// What was staged and overtaken by the log is of no use any more.
    pub fn forget_staged(&mut self) -> Result<(), End> {
        if !self.can_stage() {
            return Ok(());
        }
        for meta in self.staged.extract_if(.., |meta| meta.index <= self.applied) {
            snapshot::remove(&self.disk, &snapshot::staged_path(&meta))
                .map_err(|error| fault("staged snapshot", &error))?;
        }
        Ok(())
    }

    /// Everything of the old state goes, everything of the snapshot's comes.
    pub(super) fn swap_store(
        &mut self,
        meta: &SnapshotMeta,
        oracle: &mut Oracle,
    ) -> Result<(), End> {
        if !self.staged.contains(meta) {
            return Err(Violation(format!("installs {meta:?}, staged is {:?}", self.staged)).into());
        }
        snapshot::swap(&self.disk, meta).map_err(|error| fault("snapshot", &error))?;
        self.staged.clear();
        self.store_queue.clear();
        let options = start::store_options();
        let (writer, shared, loaded) =
            store::open(self.dyn_disk(), Path::new(snapshot::STORE), &options)
                .map_err(|error| fault("store", &error))?;
        oracle.opened(self.id, &loaded, &shared, true)?;
        let conf = loaded.conf_state.clone();
        self.frozen = loaded.applied;
        self.machine = Machine::restore(
            loaded,
            shared.clone(),
            start::machine(&self.plan, self.id),
            &mut |_, _| (),
        )
        .map_err(|error| fault("machine", &error))?;
        self.machine.publish();
        self.writer = writer;
        self.shared = shared;
        self.reader = self.machine.reader();
        self.applied = meta.index;
        self.confs = [(meta.index, conf)].into();
        self.note_membership(&meta.conf_state);
        self.compacting = true;
        self.lease_changes.clear();
        self.clock = lease::Clock::new(start::clock(&self.plan), self.machine.lease_records());
        self.hub_queue.clear();
        self.hub.skip_to(self.reader.revision(), &mut self.queues);
        Ok(())
    }
}
