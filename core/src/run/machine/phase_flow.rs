//! Takes a phase from its base over the commits of its sessions and its gates to its end. Driven by the answers of
//! git and the ends of gates. Never talks to the agent.
//!
//! A gate can change files: a formatter does, and so does one that is wrong. No gate that ran before has seen such a
//! change, so that all are run once more where they were green.

use std::time::Duration;

use super::commit_messages;
use super::gates::Gates;
use super::progress::PhaseProgress;
use super::repository::Repository;
use super::session_flow::{PendingEnd, TOO_LATE};
use super::{HeldWork, Machine, Step};
use crate::agent::Spent;
use crate::run::{
    Cause, Dirty, Effect, Finish, GitAnswer, GitPosition, GitRequest, Kind, PhaseEnd, Record,
    RunEvent,
};
use crate::time::Stamp;

impl Machine {
    pub(super) fn begin_phase(&mut self) {
        if self.plan.current().is_none() {
            return self.finish(self.plan.finish());
        }
        self.plan.tell_begin(&mut self.out);
        self.step = Step::Basing;
        if self.repository.is_used {
            self.out.push(Effect::Git(GitRequest::Base(self.repository.position.clone())));
        } else if !self.grant() {
            self.start_phase();
        }
    }

    /// Takes the stash, which is listed before git answers what it was asked.
    pub(super) fn stash_listed(&mut self, stash: Vec<String>) {
        match self.step {
            Step::Basing if self.phase.kind.is_none() => self.repository.stashes_before = stash,
            Step::Committing { .. } => self.repository.set_stash(&stash, true, &mut self.out),
            // A gate can have made one.
            Step::Sealing => self.repository.set_stash(&stash, false, &mut self.out),
            _ => {}
        }
    }

    pub(super) fn git_answered(&mut self, answer: GitAnswer) {
        let is_end = !matches!(answer, GitAnswer::Base { .. } | GitAnswer::Changes(_));
        match (std::mem::replace(&mut self.step, Step::Idle), answer) {
            (Step::Basing, GitAnswer::Base { position, dirty }) => self.based(position, &dirty),
            (Step::Basing, GitAnswer::NoRepository(why)) => {
                self.refuse(
                    why,
                    "run `git init` and commit, or pass --no-git to work without commits",
                );
            }
            (Step::Basing, GitAnswer::Unready(why)) => {
                self.refuse(why, "see what `git status` says here");
            }
            (Step::Basing, GitAnswer::Failed(why)) => {
                self.refuse(format!("git failed: {why}"), "see what `git status` says here");
            }
            (Step::Tidying, GitAnswer::Committed(commit)) => {
                if let Some(commit) = commit {
                    self.repository.committed(commit, &mut self.out);
                    self.repository.tidied(self.phase.is_first(), &mut self.out);
                }
                self.start_phase();
            }
            (
                Step::Tidying,
                GitAnswer::Failed(why) | GitAnswer::NoRepository(why) | GitAnswer::Unready(why),
            ) => {
                let why = format!("what is there cannot be committed: {why}");
                self.refuse(why, "commit it yourself, and begin again");
            }
            (Step::Committing { cause, until }, answer) if is_end => {
                if self.committed(answer).is_some() {
                    self.step = Step::Looking { cause, until };
                    self.repository.ask_changes(self.plan.phase(), &mut self.out);
                }
            }
            (Step::Looking { cause, until }, GitAnswer::Changes(changes)) => {
                self.repository.set_changes(changes, &mut self.out);
                self.after_session(cause, until);
            }
            (
                Step::Looking { cause, until },
                GitAnswer::Failed(why) | GitAnswer::NoRepository(why),
            ) => {
                self.repository.set_changes_unknown(why, &mut self.out);
                self.after_session(cause, until);
            }
            (Step::Sealing, answer) if is_end => {
                if let Some(has_changed) = self.committed(answer) {
                    self.sealed(has_changed);
                }
            }
            // The step does not wait for git.
            (step, _) => self.step = step,
        }
    }

