//! The end of an edge: stop accepting, let open calls finish, close, join.

use super::runtime::Edge;
use crate::telemetry::clock;
use std::time::Duration;

/// How often the number of open connections is looked at while draining.
const POLL: Duration = Duration::from_millis(5);

/// How a drain went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections open when it began.
    pub open: usize,
    /// Connections that had to be cut at the deadline.
    pub cut: usize,
}

impl Edge {
    /// Closes the listeners, sends GOAWAY on HTTP/2 connections, ends idle ones and waits up to
    /// `deadline` for open calls; what is left then is cut. Streams that never end by themselves
    /// must be ended by their service when the node stops.
    pub fn drain(self, deadline: Duration) -> Drained {
        let open = self.counters.open_total();
        let end = clock::now_ns().saturating_add(deadline.as_nanos() as u64);
        self.stop.send_replace(true);
        while self.counters.open_total() > 0 && clock::now_ns() < end {
            std::thread::sleep(POLL);
        }
        let cut = self.counters.open_total();
        self.end.send_replace(true);
        for thread in self.threads {
            // A panic of an edge thread has been reported by the panic hook already.
            let _ = thread.join();
        }
        Drained { open, cut }
    }

    /// Begins the drain without waiting: no new connections, GOAWAY on the open ones.
    pub fn begin_drain(&self) {
        self.stop.send_replace(true);
    }
}
