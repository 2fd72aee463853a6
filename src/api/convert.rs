//! Between protobuf messages and the types of `mvcc` and `machine`.

use super::status;
use crate::machine::{OpAnswer, TxnAnswer};
use crate::proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use crate::proto::etcdserverpb::request_op::Request as Op;
use crate::proto::etcdserverpb::response_op::Response as Answered;
use crate::proto::etcdserverpb::{
    DeleteRangeResponse, PutResponse, RangeRequest, RangeResponse, RequestOp, ResponseHeader,
    ResponseOp, TxnRequest, TxnResponse,
};
use tonic::Status;

/// Streams come in key order and unfiltered only.
pub(super) fn check_stream(request: &RangeRequest) -> Result<(), Status> {
    let unordered = request.sort_order == SortOrder::None as i32;
    let ascending = request.sort_order == SortOrder::Ascend as i32;
    if !(unordered || ascending) || request.sort_target != SortTarget::Key as i32 {
        return Err(status::STREAM_SORT.into());
    }
    let filters = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    if filters.iter().any(|filter| *filter != 0) {
        return Err(status::STREAM_FILTERS.into());
    }
    Ok(())
}

fn ops(txn: &TxnRequest) -> impl Iterator<Item = &RequestOp> {
    txn.success.iter().chain(&txn.failure)
}

/// Whether all operations of both branches are ranges; a nested transaction makes it a write.
pub(super) fn is_read_only(txn: &TxnRequest) -> bool {
    ops(txn).all(|op| matches!(op.request, Some(Op::RequestRange(_))))
}

/// Whether all ranges are serializable, also when there are none.
pub(super) fn is_serializable(txn: &TxnRequest) -> bool {
    ops(txn).all(|op| match &op.request {
        Some(Op::RequestRange(range)) => range.serializable,
        _ => false,
    })
}

/// Whether a read-only transaction touches single keys only.
pub(super) fn is_of_single_keys(txn: &TxnRequest) -> bool {
    txn.compare.iter().all(|compare| compare.range_end.is_empty())
        && ops(txn).all(|op| match &op.request {
            Some(Op::RequestRange(range)) => range.range_end.is_empty(),
            _ => false,
        })
}

/// Bytes of rows in an answer.
pub(super) fn txn_bytes(answer: &TxnAnswer) -> u64 {
    let rows = |rows: &[bytes::Bytes]| rows.iter().map(|row| row.len() as u64).sum::<u64>();
    let op = |op: &OpAnswer| match op {
        OpAnswer::Range { result, .. } => rows(&result.kvs),
        OpAnswer::Put { prev_kv, .. } => rows(prev_kv.as_slice()),
        OpAnswer::DeleteRange { prev_kvs, .. } => rows(prev_kvs),
        OpAnswer::Txn(nested) => txn_bytes(nested),
    };
    answer.results.iter().map(op).sum()
}

/// The message of an answer. Headers inside it carry a revision only.
pub(super) fn txn_response(header: ResponseHeader, answer: TxnAnswer) -> TxnResponse {
    TxnResponse {
        header: Some(header),
        succeeded: answer.succeeded,
        responses: answer.results.into_iter().map(response_op).collect(),
    }
}

fn response_op(answer: OpAnswer) -> ResponseOp {
    let header = |revision| Some(ResponseHeader { revision, ..ResponseHeader::default() });
    let response = match answer {
        OpAnswer::Range { revision, result } => Answered::ResponseRange(RangeResponse {
            header: header(revision),
            kvs: result.kvs,
            more: result.more,
            count: result.count,
        }),
        OpAnswer::Put { revision, prev_kv } => Answered::ResponsePut(PutResponse {
            header: header(revision),
            prev_kv: prev_kv.unwrap_or_default(),
        }),
        OpAnswer::DeleteRange { revision, deleted, prev_kvs } => {
            Answered::ResponseDeleteRange(DeleteRangeResponse {
                header: header(revision),
                deleted,
                prev_kvs,
            })
        }
        OpAnswer::Txn(nested) => {
            let revision = nested.revision;
            let header = ResponseHeader { revision, ..ResponseHeader::default() };
            Answered::ResponseTxn(txn_response(header, nested))
        }
    };
    ResponseOp { response: Some(response) }
}
