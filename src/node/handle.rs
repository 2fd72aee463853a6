//! The handle through which the interface reaches the node: proposals, barriers, published state.

use super::answers;
use super::fence::Fence;
use super::input::{ApplyInput, HashInput, InTerm, NodeInput, Proposal, Reply};
use super::lane::{Lane, Taker};
use super::leases::Times;
use super::local::NodeLocal;
use super::snapshot_in::SnapshotIn;
use crate::config::{Limits, Membership, Timing};
use crate::lease::Renewal;
use crate::machine::{self, Answer, AnswerError, Reader};
use crate::peer::{Local, Peers};
use crate::proto::etcdserverpb::{InternalRaftRequest, RequestHeader};
use crate::telemetry::clock;
use crate::telemetry::io::IoStats;
use crate::telemetry::node_metrics::NodeMetrics;
use crate::telemetry::stage::Outcome;
use prost::Message as _;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Requests that may wait for the node thread: enough for a burst of every client of a control
/// plane, few enough that waiting for all of them ends within a request timeout.
pub(super) const WAITING_MAX: usize = 4096;
/// Bytes of those requests.
pub(super) const WAITING_BYTES_MAX: usize = 64 << 20;
/// Committed entries that may wait to be applied before writes are refused; etcd's number.
const APPLY_LAG_MAX: u64 = 5000;

/// A linearizable read that waits longer counts as slow: after this time etcd asks the leader again.
const READ_RETRY: Duration = Duration::from_millis(500);

/// A command that was applied.
#[derive(Debug)]
pub struct Done {
    /// What the state machine answered.
    pub answer: Answer,
    /// Index and term of its log entry.
    pub applied: (u64, u64),
    /// Process clock when its effects were visible.
    pub(super) applied_ns: u64,
}

/// Why a request was not answered with success. `api::status` gives each its code and text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The state machine answered with an error; nothing was changed.
    #[error("{0}")]
    Answer(AnswerError),
    /// No leader is known.
    #[error("no leader")]
    NoLeader,
    /// The leader changed while a read waited.
    #[error("leader changed")]
    LeaderChanged,
    /// Too much waits for the log, the state machine or the store.
    #[error("too many requests")]
    TooManyRequests,
    /// The command is above the level that the cluster uses; see [`machine::level`].
    #[error("a member of the cluster does not know this command")]
    NotCapable,
    /// The encoded command is larger than `--max-request-bytes`.
    #[error("request is too large")]
    RequestTooLarge,
    /// The deadline passed; the command may or may not take effect.
    #[error("request timed out")]
    Timeout,
    /// As [`Refused::Timeout`]; the leader before may have been gone when it was sent there.
    #[error("request timed out, possibly because the previous leader failed")]
    TimeoutLeaderFail,
    /// As [`Refused::Timeout`]; the leader, or a quorum, was not connected all the while.
    #[error("request timed out, possibly because a connection was lost")]
    TimeoutConnectionLost,
    /// The node is stopping.
    #[error("server stopped")]
    Stopping,
    /// Nothing was proposed.
    #[error("raft proposal dropped")]
    Dropped,
    /// Only the leader does this.
    #[error("not leader")]
    NotLeader,
    /// Leadership cannot go there.
    #[error("bad leader transferee")]
    BadTransferee,
    /// Leadership did not arrive within an election timeout.
    #[error("leader transfer took too long")]
    TransferTimeout,
    /// Another change of the membership is under way.
    #[error("another membership change is under way")]
    ChangePending,
    /// The id is or was a member.
    #[error("member id already exists")]
    MemberExists,
    /// Another member has one of the peer URLs.
    #[error("peer URLs already exist")]
    PeerUrlExists,
    /// No member has this id.
    #[error("member not found")]
    MemberNotFound,
    /// The member votes already.
    #[error("can only promote a learner member")]
    MemberNotLearner,
    /// The learner is too far behind.
    #[error("the learner is not in sync with the leader")]
    LearnerNotReady,
    /// As many learners as `--max-learners` allows.
    #[error("too many learners")]
    TooManyLearners,
    /// Too few members have ever been started.
    #[error("not enough started members")]
    NotEnoughStarted,
    /// Too few members are connected.
    #[error("unhealthy cluster")]
    Unhealthy,
    /// The file system is nearly full: only requests that free space pass.
    #[error("free space is below the reserve")]
    NoSpace,
}

impl Refused {
    /// Whether nobody knows if the request takes effect.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout | Self::TimeoutLeaderFail | Self::TimeoutConnectionLost)
    }
}

