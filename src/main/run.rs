//! The life of the process between flags and exit code.

use super::drift::DiskDrift;
use super::glue::{self, Health, Vars};
use super::ports::Ports;
use super::settle::Settle;
use super::signals::Signals;
use super::{gate, observe, places, ports, service, text, tls};
use assay::admin::{Access, Admin, Trust};
use assay::api;
use assay::config::{Config, LogOutput};
use assay::disk::{Disk, OsDisk};
use assay::edge::{self, Edge, Elsewhere, NoRpc, Port};
use assay::node::data_dir::DataDir;
use assay::node::{self, Node, Progress};
use assay::peer;
use assay::telemetry::io::IoStats;
use assay::telemetry::logging;
use assay::telemetry::metrics::{GateReading, GateState, Metrics, Sources};
use assay::telemetry::node_metrics::NodeMetrics;
use assay::telemetry::peer_stats::PeerStats;
use assay::telemetry::rpc::{ConnStats, RpcStats};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

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
    let refused = |error: &dyn std::fmt::Display| Refusal::new(EXIT_CONFIGURATION, error);
    let fd_limit = edge::raise_fd_limit().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot raise the limit of open files");
        1024
    });
    if fd_limit < edge::FD_LIMIT_LEAST {
        return Err(refused(&format!(
            "the limit of open files is {fd_limit}, a node needs {} for its files and some \
             clients: raise it (`ulimit -n`, LimitNOFILE= of a service)",
            edge::FD_LIMIT_LEAST
        )));
    }
    let runtimes = std::thread::available_parallelism().map_or(1, usize::from);
    let rpc = Arc::new(RpcStats::new(observe::methods()));
    let peer_stats = Arc::new(PeerStats::default());
    let conns = Arc::new(ConnStats::new(observe::ports(), observe::reasons(), observe::failures()));
    let edge = Edge::start(edge::Options {
        runtimes,
        limits: glue::edge_limits(config, fd_limit),
        observer: Arc::new(observe::Connections(conns.clone())),
    })
    .map_err(|error| refused(&error))?;
    let first = edge.runtimes()[0].clone();
    let signals = Signals::listen(&first);

    // Mistakes first: nobody should wait for a probe to hear of a taken port or a wrong path.
    places::check("data-dir", &config.paths.data_dir).map_err(|error| refused(&error))?;
    if config.paths.wal_dir_explicit {
        places::check("wal-dir", &config.paths.wal_dir).map_err(|error| refused(&error))?;
    }
    for warning in config.tls.warnings(&config.listen) {
        tracing::warn!("{warning}");
    }
    let mut sides = tls::from_files(config).map_err(|error| refused(&error))?;
    let ports = Ports::reserve(config).map_err(|error| refused(&error))?;
    let io = Arc::new(IoStats::new());
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(io.clone()));
    let wal_dir = config.paths.wal_dir_explicit.then_some(config.paths.wal_dir.as_path());
    let held = DataDir::look(&*disk, &config.paths.data_dir, wal_dir)
        .map_err(|error| Refusal::new(error.exit_code(), error))?;
    let decision = gate::check(config, signals.interrupt.clone());
    if !signals.start() {
        return Ok(());
    }
    if !decision.start {
        return Err(Refusal::new(decision.exit_code, &decision.text));
    }
    if !matches!(decision.state, bench_disk::gate::State::Pass) {
        tracing::warn!(state = decision.state.as_str(), "disk gate: {}", decision.summary);
    } else {
        tracing::info!(state = decision.state.as_str(), "disk gate: {}", decision.summary);
    }
    let node_metrics = Arc::new(NodeMetrics::default());
    let metrics = Arc::new(Metrics::new());
    let reading = Arc::new(Mutex::new(GateReading {
        state: decision.state.as_str(),
        p99_seconds: decision.p99.map(|p99| p99.as_secs_f64()),
    }));
    metrics.set_sources(Sources {
        peers: peer_stats.clone(),
        io: io.clone(),
        node: node_metrics.clone(),
        rpc: rpc.clone(),
        conns,
        gate: GateState {
            reading: reading.clone(),
            states: bench_disk::gate::State::ALL.map(bench_disk::gate::State::as_str).to_vec(),
            limit_seconds: config.gate.p99.as_secs_f64(),
        },
        connection_limits: glue::connection_limits(fd_limit),
        store_pending_limit: node::STORE_PENDING_MAX_BYTES as u64,
        phases: &node::PHASES,
        api_version: assay::config::API_VERSION,
        version: text::VERSION,
    });
    let health = Arc::new(Health {
        progress: progress.clone(),
        node: OnceLock::new(),
        metrics: metrics.clone(),
    });
    let in_use = Arc::new(OnceLock::new());
    metrics.set_state(Arc::new(observe::State {
        health: health.clone(),
        connections: edge.counters().clone(),
        tls: in_use.clone(),
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
            names: glue::own_names(&config.listen),
            origins: config.access.origins.clone(),
            is_encrypted: edge::is_encrypted,
        }),
        trust: Trust {
            check: edge::is_trusted,
            origin: edge::origin,
            ways: glue::ways_to_be_trusted(config).into(),
        },
    };

    // Clients are accepted once the node is ready; until then their connections queue.
    let mut ports = ports.listen(config).map_err(|error| refused(&error))?;
    let metrics_urls: Vec<String> =
        ports.metrics.iter().map(|bound| bound.url().to_string()).collect();
    let peer_service = peer::Service::default();
    let elsewhere = |port: &str| -> Arc<str> {
        let clients = &config.listen.client;
        format!("this is the {port} port; gRPC for clients is served on the client port, {clients}")
            .into()
    };
    let serve_early = |ports: &mut ports::Open, sides: &tls::Sides| {
        edge.serve(ports.take_ready(Port::Metrics, sides), |_, _| {
            NoRpc::routes(admin.metrics_routes(), elsewhere("metrics"))
        });
        edge.serve(ports.take_ready(Port::Peer, sides), |_, _| edge::Routes {
            rpc: Some(peer_service.server()),
            http: admin.peer_routes(),
            elsewhere: Elsewhere {
                text: Some(elsewhere("peer")),
                served: Some(peer::Service::PATHS),
            },
        });
    };
    serve_early(&mut ports, &sides);

    let dir = DataDir::open(disk.clone(), &config.paths.data_dir, held)
        .map_err(|error| Refusal::new(error.exit_code(), error))?;
    tls::add_self_signed(&mut sides, config, &*disk).map_err(|error| refused(&error))?;
    serve_early(&mut ports, &sides);
    sides.follow_files(&first);
    let dialer = peer::Dialer::new(sides.peer.clone());
    let clients = ports.take_ready(Port::Client, &sides);
    // Ignored only if it was set before, which cannot be.
    let _ = in_use.set(sides);
    if let Err(error) = bench_disk::gate::adopt(&decision, &config.paths.data_dir) {
        tracing::warn!(%error, "cannot keep the disk verdict in the data directory");
    }
    let is_new = dir.format.is_none();
    let joined = match dir.format {
        Some(_) => None,
        None => first
            .block_on(node::join(config, &dialer))
            .map_err(|error| Refusal::new(error.exit_code(), error))?,
    };
    let parts = node::Parts {
        disk,
        metrics: node_metrics,
        progress: progress.clone(),
        runtimes,
        dir,
        network: Some(first.clone()),
        peer_stats,
        dialer,
        joined,
    };
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
    peer_service.begin(node.handle.peers(), node.handle.local());
    // The member takes part from here on, so a signal stops it in order; before, there was nothing
    // to put in order.
    signals.serve();
    let mut ended = node.handle.ended();
    let published = first.block_on(async {
        tokio::select! {
            published = node::publish(&node.handle, config) => Some(published),
            () = signals.wait(&mut ended) => None,
        }
    });
    match published {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            return Err(Refusal::new(74, format!("cannot publish this member: {error}")));
        }
        None => {
            stop(edge, node, &first);
            return Ok(());
        }
    }
    progress.enter("serve");
    let api = api::node_service(&node.handle, Arc::new(observe::Calls(rpc)));
    edge.serve(clients, |_, _| edge::Routes {
        rpc: Some(api.clone()),
        http: admin.client_routes(Default::default()),
        elsewhere: Elsewhere::default(),
    });
    ready(config, &decision.summary, &node, &metrics_urls, is_new);
    let data_dir = config.paths.data_dir.clone();
    Settle { decision, limit: config.gate.p99, data_dir, io, reading }.start();
    first.block_on(signals.wait(&mut ended));
    stop(edge, node, &first);
    Ok(())
}

