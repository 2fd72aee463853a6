//! Joins the parts that do not know each other: configuration to edge and log, node to health.

use super::upgrade::View;
use assay::admin::{
    AlarmKind, DebugSource, HealthSource, NotDone, Phase, ReadFuture, TextFuture, Versions,
};
use assay::config::{
    API_VERSION, Config, Level, Listen, ListenUrl, Log, LogOutput, STORAGE_VERSION, UrlList,
};
use assay::edge::{self, Port, Spec};
use assay::node::{self, Handle, Progress};
use assay::telemetry::io::IoStats;
use assay::telemetry::logging;
use assay::telemetry::metrics::Metrics;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// Options of the log.
pub(crate) fn log_options(log: &Log) -> logging::Options {
    logging::Options {
        level: match log.level {
            Level::Debug => tracing::Level::DEBUG,
            Level::Info => tracing::Level::INFO,
            Level::Warn => tracing::Level::WARN,
            Level::Error => tracing::Level::ERROR,
        },
        json: log.json,
        outputs: log
            .outputs
            .iter()
            .map(|output| match output {
                LogOutput::Stderr => logging::Output::Stderr,
                LogOutput::Stdout => logging::Output::Stdout,
                LogOutput::File(path) => logging::Output::File(path.clone()),
            })
            .collect(),
    }
}

/// Limits of the edge from flags and the limit of open files.
pub(crate) fn edge_limits(config: &Config, fd_limit: u64) -> edge::Limits {
    let limits = &config.limits;
    edge::Limits {
        connections: edge::Caps::of(fd_limit),
        max_concurrent_streams: (limits.concurrent_streams < u32::MAX)
            .then_some(limits.concurrent_streams),
        keepalive_interval: limits.keepalive_interval,
        keepalive_timeout: limits.keepalive_timeout,
        keepalive_min_time: limits.keepalive_min,
        ..edge::Limits::default()
    }
}

/// Limit of connections of each kind of port, for the metric.
pub(crate) fn connection_limits(fd_limit: u64) -> Vec<(&'static str, u64)> {
    let caps = edge::Caps::of(fd_limit);
    Port::ALL.map(|port| (port.as_str(), caps.cap(port) as u64)).to_vec()
}

/// Listeners of one flag.
pub(crate) fn specs(flag: &'static str, urls: &UrlList, port: Port, reuse_port: bool) -> Vec<Spec> {
    urls.texts().into_iter().map(|url| Spec { flag, url, port, reuse_port }).collect()
}

/// Names by which clients reach this node.
pub(crate) fn own_names(listen: &Listen) -> Vec<String> {
    let urls = listen.client.0.iter().chain(&listen.advertise_client.0);
    urls.map(|url| url.host().to_string()).filter(|host| !host.is_empty()).collect()
}

/// What somebody does who asks from elsewhere, or through an address that does not prove that it is
/// this machine: behind one that others reach too, a proxy may be asking for anybody.
pub(crate) fn ways_to_be_trusted(config: &Config) -> String {
    let here = |url: &ListenUrl| {
        let any = url.host().parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        match url.address().rsplit_once(':') {
            _ if url.is_loopback() => Some(url.to_string()),
            Some((_, port)) if any => Some(format!("{}://127.0.0.1:{port}", url.scheme())),
            _ => None,
        }
    };
    let urls = &config.listen.client.0;
    let mut text = match urls.iter().find_map(here) {
        Some(url) => format!("on this node's own machine, use {url} (--endpoint={url})"),
        None => {
            let port = urls.iter().find_map(|url| url.address().rsplit_once(':'));
            let port = port.map_or("2379", |(_, port)| port);
            let scheme = if urls.iter().any(ListenUrl::is_tls) { "https" } else { "http" };
            format!(
                "only a loopback address proves that somebody is on this machine, and this node \
                 listens on none: add {scheme}://127.0.0.1:{port} to its --listen-client-urls, start \
                 it again, and use that there (--endpoint={scheme}://127.0.0.1:{port})"
            )
        }
    };
    if config.tls.client.trusted_ca.is_some() {
        text.push_str(
            ", or show a client certificate that its --trusted-ca-file signed (--cert, --key)",
        );
    }
    text
}

/// Health of a process: starting until the node is known, then the node's.
pub(crate) struct Health {
    pub(crate) progress: Progress,
    pub(crate) node: OnceLock<Handle>,
    pub(crate) metrics: Arc<Metrics>,
}

