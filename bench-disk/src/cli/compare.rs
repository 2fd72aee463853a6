//! `bench-disk compare`: the odd one of sibling nodes.

use crate::cli::run::Failure;
use crate::cli::{exit, outputs};
use bench_disk::compare::{self, CompareError, LEAST, Node};
use bench_disk::output::JSON_SCHEMA;
use clap::Args;
use serde::Serialize;
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

/// The JSON document.
#[derive(Serialize)]
struct Document {
    schema: u32,
    nodes: Vec<Node>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let usage = |error: CompareError| Failure::Usage(error.to_string());
    let mut results = Vec::new();
    for file in &arguments.files {
        results.push((file.clone(), compare::load(file).map_err(usage)?));
    }
    let nodes = compare::compare(results).map_err(usage)?;
    let code = if nodes.iter().any(|node| node.odd) { exit::FAIL } else { exit::PASS };
    if arguments.json {
        outputs::say_json(&Document { schema: JSON_SCHEMA, nodes })?;
    } else {
        outputs::say(&compare::render(&nodes))?;
    }
    Ok(code)
}
