//! The running node: threads, the lanes between them, and the handle for everything above.
//!
//! ```text
//! edge ──► Handle ──► node ──► wal ──► node ──► apply ──► store
//!   ▲                                              │
//!   └────────────── answers, watch ◄───────────────┘
//! ```
//!
//! The order of disk and messages is decided in `consensus`, the meaning of commands in `machine`;
//! the threads here only carry values from one to the other.

mod answers;
mod apply_thread;
mod convert;
mod counts;
pub mod data_dir;
mod deadline;
mod disk_watch;
mod divergence;
mod driver;
pub mod fatal;
pub mod fence;
mod handle;
mod hash_thread;
mod history;
mod input;
mod join;
mod lane;
mod leadership;
mod leases;
mod local;
mod membership;
mod parked;
mod progress;
mod ready;
mod remote;
mod replication;
mod snapshot_in;
mod snapshot_out;
mod space;
mod start;
mod store_thread;
mod threads;
mod transfer;
mod upgrade;
mod wal_thread;
mod watch_lane;
pub mod watch_thread;

pub use answers::AnswerLane;
pub use driver::STORE_PENDING_MAX_BYTES;
pub use handle::{Done, End, Handle, Identity, Phase, RaftStatus, Refused};
pub use join::{JoinError, join};
pub use membership::{Changed, MemberOp};
pub use progress::{PHASES, Progress};
pub use ready::publish;
pub use start::{Joined, Node, Parts, StartError, start};
pub use threads::{LOG_THREAD, STORE_THREAD, Threads};
pub use upgrade::{FeatureLevels, UpgradeError};
