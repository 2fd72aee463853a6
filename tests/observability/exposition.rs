//! `/metrics` of a real node.

use super::common::{Launch, Tool};
use super::http::{get, try_get};
use super::{alerts, boards, load, names, repository};
use assay::telemetry::families;
use bench_disk::sampler::recorded::{self, Recorded};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Most series and bytes of text that one scrape may have (`operations.md` 7, three members).
const SERIES_MAX: usize = 4_000;
const BYTES_MAX: usize = 400_000;

/// Families that this node cannot show.
const ABSENT: [(&str, &str); 20] = [
    ("assay_disk_gate_p99_seconds", "the disk gate is off here, so nothing was measured"),
    ("assay_peer_append_duration_seconds", "one member has no peers; see tests/cluster"),
    ("etcd_network_active_peers", "one member has no peers; see tests/cluster"),
    ("etcd_network_disconnected_peers_total", "one member has no peers; see tests/cluster"),
    ("etcd_network_peer_sent_bytes_total", "one member has no peers; see tests/cluster"),
    ("etcd_network_peer_received_bytes_total", "one member has no peers; see tests/cluster"),
    ("etcd_network_peer_sent_failures_total", "one member has no peers; see tests/cluster"),
    ("etcd_network_peer_received_failures_total", "one member has no peers; see tests/cluster"),
    ("etcd_network_peer_round_trip_time_seconds", "one member has no peers; see tests/cluster"),
    ("etcd_network_snapshot_send_success", "one member has no peers; see tests/cluster"),
    ("etcd_network_snapshot_send_failures", "one member has no peers; see tests/cluster"),
    ("etcd_network_snapshot_send_inflights_total", "one member has no peers; see tests/cluster"),
    (
        "etcd_network_snapshot_send_total_duration_seconds",
        "one member has no peers; see tests/cluster",
    ),
    ("etcd_network_snapshot_receive_success", "one member has no peers; see tests/cluster"),
    ("etcd_network_snapshot_receive_failures", "one member has no peers; see tests/cluster"),
    ("etcd_network_snapshot_receive_inflights_total", "one member has no peers; see tests/cluster"),
    (
        "etcd_network_snapshot_receive_total_duration_seconds",
        "one member has no peers; see tests/cluster",
    ),
    ("assay_tls_cert_expiry_timestamp_seconds", "no certificates here; see tests/tls"),
    ("assay_tls_cert_issued_timestamp_seconds", "no certificates here; see tests/tls"),
    ("assay_tls_files_rejected", "no certificates here; see tests/tls"),
];

/// Longest wait for an etcd to finish its start, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const PROTOBUF: &str =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_node_exposes_what_is_declared_read_and_allowed() {
    let node = Launch::assay().start();
    let port = node.ports()[2];
    let _held = load::everything(&node.client_url()).await;
    for path in ["/health", "/livez", "/readyz"] {
        get(port, path);
    }
    let text = get(port, "/metrics");
    let exposed = names::exposed(&text);

    // Declared is exposed, and the reverse.
    for family in families::all() {
        let absent = ABSENT.iter().any(|(name, _)| *name == family.name);
        let kind = exposed.get(family.name).map(String::as_str);
        assert_eq!(kind, (!absent).then_some(family.kind.as_str()), "{}", family.name);
    }
    let declared: BTreeSet<&str> = families::all().map(|family| family.name).collect();
    for name in exposed.keys() {
        assert!(declared.contains(name.as_str()), "{name} is not declared");
    }
    // Boards and alerts read nothing else.
    let mut read = alerts::metrics();
    for panel in boards::panels() {
        let expressions = panel.expressions();
        read.extend(expressions.iter().flat_map(|expression| names::in_expression(expression)));
    }
    for name in read {
        let absent = ABSENT.iter().any(|(absent, _)| *absent == name);
        assert!(absent || exposed.contains_key(&name), "{name} is not exposed");
    }

    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series <= SERIES_MAX, "{series} series");
    assert!(text.len() <= BYTES_MAX, "{} bytes", text.len());
    values(&text);
    promtool(&text);

    let (status, protobuf) = try_get(port, "/metrics", PROTOBUF).expect("an answer");
    assert_eq!(status, 200);
    assert!(protobuf.len() < text.len(), "{} of {} bytes", protobuf.len(), text.len());
    assert!(!protobuf.starts_with(b"# HELP"));
}

