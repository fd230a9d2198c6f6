//! Owns what the sessions of opencode have used, subagents included, and the windows of its models. Driven by
//! [`super::Opencode`] with values of its server. Never guesses a price.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::agent::{AgentEvent, ContextUse, Effect, Spent};
use crate::limits::{AGENT_DETAIL_CHARS_MAX, AGENT_MODELS_MAX, AGENT_SUBAGENTS_MAX};

/// Less than any call costs: sums of floating point numbers differ by their order.
const SAME_DOLLARS: f64 = 1e-9;

/// What each session has used.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    sessions: BTreeMap<String, Spent>,
    reported: Option<Spent>,
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
        *spent = Spent { dollars, ..spent.with_tokens(level, u64::max) };
    }

    /// Reports the sum of all, where it is another than was reported before.
    pub(super) fn news(&mut self) -> Option<Effect> {
        let total = self.sessions.values().copied().fold(Spent::default(), Spent::plus);
        let first = self.reported.is_none() && total.input == 0 && total.output == 0;
        if first || self.reported == Some(total) {
            return None;
        }
        self.reported = Some(total);
        Some(Effect::Heard(AgentEvent::Spent(total)))
    }
}

/// The windows of the models, by `provider/model`, out of the list of providers.
pub(super) fn model_windows(answer: &Value) -> BTreeMap<String, u64> {
    let mut windows = BTreeMap::new();
    for provider in answer["providers"].as_array().into_iter().flatten() {
        let Some(name) = provider["id"].as_str() else { continue };
        for (model, about) in provider["models"].as_object().into_iter().flatten() {
            let window = count(&about["limit"]["context"]).filter(|&tokens| tokens > 0);
            let name = format!("{name}/{model}");
            if windows.len() < AGENT_MODELS_MAX
                && name.len() <= AGENT_DETAIL_CHARS_MAX
                && let Some(window) = window
            {
                windows.insert(name, window);
            }
        }
    }
    windows
}

/// How full the context was after a step, in the window of the model that took it.
pub(super) fn context_after(
    step: &Value,
    model: Option<&str>,
    windows: Option<&BTreeMap<String, u64>>,
) -> Option<ContextUse> {
    let total = count(&step["tokens"]["total"]);
    let used = total.or_else(|| Some(read(step).tokens())).filter(|&used| used > 0)?;
    let window = model.and_then(|model| windows?.get(model).copied());
    Some(ContextUse { used, window, compacts_at: None, exact: true })
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
    let cache = &tokens["cache"];
    let number = |value: &Value| count(value).unwrap_or(0);
    let sum = |one, other| number(one).saturating_add(number(other));
    Spent {
        input: sum(&tokens["input"], &cache["read"]).saturating_add(number(&cache["write"])),
        cached: number(&cache["read"]),
        output: sum(&tokens["output"], &tokens["reasoning"]),
        dollars: value["cost"].as_f64().filter(|cost| cost.is_finite() && *cost >= 0.0),
        guessed: false,
    }
}
