//! Clocks, histograms and I/O statistics: what every other module measures itself with.
//!
//! Nothing here knows what it measures. Metric names and the exposition formats are declared next
//! to the registry, labels are the `as_str` of the enums in [`io`].

pub mod clock;
mod collect;
pub mod disk_health;
pub mod divergence;
pub mod doubling;
pub mod exposition;
pub mod families;
pub mod histogram;
pub mod io;
pub mod logging;
pub mod metrics;
pub mod node_metrics;
pub mod peer_stats;
pub mod pending;
pub mod process;
pub mod raft_log;
pub mod repeats;
pub mod rpc;
pub mod stage;
pub mod sync_mix;
pub mod window;
