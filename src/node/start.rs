//! From a configuration to a running node: opens what the disks hold, recovers, starts the threads.

use super::answers::{self, AnswerLane};
use super::apply_thread::ApplyThread;
use super::convert;
use super::data_dir::{DataDir, DirError, Format};
use super::disk_watch::{self, DiskWatch};
use super::divergence::DivergenceThread;
use super::driver::Driver;
use super::fence::Fence;
use super::handle::{Handle, Identity, Inner, Phase, Waiting};
use super::hash_thread::HashThread;
use super::input::{ApplyInput, HashInput, NodeInput, StoreInput, WalInput};
use super::lane::Lane;
use super::local::NodeLocal;
use super::progress::Progress;
use super::snapshot_in::SnapshotInThread;
use super::snapshot_out::{SnapshotOut, SnapshotOutThread};
use super::space::Space;
use super::store_thread::{StoreRoom, StoreThread};
use super::threads::{LOG_THREAD, STORE_THREAD, Threads};
use super::wal_thread::WalThread;
use super::watch_thread::{WatchLane, WatchThread};
use crate::config::{Config, DivergenceCheck};
use crate::consensus::{self, BootstrapMember, ConfState, Core};
use crate::disk::{Disk, Fault};
use crate::divergence::Mode;
use crate::machine::{self, Machine, MachineOptions};
use crate::peer::{self, Address, Local, Peers};
use crate::telemetry::disk_health::DiskHealth;
use crate::telemetry::node_metrics::NodeMetrics;
use crate::telemetry::peer_stats::PeerStats;
use crate::telemetry::{clock, raft_log};
use crate::{lease, store, wal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::time::UNIX_EPOCH;

/// Share of the memory budget that the store's page cache gets.
const CACHE_SHARE: u64 = 4;
/// Most that the page cache is given. The kernel caches the same pages; a miss costs a call of some
/// two microseconds. This holds the inner pages of any store below 8 GiB and the rows of a small one.
const CACHE_MAX_BYTES: u64 = 128 << 20;

/// Period of checkpoints of remaining lease times, etcd's: a new leader goes on from the last one.
const LEASE_CHECKPOINT_MS: u64 = 300_000;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory is not ours to open.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// The log.
    #[error(transparent)]
    Wal(#[from] wal::WalError),
    /// The store.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// The state machine.
    #[error(transparent)]
    Machine(#[from] machine::MachineError),
    /// Consensus.
    #[error("consensus: {0}")]
    Core(#[from] consensus::Error),
    /// The parts do not belong together.
    #[error("{0}")]
    Inconsistent(String),
    /// A disk operation.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl StartError {
    /// Exit code of the process (`operations.md` 2).
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Dir(error) => error.exit_code(),
            StartError::Inconsistent(_) => 78,
            StartError::Wal(error) if error.is_foreign() => 78,
            StartError::Store(store::StoreError::NewerFormat { .. }) => 78,
            StartError::Machine(error) if error.is_newer() => 78,
            StartError::Core(_) | StartError::Thread(_) => 1,
            _ => 74,
        }
    }
}

/// A started node.
pub struct Node {
    /// The handle for the interface.
    pub handle: Handle,
    /// Answer lanes, one per edge runtime.
    pub lanes: Vec<AnswerLane>,
    pub(super) threads: Threads,
    pub(super) node: Arc<Lane<NodeInput>>,
    pub(super) wal: Arc<Lane<WalInput>>,
    pub(super) apply: Arc<Lane<ApplyInput>>,
    pub(super) store: Arc<Lane<StoreInput>>,
    pub(super) hash: Arc<Lane<HashInput>>,
    pub(super) snapshots: Arc<Lane<SnapshotOut>>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) dir: DataDir,
}

/// What the start is given besides the configuration.
pub struct Parts {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Numbers of the node.
    pub metrics: Arc<NodeMetrics>,
    /// Reports how far the start has come.
    pub progress: Progress,
    /// Edge runtimes to answer to.
    pub runtimes: usize,
    /// The data directory, already locked.
    pub dir: DataDir,
    /// Where the connections to other members run; none: there are no other members.
    pub network: Option<tokio::runtime::Handle>,
    /// Numbers of the traffic with other members.
    pub peer_stats: Arc<PeerStats>,
    /// Connects to other members.
    pub dialer: peer::Dialer,
    /// What a member that joins was told; only for a new data directory.
    pub joined: Option<Joined>,
}

