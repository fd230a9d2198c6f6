//! What people want of a run at any moment, and what they are shown.

use super::*;

/// Asks, and says what is done then.
fn asked(play: &mut Play, asked: UserRequest) -> &'static str {
    play.give(Input::User(asked));
    play.machine.view().doing
}

#[test]
fn a_pause_holds_up_whatever_comes_next() {
    let phases = || vec![phase("A", &["one", "two"]), phase("B", &[])];
    // While the agent starts: it is interrupted at once, and goes on later.
    let mut play = Play::new(phases(), Settings::default());
    assert_eq!(asked(&mut play, UserRequest::Pause), "pausing");
    play.ready();
    play.turn(TurnEnd::Interrupted);
    assert_eq!(play.machine.view().doing, "paused");
    assert_eq!(asked(&mut play, UserRequest::Resume), "working");
    // While it ends by itself: its work is committed, and no gate is run.
    asked(&mut play, UserRequest::Pause);
    play.turn(TurnEnd::Done("All done.".to_owned()));
    play.ended();
    assert_eq!((play.machine.view().doing, play.causes()), ("paused", vec![Cause::Done]));
    assert!(!play.all.iter().any(|effect| matches!(effect, Effect::RunGate { .. })));
    assert_eq!(asked(&mut play, UserRequest::Resume), "running gates");
    // While a gate is run: that one ends.
    assert_eq!(asked(&mut play, UserRequest::Pause), "pausing");
    play.gate(0, true);
    assert_eq!(play.machine.view().doing, "paused");
    play.pass(Duration::from_secs(100_000));
    asked(&mut play, UserRequest::Resume);
    // Somebody can change their mind before anything was held up.
    asked(&mut play, UserRequest::Pause);
    assert_eq!(asked(&mut play, UserRequest::Resume), "running gates");
    asked(&mut play, UserRequest::Pause);
    play.gate(1, true);
    assert_eq!((play.machine.view().doing, play.attempt()), ("paused", Attempt(1)));
    // What is held up can be skipped, and stays held up in the next phase.
    assert_eq!(play.machine.view().current, 1);
    asked(&mut play, UserRequest::Skip(1));
    assert_eq!(play.finish(), Some(skipped("1 of 2 phases done, 1 skipped")));
}

fn skipped(why: &str) -> Finish {
    Finish::Skipped { why: why.to_owned() }
}

#[test]
fn a_phase_that_was_skipped_is_not_done_and_can_be_taken_up_again() {
    let phases = || {
        let mut last = phase("C", &[]);
        last.depends_on = vec!["A".to_owned(), "B".to_owned()];
        vec![phase("A", &[]), phase("B", &[]), last]
    };
    let mut play = Play::new(phases(), Settings::default());
    asked(&mut play, UserRequest::Skip(0));
    play.ended();
    play.done();
    let warned = RunEvent::Note("it depends on what was skipped: `A`".to_owned(), true);
    assert_eq!(play.all.iter().filter(|e| **e == Effect::Event(warned.clone())).count(), 1);
    assert!(!play.prompts()[2].contains("skipped"), "the person has decided");
    // Stopped before the end, it stays skipped.
    let over = |records: &[Record]| ResumeState::of(records).over.len();
    assert_eq!(over(&play.records(|record| Some(record.clone()))), 2);
    play.done();
    assert_eq!(play.finish(), Some(skipped("2 of 3 phases done, 1 skipped")));
    let records = play.records(|record| Some(record.clone()));
    assert_eq!(over(&records), 2);
    let mut play =
        Play::of(Machine::new(plan(phases()), Settings::default(), ResumeState::of(&records)));
    assert!(play.prompts()[0].contains("Do A."));
    play.done();
    assert_eq!((play.finish(), play.prompts().len()), (Some(Finish::Done), 1));
}

