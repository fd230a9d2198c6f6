//! Owns the state of one session of Claude Code, over its stream-json control channel. Driven by [`AgentSession::handle`].
//!
//! A turn is over when the session says that it is idle, not when a result comes: a message that was heard
//! too late, or a subagent in the background, makes the session go on by itself after one. Versions that do
//! not say it end their turn with the result.
//!
//! Owns no process and no clock. What it does not know it passes over.

mod line_fields;
mod outcome;
mod outgoing;
mod servers;
#[cfg(test)]
mod tests;
mod usage;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use self::line_fields::StreamLine;
use self::outcome::Known;
use self::usage::Meter;
use super::{
    AgentEvent, AgentSession, Effect, Input, Instruction, Permission, Profile, Setup, Start,
    TurnEnd, TurnFailure,
};
use crate::limits::{
    AGENT_DETAIL_CHARS_MAX, AGENT_ID_CHARS_MAX, AGENT_TEXT_CHARS_MAX, AGENT_TOOLS_MAX,
    CLAUDE_ANSWER_WAIT,
};
use crate::mcp::json;
use crate::service::Exit;
use crate::text::{cut, cut_bytes};
use crate::time::Stamp;

pub(super) const PROFILE: Profile = Profile {
    name: "claude",
    tells_cost: true,
    settings_variable: None,
    session: |setup, _| Box::new(Claude::new(setup)),
    is_delta,
    servers: servers::RULES,
};

/// The machine of one session of Claude Code.
#[derive(Debug)]
pub(super) struct Claude {
    setup: Setup,
    /// Whether a prompt can be given.
    is_ready: bool,
    /// Whether its stdin can be written to.
    is_open: bool,
    /// Whether it has ever said whether it is idle.
    says_state: bool,
    turn: ClaudeTurn,
    /// How many lines of ours have an id.
    sent: u64,
    meter: Meter,
    /// Tools that have begun and not ended, the oldest first.
    tools: VecDeque<String>,
    /// What was told of the turn beside its result.
    known: Known,
}

/// What is known of the turn that we began.
#[derive(Debug)]
enum ClaudeTurn {
    None,
    Running {
        /// The id of the message that began it.
        prompt: String,
        /// How it will have ended when the session is idle, as far as that is known.
        end: Option<TurnEnd>,
    },
}

impl Claude {
    /// The machine of a session that is to be started.
    pub(super) fn new(setup: Setup) -> Self {
        Self {
            setup,
            is_ready: false,
            is_open: false,
            says_state: false,
            turn: ClaudeTurn::None,
            sent: 0,
            meter: Meter::default(),
            tools: VecDeque::new(),
            known: Known::default(),
        }
    }

    fn told(&mut self, told: &Instruction) -> Vec<Effect> {
        if !self.is_open {
            return Vec::new();
        }
        match told {
            // Each is heard as soon as it can be: at the next step of a turn that runs.
            Instruction::Prompt(text) | Instruction::Steer(text) => {
                let id = self.next_uuid();
                let line = outgoing::user(text, &id);
                if matches!(self.turn, ClaudeTurn::None) {
                    self.turn = ClaudeTurn::Running { prompt: id, end: None };
                }
                vec![Effect::Write(line)]
            }
            // What was said and not heard goes with the turn: it must not begin one of its own.
            Instruction::Interrupt if matches!(self.turn, ClaudeTurn::Running { .. }) => {
                self.known.is_interrupted = true;
                vec![self.ask("interrupt", &[("cancel_queued", true.into())])]
            }
            Instruction::Interrupt => Vec::new(),
            Instruction::Measure => vec![self.ask_measure()],
            Instruction::End => {
                self.is_open = false;
                vec![Effect::CloseStdin]
            }
        }
    }

