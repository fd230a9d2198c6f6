//! `afresh restart`.

use afresh_core::config::harmless;
use afresh_core::control::{RestartAnswer, RestartOutcome};
use afresh_daemon::control::{self, ControlError, Reached};
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output::{self, Lines};
use crate::running::{Running, Scope, failed};

/// Restart services, on record and with a reason
#[derive(Debug, Args)]
#[command(
    long_about = "Replaces the instances of services by new ones.\n\nThe restart and its reason are \
                  in the trail before anything stops. Where several services have the name, such as \
                  the same server in two editors, all of them are restarted. It waits until the new \
                  instances are up, a minute at most, and exits with 1 where one is not.",
    after_help = "Examples:\n  \
                  afresh restart web --reason 'new certificate'\n  \
                  afresh restart web worker           several of them\n  \
                  afresh restart web --no-wait        and go on at once"
)]
pub(crate) struct Arguments {
    /// The services: their names, as `afresh status` shows them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// Why, for the trail
    #[arg(long, value_name = "TEXT", default_value = "asked by `afresh restart`", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,

    /// Do not wait for the new instances
    #[arg(long)]
    no_wait: bool,

    /// Also services of other workspaces
    #[arg(short, long)]
    all: bool,
}

pub(crate) fn run(arguments: &Arguments, environment: &Environment) -> Result<Exit, CommandError> {
    let running = Running::find(environment, Scope::of(arguments.all))?;
    let mut chosen: Vec<&Reached> = Vec::new();
    for name in &arguments.names {
        for reached in running.named(name)? {
            let known = chosen.iter().any(|other| std::ptr::eq(*other, reached));
            if !known {
                chosen.push(reached);
            }
        }
    }
    if chosen.len() > arguments.names.len() {
        output::remark(&format!("{} services are called that: restarting all", chosen.len()));
    }
    let targets: Vec<_> = chosen.iter().map(|reached| reached.target()).collect();
    let answers =
        control::restart(&targets, &arguments.reason, !arguments.no_wait).map_err(failed)?;
    let mut lines = Lines::new();
    let mut well = true;
    for (reached, answer) in chosen.iter().zip(&answers) {
        let (line, done) = told(&reached.status.name, answer);
        well &= done;
        lines.write(&line)?;
    }
    lines.flush()?;
    Ok(if well { Exit::Success } else { Exit::Failed })
}

/// One line for one service, and whether all went well.
fn told(name: &str, answer: &Result<RestartAnswer, ControlError>) -> (String, bool) {
    let name = harmless(name);
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return (format!("{name}: {}", whole(error)), false),
    };
    let pid = |pid: Option<u32>| pid.map_or_else(|| "none".to_owned(), |pid| pid.to_string());
    let why = answer.detail.as_deref().unwrap_or("why is in `afresh history`");
    // The lines of a traceback stay lines.
    let why = why.lines().map(harmless).collect::<Vec<_>>().join("\n  ");
    match answer.outcome {
        RestartOutcome::Accepted => (format!("{name}: the restart is on record"), true),
        RestartOutcome::Up => {
            let (old, new) = (pid(answer.old_pid), pid(answer.new_pid));
            (format!("{name}: restarted (pid {old} → {new})"), true)
        }
        RestartOutcome::Failed => (format!("{name}: the new instance is gone again: {why}"), false),
        RestartOutcome::StillWaiting => (format!("{name}: not up within a minute: {why}"), false),
    }
}

/// An error with its causes, as one line.
fn whole(error: &ControlError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    harmless(&text)
}
