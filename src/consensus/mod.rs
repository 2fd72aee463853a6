//! Consensus: one member's part of a raft group, as a pure function of what happened.
//!
//! [`Core::step`] takes inputs (ticks, proposals, messages, "this is on disk", "this is applied")
//! and gives effects (send, write, apply, answer). It has no clock, no thread, no socket and no
//! file, so that a seed replays a whole cluster. It is the only module that names the raft crate,
//! and no type of that crate or of its codec crosses its border.
//!
//! # Contract with the shell
//!
//! 0. After [`Core::new`] the shell asks [`Core::new_log`] and begins the log on disk anew if told so.
//! 1. Effects are carried out in the order given. `Send` may be late or lost; `Persist`, `Install`
//!    and `Apply` may not.
//! 2. Batches reach the disk in the order of their numbers; [`Input::Persisted`] may name only the
//!    newest one. A batch without `sync` is confirmed as soon as it is written.
//! 3. Messages appear as `Send` only when what they say is durable. A shell cannot send too early.
//! 4. Entries are applied in order; [`Input::Applied`] reports the index in memory and the index
//!    that the store holds durably. The log is cut up to the durable one only.
//! 5. Each `BuildSnapshot` and each snapshot message sent is answered by [`Input::SnapshotSent`],
//!    whatever happens; a receiver gives the message and [`Input::SnapshotStaged`] in any order.
//! 6. On `Install` the shell swaps the store, then begins the log anew at that position with the
//!    following batch, syncs, and reports both [`Input::Persisted`] and [`Input::Installed`].
//!    Until then the core is deaf.
//! 7. The index of `ReadAt` is safe to read at as soon as the applied index has reached it. Reads
//!    are asked again by themselves; the shell refuses those whose time is up.
//! 8. Whether a proposal that was not refused took effect is known only when its entry is applied.
//! 9. On `Stop` the process ends at once; the core takes part in nothing any more.
//!
//! # Invariants
//!
//! - Nothing in here iterates over a hash map, reads a clock or draws a random number. The
//!   library's own random election timeout is overwritten after every call.
//! - Between taking a turn and ending it, no other call reaches the library.
//! - An index is handed out once, in order, after it is committed and on the own disk.

mod change;
mod conf;
mod config;
mod contradiction;
mod core;
mod disk;
mod fence;
mod held;
mod log;
mod reads;
mod requests;
mod snapshots;
mod status;
mod turn;
mod types;
mod wire;

#[cfg(test)]
mod tests;

pub use change::{BootstrapMember, ChangeOp, MemberChange, bootstrap};
pub use conf::ConfState;
pub use config::{BrokenRule, Config, READ_RETRY_MS};
pub use contradiction::Contradiction;
pub use core::Core;
pub use disk::{DiskEvent, DiskFacts, OwnDisk};
pub use status::{Flow, Peer, Status};
pub use types::{
    Batch, Committed, Effect, Entry, EntryKind, Error, HardState, Input, Millis, NewLog, NodeId,
    Refusal, Restored, Role, RoleChange, SnapshotMeta, Token,
};
pub use wire::{Wire, WireError, WireKind};
