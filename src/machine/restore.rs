//! The machine at start: everything from the store, the key index by a scan of all rows.

use super::fences::Fences;
use super::history::History;
use super::published::Published;
use super::running::Running;
use super::{Alarm, Downgrade, Machine, MachineOptions, Sizes, level};
use super::{alarms::Alarms, auth::Auth, members::Members};
use crate::lease;
use crate::mvcc::{Charge, FIRST_REVISION, KeyIndex, NEVER_COMPACTED, Parts, Revision, RowsError};
use crate::store::{
    Batch, Content, Loaded, META_FINISHED_COMPACT, META_SCHEDULED_COMPACT, Shared, Swapped, Table,
    row_footprint,
};
use bytes::Bytes;
use parking_lot::RwLock;
use prost::Message;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Rows between two reports of progress: some ten milliseconds.
const PROGRESS_ROWS: u64 = 16_384;

/// Row of [`Table::Cluster`]: version text.
pub(super) const CLUSTER_VERSION: &[u8] = b"clusterVersion";
/// Row of [`Table::Cluster`]: JSON of [`Downgrade`].
pub(super) const DOWNGRADE: &[u8] = b"downgrade";

/// Row of [`Table::Cluster`]: level of commands, decimal; absent at the first level. Versions
/// that do not know the row leave it alone.
pub(super) const FEATURE_LEVEL: &[u8] = b"featureLevel";

/// Why the machine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The rows could not be read.
    #[error("state could not be rebuilt: {0}; check the disk")]
    Rows(#[from] RowsError),
    /// A row does not have its shape.
    #[error(
        "row {key:?} of table {table} is damaged; restore this member from its peers or a backup"
    )]
    Damaged {
        /// Table of the row.
        table: &'static str,
        /// Its key.
        key: Bytes,
    },
    /// The cluster uses commands that this program does not know.
    #[error(
        "the cluster is at feature level {cluster}, this program knows up to {own}: its upgrade was \
         finalized, going back is not possible; start the newer version again"
    )]
    AboveLevel {
        /// Level of the cluster.
        cluster: u32,
        /// Level of this program.
        own: u32,
    },
}

impl MachineError {
    /// Whether a newer version of the program goes on where this one has to stop.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::AboveLevel { .. })
    }
}

impl Machine {
    /// Rebuilds the machine from what the store holds. `progress` gets (done, total) main
    /// revisions now and then.
    ///
    /// # Errors
    /// See [`MachineError`]; all of them stop the start.
    pub fn restore(
        loaded: Loaded,
        store: Shared,
        options: MachineOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, MachineError> {
        // A compaction at revision 0 is legal, so the mark itself says whether there was one.
        let mark = |key: &'static [u8], main: i64| {
            let there = loaded.small.contains_key(&(Table::Meta, Bytes::from_static(key)));
            if there { main } else { NEVER_COMPACTED }
        };
        let scheduled = mark(META_SCHEDULED_COMPACT, loaded.scheduled_compact);
        let finished = mark(META_FINISHED_COMPACT, loaded.finished_compact);
        let compacted = scheduled.max(finished);
        let mut small = Small::default();
        for ((table, key), value) in &loaded.small {
            if !small.load(*table, key, value) {
                return Err(MachineError::Damaged { table: table.name(), key: key.clone() });
            }
        }
        if small.feature_level > options.feature_level {
            let (cluster, own) = (small.feature_level, options.feature_level);
            return Err(MachineError::AboveLevel { cluster, own });
        }
        let mut rebuild = Rebuild {
            index: KeyIndex::new(compacted),
            leases: lease::Table::restore(small.leases),
            sizes: Sizes::default(),
            newest: FIRST_REVISION.max(compacted).max(loaded.revision),
            damaged: None,
            read: Content::default(),
        };
        rebuild.scan(&store, progress)?;
        let Rebuild { index, leases, mut sizes, newest: revision, mut read, .. } = rebuild;
        for ((table, key), value) in &loaded.small {
            read.add_pair(*table, key, value);
        }
        let differs = loaded.content.filter(|said| *said != read).map(|said| (said, read));
        // Two rows that are exchanged, or one more and one less, may add up to the same sum.
        let fault = differs.map_or(0, |(said, read)| said.sum.wrapping_sub(read.sum).max(1));
        let running = Running::restored(loaded.running, fault);
        let batch =
            Batch { content_before: loaded.content.is_none().then_some(read), ..Batch::default() };
        sizes.total_bytes += leases.len() as u64 * super::command::LEASE_COST;
        sizes.in_use_bytes += leases.len() as u64 * super::command::LEASE_COST;
        let mut machine = Self {
            options,
            index: Arc::new(RwLock::new(index)),
            store,
            applied: loaded.applied,
            revision,
            compacted,
            leases: Arc::new(RwLock::new(leases)),
            members: Arc::new(small.members),
            alarms: small.alarms,
            fences: small.fences,
            cluster_version: small.cluster_version,
            downgrade: small.downgrade,
            feature_level: small.feature_level.max(level::FIRST),
            auth: small.auth,
            sizes,
            history: History::default(),
            running,
            differs,
            batch,
            taken: loaded.applied.0,
            tables_changed: true,
            broken: None,
            published: Arc::new(Published::new(revision, compacted, finished)),
        };
        if scheduled > finished {
            machine.resume_compaction(scheduled);
        }
        machine.publish();
        Ok(machine)
    }
}

