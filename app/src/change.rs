//! What is wanted of services that run: to start, to stop, to restart. One line says what became of each.

use afresh_core::config::harmless;
use afresh_core::control::{Change, ChangeAnswer, ChangeOutcome};
use afresh_daemon::control::{self, ControlError, Reached};

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
        let targets: Vec<_> = chosen.iter().map(|reached| reached.target()).collect();
        let answers = control::change(&targets, self.what, self.reason, self.waits);
        let answers = answers.map_err(failed)?;
        let mut lines = Lines::new();
        let mut well = true;
        for (reached, answer) in chosen.iter().zip(&answers) {
            let (line, done) = self.told(reached, answer);
            well &= done;
            lines.write(&line)?;
        }
        lines.flush()?;
        Ok(if well { Exit::Success } else { Exit::Failed })
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
            (ChangeOutcome::Up, _) => (format!("{name}: restarted (pid {old} → {new})"), true),
            (ChangeOutcome::Down, _) if answer.old_pid.is_none() => {
                (format!("{name}: it is stopped already"), true)
            }
            (ChangeOutcome::Down, _) => (format!("{name}: stopped (pid {old})"), true),
            (ChangeOutcome::Failed, Change::Stop) => (format!("{name}: not stopped: {why}"), false),
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

/// An error with its causes and hint, as one line.
fn whole(error: &ControlError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    if let ControlError::Refused { hint: Some(hint), .. } = error {
        text.push_str(&format!("; {hint}"));
    }
    harmless(&text)
}
