//! Where results go: text for people on standard output, and forms for programs.

use crate::cli::colour;
use crate::cli::run::Failure;
use bench_disk::env::Environment;
use bench_disk::output::{self, Document, fio, html, textfile};
use bench_disk::report;
use bench_disk::verdict::Verdict;
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(next_help_heading = "Output (FILE may be - for standard output instead of the text)")]
pub(crate) struct Outputs {
    /// Write the result as JSON (documented, versioned)
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result in the schema of fio 3.33, for scripts that read fio
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    fio_json: Option<PathBuf>,
    /// Write metrics for the textfile collector of Prometheus' node exporter
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    textfile: Option<PathBuf>,
    /// Write a page with plots, complete in one file
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Outputs {
    /// Refuses what cannot be done before anything is measured.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let all = [&self.json, &self.fio_json, &self.textfile, &self.html];
        let standard = all.into_iter().flatten().filter(|path| is_standard(path)).count();
        if standard > 1 {
            return Err(Failure::Usage("only one form fits on standard output: name files".into()));
        }
        Ok(())
    }

    /// Writes every form that was asked for. The text is left out if one of them took its place.
    pub(crate) fn write(
        &self,
        environment: &Environment,
        verdict: &Verdict,
    ) -> Result<(), Failure> {
        let mut text = true;
        let mut put = |path: &Option<PathBuf>, form: &dyn Fn() -> io::Result<Vec<u8>>| {
            let Some(path) = path else { return Ok(()) };
            text &= !is_standard(path);
            form().and_then(|bytes| deliver(path, &bytes)).map_err(|source| Failure::Output {
                what: if is_standard(path) {
                    "the result".into()
                } else {
                    path.display().to_string()
                },
                source,
            })
        };
        put(&self.json, &|| json(&Document::new(environment, verdict)))?;
        put(&self.fio_json, &|| json(&fio::document(environment, verdict)))?;
        put(&self.textfile, &|| Ok(textfile::render(environment, verdict).into_bytes()))?;
        put(&self.html, &|| Ok(html::render(environment, verdict).into_bytes()))?;
        if text { say(&report::render(environment, verdict)) } else { Ok(()) }
    }
}

/// Text for people, coloured where a person looks.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let failed = |source| Failure::Output { what: "the report".into(), source };
    io::stdout().lock().write_all(colour::paint(text).as_bytes()).map_err(failed)
}

/// A line that is not the result: what is measured goes on without a reader.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// A document on standard output.
pub(crate) fn say_json(document: &impl Serialize) -> Result<(), Failure> {
    let failed = |source| Failure::Output { what: "JSON".into(), source };
    json(document).and_then(|bytes| io::stdout().lock().write_all(&bytes)).map_err(failed)
}

fn json(document: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(document).map_err(io::Error::other)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn deliver(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_standard(path) {
        io::stdout().lock().write_all(bytes)
    } else {
        output::write(path, bytes)
    }
}

fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}
