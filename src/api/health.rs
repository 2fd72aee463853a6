//! `grpc.health.v1.Health`: the service `""` only, as etcd registers it.

use super::node::Node;
use std::pin::Pin;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// The Health service.
#[derive(Clone)]
pub(super) struct Health<N> {
    node: N,
}

impl<N: Node> Health<N> {
    /// Of this node.
    pub(super) fn new(node: N) -> Self {
        Self { node }
    }

    fn serving(&self) -> ServingStatus {
        if self.node.is_ready() { ServingStatus::Serving } else { ServingStatus::NotServing }
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status as i32 }
}

#[tonic::async_trait]
impl<N: Node> health_server::Health for Health<N> {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !request.into_inner().service.is_empty() {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(answer(self.serving())))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// The state now and at each change: NOT_SERVING when the node stops, which ends the stream, and
    /// while it is fenced. Unknown services are told so and wait.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let known = request.into_inner().service.is_empty();
        let (send, receive) = tokio::sync::mpsc::channel(1);
        let (mut stopping, mut fenced) = (self.node.stopping(), self.node.fenced());
        let health = self.clone();
        tokio::spawn(async move {
            let mut said = None;
            loop {
                let ends = *stopping.borrow_and_update();
                fenced.borrow_and_update();
                let now = if known { health.serving() } else { ServingStatus::ServiceUnknown };
                if said != Some(now) && send.send(Ok(answer(now))).await.is_err() {
                    return;
                }
                said = Some(now);
                if ends {
                    return;
                }
                // An error means that the node is gone.
                let more = tokio::select! {
                    // The client is.
                    () = send.closed() => false,
                    changed = stopping.changed() => changed.is_ok(),
                    changed = fenced.changed() => changed.is_ok(),
                };
                if !more {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(receive))))
    }
}
