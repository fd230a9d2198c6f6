//! Reads the answers of opencode's server. Driven by [`Opencode`]. Never sends an answer twice.

use serde_json::{Value, json};

use super::requests::OpencodeRequest;
use super::usage::model_windows;
use super::{Effects, Opencode, Phase, launch, strange};
use crate::agent::{Effect, RequestId};
use crate::limits::{AGENT_DETAIL_CHARS_MAX, AGENT_LOOKS_MAX, AGENT_SETTLE_WAIT};
use crate::text::cut_to_line;

impl Opencode {
    /// Takes in an answer, or why there is none.
    pub(super) fn answer(
        &mut self,
        request: RequestId,
        answer: Result<(u16, &[u8]), &str>,
        effects: &mut Effects,
    ) {
        let Some(purpose) = self.requests.take(request) else { return };
        let answer = match answer {
            Ok((status, body)) if (200..300).contains(&status) => {
                // The answer to a prompt is empty. What is no JSON is a page for people.
                Ok(serde_json::from_slice(body).unwrap_or(Value::Null))
            }
            Ok((status, body)) => Err(format!("it answered {status}: {}", said(body))),
            Err(why) => Err(why.to_owned()),
        };
        match purpose {
            OpencodeRequest::Health => self.health(&answer.unwrap_or(Value::Null), effects),
            OpencodeRequest::Windows => {
                self.windows = Some(model_windows(&answer.unwrap_or(Value::Null)));
                self.maybe_ready(effects);
            }
            OpencodeRequest::Session => self.opened(answer, effects),
            OpencodeRequest::Prompt => {
                if let Err(why) = answer {
                    // It is unknown whether the prompt arrived: the agent must not work without a run.
                    self.abort(effects);
                    self.fail_turn(format!("it did not take the prompt: {why}"), effects);
                }
            }
            OpencodeRequest::Steer => {
                if let Err(why) = answer {
                    effects.push(strange(&format!("it did not take a word: {why}")));
                    if let Some(turn) = &mut self.turn {
                        turn.unseen = turn.unseen.saturating_sub(1);
                    }
                    self.maybe_end(effects);
                }
            }
            OpencodeRequest::Abort => {
                if let Err(why) = answer {
                    effects.push(strange(&format!("it did not take an interrupt: {why}")));
                    // It is said where it was interrupted after all.
                    if let Some(turn) = &mut self.turn {
                        (turn.interrupted, turn.given_up) = (false, false);
                    }
                }
            }
            OpencodeRequest::Reply => {
                if answer.is_err() {
                    self.look_later(effects);
                }
            }
            OpencodeRequest::Messages
            | OpencodeRequest::Used
            | OpencodeRequest::Subagents
            | OpencodeRequest::Status => match answer {
                Ok(answer) => self.read(purpose, &answer, effects),
                Err(_) => self.look_later(effects),
            },
            OpencodeRequest::Permissions | OpencodeRequest::Questions => {
                let waiting = answer.unwrap_or(Value::Null);
                for request in waiting.as_array().into_iter().flatten() {
                    match purpose {
                        OpencodeRequest::Permissions => self.decide(request, effects),
                        _ => self.refuse(request, effects),
                    }
                }
            }
        }
    }

    /// Each path that it does not know is answered with a page and 200: only its own words count.
    fn health(&mut self, answer: &Value, effects: &mut Effects) {
        let Phase::Polling { since, .. } = self.phase else { return };
        if answer["healthy"] != Value::Bool(true) {
            return;
        }
        self.phase = Phase::Opening { since };
        self.listen(0, effects);
        effects.push(self.requests.get(OpencodeRequest::Windows, "/config/providers"));
        let body = launch::session(&self.setup);
        effects.push(self.requests.post(OpencodeRequest::Session, "/session".to_owned(), &body));
        self.woken(effects);
    }

