//! A scrape of known numbers.

use super::*;
use crate::telemetry::families;
use crate::telemetry::io::{FileKind, IoOp};
use crate::telemetry::peer_stats::PeerStats;
use crate::telemetry::rpc::MethodName;
use std::collections::BTreeSet;

struct Fixed;

impl StateSource for Fixed {
    fn sample(&self) -> StateSample {
        StateSample {
            node: Some(NodeSample {
                member_id: 0x8e9e_05c5_2164_694d,
                members: vec![1, 0x8e9e_05c5_2164_694d],
                alarms: vec!["NOSPACE"],
                cluster_version: Some("3.7".into()),
                ..NodeSample::default()
            }),
            connections: vec![("client", 3)],
            certificates: vec![CertificateSample {
                listener: "client",
                cert: "server",
                issued: 1,
                expires: 2,
            }],
            tls_files_rejected: vec![("client", true)],
            drift: Some(DriftSample {
                p99_seconds: Some(0.003),
                against: [("verdict", true), ("limit", false)],
            }),
            ..StateSample::default()
        }
    }
}

fn filled() -> Metrics {
    let method = |method, shape, always_shown| MethodName {
        service: "etcdserverpb.KV",
        method,
        shape,
        always_shown,
        request: Some(method),
    };
    let metrics = Metrics::new();
    let rpc = RpcStats::new(vec![method("Put", "unary", true), method("Lock", "unary", false)]);
    rpc.started(0);
    rpc.finished(0, 0, 1_000_000);
    let peers = PeerStats::default();
    peers.of(1);
    metrics.set_sources(Sources {
        peers: Arc::new(peers),
        io: Arc::default(),
        node: Arc::default(),
        rpc: Arc::new(rpc),
        conns: Arc::new(ConnStats::new(vec!["client"], vec!["done"], vec!["gone"])),
        gate: GateState {
            reading: Arc::new(Mutex::new(GateReading { state: "pass", p99_seconds: Some(0.002) })),
            states: vec!["pass", "fail"],
            limit_seconds: 0.01,
        },
        connection_limits: vec![("client", 10)],
        store_pending_limit: 20,
        phases: &["gate", "serve"],
        api_version: "3.7.1",
        version: "0.1.0",
    });
    metrics.set_state(Arc::new(Fixed));
    metrics.health_checked("livez", "serializable_read", true);
    metrics.sources.get().unwrap().node.applies.record("Put", true, 5);
    metrics
}

fn text(metrics: &Metrics) -> String {
    String::from_utf8(metrics.text()).unwrap()
}

#[test]
fn every_family_is_exposed() {
    let text = text(&filled());
    let exposed: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let declared: BTreeSet<&str> = families::all().map(|family| family.name).collect();
    assert_eq!(exposed, declared);
}

#[test]
fn values_are_where_they_belong() {
    let metrics = filled();
    let io = metrics.sources.get().unwrap().io.clone();
    io.begin(FileKind::Wal, IoOp::SyncData).end(0, true);
    io.begin(FileKind::Wal, IoOp::SyncDir).end(0, false);
    io.begin(FileKind::Store, IoOp::SyncData).end(0, true);
    let running = io.begin(FileKind::Wal, IoOp::SyncData);
    let text = text(&metrics);
    for line in [
        "etcd_disk_wal_fsync_duration_seconds_count 2",
        r#"assay_disk_operation_duration_seconds_count{file="store",op="sync_data"} 1"#,
        r#"assay_disk_operation_errors_total{file="wal",op="sync_dir"} 1"#,
        r#"assay_disk_operation_errors_total{file="wal",op="sync_data"} 0"#,
        r#"assay_disk_gate_state{state="pass"} 1"#,
        r#"assay_disk_gate_state{state="fail"} 0"#,
        r#"etcd_cluster_version{cluster_version="3.7"} 1"#,
        r#"etcd_debugging_server_alarms{alarm_type="NOSPACE",server_id="8e9e05c52164694d"} 1"#,
        r#"etcd_debugging_server_alarms{alarm_type="CORRUPT",server_id="8e9e05c52164694d"} 0"#,
        r#"grpc_server_handled_total{grpc_code="OK",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1"#,
        r#"grpc_server_handled_total{grpc_code="Unauthenticated",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 0"#,
        r#"etcd_server_request_duration_seconds_count{success="true",type="Put"} 1"#,
        r#"etcd_server_apply_duration_seconds_count{op="Put",success="true",version="v3"} 1"#,
        r#"assay_leader_changes_total{cause="process_pause"} 0"#,
    ] {
        assert!(text.lines().any(|seen| seen == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("grpc_method=\"Lock\""), "shown before its first call");
    let age = r#"assay_disk_in_flight_seconds{file="wal",op="sync_data"} "#;
    let age = text.lines().find_map(|line| line.strip_prefix(age)).unwrap();
    assert!(age.parse::<f64>().unwrap() > 0.0);
    running.end(0, true);
}

#[test]
fn works_before_anything_is_known() {
    let metrics = Metrics::new();
    assert!(text(&metrics).contains("process_resident_memory_bytes"));
    assert!(metrics.protobuf().is_some());
    let second = text(&metrics);
    assert!(second.contains("promhttp_metric_handler_requests_total{code=\"200\"} 2"), "{second}");
}
