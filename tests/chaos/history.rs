//! Clients that remember what they sent and saw, and the verdict on it.

use crate::common::{Clients, key_value};
use crate::linear::{Action, Op, Seen, Verdict, check};
use crate::members::SOON;
use assay::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use assay::proto::etcdserverpb::request_op::Request;
use assay::proto::etcdserverpb::response_op::Response;
use assay::proto::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Keys in use at a time: few, so that clients meet.
const KEYS: u64 = 4;
/// Clients of each member.
const CLIENTS: usize = 2;
/// Pause of a client between two requests: histories stay small enough to be judged exactly.
const PAUSE: Duration = Duration::from_millis(10);
/// A client gives up on an answer after this: more than an election, less than the server's own
/// limit, so that many an outcome stays unknown.
const PATIENCE: Duration = Duration::from_secs(3);

struct Shared {
    start: Instant,
    ops: Mutex<BTreeMap<String, Vec<Op>>>,
    values: AtomicU64,
    /// Counts up: every round has keys of its own, which bounds the histories.
    round: AtomicU64,
    acked: AtomicU64,
    /// When the newest acknowledgement came, and the longest time between two of them, ns.
    acked_at: AtomicU64,
    longest_gap: AtomicU64,
    /// Acknowledged and failed requests by member.
    by_member: Vec<[AtomicU64; 2]>,
    stop: AtomicBool,
}

/// What became of a run: the figures that somebody who reads its log wants.
#[derive(Debug)]
pub(crate) struct Account {
    /// Requests acknowledged.
    pub(crate) acked: u64,
    /// Requests and attempts to connect that failed.
    failed: u64,
    /// Longest time in which no client got an answer.
    longest_gap: Duration,
    /// Keys whose histories were judged, and those of them that were too hard to decide.
    histories: usize,
    unknown: usize,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acked, failed, longest_gap, histories, unknown } = self;
        write!(
            f,
            "{acked} acknowledged, {failed} errors seen by clients, longest time without service \
             {:.2} s, {histories} histories linearizable",
            longest_gap.as_secs_f64()
        )?;
        if *unknown > 0 {
            write!(f, " ({unknown} of them too hard to decide)")?;
        }
        Ok(())
    }
}

/// Running clients.
pub(crate) struct Load {
    shared: Arc<Shared>,
    urls: Vec<String>,
    tasks: Vec<JoinHandle<()>>,
}

type Answer = Result<Seen, tonic::Status>;

