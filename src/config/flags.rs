//! The table of options: name, type, default, unit and help, each declared once.
//!
//! Names and defaults of the first groups are etcd's (`server/embed/config.go`), so that unit files
//! and manifests work unchanged. From this table come the parser, `--help` and the suggestion for a
//! misspelt flag.

/// How the text of a flag is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`; the bare flag means `true`.
    Bool,
    /// A whole number, decimal, `0x…`, `0…` or `0b…`.
    Number,
    /// A duration such as `300ms`, `5s`, `1m30s`.
    Duration,
    /// A comma-separated list of URLs.
    Urls,
}

/// What becomes of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Has the documented effect.
    Works,
    /// Accepted so that etcd's unit files start, without effect here; the reason is the help text.
    Accepted,
    /// Known, but what it asks for is not built yet: refused when it differs from the default.
    NotYet,
}

/// One option.
#[derive(Debug)]
pub struct Flag {
    /// Name without dashes.
    pub name: &'static str,
    /// Type of its value.
    pub kind: Kind,
    /// Text of the default.
    pub default: &'static str,
    /// Group heading in `--help`.
    pub group: &'static str,
    /// One sentence for `--help`.
    pub help: &'static str,
    /// Whether it has an effect.
    pub state: State,
}

impl Flag {
    /// Name of the environment variable: `ETCD_` and the flag in upper case.
    pub fn env(&self) -> String {
        format!("ETCD_{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// Second name of the environment variable, for the options that etcd does not have.
    pub fn own_env(&self) -> String {
        format!("ASSAY_{}", self.name.to_uppercase().replace('-', "_"))
    }
}

/// Finds an option by name.
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// The option whose name is nearest to `name`, if any is near enough to be meant.
pub fn nearest(name: &str) -> Option<&'static str> {
    let within = (name.len() / 3).max(2);
    FLAGS
        .iter()
        .map(|flag| (distance(name, flag.name), flag.name))
        .min()
        .filter(|(distance, _)| *distance <= within)
        .map(|(_, name)| name)
}

/// Words that ask for something else than a node, when they come first.
pub const COMMANDS: [&str; 1] = ["upgrade"];

/// The command whose name is nearest to `word`, if any is near enough to be meant.
pub fn nearest_command(word: &str) -> Option<&'static str> {
    let near = |command: &&str| distance(word, command) <= command.len() / 3;
    COMMANDS.into_iter().find(near)
}

/// Levenshtein distance in bytes; names are ASCII and short.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

const fn flag(
    group: &'static str,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    state: State,
    help: &'static str,
) -> Flag {
    Flag { name, kind, default, group, help, state }
}

use Kind::{Bool, Duration, Number, Text, Urls};
use State::{Accepted, NotYet, Works};

const MEMBER: &str = "Member";
const CLUSTER: &str = "Clustering";
const SECURITY: &str = "Security";
const LOGGING: &str = "Logging and metrics";
const SPACE: &str = "Compaction, checks and warnings";
const ASSAY: &str = "Assay's own (also read as ASSAY_*)";

