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
mod item;
mod line_fields;
mod notifications;
mod outgoing;
mod servers;
mod usage;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use self::failure::{Error, Limits};
use self::line_fields::Object;
use self::usage::CodexUsage;
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
    servers: servers::RULES,
};

/// The machine of one session of Codex.
#[derive(Debug)]
pub(super) struct Codex {
    setup: Setup,
    phase: Phase,
    turn: CodexTurn,
    /// What our requests that are not answered yet are for.
    waiting: BTreeMap<u64, PendingRequest>,
    last_request: u64,
    /// Tools that have begun and not ended, the oldest first.
    tools: VecDeque<String>,
    /// The last thing that the agent said in this turn.
    said: String,
    /// The last error of this turn that is not tried again.
    error: Option<Error>,
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

#[derive(Debug)]
enum Phase {
    Opening,
    Open { thread: String },
    Closed,
}

#[derive(Debug)]
enum CodexTurn {
    None,
    /// Requested, by this request.
    Requested {
        request: u64,
        interrupt: bool,
    },
    /// Before it has begun, Codex knows of no turn that could be interrupted.
    Running {
        id: String,
        begun: bool,
        interrupt: bool,
    },
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
        let mut effects = Vec::new();
        match input {
            Input::Started if matches!(self.phase, Phase::Closed) => {}
            Input::Started => {
                self.ask(
                    "initialize",
                    outgoing::initialize(),
                    PendingRequest::Initialize,
                    &mut effects,
                );
            }
            Input::Line(line) => self.line(now, line, &mut effects),
            Input::Told(told) => self.told(told, &mut effects),
            Input::Ended(exit) => self.gone(exit, &mut effects),
            // It speaks no HTTP, asks for no wakeup, and tells its use by itself.
            Input::Event(_) | Input::Answer { .. } | Input::Failed { .. } | Input::Wakeup => {}
        }
        effects
    }
}

impl Codex {
    /// A session that is not started yet.
    pub(super) fn new(setup: Setup) -> Self {
        Self {
            setup,
            phase: Phase::Opening,
            turn: CodexTurn::None,
            waiting: BTreeMap::new(),
            last_request: 0,
            tools: VecDeque::new(),
            said: String::new(),
            error: None,
            tries: 0,
            ended: None,
            unheard: Vec::new(),
            compacts_in_items: false,
            usage: CodexUsage::default(),
            limits: Limits::default(),
        }
    }

    fn ask(
        &mut self,
        method: &str,
        params: Value,
        asked: PendingRequest,
        effects: &mut Vec<Effect>,
    ) -> u64 {
        self.last_request += 1;
        let request = self.last_request;
        effects.push(write(&json!({ "id": request, "method": method, "params": params })));
        if self.waiting.len() >= AGENT_REQUESTS_MAX {
            self.waiting.pop_first();
        }
        self.waiting.insert(request, asked);
        request
    }

    fn told(&mut self, told: &Instruction, effects: &mut Vec<Effect>) {
        match told {
            Instruction::Prompt(text) | Instruction::Steer(text) => self.say(text, effects),
            Instruction::Interrupt => self.interrupt(effects),
            Instruction::Measure => {}
            Instruction::End => self.close(effects),
        }
    }

    /// Says something to the turn that runs, or begins one with it.
    fn say(&mut self, text: &str, effects: &mut Vec<Effect>) {
        let Phase::Open { thread } = &self.phase else {
            let error = failure::other("the session of codex is not open");
            return effects.push(Effect::Heard(AgentEvent::TurnEnded(error.into())));
        };
        match &self.turn {
            CodexTurn::None if self.ended.is_some() => self.keep_unheard(text.to_owned()),
            CodexTurn::None => self.begin(text, effects),
            // Its id is not known; where a turn runs, the same request tells it.
            CodexTurn::Requested { .. } => {
                let params = outgoing::turn_start(thread, text);
                self.ask("turn/start", params, PendingRequest::Turn, effects);
            }
            CodexTurn::Running { id, .. } => {
                let params = outgoing::turn_steer(thread, id, text);
                self.ask("turn/steer", params, PendingRequest::Steer(text.to_owned()), effects);
            }
        }
    }

