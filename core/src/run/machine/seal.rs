//! All gates are green: whether that holds for what is committed.
//!
//! A gate can change files: a formatter does, and so does one that is wrong. What it changed was seen by no gate that
//! ran before it, so that all are run once more.

use super::*;

impl Machine {
    /// Commits what the gates have changed, where they have.
    pub(super) fn seal(&mut self) {
        if !self.has_git {
            self.end_phase(PhaseEnd::Done, String::new());
            return;
        }
        let phase = &self.this_phase().name;
        let message = match self.is_last_round() {
            true => format!("{phase}, done"),
            false => format!("{phase}, changed by gates"),
        };
        let message = self.message(&message);
        self.step = Step::Sealing { message: message.clone() };
        self.git(GitAsk::Commit { message, stand: self.stand.clone() });
    }

    /// That is done, and there was something to commit or not.
    pub(super) fn sealed(&mut self, has_changed: bool) {
        if !has_changed || self.is_last_round() {
            self.end_phase(PhaseEnd::Done, String::new());
            return;
        }
        self.note("gates have changed files: all are run once more", false);
        self.phase.is_second_round = true;
        // Also which files they were.
        self.look(Cause::Done, None);
    }

    /// What changes each time would be run for ever.
    fn is_last_round(&self) -> bool {
        self.phase.is_second_round || self.this_phase().gates.is_empty()
    }
}
