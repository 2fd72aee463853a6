//! The store's commits beside the log: random pages of a file, synced every 100 ms or as recorded.

use crate::ProbeError;
use crate::sampler::mix::Random;
use crate::sampler::node::Pulse;
use crate::sampler::processors;
use crate::sampler::recorded::Recorded;
use crate::sampler::scratch::{Scratch, ScratchFile};
use crate::sampler::shape::Shape;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    pub fn start(scratch: &Scratch, shape: &Shape, pulse: Arc<Pulse>) -> Result<Self, ProbeError> {
        let length = shape.store_bytes;
        let recorded = shape.recorded().cloned();
        let file = scratch.create(length)?;
        let mut random = Random(0x00C0_FFEE_D15C_0001);
        let block: Vec<u8> = (0..STEP / 8).flat_map(|_| random.word().to_le_bytes()).collect();
        for offset in (0..length).step_by(STEP as usize) {
            write(&file, &block, offset, &pulse)?;
            sync(&file, &pulse)?;
        }
        let (stop, stopped) = channel();
        let failure = Arc::new(Mutex::new(None));
        let report = failure.clone();
        let thread = std::thread::Builder::new()
            .name("probe-companion".into())
            .spawn(move || {
                let commits = Commits { file, length, block, random, pulse };
                let result = match recorded.as_deref() {
                    Some(recorded) => commits.replay(recorded, &stopped),
                    None => commits.typical(&stopped),
                };
                if let Err(error) = result {
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

struct Commits {
    file: ScratchFile,
    length: u64,
    block: Vec<u8>,
    random: Random,
    pulse: Arc<Pulse>,
}

impl Commits {
    /// A few pages every 100 ms: data first, then the root that points to it.
    fn typical(mut self, stopped: &Receiver<()>) -> Result<(), ProbeError> {
        while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            for _ in 0..4 + self.random.below(13) {
                self.scatter(PAGE)?;
            }
            sync(&self.file, &self.pulse)?;
            write(&self.file, &self.block[..PAGE], 0, &self.pulse)?;
            sync(&self.file, &self.pulse)?;
        }
        Ok(())
    }

    /// As many bytes per sync, in pieces as long, and syncs as often as a node had.
    fn replay(mut self, recorded: &Recorded, stopped: &Receiver<()>) -> Result<(), ProbeError> {
        let Some(interval) = recorded.store_interval() else { return Ok(()) };
        let part = usize::try_from(recorded.store.extent_bytes()).unwrap_or(PAGE);
        let part = part.clamp(1, STEP as usize);
        let mut synced = Instant::now();
        loop {
            let draw = recorded.store.draw(&mut self.random);
            let work = recorded.store.cpu_of(draw.bytes).min(processors::MAX_WORK);
            // What the processor has to do for a commit is a part of the time before its sync.
            let wait = draw.gap.unwrap_or(interval).saturating_sub(work);
            let wait = (synced + wait).saturating_duration_since(Instant::now());
            if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return Ok(());
            }
            processors::work(work);
            let mut left = draw.bytes.min(self.length);
            while left > 0 {
                // Bytes in pieces of one are a minute's work: whoever waits for the end must not.
                if stopped.try_recv() != Err(TryRecvError::Empty) {
                    return Ok(());
                }
                let now = left.min(part as u64);
                self.scatter(now as usize)?;
                left -= now;
            }
            sync(&self.file, &self.pulse)?;
            synced = Instant::now();
        }
    }

    /// Writes at a random page.
    fn scatter(&mut self, bytes: usize) -> Result<(), ProbeError> {
        let pages = (self.length - bytes as u64) / PAGE as u64 + 1;
        let number = self.random.below(pages);
        write(&self.file, &self.block[..bytes], number * PAGE as u64, &self.pulse)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::recorded::Stream;
    use crate::sampler::shape::Appends;

    /// A recording is somebody's file: whatever it says, the end of a run is not waited for long.
    #[test]
    fn no_recording_makes_the_commits_deaf_to_their_end() {
        let store = |cpu_micros, bytes, extents, gap_micros: &[u64]| Stream {
            writes: 1,
            bytes,
            extents,
            bytes_per_sync: vec![(u64::MAX, 1)],
            gap_micros: gap_micros.to_vec(),
            cpu_micros,
        };
        for store in [
            store(u64::MAX, 1, 1, &[0]),
            store(u64::MAX, u64::MAX, u64::MAX, &[0]),
            store(0, u64::MAX, u64::MAX, &[]),
            store(0, 1, 0, &[1_000_000]),
        ] {
            let log = Stream { bytes_per_sync: vec![(512, 1 << 44)], ..Stream::default() };
            let recorded = Recorded {
                schema: crate::sampler::recorded::SCHEMA,
                program: String::new(),
                active_seconds: 1 << 44,
                threads: Vec::new(),
                log,
                store,
            };
            let mut shape = Shape::node(4 * STEP);
            shape.appends = Appends::Recorded(Arc::new(recorded));
            let directory = tempfile::tempdir().expect("a directory");
            let scratch = Scratch::new(directory.path(), "");
            let pulse = Arc::new(Pulse::default());
            let companion = Companion::start(&scratch, &shape, pulse.clone()).expect("started");
            let failure = companion.failure.clone();
            let (sender, ended) = channel();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                drop(companion);
                let _ = sender.send(());
            });
            ended.recv_timeout(Duration::from_secs(60)).expect("it ends");
            assert!(failure.lock().expect("no panic").is_none());
        }
    }
}
