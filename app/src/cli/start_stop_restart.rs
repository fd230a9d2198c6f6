//! `afresh start`, `afresh stop` and `afresh restart`: asks over the control API, and prints one line for each
//! service. The order of restarts is planned in core.

use std::collections::BTreeMap;

use afresh_core::control::{Change, ChangeAnswer, ChangeOutcome};
use afresh_core::fleet::{RestartPlan, RestartStep};
use afresh_core::text::harmless;
use afresh_daemon::control::{self, ControlError, Reached, ServiceAddress};
use afresh_daemon::error_chain::chain;
use clap::{Args, Subcommand};

use crate::environment::Environment;
use crate::error::{CommandResult, Exit};
use crate::output::{self, Lines};
use crate::running_services::RunningServices;

/// The commands that change services.
#[derive(Debug, Subcommand)]
pub(crate) enum LifecycleCommand {
    /// Starts services that are down under a running afresh: stopped by `afresh stop`, finished, or given up.
    ///
    /// The start and its reason are in the trail. It waits until the services are up, a minute at most, and
    /// exits with 1 where one is not. One that runs is left alone.
    #[command(
        about = "Start services that were stopped, have finished or have failed",
        after_help = "Examples:\n  \
                      afresh start web\n  \
                      afresh start web worker --reason 'back from lunch'",
        mut_arg("reason", |arg| arg.default_value("asked by `afresh start`")),
        mut_arg("no_wait", |arg| arg.help("Do not wait until they are up")),
        // One that is changed goes to the end, and this was the last.
        mut_arg("all", |arg| arg)
    )]
    Start(LifecycleArgs),
    /// Stops services and leaves them down, until `afresh start` or `afresh restart`.
    ///
    /// The stop and its reason are in the trail before anything stops. The afresh that keeps them stays. It
    /// waits until they are down, a minute at most. A server of `afresh mcp` cannot be stopped: its client
    /// would lose it.
    #[command(
        about = "Stop services, until they are started again",
        after_help = "Examples:\n  \
                      afresh stop web\n  \
                      afresh stop web worker --reason 'the port is needed'",
        mut_arg("reason", |arg| arg.default_value("asked by `afresh stop`")),
        mut_arg("no_wait", |arg| arg.help("Do not wait until they are down")),
        mut_arg("all", |arg| arg)
    )]
    Stop(LifecycleArgs),
    /// Replaces the instances of services by new ones.
    ///
    /// The restart and its reason are in the trail before anything stops. Where several services have the
    /// name, such as the same server in two editors, all of them are restarted. It waits until the new
    /// instances are up, a minute at most, and exits with 1 where one is not.
    ///
    /// Several services of `afresh up` are restarted in their order: one that depends on another of them when
    /// that one is up. What is not named goes on as it is; it says which of those depend on what was
    /// restarted.
    #[command(
        about = "Restart services, on record and with a reason",
        after_help = "Examples:\n  \
                      afresh restart web --reason 'new certificate'\n  \
                      afresh restart web worker           several of them\n  \
                      afresh restart web --no-wait        and go on at once"
    )]
    Restart(LifecycleArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LifecycleArgs {
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

/// A service by its supervisor and its name there.
type ServiceKey = (u32, String);

pub(crate) fn run(command: &LifecycleCommand, environment: &Environment) -> CommandResult {
    let (what, doing, arguments) = match command {
        LifecycleCommand::Start(arguments) => (Change::Start, "starting", arguments),
        LifecycleCommand::Stop(arguments) => (Change::Stop, "stopping", arguments),
        LifecycleCommand::Restart(arguments) => (Change::Restart, "restarting", arguments),
    };
    let running = RunningServices::find(environment, arguments.all)?;
    let chosen = running.all_named(&arguments.names)?;
    if chosen.len() > arguments.names.len() {
        output::remark(&format!("{} services are called that: {doing} all", chosen.len()));
    }
    let key = |reached: &Reached| (reached.status.supervisor_pid, reached.status.name.clone());
    let depends_on = running.services.iter().filter(|_| what == Change::Restart).map(|reached| {
        let (supervisor, needed) = (reached.status.supervisor_pid, &reached.status.depends_on);
        (key(reached), needed.iter().map(|name| (supervisor, name.clone())).collect())
    });
    let keys: Vec<ServiceKey> = chosen.iter().map(|reached| key(reached)).collect();
    let targets: BTreeMap<ServiceKey, ServiceAddress> =
        chosen.iter().map(|reached| (key(reached), reached.target())).collect();
    let mut plan = RestartPlan::new(&keys, &depends_on.collect());
    let mut exit = Exit::Success;
    while let Some(step) = plan.next_step() {
        let asked = step.iter().filter_map(|step| match step {
            RestartStep::Restart(service) => targets.get(service).cloned(),
            RestartStep::Skip { .. } => None,
        });
        let asked: Vec<ServiceAddress> = asked.collect();
        let answers = control::change(&asked, what, &arguments.reason, !arguments.no_wait)?;
        let mut answers = answers.into_iter();
        let mut lines = Lines::new();
        for step in step {
            let (service, told, is_done) = match step {
                RestartStep::Skip { service, needed } => {
                    let needed = harmless(&needed.1);
                    let why = format!("not restarted: it depends on {needed}, which is not up");
                    (service, why, false)
                }
                RestartStep::Restart(service) => {
                    let Some(answer) = answers.next() else { continue };
                    let (told, is_done) = match answer {
                        Ok(answer) => told(what, &answer),
                        Err(error) => (whole(&error), false),
                    };
                    (service, told, is_done)
                }
            };
            lines.write(&format!("{}: {told}", harmless(&service.1)))?;
            plan.done(service, is_done);
            exit = if is_done { exit } else { Exit::Failed };
        }
        lines.flush()?;
    }
    let up = running.services.iter().filter(|reached| reached.status.pid.is_some());
    let left = plan.left_alone(up.map(key));
    if let Some(line) = left_alone(&plan, &keys, &left) {
        output::remark(&line);
    }
    Ok(exit)
}

/// What became of one service, and whether all went well.
fn told(what: Change, answer: &ChangeAnswer) -> (String, bool) {
    let pid = |pid: Option<u32>| pid.map_or_else(|| "none".to_owned(), |pid| pid.to_string());
    let (old, new) = (pid(answer.old_pid), pid(answer.new_pid));
    let why = answer.detail.as_deref().unwrap_or("why is in `afresh history`");
    // The lines of a traceback stay lines.
    let why = why.lines().map(harmless).collect::<Vec<_>>().join("\n  ");
    let was_down = answer.old_pid.is_none();
    match (answer.outcome, what) {
        (ChangeOutcome::Accepted, what) => (format!("the {} is on record", what.name()), true),
        (ChangeOutcome::Up, Change::Start) if answer.old_pid == answer.new_pid => {
            (format!("it runs already (pid {new})"), true)
        }
        (ChangeOutcome::Up, Change::Start) => (format!("started (pid {new})"), true),
        (ChangeOutcome::Up, _) if was_down => (format!("started (pid {new}); it was down"), true),
        (ChangeOutcome::Up, _) => (format!("restarted (pid {old} → {new})"), true),
        (ChangeOutcome::Down, _) if was_down => ("it is stopped already".to_owned(), true),
        (ChangeOutcome::Down, _) => (format!("stopped (pid {old})"), true),
        (ChangeOutcome::Failed, Change::Stop) => (format!("not stopped: {why}"), false),
        (ChangeOutcome::Failed, Change::Start) => (format!("not up: {why}"), false),
        (ChangeOutcome::Failed, _) => (format!("the new instance is gone again: {why}"), false),
        (ChangeOutcome::StillWaiting, Change::Stop) => {
            (format!("not down within a minute: {why}"), false)
        }
        (ChangeOutcome::StillWaiting, _) => (format!("not up within a minute: {why}"), false),
    }
}

/// That services which run were left alone, although they depend on some that were restarted.
fn left_alone(
    plan: &RestartPlan<ServiceKey>,
    restarted: &[ServiceKey],
    left: &[ServiceKey],
) -> Option<String> {
    let name = |(_, name): &ServiceKey| harmless(name);
    let needed = restarted.iter().filter(|one| left.iter().any(|other| plan.depends(other, one)));
    let needed = listed(&needed.map(name).collect::<Vec<_>>());
    let names: Vec<String> = left.iter().map(name).collect();
    let (verb, they) = match names.len() {
        0 => return None,
        1 => ("depends", "it was"),
        _ => ("depend", "they were"),
    };
    let all: Vec<String> = restarted.iter().map(name).chain(names.iter().cloned()).collect();
    let count = if all.len() == 2 { "both" } else { "all" };
    Some(format!(
        "{} {verb} on {needed}; {they} not restarted; `afresh restart {}` restarts {count} in order",
        listed(&names),
        all.join(" ")
    ))
}

/// Names in a sentence.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => name.clone(),
        [names @ .., last] => format!("{} and {last}", names.join(", ")),
    }
}

/// An error with its causes and hint, as one line.
fn whole(error: &ControlError) -> String {
    let mut text = chain(error);
    if let ControlError::Refused { hint: Some(hint), .. } = error {
        text.push_str(&format!("; {hint}"));
    }
    harmless(&text)
}