/// `disk.mix` of `/debug/vars` is what `bench-disk run --mix` reads, and counts what the disk's
/// metrics count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_records_what_a_disk_probe_replays() {
    let node = Launch::assay().start();
    let port = node.ports()[2];
    let _held = load::everything(&node.client_url()).await;
    let before = get(port, "/metrics");
    let vars: serde_json::Value =
        serde_json::from_str(&get(node.ports()[0], "/debug/vars")).expect("JSON");
    let after = get(port, "/metrics");
    let mix: Recorded =
        serde_json::from_value(vars[recorded::KEY].clone()).expect("a recorded mix");
    let bytes = |text: &str| {
        names::value(text, "assay_disk_bytes_total{file=\"wal\",op=\"write\"}").expect("bytes")
    };
    assert!((bytes(&before)..=bytes(&after)).contains(&(mix.log.bytes as f64)), "{mix:?}");
    assert!(mix.log.syncs() >= 50 && mix.log.writes >= 50, "{mix:?}");
    assert!(mix.active_seconds >= 1 && mix.store.syncs() >= 1, "{mix:?}");
    for stream in [&mix.log, &mix.store] {
        assert_eq!(stream.gap_micros.len(), stream.bytes_per_sync.len(), "{mix:?}");
        assert!(stream.cpu_micros > 0, "{mix:?}");
    }
    assert!(mix.log.gap_micros.iter().sum::<u64>() > 0, "{mix:?}");
    let works =
        |name: &str| mix.threads.iter().any(|t| t.name == name && t.cpu_micros * t.turns > 0);
    assert!(works("node") && works("apply") && works("edge-0"), "{mix:?}");
    assert!(!works("wal") && !works("store"), "these are the streams' own: {mix:?}");
}

/// Figures that the load determines.
fn values(text: &str) {
    let call = |method: &str, code: &str| {
        format!(
            "grpc_server_handled_total{{grpc_code=\"{code}\",grpc_method=\"{method}\",\
             grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}}"
        )
    };
    for (series, expected) in [
        (call("Put", "OK"), 50.0),
        (call("Put", "InvalidArgument"), 1.0),
        (call("Compact", "OutOfRange"), 1.0),
        (call("Txn", "Aborted"), 0.0),
        ("etcd_mvcc_put_total".into(), 52.0),
        ("etcd_mvcc_txn_total".into(), 1.0),
        ("etcd_mvcc_delete_total".into(), 1.0),
        ("etcd_mvcc_range_total".into(), 1.0),
        ("etcd_debugging_mvcc_keys_total".into(), 51.0),
        ("etcd_debugging_mvcc_watcher_total".into(), 1.0),
        ("etcd_debugging_lease_granted_total".into(), 2.0),
        ("assay_leases".into(), 1.0),
        ("etcd_debugging_lease_ttl_total_count".into(), 2.0),
        ("etcd_debugging_mvcc_pending_events_total".into(), 0.0),
        // One of the load, one each of /health and /livez, two of /readyz.
        ("etcd_server_range_duration_seconds_count{success=\"true\"}".into(), 5.0),
        ("assay_cluster_voters".into(), 1.0),
        ("assay_leader_changes_total{cause=\"start\"}".into(), 1.0),
        ("assay_disk_gate_state{state=\"off\"}".into(), 1.0),
        ("assay_disk_gate_state{state=\"pass\"}".into(), 0.0),
        ("etcd_server_has_leader".into(), 1.0),
        ("assay_ready".into(), 1.0),
        ("assay_proposals_total{outcome=\"unknown\"}".into(), 0.0),
        ("etcd_server_version{server_version=\"3.7.1\"}".into(), 1.0),
        ("etcd_cluster_version{cluster_version=\"3.7\"}".into(), 1.0),
        ("etcd_server_quota_backend_bytes".into(), 2_147_483_648.0),
    ] {
        assert_eq!(names::value(text, &series), Some(expected), "{series}");
    }
    assert!(text.contains("etcd_server_quota_backend_bytes 2.147483648e+09\n"), "as Go writes it");
    // Every proposal passes every stage, and the stages of a write are inside its total.
    let stage = |stage: &str, part: &str| {
        let series = format!("assay_proposal_stage_duration_seconds_{part}{{stage=\"{stage}\"}}");
        names::value(text, &series).expect("a stage")
    };
    let stages = ["queue", "wal_write", "fsync", "commit", "apply", "answer"];
    let parts: f64 = stages.iter().map(|name| stage(name, "sum")).sum();
    assert!(stage("total", "count") >= 57.0);
    assert!(stage("fsync", "sum") > 0.0 && parts > 0.5 * stage("total", "sum"), "{parts}");
}