/// State of the node as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Opening files and replaying the log.
    Starting,
    /// Serving.
    Ready,
    /// Ending.
    Stopping,
}

/// What raft says of this member, read from atomics.
#[derive(Debug, Clone, Copy)]
pub struct RaftStatus {
    /// The leader, 0 if none.
    pub leader: u64,
    /// Whether this member leads.
    pub is_leader: bool,
    /// Current term.
    pub term: u64,
    /// Commit index.
    pub committed: u64,
    /// Applied index.
    pub applied: u64,
    /// Durably applied index.
    pub durable: u64,
    /// Whether this member is a learner.
    pub is_learner: bool,
    /// Proposals waiting for their result.
    pub pending: i64,
}

/// Ids of this member and its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Cluster id.
    pub cluster_id: u64,
    /// Member id.
    pub member_id: u64,
}

pub(super) struct Inner {
    pub(super) node: Arc<Lane<NodeInput>>,
    pub(super) apply: Arc<Lane<ApplyInput>>,
    pub(super) reader: Reader,
    pub(super) identity: Identity,
    pub(super) ids: machine::RequestIds,
    pub(super) limits: Limits,
    pub(super) timing: Timing,
    pub(super) metrics: Arc<NodeMetrics>,
    pub(super) io: Arc<IoStats>,
    pub(super) waiting: Waiting,
    pub(super) phase: AtomicU8,
    pub(super) stopping: watch::Sender<bool>,
    pub(super) peers: Peers,
    pub(super) snapshots_in: mpsc::Sender<SnapshotIn>,
    /// Messages of peers that wait for the node thread.
    pub(super) wires: AtomicUsize,
    /// Whether this member has no vote, as applied.
    pub(super) learner: AtomicBool,
    pub(super) fence: Fence,
    pub(super) hash: Arc<Lane<HashInput>>,
    pub(super) ended: watch::Sender<Option<End>>,
    /// Rules for changes of the membership.
    pub(super) membership: Membership,
    pub(super) watch: Arc<super::watch_thread::WatchLane>,
    /// Linearizable reads between their request and the answer.
    pub(super) reading: AtomicUsize,
}

impl Inner {
    /// Gives a request to the core. With no other request in the node its caller takes the turn,
    /// which is cheaper than to wake the node thread; with others the thread collects them.
    fn hand_in(&self, input: NodeInput) {
        let requests = self.metrics.pending.load(Relaxed) + self.reading.load(Relaxed) as i64;
        if requests > 1 || answers::runtime().is_none() {
            return self.node.push(input);
        }
        self.node.push_quietly(input);
        self.node.offer(Taker::Edge);
    }
}

/// Why a node ends without being told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is no member of its cluster any more.
    Removed,
}

impl Inner {
    /// The node must end; the first reason counts.
    pub(super) fn end(&self, why: End) {
        self.ended.send_if_modified(|ended| match ended {
            Some(_) => false,
            None => {
                *ended = Some(why);
                true
            }
        });
    }
}

/// Requests between the interface and the node thread.
#[derive(Default)]
pub(super) struct Waiting {
    count: AtomicUsize,
    bytes: AtomicUsize,
}

impl Waiting {
    fn enter(&self, bytes: usize) -> bool {
        let count = self.count.fetch_add(1, Relaxed);
        let held = self.bytes.fetch_add(bytes, Relaxed);
        let fits = count < WAITING_MAX && held + bytes <= WAITING_BYTES_MAX;
        if !fits {
            self.leave(bytes);
        }
        fits
    }

