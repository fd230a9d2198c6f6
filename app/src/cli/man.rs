//! `afresh man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::error::{CommandResult, Exit, OrExit};
use crate::output;

/// Print the manual page, or write all of them into a folder
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    afresh man | man -l -                           read it\n  \
    afresh man --into ~/.local/share/man/man1       install the pages of all commands")]
pub(crate) struct ManArgs {
    /// Write `afresh.1` and one page for each command into this folder
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ManArgs) -> CommandResult {
    let Some(folder) = &arguments.into else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        return output::print(&String::from_utf8_lossy(&page));
    };
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    let path = folder.display();
    written
        .map_err(|error| format!("cannot write the pages to `{path}`: {error}"))
        .or_exit(Exit::Unavailable)?;
    Ok(Exit::Success)
}
