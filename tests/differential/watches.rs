//! The same watches on both sides, and what each of them must have seen.
//!
//! A master watch of everything gives the history. Every other watch must have seen exactly the part
//! of it that its range, filters and start ask for, on both sides alike, field for field. At a
//! checkpoint everything written so far must have arrived.

use crate::answer::show;
use crate::coverage::Coverage;
use crate::generate::Generator;
use crate::generate_txn::covers;
use crate::ops::Side;
use crate::stream::{Notice, Seen, WatchStream};
use assay::proto::etcdserverpb::watch_create_request::FilterType;
use assay::proto::etcdserverpb::watch_request::RequestUnion;
use assay::proto::etcdserverpb::{WatchCancelRequest, WatchCreateRequest, WatchProgressRequest};
use bytes::Bytes;
use rand::Rng;
use std::time::Duration;
use tokio::time::Instant;

/// Streams of each side. A watch that starts in the future, and in etcd also one that was ended by
/// compaction, keeps its whole stream from answering progress requests: those are set aside.
const MAIN: usize = 0;
const ASIDE: usize = 1;
const MASTER: usize = 2;
/// Watches open at a time, about.
const MOST_OPEN: usize = 24;
/// A progress request that comes too early is dropped without a word; then the next is sent.
const ASK_AGAIN: Duration = Duration::from_millis(40);
/// Kinds of requests that [`Watches::act`] takes turns with.
const KINDS: usize = 9;

/// A watch that is open on both sides.
struct Open {
    stream: usize,
    id: i64,
    key: Bytes,
    range_end: Bytes,
    puts: bool,
    deletes: bool,
    /// First revision it wants.
    start: i64,
    /// Position in the history up to which it was checked.
    checked: usize,
}

impl Open {
    fn wants(&self, event: &Seen) -> bool {
        let kind = if event.deleted { self.deletes } else { self.puts };
        kind && event.revision >= self.start && covers(&self.key, &self.range_end, &event.key)
    }
}

/// All watches, side by side.
pub(crate) struct Watches {
    /// By stream, then by side.
    streams: [[WatchStream; 2]; 3],
    history: Vec<Seen>,
    open: Vec<Open>,
    /// Watches whose end must come by itself: stream and identity.
    ending: Vec<(usize, i64)>,
    turn: usize,
    next_id: i64,
}

impl Watches {
    /// Opens the streams of both sides: the master watch, and on the others a watch that sees
    /// nothing.
    pub(crate) async fn open(sides: &mut [Side; 2]) -> Self {
        let streams = Self::open_streams(sides, 1).await;
        let (history, open, ending) = (Vec::new(), Vec::new(), Vec::new());
        Self { streams, history, open, ending, turn: 0, next_id: 1_000 }
    }

    /// Opens all streams anew after a restart; the watches of before are gone, the history goes on.
    pub(crate) async fn reopen(&mut self, sides: &mut [Side; 2]) {
        let next = self.history.last().map_or(1, |event| event.revision + 1);
        self.streams = Self::open_streams(sides, next).await;
        self.open.clear();
        self.ending.clear();
    }

    async fn open_streams(sides: &mut [Side; 2], start_revision: i64) -> [[WatchStream; 2]; 3] {
        let quiet = |key| WatchCreateRequest { key: Bytes::from_static(key), ..Default::default() };
        let everything = WatchCreateRequest {
            range_end: Bytes::from_static(b"\0"),
            start_revision,
            prev_kv: true,
            ..Default::default()
        };
        let mut streams = Vec::new();
        for first in [quiet(b"quiet"), quiet(b"quiet"), everything] {
            let first = RequestUnion::CreateRequest(first);
            let [a, b] = sides.each_mut();
            let mut pair = [
                WatchStream::open(&mut a.clients, first.clone()).await,
                WatchStream::open(&mut b.clients, first).await,
            ];
            for stream in &mut pair {
                assert!(stream.read_until(|stream| !stream.created.is_empty()).await);
            }
            pair.iter_mut().for_each(|stream| stream.created.clear());
            streams.push(pair);
        }
        streams.try_into().unwrap_or_else(|_| unreachable!("three streams"))
    }

