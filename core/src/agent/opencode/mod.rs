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
mod launch;
mod parts;
mod requests;
mod servers;
#[cfg(test)]
mod tests;
mod turn_end;
mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use self::parts::MessageParts;
use self::requests::{OpencodeRequest, Requests};
use self::turn_end::OpencodeTurn;
use self::usage::Ledger;
use super::{
    AgentEvent, AgentSession, ContextUse, Effect, Input, Instruction, Profile, Setup, Start,
    TurnEnd, TurnFailure,
};
use crate::backoff::ExponentialWait;
use crate::limits::{
    AGENT_DETAIL_CHARS_MAX, AGENT_HEALTH_WAIT, AGENT_LISTEN_DELAY_MAX, AGENT_READY_POLL,
    AGENT_READY_WAIT, AGENT_REREAD_MESSAGES_MAX, AGENT_SETTLE_WAIT,
};
use crate::text::cut;
use crate::time::Stamp;

pub(super) const PROFILE: Profile = Profile {
    name: "opencode",
    tells_cost: true,
    settings_variable: Some(launch::SETTINGS),
    session: |setup, secret| Box::new(Opencode::new(setup).with_secret(secret)),
    is_delta: |bytes| after_id(bytes).starts_with(br#""type":"message.part.delta""#),
    servers: servers::RULES,
};

/// A session of opencode.
#[derive(Debug)]
pub(super) struct Opencode {
    setup: Setup,
    secret: String,
    now: Stamp,
    phase: Phase,
    stream: EventStream,
    requests: Requests,
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
    parts: MessageParts,
    /// The newest message of the user. Ids grow with time.
    newest_asked: String,
    /// The message in which opencode puts its context together.
    summary: Option<String>,
    /// The try of a call that was told last: session, number and time.
    retry: Option<(String, u64, u64)>,
}

/// How far the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventStream {
    Silent,
    Asked { failures: u32 },
    Open,
    Lost { failures: u32 },
}

type Effects = Vec<Effect>;

impl Opencode {
    /// A session that has not been started. Its server wants the id of the setup as its password, unless it gets
    /// [another](Self::with_secret).
    pub(super) fn new(setup: Setup) -> Self {
        Self {
            secret: setup.id.clone(),
            model: setup.model.clone(),
            setup,
            now: Stamp::default(),
            phase: Phase::Waiting,
            stream: EventStream::Silent,
            requests: Requests::default(),
            session: None,
            early: None,
            turn: None,
            unsure: false,
            windows: None,
            context: None,
            ledger: Ledger::default(),
            parts: MessageParts::default(),
            newest_asked: String::new(),
            summary: None,
            retry: None,
        }
    }

    /// The same, with a server that wants this password. A program that has it can drive the agent.
    #[must_use]
    pub(super) fn with_secret(mut self, secret: String) -> Self {
        self.secret = secret;
        self
    }

    fn started(&mut self, effects: &mut Effects) {
        if self.phase == Phase::Waiting {
            self.poll(self.now, None, effects);
        }
    }

    /// Asks whether the server is there, unless it was asked just now and thinks about it.
    fn poll(&mut self, since: Stamp, asked: Option<Stamp>, effects: &mut Effects) {
        let waits = |asked: &Stamp| self.now.since(*asked) < AGENT_HEALTH_WAIT;
        let asked = asked
            .filter(waits)
            .filter(|_| self.requests.is_open(OpencodeRequest::Health))
            .unwrap_or_else(|| {
                effects.push(self.requests.get(OpencodeRequest::Health, "/global/health"));
                self.now
            });
        self.phase = Phase::Polling { since, asked };
        effects.push(Effect::WakeAfter(AGENT_READY_POLL));
    }

    fn woken(&mut self, effects: &mut Effects) {
        if self.phase == Phase::Over {
            return;
        }
        if let Phase::Polling { since, .. } | Phase::Opening { since } = self.phase {
            let left = AGENT_READY_WAIT.saturating_sub(self.now.since(since));
            if left.is_zero() {
                let seconds = AGENT_READY_WAIT.as_secs();
                return self
                    .give_up(format!("its server was not ready within {seconds}s"), effects);
            }
            if let Phase::Polling { since, asked } = self.phase {
                return self.poll(since, Some(asked), effects);
            }
            effects.push(Effect::WakeAfter(left));
        }
        if let EventStream::Lost { failures } = self.stream {
            self.listen(failures, effects);
        }
        if self.unsure || self.turn.as_ref().is_some_and(|turn| turn.idle) {
            self.look(effects);
        }
    }

    fn told(&mut self, told: &Instruction, effects: &mut Effects) {
        match told {
            Instruction::Prompt(text) | Instruction::Steer(text) => self.say(text, effects),
            Instruction::Interrupt | Instruction::End => {
                self.early = None;
                self.interrupt(effects);
            }
            // It says so after each call of its model; before the first there is nothing to ask for.
            Instruction::Measure => {
                effects.extend(self.context.map(|now| Effect::Heard(AgentEvent::Context(now))))
            }
        }
    }

    /// Says something: a prompt between turns, else a word that is heard at the next step.
    fn say(&mut self, text: &str, effects: &mut Effects) {
        if self.phase == Phase::Over {
            return;
        }
        let (Phase::Ready, Some(session)) = (self.phase, &self.session) else {
            self.early = Some(text.to_owned());
            return;
        };
        let path = format!("/session/{session}/prompt_async");
        let body = launch::message(&self.setup, text);
        let purpose = match &mut self.turn {
            Some(turn) => {
                turn.unseen = turn.unseen.saturating_add(1);
                OpencodeRequest::Steer
            }
            None => {
                self.turn = Some(OpencodeTurn::new());
                OpencodeRequest::Prompt
            }
        };
        effects.push(self.requests.post(purpose, path, &body));
    }

