//! Binding of TCP and Unix sockets, before anything is served.
//!
//! All addresses of a start are taken before anything else happens ([`reserve`]), so that a taken
//! port is one clear error at once instead of a half-reachable node. A reserved TCP address is bound
//! and does not listen: to a client the port looks closed, as it should until the node may serve.
//! A Unix socket has a file, which must not be left behind by a start that is refused; it is only
//! looked at, and made by [`Reserved::listen`].

use super::tls::Tls;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage, sockopt};
use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Connections that may wait for `accept`; the kernel cuts it to `net.core.somaxconn`. The 128 of
/// the standard library overflows when a few thousand clients come back after a restart.
const BACKLOG: i32 = 4096;

/// What a listener is for; decides which routes it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// `--listen-client-urls`.
    Client,
    /// `--listen-peer-urls`.
    Peer,
    /// `--listen-metrics-urls`.
    Metrics,
}

impl Port {
    /// Number of kinds, for arrays indexed by [`Port::index`].
    pub const COUNT: usize = 3;
    /// Every kind, in the order of [`Port::index`].
    pub const ALL: [Port; Port::COUNT] = [Port::Client, Port::Peer, Port::Metrics];

    /// Position in arrays of [`Port::COUNT`].
    pub fn index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::Peer => 1,
            Self::Metrics => 2,
        }
    }

    /// Label in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Peer => "peer",
            Self::Metrics => "metrics",
        }
    }
}

/// A place to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`; host is an IP address, a name or empty (all interfaces).
    Tcp(String),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

/// A listen URL and the flag it came from.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Name of the flag without dashes, for error texts.
    pub flag: &'static str,
    /// The URL as given.
    pub url: String,
    /// What is served there.
    pub port: Port,
    /// `--socket-reuse-port`: processes that all ask for it share a TCP address.
    pub reuse_port: bool,
}

/// Why an address could not be bound. Every text says which flag, which address and what to do.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The URL cannot be understood.
    #[error("--{flag}: {url:?} is not a listen address: {why}")]
    Url {
        /// Flag name.
        flag: &'static str,
        /// The URL as given.
        url: String,
        /// What is wrong and what is accepted.
        why: &'static str,
    },
    /// Somebody else listens there.
    #[error(
        "--{flag}: {url} is already in use: stop the process that listens there (`ss -ltnp` names \
         it) or give --{flag} another address"
    )]
    InUse {
        /// Flag name.
        flag: &'static str,
        /// The URL as given.
        url: String,
    },
    /// No permission for this port or path.
    #[error(
        "--{flag}: no permission to listen on {url}: use a port above 1023, a directory this user \
         may write to, or grant CAP_NET_BIND_SERVICE"
    )]
    Permission {
        /// Flag name.
        flag: &'static str,
        /// The URL as given.
        url: String,
    },
    /// No interface of this machine has the address.
    #[error(
        "--{flag}: no interface of this machine has the address of {url}: check it with `ip addr`"
    )]
    NoInterface {
        /// Flag name.
        flag: &'static str,
        /// The URL as given.
        url: String,
    },
    /// Anything else the operating system says.
    #[error("--{flag}: cannot listen on {url}: {source}")]
    Other {
        /// Flag name.
        flag: &'static str,
        /// The URL as given.
        url: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl ListenError {
    /// Whether another process holds the address: the default metrics port may then be skipped.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }

    fn from_io(spec: &Spec, source: io::Error) -> Self {
        let (flag, url) = (spec.flag, spec.url.clone());
        match source.kind() {
            ErrorKind::AddrInUse => Self::InUse { flag, url },
            ErrorKind::PermissionDenied => Self::Permission { flag, url },
            ErrorKind::AddrNotAvailable => Self::NoInterface { flag, url },
            _ => Self::Other { flag, url, source },
        }
    }
}

/// An open socket nobody accepts from yet; the kernel already queues connections.
#[derive(Debug)]
pub struct Bound {
    pub(super) socket: Socket,
    pub(super) url: String,
    pub(super) port: Port,
    /// Whether plain HTTP, TLS or both were asked for.
    pub(super) plain: bool,
    pub(super) tls: bool,
    pub(super) secured: Option<Arc<Tls>>,
}

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, Unlink),
}

