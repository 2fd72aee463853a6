//! Load whose answers are remembered, and the check that the server kept what it acknowledged.
//!
//! Writers put, delete and write pairs in transactions; followers watch everything and resume where
//! they stopped; a reader reads. All of them go on across restarts of the server. [`Load::audit`]
//! reads the server's whole history since the last audit and holds it against the ledger:
//!
//! - every acknowledged write is in the history, at the revision it was acknowledged with;
//! - nothing is in it that nobody sent;
//! - no answer shows a revision below one that was answered before it was asked for;
//! - what the followers saw, over all their resumptions, is the history: no gap, no duplicate.

use super::{Clients, event};
use assay::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use assay::proto::etcdserverpb::request_op::Request;
use assay::proto::etcdserverpb::watch_request::RequestUnion;
use assay::proto::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    WatchCreateRequest, WatchRequest,
};
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const PREFIX: &str = "load/";
const PREFIX_END: &str = "load0";
/// Keys of each writer: few, so that most writes have a history.
const KEYS: u64 = 8;
/// Pause before a refused connection is tried again: nothing tells that a server listens.
const RETRY: Duration = Duration::from_millis(20);
/// Longest wait for an answer or for a follower to catch up. Far above any answer of a server that
/// lives: a longer wait is a finding.
const PATIENCE: Duration = Duration::from_secs(60);

/// A key and its new value, `None` for a delete.
type Change = (Bytes, Option<Bytes>);
/// Changes by revision.
type History = BTreeMap<i64, Vec<Change>>;

/// How much load.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Writers, each with one request in flight.
    pub writers: u64,
    /// Watchers of everything.
    pub followers: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self { writers: 8, followers: 2, value_bytes: 300 }
    }
}

#[derive(Default)]
struct Ledger {
    attempts: HashSet<Change>,
    /// Acknowledged and not yet found in the history.
    acks: Vec<(i64, Vec<Change>)>,
    acked: u64,
    followed: Vec<History>,
    violations: Vec<String>,
}

struct Shared {
    url: String,
    shape: Shape,
    ledger: Mutex<Ledger>,
    /// Highest revision in any answer.
    highest: AtomicI64,
    stop: AtomicBool,
    acked: Notify,
    followed: Notify,
}

impl Shared {
    fn ledger<T>(&self, with: impl FnOnce(&mut Ledger) -> T) -> T {
        with(&mut self.ledger.lock().expect("nobody panics with the ledger"))
    }

    fn violated(&self, what: String) {
        self.ledger(|ledger| ledger.violations.push(what));
    }

    /// An answer with this revision came to a question asked when `floor` was the highest known.
    fn answered(&self, what: &str, revision: i64, floor: i64) {
        self.highest.fetch_max(revision, SeqCst);
        if revision < floor {
            self.violated(format!("{what}: revision {revision} after {floor} had been answered"));
        }
    }

    /// A connection, as soon as somebody listens; `None` when the load is over.
    async fn connect(&self) -> Option<Clients> {
        loop {
            if self.stop.load(SeqCst) {
                return None;
            }
            if let Ok(clients) = Clients::try_connect(&self.url).await {
                return Some(clients);
            }
            sleep(RETRY).await;
        }
    }
}

/// Running load. See the module text.
pub struct Load {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
    followers: Vec<JoinHandle<()>>,
    history: History,
    audited: i64,
    marks: u64,
}

impl Load {
    /// Starts load against `http://HOST:PORT`, in the current runtime.
    pub fn start(url: &str, shape: Shape) -> Self {
        let ledger =
            Ledger { followed: vec![History::new(); shape.followers], ..Ledger::default() };
        let shared = Arc::new(Shared {
            url: url.to_string(),
            shape,
            ledger: Mutex::new(ledger),
            highest: AtomicI64::new(0),
            stop: AtomicBool::new(false),
            acked: Notify::new(),
            followed: Notify::new(),
        });
        let mut tasks: Vec<_> =
            (0..shape.writers).map(|it| tokio::spawn(write(shared.clone(), it))).collect();
        tasks.push(tokio::spawn(read(shared.clone())));
        let followers =
            (0..shape.followers).map(|it| tokio::spawn(follow(shared.clone(), it))).collect();
        Self { shared, tasks, followers, history: History::new(), audited: 0, marks: 0 }
    }

    /// Number of acknowledged writes.
    pub fn acked(&self) -> u64 {
        self.shared.ledger(|ledger| ledger.acked)
    }