    pub(super) fn leave(&self, bytes: usize) {
        self.count.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// See the module text. Cheap to clone.
#[derive(Clone)]
pub struct Handle(pub(super) Arc<Inner>);

impl Handle {
    /// Replicates a command and waits until it is applied here.
    ///
    /// # Errors
    /// See [`Refused`]. After [`Refused::is_timeout`] nobody knows whether the command takes effect.
    pub async fn propose(&self, request: InternalRaftRequest) -> Result<Done, Refused> {
        // At the first level there is nothing that could be above it.
        let level = match machine::level::needs(&request) {
            machine::level::FIRST => machine::level::FIRST,
            _ => self.reader().feature_level(),
        };
        self.propose_at(request, level).await
    }

    /// As [`Handle::propose`], with the level of commands that may be used.
    pub(super) async fn propose_at(
        &self,
        mut request: InternalRaftRequest,
        level: u32,
    ) -> Result<Done, Refused> {
        let inner = &*self.0;
        let received_ns = clock::now_ns();
        machine::level::stamp(&mut request);
        let id = inner.ids.next();
        request.header.get_or_insert_with(RequestHeader::default).id = id;
        let size = request.encoded_len();
        let refuse = |why| {
            inner.metrics.outcome(Outcome::Refused);
            Err(why)
        };
        if machine::level::needs(&request) > level {
            return refuse(Refused::NotCapable);
        }
        if size > inner.limits.request_bytes {
            return refuse(Refused::RequestTooLarge);
        }
        if self.phase() == Phase::Stopping {
            return refuse(Refused::Stopping);
        }
        let lag = inner
            .metrics
            .committed
            .load(Relaxed)
            .saturating_sub(inner.metrics.applied.load(Relaxed));
        if lag > APPLY_LAG_MAX || !inner.waiting.enter(size) {
            return refuse(Refused::TooManyRequests);
        }
        let data = request.encode_to_vec().into();
        drop(request);
        let (to, wait) = oneshot::channel();
        let reply = Some(Reply { runtime: answers::runtime(), to });
        let pending = Pending::new(&inner.metrics, received_ns);
        inner.hand_in(NodeInput::Propose(Proposal { id, data, received_ns, reply }));
        let answer = self.within_deadline(wait).await.map_err(|why| match why {
            Refused::Timeout => self.write_timed_out(received_ns),
            other => other,
        });
        drop(pending);
        if let Ok(done) = &answer {
            super::driver::answered(inner, received_ns, done.applied_ns);
        }
        inner.metrics.outcome(match &answer {
            Ok(_) => Outcome::Ok,
            Err(Refused::Answer(_)) => Outcome::Rejected,
            Err(refused) if refused.is_timeout() => Outcome::Unknown,
            Err(_) => Outcome::Refused,
        });
        answer
    }

    /// Waits until a read from [`Handle::reader`] is linearizable.
    ///
    /// # Errors
    /// No leader, a deadline passed, or the node stops.
    pub async fn linearize(&self) -> Result<(), Refused> {
        self.linearize_in(None).await
    }

    /// The same; with a term, only if this member still led in it meanwhile.
    ///
    /// # Errors
    /// As [`Handle::linearize`], and [`Refused::NotLeader`].
    pub(super) async fn linearize_in(&self, term: Option<u64>) -> Result<(), Refused> {
        let _reading = Reading::new(&self.0.reading);
        let asked_ns = clock::now_ns();
        let answer = self.barrier(|reply| self.0.hand_in(NodeInput::Read { term, reply })).await;
        let answer = answer.map_err(|why| match why {
            Refused::Timeout => self.read_timed_out(asked_ns),
            other => other,
        });
        if clock::now_ns() - asked_ns > READ_RETRY.as_nanos() as u64 {
            self.0.metrics.reads_slow.fetch_add(1, Relaxed);
        }
        answer
    }

    /// Makes everything applied so far durable in the store.
    ///
    /// # Errors
    /// A deadline passed or the node stops.
    pub async fn commit_store(&self) -> Result<(), Refused> {
        self.barrier(|reply| self.0.apply.push(ApplyInput::CommitStore(reply))).await
    }

    /// Waits until the compaction at `revision` has removed its rows durably.
    ///
    /// # Errors
    /// A deadline passed or the node stops.
    pub async fn compaction_done(&self, revision: i64) -> Result<(), Refused> {
        self.barrier(|reply| self.0.apply.push(ApplyInput::CompactionDone { revision, reply }))
            .await
    }

    /// Keeps a lease alive; the answer says what to do if it is not simply renewed.
    ///
    /// # Errors
    /// The node stops.
    pub(super) async fn lease_renew(&self, id: i64) -> Result<InTerm<Renewal>, Refused> {
        self.ask(|reply| NodeInput::LeaseRenew { id, reply }).await
    }

    /// Remaining and granted time of a lease in seconds, `None` if unknown or expired.
    ///
    /// # Errors
    /// The node stops.
    pub(super) async fn lease_remaining(&self, id: i64) -> Result<InTerm<Times>, Refused> {
        self.ask(|reply| NodeInput::LeaseRemaining { id, reply }).await
    }

    /// Ids of all leases, the next to end first.
    ///
    /// # Errors
    /// The node stops.
    pub async fn lease_order(&self) -> Result<Vec<i64>, Refused> {
        self.ask(|reply| NodeInput::LeaseOrder { reply }).await
    }

    /// The published state, for reads.
    pub fn reader(&self) -> &Reader {
        &self.0.reader
    }

    /// Ids of this member and its cluster.
    pub fn identity(&self) -> Identity {
        self.0.identity
    }

    /// Term of the last applied entry, as `header.raft_term` reports it.
    pub fn raft_term_applied(&self) -> u64 {
        self.0.reader.applied().1
    }

    /// What raft says of this member.
    pub fn raft(&self) -> RaftStatus {
        let m = &self.0.metrics;
        RaftStatus {
            leader: m.leader.load(Relaxed),
            is_leader: m.leads.load(Relaxed) == 1,
            term: m.term.load(Relaxed),
            committed: m.committed.load(Relaxed),
            applied: m.applied.load(Relaxed),
            durable: m.durable.load(Relaxed),
            is_learner: self.0.learner.load(Relaxed),
            pending: m.pending.load(Relaxed),
        }
    }

    /// Bounds on requests.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Timing of the node.
    pub fn timing(&self) -> &Timing {
        &self.0.timing
    }

    /// Numbers of the node.
    pub fn metrics(&self) -> &Arc<NodeMetrics> {
        &self.0.metrics
    }

    /// Numbers of its files.
    pub fn io(&self) -> &Arc<IoStats> {
        &self.0.io
    }

    /// Input lane of the watch hub.
    pub fn watch(&self) -> &Arc<super::watch_thread::WatchLane> {
        &self.0.watch
    }

    /// State of the node.
    pub fn phase(&self) -> Phase {
        match self.0.phase.load(Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Stopping,
        }
    }

    /// Turns true when the node begins to stop.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.0.stopping.subscribe()
    }

    /// Becomes a reason when the node must end by itself.
    pub fn ended(&self) -> watch::Receiver<Option<End>> {
        self.0.ended.subscribe()
    }

    /// The other members.
    pub fn peers(&self) -> &Peers {
        &self.0.peers
    }

    /// What the service on the peer port talks to.
    pub fn local(&self) -> Arc<dyn Local> {
        Arc::new(NodeLocal(self.0.clone()))
    }

    /// Whether client writes that need space must be refused (`--min-free-bytes`).
    pub fn is_short_of_space(&self) -> bool {
        self.0.metrics.space_refused.load(Relaxed) == 1
    }

    /// Counts a request that was refused for it.
    pub fn refused_for_space(&self) {
        self.0.metrics.space_refusals.fetch_add(1, Relaxed);
    }

    async fn barrier(&self, push: impl FnOnce(super::input::BarrierReply)) -> Result<(), Refused> {
        if self.phase() == Phase::Stopping {
            return Err(Refused::Stopping);
        }
        let (to, wait) = oneshot::channel();
        push(Reply { runtime: answers::runtime(), to });
        self.within_deadline(wait).await
    }

    async fn ask<T>(
        &self,
        input: impl FnOnce(Reply<Result<T, Refused>>) -> NodeInput,
    ) -> Result<T, Refused> {
        let (to, wait) = oneshot::channel();
        self.0.node.push(input(Reply { runtime: answers::runtime(), to }));
        self.within_deadline(wait).await
    }

    pub(super) async fn within_deadline<T>(
        &self,
        wait: impl Future<Output = Result<Result<T, Refused>, oneshot::error::RecvError>>,
    ) -> Result<T, Refused> {
        let timeout: Duration = self.0.timing.request_timeout();
        match tokio::time::timeout(timeout, wait).await {
            Ok(Ok(answer)) => answer,
            // The thread that held the other end has gone: the node is stopping.
            Ok(Err(_)) => Err(Refused::Stopping),
            Err(_) => Err(Refused::Timeout),
        }
    }
}

/// Counts a linearizable read for as long as its caller waits.
struct Reading<'a>(&'a AtomicUsize);

impl<'a> Reading<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Reading(count)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Counts a proposal as pending for as long as its caller waits, also when the caller is cancelled.
struct Pending<'a> {
    metrics: &'a NodeMetrics,
    since_ns: u64,
}

impl<'a> Pending<'a> {
    fn new(metrics: &'a NodeMetrics, since_ns: u64) -> Self {
        metrics.pending.fetch_add(1, Relaxed);
        metrics.pending_ages.enter(since_ns);
        Pending { metrics, since_ns }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.metrics.pending.fetch_sub(1, Relaxed);
        self.metrics.pending_ages.leave(self.since_ns);
    }
}
