//! Puts at a fixed rate, whatever the server does: latency counts from the moment at which a call
//! should have been sent, so that a stall of the server is seen by every call that it delays.
//!
//! The generator paces on a thread of its own and only writes; another thread reads. Calls go to the
//! connections in turn, which is how the reader knows a call's intended start from its stream.

use crate::closed_loop::{histogram, runtime};
use crate::connection::{Method, Sum};
use crate::error::{During, Error, Result};
use crate::http2::{Calls, Event, INITIAL_WINDOW, Incoming, OPENING};
use hdrhistogram::Histogram;
use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};

/// Connections in turn.
const LANES: u64 = 4;
/// Calls of this long from the start are not counted.
const WARM_UP: Duration = Duration::from_millis(500);
/// Time for answers after the last call was due.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a reader without answers looks whether there will be more.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Longest sleep while calls wait for a window or a socket.
const RETRY: Duration = Duration::from_micros(200);

/// What was measured, in nanoseconds.
pub(crate) struct Outcome {
    /// From the intended start to the answer.
    pub(crate) latency: Histogram<u64>,
    /// From the intended start to the moment the generator sent.
    pub(crate) late: Histogram<u64>,
    /// Calls per second that were answered.
    pub(crate) rate: f64,
}

/// What the generator and the reader share of a connection.
struct Lane {
    socket: TcpStream,
    out: Mutex<Vec<u8>>,
    window: AtomicI64,
}

impl Lane {
    fn out(&self) -> MutexGuard<'_, Vec<u8>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_send(&self, out: &mut Vec<u8>) -> Result<()> {
        let mut sent = 0;
        while sent < out.len() {
            match (&self.socket).write(&out[sent..]) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).during(|| "write to the server".into()),
            }
        }
        out.drain(..sent);
        Ok(())
    }
}

/// When which call is due.
struct Plan {
    start: Instant,
    interval: Duration,
    /// Falls when the load is told to stop early.
    calls: AtomicU64,
}

impl Plan {
    fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// Calls of one of the lanes.
    fn of_lane(&self, at: u64) -> u64 {
        self.calls() / LANES + u64::from(at < self.calls() % LANES)
    }

    fn due(&self, call: u64) -> Instant {
        self.start + Duration::from_nanos((self.interval.as_nanos() as u64).saturating_mul(call))
    }

    fn counts(&self, call: u64) -> bool {
        self.due(call) >= self.start + WARM_UP
    }
}

/// Sends puts at `rate` per second for `span` or until `stop` is set; `next` writes their messages.
pub(crate) fn run(
    server: SocketAddr,
    rate: f64,
    span: Duration,
    stop: Option<&AtomicBool>,
    next: &mut dyn FnMut(&mut Vec<u8>) -> bool,
) -> Result<Outcome> {
    let mut lanes = Vec::new();
    for _ in 0..LANES {
        let socket = TcpStream::connect(server).during(|| format!("connect to {server}"))?;
        socket.set_nodelay(true).during(|| "TCP_NODELAY".into())?;
        socket.set_nonblocking(true).during(|| "O_NONBLOCK".into())?;
        let out = Mutex::new(OPENING.to_vec());
        lanes.push(Arc::new(Lane { socket, out, window: AtomicI64::new(INITIAL_WINDOW) }));
    }
    let interval = Duration::from_secs_f64(1.0 / rate);
    let calls = ((WARM_UP + span).as_secs_f64() * rate) as u64;
    let start = Instant::now() + Duration::from_millis(20);
    let plan = &Arc::new(Plan { start, interval, calls: AtomicU64::new(calls) });
    let failed = AtomicBool::new(false);
    let lanes = &lanes;
    std::thread::scope(|scope| {
        let failed = &failed;
        let reader = scope.spawn(move || {
            let read = read(server, lanes, plan);
            failed.store(read.is_err(), Relaxed);
            read
        });
        let late = generate(server, lanes, plan, next, [Some(failed), stop]);
        let (latency, end) =
            reader.join().map_err(|_| Error::Answer("reader panicked".into()))??;
        let rate = plan.calls() as f64 / (end - plan.start).as_secs_f64();
        Ok(Outcome { latency, late: late?, rate })
    })
}

