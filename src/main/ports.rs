//! The listeners of a start: all addresses are taken at once, and opened when the node may serve.

use super::glue;
use super::tls::Sides;
use assay::config::Config;
use assay::edge::{self, Bound, ListenError, Port, Reserved};

/// Addresses that this process holds; to clients their ports are closed.
pub(crate) struct Ports(Vec<Reserved>);

/// Open sockets.
pub(crate) struct Open {
    pub(crate) clients: Vec<Bound>,
    pub(crate) peers: Vec<Bound>,
    pub(crate) metrics: Vec<Bound>,
}

impl Open {
    /// Takes out the sockets of `port` that can be served: plain ones, and those whose certificate
    /// is known by now.
    pub(crate) fn take_ready(&mut self, port: Port, sides: &Sides) -> Vec<Bound> {
        let list = match port {
            Port::Client => &mut self.clients,
            Port::Peer => &mut self.peers,
            Port::Metrics => &mut self.metrics,
        };
        sides.secure(list);
        let (waiting, ready) = std::mem::take(list).into_iter().partition(Bound::lacks_certificate);
        *list = waiting;
        ready
    }
}

impl Ports {
    /// Takes every address of the configuration.
    ///
    /// # Errors
    /// The first one that cannot be had, with its flag.
    pub(crate) fn reserve(config: &Config) -> Result<Self, ListenError> {
        let listen = &config.listen;
        let mut taken: Vec<Reserved> = Vec::new();
        for (flag, urls, port) in [
            ("listen-client-urls", &listen.client, Port::Client),
            ("listen-peer-urls", &listen.peer, Port::Peer),
            ("listen-metrics-urls", &listen.metrics, Port::Metrics),
        ] {
            for spec in glue::specs(flag, urls, port, listen.reuse_port) {
                let mut shared = false;
                for reserved in &mut taken {
                    shared = shared || reserved.share(&spec)?;
                }
                if shared {
                    continue;
                }
                taken.extend(optional(config, port, edge::reserve(&spec, &taken))?);
            }
        }
        Ok(Self(taken))
    }

    /// Listens. Nothing is accepted until the edge serves.
    ///
    /// # Errors
    /// An address that another process was faster to listen on.
    pub(crate) fn listen(self, config: &Config) -> Result<Open, ListenError> {
        let mut open = Open { clients: Vec::new(), peers: Vec::new(), metrics: Vec::new() };
        for reserved in self.0 {
            let port = reserved.port();
            let list = match port {
                Port::Client => &mut open.clients,
                Port::Peer => &mut open.peers,
                Port::Metrics => &mut open.metrics,
            };
            list.extend(optional(config, port, reserved.listen())?);
        }
        Ok(open)
    }
}

/// The metrics listener has a default address that another program may hold: then `/metrics` is
/// still on the client port. If it was asked for, not getting it is an error.
fn optional<T>(
    config: &Config,
    port: Port,
    result: Result<T, ListenError>,
) -> Result<Option<T>, ListenError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if port == Port::Metrics && !config.metrics_listener_explicit => {
            tracing::warn!(
                error = error.to_string(),
                "no metrics listener: metrics are served on the client port only"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
