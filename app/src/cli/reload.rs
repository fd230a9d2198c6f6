//! `afresh reload`.

use afresh_core::control::ReloadAnswer;
use afresh_daemon::control;
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output;
use crate::running::failed;

/// Let `afresh up` read its configuration again
#[derive(Debug, Args)]
#[command(
    long_about = "Lets the `afresh up` of this workspace read its configuration again.\n\nServices \
                  that are new are started, those that are gone are stopped, those that are defined \
                  otherwise are restarted, and all others are left alone. A configuration with an error \
                  changes nothing; `afresh config check` finds such errors before.",
    after_help = "Examples:\n  \
                  afresh reload"
)]
pub(crate) struct Arguments {
    /// Why, for the log
    #[arg(long, value_name = "TEXT", default_value = "asked by `afresh reload`", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,
}

pub(crate) fn run(arguments: &Arguments, environment: &Environment) -> Result<Exit, CommandError> {
    let Some(daemon) = super::up::daemon(environment)? else {
        return Err(CommandError::new(Exit::NotFound, "nothing is up here")
            .hint("`afresh up` starts what is configured"));
    };
    let answer = control::reload(&daemon.socket, &arguments.reason).map_err(failed)?;
    output::print(&format!("{}\n", told(&answer).join("\n")))?;
    Ok(Exit::Success)
}

fn told(answer: &ReloadAnswer) -> Vec<String> {
    let ReloadAnswer { added, removed, changed, unchanged, notes } = answer;
    let named = [
        ("new", added),
        ("changed, restarting those that run", changed),
        ("gone, stopping", removed),
    ];
    let lines = named.iter().filter(|(_, names)| !names.is_empty());
    let mut lines: Vec<String> =
        lines.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
    match unchanged.len() {
        0 => {}
        1 => lines.push("1 service is as it was".to_owned()),
        count => lines.push(format!("{count} services are as they were")),
    }
    lines.extend(notes.iter().cloned());
    lines
}
