//! Work that a session has put into `git stash`: it is in no commit, and the next session would not look for it.

use super::*;

/// The stash of the repository.
#[derive(Clone, Debug, Default)]
pub(super) struct Stashes {
    /// What was in it when the phase began, the newest first.
    pub(super) before: Vec<String>,
    /// How many are new since then: these stand above all others.
    new: usize,
}

impl Stashes {
    /// Where it is known what was there.
    pub(super) fn since(before: Vec<String>) -> Self {
        Self { before, new: 0 }
    }

    /// The names of the new ones. The oldest is the first: whoever takes it back changes the name of no other one.
    pub(super) fn names(&self) -> Vec<String> {
        (0..self.new).rev().map(|place| format!("stash@{{{place}}}")).collect()
    }

    fn look(&mut self, now: &[String]) {
        self.new = now.iter().take_while(|stash| !self.before.contains(stash)).count();
    }
}

impl Machine {
    /// What the stash has, the newest first. It is said before git answers what it was asked.
    pub(super) fn stash_has(&mut self, now: Vec<String>) {
        let known = self.phase.stashes.new;
        let is_news = match self.step {
            Step::Basing if self.phase.kind.is_none() => {
                self.phase.stashes = Stashes::since(now);
                return;
            }
            Step::Committing { .. } => true,
            // A gate can have made one.
            Step::Sealing { .. } => false,
            _ => return,
        };
        self.phase.stashes.look(&now);
        let new = self.phase.stashes.new;
        if new > 0 && (is_news || new != known) {
            let names = self.phase.stashes.names();
            let names = super::super::named(names.iter().map(String::as_str));
            self.note(
                format!("work was put into the stash, and is in no commit: {names}; `git stash show -p -u` shows it"),
                true,
            );
        }
    }
}
