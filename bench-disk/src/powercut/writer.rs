//! The machine that will lose power.

use super::{MESSAGE, PER_FILE, RECORD, encode, files, place};
use crate::ProbeError;
use crate::sampler::scratch::reserve;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What was written before somebody asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Records synced and told.
    pub records: u64,
}

/// Removes the files unless power fails first.
struct Cleanup([PathBuf; 2]);

impl Drop for Cleanup {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Writes until `time` is over, `interrupt` is set, or power fails. Existing files are an error;
/// the files are removed on every end but a power cut, which is what leaves them.
pub fn write(
    directory: &Path,
    witness: &str,
    run: u64,
    time: Duration,
    interrupt: &AtomicBool,
) -> Result<Written, ProbeError> {
    let mut peer =
        TcpStream::connect(witness).map_err(ProbeError::io("reach the witness", witness))?;
    peer.set_nodelay(true).map_err(ProbeError::io("set up the connection to", witness))?;
    let paths = files(directory);
    let opened = [create(&paths[0])?, create(&paths[1])?];
    let _cleanup = Cleanup(paths.clone());
    for (file, path) in opened.iter().zip(&paths) {
        reserve(file, PER_FILE * RECORD as u64)
            .map_err(ProbeError::io("reserve space for", path))?;
        file.sync_all().map_err(ProbeError::io("sync", path))?;
    }
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(ProbeError::io("sync the directory", directory))?;
    let began = Instant::now();
    let mut number = 0;
    while began.elapsed() < time && !interrupt.load(Ordering::Relaxed) {
        let (which, offset) = place(number);
        let (file, path) = (&opened[which], &paths[which]);
        file.write_all_at(&encode(run, number), offset).map_err(ProbeError::io("write", path))?;
        file.sync_data().map_err(ProbeError::io("sync", path))?;
        let mut message = [0; MESSAGE];
        message[..8].copy_from_slice(&run.to_le_bytes());
        message[8..].copy_from_slice(&number.to_le_bytes());
        peer.write_all(&message).map_err(ProbeError::io("tell the witness", witness))?;
        number += 1;
    }
    Ok(Written { records: number })
}

fn create(path: &Path) -> Result<File, ProbeError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(ProbeError::io("create (remove what an earlier run left)", path))
}
