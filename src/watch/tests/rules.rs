//! The rules one by one.

use super::*;

struct Bench {
    store: Store,
    hub: Hub,
    out: Queues,
}

impl Bench {
    fn new() -> Self {
        Self::with(HubOptions::default())
    }

    fn with(options: HubOptions) -> Self {
        Self { store: Store::new(), hub: Hub::new(options, 1), out: Queues::default() }
    }

    fn put(&mut self, key: &str) {
        self.commit(&[(Op::Put, key)]);
    }

    fn commit(&mut self, ops: &[(Op, &str)]) {
        let batch = self.store.commit(ops, 10).unwrap();
        self.hub.publish(&batch, &self.store, &mut self.out).unwrap();
    }

    fn create(&mut self, create: &Create) {
        self.hub.create(1, create, 0, &self.store, &mut self.out).unwrap();
    }

    fn turn(&mut self) -> Vec<Delivery> {
        self.hub.flush(&mut self.out);
        while self.hub.catch_up(&self.store, &mut self.out).unwrap() {}
        self.out.take(1)
    }

    fn revisions(&mut self) -> Vec<i64> {
        self.turn().iter().flat_map(|d| &d.events).map(|event| decode(event).2).collect()
    }
}

#[test]
fn created_comes_first_and_ids_only_grow() {
    let mut bench = Bench::new();
    bench.put("a");
    for _ in 0..3 {
        bench.create(&watch(range("a", End::Single), 1));
    }
    bench.hub.cancel(1, 1, &bench.store, &mut bench.out);
    bench.create(&Create { watch_id: 3, ..watch(range("a", End::Single), 0) });
    bench.create(&watch(range("a", End::Single), 0));
    let turn = bench.turn();
    let created: Vec<i64> = turn.iter().filter(|d| d.created).map(|d| d.watch_id).collect();
    assert_eq!(created, [0, 1, 2, 3, 4]);
    assert!(turn[0].created && turn[0].revision == 2);
    let canceled: Vec<i64> = turn.iter().filter(|d| d.canceled).map(|d| d.watch_id).collect();
    assert_eq!(canceled, [1]);
    let with_events: Vec<i64> =
        turn.iter().filter(|d| !d.events.is_empty()).map(|d| d.watch_id).collect();
    assert_eq!(with_events, [0, 2]);
}

#[test]
fn bad_requests_are_refused_with_the_exact_texts() {
    let mut bench = Bench::new();
    bench.create(&watch(range("b", to("a")), 0));
    bench.create(&watch(range("b", to("b")), 0));
    bench.create(&watch(range("b", End::Single), -1));
    bench.create(&Create { watch_id: 7, ..watch(range("b", End::Single), 0) });
    bench.create(&Create { watch_id: 7, ..watch(range("b", End::Single), 0) });
    let turn = bench.turn();
    let refused: Vec<&str> = turn
        .iter()
        .filter(|d| d.canceled)
        .map(|d| {
            assert!(d.created && d.watch_id == NO_WATCH && d.compact_revision == 0);
            d.cancel_reason.as_ref()
        })
        .collect();
    assert_eq!(
        refused,
        [
            "mvcc: watcher range is empty",
            "mvcc: watcher range is empty",
            "etcdserver: mvcc: required revision has been compacted",
            "mvcc: duplicate watch ID provided on the WatchStream",
        ]
    );
}

#[test]
fn a_compacted_start_is_created_and_then_cancelled() {
    let mut bench = Bench::new();
    for _ in 0..5 {
        bench.put("a");
    }
    bench.store.compact = 4;
    bench.store.scrub();
    bench.create(&watch(range("a", End::Single), 3));
    let turn = bench.turn();
    assert_eq!(turn.len(), 2);
    assert!(turn[0].created && !turn[0].canceled);
    let cancel = &turn[1];
    assert!(cancel.canceled && !cancel.created && cancel.cancel_reason.is_empty());
    assert_eq!((cancel.revision, cancel.compact_revision), (0, 4));
    bench.create(&watch(range("a", End::Single), 4));
    assert_eq!(bench.revisions(), [4, 5, 6], "a start at the compact revision is allowed");
}

