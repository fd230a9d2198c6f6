//! Reads the events of opencode's server. Driven by [`Opencode`]. Never keeps an event.
//!
//! Of the sessions of subagents, their use is counted and their questions are answered; their texts are dropped, as
//! are unknown events.

use serde_json::Value;

use super::failure::{of_retry, what_failed};
use super::usage::{context_after, count};
use super::{EventStream, Opencode, moment};
use crate::agent::{AgentEvent, TurnFailure};
use crate::limits::{AGENT_DETAIL_CHARS_MAX, AGENT_OVERFLOWS_MAX, AGENT_TEXT_CHARS_MAX};
use crate::text::{cut, cut_to_line};

impl Opencode {
    pub(super) fn event(&mut self, data: &[u8]) {
        let event: Value = match serde_json::from_slice(data) {
            Ok(event @ Value::Object(_)) => event,
            _ => return self.strange(&String::from_utf8_lossy(data)),
        };
        if self.stream != EventStream::Open {
            // What happened before it was open is read, unless there is no session yet.
            self.stream = EventStream::Open;
            self.look();
            self.maybe_ready();
        }
        let about = &event["properties"];
        let session = about["sessionID"].as_str();
        match event["type"].as_str().unwrap_or_default() {
            "session.created" | "session.updated" => self.session_info(&about["info"]),
            "session.status" => {
                self.status(session.unwrap_or_default(), &about["status"]);
            }
            "session.idle" => self.idle(session.unwrap_or_default()),
            // One without a session concerns all of them.
            "session.error" if session.is_none_or(|id| self.is_ours(id)) => {
                self.failed(&about["error"]);
            }
            "session.compacted" if session.is_some_and(|id| self.is_ours(id)) => {
                self.hear(AgentEvent::Compacted);
            }
            "message.updated" => self.message(&about["info"]),
            "message.part.updated" => self.part(&about["part"]),
            "permission.asked" => self.decide(about),
            "question.asked" => self.refuse(about),
            _ => {}
        }
    }

    fn is_ours(&self, session: &str) -> bool {
        self.session.as_deref() == Some(session)
    }

    /// Takes in a session, as opencode describes it.
    pub(super) fn session_info(&mut self, info: &Value) {
        let Some(id) = info["id"].as_str().filter(|id| id.len() <= AGENT_DETAIL_CHARS_MAX) else {
            return;
        };
        if info["parentID"].as_str().is_some_and(|parent| self.ledger.knows(parent)) {
            self.ledger.admit(id);
        }
        self.ledger.raise(id, info);
        self.effects.extend(self.ledger.news());
    }

    /// Takes in what a session does.
    pub(super) fn status(&mut self, session: &str, status: &Value) {
        let kind = status["type"].as_str().unwrap_or_default();
        if kind == "idle" {
            return self.idle(session);
        }
        if self.is_ours(session)
            && let Some(turn) = &mut self.turn
        {
            (turn.idle, turn.looks) = (false, 0);
        }
        // Also of a subagent: its turn is a part of ours, and nothing else is heard while it waits.
        if kind == "retry" && self.ledger.knows(session) {
            let attempt = count(&status["attempt"]).unwrap_or(0);
            let next = count(&status["next"]).filter(|&millis| millis > 0);
            let this = (session.to_owned(), attempt, next.unwrap_or(0));
            if self.retry.as_ref() != Some(&this) {
                self.retry = Some(this);
                self.hear(AgentEvent::Retrying {
                    attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
                    why: line(&status["message"]),
                    at: next.map(moment),
                    failure: of_retry(status["message"].as_str().unwrap_or_default()),
                });
            }
        }
    }

    fn idle(&mut self, session: &str) {
        if self.is_ours(session)
            && let Some(turn) = &mut self.turn
        {
            turn.idle = true;
            self.maybe_end();
        }
    }

    /// Takes in a failure of our session. After an overflow opencode may put its context together and go on.
    fn failed(&mut self, error: &Value) {
        let now = self.now;
        let Some(turn) = &mut self.turn else { return };
        let Some(failure) = what_failed(error, now) else {
            turn.interrupted = true;
            return;
        };
        turn.failure = Some((failure, line(&error["data"]["message"])));
        if failure == TurnFailure::Overflow {
            turn.overflows = turn.overflows.saturating_add(1);
        }
        if turn.overflows >= AGENT_OVERFLOWS_MAX && !turn.given_up {
            turn.given_up = true;
            self.abort();
        }
    }