#[test]
fn what_is_wanted_while_old_changes_are_committed_comes_before_the_first_session() {
    for (wish, opened) in [(UserRequest::Stop, 0), (UserRequest::Skip(0), 1)] {
        let phases = vec![phase("A", &[]), phase("B", &[])];
        let machine = Machine::new(plan(phases), Settings::default(), ResumeState::default());
        let mut play = Play { machine, now: Now::default(), all: vec![], new: vec![] };
        play.give(Input::Begin);
        play.base(&["a.rs"]);
        assert!(matches!(play.machine.step, Step::Tidying));
        play.give(Input::User(wish));
        play.answer_git();
        assert_eq!(play.prompts().len(), opened);
        assert!(play.prompts().iter().all(|prompt| prompt.contains("Do B.")));
    }
}

#[test]
fn only_the_phase_that_somebody_saw_is_skipped() {
    let mut play = Play::new(vec![phase("A", &[]), phase("B", &[])], Settings::default());
    // It was done before anybody could skip it: its last commit is being made…
    play.ready();
    play.turn(TurnEnd::Done("All done.".to_owned()));
    play.give(Input::SessionEnded(play.attempt(), String::new()));
    play.give(Input::Git(GitAnswer::Committed(None)));
    play.give(Input::Git(GitAnswer::Changes(PhaseChanges::default())));
    assert!(matches!(play.machine.step, Step::Sealing));
    asked(&mut play, UserRequest::Skip(0));
    play.give(Input::Git(GitAnswer::Committed(None)));
    play.base(&[]);
    assert_eq!((play.machine.view().current, play.attempt()), (1, Attempt(2)));
    // …or the next one was there when they said yes.
    assert_eq!(asked(&mut play, UserRequest::Skip(0)), "starting the agent");
    let is_late = |effect: &&Effect| matches!(effect, Effect::Event(RunEvent::Note(text, _)) if text.contains("nothing is skipped"));
    assert_eq!(play.all.iter().filter(is_late).count(), 2);
    play.done();
    assert_eq!(play.finish(), Some(Finish::Done));
}

#[test]
fn a_stop_outweighs_a_skip_whichever_came_first() {
    let (stop, skip) = (UserRequest::Stop, UserRequest::Skip(0));
    for wishes in [[stop.clone(), skip.clone()], [skip, stop]] {
        let mut play = Play::new(vec![phase("A", &[]), phase("B", &[])], Settings::default());
        play.ready();
        play.turn(TurnEnd::Done("All done.".to_owned()));
        play.give(Input::SessionEnded(play.attempt(), String::new()));
        play.give(Input::Git(GitAnswer::Committed(None)));
        play.give(Input::Git(GitAnswer::Changes(PhaseChanges::default())));
        // The last commit of the phase is made first.
        wishes.into_iter().for_each(|wish| play.give(Input::User(wish)));
        assert_eq!(play.machine.state(), State::Stopping);
        play.give(Input::Git(GitAnswer::Committed(None)));
        play.base(&[]);
        assert!(matches!(play.finish(), Some(Finish::Stopped { .. })), "{:?}", play.finish());
    }
}

#[test]
fn a_pause_ends_once() {
    let mut play = Play::new(vec![phase("A", &[])], Settings::default());
    play.ready();
    for wish in [UserRequest::Pause, UserRequest::Resume, UserRequest::Resume] {
        asked(&mut play, wish);
    }
    let note = RunEvent::Note("that is not possible now: nothing is paused".to_owned(), false);
    assert_eq!(play.all.iter().filter(|e| **e == Effect::Event(note.clone())).count(), 1);
}

#[test]
fn a_pause_that_is_taken_back_before_the_agent_heard_it_lets_it_go_on() {
    let mut play = Play::new(vec![phase("A", &[])], Settings::default());
    play.ready();
    asked(&mut play, UserRequest::Pause);
    asked(&mut play, UserRequest::Resume);
    play.turn(TurnEnd::Interrupted);
    assert_eq!(play.machine.view().doing, "working");
    assert!(
        matches!(play.told()[..], [_, Instruction::Interrupt, Instruction::Prompt(_)]),
        "{:?}",
        play.told()
    );
}

