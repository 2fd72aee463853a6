//! Members of two versions in one cluster: rolling upgrades and the way back, levels of commands, and
//! what a member does that meets a command it does not know.
//!
//! The version before is a build of the commit in `upgrade/PREVIOUS`, made by `.ci/build-previous`. In
//! any case this program stands in for it, at a lowered level of commands (`ASSAY_TEST_FEATURE_LEVEL`).
#![allow(clippy::disallowed_methods, reason = "tests own their clocks and threads")]

mod common;

#[path = "upgrade/command.rs"]
mod command;
#[path = "upgrade/fences.rs"]
mod fences;
#[path = "chaos/history.rs"]
#[allow(dead_code, reason = "the tests of faults use all of it")]
mod history;
#[path = "upgrade/levels.rs"]
mod levels;
#[path = "sim/linear.rs"]
#[allow(unreachable_pub, reason = "the simulator has it as a module of its own")]
mod linear;
#[path = "upgrade/proposals.rs"]
mod proposals;
#[path = "upgrade/rolling.rs"]
mod rolling;
#[path = "upgrade/unconfirmed.rs"]
mod unconfirmed;

mod members {
    /// Longest time that a cluster gets for what takes it a second or two.
    pub(crate) const SOON: std::time::Duration = std::time::Duration::from_secs(90);
}