/// The cluster that a new member joins.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Ids, as the cluster gave them.
    pub identity: Identity,
    /// Where the other members are.
    pub members: Vec<Address>,
}

/// Opens the data directory and starts the threads. The node elects itself; it serves once
/// [`super::ready::publish`] has succeeded.
///
/// # Errors
/// See [`StartError`]. Nothing was started.
pub fn start(config: &Config, parts: Parts) -> Result<Node, StartError> {
    let Parts { disk, metrics, progress, runtimes, mut dir, network, peer_stats, dialer, joined } =
        parts;
    let mut boot = ids(config);
    if let Some(joined) = &joined {
        // The log of a member that joins begins empty: the leader fills it.
        boot = Boot { identity: joined.identity, members: Vec::new() };
    }
    let identity = match dir.format.as_ref().and_then(Format::ids) {
        Some((cluster_id, member_id)) => Identity { cluster_id, member_id },
        None => boot.identity,
    };
    // A log elsewhere may be somebody else's: that is found out before anything is created.
    let wal_dir = &config.paths.wal_dir;
    let has_log = wal::exists(&*disk, wal_dir)?;
    let store_path = dir.path.join("member/store.redb");
    if !has_log && disk.exists(&store_path)? {
        return Err(StartError::Inconsistent(format!(
            "there is a store {}, but no log in {}; give the --wal-dir that this member was \
             started with, or restore both from a backup",
            store_path.display(),
            wal_dir.display()
        )));
    }
    if has_log {
        check_identity(&dir, wal_dir, identity, wal::identity(&*disk, wal_dir)?)?;
    }
    if config.paths.wal_dir_explicit {
        dir.lock_also(wal_dir)?;
    }
    // A directory without this file counts as somebody else's.
    if dir.format.is_none() {
        dir.write_format(Format::new(identity.cluster_id, identity.member_id))?;
    }
    dir.member_dir()?;

    progress.enter("replay");
    let boot_id = clock::wall().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let wal_options = wal::Options::new(boot_id);
    let recovered = if has_log {
        let mut report = |done, total| progress.set(done, total);
        let mut recover = || wal::Wal::recover(disk.clone(), wal_dir, &wal_options, &mut report);
        let (wal, recovered) = match recover() {
            // A full disk must not keep a node down that would free space: the ballast is for this.
            Err(wal::WalError::NoSpace(_)) if super::space::release(&*disk, &dir.path)? => {
                recover()?
            }
            other => other?,
        };
        log_recovery(&recovered);
        (wal, recovered)
    } else {
        bootstrap(disk.clone(), config, &wal_options, &boot)?
    };

    progress.enter("store");
    // The log keeps what the store does not hold durably. What is no longer in it is only in the
    // store, so this has to be found out before an empty one is made.
    if recovered.1.base.0 > 0 && store::is_absent(&*disk, &store_path)? {
        return Err(StartError::Inconsistent(format!(
            "the store {} is missing or empty, and the log in {} begins behind entry {}: what came before \
             was only in the store. Put the file back, restore this member from a backup, or \
             remove it from the cluster and add it again with an empty directory",
            store_path.display(),
            wal_dir.display(),
            recovered.1.base.0
        )));
    }
    let cache_bytes = (config.limits.memory_budget / CACHE_SHARE).min(CACHE_MAX_BYTES) as usize;
    let store_options = store::Options {
        cache_bytes,
        clean: recovered.1.clean,
        room: Some(Arc::new(StoreRoom::new(metrics.clone()))),
    };
    store::sweep(&*disk, &store_path, None)?;
    let (writer, shared, loaded) = store::open(disk.clone(), &store_path, &store_options)?;

    progress.enter("index");
    let applied = loaded.applied;
    // So this store is not the log's: it is another one, an older copy, or empty.
    if applied.0 < recovered.1.base.0 {
        return Err(StartError::Inconsistent(format!(
            "the store {} ends at entry {}, but the log in {} begins behind entry {}: what lies \
             between is lost here. Give the --data-dir and --wal-dir that belong together, restore \
             both from a backup, or remove this member from the cluster and add it again with an \
             empty directory",
            store_path.display(),
            applied.0,
            wal_dir.display(),
            recovered.1.base.0
        )));
    }
    let conf_state = match loaded.conf_state.is_empty() {
        true => ConfState::default(),
        false => ConfState::decode(&loaded.conf_state)?,
    };
    let feature_level = config.feature_level.unwrap_or(machine::level::OWN);
    let mut machine = Machine::restore(
        loaded,
        shared.clone(),
        MachineOptions {
            cluster_id: identity.cluster_id,
            member_id: identity.member_id,
            quota_bytes: config.limits.quota_bytes,
            lease_ttl_min: config.timing.lease_ttl_min_s(),
            compaction_batch: config.limits.compaction_batch,
            feature_level,
        },
        &mut |done, total| progress.set(done, total),
    )?;
    machine.publish();
    if let Some((written, read)) = machine.store_differs() {
        metrics.divergence.store_differs.store(1, Relaxed);
        tracing::error!(
            path = %store_path.display(),
            rows_written = written.count,
            rows_read = read.count,
            "the store gives back something else than what was written to it: its disk is damaged or \
             the file was changed; the other members will be asked"
        );
    }

    progress.enter("elect");
    let mut core_config = consensus::Config::new(identity.member_id);
    core_config.seed = boot_id;
    core_config.boot = boot_id;
    core_config.election_tick = (config.timing.election_ms / config.timing.heartbeat_ms) as usize;
    core_config.heartbeat_tick = 1;
    core_config.log_cache_entries = config.limits.catchup_entries;
    core_config.disk_stall_ms = config.timing.disk_stall_ms;
    // A limit that does not hold at the start does not hold later.
    core_config.disk_p99_us = (config.gate.mode != "off")
        .then(|| u64::try_from(config.gate.p99.as_micros()).unwrap_or(u64::MAX));
    core_config.logger = raft_log::logger();
    let (mut log, recovered) = recovered;
    let restored = convert::restored(recovered, applied, conf_state).map_err(|index| {
        StartError::Inconsistent(format!(
            "log entry {index} is of a kind that this version does not know; start a newer version"
        ))
    })?;
    let runtime = network.clone();
    let mut core = Core::new(&core_config, restored)?;
    if let Some(new) = core.new_log() {
        tracing::warn!(
            index = new.base.0,
            term = new.base.1,
            "the log does not contain the position of the store and begins anew behind it"
        );
        log.reset(new.base, convert::hard_state(new.hard_state))?;
    }
    core.campaign();

    let lease_options = lease::ClockOptions {
        election_ms: config.timing.election_ms,
        checkpoint_ms: Some(LEASE_CHECKPOINT_MS),
    };
    let lease_clock = lease::Clock::new(lease_options, machine.lease_records());
    let (answers, lanes) = answers::lanes(runtimes);
    let node: Arc<Lane<NodeInput>> = Arc::default();
    let wal_lane: Arc<Lane<WalInput>> = Arc::default();
    let apply: Arc<Lane<ApplyInput>> = Arc::default();
    let store_lane: Arc<Lane<StoreInput>> = Arc::default();
    let hash: Arc<Lane<HashInput>> = Arc::default();
    let credit: Arc<AtomicUsize> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let watch = Arc::new(WatchLane::default());
    let reader = machine.reader();
    let snapshots: Arc<Lane<SnapshotOut>> = Arc::default();
    // One arrives, one may wait until the disk has let go of the one before.
    let (snapshots_in, arriving) = tokio::sync::mpsc::channel(1);
    let health = Arc::new(DiskHealth::new(disk.stats().clone()));
    let inner = Arc::new(Inner {
        node: node.clone(),
        apply: apply.clone(),
        reader: reader.clone(),
        identity,
        ids: machine::RequestIds::new(identity.member_id, boot_id / 1_000_000),
        limits: config.limits,
        timing: config.timing,
        metrics: metrics.clone(),
        io: disk.stats().clone(),
        waiting: Waiting::default(),
        phase: AtomicU8::new(Phase::Starting as u8),
        stopping: tokio::sync::watch::channel(false).0,
        peers: Peers::new(
            peer::Identity {
                cluster_id: identity.cluster_id,
                member_id: identity.member_id,
                feature_level,
            },
            config.listen.advertise_peer.texts(),
            network,
            peer_stats,
            dialer,
            health.clone(),
        ),
        snapshots_in,
        wires: AtomicUsize::default(),
        learner: AtomicBool::new(false),
        fence: Fence::default(),
        hash: hash.clone(),
        ended: tokio::sync::watch::channel(None).0,
        membership: config.membership,
        watch: watch.clone(),
        reading: AtomicUsize::new(0),
    });

    let space = Space {
        disk: disk.clone(),
        dir: dir.path.clone(),
        min_free: config.limits.min_free_bytes,
        metrics: metrics.clone(),
        stop: stop.clone(),
    };
    space.look()?;

    let mut threads = Threads::default();
    let watch_thread = WatchThread::new(
        watch.clone(),
        reader,
        config.timing.watch_progress,
        config.limits.receive_bytes(),
    );
    threads.start("watch", move || watch_thread.run())?;
    let room = store_options.room.clone();
    let store_thread = StoreThread {
        writer,
        disk: disk.clone(),
        shared: shared.clone(),
        path: store_path.clone(),
        options: store_options,
        queue: store_lane.clone(),
        node: node.clone(),
        apply: apply.clone(),
        answers: answers.clone(),
        metrics: metrics.clone(),
    };
    threads.start(STORE_THREAD, move || store_thread.run())?;
    let local: Arc<dyn Local> = Arc::new(NodeLocal(inner.clone()));
    let others = joined.map(|joined| joined.members).unwrap_or_default();
    for member in others {
        inner.peers.meet(&member, &local);
    }
    let apply_thread = ApplyThread {
        inner: inner.clone(),
        local,
        machine,
        queue: apply.clone(),
        node: node.clone(),
        store: store_lane.clone(),
        hash: hash.clone(),
        watch,
        answers: answers.clone(),
        metrics: metrics.clone(),
        store_interval: config.timing.store_interval,
        warning: config.timing.warning_apply,
        compaction_pause: config.timing.compaction_pause,
    };
    apply_thread.members_changed();
    apply_thread.fences_changed();
    let hash_thread = HashThread { queue: hash.clone(), apply: apply.clone(), stop: stop.clone() };
    threads.start("hash", move || hash_thread.run())?;
    threads.start("apply", move || apply_thread.run())?;
    let wal_thread = WalThread {
        wal: log,
        queue: wal_lane.clone(),
        credit: credit.clone(),
        node: node.clone(),
        apply: apply.clone(),
        metrics: metrics.clone(),
    };
    threads.start(LOG_THREAD, move || wal_thread.run())?;
    let snapshot_out = SnapshotOutThread {
        queue: snapshots.clone(),
        node: node.clone(),
        shared,
        peers: inner.peers.clone(),
        metrics: metrics.clone(),
        stop: stop.clone(),
    };
    threads.start("snapshot-out", move || snapshot_out.run())?;
    let snapshot_in = SnapshotInThread {
        queue: arriving,
        node: node.clone(),
        disk: disk.clone(),
        path: store_path,
        min_free: config.limits.min_free_bytes,
        room,
    };
    threads.start("snapshot-in", move || snapshot_in.run())?;
    let driver = Driver {
        lease_options,
        snapshots: snapshots.clone(),
        core,
        clock: lease_clock,
        inner: inner.clone(),
        wal: wal_lane.clone(),
        credit,
        answers,
        disk: DiskWatch {
            health,
            metrics,
            pause_ns: disk_watch::pause_ns(config.timing.disk_stall_ms, config.timing.election_ms),
        },
        applied: applied.0,
        durable: applied.0,
    };
    threads.start("node", move || driver.run())?;
    threads.start("space", move || space.run())?;
    if let Some(runtime) = runtime {
        let handle = Handle(inner.clone());
        let mode = match config.divergence {
            DivergenceCheck::Fence => Mode::Fence,
            DivergenceCheck::Alarm => Mode::Alarm,
            DivergenceCheck::Off => Mode::Off,
        };
        let stop = stop.clone();
        let divergence = DivergenceThread { handle, runtime, mode, stop };
        threads.start("divergence", move || divergence.run())?;
    }
    Ok(Node {
        handle: Handle(inner),
        lanes,
        threads,
        node,
        wal: wal_lane,
        apply,
        store: store_lane,
        hash,
        snapshots,
        stop,
        dir,
    })
}