    /// Takes in a message of the user or the model.
    pub(super) fn message(&mut self, info: &Value) {
        let session = info["sessionID"].as_str().unwrap_or_default();
        let (Some(id), true) = (info["id"].as_str(), self.is_ours(session)) else { return };
        match info["role"].as_str() {
            Some("user") if id > self.newest_asked.as_str() => {
                self.newest_asked = cut(id, AGENT_DETAIL_CHARS_MAX);
                let Some(turn) = &mut self.turn else { return };
                (turn.unseen, turn.looks) = (turn.unseen.saturating_sub(1), 0);
                turn.answer = None;
                // The interrupt may have come before it.
                if turn.interrupted {
                    self.abort();
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
                    // A later one counts, not the last word on an earlier.
                    if turn.answer.as_ref().is_none_or(|(newest, _)| newest.as_str() <= id) {
                        turn.answer = Some((id.to_owned(), complete));
                    }
                    // Said before as an event, unless that was missed.
                    if !info["error"].is_null() && turn.failure.is_none() && !turn.interrupted {
                        self.failed(&info["error"].clone());
                    }
                    self.maybe_end();
                }
            }
            _ => {}
        }
    }

    /// Takes in a part of a message: a text, a tool, the end of a step.
    pub(super) fn part(&mut self, part: &Value) {
        let session = part["sessionID"].as_str().unwrap_or_default();
        let Some(id) = part["id"].as_str().filter(|id| id.len() <= AGENT_DETAIL_CHARS_MAX) else {
            return;
        };
        let of_summary =
            self.summary.is_some() && part["messageID"].as_str() == self.summary.as_deref();
        match part["type"].as_str() {
            Some("step-finish") if self.ledger.knows(session) && self.parts.is_new(id) => {
                self.ledger.add(session, part);
                self.effects.extend(self.ledger.news());
                // What it takes to sum up a context is not in the context.
                if self.is_ours(session) && !of_summary {
                    self.stepped(part);
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
                    self.hear(AgentEvent::Text(text));
                }
            }
            Some("tool") if self.is_ours(session) => self.tool(id, part),
            _ => {}
        }
    }

    fn stepped(&mut self, step: &Value) {
        if let Some(turn) = &mut self.turn
            && !turn.given_up
        {
            // What failed before it was mended.
            (turn.failure, turn.overflows) = (None, 0);
        }
        let windows = self.windows.as_ref();
        let Some(context) = context_after(step, self.model.as_deref(), windows) else { return };
        self.context = Some(context);
        self.hear(AgentEvent::Context(context));
    }

    /// Takes in the state of a tool.
    pub(super) fn tool(&mut self, id: &str, part: &Value) {
        let state = &part["state"];
        let succeeded = match state["status"].as_str() {
            Some("running") => None,
            Some("completed") => Some(true),
            Some("error") => Some(false),
            // Its input is not complete.
            _ => return,
        };
        if self.parts.is_new(id) {
            let (name, detail) = (line(&part["tool"]), detail(state));
            self.effects.extend(self.tools.begin(id.to_owned(), name, detail));
        }
        if let Some(succeeded) = succeeded {
            self.effects.extend(self.tools.end(id.to_owned(), succeeded));
        }
    }
}

fn line(value: &Value) -> String {
    cut_to_line(value.as_str().unwrap_or_default(), AGENT_DETAIL_CHARS_MAX)
}

/// The inputs of a tool that say most, the best first.
const DETAILS: [&str; 9] =
    ["command", "filePath", "path", "pattern", "url", "query", "description", "name", "prompt"];

/// The input of a tool, as one line.
fn detail(state: &Value) -> String {
    let input = &state["input"];
    let known = DETAILS.iter().find_map(|&key| input[key].as_str());
    match known.or_else(|| state["title"].as_str()) {
        Some(text) => cut_to_line(text, AGENT_DETAIL_CHARS_MAX),
        None if input.as_object().is_some_and(|input| !input.is_empty()) => {
            cut_to_line(&input.to_string(), AGENT_DETAIL_CHARS_MAX)
        }
        None => String::new(),
    }
}
