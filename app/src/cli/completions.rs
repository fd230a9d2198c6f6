//! `afresh completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::{CommandError, Exit};
use crate::output;

/// Print the completion script of a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    afresh completions bash > ~/.local/share/bash-completion/completions/afresh\n  \
    afresh completions zsh > ~/.zfunc/_afresh\n  \
    afresh completions fish > ~/.config/fish/completions/afresh.fish")]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "afresh", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
