//! The whole life of a run, with an agent, a git and gates that do what the test says.

mod again;
mod bounds;
mod outages;
mod seals;
mod stops;
mod wishes;

use super::*;
use crate::agent::{AgentEvent, ContextUse, Instruction, TurnEnd, TurnFailure};
use crate::run::plan::{Gate, Phase};
use crate::run::{
    Budget, Dirty, GateEnd, GitAnswer, GitPosition, GitRequest, Kind, PhaseChanges, ResumePhase,
    UserRequest,
};
use crate::time::Stamp;

struct Play {
    machine: Machine,
    now: Now,
    /// All effects, in order.
    all: Vec<Effect>,
    /// Effects since the last look.
    new: Vec<Effect>,
}

pub(super) fn phase(name: &str, gates: &[&str]) -> Phase {
    Phase {
        name: name.to_owned(),
        task: format!("Do {name}."),
        depends_on: Vec::new(),
        gates: gates
            .iter()
            .map(|gate| Gate {
                name: (*gate).to_owned(),
                command: (*gate).to_owned(),
                time_max: None,
            })
            .collect(),
        files: Vec::new(),
        time_max: None,
        dollars_max: None,
        tokens_max: None,
    }
}

pub(super) fn plan(phases: Vec<Phase>) -> Plan {
    Plan { title: "A plan".to_owned(), preface: String::new(), phases }
}

pub(super) fn position(commit: &str) -> GitPosition {
    GitPosition { branch: Some("main".to_owned()), commit: Some(commit.to_owned()) }
}

impl Play {
    fn new(phases: Vec<Phase>, settings: Settings) -> Self {
        Self::of(Machine::new(plan(phases), settings, ResumeState::default()))
    }

    fn of(machine: Machine) -> Self {
        let stamp = Stamp::parse("2026-11-15T08:00:00Z").unwrap();
        let now = Now { time: Time::ZERO, stamp };
        let mut play = Self { machine, now, all: Vec::new(), new: Vec::new() };
        play.give(Input::Begin);
        play.base(&[]);
        play
    }

    fn give(&mut self, input: Input) {
        let effects = self.machine.handle(self.now, input);
        self.all.extend(effects.iter().cloned());
        self.new.extend(effects);
    }

    fn base(&mut self, dirty: &[&str]) {
        let dirty = dirty.iter().map(|file| (*file).to_owned()).collect();
        self.new.retain(|effect| !matches!(effect, Effect::Git(_)));
        self.give(Input::Git(GitAnswer::Base { position: position("base"), dirty }));
    }

    fn pass(&mut self, time: Duration) {
        self.now.time = self.now.time + time;
        let elapsed = Duration::from_nanos(self.now.stamp.unix_nanos() as u64) + time;
        self.now.stamp = Stamp::since_unix_epoch(elapsed);
        self.give(Input::Wakeup);
    }

    fn attempt(&self) -> Attempt {
        self.machine.last_attempt
    }

    fn hear(&mut self, heard: AgentEvent) {
        self.give(Input::Heard(self.attempt(), heard));
    }

    fn ready(&mut self) {
        self.hear(AgentEvent::Ready { session: Some("s".to_owned()), model: None });
    }

    fn percent(&mut self, percent: u64) {
        let window = Some(200_000);
        self.hear(AgentEvent::Context(ContextUse {
            used: percent * 2_000,
            window,
            compacts_at: None,
            exact: true,
        }));
    }

    fn turn(&mut self, end: TurnEnd) {
        self.hear(AgentEvent::TurnEnded(end));
    }

    /// The session is gone, and git does what it is asked.
    fn ended(&mut self) {
        self.give(Input::SessionEnded(self.attempt(), "exit code 0".to_owned()));
        self.answer_git();
    }

