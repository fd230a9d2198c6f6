//! Owns the use of a session of Claude Code: how full the context is, and the tokens spent in all.
//!
//! The context is what went into the last call of the agent itself, and what came out of it. Each call is
//! told several times, and its output only at its end. What is spent is counted call by call, and put right
//! at each result, which knows of calls that are not told.

use std::collections::{BTreeSet, VecDeque};

use super::line_fields::{self, number};
use crate::agent::{AgentEvent, ContextUse, Spent};
use crate::limits::{AGENT_CALLS_MAX, AGENT_ID_CHARS_MAX};
use crate::mcp::json;
use crate::text::cut;

/// Counts the calls of one session.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// The model of the agent itself.
    pub(super) model: Option<String>,
    window: Option<u64>,
    compacts_at: Option<u64>,
    /// What went into the last call of the agent itself, and what has come out of it.
    last_call: CallUsage,
    seen: SeenCalls,
    /// What was spent up to the last result.
    settled: Spent,
    /// What was told of calls since.
    since: Spent,
    /// What the last result said that was spent in all.
    reported: Spent,
}

#[derive(Clone, Copy, Debug, Default)]
struct CallUsage {
    input: u64,
    cached: u64,
    output: u64,
}

impl Meter {
    /// A call of the model has begun, or a part of it was told.
    pub(super) fn called(&mut self, message: &[u8], is_of_agent: bool) -> Vec<AgentEvent> {
        let usage = CallUsage::read(message);
        let mut is_new = || {
            let id = line_fields::text(message, &["id"])?;
            self.seen.note(cut(&id, AGENT_ID_CHARS_MAX)).then_some(())
        };
        if usage.input == 0 || is_new().is_none() {
            return Vec::new();
        }
        add(&mut self.since.input, usage.input);
        add(&mut self.since.cached, usage.cached);
        // What it says of its output here is not what will have come out.
        if !is_of_agent {
            return vec![self.spent()];
        }
        self.last_call = CallUsage { output: 0, ..usage };
        vec![self.context(usage.input), self.spent()]
    }

    /// More has come out of the last call of the agent itself.
    pub(super) fn grew(&mut self, event: &[u8]) -> Vec<AgentEvent> {
        let output = number(event, &["usage", "output_tokens"]).unwrap_or(0);
        if output <= self.last_call.output || self.last_call.input == 0 {
            return Vec::new();
        }
        add(&mut self.since.output, output - self.last_call.output);
        self.last_call.output = output;
        vec![self.context(self.last_call.input.saturating_add(output)), self.spent()]
    }

    /// It was asked how full its context is, and says so.
    pub(super) fn measured(&mut self, answer: &[u8]) -> Vec<AgentEvent> {
        let Some(used) = number(answer, &["totalTokens"]) else { return Vec::new() };
        let window = number(answer, &["maxTokens"]).or_else(|| number(answer, &["rawMaxTokens"]));
        self.window = window.filter(|window| *window > 0).or(self.window);
        self.compacts_at = match line_fields::is_true(answer, &["isAutoCompactEnabled"]) {
            true => number(answer, &["autoCompactThreshold"]),
            false => None,
        };
        vec![self.context(used)]
    }

    /// A result says what was spent in all. It leaves out calls that were broken off, and we do not know of
    /// all: the greater counts.
    pub(super) fn settle(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        let mut reported = Spent::default();
        let models = json::get(line, &["modelUsage"]).unwrap_or_default();
        for member in json::members(models).unwrap_or_default() {
            let usage = &models[member.value];
            let count = |key| number(usage, &[key]).unwrap_or(0);
            let cached = count("cacheReadInputTokens");
            add(&mut reported.input, count("inputTokens"));
            add(&mut reported.input, cached);
            add(&mut reported.input, count("cacheCreationInputTokens"));
            add(&mut reported.cached, cached);
            add(&mut reported.output, count("outputTokens"));
            let is_of_agent = json::text(&models[member.key]) == self.model;
            if self.window.is_none() && is_of_agent {
                self.window = number(usage, &["contextWindow"]).filter(|window| *window > 0);
            }
        }
        let (since, before) = (std::mem::take(&mut self.since), self.reported);
        let step = |now: u64, before: u64, told: u64| now.saturating_sub(before).max(told);
        let settled = &mut self.settled;
        add(&mut settled.input, step(reported.input, before.input, since.input));
        add(&mut settled.cached, step(reported.cached, before.cached, since.cached));
        add(&mut settled.output, step(reported.output, before.output, since.output));
        let dollars = json::get(line, &["total_cost_usd"])
            .and_then(|raw| serde_json::from_slice(raw).ok())
            .filter(|dollars: &f64| dollars.is_finite());
        settled.dollars = match (settled.dollars, dollars) {
            (Some(before), Some(now)) => Some(before.max(now)),
            (before, now) => now.or(before),
        };
        self.reported = reported;
        vec![self.spent()]
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        assert_eq!(self.seen.ids.len(), self.seen.order.len());
        self.seen.ids.len()
    }

    fn context(&self, used: u64) -> AgentEvent {
        let (window, compacts_at) = (self.window, self.compacts_at);
        AgentEvent::Context(ContextUse { used, window, compacts_at, exact: true })
    }

    fn spent(&self) -> AgentEvent {
        let mut spent = self.settled;
        add(&mut spent.input, self.since.input);
        add(&mut spent.cached, self.since.cached);
        add(&mut spent.output, self.since.output);
        AgentEvent::Spent(spent)
    }
}

impl CallUsage {
    fn read(message: &[u8]) -> Self {
        let usage = json::get(message, &["usage"]).unwrap_or_default();
        let count = |key| number(usage, &[key]).unwrap_or(0);
        let cached = count("cache_read_input_tokens");
        let mut input = count("input_tokens");
        add(&mut input, cached);
        add(&mut input, count("cache_creation_input_tokens"));
        Self { input, cached, output: 0 }
    }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Ids of calls that were counted; of too many, the oldest are forgotten.
#[derive(Debug, Default)]
struct SeenCalls {
    ids: BTreeSet<String>,
    order: VecDeque<String>,
}

impl SeenCalls {
    /// Whether this one is new.
    fn note(&mut self, id: String) -> bool {
        if !self.ids.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > AGENT_CALLS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}
