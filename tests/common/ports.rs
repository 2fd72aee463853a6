//! Free loopback ports.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports are taken below the range from which the kernel numbers outgoing connections (32768 and
/// up on Linux): a port tried as free here is not handed to some client before the node binds it.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A loopback TCP port that nobody listens on. Never the same twice in one process; processes that
/// run at the same time start at different places.
pub fn free_port() -> u16 {
    let start = (std::process::id().wrapping_mul(131) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + ((u32::from(start) + u32::from(step)) % u32::from(COUNT)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free loopback port in {FIRST}..{}", FIRST + COUNT);
}
