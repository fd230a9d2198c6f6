//! Events that were missed, and requests that failed.

use super::*;

/// The messages of the recording, as `GET /session/ses_1/message` has them.
fn messages(recording: &str) -> String {
    let mut all: BTreeMap<String, (Value, BTreeMap<String, Value>)> = BTreeMap::new();
    for line in recording.lines().filter(|line| !line.starts_with('>')) {
        let event: Value = serde_json::from_str(line).unwrap();
        let about = &event["properties"];
        match event["type"].as_str().unwrap() {
            "message.updated" => {
                let id = about["info"]["id"].as_str().unwrap().to_owned();
                all.entry(id).or_default().0 = about["info"].clone();
            }
            "message.part.updated" => {
                let part = &about["part"];
                let parts =
                    &mut all.entry(part["messageID"].as_str().unwrap().to_owned()).or_default().1;
                parts.insert(part["id"].as_str().unwrap().to_owned(), part.clone());
            }
            _ => {}
        }
    }
    let listed = all.into_values().map(
        |(info, parts)| json!({"info": info, "parts": parts.into_values().collect::<Vec<_>>()}),
    );
    Value::from(listed.collect::<Vec<_>>()).to_string()
}

impl Pair {
    fn lose_the_stream(&mut self) {
        self.put(Input::Failed { request: None, why: "connection reset" });
        self.wake();
        self.event(r#"{"type":"server.connected","properties":{}}"#);
    }

    /// Answers all that is read after a gap.
    fn show_state(&mut self, messages: &str, used: &str, subagents: &str, status: &str) {
        self.answer("GET /session/ses_1/message?limit=16", 200, messages);
        self.answer("GET /session/ses_1", 200, used);
        self.answer("GET /session/ses_1/children", 200, subagents);
        self.answer("GET /permission", 200, "[]");
        self.answer("GET /question", 200, "[]");
        self.answer("GET /session/status", 200, status);
    }
}

/// Wherever the stream breaks, and any part of it is missed: in the end all of it was heard, and once.
#[test]
fn nothing_is_missed_in_a_gap() {
    let recording = include_str!("../recorded/tool.jsonl");
    let whole = Pair::after(recording).news();
    let lines: Vec<&str> = recording.lines().collect();
    let used = r#"{"id":"ses_1","cost":0.01152,"tokens":{"input":3640,"output":32,"reasoning":0,"cache":{"read":400,"write":0}}}"#;
    for first_missed in 1..lines.len() {
        let mut pair = Pair::after(&lines[..first_missed].join("\n"));
        pair.lose_the_stream();
        pair.show_state(&messages(recording), used, "[]", "{}");
        let mut news = pair.news();
        let mut expected = whole.clone();
        // Parts of a message come in another order than their events.
        news.sort();
        expected.sort();
        assert_eq!(news, expected, "after {first_missed} lines");
        assert_eq!(pair.listens, 2);
    }
}

#[test]
fn a_session_that_still_works_goes_on_after_a_gap() {
    let recording = include_str!("../recorded/tool.jsonl");
    let lines: Vec<&str> = recording.lines().collect();
    for first_missed in 1..lines.len() - 6 {
        let (before, after) = lines.split_at(first_missed);
        let mut pair = Pair::after(&before.join("\n"));
        pair.lose_the_stream();
        let busy = r#"{"ses_1":{"type":"busy"}}"#;
        pair.show_state(&messages(&before.join("\n")), "{}", "[]", busy);
        pair.play(&after.join("\n"));
        let ends: Vec<String> =
            pair.news().into_iter().filter(|line| line.starts_with("done")).collect();
        assert_eq!(ends, ["done Done: TOOL please"]);
    }
}

#[test]
fn what_was_used_in_a_gap_is_counted() {
    let mut pair = Pair::ready();
    pair.tell(&Instruction::Prompt("go".to_owned()));
    pair.answer("POST /session/ses_1/prompt_async", 204, "");
    pair.lose_the_stream();
    let used = r#"{"id":"ses_1","cost":0.5,"tokens":{"input":10,"output":3,"reasoning":2,"cache":{"read":5,"write":1}}}"#;
    let child =
        r#"[{"id":"ses_2","parentID":"ses_1","cost":0.25,"tokens":{"input":1,"output":1}}]"#;
    pair.show_state(
        "[]",
        used,
        child,
        r#"{"ses_1":{"type":"retry","attempt":4,"message":"no","next":1}}"#,
    );
    assert_eq!(
        pair.news(),
        [
            "spent 16(5)+5 $0.500000",
            "spent 17(5)+6 $0.750000",
            "retry 4 at 1970-01-01T00:00:00.001Z: no"
        ]
    );
}

#[test]
fn what_was_asked_in_a_gap_is_answered() {
    let mut pair = Pair::after(include_str!("../recorded/killed.jsonl"));
    pair.lose_the_stream();
    pair.answer("GET /session/ses_1/message?limit=16", 200, "[]");
    pair.answer("GET /permission", 200, r#"[{"id":"per_7","permission":"bash"}]"#);
    pair.answer("GET /question", 200, r#"[{"id":"que_8"},{"id":"bad/id"}]"#);
    assert!(pair.has_asked("POST /permission/per_7/reply"));
    // An answer that did not arrive is found again at the next look.
    pair.fail("POST /permission/per_7/reply");
    assert!(pair.has_asked("POST /question/que_8/reject"));
    pair.wake();
    assert!(pair.has_asked("GET /session/ses_1/message?limit=16"));
}

#[test]
fn a_look_that_fails_is_repeated() {
    let mut pair = Pair::after(include_str!("../recorded/killed.jsonl"));
    pair.lose_the_stream();
    for _ in 0..3 {
        pair.fail("GET /session/ses_1/message?limit=16");
        pair.wake();
    }
    assert!(pair.has_asked("GET /session/ses_1/message?limit=16"));
}

/// It is idle, but what it answered last is not complete: that is looked into, and ends the turn.
#[test]
fn an_end_without_its_last_word_is_an_end() {
    let mut pair = Pair::after(include_str!("../recorded/killed.jsonl"));
    pair.news();
    pair.event(r#"{"type":"session.idle","properties":{"sessionID":"ses_1"}}"#);
    assert_eq!(pair.news(), Vec::<String>::new());
    for _ in 0..2 {
        pair.wake();
        pair.show_state("[]", "{}", "[]", "{}");
    }
    assert_eq!(pair.news(), ["tool prt_04 ended false", "done Working."]);
}

#[test]
fn a_prompt_that_is_not_shown_is_not_waited_for_without_end() {
    let mut pair = Pair::ready();
    pair.tell(&Instruction::Prompt("go".to_owned()));
    pair.answer("POST /session/ses_1/prompt_async", 204, "");
    pair.event(r#"{"type":"session.idle","properties":{"sessionID":"ses_1"}}"#);
    let mut looks = 0;
    while pair.heard.is_empty() {
        looks += 1;
        pair.wake();
        pair.show_state("[]", "{}", "[]", "{}");
    }
    assert_eq!((looks, pair.news()), (15, vec!["done ".to_owned()]));
}

#[test]
fn requests_that_fail_are_said() {
    let mut pair = Pair::ready();
    pair.tell(&Instruction::Prompt("go".to_owned()));
    pair.answer(
        "POST /session/ses_1/prompt_async",
        404,
        r#"{"data":{"message":"Session not found"}}"#,
    );
    assert_eq!(
        pair.news(),
        ["failed Other: it did not take the prompt: it answered 404: Session not found"]
    );
    // It may have been heard all the same.
    assert!(pair.has_asked("POST /session/ses_1/abort"));

    let mut pair = Pair::after(include_str!("../recorded/killed.jsonl"));
    pair.news();
    pair.tell(&Instruction::Steer("more".to_owned()));
    pair.fail("POST /session/ses_1/prompt_async");
    pair.tell(&Instruction::Interrupt);
    pair.fail("POST /session/ses_1/abort");
    assert_eq!(
        pair.news(),
        [
            "Strange(\"it did not take a word: connection reset\")",
            "Strange(\"it did not take an interrupt: connection reset\")",
        ]
    );
    assert_eq!(
        pair.session.turn.as_ref().map(|turn| (turn.unseen, turn.interrupted)),
        Some((0, false))
    );
}

/// An interrupt that comes to the server before the prompt would let it run.
#[test]
fn a_prompt_that_comes_after_its_interrupt_is_interrupted() {
    let recording = include_str!("../recorded/killed.jsonl");
    let mut pair = Pair::ready();
    pair.tell(&Instruction::Prompt("LONG".to_owned()));
    pair.tell(&Instruction::Interrupt);
    pair.answer("POST /session/ses_1/abort", 200, "true");
    pair.event(recording.lines().nth(1).unwrap());
    assert!(pair.has_asked("POST /session/ses_1/abort"));
}
