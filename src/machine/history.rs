//! Compactions in the background, a step at a time on the apply thread.

use super::{BATCH_ROW_BYTES, Machine};
use crate::mvcc::{
    Compaction, Dropped, HashJob, HashKv, NEVER_COMPACTED, RowsError, SharedIndex, Step,
};
use crate::store::{
    DROPPED_PER_BATCH, META_FINISHED_COMPACT, META_SCHEDULED_COMPACT, Shared, Table, revision_value,
};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Compactions that are accepted but not finished.
#[derive(Debug, Default)]
pub(super) struct History {
    /// In the order of acceptance; the first one is running.
    jobs: VecDeque<Compaction>,
    /// Rows condemned by the running one that no batch holds yet, oldest version of a key first:
    /// dropped in another order, a put could outlive its tombstone in a crash and come back.
    condemned: VecDeque<Dropped>,
    /// The index walk of the first job is done; only `condemned` is left of it.
    walked: bool,
    /// A compaction was resumed after a restart: hashes made on top of it would differ from those
    /// of other members until it has finished.
    interrupted: bool,
}

/// The hash of the running compaction, to be made on another thread.
#[derive(Debug)]
pub struct CompactionHash {
    job: HashJob,
    index: SharedIndex,
    store: Shared,
}

impl CompactionHash {
    /// The main revision of its compaction.
    #[must_use]
    pub fn at(&self) -> i64 {
        self.job.at()
    }

    /// Makes it; `None` if `stop` was set meanwhile.
    #[must_use]
    pub fn run(mut self, stop: &AtomicBool) -> Option<Result<HashKv, RowsError>> {
        while !stop.load(Relaxed) {
            match self.job.slice(&self.index, &self.store) {
                Ok(None) => {}
                Ok(Some(hash)) => return Some(Ok(hash)),
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

impl Machine {
    /// Accepts a compaction at `at`, which lies above the compact revision.
    pub(super) fn schedule_compaction(&mut self, at: i64) {
        let job = Compaction::new(self.compacted, at, !self.history.interrupted);
        self.history.jobs.push_back(job);
        self.compacted = at;
        self.store_mark(META_SCHEDULED_COMPACT, at);
    }

    /// Takes up a compaction that a former run accepted and did not finish.
    pub(super) fn resume_compaction(&mut self, at: i64) {
        self.history.jobs.push_back(Compaction::new(NEVER_COMPACTED, at, false));
        self.history.interrupted = true;
    }

    /// Whether compactions have work left.
    #[must_use]
    pub fn compaction_pending(&self) -> bool {
        !self.history.jobs.is_empty()
    }

    /// Revision of the compaction that runs, the oldest unfinished one.
    #[must_use]
    pub fn compacting_at(&self) -> Option<i64> {
        self.history.jobs.front().map(Compaction::at)
    }

    /// The hash that the running compaction has to make next; `None` if it has none to make, or not
    /// yet. Whoever takes it hands the result to [`Machine::compaction_hashed`] and makes no
    /// [`Machine::compaction_step`] before that.
    #[must_use]
    pub fn compaction_hash(&self) -> Option<CompactionHash> {
        let job = self.history.jobs.front()?;
        if self.broken.is_some() || self.published.compacted() < job.at() {
            return None;
        }
        let (index, store) = (self.index.clone(), self.store.clone());
        Some(CompactionHash { job: job.hash_job()?, index, store })
    }

    /// Takes the hash of the compaction at `at`. A store that could not be read breaks the machine.
    /// A result that nobody waits for any more says nothing about this state: it was made over the
    /// one before a snapshot was installed.
    pub fn compaction_hashed(&mut self, at: i64, hash: Result<HashKv, RowsError>) {
        let jobs = &mut self.history.jobs;
        let waiting = jobs.front_mut().filter(|job| job.at() == at && job.hash_job().is_some());
        match (waiting, hash) {
            (Some(job), Ok(hash)) => job.hashed(hash),
            (Some(_), Err(error)) => self.broken = Some(error.into()),
            (None, _) => {}
        }
    }

    /// Does one slice of the oldest unfinished compaction; true if there is more to do. The rows
    /// go into the open batch; when it holds as many as one durable commit should drop, nothing
    /// more happens until it is taken. Call [`Machine::publish`] first: only what readers were told
    /// is gone goes.
    pub fn compaction_step(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let Some(job) = self.history.jobs.front_mut() else { return false };
        if self.published.compacted() < job.at() {
            return true;
        }
        if !self.history.walked && self.history.condemned.is_empty() {
            let mut dropped = Vec::new();
            let step = match job.step(&self.index, &self.store, &mut dropped) {
                Ok(step) => step,
                Err(error) => {
                    self.broken = Some(error.into());
                    return false;
                }
            };
            self.history.condemned.extend(dropped);
            if let Step::Done(hash) = step {
                self.history.walked = true;
                if let Some(hash) = hash {
                    self.published.remember(hash);
                }
            }
        }
        self.drop_rows();
        if self.history.walked && self.history.condemned.is_empty() {
            self.finish_compaction();
        }
        !self.history.jobs.is_empty()
    }

    /// Moves condemned rows into the open batch, as far as it and the step may take them.
    fn drop_rows(&mut self) {
        let room = DROPPED_PER_BATCH.saturating_sub(self.batch.dropped.len());
        let count =
            self.history.condemned.len().min(room).min(self.options.compaction_batch.max(1));
        for row in self.history.condemned.drain(..count) {
            self.batch.dropped.push((row.revision, row.tombstone));
            self.batch.bytes += BATCH_ROW_BYTES;
            self.sizes.total_bytes = self.sizes.total_bytes.saturating_sub(row.charge.bytes());
        }
    }

    fn finish_compaction(&mut self) {
        let Some(job) = self.history.jobs.pop_front() else { return };
        self.history.walked = false;
        if self.history.jobs.is_empty() {
            self.history.interrupted = false;
        }
        self.store_mark(META_FINISHED_COMPACT, job.at());
        self.published.set_finished(job.at());
    }

    fn store_mark(&mut self, mark: &'static [u8], at: i64) {
        let value = Bytes::copy_from_slice(&revision_value(at));
        self.store_small(Table::Meta, Bytes::from_static(mark), Some(value));
    }
}
