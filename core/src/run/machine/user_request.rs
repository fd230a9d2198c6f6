//! What a person wants of a run: at once where that is possible, else at the next good moment.

use super::super::prompts;
use super::*;
use crate::agent::Told;

const DEAF_PAUSE: &str =
    "this agent hears nothing while it works: the run pauses when its session has ended";

const TOO_LATE: &str = "nothing is skipped: that phase was over before";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Stop,
    Skip,
}

impl Machine {
    pub(super) fn asked(&mut self, now: Now, asked: Asked) {
        match (asked, &self.step) {
            (_, Step::Over) => {}
            (Asked::Steer(_), Step::Working) if self.is_deaf() => {
                self.note("that is not possible: this agent hears nothing while it works", false);
            }
            (Asked::Steer(text), Step::Working) => {
                self.note(format!("the agent is told: {text}"), false);
                self.tell_agent(Told::Steer(text));
            }
            // Whoever says something to one that rests wants it to go on.
            (Asked::Steer(text), Step::Paused) => {
                self.note(format!("the agent is told: {text}"), false);
                self.hold = false;
                self.go_on(now, text);
            }
            (Asked::Pause, step) => {
                let is_working = *step == Step::Working;
                self.hold = true;
                match is_working {
                    true if self.is_deaf() => self.note(DEAF_PAUSE, false),
                    true => self.pause(),
                    false => {}
                }
            }
            (Asked::Resume, _) => self.resume(now),
            (Asked::Restart, _) => self.restart_now(now),
            (Asked::Skip(phase), _) if phase != self.phase.index => self.note(TOO_LATE, false),
            (Asked::Skip(_), _) => self.wish_for(Wish::Skip),
            (Asked::Stop, _) => self.wish_for(Wish::Stop),
            (Asked::Steer(_), _) => self.not_possible(),
        }
    }

    fn not_possible(&mut self) {
        self.note("that is not possible now: no agent is at work", false);
    }

    /// The agent is to stop its turn for a while.
    pub(super) fn pause(&mut self) {
        self.tell_agent(Told::Interrupt);
        self.step = Step::Pausing;
    }

    /// The turn was interrupted, so that nobody works.
    pub(super) fn paused(&mut self, now: Now) {
        if self.hold {
            self.note("paused", false);
            self.step = Step::Paused;
        } else {
            // Somebody has changed their mind since.
            self.go_on(now, prompts::GO_ON.to_owned());
        }
    }

    fn resume(&mut self, now: Now) {
        if !std::mem::replace(&mut self.hold, false) {
            self.note("that is not possible now: nothing is paused", false);
            return;
        }
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Paused => self.go_on(now, prompts::GO_ON.to_owned()),
            Step::Held(Next::Session(kind)) => self.open(now, kind),
            Step::Held(Next::Gate(gate, failed)) => self.run_gate(gate, failed),
            // Nothing was held up yet.
            step => self.step = step,
        }
    }

    /// The session that rests has another turn.
    fn go_on(&mut self, now: Now, prompt: String) {
        self.tell_agent(Told::Prompt(prompt));
        self.heard_now(now.time);
        self.step = Step::Working;
    }

    /// A new session instead of the one that runs, or of a wait for one.
    fn restart_now(&mut self, now: Now) {
        let why = || Why::new(Cause::RestartAsked, "somebody asked for a new session");
        match &self.step {
            Step::Working | Step::Pausing => {
                self.hold = false;
                self.interrupt(now, why());
            }
            // There is no turn to interrupt: its handoff is asked for at once.
            Step::Paused => {
                self.hold = false;
                self.ask_handoff(now, why());
            }
            Step::Held(Next::Session(kind))
            | Step::Limited { kind, .. }
            | Step::Resting { kind, .. } => {
                let kind = *kind;
                self.hold = false;
                self.open(now, kind);
            }
            _ => self.not_possible(),
        }
    }

    fn wish_for(&mut self, wish: Wish) {
        // A stop outweighs a skip.
        if self.wish != Some(Wish::Stop) {
            self.wish = Some(wish);
        }
        let cause = match wish {
            Wish::Stop => Cause::Stopped,
            Wish::Skip => Cause::Skipped,
        };
        match self.step {
            Step::Opening { .. }
            | Step::Working
            | Step::Pausing
            | Step::Paused
            | Step::Interrupting { .. }
            | Step::HandingOff { .. } => self.close(Why::new(cause, "somebody asked for it"), None),
            Step::Idle
            | Step::Basing
            | Step::Held(_)
            | Step::Resting { .. }
            | Step::Limited { .. } => {
                self.grant();
            }
            Step::Gating { .. } => {
                self.effects.push(Effect::EndGate);
                self.grant();
            }
            // What is being written down is written down first.
            _ => {}
        }
    }

    /// A phase ends by itself: whoever wanted to skip it did not mean the next one.
    pub(super) fn forget_skip(&mut self) {
        if self.wish.take_if(|wish| *wish == Wish::Skip).is_some() {
            self.note(TOO_LATE, false);
        }
    }

    /// Somebody has decided that it goes on without what it needs: they should see that it does.
    pub(super) fn warn_of_skipped(&mut self) {
        let ends = self.plan.phases.iter().zip(&self.ends);
        let skipped = ends.filter(|(_, end)| **end == Some(PhaseEnd::Skipped));
        let needs = &self.this_phase().depends_on;
        let needs = skipped.filter(|(phase, _)| needs.contains(&phase.name));
        let names: Vec<String> = needs.map(|(phase, _)| format!("`{}`", phase.name)).collect();
        if !names.is_empty() {
            self.note(format!("it depends on what was skipped: {}", names.join(", ")), true);
        }
    }

    /// How the run ends where no phase is left.
    pub(super) fn how_all_ended(&self) -> Finish {
        let count = |wanted| self.ends.iter().filter(|end| **end == Some(wanted)).count();
        let (done, skipped) = (count(PhaseEnd::Done), count(PhaseEnd::Skipped));
        if skipped == 0 {
            return Finish::Done;
        }
        Finish::Skipped {
            why: format!("{done} of {} phases done, {skipped} skipped", self.ends.len()),
        }
    }

    /// Does what somebody wished for, where that is pending. Returns whether there was something.
    pub(super) fn grant(&mut self) -> bool {
        match self.wish.take() {
            None => false,
            Some(Wish::Stop) => {
                self.finish(Finish::Stopped { why: "somebody asked for it".to_owned() });
                true
            }
            Some(Wish::Skip) => {
                self.end_phase(PhaseEnd::Skipped, "somebody asked for it".to_owned());
                true
            }
        }
    }
}