impl Load {
    /// Starts clients of every member; each stays with its own.
    pub(crate) fn start(urls: Vec<String>, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            ops: Mutex::default(),
            values: AtomicU64::new(1),
            round: AtomicU64::new(0),
            acked: AtomicU64::new(0),
            acked_at: AtomicU64::new(0),
            longest_gap: AtomicU64::new(0),
            by_member: urls.iter().map(|_| Default::default()).collect(),
            stop: AtomicBool::new(false),
        });
        let mut tasks = Vec::new();
        for at in 0..urls.len() * CLIENTS {
            let (shared, url) = (shared.clone(), urls[at % urls.len()].clone());
            let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_add(at as u64));
            tasks.push(tokio::spawn(client(shared, url, at % urls.len(), rng)));
        }
        Self { shared, urls, tasks }
    }

    /// Requests acknowledged so far.
    pub(crate) fn acked(&self) -> u64 {
        self.shared.acked.load(SeqCst)
    }

    /// Longest time so far in which nothing was acknowledged.
    pub(crate) fn longest_gap(&self) -> Duration {
        Duration::from_nanos(self.shared.longest_gap.load(SeqCst))
    }

    /// Acknowledged and failed requests of a member's clients.
    pub(crate) fn of_member(&self, at: usize) -> (u64, u64) {
        let [acked, failed] = &self.shared.by_member[at];
        (acked.load(SeqCst), failed.load(SeqCst))
    }

    /// Begins a round with new keys.
    pub(crate) fn next_round(&self) {
        self.shared.round.fetch_add(1, SeqCst);
    }

    /// Waits until `more` further requests are acknowledged; returns how long the first one took.
    ///
    /// # Panics
    /// When they are not within a minute.
    pub(crate) async fn wait_acked(&self, more: u64) -> Duration {
        let (start, before) = (Instant::now(), self.acked());
        let mut first = None;
        loop {
            let acked = self.acked() - before;
            if acked > 0 && first.is_none() {
                first = Some(start.elapsed());
            }
            if acked >= more {
                return first.unwrap_or_default();
            }
            assert!(start.elapsed() < SOON, "the members do not serve");
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops, reads every key through every member and judges every history.
    ///
    /// # Panics
    /// When a history is not linearizable, with the history.
    pub(crate) async fn judge(mut self) -> Account {
        self.shared.stop.store(true, SeqCst);
        for task in self.tasks.drain(..) {
            task.await.expect("a client");
        }
        let keys: Vec<String> = self.shared.ops.lock().expect("ops").keys().cloned().collect();
        for url in &self.urls {
            for key in &keys {
                self.shared.last_read(url, key).await;
            }
        }
        let ops = std::mem::take(&mut *self.shared.ops.lock().expect("ops"));
        let mut unknown = 0;
        for (key, history) in &ops {
            match check(history) {
                Verdict::Linearizable => {}
                Verdict::Unknown => unknown += 1,
                Verdict::NotLinearizable => {
                    let mut history = history.clone();
                    history.sort_by_key(|op| op.invoked);
                    let lines = history.iter().map(|op| format!("{op:?}")).collect::<Vec<_>>();
                    panic!("{key} is not linearizable:\n{}", lines.join("\n"));
                }
            }
        }
        // One in fifty may be too hard to decide (`reliability.md` 4.4).
        assert!(unknown * 50 <= ops.len(), "{unknown} of {} histories undecided", ops.len());
        let failed = (0..self.urls.len()).map(|at| self.of_member(at).1).sum();
        let (acked, longest_gap) = (self.acked(), self.longest_gap());
        Account { acked, failed, longest_gap, histories: ops.len(), unknown }
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn record(&self, key: &str, invoked: u64, action: Action, seen: Seen) {
        let op = Op { invoked, returned: self.now(), action, seen };
        self.ops.lock().expect("ops").entry(key.to_string()).or_default().push(op);
    }

    async fn last_read(&self, url: &str, key: &str) {
        let start = Instant::now();
        loop {
            let invoked = self.now();
            if let Ok(mut clients) = Clients::try_connect(url).await
                && let Ok(Ok(seen)) = timeout(PATIENCE, get(&mut clients, key)).await
            {
                return self.record(key, invoked, Action::Get, seen);
            }
            assert!(start.elapsed() < SOON, "{url} does not answer when all is well again");
            sleep(PAUSE).await;
        }
    }
}

async fn client(shared: Arc<Shared>, url: String, member: usize, mut rng: ChaCha8Rng) {
    let mut clients: Option<Clients> = None;
    // What this client believes is there: makes some of its compare-and-swaps succeed.
    let mut believed: BTreeMap<String, Option<u64>> = BTreeMap::new();
    while !shared.stop.load(SeqCst) {
        sleep(PAUSE).await;
        let Some(connected) = &mut clients else {
            clients = match timeout(PATIENCE, Clients::try_connect(&url)).await {
                Ok(Ok(connected)) => Some(connected),
                _ => {
                    shared.by_member[member][1].fetch_add(1, SeqCst);
                    None
                }
            };
            continue;
        };
        let round = shared.round.load(SeqCst);
        let key = format!("r{round}/{}", rng.random_range(0..KEYS));
        let value = shared.values.fetch_add(1, SeqCst);
        let action = match rng.random_range(0..10) {
            0..4 => Action::Put(value),
            4..7 => Action::Get,
            7 => Action::Delete,
            _ => Action::Cas(believed.get(&key).copied().flatten(), value),
        };
        let invoked = shared.now();
        let answer = match action {
            Action::Put(value) => timeout(PATIENCE, put(connected, &key, value)).await,
            Action::Get => timeout(PATIENCE, get(connected, &key)).await,
            Action::Delete => timeout(PATIENCE, delete(connected, &key)).await,
            Action::Cas(expected, value) => {
                timeout(PATIENCE, swap(connected, &key, expected, value)).await
            }
        };
        let seen = match answer {
            Ok(Ok(seen)) => seen,
            // Whatever the error says: it counts as "may have happened".
            Ok(Err(_)) | Err(_) => {
                clients = None;
                Seen::Unknown
            }
        };
        shared.record(&key, invoked, action, seen);
        shared.by_member[member][usize::from(seen == Seen::Unknown)].fetch_add(1, SeqCst);
        if seen != Seen::Unknown {
            shared.acked.fetch_add(1, SeqCst);
            let now = shared.now();
            let gap = now.saturating_sub(shared.acked_at.swap(now, SeqCst));
            shared.longest_gap.fetch_max(gap, SeqCst);
            let now = match (action, seen) {
                (Action::Put(value), _) => Some(value),
                (Action::Delete, _) => None,
                (Action::Cas(expected, value), Seen::Found(found)) if found == expected => {
                    Some(value)
                }
                (_, Seen::Found(found)) => found,
                _ => None,
            };
            believed.insert(key, now);
        }
    }
}

fn text(value: u64) -> Bytes {
    Bytes::from(value.to_string())
}

/// The value of the only row.
fn value(rows: &[Bytes]) -> Option<u64> {
    let row = key_value(rows.first()?);
    Some(String::from_utf8_lossy(&row.value).parse().expect("a value of ours"))
}

fn key_bytes(key: &str) -> Bytes {
    Bytes::copy_from_slice(key.as_bytes())
}

async fn put(clients: &mut Clients, key: &str, new: u64) -> Answer {
    let put = PutRequest { key: key_bytes(key), value: text(new), ..PutRequest::default() };
    clients.kv.put(put).await.map(|_| Seen::Done)
}

async fn get(clients: &mut Clients, key: &str) -> Answer {
    let range = RangeRequest { key: key_bytes(key), ..RangeRequest::default() };
    Ok(Seen::Found(value(&clients.kv.range(range).await?.into_inner().kvs)))
}

async fn delete(clients: &mut Clients, key: &str) -> Answer {
    let delete =
        DeleteRangeRequest { key: key_bytes(key), prev_kv: true, ..DeleteRangeRequest::default() };
    Ok(Seen::Found(value(&clients.kv.delete_range(delete).await?.into_inner().prev_kvs)))
}

async fn swap(clients: &mut Clients, key: &str, expected: Option<u64>, new: u64) -> Answer {
    let (target, union) = match expected {
        Some(value) => (CompareTarget::Value, TargetUnion::Value(text(value))),
        None => (CompareTarget::Version, TargetUnion::Version(0)),
    };
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key: key_bytes(key),
        target_union: Some(union),
        ..Compare::default()
    };
    let put = PutRequest { key: key_bytes(key), value: text(new), ..PutRequest::default() };
    let range = RangeRequest { key: key_bytes(key), ..RangeRequest::default() };
    let txn = TxnRequest {
        compare: vec![compare],
        success: vec![RequestOp { request: Some(Request::RequestPut(put)) }],
        failure: vec![RequestOp { request: Some(Request::RequestRange(range)) }],
    };
    let answer = clients.kv.txn(txn).await?.into_inner();
    if answer.succeeded {
        return Ok(Seen::Found(expected));
    }
    match answer.responses.into_iter().next().and_then(|response| response.response) {
        Some(Response::ResponseRange(range)) => Ok(Seen::Found(value(&range.kvs))),
        other => panic!("not the answer to a range: {other:?}"),
    }
}
