//! What a client may see: a model of each watch that knows the whole history.

use super::*;

/// One watch as its client sees it.
struct Watch {
    create: Create,
    /// First revision whose events the client has not got.
    next: i64,
    /// Parts of a split response.
    parts: Vec<Bytes>,
    over: bool,
}

/// One client: checks every response in the order of its stream.
#[derive(Default)]
pub(crate) struct Client {
    watches: BTreeMap<i64, Watch>,
    /// Create requests not answered yet, with the store's revision when they were sent.
    asked: std::collections::VecDeque<(Create, i64)>,
    progress: i64,
    pub(crate) events: usize,
    pub(crate) compacted: usize,
    pub(crate) progressed: usize,
}

impl Client {
    pub(crate) fn ask(&mut self, create: Create, store: &Store) {
        self.asked.push_back((create, store.revision));
    }

    pub(crate) fn ids(&self) -> Vec<i64> {
        self.watches.iter().filter(|(_, watch)| !watch.over).map(|(&id, _)| id).collect()
    }

    pub(crate) fn receive(&mut self, d: &Delivery, store: &Store) {
        if d.created {
            self.created(d);
        } else if d.canceled {
            let watch = self.watches.get_mut(&d.watch_id).expect("cancel of an unknown watch");
            assert!(!watch.over, "W12: cancelled twice");
            watch.over = true;
            if d.compact_revision != 0 {
                self.compacted += 1;
                assert_eq!(d.revision, 0);
                assert!(watch.next < d.compact_revision, "W9: cancelled without need");
                assert!(d.compact_revision <= store.compact);
            }
        } else if d.events.is_empty() {
            self.progressed += 1;
            self.progressed(d, store);
        } else {
            self.events += d.events.len();
            self.got(d, store);
        }
    }

    fn created(&mut self, d: &Delivery) {
        let (create, sent_at) = self.asked.pop_front().expect("an answer nobody asked for");
        let used = |id: &i64| self.watches.get(id).is_some_and(|watch| !watch.over);
        let empty = matches!(&create.range.end, End::To(end) if create.range.start >= *end);
        let refused = create.start_revision < 0 || empty || used(&create.watch_id);
        if create.watch_id != 0 || create.start_revision < 0 || empty {
            assert_eq!(d.canceled, refused);
        }
        if d.canceled {
            return;
        }
        assert!(d.revision >= sent_at, "created at a revision before the request was sent");
        assert!(!used(&d.watch_id), "W12: id used while live");
        let next = if create.start_revision == 0 { d.revision + 1 } else { create.start_revision };
        let watch = Watch { create, next, parts: Vec::new(), over: false };
        self.watches.insert(d.watch_id, watch);
    }

    fn got(&mut self, d: &Delivery, store: &Store) {
        let watch = self.watches.get_mut(&d.watch_id).expect("events of an unknown watch");
        assert!(!watch.over, "W12: events after the cancel");
        watch.parts.extend(d.events.iter().cloned());
        if d.fragment {
            assert!(watch.create.fragment);
            return;
        }
        let events = std::mem::take(&mut watch.parts);
        let seen: Vec<Seen> = events.iter().map(decode).collect();
        let last = seen[seen.len() - 1].2;
        assert!(d.revision >= last, "header below the events");
        let expected = expected(&watch.create, store, watch.next, last);
        let (kinds, got): (Vec<_>, Vec<_>) = (
            expected.iter().map(|(seen, _)| seen.clone()).collect(),
            seen.iter().map(|s| (s.0, s.1.clone(), s.2, s.3)).collect(),
        );
        // W1 order, W2 unique, W3 whole revisions, W4 complete, W8 range and filter, W10 start.
        assert_eq!(got, kinds, "W1-W4, W8, W10: from {}", watch.next);
        for ((_, prev), (.., got)) in expected.iter().zip(&seen) {
            let compacted = last_compacted(store, &watch.create, prev.0);
            match &prev.1 {
                Some(row) if watch.create.prev_kv => {
                    assert!(got == row || (got.is_empty() && compacted), "W7: previous row");
                }
                _ => assert!(got.is_empty(), "W7: a previous row from nowhere"),
            }
        }
        watch.next = last + 1;
    }

    fn progressed(&mut self, d: &Delivery, store: &Store) {
        assert!(d.revision >= self.progress, "W6: progress went back");
        self.progress = d.revision;
        for (&id, watch) in &self.watches {
            if watch.over || (d.watch_id != NO_WATCH && d.watch_id != id) {
                continue;
            }
            let missing = expected(&watch.create, store, watch.next, d.revision);
            assert!(missing.is_empty(), "W6: progress ahead of events of watch {id}");
        }
    }

    /// Whether everything up to the store's revision has come.
    pub(crate) fn is_done(&self, store: &Store) -> bool {
        self.asked.is_empty()
            && self
                .watches
                .values()
                .filter(|watch| !watch.over)
                .all(|watch| expected(&watch.create, store, watch.next, store.revision).is_empty())
    }

    /// Nothing is left to come.
    pub(crate) fn finish(&self, store: &Store) {
        assert!(self.asked.is_empty(), "a create request without an answer");
        for (id, watch) in self.watches.iter().filter(|(_, watch)| !watch.over) {
            assert!(watch.parts.is_empty(), "the last part never came");
            let missing = expected(&watch.create, store, watch.next, store.revision);
            assert!(missing.is_empty(), "W4: watch {id} misses {} events", missing.len());
        }
    }
}

fn last_compacted(store: &Store, create: &Create, main: i64) -> bool {
    create.prev_kv && main - 1 < store.compact
}

/// Delete?, key, mod revision, is creation.
type Shown = (bool, Bytes, i64, bool);

/// The events a watch must be given of `[from, to]`, each with its revision and previous row.
fn expected(
    create: &Create,
    store: &Store,
    from: i64,
    to: i64,
) -> Vec<(Shown, (i64, Option<Bytes>))> {
    let mut out = Vec::new();
    // Revisions start at 2 and have no holes.
    for batch in store.history.iter().skip((from - 2).max(0) as usize) {
        if batch.revision < from {
            continue;
        }
        if batch.revision > to {
            break;
        }
        for event in &batch.events {
            let inside = match &create.range.end {
                End::Single => event.key == create.range.start,
                End::To(end) => event.key >= create.range.start && event.key < *end,
                End::Unbounded => event.key >= create.range.start,
            };
            let delete = event.kind == EventKind::Delete;
            if !inside || (delete && create.no_delete) || (!delete && create.no_put) {
                continue;
            }
            let prev =
                (!event.is_create).then(|| store.before(&event.key, batch.revision)).flatten();
            let seen = (delete, event.key.clone(), batch.revision, event.is_create);
            out.push((seen, (batch.revision, prev)));
        }
    }
    out
}
