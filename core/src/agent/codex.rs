//! A session of Codex, over `codex app-server`: JSON-RPC in lines, without its version field.
//!
//! ```text
//! started ─▶ Opening ──thread/start answered──▶ Open { turn } ──end told, or opening refused──▶ Closed
//!
//! turn:  None ──prompt──▶ Requested ──answered──▶ Running { begun: false } ──turn/started──▶ Running { begun }
//!          ▲                                                                                    │
//!          └──────────────────────────── turn/completed ────────────────────────────────────────┘
//! ```
//!
//! A steer can cross the end of its turn. Codex then refuses it, and its text begins a new turn; for the run
//! that is still the same turn, with one end.

mod failure;
mod launch_and_permissions;
mod mcp_servers;
mod notifications;
mod outgoing;
mod usage;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::failure::Limits;
use self::usage::CodexUsage;
use super::stream::{Object, RunningTools, write};
use super::{
    AgentEvent, AgentSession, Effect, Input, Instruction, Profile, Setup, Speaks, Start, TurnEnd,
};
use crate::limits::{AGENT_DETAIL_CHARS_MAX, AGENT_REQUESTS_MAX};
use crate::service::Exit;
use crate::text::cut_bytes;
use crate::time::Stamp;

pub(super) const PROFILE: Profile = Profile {
    name: "codex",
    tells_cost: false,
    settings_variable: None,
    session: |setup, _| Box::new(Codex::new(setup)),
    is_delta,
    servers: mcp_servers::RULES,
};

/// The machine of one session of Codex.
#[derive(Debug, Default)]
pub(super) struct Codex {
    setup: Setup,
    /// What is to be done about the input that is dealt with.
    effects: Vec<Effect>,
    phase: Phase,
    turn: CodexTurn,
    /// What our requests that are not answered yet are for.
    waiting: BTreeMap<u64, PendingRequest>,
    last_request: u64,
    tools: RunningTools,
    /// The last thing that the agent said in this turn.
    said: String,
    /// How the last error of this turn that is not tried again would end it.
    error: Option<TurnEnd>,
    /// The tries of this turn, for errors that do not number them.
    tries: u32,
    /// How the turn ended, while it is not known whether a steer has reached it.
    ended: Option<TurnEnd>,
    /// Steers that the turn has not taken.
    unheard: Vec<String>,
    /// It tells of compactions as items, so that the older notification says nothing new.
    compacts_in_items: bool,
    usage: CodexUsage,
    limits: Limits,
}

#[derive(Debug, Default, PartialEq)]
enum Phase {
    #[default]
    Opening,
    Open {
        thread: String,
    },
    Closed,
}

#[derive(Debug, Default)]
enum CodexTurn {
    #[default]
    None,
    /// Requested, by this request.
    Requested { request: u64, interrupt: bool },
    /// Before it has begun, Codex knows of no turn that could be interrupted.
    Running { id: String, begun: bool, interrupt: bool },
}

#[derive(Debug)]
enum PendingRequest {
    Initialize,
    Thread,
    Turn,
    Steer(String),
    Interrupt,
}

impl AgentSession for Codex {
    fn start(&self) -> Start {
        let mut argv = self.setup.program.clone();
        argv.push("app-server".to_owned());
        Start { argv, env: Vec::new(), stdin: Vec::new(), speaks: Speaks::Lines, file: None }
    }

    fn handle(&mut self, now: Stamp, input: Input<'_>) -> Vec<Effect> {
        match input {
            Input::Started if self.phase == Phase::Closed => {}
            Input::Started => {
                self.ask("initialize", outgoing::initialize(), PendingRequest::Initialize);
            }
            Input::Line(line) => self.line(now, line),
            Input::Told(Instruction::Prompt(text) | Instruction::Steer(text)) => self.say(text),
            Input::Told(Instruction::Interrupt) => self.interrupt(),
            Input::Told(Instruction::End) => self.close(),
            Input::Ended(exit) => self.gone(exit),
            // It speaks no HTTP, asks for no wakeup, and tells its use by itself.
            Input::Told(Instruction::Measure)
            | Input::Event(_)
            | Input::Answer { .. }
            | Input::Failed { .. }
            | Input::Wakeup => {}
        }
        std::mem::take(&mut self.effects)
    }
}

