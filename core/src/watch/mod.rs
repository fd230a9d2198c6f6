//! Owns the debounce of watched files: touches come in, and changes go out once all is quiet.
//!
//! ```text
//!           Touched, Lost              quiet, or waited long enough
//!   Calm ──────────────────▶ PendingScan ──────────────────────────────▶ ScanCause
//!    ▲                          ▲                                      │
//!    │                          └───── touched meanwhile ──────────────┤
//!    └───────────────── Looked: what has changed is told ──────────────┘
//! ```
//!
//! A touch is only a hint: a scan of the files says what has changed, by the fingerprints of
//! `fingerprints.rs`. `ignored_names.rs` knows which names never matter, and `reason.rs` puts a change into
//! words. Driven by the daemon's watcher, which scans. Never reads a file and owns no timer.

mod fingerprints;
mod ignored_names;
mod reason;
mod self_changes;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

pub use self::fingerprints::{ContentHash, FileFingerprint, Fingerprints};
pub use self::ignored_names::{is_noise, is_rules_file};
pub use self::reason::reason;
pub use self::self_changes::SelfChanges;

use crate::limits::{WATCH_TOUCHED_MAX, WATCH_WAIT_MAX};
use crate::time::Time;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// These may have changed: files, folders, or what is gone.
    Touched(Vec<PathBuf>),
    /// Something may have changed, and it is not known what.
    Lost,
    /// Changes are not reported here, and it is time to scan.
    Due,
    /// The look that was asked for is over.
    Looked {
        /// What has changed since the look before.
        changed: Vec<PathBuf>,
    },
    /// The time of `next_wakeup` has come.
    Wakeup,
}

/// What has to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Look at these, and compare. The next one comes only after [`Input::Looked`].
    Look(ScanScope),
    /// Tell that these have changed.
    Tell(Vec<PathBuf>),
}

/// What to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanScope {
    /// These, with all that is in them.
    Paths(BTreeSet<PathBuf>),
    /// All that is watched.
    Everything,
}