    fn answer_git(&mut self) {
        loop {
            let asked = self.new.drain(..).collect::<Vec<_>>();
            let Some(asked) = asked.into_iter().find_map(|effect| match effect {
                Effect::Git(ask) => Some(ask),
                _ => None,
            }) else {
                return;
            };
            self.give(Input::Git(match asked {
                GitRequest::Base(_) => {
                    GitAnswer::Base { position: position("base"), dirty: vec![] }
                }
                // Gates change nothing by themselves.
                GitRequest::Commit { message, .. } if message.ends_with("by gates") => {
                    GitAnswer::Committed(None)
                }
                GitRequest::Commit { .. } => GitAnswer::Committed(Some("c0ffee".to_owned())),
                GitRequest::Changes { .. } => GitAnswer::Changes(PhaseChanges {
                    commits: vec!["c0ffee afresh: A".to_owned()],
                    modified: vec!["src/a.rs".to_owned()],
                    ..PhaseChanges::default()
                }),
            }));
        }
    }

    fn gate(&mut self, gate: usize, passed: bool) {
        let ending = format!("exit code {}", i32::from(!passed));
        let (output, took) = ("it says why".to_owned(), Duration::from_secs(1));
        self.give(Input::GateEnded(GateEnd { gate, passed, ending, output, took }));
        self.answer_git();
    }

    /// The agent works and says that it is done.
    fn done(&mut self) {
        self.ready();
        self.turn(TurnEnd::Done("All done.".to_owned()));
        self.ended();
    }

    fn prompts(&self) -> Vec<String> {
        let prompt = |effect: &Effect| match effect {
            Effect::Open { prompt, .. } => Some(prompt.clone()),
            _ => None,
        };
        self.all.iter().filter_map(prompt).collect()
    }

    fn told(&self) -> Vec<&Instruction> {
        self.all
            .iter()
            .filter_map(|effect| match effect {
                Effect::Tell(_, told) => Some(told),
                _ => None,
            })
            .collect()
    }

    fn causes(&self) -> Vec<Cause> {
        self.records(|record| match record {
            Record::AttemptEnded { cause, .. } => Some(*cause),
            _ => None,
        })
    }

    fn records<T>(&self, wanted: impl Fn(&Record) -> Option<T>) -> Vec<T> {
        let records = self.all.iter().filter_map(|effect| match effect {
            Effect::Record(record) => Some(record),
            _ => None,
        });
        records.filter_map(wanted).collect()
    }

    fn commits(&self) -> Vec<String> {
        self.records(|record| match record {
            Record::Committed { message, .. } => Some(message.clone()),
            _ => None,
        })
    }

    fn finish(&self) -> Option<Finish> {
        self.all.iter().find_map(|effect| match effect {
            Effect::Finish(finish) => Some(finish.clone()),
            _ => None,
        })
    }
}

#[test]
fn phases_are_done_one_after_another_in_fresh_sessions() {
    // S1
    let mut play = Play::new(vec![phase("A", &["test"]), phase("B", &[])], Settings::default());
    play.done();
    play.gate(0, true);
    assert_eq!(play.attempt(), Attempt(2), "the next phase has a session of its own");
    play.done();
    assert_eq!(play.finish(), Some(Finish::Done));
    let prompts = play.prompts();
    assert!(prompts[0].contains("Do A.") && prompts[0].contains("`test`"), "{}", prompts[0]);
    assert!(prompts[1].contains("Do B.") && !prompts[1].contains("Checkpoint"), "{}", prompts[1]);
    assert_eq!(play.commits(), ["afresh: A", "afresh: B", "afresh: B, done"]);
}