    /// Sends the next request in turn to both sides and compares the immediate answers.
    pub(crate) async fn act(
        &mut self,
        it: &mut Generator,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        self.turn += 1;
        let (key, range_end) = loop {
            let (key, range_end) = it.interval();
            if range_end.is_empty() || range_end == "\0" || key < range_end {
                break (key, range_end);
            }
        };
        let mut create = WatchCreateRequest { key, range_end, ..Default::default() };
        if it.chance(5) {
            create.key = Bytes::new();
        }
        for filter in [FilterType::Noput, FilterType::Nodelete] {
            if it.chance(25) {
                create.filters.push(filter as i32);
            }
        }
        create.prev_kv = it.chance(50);
        create.fragment = it.chance(30);
        create.progress_notify = it.chance(30);
        let mut stream = MAIN;
        let what = match self.turn % KINDS {
            0 | 1 => "from now",
            2 => {
                create.start_revision = it.rng.random_range(it.compacted.max(1)..=it.revision);
                "from the past"
            }
            3 => {
                stream = ASIDE;
                create.start_revision = it.revision + it.rng.random_range(1..30);
                "from the future"
            }
            4 if it.compacted > 1 => {
                stream = ASIDE;
                create.start_revision = it.rng.random_range(1..it.compacted);
                "canceled: compacted"
            }
            5 => {
                create.start_revision = -it.rng.random_range(1..10);
                "refused: negative revision"
            }
            6 => {
                create.range_end = it.key();
                create.key = [&create.range_end[..], b"0"].concat().into();
                "refused: empty range"
            }
            7 => match self.open.iter().find(|open| open.stream == MAIN && open.id != 0) {
                Some(open) => {
                    create.watch_id = open.id;
                    "refused: duplicate id"
                }
                None => "from now",
            },
            _ => {
                self.next_id += it.rng.random_range(1..1_000);
                create.watch_id = self.next_id;
                "of an id"
            }
        };
        seen.add(&format!("watch {what}"));
        self.create(stream, &create, it.revision, what.starts_with("canceled"), seen).await
    }

    async fn create(
        &mut self,
        stream: usize,
        create: &WatchCreateRequest,
        revision: i64,
        ends: bool,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        let request = RequestUnion::CreateRequest(create.clone());
        let notices = self.ask(stream, request, |stream| &mut stream.created).await?;
        let [notice, _] = same(notices, &format!("answer to {create:?}"))?;
        if notice.revision != Some(revision) {
            return Err(format!("{create:?} at revision {revision} answered {notice:?}"));
        }
        if notice.canceled {
            return Ok(());
        }
        if ends {
            self.ending.push((stream, notice.watch_id));
            return Ok(());
        }
        let filtered = |filter: FilterType| create.filters.contains(&(filter as i32));
        let (puts, deletes) = (!filtered(FilterType::Noput), !filtered(FilterType::Nodelete));
        for (holds, what) in [
            (!puts, "watch NOPUT"),
            (!deletes, "watch NODELETE"),
            (create.prev_kv, "watch prev_kv"),
            (create.fragment, "watch fragment"),
            (create.progress_notify, "watch progress_notify"),
        ] {
            if holds {
                seen.add(what);
            }
        }
        let start = if create.start_revision == 0 { revision + 1 } else { create.start_revision };
        let key =
            if create.key.is_empty() { Bytes::from_static(b"\0") } else { create.key.clone() };
        // An empty key is every key from the first on, or the one key `\0`.
        let checked = self.history.partition_point(|event| event.revision < start);
        let (id, range_end) = (notice.watch_id, create.range_end.clone());
        self.open.push(Open { stream, id, key, range_end, puts, deletes, start, checked });
        Ok(())
    }

