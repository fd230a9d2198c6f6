//! Owns what a service remembers of its earlier instances: their numbers and their ends.
//!
//! Driven by [`Service::handle`](super::Service::handle). Never decides whether the next one starts; that is
//! `crash_backoff.rs`.

use std::time::Duration;

use super::exit::{Ending, Exit};
use super::state::Effect;
use crate::id::Generation;
use crate::limits::PROBE_DEATHS_MAX;
use crate::service::Event;

/// The numbers of the instances.
#[derive(Debug, Default)]
pub(super) struct Generations {
    pub(super) newest: Generation,
    /// The instance after this one is the first; those after that one are restarts.
    begins_after: Generation,
    /// An instance has run at some time: a command that is missing now may be back soon.
    pub(super) has_run: bool,
}

impl Generations {
    /// Whether the next instance is a restart.
    pub(super) fn next_is_restart(&self) -> bool {
        self.newest != self.begins_after
    }

    pub(super) fn next(&mut self) -> Generation {
        self.newest = self.newest.next();
        self.newest
    }

    /// An instance of an earlier supervisor has this number, and runs.
    pub(super) fn adopt(&mut self, generation: Generation) {
        self.newest = self.newest.max(generation);
        self.has_run = true;
    }

    /// Continues after the newest instance of an earlier supervisor. `counts_on` is false where that one
    /// ended in order: the next instance is a first one.
    pub(super) fn resume(&mut self, generation: Generation, counts_on: bool) {
        self.newest = self.newest.max(generation);
        if counts_on {
            self.has_run |= generation > Generation::default();
        } else {
            self.begins_after = self.newest;
        }
    }
}

/// The ends of the instances.
#[derive(Debug, Default)]
pub struct ExitHistory {
    /// How the last current instance ended.
    pub last_exit: Option<Exit>,
    /// How long it ran.
    pub(super) last_uptime: Duration,
    /// What the end of the last instance of any role meant.
    pub last_ending: Option<Ending>,
    /// The last instance that ended by itself, as the current one; none after a stop.
    pub(super) last_ended: Option<Generation>,
    /// Instances in a row that died of a probe before one served.
    pub(super) probe_deaths: u32,
}

impl ExitHistory {
    /// Takes the last ending from the events of one input.
    pub(super) fn note_events(&mut self, effects: &[Effect]) {
        let mut endings = effects.iter().rev().filter_map(|effect| match effect {
            Effect::Tell(Event::Exited { ending, .. }) => Some(ending),
            _ => None,
        });
        if let Some(ending) = endings.next() {
            self.last_ending = Some(ending.clone());
        }
    }

    /// Counts a death by a probe. A server that dies of all of them must not be started for ever.
    pub(super) fn forgives_probe(&mut self) -> bool {
        let forgives = self.probe_deaths < PROBE_DEATHS_MAX;
        self.probe_deaths = self.probe_deaths.saturating_add(u32::from(forgives));
        forgives
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_instance_after_an_orderly_end_is_no_restart() {
        let mut generations = Generations::default();
        assert!(!generations.next_is_restart());
        generations.next();
        assert!(generations.next_is_restart());
        generations.resume(Generation(7), false);
        assert!(!generations.next_is_restart() && !generations.has_run);
        assert_eq!(generations.next(), Generation(8));
        generations.resume(Generation(3), true);
        assert_eq!((generations.newest, generations.has_run), (Generation(8), true));
    }

    #[test]
    fn deaths_by_probes_are_forgiven_until_there_are_too_many_in_a_row() {
        let mut exits = ExitHistory::default();
        for _ in 0..PROBE_DEATHS_MAX {
            assert!(exits.forgives_probe());
        }
        assert!(!exits.forgives_probe());
        exits.probe_deaths = 0;
        assert!(exits.forgives_probe());
    }
}
