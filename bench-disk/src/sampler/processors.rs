//! The node's own work beside its log: processors as busy as a node had them, so that a sync also
//! waits for a processor as a node's does.

use crate::ProbeError;
use crate::sampler::mix::Random;
use crate::sampler::recorded::{Recorded, Work};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most threads, whatever a recording says.
const MAX_THREADS: usize = 64;

/// A thread that is busy less than this part of its time keeps nobody waiting.
const WORTH_PLAYING: f64 = 0.005;

/// Longest stretch of work: a recording cannot make this process deaf to its end.
pub const MAX_WORK: Duration = Duration::from_millis(100);

/// Longest mean rest: a thread that does so little keeps nobody waiting.
const MAX_REST: Duration = Duration::from_secs(1);

/// Threads that are busy a part of their time until this is dropped.
pub struct Processors {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// What a thread does in the mean: it works so long, then it waits so long.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Turn {
    work: Duration,
    rest: Duration,
}

impl Turn {
    /// `None` for a thread that does too little to be noticed.
    fn of(work: &Work, active: Duration) -> Option<Self> {
        let busy = Duration::from_micros(work.cpu_micros);
        let share = busy.as_secs_f64() / active.as_secs_f64().max(1.0);
        if share < WORTH_PLAYING {
            return None;
        }
        let turns = work.turns.max(1) as f64;
        let rest = active.saturating_sub(busy);
        Some(Self {
            work: busy.div_f64(turns).min(MAX_WORK),
            rest: rest.div_f64(turns).min(MAX_REST),
        })
    }
}

impl Processors {
    /// Starts as much work as the node did; none for a recording that does not say.
    pub fn start(recorded: &Recorded, directory: &Path) -> Result<Self, ProbeError> {
        let mut all = Self { stop: Arc::default(), threads: Vec::new() };
        let active = Duration::from_secs(recorded.active_seconds);
        let turns = recorded.threads.iter().filter_map(|work| Turn::of(work, active));
        for (number, turn) in turns.take(MAX_THREADS).enumerate() {
            let stop = all.stop.clone();
            // A sequence of its own for each, the same in every run.
            let random = Random(0x0000_B05E_D5EE_D000 + number as u64 + 1);
            let thread = std::thread::Builder::new()
                .name("probe-work".into())
                .spawn(move || play(turn, random, &stop))
                .map_err(ProbeError::io("start a thread for", directory))?;
            all.threads.push(thread);
        }
        Ok(all)
    }
}

impl Drop for Processors {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn play(turn: Turn, mut random: Random, stop: &AtomicBool) {
    wake_exactly();
    while !stop.load(Ordering::Relaxed) {
        work(random.around(turn.work).min(MAX_WORK));
        // Woken early by the end alone; a spurious wake is a short rest.
        std::thread::park_timeout(random.around(turn.rest));
    }
}

/// Uses a processor for so long.
pub fn work(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Lets this thread sleep for some ten microseconds: the kernel adds up to 50 otherwise, to wake
/// several threads at once (`PR_SET_TIMERSLACK`, prctl(2)).
pub fn wake_exactly() {
    // Refused, sleeps are longer, as everywhere.
    let _ = nix::sys::prctl::set_timerslack(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_plays_its_share_in_turns_as_long_as_recorded() {
        let work = |cpu_micros, turns| Work { name: "edge-0".into(), cpu_micros, turns };
        let turn = Turn::of(&work(3_000_000, 30_000), Duration::from_secs(10));
        let expected =
            Turn { work: Duration::from_micros(100), rest: Duration::from_nanos(233_333) };
        assert_eq!(turn, Some(expected));
        assert_eq!(Turn::of(&work(40_000, 10), Duration::from_secs(10)), None);
        let busy = Turn::of(&work(20_000_000, 0), Duration::from_secs(10));
        assert_eq!(busy, Some(Turn { work: MAX_WORK, rest: Duration::ZERO }));
    }

    #[test]
    fn recorded_threads_use_processors_and_end() {
        let work = Work { name: "edge-0".into(), cpu_micros: 5_000_000, turns: 50_000 };
        let recorded = Recorded {
            schema: crate::sampler::recorded::SCHEMA,
            program: String::new(),
            active_seconds: 10,
            threads: vec![work.clone(), Work { cpu_micros: 10, ..work }],
            log: Default::default(),
            store: Default::default(),
        };
        let playing = Processors::start(&recorded, Path::new("/")).expect("threads");
        assert_eq!(playing.threads.len(), 1, "of one that does nothing there is none");
        drop(playing);
    }
}