    fn based(&mut self, position: GitPosition, dirty: &[String]) {
        // Where the last session has ended in order, all that came since is a person's.
        let is_theirs = self.phase.kind.is_none() || self.repository.seen.is_some();
        self.repository.set_position(position, self.phase.is_first(), &mut self.out);
        if self.grant() {
            return;
        }
        if dirty.is_empty() || !is_theirs {
            return self.start_phase();
        }
        match self.settings.dirty {
            Dirty::Refuse => {
                let why = format!("{} files are changed and not committed", dirty.len());
                self.refuse(why, "commit or stash them, or pass --dirty commit");
            }
            Dirty::Commit => {
                let phase = &self.plan.phase().name;
                self.commit(Step::Tidying, &commit_messages::before_phase(phase));
            }
        }
    }

    fn start_phase(&mut self) {
        if self.phase.kind.is_none() {
            let phase = self.plan.phase().name.clone();
            let Repository { base, stashes_before, .. } = &self.repository;
            let (base, stashes) = (base.clone(), stashes_before.clone());
            self.out.record(Record::PhaseBegan { phase, base, stashes });
            return self.open(Kind::First);
        }
        // What the lost session did is safe first.
        let unjudged = self.phase.unjudged.take();
        if unjudged.is_some() {
            self.out.note("the last session is over: its gates are run again");
        }
        self.commit_session(unjudged.unwrap_or(Cause::Lost), None);
    }

    /// Commits the work of a session; what comes next depends on why it ended.
    pub(super) fn commit_session(&mut self, cause: Cause, until: Option<Stamp>) {
        if !self.repository.is_used {
            return self.after_session(cause, until);
        }
        let phase = &self.plan.phase().name;
        let message = commit_messages::of_session(phase, cause, self.phase.kind);
        self.commit(Step::Committing { cause, until }, &message);
    }

    fn commit(&mut self, step: Step, message: &str) {
        self.step = step;
        let message = commit_messages::with_prefix(&self.settings.commit_prefix, message);
        self.repository.ask_commit(message, &mut self.out);
    }

    /// Takes the answer to a commit: whether there was something to commit. Work that cannot be committed ends the
    /// run: the next session would build on it.
    fn committed(&mut self, answer: GitAnswer) -> Option<bool> {
        let why = match answer {
            GitAnswer::Committed(Some(commit)) => {
                self.repository.committed(commit, &mut self.out);
                return Some(true);
            }
            GitAnswer::Failed(why) | GitAnswer::NoRepository(why) => {
                format!("the work is in the files, but cannot be committed: {why}")
            }
            GitAnswer::Unready(why) => {
                format!("the work is in the files and not committed: {why}")
            }
            _ => return Some(false),
        };
        self.finish(Finish::Stopped { why });
        None
    }

    /// The work of a session is safe: decides what follows from its end.
    fn after_session(&mut self, cause: Cause, until: Option<Stamp>) {
        if !matches!(cause, Cause::Stopped | Cause::Skipped) && self.grant() {
            return;
        }
        self.pending_end = None;
        let why = self.phase.why.clone();
        match cause {
            cause if self.phase.is_for_gates(cause) => self.begin_gates(),
            Cause::Done => self.begin_gates(),
            Cause::Stopped | Cause::OutOfBudget => self.finish(Finish::Stopped { why }),
            Cause::Skipped => self.end_phase(PhaseEnd::Skipped, &why),
            Cause::TimedOut => self.end_phase(PhaseEnd::Failed, &why),
            Cause::Limited => self.wait_for_limit(until),
            Cause::Lost if self.phase.is_restart_due && self.ends_for_restarts() => {}
            Cause::RestartAsked | Cause::Lost => self.open(self.phase.continued()),
            Cause::ContextLimitRestart
            | Cause::CompactedRestart
            | Cause::Stalled
            | Cause::Overflow
            | Cause::Crashed
            | Cause::Failed => self.restart(&why),
        }
    }

    fn restart(&mut self, why: &str) {
        let max = self.settings.max_restarts;
        if self.phase.restarts >= max {
            let text = format!(
                "it was restarted {max} times, and not done when the last session ended: {why}"
            );
            self.end_phase(PhaseEnd::Failed, &text);
        } else if !self.ends_for_restarts() {
            self.usage.restarts += 1;
            self.phase.restarts += 1;
            let kind = Kind::Restart(self.phase.restarts);
            self.step = Step::Resting { kind, until: self.now.time + self.settings.restart_delay };
        }
    }

