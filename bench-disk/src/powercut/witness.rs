//! The machine that keeps its power and remembers what was acknowledged.

use super::MESSAGE;
use crate::ProbeError;
use crate::bounded;
use crate::verdict::replace;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long one wait for a message or a writer takes at most.
const TICK: Duration = Duration::from_millis(100);

/// The ledger is written this often while numbers arrive.
const KEEP: Duration = Duration::from_millis(200);

/// A ledger is two numbers: a larger file is none.
const MAX_FILE_BYTES: u64 = 1 << 10;

/// What the witness knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// The writer's run.
    pub run: u64,
    /// Highest number whose sync had returned.
    pub acknowledged: u64,
}

impl Ledger {
    /// Reads a ledger.
    pub fn load(path: &Path) -> Result<Self, ProbeError> {
        bounded::read(path, MAX_FILE_BYTES)
            .and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::other))
            .map_err(ProbeError::io("read the ledger", path))
    }

    fn store(&self, path: &Path) -> Result<(), ProbeError> {
        serde_json::to_vec(self)
            .map_err(io::Error::other)
            .and_then(|bytes| replace(path, &bytes))
            .map_err(ProbeError::io("write the ledger", path))
    }
}

/// Listens to one writer until `interrupt` is set or the writer is gone in order, and keeps the
/// ledger up to date. A writer without power just falls silent: then interrupt it. `ready` is told
/// the address.
pub fn witness(
    listen: &str,
    ledger: &Path,
    interrupt: &AtomicBool,
    ready: &mut dyn FnMut(std::net::SocketAddr),
) -> Result<Option<Ledger>, ProbeError> {
    let listener = TcpListener::bind(listen).map_err(ProbeError::io("listen at", listen))?;
    listener.set_nonblocking(true).map_err(ProbeError::io("set up", listen))?;
    ready(listener.local_addr().map_err(ProbeError::io("set up", listen))?);
    let mut peer = loop {
        if interrupt.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match listener.accept() {
            Ok((peer, _)) => break peer,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(TICK),
            Err(error) => return Err(ProbeError::io("accept a writer at", listen)(error)),
        }
    };
    peer.set_nonblocking(false)
        .and_then(|()| peer.set_read_timeout(Some(TICK)))
        .map_err(ProbeError::io("set up the connection at", listen))?;
    let mut known: Option<Ledger> = None;
    let mut kept = None;
    let mut since = Instant::now();
    let (mut message, mut filled) = ([0; MESSAGE], 0);
    loop {
        let over = match peer.read(&mut message[filled..]) {
            Ok(0) => true,
            Ok(bytes) => {
                filled += bytes;
                interrupt.load(Ordering::Relaxed)
            }
            Err(error) if silent(&error) => interrupt.load(Ordering::Relaxed),
            // The writer's machine came back and knows nothing of this connection.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => true,
            Err(error) => return Err(ProbeError::io("listen to the writer at", listen)(error)),
        };
        if filled == MESSAGE {
            filled = 0;
            let word = |at: usize| {
                message[at..at + 8].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
            };
            known = Some(Ledger { run: word(0), acknowledged: word(8) });
        }
        if known != kept
            && (over || filled == 0 && since.elapsed() >= KEEP)
            && let Some(now) = known
        {
            now.store(ledger)?;
            (kept, since) = (known, Instant::now());
        }
        if over {
            return Ok(known);
        }
    }
}

fn silent(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
