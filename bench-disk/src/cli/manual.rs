//! `bench-disk manual`: manual pages, made from the same table as `--help`. Packages call it.

use crate::cli::run::Failure;
use crate::cli::{self, exit};
use clap::{Args, CommandFactory};
use std::io::{self, Write};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Command whose page is printed, also a command of a command; without one, the program's
    command: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let mut command = cli::Arguments::command();
    command.build();
    let mut title = String::from("bench-disk");
    for name in &arguments.command {
        let found = command.get_subcommands().find(|known| known.get_name() == name).cloned();
        let found = found.ok_or_else(|| Failure::Usage(format!("no command {name:?}")))?;
        title = format!("{title}-{name}");
        command = found.display_name(&title);
    }
    let failed = |source| Failure::Output { what: "the manual page".into(), source };
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .section("1")
        .manual("Assay")
        .render(&mut page)
        .map_err(failed)?;
    io::stdout().lock().write_all(&page).map_err(failed)?;
    Ok(exit::PASS)
}
