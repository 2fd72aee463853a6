//! Watching clients: each range sees each of its events once and in order, across restarts.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use assay::mvcc::KeyRange;
use assay::proto::mvccpb::Event;
use assay::watch::{Create, Delivery, Load, Outbox, StreamId};
use bytes::Bytes;
use prost::Message as _;

use super::broken::Broken;
use super::frame::{Verdict, Violation};
use super::model::{Kv, Model, within};
use crate::check;

/// Queues of the streams, as the edge keeps them.
#[derive(Default)]
pub struct Queues {
    queues: BTreeMap<StreamId, VecDeque<Delivery>>,
    want_room: Vec<StreamId>,
    broken: Broken,
}

impl Queues {
    pub fn new(broken: Broken) -> Self {
        Queues { broken, ..Queues::default() }
    }

    pub fn open(&mut self, stream: StreamId) {
        self.queues.insert(stream, VecDeque::new());
    }

    /// Takes up to `n` deliveries; says whether the hub waits for room on this stream.
    pub fn take(&mut self, stream: StreamId, n: usize) -> (Vec<Delivery>, bool) {
        let Some(queue) = self.queues.get_mut(&stream) else { return (Vec::new(), false) };
        let taken: Vec<Delivery> = queue.drain(..n.min(queue.len())).collect();
        let waits = self.want_room.contains(&stream) && queue.is_empty();
        if waits {
            self.want_room.retain(|other| *other != stream);
        }
        (taken, waits)
    }

    /// Whether nothing waits for this stream.
    pub fn is_drained(&self, stream: StreamId) -> bool {
        self.queues.get(&stream).is_none_or(VecDeque::is_empty)
    }
}

impl Outbox for Queues {
    fn load(&self, stream: StreamId) -> Load {
        let mut load = Load::default();
        for delivery in self.queues.get(&stream).into_iter().flatten() {
            load.bytes += delivery.bytes;
            load.events += delivery.weight();
        }
        load
    }

    fn deliver(&mut self, delivery: Delivery) {
        if let Some(queue) = self.queues.get_mut(&delivery.stream) {
            let lost = self.broken == Broken::WatchEventLost && queue.len() > 4;
            if lost && !delivery.events.is_empty() {
                return;
            }
            queue.push_back(delivery);
        }
    }

    fn wait_for_room(&mut self, stream: StreamId) {
        self.want_room.push(stream);
    }
}

/// One watching client with one range. It moves to another member when its own is gone.
pub struct Watcher {
    pub stream: StreamId,
    /// Where it watches: place and life of a member.
    pub at: (usize, u64),
    start: Bytes,
    end: Bytes,
    prev_kv: bool,
    /// Next revision it has not seen; 0 before its first create was answered.
    next: i64,
    /// Events seen so far, for the report.
    pub seen: u64,
    pub compacted: u64,
    /// Whether the stream has to be created anew.
    pub lost: bool,
}

impl Watcher {
    pub fn new(stream: StreamId, start: &'static [u8], end: &'static [u8], prev_kv: bool) -> Self {
        Self {
            stream,
            at: (0, 0),
            start: Bytes::from_static(start),
            end: Bytes::from_static(end),
            prev_kv,
            next: 0,
            seen: 0,
            compacted: 0,
            lost: true,
        }
    }

    /// The request with which the client goes on where it was.
    pub fn create(&mut self, broken: Broken) -> Create {
        self.lost = false;
        Create {
            range: KeyRange::from_request(self.start.clone(), self.end.clone()),
            start_revision: match broken {
                Broken::WatchResumedEarly if self.next > 1 => self.next - 1,
                _ => self.next,
            },
            watch_id: 0,
            no_put: false,
            no_delete: false,
            prev_kv: self.prev_kv,
            progress_notify: false,
            fragment: false,
        }
    }

    /// Events of the model that this client must see from its position on.
    fn expected<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = String> + 'a {
        model
            .rows
            .iter()
            .filter(|row| row.main >= self.next && within(&row.key, &self.start, &self.end))
            .map(|row| {
                let key = row.key.escape_ascii();
                if row.tombstone { format!("delete {key}m{}", row.main) } else { row.text() }
            })
    }

    /// Takes one delivery and compares it with what comes next.
    pub fn receive(&mut self, delivery: &Delivery, model: &Model) -> Verdict {
        if delivery.created && self.next == 0 {
            self.next = delivery.revision + 1;
        }
        if delivery.canceled {
            check!(
                delivery.compact_revision > 0 && delivery.cancel_reason == Cow::Borrowed(""),
                "watch was cancelled: {:?}",
                delivery.cancel_reason
            );
            check!(
                delivery.compact_revision <= model.compact,
                "watch was cancelled for a compaction at {}, the newest was at {}",
                delivery.compact_revision,
                model.compact
            );
            check!(
                self.next < delivery.compact_revision,
                "watch at {} was cancelled for a compaction at {}",
                self.next,
                delivery.compact_revision
            );
            self.compacted += 1;
            self.next = delivery.compact_revision;
            self.lost = true;
            return Ok(());
        }
        let mut last = None;
        let expected: Vec<String> = self.expected(model).take(delivery.events.len()).collect();
        for (at, bytes) in delivery.events.iter().enumerate() {
            let event =
                Event::decode(&bytes[..]).map_err(|error| Violation(format!("event: {error}")))?;
            let row = event.kv;
            let kv = Kv::decode(&row[..]).map_err(|error| Violation(format!("row: {error}")))?;
            let text = match event.r#type {
                1 => format!("delete {}m{}", kv.key.escape_ascii(), kv.mod_revision),
                _ => Kv::text(&row),
            };
            check!(
                expected.get(at) == Some(&text),
                "watch of {:?} got {text:?}, expected {:?}",
                self.start,
                expected.get(at)
            );
            if self.prev_kv {
                let before =
                    model.range(&kv.key, b"", kv.mod_revision - 1).first().map(|row| row.text());
                let got = (!event.prev_kv.is_empty()).then(|| Kv::text(&event.prev_kv));
                // A compaction may have taken the previous row before it was read.
                check!(
                    got == before || (got.is_none() && kv.mod_revision <= model.compact + 1),
                    "previous row of {text:?} is {got:?}, expected {before:?}"
                );
            }
            self.seen += 1;
            last = Some(kv.mod_revision);
        }
        // Events of one revision come together, so the next one is a later revision.
        if let Some(last) = last {
            self.next = last + 1;
        }
        Ok(())
    }

    /// Nothing is under way: the client must have seen everything.
    pub fn finished(&self, model: &Model) -> Verdict {
        let missing: Vec<String> = self.expected(model).collect();
        check!(
            self.next == 0 || missing.is_empty(),
            "watch of {:?} at {} misses {missing:?}",
            self.start,
            self.next
        );
        Ok(())
    }
}