/// Ids and members of a new cluster.
struct Boot {
    identity: Identity,
    members: Vec<BootstrapMember>,
}

fn ids(config: &Config) -> Boot {
    let mut members = Vec::new();
    let mut own = 0;
    for (name, urls) in &config.bootstrap.members {
        let id = machine::ids::member_id(&urls.texts(), &config.bootstrap.token);
        if *name == config.name {
            own = id;
        }
        let context = serde_json::json!({ "id": id, "peerURLs": urls.texts(), "name": name });
        members.push(BootstrapMember { id, context_json: context.to_string().into() });
    }
    members.sort_by_key(|member| member.id);
    let all: Vec<u64> = members.iter().map(|member| member.id).collect();
    let identity = Identity { cluster_id: machine::ids::cluster_id(&all), member_id: own };
    Boot { identity, members }
}

/// A new log that begins with the change entries of the first members, as etcd's does.
fn bootstrap(
    disk: Arc<dyn Disk>,
    config: &Config,
    options: &wal::Options,
    boot: &Boot,
) -> Result<(wal::Wal, wal::Recovered), StartError> {
    let (entries, hard_state) = consensus::bootstrap(&boot.members);
    let batch = consensus::Batch { number: 0, entries, hard_state: Some(hard_state), sync: true };
    let first = convert::batch(&batch);
    let identity = wal::Identity {
        cluster_id: boot.identity.cluster_id,
        member_id: boot.identity.member_id,
        format: super::data_dir::FORMAT,
    };
    let wal_dir = &config.paths.wal_dir;
    if config.paths.wal_dir_explicit {
        refuse_occupied(&*disk, wal_dir)?;
    }
    let wal = wal::Wal::create(disk, wal_dir, options, identity, (0, 0), &first)?;
    let recovered = wal::Recovered {
        identity: Some(identity),
        base: (0, 0),
        entries: first.entries,
        hard_state: first.hard_state.unwrap_or_default(),
        clean: true,
        report: wal::RecoveryReport::default(),
    };
    Ok((wal, recovered))
}

