//! What becomes of a phase: where it begins, what is committed, whether its gates are green.

use super::super::checkpoint::tail;
use super::*;
use crate::backoff::ExponentialWait;
use crate::limits::{GATE_TAIL_CHARS_MAX, LIMIT_WAITS_MAX};

impl Machine {
    pub(super) fn begin_phase(&mut self) {
        if self.phase.index >= self.plan.phases.len() {
            self.finish(self.how_all_ended());
            return;
        }
        let (number, of) = (self.phase.index + 1, self.plan.phases.len());
        let phase = self.this_phase().name.clone();
        self.say(Say::PhaseBegins { phase, number, of });
        self.warn_of_skipped();
        self.step = Step::Basing;
        if self.settings.without_git {
            let now = Now { time: self.last, stamp: self.stamp };
            return self.git_answered(now, GitAnswer::NoRepository(String::new()));
        }
        self.git(GitAsk::Base(self.stand.clone()));
    }

    pub(super) fn this_phase(&self) -> &Phase {
        &self.plan.phases[self.phase.index]
    }

    pub(super) fn git_answered(&mut self, now: Now, answer: GitAnswer) {
        let is_end = !matches!(answer, GitAnswer::Base { .. } | GitAnswer::Looked(_));
        match (std::mem::replace(&mut self.step, Step::Idle), answer) {
            (Step::Basing, _) if self.settings.without_git => {
                self.has_git = false;
                if !self.grant() {
                    self.start_phase(now);
                }
            }
            (Step::Basing, GitAnswer::Base { stand, dirty }) => self.based(now, stand, &dirty),
            (Step::Basing, GitAnswer::NoRepository(why)) => {
                let hint = "run `git init` and commit, or pass --no-git to work without commits";
                self.finish(Finish::Refused { why, hint: hint.to_owned() });
            }
            (Step::Basing, GitAnswer::Unready(why)) => {
                let hint = "see what `git status` says here".to_owned();
                self.finish(Finish::Refused { why, hint });
            }
            (Step::Basing, GitAnswer::Failed(why)) => {
                let hint = "see what `git status` says here".to_owned();
                self.finish(Finish::Refused { why: format!("git failed: {why}"), hint });
            }
            (Step::Tidying, GitAnswer::Committed(commit)) => {
                if let Some(commit) = commit {
                    self.stand.commit = Some(commit.clone());
                    if self.is_first() {
                        self.phase.base = Some(commit.clone());
                    }
                    let message = self.tidy_message();
                    self.record(Record::Committed { commit, message });
                    self.others_worked();
                }
                self.start_phase(now);
            }
            (Step::Committing { cause, message, until }, answer) if is_end => {
                if !self.committed(message, answer) {
                    return;
                }
                self.look(cause, until);
            }
            (Step::Looking { cause, until }, GitAnswer::Looked(looked)) => {
                self.saw(looked);
                self.after_session(now, cause, until);
            }
            (
                Step::Looking { cause, until },
                GitAnswer::Failed(why) | GitAnswer::NoRepository(why),
            ) => {
                self.note(format!("git cannot say what has changed: {why}"), true);
                self.phase.looked = Looked { unknown: Some(why), ..Looked::default() };
                self.after_session(now, cause, until);
            }
            (Step::Sealing { message }, answer) if is_end => {
                let has_changed = matches!(answer, GitAnswer::Committed(Some(_)));
                if self.committed(message, answer) {
                    self.sealed(has_changed);
                }
            }
            (
                Step::Tidying,
                GitAnswer::Failed(why) | GitAnswer::NoRepository(why) | GitAnswer::Unready(why),
            ) => {
                let why = format!("what is there cannot be committed: {why}");
                let hint = "commit it yourself, and begin again".to_owned();
                self.finish(Finish::Refused { why, hint });
            }
            // Nobody asked.
            (step, _) => self.step = step,
        }
    }

    fn based(&mut self, now: Now, stand: Stand, dirty: &[String]) {
        if self.is_first() {
            self.phase.base.clone_from(&stand.commit);
        }
        if self.stand != stand {
            let Stand { branch, commit } = stand.clone();
            self.record(Record::Stood { branch, commit });
            self.stand = stand;
        }
        // Where the last session has ended in order, all that came since is a person's.
        let is_theirs = self.phase.kind.is_none() || self.phase.seen.is_some();
        self.others_worked();
        if self.grant() {
            return;
        }
        if dirty.is_empty() || !is_theirs {
            self.start_phase(now);
            return;
        }
        match self.settings.dirty {
            Dirty::Refuse => {
                let why = format!("{} files are changed and not committed", dirty.len());
                let hint = "commit or stash them, or pass --dirty commit".to_owned();
                self.finish(Finish::Refused { why, hint });
            }
            Dirty::Commit => {
                let message = self.tidy_message();
                self.step = Step::Tidying;
                self.git(GitAsk::Commit { message, stand: self.stand.clone() });
            }
        }
    }

    /// Whether it was never begun before.
    const fn is_first(&self) -> bool {
        self.phase.kind.is_none() && !self.phase.is_again
    }

