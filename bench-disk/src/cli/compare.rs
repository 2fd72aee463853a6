//! `bench-disk compare`: the odd one of sibling nodes.

use crate::cli::exit;
use crate::cli::run::Failure;
use crate::cli::say::say;
use bench_disk::compare::{self, CompareError, LEAST};
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "Exit codes: 0 no disk stands out, 1 one does, 2 usage or files that \
    cannot be compared.")]
pub(crate) struct Arguments {
    /// Results of `bench-disk run --json`, or verdict files, one per node
    #[arg(required = true, num_args = LEAST.., value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let usage = |error: CompareError| Failure::Usage(error.to_string());
    let mut results = Vec::new();
    for file in &arguments.files {
        results.push((file.clone(), compare::load(file).map_err(usage)?));
    }
    let nodes = compare::compare(results).map_err(usage)?;
    if arguments.json {
        say(&format!("{}\n", serde_json::json!({"schema": 1, "nodes": nodes})))?;
    } else {
        say(&compare::render(&nodes))?;
    }
    Ok(if nodes.iter().any(|node| node.odd) { exit::FAIL } else { exit::PASS })
}