    fn interrupt(&mut self, effects: &mut Effects) {
        if let Some(turn) = &mut self.turn {
            turn.interrupted = true;
            self.abort(effects);
        }
    }

    fn abort(&mut self, effects: &mut Effects) {
        if let Some(session) = &self.session {
            let path = format!("/session/{session}/abort");
            effects.push(self.requests.post(OpencodeRequest::Abort, path, &json!({})));
        }
    }

    /// Listens to the events. They come without a past.
    fn listen(&mut self, failures: u32, effects: &mut Effects) {
        self.stream = EventStream::Asked { failures };
        effects.push(Effect::Listen { path: "/event".to_owned() });
    }

    fn stream_lost(&mut self, effects: &mut Effects) {
        let failures = match self.stream {
            EventStream::Asked { failures } | EventStream::Lost { failures } => {
                failures.saturating_add(1)
            }
            EventStream::Silent | EventStream::Open => 0,
        };
        if matches!(self.phase, Phase::Opening { .. } | Phase::Ready) {
            self.stream = EventStream::Lost { failures };
            let waits = ExponentialWait::doubling(AGENT_READY_POLL, AGENT_LISTEN_DELAY_MAX);
            effects.push(Effect::WakeAfter(waits.after(failures)));
        }
    }

    /// The stream is open. What happened before it was is read, unless there is no session yet.
    fn connected(&mut self, effects: &mut Effects) {
        self.stream = EventStream::Open;
        if self.phase == Phase::Ready {
            self.look(effects);
        }
        self.maybe_ready(effects);
    }

    /// Reads the state of the server, as events were missed or say too little. The rest follows the messages.
    fn look(&mut self, effects: &mut Effects) {
        let (Phase::Ready, EventStream::Open, Some(session)) =
            (self.phase, self.stream, &self.session)
        else {
            return;
        };
        self.unsure = false;
        if !self.requests.is_open(OpencodeRequest::Messages) {
            let path = format!("/session/{session}/message?limit={AGENT_REREAD_MESSAGES_MAX}");
            effects.push(self.requests.get(OpencodeRequest::Messages, &path));
        }
    }

    fn look_later(&mut self, effects: &mut Effects) {
        self.unsure = true;
        effects.push(Effect::WakeAfter(AGENT_SETTLE_WAIT));
    }

    fn maybe_ready(&mut self, effects: &mut Effects) {
        let opening = matches!(self.phase, Phase::Opening { .. });
        if !opening || self.stream != EventStream::Open || self.windows.is_none() {
            return;
        }
        let Some(session) = self.session.clone() else { return };
        self.phase = Phase::Ready;
        let model = self.setup.model.clone();
        effects.push(Effect::Heard(AgentEvent::Ready { session: Some(session), model }));
        if let Some(text) = self.early.take() {
            self.say(&text, effects);
        }
    }

    /// Ends the turn, if it is over.
    fn maybe_end(&mut self, effects: &mut Effects) {
        let Some(turn) = &self.turn else { return };
        if turn.is_over() {
            self.end_turn(effects);
        } else if turn.idle {
            effects.push(Effect::WakeAfter(AGENT_SETTLE_WAIT));
        }
    }

    fn end_turn(&mut self, effects: &mut Effects) {
        let Some(turn) = self.turn.take() else { return };
        effects.extend(self.parts.end_tools());
        effects.push(Effect::Heard(AgentEvent::TurnEnded(turn.end())));
    }

    fn fail_turn(&mut self, why: String, effects: &mut Effects) {
        if let Some(turn) = &mut self.turn {
            turn.given_up = true;
            turn.failure = Some((TurnFailure::Other, why));
            self.end_turn(effects);
        }
    }

    /// There will be no session.
    fn give_up(&mut self, why: String, effects: &mut Effects) {
        self.phase = Phase::Over;
        self.stream = EventStream::Silent;
        let failed = TurnEnd::Failed { failure: TurnFailure::Other, why };
        effects.push(Effect::Heard(AgentEvent::TurnEnded(failed)));
    }

    fn ended(&mut self, how: String, effects: &mut Effects) {
        match self.phase {
            Phase::Over => {}
            Phase::Waiting | Phase::Polling { .. } | Phase::Opening { .. } => {
                self.give_up(how, effects);
            }
            Phase::Ready => self.fail_turn(how, effects),
        }
        self.phase = Phase::Over;
        self.requests.forget_all();
    }
}

impl AgentSession for Opencode {
    fn start(&self) -> Start {
        launch::start(&self.setup, &self.secret)
    }

    fn handle(&mut self, now: Stamp, input: Input<'_>) -> Vec<Effect> {
        self.now = now;
        let mut effects = Vec::new();
        match input {
            Input::Started => self.started(&mut effects),
            // Its output is its log.
            Input::Line(_) => {}
            Input::Event(data) => self.event(data, &mut effects),
            Input::Answer { request, status, body } => {
                self.answer(request, Ok((status, body)), &mut effects);
            }
            Input::Failed { request: Some(request), why } => {
                self.answer(request, Err(why), &mut effects);
            }
            Input::Failed { request: None, .. } => self.stream_lost(&mut effects),
            Input::Told(told) => self.told(told, &mut effects),
            Input::Ended(exit) => self.ended(format!("it {exit}"), &mut effects),
            Input::Wakeup => self.woken(&mut effects),
        }
        effects
    }
}

fn strange(text: &str) -> Effect {
    Effect::Heard(AgentEvent::Strange(cut(text, AGENT_DETAIL_CHARS_MAX)))
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
