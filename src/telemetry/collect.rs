//! Takes one sample of everything: turns counters and states into the series of an exposition.

mod disk;
mod divergence;
mod log;
mod peers;
mod rpc;
mod state;

use super::exposition::Exposition;
use super::families::{assay, etcd};
use super::logging;
use super::metrics::{Own, Sources, StateSample};
use super::process::Process;
use std::sync::atomic::Ordering::Relaxed;

/// What is known from the first moment: the process, and the counters of the registry itself.
pub(super) fn process(out: &mut Exposition, own: &Own) {
    let process = Process::read();
    if let Some(seconds) = process.cpu_seconds {
        out.value(&etcd::CPU_SECONDS, seconds);
    }
    if let Some(seconds) = process.start_time {
        out.value(&etcd::START_TIME, seconds);
    }
    let gauges = [
        (&etcd::OPEN_FDS, process.open_fds),
        (&etcd::FD_USED, process.open_fds),
        (&etcd::MAX_FDS, process.max_fds),
        (&etcd::FD_LIMIT, process.max_fds),
        (&etcd::VIRTUAL_BYTES, process.virtual_bytes),
        (&etcd::VIRTUAL_MAX_BYTES, process.virtual_max_bytes),
        (&etcd::RESIDENT_BYTES, process.resident_bytes),
        (&etcd::NETWORK_RECEIVED, process.network_bytes.map(|(received, _)| received)),
        (&etcd::NETWORK_SENT, process.network_bytes.map(|(_, sent)| sent)),
    ];
    for (family, value) in gauges {
        if let Some(value) = value {
            out.value(family, value as f64);
        }
    }
    let mut scrapes = out.family(&etcd::SCRAPES);
    scrapes.value(&["200"], own.scrapes.load(Relaxed) as f64);
    scrapes.value(&["500"], 0.0);
    scrapes.value(&["503"], own.failed_scrapes.load(Relaxed) as f64);
    out.value(&etcd::SCRAPES_RUNNING, own.scraping.load(Relaxed) as f64);
    out.value(&etcd::HEALTH_SUCCESS, own.healthy.load(Relaxed) as f64);
    out.value(&etcd::HEALTH_FAILURES, own.unhealthy.load(Relaxed) as f64);
    for ((kind, name), check) in &*own.checks.lock() {
        out.family(&etcd::HEALTHCHECK).value(&[name, kind], f64::from(u8::from(check.ok)));
        let mut results = out.family(&etcd::HEALTHCHECKS);
        results.value(&[name, "success", kind], check.passed as f64);
        results.value(&[name, "error", kind], check.failed as f64);
    }
    out.value(&assay::LOG_DROPPED, logging::dropped() as f64);
}

/// What other modules own.
pub(super) fn sources(out: &mut Exposition, sources: &Sources, state: &StateSample) {
    out.family(&assay::BUILD).value(&[sources.version], 1.0);
    out.family(&etcd::SERVER_VERSION).value(&[sources.api_version], 1.0);
    out.family(&etcd::GO_VERSION).value(&["none (Rust)"], 1.0);
    disk::files(out, &sources.io);
    disk::gate(out, &sources.gate);
    log::collect(out, &sources.node);
    divergence::collect(out, &sources.node.divergence);
    rpc::calls(out, &sources.rpc);
    rpc::connections(out, sources, state);
    state::process(out, sources, state);
    if let Some(node) = &state.node {
        state::node(out, sources, node);
        peers::collect(out, node.member_id, &sources.peers);
    }
}
