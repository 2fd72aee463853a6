//! The result for other programs: our JSON, fio's JSON, Prometheus' text, and a page for browsers.
//!
//! Everything is made from the environment and the verdict alone, so that every form tells the same
//! story, and so that a stored verdict can be shown again later.

pub mod fio;
pub mod html;
pub mod jobfile;
mod plot;
pub mod textfile;

use crate::env::Environment;
use crate::judge::Outcome;
use crate::verdict::{self, Verdict};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Version of the JSON document. It rises when a field disappears or changes its meaning; new
/// fields may appear at any time. `docs/bench-disk.md` describes the document.
pub const JSON_SCHEMA: u32 = 1;

/// The JSON document of `run`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Document<'a> {
    /// [`JSON_SCHEMA`].
    pub schema: u32,
    /// The answer in one word, the field for pipelines.
    pub outcome: Outcome,
    /// The answer, its figures and its reasons.
    pub verdict: &'a Verdict,
    /// What lies under the directory.
    pub environment: &'a Environment,
}

impl<'a> Document<'a> {
    /// Puts the two together.
    pub fn new(environment: &'a Environment, verdict: &'a Verdict) -> Self {
        Self { schema: JSON_SCHEMA, outcome: verdict.outcome, verdict, environment }
    }
}

/// Writes a result. A file appears whole or not at all; a pipe or a device is written to as it is.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(there) if there.is_file() => verdict::replace(&path.canonicalize()?, bytes),
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => OpenOptions::new().write(true).open(path)?.write_all(bytes),
        Err(_) => verdict::replace(path, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_a_link_and_a_device_stays_a_device() {
        let directory = tempfile::tempdir().expect("a directory");
        let (target, link) = (directory.path().join("a"), directory.path().join("b"));
        write(&target, b"one").expect("made");
        std::os::unix::fs::symlink("a", &link).expect("linked");
        write(&link, b"two").expect("replaced");
        assert_eq!(std::fs::read(&target).expect("readable"), b"two");
        assert!(link.is_symlink());
        write(Path::new("/dev/null"), b"x").expect("a device");
        assert!(!Path::new("/dev/null").metadata().expect("there").is_file());
        assert!(write(directory.path(), b"x").is_err());
        assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 2);
    }
}
