//! What the API needs of a node, so that it can be tested without one.

use crate::config::Limits;
use crate::machine::{
    Alarm, Answer, Chunk, ChunkEnd, Members, RangeStream, ReadError, Reader, Sizes, TxnAnswer,
};
use crate::mvcc::{End, HashKv, RangeQuery, RangeResult, Sort};
use crate::node::{Changed, Handle, Identity, MemberOp, Phase, RaftStatus, Refused};
use crate::proto::etcdserverpb::{InternalRaftRequest, ResponseHeader, TxnRequest};
use crate::telemetry::clock;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The node as seen by the API. All reads of local state are cheap unless said otherwise.
pub trait Node: Clone + Send + Sync + 'static {
    /// Replicates a command and waits until it is applied here.
    fn propose(
        &self,
        request: InternalRaftRequest,
    ) -> impl Future<Output = Result<Answer, Refused>> + Send;
    /// Waits until everything acknowledged before the call is applied here.
    fn linearize(&self) -> impl Future<Output = Result<(), Refused>> + Send;
    /// Waits until a compaction has removed its rows from the store.
    fn compaction_done(&self, revision: i64) -> impl Future<Output = Result<(), Refused>> + Send;
    /// Makes all that is applied durable in the store.
    fn commit_store(&self) -> impl Future<Output = Result<(), Refused>> + Send;

    /// Hands leadership to another member and waits until it leads.
    fn move_leader(&self, to: u64) -> impl Future<Output = Result<(), Refused>> + Send;

    /// Changes the membership.
    fn change_members(&self, op: MemberOp)
    -> impl Future<Output = Result<Changed, Refused>> + Send;

    /// Local range; may take long.
    fn range(&self, query: &RangeQuery) -> Result<RangeResult, ReadError>;
    /// The same if it is so small that it may run on an edge runtime, `None` if not. Looks at a
    /// bounded number of keys either way.
    fn small_range(&self, query: &RangeQuery) -> Result<Option<RangeResult>, ReadError>;
    /// A range in pieces of about `chunk_bytes`, each of which may take long.
    fn stream(&self, query: RangeQuery, chunk_bytes: u64) -> Result<Box<dyn Pieces>, ReadError>;
    /// Local transaction of ranges only; may take long.
    fn read_txn(&self, txn: &TxnRequest) -> Result<TxnAnswer, ReadError>;
    /// Hash of the rows up to a revision (0: current); takes long.
    fn hash_kv(&self, revision: i64) -> Result<HashKv, ReadError>;
    /// Hash of the whole store; takes long.
    fn hash(&self) -> Result<u32, ReadError>;
    /// Current revision.
    fn revision(&self) -> i64;
    /// Members, sorted by id.
    fn members(&self) -> Arc<Members>;
    /// Active alarms.
    fn alarms(&self) -> Arc<[Alarm]>;
    /// Bytes and keys.
    fn sizes(&self) -> Sizes;
    /// Quota in bytes.
    fn quota(&self) -> Option<u64>;
    /// Whether the file system is nearly full, so that writes are refused.
    fn is_short_of_space(&self) -> bool;
    /// Counts a write that was refused for it.
    fn refused_for_space(&self) {}
    /// Cluster version like `3.7.0` once decided.
    fn cluster_version(&self) -> Option<String>;

    /// Who we are.
    fn identity(&self) -> Identity;
    /// Term of the last applied entry.
    fn applied_term(&self) -> u64;
    /// Raft's view.
    fn raft(&self) -> RaftStatus;
    /// Limits.
    fn limits(&self) -> &Limits;
    /// Time without a leader after which a follower stands for election.
    fn election_timeout(&self) -> Duration;
    /// Becomes true when the node stops.
    fn stopping(&self) -> watch::Receiver<bool>;
    /// Whether this member is fenced: its data differs from the majority's.
    fn is_fenced(&self) -> bool;
    /// Becomes true when it is fenced.
    fn fenced(&self) -> watch::Receiver<bool>;
    /// Whether clients are served.
    fn is_ready(&self) -> bool;

    /// Response header with a revision.
    fn header(&self, revision: i64) -> ResponseHeader {
        let Identity { cluster_id, member_id, .. } = self.identity();
        ResponseHeader { cluster_id, member_id, revision, raft_term: self.applied_term() }
    }
}

/// A range in pieces.
pub trait Pieces: Send {
    /// The next piece; `None` behind the last one.
    fn next_chunk(&mut self) -> Result<Option<Chunk>, ReadError>;
}

impl Pieces for RangeStream {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, ReadError> {
        Self::next_chunk(self)
    }
}

/// Limits up to this one make a piecewise read walk its whole range for the count.
const SMALL_LIMIT: i64 = 16;