#[test]
fn a_full_context_is_steered_interrupted_handed_off_and_begun_afresh() {
    // S2 S3 S4 S5 S6
    let mut play = Play::new(vec![phase("A", &["test"])], Settings::default());
    play.ready();
    play.percent(64);
    assert_eq!(play.told().len(), 1, "only the prompt");
    play.percent(66);
    play.percent(70);
    assert!(matches!(play.told()[1..], [Instruction::Steer(_)]), "asked once: {:?}", play.told());
    play.percent(81);
    assert_eq!(play.told()[2], &Instruction::Interrupt);
    play.turn(TurnEnd::Interrupted);
    assert!(matches!(play.told()[3], Instruction::Prompt(text) if text.contains("handoff")));
    play.percent(95);
    play.turn(TurnEnd::Done("Routes are half done.".to_owned()));
    play.ended();
    assert_eq!(play.causes(), [Cause::ContextLimitRestart]);
    assert_eq!(play.causes()[0].to_string(), "CONTEXT_LIMIT_RESTART");
    assert_eq!(play.commits(), ["afresh: A, unfinished (CONTEXT_LIMIT_RESTART)"]);
    let prompt = play.prompts()[1].clone();
    for wanted in ["restart 1 of 3", "Routes are half done.", "- src/a.rs", "\n---\n", "Do A."] {
        assert!(prompt.contains(wanted), "no `{wanted}`: {prompt}");
    }
    // A fresh meter: nothing of the old session counts.
    play.ready();
    play.percent(50);
    assert_eq!(play.told().len(), 5);
    play.turn(TurnEnd::Done("done".to_owned()));
    play.ended();
    play.gate(0, true);
    assert_eq!(play.finish(), Some(Finish::Done));
}

#[test]
fn after_the_last_restart_the_phase_fails_and_says_so() {
    // S3
    let mut play = Play::new(vec![phase("A", &[])], Settings::default());
    for _ in 0..4 {
        play.ready();
        play.percent(90);
        play.turn(TurnEnd::Interrupted);
        play.turn(TurnEnd::Done("more to do".to_owned()));
        play.ended();
    }
    let Some(Finish::Failed { why }) = play.finish() else { panic!("{:?}", play.finish()) };
    assert!(why.contains("phase `A` failed") && why.contains("restarted 3 times"), "{why}");
    assert_eq!(play.attempt(), Attempt(4));
}

#[test]
fn without_restarts_nothing_is_ended_for_its_context() {
    // S3
    let settings = Settings { max_restarts: 0, ..Settings::default() };
    let mut play = Play::new(vec![phase("A", &[])], settings);
    play.ready();
    play.percent(99);
    assert_eq!(play.told().len(), 1);
}

#[test]
fn red_gates_are_mended_by_attempts_that_are_not_restarted() {
    // S7
    let mut play = Play::new(vec![phase("A", &["fmt", "test"])], Settings::default());
    play.done();
    play.gate(0, true);
    play.gate(1, false);
    let prompt = play.prompts()[1].clone();
    assert!(prompt.contains("remediation 1") && prompt.contains("it says why"), "{prompt}");
    // Its context is full: the gates say whether it was enough.
    play.ready();
    play.percent(90);
    play.turn(TurnEnd::Interrupted);
    play.turn(TurnEnd::Done("nearly".to_owned()));
    play.ended();
    play.gate(0, true);
    play.gate(1, false);
    for _ in 0..2 {
        play.done();
        play.gate(0, true);
        play.gate(1, false);
    }
    let Some(Finish::Failed { why }) = play.finish() else { panic!("{:?}", play.finish()) };
    assert!(why.contains("after 3 remediations these gates still fail: test"), "{why}");
    assert_eq!(play.machine.view().restarts_in_all, 0);
}

#[test]
fn files_that_may_not_be_touched_are_a_gate() {
    let mut play = Play::new(vec![phase("A", &[])], Settings::default());
    play.ready();
    play.turn(TurnEnd::Done("done".to_owned()));
    play.give(Input::SessionEnded(play.attempt(), String::new()));
    play.give(Input::Git(GitAnswer::Committed(None)));
    let outside = vec!["secret.txt".to_owned()];
    play.give(Input::Git(GitAnswer::Changes(PhaseChanges { outside, ..PhaseChanges::default() })));
    play.give(Input::Git(GitAnswer::Committed(None)));
    assert!(play.prompts()[1].contains("secret.txt"), "{:?}", play.prompts());
}

