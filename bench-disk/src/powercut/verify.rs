//! After the power came back.

use super::{Ledger, PER_FILE, RECORD, decode, files, place};
use crate::ProbeError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What is left of what was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Acknowledged records that were looked for: the newest ones, older ones were overwritten.
    pub looked_for: u64,
    /// Those that are missing or damaged.
    pub lost: u64,
    /// The first of them.
    pub first_lost: Option<u64>,
}

/// Looks for every acknowledged record that must still be there.
pub fn verify(directory: &Path, ledger: &Ledger) -> Result<Loss, ProbeError> {
    let paths = files(directory);
    let mut opened = Vec::new();
    for path in &paths {
        opened.push(File::open(path).map_err(ProbeError::io("open", path))?);
    }
    let end = ledger.acknowledged.saturating_add(1);
    let from = end.saturating_sub(PER_FILE);
    let mut loss = Loss { looked_for: end - from, lost: 0, first_lost: None };
    for number in from..end {
        let (which, offset) = place(number);
        let mut record = [0; RECORD];
        let there = match opened[which].read_exact_at(&mut record, offset) {
            Ok(()) => decode(ledger.run, &record) == Some(number),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(ProbeError::io("read", &paths[which])(error)),
        };
        if !there {
            loss.lost += 1;
            loss.first_lost.get_or_insert(number);
        }
    }
    Ok(loss)
}
