//! Recordings that were torn, mixed and mutated: nothing panics, and nothing grows without bound.

use super::*;
use crate::limits::{AGENT_CALLS_MAX, AGENT_REQUESTS_MAX, AGENT_SUBAGENTS_MAX, AGENT_TOOLS_MAX};
use crate::random::Random;

const RECORDINGS: [&str; 8] = [
    include_str!("../recorded/tool.jsonl"),
    include_str!("../recorded/steer.jsonl"),
    include_str!("../recorded/abort.jsonl"),
    include_str!("../recorded/refused.jsonl"),
    include_str!("../recorded/subagent.jsonl"),
    include_str!("../recorded/limited.jsonl"),
    include_str!("../recorded/compacted.jsonl"),
    include_str!("../recorded/loop.jsonl"),
];

/// What a field may be instead.
const VALUES: [&str; 8] =
    ["null", "-1", "1e300", "\"\"", "[]", "{}", "18446744073709551615", "\"\u{fffd}\u{1f600}\""];

#[test]
fn torn_and_mixed_events_do_no_harm() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut pick = |count: usize| usize::try_from(random.bits() % count as u64).unwrap();
        let lines: Vec<&str> = RECORDINGS.iter().flat_map(|text| text.lines()).collect();
        let mut session = if seed % 4 == 0 {
            Opencode::new(setup(), String::new())
        } else {
            Pair::ready().session
        };
        let mut open: Vec<RequestId> = Vec::new();
        let (mut prompts, mut ends) = (0, 0);
        for step in 0..400_u64 {
            let line = lines[pick(lines.len())];
            let bytes = mutated(line, &mut pick);
            let request = open.get(pick(open.len().max(1))).copied();
            let told = [
                Instruction::Interrupt,
                Instruction::Measure,
                Instruction::End,
                Instruction::Steer("more".to_owned()),
            ];
            let prompt = Instruction::Prompt("go".to_owned());
            let input = match pick(20) {
                0 => Input::Started,
                1 => Input::Wakeup,
                2 => Input::Failed { request: None, why: "reset" },
                3 => Input::Failed { request, why: "reset" },
                4 => Input::Told(&prompt),
                5 => Input::Told(&told[pick(told.len())]),
                6 | 7 => Input::Answer {
                    request: request.unwrap_or(RequestId(9)),
                    status: 200,
                    body: &bytes,
                },
                8 | 9 => Input::Answer {
                    request: request.unwrap_or(RequestId(9)),
                    status: [200, 204, 404, 500][pick(4)],
                    body: [&br#"{"healthy":true,"id":"ses_1"}"#[..], b"{}", WINDOWS.as_bytes()]
                        [pick(3)],
                },
                10 if pick(50) == 0 => Input::Ended(&Exit::Code(1)),
                _ => Input::Event(&bytes),
            };
            for effect in session.handle(moment(1_794_780_000_000 + step * 100), input) {
                match effect {
                    Effect::Request { request, method, path, .. } => {
                        assert!(path.is_ascii() && !path.contains(' '), "{path}");
                        prompts += u32::from(method == "POST" && path.ends_with("/prompt_async"));
                        open.push(request);
                    }
                    Effect::Heard(AgentEvent::TurnEnded(_)) => ends += 1,
                    _ => {}
                }
            }
            open.drain(..open.len().saturating_sub(8));
        }
        // Each turn ends once; the one more is of a session that never came to be.
        assert!(ends <= prompts + 1, "seed {seed}: {ends} ends of {prompts} prompts");
        assert!(session.requests.len() <= AGENT_REQUESTS_MAX);
    }
}

fn mutated(line: &str, pick: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let mut bytes = line.as_bytes().to_vec();
    match pick(6) {
        0 => bytes.truncate(pick(bytes.len() + 1)),
        1 => {
            let at = pick(bytes.len());
            bytes[at] = u8::try_from(pick(256)).unwrap();
        }
        // Another value for a field.
        2 => {
            let colons: Vec<usize> = line.match_indices("\":").map(|(at, _)| at + 2).collect();
            if let Some(&from) = colons.get(pick(colons.len().max(1))) {
                let until =
                    line[from..].find([',', '}']).map_or(line.len(), |length| from + length);
                bytes =
                    format!("{}{}{}", &line[..from], VALUES[pick(VALUES.len())], &line[until..])
                        .into();
            }
        }
        _ => {}
    }
    bytes
}

