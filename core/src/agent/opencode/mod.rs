//! Owns the state of one session of opencode, over the HTTP server of `opencode serve`. Driven by
//! [`AgentSession::handle`]. Never waits by a clock.
//!
//! The server is asked until it is there; then come its events, the windows of its models and a session of our own.
//! A prompt is a message to the session, and so is a word during a turn: opencode takes it in at its next step. The
//! server has no end of its own: after [`Instruction::End`] the daemon ends the process. A request that gets no answer has
//! to be said as [`Input::Failed`] after some time: nothing here waits for it by a clock.
//!
//! ```text
//! Waiting ──Started──▶ Polling ──healthy──▶ Opening ──events, windows, session──▶ Ready ──Ended──▶ Over
//! ```

mod answers;
mod events;
mod failure;
mod launch_and_permissions;
mod mcp_servers;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use self::usage::Ledger;
use super::stream::{RunningTools, SeenIds};
use super::{
    AgentEvent, AgentSession, ContextUse, Effect, Input, Instruction, Profile, RequestId, Setup,
    Start, TurnEnd, TurnFailure,
};
use crate::exponential_wait::ExponentialWait;
use crate::limits::{
    AGENT_DETAIL_CHARS_MAX, AGENT_HEALTH_WAIT, AGENT_LISTEN_DELAY_MAX, AGENT_READY_POLL,
    AGENT_READY_WAIT, AGENT_REQUESTS_MAX, AGENT_REREAD_MESSAGES_MAX, AGENT_SETTLE_WAIT,
};
use crate::text::cut;
use crate::time::Stamp;

pub(super) const PROFILE: Profile = Profile {
    name: "opencode",
    tells_cost: true,
    settings_variable: Some(launch_and_permissions::SETTINGS),
    session: |setup, secret| Box::new(Opencode::new(setup, secret)),
    is_delta: |bytes| after_id(bytes).starts_with(br#""type":"message.part.delta""#),
    servers: mcp_servers::RULES,
};

/// A session of opencode.
#[derive(Debug, Default)]
pub(super) struct Opencode {
    setup: Setup,
    /// The password of its server. A program that has it can drive the agent.
    secret: String,
    now: Stamp,
    /// What is to be done about the input that is dealt with.
    effects: Vec<Effect>,
    phase: Phase,
    stream: EventStream,
    /// Requests without an answer; of too many the oldest is forgotten.
    requests: BTreeMap<RequestId, OpencodeRequest>,
    requests_made: u64,
    /// The id of our session, once there is one.
    session: Option<String>,
    /// What was to be said before the session was there.
    early: Option<String>,
    turn: Option<OpencodeTurn>,
    /// Whether the state of the server must be read again.
    unsure: bool,
    /// The windows of the models, by `provider/model`; none until they are known.
    windows: Option<BTreeMap<String, u64>>,
    model: Option<String>,
    context: Option<ContextUse>,
    ledger: Ledger,
    /// Parts of messages that were dealt with.
    parts: SeenIds,
    tools: RunningTools,
    /// The newest message of the user. Ids grow with time.
    newest_asked: String,
    /// The message in which opencode puts its context together.
    summary: Option<String>,
    /// The try of a call that was told last: session, number and time.
    retry: Option<(String, u64, u64)>,
}

/// How far the server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Waiting,
    /// Since when, and when it was asked last.
    Polling {
        since: Stamp,
        asked: Stamp,
    },
    Opening {
        since: Stamp,
    },
    Ready,
    Over,
}

/// The stream of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EventStream {
    #[default]
    Silent,
    Asked {
        failures: u32,
    },
    Open,
    Lost {
        failures: u32,
    },
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpencodeRequest {
    Health,
    Windows,
    Session,
    Prompt,
    Steer,
    Abort,
    /// Yes or no to a question of opencode.
    Reply,
    /// The newest messages, then what the session and its subagents have used, and whether it works.
    Messages,
    Used,
    Subagents,
    Status,
    /// The questions that opencode waits for an answer to.
    Permissions,
    Questions,
}

/// A turn that runs.
///
/// opencode says that a session is idle when it was interrupted or has failed, and says so again when the step has
/// really ended: the second may come when the next prompt is on its way. So a turn is over when the session is idle
/// **and** the newest message of the user has an answer that is complete.
#[derive(Debug, Default)]
struct OpencodeTurn {
    /// Messages that were sent, and are not among those of the session yet.
    unseen: u32,
    /// The newest answer to the newest message of the user: its id, and whether it is complete.
    answer: Option<(String, bool)>,
    /// Whether the session was said to be idle.
    idle: bool,
    /// How often we looked while it was idle.
    looks: u32,
    /// Whether afresh or another client interrupted it.
    interrupted: bool,
    /// What failed, unless something succeeded later.
    failure: Option<(TurnFailure, String)>,
    /// Overflows since the last step that succeeded.
    overflows: u32,
    /// Whether it was ended as it overflowed again and again.
    given_up: bool,
    /// What was said last.
    text: String,
}

