//! Snapshots at a member: build one for another, keep what arrived aside, put it in place.

use std::path::Path;

use assay::consensus::{Input, SnapshotMeta};
use assay::lease;
use assay::store;

use super::super::broken::Broken;
use super::super::frame::Violation;
use super::super::oracle::Oracle;
use super::super::snapshot::{Rows, STORE};
use super::{End, Node, fault, start};

impl Node {
    /// Opens a view for another member and reports it, or that there is none.
    pub fn build_snapshot(&mut self, to: u64, fails: bool) -> Result<(), End> {
        let rows = Rows::read(&self.shared).map_err(|error| fault("view", &error))?;
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

    /// Writes what arrived aside, durably. The one before it stays: the core may still want it.
    pub fn stage(&mut self, rows: &Rows) -> Result<(), End> {
        let staged = |error: store::StoreError| fault("staged snapshot", &error);
        let keep = self.staged.last().map(|meta| (meta.index, meta.term));
        store::sweep(&self.files, Path::new(STORE), keep).map_err(staged)?;
        let with_tables = self.plan.broken != Broken::SnapshotWithoutTables;
        rows.stage(&self.dyn_disk(), &start::store_options(), with_tables).map_err(staged)?;
        self.staged.retain(|meta| keep == Some((meta.index, meta.term)));
        self.staged.push(rows.meta.clone());
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
        // A newer one may wait already.
        self.staged.retain(|staged| staged.index > meta.index);
        self.store_queue.clear();
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let at = (meta.index, meta.term);
        let options = start::store_options();
        let (writer, swapped, old) = writer
            .swap(&self.files, Path::new(STORE), at, &options)
            .map_err(|error| fault("snapshot", &error))?;
        self.writer = Some(writer);
        self.retired.push(old);
        oracle.opened(self.id, &swapped.loaded, &swapped.rows, true)?;
        self.frozen = swapped.loaded.applied;
        self.machine
            .install(swapped, &mut |_, _| ())
            .map_err(|error| start::ended("machine", &error))?;
        let shared = &self.shared;
        self.retired.retain(|old| !old.is_unused(shared));
        self.applied = meta.index;
        self.note_membership(&meta.conf_state);
        self.compacting = true;
        self.lease_changes.clear();
        self.clock = lease::Clock::new(start::clock(&self.plan), self.machine.lease_records());
        self.hub_queue.clear();
        self.hub.skip_to(self.reader.revision(), &mut self.queues);
        Ok(())
    }
}