/// Every option of the server.
#[rustfmt::skip]
pub static FLAGS: &[Flag] = &[
    flag(MEMBER, "name", Text, "default", Works, "name of this member"),
    flag(MEMBER, "data-dir", Text, "", Works, "data directory (default: NAME.assay in the current directory)"),
    flag(MEMBER, "wal-dir", Text, "", Works, "separate directory for the write-ahead log"),
    flag(MEMBER, "listen-peer-urls", Urls, "http://localhost:2380", Works, "addresses for members of the cluster"),
    flag(MEMBER, "listen-client-urls", Urls, "http://localhost:2379", Works, "addresses for clients, gRPC and HTTP"),
    flag(MEMBER, "listen-client-http-urls", Urls, "", NotYet, "separate addresses for client HTTP"),
    flag(MEMBER, "listen-metrics-urls", Urls, "http://127.0.0.1:2381", Works, "addresses for /metrics and health alone"),
    flag(MEMBER, "heartbeat-interval", Number, "100", Works, "raft tick in milliseconds"),
    flag(MEMBER, "election-timeout", Number, "1000", Works, "election timeout in milliseconds, at least five heartbeats"),
    flag(MEMBER, "initial-election-tick-advance", Bool, "true", Accepted, "a sole voter elects itself at once, others wait one election timeout"),
    flag(MEMBER, "quota-backend-bytes", Number, "0", Works, "space quota in bytes: 0 means 2 GiB, negative means none"),
    flag(MEMBER, "backend-batch-interval", Duration, "0", Works, "longest time between durable store commits (0: 100ms)"),
    flag(MEMBER, "backend-batch-limit", Number, "0", Accepted, "store commits are bounded by bytes here"),
    flag(MEMBER, "backend-bbolt-freelist-type", Text, "", Accepted, "the store is not bbolt"),
    flag(MEMBER, "max-txn-ops", Number, "128", Works, "operations allowed in one transaction"),
    flag(MEMBER, "max-request-bytes", Number, "1572864", Works, "largest request in bytes"),
    flag(MEMBER, "max-concurrent-streams", Number, "4294967295", Works, "HTTP/2 streams per client connection"),
    flag(MEMBER, "grpc-keepalive-min-time", Duration, "5s", Works, "shortest time between two pings of a client"),
    flag(MEMBER, "grpc-keepalive-interval", Duration, "2h0m0s", Works, "idle time before the server pings a client (0: never)"),
    flag(MEMBER, "grpc-keepalive-timeout", Duration, "20s", Works, "wait for the answer to such a ping"),
    flag(MEMBER, "socket-reuse-port", Bool, "false", Works, "set SO_REUSEPORT on listeners"),
    flag(MEMBER, "socket-reuse-address", Bool, "false", Works, "set SO_REUSEADDR on listeners"),
    flag(MEMBER, "raft-read-timeout", Duration, "5s", Accepted, "peers have timeouts of their own"),
    flag(MEMBER, "raft-write-timeout", Duration, "5s", Accepted, "peers have timeouts of their own"),
    flag(MEMBER, "max-learners", Number, "1", Works, "learners allowed in the cluster"),
    flag(MEMBER, "max-wals", Number, "5", Accepted, "the log is bounded by what the store has made durable"),
    flag(MEMBER, "max-snapshots", Number, "5", Accepted, "there are no snapshot files to keep"),
    flag(MEMBER, "snapshot-count", Number, "10000", Accepted, "the store commits by time and bytes"),
    flag(MEMBER, "snapshot-catchup-entries", Number, "5000", Works, "log entries kept behind the durable index"),
    flag(MEMBER, "memory-mlock", Bool, "false", Accepted, "the store is not a memory map"),
    flag(MEMBER, "bootstrap-defrag-threshold-megabytes", Number, "0", Accepted, "the store reuses its pages"),
    flag(CLUSTER, "initial-advertise-peer-urls", Urls, "http://localhost:2380", Works, "peer addresses announced to the cluster"),
    flag(CLUSTER, "advertise-client-urls", Urls, "http://localhost:2379", Works, "client addresses announced to clients"),
    flag(CLUSTER, "initial-cluster", Text, "", Works, "NAME=PEER-URL of the first members (default: this one)"),
    flag(CLUSTER, "initial-cluster-token", Text, "etcd-cluster", Works, "mixed into cluster and member ids"),
    flag(CLUSTER, "initial-cluster-state", Text, "new", Works, "new, or existing to join the members of --initial-cluster"),
    flag(CLUSTER, "strict-reconfig-check", Bool, "true", Works, "refuse membership changes that would lose the quorum"),
    flag(CLUSTER, "pre-vote", Bool, "true", Accepted, "pre-vote is always on"),
    flag(CLUSTER, "force-new-cluster", Bool, "false", NotYet, "restart as a cluster of one"),
    flag(CLUSTER, "discovery-endpoints", Text, "", NotYet, "discovery service"),
    flag(CLUSTER, "discovery-token", Text, "", NotYet, "discovery token"),
    flag(CLUSTER, "discovery-srv", Text, "", NotYet, "bootstrap from DNS"),
    flag(SECURITY, "cert-file", Text, "", Works, "server certificate of the client and metrics ports, PEM"),
    flag(SECURITY, "key-file", Text, "", Works, "its key, PEM"),
    flag(SECURITY, "client-cert-file", Text, "", Accepted, "this node never dials its own client port"),
    flag(SECURITY, "client-key-file", Text, "", Accepted, "this node never dials its own client port"),
    flag(SECURITY, "client-cert-auth", Bool, "false", Works, "require client certificates and take the user from their common name"),
    flag(SECURITY, "trusted-ca-file", Text, "", Works, "authorities of client certificates, PEM; makes such certificates mandatory"),
    flag(SECURITY, "client-crl-file", Text, "", Works, "revoked client certificates, PEM or DER"),
    flag(SECURITY, "client-cert-allowed-hostname", Text, "", Works, "names of which a client certificate must have one, comma-separated"),
    flag(SECURITY, "auto-tls", Bool, "false", Works, "self-signed TLS on the client port, kept in DATA-DIR/fixtures/client"),
    flag(SECURITY, "peer-cert-file", Text, "", Works, "certificate of the peer port, PEM"),
    flag(SECURITY, "peer-key-file", Text, "", Works, "its key, PEM"),
    flag(SECURITY, "peer-client-cert-file", Text, "", Works, "certificate for dialling members (default: peer-cert-file)"),
    flag(SECURITY, "peer-client-key-file", Text, "", Works, "its key"),
    flag(SECURITY, "peer-client-cert-auth", Bool, "false", Works, "require peer certificates"),
    flag(SECURITY, "peer-trusted-ca-file", Text, "", Works, "authorities of peer certificates, PEM; makes such certificates mandatory"),
    flag(SECURITY, "peer-crl-file", Text, "", Works, "revoked peer certificates, PEM or DER"),
    flag(SECURITY, "peer-cert-allowed-cn", Text, "", Works, "common names that peer certificates may have, comma-separated"),
    flag(SECURITY, "peer-cert-allowed-hostname", Text, "", Works, "names of which a peer certificate must have one, comma-separated"),
    flag(SECURITY, "peer-skip-client-san-verification", Bool, "false", Works, "do not compare addresses of members with their certificates"),
    flag(SECURITY, "peer-auto-tls", Bool, "false", Works, "self-signed TLS on the peer port, kept in DATA-DIR/fixtures/peer"),
    flag(SECURITY, "self-signed-cert-validity", Number, "1", Works, "years for which self-signed certificates are valid"),
    flag(SECURITY, "cipher-suites", Text, "", Works, "TLS 1.2 cipher suites in Go's names, comma-separated (default: all strong ones)"),
    flag(SECURITY, "tls-min-version", Text, "TLS1.2", Works, "TLS1.2 or TLS1.3"),
    flag(SECURITY, "tls-max-version", Text, "", Works, "TLS1.2, TLS1.3 or empty for the highest"),
    flag(SECURITY, "auth-token", Text, "simple", NotYet, "kind of authentication token"),
    flag(SECURITY, "auth-token-ttl", Number, "300", Accepted, "authentication comes later"),
    flag(SECURITY, "bcrypt-cost", Number, "10", Accepted, "authentication comes later"),
    flag(SECURITY, "cors", Text, "*", Works, "origins allowed to use HTTP from a browser"),
    flag(SECURITY, "host-whitelist", Text, "*", Works, "host names accepted over plain HTTP"),
    flag(LOGGING, "logger", Text, "zap", Accepted, "kept for unit files"),
    flag(LOGGING, "log-outputs", Text, "default", Works, "default, stderr, stdout or file names, comma-separated"),
    flag(LOGGING, "log-level", Text, "info", Works, "debug, info, warn or error"),
    flag(LOGGING, "log-format", Text, "json", Works, "json or console"),
    flag(LOGGING, "enable-log-rotation", Bool, "false", NotYet, "rotate log files"),
    flag(LOGGING, "enable-pprof", Bool, "false", Accepted, "there is no Go profile to serve"),
    flag(LOGGING, "metrics", Text, "basic", Accepted, "latency histograms are always on"),
    flag(SPACE, "auto-compaction-mode", Text, "periodic", Accepted, "only read together with the retention"),
    flag(SPACE, "auto-compaction-retention", Text, "0", NotYet, "compact by age or by revision count"),
    flag(SPACE, "compaction-batch-limit", Number, "0", Works, "revisions removed per step of a compaction (0: 1000)"),
    flag(SPACE, "compaction-sleep-interval", Duration, "0", Works, "pause between such steps (0: 10ms)"),
    flag(SPACE, "corrupt-check-time", Duration, "0", NotYet, "period of the check between members"),
    flag(SPACE, "compact-hash-check-time", Duration, "1m0s", Accepted, "members compare hashes all the time, see --divergence-check"),
    flag(SPACE, "watch-progress-notify-interval", Duration, "0", Works, "period of watch progress notifications (0: 10m)"),
    flag(SPACE, "downgrade-check-time", Duration, "5s", Accepted, "downgrades come later"),
    flag(SPACE, "warning-apply-duration", Duration, "100ms", Works, "log requests whose apply takes longer"),
    flag(SPACE, "warning-unary-request-duration", Duration, "300ms", Works, "log requests that take longer"),
    flag(SPACE, "enable-grpc-gateway", Bool, "true", Accepted, "the JSON gateway comes later"),
    flag(SPACE, "feature-gates", Text, "", Accepted, "etcd's feature gates have no counterpart yet"),
    flag(SPACE, "experimental-initial-corrupt-check", Bool, "false", Accepted, "members compare hashes all the time, see --divergence-check"),
    flag(SPACE, "experimental-watch-progress-notify-interval", Duration, "0", Works, "older name of watch-progress-notify-interval"),
    flag(SPACE, "unsafe-no-fsync", Bool, "false", NotYet, "not offered: a write is durable when it is answered"),
    flag(SPACE, "config-file", Text, "", NotYet, "configuration file"),
    flag(ASSAY, "disk-gate", Text, "enforce", Works, "enforce, strict, warn or off: whether an unfit disk stops the start"),
    flag(ASSAY, "disk-gate-p99", Duration, "10ms", Works, "largest p99 of fdatasync that the gate lets through"),
    flag(ASSAY, "disk-verdict-file", Text, "", Works, "further place to look for a stored verdict of bench-disk"),
    flag(ASSAY, "disk-stall-step-down", Text, "auto", Works, "age of a hung log sync at which a leader hands over to a member with a fit disk (auto: the election timeout; 0: never)"),
    flag(ASSAY, "divergence-check", Text, "fence", Works, "fence, alarm or off: what becomes of a member whose data differs from the majority's"),
    flag(ASSAY, "min-free-bytes", Number, "268435456", Works, "free space in bytes below which client writes are refused"),
    flag(ASSAY, "memory-budget", Text, "auto", Works, "bytes, or auto: 60 % of the smaller of cgroup limit and memory"),
];