impl OpencodeTurn {
    /// Whether all that was asked has been dealt with.
    fn is_over(&self) -> bool {
        self.idle && self.unseen == 0 && matches!(self.answer, Some((_, true)))
    }
}

impl Opencode {
    /// A session that has not been started.
    pub(super) fn new(setup: Setup, secret: String) -> Self {
        Self { model: setup.model.clone(), setup, secret, ..Self::default() }
    }

    fn hear(&mut self, event: AgentEvent) {
        self.effects.push(Effect::Heard(event));
    }

    fn strange(&mut self, text: &str) {
        self.hear(AgentEvent::Strange(cut(text, AGENT_DETAIL_CHARS_MAX)));
    }

    /// Makes a request: one with a body is a POST.
    fn ask(&mut self, purpose: OpencodeRequest, path: &str, body: Option<&Value>) {
        let method = if body.is_some() { "POST" } else { "GET" };
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let request = RequestId(self.requests_made);
        self.requests_made += 1;
        if self.requests.len() >= AGENT_REQUESTS_MAX {
            self.requests.pop_first();
        }
        self.requests.insert(request, purpose);
        self.effects.push(Effect::Request { request, method, path: path.to_owned(), body });
    }

    fn is_asked(&self, purpose: OpencodeRequest) -> bool {
        self.requests.values().any(|open| *open == purpose)
    }

    /// Asks whether the server is there, unless it was asked just now and thinks about it.
    fn poll(&mut self, since: Stamp, asked: Option<Stamp>) {
        let waits = |asked: &Stamp| {
            self.now.since(*asked) < AGENT_HEALTH_WAIT && self.is_asked(OpencodeRequest::Health)
        };
        let asked = asked.filter(waits).unwrap_or_else(|| {
            self.ask(OpencodeRequest::Health, "/global/health", None);
            self.now
        });
        self.phase = Phase::Polling { since, asked };
        self.effects.push(Effect::WakeAfter(AGENT_READY_POLL));
    }

    fn woken(&mut self) {
        if self.phase == Phase::Over {
            return;
        }
        if let Phase::Polling { since, .. } | Phase::Opening { since } = self.phase {
            let left = AGENT_READY_WAIT.saturating_sub(self.now.since(since));
            if left.is_zero() {
                let seconds = AGENT_READY_WAIT.as_secs();
                return self.give_up(format!("its server was not ready within {seconds}s"));
            }
            if let Phase::Polling { since, asked } = self.phase {
                return self.poll(since, Some(asked));
            }
            self.effects.push(Effect::WakeAfter(left));
        }
        if let EventStream::Lost { failures } = self.stream {
            self.listen(failures);
        }
        if self.unsure || self.turn.as_ref().is_some_and(|turn| turn.idle) {
            self.look();
        }
    }

    fn interrupt(&mut self) {
        self.early = None;
        if let Some(turn) = &mut self.turn {
            turn.interrupted = true;
            self.abort();
        }
    }

    /// Says something: a prompt between turns, else a word that is heard at the next step.
    fn say(&mut self, text: &str) {
        if self.phase == Phase::Over {
            return;
        }
        let (Phase::Ready, Some(session)) = (self.phase, &self.session) else {
            self.early = Some(text.to_owned());
            return;
        };
        let path = format!("/session/{session}/prompt_async");
        let body = launch_and_permissions::message(&self.setup, text);
        let purpose = match &self.turn {
            Some(_) => OpencodeRequest::Steer,
            None => OpencodeRequest::Prompt,
        };
        let turn = self.turn.get_or_insert_default();
        turn.unseen = turn.unseen.saturating_add(1);
        self.ask(purpose, &path, Some(&body));
    }

    fn abort(&mut self) {
        if let Some(session) = &self.session {
            let path = format!("/session/{session}/abort");
            self.ask(OpencodeRequest::Abort, &path, Some(&json!({})));
        }
    }

    /// Listens to the events. They come without a past.
    fn listen(&mut self, failures: u32) {
        self.stream = EventStream::Asked { failures };
        self.effects.push(Effect::Listen { path: "/event".to_owned() });
    }

    fn stream_lost(&mut self) {
        let failures = match self.stream {
            EventStream::Asked { failures } | EventStream::Lost { failures } => {
                failures.saturating_add(1)
            }
            EventStream::Silent | EventStream::Open => 0,
        };
        if matches!(self.phase, Phase::Opening { .. } | Phase::Ready) {
            self.stream = EventStream::Lost { failures };
            let waits = ExponentialWait::doubling(AGENT_READY_POLL, AGENT_LISTEN_DELAY_MAX);
            self.effects.push(Effect::WakeAfter(waits.after(failures)));
        }
    }

