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

/// etcd's member object as a change carries it: add, remove or update of member `id`.
pub(super) fn change(kind: i32, id: u64, url: &str) -> Entry {
    #[derive(Clone, PartialEq, Message)]
    struct ConfChange {
        #[prost(uint64, tag = "1")]
        id: u64,
        #[prost(int32, tag = "2")]
        kind: i32,
        #[prost(uint64, tag = "3")]
        node_id: u64,
        #[prost(bytes = "bytes", tag = "4")]
        context: Bytes,
    }
    let context = format!(r#"{{"id":{id},"peerURLs":["{url}"],"name":"m{id}"}}"#).into();
    let change = ConfChange { id: 1, kind, node_id: id, context };
    Entry(KIND_CHANGE, Bytes::new(), change.encode_to_vec().into())
}
