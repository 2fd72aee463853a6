//! Accepting and dealing out connections. Nothing a connection does can end this loop.

use super::conn::{self, ConnInfo, Remote, Shared, Transport};
use super::limits::Counters;
use super::listen::{Port, Socket, Unlink};
use super::route::{Routes, Rpc};
use super::share::Shares;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Handle;

/// First pause after `accept` ran out of file descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(10);
/// Longest pause; a descriptor freed meanwhile is used at most this much later.
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// A runtime and what it serves on one listener.
pub(super) struct Lane<G> {
    pub(super) runtime: Handle,
    pub(super) routes: Routes<G>,
}

/// One listener on the first runtime.
pub(super) struct Acceptor<G> {
    pub(super) port: Port,
    pub(super) transport: Transport,
    pub(super) lanes: Vec<Lane<G>>,
    pub(super) shares: Shares,
    pub(super) shared: Shared,
    pub(super) counters: Arc<Counters>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, #[expect(dead_code, reason = "removes the file when dropped")] Unlink),
}

enum Accepted {
    Tcp(TcpStream, std::net::SocketAddr),
    Unix(UnixStream),
}

impl Listener {
    fn new(socket: Socket) -> io::Result<Self> {
        Ok(match socket {
            Socket::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener)?),
            Socket::Unix(listener, unlink) => Self::Unix(UnixListener::from_std(listener)?, unlink),
        })
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                listener.accept().await.map(|(stream, from)| Accepted::Tcp(stream, from))
            }
            Self::Unix(listener, _) => {
                listener.accept().await.map(|(stream, _)| Accepted::Unix(stream))
            }
        }
    }
}

impl<G: Rpc> Acceptor<G> {
    /// Accepts until the edge stops.
    pub(super) async fn run(self, socket: Socket) {
        let listener = match Listener::new(socket) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, port = self.port.as_str(), "cannot serve a listener");
                return;
            }
        };
        let mut stop = self.shared.stop.clone();
        let mut pause = BACK_OFF;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok(accepted) => {
                    pause = BACK_OFF;
                    self.deal(accepted);
                }
                // The client was gone before we came to it; the next one may wait already.
                Err(error) if of_the_client(&error) => {}
                Err(error) => {
                    self.shared.observer.accept_failed(self.port);
                    if pause == BACK_OFF || pause == BACK_OFF_MAX {
                        tracing::warn!(%error, port = self.port.as_str(), "accept failed");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(BACK_OFF_MAX);
                }
            }
        }
    }

    fn deal(&self, accepted: Accepted) {
        let cap = self.shared.limits.connections.cap(self.port);
        let Some(place) = self.counters.admit(self.port, cap) else { return };
        let share = self.shares.choose(self.port);
        let turn = share.runtime();
        let place = (place, share);
        let lane = &self.lanes[turn];
        let (routes, shared, port) = (lane.routes.clone(), self.shared.clone(), self.port);
        let speaks = self.transport.clone();
        // A socket belongs to the runtime it was registered with: the first runtime's own
        // connections stay as they are, the others move as plain sockets.
        match accepted {
            Accepted::Tcp(stream, from) => {
                let info = ConnInfo::new(Remote::Tcp(from), port);
                // Answers are small and awaited; a failure here only costs latency.
                let _ = stream.set_nodelay(true);
                if turn == 0 {
                    lane.runtime.spawn(conn::serve(stream, info, speaks, routes, shared, place));
                } else if let Ok(stream) = stream.into_std() {
                    lane.runtime.spawn(async move {
                        if let Ok(stream) = TcpStream::from_std(stream) {
                            conn::serve(stream, info, speaks, routes, shared, place).await;
                        }
                    });
                }
            }
            Accepted::Unix(stream) => {
                let info = ConnInfo::new(Remote::Unix, port);
                if turn == 0 {
                    lane.runtime.spawn(conn::serve(stream, info, speaks, routes, shared, place));
                } else if let Ok(stream) = stream.into_std() {
                    lane.runtime.spawn(async move {
                        if let Ok(stream) = UnixStream::from_std(stream) {
                            conn::serve(stream, info, speaks, routes, shared, place).await;
                        }
                    });
                }
            }
        }
    }
}

fn of_the_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
