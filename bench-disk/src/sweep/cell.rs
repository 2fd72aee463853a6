//! One point of a curve: threads that append and sync files of their own.

use super::Point;
use crate::ProbeError;
use crate::sampler::mix::Random;
use crate::sampler::node::Pulse;
use crate::sampler::scratch::{Scratch, ScratchFile};
use crate::sampler::segments;
use crate::sampler::shape::Preparation;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Size of each file, in bytes; at its end the writer begins again.
pub(super) const FILE_BYTES: u64 = 8 << 20;

/// Preparing files and the last syncs may take this long beyond the time.
const GRACE: Duration = Duration::from_secs(60);

/// How often interruption is looked at.
const TICK: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) bytes: usize,
    pub(super) committers: usize,
    pub(super) preparation: Preparation,
}

/// Latencies of all threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    latencies: Vec<u64>,
    seconds: f64,
}

impl Samples {
    pub(super) fn add(&mut self, other: Samples) {
        self.latencies.extend(other.latencies);
        self.seconds += other.seconds;
    }

    pub(super) fn point(mut self, cell: &Cell) -> Option<Point> {
        self.latencies.sort_unstable();
        let n = self.latencies.len();
        let at = |fraction: f64| {
            let rank = (fraction * n as f64).ceil() as usize;
            self.latencies.get(rank.max(1) - 1).copied()
        };
        Some(Point {
            bytes: cell.bytes,
            committers: cell.committers,
            preparation: cell.preparation.as_str(),
            n: n as u64,
            p50_ns: at(0.5)?,
            p99_ns: at(0.99)?,
            syncs_per_second: n as f64 / self.seconds.max(1e-9),
        })
    }
}

/// Runs a cell once. Threads that hang in a sync are left behind; they own nothing but their file.
pub(super) fn run(
    cell: &Cell,
    scratch: &Scratch,
    time: Duration,
    interrupt: &AtomicBool,
) -> Result<Samples, ProbeError> {
    let pulse = Pulse::default();
    let mut files = Vec::new();
    for _ in 0..cell.committers {
        files.push(segments::prepared(scratch, FILE_BYTES, cell.preparation, &pulse)?);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, results) = channel();
    let began = Instant::now();
    for file in files {
        let (sender, stop, cell) = (sender.clone(), stop.clone(), *cell);
        std::thread::Builder::new()
            .name("probe-committer".into())
            .spawn(move || commit(&file, &cell, time, &stop, &sender))
            .map_err(ProbeError::io("start a thread for", scratch.directory()))?;
    }
    drop(sender);
    let mut all = Samples::default();
    let mut finished = 0;
    while finished < cell.committers {
        if interrupt.load(Ordering::Relaxed) {
            stop.store(true, Ordering::Relaxed);
            return Err(ProbeError::Interrupted);
        }
        match results.recv_timeout(TICK) {
            Ok(result) => {
                all.latencies.extend(result.inspect_err(|_| stop.store(true, Ordering::Relaxed))?);
                finished += 1;
            }
            Err(RecvTimeoutError::Timeout) if began.elapsed() < time + GRACE => {}
            Err(_) => {
                stop.store(true, Ordering::Relaxed);
                let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
                return Err(ProbeError::io("sync a file in", scratch.directory())(error));
            }
        }
    }
    all.seconds = began.elapsed().as_secs_f64();
    Ok(all)
}

type Outcome = Result<Vec<u64>, ProbeError>;

fn commit(
    file: &ScratchFile,
    cell: &Cell,
    time: Duration,
    stop: &AtomicBool,
    sender: &Sender<Outcome>,
) {
    let _ = sender.send(appends(file, cell, time, stop));
}

fn appends(file: &ScratchFile, cell: &Cell, time: Duration, stop: &AtomicBool) -> Outcome {
    let mut random = Random(0x0C0F_FEE0_0000_0001);
    let block: Vec<u8> = (0..cell.bytes.div_ceil(8))
        .flat_map(|_| random.word().to_le_bytes())
        .take(cell.bytes)
        .collect();
    let began = Instant::now();
    let mut latencies = Vec::new();
    let mut position = 0;
    while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
        if position + cell.bytes as u64 > FILE_BYTES {
            position = 0;
            if cell.preparation == Preparation::Grow {
                file.file.set_len(0).map_err(ProbeError::io("cut a file in", &file.path))?;
            }
        }
        file.file
            .write_all_at(&block, position)
            .map_err(ProbeError::io("write a file in", &file.path))?;
        position += cell.bytes as u64;
        let start = Instant::now();
        file.file.sync_data().map_err(ProbeError::io("sync a file in", &file.path))?;
        latencies.push(start.elapsed().as_nanos() as u64);
    }
    Ok(latencies)
}