impl HealthSource for Health {
    fn phase(&self) -> Phase {
        match self.node.get().map(Handle::phase) {
            Some(node::Phase::Ready) => Phase::Ready,
            Some(node::Phase::Stopping) => Phase::Stopping,
            Some(node::Phase::Starting) | None => Phase::Starting(self.progress.text()),
        }
    }

    fn alarms(&self) -> Vec<AlarmKind> {
        let Some(node) = self.node.get() else { return Vec::new() };
        let kind = |alarm: &assay::machine::Alarm| match alarm.kind {
            assay::machine::AlarmKind::NoSpace => AlarmKind::NoSpace,
            assay::machine::AlarmKind::Corrupt => AlarmKind::Corrupt,
        };
        // A fence concerns its member alone, the others are well.
        let fences = node.reader().fences();
        let own = |alarm: &&assay::machine::Alarm| {
            alarm.kind != assay::machine::AlarmKind::Corrupt || !fences.contains(&alarm.member)
        };
        node.reader().alarms().iter().filter(own).map(kind).collect()
    }

    fn fenced(&self) -> Option<String> {
        self.node.get().and_then(Handle::fence_text)
    }

    fn notices(&self) -> Vec<String> {
        let short = self.node.get().is_some_and(Handle::is_short_of_space);
        short.then(|| assay::api::SHORT_OF_SPACE.to_string()).into_iter().collect()
    }

    fn has_leader(&self) -> bool {
        self.node.get().is_some_and(|node| node.raft().leader != 0)
    }

    fn is_learner(&self) -> bool {
        self.node.get().is_some_and(|node| node.raft().is_learner)
    }

    fn read(&self, linearizable: bool) -> ReadFuture {
        let node = self.node.get().cloned();
        Box::pin(async move {
            match node {
                Some(node) => assay::api::health_read(&node, linearizable).await,
                None => Err("not started".to_string()),
            }
        })
    }

    fn versions(&self) -> Versions {
        Versions {
            server: API_VERSION.to_string(),
            cluster: self.node.get().and_then(|node| node.reader().cluster_version()),
            storage: self.node.get().map(|_| STORAGE_VERSION.to_string()),
        }
    }

    fn health_answered(&self, healthy: bool) {
        self.metrics.health_answered(healthy);
    }

    fn checked(&self, kind: &'static str, name: &'static str, ok: bool) {
        self.metrics.health_checked(kind, name, ok);
    }
}

/// Values of `/debug/vars`.
pub(crate) struct Vars {
    pub(crate) health: Arc<Health>,
    pub(crate) io: Arc<IoStats>,
}

impl DebugSource for Vars {
    fn vars(&self) -> Vec<(String, serde_json::Value)> {
        let words: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut vars = vec![("cmdline".to_string(), serde_json::json!(words))];
        if let Some(node) = self.health.node.get() {
            let raft = node.raft();
            vars.push((
                "raft.status".to_string(),
                serde_json::json!({
                    "id": format!("{:x}", node.identity().member_id),
                    "term": raft.term,
                    "lead": format!("{:x}", raft.leader),
                    "commit": raft.committed,
                    "applied": raft.applied,
                    "durable": raft.durable,
                }),
            ));
        }
        let mix = serde_json::to_value(super::recording::recorded(&self.io)).unwrap_or_default();
        if let Some(node) = self.health.node.get() {
            let levels = node.feature_levels();
            vars.push((
                "feature.levels".to_string(),
                serde_json::json!({
                    "program": levels.own,
                    "cluster": levels.cluster,
                    "lowest_member": levels.lowest,
                }),
            ));
        }
        vars.push((bench_disk::sampler::recorded::KEY.to_string(), mix));
        vars
    }

    fn upgrade(&self) -> Option<serde_json::Value> {
        let node = self.health.node.get()?;
        serde_json::to_value(View::of(node)).ok()
    }

    fn finalize_upgrade(&self) -> TextFuture {
        let node = self.health.node.get().cloned();
        Box::pin(async move {
            let starting = || NotDone::Unavailable("this member is starting; try again".into());
            let level = node.ok_or_else(starting)?.finalize_upgrade().await;
            let level = level.map_err(|error| match error.is_unavailable() {
                true => NotDone::Unavailable(error.to_string()),
                false => NotDone::Conflict(error.to_string()),
            })?;
            Ok(format!("the cluster is at feature level {level}; there is no way back below it"))
        })
    }
}

/// Bytes of `/metrics`.
pub(crate) struct Exposition(pub(crate) Arc<Metrics>);

impl assay::admin::MetricsSource for Exposition {
    fn text(&self) -> Vec<u8> {
        self.0.text()
    }

    fn protobuf(&self) -> Option<Vec<u8>> {
        self.0.protobuf()
    }
}
