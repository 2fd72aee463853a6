//! The watch thread and its clients: one hub per life, streams that are read slowly.

use assay::disk::SimRng;

use super::model::Model;
use super::node::{End, Node};
use super::oracle::{Verdict, Violation};
use super::watchers::{Queues, Watcher};

pub struct Streams {
    queues: Queues,
    watchers: Vec<Watcher>,
    next_stream: u64,
    catching_up: bool,
}

impl Streams {
    pub fn new() -> Self {
        let watchers = vec![
            Watcher::new(0, b"k", b"l", false),
            Watcher::new(0, b"k", b"l", true),
            Watcher::new(0, b"k1", b"", false),
            Watcher::new(0, b"k3", b"\0", true),
        ];
        Self { queues: Queues::default(), watchers, next_stream: 0, catching_up: false }
    }

    pub fn len(&self) -> usize {
        self.watchers.len()
    }

    pub fn seen(&self) -> (u64, u64) {
        let seen = self.watchers.iter().map(|watcher| watcher.seen).sum();
        (seen, self.watchers.iter().map(|watcher| watcher.compacted).sum())
    }

    /// The process is gone and its queues with it; clients come back where they were.
    pub fn disconnected(&mut self) {
        self.queues = Queues::default();
        self.catching_up = false;
        self.watchers.iter_mut().for_each(|watcher| watcher.lost = true);
    }

    /// Everything the hub has waiting: batches, then a round of catching up.
    pub fn hub_turn(&mut self, node: &mut Node) -> Result<(), End> {
        let Node { hub, hub_queue, reader, .. } = node;
        let broken = |error| Violation(format!("hub: {error}"));
        for batch in hub_queue.drain(..) {
            hub.publish(&batch, reader, &mut self.queues).map_err(broken)?;
        }
        hub.flush(&mut self.queues);
        self.catching_up = hub.catch_up(reader, &mut self.queues).map_err(broken)?;
        hub.flush(&mut self.queues);
        Ok(())
    }

    pub fn lags(&self, node: &Node) -> bool {
        self.catching_up || !node.hub_queue.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.watchers.iter().all(|watcher| !watcher.lost)
    }

    /// One client reads its stream, or comes back to it. True if the hub has work now.
    pub fn drain(
        &mut self,
        at: usize,
        node: &mut Node,
        now_ms: u64,
        rng: &mut SimRng,
        model: &Model,
    ) -> Result<bool, End> {
        let watcher = &mut self.watchers[at];
        let Node { hub, reader, ready, .. } = node;
        if watcher.lost {
            // Like every request, a watch waits until the node serves.
            if !*ready {
                return Ok(false);
            }
            hub.close(watcher.stream, &mut self.queues);
            self.next_stream += 1;
            watcher.stream = self.next_stream;
            self.queues.open(watcher.stream);
            hub.create(watcher.stream, &watcher.create(), now_ms, reader, &mut self.queues)
                .map_err(|error| Violation(format!("hub: {error}")))?;
            return Ok(true);
        }
        let (deliveries, waits) = self.queues.take(watcher.stream, 1 + rng.below(6) as usize);
        for delivery in &deliveries {
            watcher.receive(delivery, model)?;
        }
        if waits {
            hub.drained(watcher.stream);
        }
        Ok(waits)
    }

    pub fn finished(&self, model: &Model) -> Verdict {
        self.watchers.iter().try_for_each(|watcher| watcher.finished(model))
    }
}