/// Removes the file of a Unix socket when the listener goes.
#[derive(Debug)]
pub(super) struct Unlink(PathBuf);

impl Drop for Unlink {
    fn drop(&mut self) {
        // A file that is gone already is what we want; nothing else can be done here.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Bound {
    /// The URL as it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What is served here.
    pub fn port(&self) -> Port {
        self.port
    }

    /// Whether the scheme asks for TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Whether it asks for TLS and was not given what it needs for it.
    pub fn lacks_certificate(&self) -> bool {
        self.tls && self.secured.is_none()
    }

    /// Hands in what a socket that asks for TLS needs; others are left as they are.
    pub fn secure(&mut self, tls: &Arc<Tls>) {
        if self.tls {
            self.secured = Some(Arc::clone(tls));
        }
    }

    /// The bound TCP address (with the port the kernel chose for port zero).
    pub fn local_addr(&self) -> Option<std::net::SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }
}

impl Spec {
    /// Splits the URL into address and "wants TLS".
    ///
    /// # Errors
    /// [`ListenError::Url`] if the scheme is unknown, the port is missing or a path is given.
    pub fn parse(&self) -> Result<(Address, bool), ListenError> {
        let bad = |why| ListenError::Url { flag: self.flag, url: self.url.clone(), why };
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return Err(bad("expected http://HOST:PORT, https://HOST:PORT or unix://PATH"));
        };
        let tls = matches!(scheme, "https" | "unixs");
        match scheme {
            "unix" | "unixs" if rest.is_empty() => Err(bad("the path of the socket is missing")),
            "unix" | "unixs" => Ok((Address::Unix(PathBuf::from(rest)), tls)),
            "http" | "https" => {
                let host = rest.strip_suffix('/').unwrap_or(rest);
                if host.contains('/') {
                    return Err(bad("a listen address has no path"));
                }
                let Some((name, port)) = host.rsplit_once(':') else {
                    return Err(bad("the port is missing"));
                };
                if port.parse::<u16>().is_err() {
                    return Err(bad("the port is not a number from 0 to 65535"));
                }
                let name = if name.is_empty() { "0.0.0.0" } else { name };
                Ok((Address::Tcp(format!("{name}:{port}")), tls))
            }
            _ => Err(bad("the scheme must be http, https, unix or unixs")),
        }
    }
}

/// An address that this process holds and does not listen on yet.
#[derive(Debug)]
pub struct Reserved {
    spec: Spec,
    address: Address,
    place: Place,
    plain: bool,
    tls: bool,
}

#[derive(Debug)]
enum Place {
    Tcp(OwnedFd, SocketAddr),
    Unix(PathBuf),
}

/// Takes the address without listening on it; `others` were taken before by this start.
///
/// # Errors
/// A [`ListenError`] that names the flag, the address and what to do.
pub fn reserve(spec: &Spec, others: &[Reserved]) -> Result<Reserved, ListenError> {
    let (address, tls) = spec.parse()?;
    let place = match &address {
        Address::Tcp(address) => reserve_tcp(address, spec.reuse_port),
        Address::Unix(path) => reserve_unix(path),
    }
    .map_err(|source| ListenError::from_io(spec, source))?;
    // Two sockets that do not listen may hold one address; the kernel refuses only the second
    // listen(), which comes too late to be told before the disk is measured.
    if others.iter().any(|other| other.place.collides(&place)) {
        return Err(ListenError::from_io(spec, ErrorKind::AddrInUse.into()));
    }
    Ok(Reserved { spec: spec.clone(), address, place, plain: !tls, tls })
}

/// Takes the address and listens on it.
///
/// # Errors
/// As [`reserve`].
pub fn bind(spec: &Spec) -> Result<Bound, ListenError> {
    reserve(spec, &[])?.listen()
}

impl Reserved {
    /// What will be served there.
    pub fn port(&self) -> Port {
        self.spec.port
    }

