//! Fuzzes the sessions of agent CLIs: for all bytes that an agent can write, each turn ends once at most, a tool ends only
//! after it began, what is written to the agent is JSON in lines, and paths of requests are plain.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use afresh_core::agent::{
    AgentEvent, AgentKind, ContextUse, Effect, Input, Instruction, RequestId, Setup, Speaks,
};
use afresh_core::limits::AGENT_DETAIL_CHARS_MAX;
use afresh_core::service::Exit;
use afresh_core::time::Stamp;
use serde_json::Value;

use crate::input::first;
use crate::is_planted;

/// Ends a line of the input, and says what happens next; all other bytes are text.
const MARKS: std::ops::RangeInclusive<u8> = 1..=8;

pub fn check(data: &[u8]) {
    let Some((choice, mut rest)) = first(data) else { return };
    let kind = AgentKind::ALL[usize::from(choice) % AgentKind::ALL.len()];
    let setup = Setup {
        program: vec!["agent".to_owned()],
        folder: "/work".to_owned(),
        id: "11111111-2222-4333-8444-555555555555".to_owned(),
        port: 4096,
        prompt: "do it".to_owned(),
        ..Setup::default()
    };
    let mut session = kind.session(setup, "secret".to_owned());
    let speaks = session.start().speaks;
    let mut world =
        World { speaks, open: VecDeque::new(), tools: BTreeSet::new(), turns: 2, ends: 0 };
    let mut now = Duration::from_secs(1_794_780_000);
    world.note(session.handle(Stamp::since_unix_epoch(now), Input::Started));
    let prompt = Instruction::Prompt("go on".to_owned());
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| MARKS.contains(byte) || *byte == b'\n');
        let (line, more) = rest.split_at(end.unwrap_or(rest.len()));
        let (mark, more) = more.split_first().map_or((b'\n', more), |(mark, more)| (*mark, more));
        rest = more;
        kind.is_delta(line);
        now += Duration::from_millis(100);
        let steer = Instruction::Steer("more".to_owned());
        let request = world.open.pop_front().unwrap_or(RequestId(9));
        let input = match mark {
            1 => Input::Told(&prompt),
            2 => Input::Told(&steer),
            3 => Input::Told(&Instruction::Interrupt),
            4 => Input::Told(&Instruction::Measure),
            5 => Input::Wakeup,
            6 => Input::Answer { request, status: 200, body: line },
            7 => Input::Failed { request: Some(request), why: "reset" },
            8 => Input::Ended(&Exit::Code(1)),
            _ if matches!(world.speaks, Speaks::Http { .. }) => Input::Event(line),
            _ => Input::Line(line),
        };
        // A steer between turns is a prompt, and codex may begin turns by itself.
        world.turns += u32::from(matches!(mark, 1 | 2) || kind == AgentKind::Codex);
        let is_over = mark == 8;
        world.note(session.handle(Stamp::since_unix_epoch(now), input));
        if is_over {
            break;
        }
    }
}

/// What the session has asked for and told.
struct World {
    speaks: Speaks,
    open: VecDeque<RequestId>,
    /// Those that have begun and not ended.
    tools: BTreeSet<String>,
    /// The turns that may have begun: with the first prompt, and one that never came to be.
    turns: u32,
    ends: u32,
}

impl World {
    fn note(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Write(bytes) => {
                    let line = bytes.strip_suffix(b"\n").expect("a line");
                    let value: Value = serde_json::from_slice(line).expect("JSON");
                    assert!(value.is_object() && !line.contains(&b'\n'));
                }
                Effect::Request { request, path, body, .. } => {
                    assert!(
                        path.starts_with('/') && path.is_ascii() && !path.contains([' ', '\n'])
                    );
                    assert!(body.is_empty() || serde_json::from_slice::<Value>(&body).is_ok());
                    self.open.push_back(request);
                }
                Effect::Heard(event) => self.heard(&event),
                Effect::CloseStdin | Effect::Listen { .. } | Effect::WakeAfter(_) => {}
            }
        }
    }

    fn heard(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::TurnEnded(_) => {
                self.ends += 1;
                assert!(self.ends <= self.turns, "{} ends of {} turns", self.ends, self.turns);
            }
            AgentEvent::ToolBegan { id, detail, .. } => {
                assert!(detail.chars().count() <= AGENT_DETAIL_CHARS_MAX + 1, "{detail}");
                self.tools.insert(id.clone());
            }
            AgentEvent::ToolEnded { id, .. } => {
                assert!(self.tools.remove(id), "a tool ends that has not begun");
            }
            AgentEvent::Context(ContextUse { used, window: Some(window), .. }) => {
                assert!(!(is_planted() && *used > window.saturating_mul(2)), "the planted mistake");
            }
            _ => {}
        }
    }
}
