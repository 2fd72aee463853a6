//! TLS connections. Not built yet: they are closed with one log line.

use super::conn::ConnInfo;

/// Says why a TLS client was sent away. The socket is dropped by the caller.
pub(super) fn refuse(info: &ConnInfo) {
    tracing::warn!(
        remote = %info.remote,
        endpoint = info.port.as_str(),
        "rejected connection: the client began a TLS handshake, but this listener is plain; use an \
         http:// endpoint"
    );
}
