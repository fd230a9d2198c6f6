//! Rebuilds the state of a run from its records: where it can go on, and what it has used. Driven by `--resume`. Never
//! writes a record.

use std::time::Duration;

use super::{Attempt, Cause, Finish, GitPosition, Kind, PhaseEnd, Record, machine};
use crate::agent::Spent;
use crate::limits::PROGRESS_TEXTS_MAX;

/// What is known of an earlier part of the same run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResumeState {
    /// Phases that are over and did not fail.
    pub over: Vec<(String, PhaseEnd)>,
    /// The last number of a session.
    pub last_attempt: Attempt,
    /// What was used in all.
    pub spent: Spent,
    /// Restarts in all.
    pub restarts: u32,
    /// How long was worked in all.
    pub worked: Duration,
    /// Where it stood in the repository.
    pub position: GitPosition,
    /// The phase that had begun.
    pub phase: Option<ResumePhase>,
    /// The phase that failed last, if no other has begun since.
    pub failed: Option<ResumePhase>,
}

/// What is known of a phase that had begun.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResumePhase {
    /// Its name.
    pub name: String,
    /// Where the repository stood.
    pub base: Option<String>,
    /// Where it stood when its last session had ended; none where that was broken off.
    pub seen: Option<String>,
    /// Commits between which others than the agent worked.
    pub beside: Vec<(String, String)>,
    /// What was in the stash of git when it began.
    pub stashes: Vec<String>,
    /// Restarts so far.
    pub restarts: u32,
    /// Remediations so far.
    pub remediations: u32,
    /// Its last session, and why that ended; none where it did not.
    pub last: Option<(Kind, Option<Cause>)>,
    /// Whether the agent of that session was ever there.
    pub was_ready: bool,
    /// What the agent said last.
    pub progress: Vec<String>,
    /// The last handoff.
    pub handoff: Option<String>,
    /// Gates that failed last: their names and ends of output.
    pub failed: Vec<(String, String)>,
    /// What it has used.
    pub spent: Spent,
    /// How long was worked on it.
    pub worked: Duration,
}

impl ResumePhase {
    /// Whether a session had ended so that only a restart could follow, and none did.
    pub(super) const fn is_restart_due(&self) -> bool {
        let Some((kind, Some(cause))) = self.last else { return false };
        self.was_ready && cause.is_restart() && !matches!(kind, Kind::Remediation(_))
    }
}

