//! CPU time and memory of a process.

use crate::error::{During, Result};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::time::Duration;

/// The CPU clock of a process: the sum of user and system time of its threads. The same counter as
/// in `/proc/PID/stat`, in nanoseconds instead of ticks of 10 ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu(ClockId);

impl Cpu {
    /// Clock of this process.
    pub(crate) fn own() -> Self {
        Self(ClockId::CLOCK_PROCESS_CPUTIME_ID)
    }

    /// Clock of another process.
    pub(crate) fn of(pid: i32) -> Result<Self> {
        Ok(Self(clock_getcpuclockid(Pid::from_raw(pid)).during(|| format!("CPU clock of {pid}"))?))
    }

    /// Time used so far; zero once the process is gone.
    pub(crate) fn used(self) -> Duration {
        clock_gettime(self.0).map_or(Duration::ZERO, Duration::from)
    }
}

/// Time used so far by several processes together.
pub(crate) fn used_by(clocks: &[Cpu]) -> Duration {
    clocks.iter().map(|clock| clock.used()).sum()
}

/// Resident memory in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    /// All of it.
    pub(crate) resident: u64,
    /// Largest value so far.
    pub(crate) peak: u64,
    /// The part that is no page of a file.
    pub(crate) anonymous: u64,
}

impl Memory {
    /// Memory of a process from `/proc/PID/status`.
    pub(crate) fn of(pid: i32) -> Result<Self> {
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&path).during(|| format!("read of {path}"))?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let text = line.and_then(|line| line.split_whitespace().next());
            text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        Ok(Self { resident: kib("VmRSS:"), peak: kib("VmHWM:"), anonymous: kib("RssAnon:") })
    }

    /// From here on `peak` is of what comes; see `clear_refs` in proc(5).
    pub(crate) fn forget_peak(pid: i32) -> Result<()> {
        let path = format!("/proc/{pid}/clear_refs");
        std::fs::write(&path, "5").during(|| format!("write to {path}"))
    }
}
