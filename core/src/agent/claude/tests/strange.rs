//! Unexpected lines.

use super::*;
use crate::limits::{AGENT_CALLS_MAX, AGENT_TOOLS_MAX};
use crate::random::Random;

#[test]
fn what_is_no_object_is_strange_and_what_is_unknown_is_passed_over() {
    let mut bench = Bench::new();
    for line in ["", "  ", "{}", r#"{"type":7}"#, r#"{"type":"new_thing","a":[1]}"#] {
        bench.line(line);
    }
    for line in [
        r#"{"type":"assistant"}"#,
        r#"{"type":"assistant","message":[]}"#,
        r#"{"type":"user","message":{"content":"text"}}"#,
        r#"{"type":"user","message":{"content":[7,{"type":"tool_result"}]}}"#,
        r#"{"type":"system","subtype":"new_thing"}"#,
        r#"{"type":"stream_event","event":null}"#,
        r#"{"type":"control_response"}"#,
        r#"{"type":"control_request","request_id":{}}"#,
    ] {
        bench.line(line);
    }
    assert!(bench.heard.is_empty() && bench.written.is_empty(), "{:?}", bench.heard);
    bench.line("Warning: something");
    bench.line(r#"{"type":"assistant","mess"#);
    bench.input(Input::Line(&[b'\xff'; 5000]));
    assert_eq!(bench.heard[0], "strange Warning: something");
    assert_eq!(bench.heard[1], r#"strange {"type":"assistant","mess"#);
    assert_eq!(
        bench.heard[2].chars().count(),
        "strange …".chars().count() + AGENT_DETAIL_CHARS_MAX
    );
}

#[test]
fn a_member_of_another_kind_does_not_spoil_the_rest_of_its_line() {
    let mut bench = Bench::new();
    bench.line(
        r#"{"type":"assistant","error":{"new":1},"message":{"id":"m","usage":{"input_tokens":1e3,"cache_read_input_tokens":"many"},"content":[{"type":"text","text":7},{"type":"tool_use","id":"t","name":null,"input":{"command":["ls"],"path":"a\nb"}}]}}"#,
    );
    assert_eq!(bench.heard, ["context 1000 of 0", "spent 1000 (0) + 0", "t ? a"]);
}

#[test]
fn long_texts_are_cut() {
    let mut bench = Bench::new();
    let long = "ä".repeat(AGENT_TEXT_CHARS_MAX + 1);
    bench.line(&format!(
        r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{long}"}},{{"type":"tool_use","id":"{long}","name":"{long}","input":{{"command":"{long}"}}}}]}}}}"#
    ));
    assert_eq!(bench.heard[0].chars().count(), "text …".chars().count() + AGENT_TEXT_CHARS_MAX);
    let tool = 2 * (AGENT_ID_CHARS_MAX + 2) + AGENT_DETAIL_CHARS_MAX + 1;
    assert_eq!(bench.heard[1].chars().count(), tool);
    bench.line(&format!(
        r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"{long}"}}]}}}}"#
    ));
    assert!(bench.heard[2].ends_with("succeeded"));
}

/// A turn that has this result, after these lines, and an interrupt where that is wanted.
fn ended(before: &[&str], is_interrupted: bool, result: &str) -> String {
    let mut bench = Bench::new();
    bench.prompt();
    before.iter().for_each(|line| bench.line(line));
    if is_interrupted {
        bench.tell(Instruction::Interrupt);
    }
    bench.line(result);
    bench.heard.pop().unwrap_or_default()
}

