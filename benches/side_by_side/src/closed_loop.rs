//! A fixed number of calls in flight: as soon as one is answered the next is sent.
//!
//! One thread drives all connections; the answers that one read brings share a time stamp.

use crate::connection::{Connection, Method, Sum};
use crate::cpu::{Cpu, used_by};
use crate::error::{Error, Result};
use crate::http2::Event;
use crate::messages::header_revision;
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};

/// Connections that share the calls in flight; never more than calls.
pub(crate) const CONNECTIONS: usize = 8;
/// Time before the measurement begins: connections, caches and the first flushes.
const WARM_UP: Duration = Duration::from_millis(500);
/// Every so many answers the revision in the header is read.
const DECODE_EVERY: u64 = 256;
/// gRPC status of a server that has too much to do: `too many requests` goes without a code of its own.
const UNKNOWN: u32 = 2;
/// Pause of a connection after a refusal: a client that asks again at once would only heat the CPU.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);

/// When a load ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Span {
    /// Measures for this long, after a warm-up.
    Time(Duration),
    /// Measures everything until there is nothing more to ask.
    UntilDone,
}

/// Writes the next message into an empty buffer; `false` when there is none.
pub(crate) type Next = Box<dyn FnMut(&mut Vec<u8>) -> bool>;

/// A load.
pub(crate) struct Load {
    /// Where to; connections go to several servers in turn.
    pub(crate) servers: Vec<SocketAddr>,
    /// Which method.
    pub(crate) method: Method,
    /// Calls in flight, all connections together.
    pub(crate) in_flight: usize,
    /// How long.
    pub(crate) span: Span,
    /// Fewest bytes that a right answer has.
    pub(crate) least_bytes: u64,
    /// Writes the next message; `false` when there is none.
    pub(crate) next: Next,
    /// Whether a server may refuse a call because it has too much to do; it counts as refused and
    /// not as answered, and the connection pauses.
    pub(crate) refusals: bool,
    /// CPU clocks of all servers, read at both ends of the measurement.
    pub(crate) cpus: Vec<Cpu>,
}

/// What was measured.
pub(crate) struct Outcome {
    /// Calls answered while measuring.
    pub(crate) calls: u64,
    /// Length of the measurement.
    pub(crate) elapsed: Duration,
    /// From sending to the answer, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// CPU time of all servers while measuring.
    pub(crate) server_cpu: Duration,
    /// CPU time of this program while measuring.
    pub(crate) client_cpu: Duration,
    /// Calls answered, warm-up and end included.
    pub(crate) all_calls: u64,
    /// Calls refused, warm-up and end included.
    pub(crate) refused: u64,
}

impl Outcome {
    /// Calls per second.
    pub(crate) fn rate(&self) -> f64 {
        self.calls as f64 / self.elapsed.as_secs_f64()
    }

    /// Server CPU per call in microseconds.
    pub(crate) fn server_us(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / self.calls.max(1) as f64
    }

    /// Client CPU per call in microseconds.
    pub(crate) fn client_us(&self) -> f64 {
        self.client_cpu.as_secs_f64() * 1e6 / self.calls.max(1) as f64
    }
}

/// Histogram of nanoseconds up to two minutes with three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000_000, 3).unwrap_or_else(|_| unreachable!("constants"))
}

/// A quantile of such a histogram in microseconds.
pub(crate) fn quantile_us(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1e3
}

struct Shared {
    next: RefCell<Next>,
    least_bytes: u64,
    measuring: Cell<bool>,
    stopping: Cell<bool>,
    calls: Cell<u64>,
    all_calls: Cell<u64>,
    refused: Cell<u64>,
    refusals: bool,
    latency: RefCell<Histogram<u64>>,
}

/// A current-thread runtime for I/O.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Io { what: "build a runtime".into(), source })
}

