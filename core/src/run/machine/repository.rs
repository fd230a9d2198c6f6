//! Owns where the run stands in git, what has changed in the current phase, what sessions put into `git stash`, and the
//! gate that checks which files were touched. Driven by the answers of git. Never runs git: requests leave as effects.

use std::time::Duration;

use super::Outbox;
use crate::limits::GATE_TAIL_CHARS_MAX;
use crate::run::checkpoint::tail;
use crate::run::plan::Phase;
use crate::run::{
    Effect, GateEnd, GitPosition, GitRequest, PhaseChanges, Record, ResumePhase, RunEvent, named,
};

/// The name of the gate for the files of a phase.
const FILES_GATE: &str = "files of the phase";

/// The repository, as far as the run knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Repository {
    pub(super) is_used: bool,
    pub(super) position: GitPosition,
    /// The commit at which the phase began.
    pub(super) base: Option<String>,
    /// The commit at which the last session ended; none while a session may be at work.
    pub(super) seen: Option<String>,
    /// Ranges of commits that a person or a gate made, not the agent.
    beside: Vec<(String, String)>,
    pub(super) changes: PhaseChanges,
    /// Entries of `git stash` when the phase began, newest first.
    pub(super) stashes_before: Vec<String>,
    /// How many are new since then: these stand above all others. What a session put there is in no commit, and the
    /// next session has to be told.
    new_stashes: usize,
    /// The message of the commit that git is asked for.
    message: String,
}

impl Repository {
    pub(super) fn new(is_used: bool, position: GitPosition) -> Self {
        Self { is_used, position, ..Self::default() }
    }

    /// Another phase begins.
    pub(super) fn begin_phase(&mut self) {
        *self = Self::new(self.is_used, std::mem::take(&mut self.position));
    }

    /// A phase goes on, or begins again after it failed.
    pub(super) fn resume_phase(&mut self, phase: &ResumePhase, stashes: Vec<String>) {
        self.base.clone_from(&phase.base);
        self.seen.clone_from(&phase.seen);
        self.beside.clone_from(&phase.beside);
        self.stashes_before = stashes;
    }

    /// Names of stash entries that are new in this phase, oldest first: popping in this order renames none that follows.
    pub(super) fn stashed(&self) -> Vec<String> {
        (0..self.new_stashes).rev().map(|place| format!("stash@{{{place}}}")).collect()
    }

    pub(super) fn ask_commit(&mut self, message: String, out: &mut Outbox) {
        self.message.clone_from(&message);
        out.push(Effect::Git(GitRequest::Commit { message, position: self.position.clone() }));
    }

    /// Asks what has changed in the phase.
    pub(super) fn ask_changes(&self, phase: &Phase, out: &mut Outbox) {
        let (since, files, beside) = (self.base.clone(), phase.files.clone(), self.beside.clone());
        out.push(Effect::Git(GitRequest::Changes { since, files, beside }));
    }

    /// Takes the current position, which is the base of a phase that begins for the first time.
    pub(super) fn set_position(&mut self, position: GitPosition, is_first: bool, out: &mut Outbox) {
        if is_first {
            self.base.clone_from(&position.commit);
        }
        if self.position != position {
            let GitPosition { branch, commit } = position.clone();
            out.record(Record::Stood { branch, commit });
            self.position = position;
        }
        self.note_others(out);
    }

    pub(super) fn committed(&mut self, commit: String, out: &mut Outbox) {
        self.position.commit = Some(commit.clone());
        out.record(Record::Committed { commit, message: std::mem::take(&mut self.message) });
    }

    /// What was there before the phase is committed.
    pub(super) fn tidied(&mut self, is_first: bool, out: &mut Outbox) {
        if is_first {
            self.base.clone_from(&self.position.commit);
        }
        self.note_others(out);
    }

    /// Records that commits since the last session are not the agent's.
    pub(super) fn note_others(&mut self, out: &mut Outbox) {
        if !self.is_used {
            return;
        }
        let (Some(from), Some(to)) = (self.seen.clone(), self.position.commit.clone()) else {
            return;
        };
        if from != to {
            out.record(Record::Beside { from: from.clone(), to: to.clone() });
            self.seen = Some(to.clone());
            self.beside.push((from, to));
        }
    }

    pub(super) fn set_changes(&mut self, changes: PhaseChanges, out: &mut Outbox) {
        if let Some(commit) = changes.head.clone().filter(|head| Some(head) != self.seen.as_ref()) {
            out.record(Record::Seen { commit });
        }
        self.seen.clone_from(&changes.head);
        self.changes = changes;
    }

    pub(super) fn set_changes_unknown(&mut self, why: String, out: &mut Outbox) {
        out.warn(format!("git cannot say what has changed: {why}"));
        self.changes = PhaseChanges { unknown: Some(why), ..PhaseChanges::default() };
    }