    fn opened(&mut self, answer: Result<Value, String>, effects: &mut Effects) {
        if !matches!(self.phase, Phase::Opening { .. }) {
            return;
        }
        let id = answer.and_then(|answer| match answer["id"].as_str() {
            Some(id) if is_name(id) => Ok(id.to_owned()),
            _ => Err("its answer has no id".to_owned()),
        });
        match id {
            Ok(id) => {
                self.ledger.admit(&id);
                self.session = Some(id);
                self.maybe_ready(effects);
            }
            Err(why) => self.give_up(format!("it opened no session: {why}"), effects),
        }
    }

    /// Takes in what the server has, as if its events had been heard.
    fn read(&mut self, purpose: OpencodeRequest, answer: &Value, effects: &mut Effects) {
        let Some(session) = self.session.clone() else { return };
        match purpose {
            OpencodeRequest::Messages => {
                for message in answer.as_array().into_iter().flatten() {
                    self.message(&message["info"], effects);
                    for part in message["parts"].as_array().into_iter().flatten() {
                        self.part(part, effects);
                    }
                }
                // Only now: what these say includes the messages.
                effects
                    .push(self.requests.get(OpencodeRequest::Used, &format!("/session/{session}")));
                effects.push(
                    self.requests
                        .get(OpencodeRequest::Subagents, &format!("/session/{session}/children")),
                );
                effects.push(self.requests.get(OpencodeRequest::Permissions, "/permission"));
                effects.push(self.requests.get(OpencodeRequest::Questions, "/question"));
                effects.push(self.requests.get(OpencodeRequest::Status, "/session/status"));
            }
            OpencodeRequest::Used => self.session_info(answer, effects),
            OpencodeRequest::Subagents => {
                for info in answer.as_array().into_iter().flatten() {
                    self.session_info(info, effects);
                }
            }
            // A session that is not in the list is idle.
            _ => match answer.get(&session) {
                Some(status) => self.status(&session, status, effects),
                None => self.found_idle(effects),
            },
        }
    }

    /// The session is idle, and its messages were read before: there is nothing that the turn could wait for, unless
    /// something that was sent has not come to it yet.
    fn found_idle(&mut self, effects: &mut Effects) {
        let sending = self.requests.is_open(OpencodeRequest::Prompt)
            || self.requests.is_open(OpencodeRequest::Steer);
        let Some(turn) = &mut self.turn else { return };
        turn.idle = true;
        turn.looks = turn.looks.saturating_add(1);
        let waits = turn.unseen > 0 && (sending || turn.looks < AGENT_LOOKS_MAX);
        // After a gap the first look comes with the events: the second finds what came in between.
        if turn.is_over() || !(waits || turn.looks < 2) {
            self.end_turn(effects);
        } else {
            effects.push(Effect::WakeAfter(AGENT_SETTLE_WAIT));
        }
    }

    /// Answers something that opencode asks before it uses a tool.
    pub(super) fn decide(&mut self, request: &Value, effects: &mut Effects) {
        let Some(id) = request["id"].as_str().filter(|id| is_name(id)) else { return };
        let asked = request["permission"].as_str().unwrap_or_default();
        let body = match launch::allows(self.setup.permission, asked) {
            true => json!({"reply": "once"}),
            // Without a word to the agent, it would end its turn here.
            false => json!({
                "reply": "reject",
                "message": "This is not allowed here, and there is nobody to ask. Go on without it.",
            }),
        };
        effects.push(self.requests.post(
            OpencodeRequest::Reply,
            format!("/permission/{id}/reply"),
            &body,
        ));
    }

    /// Refuses a question of the agent: a run has no user to answer.
    pub(super) fn refuse(&mut self, request: &Value, effects: &mut Effects) {
        if let Some(id) = request["id"].as_str().filter(|id| is_name(id)) {
            effects.push(self.requests.post(
                OpencodeRequest::Reply,
                format!("/question/{id}/reject"),
                &json!({}),
            ));
        }
    }
}

/// Whether this is an id, which can stand in a path as it is.
fn is_name(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=128).contains(&id.len()) && id.bytes().all(fits)
}

/// What the body of an error says.
fn said(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let parsed: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let message = parsed["data"]["message"].as_str().or_else(|| parsed["message"].as_str());
    cut_to_line(message.unwrap_or(&text), AGENT_DETAIL_CHARS_MAX)
}
