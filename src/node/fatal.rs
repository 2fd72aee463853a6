//! The end of the process after a fault: said once, quickly, and without going on.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Exit code after a failed write or sync, or any other fault of the disk (`operations.md` 2).
pub const EXIT_IO: i32 = 74;

/// Exit code when this program must not go on with this data (`operations.md` 2): only a newer
/// version can, or the data contradicts the other members'.
pub const EXIT_DATA: i32 = 78;

/// Time given to the log and to the standard streams before the process ends.
const FLUSH_DEADLINE: Duration = Duration::from_secs(1);

static SAID: AtomicBool = AtomicBool::new(false);

/// Logs the reason and ends the process with [`EXIT_IO`], without destructors: nothing may be
/// written after a failed sync, not even by a tidy shutdown.
pub fn stop(what: &str, reason: &dyn Display) -> ! {
    end(EXIT_IO, || {
        tracing::error!(
            reason = %reason,
            "{what}: the node stops; nothing that was not synced counts as written"
        );
    })
}

/// As [`stop`], with [`EXIT_DATA`]: the log or the state holds what this version does not know.
/// Nothing of it was applied, so a newer version goes on where this one stops.
pub fn stop_for_newer(what: &str, reason: &dyn Display) -> ! {
    end(EXIT_DATA, || {
        tracing::error!(
            reason = %reason,
            exit_code = EXIT_DATA,
            "{what}: the node stops before it applies what it does not know; start a newer version of \
             the program on the same data directory"
        );
    })
}

/// As [`stop`], with [`EXIT_DATA`]: this member and another one cannot both be right.
pub fn stop_for_contradiction(why: &dyn Display) -> ! {
    end(EXIT_DATA, || {
        tracing::error!(
            reason = %why,
            exit_code = EXIT_DATA,
            "consensus: the node stops, because members contradict each other"
        );
    })
}

fn end(code: i32, say: impl FnOnce()) -> ! {
    if SAID.swap(true, Ordering::SeqCst) {
        // Another thread is on its way out with the first reason.
        loop {
            std::thread::park();
        }
    }
    say();
    crate::telemetry::logging::flush(FLUSH_DEADLINE);
    exit_now(code)
}

/// `_exit`: no destructors, no flushing of buffers that the fault may have left half-written.
#[expect(unsafe_code, reason = "_exit has no safe wrapper")]
fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes no pointers and does not return.
    unsafe { libc::_exit(code) }
}