#[test]
fn a_delete_at_the_compact_revision_is_delivered() {
    let mut bench = Bench::new();
    bench.put("a");
    bench.commit(&[(Op::Delete, "a")]);
    bench.put("b");
    bench.store.compact = 3;
    bench.store.scrub();
    bench.create(&watch(range("a", to("z")), 3));
    let turn = bench.turn();
    let events: Vec<Seen> = turn.iter().flat_map(|d| &d.events).map(decode).collect();
    assert_eq!(events[0], (true, Bytes::from_static(b"a"), 3, false, Bytes::new()));
}

#[test]
fn start_revisions_in_past_present_and_future() {
    let mut bench = Bench::new();
    bench.put("a");
    bench.put("a");
    bench.create(&watch(range("a", End::Single), 0));
    bench.create(&watch(range("a", End::Single), 3));
    bench.create(&watch(range("a", End::Single), 6));
    for _ in 0..4 {
        bench.put("a");
    }
    let turn = bench.turn();
    let of = |id: i64| -> Vec<i64> {
        let mine = turn.iter().filter(|d| d.watch_id == id);
        mine.flat_map(|d| &d.events).map(|event| decode(event).2).collect()
    };
    assert_eq!(of(0), [4, 5, 6, 7]);
    assert_eq!(of(1), [3, 4, 5, 6, 7]);
    assert_eq!(of(2), [6, 7]);
}

#[test]
fn filters_and_previous_rows() {
    let mut bench = Bench::new();
    let all = range("a", to("z"));
    bench.create(&Create { no_put: true, prev_kv: true, ..watch(all.clone(), 1) });
    bench.create(&Create { no_delete: true, prev_kv: true, ..watch(all.clone(), 1) });
    bench.put("a");
    bench.put("a");
    bench.commit(&[(Op::Delete, "a")]);
    // The same key twice in one transaction: the row before is that of the revision before.
    bench.commit(&[(Op::Put, "c"), (Op::Put, "b")]);
    bench.commit(&[(Op::Put, "c"), (Op::Delete, "c")]);
    let live = bench.turn();
    bench.create(&Create { watch_id: 10, no_put: true, prev_kv: true, ..watch(all.clone(), 1) });
    bench.create(&Create { watch_id: 11, no_delete: true, prev_kv: true, ..watch(all, 1) });
    let history = bench.turn();
    let of = |turn: &[Delivery], id: i64| -> Vec<(bool, i64, i64)> {
        let mine = turn.iter().filter(|d| d.watch_id == id);
        mine.flat_map(|d| &d.events)
            .map(|event| {
                let (delete, _, main, _, prev) = decode(event);
                let prev = KeyValue::decode(prev).unwrap().mod_revision;
                (delete, main, prev)
            })
            .collect()
    };
    assert_eq!(of(&live, 0), [(true, 4, 3), (true, 6, 5)]);
    assert_eq!(
        of(&live, 1),
        [(false, 2, 0), (false, 3, 2), (false, 5, 0), (false, 5, 0), (false, 6, 5)]
    );
    assert_eq!(of(&live, 0), of(&history, 10));
    assert_eq!(of(&live, 1), of(&history, 11));
}

#[test]
fn a_previous_row_is_not_shown_once_compacted() {
    let mut bench = Bench::new();
    for _ in 0..4 {
        bench.put("a");
    }
    bench.store.compact = 4;
    bench.create(&Create { prev_kv: true, ..watch(range("a", End::Single), 4) });
    let turn = bench.turn();
    let prevs: Vec<bool> =
        turn.iter().flat_map(|d| &d.events).map(|e| decode(e).4.is_empty()).collect();
    assert_eq!(prevs, [true, false], "3 is below the compact revision, 4 is not");
}