    /// Reads the state of the server, as events were missed or say too little. The rest follows the messages.
    fn look(&mut self) {
        if let (Phase::Ready, EventStream::Open, Some(session)) =
            (self.phase, self.stream, &self.session)
        {
            self.unsure = false;
            if !self.is_asked(OpencodeRequest::Messages) {
                let path = format!("/session/{session}/message?limit={AGENT_REREAD_MESSAGES_MAX}");
                self.ask(OpencodeRequest::Messages, &path, None);
            }
        }
    }

    fn look_later(&mut self) {
        self.unsure = true;
        self.effects.push(Effect::WakeAfter(AGENT_SETTLE_WAIT));
    }

    fn maybe_ready(&mut self) {
        if let (Phase::Opening { .. }, EventStream::Open, Some(_), Some(session)) =
            (self.phase, self.stream, &self.windows, &self.session)
        {
            let (session, model) = (Some(session.clone()), self.setup.model.clone());
            self.phase = Phase::Ready;
            self.hear(AgentEvent::Ready { session, model });
            if let Some(text) = self.early.take() {
                self.say(&text);
            }
        }
    }

    /// Ends the turn, if it is over.
    fn maybe_end(&mut self) {
        let Some(turn) = &self.turn else { return };
        if turn.is_over() {
            self.end_turn();
        } else if turn.idle {
            self.effects.push(Effect::WakeAfter(AGENT_SETTLE_WAIT));
        }
    }

    fn end_turn(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        // No event ends the tools that were cut off with their turn.
        self.effects.extend(self.tools.fail_all());
        self.hear(AgentEvent::TurnEnded(match turn.failure {
            Some((failure, why)) if turn.given_up || !turn.interrupted => {
                TurnEnd::Failed { failure, why }
            }
            _ if turn.interrupted => TurnEnd::Interrupted,
            _ => TurnEnd::Done(turn.text),
        }));
    }

    fn fail_turn(&mut self, why: String) {
        if let Some(turn) = &mut self.turn {
            turn.given_up = true;
            turn.failure = Some((TurnFailure::Other, why));
            self.end_turn();
        }
    }

    /// There will be no session.
    fn give_up(&mut self, why: String) {
        self.phase = Phase::Over;
        self.stream = EventStream::Silent;
        self.hear(AgentEvent::TurnEnded(TurnEnd::Failed { failure: TurnFailure::Other, why }));
    }

    fn ended(&mut self, how: String) {
        match self.phase {
            Phase::Over => {}
            Phase::Waiting | Phase::Polling { .. } | Phase::Opening { .. } => self.give_up(how),
            Phase::Ready => self.fail_turn(how),
        }
        self.phase = Phase::Over;
        self.requests.clear();
    }
}

impl AgentSession for Opencode {
    fn start(&self) -> Start {
        launch_and_permissions::start(&self.setup, &self.secret)
    }

    fn handle(&mut self, now: Stamp, input: Input<'_>) -> Vec<Effect> {
        self.now = now;
        match input {
            Input::Started if self.phase == Phase::Waiting => self.poll(now, None),
            // Its output is its log.
            Input::Started | Input::Line(_) => {}
            Input::Event(data) => self.event(data),
            Input::Answer { request, status, body } => self.answer(request, Ok((status, body))),
            Input::Failed { request: Some(request), why } => self.answer(request, Err(why)),
            Input::Failed { request: None, .. } => self.stream_lost(),
            Input::Told(Instruction::Prompt(text) | Instruction::Steer(text)) => self.say(text),
            Input::Told(Instruction::Interrupt | Instruction::End) => self.interrupt(),
            // It says so after each call of its model; before the first there is nothing to ask for.
            Input::Told(Instruction::Measure) => {
                let context = self.context.map(AgentEvent::Context);
                self.effects.extend(context.map(Effect::Heard));
            }
            Input::Ended(exit) => self.ended(format!("it {exit}")),
            Input::Wakeup => self.woken(),
        }
        std::mem::take(&mut self.effects)
    }
}

/// A moment that JavaScript gave, in milliseconds.
fn moment(millis: u64) -> Stamp {
    Stamp::since_unix_epoch(Duration::from_millis(millis))
}

/// The rest of an event after its id, which some versions write first.
fn after_id(bytes: &[u8]) -> &[u8] {
    let inside = bytes.strip_prefix(b"{").unwrap_or_default();
    let Some(id) = inside.strip_prefix(br#""id":""#) else { return inside };
    let end = id.iter().take(64).position(|byte| *byte == b'"');
    end.and_then(|end| id[end..].strip_prefix(br#"","#)).unwrap_or_default()
}