/// Sends each call when it is due.
fn generate(
    server: SocketAddr,
    lanes: &[Arc<Lane>],
    plan: &Plan,
    next: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    [failed, stop]: [Option<&AtomicBool>; 2],
) -> Result<Histogram<u64>> {
    // The kernel may wake a sleeper this much later than asked; the default is 50 us.
    nix::sys::prctl::set_timerslack(1).during(|| "set the timer slack".into())?;
    let path = Method::Put.path();
    let mut calls: Vec<_> = lanes.iter().map(|_| Calls::new(path, &server.to_string())).collect();
    let mut queues: Vec<VecDeque<u64>> = lanes.iter().map(|_| VecDeque::new()).collect();
    let mut late = histogram();
    let mut message = Vec::new();
    next(&mut message);
    let mut call = 0;
    let is_set = |flag: Option<&AtomicBool>| flag.is_some_and(|flag| flag.load(Relaxed));
    while call < plan.calls() || queues.iter().any(|queue| !queue.is_empty()) {
        if is_set(failed) {
            break; // The reader has the reason.
        }
        if is_set(stop) {
            plan.calls.fetch_min(call, Relaxed);
        }
        while call < plan.calls() && plan.due(call) <= Instant::now() {
            queues[(call % LANES) as usize].push_back(call);
            call += 1;
        }
        let mut blocked = false;
        for ((lane, queue), calls) in lanes.iter().zip(&mut queues).zip(&mut calls) {
            let mut out = lane.out();
            while let Some(first) = queue.front().copied() {
                let needed = Calls::window(&message);
                if lane.window.load(Relaxed) < needed {
                    break;
                }
                lane.window.fetch_sub(needed, Relaxed);
                calls.push(&mut out, &message, true);
                message.clear();
                next(&mut message);
                queue.pop_front();
                if plan.counts(first) {
                    let late_ns = plan.due(first).elapsed().as_nanos() as u64;
                    late.saturating_record(late_ns);
                }
            }
            lane.try_send(&mut out)?;
            blocked |= !queue.is_empty() || !out.is_empty();
        }
        let due = if call < plan.calls() { plan.due(call) } else { Instant::now() + RETRY };
        let pause = due.saturating_duration_since(Instant::now());
        std::thread::sleep(if blocked { pause.min(RETRY) } else { pause });
    }
    Ok(late)
}

/// Reads all answers; returns their latencies and the time of the last.
fn read(
    server: SocketAddr,
    lanes: &[Arc<Lane>],
    plan: &Arc<Plan>,
) -> Result<(Histogram<u64>, Instant)> {
    let local = LocalSet::new();
    local.block_on(&runtime()?, async {
        let mut readers = JoinSet::new();
        for (at, lane) in lanes.iter().enumerate() {
            readers.spawn_local(read_lane(server, lane.clone(), at as u64, plan.clone()));
        }
        let mut all = histogram();
        let patience = plan.due(plan.calls()) + PATIENCE;
        while let Some(read) =
            tokio::time::timeout_at(patience.into(), readers.join_next())
                .await
                .map_err(|_| Error::Answer("answers are missing after a minute".into()))?
        {
            let read = read.map_err(|error| Error::Answer(error.to_string()))??;
            all.add(&read).map_err(|error| Error::Answer(error.to_string()))?;
        }
        Ok((all, Instant::now()))
    })
}

async fn read_lane(
    server: SocketAddr,
    lane: Arc<Lane>,
    at: u64,
    plan: Arc<Plan>,
) -> Result<Histogram<u64>> {
    let socket = lane.socket.try_clone().during(|| "clone a socket".into())?;
    let socket = tokio::net::TcpStream::from_std(socket).during(|| "watch a socket".into())?;
    let mut latency = histogram();
    let mut open = HashMap::<u32, Sum>::new();
    let mut received = 0;
    let (mut input, mut filled) = (vec![0; 64 << 10], 0);
    let (mut incoming, mut reply) = (Incoming::default(), Vec::new());
    while received < plan.of_lane(at) {
        // The last call may be one that was already answered: looks now and then.
        match tokio::time::timeout(LOOK_AGAIN, socket.readable()).await {
            Err(_) => continue,
            Ok(ready) => ready.during(|| "wait for the server".into())?,
        }
        match socket.try_read(&mut input[filled..]) {
            Ok(0) => return Err(fault(server, "the server closed the connection".into())),
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error).during(|| "read from the server".into()),
        }
        let now = Instant::now();
        let sink = |event: Event<'_>| {
            match event {
                Event::Data { stream, bytes } => open.entry(stream).or_default().add(bytes),
                Event::End { stream, status } => {
                    open.remove(&stream).unwrap_or_default().check(status, 1)?;
                    received += 1;
                    let call = u64::from(stream / 2) * LANES + at;
                    if plan.counts(call) {
                        latency.saturating_record((now - plan.due(call)).as_nanos() as u64);
                    }
                }
                Event::Window(by) => drop(lane.window.fetch_add(by, Relaxed)),
            }
            Ok(())
        };
        let taken = incoming.read(&input[..filled], &mut reply, sink);
        let taken = taken.map_err(|what| fault(server, what))?;
        input.copy_within(taken..filled, 0);
        filled -= taken;
        if !reply.is_empty() {
            let mut out = lane.out();
            out.append(&mut reply);
            lane.try_send(&mut out)?;
        }
    }
    Ok(latency)
}

fn fault(server: SocketAddr, what: String) -> Error {
    Error::Protocol { server: server.to_string(), what }
}
