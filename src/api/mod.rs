//! The etcd v3 gRPC API of a node.
//!
//! Every call enters through one table ([`Method`]); what has no row is not served. [`Server`] is
//! the tower service of one edge runtime: it finds the method, keeps etcd's rules for calls, counts
//! ([`GrpcObserver`]) and passes the call to a generated service. Protobuf types stop here.
//!
//! `status` is the only place where our errors become gRPC codes and texts.

mod auth;
mod body;
mod budget;
mod cluster;
mod context;
mod convert;
mod health;
mod keep_alive;
mod kv;
mod lease;
mod maintenance;
mod method;
mod node;
mod observer;
mod quota;
mod rows_body;
mod server;
pub mod status;
mod stream;
mod watch;
mod watch_session;
mod wire;

#[cfg(test)]
mod tests;

pub use body::{ReplyBody, RequestBody};
pub use budget::{Budget, POOL_QUEUE, POOL_THREADS, Permit, Pool};
pub use context::{Identity, RequestContext};
pub use kv::Kv;
pub use lease::Lease;
pub use maintenance::SHORT_OF_SPACE;
pub use method::{Method, Rights, Service, Shape};
pub use node::Node;
pub use observer::{GrpcObserver, NoObserver};
pub use quota::check as check_quota;
pub use server::{Call, CallBody, Server};
pub use watch::Watch;

use crate::mvcc::{KeyRange, RangeQuery};
use crate::node::Handle;
pub use tonic::Code;

use crate::proto::etcdserverpb::auth_server::AuthServer;
use crate::proto::etcdserverpb::cluster_server::ClusterServer;
use crate::proto::etcdserverpb::lease_server::LeaseServer;
use crate::proto::etcdserverpb::maintenance_server::MaintenanceServer;
use crate::proto::etcdserverpb::watch_server::WatchServer;
use bytes::Bytes;
use std::sync::Arc;
use tonic_health::pb::health_server::HealthServer;

/// Share of `--memory-budget` for the bytes of answers in flight, percent. The rest is for the
/// store's cache, pending rows and watch buffers.
const ANSWERS_PERCENT: u64 = 25;

/// KV, Cluster, Maintenance, Auth and Health of a node. Clone it for each runtime: clones share the
/// budget of answers in flight and the pool for large reads.
pub fn service<N: Node>(node: &N, observer: Arc<dyn GrpcObserver>) -> Server<N> {
    let budget = Budget::new(node.limits().memory_budget / 100 * ANSWERS_PERCENT);
    let pool = Arc::new(Pool::default());
    let kv = Kv::new(node.clone(), budget, Arc::clone(&pool));
    let maintenance = maintenance::Maintenance::new(node.clone(), pool);
    let gzip = tonic::codec::CompressionEncoding::Gzip;
    let server = Server::new(node.clone(), kv, observer);
    let max = server.max_message();
    server
        .register(
            Service::Cluster,
            ClusterServer::new(cluster::Cluster::new(node.clone()))
                .accept_compressed(gzip)
                .max_decoding_message_size(max),
        )
        .register(
            Service::Maintenance,
            MaintenanceServer::new(maintenance)
                .accept_compressed(gzip)
                .max_decoding_message_size(max),
        )
        .register(
            Service::Auth,
            AuthServer::new(auth::Auth::new(node.clone()))
                .accept_compressed(gzip)
                .max_decoding_message_size(max),
        )
        .register(
            Service::Health,
            HealthServer::new(health::Health::new(node.clone()))
                .accept_compressed(gzip)
                .max_decoding_message_size(max),
        )
}

/// Everything a node serves: [`service`] with Watch and Lease.
pub fn node_service(node: &Handle, observer: Arc<dyn GrpcObserver>) -> Server<Handle> {
    let gzip = tonic::codec::CompressionEncoding::Gzip;
    let server = service(node, observer);
    let max = server.max_message();
    server
        .register(
            Service::Watch,
            WatchServer::new(Watch::new(node.clone()))
                .accept_compressed(gzip)
                .max_decoding_message_size(max),
        )
        .register(
            Service::Lease,
            LeaseServer::new(Lease::new(node.clone()))
                .accept_compressed(gzip)
                .max_decoding_message_size(max),
        )
}

/// The read behind the health endpoints: one key, through the quorum or locally.
///
/// # Errors
/// The text a client would get.
pub async fn health_read<N: Node>(node: &N, linearizable: bool) -> Result<(), String> {
    if linearizable {
        let done = node.linearize().await;
        done.map_err(|refused| status::of_refused(&refused).message().to_owned())?;
    }
    let mut query = RangeQuery::new(KeyRange::single(Bytes::from_static(b"\0")));
    query.keys_only = true;
    let read = node.range(&query);
    read.map(|_| ()).map_err(|error| status::of_read(&error).message().to_owned())
}