#[test]
fn what_is_said_to_one_that_rests_lets_it_go_on() {
    let mut play = Play::new(vec![phase("A", &[])], Settings::default());
    play.ready();
    asked(&mut play, UserRequest::Pause);
    play.turn(TurnEnd::Interrupted);
    assert_eq!(asked(&mut play, UserRequest::Steer("use tabs".to_owned())), "working");
    assert_eq!(play.told().last(), Some(&&Instruction::Prompt("use tabs".to_owned())));
    assert!(!play.machine.view().paused);
}

#[test]
fn a_restart_is_possible_while_nobody_works() {
    // At rest, the agent is asked for its handoff at once.
    let mut play = Play::new(vec![phase("A", &["one"])], Settings::default());
    play.ready();
    asked(&mut play, UserRequest::Pause);
    play.turn(TurnEnd::Interrupted);
    assert_eq!(asked(&mut play, UserRequest::Restart), "handing off");
    play.turn(TurnEnd::Done("so far".to_owned()));
    play.ended();
    assert_eq!((play.attempt(), play.machine.view().paused), (Attempt(2), false));
    // A wait ends, and a remediation stays one.
    play.done();
    play.gate(0, false);
    play.ready();
    let failure = TurnFailure::Limited { until: None };
    play.turn(TurnEnd::Failed { failure, why: "too much".to_owned() });
    play.ended();
    let view = play.machine.view();
    assert_eq!(view.doing, "waiting for a limit to end");
    let wait = view.wait.expect("it waits");
    assert_eq!(wait.until.since(play.now.stamp), Duration::from_secs(60));
    assert!(wait.is_limit && wait.why == "too much", "{wait:?}");
    assert_eq!(asked(&mut play, UserRequest::Restart), "starting the agent");
    assert_eq!(play.machine.view().kind, Some(Kind::Remediation(1)));
}

#[test]
fn a_screen_is_told_of_everything_that_it_shows() {
    let mut play = Play::new(vec![phase("A", &["one", "two"])], Settings::default());
    let view = play.machine.view();
    assert_eq!((view.doing, view.soft, view.hard), ("starting the agent", Some(65.0), Some(80.0)));
    let moved = |play: &mut Play| {
        let moved = play.new.contains(&Effect::Event(RunEvent::Moved));
        play.new.clear();
        moved
    };
    assert!(moved(&mut play));
    play.hear(AgentEvent::Ready { session: None, model: Some("large".to_owned()) });
    assert!(moved(&mut play), "it works now");
    let began = |id: &str| AgentEvent::ToolBegan {
        id: id.to_owned(),
        name: format!("tool {id}"),
        detail: String::new(),
    };
    play.hear(began("1"));
    play.hear(began("2"));
    let tool = |play: &Play| play.machine.view().tool.map(|(name, _)| name);
    assert_eq!(tool(&play).as_deref(), Some("tool 2"));
    assert!(!moved(&mut play), "the tool itself was told");
    play.hear(AgentEvent::ToolEnded { id: "2".to_owned(), succeeded: true });
    assert_eq!((tool(&play).as_deref(), moved(&mut play)), (Some("tool 1"), true));
    play.turn(TurnEnd::Done("All done.".to_owned()));
    play.ended();
    let running = GateState::Running(play.now.stamp);
    assert_eq!(play.machine.view().gates, [running, GateState::Waiting]);
    play.gate(0, false);
    let failed = GateState::Failed(Duration::from_secs(1));
    assert_eq!(play.machine.view().gates, [failed, running]);
    play.pass(Duration::from_secs(5));
    let view = play.machine.view();
    assert_eq!((view.worked, view.counts), (Duration::from_secs(5), true));
    assert_eq!(view.model.as_deref(), Some("large"));
    let never = Settings { max_restarts: 0, ..Settings::default() };
    assert_eq!(Play::new(vec![phase("A", &[])], never).machine.view().hard, None);
}
