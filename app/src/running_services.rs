//! Owns the list of services that run now, and their choice by name and workspace. Driven by the commands. Never
//! changes a service.

use std::path::Path;

use afresh_core::control::ServiceStatus;
use afresh_core::suggest::nearest;
use afresh_core::text::harmless;
use afresh_daemon::abandoned_warden;
use afresh_daemon::control::{self, Reached};

use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output;

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
    /// Asks every afresh of this user; in scope is the workspace that we are in, or all of them. Those that do not
    /// answer are named on stderr.
    pub(crate) fn find(environment: &Environment, all: bool) -> CommandResult<Self> {
        let (running, warnings) = Self::look(environment, all)?;
        warnings.iter().for_each(|warning| output::warn(warning));
        Ok(running)
    }

    /// The same; about those that do not answer it has warnings.
    pub(crate) fn look(environment: &Environment, all: bool) -> CommandResult<(Self, Vec<String>)> {
        let found = control::find(&environment.runtime_folders())?;
        let silent = |pid: &u32| {
            format!("warning: afresh with pid {pid} does not answer: it is stopped, or very busy")
        };
        let warnings = found.silent.iter().map(silent).collect();
        let here = workspace(environment);
        let in_scope = |reached: &Reached| all || reached.status.workspace == here;
        let (services, elsewhere) = found.services.into_iter().partition(in_scope);
        let left = abandoned_warden(&environment.located_workspace().state().join("run"));
        let abandoned = left.map_or(0, |left| left.instances);
        let silent = found.silent;
        Ok((Self { services, elsewhere, abandoned, silent }, warnings))
    }

    /// The services of this name, or copies of it: two editors may run the same one. An error that
    /// helps where there is none.
    pub(crate) fn named(&self, name: &str) -> CommandResult<Vec<&Reached>> {
        let found: Vec<&Reached> =
            self.services.iter().filter(|reached| is_called(&reached.status, name)).collect();
        if found.is_empty() { Err(self.unknown(name)) } else { Ok(found) }
    }

    /// The services of these names, each once.
    pub(crate) fn all_named(&self, names: &[String]) -> CommandResult<Vec<&Reached>> {
        let mut chosen: Vec<&Reached> = Vec::new();
        for name in names {
            let mut found = self.named(name)?;
            found.retain(|reached| !chosen.iter().any(|other| std::ptr::eq(*other, *reached)));
            chosen.extend(found);
        }
        Ok(chosen)
    }

    fn unknown(&self, name: &str) -> CommandError {
        let shown = harmless(name);
        let text = format!("no service `{shown}` runs in this workspace");
        let error = CommandError::new(Exit::NotFound, text);
        let is_it = |reached: &&Reached| is_called(&reached.status, name);
        if let Some(other) = self.elsewhere.iter().find(is_it) {
            let place =
                harmless(other.status.workspace.as_deref().unwrap_or("outside of projects"));
            return error.hint(format!("one runs in `{place}`: go there, or add `--all`"));
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
        error.hint(format!("here run: {}", first_names(&names, 20)))
    }

    /// That nothing runs in scope, and where something does.
    pub(crate) fn nothing_here(&self) -> String {
        if self.abandoned > 0 {
            return format!(
                "{} of an afresh that was killed run on here: `afresh up` takes them over",
                output::counted(self.abandoned, "service")
            );
        }
        let elsewhere = match self.elsewhere.len() {
            0 => {
                let begins = "`afresh up`, `afresh keep -- CMD` or `afresh mcp -- CMD` begins";
                return format!("nothing runs under afresh; {begins}");
            }
            1 => "one service runs".to_owned(),
            count => format!("{count} services run"),
        };
        format!("nothing runs here under afresh; {elsewhere} elsewhere: `afresh status --all`")
    }
}

/// Some names of a list, and whether there are more.
pub(crate) fn first_names(names: &[impl AsRef<str>], names_max: usize) -> String {
    let shown: Vec<String> =
        names.iter().take(names_max).map(|name| harmless(name.as_ref())).collect();
    let more = if names.len() > names_max { ", …" } else { "" };
    shown.join(", ") + more
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
