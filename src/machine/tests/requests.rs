//! Short forms of requests.

use super::*;

pub(in crate::machine) fn bytes(s: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(s.as_ref())
}

pub(in crate::machine) fn put(key: &str, value: &str) -> pb::PutRequest {
    pb::PutRequest { key: bytes(key), value: bytes(value), ..Default::default() }
}

pub(in crate::machine) fn delete(key: &str, end: &str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: bytes(key), range_end: bytes(end), prev_kv: false }
}

pub(in crate::machine) fn get(key: &str, end: &str) -> pb::RangeRequest {
    pb::RangeRequest { key: bytes(key), range_end: bytes(end), ..Default::default() }
}

pub(in crate::machine) fn compact(revision: i64) -> InternalRaftRequest {
    pb::CompactionRequest { revision, physical: false }.into()
}

pub(in crate::machine) fn grant(id: i64, ttl: i64) -> InternalRaftRequest {
    pb::LeaseGrantRequest { id, ttl }.into()
}

pub(in crate::machine) fn revoke(id: i64) -> InternalRaftRequest {
    pb::LeaseRevokeRequest { id }.into()
}

pub(in crate::machine) fn alarm(action: i32, member_id: u64, alarm: i32) -> InternalRaftRequest {
    pb::AlarmRequest { action, member_id, alarm }.into()
}

pub(in crate::machine) fn op(request: Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

/// A transaction without compares.
pub(in crate::machine) fn txn(ops: Vec<Request>) -> pb::TxnRequest {
    pb::TxnRequest { success: ops.into_iter().map(op).collect(), ..Default::default() }
}

macro_rules! command {
    ($($message:ident $field:ident;)*) => {
        $(impl From<pb::$message> for InternalRaftRequest {
            fn from(message: pb::$message) -> Self {
                Self { $field: Some(message), ..Default::default() }
            }
        })*
    };
}

command! {
    PutRequest put;
    DeleteRangeRequest delete_range;
    TxnRequest txn;
    CompactionRequest compaction;
    LeaseGrantRequest lease_grant;
    LeaseRevokeRequest lease_revoke;
    LeaseCheckpointRequest lease_checkpoint;
    AlarmRequest alarm;
}