    /// Waits until this many more writes were acknowledged.
    ///
    /// # Panics
    /// When none is for a minute.
    pub async fn wait_acked(&self, more: u64) {
        let target = self.acked() + more;
        loop {
            let notified = self.shared.acked.notified();
            let before = self.acked();
            if before >= target {
                return;
            }
            let answer = timeout(PATIENCE, notified).await;
            assert!(answer.is_ok() || self.acked() > before, "no write was acknowledged");
        }
    }

    /// Ends the writers and the reader; the followers go on. Returns the number of acknowledged
    /// writes.
    pub async fn stop_writing(&mut self) -> u64 {
        self.shared.stop.store(true, SeqCst);
        for task in self.tasks.drain(..) {
            task.await.expect("a task of the load");
        }
        self.acked()
    }

    /// Holds the server's history against what was acknowledged and seen so far, while the load
    /// goes on. Returns everything that is wrong.
    pub async fn audit(&mut self) -> Vec<String> {
        let shared = self.shared.clone();
        let floor = shared.highest.load(SeqCst);
        let mut clients = within("connecting", Clients::connect(&shared.url)).await;
        let revision = self.mark(&mut clients, floor).await;
        let rows = RangeRequest {
            key: PREFIX.into(),
            range_end: PREFIX_END.into(),
            revision,
            ..RangeRequest::default()
        };
        let rows = within("reading the rows", clients.kv.range(rows)).await;
        let rows = rows.expect("the rows").into_inner();
        let mut wrong = Vec::new();
        if let Err(error) = self.read_history(&mut clients, revision).await {
            wrong.push(error);
        }
        // Rows as the history makes them.
        let mut state = BTreeMap::new();
        for (at, changes) in self.history.range(..=revision) {
            for (key, value) in changes {
                match value {
                    Some(value) => state.insert(key.clone(), (*at, value.clone())),
                    None => state.remove(key),
                };
            }
        }
        let rows = rows.kvs.iter().map(super::key_value);
        let rows: BTreeMap<_, _> =
            rows.map(|row| (row.key, (row.mod_revision, row.value))).collect();
        if rows != state {
            wrong.push(format!("at revision {revision} the rows are not those of the history"));
        }
        let history = &self.history;
        shared.ledger(|ledger| {
            let acks = std::mem::take(&mut ledger.acks);
            for (at, changes) in acks {
                if at > revision {
                    ledger.acks.push((at, changes));
                } else if history.get(&at) != Some(&changes) {
                    wrong.push(format!(
                        "lost: acknowledged at {at}: {}, in the history: {}",
                        brief(Some(&changes)),
                        brief(history.get(&at))
                    ));
                }
            }
            for (at, changes) in history.range(self.audited + 1..=revision) {
                if let Some(change) = changes.iter().find(|it| !ledger.attempts.contains(*it)) {
                    wrong.push(format!(
                        "at {at} is what nobody wrote: {}",
                        brief(Some(&vec![change.clone(),]))
                    ));
                }
            }
            wrong.append(&mut ledger.violations);
        });
        self.audited = revision;
        wrong
    }

