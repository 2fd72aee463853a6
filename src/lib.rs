//! Assay: a strongly consistent, raft-replicated key-value node that speaks the etcd v3 API.
//!
//! The modules, bottom-up; a module uses only what stands above it in this list and what
//! `ARCHITECTURE.md` allows it (`tests/tidy.rs` compares the imports with that table).

pub mod proto;

pub mod config;
pub mod consensus;
pub mod divergence;
pub mod framing;
pub mod lease;
pub mod mvcc;
pub mod sched;
pub mod telemetry;

pub mod disk;
pub mod watch;

pub mod store;
pub mod wal;

pub mod edge;
pub mod machine;

pub mod peer;

pub mod node;

pub mod admin;
pub mod api;
