//! Owns the progress of the current phase over its sessions: which kind the last one was, why it ended, what it left
//! for the next one, and how often the phase was restarted, remediated and made to wait. Driven by the machine. Never
//! starts a session.

use std::collections::VecDeque;
use std::time::Duration;

use super::outbox::Outbox;
use crate::backoff::ExponentialWait;
use crate::limits::{
    AGENT_LIMITED_MAX, LIMIT_SLACK, LIMIT_WAIT_MAX, LIMIT_WAITS_MAX, PROGRESS_TEXT_CHARS_MAX,
    PROGRESS_TEXTS_MAX,
};
use crate::run::checkpoint::cut;
use crate::run::{Attempt, Cause, Kind, Record, ResumePhase, RunEvent};
use crate::time::Stamp;

/// The phase that is worked on.
#[derive(Clone, Debug, Default)]
pub(super) struct PhaseProgress {
    /// It has failed before, and answers for all since its old base.
    is_again: bool,
    /// Its last session had to be followed by a restart when the run ended.
    is_restart_due: bool,
    restarts: u32,
    remediations: u32,
    /// Waits for a limit in a row without progress.
    waits: u32,
    texts: VecDeque<String>,
    handoff: Option<String>,
    /// Why the last session ended, in words.
    why: String,
    kind: Option<Kind>,
    /// Why its last session ended, where afresh itself ended before the gates had judged that.
    unjudged: Option<Cause>,
}

impl PhaseProgress {
    /// A phase that begins once more after it failed.
    pub(super) fn again() -> Self {
        Self { is_again: true, ..Self::default() }
    }

    /// A phase that goes on.
    pub(super) fn resumed(past: &ResumePhase) -> Self {
        let (kind, unjudged) = match past.last {
            Some((kind, Some(cause))) if is_for_gates(kind, cause) => (kind, Some(cause)),
            Some((kind, _)) => (continued(kind), None),
            None => (Kind::Resumed, None),
        };
        Self {
            is_again: false,
            is_restart_due: past.is_restart_due(),
            restarts: past.restarts,
            remediations: past.remediations,
            waits: 0,
            texts: past.progress.clone().into(),
            handoff: past.handoff.clone(),
            why: "afresh was stopped".to_owned(),
            kind: Some(kind),
            unjudged,
        }
    }

    /// Whether it never began before.
    pub(super) const fn is_first(&self) -> bool {
        self.kind.is_none() && !self.is_again
    }

    /// The kind of its last session, or of the one that is in progress.
    pub(super) const fn kind(&self) -> Option<Kind> {
        self.kind
    }

    pub(super) const fn begin_session(&mut self, kind: Kind) {
        self.kind = Some(kind);
    }

