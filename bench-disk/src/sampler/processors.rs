//! The node's own work beside its log: processors as busy as a node had them, so that a sync also
//! waits for a processor as a node's does.

use crate::ProbeError;
use crate::sampler::recorded::Recorded;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Work and rest of a thread together: a node under load wakes its threads about once per batch.
const PERIOD: Duration = Duration::from_micros(500);

/// Threads beyond the processors kept busy: a node spreads its work over more threads than it fills.
const SPREAD: f64 = 1.0;

/// Most threads, whatever a recording says.
const MAX_THREADS: f64 = 64.0;

/// Threads that are busy a part of their time until this is dropped.
pub struct Processors {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Processors {
    /// Starts as much work as the node did; none for a recording that does not say.
    pub fn start(recorded: &Recorded, directory: &Path) -> Result<Self, ProbeError> {
        let mut all = Self { stop: Arc::default(), threads: Vec::new() };
        let busy = recorded.processors();
        if busy <= 0.0 {
            return Ok(all);
        }
        let count = (busy.ceil() + SPREAD).min(MAX_THREADS);
        let work = PERIOD.mul_f64((busy / count).min(1.0));
        for _ in 0..count as usize {
            let stop = all.stop.clone();
            let thread = std::thread::Builder::new()
                .name("probe-work".into())
                .spawn(move || turn(work, &stop))
                .map_err(ProbeError::io("start a thread for", directory))?;
            all.threads.push(thread);
        }
        Ok(all)
    }
}

impl Drop for Processors {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn turn(work: Duration, stop: &AtomicBool) {
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        while began.elapsed() < work {
            std::hint::spin_loop();
        }
        // Work that found no processor in time is not made up for.
        next = next.max(began) + PERIOD;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}