#[test]
fn fragments_only_when_asked_and_above_the_limit() {
    let options = HubOptions { fragment_bytes: 300, ..HubOptions::default() };
    let mut bench = Bench::with(options);
    let all = range("a", to("z"));
    bench.create(&watch(all.clone(), 0));
    bench.create(&Create { fragment: true, ..watch(all, 0) });
    bench.turn();
    let keys: Vec<String> = (0..20).map(|i| format!("k{i}")).collect();
    let ops: Vec<(Op, &str)> = keys.iter().map(|key| (Op::Put, key.as_str())).collect();
    bench.commit(&ops);
    let turn = bench.turn();
    let whole: Vec<&Delivery> = turn.iter().filter(|d| d.watch_id == 0).collect();
    assert!(whole.len() == 1 && whole[0].events.len() == 20 && !whole[0].fragment);
    let parts: Vec<&Delivery> = turn.iter().filter(|d| d.watch_id == 1).collect();
    assert!(parts.len() > 2);
    assert!(parts.iter().all(|d| d.bytes < 300 && d.revision == 2));
    assert_eq!(parts.iter().map(|d| d.events.len()).sum::<usize>(), 20);
    let flags: Vec<bool> = parts.iter().map(|d| d.fragment).collect();
    assert!(flags[..flags.len() - 1].iter().all(|&f| f) && !flags[flags.len() - 1]);
}

#[test]
fn a_progress_request_waits_for_every_watch_of_the_stream() {
    let mut bench = Bench::new();
    bench.hub.progress(1, &mut bench.out);
    assert_eq!(bench.turn(), [], "no watch, no answer");
    bench.put("a");
    bench.create(&watch(range("a", End::Single), 0));
    bench.hub.progress(1, &mut bench.out);
    let turn = bench.turn();
    assert_eq!((turn[1].watch_id, turn[1].revision), (NO_WATCH, 2));
    bench.create(&watch(range("a", End::Single), 1));
    bench.hub.progress(1, &mut bench.out);
    assert!(bench.turn().iter().all(|d| d.watch_id != NO_WATCH), "one is catching up");
    bench.hub.progress(1, &mut bench.out);
    assert_eq!(bench.turn().len(), 1);
    bench.create(&watch(range("a", End::Single), 4));
    bench.hub.progress(1, &mut bench.out);
    assert_eq!(bench.turn().len(), 1, "one starts in the future: created only");
    bench.put("b");
    bench.put("b");
    bench.hub.progress(1, &mut bench.out);
    assert_eq!(bench.turn()[0].revision, 4);
}

#[test]
fn progress_notifications_skip_active_watches_and_jitter_by_a_tenth() {
    let options = HubOptions { progress_interval_ms: 1_000, seed: 7, ..HubOptions::default() };
    let mut bench = Bench::with(options);
    bench.create(&Create { progress_notify: true, ..watch(range("a", End::Single), 0) });
    bench.create(&watch(range("b", End::Single), 0));
    bench.turn();
    let first = bench.hub.next_deadline().unwrap();
    assert!((1_000..=1_100).contains(&first));
    bench.hub.tick(first - 1, &mut bench.out);
    assert_eq!(bench.turn(), []);
    bench.hub.tick(first, &mut bench.out);
    let turn = bench.turn();
    assert_eq!((turn.len(), turn[0].watch_id, turn[0].revision), (1, 0, 1));
    bench.put("a");
    bench.turn();
    let second = bench.hub.next_deadline().unwrap();
    bench.hub.tick(second, &mut bench.out);
    assert_eq!(bench.turn(), [], "events were sent in this period");
    bench.hub.tick(bench.hub.next_deadline().unwrap(), &mut bench.out);
    assert_eq!(bench.turn().len(), 1);
    bench.hub.close(1, &mut bench.out);
    assert_eq!(bench.hub.next_deadline(), None);
}

#[test]
fn a_thousand_watchers_share_one_encoding() {
    let mut bench = Bench::new();
    for _ in 0..1_000 {
        bench.create(&watch(range("a", to("b")), 0));
    }
    bench.turn();
    bench.put("a1");
    let turn = bench.turn();
    assert_eq!(turn.len(), 1_000);
    let first = turn[0].events[0].as_ptr();
    assert!(turn.iter().all(|d| d.events[0].as_ptr() == first));
}

#[test]
fn a_stream_holds_a_bounded_number_of_watches() {
    let mut bench = Bench::new();
    for _ in 0..=STREAM_WATCHES {
        bench.create(&watch(range("a", End::Single), 0));
    }
    let turn = bench.turn();
    assert!(turn[..STREAM_WATCHES].iter().all(|d| d.created && !d.canceled));
    assert_eq!(turn[STREAM_WATCHES].cancel_reason, REASON_STREAM_FULL);
    bench
        .hub
        .create(2, &watch(range("a", End::Single), 0), 0, &bench.store, &mut bench.out)
        .unwrap();
    assert!(!bench.out.take(2)[0].canceled, "other streams are not affected");
}