/// A separate log directory of a new member must be empty: it may belong to an etcd.
fn refuse_occupied(disk: &dyn Disk, wal_dir: &Path) -> Result<(), StartError> {
    if !disk.exists(wal_dir)? {
        return Ok(());
    }
    match disk.list(wal_dir)?.iter().find(|entry| entry.name.ends_with(".wal")) {
        None => Ok(()),
        Some(entry) => Err(StartError::Dir(DirError::Foreign {
            dir: wal_dir.to_path_buf(),
            what: entry.name.clone(),
        })),
    }
}

fn check_identity(
    dir: &DataDir,
    wal_dir: &Path,
    own: Identity,
    found: Option<wal::Identity>,
) -> Result<(), StartError> {
    // A head that cannot be read is damage, which recovery reports with its place.
    let Some(found) = found else { return Ok(()) };
    if (found.cluster_id, found.member_id) == (own.cluster_id, own.member_id) {
        return Ok(());
    }
    Err(StartError::Dir(DirError::OtherCluster {
        dir: dir.path.clone(),
        what: format!("the log in {}", wal_dir.display()),
        member: own.member_id,
        cluster: own.cluster_id,
        found_member: found.member_id,
        found_cluster: found.cluster_id,
    }))
}

fn log_recovery(recovered: &wal::Recovered) {
    tracing::info!(
        entries = recovered.entries.len(),
        base_index = recovered.base.0,
        commit = recovered.hard_state.commit,
        clean = recovered.clean,
        report = ?recovered.report,
        "recovered the write-ahead log"
    );
}