    fn tidy_message(&self) -> String {
        self.message(&format!("what was there before `{}`", self.this_phase().name))
    }

    /// The message of a commit.
    pub(super) fn message(&self, text: &str) -> String {
        format!("{} {text}", self.settings.commit_prefix).trim_start().to_owned()
    }

    fn start_phase(&mut self, now: Now) {
        let resumed = self.phase.kind;
        if resumed.is_none() {
            let (phase, base) = (self.this_phase().name.clone(), self.phase.base.clone());
            let stashes = self.phase.stashes.before.clone();
            self.record(Record::PhaseBegan { phase, base, stashes });
            self.open(now, Kind::First);
            return;
        }
        // What the lost session did is safe first.
        let cause = match self.phase.unjudged.take() {
            Some(cause) => {
                self.note("the last session is over: its gates are run again", false);
                cause
            }
            None => Cause::Lost,
        };
        self.commit_after(now, cause, None);
    }

    /// Commits what a session did; what comes next depends on why it ended.
    pub(super) fn commit_after(&mut self, now: Now, cause: Cause, until: Option<Stamp>) {
        let phase = &self.this_phase().name;
        let message = self.message(&match (cause, self.phase.kind) {
            (Cause::Done, Some(Kind::Remediation(number))) => {
                format!("{phase}, remediation {number}")
            }
            (Cause::Done, _) => phase.clone(),
            (cause, _) => format!("{phase}, unfinished ({})", cause.name()),
        });
        if !self.has_git {
            self.after_session(now, cause, until);
            return;
        }
        self.step = Step::Committing { cause, message: message.clone(), until };
        self.git(GitAsk::Commit { message, stand: self.stand.clone() });
    }

    /// Whether the work is safe. Where it is not, nobody goes on: what comes next would stand on it.
    fn committed(&mut self, message: String, answer: GitAnswer) -> bool {
        match answer {
            GitAnswer::Committed(Some(commit)) => {
                self.stand.commit = Some(commit.clone());
                self.record(Record::Committed { commit, message });
                true
            }
            GitAnswer::Failed(why) | GitAnswer::NoRepository(why) => {
                let why = format!("the work is in the files, but cannot be committed: {why}");
                self.finish(Finish::Stopped { why });
                false
            }
            GitAnswer::Unready(why) => {
                let why = format!("the work is in the files and not committed: {why}");
                self.finish(Finish::Stopped { why });
                false
            }
            _ => true,
        }
    }

    /// The work of a session is safe: what now?
    fn after_session(&mut self, now: Now, cause: Cause, until: Option<Stamp>) {
        if !matches!(cause, Cause::Stopped | Cause::Skipped) && self.grant() {
            return;
        }
        self.wish = None;
        let why = self.phase.why.clone();
        if self.phase.kind.is_some_and(|kind| is_for_gates(kind, cause)) {
            return self.begin_gates();
        }
        match cause {
            Cause::Done => self.begin_gates(),
            Cause::Stopped => self.finish(Finish::Stopped { why }),
            Cause::OutOfBudget => self.finish(Finish::Stopped { why }),
            Cause::Skipped => self.end_phase(PhaseEnd::Skipped, why),
            Cause::TimedOut => self.end_phase(PhaseEnd::Failed, why),
            Cause::Limited => self.wait_for_limit(now, until),
            Cause::Lost if self.phase.is_restart_due && self.ends_for_restarts() => {}
            Cause::RestartAsked | Cause::Lost => {
                let kind = self.phase.kind.map_or(Kind::Resumed, again);
                self.open(now, kind);
            }
            Cause::ContextLimitRestart
            | Cause::CompactedRestart
            | Cause::Stalled
            | Cause::Overflow
            | Cause::Crashed
            | Cause::Failed => self.restart(now),
        }
    }

    fn restart(&mut self, now: Now) {
        let max = self.settings.max_restarts;
        let why = self.phase.why.clone();
        if self.phase.restarts >= max {
            let text = format!(
                "it was restarted {max} times, and not done when the last session ended: {why}"
            );
            self.end_phase(PhaseEnd::Failed, text);
            return;
        }
        if self.ends_for_restarts() {
            return;
        }
        self.phase.restarts += 1;
        self.restarts += 1;
        let kind = Kind::Restart(self.phase.restarts);
        self.step = Step::Resting { kind, until: now.time + self.settings.restart_delay };
    }

    fn wait_for_limit(&mut self, now: Now, said: Option<Stamp>) {
        if self.phase.waits >= LIMIT_WAITS_MAX {
            let why =
                format!("the use of the model is limited, after {LIMIT_WAITS_MAX} waits still");
            self.finish(Finish::Stopped { why });
            return;
        }
        let until = limit_end(now.stamp, said, self.settings.limit_wait, self.phase.waits);
        self.phase.waits += 1;
        let why = self.phase.why.clone();
        self.record(Record::Waiting { why: why.clone(), until: until.to_string() });
        self.say(Say::Waits { why, until });
        let kind = self.phase.kind.map_or(Kind::Resumed, again);
        self.step = Step::Limited { kind, until };
    }

