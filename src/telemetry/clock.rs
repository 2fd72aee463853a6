//! The only reader of the monotonic and of the wall clock.
//!
//! Pure modules get time as an argument; shells read it here. One place to read it means one place
//! to reason about suspends and clock jumps, and a lint can forbid every other.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

static START: OnceLock<Instant> = OnceLock::new();

/// Monotonic nanoseconds since the first call in this process. Never goes back; wraps after 584
/// years.
pub fn now_ns() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the monotonic clock")]
    let now = Instant::now();
    let start = *START.get_or_init(|| now);
    u64::try_from(now.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}

/// The wall clock. For names, log lines and certificates only: it may jump in either direction.
pub fn wall() -> SystemTime {
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the wall clock")]
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_and_relative_to_the_start() {
        let first = now_ns();
        let second = now_ns();
        assert!(second >= first);
        assert!(second < 3_600_000_000_000, "counts from the start of the process, not from boot");
        assert!(wall() > SystemTime::UNIX_EPOCH);
    }
}
