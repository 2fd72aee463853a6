//! A node without raft: commands are applied at once, in the order of the lock.

use crate::api::Node;
use crate::api::node::{Pieces, small_range};
use crate::config::Limits;
use crate::disk::SimDisk;
use crate::machine::{
    Alarm, Answer, Applied, Machine, MachineOptions, Members, ReadError, Reader, Sizes, TxnAnswer,
};
use crate::mvcc::{HashKv, RangeQuery, RangeResult};
use crate::node::{Changed, Identity, MemberOp, RaftStatus, Refused};
use crate::proto::etcdserverpb::{InternalRaftRequest, RequestHeader, TxnRequest};
use crate::store;
use parking_lot::Mutex;
use prost::Message;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::watch;

/// Term of every entry.
const TERM: u64 = 7;
pub(super) const CLUSTER: u64 = 0xc1;
pub(super) const MEMBER: u64 = 0x3e;

pub(super) struct State {
    machine: Mutex<(Machine, store::Writer)>,
    index: AtomicU64,
    /// The leader; 0 for none.
    pub(super) leader: AtomicU64,
    pub(super) learner: AtomicBool,
    pub(super) fenced: watch::Sender<bool>,
    pub(super) short_of_space: AtomicBool,
    /// Refuses whatever goes through the log or the quorum.
    pub(super) refuse: Mutex<Option<Refused>>,
    /// Never answers what goes through the quorum.
    pub(super) hang: AtomicBool,
    pub(super) linearized: AtomicU64,
    pub(super) proposed: AtomicU64,
    pub(super) stopping: watch::Sender<bool>,
    limits: Limits,
}

#[derive(Clone)]
pub(super) struct Local {
    reader: Reader,
    pub(super) state: Arc<State>,
}

impl Local {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut Limits)) -> Self {
        let mut limits = Limits {
            catchup_entries: 5000,
            request_bytes: 1_572_864,
            txn_ops: 128,
            concurrent_streams: u32::MAX,
            quota_bytes: Some(2 << 30),
            keepalive_min: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(7_200),
            keepalive_timeout: Duration::from_secs(20),
            min_free_bytes: 0,
            memory_budget: 1 << 30,
            compaction_batch: 1_000,
        };
        change(&mut limits);
        let options = MachineOptions {
            cluster_id: CLUSTER,
            member_id: MEMBER,
            quota_bytes: limits.quota_bytes,
            lease_ttl_min: 2,
            compaction_batch: limits.compaction_batch,
            feature_level: crate::machine::level::OWN,
        };
        let disk = Arc::new(SimDisk::new());
        crate::disk::Disk::create_dir(&*disk, Path::new("/d")).unwrap();
        let (writer, shared, loaded) =
            store::open(disk, Path::new("/d/store"), &store::Options::default()).unwrap();
        let machine = Machine::restore(loaded, shared, options, &mut |_, _| {}).unwrap();
        let state = State {
            machine: Mutex::new((machine, writer)),
            index: AtomicU64::new(0),
            leader: AtomicU64::new(MEMBER),
            learner: AtomicBool::new(false),
            fenced: watch::Sender::new(false),
            short_of_space: AtomicBool::new(false),
            refuse: Mutex::new(None),
            hang: AtomicBool::new(false),
            linearized: AtomicU64::new(0),
            proposed: AtomicU64::new(0),
            stopping: watch::Sender::new(false),
            limits,
        };
        let reader = state.machine.lock().0.reader();
        Self { reader, state: Arc::new(state) }
    }

    async fn quorum(&self) -> Result<(), Refused> {
        if self.state.hang.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        self.state.refuse.lock().clone().map_or(Ok(()), Err)
    }

    /// Applies a command as if it had been committed.
    pub(super) fn apply(&self, mut request: InternalRaftRequest) -> Result<Answer, Refused> {
        let index = self.state.index.fetch_add(1, SeqCst) + 1;
        request.header.get_or_insert_with(RequestHeader::default).id = index;
        let data = request.encode_to_vec().into();
        let mut machine = self.state.machine.lock();
        let outcome = machine.0.apply(Applied {
            index,
            term: TERM,
            kind: 0,
            data: &data,
            context: &bytes::Bytes::new(),
            conf_state: None,
        });
        machine.0.publish();
        while machine.0.compaction_step() {}
        outcome.answer.map_err(Refused::Answer)
    }
}

