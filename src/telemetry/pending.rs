//! Age of the oldest request that waits, without a list of all that wait.
//!
//! A ring of counters, one per quarter second: who begins to wait raises the present one, who ends
//! lowers the one it raised. The oldest that is not zero tells the age, at most one slot too high.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Length of a slot: fine enough for an alert at two seconds.
const SLOT_NS: u64 = 250_000_000;
/// Slots of the ring; 128 s, more than the longest request timeout that can be configured (5 s and
/// twice the longest election timeout of 50 s).
const SLOTS: usize = 512;

/// See the module text.
#[derive(Debug)]
pub struct PendingAges {
    slots: [AtomicI64; SLOTS],
}

impl Default for PendingAges {
    fn default() -> Self {
        PendingAges { slots: [const { AtomicI64::new(0) }; SLOTS] }
    }
}

impl PendingAges {
    fn slot(&self, ns: u64) -> &AtomicI64 {
        &self.slots[(ns / SLOT_NS) as usize % SLOTS]
    }

    /// Something began to wait at `began_ns`.
    pub fn enter(&self, began_ns: u64) {
        self.slot(began_ns).fetch_add(1, Relaxed);
    }

    /// It ended; `began_ns` as at [`PendingAges::enter`].
    pub fn leave(&self, began_ns: u64) {
        self.slot(began_ns).fetch_sub(1, Relaxed);
    }

    /// Age in nanoseconds of the oldest that still waits, 0 if none does.
    pub fn oldest_ns(&self, now_ns: u64) -> u64 {
        let now_slot = now_ns / SLOT_NS;
        let oldest = (0..SLOTS as u64)
            .rev()
            .filter_map(|back| now_slot.checked_sub(back))
            .find(|slot| self.slots[*slot as usize % SLOTS].load(Relaxed) > 0);
        oldest.map_or(0, |slot| now_ns - slot * SLOT_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_found_and_forgotten() {
        let ages = PendingAges::default();
        let second = 1_000_000_000;
        assert_eq!(ages.oldest_ns(500 * second), 0);
        ages.enter(500 * second);
        ages.enter(503 * second);
        assert_eq!(ages.oldest_ns(504 * second), 4 * second);
        ages.leave(500 * second);
        assert_eq!(ages.oldest_ns(504 * second), second);
        ages.leave(503 * second);
        assert_eq!(ages.oldest_ns(504 * second), 0);
        ages.enter(1);
        assert_eq!(ages.oldest_ns(2), 2, "the first slot has nothing before it");
    }
}
