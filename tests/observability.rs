//! What operators see: names of metrics, boards, alerts, and figures checked against the kernel's
//! own count by a real Prometheus.
#![allow(clippy::disallowed_methods, reason = "tests own their clocks, threads and files")]

#[path = "observability/alerts.rs"]
mod alerts;
#[path = "observability/boards.rs"]
mod boards;
mod common;
#[path = "observability/docs.rs"]
mod docs;
#[path = "observability/exposition.rs"]
mod exposition;
#[path = "observability/http.rs"]
mod http;
#[path = "observability/load.rs"]
mod load;
#[path = "observability/names.rs"]
mod names;
#[path = "observability/panels.rs"]
mod panels;
#[path = "observability/prometheus.rs"]
mod prometheus;
#[path = "observability/slow.rs"]
mod slow;
#[path = "observability/syncs.rs"]
mod syncs;

use std::path::PathBuf;

/// A path in the repository.
fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}