#[test]
fn an_agent_that_does_not_answer_an_interrupt_is_ended() {
    let mut play = Play::new(vec![phase("A", &[])], Settings::default());
    play.ready();
    play.hear(AgentEvent::Text("I have read the code.".to_owned()));
    play.percent(90);
    play.pass(Duration::from_secs(16));
    assert!(play.new.contains(&Effect::End(Attempt(1))));
    play.ended();
    assert!(play.prompts()[1].contains("I have read the code."), "{:?}", play.prompts());
}

#[test]
fn an_agent_whose_model_speaks_is_not_silent() {
    let mut play = Play::new(vec![phase("A", &[])], Settings::default());
    play.ready();
    for _ in 0..10 {
        play.pass(Duration::from_secs(14 * 60));
        play.give(Input::Streaming(play.attempt()));
    }
    assert_eq!(play.machine.view().doing, "working");
    play.give(Input::Streaming(Attempt(7)));
    play.pass(Duration::from_secs(15 * 60));
    assert_eq!(play.machine.view().doing, "interrupting");
}

#[test]
fn a_session_begins_when_the_delay_is_over() {
    // S9
    let delay = Duration::from_secs(60);
    let settings = Settings { restart_delay: delay, ..Settings::default() };
    let mut play = Play::new(vec![phase("A", &[])], settings);
    play.ready();
    play.percent(90);
    play.turn(TurnEnd::Interrupted);
    play.turn(TurnEnd::Done("half".to_owned()));
    play.ended();
    assert_eq!(play.machine.next_wakeup(play.now), Some(play.now.time + delay));
    play.pass(delay - Duration::from_millis(1));
    assert_eq!((play.attempt(), play.machine.view().doing), (Attempt(1), "restarting"));
    play.pass(Duration::from_millis(1));
    assert_eq!(play.attempt(), Attempt(2));
}

#[test]
fn an_agent_that_hears_nothing_is_ended_and_begun_afresh_at_once() {
    // S2 S3
    let settings = Settings { context_window: Some(1_000), ..Settings::default() };
    let mut play = Play::new(vec![phase("A", &[])], settings);
    play.ready();
    play.hear(AgentEvent::Deaf);
    let guess = |used| ContextUse { used, window: None, compacts_at: None, exact: false };
    play.hear(AgentEvent::Context(guess(700)));
    // It is let finish what it does.
    play.give(Input::User(UserRequest::Pause));
    assert_eq!(play.machine.view().doing, "pausing");
    play.hear(AgentEvent::Context(guess(800)));
    assert!(matches!(play.told()[..], [Instruction::Prompt(_)]), "nothing more: {:?}", play.told());
    assert!(play.new.contains(&Effect::End(Attempt(1))));
    play.ended();
    assert_eq!((play.attempt(), play.machine.view().doing), (Attempt(1), "paused"));
    play.give(Input::User(UserRequest::Resume));
    assert_eq!((play.causes(), play.attempt()), (vec![Cause::ContextLimitRestart], Attempt(2)));
}

#[test]
fn work_that_cannot_be_committed_stops_the_run() {
    // S6
    let mut play = Play::new(vec![phase("A", &[]), phase("B", &[])], Settings::default());
    play.ready();
    play.turn(TurnEnd::Done("done".to_owned()));
    play.give(Input::SessionEnded(play.attempt(), String::new()));
    play.give(Input::Git(GitAnswer::Failed("locked".to_owned())));
    let stopped =
        |finish| matches!(finish, Some(Finish::Stopped { why }) if why.contains("locked"));
    assert!(stopped(play.finish()), "{:?}", play.finish());
}

#[test]
fn silence_crashes_and_failures_are_restarts_and_told_apart() {
    // S5
    let mut play = Play::new(vec![phase("A", &[])], Settings::default());
    play.ready();
    play.pass(Duration::from_secs(15 * 60));
    play.pass(Duration::from_secs(15));
    play.ended();
    play.ready();
    play.ended();
    play.ready();
    play.turn(TurnEnd::Failed { failure: TurnFailure::Overflow, why: "too long".to_owned() });
    play.ended();
    assert_eq!(play.causes(), [Cause::Stalled, Cause::Crashed, Cause::Overflow]);
    assert_eq!(play.machine.view().restarts, 3);
}

