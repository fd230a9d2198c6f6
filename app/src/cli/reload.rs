//! `afresh reload`.

use afresh_core::control::{ChangeAnswer, ChangeOutcome, Face, ReloadAnswer};
use afresh_core::text::harmless;
use afresh_daemon::control;
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandResult, Exit, harmless_lines};
use crate::output;

/// Lets the `afresh up` of this workspace, and each `afresh gateway`, read their configuration again.
///
/// Services and servers that are new are started, those that are gone are stopped, those that are defined
/// otherwise are restarted, and all others are left alone, with their connections. A configuration with an
/// error changes nothing; `afresh config check` finds such errors before.
///
/// It waits until all of that is done, a minute at most, and exits with 1 where something of it has failed.
#[derive(Debug, Args)]
#[command(
    about = "Let `afresh up` and `afresh gateway` read their configuration again",
    after_help = "Examples:\n  \
                  afresh reload\n  \
                  afresh reload --no-wait             and go on at once"
)]
pub(crate) struct ReloadArgs {
    /// Why, for the log
    #[arg(long, value_name = "TEXT", default_value = "asked by `afresh reload`", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,

    /// Do not wait until services are up, or down
    #[arg(long)]
    no_wait: bool,
}

pub(crate) fn run(arguments: &ReloadArgs, environment: &Environment) -> CommandResult {
    let daemons = super::up::daemons(environment, &[Face::Up, Face::Gateway])?;
    if daemons.is_empty() {
        return Err(super::down::not_there(environment));
    }
    let (mut exit, mut wrong) = (Exit::Success, None);
    for daemon in &daemons {
        let answer = control::reload(&daemon.socket, &arguments.reason, !arguments.no_wait);
        let answer = match answer {
            Ok(answer) => answer,
            // The others are asked nevertheless.
            Err(error) => {
                wrong.get_or_insert(error);
                continue;
            }
        };
        let mut lines = told(&answer);
        let not_done: Vec<String> = answer.outcomes.iter().filter_map(not_done).collect();
        if !not_done.is_empty() {
            exit = Exit::Failed;
        }
        lines.extend(not_done);
        if daemons.len() > 1 {
            let version = &daemon.version;
            lines.insert(0, format!("`afresh {}` (pid {}):", version.face.name(), version.pid));
        }
        output::print(&(lines.join("\n") + "\n"))?;
    }
    wrong.map_or(Ok(exit), |error| Err(error.into()))
}

/// What is wrong with a service that is not as the configuration has it.
fn not_done(outcome: &ChangeAnswer) -> Option<String> {
    let what = match outcome.outcome {
        ChangeOutcome::Accepted | ChangeOutcome::Up | ChangeOutcome::Down => return None,
        ChangeOutcome::Failed => "it has failed",
        ChangeOutcome::StillWaiting => "not done within a minute",
    };
    let why = outcome.detail.as_deref().unwrap_or("why is in `afresh history`");
    Some(format!("{}: {what}: {}", harmless(&outcome.name), harmless_lines(why)))
}

fn told(answer: &ReloadAnswer) -> Vec<String> {
    let ReloadAnswer { added, removed, changed, unchanged, notes, .. } = answer;
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