/// The machine of all that is watched for one service.
#[derive(Debug)]
pub struct Watcher {
    debounce: Duration,
    stirred: Option<PendingScan>,
    looking: Option<ScanCause>,
    /// Changes that were found before all was quiet.
    held: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct PendingScan {
    since: Time,
    last: Time,
    scope: ScanScope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanCause {
    /// All was quiet before: what is found is told.
    AfterQuiet,
    /// It is only the time to: what is found may be half written.
    Due,
}

impl Watcher {
    /// Nothing has happened. What changes is told when all has been quiet for `debounce`, or after
    /// [`WATCH_WAIT_MAX`] where it never is.
    pub fn new(debounce: Duration) -> Self {
        Self { debounce, stirred: None, looking: None, held: BTreeSet::new() }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Touched(paths) if paths.is_empty() => {}
            Input::Touched(paths) => self.stir(now, ScanScope::Paths(paths.into_iter().collect())),
            Input::Lost => self.stir(now, ScanScope::Everything),
            Input::Due if self.looking.is_none() && self.stirred.is_none() => {
                self.looking = Some(ScanCause::Due);
                effects.push(Effect::Look(ScanScope::Everything));
            }
            // A look comes anyway.
            Input::Due => {}
            Input::Looked { changed } => self.looked(now, changed, &mut effects),
            Input::Wakeup => {}
        }
        if self.next_wakeup().is_some_and(|at| at <= now)
            && let Some(PendingScan { scope, .. }) = self.stirred.take()
        {
            self.looking = Some(ScanCause::AfterQuiet);
            effects.push(Effect::Look(scope));
        }
        effects
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let stirred = self.stirred.as_ref().filter(|_| self.looking.is_none())?;
        let wait_max = WATCH_WAIT_MAX.max(self.debounce);
        Some((stirred.last + self.debounce).min(stirred.since + wait_max))
    }

    fn stir(&mut self, now: Time, more: ScanScope) {
        let Some(PendingScan { last, scope, .. }) = &mut self.stirred else {
            self.stirred = Some(PendingScan { since: now, last: now, scope: more });
            return;
        };
        *last = now;
        match (&mut *scope, more) {
            (ScanScope::Paths(all), ScanScope::Paths(more)) => all.extend(more),
            (_, ScanScope::Everything) => *scope = ScanScope::Everything,
            (ScanScope::Everything, ScanScope::Paths(_)) => {}
        }
        if matches!(scope, ScanScope::Paths(all) if all.len() > WATCH_TOUCHED_MAX) {
            *scope = ScanScope::Everything;
        }
    }

    fn looked(&mut self, now: Time, changed: Vec<PathBuf>, effects: &mut Vec<Effect>) {
        let Some(looking) = self.looking.take() else { return };
        let found = !changed.is_empty();
        self.held.extend(changed);
        match looking {
            // Looked at once more, when it had the time to be finished.
            ScanCause::Due if found => self.stir(now, ScanScope::Everything),
            ScanCause::Due | ScanCause::AfterQuiet => {
                let told = std::mem::take(&mut self.held);
                if !told.is_empty() {
                    effects.push(Effect::Tell(told.into_iter().collect()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBOUNCE: Duration = Duration::from_millis(200);

    fn at(millis: u64) -> Time {
        Time::after_start(Duration::from_millis(millis))
    }

    fn touched(path: &str) -> Input {
        Input::Touched(vec![path.into()])
    }

    fn looked(paths: &[&str]) -> Input {
        Input::Looked { changed: paths.iter().map(PathBuf::from).collect() }
    }

    fn look(paths: &[&str]) -> Vec<Effect> {
        vec![Effect::Look(ScanScope::Paths(paths.iter().map(PathBuf::from).collect()))]
    }

    fn look_at_everything() -> Vec<Effect> {
        vec![Effect::Look(ScanScope::Everything)]
    }

    fn tell(paths: &[&str]) -> Vec<Effect> {
        vec![Effect::Tell(paths.iter().map(PathBuf::from).collect())]
    }

    fn play(watcher: &mut Watcher, steps: Vec<(u64, Input, Vec<Effect>)>) {
        for (index, (millis, input, wanted)) in steps.into_iter().enumerate() {
            assert_eq!(watcher.handle(at(millis), input), wanted, "step {index} at {millis}");
        }
    }

    #[test]
    fn a_burst_is_one_change() {
        let mut watcher = Watcher::new(DEBOUNCE);
        assert_eq!(watcher.next_wakeup(), None);
        play(
            &mut watcher,
            vec![
                (0, touched("a"), vec![]),
                (150, touched("b"), vec![]),
                (300, touched("a"), vec![]),
                (499, Input::Wakeup, vec![]),
                (500, Input::Wakeup, look(&["a", "b"])),
                (510, looked(&["b"]), tell(&["b"])),
                (9_000, Input::Wakeup, vec![]),
            ],
        );
        assert_eq!(watcher.next_wakeup(), None);
    }

    #[test]
    fn what_has_not_changed_is_not_told() {
        let mut watcher = Watcher::new(DEBOUNCE);
        play(
            &mut watcher,
            vec![
                (0, Input::Touched(vec![]), vec![]),
                (1_000, touched("a"), vec![]),
                (1_200, Input::Wakeup, look(&["a"])),
                (1_210, looked(&[]), vec![]),
            ],
        );
        assert_eq!(watcher.next_wakeup(), None);
    }

    #[test]
    fn a_tree_that_is_never_quiet_is_told_all_the_same() {
        let mut watcher = Watcher::new(DEBOUNCE);
        let mut looks = Vec::new();
        for millis in (0..10_000).step_by(50) {
            for effect in watcher.handle(at(millis), touched("a")) {
                assert!(matches!(effect, Effect::Look(_)));
                looks.push(millis);
                assert_eq!(watcher.handle(at(millis), looked(&["a"])), tell(&["a"]));
            }
        }
        assert_eq!(looks, [2_000, 4_050, 6_100, 8_150]);
    }

    #[test]
    fn a_long_debounce_is_kept() {
        let mut watcher = Watcher::new(WATCH_WAIT_MAX * 2);
        watcher.handle(at(0), touched("a"));
        assert_eq!(watcher.next_wakeup(), Some(at(4_000)));
    }

    #[test]
    fn without_a_debounce_it_is_looked_at_once() {
        play(&mut Watcher::new(Duration::ZERO), vec![(0, touched("a"), look(&["a"]))]);
    }

    #[test]
    fn there_is_one_look_at_a_time() {
        let mut watcher = Watcher::new(DEBOUNCE);
        play(
            &mut watcher,
            vec![
                (0, touched("a"), vec![]),
                (200, Input::Wakeup, look(&["a"])),
                (210, touched("b"), vec![]),
                (800, Input::Wakeup, vec![]),
                (800, Input::Due, vec![]),
                // What was touched meanwhile has been quiet for long enough.
                (900, looked(&["a"]), [tell(&["a"]), look(&["b"])].concat()),
                (910, looked(&[]), vec![]),
                // An answer to no question.
                (920, looked(&["x"]), vec![]),
            ],
        );
    }

    #[test]
    fn after_a_loss_everything_is_looked_at() {
        let mut watcher = Watcher::new(DEBOUNCE);
        play(
            &mut watcher,
            vec![
                (0, touched("a"), vec![]),
                (10, Input::Lost, vec![]),
                (20, touched("b"), vec![]),
                (220, Input::Wakeup, look_at_everything()),
            ],
        );
    }

    #[test]
    fn too_many_names_are_everything() {
        let mut watcher = Watcher::new(DEBOUNCE);
        for number in 0..=WATCH_TOUCHED_MAX {
            watcher.handle(at(0), touched(&number.to_string()));
        }
        assert_eq!(watcher.handle(at(200), Input::Wakeup), look_at_everything());
    }

    #[test]
    fn what_is_found_by_chance_gets_the_time_to_be_finished() {
        let mut watcher = Watcher::new(DEBOUNCE);
        play(
            &mut watcher,
            vec![
                (0, Input::Due, look_at_everything()),
                (10, looked(&[]), vec![]),
                (2_000, Input::Due, look_at_everything()),
                (2_010, looked(&["a"]), vec![]),
                (2_210, Input::Wakeup, look_at_everything()),
                (2_220, looked(&["b"]), tell(&["a", "b"])),
                (4_000, Input::Due, look_at_everything()),
                (4_010, looked(&[]), vec![]),
            ],
        );
    }
}