    /// Takes the stash as it is now. Warns of new entries, at `each_time` also of those that were warned of.
    pub(super) fn set_stash(&mut self, now: &[String], each_time: bool, out: &mut Outbox) {
        let known = self.new_stashes;
        self.new_stashes =
            now.iter().take_while(|stash| !self.stashes_before.contains(stash)).count();
        if self.new_stashes > 0 && (each_time || self.new_stashes != known) {
            let names = self.stashed();
            let names = named(names.iter().map(String::as_str));
            out.warn(format!(
                "work was put into the stash, and is in no commit: {names}; `git stash show -p -u` shows it"
            ));
        }
    }

    /// Judges which files were touched. Returns the gate where it failed: its name, and why.
    pub(super) fn judge_files(&self, phase: &Phase, out: &mut Outbox) -> Option<(String, String)> {
        let PhaseChanges { outside, unknown, .. } = &self.changes;
        let is_asked = self.is_used && !phase.files.is_empty();
        let (passed, ending, output) = match unknown {
            // Files that git could not list are not allowed.
            Some(why) if is_asked => {
                (false, format!("git cannot say which were touched: {why}"), String::new())
            }
            _ if !outside.is_empty() => {
                let names = named(outside.iter().map(String::as_str));
                let all = outside.join("\n");
                let all = format!("these files may not be touched in this phase:\n{all}");
                (false, format!("may not be touched: {names}"), all)
            }
            _ if is_asked => (true, "no other was touched".to_owned(), String::new()),
            _ => return None,
        };
        let shown = tail(&output, GATE_TAIL_CHARS_MAX);
        out.record(Record::GateEnded {
            phase: phase.name.clone(),
            gate: FILES_GATE.to_owned(),
            passed,
            ending: ending.clone(),
            output: shown.clone(),
            took_ms: 0,
        });
        // Its index is that of no gate of the plan.
        let (gate, took) = (phase.gates.len(), Duration::ZERO);
        let end = GateEnd { gate, passed, ending: ending.clone(), output: shown, took };
        out.say(RunEvent::GateEnds(FILES_GATE.to_owned(), end));
        let why = if output.is_empty() { ending } else { output };
        (!passed).then(|| (FILES_GATE.to_owned(), why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::machine::tests::{phase, position};

    #[test]
    fn commits_since_the_last_session_are_not_the_agents() {
        let (mut repository, mut out) =
            (Repository::new(true, GitPosition::default()), Outbox::default());
        repository.set_position(position("a"), true, &mut out);
        let changes = PhaseChanges { head: Some("b".to_owned()), ..PhaseChanges::default() };
        repository.set_changes(changes, &mut out);
        repository.set_position(position("c"), false, &mut out);
        assert_eq!(repository.beside, [("b".to_owned(), "c".to_owned())]);
        assert_eq!(repository.base.as_deref(), Some("a"));
        repository.begin_phase();
        assert!(repository.seen.is_none() && repository.position == position("c"));
    }

    #[test]
    fn the_files_gate_fails_for_files_outside_and_where_git_cannot_tell() {
        let (mut repository, mut out) =
            (Repository::new(true, GitPosition::default()), Outbox::default());
        let mut limited = phase("A", &[]);
        assert_eq!(repository.judge_files(&limited, &mut out), None);
        limited.files = vec!["src/**".to_owned()];
        assert_eq!(repository.judge_files(&limited, &mut out), None);
        assert_eq!(out.take().len(), 2, "a record and a line that it has passed");
        repository.set_changes_unknown("locked".to_owned(), &mut out);
        assert!(repository.judge_files(&limited, &mut out).is_some());
        repository.set_changes(
            PhaseChanges { outside: vec!["x".to_owned()], ..PhaseChanges::default() },
            &mut out,
        );
        let (name, why) = repository.judge_files(&phase("B", &[]), &mut out).unwrap();
        assert!(name == FILES_GATE && why.ends_with("\nx"), "{why}");
    }

    #[test]
    fn only_what_is_new_in_the_stash_is_told_and_the_oldest_of_it_first() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (mut repository, mut out) = (Repository::default(), Outbox::default());
        repository.stashes_before = list(&["a"]);
        repository.set_stash(&list(&["a"]), true, &mut out);
        assert!(out.take().is_empty());
        repository.set_stash(&list(&["c", "b", "a"]), false, &mut out);
        assert_eq!(out.take().len(), 1);
        assert_eq!(repository.stashed(), ["stash@{1}", "stash@{0}"]);
        repository.set_stash(&list(&["c", "b", "a"]), false, &mut out);
        assert!(out.take().is_empty());
    }
}
