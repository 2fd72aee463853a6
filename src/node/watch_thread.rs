//! The `watch` thread: owns the hub, gives it time and history, hands its deliveries out.

use super::fatal;
use super::watch_lane::{Queue, WatchInput};
use crate::telemetry::clock;
use crate::watch::{Delivery, Hub, HubError, HubOptions, Load, Outbox, Source, StreamId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub use super::watch_lane::{WatchLane, WatchStream};

const NS_PER_MS: u64 = 1_000_000;
/// Inputs between two flushes: bounds what a turn collects before the first client sees it.
const INPUTS_PER_FLUSH: usize = 256;

/// The thread; `S` is where history is read.
pub struct WatchThread<S> {
    lane: Arc<WatchLane>,
    source: S,
    hub: Hub,
    streams: Streams,
}

/// The queues of all streams, with what this turn has for them.
struct Streams {
    lane: Arc<WatchLane>,
    open: HashMap<StreamId, (Arc<Queue>, Vec<Delivery>)>,
    touched: Vec<StreamId>,
}

impl Outbox for Streams {
    fn load(&self, stream: StreamId) -> Load {
        self.open.get(&stream).map_or_else(Load::default, |(queue, _)| queue.load())
    }

    fn deliver(&mut self, delivery: Delivery) {
        let Some((queue, batch)) = self.open.get_mut(&delivery.stream) else { return };
        queue.count(&delivery);
        if batch.is_empty() {
            self.touched.push(delivery.stream);
        }
        batch.push(delivery);
    }

    fn wait_for_room(&mut self, stream: StreamId) {
        if self.open.get(&stream).is_some_and(|(queue, _)| queue.want_room()) {
            self.lane.inputs.push(WatchInput::Drained(stream));
        }
    }
}

impl Streams {
    /// Hands the turn's deliveries over; each stream is woken once.
    fn flush(&mut self) {
        for stream in self.touched.drain(..) {
            if let Some((queue, batch)) = self.open.get_mut(&stream)
                && !batch.is_empty()
            {
                queue.append(batch);
            }
        }
    }
}

impl<S: Source> WatchThread<S> {
    /// A hub over `source`. `progress` is the period of progress notifications, `fragment_bytes`
    /// the size from which responses are split on request.
    #[must_use]
    pub fn new(lane: Arc<WatchLane>, source: S, progress: Duration, fragment_bytes: usize) -> Self {
        let options = HubOptions {
            fragment_bytes,
            progress_interval_ms: u64::try_from(progress.as_millis()).unwrap_or(u64::MAX / 4),
            seed: clock::now_ns(),
            ..HubOptions::default()
        };
        let hub = Hub::new(options, source.revision());
        let streams = Streams { lane: lane.clone(), open: HashMap::new(), touched: Vec::new() };
        Self { lane, source, hub, streams }
    }

    /// Body of the thread. A fault of the store ends the process: watchers cannot be told a gap.
    pub fn run(mut self) {
        self.lane.inputs.own();
        let mut inputs = Vec::new();
        let mut more = false;
        loop {
            let wait = if more { Some(Duration::ZERO) } else { self.idle() };
            self.lane.inputs.drain(&mut inputs, wait);
            match self.turn(&mut inputs) {
                Ok(Some(again)) => more = again,
                Ok(None) => break,
                Err(error) => fatal::stop("watch", &error),
            }
        }
        for (queue, _) in self.streams.open.values() {
            queue.end();
        }
    }

    /// How long there is nothing to do unless something comes in.
    fn idle(&self) -> Option<Duration> {
        let due = self.hub.next_deadline()?;
        // Rounded up: waking a moment early would only mean to sleep again.
        Some(Duration::from_nanos((due * NS_PER_MS).saturating_sub(clock::now_ns())))
    }

    /// One turn over everything that waits: whether catching up goes on, or `None` at the end.
    fn turn(&mut self, inputs: &mut Vec<WatchInput>) -> Result<Option<bool>, HubError> {
        let now = clock::now_ns() / NS_PER_MS;
        for (count, input) in inputs.drain(..).enumerate() {
            if matches!(input, WatchInput::Stop) {
                return Ok(None);
            }
            self.take(input, now)?;
            if count % INPUTS_PER_FLUSH == INPUTS_PER_FLUSH - 1 {
                self.hub.flush(&mut self.streams);
                self.streams.flush();
            }
        }
        self.look();
        let more = self.hub.catch_up(&self.source, &mut self.streams)?;
        self.hub.tick(now, &mut self.streams);
        self.hub.flush(&mut self.streams);
        self.lane.set_stats(self.hub.stats());
        self.streams.flush();
        Ok(Some(more))
    }

    fn take(&mut self, input: WatchInput, now: u64) -> Result<(), HubError> {
        if let WatchInput::Create(stream, _)
        | WatchInput::Refuse(stream, _)
        | WatchInput::Cancel(stream, _)
        | WatchInput::Progress(stream) = &input
            && let Some((queue, _)) = self.streams.open.get(stream)
        {
            queue.took_request();
        }
        let (hub, out) = (&mut self.hub, &mut self.streams);
        match input {
            WatchInput::Batch(batch) => {
                self.lane.took_batch();
                hub.publish(&batch, &self.source, out)?;
            }
            WatchInput::Look => self.lane.took_look(),
            WatchInput::Open(stream, queue) => {
                out.open.insert(stream, (queue, Vec::new()));
            }
            WatchInput::Create(stream, create) => {
                self.look();
                self.hub.create(stream, &create, now, &self.source, &mut self.streams)?;
            }
            WatchInput::Refuse(stream, reason) => hub.refuse(stream, reason, &self.source, out),
            WatchInput::Cancel(stream, id) => hub.cancel(stream, id, &self.source, out),
            WatchInput::Progress(stream) => {
                self.look();
                self.hub.progress(stream, &mut self.streams);
            }
            WatchInput::Drained(stream) => hub.drained(stream),
            WatchInput::Close(stream) => {
                hub.close(stream, out);
                out.open.remove(&stream);
            }
            WatchInput::Stop => {}
        }
        Ok(())
    }

    /// Takes notice of batches that were not put into the lane.
    fn look(&mut self) {
        if let Some(revision) = self.lane.take_noted() {
            self.hub.skip_to(revision, &mut self.streams);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