    fn begin_gates(&mut self) {
        let failed = self.judge_files();
        self.run_gate(0, failed.into_iter().collect());
    }

    pub(super) fn run_gate(&mut self, gate: usize, failed: Vec<(String, String)>) {
        let Some(wanted) = self.this_phase().gates.get(gate).cloned() else {
            self.judge(failed);
            return;
        };
        if self.hold {
            self.step = Step::Held(Next::Gate(gate, failed));
            return;
        }
        if self.out_of_time().is_some() && self.ends_for_bounds() {
            return;
        }
        self.gate_begins(gate);
        self.say(Say::GateBegins(wanted.name));
        let time_max = wanted.time_max.unwrap_or(self.settings.gate_max);
        self.step = Step::Gating { gate, failed };
        self.effects.push(Effect::RunGate { gate, command: wanted.command, time_max });
    }

    pub(super) fn gate_ended(&mut self, end: GateEnd) {
        let Step::Gating { gate, failed } = &mut self.step else { return };
        if *gate != end.gate {
            return;
        }
        let (gate, mut failed) = (*gate, std::mem::take(failed));
        let phase = self.this_phase();
        let (phase, name) = (phase.name.clone(), phase.gates[gate].name.clone());
        let output = tail(&end.output, GATE_TAIL_CHARS_MAX);
        let took_ms = u64::try_from(end.took.as_millis()).unwrap_or(u64::MAX);
        let (passed, ending) = (end.passed, end.ending.clone());
        self.gate_took(gate, passed, end.took);
        self.record(Record::GateEnded {
            phase,
            gate: name.clone(),
            passed,
            ending: ending.clone(),
            output: output.clone(),
            took_ms,
        });
        self.say(Say::GateEnds(name.clone(), end));
        if !passed {
            failed.push((name, format!("{output}\n[{ending}]")));
        }
        self.step = Step::Gating { gate, failed: Vec::new() };
        self.run_gate(gate + 1, failed);
    }

    /// All gates were run.
    fn judge(&mut self, failed: Vec<(String, String)>) {
        self.phase.failed.clone_from(&failed);
        if failed.is_empty() {
            return self.seal();
        }
        self.phase.is_second_round = false;
        let names: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(", ");
        let max = self.settings.max_remediations;
        if self.phase.remediations >= max {
            let text = format!("after {max} remediations these gates still fail: {names}");
            self.end_phase(PhaseEnd::Failed, text);
            return;
        }
        self.phase.remediations += 1;
        self.phase.why = format!("gates failed: {names}");
        self.seal();
    }

    pub(super) fn end_phase(&mut self, end: PhaseEnd, detail: String) {
        self.note_worked();
        self.forget_skip();
        let phase = self.this_phase().name.clone();
        self.record(Record::PhaseEnded { phase: phase.clone(), end, detail: detail.clone() });
        self.say(Say::PhaseEnds { phase: phase.clone(), end, detail: detail.clone() });
        self.ends[self.phase.index] = Some(end);
        if end == PhaseEnd::Failed {
            self.finish(Finish::Failed { why: format!("phase `{phase}` failed: {detail}") });
            return;
        }
        // Where the plan was edited since, later ones can be over already.
        let index = self.ends.iter().position(Option::is_none).unwrap_or(self.ends.len());
        self.phase = Current { index, ..Current::default() };
        self.begin_phase();
    }
}

/// The kind of a session that goes on with another one's work, though that was no restart. A remediation stays one:
/// it is not restarted.
pub(super) const fn again(kind: Kind) -> Kind {
    match kind {
        Kind::Remediation(_) => kind,
        Kind::First | Kind::Restart(_) | Kind::Resumed => Kind::Resumed,
    }
}

/// Whether the gates say what comes after a session that ended like this.
pub(super) const fn is_for_gates(kind: Kind, cause: Cause) -> bool {
    match cause {
        Cause::Done => true,
        Cause::ContextLimitRestart
        | Cause::CompactedRestart
        | Cause::Stalled
        | Cause::Overflow
        | Cause::Crashed
        | Cause::Failed => matches!(kind, Kind::Remediation(_)),
        Cause::Limited | Cause::RestartAsked | Cause::TimedOut | Cause::OutOfBudget => false,
        Cause::Skipped | Cause::Stopped | Cause::Lost => false,
    }
}

/// When a limit ends. What does not say so, or something incredible, is tried again after a while.
fn limit_end(now: Stamp, said: Option<Stamp>, first: Duration, waits: u32) -> Stamp {
    let later = |by: Duration| {
        let elapsed = Duration::from_nanos(u64::try_from(now.unix_nanos()).unwrap_or(u64::MAX));
        Stamp::since_unix_epoch(elapsed + by)
    };
    match said.filter(|said| *said > now && said.since(now) <= AGENT_LIMITED_MAX) {
        Some(said) => later(said.since(now) + LIMIT_SLACK),
        None => later(ExponentialWait::doubling(first, LIMIT_WAIT_MAX).after(waits)),
    }
}
