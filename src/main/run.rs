//! The life of the process between flags and exit code.

use super::drift::DiskDrift;
use super::glue::{self, Health, Vars};
use super::{gate, observe, service, text};
use assay::admin::{Access, Admin};
use assay::api;
use assay::config::{Config, LogOutput};
use assay::disk::{Disk, OsDisk};
use assay::edge::{self, Bound, Edge, NoRpc, Port};
use assay::node::data_dir::DataDir;
use assay::node::{self, Node, Progress};
use assay::telemetry::io::IoStats;
use assay::telemetry::logging;
use assay::telemetry::metrics::{GateState, Metrics, Sources};
use assay::telemetry::node_metrics::NodeMetrics;
use assay::telemetry::rpc::{ConnStats, RpcStats};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Time that open calls get to finish after SIGTERM.
const DRAIN: Duration = Duration::from_secs(5);
/// Time from SIGTERM to the end of the process whatever hangs (`operations.md` 2 allows 20 s).
const STOP_DEADLINE: Duration = Duration::from_secs(15);
const EXIT_CONFIGURATION: u8 = 1;

/// A refused or failed start: exit code and the text for people.
struct Refusal {
    code: u8,
    text: String,
}

impl Refusal {
    fn new(code: u8, text: impl ToString) -> Self {
        Refusal { code, text: text.to_string() }
    }
}

/// Runs a node until a signal ends it; returns the exit code.
pub(crate) fn run(config: &Config) -> u8 {
    match start_and_serve(config) {
        Ok(()) => 0,
        Err(refusal) => {
            tracing::error!(exit_code = refusal.code, "{}", refusal.text);
            logging::flush(Duration::from_secs(1));
            // The line of the log says it already where that is all there should be.
            if !(config.quiet && config.log.outputs.contains(&LogOutput::Stderr)) {
                text::complain(&refusal.text);
            }
            service::refused(&refusal.text);
            refusal.code
        }
    }
}

fn start_and_serve(config: &Config) -> Result<(), Refusal> {
    let progress = Progress::default();
    progress.enter("gate");
    if config.gate.mode != "off" {
        tracing::info!(
            dir = %config.paths.data_dir.display(),
            mode = config.gate.mode,
            "disk gate: a disk without a stored verdict is measured now, up to 60 s"
        );
    }
    let decision = gate::check(config);
    if !decision.start {
        return Err(Refusal::new(decision.exit_code, &decision.text));
    }
    if !matches!(decision.state, bench_disk::gate::State::Pass) {
        tracing::warn!(state = decision.state.as_str(), "disk gate: {}", decision.summary);
    } else {
        tracing::info!(state = decision.state.as_str(), "disk gate: {}", decision.summary);
    }
    let fd_limit = edge::raise_fd_limit().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot raise the limit of open files");
        1024
    });
    let io = Arc::new(IoStats::new());
    let node_metrics = Arc::new(NodeMetrics::default());
    let metrics = Arc::new(Metrics::new());
    let runtimes = std::thread::available_parallelism().map_or(1, usize::from);
    let rpc = Arc::new(RpcStats::new(observe::methods()));
    let conns = Arc::new(ConnStats::new(observe::ports(), observe::reasons()));
    let edge = Edge::start(edge::Options {
        runtimes,
        limits: glue::edge_limits(config, fd_limit),
        observer: Arc::new(observe::Connections(conns.clone())),
    })
    .map_err(|error| Refusal::new(EXIT_CONFIGURATION, error))?;
    metrics.set_sources(Sources {
        io: io.clone(),
        node: node_metrics.clone(),
        rpc: rpc.clone(),
        conns,
        gate: GateState {
            state: decision.state.as_str(),
            states: bench_disk::gate::State::ALL.map(bench_disk::gate::State::as_str).to_vec(),
            p99_seconds: decision.p99.map(|p99| p99.as_secs_f64()),
            limit_seconds: config.gate.p99.as_secs_f64(),
        },
        connection_limit: edge::connection_cap(fd_limit) as u64,
        store_pending_limit: node::STORE_PENDING_MAX_BYTES,
        phases: &node::PHASES,
        api_version: assay::config::API_VERSION,
        version: text::VERSION,
    });
    let health = Arc::new(Health {
        progress: progress.clone(),
        node: OnceLock::new(),
        metrics: metrics.clone(),
    });
    metrics.set_state(Arc::new(observe::State {
        health: health.clone(),
        connections: edge.counters().clone(),
        drift: DiskDrift::new(
            io.clone(),
            u64::try_from(config.gate.p99.as_nanos()).unwrap_or(u64::MAX),
            decision.verdict.as_ref(),
        ),
    }));
    let admin = Admin {
        health: health.clone(),
        metrics: Arc::new(glue::Exposition(metrics)),
        debug: Arc::new(Vars { health: health.clone(), io: io.clone() }),
        access: Arc::new(Access {
            hosts: config.access.hosts.clone(),
            origins: config.access.origins.clone(),
            tls: false,
        }),
        trusted: assay::edge::from_this_machine,
    };

    // Sockets are bound before the data directory is touched: an address in use is then a clear
    // error without side effects. Clients are accepted once the node is ready.
    let metrics_bound = bind_metrics(config)?;
    let metrics_urls: Vec<String> =
        metrics_bound.iter().map(|bound| bound.url().to_string()).collect();
    let clients = bind("listen-client-urls", &config.listen.client, Port::Client)?;
    let peers = bind("listen-peer-urls", &config.listen.peer, Port::Peer)?;
    edge.serve(metrics_bound, |_, _| NoRpc::routes(admin.metrics_routes()));

    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(io));
    let dir = DataDir::open(disk.clone(), &config.paths.data_dir)
        .map_err(|error| Refusal::new(error.exit_code(), error))?;
    if let Err(error) = bench_disk::gate::adopt(&decision, &config.paths.data_dir) {
        tracing::warn!(%error, "cannot keep the disk verdict in the data directory");
    }
    let parts =
        node::Parts { disk, metrics: node_metrics, progress: progress.clone(), runtimes, dir };
    let mut node =
        node::start(config, parts).map_err(|error| Refusal::new(error.exit_code(), error))?;
    for (lane, runtime) in node.lanes.drain(..).zip(edge.runtimes()) {
        runtime.spawn(async move {
            lane.bind();
            lane.run().await;
        });
    }
    // Ignored only if it was set before, which cannot be.
    let _ = health.node.set(node.handle.clone());
    let first = edge.runtimes()[0].clone();
    first
        .block_on(node::publish(&node.handle, config))
        .map_err(|error| Refusal::new(74, format!("cannot publish this member: {error}")))?;
    progress.enter("serve");
    let api = api::node_service(&node.handle, Arc::new(observe::Calls(rpc)));
    edge.serve(clients, |_, _| edge::Routes {
        rpc: Some(api.clone()),
        http: admin.client_routes(Default::default()),
    });
    edge.serve(peers, |_, _| NoRpc::routes(admin.peer_routes()));
    // Before the node says that it is ready: whoever waits for that line may send one at once.
    let signals = Signals::listen(&first);
    ready(config, &decision.summary, &node, &metrics_urls);
    signals.wait(&first);
    stop(edge, node);
    Ok(())
}