impl Codex {
    /// A session that is not started yet.
    pub(super) fn new(setup: Setup) -> Self {
        Self { setup, ..Self::default() }
    }

    fn hear(&mut self, event: AgentEvent) {
        self.effects.push(Effect::Heard(event));
    }

    fn ask(&mut self, method: &str, params: Value, asked: PendingRequest) -> u64 {
        self.last_request += 1;
        let request = self.last_request;
        self.effects.push(write(&json!({ "id": request, "method": method, "params": params })));
        if self.waiting.len() >= AGENT_REQUESTS_MAX {
            self.waiting.pop_first();
        }
        self.waiting.insert(request, asked);
        request
    }

    /// Says something to the turn that runs, or begins one with it.
    fn say(&mut self, text: &str) {
        let Phase::Open { thread } = &self.phase else {
            let end = failure::other("the session of codex is not open");
            return self.hear(AgentEvent::TurnEnded(end));
        };
        match &self.turn {
            CodexTurn::None if self.ended.is_some() => self.keep_unheard(text.to_owned()),
            CodexTurn::None => self.begin(text),
            // Its id is not known; where a turn runs, the same request tells it.
            CodexTurn::Requested { .. } => {
                self.ask("turn/start", outgoing::turn_start(thread, text), PendingRequest::Turn);
            }
            CodexTurn::Running { id, .. } => {
                let params = outgoing::turn_steer(thread, id, text);
                self.ask("turn/steer", params, PendingRequest::Steer(text.to_owned()));
            }
        }
    }

    fn begin(&mut self, text: &str) {
        let Phase::Open { thread } = &self.phase else { return };
        let params = outgoing::turn_start(thread, text);
        (self.said, self.error, self.tries) = (String::new(), None, 0);
        let request = self.ask("turn/start", params, PendingRequest::Turn);
        self.turn = CodexTurn::Requested { request, interrupt: false };
    }

    fn interrupt(&mut self) {
        match &mut self.turn {
            CodexTurn::None => {
                if let Some(end) = self.ended.take() {
                    self.finish(end);
                }
            }
            CodexTurn::Requested { interrupt, .. } => *interrupt = true,
            CodexTurn::Running { interrupt, .. } => {
                *interrupt = true;
                self.interrupt_begun();
            }
        }
    }

    /// Asks for the end of a turn that has begun and is to end.
    fn interrupt_begun(&mut self) {
        if let Phase::Open { thread } = &self.phase
            && let CodexTurn::Running { id, begun: true, interrupt: wanted @ true } = &mut self.turn
        {
            *wanted = false;
            let params = outgoing::turn_interrupt(thread, id);
            self.ask("turn/interrupt", params, PendingRequest::Interrupt);
        }
    }

