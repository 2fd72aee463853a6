//! The queue between threads: many producers, one consumer that takes everything at once.
//!
//! The consumer swaps the whole vector out under a short lock and is woken only when it sleeps, so
//! a busy thread is never signalled and batches grow with load. Depth is bounded by whoever hands
//! out the right to push (credits, permits); a lane itself never refuses.
//!
//! A lane with [`Turns`] has more: whoever pushes may take the turn itself, as a guest, if the
//! owner is not in one. Waking a sleeping thread costs some ten microseconds, several times what a
//! turn over a single input costs, and a put of a lone client would pay it at every hop. A guest
//! never waits: when somebody else is in a turn, or the turns do not take this guest, the owner is
//! woken as ever. What waits is taken out only by the one in the turn, so the order stays.

use crate::telemetry::clock;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// Who takes a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taker {
    /// The thread that the turns are named after.
    Owner,
    /// The WAL thread with nothing to write.
    Wal,
    /// An edge runtime with a lone request, or with a few messages of a member.
    Edge,
}

/// What is done with the inputs of a lane, turn by turn.
pub(super) trait Turns<T>: Send {
    /// Process clock at which there is something to do even if nothing comes in, nanoseconds;
    /// `None` for never.
    fn due_ns(&self) -> Option<u64>;

    /// Whether a guest may take the turn over these inputs: it has other things to do, so the
    /// turn must be short, and it cannot be the last one.
    fn takes(&self, guest: Taker, inputs: &[T]) -> bool;

    /// Takes in everything that waits; true at the end.
    fn turn(&mut self, taker: Taker, inputs: &mut Vec<T>) -> bool;
}

/// The turns of a lane and a buffer that is swapped with its queue.
struct Seat<T> {
    turns: Box<dyn Turns<T>>,
    inputs: Vec<T>,
    /// When the sleeping owner looks again by itself.
    wakes_ns: Option<u64>,
}

/// See the module text.
pub(super) struct Lane<T> {
    queue: Mutex<Vec<T>>,
    asleep: AtomicBool,
    consumer: OnceLock<Thread>,
    /// `None` before the owner has started and after it has ended.
    seat: Mutex<Option<Seat<T>>>,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Lane {
            queue: Mutex::new(Vec::new()),
            asleep: AtomicBool::new(false),
            consumer: OnceLock::new(),
            seat: Mutex::new(None),
        }
    }
}

impl<T> Lane<T> {
    /// Adds one item and wakes the consumer if it sleeps.
    pub(super) fn push(&self, item: T) {
        self.push_quietly(item);
        self.wake();
    }

    /// Adds one item that is taken with whatever comes next: for what nobody waits for, and in
    /// front of a call of [`Lane::wake`] or [`Lane::offer`].
    pub(super) fn push_quietly(&self, item: T) {
        self.queue.lock().push(item);
    }

    /// Whether anything waits that `is_such`.
    pub(super) fn has(&self, is_such: impl FnMut(&T) -> bool) -> bool {
        self.queue.lock().iter().any(is_such)
    }

    /// Takes the turn over what waits, or wakes the owner to do so.
    pub(super) fn offer(&self, guest: Taker) {
        let Some(mut taken) = self.seat.try_lock() else { return self.wake() };
        let Some(seat) = taken.as_mut() else { return self.wake() };
        {
            let mut queue = self.queue.lock();
            if queue.is_empty() {
                return;
            }
            if !seat.turns.takes(guest, &queue) {
                drop(queue);
                return self.wake();
            }
            std::mem::swap(&mut *queue, &mut seat.inputs);
        }
        // `takes` has seen to it that this is not the end.
        seat.turns.turn(guest, &mut seat.inputs);
        // The owner went to sleep when it knew less. It may be on its way there: then the flag is
        // not up yet, but a thread that is unparked does not park.
        let due_ns = seat.turns.due_ns();
        if due_ns.is_some_and(|due| seat.wakes_ns.is_none_or(|wakes| due < wakes)) {
            seat.wakes_ns = due_ns;
            if let Some(owner) = self.consumer.get() {
                owner.unpark();
            }
        }
    }

    /// Body of the thread that owns the turns; returns behind the last one.
    pub(super) fn run(&self, turns: Box<dyn Turns<T>>) {
        self.own();
        *self.seat.lock() = Some(Seat { turns, inputs: Vec::new(), wakes_ns: None });
        loop {
            let due_ns = {
                let mut taken = self.seat.lock();
                let Some(seat) = taken.as_mut() else { return };
                seat.wakes_ns = seat.turns.due_ns();
                seat.wakes_ns
            };
            self.sleep(due_ns.map(|due| Duration::from_nanos(due.saturating_sub(clock::now_ns()))));
            let mut taken = self.seat.lock();
            let Some(seat) = taken.as_mut() else { return };
            std::mem::swap(&mut *self.queue.lock(), &mut seat.inputs);
            // A guest may have done what this thread was woken for.
            let is_due = seat.turns.due_ns().is_some_and(|due| due <= clock::now_ns());
            if seat.inputs.is_empty() && !is_due {
                continue;
            }
            if seat.turns.turn(Taker::Owner, &mut seat.inputs) {
                *taken = None;
                return;
            }
        }
    }

