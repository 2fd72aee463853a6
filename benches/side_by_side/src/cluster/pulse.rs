//! Puts at a steady pace to some servers, until told to stop: shows when a cluster serves again.
//!
//! A put that fails or stays unanswered is not counted; the next one is sent all the same.

use crate::closed_loop::runtime;
use crate::connection::{Connection, Method};
use crate::error::{Error, Result};
use crate::http2::Event;
use crate::workloads::puts;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};

/// Time between two puts to the same server: what the length of an outage is measured in.
const INTERVAL: Duration = Duration::from_millis(2);
/// How often a waiting caller looks.
const POLL: Duration = Duration::from_micros(500);
const NEVER: u64 = u64::MAX;

/// Puts on a thread of their own.
pub(crate) struct Pulse {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<()>>,
}

struct Shared {
    epoch: Instant,
    /// Puts acknowledged.
    acked: AtomicU64,
    /// Nanoseconds since `epoch` from which on a put counts for `first`.
    from: AtomicU64,
    /// Nanoseconds since `epoch` at which the first such put was acknowledged.
    first: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn nanoseconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_nanos() as u64
    }
}

impl Pulse {
    /// Begins to put random ones of so many keys.
    pub(crate) fn start(servers: Vec<SocketAddr>, keys: u64) -> Self {
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            acked: AtomicU64::new(0),
            from: AtomicU64::new(NEVER),
            first: AtomicU64::new(NEVER),
            stop: AtomicBool::new(false),
        });
        let for_thread = shared.clone();
        let thread = std::thread::spawn(move || beat(&servers, keys, &for_thread));
        Self { shared, thread }
    }

    /// Waits until so many puts are acknowledged.
    pub(crate) fn wait_acked(&self, puts: u64, patience: Duration) -> Result<()> {
        self.wait(patience, |shared| shared.acked.load(SeqCst) >= puts)
    }

    /// Waits until a put that was sent from now on is acknowledged; returns when it was.
    pub(crate) fn wait_served(&self, patience: Duration) -> Result<Instant> {
        self.shared.from.store(self.shared.nanoseconds(Instant::now()), SeqCst);
        self.wait(patience, |shared| shared.first.load(SeqCst) != NEVER)?;
        Ok(self.shared.epoch + Duration::from_nanos(self.shared.first.load(SeqCst)))
    }

    /// Ends.
    pub(crate) fn stop(self) -> Result<()> {
        self.shared.stop.store(true, SeqCst);
        self.thread.join().map_err(|_| Error::Answer("the pulse panicked".into()))?
    }

    fn wait(&self, patience: Duration, done: impl Fn(&Shared) -> bool) -> Result<()> {
        let start = Instant::now();
        while !done(&self.shared) {
            if self.thread.is_finished() || start.elapsed() > patience {
                let acked = self.shared.acked.load(SeqCst);
                let waited = start.elapsed();
                return Err(Error::Answer(format!("no service: {acked} puts after {waited:?}")));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

fn beat(servers: &[SocketAddr], keys: u64, shared: &Arc<Shared>) -> Result<()> {
    let local = LocalSet::new();
    let done = local.block_on(&runtime()?, async {
        let mut lanes = JoinSet::new();
        for server in servers {
            lanes.spawn_local(lane(*server, keys, shared.clone()));
        }
        while let Some(ended) = lanes.join_next().await {
            ended.map_err(|error| Error::Answer(error.to_string()))??;
        }
        Ok(())
    });
    if let Err(error) = &done {
        eprintln!("pulse: {error}");
    }
    done
}

async fn lane(server: SocketAddr, keys: u64, shared: Arc<Shared>) -> Result<()> {
    let mut connection = Connection::open(server, Method::Put).await?;
    let mut next = puts(keys);
    let mut sent = HashMap::new();
    let mut message = Vec::new();
    let mut due = Instant::now();
    while !shared.stop.load(SeqCst) {
        while due <= Instant::now() {
            message.clear();
            next(&mut message);
            if let Some(stream) = connection.push(&message, true)? {
                sent.insert(stream, shared.nanoseconds(Instant::now()));
            }
            due += INTERVAL;
        }
        let sink = |event: Event<'_>| {
            if let Event::End { stream, status } = event
                && let Some(sent) = sent.remove(&stream)
                && status == Some(0)
            {
                shared.acked.fetch_add(1, SeqCst);
                if sent > shared.from.load(SeqCst) {
                    shared.first.fetch_min(shared.nanoseconds(Instant::now()), SeqCst);
                }
            }
            Ok(())
        };
        // Nothing is lost when the time is up: the turn waits for the socket and nothing else.
        if let Ok(turned) = tokio::time::timeout_at(due.into(), connection.turn(sink)).await {
            turned?;
        }
    }
    Ok(())
}