#[test]
fn what_is_remembered_has_a_bound() {
    let mut pair = Pair::ready();
    pair.tell(&Instruction::Prompt("go".to_owned()));
    let long = "x".repeat(100_000);
    for number in 0..1_500 {
        let about = json!({"info": {"id": format!("ses_{number}"), "parentID": "ses_1"}});
        pair.event(&json!({"type": "session.created", "properties": about}).to_string());
        let part = json!({"id": format!("prt_{number}"), "sessionID": "ses_1", "type": "tool", "tool": "t",
            "state": {"status": "running", "input": {"command": "c"}}});
        pair.event(
            &json!({"type": "message.part.updated", "properties": {"part": part}}).to_string(),
        );
        let about = json!({"id": format!("per_{number}"), "permission": "bash"});
        pair.event(&json!({"type": "permission.asked", "properties": about}).to_string());
        (pair.heard, pair.asked, pair.bodies) = Default::default();
    }
    for role in ["user", "assistant"] {
        let info = json!({"id": format!("z{long}"), "sessionID": "ses_1", "role": role, "summary": true,
            "providerID": &long, "modelID": &long, "parentID": &long});
        pair.event(&json!({"type": "message.updated", "properties": {"info": info}}).to_string());
    }
    for kind in ["text", "tool", "step-finish"] {
        let part = json!({"id": &long, "sessionID": "ses_1", "type": kind, "text": &long, "time": {"end": 1}});
        pair.event(
            &json!({"type": "message.part.updated", "properties": {"part": part}}).to_string(),
        );
    }
    let windows: serde_json::Map<String, Value> =
        (0..20_000).map(|number| (number.to_string(), json!({"limit": {"context": 1}}))).collect();
    pair.session.ask(OpencodeRequest::Windows, "/", None);
    let Some(Effect::Request { request, .. }) = pair.session.effects.pop() else {
        panic!("no request");
    };
    let body = json!({"providers": [{"id": "p", "models": windows}]}).to_string();
    pair.session.answer(request, Ok((200, body.as_bytes())));
    let bound = AGENT_SUBAGENTS_MAX
        + AGENT_CALLS_MAX
        + AGENT_TOOLS_MAX
        + AGENT_REQUESTS_MAX
        + crate::limits::AGENT_MODELS_MAX;
    let held = format!("{:?}", pair.session);
    assert!(held.len() < bound * 200, "{} bytes", held.len());
    assert!(pair.session.tools.0.len() <= AGENT_TOOLS_MAX);
    assert!(pair.session.requests.len() <= AGENT_REQUESTS_MAX);
}

#[test]
fn of_too_many_requests_the_oldest_is_forgotten() {
    let mut session = Opencode::new(setup(), String::new());
    session.ask(OpencodeRequest::Health, "/", None);
    for _ in 0..AGENT_REQUESTS_MAX {
        session.ask(OpencodeRequest::Status, "/", None);
    }
    assert!(
        !session.is_asked(OpencodeRequest::Health) && session.is_asked(OpencodeRequest::Status)
    );
    assert_eq!(session.requests.remove(&RequestId(0)), None);
    assert_eq!(session.requests.remove(&RequestId(1)), Some(OpencodeRequest::Status));
    session.ended("it ended".to_owned());
    assert!(!session.is_asked(OpencodeRequest::Status));
}

#[test]
fn a_tool_begins_and_ends_once() {
    let mut session = Opencode::new(setup(), String::new());
    let running =
        json!({"tool": "bash", "state": {"status": "running", "input": {"command": "ls"}}});
    let done = json!({"tool": "bash", "state": {"status": "completed"}});
    for part in [&running, &running, &done, &done] {
        session.tool("a", part);
    }
    assert_eq!(session.effects.len(), 2, "{:?}", session.effects);
    session.tool("b", &running);
    assert_eq!(session.tools.fail_all().count(), 1);
    assert_eq!(session.tools.fail_all().count(), 0);
}