/// Runs a load to its end.
pub(crate) fn run(load: Load) -> Result<Outcome> {
    let shared = Rc::new(Shared {
        next: RefCell::new(load.next),
        least_bytes: load.least_bytes,
        measuring: Cell::new(matches!(load.span, Span::UntilDone)),
        stopping: Cell::new(false),
        calls: Cell::new(0),
        all_calls: Cell::new(0),
        refused: Cell::new(0),
        refusals: load.refusals,
        latency: RefCell::new(histogram()),
    });
    let local = LocalSet::new();
    let (begin, end) = local.block_on(&runtime()?, async {
        let connections = CONNECTIONS.min(load.in_flight);
        let mut opened = Vec::new();
        for server in load.servers.iter().cycle().take(connections) {
            opened.push(Connection::open(*server, load.method).await?);
        }
        let mark = || (Instant::now(), used_by(&load.cpus), Cpu::own().used());
        let mut begin = mark();
        let mut lanes = JoinSet::new();
        for (at, connection) in opened.into_iter().enumerate() {
            let extra = usize::from(at < load.in_flight % connections);
            let window = load.in_flight / connections + extra;
            lanes.spawn_local(lane(connection, window, shared.clone()));
        }
        let Span::Time(span) = load.span else {
            finish(&mut lanes).await?;
            return Ok((begin, mark()));
        };
        until(&mut lanes, WARM_UP).await?;
        begin = mark();
        shared.measuring.set(true);
        until(&mut lanes, span).await?;
        shared.measuring.set(false);
        let end = mark();
        shared.stopping.set(true);
        finish(&mut lanes).await?;
        Ok((begin, end))
    })?;
    Ok(Outcome {
        calls: shared.calls.get(),
        elapsed: end.0 - begin.0,
        latency: shared.latency.replace(histogram()),
        server_cpu: end.1.saturating_sub(begin.1),
        client_cpu: end.2.saturating_sub(begin.2),
        all_calls: shared.all_calls.get(),
        refused: shared.refused.get(),
    })
}

type Lanes = JoinSet<Result<()>>;

/// Waits while the lanes run; their first error ends the wait.
async fn until(lanes: &mut Lanes, time: Duration) -> Result<()> {
    match tokio::time::timeout(time, lanes.join_next()).await {
        Err(_) => Ok(()),
        Ok(None) => Err(Error::Answer("the load ended early".into())),
        Ok(Some(ended)) => ended.map_err(|error| Error::Answer(error.to_string()))?,
    }
}

async fn finish(lanes: &mut Lanes) -> Result<()> {
    while let Some(ended) = lanes.join_next().await {
        ended.map_err(|error| Error::Answer(error.to_string()))??;
    }
    Ok(())
}

/// One connection with its share of the calls in flight.
async fn lane(mut connection: Connection, window: usize, shared: Rc<Shared>) -> Result<()> {
    let mut calls: HashMap<u32, (Instant, Sum)> = HashMap::with_capacity(window * 2);
    let mut message = Vec::new();
    let (mut waiting, mut exhausted) = (false, false);
    loop {
        let now = Instant::now();
        while calls.len() < window && !exhausted && (waiting || !shared.stopping.get()) {
            if !waiting {
                message.clear();
                exhausted = !(shared.next.borrow_mut())(&mut message);
                if exhausted {
                    break;
                }
            }
            let pushed = connection.push(&message, true)?;
            waiting = pushed.is_none();
            let Some(stream) = pushed else { break };
            calls.insert(stream, (now, Sum::default()));
        }
        if calls.is_empty() && !waiting {
            return Ok(());
        }
        let mut now = None;
        let refused = shared.refused.get();
        let sink = |event: Event<'_>| {
            match event {
                Event::Data { stream, bytes } => {
                    let call = calls.get_mut(&stream).ok_or("data of an unknown call")?;
                    call.1.add(bytes);
                    if shared.all_calls.get().is_multiple_of(DECODE_EVERY) {
                        check_revision(bytes)?;
                    }
                }
                Event::End { stream, status } => {
                    let (sent, sum) = calls.remove(&stream).ok_or("end of an unknown call")?;
                    if shared.refusals && status == Some(UNKNOWN) {
                        shared.refused.update(|refused| refused + 1);
                        return Ok(());
                    }
                    sum.check(status, shared.least_bytes)?;
                    shared.all_calls.update(|calls| calls + 1);
                    if shared.measuring.get() {
                        shared.calls.update(|calls| calls + 1);
                        let elapsed = *now.get_or_insert_with(Instant::now) - sent;
                        shared.latency.borrow_mut().saturating_record(elapsed.as_nanos() as u64);
                    }
                }
                Event::Window(_) => {}
            }
            Ok(())
        };
        connection.turn(sink).await?;
        if shared.refused.get() > refused {
            tokio::time::sleep(REFUSED_PAUSE).await;
        }
    }
}

/// An answer's header must hold a revision; a later piece of a long answer has no header.
fn check_revision(bytes: &[u8]) -> std::result::Result<(), String> {
    match bytes.get(5..).and_then(header_revision) {
        Some(found) if found <= 0 => Err(format!("revision {found} in an answer")),
        _ => Ok(()),
    }
}
