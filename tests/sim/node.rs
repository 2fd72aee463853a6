//! One life of the simulated process: the shipped parts, wired as the node wires them, with each
//! thread replaced by turns that the world calls in an order drawn from the seed.
//!
//! ```text
//! clients ──► node ──► wal ──► node ──► apply ──► store ──► node
//!                                         └─────► hub ──► streams
//! ```

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use assay::consensus::{
    self, BootstrapMember, BrokenRule, Committed, ConfState, Core, Effect, Input, Role, Token,
};
use assay::disk::{Disk, SimDisk};
use assay::lease;
use assay::machine::{
    Answer, AnswerError, Applied, LeaseChange, Machine, MachineOptions, OpAnswer, Outcome, Reader,
    TxnAnswer,
};
use assay::mvcc::EventBatch;
use assay::store::{self, Batch, Shared};
use assay::wal;
use assay::watch::Hub;
use bytes::Bytes;

use super::convert;
use super::model::Kv;
use super::oracle::{Oracle, Verdict, Violation};

pub const MEMBER: u64 = 1;
pub const LEARNER: u64 = 2;
const CLUSTER: u64 = 77;
pub const WAL_DIR: &str = "/data/member/wal";
const STORE: &str = "/data/member/store.redb";

/// What a run draws once and breaks on purpose.
#[derive(Clone, Debug)]
pub struct Settings {
    pub segment_bytes: u64,
    pub cache_bytes: usize,
    pub log_cache_entries: u64,
    /// Bytes in the open batch that freeze it before its deadline.
    pub freeze_bytes: usize,
    /// Entries applied in one turn at most.
    pub apply_at_once: usize,
    pub hub: assay::watch::HubOptions,
    pub learner: bool,
    pub checkpoint_ms: Option<u64>,
    pub broken: Broken,
}

/// Which rule is broken, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Broken {
    #[default]
    Nothing,
    Core(BrokenRule),
    /// What recovery reads back counts as durable.
    TrustTail,
    /// Batches are reported as persisted before the log has synced them.
    AckBeforeSync,
}

/// Why a process ended.
#[derive(Debug)]
pub enum End {
    /// A fault of the disk, as the process must end then.
    Fault(String),
    /// A rule was broken.
    Broken(Violation),
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        End::Broken(violation)
    }
}

/// Work for the log, in order.
pub enum WalJob {
    Persist(consensus::Batch),
    Truncate(u64),
}

/// An answer on its way to a client: index and request id.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub index: u64,
    pub request: u64,
}

pub struct Node {
    pub core: Core,
    pub inputs: Vec<Input>,
    pub clock: lease::Clock,
    wal: wal::Wal,
    pub wal_jobs: Vec<WalJob>,
    pub wal_busy: bool,
    /// Newest term and vote that the log has synced.
    pub durable_term: u64,
    pub machine: Machine,
    pub reader: Reader,
    pub shared: Shared,
    pub apply_queue: VecDeque<Committed>,
    pub applied: u64,
    compacting: bool,
    pub lease_changes: Vec<LeaseChange>,
    writer: store::Writer,
    pub store_queue: VecDeque<Batch>,
    pub store_busy: bool,
    pub hub: Hub,
    pub hub_queue: VecDeque<Arc<EventBatch>>,
    /// Reads that wait for an index.
    pub reads: Vec<(u64, Token)>,
    /// Leads since this term; clients are served when an entry of it is applied.
    pub leads: Option<u64>,
    pub ready: bool,
    settings: Settings,
}

