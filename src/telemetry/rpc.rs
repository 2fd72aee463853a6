//! Counters of calls and connections: arrays of atomics, indexed by method, code, port and reason.
//!
//! The names belong to the interface and the edge, which hand in their tables; nothing here knows
//! what a method does.

use super::histogram::{HistogramSnapshot, LatencyHistogram};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Names of the codes that a call can end with, in the order of their numbers.
pub const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Client versions that get a label of their own. Real ones are `3.3` to `3.7`; whoever invents
/// others ends up in [`OTHER_VERSION`].
const VERSIONS_MAX: usize = 16;
/// Longest version text that can be real.
const VERSION_LENGTH_MAX: usize = 8;
/// Label of all versions beyond the bound.
pub const OTHER_VERSION: &str = "other";

/// What the exposition says of a method.
#[derive(Clone, Copy, Debug)]
pub struct MethodName {
    /// `grpc_service`.
    pub service: &'static str,
    /// `grpc_method`.
    pub method: &'static str,
    /// `grpc_type`.
    pub shape: &'static str,
    /// Whether its counters are shown before its first call.
    pub always_shown: bool,
    /// `type` of the request metric, for methods that have one.
    pub request: Option<&'static str>,
}

impl MethodName {
    /// Whether it has one request and one answer.
    pub fn is_unary(&self) -> bool {
        self.shape == "unary"
    }
}

#[derive(Default)]
struct Call {
    started: AtomicU64,
    handled: [AtomicU64; CODES.len()],
    messages_in: AtomicU64,
    messages_out: AtomicU64,
    /// Times of calls that ended well and of the others; made at the first one.
    times: [OnceLock<Box<LatencyHistogram>>; 2],
}

#[derive(Default)]
struct Version {
    name: OnceLock<String>,
    /// Unary calls, streams.
    calls: [AtomicU64; 2],
}

/// Counters of all methods.
pub struct RpcStats {
    names: Vec<MethodName>,
    calls: Vec<Call>,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    versions: [Version; VERSIONS_MAX],
    other: [AtomicU64; 2],
}

impl RpcStats {
    /// Counters for these methods; a method's position is its index in every call.
    pub fn new(names: Vec<MethodName>) -> Self {
        RpcStats {
            calls: names.iter().map(|_| Call::default()).collect(),
            names,
            bytes_in: AtomicU64::default(),
            bytes_out: AtomicU64::default(),
            versions: Default::default(),
            other: Default::default(),
        }
    }

    /// A call began.
    pub fn started(&self, method: usize) {
        self.calls[method].started.fetch_add(1, Relaxed);
    }

    /// A call ended with the code of this number.
    pub fn finished(&self, method: usize, code: usize, ns: u64) {
        let call = &self.calls[method];
        // Numbers that gRPC does not define are Unknown.
        call.handled[if code < CODES.len() { code } else { 2 }].fetch_add(1, Relaxed);
        if self.names[method].is_unary() {
            call.times[usize::from(code != 0)].get_or_init(Box::default).record_ns(ns);
        }
    }

    /// A message of `bytes` came.
    pub fn received(&self, method: usize, bytes: u64) {
        self.calls[method].messages_in.fetch_add(1, Relaxed);
        self.bytes_in.fetch_add(bytes, Relaxed);
    }

    /// A message of `bytes` went out.
    pub fn sent(&self, method: usize, bytes: u64) {
        self.calls[method].messages_out.fetch_add(1, Relaxed);
        self.bytes_out.fetch_add(bytes, Relaxed);
    }

    /// A client named its version. The text is client input: what does not look like a version, or
    /// comes when all places are taken, is counted as [`OTHER_VERSION`].
    pub fn client_version(&self, method: usize, version: &str) {
        let column = usize::from(!self.names[method].is_unary());
        let real = version == "unknown"
            || version.len() <= VERSION_LENGTH_MAX
                && version.starts_with(|first: char| first.is_ascii_digit())
                && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let place = real.then(|| {
            self.versions
                .iter()
                .find(|place| place.name.get_or_init(|| version.to_string()) == version)
        });
        let calls = place.flatten().map_or(&self.other, |place| &place.calls);
        calls[column].fetch_add(1, Relaxed);
    }

    /// Bytes received and sent in all messages.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes_in.load(Relaxed), self.bytes_out.load(Relaxed))
    }

    /// Methods with their counters so far.
    pub fn methods(&self) -> impl Iterator<Item = MethodStats<'_>> {
        self.names.iter().zip(&self.calls).map(|(name, call)| MethodStats { name, call })
    }

    /// The method of this name. (Names that two services have are not asked for.)
    pub fn method(&self, name: &str) -> Option<MethodStats<'_>> {
        self.methods().find(|method| method.name.method == name)
    }

    /// Calls by client version: unary calls, streams.
    pub fn versions(&self) -> Vec<(&str, [u64; 2])> {
        let named = self.versions.iter().filter_map(|version| {
            version.name.get().map(|name| (name.as_str(), version.calls.each_ref()))
        });
        named
            .chain([(OTHER_VERSION, self.other.each_ref())])
            .map(|(name, calls)| (name, calls.map(|count| count.load(Relaxed))))
            .collect()
    }
}

