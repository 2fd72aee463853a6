//! Which runtime serves a connection.
//!
//! Traffic between members lives on the first runtime, all of it: a request that needs other members
//! passes from one task to the next there, and every hop to another runtime would wake a sleeping
//! thread, some ten microseconds each. A lone client is served there too, for the same reason; more
//! of them are spread evenly. Scrapes, whose answers take milliseconds, stay as far away as they can.

use super::listen::Port;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Open client connections of each runtime.
#[derive(Clone, Debug)]
pub(super) struct Shares(Arc<[AtomicUsize]>);

/// A connection's place on a runtime.
pub(super) struct Share {
    shares: Shares,
    runtime: usize,
    port: Port,
}

impl Shares {
    /// None yet, for as many runtimes (at least one).
    pub(super) fn new(runtimes: usize) -> Self {
        Self((0..runtimes.max(1)).map(|_| AtomicUsize::new(0)).collect())
    }

    /// Chooses for a new connection. All listeners accept on one thread, so that two choices never
    /// meet.
    pub(super) fn choose(&self, port: Port) -> Share {
        let fewest = || {
            let open = self.0.iter().map(|open| open.load(Relaxed));
            open.enumerate().min_by_key(|(_, open)| *open).map_or(0, |(runtime, _)| runtime)
        };
        let runtime = match port {
            Port::Peer => 0,
            Port::Client => fewest(),
            Port::Metrics => self.0.len() - 1,
        };
        if port == Port::Client {
            self.0[runtime].fetch_add(1, Relaxed);
        }
        Share { shares: self.clone(), runtime, port }
    }
}

impl Share {
    /// Index of the runtime.
    pub(super) fn runtime(&self) -> usize {
        self.runtime
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.port == Port::Client {
            self.shares.0[self.runtime].fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_spread_and_begin_beside_the_members() {
        let shares = Shares::new(3);
        let clients: Vec<Share> = (0..7).map(|_| shares.choose(Port::Client)).collect();
        let runtimes: Vec<usize> = clients.iter().map(Share::runtime).collect();
        assert_eq!(runtimes, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn a_place_that_was_given_back_is_the_next_one() {
        let shares = Shares::new(3);
        let mut clients: Vec<Share> = (0..6).map(|_| shares.choose(Port::Client)).collect();
        assert_eq!(clients.remove(4).runtime(), 1);
        clients.push(shares.choose(Port::Client));
        assert_eq!(clients.last().map(Share::runtime), Some(1));
        drop(clients);
        assert!(shares.0.iter().all(|open| open.load(Relaxed) == 0));
    }

    #[test]
    fn members_and_scrapes_move_no_client() {
        let shares = Shares::new(2);
        let others: Vec<Share> = [Port::Peer, Port::Metrics, Port::Peer, Port::Metrics]
            .map(|port| shares.choose(port))
            .into();
        assert_eq!(others.iter().map(Share::runtime).collect::<Vec<_>>(), [0, 1, 0, 1]);
        drop(others);
        assert_eq!(shares.choose(Port::Client).runtime(), 0);
    }

    #[test]
    fn one_runtime_serves_everything() {
        let shares = Shares::new(1);
        assert!(Port::ALL.iter().all(|port| shares.choose(*port).runtime() == 0));
    }
}
