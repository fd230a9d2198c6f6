//! What is wanted of services that run: to start, to stop, to restart. One line says what became of each.

use afresh_core::control::{Change, ChangeAnswer, ChangeOutcome, Dependence, ServiceStatus};
use afresh_core::text::harmless;
use afresh_daemon::control::{self, ControlError, Reached};
use afresh_daemon::error_chain::chain;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output::{self, Lines};
use crate::running::{Running, Scope, failed};

/// What is wanted, and of whom.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) what: Change,
    pub(crate) names: &'a [String],
    pub(crate) reason: &'a str,
    pub(crate) waits: bool,
    pub(crate) scope: Scope,
}

impl Wish<'_> {
    /// Asks for it, of all services of these names, and says what became of it.
    pub(crate) fn carry_out(&self, environment: &Environment) -> Result<Exit, CommandError> {
        let running = Running::find(environment, self.scope)?;
        let chosen = running.all_named(self.names)?;
        if chosen.len() > self.names.len() {
            let doing = match self.what {
                Change::Start => "starting",
                Change::Stop => "stopping",
                Change::Restart => "restarting",
            };
            output::remark(&format!("{} services are called that: {doing} all", chosen.len()));
        }
        let statuses: Vec<&ServiceStatus> = chosen.iter().map(|one| &one.status).collect();
        let known = Dependence::of(running.services.iter().map(|reached| &reached.status));
        let steps = match self.what {
            Change::Restart => known.steps(&statuses),
            Change::Start | Change::Stop => vec![(0..chosen.len()).collect()],
        };
        let (mut done, mut not_done): (Vec<&ServiceStatus>, Vec<&ServiceStatus>) =
            Default::default();
        for step in steps {
            let step: Vec<&Reached> = step.into_iter().map(|at| chosen[at]).collect();
            for (reached, is_done) in self.take(&step, &known, &not_done)? {
                if is_done { &mut done } else { &mut not_done }.push(&reached.status);
            }
        }
        if self.what == Change::Restart {
            let left = known.running_dependents(&statuses);
            let left = left.into_iter().filter(|one| done.iter().any(|it| known.depends(one, it)));
            if let Some(line) = left_alone(&known, &statuses, &left.collect::<Vec<_>>()) {
                output::remark(&line);
            }
        }
        Ok(if not_done.is_empty() { Exit::Success } else { Exit::Failed })
    }

    /// Asks for it of services that do not depend on each other, and says of each whether it is done.
    /// What depends on one of which it is not is left as it is.
    fn take<'b>(
        &self,
        step: &[&'b Reached],
        known: &Dependence<'b>,
        not_done: &[&ServiceStatus],
    ) -> Result<Vec<(&'b Reached, bool)>, CommandError> {
        let lost = |reached: &&'b Reached| {
            not_done.iter().find(|needed| known.depends(&reached.status, needed)).copied()
        };
        let begun: Vec<&Reached> =
            step.iter().filter(|reached| lost(reached).is_none()).copied().collect();
        let targets: Vec<_> = begun.iter().map(|reached| reached.target()).collect();
        let answers = control::change(&targets, self.what, self.reason, self.waits);
        let mut answers = answers.map_err(failed)?.into_iter();
        let mut lines = Lines::new();
        let mut all = Vec::new();
        for reached in step {
            let (line, is_done) = match lost(reached) {
                Some(needed) => {
                    let (name, needed) = (harmless(&reached.status.name), harmless(&needed.name));
                    let why = format!("it depends on {needed}, which is not up");
                    (format!("{name}: not restarted: {why}"), false)
                }
                None => match answers.next() {
                    Some(answer) => self.told(reached, &answer),
                    None => continue,
                },
            };
            lines.write(&line)?;
            all.push((*reached, is_done));
        }
        lines.flush()?;
        Ok(all)
    }

    /// One line for one service, and whether all went well.
    fn told(
        &self,
        reached: &Reached,
        answer: &Result<ChangeAnswer, ControlError>,
    ) -> (String, bool) {
        let name = harmless(&reached.status.name);
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
    known: &Dependence<'_>,
    restarted: &[&ServiceStatus],
    left: &[&ServiceStatus],
) -> Option<String> {
    let name = |status: &&ServiceStatus| harmless(&status.name);
    let needed = restarted.iter().filter(|one| left.iter().any(|other| known.depends(other, one)));
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
