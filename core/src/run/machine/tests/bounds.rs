//! What a run and its phases may use, where it is easily forgotten.

use super::*;

fn used(input: u64, dollars: Option<f64>) -> AgentEvent {
    AgentEvent::Spent(Spent { input, cached: input, output: input, dollars, guessed: false })
}

fn stopped(play: &Play) -> String {
    match play.finish() {
        Some(Finish::Stopped { why }) => why,
        other => panic!("not stopped: {other:?}"),
    }
}

#[test]
fn what_is_used_up_stops_a_run_that_goes_on_before_it_spends() {
    // S9
    let hour = Duration::from_secs(3_600);
    let records = [
        Record::PhaseBegan { phase: "A".to_owned(), base: None, stashes: Vec::new() },
        begun(1, Kind::First),
        Record::Spent {
            attempt: Attempt(1),
            spent: Spent { input: 900, output: 100, dollars: Some(2.0), ..Spent::default() },
        },
        Record::Worked { run_ms: 3_600_000, phase_ms: 3_600_000 },
    ];
    let none = Budget::default;
    for budget in [
        Budget { dollars: Some(2.0), ..none() },
        Budget { tokens: Some(1_000), ..none() },
        Budget { time: Some(hour), ..none() },
    ] {
        let settings = Settings { budget, ..Settings::default() };
        let play = resumed(vec![phase("A", &[])], settings, &records);
        assert!(stopped(&play).contains("may"), "{budget:?}");
        assert_eq!(play.prompts().len(), 0, "{budget:?}");
    }
    let mut dear = phase("A", &[]);
    dear.tokens_max = Some(1_000);
    let play = resumed(vec![dear], Settings::default(), &records);
    assert!(stopped(&play).contains("the phase has used 1000 tokens"));
}

#[test]
fn the_time_of_a_phase_and_of_a_run_holds_for_gates() {
    // S7
    let limit = Duration::from_secs(2);
    let mut slow = phase("A", &["x", "y"]);
    slow.time_max = Some(limit);
    let mut play = Play::new(vec![slow], Settings::default());
    play.done();
    assert_eq!(play.machine.next_wakeup(play.now), Some(play.now.time + limit));
    play.pass(limit);
    assert!(play.new.contains(&Effect::EndGate));
    let Some(Finish::Failed { why }) = play.finish() else { panic!("{:?}", play.finish()) };
    assert!(why.contains("took the 2 s that it may"), "{why}");
    // The whole run stops, and what is left of its gates is not begun when it goes on.
    let budget = Budget { time: Some(limit), ..Budget::default() };
    let settings = || Settings { budget, ..Settings::default() };
    let mut play = Play::new(vec![phase("A", &["x", "y"])], settings());
    play.done();
    play.pass(limit);
    assert!(play.new.contains(&Effect::EndGate));
    assert!(stopped(&play).contains("took the 2 s that it may"));
    let records: Vec<Record> = play.records(|record| Some(record.clone()));
    let play = resumed(vec![phase("A", &["x", "y"])], settings(), &records);
    assert!(stopped(&play).contains("took the 2 s"));
    assert!(!play.all.iter().any(|effect| matches!(effect, Effect::RunGate { .. })));
}

#[test]
fn use_that_cannot_be_counted_is_as_much_as_can_be() {
    let budget = Budget { tokens: Some(1_000), ..Budget::default() };
    let mut play = Play::new(vec![phase("A", &[])], Settings { budget, ..Settings::default() });
    play.ready();
    play.hear(used(u64::MAX, None));
    play.turn(TurnEnd::Interrupted);
    play.ended();
    assert!(stopped(&play).contains("18446744073709551615 tokens"));
    let records: Vec<Record> = play.records(|record| Some(record.clone()));
    let mut play = resumed(vec![phase("A", &[])], Settings::default(), &records);
    play.ready();
    play.hear(used(u64::MAX, None));
    assert_eq!(play.machine.view().spent.tokens(), u64::MAX);
}

#[test]
fn nobody_earns_money_by_working() {
    let budget = Budget { dollars: Some(1.0), ..Budget::default() };
    for wrong in [-5.0, f64::NAN] {
        let settings = Settings { budget, ..Settings::default() };
        let mut play = Play::new(vec![phase("A", &[]), phase("B", &[])], settings);
        play.ready();
        play.hear(used(1, Some(wrong)));
        play.turn(TurnEnd::Done("done".to_owned()));
        play.ended();
        play.ready();
        play.hear(used(1, Some(1.0)));
        assert_eq!(play.told().last(), Some(&&Instruction::Interrupt), "{wrong}");
        assert_eq!(play.machine.view().spent.dollars, Some(1.0));
    }
}

#[test]
fn restarts_have_a_bound_for_all_phases_that_holds_when_the_run_goes_on() {
    // S3
    let budget = Budget { restarts: Some(1), ..Budget::default() };
    let settings = || Settings { budget, ..Settings::default() };
    let crash = |play: &mut Play| {
        play.ready();
        play.ended();
    };
    let phases = || vec![phase("A", &[]), phase("B", &[])];
    let mut play = Play::new(phases(), settings());
    crash(&mut play);
    play.done();
    crash(&mut play);
    assert!(stopped(&play).contains("restarted its agent 1 times"));
    let records: Vec<Record> = play.records(|record| Some(record.clone()));
    let play = resumed(phases(), settings(), &records);
    assert!(stopped(&play).contains("restarted its agent 1 times"));
    assert_eq!(play.prompts().len(), 0);
    // With more of them it goes on.
    let play = resumed(phases(), Settings::default(), &records);
    assert_eq!(play.prompts().len(), 1);
}

#[test]
fn silence_is_told_in_its_own_words_and_no_limit_lasts_for_ever() {
    let settings = Settings { silence_max: Duration::from_secs(2), ..Settings::default() };
    let mut play = Play::new(vec![phase("A", &[])], settings);
    play.ready();
    play.pass(Duration::from_secs(2));
    let notes = format!("{:?}", play.all);
    assert!(notes.contains("nothing was heard of the agent for 2 s"), "{notes}");
    let mut play = Play::new(vec![phase("A", &[])], Settings::default());
    play.ready();
    let failure = TurnFailure::Limited { until: Stamp::parse("9999-01-01T00:00:00Z") };
    play.turn(TurnEnd::Failed { failure, why: "usage limit".to_owned() });
    play.ended();
    play.pass(Duration::from_secs(60));
    assert_eq!(play.attempt(), Attempt(2), "it is tried after the first wait");
}

#[test]
fn an_agent_that_says_that_all_is_free_keeps_no_limit_of_cost() {
    let is_warned = |dollars_max, cost| {
        let budget = Budget { dollars: dollars_max, ..Budget::default() };
        let mut play = Play::new(vec![phase("A", &[])], Settings { budget, ..Settings::default() });
        play.ready();
        play.hear(used(10, cost));
        play.turn(TurnEnd::Done("All done.".to_owned()));
        play.ended();
        let mut notes = play.all.iter().filter_map(|effect| match effect {
            Effect::Event(RunEvent::Note(text, true)) => Some(text),
            _ => None,
        });
        notes.any(|text| text.contains("cannot be kept"))
    };
    assert!(is_warned(Some(1.0), Some(0.0)));
    assert!(!is_warned(Some(1.0), Some(0.1)) && !is_warned(None, Some(0.0)));
}
