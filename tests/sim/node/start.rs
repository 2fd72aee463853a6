//! What a process does when it starts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use assay::consensus::{self, BootstrapMember, ConfState, Core, HardState};
use assay::disk::{Disk, SimDisk};
use assay::lease;
use assay::machine::{Machine, MachineError, MachineOptions};
use assay::store;
use assay::wal;
use assay::watch::Hub;
use bytes::Bytes;

use super::super::broken::Broken;
use super::super::convert;
use super::super::frame::Violation;
use super::super::oracle::Oracle;
use super::super::plan::Plan;
use super::super::snapshot;
use super::super::watchers::Queues;
use super::{Durable, End, Node, NodeDisk, fault};

const CLUSTER: u64 = 77;
pub const WAL_DIR: &str = "/data/member/wal";
/// Pages of the store in memory: little, so that the disk is read.
const CACHE_BYTES: usize = 64 << 10;

/// How a member came to be.
#[derive(Clone, Debug)]
pub enum Birth {
    /// It founded the cluster together with these.
    Founder(Vec<u64>),
    /// It was added later and begins with nothing.
    Joiner,
}

/// etcd's member object.
pub fn member_json(id: u64, learner: bool) -> Bytes {
    let learner = if learner { r#","isLearner":true"# } else { "" };
    format!(r#"{{"id":{id},"peerURLs":["http://m{id}:2380"]{learner},"name":"m{id}"}}"#).into()
}

pub(super) fn store_options() -> store::Options {
    store::Options { cache_bytes: CACHE_BYTES, ..store::Options::default() }
}

pub(super) fn clock(plan: &Plan) -> lease::ClockOptions {
    let short = plan.broken == Broken::LeaseShortened;
    lease::ClockOptions {
        election_ms: if short { 0 } else { plan.election() / 1_000 },
        checkpoint_ms: plan.checkpoint_ms,
    }
}

/// What a member is started with.
pub struct Program<'a> {
    pub plan: &'a Arc<Plan>,
    /// Level of commands that it knows.
    pub level: u32,
    /// Rises with every start.
    pub boot: u64,
}

fn machine(program: &Program<'_>, id: u64) -> MachineOptions {
    let differs = program.plan.broken == Broken::MemberSettingDiffers && id == 2;
    MachineOptions {
        cluster_id: CLUSTER,
        member_id: id,
        quota_bytes: Some(1 << 30),
        lease_ttl_min: if differs { 3 } else { 1 },
        compaction_batch: 7,
        feature_level: program.level,
    }
}

impl Node {
    pub fn start(
        disk: &SimDisk,
        program: &Program<'_>,
        id: u64,
        birth: &Birth,
        oracle: &mut Oracle,
    ) -> Result<Node, End> {
        let (plan, boot) = (program.plan, program.boot);
        let dyn_disk: Arc<dyn Disk> = Arc::new(disk.clone());
        dyn_disk.create_dir(Path::new(snapshot::DIR)).map_err(|e| fault("directory", &e))?;
        store::sweep(disk, Path::new(snapshot::STORE), None)
            .map_err(|e| fault("staged snapshot", &e))?;
        let (mut wal, recovered) = open_log(&dyn_disk, plan, id, birth, boot)?;
        let (writer, shared, loaded) =
            store::open(dyn_disk, Path::new(snapshot::STORE), &store_options())
                .map_err(|e| fault("store", &e))?;
        oracle.opened(id, &loaded, &shared, false)?;
        let applied = loaded.applied;
        let conf = loaded.conf_state.clone();
        let conf_state = match conf.is_empty() {
            true => ConfState::default(),
            false => ConfState::decode(&conf)
                .map_err(|e| Violation(format!("stored configuration: {e}")))?,
        };
        let member = conf_state.contains(id);
        let mut machine =
            Machine::restore(loaded, shared.clone(), machine(program, id), &mut |_, _| ())
                .map_err(|e| ended("machine", &e))?;
        machine.publish();
        let reader = machine.reader();

        let mut restored = convert::restored(recovered, applied, conf_state)
            .map_err(|index| Violation(format!("entry {index} has an unknown kind")))?;
        if plan.broken == Broken::ForgetVote {
            restored.hard_state.vote = 0;
        }
        let hard = restored.hard_state;
        let last = restored.entries.last().map_or(restored.base.0, |entry| entry.index);
        oracle.raft.restarted(id, hard, &restored)?;
        let mut durable = Durable { term: hard.term, vote: hard.vote, last };
        let mut config = consensus::Config::new(id);
        config.seed = boot;
        config.boot = boot;
        config.log_cache_entries = plan.log_cache_entries;
        config.disk_stall_ms = plan.disk_stall_ms();
        if let Broken::Core(rule) = plan.broken {
            config.broken = Some(rule);
        }
        let mut core = Core::new(&config, restored).map_err(|e| Violation(format!("core: {e}")))?;
        if let Some(new) = core.new_log() {
            wal.reset(new.base, convert::hard_state(new.hard_state))
                .map_err(|e| fault("log reset", &e))?;
            let HardState { term, vote, .. } = new.hard_state;
            durable = Durable { term, vote, last: new.base.0 };
            // A log of somebody else, or one that a snapshot overtook, may go; confirmed entries may not.
            oracle.raft.dropped(id, new.base)?;
        }
        core.campaign();
        let clock = lease::Clock::new(clock(plan), machine.lease_records());
        let hub = Hub::new(plan.hub, reader.revision());
        Ok(Node {
            id,
            core,
            inputs: Vec::new(),
            clock,
            wal,
            wal_jobs: Vec::new(),
            wal_busy: false,
            disk: NodeDisk::default(),
            durable,
            installing: None,
            machine,
            last_read: 0,
            reader,
            shared,
            apply_queue: VecDeque::new(),
            applied: applied.0,
            // A compaction that a crash interrupted goes on.
            compacting: true,
            lease_changes: Vec::new(),
            writer: Some(writer),
            retired: Vec::new(),
            store_queue: VecDeque::new(),
            store_busy: false,
            frozen: applied,
            hub,
            hub_queue: VecDeque::new(),
            queues: Queues::new(plan.broken),
            catching_up: false,
            reads: Vec::new(),
            views: BTreeMap::new(),
            staged: Vec::new(),
            leads: None,
            ready: false,
            member,
            removed: false,
            rot: false,
            rotten: false,
            queued: BTreeSet::new(),
            level: program.level,
            files: disk.clone(),
            plan: Arc::clone(plan),
        })
    }
}

/// Why the machine does not start.
pub(super) fn ended(what: &str, error: &MachineError) -> End {
    match error.is_newer() {
        true => End::Newer(error.to_string()),
        false => fault(what, error),
    }
}

/// The log as it is, or a new one.
fn open_log(
    disk: &Arc<dyn Disk>,
    plan: &Plan,
    id: u64,
    birth: &Birth,
    boot: u64,
) -> Result<(wal::Wal, wal::Recovered), End> {
    let mut options = wal::Options::new(boot);
    options.segment_bytes = plan.segment_bytes;
    options.spare_segments = 1;
    options.trust_tail = plan.broken == Broken::TrustTail;
    let dir = Path::new(WAL_DIR);
    if wal::inspect(&**disk, dir).map_err(|e| fault("log", &e))? != wal::Contents::Nothing {
        return wal::Wal::recover(Arc::clone(disk), dir, &options, &mut |_, _| ())
            .map_err(|e| fault("log", &e));
    }
    let batch = match birth {
        Birth::Joiner => {
            consensus::Batch { number: 0, entries: Vec::new(), hard_state: None, sync: true }
        }
        Birth::Founder(all) => {
            let member =
                |id: &u64| BootstrapMember { id: *id, context_json: member_json(*id, false) };
            let members: Vec<BootstrapMember> = all.iter().map(member).collect();
            let (entries, hard_state) = consensus::bootstrap(&members);
            consensus::Batch { number: 0, entries, hard_state: Some(hard_state), sync: true }
        }
    };
    let identity = wal::Identity { cluster_id: CLUSTER, member_id: id, format: 1 };
    let first = convert::batch(&batch);
    let wal = wal::Wal::create(Arc::clone(disk), dir, &options, identity, (0, 0), &first)
        .map_err(|e| fault("new log", &e))?;
    let recovered = wal::Recovered {
        identity: Some(identity),
        base: (0, 0),
        hard_state: first.hard_state.unwrap_or_default(),
        entries: first.entries,
        clean: true,
        report: wal::RecoveryReport::default(),
    };
    Ok((wal, recovered))
}