#[test]
fn a_limit_is_waited_for_and_costs_no_restart() {
    let mut play = Play::new(vec![phase("A", &[])], Settings::default());
    play.ready();
    let until = Stamp::parse("2026-11-15T09:00:00Z");
    let failure = TurnFailure::Limited { until };
    play.turn(TurnEnd::Failed { failure, why: "usage limit".to_owned() });
    play.ended();
    assert_eq!(play.machine.view().doing, "waiting for a limit to end");
    play.pass(Duration::from_secs(3600));
    assert_eq!(play.attempt(), Attempt(1));
    play.pass(Duration::from_secs(2));
    assert_eq!((play.attempt(), play.machine.view().restarts_in_all), (Attempt(2), 0));
    // Without a time the waits grow.
    for minutes in [1, 2, 4] {
        play.ready();
        play.turn(TurnEnd::Failed { failure: TurnFailure::Overloaded, why: "529".to_owned() });
        play.ended();
        let before = play.attempt();
        let waits = 2 * 60 * minutes;
        play.pass(Duration::from_secs(waits - 1));
        assert_eq!(play.attempt(), before);
        play.pass(Duration::from_secs(1));
        assert_eq!(play.attempt().0, before.0 + 1);
    }
}

#[test]
fn budgets_end_the_run_so_that_it_can_be_resumed() {
    let budget = Budget { dollars: Some(1.0), ..Budget::default() };
    let mut play = Play::new(vec![phase("A", &[])], Settings { budget, ..Settings::default() });
    play.ready();
    let spent = Spent { input: 10, cached: 0, output: 5, dollars: Some(1.5), guessed: false };
    play.hear(AgentEvent::Spent(spent));
    assert_eq!(play.told()[1], &Instruction::Interrupt);
    play.turn(TurnEnd::Interrupted);
    play.ended();
    assert!(matches!(play.finish(), Some(Finish::Stopped { why }) if why.contains("$1.50")));
    assert_eq!(play.causes(), [Cause::OutOfBudget]);
    let mut slow = phase("A", &[]);
    slow.time_max = Some(Duration::from_secs(60));
    let mut play = Play::new(vec![slow], Settings::default());
    play.ready();
    play.pass(Duration::from_secs(61));
    play.ended();
    assert_eq!(play.causes(), [Cause::TimedOut]);
    assert!(matches!(play.finish(), Some(Finish::Failed { .. })));
}

#[test]
fn a_dirty_tree_is_committed_apart_or_refused_and_without_git_nothing_begins() {
    let start = |settings: Settings| {
        let machine = Machine::new(plan(vec![phase("A", &[])]), settings, ResumeState::default());
        let mut play = Play { machine, now: Now::default(), all: vec![], new: vec![] };
        play.give(Input::Begin);
        play
    };
    let mut play = start(Settings::default());
    play.base(&["a.rs"]);
    play.answer_git();
    assert_eq!(play.commits(), ["afresh: what was there before `A`"]);
    assert_eq!(play.attempt(), Attempt(1));
    let mut play = start(Settings { dirty: Dirty::Refuse, ..Settings::default() });
    play.base(&["a.rs"]);
    assert!(matches!(play.finish(), Some(Finish::Refused { .. })));
    let none = || Input::Git(GitAnswer::NoRepository("no repository here".to_owned()));
    let mut play = start(Settings::default());
    play.give(none());
    assert!(
        matches!(play.finish(), Some(Finish::Refused { hint, .. }) if hint.contains("--no-git"))
    );
    let mut play = start(Settings { without_git: true, ..Settings::default() });
    play.give(none());
    play.done();
    assert_eq!(play.finish(), Some(Finish::Done));
    // Where there is a repository, it is left alone all the same.
    let mut play = start(Settings { without_git: true, ..Settings::default() });
    play.base(&["a.rs"]);
    play.done();
    assert_eq!((play.finish(), play.commits().len()), (Some(Finish::Done), 0));
}

