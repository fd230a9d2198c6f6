//! What becomes of a session that stops by itself.

use super::*;

/// A session that stops with these words, after it was asked to where `percent` is enough.
fn stopped(gates: &[&str], percent: u64, text: &str) -> Play {
    let mut play = Play::new(vec![phase("A", gates)], Settings::default());
    play.ready();
    play.percent(percent);
    play.turn(TurnEnd::Done(text.to_owned()));
    play.ended();
    play
}

#[test]
fn an_agent_that_stops_in_time_hands_off_itself() {
    for text in [
        "HANDOFF: the second half is missing",
        "**HANDOFF**\n\nthe second half is missing",
        "I have stopped as asked. HANDOFF: the second half is missing",
    ] {
        for gates in [&[][..], &["test"]] {
            let play = stopped(gates, 70, text);
            assert_eq!(play.causes(), [Cause::ContextLimitRestart], "{text}");
            assert!(play.prompts()[1].contains("the second half is missing"));
        }
    }
}

#[test]
fn one_that_was_never_asked_to_stop_writes_no_handoff() {
    let mut play = stopped(&["test"], 30, "HANDOFF.md is written, all done");
    assert_eq!(play.causes(), [Cause::Done]);
    play.gate(0, true);
    assert_eq!(play.finish(), Some(Finish::Done));
    assert_eq!(stopped(&[], 30, "HANDOFF: nothing").finish(), Some(Finish::Done));
}

#[test]
fn one_that_was_asked_to_stop_and_does_not_say_whether_it_is_done_is_judged_by_gates_alone() {
    let text = "The second half is not there yet.";
    let mut play = stopped(&["test"], 70, text);
    assert_eq!(play.causes(), [Cause::Done]);
    play.gate(0, true);
    assert_eq!(play.finish(), Some(Finish::Done));
    // Without a gate nobody would notice.
    let play = stopped(&[], 70, text);
    assert_eq!((play.causes(), play.finish()), (vec![Cause::ContextLimitRestart], None));
    let prompt = &play.prompts()[1];
    assert!(prompt.contains("restart 1 of 3") && prompt.contains(text), "{prompt}");
}

#[test]
fn one_that_was_asked_to_stop_can_be_done() {
    let play = stopped(&[], 70, "DONE: both halves are there.");
    assert_eq!((play.causes(), play.finish()), (vec![Cause::Done], Some(Finish::Done)));
}
