//! The only proof that a sync is one: pull the plug, then look for what was acknowledged.
//!
//! A writer syncs numbered records and tells a witness on another machine each number whose sync has
//! returned. After the power came back every record that the witness knows of must be there.

mod verify;
mod witness;
mod writer;

pub use verify::{Loss, verify};
pub use witness::{Ledger, witness};
pub use writer::{Written, write};

use std::path::{Path, PathBuf};

/// Bytes of a record: one sector of any disk.
const RECORD: usize = 512;

/// Records per file. Two files take turns, so that the last ones of both are never overwritten.
const PER_FILE: u64 = 65_536;

/// First bytes of a record.
const MAGIC: [u8; 8] = *b"BDPCUT01";

/// Bytes of a message to the witness: run and number.
const MESSAGE: usize = 16;

/// Where a record goes: which of the two files, and at which byte.
fn place(number: u64) -> (usize, u64) {
    let file = (number / PER_FILE % 2) as usize;
    (file, number % PER_FILE * RECORD as u64)
}

fn files(directory: &Path) -> [PathBuf; 2] {
    [0, 1].map(|number| directory.join(format!("bench-disk-powercut.{number}")))
}

/// Magic, run, number, filling that depends on both, checksum.
fn encode(run: u64, number: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&MAGIC);
    record[8..16].copy_from_slice(&run.to_le_bytes());
    record[16..24].copy_from_slice(&number.to_le_bytes());
    let mut word = run ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for part in record[24..RECORD - 4].chunks_mut(8) {
        word = word.rotate_left(13).wrapping_mul(0x2545_F491_4F6C_DD1D);
        part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
    }
    let sum = crc32c::crc32c(&record[..RECORD - 4]);
    record[RECORD - 4..].copy_from_slice(&sum.to_le_bytes());
    record
}

/// The number of a whole record of this run.
fn decode(run: u64, record: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(record.get(16..24)?.try_into().ok()?);
    (record == encode(run, number)).then_some(number)
}

#[cfg(test)]
mod tests;
