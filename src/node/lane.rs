//! The queue between threads: many producers, one consumer that takes everything at once.
//!
//! The consumer swaps the whole vector out under a short lock and is woken only when it sleeps, so
//! a busy thread is never signalled and batches grow with load. Depth is bounded by whoever hands
//! out the right to push (credits, permits); a lane itself never refuses.

use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// See the module text.
pub(super) struct Lane<T> {
    queue: Mutex<Vec<T>>,
    asleep: AtomicBool,
    consumer: OnceLock<Thread>,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Lane {
            queue: Mutex::new(Vec::new()),
            asleep: AtomicBool::new(false),
            consumer: OnceLock::new(),
        }
    }
}

impl<T> Lane<T> {
    /// Adds one item and wakes the consumer if it sleeps.
    pub(super) fn push(&self, item: T) {
        self.queue.lock().push(item);
        self.wake();
    }

    /// Makes the calling thread the consumer. Called once, before the first [`Lane::drain`].
    pub(super) fn own(&self) {
        // A second owner would steal wake-ups; the first one stays.
        let _ = self.consumer.set(std::thread::current());
    }

    /// Moves everything that waits into `out` (empty on entry), sleeping at most `wait` if there is
    /// nothing; `None` sleeps until something comes. May return empty-handed.
    pub(super) fn drain(&self, out: &mut Vec<T>, wait: Option<Duration>) {
        std::mem::swap(&mut *self.queue.lock(), out);
        if !out.is_empty() || wait == Some(Duration::ZERO) {
            return;
        }
        // The flag is raised before the second look: a producer that pushes after that look sees
        // it and wakes; one that pushed before is found by the look.
        self.asleep.store(true, Ordering::SeqCst);
        std::mem::swap(&mut *self.queue.lock(), out);
        if out.is_empty() {
            match wait {
                Some(wait) => std::thread::park_timeout(wait),
                None => std::thread::park(),
            }
            std::mem::swap(&mut *self.queue.lock(), out);
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst)
            && self.asleep.swap(false, Ordering::SeqCst)
            && let Some(consumer) = self.consumer.get()
        {
            consumer.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test is the owner of its threads")]
    fn nothing_is_lost_or_reordered_between_sleeping_and_waking() {
        const PRODUCERS: u64 = 4;
        const EACH: u64 = 20_000;
        let lane = Arc::new(Lane::default());
        let threads: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let lane = lane.clone();
                std::thread::spawn(move || {
                    for n in 0..EACH {
                        lane.push((producer, n));
                        if n % 64 == 0 {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        lane.own();
        let mut next = [0; PRODUCERS as usize];
        let mut out = Vec::new();
        while next.iter().sum::<u64>() < PRODUCERS * EACH {
            lane.drain(&mut out, None);
            for (producer, n) in out.drain(..) {
                assert_eq!(next[producer as usize], n);
                next[producer as usize] += 1;
            }
        }
        for thread in threads {
            thread.join().expect("producer");
        }
    }
}
