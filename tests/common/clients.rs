//! gRPC clients of the etcd v3 interface, and the raw rows in its answers.

use assay::proto::etcdserverpb::cluster_client::ClusterClient;
use assay::proto::etcdserverpb::kv_client::KvClient;
use assay::proto::etcdserverpb::lease_client::LeaseClient;
use assay::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use assay::proto::etcdserverpb::watch_client::WatchClient;
use assay::proto::mvccpb::{Event, KeyValue};
use bytes::Bytes;
use prost::Message;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// One connection and a client for each service on it. Cloning shares the connection.
#[derive(Clone, Debug)]
pub struct Clients {
    /// The connection.
    pub channel: Channel,
    /// Keys and values.
    pub kv: KvClient<Channel>,
    /// Watches.
    pub watch: WatchClient<Channel>,
    /// Leases.
    pub lease: LeaseClient<Channel>,
    /// Status, hashes, alarms.
    pub maintenance: MaintenanceClient<Channel>,
    /// Members.
    pub cluster: ClusterClient<Channel>,
}

/// Flow control window of a stream.
const WINDOW_BYTES: u32 = 4 << 20;

impl Clients {
    /// Connects to `http://HOST:PORT`.
    pub async fn connect(url: &str) -> Self {
        Self::try_connect(url).await.expect("connect to the server")
    }

    /// As [`Clients::connect`]; an error when nobody listens.
    pub async fn try_connect(url: &str) -> Result<Self, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(url.to_string()).expect("a URL");
        let endpoint = endpoint.connect_timeout(Duration::from_secs(10)).tcp_nodelay(true);
        // Answers of several megabytes are asked for: the window must not be the limit. The client
        // library also closes connections on which more small answers than fit into half of this
        // wait for a busy test.
        let endpoint = endpoint.initial_stream_window_size(WINDOW_BYTES);
        let endpoint = endpoint.initial_connection_window_size(4 * WINDOW_BYTES);
        Ok(Self::over(endpoint.connect().await?))
    }

    /// Clients over an existing connection. No limit on the size of answers.
    pub fn over(channel: Channel) -> Self {
        Self {
            kv: KvClient::new(channel.clone()).max_decoding_message_size(usize::MAX),
            watch: WatchClient::new(channel.clone()).max_decoding_message_size(usize::MAX),
            lease: LeaseClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel.clone()),
            cluster: ClusterClient::new(channel.clone()),
            channel,
        }
    }
}

/// Decodes a message kept as raw bytes (`build.rs` names those fields).
///
/// # Panics
/// When the bytes are no such message: the server answered garbage.
pub fn decode<M: Message + Default>(bytes: &Bytes) -> M {
    M::decode(bytes.clone()).expect("a well-formed message")
}

/// A row.
pub fn key_value(bytes: &Bytes) -> KeyValue {
    decode(bytes)
}

/// An event and its two rows: type, current row, row before.
///
/// The rows are fields of raw bytes, for which proto3 cannot tell absent from empty: empty is absent.
pub fn event(bytes: &Bytes) -> (i32, Option<KeyValue>, Option<KeyValue>) {
    let event: Event = decode(bytes);
    let row = |bytes: &Bytes| (!bytes.is_empty()).then(|| key_value(bytes));
    (event.r#type, row(&event.kv), row(&event.prev_kv))
}