    /// Ends the load and makes the last audit, of the followers too. Returns the number of
    /// acknowledged writes.
    ///
    /// # Panics
    /// When anything is wrong.
    pub async fn finish(mut self) -> u64 {
        let acked = self.stop_writing().await;
        let mut wrong = self.audit().await;
        // All of it again: what was read between two faults must not have changed since.
        let mut known = std::mem::take(&mut self.history);
        wrong.append(&mut self.audit().await);
        // The second audit left a mark of its own.
        known.extend(self.history.last_key_value().map(|(at, changes)| (*at, changes.clone())));
        if known != self.history {
            wrong.push("the history is not what it was".into());
        }
        let last = self.history.last_key_value().map_or(0, |(revision, _)| *revision);
        for it in 0..self.shared.shape.followers {
            if let Err(error) = self.caught_up(it, last).await {
                wrong.push(error);
                continue;
            }
            let seen = self.shared.ledger(|ledger| std::mem::take(&mut ledger.followed[it]));
            let differs = self.history.iter().zip(&seen).find(|(a, b)| a != b);
            if let Some(((at, changes), (seen_at, seen))) = differs {
                wrong.push(format!(
                    "follower {it} saw {seen_at} {} where the history has {at} {}",
                    brief(Some(seen)),
                    brief(Some(changes))
                ));
            } else if seen.len() != self.history.len() {
                wrong.push(format!("follower {it}: {} of {}", seen.len(), self.history.len()));
            }
        }
        for follower in &self.followers {
            follower.abort();
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        acked
    }

    async fn caught_up(&self, follower: usize, revision: i64) -> Result<(), String> {
        loop {
            let notified = self.shared.followed.notified();
            let seen = self.shared.ledger(|ledger| {
                ledger.followed[follower].last_key_value().map_or(0, |(at, _)| *at)
            });
            if seen >= revision {
                return Ok(());
            }
            if timeout(PATIENCE, notified).await.is_err() {
                return Err(format!("follower {follower} stopped at {seen} of {revision}"));
            }
        }
    }

    /// Writes a mark, so that the history up to its revision has a known end.
    async fn mark(&mut self, clients: &mut Clients, floor: i64) -> i64 {
        self.marks += 1;
        let value = Bytes::from(format!("mark-{}", self.marks));
        let changes = vec![(Bytes::from(format!("{PREFIX}mark")), Some(value))];
        self.shared.ledger(|ledger| ledger.attempts.extend(changes.iter().cloned()));
        let answer = within("writing a mark", send(clients, &changes)).await;
        let (revision, _) = answer.expect("the server writes");
        self.shared.answered("mark", revision, floor + 1);
        self.shared.ledger(|ledger| ledger.acks.push((revision, changes)));
        revision
    }

    /// Reads the history behind what is known, up to `revision`, with a watch of its own.
    async fn read_history(&mut self, clients: &mut Clients, revision: i64) -> Result<(), String> {
        let mut read = self.history.last_key_value().map_or(0, |(at, _)| *at);
        let stream = within("opening a watch", watch(clients, read + 1)).await;
        let mut stream = stream.map_err(|error| format!("watch: {error}"))?;
        while read < revision {
            let answer = timeout(PATIENCE, stream.message()).await;
            let end = || format!("the history ends at {read}, not at {revision}");
            let answer = answer.map_err(|_| end())?.map_err(|error| format!("watch: {error}"))?;
            record(&mut self.history, &answer.ok_or_else(end)?.events)?;
            read = self.history.last_key_value().map_or(read, |(at, _)| *at);
        }
        // Later ones are not part of this audit.
        self.history.split_off(&(revision + 1));
        Ok(())
    }
}

/// What the server must answer.
///
/// # Panics
/// When it does not.
async fn within<T>(what: &str, answer: impl Future<Output = T>) -> T {
    timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("no answer: {what}"))
}

