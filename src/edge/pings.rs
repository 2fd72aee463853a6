//! grpc-go's rule for client pings: too many of them end the connection.

use std::time::Duration;

/// Strikes that are forgiven; the next one ends the connection.
const STRIKES: u32 = 2;
/// Least distance of pings while no stream is open.
const IDLE_MIN_TIME: Duration = Duration::from_secs(2 * 3_600);

/// What a ping means for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    TooMany,
}

/// Strike counter of one connection. Time comes in as an argument.
#[derive(Clone, Debug)]
pub(super) struct Pings {
    min_time_ns: u64,
    last_ns: Option<u64>,
    strikes: u32,
    forgive: bool,
}

impl Pings {
    pub(super) fn new(min_time: Duration) -> Self {
        Self { min_time_ns: nanos(min_time), last_ns: None, strikes: 0, forgive: false }
    }

    /// We sent headers or data: a client may ping then (it measures the bandwidth).
    pub(super) fn answered(&mut self) {
        self.forgive = true;
    }

    /// A ping arrived at `now_ns` while `streams` calls were open.
    pub(super) fn ping(&mut self, now_ns: u64, streams: u32) -> Verdict {
        let last = self.last_ns.replace(now_ns);
        if std::mem::take(&mut self.forgive) {
            self.strikes = 0;
            return Verdict::Fine;
        }
        let min = if streams == 0 { nanos(IDLE_MIN_TIME) } else { self.min_time_ns };
        if last.is_some_and(|last| now_ns < last.saturating_add(min)) {
            self.strikes += 1;
        }
        if self.strikes > STRIKES { Verdict::TooMany } else { Verdict::Fine }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn pings() -> Pings {
        Pings::new(Duration::from_secs(5))
    }

    #[test]
    fn pings_at_the_allowed_distance_never_end() {
        let mut pings = pings();
        for i in 0..1_000 {
            assert_eq!(pings.ping(i * 5 * S, 1), Verdict::Fine);
        }
    }

    #[test]
    fn the_third_strike_ends() {
        let mut pings = pings();
        let verdicts: Vec<_> = (0..4).map(|i| pings.ping(i * S, 1)).collect();
        assert_eq!(verdicts, [Verdict::Fine, Verdict::Fine, Verdict::Fine, Verdict::TooMany]);
    }

    #[test]
    fn without_a_stream_even_slow_pings_are_strikes() {
        let mut pings = pings();
        let verdicts: Vec<_> = (0..4).map(|i| pings.ping(i * 600 * S, 0)).collect();
        assert_eq!(verdicts[3], Verdict::TooMany);
    }

    #[test]
    fn an_answer_forgives() {
        let mut pings = pings();
        for i in 0..1_000 {
            pings.answered();
            assert_eq!(pings.ping(i, 1), Verdict::Fine);
        }
    }
}
