//! Finds the lines of services: on disk, or with the afresh that remembers them. Driven by `afresh logs`. Never
//! prints.

use std::path::{Path, PathBuf};

use afresh_core::text::harmless;
use afresh_daemon::control::{Reached, ServiceAddress};
use afresh_daemon::store::service_log;

use crate::environment::Environment;
use crate::error::CommandError;
use crate::output;
use crate::running::{RunningServices, ServiceScope, is_called, workspace};

/// What is to be shown.
pub(super) struct Sources {
    /// Where logs are on disk.
    pub(super) folder: PathBuf,
    /// The services that have theirs there.
    pub(super) on_disk: Vec<String>,
    /// The others, with the name for people.
    pub(super) remembered: Vec<(ServiceAddress, String)>,
}

impl Sources {
    /// Finds the logs of these services, or of all in scope.
    pub(super) fn find(
        environment: &Environment,
        names: &[String],
        all: bool,
    ) -> Result<Self, CommandError> {
        let folder = folder(environment);
        let files = service_log::services(&folder);
        let running = match RunningServices::find(environment, ServiceScope::of(all)) {
            // Files can be read without a running afresh.
            Err(_) if !files.is_empty() => RunningServices::default(),
            found => found?,
        };
        let here = workspace(environment);
        let is_here = |reached: &Reached| reached.status.workspace == here;
        let has_file = |reached: &Reached| {
            let name = &reached.status.name;
            is_here(reached)
                && files.contains(name)
                && service_log::is_written(&service_log::file_of(&folder, name))
        };
        let remembered: Vec<&Reached> =
            running.services.iter().filter(|reached| !has_file(reached)).collect();
        // An old file of a service that runs now without one is not its log.
        let is_old = |name: &String| {
            remembered.iter().any(|reached| is_here(reached) && reached.status.name == *name)
        };
        let mut on_disk: Vec<String> = files.iter().filter(|name| !is_old(name)).cloned().collect();
        let mut chosen = remembered.clone();
        if names.is_empty() {
            if on_disk.is_empty() && chosen.is_empty() {
                output::remark(&running.nothing_here());
            }
        } else {
            for name in names {
                let is_known = on_disk.iter().any(|file| is_file_of(file, name))
                    || remembered.iter().any(|reached| is_called(&reached.status, name));
                if !is_known {
                    return Err(unknown(&running, name, &on_disk));
                }
            }
            on_disk.retain(|file| names.iter().any(|name| is_file_of(file, name)));
            chosen.retain(|reached| names.iter().any(|name| is_called(&reached.status, name)));
        }
        Ok(Self { folder, on_disk, remembered: named(&chosen) })
    }

    /// What stands in front of lines: for files, and for those that are remembered. Nothing where there
    /// is only one service.
    pub(super) fn labels(&self) -> (Vec<String>, Vec<String>) {
        let remembered = self.remembered.iter().map(|(_, label)| label.clone()).collect();
        (self.on_disk.iter().map(|name| harmless(name)).collect(), remembered)
    }
}

/// Those that are remembered, each with a label that no other has.
fn named(chosen: &[&Reached]) -> Vec<(ServiceAddress, String)> {
    let label = |reached: &Reached| {
        let (name, pid) = (harmless(&reached.status.name), reached.status.supervisor_pid);
        let same = chosen.iter().filter(|other| other.status.name == reached.status.name);
        if same.count() > 1 { format!("{name} {pid}") } else { name }
    };
    chosen.iter().map(|reached| (reached.target(), label(reached))).collect()
}

/// Whether a file is of a service of this name, or of one of its copies.
fn is_file_of(file: &str, name: &str) -> bool {
    let copy = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    file == name
        || copy.is_some_and(|copy| !copy.is_empty() && copy.bytes().all(|b| b.is_ascii_digit()))
}

fn unknown(running: &RunningServices, name: &str, on_disk: &[String]) -> CommandError {
    let Err(error) = running.named(name) else {
        // It runs, and writes a file that is not there any more.
        let text = format!("the log of `{}` is gone", harmless(name));
        return CommandError::new(crate::error::Exit::NotFound, text);
    };
    if on_disk.is_empty() {
        return error;
    }
    let listed: Vec<String> = on_disk.iter().take(20).map(|name| harmless(name)).collect();
    let more = if on_disk.len() > 20 { ", …" } else { "" };
    error.hint(format!("logs on disk: {}{more}", listed.join(", ")))
}

/// Where logs are. Those of a project that cannot be written are with the user's state.
fn folder(environment: &Environment) -> PathBuf {
    let mut workspace = environment.workspace();
    let folder = workspace.logs();
    if folder.exists() {
        return folder;
    }
    workspace.locate();
    let folder: &Path = &workspace.logs();
    folder.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_belong_to_their_name() {
        for (file, name, belongs) in [
            ("web", "web", true),
            ("web-12", "web", true),
            ("web-12", "web-12", true),
            ("web-", "web", false),
            ("web-x1", "web", false),
            ("website", "web", false),
            ("web", "web-1", false),
        ] {
            assert_eq!(is_file_of(file, name), belongs, "{file} {name}");
        }
    }
}
