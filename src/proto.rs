//! Generated messages and services of the etcd v3 interface (`proto/`).
//!
//! The fields named in `build.rs` (`RangeResponse.kvs`, `PutResponse.prev_kv`, ...) hold encoded
//! `mvccpb.KeyValue` or `mvccpb.Event` bytes, not decoded messages. Protobuf types stop at `api`,
//! `peer` and `machine::command`.
#![allow(missing_docs, unreachable_pub, clippy::all)]

pub mod codec;

/// `mvccpb`: rows and events.
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}
/// `authpb`: users, roles, permissions.
pub mod authpb {
    tonic::include_proto!("authpb");
}
/// `membershippb`: what the log says of members and of the cluster version.
pub mod membershippb {
    tonic::include_proto!("membershippb");
}
/// `etcdserverpb`: client interface and `InternalRaftRequest`.
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}
/// `leasepb`: stored lease.
pub mod leasepb {
    tonic::include_proto!("leasepb");
}
/// `v3electionpb`: election service.
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}
/// `v3lockpb`: lock service.
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}
/// `assay.peer.v1`: traffic between members.
pub mod peer {
    tonic::include_proto!("assay.peer.v1");
}
