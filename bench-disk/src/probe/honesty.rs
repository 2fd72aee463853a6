//! Does the device do what a flush asks for? Three signals: flushes counted by the kernel, what a
//! flush costs, and what no honest device can beat. The only proof is a pulled plug.

use crate::ProbeError;
use crate::env::Environment;
use crate::finding::Finding;
use crate::judge::Outcome;
use crate::sampler::mix::Random;
use crate::sampler::node::Pulse;
use crate::sampler::scratch::Scratch;
use crate::sampler::segments;
use crate::sampler::shape::Preparation;
use crate::verdict::{FlushCost, Measured, Verdict};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

/// Fewer flushes per sync than this on a disk with a volatile cache: suspicious. Merged flushes
/// and forced-unit-access writes keep honest disks above it.
const FLUSHES_SUSPECT: f64 = 0.5;

/// Practically no flushes: syncs do not reach the disk.
const FLUSHES_NONE: f64 = 0.05;

/// Too few syncs to say anything about flushes.
const FLUSH_SAMPLE: u64 = 100;

/// A flush of a volatile cache costs at least a round trip to the device.
const CHEAPEST_FLUSH: Duration = Duration::from_micros(5);

/// A sync faster than this did not leave memory.
const MEMORY: Duration = Duration::from_micros(5);

/// Half a turn at 15,000 rpm: a rotating disk cannot sync faster in the median.
const FASTEST_ROTATION: Duration = Duration::from_millis(2);

/// Blocks written in turn.
const BLOCKS: u64 = 256;

const BLOCK: usize = 4 << 10;

/// Pairs of a bare write and a write with a sync.
const PAIRS: usize = 200;

/// The comparison ends after this long.
const COST_TIME: Duration = Duration::from_secs(2);

/// Fewer pairs than this have no median worth naming.
const FEWEST_PAIRS: usize = 10;

/// Compares writes that pass the page cache with and without a sync, on the same written blocks.
/// `None` where the file system has no such writes.
pub(super) fn cost(scratch: &Scratch) -> Result<Option<FlushCost>, ProbeError> {
    let file = segments::prepared(
        scratch,
        BLOCKS * BLOCK as u64,
        Preparation::Recycle,
        &Pulse::default(),
    )?;
    let Some(direct) = direct(&file.file) else { return Ok(None) };
    let mut buffer = vec![0u8; 2 * BLOCK];
    let aligned = buffer.as_ptr().align_offset(BLOCK);
    let block = &mut buffer[aligned..aligned + BLOCK];
    let mut random = Random(0x00D1_5EA5_E000_0001);
    block.fill_with(|| random.word() as u8);
    let (mut bare, mut synced) = (Vec::with_capacity(PAIRS), Vec::with_capacity(PAIRS));
    let began = Instant::now();
    while bare.len() < PAIRS && began.elapsed() < COST_TIME {
        let offset = random.below(BLOCKS) * BLOCK as u64;
        let start = Instant::now();
        if let Err(error) = direct.write_all_at(block, offset) {
            // Opened, and still refused: the file system wants another alignment.
            let refused = error.kind() == std::io::ErrorKind::InvalidInput;
            return if refused { Ok(None) } else { Err(failed(&file.path, "write")(error)) };
        }
        bare.push(start.elapsed());
        let start = Instant::now();
        direct.write_all_at(block, offset).map_err(failed(&file.path, "write"))?;
        direct.sync_data().map_err(failed(&file.path, "sync"))?;
        synced.push(start.elapsed());
    }
    if bare.len() < FEWEST_PAIRS {
        return Ok(None);
    }
    let nanos = |mut times: Vec<Duration>| {
        let middle = times.len() / 2;
        times.select_nth_unstable(middle).1.as_nanos() as u64
    };
    Ok(Some(FlushCost { write_ns: nanos(bare), synced_ns: nanos(synced) }))
}

fn failed(
    path: &std::path::Path,
    action: &'static str,
) -> impl FnOnce(std::io::Error) -> ProbeError {
    ProbeError::io(if action == "sync" { "sync a file in" } else { "write a file in" }, path)
}

/// The same file, opened around the page cache.
fn direct(file: &File) -> Option<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).ok()
}

/// Combines the signals into one word and adds what they found. A disk that announces a volatile
/// cache must be told to flush it.
pub(super) fn durability(
    environment: &Environment,
    measured: &Measured,
    verdict: &mut Verdict,
) -> &'static str {
    let mut word = counted(environment, measured, verdict);
    let mut suspect = |code: &str, text: String| {
        verdict.findings.push(Finding::warn(code, text));
        if word != "refused" {
            word = "suspect";
        }
    };
    if let Some(cost) = &measured.flush_cost
        && environment.write_back()
        && cost.synced_ns < cost.write_ns + CHEAPEST_FLUSH.as_nanos() as u64
    {
        let text = format!(
            "a flush adds {} us to a write of {} us on a device with a volatile cache: somebody \
             answers from memory",
            cost.synced_ns.saturating_sub(cost.write_ns) / 1_000,
            cost.write_ns / 1_000
        );
        suspect("flush-too-cheap", text);
    }
    let p50 = Duration::from_nanos(measured.percentiles.p50_ns);
    if p50 < MEMORY {
        let text =
            format!("half of the syncs took less than {} us: this is memory", p50.as_micros());
        suspect("memory-speed", text);
    }
    if let Some(leaf) = environment.rotating()
        && p50 < FASTEST_ROTATION
    {
        let text = format!(
            "{} rotates and answers half of the syncs in less than {} us: it keeps them in a cache",
            leaf.name,
            p50.as_micros()
        );
        suspect("faster-than-rotation", text);
    }
    word
}

fn counted(environment: &Environment, measured: &Measured, verdict: &mut Verdict) -> &'static str {
    let syncs = measured.syncs;
    let known = measured.flushes.filter(|_| environment.write_back() && syncs >= FLUSH_SAMPLE);
    let Some(flushes) = known else { return "unverified" };
    let ratio = flushes as f64 / syncs as f64;
    let text = format!("{flushes} flushes reached the disk for {syncs} syncs");
    if ratio < FLUSHES_NONE {
        let text = format!("{text}: syncs do not make data durable here (barriers off?)");
        verdict.outcome = Outcome::Refused;
        verdict.findings.insert(0, Finding::refuse("flushes-missing", text));
        "refused"
    } else if ratio < FLUSHES_SUSPECT {
        verdict.findings.push(Finding::warn("flushes-few", text));
        "suspect"
    } else {
        "verified-path"
    }
}