impl Node {
    /// What a process does when it starts.
    pub fn start(
        disk: &SimDisk,
        settings: &Settings,
        boot: u64,
        oracle: &mut Oracle,
    ) -> Result<Node, End> {
        let fault =
            |what: &str, error: &dyn std::fmt::Display| End::Fault(format!("{what}: {error}"));
        let dyn_disk: Arc<dyn Disk> = Arc::new(disk.clone());
        dyn_disk.create_dir(Path::new("/data/member")).map_err(|e| fault("directory", &e))?;
        let mut options = wal::Options::new(boot);
        options.segment_bytes = settings.segment_bytes;
        options.spare_segments = 1;
        options.trust_tail = settings.broken == Broken::TrustTail;
        let dir = Path::new(WAL_DIR);
        let contents = wal::inspect(disk, dir).map_err(|e| fault("log", &e))?;
        let (mut wal, recovered) = if contents == wal::Contents::Nothing {
            Self::create_log(&dyn_disk, dir, &options)?
        } else {
            wal::Wal::recover(Arc::clone(&dyn_disk), dir, &options, &mut |_, _| ())
                .map_err(|e| fault("log", &e))?
        };

        let store_options =
            store::Options { cache_bytes: settings.cache_bytes, clean: false, room: None };
        let (writer, shared, loaded) = store::open(dyn_disk, Path::new(STORE), &store_options)
            .map_err(|e| fault("store", &e))?;
        oracle.opened(&loaded, &shared)?;
        let applied = loaded.applied;
        let conf_state = match loaded.conf_state.is_empty() {
            true => ConfState::default(),
            false => ConfState::decode(&loaded.conf_state)
                .map_err(|e| Violation(format!("stored configuration: {e}")))?,
        };
        let machine_options = MachineOptions {
            cluster_id: CLUSTER,
            member_id: MEMBER,
            quota_bytes: Some(1 << 30),
            lease_ttl_min: 1,
            compaction_batch: 7,
        };
        let mut machine = Machine::restore(loaded, shared.clone(), machine_options, &mut |_, _| ())
            .map_err(|e| End::Fault(format!("machine: {e}")))?;
        machine.publish();
        let reader = machine.reader();

        let durable_term = recovered.hard_state.term;
        let restored = convert::restored(recovered, applied, conf_state)
            .map_err(|index| Violation(format!("entry {index} has an unknown kind")))?;
        let mut config = consensus::Config::new(MEMBER);
        config.seed = boot;
        config.boot = boot;
        config.log_cache_entries = settings.log_cache_entries;
        if let Broken::Core(rule) = settings.broken {
            config.broken = Some(rule);
        }
        let mut core = Core::new(&config, restored).map_err(|e| Violation(format!("core: {e}")))?;
        if let Some(new) = core.new_log() {
            wal.reset(new.base, convert::hard_state(new.hard_state))
                .map_err(|e| fault("log reset", &e))?;
        }
        core.campaign();
        let clock_options =
            lease::ClockOptions { election_ms: 1_000, checkpoint_ms: settings.checkpoint_ms };
        let clock = lease::Clock::new(clock_options, machine.lease_records());
        let hub = Hub::new(settings.hub, reader.revision());
        Ok(Node {
            durable_term,
            core,
            inputs: Vec::new(),
            clock,
            wal,
            wal_jobs: Vec::new(),
            wal_busy: false,
            machine,
            reader,
            shared,
            apply_queue: VecDeque::new(),
            applied: applied.0,
            // A compaction that a crash interrupted goes on.
            compacting: true,
            lease_changes: Vec::new(),
            writer,
            store_queue: VecDeque::new(),
            store_busy: false,
            hub,
            hub_queue: VecDeque::new(),
            reads: Vec::new(),
            leads: None,
            ready: false,
            settings: settings.clone(),
        })
    }

