//! What must hold, whatever fails: one file for each family of rules.

pub mod leases;
pub mod members;
pub mod messages;
pub mod raft;
