//! Owns the list of services that run now, and their choice by name and workspace. Driven by the commands. Never
//! changes a service.

use std::path::Path;

use afresh_core::control::ServiceStatus;
use afresh_core::suggest::nearest;
use afresh_core::text::harmless;
use afresh_daemon::abandoned_warden;
use afresh_daemon::control::{self, ControlError, Reached};

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output;

/// Which services a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceScope {
    /// Those of the workspace that we are in.
    Here,
    /// All of this user.
    Everywhere,
}

impl ServiceScope {
    pub(crate) fn of(all: bool) -> Self {
        if all { Self::Everywhere } else { Self::Here }
    }
}

/// What runs.
#[derive(Debug, Default)]
pub(crate) struct RunningServices {
    /// In scope.
    pub(crate) services: Vec<Reached>,
    /// Out of scope.
    pub(crate) elsewhere: Vec<Reached>,
    /// Services of this workspace that outlived their afresh, and have no other yet.
    pub(crate) abandoned: u64,
    /// afresh processes that do not answer, so that their services are unknown.
    silent: Vec<u32>,
}

impl RunningServices {
    /// Asks every afresh of this user. Those that do not answer are named on stderr.
    pub(crate) fn find(
        environment: &Environment,
        scope: ServiceScope,
    ) -> Result<Self, CommandError> {
        let (running, warnings) = Self::look(environment, scope)?;
        warnings.iter().for_each(|warning| output::warn(warning));
        Ok(running)
    }

    /// The same; about those that do not answer it has warnings.
    pub(crate) fn look(
        environment: &Environment,
        scope: ServiceScope,
    ) -> Result<(Self, Vec<String>), CommandError> {
        let found = control::find(&environment.runtime_folders()).map_err(failed)?;
        let silent = |pid: &u32| {
            format!("warning: afresh with pid {pid} does not answer: it is stopped, or very busy")
        };
        let warnings = found.silent.iter().map(silent).collect();
        let here = workspace(environment);
        let in_scope = |reached: &Reached| {
            scope == ServiceScope::Everywhere || reached.status.workspace == here
        };
        let (services, elsewhere) = found.services.into_iter().partition(in_scope);
        let mut workspace = environment.workspace();
        workspace.locate();
        let left = abandoned_warden(&workspace.state().join("run"));
        let abandoned = left.map_or(0, |left| left.instances);
        let silent = found.silent;
        Ok((Self { services, elsewhere, abandoned, silent }, warnings))
    }

    /// The services of this name, or copies of it: two editors may run the same one. An error that
    /// helps where there is none.
    pub(crate) fn named(&self, name: &str) -> Result<Vec<&Reached>, CommandError> {
        let found: Vec<&Reached> =
            self.services.iter().filter(|reached| is_called(&reached.status, name)).collect();
        if found.is_empty() { Err(self.unknown(name)) } else { Ok(found) }
    }

    /// The services of these names, each once.
    pub(crate) fn all_named(&self, names: &[String]) -> Result<Vec<&Reached>, CommandError> {
        let mut chosen: Vec<&Reached> = Vec::new();
        for name in names {
            for reached in self.named(name)? {
                let known = chosen.iter().any(|other| std::ptr::eq(*other, reached));
                if !known {
                    chosen.push(reached);
                }
            }
        }
        Ok(chosen)
    }

    fn unknown(&self, name: &str) -> CommandError {
        let shown = harmless(name);
        let error = CommandError::new(
            Exit::NotFound,
            format!("no service `{shown}` runs in this workspace"),
        );
        if let Some(other) = self.elsewhere.iter().find(|reached| is_called(&reached.status, name))
        {
            let place =
                other.status.workspace.as_deref().map_or("outside of projects", |place| place);
            return error
                .hint(format!("one runs in `{}`: go there, or add `--all`", harmless(place)));
        }
        if let [first, ..] = self.silent.as_slice() {
            let pids: Vec<String> = self.silent.iter().map(u32::to_string).collect();
            let text = format!(
                "cannot tell whether service `{shown}` runs: the afresh with pid {} does not answer",
                pids.join(", ")
            );
            return CommandError::new(Exit::Unavailable, text).hint(format!(
                "it is stopped, or very busy: `kill -CONT {first}` lets it go on, `kill {first}` ends it"
            ));
        }
        let names: Vec<&str> =
            self.services.iter().map(|reached| reached.status.name.as_str()).collect();
        if names.is_empty() {
            return error.hint(self.nothing_here());
        }
        let error = match nearest(name, names.iter().copied()) {
            Some(near) => error.hint(format!("did you mean `{}`?", harmless(near))),
            None => error,
        };
        let listed: Vec<String> = names.iter().take(20).map(|name| harmless(name)).collect();
        let more = if names.len() > 20 { ", …" } else { "" };
        error.hint(format!("here run: {}{more}", listed.join(", ")))
    }

    /// That nothing runs in scope, and where something does.
    pub(crate) fn nothing_here(&self) -> String {
        if self.abandoned > 0 {
            return format!(
                "{} of an afresh that was killed run on here: `afresh up` takes them over",
                services(self.abandoned)
            );
        }
        match self.elsewhere.len() {
            0 => "nothing runs under afresh; `afresh up`, `afresh keep -- CMD` or `afresh mcp -- CMD` begins"
                .to_owned(),
            1 => {
                "nothing runs here under afresh; one service runs elsewhere: `afresh status --all`"
                    .to_owned()
            }
            count => format!(
                "nothing runs here under afresh; {count} services run elsewhere: `afresh status --all`"
            ),
        }
    }
}

/// So many services, in words.
pub(crate) fn services(count: u64) -> String {
    if count == 1 { "1 service".to_owned() } else { format!("{count} services") }
}

/// A text of several lines without what a terminal would obey.
pub(crate) fn harmless_lines(text: &str) -> String {
    text.lines().map(harmless).collect::<Vec<_>>().join("\n")
}

/// What went wrong with a control socket, for people.
pub(crate) fn failed(error: ControlError) -> CommandError {
    match error {
        ControlError::Print(error) => error.into(),
        ControlError::Refused { ref what, ref hint } => {
            let refused = CommandError::new(Exit::Failed, harmless_lines(what));
            match hint {
                Some(hint) => refused.hint(harmless(hint)),
                None => refused,
            }
        }
        error @ ControlError::Unsupported => CommandError::new(Exit::Unavailable, error),
        error => CommandError::new(Exit::Unavailable, error).hint("run `afresh status --all`"),
    }
}

pub(crate) fn is_called(status: &ServiceStatus, name: &str) -> bool {
    status.name == name || status.group.as_deref() == Some(name)
}

/// The workspace that we are in, as a running afresh would say it.
pub(crate) fn workspace(environment: &Environment) -> Option<String> {
    let workspace = environment.workspace();
    let real = |root: &Path| std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    workspace.root().map(|root| real(root).display().to_string())
}
