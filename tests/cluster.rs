//! Clusters of real processes on loopback ports.
#![allow(clippy::disallowed_methods, reason = "tests own their clocks and threads")]

mod common;

#[path = "cluster/basics.rs"]
mod basics;
#[path = "cluster/catch_up.rs"]
mod catch_up;
#[path = "cluster/causes.rs"]
mod causes;
#[path = "cluster/divergence.rs"]
mod divergence;
#[path = "cluster/errors.rs"]
mod errors;
#[path = "cluster/faults.rs"]
mod faults;
#[path = "cluster/fences.rs"]
mod fences;
#[path = "cluster/leases.rs"]
mod leases;
#[path = "cluster/members.rs"]
mod members;
#[path = "cluster/newcomers.rs"]
mod newcomers;
#[path = "cluster/numbers.rs"]
mod numbers;
#[path = "cluster/restored.rs"]
mod restored;
#[path = "cluster/snapshots.rs"]
mod snapshots;
#[path = "cluster/strangers.rs"]
mod strangers;
