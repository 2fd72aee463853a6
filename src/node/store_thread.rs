//! The `store` thread: makes frozen batches durable, one redb commit each, and reports.

use super::answers::Answers;
use super::fatal;
use super::input::{ApplyInput, NodeInput, StoreInput};
use super::lane::Lane;
use crate::disk::{Disk, Fault};
use crate::store::{Batch, Options, Retired, Room, Shared, Swapped, Writer};
use crate::telemetry::clock;
use crate::telemetry::node_metrics::NodeMetrics;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

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
    /// The store's file.
    pub(super) path: PathBuf,
    pub(super) options: Options,
}

/// Waits for room in the middle of a commit.
pub(super) struct StoreRoom {
    metrics: Arc<NodeMetrics>,
    waiting: AtomicBool,
}

impl StoreRoom {
    pub(super) fn new(metrics: Arc<NodeMetrics>) -> Self {
        StoreRoom { metrics, waiting: AtomicBool::new(false) }
    }
}

impl Room for StoreRoom {
    fn wait(&self, fault: &Fault) {
        if !self.waiting.swap(true, Relaxed) {
            tracing::warn!(
                %fault,
                "the file system is full: the store waits for room; nothing is lost, the log holds it"
            );
        }
        self.metrics.space_refused.store(1, Relaxed);
        std::thread::park_timeout(ROOM_POLL);
    }

    fn found(&self) {
        self.waiting.store(false, Relaxed);
        tracing::info!("the file system has room again: the store goes on");
    }
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

    fn commit(&mut self, batch: Batch) {
        let began = clock::now_ns();
        if let Err(error) = self.writer.commit(batch) {
            fatal::stop("store", &error);
        }
        self.metrics.store_commits.record_ns(clock::now_ns() - began);
        let (durable, _) = self.shared.durable();
        self.metrics.durable.store(durable, Relaxed);
        self.node.push(NodeInput::Durable(durable));
        self.apply.push(ApplyInput::StoreIdle);
    }
}
