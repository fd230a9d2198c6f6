//! Owns the use of a session of Claude Code: how full the context is, and the tokens spent in all.
//!
//! The context is what went into the last call of the agent itself, and what came out of it. Each call is
//! told several times, and its output only at its end. What is spent is counted call by call, and put right
//! at each result, which knows of calls that are not told.

use crate::agent::stream::{Object, SeenIds};
use crate::agent::{AgentEvent, ContextUse, Effect, Spent};
use crate::limits::AGENT_ID_CHARS_MAX;

/// Counts the calls of one session.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// The model of the agent itself.
    pub(super) model: Option<String>,
    window: Option<u64>,
    compacts_at: Option<u64>,
    /// What went into the last call of the agent itself, and what has come out of it.
    last_call: Spent,
    pub(super) seen: SeenIds,
    /// What was spent up to the last result.
    settled: Spent,
    /// What was told of calls since.
    since: Spent,
    /// What the last result said that was spent in all.
    reported: Spent,
}

impl Meter {
    /// A call of the model has begun, or a part of it was told.
    pub(super) fn called(&mut self, message: &Object<'_>, is_of_agent: bool) -> Vec<Effect> {
        // What it says of its output here is not what will have come out.
        let usage = Spent { output: 0, ..tokens(&message.object("usage"), CALL) };
        let Some(id) = message.cut_text("id", AGENT_ID_CHARS_MAX) else { return Vec::new() };
        if usage.input == 0 || !self.seen.is_new(&id) {
            return Vec::new();
        }
        self.since = self.since.plus(usage);
        if !is_of_agent {
            return vec![self.spent()];
        }
        self.last_call = usage;
        vec![self.context(usage.input), self.spent()]
    }

    /// More has come out of the last call of the agent itself.
    pub(super) fn grew(&mut self, event: &Object<'_>) -> Vec<Effect> {
        let output = event.object("usage").number("output_tokens").unwrap_or(0);
        if output <= self.last_call.output || self.last_call.input == 0 {
            return Vec::new();
        }
        let more = output - self.last_call.output;
        self.since.output = self.since.output.saturating_add(more);
        self.last_call.output = output;
        vec![self.context(self.last_call.tokens()), self.spent()]
    }

    /// It was asked how full its context is, and says so.
    pub(super) fn measured(&mut self, answer: &Object<'_>) -> Vec<Effect> {
        let Some(used) = answer.number("totalTokens") else { return Vec::new() };
        let window = answer.number("maxTokens").or_else(|| answer.number("rawMaxTokens"));
        self.window = window.filter(|window| *window > 0).or(self.window);
        let compacts = answer.is_true("isAutoCompactEnabled");
        self.compacts_at = answer.number("autoCompactThreshold").filter(|_| compacts);
        vec![self.context(used)]
    }

    /// A result says what was spent in all. It leaves out calls that were broken off, and we do not know of
    /// all: the greater counts.
    pub(super) fn settle(&mut self, line: &Object<'_>) -> Vec<Effect> {
        let mut reported = Spent::default();
        for (model, usage) in line.object("modelUsage").each_object() {
            reported = reported.plus(tokens(&usage, MODEL));
            if self.window.is_none() && Some(&*model) == self.model.as_deref() {
                self.window = usage.number("contextWindow").filter(|window| *window > 0);
            }
        }
        let since = std::mem::take(&mut self.since);
        let step = reported.with_tokens(self.reported, u64::saturating_sub);
        self.settled = self.settled.plus(step.with_tokens(since, u64::max));
        let dollars = line.raw("total_cost_usd").and_then(|raw| serde_json::from_slice(raw).ok());
        let dollars = dollars.filter(|dollars: &f64| dollars.is_finite());
        self.settled.dollars = match (self.settled.dollars, dollars) {
            (Some(before), Some(now)) => Some(before.max(now)),
            (before, now) => now.or(before),
        };
        self.reported = reported;
        vec![self.spent()]
    }

    fn context(&self, used: u64) -> Effect {
        let (window, compacts_at) = (self.window, self.compacts_at);
        Effect::Heard(AgentEvent::Context(ContextUse { used, window, compacts_at, exact: true }))
    }

    fn spent(&self) -> Effect {
        Effect::Heard(AgentEvent::Spent(self.settled.plus(self.since)))
    }
}

/// The names of the counts of a call, and of those of a model: new input, input from the cache and to it, output.
const CALL: [&str; 4] =
    ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"];
const MODEL: [&str; 4] =
    ["inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens", "outputTokens"];

fn tokens(usage: &Object<'_>, names: [&str; 4]) -> Spent {
    let [new, cached, written, output] = names.map(|name| usage.number(name).unwrap_or(0));
    let input = new.saturating_add(cached).saturating_add(written);
    Spent { input, cached, output, ..Spent::default() }
}