fn brief(changes: Option<&Vec<Change>>) -> String {
    let Some(changes) = changes else { return "nothing".into() };
    let one = |(key, value): &Change| {
        let value = value.as_ref().map_or("deleted".into(), |value| {
            String::from_utf8_lossy(&value[..value.len().min(12)]).trim_end_matches('.').to_string()
        });
        format!("{}={value}", String::from_utf8_lossy(key))
    };
    changes.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Adds the events of one answer; a revision comes whole, once and after those before it.
fn record(history: &mut History, events: &[Bytes]) -> Result<(), String> {
    let known = history.last_key_value().map_or(0, |(at, _)| *at);
    let mut last = known;
    for bytes in events {
        let (kind, row, _) = event(bytes);
        let row = row.ok_or("an event without a row")?;
        if row.mod_revision <= known || row.mod_revision < last {
            return Err(format!("event of revision {} after {last}", row.mod_revision));
        }
        last = row.mod_revision;
        let change = (row.key, (kind == 0).then_some(row.value));
        history.entry(last).or_default().push(change);
    }
    Ok(())
}

async fn watch(
    clients: &mut Clients,
    start_revision: i64,
) -> Result<tonic::Streaming<assay::proto::etcdserverpb::WatchResponse>, tonic::Status> {
    let create = WatchCreateRequest {
        key: PREFIX.into(),
        range_end: PREFIX_END.into(),
        start_revision,
        ..WatchCreateRequest::default()
    };
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    // The sending side stays open: an ended one would end the watch.
    let requests = tokio_stream::StreamExt::chain(
        tokio_stream::once(create),
        tokio_stream::pending::<WatchRequest>(),
    );
    Ok(clients.watch.watch(requests).await?.into_inner())
}

async fn follow(shared: Arc<Shared>, me: usize) {
    loop {
        let clients = Clients::try_connect(&shared.url).await;
        let Ok(mut clients) = clients else {
            sleep(RETRY).await;
            continue;
        };
        let next = shared.ledger(|ledger| {
            ledger.followed[me].last_key_value().map_or(1, |(revision, _)| revision + 1)
        });
        let Ok(mut stream) = watch(&mut clients, next).await else { continue };
        while let Ok(Some(answer)) = stream.message().await {
            if answer.canceled {
                shared.violated(format!("follower {me}: cancelled: {}", answer.cancel_reason));
                break;
            }
            let revision = answer.header.as_ref().map_or(0, |header| header.revision);
            let recorded = shared.ledger(|ledger| record(&mut ledger.followed[me], &answer.events));
            if let Err(error) = recorded {
                return shared.violated(format!("follower {me} resumed from {next}: {error}"));
            }
            shared.highest.fetch_max(revision, SeqCst);
            shared.followed.notify_waiters();
        }
    }
}

async fn read(shared: Arc<Shared>) {
    let mut serializable = false;
    while let Some(mut clients) = shared.connect().await {
        loop {
            if shared.stop.load(SeqCst) {
                return;
            }
            serializable = !serializable;
            let floor = shared.highest.load(SeqCst);
            let request = RangeRequest {
                key: PREFIX.into(),
                range_end: PREFIX_END.into(),
                limit: 3,
                serializable,
                ..RangeRequest::default()
            };
            match timeout(PATIENCE, clients.kv.range(request)).await {
                Ok(Ok(answer)) => {
                    let header = answer.into_inner().header.unwrap_or_default();
                    shared.answered("read", header.revision, floor);
                }
                Ok(Err(_)) => break,
                Err(_) => return shared.violated("a read was not answered".into()),
            }
        }
    }
}

async fn write(shared: Arc<Shared>, me: u64) {
    let mut number = 0;
    while let Some(mut clients) = shared.connect().await {
        loop {
            if shared.stop.load(SeqCst) {
                return;
            }
            number += 1;
            let key = |n: u64| Bytes::from(format!("{PREFIX}{me}/{}", n % KEYS));
            let width = shared.shape.value_bytes;
            let value = Bytes::from(format!("{:.<width$}", format!("{me}-{number}")));
            let changes: Vec<Change> = match number % 8 {
                5 => vec![(key(number), None)],
                7 => vec![(key(number), Some(value.clone())), (key(number + 1), Some(value))],
                _ => vec![(key(number), Some(value))],
            };
            shared.ledger(|ledger| ledger.attempts.extend(changes.iter().cloned()));
            let floor = shared.highest.load(SeqCst);
            match timeout(PATIENCE, send(&mut clients, &changes)).await {
                Ok(Ok((revision, changed))) => {
                    shared.answered("write", revision, floor + i64::from(changed));
                    shared.ledger(|ledger| {
                        ledger.acked += 1;
                        if changed {
                            ledger.acks.push((revision, changes));
                        }
                    });
                    shared.acked.notify_waiters();
                }
                // Nobody knows whether it took effect: it may be in the history or not.
                Ok(Err(_)) => {
                    sleep(RETRY).await;
                    break;
                }
                Err(_) => return shared.violated("a write was not answered".into()),
            }
        }
    }
}

/// Sends one write; its revision, and whether it changed anything.
async fn send(clients: &mut Clients, changes: &[Change]) -> Result<(i64, bool), tonic::Status> {
    let put = |(key, value): &Change| PutRequest {
        key: key.clone(),
        value: value.clone().unwrap_or_default(),
        ..PutRequest::default()
    };
    let (header, changed) = match changes {
        [(key, None)] => {
            let delete = DeleteRangeRequest { key: key.clone(), ..DeleteRangeRequest::default() };
            let answer = clients.kv.delete_range(delete).await?.into_inner();
            (answer.header, answer.deleted > 0)
        }
        [one] => (clients.kv.put(put(one)).await?.into_inner().header, true),
        many => {
            // Always true: the comparison is there to be evaluated.
            let compare = Compare {
                result: CompareResult::Greater as i32,
                target: CompareTarget::Version as i32,
                key: many[0].0.clone(),
                target_union: Some(TargetUnion::Version(-1)),
                ..Compare::default()
            };
            let puts =
                many.iter().map(|it| RequestOp { request: Some(Request::RequestPut(put(it))) });
            let txn =
                TxnRequest { compare: vec![compare], success: puts.collect(), failure: Vec::new() };
            (clients.kv.txn(txn).await?.into_inner().header, true)
        }
    };
    Ok((header.unwrap_or_default().revision, changed))
}
