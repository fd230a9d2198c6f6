//! All gates were run: what they have changed is committed, apart from what agents do.
//!
//! A gate can change files: a formatter does, and so does one that is wrong. What it changed was seen by no gate that
//! ran before it, so that all are run once more where they were green.

use super::*;

impl Machine {
    /// Commits what the gates have changed, where they have.
    pub(super) fn seal(&mut self) {
        let is_green = self.phase.failed.is_empty();
        if !self.has_git {
            match is_green {
                true => self.end_phase(PhaseEnd::Done, String::new()),
                false => self.remediate(),
            }
            return;
        }
        let phase = &self.this_phase().name;
        let message = match is_green && self.is_last_round() {
            true => format!("{phase}, done"),
            false => format!("{phase}, changed by gates"),
        };
        let message = self.message(&message);
        self.step = Step::Sealing { message: message.clone() };
        self.git(GitAsk::Commit { message, stand: self.stand.clone() });
    }

    /// That is done, and there was something to commit or not.
    pub(super) fn sealed(&mut self, has_changed: bool) {
        if !self.phase.failed.is_empty() {
            self.others_worked();
            return self.remediate();
        }
        if !has_changed || self.is_last_round() {
            self.end_phase(PhaseEnd::Done, String::new());
            return;
        }
        self.note("gates have changed files: all are run once more", false);
        self.phase.is_second_round = true;
        self.others_worked();
        // Also which files they were.
        self.look(Cause::Done, None);
    }

    fn remediate(&mut self) {
        if self.grant() {
            return;
        }
        let kind = Kind::Remediation(self.phase.remediations);
        self.step = Step::Resting { kind, until: self.last + self.settings.restart_delay };
    }

    /// What changes each time would be run for ever.
    fn is_last_round(&self) -> bool {
        self.phase.is_second_round || self.this_phase().gates.is_empty()
    }
}