#[test]
fn counts_return_to_zero() {
    let options = HubOptions { queue_events: 2, ..HubOptions::default() };
    let mut bench = Bench::with(options);
    for _ in 0..10 {
        bench.create(&watch(range("a", to("b")), 0));
    }
    bench.put("a");
    bench.hub.flush(&mut bench.out);
    while bench.hub.catch_up(&bench.store, &mut bench.out).unwrap() {}
    let stats = bench.hub.stats();
    assert_eq!((stats.watchers, stats.lagging, stats.blocked), (10, 10, 10));
    bench.hub.close(1, &mut bench.out);
    let stats = bench.hub.stats();
    assert_eq!((stats.streams, stats.watchers, stats.lagging, stats.blocked), (0, 0, 0, 0));
}

#[test]
fn the_index_finds_what_a_list_finds() {
    use crate::watch::index::Index;
    use rand::{Rng, SeedableRng};
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    let mut index = Index::default();
    let mut list: Vec<Option<(KeyRange, u32, usize)>> = Vec::new();
    let key = |rng: &mut rand_chacha::ChaCha8Rng| {
        let len = rng.random_range(1..4);
        (0..len).map(|_| rng.random_range('a'..'f')).collect::<String>()
    };
    for step in 0..20_000 {
        if rng.random_bool(0.52) || list.iter().all(Option::is_none) {
            let start = key(&mut rng);
            let end = match rng.random_range(0..10) {
                0..3 => End::Single,
                3..9 => to(&format!("{}{}", start, key(&mut rng))),
                _ => End::Unbounded,
            };
            let range = range(&start, end);
            let ix = list.len() as u32;
            let (group, place) = index.insert(&range, ix);
            list.push(Some((range, group, place)));
        } else {
            let victim = rng.random_range(0..list.len());
            if let Some((_, group, place)) = list[victim].take()
                && let Some(moved) = index.remove(group, place)
            {
                list[moved as usize].as_mut().unwrap().2 = place;
            }
        }
        if step % 7 == 0 {
            let key = key(&mut rng);
            let mut found = Vec::new();
            index.matching(key.as_bytes(), &mut found);
            found.sort_unstable();
            let expected: Vec<u32> = (0..list.len() as u32)
                .filter(|&ix| {
                    let entry = &list[ix as usize];
                    entry.as_ref().is_some_and(|(r, _, _)| r.contains(key.as_bytes()))
                })
                .collect();
            assert_eq!(found, expected, "step {step}, key {key}");
        }
    }
}

/// What a change costs the hub with many watchers: `cargo test --release --lib fan_out -- --ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement"]
fn fan_out() {
    use crate::telemetry::clock::now_ns;
    for (name, watchers, spread) in [("one prefix", 1_000, false), ("own keys", 100_000, true)] {
        let mut bench = Bench::new();
        for n in 0..watchers {
            let key = if spread { format!("k{n:06}/") } else { "k".to_string() };
            let end = to(&format!("{}0", &key[..key.len() - usize::from(spread)]));
            let end = if spread { end } else { to("l") };
            let create = watch(range(&key, end), 0);
            bench.hub.create(n, &create, 0, &bench.store, &mut bench.out).unwrap();
        }
        bench.out = Queues::default();
        let batches: Vec<_> = (0..200)
            .map(|n| bench.store.commit(&[(Op::Put, &format!("k{n:06}/x"))], 512).unwrap())
            .collect();
        // The first one builds the tree.
        bench.hub.publish(&batches[0], &bench.store, &mut bench.out).unwrap();
        bench.hub.flush(&mut bench.out);
        let start = now_ns();
        for batch in &batches[1..] {
            bench.hub.publish(batch, &bench.store, &mut bench.out).unwrap();
            bench.hub.flush(&mut bench.out);
        }
        let each = (now_ns() - start) / 199;
        println!("{watchers} watchers of {name}: {each} ns per change");
    }
}
