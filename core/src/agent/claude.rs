//! Owns the state of one session of Claude Code, over its stream-json control channel. Driven by [`AgentSession::handle`].
//!
//! A turn is over when the session says that it is idle, not when a result comes: a message that was heard
//! too late, or a subagent in the background, makes the session go on by itself after one. Versions that do
//! not say it end their turn with the result.
//!
//! Owns no process and no clock. What it does not know it passes over.

mod failure;
mod launch_and_permissions;
mod mcp_servers;
mod outgoing;
#[cfg(test)]
mod tests;
mod usage;

use std::borrow::Cow;
use std::time::Duration;

use self::failure::Known;
use self::usage::Meter;
use super::stream::{self, Object, RunningTools};
use super::{
    AgentEvent, AgentSession, Effect, Input, Instruction, Permission, Profile, Setup, Start,
    TurnEnd, TurnFailure,
};
use crate::limits::{
    AGENT_DETAIL_CHARS_MAX, AGENT_ID_CHARS_MAX, AGENT_TEXT_CHARS_MAX, CLAUDE_ANSWER_WAIT,
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
    servers: mcp_servers::RULES,
};

/// The machine of one session of Claude Code.
#[derive(Debug, Default)]
pub(super) struct Claude {
    setup: Setup,
    /// What is to be done about the input that is dealt with.
    effects: Vec<Effect>,
    /// Whether a prompt can be given.
    is_ready: bool,
    /// Whether its stdin can be written to.
    is_open: bool,
    /// Whether it has ever said whether it is idle.
    says_state: bool,
    /// The turn that we began.
    turn: Option<ClaudeTurn>,
    /// How many lines of ours have an id.
    sent: u64,
    meter: Meter,
    tools: RunningTools,
    /// What was told of the turn beside its result.
    known: Known,
}

#[derive(Debug)]
struct ClaudeTurn {
    /// The id of the message that began it.
    prompt: String,
    /// How it will have ended when the session is idle, as far as that is known.
    end: Option<TurnEnd>,
}

impl Claude {
    /// The machine of a session that is to be started.
    pub(super) fn new(setup: Setup) -> Self {
        Self { setup, ..Self::default() }
    }

    fn hear(&mut self, event: AgentEvent) {
        self.effects.push(Effect::Heard(event));
    }

    fn told(&mut self, told: &Instruction) {
        match told {
            // Each is heard as soon as it can be: at the next step of a turn that runs.
            Instruction::Prompt(text) | Instruction::Steer(text) => {
                let prompt = self.next_uuid();
                self.effects.push(outgoing::user(text, &prompt));
                self.turn.get_or_insert(ClaudeTurn { prompt, end: None });
            }
            // What was said and not heard goes with the turn: it must not begin one of its own.
            Instruction::Interrupt if self.turn.is_some() => {
                self.known.is_interrupted = true;
                self.ask("interrupt", "cancel_queued", true.into());
            }
            Instruction::Interrupt => {}
            Instruction::Measure => self.ask_measure(),
            Instruction::End => {
                self.is_open = false;
                self.effects.push(Effect::CloseStdin);
            }
        }
    }

    fn line(&mut self, now: Stamp, bytes: &[u8]) {
        let Some(line) = Object::read(bytes) else {
            if !bytes.trim_ascii().is_empty() {
                self.hear(AgentEvent::Strange(cut_bytes(bytes, AGENT_DETAIL_CHARS_MAX)));
            }
            return;
        };
        match line.text("type").as_deref() {
            Some("assistant") => self.message(&line),
            Some("user") => self.tool_results(&line),
            Some("stream_event") => self.stream_event(&line),
            Some("system") => self.system(now, &line),
            Some("result") => self.result(now, &line),
            Some("control_response") => self.answer(&line),
            Some("control_request") => self.asked(&line),
            Some("rate_limit_event") => {
                self.known.limit = failure::limit_met(&line.object("rate_limit_info"));
            }
            _ => {}
        }
    }

