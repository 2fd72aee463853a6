//! SIGINT and SIGTERM ask the run to end; it cleans up and says so.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by the first signal. A second one ends the process at once.
pub(crate) static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Starts listening. Where that is not possible the signals keep their default effect.
#[allow(unsafe_code)]
pub(crate) fn listen() {
    let flags = SaFlags::SA_RESTART | SaFlags::SA_RESETHAND;
    let action = SigAction::new(SigHandler::Handler(note), flags, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
        let _ = unsafe { sigaction(signal, &action) };
    }
}
