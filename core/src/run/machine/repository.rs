//! Owns where the run stands in git, what has changed in the current phase, and the gate that checks which files were
//! touched. Driven by the answers of git. Never runs git: requests leave as effects.

use std::time::Duration;

use super::outbox::Outbox;
use super::stash::Stashes;
use crate::limits::GATE_TAIL_CHARS_MAX;
use crate::run::checkpoint::tail;
use crate::run::plan::Phase;
use crate::run::{
    Effect, GateEnd, GitPosition, GitRequest, PhaseChanges, Record, ResumePhase, RunEvent, named,
};

/// The name of the gate for the files of a phase.
const FILES_GATE: &str = "files of the phase";

/// The repository, as far as the run knows it.
#[derive(Clone, Debug)]
pub(super) struct Repository {
    is_used: bool,
    position: GitPosition,
    /// The commit at which the phase began.
    base: Option<String>,
    /// The commit at which the last session ended; none while a session may be at work.
    seen: Option<String>,
    /// Ranges of commits that a person or a gate made, not the agent.
    beside: Vec<(String, String)>,
    changes: PhaseChanges,
    stashes: Stashes,
}

impl Repository {
    pub(super) fn new(is_used: bool, position: GitPosition) -> Self {
        Self {
            is_used,
            position,
            base: None,
            seen: None,
            beside: Vec::new(),
            changes: PhaseChanges::default(),
            stashes: Stashes::default(),
        }
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
        self.stashes = Stashes::since(stashes);
    }

    pub(super) const fn is_used(&self) -> bool {
        self.is_used
    }

    pub(super) const fn changes(&self) -> &PhaseChanges {
        &self.changes
    }

    /// Whether the last session has ended in order, so that later changes are a person's.
    pub(super) const fn has_seen_end(&self) -> bool {
        self.seen.is_some()
    }

    /// Names of stash entries that are new in this phase.
    pub(super) fn stashed(&self) -> Vec<String> {
        self.stashes.names()
    }

    pub(super) fn phase_began(&self, phase: &Phase) -> Record {
        let (base, stashes) = (self.base.clone(), self.stashes.before().to_vec());
        Record::PhaseBegan { phase: phase.name.clone(), base, stashes }
    }

    pub(super) fn ask_base(&self, out: &mut Outbox) {
        out.push(Effect::Git(GitRequest::Base(self.position.clone())));
    }

    pub(super) fn ask_commit(&self, message: String, out: &mut Outbox) {
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

    pub(super) fn committed(&mut self, commit: String, message: String, out: &mut Outbox) {
        self.position.commit = Some(commit.clone());
        out.record(Record::Committed { commit, message });
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

    /// The stash when the phase begins for the first time.
    pub(super) fn begin_stash(&mut self, now: Vec<String>) {
        self.stashes = Stashes::since(now);
    }

    pub(super) fn set_stash(&mut self, now: &[String], each_time: bool, out: &mut Outbox) {
        if let Some(warning) = self.stashes.update(now, each_time) {
            out.warn(warning);
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
        assert!(!repository.has_seen_end() && repository.position == position("c"));
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
}
