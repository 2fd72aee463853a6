//! HTTP for people, load balancers and Prometheus: health, version, metrics, debug variables.
//!
//! Works before the node exists: everything is read through [`HealthSource`], [`MetricsSource`] and
//! [`DebugSource`], so the metrics port answers while the log is still being replayed.

mod access;
mod debug;
mod health;
mod metrics;
mod reply;

#[cfg(test)]
mod tests;

pub use access::Access;
pub use debug::{DebugSource, NotDone, TextFuture, Trust};
pub use health::{AlarmKind, HealthSource, Phase, ReadFuture, Versions};
pub use metrics::MetricsSource;

use axum::Router;
use axum::routing::any;
use std::sync::Arc;

/// Everything the HTTP endpoints are made of; cheap to clone.
#[derive(Clone)]
pub struct Admin {
    /// State of the node.
    pub health: Arc<dyn HealthSource>,
    /// Bytes of `/metrics`.
    pub metrics: Arc<dyn MetricsSource>,
    /// Values of `/debug/vars`.
    pub debug: Arc<dyn DebugSource>,
    /// Host and origin rules of the client port.
    pub access: Arc<Access>,
    /// Who may see `/debug` and change anything through it.
    pub trust: Trust,
}

impl Admin {
    /// Routes of the client port. `more` (the JSON gateway) is served under the same access rules.
    pub fn client_routes(&self, more: Router) -> Router {
        let routes = self
            .health_routes()
            .route("/metrics", any(metrics::serve).with_state(Arc::clone(&self.metrics)))
            .route("/version", any(health::version).with_state(Arc::clone(&self.health)))
            .route("/debug/vars", any(debug::vars).with_state(self.clone()))
            .route("/debug/upgrade", any(debug::upgrade).with_state(self.clone()))
            .route("/debug/upgrade/finalize", any(debug::finalize).with_state(self.clone()))
            .merge(more)
            .fallback(reply::not_found);
        access::guard(Arc::clone(&self.access), routes)
    }

    /// Routes of the metrics port.
    pub fn metrics_routes(&self) -> Router {
        self.health_routes()
            .route("/metrics", any(metrics::serve).with_state(Arc::clone(&self.metrics)))
            .fallback(reply::not_found)
    }

    /// Routes of the peer port as far as a single node has any.
    pub fn peer_routes(&self) -> Router {
        Router::new()
            .route("/version", any(health::version).with_state(Arc::clone(&self.health)))
            .fallback(reply::not_found)
    }

    fn health_routes(&self) -> Router {
        Router::new()
            .route("/health", any(health::health))
            .route("/livez", any(health::livez))
            .route("/livez/{check}", any(health::livez_one))
            .route("/readyz", any(health::readyz))
            .route("/readyz/{check}", any(health::readyz_one))
            .with_state(Arc::clone(&self.health))
    }
}
