//! Text on standard output, whoever reads it.

use crate::cli::run::Failure;
use std::io::{self, Write};

/// Writes text; an output that nobody reads any more is an error and no panic.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|source| Failure::Output { what: "the result".into(), source })
}

/// Writes a line that is not the result: what is measured goes on without a reader.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}