fn ready(config: &Config, disk: &str, node: &Node, metrics: &[String], is_new: bool) {
    let identity = node.handle.identity();
    for url in &config.listen.client.0 {
        if url.is_tls() {
            tracing::info!(address = url.address(), "serving client traffic securely");
        } else if url.is_loopback() {
            tracing::info!(address = url.address(), "serving client traffic insecurely");
        } else {
            tracing::warn!(
                address = url.address(),
                "serving client traffic insecurely; this is strongly discouraged!"
            );
        }
    }
    let levels = node.handle.feature_levels();
    tracing::info!(program = levels.own, cluster = levels.cluster, "levels of commands");
    tracing::info!("ready to serve client requests");
    if !config.quiet {
        let ids = (identity.cluster_id, identity.member_id);
        text::say(&text::started(config, disk, ids, metrics, (!is_new).then_some(levels)));
    }
    service::notify("READY=1\nSTATUS=serving");
}

fn stop(edge: Edge, node: Node, runtime: &tokio::runtime::Handle) {
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
    // Before anything closes: clients of the cluster then wait for nobody.
    runtime.block_on(node.handle.hand_over());
    node.announce_stop();
    let drained = edge.drain(DRAIN);
    tracing::info!(open = drained.open, cut = drained.cut, "closed client connections");
    node.stop();
    tracing::info!("closed etcd server");
}