    fn begin(&mut self, text: &str, effects: &mut Vec<Effect>) {
        let Phase::Open { thread } = &self.phase else { return };
        let params = outgoing::turn_start(thread, text);
        (self.said, self.error, self.tries) = (String::new(), None, 0);
        let request = self.ask("turn/start", params, PendingRequest::Turn, effects);
        self.turn = CodexTurn::Requested { request, interrupt: false };
    }

    fn interrupt(&mut self, effects: &mut Vec<Effect>) {
        match &mut self.turn {
            CodexTurn::None => {
                if let Some(end) = self.ended.take() {
                    self.finish(end, effects);
                }
            }
            CodexTurn::Requested { interrupt, .. } => *interrupt = true,
            CodexTurn::Running { interrupt, .. } => {
                *interrupt = true;
                self.interrupt_begun(effects);
            }
        }
    }

    /// Asks for the end of a turn that has begun and is to end.
    fn interrupt_begun(&mut self, effects: &mut Vec<Effect>) {
        let Phase::Open { thread } = &self.phase else { return };
        let CodexTurn::Running { id, begun: true, interrupt: wanted @ true } = &mut self.turn
        else {
            return;
        };
        *wanted = false;
        let params = outgoing::turn_interrupt(thread, id);
        self.ask("turn/interrupt", params, PendingRequest::Interrupt, effects);
    }

    fn close(&mut self, effects: &mut Vec<Effect>) {
        if !matches!(self.phase, Phase::Closed) {
            self.phase = Phase::Closed;
            effects.push(Effect::CloseStdin);
        }
    }

    fn gone(&mut self, exit: &Exit, effects: &mut Vec<Effect>) {
        self.phase = Phase::Closed;
        match self.ended.take() {
            Some(end) => self.finish(end, effects),
            None if matches!(self.turn, CodexTurn::None) => self.end_tools(effects),
            None => self.finish(
                failure::other(&format!("codex ended in its turn: {exit}")).into(),
                effects,
            ),
        }
    }

    fn line(&mut self, now: Stamp, line: &[u8], effects: &mut Vec<Effect>) {
        let Some(message) = Object::read(line) else {
            if !line.trim_ascii().is_empty() {
                effects.push(strange(line));
            }
            return;
        };
        match (message.text("method"), message.raw("id")) {
            (Some(method), None) => self.notified(now, &method, &message.object("params"), effects),
            (Some(method), Some(id)) => self.asked(&method, id, line, effects),
            (None, Some(_)) => self.answered(now, &message, effects),
            (None, None) => effects.push(strange(line)),
        }
    }

    /// Codex asks something: it must not wait for an answer.
    fn asked(&self, method: &str, id: &[u8], line: &[u8], effects: &mut Vec<Effect>) {
        let is_id =
            serde_json::from_slice::<Value>(id).is_ok_and(|id| id.is_number() || id.is_string());
        match std::str::from_utf8(id) {
            Ok(id) if is_id => {
                // After the end of its stdin there is no way to answer, and it ends.
                if !matches!(self.phase, Phase::Closed) {
                    effects.push(Effect::Write(outgoing::refusal(id, method)));
                }
            }
            _ => effects.push(strange(line)),
        }
    }

    fn answered(&mut self, now: Stamp, message: &Object<'_>, effects: &mut Vec<Effect>) {
        let Some(request) = message.number("id") else { return };
        let Some(asked) = self.waiting.remove(&request) else { return };
        let error = message.raw("error").and_then(Object::read);
        let error = error.map(|error| failure::of_answer(&error, &self.limits, now));
        let result = message.object("result");
        match (asked, error) {
            (PendingRequest::Initialize, None) => self.open(effects),
            (PendingRequest::Thread, None) => self.opened(&result, effects),
            (PendingRequest::Initialize | PendingRequest::Thread, Some(error)) => {
                self.refused(&error, effects)
            }
            (PendingRequest::Turn, None) => self.turn_answered(request, &result),
            (PendingRequest::Turn, Some(error)) => {
                // One that was to tell a turn which was asked for already is not its end.
                if matches!(self.turn, CodexTurn::Requested { request: asked, .. } if asked == request)
                {
                    self.finish(error.into(), effects);
                }
            }
            (PendingRequest::Steer(_), None) => self.settle(effects),
            (PendingRequest::Steer(text), Some(_)) => {
                self.keep_unheard(text);
                self.settle(effects);
            }
            // If it is refused, the turn has ended, and says so.
            (PendingRequest::Interrupt, _) => {}
        }
    }

