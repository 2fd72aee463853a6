//! Leases: keys that live as long as somebody keeps them alive.
//!
//! Two halves that never meet except through the log. [`Table`] holds the replicated facts (which
//! leases exist, their time to live, which keys hang on them); every member has the same one and
//! no member reads a clock to change it. [`Clock`] holds the leader's timers; it turns "time is up"
//! into a proposal to revoke, and only the applied revoke removes anything. A member that wrongly
//! believes it leads can therefore not expire a lease: its proposal carries its term and is dropped
//! in another one.
//!
//! Times are milliseconds of a monotonic clock, passed in; a step of the wall clock changes
//! nothing. Times to live are whole seconds, as in the client interface.

mod clock;
mod table;
#[cfg(test)]
mod tests;

pub use clock::{Clock, ClockOptions, Expired, Renewal};
pub use table::{Lease, LeaseError, Record, Table};

/// Largest time to live that can be granted, in seconds (about 285 years; etcd's limit).
pub const MAX_TTL_S: i64 = 9_000_000_000;

/// The smallest time to live a member grants, in whole seconds: one and a half election timeouts,
/// rounded up. A shorter lease could end while the cluster elects a leader, through no fault of
/// its holder. The request is raised to it before it is proposed, so that all members apply the
/// same number whatever their own timing is.
#[must_use]
pub const fn min_ttl_s(election_timeout_ms: u64) -> i64 {
    // 3/2 of the timeout in seconds, rounded up: ceil(3e / 2000).
    (election_timeout_ms.saturating_mul(3)).div_ceil(2_000) as i64
}
