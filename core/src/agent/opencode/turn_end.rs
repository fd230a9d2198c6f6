//! Owns the state of a turn, and decides when it is over. Driven by [`super::Opencode`].
//!
//! opencode says that a session is idle when it was interrupted or has failed, and says so again when the step has
//! really ended: the second may come when the next prompt is on its way. So a turn is over when the session is idle
//! **and** the newest message of the user has an answer that is complete.

use crate::agent::{TurnEnd, TurnFailure};

/// A turn that runs.
#[derive(Debug, Default)]
pub(super) struct OpencodeTurn {
    /// Messages that were sent, and are not among those of the session yet.
    pub(super) unseen: u32,
    /// The newest answer to the newest message of the user.
    pub(super) answer: Option<ModelReply>,
    /// Whether the session was said to be idle.
    pub(super) idle: bool,
    /// How often we looked while it was idle.
    pub(super) looks: u32,
    /// Whether afresh or another client interrupted it.
    pub(super) interrupted: bool,
    /// What failed, unless something succeeded later.
    pub(super) failure: Option<(TurnFailure, String)>,
    /// Overflows since the last step that succeeded.
    pub(super) overflows: u32,
    /// Whether it was ended as it overflowed again and again.
    pub(super) given_up: bool,
    /// What was said last.
    pub(super) text: String,
}

/// An answer of the model, complete or not.
#[derive(Debug)]
pub(super) struct ModelReply {
    pub(super) id: String,
    pub(super) complete: bool,
}

impl OpencodeTurn {
    /// The turn of a prompt that is on its way.
    pub(super) fn new() -> Self {
        Self { unseen: 1, ..Self::default() }
    }

    /// Whether all that was asked has been dealt with.
    pub(super) fn is_over(&self) -> bool {
        self.idle && self.unseen == 0 && self.answer.as_ref().is_some_and(|answer| answer.complete)
    }

    /// Takes in that the session works.
    pub(super) fn works(&mut self) {
        self.idle = false;
        self.looks = 0;
    }

    /// Takes in a message of the user that is new.
    pub(super) fn asked(&mut self) {
        self.unseen = self.unseen.saturating_sub(1);
        self.answer = None;
        self.looks = 0;
    }

    /// Takes in an answer to the newest message of the user; a later one counts, not the last word on an earlier.
    pub(super) fn answered(&mut self, id: &str, complete: bool) {
        if self.answer.as_ref().is_none_or(|answer| answer.id.as_str() <= id) {
            self.answer = Some(ModelReply { id: id.to_owned(), complete });
        }
    }

    /// Takes in a step that succeeded: what failed before it was mended.
    pub(super) fn stepped(&mut self) {
        self.failure = None;
        self.overflows = 0;
    }

    /// How it ended.
    pub(super) fn end(self) -> TurnEnd {
        match self.failure {
            Some((failure, why)) if self.given_up || !self.interrupted => {
                TurnEnd::Failed { failure, why }
            }
            _ if self.interrupted => TurnEnd::Interrupted,
            _ => TurnEnd::Done(self.text),
        }
    }
}
