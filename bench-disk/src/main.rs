//! The `bench-disk` program.
#![allow(clippy::disallowed_methods, reason = "the probe has its own file access and clock")]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
