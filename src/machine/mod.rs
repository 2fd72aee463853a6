//! The state machine: the only place where commands meet state.
//!
//! [`Machine`] belongs to the apply thread and is the only writer. Applying changes memory: the key
//! index, the small tables, the pending rows and the open [`store::Batch`](crate::store::Batch);
//! the batch is frozen with [`Machine::take_batch`] and made durable elsewhere. What readers see
//! moves only in [`Machine::publish`], so a group of entries becomes visible at once. [`Reader`]s
//! are cheap to clone and work on any thread, at a revision they pin.
//!
//! Everything here is a function of the log: no time, no randomness, and no disk error as an
//! answer. If the store cannot be read the machine stops taking commands
//! ([`AnswerError::is_fatal`]), gives out no further batch, and the node has to end.
//!
//! Two things differ from etcd on purpose. A write that runs into the quota while it is applied
//! is done and answered as done, with [`Outcome::over_quota`] set so that the alarm is raised (etcd
//! does it too but answers "no space"). And a put and a delete of one key in one transaction
//! survive a compaction at that very revision.

mod alarms;
pub mod answer;
mod apply;
mod auth;
pub mod check;
mod command;
mod fences;
mod history;
pub mod ids;
mod intervals;
pub mod level;
mod members;
mod published;
mod read;
mod restore;
mod running;
mod stream;
#[cfg(test)]
mod tests;

pub use answer::{
    Alarm, AlarmKind, Answer, AnswerError, LeaseChange, OpAnswer, Outcome, ReadError, TxnAnswer,
};
pub use auth::AuthStatus;
pub use check::RequestError;
pub use command::ACTION_FENCE;
pub use history::CompactionHash;
pub use ids::RequestIds;
pub use members::{Member, Members};
pub use published::{Downgrade, Sizes};
pub use read::{Lease, Reader};
pub use restore::MachineError;
pub use running::{POINT_EVERY, POINTS_KEPT, RunningPoints};
pub use stream::{Chunk, ChunkEnd, RangeStream};

use crate::lease;
use crate::mvcc::SharedIndex;
use crate::store::{Batch, Content, Shared, Table};
use alarms::Alarms;
use auth::Auth;
use bytes::Bytes;
use fences::Fences;
use history::History;
use parking_lot::RwLock;
use published::Published;
use running::Running;
use std::sync::Arc;

/// What the machine has to know of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineOptions {
    /// Id of the cluster.
    pub cluster_id: u64,
    /// Id of this member.
    pub member_id: u64,
    /// Quota for rows and leases, bytes; `None` for no quota.
    pub quota_bytes: Option<u64>,
    /// Smallest time to live of a lease, seconds. The same on all members, or leases differ.
    pub lease_ttl_min: i64,
    /// Rows handed to one batch by one step of a compaction.
    pub compaction_batch: usize,
    /// Level of commands that this program knows: [`level::OWN`], in tests lower.
    pub feature_level: u32,
}

/// A committed entry.
#[derive(Clone, Debug)]
pub struct Applied<'a> {
    /// Its index; one more than the last one's.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// 0 for a command, 1 for a change of the members.
    pub kind: u8,
    /// The encoded command.
    pub data: &'a Bytes,
    /// For a change the encoded `raftpb.ConfChange`.
    pub context: &'a Bytes,
    /// The raft configuration after it, if it changed.
    pub conf_state: Option<Bytes>,
}

/// [`Applied::kind`] of a change of the members.
pub const KIND_CHANGE: u8 = 1;

/// The state of the cluster as of the last applied entry.
#[derive(Debug)]
pub struct Machine {
    options: MachineOptions,
    index: SharedIndex,
    store: Shared,
    applied: (u64, u64),
    /// Current revision.
    revision: i64,
    /// Compact revision, of the last accepted compaction; readers see it when it is published.
    compacted: i64,
    leases: Arc<RwLock<lease::Table>>,
    members: Arc<Members>,
    alarms: Alarms,
    fences: Fences,
    cluster_version: Option<String>,
    downgrade: Downgrade,
    /// Level of commands that the cluster may use.
    feature_level: u32,
    auth: Auth,
    sizes: Sizes,
    history: History,
    running: Running,
    /// What the store said of its rows and what was read, if they differ.
    differs: Option<(Content, Content)>,
    batch: Batch,
    /// Applied index of the last batch given out.
    taken: u64,
    /// The small tables changed since they were published.
    tables_changed: bool,
    /// Why no further command is taken.
    broken: Option<AnswerError>,
    published: Arc<Published>,
}

/// Bytes of bookkeeping that a row costs while it waits in the open batch.
const BATCH_ROW_BYTES: usize = 64;

impl Machine {
    /// A reader of what is published.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(self)
    }

    /// Index and term of the last applied entry, published or not.
    #[must_use]
    pub fn applied(&self) -> (u64, u64) {
        self.applied
    }

    /// Leases as they are stored, for the leader's clock at start.
    #[must_use]
    pub fn lease_records(&self) -> Vec<lease::Record> {
        self.leases.read().iter().map(|lease| lease.record).collect()
    }

    /// Makes everything applied so far visible to readers.
    pub fn publish(&mut self) {
        if std::mem::take(&mut self.tables_changed) {
            self.published.set_tables(self.tables());
        }
        self.published.set(self.revision, self.sizes);
        // Not before the revision is out: a reader of the current revision must not find it
        // compacted. From here on earlier revisions are refused, so their rows may go.
        if self.published.compacted() < self.compacted {
            self.index.write().raise_floor(self.compacted);
            self.published.set_compacted(self.compacted);
        }
        self.publish_hash();
        self.published.set_applied(self.applied);
    }

    /// Rough size of the open batch, bytes; 0 if nothing was applied since the last one.
    #[must_use]
    pub fn open_bytes(&self) -> usize {
        if self.is_clean() { 0 } else { self.batch.bytes.max(1) }
    }

    fn is_clean(&self) -> bool {
        self.applied.0 == self.taken && self.batch.dropped.is_empty() && self.batch.small.is_empty()
    }

    /// Freezes what was applied since the last call, to be made durable in one transaction. `None`
    /// if there is nothing, or if the machine is broken: then nothing of it may become durable.
    pub fn take_batch(&mut self) -> Option<Batch> {
        if self.is_clean() || self.broken.is_some() {
            return None;
        }
        self.taken = self.applied.0;
        let mut batch = std::mem::take(&mut self.batch);
        batch.applied = self.applied;
        batch.revision = self.revision;
        batch.running = self.running.value();
        Some(batch)
    }

    /// Records a changed row of a small table.
    fn store_small(&mut self, table: Table, key: Bytes, value: Option<Bytes>) {
        self.batch.bytes += BATCH_ROW_BYTES + key.len() + value.as_ref().map_or(0, Bytes::len);
        self.batch.small.push((table, key, value));
    }
}
