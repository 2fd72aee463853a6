//! The KV service: ranges, puts, deletes, transactions, compaction.
//!
//! Order of checks for writes: quota, fields, then what the node checks (too many requests, size),
//! then what applying checks. Reads of one key run on the edge runtime, larger ones on the pool.

use super::budget::{Budget, Permit, Pool};
use super::context::RequestContext;
use super::convert;
use super::node::Node;
use super::quota;
use super::rows_body::RowsBody;
use super::server::{Held, Large};
use super::status;
use super::stream;
use crate::machine::{Answer, ReadError, TxnAnswer, check};
use crate::mvcc::{RangeQuery, RangeResult};
use crate::node::Refused;
use crate::proto::etcdserverpb::kv_server;
use crate::proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse,
    InternalRaftRequest, PutRequest, PutResponse, RangeRequest, RangeResponse, RangeStreamResponse,
    TxnRequest, TxnResponse,
};
use bytes::Bytes;
use std::sync::Arc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Answers from this size on are encoded piece by piece and charged to the budget.
const LARGE_ANSWER_BYTES: u64 = 32 << 10;
/// Memory of a fetched row beside its bytes: the reference counted handle and its control block.
const ROW_OVERHEAD_BYTES: u64 = 64;
/// gRPC cannot send more in one message.
const MESSAGE_LIMIT_BYTES: u64 = i32::MAX as u64;

/// The KV service of one runtime.
#[derive(Clone)]
pub struct Kv<N> {
    node: N,
    budget: Arc<Budget>,
    pool: Arc<Pool>,
}

type Rpc<T> = Result<Response<T>, Status>;

impl<N: Node> Kv<N> {
    /// `budget` and `pool` are shared by all runtimes.
    pub fn new(node: N, budget: Arc<Budget>, pool: Arc<Pool>) -> Self {
        Self { node, budget, pool }
    }

    async fn propose(&self, request: InternalRaftRequest) -> Result<Answer, Status> {
        self.node.propose(request).await.map_err(|refused| status::of_refused(&refused))
    }

    /// Learners serve only serializable ranges; the interceptor cannot see that.
    fn check_learner(&self, serializable: bool) -> Result<(), Status> {
        if !serializable && self.node.raft().is_learner {
            return Err(status::NOT_SUPPORTED_FOR_LEARNER.into());
        }
        Ok(())
    }

    async fn linearize(&self, serializable: bool) -> Result<(), Status> {
        if serializable {
            return Ok(());
        }
        self.node.linearize().await.map_err(|refused: Refused| status::of_refused(&refused))
    }

    /// Runs a range where it belongs; the permit covers the rows.
    async fn run(&self, mut query: RangeQuery) -> Result<(RangeResult, Option<Permit>), Status> {
        query.max_bytes = MESSAGE_LIMIT_BYTES;
        let small = self.node.small_range(&query).map_err(|error| status::of_read(&error))?;
        if let Some(result) = small {
            let bytes = size_of(&result);
            let permit = (bytes >= LARGE_ANSWER_BYTES).then(|| self.budget.reserve(bytes));
            return Ok((result, permit.transpose()?));
        }
        if query.count_only {
            let result = self.on_pool(query, self.budget.reserve(0)?).await?;
            return Ok((result.map_err(|error| status::of_read(&error))?.0, None));
        }
        // The size of the answer is not known: try with half of what is free, so that two large
        // reads can run, then with all of it.
        let half = self.budget.reserve_half()?;
        let (result, permit) = match self.on_pool(query.clone(), half).await? {
            Err(ReadError::OverBudget { .. }) => {
                let rest = self.budget.reserve_rest()?;
                self.on_pool(query, rest).await?.map_err(|error| status::of_read(&error))?
            }
            other => other.map_err(|error| status::of_read(&error))?,
        };
        Ok((result, Some(permit)))
    }

    async fn on_pool(
        &self,
        mut query: RangeQuery,
        mut permit: Permit,
    ) -> Result<Result<(RangeResult, Permit), ReadError>, Status> {
        let node = self.node.clone();
        query.max_bytes = permit.bytes().min(MESSAGE_LIMIT_BYTES);
        let work = move || {
            let result = node.range(&query)?;
            permit.shrink(size_of(&result));
            Ok((result, permit))
        };
        self.pool.run(work).await
    }
}

fn size_of(result: &RangeResult) -> u64 {
    result.kvs.iter().map(|row| row.len() as u64 + ROW_OVERHEAD_BYTES).sum()
}

fn wrong_answer() -> Status {
    Status::internal("assay: the state machine gave the answer of another command")
}

#[tonic::async_trait]
impl<N: Node> kv_server::Kv for Kv<N> {
    async fn range(&self, request: Request<RangeRequest>) -> Rpc<RangeResponse> {
        let request = request.into_inner();
        self.check_learner(request.serializable)?;
        check::range(&request).map_err(status::of_request)?;
        self.linearize(request.serializable).await?;
        let (result, permit) = self.run(RangeQuery::from(request)).await?;
        let RangeResult { kvs, more, count, revision, .. } = result;
        let header = self.node.header(revision);
        let Some(permit) = permit else {
            return Ok(Response::new(RangeResponse { header: Some(header), kvs, more, count }));
        };
        let rows = RowsBody::new(header, kvs, more, count, permit);
        let rows = rows.ok_or_else(|| {
            status::overloaded("bytes of one answer", u64::from(u32::MAX), MESSAGE_LIMIT_BYTES)
        })?;
        let mut response = Response::new(RangeResponse::default());
        Large::set(&mut response, rows);
        Ok(response)
    }

