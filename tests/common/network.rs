//! A network of the test's own.

use super::{require_root, skip};
use std::process::Command;

/// Gives the calling thread, and the processes it starts, a network in which all ports are free:
/// only then can the default ports be tested on any machine. Goes with the thread. `false` with a
/// visible word when the machine cannot (a failure when `CI` is set).
#[allow(unsafe_code, reason = "the safe wrapper is a feature of its crate that nothing else needs")]
pub fn own_network() -> bool {
    if !require_root("a network namespace") {
        return false;
    }
    // SAFETY: takes no pointer; it changes only what the calling thread sees of the network.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        skip(&format!("no network namespace: {}", std::io::Error::last_os_error()));
        return false;
    }
    match Command::new("ip").args(["link", "set", "lo", "up"]).status() {
        Ok(status) if status.success() => true,
        other => {
            skip(&format!("cannot bring the loopback interface up: {other:?}"));
            false
        }
    }
}
