//! The `store` thread: makes frozen batches durable, one redb commit each, and reports.

use super::answers::Answers;
use super::fatal;
use super::input::{ApplyInput, NodeInput, StoreInput};
use super::lane::Lane;
use crate::disk::Disk;
use crate::store::{Batch, Options, Retired, Shared, Swapped, Writer};
use crate::telemetry::clock;
use crate::telemetry::node_metrics::NodeMetrics;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Free space that a commit is not begun without, beside what it writes: the engine copies the
/// pages that it changes and keeps its allocator state, a few MiB for the largest batches.
const ROOM_MIN_BYTES: u64 = 8 << 20;
/// Bytes written per byte of rows: pages are at most half empty, and each is written once.
const ROOM_FACTOR: u64 = 3;
/// How often a full file system is looked at again.
const ROOM_POLL: Duration = Duration::from_millis(200);

/// What the thread needs.
pub(super) struct StoreThread {
    pub(super) writer: Writer,
    pub(super) shared: Shared,
    pub(super) queue: Arc<Lane<StoreInput>>,
    pub(super) node: Arc<Lane<NodeInput>>,
    pub(super) apply: Arc<Lane<ApplyInput>>,
    pub(super) answers: Answers,
    pub(super) metrics: Arc<NodeMetrics>,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    /// The store's file.
    pub(super) path: PathBuf,
    pub(super) options: Options,
}

impl StoreThread {
    /// Body of the thread. Returns when told to stop; a fault ends the process.
    pub(super) fn run(mut self) {
        self.queue.own();
        let mut inputs = Vec::new();
        let mut retired: Vec<Retired> = Vec::new();
        loop {
            self.queue.drain(&mut inputs, None);
            for input in inputs.drain(..) {
                match input {
                    StoreInput::Commit { batch, replies } => {
                        if let Some(batch) = batch {
                            self.commit(batch);
                            retired.retain(|old| !old.is_unused(&self.shared));
                        }
                        let mut turn = self.answers.turn();
                        for reply in replies {
                            turn.barrier(reply, Ok(()));
                        }
                    }
                    StoreInput::Swap { at } => {
                        let (swapped, old);
                        (self, swapped, old) = self.swap(at);
                        retired.push(old);
                        self.apply.push(ApplyInput::Swapped(Box::new(swapped)));
                    }
                    StoreInput::Stop => return,
                }
            }
        }
    }

    /// Exchanges the file for the staged one.
    fn swap(self, at: (u64, u64)) -> (Self, Swapped, Retired) {
        let StoreThread { writer, .. } = self;
        match writer.swap(&*self.disk, &self.path, at, &self.options) {
            Ok((writer, swapped, old)) => (StoreThread { writer, ..self }, swapped, old),
            Err(error) => fatal::stop("store", &error),
        }
    }

    /// Waits until the file system has room for the batch. The engine cannot go on after a write
    /// that found no space, but rows can wait here: writes of clients are refused meanwhile, and
    /// room made by the operator is noticed without a restart.
    fn wait_for_room(&self, batch: &Batch) {
        let wanted = ROOM_MIN_BYTES + ROOM_FACTOR * batch.bytes as u64;
        let mut said = false;
        // If free space cannot be told, the commit itself will say what is wrong.
        while let Ok(free) = self.disk.free(&self.dir) {
            if free.bytes >= wanted {
                return;
            }
            if !said {
                said = true;
                tracing::warn!(
                    free_bytes = free.bytes,
                    wanted_bytes = wanted,
                    dir = %self.dir.display(),
                    "the file system is full: the store waits for room; nothing is lost, the log \
                     holds it"
                );
            }
            self.metrics.space_refused.store(1, Relaxed);
            std::thread::park_timeout(ROOM_POLL);
        }
    }

    fn commit(&mut self, batch: Batch) {
        self.wait_for_room(&batch);
        let began = clock::now_ns();
        if let Err(error) = self.writer.commit(batch) {
            fatal::stop("store", &error);
        }
        self.metrics.store_commits.record_ns(clock::now_ns() - began);
        let (durable, _) = self.shared.durable();
        self.metrics.durable.store(durable, Relaxed);
        self.metrics.store_pending_bytes.store(self.shared.pending_bytes() as u64, Relaxed);
        self.node.push(NodeInput::Durable(durable));
        self.apply.push(ApplyInput::StoreIdle);
    }
}