fn bind(
    flag: &'static str,
    urls: &assay::config::UrlList,
    port: Port,
) -> Result<Vec<Bound>, Refusal> {
    glue::specs(flag, urls, port)
        .iter()
        .map(|spec| edge::bind(spec).map_err(|error| Refusal::new(EXIT_CONFIGURATION, error)))
        .collect()
}

/// The metrics listener has a default address that another program may hold: then `/metrics` is
/// still on the client port. If it was asked for, not getting it is an error.
fn bind_metrics(config: &Config) -> Result<Vec<Bound>, Refusal> {
    match bind("listen-metrics-urls", &config.listen.metrics, Port::Metrics) {
        Ok(bound) => Ok(bound),
        Err(refusal) if config.metrics_listener_explicit => Err(refusal),
        Err(refusal) => {
            tracing::warn!(
                error = refusal.text,
                "no metrics listener: metrics are served on the client port only"
            );
            Ok(Vec::new())
        }
    }
}

fn ready(config: &Config, disk: &str, node: &Node, metrics: &[String]) {
    let identity = node.handle.identity();
    for url in &config.listen.client.0 {
        if url.is_loopback() {
            tracing::info!(address = url.address(), "serving client traffic insecurely");
        } else {
            tracing::warn!(
                address = url.address(),
                "serving client traffic insecurely; this is strongly discouraged!"
            );
        }
    }
    tracing::info!("ready to serve client requests");
    if !config.quiet {
        let ids = (identity.cluster_id, identity.member_id);
        text::say(&text::started(config, disk, ids, metrics));
    }
    service::notify("READY=1\nSTATUS=serving");
}

/// Signals that end the node in order; without them a signal ends the process at once, which the
/// log survives.
struct Signals(Option<(Signal, Signal)>);

impl Signals {
    fn listen(runtime: &tokio::runtime::Handle) -> Self {
        let _inside = runtime.enter();
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(term), Ok(int)) => Signals(Some((term, int))),
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(%error, "cannot listen for signals");
                Signals(None)
            }
        }
    }

    fn wait(self, runtime: &tokio::runtime::Handle) {
        let received = runtime.block_on(async {
            let Some((mut term, mut int)) = self.0 else { return std::future::pending().await };
            tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            }
        });
        tracing::info!(signal = received, "received signal; shutting down");
    }
}

fn stop(edge: Edge, node: Node) {
    service::notify("STOPPING=1");
    let mut threads = node::Threads::default();
    // A sync that hangs cannot be interrupted; the log and the store are safe to kill.
    let watchdog = threads.start("watchdog", || {
        std::thread::sleep(STOP_DEADLINE);
        node::fatal::stop("stop", &"a disk operation hangs; ending without waiting for it")
    });
    if let Err(error) = watchdog {
        tracing::warn!(%error, "stopping without a deadline");
    }
    node.announce_stop();
    let drained = edge.drain(DRAIN);
    tracing::info!(open = drained.open, cut = drained.cut, "closed client connections");
    node.stop();
    tracing::info!("closed etcd server");
}
