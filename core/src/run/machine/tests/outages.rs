//! A model that refuses the login, cannot be reached or fails.

use super::*;

fn refused(why: &str) -> AgentEvent {
    let failure = TurnFailure::Unauthorized;
    AgentEvent::Retrying { attempt: 1, why: why.to_owned(), at: None, failure }
}

fn failed(failure: TurnFailure, why: &str) -> TurnEnd {
    TurnEnd::Failed { failure, why: why.to_owned() }
}

fn spent(input: u64) -> AgentEvent {
    let guessed = false;
    AgentEvent::Spent(Spent { input, cached: 0, output: 1, dollars: None, guessed })
}

fn begun() -> Play {
    let mut play = Play::new(vec![phase("A", &[])], Settings::default());
    play.ready();
    play
}

#[test]
fn two_failures_of_the_login_stop_the_run_with_the_agents_words() {
    let mut play = begun();
    play.hear(refused("authentication_failed (401)"));
    assert!(play.finish().is_none(), "a token that is being renewed is refused for a moment");
    play.hear(refused("authentication_failed (401)"));
    play.ended();
    assert_eq!(play.causes(), [Cause::Stopped]);
    let Some(Finish::Stopped { why }) = play.finish() else { panic!("{:?}", play.finish()) };
    assert!(why.contains("authentication_failed (401)"), "{why}");
}

#[test]
fn a_call_that_succeeds_between_two_failures_of_the_login_takes_the_first_back() {
    let mut play = begun();
    for input in 1..9 {
        play.hear(refused("401"));
        play.hear(spent(input));
    }
    assert!(play.finish().is_none());
    // What is no answer takes nothing back.
    play.hear(refused("401"));
    play.hear(spent(8));
    play.hear(AgentEvent::Text("Please run /login".to_owned()));
    play.hear(refused("401"));
    play.ended();
    assert_eq!(play.causes(), [Cause::Stopped]);
}

#[test]
fn a_turn_that_fails_by_its_login_is_tried_once_more_and_costs_no_restart() {
    let mut play = begun();
    play.turn(failed(TurnFailure::Unauthorized, "Invalid API key"));
    play.ended();
    assert!(play.finish().is_none());
    assert!(play.machine.view().wait.is_some_and(|wait| wait.why.contains("Invalid API key")));
    play.pass(Duration::from_secs(10));
    assert_eq!((play.attempt(), play.machine.view().restarts_in_all), (Attempt(2), 0));
    play.ready();
    play.turn(failed(TurnFailure::Unauthorized, "Invalid API key"));
    play.ended();
    let Some(Finish::Stopped { why }) = play.finish() else { panic!("{:?}", play.finish()) };
    assert!(why.contains("Invalid API key"), "{why}");
}

#[test]
fn a_model_that_cannot_be_reached_is_waited_for_and_costs_no_restart() {
    let mut play = begun();
    let hour = Duration::from_secs(3_600);
    let mut waited = Duration::ZERO;
    let mut sessions = 0;
    while play.finish().is_none() {
        play.ready();
        play.turn(failed(TurnFailure::Unreachable, "Unable to connect"));
        play.ended();
        sessions += 1;
        if let Some(wait) = play.machine.view().wait {
            let wait = wait.until.since(play.now.stamp);
            assert!(wait <= Duration::from_secs(300), "it is tried every five minutes: {wait:?}");
            waited += wait;
            play.pass(wait);
        }
    }
    assert_eq!(waited, 12 * hour);
    assert!(sessions > 12 * 12, "{sessions}");
    assert_eq!(play.machine.view().restarts_in_all, 0);
    let Some(Finish::Stopped { why }) = play.finish() else { panic!("{:?}", play.finish()) };
    assert!(why.contains("Unable to connect") && why.contains("--max-wait is 12 h"), "{why}");
}

#[test]
fn an_agent_that_only_tries_again_is_ended_and_the_model_waited_for() {
    let mut play = begun();
    let failure = TurnFailure::Unreachable;
    let again = AgentEvent::Retrying { attempt: 1, why: "refused".to_owned(), at: None, failure };
    play.hear(again.clone());
    for _ in 0..13 {
        play.pass(Duration::from_secs(10));
        play.hear(again.clone());
    }
    play.ended();
    assert_eq!(play.causes(), [Cause::Limited]);
    let wait = play.machine.view().wait.expect("it waits").until.since(play.now.stamp);
    assert_eq!(wait, Duration::from_secs(15));
}

#[test]
fn an_answer_of_the_model_gives_all_of_the_wait_back() {
    let mut play = begun();
    let fail = |play: &mut Play| {
        play.turn(failed(TurnFailure::Overloaded, "529"));
        play.ended();
        let wait = play.machine.view().wait.expect("it waits").until.since(play.now.stamp);
        play.pass(wait);
        play.ready();
        wait
    };
    let first = fail(&mut play);
    assert_eq!(fail(&mut play), 2 * first);
    play.hear(spent(10));
    assert_eq!(fail(&mut play), first);
}