    type RangeStreamStream = ReceiverStream<Result<RangeStreamResponse, Status>>;

    async fn range_stream(&self, request: Request<RangeRequest>) -> Rpc<Self::RangeStreamStream> {
        let request = request.into_inner();
        check::range(&request).map_err(status::of_request)?;
        convert::check_stream(&request)?;
        self.linearize(request.serializable).await?;
        let (node, chunk_bytes) = (&self.node, self.node.limits().request_bytes as u64);
        let pieces = node.stream(RangeQuery::from(request), chunk_bytes);
        let pieces = pieces.map_err(|error| status::of_read(&error))?;
        let (node, budget, pool) = (node.clone(), Arc::clone(&self.budget), Arc::clone(&self.pool));
        Ok(Response::new(stream::start(pieces, pool, budget, move |rev| node.header(rev))))
    }

    async fn put(&self, request: Request<PutRequest>) -> Rpc<PutResponse> {
        let header = RequestContext::of(&request)?.command_header();
        let put = request.into_inner();
        quota::check(&self.node, check::cost_of_put(&put)).await?;
        check::put(&put).map_err(status::of_request)?;
        let command = InternalRaftRequest {
            header: Some(header),
            put: Some(put),
            ..InternalRaftRequest::default()
        };
        match self.propose(command).await? {
            Answer::Put { revision, prev_kv } => Ok(Response::new(PutResponse {
                header: Some(self.node.header(revision)),
                prev_kv: prev_kv.unwrap_or_default(),
            })),
            _ => Err(wrong_answer()),
        }
    }

    async fn delete_range(&self, request: Request<DeleteRangeRequest>) -> Rpc<DeleteRangeResponse> {
        let header = RequestContext::of(&request)?.command_header();
        let delete = request.into_inner();
        check::delete_range(&delete).map_err(status::of_request)?;
        let command = InternalRaftRequest {
            header: Some(header),
            delete_range: Some(delete),
            ..InternalRaftRequest::default()
        };
        match self.propose(command).await? {
            Answer::DeleteRange { revision, deleted, prev_kvs } => {
                let permit = self.hold(&prev_kvs)?;
                let mut response = Response::new(DeleteRangeResponse {
                    header: Some(self.node.header(revision)),
                    deleted,
                    prev_kvs,
                });
                if let Some(permit) = permit {
                    Held::set(&mut response, permit);
                }
                Ok(response)
            }
            _ => Err(wrong_answer()),
        }
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Rpc<TxnResponse> {
        let header = RequestContext::of(&request)?.command_header();
        let txn = request.into_inner();
        self.check_learner(false)?;
        quota::check(&self.node, check::cost_of_txn(&txn)).await?;
        check::txn(&txn, self.node.limits().txn_ops).map_err(status::of_request)?;
        let answer = if convert::is_read_only(&txn) {
            self.linearize(convert::is_serializable(&txn)).await?;
            self.read_txn(txn).await?
        } else {
            let command = InternalRaftRequest {
                header: Some(header),
                txn: Some(txn),
                ..InternalRaftRequest::default()
            };
            match self.propose(command).await? {
                Answer::Txn(answer) => answer,
                _ => return Err(wrong_answer()),
            }
        };
        let bytes = convert::txn_bytes(&answer);
        let permit =
            (bytes >= LARGE_ANSWER_BYTES).then(|| self.budget.reserve(bytes)).transpose()?;
        let header = self.node.header(answer.revision);
        let mut response = Response::new(convert::txn_response(header, answer));
        if let Some(permit) = permit {
            Held::set(&mut response, permit);
        }
        Ok(response)
    }

    async fn compact(&self, request: Request<CompactionRequest>) -> Rpc<CompactionResponse> {
        let header = RequestContext::of(&request)?.command_header();
        let compaction = request.into_inner();
        let (revision, physical) = (compaction.revision, compaction.physical);
        let command = InternalRaftRequest {
            header: Some(header),
            compaction: Some(compaction),
            ..InternalRaftRequest::default()
        };
        let Answer::Compact { revision: current } = self.propose(command).await? else {
            return Err(wrong_answer());
        };
        if physical {
            let done = self.node.compaction_done(revision).await;
            done.map_err(|refused| status::of_refused(&refused))?;
        }
        Ok(Response::new(CompactionResponse { header: Some(self.node.header(current)) }))
    }
}

impl<N: Node> Kv<N> {
    fn hold(&self, rows: &[Bytes]) -> Result<Option<Permit>, Status> {
        let bytes: u64 = rows.iter().map(|row| row.len() as u64 + ROW_OVERHEAD_BYTES).sum();
        (bytes >= LARGE_ANSWER_BYTES).then(|| self.budget.reserve(bytes)).transpose()
    }

    async fn read_txn(&self, txn: TxnRequest) -> Result<TxnAnswer, Status> {
        let result = if convert::is_of_single_keys(&txn) {
            self.node.read_txn(&txn)
        } else {
            let node = self.node.clone();
            self.pool.run(move || node.read_txn(&txn)).await?
        };
        result.map_err(|error| status::of_read(&error))
    }
}
