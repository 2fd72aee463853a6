//! Counting of calls, behind a trait: the metrics registry belongs to somebody else.

use super::method::Method;
use crate::telemetry::clock;
use std::sync::Arc;
use tonic::Code;

/// Told of every call; called on edge threads, must be cheap.
pub trait GrpcObserver: Send + Sync + 'static {
    /// A call began (`grpc_server_started_total`).
    fn started(&self, method: Method);
    /// A call ended after `ns` nanoseconds (`grpc_server_handled_total`, `..._handling_seconds`).
    /// A call whose client went away ends as `Canceled`.
    fn finished(&self, method: Method, code: Code, ns: u64);
    /// A message came; `bytes` of its payload as sent (`grpc_server_msg_received_total`).
    fn msg_received(&self, method: Method, bytes: u64);
    /// A message went out (`grpc_server_msg_sent_total`).
    fn msg_sent(&self, method: Method, bytes: u64);
    /// A client named its API version (`etcd_server_client_requests_total`). The text is client
    /// input: bound it before it becomes a label.
    fn client_version(&self, _method: Method, _version: &str) {}
}

/// Counts nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl GrpcObserver for NoObserver {
    fn started(&self, _: Method) {}
    fn finished(&self, _: Method, _: Code, _: u64) {}
    fn msg_received(&self, _: Method, _: u64) {}
    fn msg_sent(&self, _: Method, _: u64) {}
}

/// One running call; reports its end exactly once, as `Canceled` when it is dropped.
pub(super) struct Track {
    observer: Arc<dyn GrpcObserver>,
    method: Method,
    started_ns: u64,
    done: bool,
}

impl Track {
    pub(super) fn start(observer: Arc<dyn GrpcObserver>, method: Method) -> Self {
        observer.started(method);
        Self { observer, method, started_ns: clock::now_ns(), done: false }
    }

    pub(super) fn finish(&mut self, code: Code) {
        if !std::mem::replace(&mut self.done, true) {
            let ns = clock::now_ns().saturating_sub(self.started_ns);
            self.observer.finished(self.method, code, ns);
        }
    }

    pub(super) fn sent(&self, bytes: u32) {
        self.observer.msg_sent(self.method, u64::from(bytes));
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        self.finish(Code::Cancelled);
    }
}