    /// Sends a request to both sides and waits for one notice from each.
    async fn ask(
        &mut self,
        stream: usize,
        request: RequestUnion,
        queue: fn(&mut WatchStream) -> &mut std::collections::VecDeque<Notice>,
    ) -> Result<[Notice; 2], String> {
        let mut notices = Vec::new();
        for side in &self.streams[stream] {
            side.send(request.clone()).await;
        }
        for (index, side) in self.streams[stream].iter_mut().enumerate() {
            let have = side.created.len() + side.canceled.len();
            // A watch that ends by itself may say so in between.
            let notice = loop {
                if let Some(place) = queue(side).iter().position(|notice| wanted(&request, notice))
                {
                    break queue(side).remove(place);
                }
                let before = side.created.len() + side.canceled.len();
                let more = |side: &WatchStream| side.created.len() + side.canceled.len() > before;
                if !side.read_until(more).await {
                    break None;
                }
            };
            let words = || format!("side {index} does not answer {request:?} ({have} waiting)");
            notices.push(notice.ok_or_else(words)?);
        }
        Ok(notices.try_into().unwrap_or_else(|_| unreachable!("two sides")))
    }

    /// Waits until everything up to `revision` has arrived everywhere, and compares it.
    pub(crate) async fn checkpoint(
        &mut self,
        revision: i64,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        self.extend_history(revision).await?;
        for place in 0..self.open.len() {
            self.check(place).await?;
        }
        self.check_ends().await?;
        seen.add("watch progress request");
        self.progress(revision).await
    }

    /// Brings the history up to `revision`.
    pub(crate) async fn extend_history(&mut self, revision: i64) -> Result<(), String> {
        let written = self.history.last().map_or(1, |event| event.revision);
        if written == revision {
            return Ok(());
        }
        let reached = |stream: &WatchStream| {
            let events = stream.events.get(&0);
            events.and_then(|events| events.back()).is_some_and(|event| event.revision >= revision)
        };
        let mut new = Vec::new();
        for (index, side) in self.streams[MASTER].iter_mut().enumerate() {
            if !side.read_until(reached).await {
                let last = side.events.get(&0).and_then(|events| events.back());
                return Err(format!("side {index}: no event of {revision}, last: {last:?}"));
            }
            new.push(side.events.remove(&0).unwrap_or_default());
        }
        let (b, a) = (new.pop().unwrap_or_default(), new.pop().unwrap_or_default());
        first_difference("watch of everything", &a, &b)?;
        self.history.extend(a);
        Ok(())
    }

    async fn check(&mut self, place: usize) -> Result<(), String> {
        let open = &mut self.open[place];
        let news = &self.history[open.checked..];
        let expected: Vec<&Seen> = news.iter().filter(|event| open.wants(event)).collect();
        open.checked = self.history.len();
        let name = format!(
            "watch {} on stream {} of {} to {} from {}",
            open.id,
            open.stream,
            show(&open.key),
            show(&open.range_end),
            open.start
        );
        let mut got = Vec::new();
        for (index, side) in self.streams[open.stream].iter_mut().enumerate() {
            let count = |side: &WatchStream| side.events.get(&open.id).map_or(0, |seen| seen.len());
            if !side.read_until(|side| count(side) >= expected.len()).await {
                let (have, want) = (count(side), expected.len());
                return Err(format!("side {index}, {name}: {have} of {want} events"));
            }
            let events = side.events.remove(&open.id).unwrap_or_default();
            let brief = |event: &Seen| (event.revision, event.key.clone(), event.deleted);
            let have: Vec<_> = events.iter().map(brief).collect();
            let want: Vec<_> = expected.iter().map(|event| brief(event)).collect();
            if have != want {
                return Err(format!("side {index}, {name}: saw {have:?}, must see {want:?}"));
            }
            got.push(events);
        }
        first_difference(&name, &got[0], &got[1])
    }

    async fn check_ends(&mut self) -> Result<(), String> {
        for (stream, id) in std::mem::take(&mut self.ending) {
            let mut notices = Vec::new();
            for (index, side) in self.streams[stream].iter_mut().enumerate() {
                let of_it = |notice: &Notice| notice.watch_id == id;
                if !side.read_until(|side| side.canceled.iter().any(of_it)).await {
                    return Err(format!("side {index} does not end watch {id} of the past"));
                }
                let place = side.canceled.iter().position(of_it);
                notices.extend(place.and_then(|place| side.canceled.remove(place)));
            }
            let notices = notices.try_into().unwrap_or_else(|_| unreachable!("two sides"));
            let [notice, _] = same(notices, "end of a watch of the past")?;
            if notice.compact_revision == 0 {
                return Err(format!("no compact revision in {notice:?}"));
            }
        }
        for (index, stream) in self.streams.iter().enumerate() {
            for (side, stream) in stream.iter().enumerate() {
                if let Some(notice) = stream.canceled.front().or(stream.created.front()) {
                    return Err(format!("side {side}, stream {index}: unasked {notice:?}"));
                }
            }
        }
        Ok(())
    }

