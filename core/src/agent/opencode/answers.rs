//! Reads the answers of opencode's server. Driven by [`Opencode`]. Never sends an answer twice.

use serde_json::{Value, json};

use super::usage::model_windows;
use super::{Opencode, OpencodeRequest, Phase, launch_and_permissions};
use crate::agent::{Effect, RequestId};
use crate::limits::{AGENT_DETAIL_CHARS_MAX, AGENT_LOOKS_MAX, AGENT_SETTLE_WAIT};
use crate::text::cut_to_line;

impl Opencode {
    /// Takes in an answer, or why there is none.
    pub(super) fn answer(&mut self, request: RequestId, answer: Result<(u16, &[u8]), &str>) {
        let Some(purpose) = self.requests.remove(&request) else { return };
        let answer = match answer {
            // The answer to a prompt is empty. What is no JSON is a page for people.
            Ok((200..300, body)) => Ok(serde_json::from_slice(body).unwrap_or_default()),
            Ok((status, body)) => Err(format!("it answered {status}: {}", said(body))),
            Err(why) => Err(why.to_owned()),
        };
        match (purpose, answer) {
            (OpencodeRequest::Health, answer) => self.health(&answer.unwrap_or_default()),
            (OpencodeRequest::Windows, answer) => {
                self.windows = Some(model_windows(&answer.unwrap_or_default()));
                self.maybe_ready();
            }
            (OpencodeRequest::Session, answer) => self.opened(answer),
            (OpencodeRequest::Prompt, Err(why)) => {
                // It is unknown whether the prompt arrived: the agent must not work without a run.
                self.abort();
                self.fail_turn(format!("it did not take the prompt: {why}"));
            }
            (OpencodeRequest::Steer, Err(why)) => {
                self.strange(&format!("it did not take a word: {why}"));
                if let Some(turn) = &mut self.turn {
                    turn.unseen = turn.unseen.saturating_sub(1);
                }
                self.maybe_end();
            }
            (OpencodeRequest::Abort, Err(why)) => {
                self.strange(&format!("it did not take an interrupt: {why}"));
                // It is said where it was interrupted after all.
                if let Some(turn) = &mut self.turn {
                    (turn.interrupted, turn.given_up) = (false, false);
                }
            }
            // From here on it is read what the server has, as if its events had been heard.
            (OpencodeRequest::Messages, Ok(messages)) => self.messages(&messages),
            (OpencodeRequest::Used, Ok(info)) => self.session_info(&info),
            (OpencodeRequest::Subagents, Ok(infos)) => {
                list(&infos).for_each(|info| self.session_info(info));
            }
            (OpencodeRequest::Status, Ok(answer)) => self.states(&answer),
            (OpencodeRequest::Permissions, Ok(waiting)) => {
                list(&waiting).for_each(|request| self.decide(request));
            }
            (OpencodeRequest::Questions, Ok(waiting)) => {
                list(&waiting).for_each(|request| self.refuse(request));
            }
            (_, Ok(_)) | (OpencodeRequest::Permissions | OpencodeRequest::Questions, Err(_)) => {}
            (_, Err(_)) => self.look_later(),
        }
    }

    /// Each path that it does not know is answered with a page and 200: only its own words count.
    fn health(&mut self, answer: &Value) {
        let Phase::Polling { since, .. } = self.phase else { return };
        if answer["healthy"] != Value::Bool(true) {
            return;
        }
        self.phase = Phase::Opening { since };
        self.listen(0);
        self.ask(OpencodeRequest::Windows, "/config/providers", None);
        self.ask(
            OpencodeRequest::Session,
            "/session",
            Some(&launch_and_permissions::session(&self.setup)),
        );
        self.woken();
    }

    fn opened(&mut self, answer: Result<Value, String>) {
        if !matches!(self.phase, Phase::Opening { .. }) {
            return;
        }
        let id = answer.and_then(|answer| match id_of(&answer) {
            Some(id) => Ok(id.to_owned()),
            None => Err("its answer has no id".to_owned()),
        });
        match id {
            Ok(id) => {
                self.ledger.admit(&id);
                self.session = Some(id);
                self.maybe_ready();
            }
            Err(why) => self.give_up(format!("it opened no session: {why}")),
        }
    }

    fn messages(&mut self, messages: &Value) {
        for message in list(messages) {
            self.message(&message["info"]);
            list(&message["parts"]).for_each(|part| self.part(part));
        }
        let Some(session) = self.session.clone() else { return };
        // Only now: what these say includes the messages.
        self.ask(OpencodeRequest::Used, &format!("/session/{session}"), None);
        self.ask(OpencodeRequest::Subagents, &format!("/session/{session}/children"), None);
        self.ask(OpencodeRequest::Permissions, "/permission", None);
        self.ask(OpencodeRequest::Questions, "/question", None);
        self.ask(OpencodeRequest::Status, "/session/status", None);
    }

    /// Takes in which sessions work: one that is not in the list is idle.
    fn states(&mut self, states: &Value) {
        let Some(session) = self.session.clone() else { return };
        if let Some(status) = states.get(&session) {
            return self.status(&session, status);
        }
        // Its messages were read before: there is nothing that the turn could wait for, unless something that was
        // sent has not come to it yet.
        let sending =
            self.is_asked(OpencodeRequest::Prompt) || self.is_asked(OpencodeRequest::Steer);
        let Some(turn) = &mut self.turn else { return };
        turn.idle = true;
        turn.looks = turn.looks.saturating_add(1);
        let waits = turn.unseen > 0 && (sending || turn.looks < AGENT_LOOKS_MAX);
        // After a gap the first look comes with the events: the second finds what came in between.
        if turn.is_over() || !(waits || turn.looks < 2) {
            self.end_turn();
        } else {
            self.effects.push(Effect::WakeAfter(AGENT_SETTLE_WAIT));
        }
    }

    /// Answers something that opencode asks before it uses a tool.
    pub(super) fn decide(&mut self, request: &Value) {
        let Some(id) = id_of(request) else { return };
        let asked = request["permission"].as_str().unwrap_or_default();
        let body = match launch_and_permissions::allows(self.setup.permission, asked) {
            true => json!({"reply": "once"}),
            // Without a word to the agent, it would end its turn here.
            false => json!({
                "reply": "reject",
                "message": "This is not allowed here, and no user is present to ask. Go on without it.",
            }),
        };
        self.ask(OpencodeRequest::Reply, &format!("/permission/{id}/reply"), Some(&body));
    }

    /// Refuses a question of the agent: a run has no user to answer.
    pub(super) fn refuse(&mut self, request: &Value) {
        if let Some(id) = id_of(request) {
            self.ask(OpencodeRequest::Reply, &format!("/question/{id}/reject"), Some(&json!({})));
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The id of something, which can stand in a path as it is.
fn id_of(value: &Value) -> Option<&str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    value["id"].as_str().filter(|id| (1..=128).contains(&id.len()) && id.bytes().all(fits))
}

/// What the body of an error says.
fn said(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let parsed: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let message = parsed["data"]["message"].as_str().or_else(|| parsed["message"].as_str());
    cut_to_line(message.unwrap_or(&text), AGENT_DETAIL_CHARS_MAX)
}
