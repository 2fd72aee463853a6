//! Many watchers of one prefix, each a stream of its own, on a thread of their own.

use crate::closed_loop::{CONNECTIONS, histogram, runtime};
use crate::connection::{Connection, Method};
use crate::error::{Error, Result};
use crate::http2::Event;
use crate::messages::{end_of, watch, watched};
use hdrhistogram::Histogram;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};

/// How often the totals are looked at.
const POLL: Duration = Duration::from_millis(1);
/// How often a reader without news looks whether it should stop.
const STOP_POLL: Duration = Duration::from_millis(20);
/// One event in so many is timed, per connection.
const TIME_EVERY: u64 = 64;

/// Watchers that receive on a thread.
pub(crate) struct Watchers {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Histogram<u64>>>,
}

struct Shared {
    created: AtomicU64,
    events: AtomicU64,
    last_ns: AtomicU64,
    stop: AtomicBool,
    epoch: Instant,
}

/// What arrived.
pub(crate) struct Outcome {
    /// From the putting client's stamp in the value to the watcher, in nanoseconds.
    pub(crate) lag: Histogram<u64>,
}

impl Watchers {
    /// Creates `count` watchers of all keys with this prefix and waits until all are created.
    /// `epoch` is the zero of the stamps in the first eight bytes of the values.
    pub(crate) fn start(
        server: SocketAddr,
        count: usize,
        prefix: &str,
        epoch: Instant,
        patience: Duration,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            created: AtomicU64::new(0),
            events: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            epoch,
        });
        let mut create = Vec::new();
        watch(&mut create, prefix.as_bytes(), &end_of(prefix));
        let for_thread = shared.clone();
        let thread = std::thread::spawn(move || receive(server, count, &create, &for_thread));
        let watchers = Self { shared, thread };
        let created = |shared: &Shared| shared.created.load(Relaxed) >= count as u64;
        watchers.wait(patience, created)?;
        Ok(watchers)
    }

    /// Waits until so many events have arrived; returns when the last did.
    pub(crate) fn wait_events(&self, events: u64, patience: Duration) -> Result<Instant> {
        self.wait(patience, |shared| shared.events.load(Relaxed) >= events)?;
        let found = self.shared.events.load(Relaxed);
        if found != events {
            return Err(Error::Answer(format!("{found} events instead of {events}")));
        }
        Ok(self.shared.epoch + Duration::from_nanos(self.shared.last_ns.load(Relaxed)))
    }

    /// Closes all connections.
    pub(crate) fn stop(self) -> Result<Outcome> {
        self.shared.stop.store(true, Relaxed);
        let lag = self.thread.join().map_err(|_| Error::Answer("watcher panicked".into()))??;
        Ok(Outcome { lag })
    }

    fn wait(&self, patience: Duration, done: impl Fn(&Shared) -> bool) -> Result<()> {
        let start = Instant::now();
        while !done(&self.shared) {
            if self.thread.is_finished() || start.elapsed() > patience {
                let (created, events) = (&self.shared.created, &self.shared.events);
                return Err(Error::Answer(format!(
                    "watchers: {} created, {} events after {:?}",
                    created.load(Relaxed),
                    events.load(Relaxed),
                    start.elapsed()
                )));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

fn receive(
    server: SocketAddr,
    count: usize,
    create: &[u8],
    shared: &Arc<Shared>,
) -> Result<Histogram<u64>> {
    let local = LocalSet::new();
    local.block_on(&runtime()?, async {
        let mut lanes = JoinSet::new();
        for at in 0..CONNECTIONS {
            let share = count / CONNECTIONS + usize::from(at < count % CONNECTIONS);
            let mut connection = Connection::open(server, Method::Watch).await?;
            // Small messages: the first window is enough for all of them.
            for _ in 0..share {
                connection.push(create, false)?;
            }
            lanes.spawn_local(lane(connection, shared.clone()));
        }
        let mut lag = histogram();
        while let Some(ended) = lanes.join_next().await {
            let ended = ended.map_err(|error| Error::Answer(error.to_string()));
            let ended = ended.and_then(|ended| ended);
            if let Err(error) = &ended {
                eprintln!("watcher: {error}");
            }
            lag.add(ended?).map_err(|error| Error::Answer(error.to_string()))?;
        }
        Ok(lag)
    })
}

async fn lane(mut connection: Connection, shared: Arc<Shared>) -> Result<Histogram<u64>> {
    let mut lag = histogram();
    let mut streams: HashMap<u32, Vec<u8>> = HashMap::new();
    let mut messages = 0_u64;
    loop {
        if shared.stop.load(Relaxed) {
            return Ok(lag);
        }
        let (mut created, mut events, mut now) = (0, 0, None);
        let sink = |event: Event<'_>| {
            let (stream, bytes) = match event {
                Event::Data { stream, bytes } => (stream, bytes),
                Event::End { stream, status } => {
                    return Err(format!("watch stream {stream} ended with {status:?}"));
                }
                Event::Window(_) => return Ok(()),
            };
            let waiting = streams.entry(stream).or_default();
            let mut message = |message: &[u8]| {
                let watched = watched(message);
                if watched.cancelled {
                    return Err(format!("watch on stream {stream} was cancelled"));
                }
                created += u64::from(watched.created);
                events += watched.events;
                messages += 1;
                if messages.is_multiple_of(TIME_EVERY)
                    && let Some(stamp) = watched.first_value.and_then(|value| value.first_chunk())
                {
                    let now = *now.get_or_insert_with(|| shared.epoch.elapsed().as_nanos() as u64);
                    lag.saturating_record(now.saturating_sub(u64::from_le_bytes(*stamp)));
                }
                Ok(())
            };
            if waiting.is_empty() {
                let rest = messages_in(bytes, &mut message)?;
                waiting.extend_from_slice(rest);
            } else {
                waiting.extend_from_slice(bytes);
                let rest = messages_in(waiting, &mut message)?.len();
                waiting.drain(..waiting.len() - rest);
            }
            Ok(())
        };
        match tokio::time::timeout(STOP_POLL, connection.turn(sink)).await {
            Err(_) => continue,
            Ok(turned) => turned?,
        }
        shared.created.fetch_add(created, Relaxed);
        if events > 0 {
            shared.last_ns.fetch_max(shared.epoch.elapsed().as_nanos() as u64, Relaxed);
            shared.events.fetch_add(events, Relaxed);
        }
    }
}

/// Gives the complete gRPC messages at the start to `each`; returns the rest.
fn messages_in<'a>(
    mut bytes: &'a [u8],
    each: &mut impl FnMut(&[u8]) -> std::result::Result<(), String>,
) -> std::result::Result<&'a [u8], String> {
    while let Some((prefix, rest)) = bytes.split_first_chunk::<5>() {
        let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        let Some((message, after)) = rest.split_at_checked(len) else { break };
        each(message)?;
        bytes = after;
    }
    Ok(bytes)
}
