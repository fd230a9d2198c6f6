//! Runs that go on: what counts of their past, and what is not done twice.

use super::*;

fn began(name: &str, base: Option<&str>) -> Record {
    Record::PhaseBegan {
        phase: name.to_owned(),
        base: base.map(str::to_owned),
        stashes: Vec::new(),
    }
}

fn ended(name: &str, end: PhaseEnd) -> Record {
    Record::PhaseEnded { phase: name.to_owned(), end, detail: String::new() }
}

#[test]
fn what_is_done_is_not_done_again_after_the_plan_was_edited() {
    // S9
    let done = |name: &str| [began(name, None), ended(name, PhaseEnd::Done)];
    let failed = [began("C", None), ended("C", PhaseEnd::Failed)];
    let records = [done("A"), done("B"), failed].concat();
    let phases = ["A", "A2", "B", "C"].map(|name| phase(name, &[])).to_vec();
    let mut play =
        Play::of(Machine::new(plan(phases), Settings::default(), ResumeState::of(&records)));
    play.done();
    play.done();
    assert_eq!(play.finish(), Some(Finish::Done));
    let prompts = play.prompts();
    assert_eq!(prompts.len(), 2, "{prompts:?}");
    assert!(prompts[0].contains("Do A2.") && prompts[1].contains("Do C."), "{prompts:?}");
}

#[test]
fn a_handoff_outlives_a_session_that_was_broken_off() {
    // S6 S9
    let named = |attempt| Record::SessionNamed {
        attempt: Attempt(attempt),
        session: Some("s".to_owned()),
        model: None,
    };
    let after = |second: &[Record]| {
        let handoff = Some("routes are half done".to_owned());
        let (attempt, cause) = (Attempt(1), Cause::ContextLimitRestart);
        let first = Record::AttemptEnded { attempt, cause, handoff, detail: String::new() };
        let mut records = vec![began("A", None), begun(1, Kind::First), named(1), first];
        records.push(begun(2, Kind::Restart(1)));
        records.extend_from_slice(second);
        let play = resumed(vec![phase("A", &[])], Settings::default(), &records);
        play.prompts()[0].contains("routes are half done")
    };
    for cause in [Cause::Stopped, Cause::Limited, Cause::OutOfBudget] {
        assert!(after(&[named(2), over(2, cause)]), "{cause:?}");
    }
    assert!(after(&[named(2)]), "killed");
    assert!(after(&[over(2, Cause::Crashed)]), "it was never there");
    // It would send the next one back.
    assert!(!after(&[named(2), over(2, Cause::Crashed)]));
}

#[test]
fn a_phase_that_is_tried_again_answers_for_what_it_did_before() {
    let looked_since = |records: &[Record], dirty: &[&str]| {
        let machine = Machine::new(
            plan(vec![phase("A", &[])]),
            Settings::default(),
            ResumeState::of(records),
        );
        let mut play = Play { machine, now: Now::default(), all: vec![], new: vec![] };
        play.give(Input::Begin);
        play.base(dirty);
        play.answer_git();
        play.done();
        let bases = play.records(|record| match record {
            Record::PhaseBegan { base, .. } => base.clone(),
            _ => None,
        });
        let since = play.all.iter().find_map(|effect| match effect {
            Effect::Git(GitRequest::Changes { since, .. }) => since.clone(),
            _ => None,
        });
        (bases, since.unwrap_or_default())
    };
    let failed = [began("A", Some("first")), ended("A", PhaseEnd::Failed)];
    let first = (vec!["first".to_owned()], "first".to_owned());
    assert_eq!(looked_since(&failed, &[]), first);
    assert_eq!(looked_since(&failed, &["a.rs"]), first, "also what lies around");
    // What another phase did in between is not its own.
    let others = [began("Z", Some("later")), ended("Z", PhaseEnd::Done)];
    let (_, since) = looked_since(&[failed, others].concat(), &[]);
    assert_eq!(since, "base");
}

#[test]
fn what_a_lost_session_put_into_the_stash_is_known_by_what_was_there_before() {
    let stash = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (name, stashes) = ("A".to_owned(), stash(&["old", "older"]));
    let began = Record::PhaseBegan { phase: name, base: None, stashes };
    let records = [began, begun(1, Kind::First)];
    for (now, wanted) in
        [(&["new", "old", "older"][..], true), (&["old", "older"], false), (&["older"], false)]
    {
        let phases = vec![phase("A", &[])];
        let machine = Machine::new(plan(phases), Settings::default(), ResumeState::of(&records));
        let mut play = Play::of(machine);
        play.give(Input::Stash(stash(now)));
        play.answer_git();
        let prompt = play.prompts()[0].clone();
        assert_eq!(prompt.contains("`stash@{0}` holds work"), wanted, "{now:?}: {prompt}");
    }
}
