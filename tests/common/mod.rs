//! What the integration tests share: real processes on free ports, tools, clients.
//!
//! A test starts nodes with [`Launch`], talks to them through [`Clients`] or [`Etcdctl`], and finds
//! the real etcd, Prometheus and so on through [`Tool`]. A node that goes out of scope is killed and
//! its files are removed; a failed test prints the end of its log.
//!
//! `ASSAY_SUBJECT=etcd` puts a real etcd in the place of Assay: etcd compared with etcd must agree,
//! which is how the comparing tests are themselves tested.

#![allow(dead_code, reason = "every test program uses its own part of the harness")]
#![allow(unused_imports, reason = "as above, for the re-exports")]
#![allow(unreachable_pub, reason = "a test program has no outside")]
#![allow(clippy::disallowed_methods, reason = "tests own their clocks, threads and files")]

mod clients;
pub mod cluster;
mod etcdctl;
mod http;
mod lan;
mod load;
mod loop_fs;
mod needs;
mod network;
mod node;
mod pki;
mod ports;
mod process;
mod rot;
mod strace;
mod tools;
mod wal;

pub use clients::{Clients, decode, event, key_value};
pub use cluster::Cluster;
pub use etcdctl::{Etcdctl, Output};
pub use http::{http_get, http_post};
pub use lan::Lan;
pub use load::{Load, Shape};
pub use loop_fs::LoopFs;
pub use needs::{number, require_root, skip};
pub use network::own_network;
pub use node::{Launch, Node, Program};
pub use pki::{Authority, Cert, Identity};
pub use ports::free_port;
pub use process::{Ended, Process, assay, bare, run};
pub use rot::rot;
pub use strace::Strace;
pub use tools::Tool;
pub use wal::entries;
