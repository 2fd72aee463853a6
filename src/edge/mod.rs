//! Every listener of every port: bound first, then served: HTTP/1, HTTP/2 and gRPC on one socket,
//! plain or in TLS.
//!
//! One OS thread per core runs one current-thread tokio runtime each. The first runtime accepts and
//! deals the connections round robin. `edge` knows nothing of the API: the caller hands in, per
//! port, a gRPC service and an HTTP router ([`Routes`]).
//!
//! ```text
//! reserve ──> Reserved ──> Bound ──> Edge::serve ──> accept ──> [TLS] ──> sniff
//!     sniff ──> HTTP/2 (guarded) ──┬─> Routes.rpc
//!       └─────> HTTP/1 ────────────┴─> Routes.http
//! ```

mod accept;
mod authority;
mod conn;
mod drain;
mod frames;
mod guard;
mod limits;
mod listen;
mod pings;
mod route;
mod runtime;
mod share;
pub mod tls;

#[cfg(test)]
mod tests;

pub use conn::{Closed, ConnInfo, Remote, from_this_machine, is_encrypted, is_trusted, origin};
pub use drain::Drained;
pub use limits::{
    Caps, ConnObserver, Counters, FD_LIMIT_LEAST, Limits, NoObserver, raise_fd_limit,
};
pub use listen::{Address, Bound, ListenError, Port, Reserved, Spec, bind, reserve};
pub use route::{Elsewhere, NoRpc, Routes, Rpc};
pub use runtime::{Edge, Options};
pub use tls::{Failure, Tls, TlsError};