/// promtool finds no fault but those in etcd's own names.
fn promtool(text: &str) {
    let Some(promtool) = Tool::Promtool.require() else { return };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start promtool");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("write");
    let output = child.wait_with_output().expect("run promtool");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let file = repository("tests/observability/promtool-known.txt");
    let known = std::fs::read_to_string(file).expect("the list");
    let known: BTreeSet<&str> = known.lines().filter(|line| !line.starts_with('#')).collect();
    for line in said.lines().filter(|line| !line.is_empty()) {
        assert!(!line.starts_with("assay_"), "{line}");
        assert!(known.contains(line), "not known of a real etcd: {line}");
    }
}

/// Types and labels of a real etcd's families that have the same name here.
#[test]
fn names_mean_what_they_mean_in_etcd() {
    let Some(etcd) = Tool::Etcd.require() else { return };
    let etcd = Launch::etcd(&etcd).arg("--metrics=extensive").start();
    let node = Launch::assay().start();
    for path in ["/livez", "/readyz", "/health"] {
        get(node.ports()[2], path);
        get(etcd.ports()[2], path);
    }
    // It serves before the members have agreed on a version, which is one of the metrics.
    let theirs = settled(etcd.ports()[2]);
    let ours = get(node.ports()[2], "/metrics");
    let (their_types, our_types) = (names::exposed(&theirs), names::exposed(&ours));
    let (their_labels, our_labels) = (labels(&theirs), labels(&ours));
    let mut compared = 0;
    for (name, kind) in &our_types {
        if name.starts_with("assay_") {
            continue;
        }
        if let Some(expected) = their_types.get(name) {
            assert_eq!(kind, expected, "{name}");
            if let (Some(ours), Some(theirs)) = (our_labels.get(name), their_labels.get(name)) {
                assert_eq!(ours, theirs, "labels of {name}");
            }
            compared += 1;
        } else {
            let later = names::value(&theirs, name).is_none();
            assert!(later && APPEAR_LATER.contains(&name.as_str()), "etcd has no {name}");
        }
    }
    assert!(compared > 60, "{compared} names compared");
    edges_are_kept(&theirs, &ours);
}

/// Metrics of an etcd that has finished its start.
fn settled(port: u16) -> String {
    let start = Instant::now();
    loop {
        let text = get(port, "/metrics");
        if text.contains("\netcd_cluster_version{") {
            return text;
        }
        assert!(start.elapsed() < PATIENCE, "etcd does not decide its version");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Families of etcd whose first series appears with the first event of their kind, or that only
/// other builds of it expose.
const APPEAR_LATER: [&str; 6] = [
    "etcd_server_apply_duration_seconds",
    "etcd_server_request_duration_seconds",
    "etcd_server_healthcheck",
    "etcd_server_healthchecks_total",
    "etcd_debugging_server_alarms",
    "etcd_server_client_requests_total",
];

/// Label names by family, without `le`.
fn labels(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let Some((pairs, _)) = rest.rsplit_once('}') else { continue };
        let ends = ["_bucket", "_sum", "_count"];
        let name = ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let names = pairs.split("\",").filter_map(|pair| pair.split_once('='));
        let names = names.map(|(name, _)| name.to_string()).filter(|name| name != "le");
        all.entry(name.to_string()).or_insert_with(|| names.collect());
    }
    all
}

/// Every bucket of etcd exists here under the same text, so boards and rules keep working.
fn edges_are_kept(theirs: &str, ours: &str) {
    let edges = |text: &str, name: &str| -> BTreeSet<String> {
        let begin = format!("{name}_bucket{{");
        let lines = text.lines().filter(|line| line.starts_with(&begin));
        let edges = lines.filter_map(|line| line.split("le=\"").nth(1)?.split('"').next());
        edges.map(str::to_string).collect()
    };
    let mut compared = 0;
    for (name, kind) in names::exposed(ours) {
        let (theirs, ours) = (edges(theirs, &name), edges(ours, &name));
        if kind == "histogram" && !theirs.is_empty() && !ours.is_empty() {
            let missing: Vec<_> = theirs.difference(&ours).collect();
            assert!(missing.is_empty(), "{name} lacks {missing:?}");
            assert!(ours.contains("0.01") || !name.ends_with("_seconds"), "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 4, "{compared} histograms compared");
}
