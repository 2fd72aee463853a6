//! Members as processes on hosts of their own, with disks of their own, under faults: kills, pauses,
//! cuts, power loss, stalled and full disks, clocks that step.
//!
//! Clients record what they sent and saw. The same checker that judges the simulator judges these
//! histories, and in the end all members hash alike. Needs root; says so and does nothing without.
//! `KILLS`, `ROUNDS` and `STALLS` set the counts of long runs, `SEED` repeats the choices of one.
#![allow(clippy::disallowed_methods, reason = "tests own their clocks and threads")]

mod common;

#[path = "chaos/clock.rs"]
mod clock;
#[path = "chaos/cuts.rs"]
mod cuts;
#[path = "chaos/deaths.rs"]
mod deaths;
#[path = "chaos/disks.rs"]
mod disks;
#[path = "chaos/history.rs"]
mod history;
#[path = "sim/linear.rs"]
#[allow(unreachable_pub, reason = "the simulator has it as a module of its own")]
mod linear;
#[path = "chaos/members.rs"]
mod members;
#[path = "chaos/stalls.rs"]
mod stalls;
