//! Carries out `start`, `stop` and `restart` over the control API, and prints one line for each service. Driven
//! by these commands. The order of restarts is planned in core.

use std::collections::BTreeMap;

use afresh_core::control::{Change, ChangeAnswer, ChangeOutcome};
use afresh_core::fleet::{RestartPlan, RestartStep};
use afresh_core::text::harmless;
use afresh_daemon::control::{self, ControlError, Reached};
use afresh_daemon::error_chain::chain;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output::{self, Lines};
use crate::running::{RunningServices, ServiceScope, failed};

/// A service by its supervisor and its name there.
type ServiceKey = (u32, String);

/// A request to change services.
#[derive(Debug)]
pub(crate) struct ServiceCommand<'a> {
    pub(crate) what: Change,
    pub(crate) names: &'a [String],
    pub(crate) reason: &'a str,
    pub(crate) waits: bool,
    pub(crate) scope: ServiceScope,
}

impl ServiceCommand<'_> {
    /// Carries it out for all services of these names.
    pub(crate) fn carry_out(&self, environment: &Environment) -> Result<Exit, CommandError> {
        let running = RunningServices::find(environment, self.scope)?;
        let chosen = running.all_named(self.names)?;
        if chosen.len() > self.names.len() {
            let doing = match self.what {
                Change::Start => "starting",
                Change::Stop => "stopping",
                Change::Restart => "restarting",
            };
            output::remark(&format!("{} services are called that: {doing} all", chosen.len()));
        }
        let key = |reached: &Reached| (reached.status.supervisor_pid, reached.status.name.clone());
        let depends_on = running.services.iter().map(|reached| {
            let (supervisor, needed) = (reached.status.supervisor_pid, &reached.status.depends_on);
            (key(reached), needed.iter().map(|name| (supervisor, name.clone())).collect())
        });
        let depends_on = match self.what {
            Change::Restart => depends_on.collect(),
            Change::Start | Change::Stop => BTreeMap::new(),
        };
        let keys: Vec<ServiceKey> = chosen.iter().map(|reached| key(reached)).collect();
        let mut plan = RestartPlan::new(&keys, &depends_on);
        let mut exit = Exit::Success;
        while let Some(step) = plan.next_step() {
            for (service, is_done) in self.take(step, &chosen)? {
                plan.done(service, is_done);
                exit = if is_done { exit } else { Exit::Failed };
            }
        }
        let up = running.services.iter().filter(|reached| reached.status.pid.is_some());
        let left = plan.left_alone(up.map(key));
        if let Some(line) = left_alone(&plan, &keys, &left) {
            output::remark(&line);
        }
        Ok(exit)
    }

    /// Sends the requests of one step, and prints a line for each service.
    fn take(
        &self,
        step: Vec<RestartStep<ServiceKey>>,
        chosen: &[&Reached],
    ) -> Result<Vec<(ServiceKey, bool)>, CommandError> {
        let reached = |(supervisor, name): &ServiceKey| {
            let is_it = |one: &&&Reached| {
                one.status.supervisor_pid == *supervisor && one.status.name == *name
            };
            chosen.iter().find(is_it).copied()
        };
        let targets = step.iter().filter_map(|step| match step {
            RestartStep::Restart(service) => reached(service).map(Reached::target),
            RestartStep::Skip { .. } => None,
        });
        let targets: Vec<_> = targets.collect();
        let answers = control::change(&targets, self.what, self.reason, self.waits);
        let mut answers = answers.map_err(failed)?.into_iter();
        let mut lines = Lines::new();
        let mut all = Vec::new();
        for step in step {
            let (service, line, is_done) = match step {
                RestartStep::Skip { service, needed } => {
                    let (name, needed) = (harmless(&service.1), harmless(&needed.1));
                    let why = format!("it depends on {needed}, which is not up");
                    (service, format!("{name}: not restarted: {why}"), false)
                }
                RestartStep::Restart(service) => match answers.next() {
                    Some(answer) => {
                        let (line, is_done) = self.told(&service.1, &answer);
                        (service, line, is_done)
                    }
                    None => continue,
                },
            };
            lines.write(&line)?;
            all.push((service, is_done));
        }
        lines.flush()?;
        Ok(all)
    }

    /// One line for one service, and whether all went well.
    fn told(&self, name: &str, answer: &Result<ChangeAnswer, ControlError>) -> (String, bool) {
        let name = harmless(name);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return (format!("{name}: {}", whole(error)), false),
        };
        let pid = |pid: Option<u32>| pid.map_or_else(|| "none".to_owned(), |pid| pid.to_string());
        let (old, new) = (pid(answer.old_pid), pid(answer.new_pid));
        let why = answer.detail.as_deref().unwrap_or("why is in `afresh history`");
        // The lines of a traceback stay lines.
        let why = why.lines().map(harmless).collect::<Vec<_>>().join("\n  ");
        match (answer.outcome, self.what) {
            (ChangeOutcome::Accepted, what) => {
                (format!("{name}: the {} is on record", what.name()), true)
            }
            (ChangeOutcome::Up, Change::Start) if answer.old_pid == answer.new_pid => {
                (format!("{name}: it runs already (pid {new})"), true)
            }
            (ChangeOutcome::Up, Change::Start) => (format!("{name}: started (pid {new})"), true),
            (ChangeOutcome::Up, _) if answer.old_pid.is_none() => {
                (format!("{name}: started (pid {new}); it was down"), true)
            }
            (ChangeOutcome::Up, _) => (format!("{name}: restarted (pid {old} → {new})"), true),
            (ChangeOutcome::Down, _) if answer.old_pid.is_none() => {
                (format!("{name}: it is stopped already"), true)
            }
            (ChangeOutcome::Down, _) => (format!("{name}: stopped (pid {old})"), true),
            (ChangeOutcome::Failed, Change::Stop) => (format!("{name}: not stopped: {why}"), false),
            (ChangeOutcome::Failed, Change::Start) => (format!("{name}: not up: {why}"), false),
            (ChangeOutcome::Failed, _) => {
                (format!("{name}: the new instance is gone again: {why}"), false)
            }
            (ChangeOutcome::StillWaiting, Change::Stop) => {
                (format!("{name}: not down within a minute: {why}"), false)
            }
            (ChangeOutcome::StillWaiting, _) => {
                (format!("{name}: not up within a minute: {why}"), false)
            }
        }
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
