//! `bench-disk export-fio`: a profile's load as a fio job file.

use crate::cli::run::{Failure, profile};
use crate::cli::{exit, measuring, outputs};
use bench_disk::output::{self, jobfile};
use bench_disk::profile::Profile;
use bench_disk::sampler::recorded::Recorded;
use bench_disk::sampler::shape::Load;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "Example:\n  bench-disk export-fio --dir /var/lib/etcd > wal.fio\n  \
    fio --output-format=json wal.fio | jq '.jobs[0].sync.lat_ns.percentile[\"99.000000\"]'")]
pub(crate) struct Arguments {
    /// Directory in which fio will write
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// Profile whose load is described
    #[arg(long, default_value = "standard", value_parser = profile, value_name = "NAME|FILE")]
    profile: Profile,
    /// Who else uses the disk: none, node (the store's commits), reader, writer or all
    #[arg(long, value_name = "WHO", value_parser = measuring::load)]
    load: Option<Load>,
    /// Describe what a node recorded: a saved /debug/vars of an assay node
    #[arg(long, value_name = "FILE", value_parser = measuring::mix)]
    mix: Option<Recorded>,
    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let directory = std::path::absolute(&arguments.dir)
        .map_err(|source| Failure::Output { what: arguments.dir.display().to_string(), source })?;
    if directory.to_str().is_none_or(|name| name.contains(char::is_control)) {
        let text = "a job file holds no directory whose name has line breaks or is not UTF-8";
        return Err(Failure::Usage(text.into()));
    }
    let mut profile = arguments.profile.clone();
    if let Some(recorded) = &arguments.mix {
        profile = profile.with_mix(recorded.clone());
    }
    if let Some(load) = arguments.load {
        profile = profile.with_load(load);
    }
    let text = jobfile::render(&directory, &profile);
    match &arguments.output {
        Some(path) => output::write(path, text.as_bytes())
            .map_err(|source| Failure::Output { what: path.display().to_string(), source })?,
        None => outputs::say(&text)?,
    }
    Ok(exit::PASS)
}