    fn open(&mut self, effects: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        effects.push(write(&json!({ "method": "initialized" })));
        self.ask(
            "thread/start",
            outgoing::thread_start(&self.setup),
            PendingRequest::Thread,
            effects,
        );
    }

    fn opened(&mut self, result: &Object<'_>, effects: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        let Some(thread) = result.object("thread").text("id") else {
            return self.refused(&failure::other("its answer has no thread"), effects);
        };
        let (thread, model) =
            (thread.into_owned(), result.cut_text("model", AGENT_DETAIL_CHARS_MAX));
        self.phase = Phase::Open { thread: thread.clone() };
        effects.push(Effect::Heard(AgentEvent::Ready { session: Some(thread), model }));
    }

    /// There will be no session: nothing is gained by waiting.
    fn refused(&mut self, error: &Error, effects: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        let why = format!("codex did not open a session: {}", error.why);
        self.finish(TurnEnd::Failed { failure: error.failure, why }, effects);
        self.close(effects);
    }

    fn turn_answered(&mut self, request: u64, result: &Object<'_>) {
        if let CodexTurn::Requested { request: asked, interrupt } = self.turn
            && asked == request
            && let Some(id) = result.object("turn").text("id")
        {
            self.turn = CodexTurn::Running { id: id.into_owned(), begun: false, interrupt };
        }
    }

    /// Ends a turn that is done, unless there is something that it was to hear and did not.
    fn settle(&mut self, effects: &mut Vec<Effect>) {
        let is_steering =
            self.waiting.values().any(|asked| matches!(asked, PendingRequest::Steer(_)));
        if is_steering || self.ended.is_none() {
            return;
        }
        let unheard = std::mem::take(&mut self.unheard).join("\n\n");
        match self.ended.take() {
            Some(_) if !unheard.is_empty() && matches!(self.phase, Phase::Open { .. }) => {
                self.begin(&unheard, effects);
            }
            Some(end) => self.finish(end, effects),
            None => {}
        }
    }

    fn keep_unheard(&mut self, text: String) {
        if self.unheard.len() < AGENT_REQUESTS_MAX {
            self.unheard.push(text);
        }
    }

    /// Hands on the end of a turn, and forgets what was of it alone.
    fn finish(&mut self, end: TurnEnd, effects: &mut Vec<Effect>) {
        // After an end other than done, the run decides anew what to say.
        self.waiting.retain(|_, asked| !matches!(asked, PendingRequest::Steer(_)));
        (self.turn, self.ended, self.error, self.tries) = (CodexTurn::None, None, None, 0);
        self.unheard.clear();
        // A command may go on in the background; those of a turn that was interrupted do not.
        if !matches!(end, TurnEnd::Done(_)) {
            self.end_tools(effects);
        }
        effects.push(Effect::Heard(AgentEvent::TurnEnded(end)));
    }

    fn end_tools(&mut self, effects: &mut Vec<Effect>) {
        for id in std::mem::take(&mut self.tools) {
            effects.push(Effect::Heard(AgentEvent::ToolEnded { id, succeeded: false }));
        }
    }
}

impl From<Error> for TurnEnd {
    fn from(error: Error) -> Self {
        Self::Failed { failure: error.failure, why: error.why }
    }
}

fn write(message: &Value) -> Effect {
    Effect::Write(outgoing::line(message))
}

fn strange(line: &[u8]) -> Effect {
    Effect::Heard(AgentEvent::Strange(cut_bytes(line, AGENT_DETAIL_CHARS_MAX)))
}

/// `item/agentMessage/delta`, `item/reasoning/textDelta`, `item/commandExecution/outputDelta`.
fn is_delta(bytes: &[u8]) -> bool {
    bytes.strip_prefix(br#"{"method":"item/"#).is_some_and(|rest| {
        let end = rest.iter().take(64).position(|byte| *byte == b'"');
        end.is_some_and(|end| rest[..end].ends_with(b"elta"))
    })
}
