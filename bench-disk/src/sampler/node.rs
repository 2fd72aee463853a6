//! The real sampler: writes as a node writes, and times each sync.

use crate::ProbeError;
use crate::profile::Profile;
use crate::sampler::companion::Companion;
use crate::sampler::mix::{Mix, Random};
use crate::sampler::neighbour::{Kind, Neighbour};
use crate::sampler::processors::{self, Processors};
use crate::sampler::scratch::Scratch;
use crate::sampler::segments::Segments;
use crate::sampler::{Sample, Sampler};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counters that other threads read while the run goes on.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Bytes written to all files of the probe.
    pub bytes: AtomicU64,
    /// Syncs of all files begun.
    pub syncs: AtomicU64,
    /// Log samples taken.
    pub samples: AtomicU64,
    /// Log samples above the limit.
    pub exceeded: AtomicU64,
    /// Start of the log's sync in flight, in nanoseconds since `epoch` plus one; 0 without one.
    pub in_flight: AtomicU64,
}

/// Shorter syncs are within every limit whatever the processor did: asking costs a microsecond.
const WORTH_ASKING: Duration = Duration::from_micros(100);

/// One timed sync.
struct Timed {
    latency: Duration,
    waited: Duration,
    end: Instant,
}

/// The kernel's account of how long a thread has been ready to run without a processor.
struct RunQueue(Option<File>);

impl RunQueue {
    /// Must be called on the thread that samples.
    fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Total so far; zero where the kernel keeps no account.
    fn waited(&self) -> Duration {
        let mut text = [0u8; 96];
        let length = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        // Time on a processor, time waiting for one, number of turns.
        let second = std::str::from_utf8(&text[..length]).ok().and_then(|t| t.split(' ').nth(1));
        Duration::from_nanos(second.and_then(|field| field.parse().ok()).unwrap_or(0))
    }
}

/// Appends to segments with a mix of sizes, fdatasync each, next to whoever else uses the disk.
pub struct NodeSampler {
    segments: Segments,
    mix: Mix,
    random: Random,
    content: Vec<u8>,
    pace: Option<Duration>,
    next: Instant,
    /// End of the last sync.
    synced: Instant,
    epoch: Instant,
    began: Option<Instant>,
    pulse: Arc<Pulse>,
    queue: RunQueue,
    wrote: Option<Duration>,
    // Last: their threads end after nothing else is left to write.
    companion: Option<Companion>,
    neighbours: Vec<Neighbour>,
    _processors: Option<Processors>,
}

impl NodeSampler {
    /// Prepares the files. The run's clock starts with the first sample.
    pub fn start(
        scratch: Scratch,
        profile: &Profile,
        pulse: Arc<Pulse>,
        epoch: Instant,
    ) -> Result<Self, ProbeError> {
        let shape = &profile.shape;
        if shape.recorded().is_some() {
            processors::wake_exactly();
        }
        let (bytes, preparation) = (shape.segment_bytes, shape.preparation);
        let segments = Segments::start(scratch.clone(), bytes, preparation, pulse.clone())?;
        let kinds = [(shape.load.reader(), Kind::Reader), (shape.load.writer(), Kind::Writer)];
        let mut neighbours = Vec::new();
        for (_, kind) in kinds.into_iter().filter(|(wanted, _)| *wanted) {
            neighbours.push(Neighbour::start(&scratch, kind, pulse.clone())?);
        }
        let companion = match shape.load.store() {
            true => Some(Companion::start(&scratch, shape, pulse.clone())?),
            false => None,
        };
        let recorded = shape.recorded().filter(|_| shape.load.store());
        let processors = recorded
            .map(|recorded| Processors::start(recorded, scratch.directory()))
            .transpose()?;
        let mix = Mix::of(shape.appends.clone());
        // Random bytes: storage that compresses or deduplicates must not have it easy.
        let mut random = Random(0x0D15_C0DE_5A17_0001);
        let words = 2 * mix.largest().div_ceil(8);
        let content = (0..words).flat_map(|_| random.word().to_le_bytes()).collect();
        Ok(Self {
            segments,
            mix,
            random,
            content,
            pace: profile.pace,
            next: Instant::now(),
            synced: Instant::now(),
            epoch,
            began: None,
            pulse,
            queue: RunQueue::of_this_thread(),
            wrote: None,
            companion,
            neighbours,
            _processors: processors,
        })
    }

    fn failure(&self) -> Option<ProbeError> {
        let store = self.companion.as_ref().and_then(Companion::failure);
        store.or_else(|| self.neighbours.iter().find_map(Neighbour::failure))
    }

    /// Waits as long as the plan says between samples, or as a node was recorded to wait.
    fn wait_for_turn(&mut self, gap: Option<Duration>) {
        let now = Instant::now();
        if let Some(gap) = gap {
            return std::thread::sleep((self.synced + gap).saturating_duration_since(now));
        }
        let Some(pace) = self.pace else { return };
        if let Some(left) = self.next.checked_duration_since(now) {
            std::thread::sleep(left);
        }
        // A closed loop: time lost in a slow sync is not caught up.
        self.next = self.next.max(now) + pace;
    }

    /// Times one sync and lets others see that it is in flight.
    fn timed(&self, sync: impl FnOnce() -> Result<(), ProbeError>) -> Result<Timed, ProbeError> {
        self.pulse.syncs.fetch_add(1, Ordering::Relaxed);
        let waited = self.queue.waited();
        let start = Instant::now();
        let since = start.duration_since(self.epoch).as_nanos() as u64;
        self.pulse.in_flight.store(since + 1, Ordering::Relaxed);
        let result = sync();
        let end = Instant::now();
        self.pulse.in_flight.store(0, Ordering::Relaxed);
        let latency = end.duration_since(start);
        let waited = match latency >= WORTH_ASKING {
            true => self.queue.waited().saturating_sub(waited),
            false => Duration::ZERO,
        };
        result.map(|()| Timed { latency, waited, end })
    }

    /// A full segment: the node syncs the directory after it took the next one into use.
    fn change_segment(&mut self) -> Result<Timed, ProbeError> {
        self.wrote = None;
        self.segments.change()?;
        self.timed(|| self.segments.sync_directory())
    }

    fn append(&mut self, size: usize) -> Result<Timed, ProbeError> {
        let from = self.random.below((self.content.len() - size) as u64) as usize;
        let bytes = &self.content[from..from + size];
        let position = self.segments.position;
        self.segments.position += size as u64;
        let path = &self.segments.current.path;
        let file = &self.segments.current.file;
        let start = Instant::now();
        file.write_all_at(bytes, position).map_err(ProbeError::io("write a file in", path))?;
        self.wrote = Some(start.elapsed());
        self.pulse.bytes.fetch_add(size as u64, Ordering::Relaxed);
        self.timed(|| file.sync_data().map_err(ProbeError::io("sync a file in", path)))
    }
}

impl Sampler for NodeSampler {
    fn sample(&mut self) -> Result<Sample, ProbeError> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let (size, gap) = self.mix.append();
        self.wait_for_turn(gap);
        let began = *self.began.get_or_insert_with(Instant::now);
        let timed =
            if self.segments.full(size) { self.change_segment()? } else { self.append(size)? };
        self.synced = timed.end;
        Ok(Sample {
            latency: timed.latency,
            waited: timed.waited.min(timed.latency),
            finished: timed.end.duration_since(began),
            bytes_written: self.pulse.bytes.load(Ordering::Relaxed),
        })
    }

    fn last_write(&self) -> Option<Duration> {
        self.wrote
    }
}