impl Machine {
    /// Takes over the state of a store file that was exchanged, as if restored from it, and makes
    /// it visible to the readers that exist. The state may only go forward: everything that a
    /// reader saw is in it, or compacted.
    ///
    /// # Errors
    /// See [`MachineError`]; the node stops.
    pub fn install(
        &mut self,
        swapped: Swapped,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), MachineError> {
        let (loaded, rows, exchange) = swapped.into_parts();
        let fresh = Self::restore(loaded, rows, self.options, progress)?;
        // In this order: whoever chooses revisions by the new index finds their rows in the old
        // view or, above it, in the new one; whoever reads at a revision that is gone is told by
        // the index and tries again.
        std::mem::swap(&mut *self.index.write(), &mut *fresh.index.write());
        std::mem::swap(&mut *self.leases.write(), &mut *fresh.leases.write());
        exchange.publish(&self.store);
        self.applied = fresh.applied;
        self.revision = fresh.revision;
        self.compacted = fresh.compacted;
        self.members = fresh.members;
        self.alarms = fresh.alarms;
        self.fences = fresh.fences;
        self.cluster_version = fresh.cluster_version;
        self.downgrade = fresh.downgrade;
        self.feature_level = fresh.feature_level;
        self.auth = fresh.auth;
        self.sizes = fresh.sizes;
        self.history = fresh.history;
        self.running = fresh.running;
        self.differs = fresh.differs;
        self.batch = fresh.batch;
        self.taken = fresh.taken;
        self.tables_changed = true;
        self.published.set_finished(fresh.published.finished());
        self.published.points().clear();
        self.publish();
        Ok(())
    }
}

/// The small tables while they are read.
#[derive(Default)]
struct Small {
    leases: Vec<lease::Record>,
    members: Members,
    alarms: Alarms,
    fences: Fences,
    cluster_version: Option<String>,
    downgrade: Downgrade,
    feature_level: u32,
    auth: Auth,
}

impl Small {
    /// Reads a row; false if it is damaged. Rows this version does not know are left alone.
    fn load(&mut self, table: Table, key: &[u8], value: &Bytes) -> bool {
        match table {
            Table::Meta => true,
            Table::Leases => match lease::Record::decode(value.clone()) {
                Ok(record) => {
                    self.leases.push(record);
                    key == record.id.to_be_bytes()
                }
                Err(_) => false,
            },
            Table::Members | Table::MembersRemoved => self.members.load(table, key, value),
            Table::Alarms => Alarm::from_key(key).is_some_and(|alarm| self.alarms.raise(alarm)),
            Table::Auth | Table::AuthUsers | Table::AuthRoles => self.auth.load(table, key, value),
            Table::Cluster => match key {
                CLUSTER_VERSION => match std::str::from_utf8(value) {
                    Ok(version) => {
                        self.cluster_version = Some(version.to_owned());
                        true
                    }
                    Err(_) => false,
                },
                DOWNGRADE => match serde_json::from_slice(value) {
                    Ok(downgrade) => {
                        self.downgrade = downgrade;
                        true
                    }
                    Err(_) => false,
                },
                key if Fences::owns(key) => match Fences::decode(value) {
                    Some(fences) => {
                        self.fences = fences;
                        true
                    }
                    None => false,
                },
                FEATURE_LEVEL => {
                    let level = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    self.feature_level = level.unwrap_or_default();
                    level.is_some()
                }
                _ => true,
            },
        }
    }
}

/// The scan of all rows.
struct Rebuild {
    index: KeyIndex,
    leases: lease::Table,
    sizes: Sizes,
    newest: i64,
    damaged: Option<Revision>,
    /// Checksum over the rows as they were read.
    read: Content,
}

impl Rebuild {
    fn scan(
        &mut self,
        store: &Shared,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), MachineError> {
        let total = self.newest.max(0) as u64;
        let mut rows = 0;
        // Nothing is pending at a start: the durable view has all.
        let mut take = |revision: Revision, tombstone, row: &[u8]| {
            rows += 1;
            if rows % PROGRESS_ROWS == 0 {
                progress(revision.main as u64, total);
            }
            if self.row(revision, tombstone, row) {
                return ControlFlow::Continue(());
            }
            self.damaged = Some(revision);
            ControlFlow::Break(())
        };
        let scanned = store.view().scan_borrowed(Revision::default(), i64::MAX, &mut take);
        let _: ControlFlow<()> = scanned.map_err(|error| RowsError::Fault(error.to_string()))?;
        if let Some(revision) = self.damaged {
            let key = Bytes::copy_from_slice(&revision.to_bytes());
            return Err(MachineError::Damaged { table: "key", key });
        }
        progress(total, total);
        Ok(())
    }

    /// Takes in one row; false if it is damaged.
    fn row(&mut self, revision: Revision, tombstone: bool, row: &[u8]) -> bool {
        self.read.add_row(revision, tombstone, row);
        let charge = Charge::new(row_footprint(row.len()));
        let Some(kv) = Parts::decode(row) else { return false };
        if kv.key.is_empty() || (!tombstone && kv.modified != revision.main) {
            return false;
        }
        let live = (!tombstone).then_some((kv.create, kv.version));
        let superseded = self.index.restore(kv.key, revision, live, charge);
        if let Some(superseded) = superseded {
            self.sizes.in_use_bytes -= superseded.bytes();
            self.sizes.keys -= 1;
        }
        self.sizes.total_bytes += charge.bytes();
        if !tombstone {
            self.sizes.in_use_bytes += charge.bytes();
            self.sizes.keys += 1;
        }
        // A superseded row may name a lease that was revoked later: then the key has none.
        if tombstone || self.leases.put(kv.key, kv.lease).is_err() {
            self.leases.delete(kv.key);
        }
        self.newest = self.newest.max(revision.main);
        true
    }
}
