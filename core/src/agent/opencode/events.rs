//! Reads the events of opencode's server. Driven by [`Opencode`]. Never keeps an event.
//!
//! Of the sessions of subagents, their use is counted and their questions are answered; their texts are dropped, as
//! are unknown events.

use std::time::Duration;

use serde_json::Value;

use super::usage::{context_after, count};
use super::{Effects, Opencode, moment, strange};
use crate::agent::{AgentEvent, ContextUse, Effect, TurnFailure};
use crate::limits::{AGENT_DETAIL_CHARS_MAX, AGENT_OVERFLOWS_MAX, AGENT_TEXT_CHARS_MAX};
use crate::text::{cut, cut_to_line};
use crate::time::Stamp;

impl Opencode {
    pub(super) fn event(&mut self, data: &[u8], effects: &mut Effects) {
        let event: Value = match serde_json::from_slice(data) {
            Ok(event @ Value::Object(_)) => event,
            _ => return effects.push(strange(&String::from_utf8_lossy(data))),
        };
        if self.stream != super::EventStream::Open {
            self.connected(effects);
        }
        let about = &event["properties"];
        let session = about["sessionID"].as_str();
        match event["type"].as_str().unwrap_or_default() {
            "session.created" | "session.updated" => self.session_info(&about["info"], effects),
            "session.status" => {
                self.status(session.unwrap_or_default(), &about["status"], effects);
            }
            "session.idle" => self.idle(session.unwrap_or_default(), effects),
            // One without a session concerns all of them.
            "session.error" if session.is_none_or(|id| self.is_ours(id)) => {
                self.failed(&about["error"], effects);
            }
            "session.compacted" if session.is_some_and(|id| self.is_ours(id)) => {
                effects.push(Effect::Heard(AgentEvent::Compacted));
            }
            "message.updated" => self.message(&about["info"], effects),
            "message.part.updated" => self.part(&about["part"], effects),
            "permission.asked" => self.decide(about, effects),
            "question.asked" => self.refuse(about, effects),
            _ => {}
        }
    }

    fn is_ours(&self, session: &str) -> bool {
        self.session.as_deref() == Some(session)
    }

    /// Takes in a session, as opencode describes it.
    pub(super) fn session_info(&mut self, info: &Value, effects: &mut Effects) {
        let Some(id) = info["id"].as_str().filter(|id| id.len() <= AGENT_DETAIL_CHARS_MAX) else {
            return;
        };
        if info["parentID"].as_str().is_some_and(|parent| self.ledger.knows(parent)) {
            self.ledger.admit(id);
        }
        self.ledger.raise(id, info);
        effects.extend(self.ledger.news());
    }

    /// Takes in what a session does.
    pub(super) fn status(&mut self, session: &str, status: &Value, effects: &mut Effects) {
        let kind = status["type"].as_str().unwrap_or_default();
        if kind == "idle" {
            return self.idle(session, effects);
        }
        if self.is_ours(session)
            && let Some(turn) = &mut self.turn
        {
            turn.works();
        }
        // Also of a subagent: its turn is a part of ours, and nothing else is heard while it waits.
        if kind == "retry" && self.ledger.knows(session) {
            let attempt = count(&status["attempt"]).unwrap_or(0);
            let next = count(&status["next"]).filter(|&millis| millis > 0);
            let this = (session.to_owned(), attempt, next.unwrap_or(0));
            if self.retry.as_ref() != Some(&this) {
                self.retry = Some(this);
                effects.push(Effect::Heard(AgentEvent::Retrying {
                    attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
                    why: line(&status["message"]),
                    at: next.map(moment),
                }));
            }
        }
    }

    fn idle(&mut self, session: &str, effects: &mut Effects) {
        if self.is_ours(session)
            && let Some(turn) = &mut self.turn
        {
            turn.idle = true;
            self.maybe_end(effects);
        }
    }

    /// Takes in a failure of our session. After an overflow opencode may put its context together and go on.
    fn failed(&mut self, error: &Value, effects: &mut Effects) {
        let now = self.now;
        let Some(turn) = &mut self.turn else { return };
        match what_failed(error, now) {
            Failed::Interrupted => turn.interrupted = true,
            Failed::With(failure) => {
                turn.failure = Some((failure, line(&error["data"]["message"])));
                if failure == TurnFailure::Overflow {
                    turn.overflows = turn.overflows.saturating_add(1);
                }
                if turn.overflows >= AGENT_OVERFLOWS_MAX && !turn.given_up {
                    turn.given_up = true;
                    self.abort(effects);
                }
            }
        }
    }