/// Counters of one method.
pub struct MethodStats<'a> {
    /// Its names.
    pub name: &'a MethodName,
    call: &'a Call,
}

impl MethodStats<'_> {
    /// Calls begun.
    pub fn started(&self) -> u64 {
        self.call.started.load(Relaxed)
    }

    /// Calls ended with a code, by its number.
    pub fn handled(&self, code: usize) -> u64 {
        self.call.handled[code].load(Relaxed)
    }

    /// Messages received and sent.
    pub fn messages(&self) -> (u64, u64) {
        (self.call.messages_in.load(Relaxed), self.call.messages_out.load(Relaxed))
    }

    /// Times of unary calls that ended with success (or not); `None` if there was none.
    pub fn times(&self, success: bool) -> Option<HistogramSnapshot> {
        self.call.times[usize::from(!success)].get().map(|times| times.snapshot())
    }
}

/// Counters of connections by port and reason, beside the live ones that the edge keeps.
pub struct ConnStats {
    ports: Vec<&'static str>,
    reasons: Vec<&'static str>,
    failures: Vec<&'static str>,
    closed: Vec<AtomicU64>,
    handshakes: Vec<AtomicU64>,
    accept_failures: Vec<AtomicU64>,
}

impl ConnStats {
    /// Counters for these ports, reasons of an end and reasons of a failed TLS handshake; positions
    /// are the indexes in every call.
    pub fn new(
        ports: Vec<&'static str>,
        reasons: Vec<&'static str>,
        failures: Vec<&'static str>,
    ) -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::default()).collect();
        ConnStats {
            closed: zeros(ports.len() * reasons.len()),
            handshakes: zeros(ports.len() * failures.len()),
            failures,
            accept_failures: ports.iter().map(|_| AtomicU64::default()).collect(),
            ports,
            reasons,
        }
    }

    /// A connection ended.
    pub fn closed(&self, port: usize, reason: usize) {
        self.closed[port * self.reasons.len() + reason].fetch_add(1, Relaxed);
    }

    /// A TLS handshake failed.
    pub fn handshake_failed(&self, port: usize, failure: usize) {
        self.handshakes[port * self.failures.len() + failure].fetch_add(1, Relaxed);
    }

    /// A connection could not be accepted.
    pub fn accept_failed(&self, port: usize) {
        self.accept_failures[port].fetch_add(1, Relaxed);
    }

    /// Ended connections: port, reason, count.
    pub fn all_closed(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.closed.iter().enumerate().map(|(at, count)| {
            let (port, reason) = (at / self.reasons.len(), at % self.reasons.len());
            (self.ports[port], self.reasons[reason], count.load(Relaxed))
        })
    }

    /// Failed TLS handshakes: port, reason, count.
    pub fn all_handshake_failures(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.handshakes.iter().enumerate().map(|(at, count)| {
            let (port, failure) = (at / self.failures.len(), at % self.failures.len());
            (self.ports[port], self.failures[failure], count.load(Relaxed))
        })
    }

    /// Failures to accept by port.
    pub fn all_accept_failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.ports
            .iter()
            .zip(&self.accept_failures)
            .map(|(port, count)| (*port, count.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> RpcStats {
        let name = |method, shape| MethodName {
            service: "s",
            method,
            shape,
            always_shown: true,
            request: None,
        };
        RpcStats::new(vec![name("Put", "unary"), name("Watch", "bidi_stream")])
    }

    #[test]
    fn codes_outside_of_the_table_are_unknown() {
        let stats = stats();
        stats.finished(0, 99, 5);
        assert_eq!(stats.methods().next().unwrap().handled(2), 1);
        assert!(stats.methods().next().unwrap().times(true).is_none());
        assert_eq!(stats.methods().next().unwrap().times(false).unwrap().count, 1);
    }

    #[test]
    fn client_versions_are_bounded() {
        let stats = stats();
        stats.client_version(0, "3.7");
        stats.client_version(1, "3.7");
        stats.client_version(0, "unknown");
        for junk in ["", "3.7\"}", "a".repeat(4_000).as_str(), "333333333"] {
            stats.client_version(0, junk);
        }
        for minor in 0..1_000 {
            stats.client_version(0, &format!("9.{minor}"));
        }
        let versions = stats.versions();
        assert_eq!(versions.len(), VERSIONS_MAX + 1);
        assert_eq!(versions[0], ("3.7", [1, 1]));
        let counted: u64 = versions.iter().flat_map(|(_, calls)| calls).sum();
        assert_eq!(counted, 3 + 4 + 1_000);
    }

    #[test]
    fn connections_are_counted_where_they_belong() {
        let (ports, ends) = (vec!["client", "peer"], vec!["done", "failed"]);
        let stats = ConnStats::new(ports, ends, vec!["expired", "name", "gone"]);
        stats.closed(1, 0);
        stats.handshake_failed(1, 2);
        let failed: Vec<_> = stats.all_handshake_failures().filter(|(.., n)| *n > 0).collect();
        assert_eq!(failed, [("peer", "gone", 1)]);
        stats.accept_failed(0);
        let closed: Vec<_> = stats.all_closed().filter(|(.., count)| *count > 0).collect();
        assert_eq!(closed, [("peer", "done", 1)]);
        assert_eq!(stats.all_accept_failures().next(), Some(("client", 1)));
    }
}
