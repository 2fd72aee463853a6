//! Joins interface, edge and node to the metrics: counts calls and connections, samples the state.

use super::drift::DiskDrift;
use super::glue::Health;
use super::tls::Sides;
use assay::admin::{HealthSource, Phase};
use assay::api::Code;
use assay::api::{GrpcObserver, Method, Service};
use assay::edge::{Closed, ConnObserver, Counters, Failure, Port};
use assay::machine::AlarmKind;
use assay::node::Handle;
use assay::telemetry::metrics::{
    CertificateSample, NodeSample, StateSample, StateSource, WatchSample,
};
use assay::telemetry::rpc::{ConnStats, MethodName, RpcStats};
use std::sync::{Arc, OnceLock};

/// Names of all methods, by [`Method::index`].
pub(crate) fn methods() -> Vec<MethodName> {
    let name = |method: &Method| MethodName {
        service: method.service().name(),
        method: method.name(),
        shape: method.shape().as_str(),
        // Existing boards expect zeros of all services but these two.
        always_shown: !matches!(method.service(), Service::Election | Service::Lock),
        request: request_type(*method),
    };
    Method::ALL.iter().map(name).collect()
}

/// Name that etcd's request metric gives the requests that pass the log or read keys.
fn request_type(method: Method) -> Option<&'static str> {
    Some(match method {
        Method::Put
        | Method::Range
        | Method::Txn
        | Method::DeleteRange
        | Method::LeaseGrant
        | Method::LeaseRevoke
        | Method::Alarm
        | Method::Authenticate
        | Method::AuthEnable
        | Method::AuthDisable => method.name(),
        Method::Compact => "Compaction",
        Method::UserAdd => "AuthUserAdd",
        Method::UserDelete => "AuthUserDelete",
        Method::UserGet => "AuthUserGet",
        Method::UserList => "AuthUserList",
        Method::UserChangePassword => "AuthUserChangePassword",
        Method::UserGrantRole => "AuthUserGrantRole",
        Method::UserRevokeRole => "AuthUserRevokeRole",
        Method::RoleAdd => "AuthRoleAdd",
        Method::RoleDelete => "AuthRoleDelete",
        Method::RoleGet => "AuthRoleGet",
        Method::RoleList => "AuthRoleList",
        Method::RoleGrantPermission => "AuthRoleGrantPermission",
        Method::RoleRevokePermission => "AuthRoleRevokePermission",
        _ => return None,
    })
}

/// Names of all ports, by [`Port::index`].
pub(crate) fn ports() -> Vec<&'static str> {
    Port::ALL.map(Port::as_str).to_vec()
}

/// Names of all reasons, by [`Closed::index`].
pub(crate) fn reasons() -> Vec<&'static str> {
    Closed::ALL.map(Closed::as_str).to_vec()
}

/// Names of all reasons of a failed handshake, by [`Failure::index`].
pub(crate) fn failures() -> Vec<&'static str> {
    Failure::ALL.map(Failure::as_str).to_vec()
}

/// Counts calls.
pub(crate) struct Calls(pub(crate) Arc<RpcStats>);

impl GrpcObserver for Calls {
    fn started(&self, method: Method) {
        self.0.started(method.index());
    }

    fn finished(&self, method: Method, code: Code, ns: u64) {
        self.0.finished(method.index(), code as usize, ns);
    }

    fn msg_received(&self, method: Method, bytes: u64) {
        self.0.received(method.index(), bytes);
    }

    fn msg_sent(&self, method: Method, bytes: u64) {
        self.0.sent(method.index(), bytes);
    }

    fn client_version(&self, method: Method, version: &str) {
        self.0.client_version(method.index(), version);
    }
}

/// Counts connections that ended.
pub(crate) struct Connections(pub(crate) Arc<ConnStats>);

impl ConnObserver for Connections {
    fn closed(&self, port: Port, why: Closed, _read: u64, _written: u64) {
        self.0.closed(port.index(), why.index());
    }

    fn accept_failed(&self, port: Port) {
        self.0.accept_failed(port.index());
    }

    fn handshake_failed(&self, port: Port, why: Failure) {
        self.0.handshake_failed(port.index(), why.index());
    }
}

/// Samples process and node at a scrape.
pub(crate) struct State {
    pub(crate) health: Arc<Health>,
    pub(crate) connections: Arc<Counters>,
    pub(crate) tls: Arc<OnceLock<Sides>>,
    pub(crate) drift: DiskDrift,
}

impl StateSource for State {
    fn sample(&self) -> StateSample {
        let sides = self.tls.get().map(Sides::all).unwrap_or_default();
        let open = |port: Port| (port.as_str(), self.connections.open(port) as u64);
        StateSample {
            node: self.health.node.get().map(node),
            start_phases: self.health.progress.seconds(),
            connections: Port::ALL.map(open).to_vec(),
            accepted: self.connections.accepted(),
            refused: self.connections.refused(),
            ready: self.health.phase() == Phase::Ready,
            certificates: sides
                .iter()
                .flat_map(|tls| {
                    tls.dates().into_iter().map(|dates| CertificateSample {
                        listener: tls.name(),
                        cert: dates.cert,
                        issued: dates.issued,
                        expires: dates.expires,
                    })
                })
                .collect(),
            tls_files_rejected: sides
                .iter()
                .map(|tls| (tls.name(), tls.is_rejecting_files()))
                .collect(),
            drift: Some(self.drift.sample()),
        }
    }
}

fn node(node: &Handle) -> NodeSample {
    let reader = node.reader();
    let member_id = node.identity().member_id;
    let sizes = reader.sizes();
    let rows = reader.rows();
    let watch = node.watch().stats();
    let members = reader.members();
    let levels = node.feature_levels();
    let label = |kind: AlarmKind| match kind {
        AlarmKind::NoSpace => "NOSPACE",
        AlarmKind::Corrupt => "CORRUPT",
    };
    NodeSample {
        member_id,
        members: members.iter().map(|member| member.id).collect(),
        voters: members.voters() as u64,
        feature_levels: [
            ("cluster", levels.cluster.into()),
            ("program", levels.own.into()),
            ("lowest_member", levels.lowest.unwrap_or_default().into()),
        ],
        is_learner: node.raft().is_learner,
        total_bytes: sizes.total_bytes,
        in_use_bytes: sizes.in_use_bytes,
        store_file_bytes: rows.file_bytes(),
        store_pending_bytes: rows.pending_bytes() as u64,
        store_views: rows.views().alive as u64,
        quota_bytes: reader.quota().map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
        keys: sizes.keys,
        revision: reader.revision(),
        compact_revision: reader.compact_revision(),
        auth_revision: reader.auth().revision,
        alarms: reader
            .alarms()
            .iter()
            .filter(|alarm| alarm.member == member_id)
            .map(|alarm| label(alarm.kind))
            .collect(),
        cluster_version: reader.cluster_version().map(|version| minor(&version)),
        watch: WatchSample {
            streams: watch.streams as u64,
            watchers: watch.watchers as u64,
            slow: watch.lagging as u64,
            blocked: watch.blocked as u64,
            pending: node.watch().pending_events() as u64,
            events: watch.events,
            fell_behind: watch.fell_behind,
            compacted: watch.compacted,
        },
        leases: reader.lease_count() as u64,
    }
}

/// `3.7` of `3.7.0`.
fn minor(version: &str) -> String {
    version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".")
}