    /// A part of what the model said: its text, or the use of a tool.
    fn message(&mut self, line: &Object<'_>) {
        if line.raw("message").is_none() {
            return;
        }
        let message = line.object("message");
        if let Some(trouble) = line.cut_text("error", AGENT_ID_CHARS_MAX) {
            self.known.trouble = Some(trouble);
        }
        // Words of the agent itself, such as those on an error: the end of the turn has them too.
        if message.text("model").as_deref() == Some("<synthetic>") {
            return;
        }
        // A model that answers is not limited, or its account pays for more.
        self.known.limit = None;
        self.effects.extend(self.meter.called(&message, is_of_agent(line)));
        for block in message.objects("content") {
            match block.text("type").as_deref() {
                Some("text") if is_of_agent(line) => {
                    let text = block.text("text").unwrap_or_default();
                    if !text.trim().is_empty() {
                        self.hear(AgentEvent::Text(cut(&text, AGENT_TEXT_CHARS_MAX)));
                    }
                }
                Some("tool_use" | "server_tool_use" | "mcp_tool_use") => {
                    let Some(id) = block.cut_text("id", AGENT_ID_CHARS_MAX) else { continue };
                    let name = block.cut_text("name", AGENT_ID_CHARS_MAX);
                    let name = name.unwrap_or_else(|| "?".to_owned());
                    let detail = detail(&block.object("input"));
                    self.effects.extend(self.tools.begin(id, name, detail));
                }
                _ => {}
            }
        }
    }

    fn tool_results(&mut self, line: &Object<'_>) {
        for block in line.object("message").objects("content") {
            if let Some(id) = block.cut_text("tool_use_id", AGENT_ID_CHARS_MAX) {
                self.effects.extend(self.tools.end(id, !block.is_true("is_error")));
            }
        }
    }

    /// What the API of the model says while it speaks: the only place where output is counted live.
    fn stream_event(&mut self, line: &Object<'_>) {
        let event = line.object("event");
        match event.text("type").as_deref() {
            Some("message_start") => {
                let message = event.object("message");
                self.effects.extend(self.meter.called(&message, is_of_agent(line)));
            }
            Some("message_delta") if is_of_agent(line) => {
                self.effects.extend(self.meter.grew(&event));
            }
            _ => {}
        }
    }

    fn system(&mut self, now: Stamp, line: &Object<'_>) {
        match line.text("subtype").as_deref() {
            Some("init") => self.init(line),
            Some("session_state_changed") => {
                self.says_state = true;
                if line.text("state").as_deref() == Some("idle") {
                    self.idle();
                }
            }
            // What it says of its size leaves out all that is not a message.
            Some("compact_boundary") => {
                self.hear(AgentEvent::Compacted);
                if self.is_open {
                    self.ask_measure();
                }
            }
            Some("api_retry") => {
                let attempt = line.number("attempt").and_then(|number| number.try_into().ok());
                let word = line.text("error").unwrap_or(Cow::Borrowed("unknown"));
                let failure = failure::of_retry(line.number("error_status"), &word);
                let why = match line.number("error_status") {
                    Some(status) => format!("{word} ({status})"),
                    None => word.into_owned(),
                };
                let delay = line.number("retry_delay_ms").map(Duration::from_millis);
                self.hear(AgentEvent::Retrying {
                    attempt: attempt.unwrap_or(1),
                    why: cut(&why, AGENT_DETAIL_CHARS_MAX),
                    at: delay.map(|delay| stream::later(now, delay)),
                    failure,
                });
            }
            _ => {}
        }
    }

    /// It says at the beginning of each turn what it is.
    fn init(&mut self, line: &Object<'_>) {
        self.ready(line.cut_text("session_id", AGENT_ID_CHARS_MAX), line);
        // Where its model or its account has no automatic mode, it would refuse even to edit.
        let fell_back = line.text("permissionMode").as_deref() == Some("default");
        if self.setup.permission == Permission::Auto && fell_back && self.is_open {
            self.ask(
                "set_permission_mode",
                "mode",
                launch_and_permissions::mode(Permission::Edit).into(),
            );
        }
    }

    /// A prompt can be given, to a model that may be named here.
    fn ready(&mut self, session: Option<String>, about: &Object<'_>) {
        let model = about.cut_text("model", AGENT_ID_CHARS_MAX);
        self.meter.model.clone_from(&model);
        if !std::mem::replace(&mut self.is_ready, true) {
            let session = session.or_else(|| Some(self.setup.id.clone()));
            self.hear(AgentEvent::Ready { session, model });
        }
    }

    fn result(&mut self, now: Stamp, line: &Object<'_>) {
        self.effects.extend(self.meter.settle(line));
        let Some(ClaudeTurn { prompt, end }) = &mut self.turn else { return };
        // One that it began by itself, on a task in the background, says nothing of our prompt, unless
        // that was heard in it, or answered before.
        let is_prompt = |id| json::read_text(id).as_deref() == Some(prompt);
        let is_ours = end.is_some()
            || line.raw("origin").is_none()
            || line.elements("user_message_uuids").any(is_prompt);
        if !is_ours {
            return;
        }
        if *end != Some(TurnEnd::Interrupted) {
            *end = Some(failure::turn_end(line, &self.known, now));
        }
        if !self.says_state {
            self.idle();
        }
    }

