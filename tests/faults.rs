//! Disks that are slow, fail or are full, under a real node.
#![allow(clippy::disallowed_methods, reason = "tests own their clocks and threads")]

#[path = "faults/broken.rs"]
mod broken;
mod common;
#[path = "faults/full.rs"]
mod full;
#[path = "faults/log.rs"]
mod log;
#[path = "faults/slow.rs"]
mod slow;

use assay::proto::etcdserverpb::PutRequest;
use common::Clients;
use std::time::{Duration, Instant};

/// Puts one key; how long the answer took.
async fn put(clients: &mut Clients, key: &str, bytes: usize) -> Result<Duration, tonic::Status> {
    let start = Instant::now();
    let put = PutRequest {
        key: key.to_string().into(),
        value: vec![b'v'; bytes].into(),
        ..PutRequest::default()
    };
    clients.kv.put(put).await?;
    Ok(start.elapsed())
}

/// The value that this part of the others does not exceed.
fn quantile(mut times: Vec<Duration>, part: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * part).ceil() as usize]
}
