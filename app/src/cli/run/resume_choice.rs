//! Runs of a plan that were before: which one goes on, and how a person says so.

use std::path::{Path, PathBuf};

use afresh_core::agent::AgentKind;
use afresh_core::audit::redact::redact_args;
use afresh_core::run::{Finish, Record, ResumeState};
use afresh_daemon::store::runs::{RunRow, Runs};

use super::{PLAN, RunArgs, now};
use crate::error::{CommandError, Exit};
use crate::output;

impl RunArgs {
    /// The command that goes on with this run, for a shell: the plan by the same name, and the same flags but secrets.
    pub(super) fn again(&self) -> String {
        let plan = self.plan.to_string_lossy();
        let plan = (plan != PLAN).then(|| plan.into_owned());
        let mut words = vec!["afresh".to_owned(), "run".to_owned()];
        words.extend(
            plan.map(|plan| if plan.starts_with('-') { format!("./{plan}") } else { plan }),
        );
        for (name, _, value) in self.flags.given() {
            words.push(format!("{name}={value}"));
        }
        if self.trust {
            words.push("--trust".to_owned());
        }
        words.push("--resume".to_owned());
        redact_args(&words).iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
    }
}

/// The runs of one plan. The same name in another folder is another plan.
pub(super) struct PlanRuns<'a> {
    pub(super) runs: &'a Runs,
    pub(super) plan: &'a Path,
    pub(super) cwd: &'a Path,
    pub(super) root: Option<&'a Path>,
}

impl PlanRuns<'_> {
    /// A run that begins.
    pub(super) fn begin(&self, title: &str, kind: AgentKind) -> Result<i64, CommandError> {
        if let Some((row, _)) = self.last()?
            && row.finish != Some(Finish::Done)
        {
            let run = row.run;
            output::remark(&format!(
                "run {run} of this plan is not done: --resume goes on with it"
            ));
        }
        let (path, folder) = (self.name(self.plan), self.name(self.cwd));
        Ok(self.runs.begin(now(), (&path, &folder), title, kind.name())?)
    }

    /// The run to go on with.
    pub(super) fn resume(&self) -> Result<(i64, ResumeState), CommandError> {
        let Some((row, past)) = self.last()? else {
            let text = format!("there is no run of `{}`", self.plan.display());
            return Err(
                CommandError::new(Exit::NotFound, text).hint("leave out --resume to begin one")
            );
        };
        let run = row.run;
        if row.finish == Some(Finish::Done) {
            let text = format!("run {run}, the last one of `{}`, is done", self.plan.display());
            return Err(
                CommandError::new(Exit::NotFound, text).hint("leave out --resume to begin another")
            );
        }
        if let Some(folder) = row.folder.filter(|folder| *folder != self.name(self.cwd)) {
            let folder =
                self.root.map_or_else(|| PathBuf::from(&folder), |root| root.join(&folder));
            let text =
                format!("run {run} works in `{}`, which is another folder", folder.display());
            let hint =
                "go there, and try again: the agent and the gates would be in the wrong place";
            return Err(CommandError::new(Exit::Usage, text).hint(hint));
        }
        self.runs.resume(run)?;
        Ok((run, past))
    }

    /// The last run of this plan. One that was refused before any phase began was none.
    fn last(&self) -> Result<Option<(RunRow, ResumeState)>, CommandError> {
        let name = self.name(self.plan);
        for row in self.runs.list(1_000)?.into_iter().filter(|row| self.is_of(&row.plan, &name)) {
            let records = self.runs.records(row.run)?;
            let has_begun = records.iter().any(|(_, it)| matches!(it, Record::PhaseBegan { .. }));
            if has_begun || !matches!(row.finish, Some(Finish::Refused { .. })) {
                let past = ResumeState::of(records.iter().map(|(_, record)| record));
                return Ok(Some((row, past)));
            }
        }
        Ok(None)
    }

    /// The name of a plan or folder in the whole workspace: from its root, or in full where it is elsewhere.
    fn name(&self, path: &Path) -> String {
        let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
        let path = real(self.cwd.join(path));
        let root = self.root.map(|root| real(root.to_owned()));
        let inner = root.and_then(|root| path.strip_prefix(root).map(Path::to_owned).ok());
        inner.unwrap_or(path).to_string_lossy().into_owned()
    }

    /// Whether a run is one of the plan with this name. Older runs have it as it was typed, in a folder that is not
    /// known: where there is no such file from the root, it was this one.
    fn is_of(&self, plan: &str, name: &str) -> bool {
        let of_root = self.root.map(|root| root.join(plan)).filter(|path| path.exists());
        plan == name || self.name(&of_root.unwrap_or_else(|| plan.into())) == name
    }
}

/// A word as a shell reads it.
fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
