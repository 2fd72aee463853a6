//! Others on the same disk: somebody who reads a snapshot, somebody who writes a stream.

use crate::ProbeError;
use crate::sampler::mix::Random;
use crate::sampler::node::Pulse;
use crate::sampler::scratch::{Scratch, ScratchFile};
use crate::sampler::shape::NEIGHBOUR_BYTES;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes per call.
const STEP: usize = 1 << 20;

/// Distance of reads: about 100 MB/s, a snapshot on its way to a member.
const READ_INTERVAL: Duration = Duration::from_millis(10);

/// Distance of writes: about 50 MB/s, a backup or a copy of the store.
const WRITE_INTERVAL: Duration = Duration::from_millis(20);

/// Bytes per second of the reader.
pub const READER_BYTES_PER_SECOND: u64 = 100 * STEP as u64;

/// Bytes per second of the writer, for budgets.
pub const WRITER_BYTES_PER_SECOND: u64 = 50 * STEP as u64;

/// Reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sequential reads that miss the page cache.
    Reader,
    /// Sequential writes that nobody syncs.
    Writer,
}

/// A thread that goes through a file again and again until this is dropped.
pub struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    failure: Arc<Mutex<Option<ProbeError>>>,
}

impl Neighbour {
    /// Makes the file and starts. What is to be read is written and synced first.
    pub fn start(scratch: &Scratch, kind: Kind, pulse: Arc<Pulse>) -> Result<Self, ProbeError> {
        let file = scratch.create(NEIGHBOUR_BYTES)?;
        let mut random = Random(0x0BAD_CAFE_0BAD_0001);
        let block: Vec<u8> = (0..STEP / 8).flat_map(|_| random.word().to_le_bytes()).collect();
        if kind == Kind::Reader {
            for offset in (0..NEIGHBOUR_BYTES).step_by(STEP) {
                write(&file, &block, offset, &pulse)?;
            }
            pulse.syncs.fetch_add(1, Ordering::Relaxed);
            file.file.sync_data().map_err(ProbeError::io("sync a file in", &file.path))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let failure = Arc::new(Mutex::new(None));
        let (stopped, report) = (stop.clone(), failure.clone());
        let thread = std::thread::Builder::new()
            .name("probe-neighbour".into())
            .spawn(move || {
                if let Err(error) = work(&file, kind, block, &pulse, &stopped) {
                    *report.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            })
            .map_err(ProbeError::io("start a thread for", "the neighbour's file"))?;
        Ok(Self { stop, thread: Some(thread), failure })
    }

    /// The error that ended the work, if one did.
    pub fn failure(&self) -> Option<ProbeError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(
    file: &ScratchFile,
    kind: Kind,
    mut block: Vec<u8>,
    pulse: &Pulse,
    stop: &AtomicBool,
) -> Result<(), ProbeError> {
    let interval = if kind == Kind::Reader { READ_INTERVAL } else { WRITE_INTERVAL };
    let mut next = Instant::now();
    loop {
        // Advice: where it is not taken the reads come from memory, which is not this thread's
        // to judge.
        let _ = posix_fadvise(&file.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        for offset in (0..NEIGHBOUR_BYTES).step_by(STEP) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            match kind {
                Kind::Reader => file
                    .file
                    .read_exact_at(&mut block, offset)
                    .map_err(ProbeError::io("read a file in", &file.path))?,
                Kind::Writer => write(file, &block, offset, pulse)?,
            }
            next = next.max(Instant::now()) + interval;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

fn write(file: &ScratchFile, bytes: &[u8], offset: u64, pulse: &Pulse) -> Result<(), ProbeError> {
    file.file.write_all_at(bytes, offset).map_err(ProbeError::io("write a file in", &file.path))?;
    pulse.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}
