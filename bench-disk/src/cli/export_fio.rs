//! `bench-disk export-fio`: a profile's load as a fio job file.

use crate::cli::run::{Failure, profile};
use crate::cli::{exit, outputs};
use bench_disk::output::{self, jobfile};
use bench_disk::profile::Profile;
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
    #[arg(long, default_value = "standard", value_parser = profile, value_name = "NAME")]
    profile: Profile,
    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let directory = std::path::absolute(&arguments.dir)
        .map_err(|source| Failure::Output { what: arguments.dir.display().to_string(), source })?;
    let text = jobfile::render(&directory, &arguments.profile);
    match &arguments.output {
        Some(path) => output::write(path, text.as_bytes())
            .map_err(|source| Failure::Output { what: path.display().to_string(), source })?,
        None => outputs::say(&text)?,
    }
    Ok(exit::PASS)
}
