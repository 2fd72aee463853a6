//! How a node starts, refuses to start, and stops: exit codes, texts, log lines, and what it leaves
//! behind.
#![allow(clippy::disallowed_methods, reason = "tests own their clocks and threads")]

mod common;
#[path = "lifecycle/descriptors.rs"]
mod descriptors;
#[path = "lifecycle/directory.rs"]
mod directory;
#[path = "lifecycle/gate.rs"]
mod gate;
#[path = "lifecycle/hanging.rs"]
mod hanging;
#[path = "lifecycle/paths.rs"]
mod paths;
#[path = "lifecycle/ports.rs"]
mod ports;
#[path = "lifecycle/readme.rs"]
mod readme;
#[path = "lifecycle/restart.rs"]
mod restart;
#[path = "lifecycle/settle.rs"]
mod settle;
#[path = "lifecycle/signals.rs"]
mod signals;
#[path = "lifecycle/start.rs"]
mod start;
#[path = "lifecycle/stop.rs"]
mod stop;
#[path = "lifecycle/store.rs"]
mod store;

use common::{assay, free_port};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Longest orderly stop.
const STOP: Duration = Duration::from_secs(20);

/// A node on free ports, in a directory, with the gate off.
fn node_in(data_dir: &Path) -> Command {
    let mut command = assay();
    command.arg("--data-dir").arg(data_dir).arg("--disk-gate=off");
    on_free_ports(&mut command);
    command
}

/// Adds listeners on free ports; returns the ports of clients, peers and metrics.
fn on_free_ports(command: &mut Command) -> [u16; 3] {
    let ports = [free_port(), free_port(), free_port()];
    let [client, peer, metrics] = ports.map(|port| format!("http://127.0.0.1:{port}"));
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    // Announced under the default address, which ids are made of.
    command.args(["--listen-peer-urls", &peer, "--listen-metrics-urls", &metrics]);
    ports
}

/// Every line is an object of etcd's log form.
fn assert_log_lines(log: &str) {
    assert!(!log.is_empty(), "no log");
    for line in log.lines() {
        let value: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for member in ["level", "ts", "caller", "msg"] {
            assert!(value[member].is_string(), "no {member}: {line}");
        }
    }
}

/// Names, lengths and times of change of everything below a directory.
fn picture(dir: &Path) -> Vec<(String, u64, std::time::SystemTime)> {
    let mut picture = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            let metadata = path.symlink_metadata().expect("metadata");
            if metadata.is_dir() {
                open.push(path.clone());
            }
            let length = if metadata.is_dir() { 0 } else { metadata.len() };
            let modified = metadata.modified().expect("time of change");
            picture.push((path.to_string_lossy().into_owned(), length, modified));
        }
    }
    picture.sort();
    picture
}
