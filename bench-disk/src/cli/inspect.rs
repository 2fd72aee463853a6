//! `bench-disk inspect`: what lies under a directory, without writing or loading anything.

use crate::cli::{exit, outputs, run::Failure};
use bench_disk::env::Environment;
use bench_disk::finding::Finding;
use bench_disk::identity::Identity;
use bench_disk::output::JSON_SCHEMA;
use bench_disk::report::inspect;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "Exit codes: 0 nothing forbids a consensus log here, 2 usage, 4 REFUSED, \
    5 I/O error.\n\nWorks without root. What it could not read stands under NOT READ.")]
pub(crate) struct Arguments {
    /// Directory to look under; if it does not exist, its nearest parent
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    /// Nothing forbids a consensus log here.
    allowed: bool,
    refusals: Vec<&'a Finding>,
    identity: Identity,
    weak_identity: bool,
    environment: &'a Environment,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let environment = Environment::inspect(&arguments.dir)?;
    let refusals: Vec<&Finding> = environment.refusals().collect();
    let code = if refusals.is_empty() { exit::PASS } else { exit::REFUSED };
    if arguments.json {
        let identity = Identity::of(&environment);
        outputs::say_json(&Document {
            schema: JSON_SCHEMA,
            allowed: refusals.is_empty(),
            refusals,
            weak_identity: identity.weak(),
            identity,
            environment: &environment,
        })?;
    } else {
        outputs::say(&inspect::render(&environment))?;
    }
    Ok(code)
}
