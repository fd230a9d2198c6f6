//! What a person wants of a run: at once where that is possible, else at the next good moment.

use super::*;
use crate::agent::Told;

impl Machine {
    pub(super) fn asked(&mut self, now: Now, asked: Asked) {
        match (asked, &self.step) {
            (_, Step::Over) => {}
            (Asked::Steer(_) | Asked::Pause, Step::Working) if self.is_deaf() => {
                self.note("that is not possible: this agent hears nothing while it works", false);
            }
            (Asked::Steer(text), Step::Working) => self.tell_agent(Told::Steer(text)),
            (Asked::Pause, Step::Working) => {
                self.tell_agent(Told::Interrupt);
                self.step = Step::Pausing;
            }
            (Asked::Resume, Step::Paused) => {
                let text = super::super::prompts::GO_ON.to_owned();
                self.tell_agent(Told::Prompt(text));
                self.heard_now(now.time);
                self.step = Step::Working;
            }
            (Asked::Restart, Step::Working) => {
                self.interrupt(
                    now,
                    Why::new(Cause::RestartAsked, "somebody asked for a new session"),
                );
            }
            (Asked::Restart, Step::Limited { kind, .. } | Step::Resting { kind, .. }) => {
                let kind = *kind;
                self.open(now, kind);
            }
            (Asked::Skip, _) => self.wish_for(Wish::Skip),
            (Asked::Stop, _) => self.wish_for(Wish::Stop),
            (Asked::Steer(_) | Asked::Pause | Asked::Resume | Asked::Restart, _) => {
                self.note("that is not possible now: no agent is at work", false);
            }
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
            Step::Idle | Step::Basing | Step::Resting { .. } | Step::Limited { .. } => {
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
