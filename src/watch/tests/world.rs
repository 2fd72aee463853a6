//! Random interleavings of everything, on small limits.

use super::oracle::Client;
use super::*;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const KEYS: [&str; 8] = ["a", "aa", "ab", "b", "ba", "c", "ca", "d"];
const STREAMS: u64 = 3;
/// Batches the lane to the hub holds.
const LANE: usize = 12;

enum Input {
    Batch(Arc<EventBatch>),
    Lost(i64),
    Create(StreamId, Create),
    Cancel(StreamId, i64),
    Progress(StreamId),
    Drained(StreamId),
}

struct World {
    rng: ChaCha8Rng,
    store: Store,
    hub: Hub,
    out: Queues,
    lane: Vec<Input>,
    clients: BTreeMap<StreamId, Client>,
    now: u64,
    overflows: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let options = HubOptions {
            queue_bytes: 1_500,
            queue_events: 12,
            fragment_bytes: 250,
            batch_revisions: 3,
            progress_interval_ms: 300,
            seed,
        };
        let limit = Load { bytes: options.queue_bytes, events: options.queue_events };
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            store: Store::new(),
            hub: Hub::new(options, 1),
            out: Queues { limit: Some(limit), ..Queues::default() },
            lane: Vec::new(),
            clients: (0..STREAMS).map(|stream| (stream, Client::default())).collect(),
            now: 0,
            overflows: 0,
        }
    }

    fn step(&mut self) {
        self.now += self.rng.random_range(0..40);
        match self.rng.random_range(0..100) {
            0..40 => self.commit(),
            40..42 => {
                let low = self.store.compact.max(1);
                let high = self.store.revision;
                // Mostly a little, sometimes everything.
                let to = if self.rng.random_bool(0.1) { high } else { high.min(low + 10) };
                self.store.compact = self.rng.random_range(low..=to);
            }
            42..46 => self.store.scrub(),
            46..56 => self.create(),
            56..59 => {
                let stream = self.stream();
                if let Some(&id) = self.clients[&stream].ids().choose(&mut self.rng) {
                    self.lane.push(Input::Cancel(stream, id));
                }
            }
            59..64 => {
                let stream = self.stream();
                self.lane.push(Input::Progress(stream));
            }
            64..84 => self.turn(),
            _ => {
                let stream = self.stream();
                let count = self.rng.random_range(0..6);
                self.read(stream, count);
            }
        }
    }

    fn stream(&mut self) -> StreamId {
        self.rng.random_range(0..STREAMS)
    }

    fn commit(&mut self) {
        let count = self.rng.random_range(1..4);
        let mut ops = Vec::new();
        for _ in 0..count {
            let op = if self.rng.random_bool(0.3) { Op::Delete } else { Op::Put };
            ops.push((op, *KEYS.choose(&mut self.rng).unwrap()));
        }
        let len = self.rng.random_range(0..200);
        if let Some(batch) = self.store.commit(&ops, len) {
            if self.lane.iter().filter(|i| matches!(i, Input::Batch(_))).count() < LANE {
                self.lane.push(Input::Batch(batch));
                return;
            }
            self.overflows += 1;
            let revision = batch.revision;
            let lost = self.lane.iter_mut().find_map(|input| match input {
                Input::Lost(to) => Some(to),
                _ => None,
            });
            match lost {
                Some(to) => *to = revision,
                None => self.lane.push(Input::Lost(revision)),
            }
        }
    }

    fn create(&mut self) {
        let stream = self.stream();
        let start = *KEYS.choose(&mut self.rng).unwrap();
        let end = match self.rng.random_range(0..10) {
            0..3 => End::Single,
            3..8 => to(["ab", "b", "c", "e"].choose(&mut self.rng).unwrap()),
            _ => End::Unbounded,
        };
        let start_revision = match self.rng.random_range(0..10) {
            0..3 => 0,
            3 => -1,
            4 => self.store.revision + self.rng.random_range(1..8),
            _ => self.rng.random_range(1..=self.store.revision),
        };
        let create = Create {
            range: range(start, end),
            start_revision,
            watch_id: if self.rng.random_bool(0.3) { self.rng.random_range(1..9) } else { 0 },
            no_put: self.rng.random_bool(0.15),
            no_delete: self.rng.random_bool(0.15),
            prev_kv: self.rng.random_bool(0.4),
            progress_notify: self.rng.random_bool(0.4),
            fragment: self.rng.random_bool(0.4),
        };
        self.clients.get_mut(&stream).unwrap().ask(create.clone(), &self.store);
        self.lane.push(Input::Create(stream, create));
    }

    fn turn(&mut self) {
        // The hub may stop in the middle of the lane; the rest comes next turn.
        let count = self.rng.random_range(0..=self.lane.len());
        let rest = self.lane.split_off(count);
        for input in std::mem::replace(&mut self.lane, rest) {
            let (hub, store, out) = (&mut self.hub, &self.store, &mut self.out);
            match input {
                Input::Batch(batch) => hub.publish(&batch, store, out).unwrap(),
                Input::Lost(to) => hub.skip_to(to, out),
                Input::Create(stream, create) => {
                    hub.create(stream, &create, self.now, store, out).unwrap();
                }
                Input::Cancel(stream, id) => hub.cancel(stream, id, store, out),
                Input::Progress(stream) => hub.progress(stream, out),
                Input::Drained(stream) => hub.drained(stream),
            }
        }
        self.hub.flush(&mut self.out);
        for _ in 0..self.rng.random_range(0..3) {
            self.hub.catch_up(&self.store, &mut self.out).unwrap();
        }
        self.hub.tick(self.now, &mut self.out);
    }

    fn read(&mut self, stream: StreamId, count: usize) {
        let Some(queue) = self.out.queues.get_mut(&stream) else { return };
        let count = count.min(queue.len());
        let read: Vec<Delivery> = queue.drain(..count).collect();
        let load = self.out.loads.get_mut(&stream).unwrap();
        for delivery in &read {
            load.bytes -= delivery.bytes;
            load.events -= delivery.weight();
            self.clients.get_mut(&stream).unwrap().receive(delivery, &self.store);
        }
        if load.bytes <= 750 && load.events <= 6 && self.out.waits.remove(&stream) {
            self.lane.push(Input::Drained(stream));
        }
    }

    fn finish(&mut self) {
        for _ in 0..10_000 {
            self.turn();
            for stream in 0..STREAMS {
                self.read(stream, usize::MAX);
            }
            let quiet = self.lane.is_empty() && self.hub.stats().lagging == 0;
            if quiet && self.out.queues.values().all(Vec::is_empty) {
                for client in self.clients.values() {
                    client.finish(&self.store);
                }
                return;
            }
        }
        panic!("the hub never becomes quiet");
    }
}

#[test]
fn every_watch_gets_every_event_once_and_in_order() {
    let (mut events, mut compacted, mut progressed, mut overflows, mut behind) = (0, 0, 0, 0, 0);
    for seed in 0..600 {
        let mut world = World::new(seed);
        for _ in 0..500 {
            world.step();
        }
        world.finish();
        for client in world.clients.values() {
            events += client.events;
            compacted += client.compacted;
            progressed += client.progressed;
        }
        overflows += world.overflows;
        behind += world.hub.stats().fell_behind;
    }
    println!(
        "{events} events, {compacted} compacted, {progressed} progress, {overflows} overflows, {behind} fell behind"
    );
    assert!(events > 100_000 && compacted > 1_000 && progressed > 1_000);
    assert!(overflows > 1_000 && behind > 1_000);
}
