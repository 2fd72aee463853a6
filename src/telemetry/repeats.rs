//! What happens again and again is logged once in a while, with the number of those left out.

use parking_lot::Mutex;
use std::time::Duration;

/// Least distance of two lines about the same thing: whoever looks at the log sees that it goes on,
/// and a day of it is 1,440 lines.
pub const PERIOD: Duration = Duration::from_secs(60);
/// Things told apart at the same time. Strangers choose what they say and where they come from, so
/// that there may be any number.
const KEPT: usize = 64;

/// What was logged within the last minute. At most 64 things are told apart; all others together
/// count as one more, so that no flood writes more than 65 lines a minute.
#[derive(Debug)]
pub struct Repeats<K>(Mutex<Inner<K>>);

#[derive(Debug)]
struct Inner<K> {
    known: Vec<(K, Said)>,
    others: Said,
}

#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// Clock from which on it may be said again.
    next_ns: u64,
    left_out: u64,
}

impl Said {
    fn admit(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns < self.next_ns {
            self.left_out += 1;
            return None;
        }
        self.next_ns = now_ns.saturating_add(PERIOD.as_nanos() as u64);
        Some(std::mem::take(&mut self.left_out))
    }
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self(Mutex::new(Inner { known: Vec::new(), others: Said::default() }))
    }
}

impl<K: Eq> Repeats<K> {
    /// Whether a line about this may be written at `now_ns` (process clock, nanoseconds), and how
    /// many were not since the last one.
    pub fn admit(&self, key: K, now_ns: u64) -> Option<u64> {
        let mut inner = self.0.lock();
        let Inner { known, others } = &mut *inner;
        if let Some((_, said)) = known.iter_mut().find(|(other, _)| *other == key) {
            return said.admit(now_ns);
        }
        if known.len() >= KEPT {
            // What has been silent for a minute makes room. What it left out goes to the others.
            match known.iter().position(|(_, said)| now_ns >= said.next_ns) {
                Some(at) => others.left_out += known.swap_remove(at).1.left_out,
                None => return others.admit(now_ns),
            }
        }
        let mut said = Said::default();
        let admitted = said.admit(now_ns);
        known.push((key, said));
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn each_thing_is_said_once_a_minute_with_what_was_left_out() {
        let repeats = Repeats::default();
        // Three that take turns, one round per second.
        for second in 0..150 {
            for key in ["a", "b", "c"] {
                let expected = match second {
                    0 => Some(0),
                    60 | 120 => Some(59),
                    _ => None,
                };
                assert_eq!(repeats.admit(key, second * SECOND), expected, "{key} at {second} s");
            }
        }
    }

    #[test]
    fn a_flood_of_different_things_is_bounded_in_lines_and_memory() {
        let repeats = Repeats::default();
        let lines =
            |from: u64, at| (from..from + 10_000).filter_map(|n| repeats.admit(n, at)).count();
        assert_eq!(lines(0, 0), KEPT + 1);
        assert_eq!(lines(20_000, 30 * SECOND), 0);
        // A minute later there is room again.
        assert_eq!(lines(40_000, 61 * SECOND), KEPT + 1);
        assert_eq!(repeats.0.lock().known.len(), KEPT);
    }
}