    /// Stops the run where it may not restart its agent once more. Returns whether that is so.
    fn ends_for_restarts(&mut self) -> bool {
        let why = self.usage.out_of_restarts();
        why.map(|why| self.finish(Finish::Stopped { why })).is_some()
    }

    fn wait_for_limit(&mut self, said: Option<Stamp>) {
        let until = match self.phase.next_wait(self.now.stamp, said, &self.settings) {
            Ok(until) => until,
            Err(why) => return self.finish(Finish::Stopped { why }),
        };
        let why = self.phase.why.clone();
        self.out.record(Record::Waiting { why: why.clone(), until: until.to_string() });
        self.out.say(RunEvent::Waits { why, until });
        self.step = Step::Limited { kind: self.phase.continued(), until };
    }

    fn begin_gates(&mut self) {
        let failed = self.repository.judge_files(self.plan.phase(), &mut self.out);
        self.gates.begin_round(failed);
        self.run_next_gate();
    }

    pub(super) fn run_next_gate(&mut self) {
        if self.gates.is_round_over(self.plan.phase()) {
            self.judge();
        } else if self.is_held {
            self.step = Step::Held(HeldWork::Gate);
        } else if let Some(why) = self.usage.out_of_time(self.plan.current()) {
            self.end_for(why);
        } else {
            self.step = Step::Gating;
            let (phase, now) = (self.plan.phase(), self.now.stamp);
            self.gates.start(phase, &self.settings, now, &mut self.out);
        }
    }

    /// All gates were run. What they have changed is committed.
    fn judge(&mut self) {
        if !self.gates.failed.is_empty() {
            self.gates.is_second_round = false;
            let names: Vec<&str> =
                self.gates.failed.iter().map(|(name, _)| name.as_str()).collect();
            let (max, names) = (self.settings.max_remediations, names.join(", "));
            if self.phase.remediations >= max {
                let text = format!("after {max} remediations these gates still fail: {names}");
                return self.end_phase(PhaseEnd::Failed, &text);
            }
            self.phase.remediations += 1;
            self.phase.why = format!("gates failed: {names}");
        }
        if !self.repository.is_used {
            return self.sealed(false);
        }
        let phase = self.plan.phase();
        let is_done = self.gates.failed.is_empty() && self.gates.is_last_round(phase);
        let message = commit_messages::of_gates(&phase.name, is_done);
        self.commit(Step::Sealing, &message);
    }

    /// The gates are judged, and what they have changed is safe.
    fn sealed(&mut self, has_changed: bool) {
        if !self.gates.failed.is_empty() {
            self.repository.note_others(&mut self.out);
            if !self.grant() {
                let kind = Kind::Remediation(self.phase.remediations);
                let until = self.now.time + self.settings.restart_delay;
                self.step = Step::Resting { kind, until };
            }
        } else if !has_changed || self.gates.is_last_round(self.plan.phase()) {
            self.end_phase(PhaseEnd::Done, "");
        } else {
            self.out.note("gates have changed files: all are run once more");
            self.gates.is_second_round = true;
            self.repository.note_others(&mut self.out);
            self.step = Step::Looking { cause: Cause::Done, until: None };
            self.repository.ask_changes(self.plan.phase(), &mut self.out);
        }
    }

    pub(super) fn end_phase(&mut self, end: PhaseEnd, detail: &str) {
        self.usage.record_time(&mut self.out);
        // The request to skip it did not mean the next one.
        if self.pending_end.take_if(|end| *end == PendingEnd::Skip).is_some() {
            self.out.note(TOO_LATE);
        }
        let name = self.plan.phase().name.clone();
        self.plan.end_phase(end, detail, &mut self.out);
        if end == PhaseEnd::Failed {
            return self.finish(Finish::Failed { why: format!("phase `{name}` failed: {detail}") });
        }
        self.phase = PhaseProgress::default();
        self.gates = Gates::default();
        self.repository.begin_phase();
        self.usage.begin_phase(Spent::default(), Duration::ZERO);
        self.begin_phase();
    }
}