#[test]
fn commits_can_be_without_a_prefix() {
    let settings = Settings { commit_prefix: String::new(), ..Settings::default() };
    let mut play = Play::new(vec![phase("A", &[])], settings);
    play.done();
    assert_eq!(play.commits(), ["A", "A, done"]);
}

#[test]
fn people_can_pause_steer_restart_skip_and_stop() {
    let mut play = Play::new(vec![phase("A", &[]), phase("B", &[])], Settings::default());
    play.ready();
    play.give(Input::User(UserRequest::Steer("use tabs".to_owned())));
    assert_eq!(play.told()[1], &Instruction::Steer("use tabs".to_owned()));
    play.give(Input::User(UserRequest::Pause));
    play.turn(TurnEnd::Interrupted);
    play.pass(Duration::from_secs(100_000));
    assert_eq!(play.machine.view().doing, "paused");
    play.give(Input::User(UserRequest::Resume));
    assert_eq!(play.machine.view().doing, "working");
    play.give(Input::User(UserRequest::Restart));
    play.turn(TurnEnd::Interrupted);
    play.turn(TurnEnd::Done("so far".to_owned()));
    play.ended();
    assert_eq!((play.attempt(), play.machine.view().restarts_in_all), (Attempt(2), 0));
    play.ready();
    play.give(Input::User(UserRequest::Skip(0)));
    play.ended();
    assert_eq!(play.machine.view().current, 1);
    play.ready();
    play.give(Input::User(UserRequest::Stop));
    play.ended();
    assert!(matches!(play.finish(), Some(Finish::Stopped { .. })));
    assert!(play.machine.is_over());
}

#[test]
fn a_run_goes_on_where_it_was_and_does_nothing_twice() {
    // S9
    let progress = vec!["half of it".to_owned()];
    let begun = ResumePhase { name: "B".to_owned(), progress, ..ResumePhase::default() };
    let past = ResumeState {
        over: vec![("A".to_owned(), PhaseEnd::Done)],
        last_attempt: Attempt(3),
        restarts: 1,
        phase: Some(begun),
        ..ResumeState::default()
    };
    let phases = vec![phase("A", &[]), phase("B", &[])];
    let mut play = Play::of(Machine::new(plan(phases), Settings::default(), past));
    play.answer_git();
    assert_eq!(play.attempt(), Attempt(4));
    let prompt = play.prompts()[0].clone();
    assert!(prompt.contains("Phase: B (resumed)") && prompt.contains("half of it"), "{prompt}");
    assert_eq!(play.commits(), ["afresh: B, unfinished (LOST)"]);
    play.done();
    assert_eq!(play.finish(), Some(Finish::Done));
}

/// A run that goes on after all that these records tell.
fn resumed(phases: Vec<Phase>, settings: Settings, records: &[Record]) -> Play {
    let mut play = Play::of(Machine::new(plan(phases), settings, ResumeState::of(records)));
    play.answer_git();
    play
}

fn begun(attempt: u32, kind: Kind) -> Record {
    Record::AttemptBegan { attempt: Attempt(attempt), phase: "A".to_owned(), kind }
}

fn over(attempt: u32, cause: Cause) -> Record {
    let (attempt, detail) = (Attempt(attempt), String::new());
    Record::AttemptEnded { attempt, cause, handoff: None, detail }
}

fn gate_failed(gate: &str) -> Record {
    Record::GateEnded {
        phase: "A".to_owned(),
        gate: gate.to_owned(),
        passed: false,
        ending: "exit code 1".to_owned(),
        output: "before".to_owned(),
        took_ms: 1,
    }
}