    fn create_log(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        options: &wal::Options,
    ) -> Result<(wal::Wal, wal::Recovered), End> {
        let member = BootstrapMember {
            id: MEMBER,
            context_json: Bytes::from_static(
                br#"{"id":1,"peerURLs":["http://localhost:2380"],"name":"default"}"#,
            ),
        };
        let (entries, hard_state) = consensus::bootstrap(&[member]);
        let batch =
            consensus::Batch { number: 0, entries, hard_state: Some(hard_state), sync: true };
        let identity = wal::Identity { cluster_id: CLUSTER, member_id: MEMBER, format: 1 };
        let first = convert::batch(&batch);
        let wal = wal::Wal::create(Arc::clone(disk), dir, options, identity, (0, 0), &first)
            .map_err(|e| End::Fault(format!("new log: {e}")))?;
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

    /// A turn of the node thread: everything that waits goes into one step.
    pub fn node_turn(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        for change in std::mem::take(&mut self.lease_changes) {
            match change {
                LeaseChange::Granted { id, ttl } => self.clock.granted(id, ttl, now_ms),
                LeaseChange::Revoked { id } => self.clock.revoked(id),
                LeaseChange::Checkpointed { id, remaining } => {
                    self.clock.checkpointed(id, remaining);
                }
            }
        }
        let mut inputs = std::mem::take(&mut self.inputs);
        self.core.step(now_ms, &mut inputs, effects);
        self.inputs = inputs;
    }

    /// Role changes decide who keeps the leases.
    pub fn role(&mut self, change: consensus::RoleChange) {
        self.leads = (change.role == Role::Leader).then_some(change.term);
        if self.leads.is_none() {
            self.ready = false;
            self.clock.demote();
        }
    }

    /// A turn of the log's thread: every waiting batch, one commit. Returns the newest number and
    /// term that are on disk.
    pub fn wal_turn(&mut self) -> Result<(Option<u64>, u64), End> {
        let fault = |error: wal::WalError| End::Fault(format!("log: {error}"));
        let mut newest = None;
        let mut truncate = None;
        let mut term = self.durable_term;
        for job in std::mem::take(&mut self.wal_jobs) {
            match job {
                WalJob::Persist(batch) => {
                    self.wal.append(&convert::batch(&batch)).map_err(fault)?;
                    term = batch.hard_state.map_or(term, |hard| hard.term);
                    newest = Some(batch.number);
                }
                WalJob::Truncate(index) => truncate = Some(index),
            }
        }
        if newest.is_some() {
            self.wal.commit().map_err(fault)?;
        }
        if let Some(index) = truncate {
            self.wal.truncate_front(index).map_err(fault)?;
            self.wal.prepare_spare(self.settings.segment_bytes).map_err(fault)?;
        }
        Ok((newest, term))
    }

    /// A turn of the apply thread; returns what clients may be told.
    pub fn apply_turn(
        &mut self,
        now_ms: u64,
        asked_revokes: &dyn Fn(u64) -> bool,
        oracle: &mut Oracle,
    ) -> Result<Vec<Done>, End> {
        let mut done = Vec::new();
        let mut reached = None;
        for _ in 0..self.settings.apply_at_once {
            let Some(committed) = self.apply_queue.pop_front() else { break };
            let entry = &committed.entry;
            let outcome = self.machine.apply(Applied {
                index: entry.index,
                term: entry.term,
                kind: convert::kind(entry.kind),
                data: &entry.data,
                context: &entry.context,
                conf_state: committed.conf_state.as_ref().map(|conf| Bytes::from(conf.encode())),
            });
            if let Err(AnswerError::Fault(error)) = &outcome.answer {
                return Err(End::Fault(format!("apply: {error}")));
            }
            let first = oracle.applied(entry.index, entry.kind, &entry.data, &text(&outcome))?;
            // What is applied again was judged when it happened.
            for change in outcome.lease.iter().filter(|_| first) {
                match *change {
                    LeaseChange::Granted { id, ttl } => oracle.lease_held(id, ttl, now_ms),
                    LeaseChange::Revoked { id } => {
                        oracle.lease_revoked(id, asked_revokes(outcome.request_id), now_ms)?;
                    }
                    LeaseChange::Checkpointed { .. } => {}
                }
            }
            self.lease_changes.extend(outcome.lease);
            self.hub_queue.extend(outcome.events);
            self.compacting |= outcome.compacted;
            reached = Some((entry.index, entry.term));
            done.push(Done { index: entry.index, request: outcome.request_id });
        }
        if let Some((index, term)) = reached {
            self.machine.publish();
            self.applied = index;
            let durable = self.shared.durable().0;
            self.inputs.push(Input::Applied { index, durable });
            if self.leads == Some(term) {
                self.ready = true;
            }
        }
        if self.compacting {
            self.compacting = self.machine.compaction_step();
        }
        if self.machine.open_bytes() >= self.settings.freeze_bytes {
            self.freeze();
        }
        Ok(done)
    }

    pub fn compacting(&self) -> bool {
        self.compacting
    }

    /// Hands the open batch to the store's thread, if there is room in its queue.
    pub fn freeze(&mut self) {
        if self.store_queue.len() < 2 {
            self.store_queue.extend(self.machine.take_batch());
        }
    }

    /// A turn of the store's thread: one batch.
    pub fn store_turn(&mut self) -> Result<bool, End> {
        let Some(batch) = self.store_queue.pop_front() else { return Ok(false) };
        self.writer.commit(batch).map_err(|error| End::Fault(format!("store: {error}")))?;
        Ok(true)
    }

    /// The store's thread reports what is durable.
    pub fn store_done(&mut self) {
        let durable = self.shared.durable().0;
        self.inputs.push(Input::Applied { index: self.applied, durable });
    }

    /// Compares the machine with the model, if nothing is under way.
    pub fn hash(&self, oracle: &Oracle) -> Verdict {
        let hash = self.reader.hash_kv(0).map_err(|e| Violation(format!("hash: {e}")))?;
        oracle.hashed(self.applied, &hash)
    }

    /// Ends the process in order.
    pub fn close(mut self) -> Result<(), End> {
        self.freeze();
        while self.store_turn()? {}
        let Node { wal, writer, machine, .. } = self;
        drop(machine);
        writer.close().map_err(|error| End::Fault(format!("store: {error}")))?;
        wal.close_clean().map_err(|error| End::Fault(format!("log: {error}")))
    }

    pub fn idle(&self) -> bool {
        self.apply_queue.is_empty()
            && self.store_queue.is_empty()
            && self.wal_jobs.is_empty()
            && self.hub_queue.is_empty()
            && !self.wal_busy
            && !self.store_busy
            && !self.compacting
    }
}

/// The answer as the model writes it.
fn text(outcome: &Outcome) -> String {
    let rows = |rows: &[Bytes]| rows.iter().map(|row| Kv::text(row)).collect::<Vec<_>>().join(" ");
    match &outcome.answer {
        Err(error) => format!("error {error:?}"),
        Ok(Answer::Put { revision, prev_kv }) => {
            format!("put r{revision} prev {:?}", prev_kv.as_ref().map(|row| Kv::text(row)))
        }
        Ok(Answer::DeleteRange { revision, deleted, prev_kvs }) => {
            format!("delete r{revision} n{deleted} {}", rows(prev_kvs)).trim_end().to_owned()
        }
        Ok(Answer::Txn(TxnAnswer { revision, succeeded, results })) => {
            let result = |result: &OpAnswer| match result {
                OpAnswer::Put { prev_kv, .. } => {
                    format!("put prev {:?}", prev_kv.as_ref().map(|row| Kv::text(row)))
                }
                OpAnswer::DeleteRange { deleted, prev_kvs, .. } => {
                    format!("delete n{deleted} {}", rows(prev_kvs)).trim_end().to_owned()
                }
                OpAnswer::Range { result, .. } => {
                    format!("range n{} {}", result.count, rows(&result.kvs))
                }
                other => format!("unexpected {other:?}"),
            };
            let results: Vec<String> = results.iter().map(result).collect();
            format!("txn r{revision} {succeeded} [{}]", results.join("; "))
        }
        Ok(Answer::Compact { revision }) => format!("compact r{revision}"),
        Ok(Answer::LeaseGrant { revision, id, ttl }) => format!("grant r{revision} {id} {ttl}"),
        Ok(Answer::LeaseRevoke { revision }) => format!("revoke r{revision}"),
        Ok(_) => "done".to_owned(),
    }
}