impl Node for Local {
    async fn propose(&self, request: InternalRaftRequest) -> Result<Answer, Refused> {
        self.state.proposed.fetch_add(1, SeqCst);
        self.quorum().await?;
        if request.encoded_len() > self.state.limits.request_bytes {
            return Err(Refused::RequestTooLarge);
        }
        self.apply(request)
    }

    async fn linearize(&self) -> Result<(), Refused> {
        self.state.linearized.fetch_add(1, SeqCst);
        self.quorum().await
    }

    async fn compaction_done(&self, _: i64) -> Result<(), Refused> {
        Ok(())
    }

    async fn commit_store(&self) -> Result<(), Refused> {
        let mut machine = self.state.machine.lock();
        if let Some(batch) = machine.0.take_batch() {
            machine.1.commit(batch).unwrap();
        }
        Ok(())
    }

    async fn move_leader(&self, to: u64) -> Result<(), Refused> {
        match self.members().get(to) {
            Some(member) if !member.is_learner => Ok(()),
            _ => Err(Refused::BadTransferee),
        }
    }

    async fn change_members(&self, _: MemberOp) -> Result<Changed, Refused> {
        Err(Refused::NotEnoughStarted)
    }

    fn range(&self, query: &RangeQuery) -> Result<RangeResult, ReadError> {
        self.reader.range(query)
    }

    fn small_range(&self, query: &RangeQuery) -> Result<Option<RangeResult>, ReadError> {
        small_range(&self.reader, query)
    }

    fn stream(&self, query: RangeQuery, chunk_bytes: u64) -> Result<Box<dyn Pieces>, ReadError> {
        Ok(Box::new(self.reader.stream(query, chunk_bytes)?))
    }

    fn read_txn(&self, txn: &TxnRequest) -> Result<TxnAnswer, ReadError> {
        self.reader.read_txn(&txn.clone().into())
    }

    fn hash_kv(&self, revision: i64) -> Result<HashKv, ReadError> {
        self.reader.hash_kv(revision)
    }

    fn hash(&self) -> Result<u32, ReadError> {
        self.reader.hash()
    }

    fn revision(&self) -> i64 {
        self.reader.revision()
    }

    fn members(&self) -> Arc<Members> {
        self.reader.members()
    }

    fn alarms(&self) -> Arc<[Alarm]> {
        self.reader.alarms()
    }

    fn sizes(&self) -> Sizes {
        self.reader.sizes()
    }

    fn quota(&self) -> Option<u64> {
        self.reader.quota()
    }

    fn is_short_of_space(&self) -> bool {
        self.state.short_of_space.load(SeqCst)
    }

    fn cluster_version(&self) -> Option<String> {
        self.reader.cluster_version()
    }

    fn identity(&self) -> Identity {
        Identity { cluster_id: CLUSTER, member_id: MEMBER }
    }

    fn applied_term(&self) -> u64 {
        TERM
    }

    fn raft(&self) -> RaftStatus {
        let leader = self.state.leader.load(SeqCst);
        let index = self.state.index.load(SeqCst);
        RaftStatus {
            leader,
            is_leader: leader == MEMBER,
            term: TERM,
            committed: index,
            applied: index,
            durable: 0,
            is_learner: self.state.learner.load(SeqCst),
            pending: 0,
        }
    }

    fn limits(&self) -> &Limits {
        &self.state.limits
    }

    fn election_timeout(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn stopping(&self) -> watch::Receiver<bool> {
        self.state.stopping.subscribe()
    }

    fn is_fenced(&self) -> bool {
        *self.state.fenced.borrow()
    }

    fn fenced(&self) -> watch::Receiver<bool> {
        self.state.fenced.subscribe()
    }

    fn is_ready(&self) -> bool {
        !*self.state.stopping.borrow() && !self.is_fenced()
    }
}
