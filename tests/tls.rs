//! TLS on every listener, judged by real clients: etcdctl, HTTP over TLS, gRPC over TLS.
#![allow(clippy::disallowed_methods, reason = "tests own their clocks and files")]

#[path = "tls/auto.rs"]
mod auto;
#[path = "tls/client.rs"]
mod client;
mod common;
#[path = "tls/files.rs"]
mod files;
#[path = "tls/flags.rs"]
mod flags;
#[path = "tls/members.rs"]
mod members;
#[path = "tls/plaintext.rs"]
mod plaintext;
#[path = "tls/refused.rs"]
mod refused;
#[path = "tls/rotation.rs"]
mod rotation;
#[path = "tls/serving.rs"]
mod serving;
#[path = "tls/upgrade.rs"]
mod upgrade;
#[path = "tls/versions.rs"]
mod versions;
