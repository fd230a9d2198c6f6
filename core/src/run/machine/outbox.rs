//! Owns the effects of one input, in order. Filled by the parts of the machine, emptied by [`Machine::handle`].
//! Never performs one.
//!
//! [`Machine::handle`]: super::Machine::handle

use crate::run::{Effect, Record, RunEvent};

/// Effects that the driver has not received yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    effects: Vec<Effect>,
}

impl Outbox {
    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn record(&mut self, record: Record) {
        self.push(Effect::Record(record));
    }

    pub(super) fn say(&mut self, say: RunEvent) {
        self.push(Effect::Event(say));
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.say(RunEvent::Note(text.into(), false));
    }

    pub(super) fn warn(&mut self, text: impl Into<String>) {
        self.say(RunEvent::Note(text.into(), true));
    }

    pub(super) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}