    /// Asks for progress until it is answered: then no watch of the stream lags behind.
    async fn progress(&mut self, revision: i64) -> Result<(), String> {
        for (index, side) in self.streams[MAIN].iter_mut().enumerate() {
            side.progress.clear();
            let started = Instant::now();
            let answered = |side: &WatchStream| side.progress.contains(&revision);
            while !answered(side) {
                if started.elapsed() > crate::stream::PATIENCE {
                    let got = &side.progress;
                    return Err(format!("side {index}: no progress at {revision}, got {got:?}"));
                }
                side.send(RequestUnion::ProgressRequest(WatchProgressRequest {})).await;
                side.read_for(ASK_AGAIN, answered).await;
            }
        }
        Ok(())
    }

    /// Cancels some watches, right after a checkpoint.
    pub(crate) async fn cancel_some(
        &mut self,
        it: &mut Generator,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        let count = self.open.len().saturating_sub(MOST_OPEN) + it.rng.random_range(0..2);
        for _ in 0..count.min(self.open.len()) {
            let open = self.open.swap_remove(it.rng.random_range(0..self.open.len()));
            let request = RequestUnion::CancelRequest(WatchCancelRequest { watch_id: open.id });
            let notices = self.ask(open.stream, request, |stream| &mut stream.canceled).await?;
            same(notices, &format!("end of watch {}", open.id))?;
            for (index, side) in self.streams[open.stream].iter_mut().enumerate() {
                if let Some(events) = side.events.remove(&open.id) {
                    return Err(format!("side {index}, watch {}: unasked {events:?}", open.id));
                }
            }
            seen.add("watch cancel");
        }
        // Cancelling what is not there is answered with silence.
        for stream in &self.streams[MAIN] {
            let request = WatchCancelRequest { watch_id: i64::MAX };
            stream.send(RequestUnion::CancelRequest(request)).await;
        }
        Ok(())
    }

    /// Events that arrived for no open watch, or more than once.
    pub(crate) fn leftovers(&self) -> Option<String> {
        let pairs = self.streams.iter().enumerate();
        let all = pairs.flat_map(|(index, pair)| pair.iter().map(move |side| (index, side)));
        all.filter(|(_, side)| !side.events.is_empty())
            .map(|(index, side)| format!("stream {index}: unasked {:?}", side.events))
            .next()
    }

    /// What was written at a revision.
    pub(crate) fn written_at(&self, revision: i64) -> impl Iterator<Item = &str> {
        let events = self.history.iter().filter(move |event| event.revision == revision);
        events.map(|event| event.text.as_str())
    }

    /// Length of the history in events.
    pub(crate) fn events(&self) -> usize {
        self.history.len()
    }
}

/// Whether a notice answers this request.
fn wanted(request: &RequestUnion, notice: &Notice) -> bool {
    match request {
        RequestUnion::CancelRequest(cancel) => notice.watch_id == cancel.watch_id,
        _ => true,
    }
}

fn same(notices: [Notice; 2], what: &str) -> Result<[Notice; 2], String> {
    if notices[0] == notices[1] {
        return Ok(notices);
    }
    Err(format!("{what}:\n  a: {:?}\n  b: {:?}", notices[0], notices[1]))
}

fn first_difference(
    name: &str,
    a: &std::collections::VecDeque<Seen>,
    b: &std::collections::VecDeque<Seen>,
) -> Result<(), String> {
    for place in 0..a.len().max(b.len()) {
        let (a, b) = (a.get(place), b.get(place));
        if a != b {
            let show =
                |event: Option<&Seen>| event.map_or("nothing", |event| &event.text).to_string();
            return Err(format!("{name}, event {place}:\n  a: {}\n  b: {}", show(a), show(b)));
        }
    }
    Ok(())
}
