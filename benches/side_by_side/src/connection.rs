//! One HTTP/2 connection on a tokio runtime: buffers, windows and the sums of answers.

use crate::error::{During, Error, Result};
use crate::http2::{Calls, Event, INITIAL_WINDOW, Incoming, OPENING};
use std::net::SocketAddr;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Bytes asked of the socket at once.
const READ_BYTES: usize = 256 << 10;

/// Path of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// One key and value.
    Put,
    /// One key or many.
    Range,
    /// Several operations.
    Txn,
    /// A stream of events.
    Watch,
    /// What a server says about itself.
    Status,
    /// Hash of all keys.
    HashKv,
}

impl Method {
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Put => "/etcdserverpb.KV/Put",
            Self::Range => "/etcdserverpb.KV/Range",
            Self::Txn => "/etcdserverpb.KV/Txn",
            Self::Watch => "/etcdserverpb.Watch/Watch",
            Self::Status => "/etcdserverpb.Maintenance/Status",
            Self::HashKv => "/etcdserverpb.Maintenance/HashKV",
        }
    }
}

/// A connection for calls of one method.
pub(crate) struct Connection {
    server: SocketAddr,
    socket: TcpStream,
    calls: Calls,
    incoming: Incoming,
    input: Vec<u8>,
    filled: usize,
    out: Vec<u8>,
    window: i64,
}

impl Connection {
    /// Connects and sends the opening.
    pub(crate) async fn open(server: SocketAddr, method: Method) -> Result<Self> {
        let socket = TcpStream::connect(server).await.during(|| format!("connect to {server}"))?;
        socket.set_nodelay(true).during(|| "TCP_NODELAY".into())?;
        Ok(Self::over(server, socket, method))
    }

    fn over(server: SocketAddr, socket: TcpStream, method: Method) -> Self {
        Self {
            server,
            socket,
            calls: Calls::new(method.path(), &server.to_string()),
            incoming: Incoming::default(),
            input: vec![0; READ_BYTES],
            filled: 0,
            out: OPENING.to_vec(),
            window: INITIAL_WINDOW,
        }
    }

    /// Appends a call if the window has room for it.
    ///
    /// # Errors
    /// The message is larger than the window that a stream begins with: it would wait for ever.
    pub(crate) fn push(&mut self, message: &[u8], last: bool) -> Result<Option<u32>> {
        let needed = Calls::window(message);
        if needed > INITIAL_WINDOW {
            let text = format!("a message of {needed} B, more than a stream's first window");
            return Err(Error::Answer(text));
        }
        if self.window < needed {
            return Ok(None);
        }
        self.window -= needed;
        Ok(Some(self.calls.push(&mut self.out, message, last)))
    }

    /// Sends what was pushed and waits for the server to send something; gives that to `sink`.
    pub(crate) async fn turn(
        &mut self,
        sink: impl FnMut(Event<'_>) -> std::result::Result<(), String>,
    ) -> Result<()> {
        self.try_send()?;
        loop {
            let want = if self.out.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let ready = self.socket.ready(want).await.during(|| self.word("wait for"))?;
            if ready.is_writable() {
                self.try_send()?;
            }
            if ready.is_readable() {
                match self.socket.try_read(&mut self.input[self.filled..]) {
                    Ok(0) => return Err(self.fault("the server closed the connection")),
                    Ok(read) => {
                        self.filled += read;
                        return self.deliver(sink);
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error).during(|| self.word("read from")),
                }
            }
        }
    }

    fn deliver(
        &mut self,
        mut sink: impl FnMut(Event<'_>) -> std::result::Result<(), String>,
    ) -> Result<()> {
        let (window, input) = (&mut self.window, &self.input[..self.filled]);
        let taken = self.incoming.read(input, &mut self.out, |event| match event {
            Event::Window(by) => {
                *window += by;
                Ok(())
            }
            other => sink(other),
        });
        let taken = taken.map_err(|what| self.fault(&what))?;
        self.input.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        self.try_send()
    }

    fn try_send(&mut self) -> Result<()> {
        let mut sent = 0;
        while sent < self.out.len() {
            match self.socket.try_write(&self.out[sent..]) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).during(|| self.word("write to")),
            }
        }
        self.out.drain(..sent);
        Ok(())
    }

    fn word(&self, what: &str) -> String {
        format!("{what} {}", self.server)
    }

    fn fault(&self, what: &str) -> Error {
        Error::Protocol { server: self.server.to_string(), what: what.into() }
    }
}

/// Counts the bytes of one answer and compares them with the length it announces.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sum {
    expected: u64,
    received: u64,
}

impl Sum {
    /// One more piece.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if self.received == 0
            && let Some([_, a, b, c, d]) = bytes.first_chunk()
        {
            self.expected = 5 + u64::from(u32::from_be_bytes([*a, *b, *c, *d]));
        }
        self.received += bytes.len() as u64;
    }

    /// Checks a finished answer: status 0, complete, and of at least `least` bytes.
    pub(crate) fn check(self, status: Option<u32>, least: u64) -> std::result::Result<(), String> {
        if status != Some(0) {
            return Err(format!("gRPC status {status:?} after {} B", self.received));
        }
        if self.received != self.expected || self.received < least {
            let Self { expected, received } = self;
            return Err(format!("{received} B of {expected} B, expected at least {least} B"));
        }
        Ok(())
    }
}

/// Makes one call on a connection of its own; returns the answer's message.
pub(crate) async fn call(server: SocketAddr, method: Method, message: &[u8]) -> Result<Vec<u8>> {
    let mut connection = Connection::open(server, method).await?;
    let (mut answer, mut end) = (Vec::new(), None);
    connection.push(message, true)?;
    while end.is_none() {
        let done = |event: Event<'_>| {
            match event {
                Event::Data { bytes, .. } => answer.extend_from_slice(bytes),
                Event::End { status, .. } => end = Some(status),
                Event::Window(_) => {}
            }
            Ok(())
        };
        connection.turn(done).await?;
    }
    let mut sum = Sum::default();
    sum.add(&answer);
    sum.check(end.flatten(), 0).map_err(Error::Answer)?;
    Ok(answer.split_off(5))
}
