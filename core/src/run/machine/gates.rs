//! Owns the gates of the current phase: the one that runs, those that failed, and how each is shown. Driven by the
//! machine and by the ends of gates. Never decides what follows from a failure.

use super::{GateState, Outbox};
use crate::limits::GATE_TAIL_CHARS_MAX;
use crate::run::checkpoint::tail;
use crate::run::plan::Phase;
use crate::run::{Effect, GateEnd, Record, RunEvent, Settings};
use crate::time::Stamp;

/// One round of the gates after another.
#[derive(Clone, Debug, Default)]
pub(super) struct Gates {
    /// The index of the gate that runs, or is started next.
    current: usize,
    /// Gates of this round, or of the last one, that failed: their names and ends of output.
    pub(super) failed: Vec<(String, String)>,
    states: Vec<GateState>,
    /// The first round was green, but changed files. Gates that change files each time are run twice, not for ever.
    pub(super) is_second_round: bool,
}

impl Gates {
    /// A round begins, with the result of a gate that needed no process.
    pub(super) fn begin_round(&mut self, failed: Option<(String, String)>) {
        (self.current, self.failed) = (0, failed.into_iter().collect());
    }

    /// Whether all gates of the round were run.
    pub(super) fn is_round_over(&self, phase: &Phase) -> bool {
        self.current >= phase.gates.len()
    }

    /// Starts the next gate of the round.
    pub(super) fn start(
        &mut self,
        phase: &Phase,
        settings: &Settings,
        now: Stamp,
        out: &mut Outbox,
    ) {
        let gate = self.current;
        let Some(wanted) = phase.gates.get(gate) else { return };
        if gate == 0 {
            self.states.clear();
        }
        self.states.resize(phase.gates.len(), GateState::Waiting);
        self.states[gate] = GateState::Running(now);
        out.say(RunEvent::GateBegins(wanted.name.clone()));
        let time_max = wanted.time_max.unwrap_or(settings.gate_max);
        out.push(Effect::RunGate { gate, command: wanted.command.clone(), time_max });
    }

    /// A gate has ended. Returns whether it is the one that runs.
    pub(super) fn end(&mut self, phase: &Phase, end: GateEnd, out: &mut Outbox) -> bool {
        let Some(gate) = phase.gates.get(self.current).filter(|_| end.gate == self.current) else {
            return false;
        };
        if let Some(state) = self.states.get_mut(self.current) {
            let (passed, failed) = (GateState::Passed(end.took), GateState::Failed(end.took));
            *state = if end.passed { passed } else { failed };
        }
        let output = tail(&end.output, GATE_TAIL_CHARS_MAX);
        if !end.passed {
            self.failed.push((gate.name.clone(), format!("{output}\n[{}]", end.ending)));
        }
        out.record(Record::GateEnded {
            phase: phase.name.clone(),
            gate: gate.name.clone(),
            passed: end.passed,
            ending: end.ending.clone(),
            output,
            took_ms: u64::try_from(end.took.as_millis()).unwrap_or(u64::MAX),
        });
        out.say(RunEvent::GateEnds(gate.name.clone(), end));
        self.current += 1;
        true
    }

    pub(super) fn is_last_round(&self, phase: &Phase) -> bool {
        self.is_second_round || phase.gates.is_empty()
    }

    /// The state of each gate of a phase.
    pub(super) fn states(&self, gates: usize) -> Vec<GateState> {
        let mut states = vec![GateState::Waiting; gates];
        states.iter_mut().zip(&self.states).for_each(|(state, known)| *state = *known);
        states
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::run::machine::tests::phase;

    fn end(gate: usize, passed: bool) -> GateEnd {
        let (ending, output) = ("exit code".to_owned(), "why".to_owned());
        GateEnd { gate, passed, ending, output, took: Duration::ZERO }
    }

    #[test]
    fn a_round_is_over_after_the_last_gate_and_tells_which_failed() {
        let (mut gates, mut out) = (Gates::default(), Outbox::default());
        let phase = phase("A", &["fmt", "test"]);
        gates.begin_round(None);
        gates.start(&phase, &Settings::default(), Stamp::default(), &mut out);
        assert!(!gates.end(&phase, end(1, true), &mut out), "this one does not run");
        assert!(gates.end(&phase, end(0, true), &mut out));
        assert!(!gates.is_round_over(&phase));
        gates.start(&phase, &Settings::default(), Stamp::default(), &mut out);
        assert!(gates.end(&phase, end(1, false), &mut out));
        assert!(gates.is_round_over(&phase));
        assert_eq!(gates.failed[0].0, "test");
        gates.begin_round(None);
        assert!(gates.failed.is_empty());
    }
}