/// See [`Node::small_range`]: a single key, or a range in key order whose first piece (ten keys,
/// found in one hold of the index) is all of it.
pub(super) fn small_range(
    reader: &Reader,
    query: &RangeQuery,
) -> Result<Option<RangeResult>, ReadError> {
    if query.range.end == End::Single {
        return reader.range(query).map(Some);
    }
    let plain = query.sort == Sort::default() && query.filters.is_empty() && !query.count_only;
    if !plain || (1..=SMALL_LIMIT).contains(&query.limit) {
        return Ok(None);
    }
    let first = reader.stream(query.clone(), query.max_bytes)?.next_chunk();
    Ok(match first {
        Ok(Some(Chunk { kvs, end: Some(ChunkEnd { more, count, revision }) })) => {
            Some(RangeResult { kvs, more, count, revision })
        }
        // Not all of it, or overtaken by a compaction: the thorough read decides.
        Ok(_) | Err(ReadError::Compacted) => None,
        Err(error) => return Err(error),
    })
}

impl Node for Handle {
    async fn propose(&self, request: InternalRaftRequest) -> Result<Answer, Refused> {
        Self::propose(self, request).await.map(|done| done.answer)
    }

    async fn linearize(&self) -> Result<(), Refused> {
        Self::linearize(self).await
    }

    async fn compaction_done(&self, revision: i64) -> Result<(), Refused> {
        Self::compaction_done(self, revision).await
    }

    async fn commit_store(&self) -> Result<(), Refused> {
        Self::commit_store(self).await
    }

    async fn move_leader(&self, to: u64) -> Result<(), Refused> {
        Self::move_leader(self, to).await
    }

    async fn change_members(&self, op: MemberOp) -> Result<Changed, Refused> {
        Self::change_members(self, op).await
    }

    fn range(&self, query: &RangeQuery) -> Result<RangeResult, ReadError> {
        let began_ns = clock::now_ns();
        let result = self.reader().range(query);
        let took = &self.metrics().ranges_read[usize::from(result.is_ok())];
        took.record_ns(clock::now_ns() - began_ns);
        result
    }

    fn small_range(&self, query: &RangeQuery) -> Result<Option<RangeResult>, ReadError> {
        let began_ns = clock::now_ns();
        let result = small_range(self.reader(), query);
        // What is not small is read again, and counted then.
        if !matches!(result, Ok(None)) {
            let took = &self.metrics().ranges_read[usize::from(result.is_ok())];
            took.record_ns(clock::now_ns() - began_ns);
        }
        result
    }

    fn stream(&self, query: RangeQuery, chunk_bytes: u64) -> Result<Box<dyn Pieces>, ReadError> {
        Ok(Box::new(self.reader().stream(query, chunk_bytes)?))
    }

    fn read_txn(&self, txn: &TxnRequest) -> Result<TxnAnswer, ReadError> {
        self.reader().read_txn(&txn.clone().into())
    }

    fn hash_kv(&self, revision: i64) -> Result<HashKv, ReadError> {
        self.reader().hash_kv(revision)
    }

    fn hash(&self) -> Result<u32, ReadError> {
        self.reader().hash()
    }

    fn revision(&self) -> i64 {
        self.reader().revision()
    }

    fn members(&self) -> Arc<Members> {
        self.reader().members()
    }

    fn alarms(&self) -> Arc<[Alarm]> {
        self.reader().alarms()
    }

    fn sizes(&self) -> Sizes {
        self.reader().sizes()
    }

    fn quota(&self) -> Option<u64> {
        self.reader().quota()
    }

    fn is_short_of_space(&self) -> bool {
        Self::is_short_of_space(self)
    }

    fn refused_for_space(&self) {
        Self::refused_for_space(self);
    }

    fn cluster_version(&self) -> Option<String> {
        self.reader().cluster_version()
    }

    fn identity(&self) -> Identity {
        Self::identity(self)
    }

    fn applied_term(&self) -> u64 {
        self.raft_term_applied()
    }

    fn raft(&self) -> RaftStatus {
        Self::raft(self)
    }

    fn limits(&self) -> &Limits {
        Self::limits(self)
    }

    fn election_timeout(&self) -> Duration {
        Duration::from_millis(self.timing().election_ms)
    }

    fn stopping(&self) -> watch::Receiver<bool> {
        Self::stopping(self)
    }

    fn is_fenced(&self) -> bool {
        Self::is_fenced(self)
    }

    fn fenced(&self) -> watch::Receiver<bool> {
        Self::fenced(self)
    }

    fn is_ready(&self) -> bool {
        matches!(self.phase(), Phase::Ready) && !Self::is_fenced(self)
    }
}
