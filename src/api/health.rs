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

    /// The state now and, when the node stops, NOT_SERVING; unknown services are told so and wait.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let known = request.into_inner().service.is_empty();
        let first = if known { self.serving() } else { ServingStatus::ServiceUnknown };
        let (send, receive) = tokio::sync::mpsc::channel(2);
        // There is room for two: neither send can fail or wait.
        let _ = send.try_send(Ok(answer(first)));
        let mut stopping = self.node.stopping();
        tokio::spawn(async move {
            tokio::select! {
                // The client is gone.
                () = send.closed() => {}
                _ = stopping.wait_for(|stopping| *stopping) => {
                    if known {
                        let _ = send.try_send(Ok(answer(ServingStatus::NotServing)));
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(receive))))
    }
}