    fn close(&mut self) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Closed;
            self.effects.push(Effect::CloseStdin);
        }
    }

    fn gone(&mut self, exit: &Exit) {
        self.phase = Phase::Closed;
        match self.ended.take() {
            Some(end) => self.finish(end),
            None if matches!(self.turn, CodexTurn::None) => {
                self.effects.extend(self.tools.fail_all());
            }
            None => self.finish(failure::other(&format!("codex ended in its turn: {exit}"))),
        }
    }

    fn line(&mut self, now: Stamp, line: &[u8]) {
        let Some(message) = Object::read(line) else {
            if !line.trim_ascii().is_empty() {
                self.strange(line);
            }
            return;
        };
        match (message.text("method"), message.raw("id")) {
            (Some(method), None) => self.notified(now, &method, &message.object("params")),
            (Some(method), Some(id)) => self.asked(&method, id, line),
            (None, Some(_)) => self.answered(now, &message),
            (None, None) => self.strange(line),
        }
    }

    fn strange(&mut self, line: &[u8]) {
        self.hear(AgentEvent::Strange(cut_bytes(line, AGENT_DETAIL_CHARS_MAX)));
    }

    /// Codex asks something: it must not wait for an answer.
    fn asked(&mut self, method: &str, id: &[u8], line: &[u8]) {
        match serde_json::from_slice(id) {
            // After the end of its stdin there is no way to answer, and it ends.
            Ok(Value::Number(_) | Value::String(_)) if self.phase == Phase::Closed => {}
            Ok(Value::Number(_) | Value::String(_)) => {
                self.effects.push(Effect::Write(outgoing::refusal(id, method)));
            }
            _ => self.strange(line),
        }
    }

    fn answered(&mut self, now: Stamp, message: &Object<'_>) {
        let Some(request) = message.number("id") else { return };
        let Some(asked) = self.waiting.remove(&request) else { return };
        let error = message.raw("error").and_then(Object::read);
        let error = error.map(|error| failure::read(&error, &self.limits, now));
        let result = message.object("result");
        match (asked, error) {
            (PendingRequest::Initialize, None) => self.open(),
            (PendingRequest::Thread, None) => self.opened(&result),
            (PendingRequest::Initialize | PendingRequest::Thread, Some(error)) => {
                self.refused(error);
            }
            (PendingRequest::Turn, answer) => {
                // One that was to tell a turn which was asked for already is neither its begin nor its end.
                if let CodexTurn::Requested { request: asked, interrupt } = self.turn
                    && asked == request
                {
                    if let Some(error) = answer {
                        self.finish(error);
                    } else if let Some(id) = result.object("turn").text("id") {
                        let id = id.into_owned();
                        self.turn = CodexTurn::Running { id, begun: false, interrupt };
                    }
                }
            }
            (PendingRequest::Steer(_), None) => self.settle(),
            (PendingRequest::Steer(text), Some(_)) => {
                self.keep_unheard(text);
                self.settle();
            }
            // If it is refused, the turn has ended, and says so.
            (PendingRequest::Interrupt, _) => {}
        }
    }

    fn open(&mut self) {
        if self.phase != Phase::Closed {
            self.effects.push(write(&json!({ "method": "initialized" })));
            let params = launch_and_permissions::thread_start(&self.setup);
            self.ask("thread/start", params, PendingRequest::Thread);
        }
    }

    fn opened(&mut self, result: &Object<'_>) {
        if self.phase == Phase::Closed {
            return;
        }
        let Some(thread) = result.object("thread").text("id").map(String::from) else {
            return self.refused(failure::other("its answer has no thread"));
        };
        self.phase = Phase::Open { thread: thread.clone() };
        let model = result.cut_text("model", AGENT_DETAIL_CHARS_MAX);
        self.hear(AgentEvent::Ready { session: Some(thread), model });
    }

    /// There will be no session: nothing is gained by waiting.
    fn refused(&mut self, mut error: TurnEnd) {
        if self.phase == Phase::Closed {
            return;
        }
        if let TurnEnd::Failed { why, .. } = &mut error {
            *why = format!("codex did not open a session: {why}");
        }
        self.finish(error);
        self.close();
    }

    /// Ends a turn that is done, unless there is something that it was to hear and did not.
    fn settle(&mut self) {
        let is_steering =
            self.waiting.values().any(|asked| matches!(asked, PendingRequest::Steer(_)));
        if is_steering {
            return;
        }
        let Some(end) = self.ended.take() else { return };
        let unheard = std::mem::take(&mut self.unheard).join("\n\n");
        if !unheard.is_empty() && matches!(self.phase, Phase::Open { .. }) {
            self.begin(&unheard);
        } else {
            self.finish(end);
        }
    }

    fn keep_unheard(&mut self, text: String) {
        if self.unheard.len() < AGENT_REQUESTS_MAX {
            self.unheard.push(text);
        }
    }

    /// Hands on the end of a turn, and forgets what was of it alone.
    fn finish(&mut self, end: TurnEnd) {
        // After an end other than done, the run decides anew what to say.
        self.waiting.retain(|_, asked| !matches!(asked, PendingRequest::Steer(_)));
        (self.turn, self.ended, self.error, self.tries) = (CodexTurn::None, None, None, 0);
        self.unheard.clear();
        // A command may go on in the background; those of a turn that was interrupted do not.
        if !matches!(end, TurnEnd::Done(_)) {
            self.effects.extend(self.tools.fail_all());
        }
        self.hear(AgentEvent::TurnEnded(end));
    }
}

/// `item/agentMessage/delta`, `item/reasoning/textDelta`, `item/commandExecution/outputDelta`.
fn is_delta(bytes: &[u8]) -> bool {
    bytes.strip_prefix(br#"{"method":"item/"#).is_some_and(|rest| {
        let end = rest.iter().take(64).position(|byte| *byte == b'"');
        end.is_some_and(|end| rest[..end].ends_with(b"elta"))
    })
}
