//! The store's commits beside the log: random pages of a 16 MiB file, synced every 100 ms.

use crate::ProbeError;
use crate::sampler::mix::Random;
use crate::sampler::node::Pulse;
use crate::sampler::scratch::{Scratch, ScratchFile};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Size of the companion file.
pub const FILE_BYTES: u64 = 16 << 20;

/// Distance of commits, as in a node.
const INTERVAL: Duration = Duration::from_millis(100);

const PAGE: usize = 4 << 10;

/// Bytes per sync while the file is written for the first time.
const STEP: u64 = 1 << 20;

/// A thread that commits until this is dropped.
pub struct Companion {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    failure: Arc<Mutex<Option<ProbeError>>>,
}

impl Companion {
    /// Writes the whole file once, then starts committing.
    pub fn start(scratch: &Scratch, pulse: Arc<Pulse>) -> Result<Self, ProbeError> {
        let file = scratch.create(FILE_BYTES)?;
        let mut random = Random(0x00C0_FFEE_D15C_0001);
        let block: Vec<u8> = (0..STEP / 8).flat_map(|_| random.word().to_le_bytes()).collect();
        for offset in (0..FILE_BYTES).step_by(STEP as usize) {
            write(&file, &block, offset, &pulse)?;
            sync(&file, &pulse)?;
        }
        let (stop, stopped) = channel();
        let failure = Arc::new(Mutex::new(None));
        let report = failure.clone();
        let thread = std::thread::Builder::new()
            .name("probe-companion".into())
            .spawn(move || {
                if let Err(error) = commit(&file, &block[..PAGE], random, &pulse, &stopped) {
                    *report.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            })
            .map_err(ProbeError::io("start a thread for", "the companion file"))?;
        Ok(Self { stop: Some(stop), thread: Some(thread), failure })
    }

    /// The error that ended the commits, if one did.
    pub fn failure(&self) -> Option<ProbeError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn commit(
    file: &ScratchFile,
    page: &[u8],
    mut random: Random,
    pulse: &Pulse,
    stopped: &Receiver<()>,
) -> Result<(), ProbeError> {
    while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        for _ in 0..4 + random.below(13) {
            let number = random.below(FILE_BYTES / PAGE as u64);
            write(file, page, number * PAGE as u64, pulse)?;
        }
        // Data first, then the root that points to it.
        sync(file, pulse)?;
        write(file, page, 0, pulse)?;
        sync(file, pulse)?;
    }
    Ok(())
}

fn write(file: &ScratchFile, bytes: &[u8], offset: u64, pulse: &Pulse) -> Result<(), ProbeError> {
    file.file.write_all_at(bytes, offset).map_err(ProbeError::io("write a file in", &file.path))?;
    pulse.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

fn sync(file: &ScratchFile, pulse: &Pulse) -> Result<(), ProbeError> {
    pulse.syncs.fetch_add(1, Ordering::Relaxed);
    file.file.sync_data().map_err(ProbeError::io("sync a file in", &file.path))
}
