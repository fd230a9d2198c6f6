//! Owns the list of `git stash`: what a session put there is in no commit, and the next session has to be told.
//! Driven by [`Repository`](super::repository::Repository). Never pops an entry.

use crate::run::named;

/// The stash of the repository.
#[derive(Clone, Debug, Default)]
pub(super) struct Stashes {
    /// Entries when the phase began, newest first.
    before: Vec<String>,
    /// How many are new since then: these stand above all others.
    new: usize,
}

impl Stashes {
    pub(super) fn since(before: Vec<String>) -> Self {
        Self { before, new: 0 }
    }

    pub(super) fn before(&self) -> &[String] {
        &self.before
    }

    /// The names of the new ones, oldest first: popping in this order renames none that follows.
    pub(super) fn names(&self) -> Vec<String> {
        (0..self.new).rev().map(|place| format!("stash@{{{place}}}")).collect()
    }

    /// Takes the entries as they are now. Returns a warning about new ones, at `each_time` also about those that
    /// were warned of.
    pub(super) fn update(&mut self, now: &[String], each_time: bool) -> Option<String> {
        let known = self.new;
        self.new = now.iter().take_while(|stash| !self.before.contains(stash)).count();
        let is_told = self.new > 0 && (each_time || self.new != known);
        is_told.then(|| {
            let names = self.names();
            let names = named(names.iter().map(String::as_str));
            format!("work was put into the stash, and is in no commit: {names}; `git stash show -p -u` shows it")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_told_and_the_oldest_of_it_first() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut stashes = Stashes::since(list(&["a"]));
        assert_eq!(stashes.update(&list(&["a"]), true), None);
        assert!(stashes.update(&list(&["c", "b", "a"]), false).is_some());
        assert_eq!(stashes.names(), ["stash@{1}", "stash@{0}"]);
        assert_eq!(stashes.update(&list(&["c", "b", "a"]), false), None);
    }
}