    /// Waits until something is in the queue, at most `wait`; may return early.
    fn sleep(&self, wait: Option<Duration>) {
        if wait == Some(Duration::ZERO) {
            return;
        }
        // As in `drain`: flag, then look.
        self.asleep.store(true, Ordering::SeqCst);
        if self.queue.lock().is_empty() {
            match wait {
                Some(wait) => std::thread::park_timeout(wait),
                None => std::thread::park(),
            }
        }
        self.asleep.store(false, Ordering::SeqCst);
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

    /// Wakes the consumer if it sleeps.
    pub(super) fn wake(&self) {
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
    use std::sync::mpsc::{Sender, channel};

    /// Passes on what it gets; ends behind `left` items.
    struct Pass {
        to: Sender<(Taker, u64, u64)>,
        left: u64,
        most: usize,
        due_ns: Option<u64>,
    }

    impl Turns<(u64, u64)> for Pass {
        fn due_ns(&self) -> Option<u64> {
            self.due_ns
        }

        fn takes(&self, _: Taker, inputs: &[(u64, u64)]) -> bool {
            inputs.len() <= self.most && (inputs.len() as u64) < self.left
        }

        fn turn(&mut self, taker: Taker, inputs: &mut Vec<(u64, u64)>) -> bool {
            if self.due_ns.is_some_and(|due| due <= clock::now_ns()) {
                self.due_ns = None;
                self.to.send((taker, u64::MAX, 0)).unwrap();
            }
            for (producer, n) in inputs.drain(..) {
                self.left -= 1;
                self.to.send((taker, producer, n)).unwrap();
                if n == u64::MAX {
                    self.due_ns = Some(clock::now_ns() + 1_000_000);
                }
            }
            self.left == 0
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test is the owner of its threads")]
    fn guests_and_owner_together_lose_and_reorder_nothing() {
        const PRODUCERS: u64 = 4;
        const EACH: u64 = 20_000;
        let lane = Arc::new(Lane::default());
        let (to, from) = channel();
        let turns = Pass { to, left: PRODUCERS * EACH, most: 3, due_ns: None };
        let owner = {
            let lane = lane.clone();
            std::thread::spawn(move || lane.run(Box::new(turns)))
        };
        let threads: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let lane = lane.clone();
                std::thread::spawn(move || {
                    for n in 0..EACH {
                        if n % 5 == producer {
                            lane.push((producer, n));
                        } else {
                            lane.push_quietly((producer, n));
                            lane.offer(Taker::Edge);
                        }
                        if n % 64 == 0 {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut next = [0; PRODUCERS as usize];
        for (_, producer, n) in from {
            assert_eq!(next[producer as usize], n);
            next[producer as usize] += 1;
        }
        owner.join().expect("owner");
        assert_eq!(next, [EACH; PRODUCERS as usize]);
        threads.into_iter().for_each(|thread| thread.join().expect("producer"));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test is the owner of its threads")]
    fn a_guest_takes_a_lone_input_and_leaves_more_to_the_owner() {
        const LEFT: u64 = 1_000;
        let lane = Arc::new(Lane::default());
        let (to, from) = channel();
        let turns = Pass { to, left: LEFT, most: 1, due_ns: None };
        let owner = {
            let lane = lane.clone();
            std::thread::spawn(move || lane.run(Box::new(turns)))
        };
        while lane.seat.lock().is_none() {
            std::thread::yield_now();
        }
        let mut n = 0;
        let taker = |n: &mut u64, inputs: u64| {
            (0..inputs).for_each(|_| lane.push_quietly((0, *n)));
            *n += inputs;
            lane.offer(Taker::Edge);
            let takers: Vec<Taker> =
                (0..inputs).map(|_| from.recv().expect("passed on").0).collect();
            assert!(takers.windows(2).all(|pair| pair[0] == pair[1]), "{takers:?}");
            takers[0]
        };
        // The owner may be just looking, and then has it; but not every time.
        while taker(&mut n, 1) != Taker::Edge {
            assert!(n < LEFT / 2, "the owner took all of them");
        }
        assert_eq!(taker(&mut n, 2), Taker::Owner);
        for n in n..LEFT {
            lane.push((0, n));
        }
        owner.join().expect("owner");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test is the owner of its threads")]
    fn the_owner_wakes_for_what_a_guest_made_due() {
        for _ in 0..200 {
            let lane = Arc::new(Lane::default());
            let (to, from) = channel();
            let turns = Pass { to, left: 2, most: 1, due_ns: None };
            let owner = {
                let lane = lane.clone();
                std::thread::spawn(move || lane.run(Box::new(turns)))
            };
            while lane.seat.lock().is_none() {
                std::thread::yield_now();
            }
            // Taken here unless the owner is just looking; due a millisecond later either way.
            lane.push_quietly((0, u64::MAX));
            lane.offer(Taker::Wal);
            assert_eq!(from.recv().expect("passed on").1, 0);
            assert_eq!(from.recv().expect("woken"), (Taker::Owner, u64::MAX, 0));
            lane.push((0, 0));
            owner.join().expect("owner");
        }
    }

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