#[test]
fn a_run_that_was_stopped_under_its_gates_begins_with_them() {
    // S7 S9
    let base = Record::PhaseBegan { phase: "A".to_owned(), base: None, stashes: Vec::new() };
    let phases = || vec![phase("A", &["x", "y"])];
    let done = [base.clone(), begun(1, Kind::First), over(1, Cause::Done), gate_failed("x")];
    let mut play = resumed(phases(), Settings::default(), &done);
    assert_eq!((play.commits(), play.prompts().len()), (vec!["afresh: A".to_owned()], 0));
    play.gate(0, true);
    play.gate(1, false);
    let prompt = play.prompts()[0].clone();
    assert!(prompt.contains("remediation 1") && prompt.contains("`y`"), "{prompt}");
    assert!(!prompt.contains("`x`:"), "it is green now: {prompt}");
    // A remediation is over whatever it ended for.
    let full = Cause::ContextLimitRestart;
    let records = [base, begun(1, Kind::Remediation(2)), over(1, full)];
    let mut play = resumed(phases(), Settings::default(), &records);
    assert_eq!(play.prompts().len(), 0);
    play.gate(0, true);
    play.gate(1, true);
    assert_eq!(play.finish(), Some(Finish::Done));
}

#[test]
fn a_remediation_that_was_lost_or_begun_anew_stays_one() {
    // S7
    let base = Record::PhaseBegan { phase: "A".to_owned(), base: None, stashes: Vec::new() };
    let lost = [base, gate_failed("x"), begun(2, Kind::Remediation(1))];
    let mut play = resumed(vec![phase("A", &["x"])], Settings::default(), &lost);
    let prompt = play.prompts()[0].clone();
    assert!(prompt.contains("remediation 1") && prompt.contains("before"), "{prompt}");
    play.ready();
    play.give(Input::User(UserRequest::Restart));
    play.turn(TurnEnd::Interrupted);
    play.turn(TurnEnd::Done("half".to_owned()));
    play.ended();
    assert!(play.prompts()[1].contains("remediation 1"), "{}", play.prompts()[1]);
    // Also where it is not waited for.
    let delay = Settings { restart_delay: Duration::from_secs(60), ..Settings::default() };
    let mut play = Play::new(vec![phase("A", &["x"])], delay);
    play.done();
    play.gate(0, false);
    play.give(Input::User(UserRequest::Restart));
    assert!(play.prompts()[1].contains("remediation 1"), "{}", play.prompts()[1]);
}

#[test]
fn the_time_that_was_worked_before_counts() {
    // S9
    let hour = Duration::from_secs(3_600);
    let budget = Budget { time: Some(hour), ..Budget::default() };
    let settings = || Settings { budget, silence_max: 9 * hour, ..Settings::default() };
    let mut slow = phase("A", &[]);
    slow.time_max = Some(2 * hour);
    let mut play = Play::new(vec![slow.clone()], settings());
    play.ready();
    // Killed after a while in which nothing was heard: most of it is on record, as somebody had woken up for it.
    for _ in 0..40 {
        let next = play.machine.next_wakeup(play.now).unwrap();
        let most = Duration::from_secs(30);
        assert!(next.since(play.now.time) <= most, "it is noted at least so often");
        play.pass(most);
        play.hear(AgentEvent::Text("word".to_owned()));
    }
    let records: Vec<Record> = play.records(|record| Some(record.clone()));
    let past = ResumeState::of(&records);
    assert_eq!(past.worked, Duration::from_secs(1_200));
    let mut play = resumed(vec![slow.clone()], settings(), &records);
    play.ready();
    play.pass(hour - Duration::from_secs(1_201));
    assert_eq!(play.causes(), []);
    play.pass(Duration::from_secs(1));
    play.ended();
    assert_eq!(play.causes(), [Cause::OutOfBudget]);
    // It holds for the phase, too, and the time without afresh costs nothing.
    slow.time_max = Some(Duration::from_secs(1_230));
    let mut play = resumed(vec![slow], Settings::default(), &records);
    play.ready();
    play.pass(Duration::from_secs(30));
    play.ended();
    assert_eq!(play.causes(), [Cause::TimedOut]);
}

