//! One run of the probe in the same load shape, and what the probe itself costs per sample.

use crate::{Failure, Round};
use bench_disk::env::Environment;
use bench_disk::judge::{self, Run, Wish};
use bench_disk::profile::Profile;
use bench_disk::sampler::node::{NodeSampler, Pulse};
use bench_disk::sampler::scratch::Scratch;
use bench_disk::sampler::shape::FIO_APPEND;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A limit that no sync reaches, so that no early FAIL ends a run.
const LIMIT: Duration = Duration::from_secs(100);

/// Runs of each loop whose shortest counts: what disturbs a loop only makes it longer.
const RUNS: usize = 15;

pub(crate) fn round(directory: &Path) -> Result<Round, Failure> {
    let (run, _) = sample(directory)?;
    let mut sorted = run.latencies;
    sorted.sort_unstable();
    let at = |fraction: f64| {
        let rank = (fraction * sorted.len() as f64).ceil() as usize;
        sorted[rank.max(1) - 1] as f64 / 1e3
    };
    Ok(Round { n: sorted.len() as u64, p50_us: at(0.5), p99_us: at(0.99) })
}

fn sample(directory: &Path) -> Result<(Run, Duration), Failure> {
    let environment = Environment::inspect(directory)?;
    let profile = Profile::fio();
    let scratch = Scratch::new(&environment.judged, &environment.filesystem);
    let mut sampler =
        NodeSampler::start(scratch, &profile, Arc::new(Pulse::default()), Instant::now())?;
    let began = Instant::now();
    let run = judge::collect(&mut sampler, &profile, LIMIT, &mut |_| Wish::GoOn)?;
    Ok((run, began.elapsed()))
}

/// Time of the probe's loop beyond the same calls in a bare loop, per sample, on files in memory
/// where the calls themselves take next to nothing. `None` if there is no such place.
pub(crate) fn overhead() -> Result<Option<Duration>, Failure> {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() || Environment::inspect(memory)?.filesystem != "tmpfs" {
        return Ok(None);
    }
    let io = |source| Failure::Io { path: memory.to_path_buf(), source };
    let directory = tempfile::tempdir_in(memory).map_err(io)?;
    let (mut probe, mut bare) = (Duration::MAX, Duration::MAX);
    for _ in 0..RUNS {
        let (run, elapsed) = sample(directory.path())?;
        let n = run.latencies.len();
        probe = probe.min(elapsed / n as u32);
        bare = bare.min(bare_loop(directory.path(), n).map_err(io)? / n as u32);
    }
    Ok(Some(probe.saturating_sub(bare)))
}

fn bare_loop(directory: &Path, samples: usize) -> std::io::Result<Duration> {
    let path = directory.join("bare");
    let file = File::create_new(&path)?;
    file.set_len((samples * FIO_APPEND) as u64)?;
    let block = vec![7u8; FIO_APPEND];
    let began = Instant::now();
    for number in 0..samples {
        file.write_all_at(&block, (number * FIO_APPEND) as u64)?;
        file.sync_data()?;
    }
    let elapsed = began.elapsed();
    std::fs::remove_file(path)?;
    Ok(elapsed)
}
