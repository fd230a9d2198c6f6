//! What the sessions of opencode have used, subagents included.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::super::Spent;
use crate::limits::{AGENT_CALLS_MAX, AGENT_SUBAGENTS_MAX};

/// Less than any call costs: sums of floating point numbers differ by their order.
const SAME_DOLLARS: f64 = 1e-9;

/// What each session has used.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    sessions: BTreeMap<String, Spent>,
    told: Option<Spent>,
}

impl Ledger {
    /// Counts this session from now on.
    pub(super) fn admit(&mut self, session: &str) {
        if self.sessions.len() <= AGENT_SUBAGENTS_MAX && !self.knows(session) {
            self.sessions.insert(session.to_owned(), Spent::default());
        }
    }

    /// Whether this session is counted.
    pub(super) fn knows(&self, session: &str) -> bool {
        self.sessions.contains_key(session)
    }

    /// Adds one call of a model, as the end of a step has it.
    pub(super) fn add(&mut self, session: &str, step: &Value) {
        if let Some(spent) = self.sessions.get_mut(session) {
            *spent = spent.plus(read(step));
        }
    }

    /// Takes in what opencode itself has added up for a session. It comes later than the steps, but includes those
    /// whose events were missed.
    pub(super) fn raise(&mut self, session: &str, info: &Value) {
        let Some(spent) = self.sessions.get_mut(session) else { return };
        let level = read(info);
        let dollars = match (spent.dollars, level.dollars) {
            (Some(known), Some(said)) if said > known + SAME_DOLLARS => Some(said),
            (known, said) => known.or(said),
        };
        *spent = Spent {
            input: spent.input.max(level.input),
            cached: spent.cached.max(level.cached),
            output: spent.output.max(level.output),
            dollars,
            guessed: false,
        };
    }

    /// The sum of all, where it is another than was told before.
    pub(super) fn news(&mut self) -> Option<Spent> {
        let total = self.sessions.values().copied().fold(Spent::default(), Spent::plus);
        let first = self.told.is_none() && total.input == 0 && total.output == 0;
        if first || self.told == Some(total) {
            return None;
        }
        self.told = Some(total);
        Some(total)
    }
}

/// Ids that were seen; the oldest is forgotten.
#[derive(Debug, Default)]
pub(super) struct Seen {
    ids: BTreeSet<String>,
    order: VecDeque<String>,
}

impl Seen {
    /// Whether this id is new. It is not, from then on.
    pub(super) fn is_new(&mut self, id: &str) -> bool {
        if self.ids.contains(id) {
            return false;
        }
        if self.order.len() >= AGENT_CALLS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        self.ids.insert(id.to_owned());
        self.order.push_back(id.to_owned());
        true
    }
}

/// How many tokens were in the context after a step.
pub(super) fn context_after(step: &Value) -> Option<u64> {
    let spent = read(step);
    count(&step["tokens"]["total"])
        .or_else(|| Some(spent.input.saturating_add(spent.output)))
        .filter(|&used| used > 0)
}

/// A count, which JavaScript may write as `1e3` or `5.0`.
pub(super) fn count(value: &Value) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, as it should"
    )]
    let whole = |number: f64| (number >= 0.0).then_some(number as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(whole))
}

/// The tokens and the cost of a step, a message or a session: all write them alike.
fn read(value: &Value) -> Spent {
    let tokens = &value["tokens"];
    let number = |value: &Value| count(value).unwrap_or(0);
    let cached = number(&tokens["cache"]["read"]);
    let written = number(&tokens["cache"]["write"]);
    Spent {
        input: number(&tokens["input"]).saturating_add(cached).saturating_add(written),
        cached,
        output: number(&tokens["output"]).saturating_add(number(&tokens["reasoning"])),
        dollars: value["cost"].as_f64().filter(|cost| cost.is_finite() && *cost >= 0.0),
        guessed: false,
    }
}
