//! Progress: empty responses that tell a client how far a quiet watch is.

use super::hub::is_full;
use super::{Delivery, Hub, NO_WATCH, Outbox, StreamId};

impl Hub {
    /// Answers a progress request, if every watch on the stream has been given everything up to
    /// the hub's revision and starts no later; otherwise nothing is sent and the client asks
    /// again. The answer travels behind all events in the same queue.
    pub fn progress(&mut self, stream: StreamId, out: &mut dyn Outbox) {
        self.flush(out);
        let Some(entry) = self.streams.get(&stream) else { return };
        let synced = |ix: &u32| {
            self.watchers.get(*ix).is_some_and(|watcher| watcher.progressed_to(self.revision))
        };
        if !entry.watchers.is_empty() && entry.watchers.values().all(synced) {
            out.deliver(Delivery::empty(stream, NO_WATCH, self.revision));
        }
    }

    /// Sends the progress notifications due at `now` ms.
    pub fn tick(&mut self, now: u64, out: &mut dyn Outbox) {
        while let Some(&(at, stream)) = self.ticks.first() {
            if at > now {
                break;
            }
            self.ticks.pop_first();
            self.tick_stream(stream, now, out);
        }
    }

    /// When [`Hub::tick`] next has something to do, ms.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.ticks.first().map(|&(at, _)| at)
    }

    /// A watcher of the stream asked for notifications.
    pub(super) fn notify(&mut self, stream: StreamId, now: u64) {
        let at = self.next_tick(now);
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.notified += 1;
            if entry.tick.is_none() {
                entry.tick = Some(at);
                self.ticks.insert((at, stream));
            }
        }
    }

    fn tick_stream(&mut self, stream: StreamId, now: u64, out: &mut dyn Outbox) {
        self.flush(out);
        let again = self.next_tick(now);
        let Some(entry) = self.streams.get_mut(&stream) else { return };
        entry.tick = None;
        if entry.notified == 0 {
            return;
        }
        entry.tick = Some(again);
        self.ticks.insert((again, stream));
        let revision = self.revision;
        for (&id, &ix) in &entry.watchers {
            let Some(watcher) = self.watchers.get_mut(ix) else { continue };
            if !watcher.progress_notify {
                continue;
            }
            let quiet = !std::mem::take(&mut watcher.active);
            // A client that does not read gets no more to read.
            if quiet && watcher.progressed_to(revision) && !is_full(&self.options, stream, out) {
                out.deliver(Delivery::empty(stream, id, revision));
            }
        }
    }

    /// `now` plus the interval plus up to a tenth, so that streams opened together spread out.
    fn next_tick(&mut self, now: u64) -> u64 {
        // SplitMix64: any seed gives a good sequence, and a run can be repeated.
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.jitter;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let interval = self.options.progress_interval_ms;
        now + interval + z % (interval / 10 + 1)
    }
}
