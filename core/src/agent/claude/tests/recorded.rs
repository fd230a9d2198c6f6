//! What is heard of recorded sessions.

use super::*;

const READY: &str =
    "ready Some(\"00000000-0000-4000-8000-000000000001\") Some(\"claude-sonnet-4-5\")";

/// After the answer to the first question, as in every recording.
const PROMPT: &str = "get_context_usage-1";

fn prompt() -> Instruction {
    Instruction::Prompt("do it".to_owned())
}

/// Plays a recording with one prompt.
fn played(recording: &str) -> Bench {
    let mut bench = Bench::new();
    bench.play(recording, &[(PROMPT, prompt())]);
    bench
}

#[test]
fn a_turn_with_tools() {
    let bench = played(include_str!("../recorded/tools.jsonl"));
    assert_eq!(
        bench.heard,
        [
            READY,
            "context 18589 of 200000",
            "context 21512 of 200000",
            "spent 21512 (20000) + 0",
            "text I look.",
            "toolu_a Bash echo hello",
            "toolu_b Read missing.txt",
            "context 21589 of 200000",
            "spent 21512 (20000) + 77",
            "toolu_b failed",
            "toolu_a succeeded",
            "context 21812 of 200000",
            "spent 43324 (41500) + 77",
            "toolu_c Write out.txt",
            "context 21862 of 200000",
            "spent 43324 (41500) + 127",
            "toolu_c succeeded",
            "context 22012 of 200000",
            "spent 65336 (63300) + 127",
            "text All done.",
            "context 22021 of 200000",
            "spent 65336 (63300) + 136",
            "spent 65336 (63300) + 136 $0.0286",
            "done All done.",
        ]
    );
    assert_eq!(bench.written.len(), 1);
    assert_eq!(bench.written[0]["message"]["content"], "do it");
}