#[test]
fn an_interrupt_that_we_wanted_is_one_also_where_the_result_does_not_say_so() {
    let broken = r#"{"type":"result","subtype":"error_during_execution","is_error":true}"#;
    assert_eq!(ended(&[], true, broken), "interrupted");
    assert_eq!(ended(&[], false, broken), "Other: error_during_execution");
    // What else went wrong meanwhile is not hidden by it, and it can be done before.
    let long = broken.replace("}", r#","terminal_reason":"prompt_too_long"}"#);
    assert!(ended(&[], true, &long).starts_with("Overflow"));
    let done = r#"{"type":"result","subtype":"success","is_error":false,"result":"Fine."}"#;
    assert_eq!(ended(&[], true, done), "done Fine.");
}

#[test]
fn a_limit_that_was_told_is_one_also_where_the_result_does_not_say_so() {
    let met = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794751200}}"#;
    let result = r#"{"type":"result","subtype":"success","is_error":true,"result":"No."}"#;
    assert_eq!(ended(&[met], false, result), "limited until 2026-11-15T14:00:00.000Z: No.");
    let without = met.replace(r#","resetsAt":1794751200"#, "");
    assert_eq!(ended(&[&without], false, result), "Limited { until: None }: No.");
    // It is over, or the model has answered since.
    let over = met.replace("1794751200", "1794740000");
    assert_eq!(ended(&[&over], false, result), "Other: No.");
    let answer =
        r#"{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"Yes."}]}}"#;
    assert_eq!(ended(&[met, answer], false, result), "Other: No.");
}

#[test]
fn a_result_that_says_nothing_is_not_done() {
    for bare in [r#"{"type":"result"}"#, r#"{"type":"result","result":" ","is_error":false}"#] {
        assert_eq!(ended(&[], false, bare), "Other: its result says nothing");
    }
    assert_eq!(ended(&[], false, r#"{"type":"result","result":"Fine."}"#), "done Fine.");
}

/// All that was recorded, mutated, cut, and in any order: it never panics, and remembers no more than it may.
#[test]
fn broken_lines_in_any_order_do_no_harm() {
    let recordings = [
        include_str!("../recorded/tools.jsonl"),
        include_str!("../recorded/subagent.jsonl"),
        include_str!("../recorded/interrupt.jsonl"),
        include_str!("../recorded/limited.jsonl"),
        include_str!("../recorded/retry.jsonl"),
        include_str!("../recorded/ask.jsonl"),
        include_str!("../recorded/compact.jsonl"),
    ];
    let lines: Vec<&str> = recordings.iter().flat_map(|recording| recording.lines()).collect();
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut below = |end: usize| (random.bits() % end as u64) as usize;
        let mut bench = Bench::new();
        let mut ends = 0;
        let mut prompts = 0;
        for _ in 0..150 {
            match below(12) {
                0 => {
                    prompts += 1;
                    bench.prompt();
                }
                1 => bench.tell(Instruction::Interrupt),
                2 => bench.tell(Instruction::Measure),
                _ => {
                    let mut line = lines[below(lines.len())].as_bytes().to_vec();
                    for _ in 0..below(4) {
                        let (place, other) = (below(line.len()), below(line.len()));
                        match below(4) {
                            0 => line[place] = below(256) as u8,
                            1 => line.truncate(place.max(1)),
                            2 => line[place] = b"0123456789\"{}[],:"[below(17)],
                            _ => line.swap(place, other),
                        }
                    }
                    bench.input(Input::Line(&line));
                }
            }
            ends += bench.heard.iter().filter(|heard| is_end(heard)).count();
            bench.heard.clear();
            assert!(ends <= prompts, "seed {seed}: more turns ended than were begun");
        }
        bench.input(Input::Ended(&Exit::Unknown));
        assert!(bench.claude.tools.0.is_empty() && bench.claude.turn.is_none());
    }
}

fn is_end(heard: &str) -> bool {
    ENDS.iter().any(|word| heard.starts_with(word))
}

const ENDS: [&str; 9] = [
    "done ",
    "interrupted",
    "Overflow",
    "Limited",
    "limited",
    "Overloaded",
    "Unauthorized",
    "Budget",
    "Other",
];

#[test]
fn no_more_is_remembered_than_the_bounds_say() {
    let mut bench = Bench::new();
    for number in 0..AGENT_CALLS_MAX + 500 {
        bench.line(&format!(
            r#"{{"type":"assistant","message":{{"id":"m{number}","usage":{{"input_tokens":18446744073709551615}},"content":[{{"type":"tool_use","id":"t{number}","name":"Bash","input":{{}}}}]}}}}"#
        ));
    }
    assert_eq!(bench.claude.tools.0.len(), AGENT_TOOLS_MAX);
    assert_eq!(bench.claude.meter.seen.ids.len(), AGENT_CALLS_MAX);
    assert_eq!(bench.last_of("spent"), "spent 18446744073709551615 (0) + 0");
}
