//! `bench-disk explain`: the text about a finding.

use crate::cli::run::Failure;
use crate::cli::{exit, outputs};
use bench_disk::explain;
use bench_disk::report::wrap;
use clap::Args;
use std::fmt::Write;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Code of the finding, as printed in brackets; without one, all codes are listed
    #[arg(value_name = "FINDING")]
    code: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let mut text = String::new();
    match &arguments.code {
        None => {
            for explanation in explain::all() {
                let _ = writeln!(text, "{:<23} {}", explanation.code, explanation.title);
            }
        }
        Some(code) => {
            let code = code.trim_matches(['[', ']']);
            let explanation = explain::of(code).ok_or_else(|| unknown(code))?;
            let _ = writeln!(text, "{}: {}\n", explanation.code, explanation.title);
            text.push_str(&wrap("", 0, explanation.meaning));
            let _ = writeln!(text, "\nWhat to do");
            text.push_str(&wrap("", 0, explanation.remedy));
        }
    }
    outputs::say(&text)?;
    Ok(exit::PASS)
}

fn unknown(code: &str) -> Failure {
    let near = match explain::nearest(code) {
        Some(near) => format!("did you mean {near}?"),
        None => "`bench-disk explain` lists all".into(),
    };
    Failure::Usage(format!("no finding has the code {code:?}: {near}"))
}