    /// Serves `spec` on this socket too, if both are the same address for the same purpose, one with
    /// TLS and the other without. `false`: it needs a socket of its own.
    ///
    /// # Errors
    /// As [`Spec::parse`].
    pub fn share(&mut self, spec: &Spec) -> Result<bool, ListenError> {
        let (address, tls) = spec.parse()?;
        let same = address == self.address && spec.port == self.spec.port;
        // Port zero is another port every time.
        let zero = matches!(&address, Address::Tcp(address) if address.ends_with(":0"));
        if !same || zero || self.tls == tls && self.plain != tls {
            return Ok(false);
        }
        (self.plain, self.tls) = (true, true);
        Ok(true)
    }

    /// Opens the socket. Connections queue in the kernel until [`super::Edge::serve`].
    ///
    /// # Errors
    /// As [`reserve`]: another process may have been faster to listen.
    pub fn listen(self) -> Result<Bound, ListenError> {
        let Self { spec, place, plain, tls, .. } = self;
        let socket = match place {
            Place::Tcp(socket, _) => listen_tcp(socket),
            Place::Unix(path) => bind_unix(&path),
        }
        .map_err(|source| ListenError::from_io(&spec, source))?;
        Ok(Bound { socket, url: spec.url, port: spec.port, plain, tls, secured: None })
    }
}

impl Place {
    fn collides(&self, other: &Place) -> bool {
        match (self, other) {
            (Self::Tcp(_, a), Self::Tcp(_, b)) => {
                let every = a.ip().is_unspecified() || b.ip().is_unspecified();
                a.port() != 0 && a.port() == b.port() && (every || a.ip() == b.ip())
            }
            (Self::Unix(a), Self::Unix(b)) => a == b,
            _ => false,
        }
    }
}

fn reserve_tcp(address: &str, reuse_port: bool) -> io::Result<Place> {
    let all: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    // A name stands for one address, and for IPv4 where there is one: the second address of
    // `localhost` must not hide that the first one is taken.
    let first = all.iter().find(|address| address.is_ipv4()).or(all.first());
    let address = *first.ok_or_else(|| io::Error::from(ErrorKind::AddrNotAvailable))?;
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // Connections of an earlier process in TIME_WAIT do not block the address.
    socket::setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    if reuse_port {
        socket::setsockopt(&socket, sockopt::ReusePort, &true)?;
    }
    socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(Place::Tcp(socket, address))
}

fn reserve_unix(path: &Path) -> io::Result<Place> {
    if UnixStream::connect(path).is_ok() {
        return Err(ErrorKind::AddrInUse.into());
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    nix::unistd::access(directory, nix::unistd::AccessFlags::W_OK)?;
    Ok(Place::Unix(path.to_path_buf()))
}

fn listen_tcp(socket: OwnedFd) -> io::Result<Socket> {
    socket::listen(&socket, socket::Backlog::new(BACKLOG)?)?;
    let listener = TcpListener::from(socket);
    // A peer that vanished without a word is found by the kernel, whatever protocol it spoke;
    // accepted sockets inherit these.
    socket::setsockopt(&listener, sockopt::KeepAlive, &true)?;
    socket::setsockopt(&listener, sockopt::TcpKeepIdle, &TCP_KEEPALIVE_IDLE_S)?;
    socket::setsockopt(&listener, sockopt::TcpKeepInterval, &TCP_KEEPALIVE_INTERVAL_S)?;
    socket::setsockopt(&listener, sockopt::TcpKeepCount, &TCP_KEEPALIVE_PROBES)?;
    listener.set_nonblocking(true)?;
    Ok(Socket::Tcp(listener))
}

/// Seconds of silence before the kernel probes a TCP peer (as etcd's listeners do).
const TCP_KEEPALIVE_IDLE_S: u32 = 30;
/// Seconds between probes.
const TCP_KEEPALIVE_INTERVAL_S: u32 = 30;
/// Unanswered probes after which the connection is dead.
const TCP_KEEPALIVE_PROBES: u32 = 3;

fn bind_unix(path: &Path) -> io::Result<Socket> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            // The file outlives a killed process. Only a socket nobody answers on is removed.
            if UnixStream::connect(path).is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    let unlink = Unlink(path.to_path_buf());
    // Connecting needs write permission: only the owner's processes get in.
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(Socket::Unix(listener, unlink))
}