    /// Takes what the agent said.
    pub(super) fn add_text(&mut self, attempt: Attempt, text: &str, out: &mut Outbox) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if self.texts.len() >= PROGRESS_TEXTS_MAX {
            self.texts.pop_front();
        }
        let text = cut(text, PROGRESS_TEXT_CHARS_MAX);
        self.texts.push_back(text.clone());
        out.record(Record::Progress { attempt, text: text.clone() });
        out.say(RunEvent::Text(text));
    }

    pub(super) fn texts(&self) -> Vec<String> {
        self.texts.iter().cloned().collect()
    }

    /// A session has ended. Without a new handoff, an old one stays only where the session was broken off: it would
    /// send the next one back.
    pub(super) fn end_session(&mut self, cause: Cause, handoff: Option<&str>, detail: &str) {
        if handoff.is_some() || !keeps_handoff(cause) {
            self.handoff = handoff.map(str::to_owned);
        }
        detail.clone_into(&mut self.why);
    }

    pub(super) fn handoff(&self) -> Option<String> {
        self.handoff.clone()
    }

    pub(super) fn why(&self) -> String {
        self.why.clone()
    }

    /// The cause of a session that the gates have not judged.
    pub(super) const fn take_unjudged(&mut self) -> Option<Cause> {
        self.unjudged.take()
    }

    /// Whether the gates decide what follows after a session that ended like this.
    pub(super) fn is_for_gates(&self, cause: Cause) -> bool {
        self.kind.is_some_and(|kind| is_for_gates(kind, cause))
    }

    pub(super) const fn is_restart_due(&self) -> bool {
        self.is_restart_due
    }

    pub(super) const fn restarts(&self) -> u32 {
        self.restarts
    }

    pub(super) const fn add_restart(&mut self) -> Kind {
        self.restarts += 1;
        Kind::Restart(self.restarts)
    }

    pub(super) const fn remediations(&self) -> u32 {
        self.remediations
    }

    pub(super) fn add_remediation(&mut self, why: String) {
        self.remediations += 1;
        self.why = why;
    }

    /// The kind of a session that goes on with the last one's work, though that is no restart.
    pub(super) fn continued(&self) -> Kind {
        self.kind.map_or(Kind::Resumed, continued)
    }

    /// The agent makes progress: waits are counted anew.
    pub(super) const fn reset_waits(&mut self) {
        self.waits = 0;
    }

    /// When the limit of the model ends; none after too many waits. An end that is not said or not credible is
    /// tried again after a time that doubles.
    pub(super) fn next_wait(
        &mut self,
        now: Stamp,
        said: Option<Stamp>,
        first: Duration,
    ) -> Option<Stamp> {
        if self.waits >= LIMIT_WAITS_MAX {
            return None;
        }
        let said = said.filter(|said| *said > now && said.since(now) <= AGENT_LIMITED_MAX);
        let wait = match said {
            Some(said) => said.since(now) + LIMIT_SLACK,
            None => ExponentialWait::doubling(first, LIMIT_WAIT_MAX).after(self.waits),
        };
        self.waits += 1;
        let elapsed = Duration::from_nanos(u64::try_from(now.unix_nanos()).unwrap_or(u64::MAX));
        Some(Stamp::since_unix_epoch(elapsed + wait))
    }
}

/// A remediation stays one: it is not restarted.
const fn continued(kind: Kind) -> Kind {
    match kind {
        Kind::Remediation(_) => kind,
        Kind::First | Kind::Restart(_) | Kind::Resumed => Kind::Resumed,
    }
}

const fn is_for_gates(kind: Kind, cause: Cause) -> bool {
    match cause {
        Cause::Done => true,
        cause if cause.is_restart() => matches!(kind, Kind::Remediation(_)),
        _ => false,
    }
}

/// Whether an earlier handoff still counts after a session that ended like this without one: it was broken off.
pub(in crate::run) const fn keeps_handoff(cause: Cause) -> bool {
    matches!(cause, Cause::Limited | Cause::Stopped | Cause::OutOfBudget)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_a_credible_end_is_taken() {
        let now = Stamp::parse("2026-11-15T08:00:00Z").unwrap();
        let minute = Duration::from_secs(60);
        let mut phase = PhaseProgress::default();
        let mut wait = |said| phase.next_wait(now, said, minute).map(|until| until.since(now));
        let said = Stamp::parse("2026-11-15T08:10:00Z");
        assert_eq!(wait(None), Some(minute));
        assert_eq!(wait(None), Some(2 * minute));
        assert_eq!(wait(said), Some(10 * minute + LIMIT_SLACK));
        while wait(None).is_some() {}
        phase.reset_waits();
        assert!(phase.next_wait(now, None, minute).is_some());
    }

    #[test]
    fn an_old_handoff_stays_only_after_a_session_that_was_broken_off() {
        let mut phase = PhaseProgress::default();
        phase.end_session(Cause::ContextLimitRestart, Some("half"), "full");
        phase.end_session(Cause::Limited, None, "limit");
        assert_eq!(phase.handoff().as_deref(), Some("half"));
        phase.end_session(Cause::Crashed, None, "crash");
        assert_eq!((phase.handoff(), phase.why()), (None, "crash".to_owned()));
    }

    #[test]
    fn a_remediation_is_continued_as_one_and_judged_by_its_gates() {
        let mut phase = PhaseProgress::default();
        assert_eq!(phase.continued(), Kind::Resumed);
        phase.begin_session(Kind::Remediation(2));
        assert_eq!(phase.continued(), Kind::Remediation(2));
        assert!(phase.is_for_gates(Cause::Crashed) && !phase.is_for_gates(Cause::Limited));
    }
}