/// Whatever comes in whatever order: one session at a time, each ended once, everything committed before the
/// next one, and the run ends when everybody does what they should.
#[test]
fn random_histories_keep_one_session_and_come_to_an_end() {
    for seed in 0..2_000 {
        history(seed);
    }
}

fn history(seed: u64) {
    let mut random = crate::random::Random::new(seed);
    let phases = vec![phase("A", &["x", "y"]), phase("B", &[]), phase("C", &["z"])];
    let mut play = Play::new(phases, Settings::default());
    let mut open: Option<Attempt> = None;
    for round in 0..400 {
        if play.machine.is_over() {
            break;
        }
        for effect in std::mem::take(&mut play.new) {
            match effect {
                Effect::Open { attempt, .. } => {
                    assert_eq!(open, None, "seed {seed}: two sessions at once");
                    open = Some(attempt);
                }
                Effect::Git(GitRequest::Base(_)) => play.base(&[]),
                Effect::Git(GitRequest::Commit { .. }) => {
                    assert_eq!(open, None, "seed {seed}: committed under a session");
                    let answer = match random.bits() % 4 {
                        0 => GitAnswer::Failed("locked".to_owned()),
                        1 => GitAnswer::Committed(None),
                        _ => GitAnswer::Committed(Some("c".to_owned())),
                    };
                    play.give(Input::Git(answer));
                }
                Effect::Git(GitRequest::Changes { .. }) => {
                    play.give(Input::Git(GitAnswer::Changes(PhaseChanges::default())));
                }
                Effect::RunGate { gate, .. } => {
                    // In the end all is well.
                    let passed = !random.bits().is_multiple_of(3) || round > 200;
                    let (ending, output) = (String::new(), String::new());
                    let took = Duration::ZERO;
                    play.give(Input::GateEnded(GateEnd { gate, passed, ending, output, took }));
                }
                Effect::End(attempt) if open.take_if(|open| *open == attempt).is_some() => {
                    play.give(Input::SessionEnded(attempt, "killed".to_owned()));
                }
                _ => {}
            }
        }
        let heard = match random.bits() % 14 {
            0 | 1 => AgentEvent::Ready { session: None, model: None },
            2..5 => AgentEvent::Context(ContextUse {
                used: random.bits() % 220_000,
                window: Some(200_000),
                compacts_at: None,
                exact: true,
            }),
            5 => AgentEvent::Text("word".to_owned()),
            6 => AgentEvent::TurnEnded(TurnEnd::Interrupted),
            7 | 8 => AgentEvent::TurnEnded(TurnEnd::Done("HANDOFF done".repeat(round % 2))),
            9 => AgentEvent::TurnEnded(TurnEnd::Failed {
                failure: [TurnFailure::Overflow, TurnFailure::Unreachable, TurnFailure::Other]
                    [round % 3],
                why: "why".to_owned(),
            }),
            10 => AgentEvent::Compacted,
            11 => {
                let failure = [TurnFailure::Overloaded, TurnFailure::Unauthorized][round % 2];
                AgentEvent::Retrying { attempt: 3, why: "503".to_owned(), at: None, failure }
            }
            12 => AgentEvent::ToolBegan { id: "1".into(), name: "t".into(), detail: String::new() },
            _ => {
                if let Some(attempt) = open.take_if(|_| round.is_multiple_of(5)) {
                    play.give(Input::SessionEnded(attempt, "died".to_owned()));
                }
                play.pass(Duration::from_secs(random.bits() % 2_000));
                continue;
            }
        };
        // Late words of older sessions come too.
        let late = u32::from(random.bits().is_multiple_of(8));
        let attempt = Attempt(play.attempt().0.saturating_sub(late));
        play.give(Input::Heard(attempt, heard));
    }
    let wants = play.machine.next_wakeup(play.now);
    assert!(play.machine.is_over() || wants.is_some() || !play.new.is_empty() || open.is_some());
    let opened = play.all.iter().filter(|e| matches!(e, Effect::Open { .. })).count();
    assert!(opened <= 3 * (1 + 3 + 3) + 60, "seed {seed}: {opened} sessions");
}
