//! Tests of the core with hand-made shells. Random faults are in `tests/sim/cores`.

mod codec;
mod contradiction;
mod disk;
mod elections;
mod fence;
mod group;
mod membership;
mod proposals;
mod reads;
mod snapshots;
mod solo;