    /// Takes in a message of the user or the model.
    pub(super) fn message(&mut self, info: &Value, effects: &mut Effects) {
        let session = info["sessionID"].as_str().unwrap_or_default();
        let (Some(id), true) = (info["id"].as_str(), self.is_ours(session)) else { return };
        match info["role"].as_str() {
            Some("user") if id > self.newest_asked.as_str() => {
                self.newest_asked = cut(id, AGENT_DETAIL_CHARS_MAX);
                let Some(turn) = &mut self.turn else { return };
                turn.asked();
                // The interrupt may have come before it.
                if turn.interrupted {
                    self.abort(effects);
                }
            }
            Some("assistant") => {
                if info["summary"] == Value::Bool(true) {
                    self.summary = Some(cut(id, AGENT_DETAIL_CHARS_MAX));
                }
                if let (Some(provider), Some(model)) =
                    (info["providerID"].as_str(), info["modelID"].as_str())
                {
                    self.model = Some(cut(&format!("{provider}/{model}"), AGENT_DETAIL_CHARS_MAX));
                }
                let complete = !info["time"]["completed"].is_null();
                let answers = info["parentID"].as_str() == Some(self.newest_asked.as_str());
                let Some(turn) = &mut self.turn else { return };
                if answers && id.len() <= AGENT_DETAIL_CHARS_MAX {
                    turn.answered(id, complete);
                    // Said before as an event, unless that was missed.
                    if !info["error"].is_null() && turn.failure.is_none() && !turn.interrupted {
                        self.failed(&info["error"].clone(), effects);
                    }
                    self.maybe_end(effects);
                }
            }
            _ => {}
        }
    }

    /// Takes in a part of a message: a text, a tool, the end of a step.
    pub(super) fn part(&mut self, part: &Value, effects: &mut Effects) {
        let session = part["sessionID"].as_str().unwrap_or_default();
        let Some(id) = part["id"].as_str().filter(|id| id.len() <= AGENT_DETAIL_CHARS_MAX) else {
            return;
        };
        let of_summary =
            self.summary.is_some() && part["messageID"].as_str() == self.summary.as_deref();
        match part["type"].as_str() {
            Some("step-finish") if self.ledger.knows(session) && self.parts.is_new(id) => {
                self.ledger.add(session, part);
                effects.extend(self.ledger.news());
                // What it takes to sum up a context is not in the context.
                if self.is_ours(session) && !of_summary {
                    self.stepped(part, effects);
                }
            }
            // Texts of people have no end, those of opencode itself say so, and those of the model get an end when
            // they are complete.
            Some("text") if self.is_ours(session) && !of_summary => {
                let of_model = part["synthetic"] != Value::Bool(true);
                let complete = of_model && !part["time"]["end"].is_null();
                let text = part["text"].as_str().unwrap_or_default().trim();
                if complete && !text.is_empty() && self.parts.is_new(id) {
                    let text = cut(text, AGENT_TEXT_CHARS_MAX);
                    if let Some(turn) = &mut self.turn {
                        turn.text.clone_from(&text);
                    }
                    effects.push(Effect::Heard(AgentEvent::Text(text)));
                }
            }
            Some("tool") if self.is_ours(session) => self.parts.tool(id, part, effects),
            _ => {}
        }
    }

    fn stepped(&mut self, step: &Value, effects: &mut Effects) {
        if let Some(turn) = &mut self.turn
            && !turn.given_up
        {
            turn.stepped();
        }
        let Some(used) = context_after(step) else { return };
        let windows = self.windows.as_ref();
        let window = self.model.as_ref().and_then(|model| windows?.get(model).copied());
        let context = ContextUse { used, window, compacts_at: None, exact: true };
        self.context = Some(context);
        effects.push(Effect::Heard(AgentEvent::Context(context)));
    }
}

enum Failed {
    Interrupted,
    With(TurnFailure),
}

fn what_failed(error: &Value, now: Stamp) -> Failed {
    let data = &error["data"];
    let failure = match (error["name"].as_str().unwrap_or_default(), data["statusCode"].as_u64()) {
        ("MessageAbortedError", _) => return Failed::Interrupted,
        ("ContextOverflowError", _) => TurnFailure::Overflow,
        ("ProviderAuthError", _) | (_, Some(401 | 403)) => TurnFailure::Unauthorized,
        (_, Some(429)) => {
            TurnFailure::Limited { until: retry_after(&data["responseHeaders"], now) }
        }
        (_, Some(503 | 529)) => TurnFailure::Overloaded,
        _ => TurnFailure::Other,
    };
    Failed::With(failure)
}

/// When a limit is over, as the provider says it in seconds.
fn retry_after(headers: &Value, now: Stamp) -> Option<Stamp> {
    let seconds: u64 = headers["retry-after"].as_str()?.trim().parse().ok()?;
    let since = u64::try_from(now.unix_nanos() / 1_000_000_000).ok()?;
    Some(Stamp::since_unix_epoch(Duration::from_secs(since.saturating_add(seconds))))
}

pub(super) fn line(value: &Value) -> String {
    cut_to_line(value.as_str().unwrap_or_default(), AGENT_DETAIL_CHARS_MAX)
}
