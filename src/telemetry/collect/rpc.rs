//! Calls and connections of clients.

use crate::telemetry::exposition::Exposition;
use crate::telemetry::families::{assay, etcd};
use crate::telemetry::metrics::{Sources, StateSample};
use crate::telemetry::rpc::{CODES, RpcStats};

pub(super) fn calls(out: &mut Exposition, rpc: &RpcStats) {
    for method in rpc.methods() {
        let name = method.name;
        let started = method.started();
        if !name.always_shown && started == 0 {
            continue;
        }
        let labels = [name.method, name.service, name.shape];
        let (received, sent) = method.messages();
        out.family(&etcd::RPC_STARTED).value(&labels, started as f64);
        out.family(&etcd::RPC_RECEIVED).value(&labels, received as f64);
        out.family(&etcd::RPC_SENT).value(&labels, sent as f64);
        let mut handled = out.family(&etcd::RPC_HANDLED);
        for (code, text) in CODES.iter().enumerate() {
            let labels = [text, name.method, name.service, name.shape];
            handled.value(&labels, method.handled(code) as f64);
        }
        let (good, bad) = (method.times(true), method.times(false));
        if let Some(request) = name.request {
            for (success, times) in [("true", &good), ("false", &bad)] {
                if let Some(times) = times {
                    out.family(&etcd::REQUEST_DURATION).histogram(&[success, request], times);
                }
            }
        }
        let all = good.into_iter().chain(bad).reduce(|mut sum, times| {
            sum.add(&times);
            sum
        });
        if let Some(all) = all {
            out.family(&etcd::RPC_HANDLING).histogram(&labels, &all);
        }
    }
    let (received, sent) = rpc.bytes();
    out.value(&etcd::CLIENT_RECEIVED, received as f64);
    out.value(&etcd::CLIENT_SENT, sent as f64);
    for (version, [unary, stream]) in rpc.versions() {
        let mut requests = out.family(&etcd::CLIENT_REQUESTS);
        requests.value(&[version, "unary"], unary as f64);
        requests.value(&[version, "stream"], stream as f64);
    }
    for (family, method) in [(&etcd::HASH_DURATION, "Hash"), (&etcd::HASH_REV_DURATION, "HashKV")] {
        let times = rpc.method(method).and_then(|method| method.times(true));
        out.histogram(family, &times.unwrap_or_default());
    }
}

pub(super) fn connections(out: &mut Exposition, sources: &Sources, state: &StateSample) {
    for (port, open) in &state.connections {
        out.family(&assay::CONNECTIONS).value(&[port], *open as f64);
    }
    for (port, reason, count) in sources.conns.all_closed() {
        out.family(&assay::CLOSED).value(&[port, reason], count as f64);
    }
    for (port, reason, count) in sources.conns.all_handshake_failures() {
        out.family(&assay::TLS_FAILURES).value(&[port, reason], count as f64);
    }
    for cert in &state.certificates {
        let labels = [cert.cert, cert.listener];
        out.family(&assay::TLS_EXPIRES).value(&labels, cert.expires as f64);
        out.family(&assay::TLS_ISSUED).value(&labels, cert.issued as f64);
    }
    for (listener, rejected) in &state.tls_files_rejected {
        out.family(&assay::TLS_REJECTED).value(&[listener], f64::from(*rejected));
    }
    for (port, count) in sources.conns.all_accept_failures() {
        out.family(&assay::ACCEPT_FAILED).value(&[port], count as f64);
    }
    out.value(&assay::ACCEPTED, state.accepted as f64);
    out.value(&assay::REFUSED, state.refused as f64);
    for (port, limit) in &sources.connection_limits {
        out.family(&assay::CONNECTION_LIMIT).value(&[port], *limit as f64);
    }
}