#[test]
fn words_in_the_middle_of_a_turn_are_heard_in_it() {
    let mut bench = Bench::new();
    let steer = Instruction::Steer("wrap up".to_owned());
    bench.play(
        include_str!("../recorded/steer.jsonl"),
        &[(PROMPT, prompt()), (r#""type":"tool_use""#, steer)],
    );
    assert_eq!(bench.written[1]["type"], "user");
    assert_eq!(bench.written[1]["message"]["content"], "wrap up");
    assert_ne!(bench.written[0]["uuid"], bench.written[1]["uuid"]);
    let ends = bench.heard.iter().filter(|heard| heard.starts_with("done"));
    assert_eq!(ends.collect::<Vec<_>>(), ["done Wrapped up."]);
}

/// The model did not use a tool any more: what was said came too late for the turn, and made another.
#[test]
fn words_that_come_too_late_do_not_end_the_turn_twice() {
    let mut bench = Bench::new();
    let steer = Instruction::Steer("wrap up".to_owned());
    bench.play(
        include_str!("../recorded/steer_late.jsonl"),
        &[(PROMPT, prompt()), ("text_delta", steer)],
    );
    assert_eq!(
        bench.without_numbers(),
        [READY, "text I think for a while.", "text Heard you.", "done Heard you."]
    );
}

#[test]
fn an_interrupted_turn_and_the_one_after_it() {
    let mut bench = Bench::new();
    let recording = include_str!("../recorded/interrupt.jsonl");
    bench.play(
        recording,
        &[
            (PROMPT, prompt()),
            ("message_delta", Instruction::Interrupt),
            (r#""state":"idle""#, Instruction::Prompt("write the handoff".to_owned())),
        ],
    );
    assert_eq!(bench.written[1]["request"]["subtype"], "interrupt");
    assert_eq!(bench.written[1]["request"]["cancel_queued"], true);
    assert_eq!(
        bench.without_numbers(),
        [
            READY,
            "toolu_a Bash sleep 20; echo one",
            "toolu_a failed",
            "interrupted",
            "text Handed over.",
            "done Handed over."
        ]
    );
}

/// The result leaves out what was used by a call that was broken off; it was used all the same.
#[test]
fn a_model_that_is_interrupted_while_it_speaks() {
    let mut bench = Bench::new();
    bench.play(
        include_str!("../recorded/interrupt_speaking.jsonl"),
        &[
            (PROMPT, prompt()),
            ("text_delta", Instruction::Interrupt),
            (r#""state":"idle""#, Instruction::Prompt("write the handoff".to_owned())),
        ],
    );
    assert_eq!(bench.last_of("interrupted"), "interrupted");
    assert_eq!(bench.heard.last().unwrap(), "done Handed over.");
    assert_eq!(bench.last_of("spent"), "spent 43024 (40000) + 78 $0.0128");
}

#[test]
fn a_limit_without_a_time_and_with_one() {
    let recording = include_str!("../recorded/limited.jsonl");
    let why = "API Error: Request rejected (429) · This request would exceed your organization's rate limit";
    let bench = played(recording);
    assert_eq!(bench.without_numbers(), [READY, &format!("Limited {{ until: None }}: {why}")]);
    // Its zeros are not those of an empty context.
    assert_eq!(bench.last_of("context"), "context 18589 of 200000");

    // A subscription says it; in the form of the agent's own types.
    let event = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794751200,"rateLimitType":"five_hour"},"uuid":"1","session_id":"1"}"#;
    let mut bench = Bench::new();
    bench.line(event);
    bench.play(recording, &[(PROMPT, prompt())]);
    assert_eq!(bench.last_of("limited"), format!("limited until 2026-11-15T14:00:00.000Z: {why}"));

    let mut bench = Bench::new();
    bench.line(event);
    bench.line(&event.replace("rejected", "allowed"));
    bench.play(recording, &[(PROMPT, prompt())]);
    assert!(bench.heard.last().unwrap().starts_with("Limited { until: None }"));

    for (words, until) in [
        ("Claude AI usage limit reached|1794751200", "2026-11-15T14:00:00.000Z"),
        ("You've hit your session limit · resets 3:45pm (UTC)", "2026-11-15T15:45:00.000Z"),
        ("You've hit your session limit · resets 12am (UTC)", "2026-11-16T00:00:00.000Z"),
        ("You've hit your session limit · resets 11am (UTC)", "2026-11-16T11:00:00.000Z"),
    ] {
        let bench = played(&recording.replace(why, words));
        assert_eq!(bench.last_of("limited"), format!("limited until {until}: {words}"));
    }
    for words in ["resets 3pm (Europe/Berlin)", "resets 13pm (UTC)", "resets pm (UTC)", "x|1"] {
        let bench = played(&recording.replace(why, words));
        assert_eq!(bench.heard.last().unwrap(), &format!("Limited {{ until: None }}: {words}"));
    }
}

#[test]
fn what_the_agent_tries_again_by_itself() {
    let bench = played(include_str!("../recorded/retry.jsonl"));
    let retry = "retry 1 Limited { until: None } rate_limit (429) at 2026-11-15T12:00:01.000Z";
    assert_eq!(bench.without_numbers(), [READY, retry, "text Fine.", "done Fine."]);
}

#[test]
fn a_result_tells_why_a_turn_failed() {
    let overloaded = "Overloaded: API Error: 529 Overloaded. This is a server-side issue, usually temporary — try again in a moment. If it persists, check your inference gateway (127.0.0.1:1).";
    for (recording, end) in [
        (include_str!("../recorded/overloaded.jsonl"), overloaded),
        (
            include_str!("../recorded/unauthorized.jsonl"),
            "Unauthorized: Invalid API key · Fix external API key",
        ),
        (include_str!("../recorded/overflow.jsonl"), "Overflow: Prompt is too long"),
        (include_str!("../recorded/blocking.jsonl"), "Overflow: Prompt is too long"),
        (include_str!("../recorded/budget.jsonl"), "Budget: Reached maximum budget ($0.1)"),
    ] {
        let bench = played(recording);
        assert_eq!(bench.heard.last().unwrap(), end);
        assert!(!bench.heard.iter().any(|heard| heard.starts_with("text")));
    }
}

/// Older versions give no status with the result, but a word with the message before it.
#[test]
fn a_word_of_the_agent_tells_as_well() {
    for (word, end) in [
        ("rate_limit", "Limited { until: None }: it failed"),
        ("overloaded", "Overloaded: it failed"),
        ("authentication_failed", "Unauthorized: it failed"),
        ("billing_error", "Unauthorized: it failed"),
        ("server_error", "Unreachable: it failed"),
    ] {
        let mut bench = Bench::new();
        bench.prompt();
        bench.line(&format!(
            r#"{{"type":"assistant","error":"{word}","message":{{"model":"<synthetic>","content":[]}}}}"#
        ));
        bench.line(r#"{"type":"result","subtype":"success","is_error":true,"result":"it failed"}"#);
        // And they do not say that they are idle.
        assert_eq!(bench.heard.last().unwrap(), end);
    }
}

/// The first result comes while a subagent still works in the background, and wakes the agent later.
#[test]
fn a_subagent_costs_but_fills_no_context() {
    let bench = played(include_str!("../recorded/subagent.jsonl"));
    assert_eq!(
        bench.without_numbers(),
        [
            READY,
            "text I ask another.",
            "toolu_agent Agent Find it",
            "toolu_agent succeeded",
            "toolu_sub Bash echo sub",
            "text done with help",
            "toolu_sub succeeded",
            "text The helper found it.",
            "done The helper found it.",
        ]
    );
    let context = bench.heard.iter().filter(|heard| heard.starts_with("context"));
    let used: Vec<_> = context.map(|heard| heard.split(' ').nth(1).unwrap()).collect();
    assert_eq!(used, ["18589", "21512", "21572", "22209", "22253", "22409", "22427"]);
    assert_eq!(bench.last_of("spent"), "spent 68161 (65690) + 176 $0.0316");
}

/// A command in the background is over after the turn: the agent says something on it, in no turn of ours.
#[test]
fn what_it_does_by_itself_is_no_turn_of_ours() {
    let recording = include_str!("../recorded/background.jsonl");
    let mut bench = played(recording);
    assert_eq!(bench.without_numbers()[4..], ["done Started it.", "text It is over."]);
    assert_eq!(bench.last_of("done"), "done Started it.");

    // A prompt while it does so is answered after it, or in it.
    let own = |bench: &mut Bench, result: &dyn Fn(&str) -> String| {
        let own = recording.lines().skip_while(|line| !line.contains("task_notification"));
        for line in own {
            bench.line(&result(line));
        }
    };
    bench.prompt();
    bench.heard.clear();
    own(&mut bench, &str::to_owned);
    assert_eq!(bench.without_numbers(), ["text It is over."]);
    let uuid = bench.written.last().unwrap()["uuid"].as_str().unwrap().to_owned();
    let heard_in_it = format!(r#""user_message_uuids":["{uuid}"],"origin""#);
    own(&mut bench, &|line| line.replace(r#""origin""#, &heard_in_it));
    assert_eq!(bench.heard.last().unwrap(), "done It is over.");
}

#[test]
fn what_is_left_when_it_is_killed() {
    let mut bench = played(include_str!("../recorded/kill.jsonl"));
    bench.input(Input::Ended(&Exit::Signal(9)));
    assert_eq!(
        bench.without_numbers()[1..],
        [
            "toolu_a Bash sleep 20; echo one",
            "toolu_a failed",
            "Other: it was ended by signal 9 in the middle of its turn",
        ]
    );
    bench.prompt();
    assert_eq!(bench.written.len(), 1);
}

#[test]
fn the_result_counts_and_not_the_exit_code() {
    let recording = include_str!("../recorded/interrupt.jsonl");
    let until_result = recording.split_inclusive('\n').take_while(|line| !line.contains("idle"));
    let mut bench = played(&until_result.collect::<String>());
    assert!(!bench.heard.iter().any(|heard| heard == "interrupted"));
    bench.input(Input::Ended(&Exit::Code(0)));
    assert_eq!(bench.heard.last().unwrap(), "interrupted");

    // Between turns there is nothing to say of an end.
    let mut bench = played(include_str!("../recorded/tools.jsonl"));
    bench.heard.clear();
    bench.input(Input::Ended(&Exit::Code(1)));
    assert!(bench.heard.is_empty());
}

#[test]
fn what_it_asks_is_refused_at_once() {
    let mut bench = played(include_str!("../recorded/ask.jsonl"));
    let answer = &bench.written[1]["response"];
    assert_eq!(answer["request_id"], "ask-1");
    assert_eq!(answer["response"]["behavior"], "deny");
    assert!(answer["response"]["message"].as_str().unwrap().contains("no user is present"));
    bench.line(r#"{"type":"control_request","request_id":"7","request":{"subtype":"new_thing"}}"#);
    assert_eq!(bench.written[2]["response"]["subtype"], "error");
    assert_eq!(bench.written[2]["response"]["request_id"], "7");
}

#[test]
fn a_context_that_was_put_together_is_measured_again() {
    let mut bench = Bench::new();
    let more = || Instruction::Prompt("more".to_owned());
    bench.play(
        include_str!("../recorded/compact.jsonl"),
        &[(PROMPT, prompt()), (r#""idle""#, more()), (r#""idle""#, more())],
    );
    let written = bench.written.last().unwrap();
    assert_eq!(written["request"]["subtype"], "get_context_usage");
    assert!(bench.heard.iter().any(|heard| heard == "compacted"));
    // The call that made the summary is in no line.
    assert_eq!(bench.last_of("spent"), "spent 74536 (70000) + 231 $0.0414");

    let answer = r#"{"type":"control_response","response":{"subtype":"success","request_id":"get_context_usage-9","response":{"totalTokens":19000,"maxTokens":200000,"isAutoCompactEnabled":true,"autoCompactThreshold":167000}}}"#;
    bench.line(answer);
    assert_eq!(bench.heard.last().unwrap(), "context 19000 of 200000, compacts at 167000");
}
