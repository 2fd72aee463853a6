//! The Watch service.

use super::context::RequestContext;
use super::node::Node;
use super::watch_session::{Session, until_stop};
use crate::node::Handle;
use crate::proto::etcdserverpb::watch_server;
use crate::proto::etcdserverpb::{WatchRequest, WatchResponse};
use std::pin::Pin;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// The Watch service. Every stream is served by the task of its connection; the hub thread does the
/// matching.
#[derive(Clone)]
pub struct Watch {
    node: Handle,
}

impl Watch {
    /// Of this node.
    #[must_use]
    pub fn new(node: Handle) -> Self {
        Self { node }
    }
}

#[tonic::async_trait]
impl watch_server::Watch for Watch {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        // Nothing is served outside the method table; permissions on keys are checked for each
        // create request once there are users.
        RequestContext::of(&request)?;
        let node = self.node.clone();
        let session = Session::new(
            request.into_inner(),
            self.node.watch().open(),
            move |revision| node.header(revision),
            until_stop(self.node.stopping(), self.node.fenced()),
        );
        Ok(Response::new(Box::pin(session)))
    }
}