impl ResumeState {
    /// What these records tell, in the order in which they were written.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut past = Self::default();
        let mut running = Spent::default();
        for record in records {
            past.take(record, &mut running);
        }
        past.settle(running);
        past
    }

    fn take(&mut self, record: &Record, running: &mut Spent) {
        match record {
            Record::PhaseBegan { phase, base, stashes } => {
                let again = self.failed.take().filter(|failed| failed.name == *phase);
                let beside = again.map_or_else(Vec::new, |failed| failed.beside);
                let (name, base, stashes) = (phase.clone(), base.clone(), stashes.clone());
                self.phase =
                    Some(ResumePhase { name, base, stashes, beside, ..ResumePhase::default() });
            }
            Record::AttemptBegan { attempt, kind, .. } => {
                self.settle(std::mem::take(running));
                self.last_attempt = Attempt(self.last_attempt.0.max(attempt.0));
                let Some(phase) = &mut self.phase else { return };
                phase.last = Some((*kind, None));
                phase.was_ready = false;
                phase.seen = None;
                match kind {
                    Kind::Restart(number) => {
                        phase.restarts = *number;
                        self.restarts += 1;
                    }
                    Kind::Remediation(number) => phase.remediations = *number,
                    Kind::First | Kind::Resumed => {}
                }
            }
            Record::Spent { spent, .. } => *running = *spent,
            Record::Progress { text, .. } => {
                let Some(phase) = &mut self.phase else { return };
                if phase.progress.len() >= PROGRESS_TEXTS_MAX {
                    phase.progress.remove(0);
                }
                phase.progress.push(text.clone());
            }
            Record::AttemptEnded { handoff, cause, .. } => {
                self.settle(std::mem::take(running));
                let Some(phase) = &mut self.phase else { return };
                // One that was never there has changed nothing.
                let keeps = machine::keeps_handoff(*cause) || !phase.was_ready;
                if handoff.is_some() || !keeps {
                    phase.handoff.clone_from(handoff);
                }
                phase.last = phase.last.map(|(kind, _)| (kind, Some(*cause)));
            }
            Record::GateEnded { gate, passed, ending, output, .. } => {
                let Some(phase) = &mut self.phase else { return };
                // What it said last is what counts.
                phase.failed.retain(|(name, _)| name != gate);
                if !passed {
                    phase.failed.push((gate.clone(), format!("{output}\n[{ending}]")));
                }
            }
            Record::PhaseEnded { phase, end, .. } => {
                self.settle(std::mem::take(running));
                let ended = self.phase.take();
                match end {
                    // It is tried again, from its beginning.
                    PhaseEnd::Failed => self.failed = ended.filter(|ended| ended.base.is_some()),
                    _ => self.over.push((phase.clone(), *end)),
                }
            }
            Record::Worked { run_ms, phase_ms } => {
                self.worked = Duration::from_millis(*run_ms);
                if let Some(phase) = &mut self.phase {
                    phase.worked = Duration::from_millis(*phase_ms);
                }
            }
            Record::SessionNamed { .. } => {
                let Some(phase) = &mut self.phase else { return };
                phase.was_ready = true;
            }
            Record::Stood { .. }
            | Record::Committed { .. }
            | Record::Seen { .. }
            | Record::Beside { .. } => self.take_git(record),
            // A resume after all others were done means these.
            Record::RunEnded { finish: Finish::Skipped { .. } } => {
                self.over.retain(|(_, end)| *end != PhaseEnd::Skipped);
            }
            Record::Sampled { .. } | Record::Waiting { .. } | Record::RunEnded { .. } => {}
        }
    }

    /// Where the repository stood.
    fn take_git(&mut self, record: &Record) {
        match record {
            Record::Stood { branch, commit } => {
                self.position = GitPosition { branch: branch.clone(), commit: commit.clone() };
            }
            Record::Committed { commit, .. } => self.position.commit = Some(commit.clone()),
            Record::Seen { commit } => {
                let Some(phase) = &mut self.phase else { return };
                phase.seen = Some(commit.clone());
            }
            Record::Beside { from, to } => {
                // That of a phase that failed is written before it begins again.
                let Some(phase) = self.phase.as_mut().or(self.failed.as_mut()) else { return };
                phase.beside.push((from.clone(), to.clone()));
                phase.seen = Some(to.clone());
            }
            _ => {}
        }
    }

    /// A session is over, and what it has used counts.
    fn settle(&mut self, running: Spent) {
        self.spent = self.spent.plus(running);
        if let Some(phase) = &mut self.phase {
            phase.spent = phase.spent.plus(running);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began(attempt: u32, kind: Kind) -> Record {
        Record::AttemptBegan { attempt: Attempt(attempt), phase: "B".to_owned(), kind }
    }

    fn spent(attempt: u32, input: u64) -> Record {
        let attempt = Attempt(attempt);
        let spent = Spent { input, output: 1, dollars: Some(0.5), ..Spent::default() };
        Record::Spent { attempt, spent }
    }

    #[test]
    fn where_a_run_stood_is_what_was_last_committed_on_its_branch() {
        let stood = |branch: &str, commit: &str| {
            let [branch, commit] = [branch, commit].map(|text| Some(text.to_owned()));
            Record::Stood { branch, commit }
        };
        let committed = |commit: &str| {
            let (commit, message) = (commit.to_owned(), "m".to_owned());
            Record::Committed { commit, message }
        };
        let position = |records: &[Record]| {
            let position = ResumeState::of(records).position;
            (position.branch.unwrap_or_default(), position.commit.unwrap_or_default())
        };
        let is = |branch: &str, commit: &str| (branch.to_owned(), commit.to_owned());
        let records = [stood("main", "a"), committed("b"), stood("main", "c"), committed("d")];
        assert_eq!(position(&records), is("main", "d"));
        assert_eq!(position(&records[..3]), is("main", "c"));
        // A run of an older version.
        assert_eq!(position(&records[1..2]), is("", "b"));
    }

    #[test]
    fn what_was_done_is_over_and_what_had_begun_goes_on() {
        let phase = |name: &str| Record::PhaseBegan {
            phase: name.to_owned(),
            base: None,
            stashes: Vec::new(),
        };
        let ended = Record::PhaseEnded {
            phase: "A".to_owned(),
            end: PhaseEnd::Done,
            detail: String::new(),
        };
        let handoff = Some("half done".to_owned());
        let cause = Cause::ContextLimitRestart;
        let attempt = Attempt(2);
        let stopped = Record::AttemptEnded { attempt, cause, handoff, detail: String::new() };
        let records = [
            phase("A"),
            began(1, Kind::First),
            spent(1, 100),
            spent(1, 150),
            ended,
            phase("B"),
            began(2, Kind::First),
            spent(2, 10),
            stopped,
            began(3, Kind::Restart(1)),
            spent(3, 20),
        ];
        let past = ResumeState::of(&records);
        assert_eq!(past.over, [("A".to_owned(), PhaseEnd::Done)]);
        assert_eq!((past.last_attempt, past.restarts), (Attempt(3), 1));
        assert_eq!((past.spent.input, past.spent.dollars), (180, Some(1.5)));
        let phase = past.phase.unwrap();
        assert_eq!((phase.name.as_str(), phase.restarts, phase.spent.input), ("B", 1, 30));
        assert_eq!(phase.handoff.as_deref(), Some("half done"));
    }
}
