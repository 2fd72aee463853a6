//! Starting a server under strace: slow, failing and counted system calls.

use super::Tool;
use std::ffi::OsString;
use std::path::Path;

/// Words to start a server with, for [`super::Launch::wrapper`].
///
/// Counters of injections (`when=`) are per thread. strace and what it started are one process
/// group, and strace ends with the exit code of what it started.
#[derive(Clone, Debug)]
pub struct Strace {
    words: Vec<OsString>,
}

impl Strace {
    /// strace, or `None` with a visible word (a failure when `CI` is set).
    pub fn require() -> Option<Self> {
        let mut words: Vec<OsString> = vec![Tool::Strace.require()?.into()];
        // The filter in the kernel lets all other calls through at full speed.
        words.extend(["-f", "-qq", "--seccomp-bpf", "-o", "/dev/null"].map(OsString::from));
        Some(Self { words })
    }

    /// Traces these calls, for example `bind,listen`.
    #[must_use]
    pub fn trace(mut self, calls: &str) -> Self {
        self.words.extend(["-e".into(), format!("trace={calls}").into()]);
        self
    }

    /// Tampers with calls, for example `fdatasync:error=EIO:when=7`.
    #[must_use]
    pub fn inject(mut self, what: &str) -> Self {
        self.words.extend(["-e".into(), format!("inject={what}").into()]);
        self
    }

    /// Only calls on this file, under its full path; several add up.
    #[must_use]
    pub fn only(mut self, path: &Path) -> Self {
        self.words.extend(["-P".into(), path.into()]);
        self
    }

    /// Writes the traced calls to this file.
    #[must_use]
    pub fn to(mut self, path: &Path) -> Self {
        self.words.extend(["-o".into(), path.into()]);
        self
    }

    /// The words.
    pub fn words(self) -> Vec<OsString> {
        self.words
    }
}