    /// The session does nothing more: the turn is over, if there was one and it had a result.
    fn idle(&mut self) {
        if let Some(end) = self.turn.as_mut().and_then(|turn| turn.end.take()) {
            self.turn_ended(end);
        }
    }

    fn turn_ended(&mut self, end: TurnEnd) {
        self.turn = None;
        (self.known.trouble, self.known.is_interrupted) = (None, false);
        self.effects.extend(self.tools.fail_all());
        self.hear(AgentEvent::TurnEnded(end));
    }

    /// An answer to something that we asked.
    fn answer(&mut self, line: &Object<'_>) {
        let response = line.object("response");
        if response.text("request_id").is_some_and(|id| id.starts_with(MEASURE)) {
            // An error has no more in it than that this version cannot be asked.
            let answer = response.object("response");
            self.ready(None, &answer);
            self.effects.extend(self.meter.measured(&answer));
        }
    }

    /// It asks us. A run has no user to ask, and it must not wait for an answer.
    fn asked(&mut self, line: &Object<'_>) {
        let subtype = line.object("request").text("subtype").unwrap_or_default();
        if let Some(id) = line.text("request_id")
            && self.is_open
            && id.len() <= AGENT_ID_CHARS_MAX
        {
            self.effects.push(outgoing::refuse(&id, &subtype));
        }
    }

    fn ended(&mut self, exit: &Exit) {
        self.is_open = false;
        let Some(turn) = &mut self.turn else {
            return self.effects.extend(self.tools.fail_all());
        };
        let end = turn.end.take().unwrap_or_else(|| TurnEnd::Failed {
            failure: TurnFailure::Other,
            why: match exit {
                Exit::Code(code) => format!("it exited with code {code} in the middle of its turn"),
                Exit::Signal(signal) => {
                    format!("it was ended by signal {signal} in the middle of its turn")
                }
                Exit::Unknown => "it was gone in the middle of its turn".to_owned(),
            },
        });
        self.turn_ended(end);
    }

    /// Asks how full its context is, without counting tokens over the API.
    fn ask_measure(&mut self) {
        self.ask(MEASURE, "detail", "summary".into());
    }

    /// Asks it something over the control channel; the id of the request tells what.
    fn ask(&mut self, subtype: &str, key: &str, value: serde_json::Value) {
        self.sent += 1;
        let id = format!("{subtype}-{}", self.sent);
        self.effects.push(outgoing::request(&id, subtype, key, &value));
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
        launch_and_permissions::start(&self.setup)
    }

    fn handle(&mut self, now: Stamp, input: Input<'_>) -> Vec<Effect> {
        match input {
            Input::Started => {
                self.is_open = true;
                self.ask_measure();
                self.effects.push(Effect::WakeAfter(CLAUDE_ANSWER_WAIT));
            }
            Input::Line(bytes) => self.line(now, bytes),
            Input::Told(told) if self.is_open => self.told(told),
            Input::Ended(exit) => self.ended(exit),
            Input::Wakeup if self.is_open => self.ready(None, &Object::default()),
            // It has no server.
            Input::Told(_)
            | Input::Wakeup
            | Input::Event(_)
            | Input::Answer { .. }
            | Input::Failed { .. } => {}
        }
        std::mem::take(&mut self.effects)
    }
}

/// The question how full the context is.
const MEASURE: &str = "get_context_usage";

/// Whether the agent itself said it, and not a subagent.
fn is_of_agent(line: &Object<'_>) -> bool {
    line.raw("parent_tool_use_id").is_none()
}

/// On what a tool is used: the member of its input that says most, in one line.
fn detail(input: &Object<'_>) -> String {
    let telling = TELLING.iter().find_map(|key| input.text(key).filter(|text| !text.is_empty()));
    let line = telling.as_deref().and_then(|text| text.trim().lines().next());
    cut(line.unwrap_or_default(), AGENT_DETAIL_CHARS_MAX)
}

/// From the most to the least telling.
const TELLING: [&str; 11] = [
    "command",
    "file_path",
    "notebook_path",
    "pattern",
    "path",
    "url",
    "query",
    "description",
    "subject",
    "skill",
    "prompt",
];

/// The begin and the end of a block, too.
fn is_delta(bytes: &[u8]) -> bool {
    let event = bytes.strip_prefix(br#"{"type":"stream_event","event":{"type":""#);
    event.is_some_and(|event| {
        event.starts_with(b"content_block_") || event.starts_with(b"message_stop")
    })
}