    fn line(&mut self, now: Stamp, bytes: &[u8]) -> Vec<Effect> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Vec::new();
        }
        let Some(line) = StreamLine::read(bytes) else {
            return vec![Effect::Heard(AgentEvent::Strange(cut_bytes(
                bytes,
                AGENT_DETAIL_CHARS_MAX,
            )))];
        };
        match &*line.kind {
            "assistant" => self.message(&line),
            "user" => self.tool_results(&line),
            "stream_event" => self.stream_event(&line),
            "system" => self.system(now, &line),
            "result" => self.result(now, &line),
            "control_response" => self.answer(&line),
            "control_request" => self.asked(&line),
            "rate_limit_event" => {
                let info = line.get("rate_limit_info").unwrap_or_default();
                self.known.limit = outcome::limit_met(info);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// A part of what the model said: its text, or the use of a tool.
    fn message(&mut self, line: &StreamLine<'_>) -> Vec<Effect> {
        let Some(message) = line.get("message") else { return Vec::new() };
        if let Some(trouble) = line.text("error") {
            self.known.trouble = Some(cut(&trouble, AGENT_ID_CHARS_MAX));
        }
        // Words of the agent itself, such as those on an error: the end of the turn has them too.
        if line_fields::text(message, &["model"]).as_deref() == Some("<synthetic>") {
            return Vec::new();
        }
        // A model that answers is not limited, or its account pays for more.
        self.known.limit = None;
        let mut heard = self.meter.called(message, !line.is_of_subagent());
        for block in line_fields::blocks(message) {
            match line_fields::text(block, &["type"]).as_deref() {
                Some("text") if !line.is_of_subagent() => {
                    let text = line_fields::text(block, &["text"]).unwrap_or_default();
                    if !text.trim().is_empty() {
                        heard.push(AgentEvent::Text(cut(&text, AGENT_TEXT_CHARS_MAX)));
                    }
                }
                Some("tool_use" | "server_tool_use" | "mcp_tool_use") => {
                    heard.extend(self.tool_began(block));
                }
                _ => {}
            }
        }
        all_heard(heard)
    }

    fn tool_began(&mut self, block: &[u8]) -> Option<AgentEvent> {
        let id = cut(&line_fields::text(block, &["id"])?, AGENT_ID_CHARS_MAX);
        if self.tools.contains(&id) {
            return None;
        }
        if self.tools.len() == AGENT_TOOLS_MAX {
            self.tools.pop_front();
        }
        self.tools.push_back(id.clone());
        let name = line_fields::text(block, &["name"]).unwrap_or(Cow::Borrowed("?"));
        let input = json::get(block, &["input"]).unwrap_or_default();
        let name = cut(&name, AGENT_ID_CHARS_MAX);
        Some(AgentEvent::ToolBegan { id, name, detail: line_fields::detail(input) })
    }

    fn tool_results(&mut self, line: &StreamLine<'_>) -> Vec<Effect> {
        let message = line.get("message").unwrap_or_default();
        let ended = line_fields::blocks(message).filter_map(|block| {
            let id = line_fields::text(block, &["tool_use_id"])?;
            let id = cut(&id, AGENT_ID_CHARS_MAX);
            let place = self.tools.iter().position(|open| *open == id)?;
            self.tools.remove(place);
            let succeeded = !line_fields::is_true(block, &["is_error"]);
            Some(AgentEvent::ToolEnded { id, succeeded })
        });
        all_heard(ended.collect())
    }

    /// What the API of the model says while it speaks: the only place where output is counted live.
    fn stream_event(&mut self, line: &StreamLine<'_>) -> Vec<Effect> {
        let event = line.get("event").unwrap_or_default();
        let heard = match line_fields::text(event, &["type"]).as_deref() {
            Some("message_start") => match json::get(event, &["message"]) {
                Some(message) => self.meter.called(message, !line.is_of_subagent()),
                None => Vec::new(),
            },
            Some("message_delta") if !line.is_of_subagent() => self.meter.grew(event),
            _ => Vec::new(),
        };
        all_heard(heard)
    }

    fn system(&mut self, now: Stamp, line: &StreamLine<'_>) -> Vec<Effect> {
        match line.text("subtype").as_deref() {
            Some("init") => self.init(line),
            Some("session_state_changed") => {
                self.says_state = true;
                match line.text("state").as_deref() {
                    Some("idle") => self.idle(),
                    _ => Vec::new(),
                }
            }
            // What it says of its size leaves out all that is not a message.
            Some("compact_boundary") => {
                let ask = self.is_open.then(|| self.ask_measure());
                [Effect::Heard(AgentEvent::Compacted)].into_iter().chain(ask).collect()
            }
            Some("api_retry") => {
                let attempt = line.number("attempt").and_then(|number| number.try_into().ok());
                let word = line.text("error").unwrap_or(Cow::Borrowed("unknown"));
                let why = match line.number("error_status") {
                    Some(status) => format!("{word} ({status})"),
                    None => word.into_owned(),
                };
                let delay = line.number("retry_delay_ms").map(Duration::from_millis);
                vec![Effect::Heard(AgentEvent::Retrying {
                    attempt: attempt.unwrap_or(1),
                    why: cut(&why, AGENT_DETAIL_CHARS_MAX),
                    at: delay.map(|delay| outcome::later(now, delay)),
                })]
            }
            _ => Vec::new(),
        }
    }

    /// It says at the beginning of each turn what it is.
    fn init(&mut self, line: &StreamLine<'_>) -> Vec<Effect> {
        let mut effects = self.ready(line.text("session_id"), line.text("model"));
        // Where its model or its account has no automatic mode, it would refuse even to edit.
        let fell_back = line.text("permissionMode").as_deref() == Some("default");
        if self.setup.permission == Permission::Auto && fell_back && self.is_open {
            let mode = outgoing::mode(Permission::Edit);
            effects.push(self.ask("set_permission_mode", &[("mode", mode.into())]));
        }
        effects
    }

    fn ready(&mut self, session: Option<Cow<'_, str>>, model: Option<Cow<'_, str>>) -> Vec<Effect> {
        let owned = |text: Cow<'_, str>| cut(&text, AGENT_ID_CHARS_MAX);
        let model = model.map(owned);
        self.meter.model.clone_from(&model);
        if self.is_ready {
            return Vec::new();
        }
        self.is_ready = true;
        let session = session.map_or_else(|| self.setup.id.clone(), owned);
        vec![Effect::Heard(AgentEvent::Ready { session: Some(session), model })]
    }

    fn result(&mut self, now: Stamp, line: &StreamLine<'_>) -> Vec<Effect> {
        let mut effects = all_heard(self.meter.settle(line.whole()));
        let ClaudeTurn::Running { prompt, end } = &mut self.turn else { return effects };
        // One that it began by itself, on a task in the background, says nothing of our prompt, unless
        // that was heard in it, or answered before.
        let is_ours = end.is_some() || line.get("origin").is_none() || line.answers(prompt);
        if !is_ours {
            return effects;
        }
        if *end != Some(TurnEnd::Interrupted) {
            *end = Some(outcome::turn_end(line.whole(), &self.known, now));
        }
        if !self.says_state {
            effects.extend(self.idle());
        }
        effects
    }

    /// The session does nothing more: the turn is over, if there was one and it had a result.
    fn idle(&mut self) -> Vec<Effect> {
        match &mut self.turn {
            ClaudeTurn::Running { end, .. } => match end.take() {
                Some(end) => self.turn_ended(end),
                None => Vec::new(),
            },
            ClaudeTurn::None => Vec::new(),
        }
    }

    fn turn_ended(&mut self, end: TurnEnd) -> Vec<Effect> {
        self.turn = ClaudeTurn::None;
        (self.known.trouble, self.known.is_interrupted) = (None, false);
        let mut effects = self.tools_failed();
        effects.push(Effect::Heard(AgentEvent::TurnEnded(end)));
        effects
    }

    /// Tools whose end was not told: it will not be any more.
    fn tools_failed(&mut self) -> Vec<Effect> {
        let failed = |id| AgentEvent::ToolEnded { id, succeeded: false };
        all_heard(self.tools.drain(..).map(failed).collect())
    }

    /// An answer to something that we asked.
    fn answer(&mut self, line: &StreamLine<'_>) -> Vec<Effect> {
        let response = line.get("response").unwrap_or_default();
        let request = line_fields::text(response, &["request_id"]).unwrap_or_default();
        if !request.starts_with(MEASURE) {
            return Vec::new();
        }
        // An error has no more in it than that this version cannot be asked.
        let answer = json::get(response, &["response"]).unwrap_or_default();
        let mut effects = self.ready(None, line_fields::text(answer, &["model"]));
        effects.extend(all_heard(self.meter.measured(answer)));
        effects
    }

    /// It asks us. A run has no user to ask, and it must not wait for an answer.
    fn asked(&mut self, line: &StreamLine<'_>) -> Vec<Effect> {
        let request = line.get("request").unwrap_or_default();
        let subtype = line_fields::text(request, &["subtype"]).unwrap_or_default();
        match line.text("request_id") {
            Some(id) if self.is_open && id.len() <= AGENT_ID_CHARS_MAX => {
                vec![Effect::Write(outgoing::refuse(&id, &subtype))]
            }
            _ => Vec::new(),
        }
    }

    fn ended(&mut self, exit: &Exit) -> Vec<Effect> {
        self.is_open = false;
        let ClaudeTurn::Running { end, .. } = &mut self.turn else { return self.tools_failed() };
        let end = end.take().unwrap_or_else(|| TurnEnd::Failed {
            failure: TurnFailure::Other,
            why: match exit {
                Exit::Code(code) => format!("it exited with code {code} in the middle of its turn"),
                Exit::Signal(signal) => {
                    format!("it was ended by signal {signal} in the middle of its turn")
                }
                Exit::Unknown => "it was gone in the middle of its turn".to_owned(),
            },
        });
        self.turn_ended(end)
    }

    /// Asks how full its context is, without counting tokens over the API.
    fn ask_measure(&mut self) -> Effect {
        self.ask(MEASURE, &[("detail", "summary".into())])
    }

    /// Asks it something over the control channel; the id of the request tells what.
    fn ask(&mut self, subtype: &str, further: &[(&str, serde_json::Value)]) -> Effect {
        self.sent += 1;
        let id = format!("{subtype}-{}", self.sent);
        Effect::Write(outgoing::request(&id, subtype, further))
    }

    /// An id for a message: that of the session, with a number at its end.
    fn next_uuid(&mut self) -> String {
        self.sent += 1;
        let session = self.setup.id.get(..24).filter(|_| self.setup.id.len() == 36);
        let number = self.sent & 0xffff_ffff_ffff;
        format!("{}{number:012x}", session.unwrap_or("00000000-0000-4000-8000-"))
    }
}

impl AgentSession for Claude {
    fn start(&self) -> Start {
        outgoing::start(&self.setup)
    }

    fn handle(&mut self, now: Stamp, input: Input<'_>) -> Vec<Effect> {
        match input {
            Input::Started => {
                self.is_open = true;
                vec![self.ask_measure(), Effect::WakeAfter(CLAUDE_ANSWER_WAIT)]
            }
            Input::Line(bytes) => self.line(now, bytes),
            Input::Told(told) => self.told(told),
            Input::Ended(exit) => self.ended(exit),
            Input::Wakeup if self.is_open => self.ready(None, None),
            // It has no server.
            Input::Wakeup | Input::Event(_) | Input::Answer { .. } | Input::Failed { .. } => {
                Vec::new()
            }
        }
    }
}

/// The question how full the context is.
const MEASURE: &str = "get_context_usage";

fn all_heard(heard: Vec<AgentEvent>) -> Vec<Effect> {
    heard.into_iter().map(Effect::Heard).collect()
}

/// The begin and the end of a block, too.
fn is_delta(bytes: &[u8]) -> bool {
    let event = bytes.strip_prefix(br#"{"type":"stream_event","event":{"type":""#);
    event.is_some_and(|event| {
        event.starts_with(b"content_block_") || event.starts_with(b"message_stop")
    })
}
