//! Whether the server that has the session still does anything: looked at now and then while it owes
//! an answer, and never otherwise.

use super::super::envelope::Id;
use super::super::inflight::Flight;
use super::super::wedge::{Effect as WedgeEffect, Input as WedgeInput, Wedge};
use super::{Conversation, Effect};
use crate::id::Generation;
use crate::limits::{WEDGE_LOOK_INTERVAL_MAX, WEDGE_LOOK_INTERVAL_MIN};
use crate::time::Time;
use std::time::Duration;

/// The machine that decides, and what it is told at the next look.
#[derive(Debug)]
pub(super) struct Health {
    wedge: Wedge,
    timeout: Option<Duration>,
    pub(super) look_at: Option<Time>,
    pub(super) was_heard: bool,
    pub(super) has_answered: bool,
    probe: Option<Id>,
}

impl Health {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self {
            wedge: Wedge::new(timeout),
            timeout,
            look_at: None,
            was_heard: false,
            has_answered: false,
            probe: None,
        }
    }
}

impl Conversation {
    /// A request was given to the server: from now on it is looked at.
    pub(super) fn watch_health(&mut self) {
        if let (None, Some(timeout)) = (self.health.look_at, self.health.timeout) {
            let interval = (timeout / 10).clamp(WEDGE_LOOK_INTERVAL_MIN, WEDGE_LOOK_INTERVAL_MAX);
            self.health.look_at = Some(self.now + interval);
        }
    }

    pub(super) fn next_health_wakeup(&self) -> Option<Time> {
        self.health.look_at?;
        let wedge = self.health.wedge.next_wakeup(self.memory.era);
        wedge.into_iter().chain(self.health.look_at).min()
    }

    /// A new instance serves: what was suspected of the old one is forgotten.
    pub(super) fn health_begins(&mut self, effects: &mut Vec<Effect>) {
        self.health.probe = None;
        self.judge(WedgeInput::Started, effects);
    }

    /// Tells the machine what has happened since the last look.
    pub(super) fn look(&mut self, effects: &mut Vec<Effect>) {
        if self.next_health_wakeup().is_none_or(|at| at > self.now) {
            return;
        }
        if std::mem::take(&mut self.health.has_answered) {
            self.judge(WedgeInput::CallAnswered, effects);
        }
        if std::mem::take(&mut self.health.was_heard) {
            self.judge(WedgeInput::Heard, effects);
        }
        let Some(serving) = self.serving else {
            self.health.look_at = None;
            return;
        };
        let owed =
            |flight: &&Flight| flight.is_with(serving) && !flight.is_listen() && !flight.cancelled;
        let owed: Vec<Time> = self.flights.values().filter(owed).map(|f| f.given_at).collect();
        let calls = WedgeInput::Calls {
            in_flight: owed.len(),
            oldest_since: owed.iter().min().copied().unwrap_or(self.now),
            questions: self.asked.values().filter(|(from, _)| *from == serving).count(),
        };
        self.judge(calls, effects);
        self.judge(WedgeInput::Wakeup, effects);
        self.health.look_at = None;
        if !owed.is_empty() {
            self.watch_health();
        }
    }

    /// How much the processes of the instance have worked so far.
    pub(super) fn worked(
        &mut self,
        generation: Generation,
        time: Option<Duration>,
        effects: &mut Vec<Effect>,
    ) {
        if self.serving == Some(generation) {
            self.judge(WedgeInput::CpuTime(time), effects);
        }
    }

    /// Whether this answers our question whether it lives.
    pub(super) fn probe_answered(&mut self, id: &Id, effects: &mut Vec<Effect>) -> bool {
        let answered = self.health.probe.take_if(|probe| probe == id).is_some();
        if answered {
            self.judge(WedgeInput::ProbeAnswered, effects);
        }
        answered
    }

    fn judge(&mut self, input: WedgeInput, effects: &mut Vec<Effect>) {
        let decided = self.health.wedge.handle(self.now, self.memory.era, input);
        let Some(generation) = self.serving else { return };
        for decision in decided {
            match decision {
                WedgeEffect::SendProbe(probe) => {
                    let params = self.memory.params(b"");
                    let (id, line) = self.own_request(generation, probe.method(), &params);
                    self.health.probe = Some(id);
                    self.tell_server(generation, line, effects);
                }
                WedgeEffect::Sample => effects.push(Effect::Sample { generation }),
                WedgeEffect::Wedged { why } => effects.push(Effect::Wedged { generation, why }),
            }
        }
    }
}
