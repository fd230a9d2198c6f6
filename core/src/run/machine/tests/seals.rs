//! Gates that change files.

use super::*;

/// A phase whose gates have passed once, and have changed something.
fn changed(files: &[&str]) -> Play {
    let mut wanted = phase("A", &["test", "fmt"]);
    wanted.files = files.iter().map(|file| (*file).to_owned()).collect();
    let mut play = Play::new(vec![wanted], Settings::default());
    play.done();
    play.gate(0, true);
    give_gate(&mut play, 1);
    commit(&mut play);
    assert_eq!(play.commits().last().unwrap(), "afresh: A, changed by gates");
    assert_eq!(play.finish(), None);
    play
}

/// A gate is green, and git has not answered yet.
fn give_gate(play: &mut Play, gate: usize) {
    let (ending, output, took) = (String::new(), String::new(), Duration::ZERO);
    play.give(Input::GateEnded(GateEnd { gate, passed: true, ending, output, took }));
}

/// There is something to commit.
fn commit(play: &mut Play) {
    play.new.clear();
    play.give(Input::Git(GitAnswer::Committed(Some("c0ffee".to_owned()))));
}

fn gates_run(play: &Play) -> usize {
    play.all.iter().filter(|effect| matches!(effect, Effect::RunGate { .. })).count()
}

#[test]
fn gates_that_change_files_are_run_once_more() {
    let mut play = changed(&[]);
    play.answer_git();
    play.gate(0, true);
    give_gate(&mut play, 1);
    // What they change again is accepted.
    commit(&mut play);
    assert_eq!((play.finish(), gates_run(&play)), (Some(Finish::Done), 4));
    assert_eq!(play.commits().last().unwrap(), "afresh: A, done");
}

#[test]
fn what_gates_have_broken_is_mended_and_looked_at_as_often_again() {
    let mut play = changed(&[]);
    play.answer_git();
    play.gate(0, false);
    play.gate(1, true);
    assert!(play.prompts()[1].contains("remediation 1"), "{}", play.prompts()[1]);
    play.done();
    play.gate(0, true);
    give_gate(&mut play, 1);
    commit(&mut play);
    assert_eq!(play.finish(), None);
    play.answer_git();
    play.gate(0, true);
    play.gate(1, true);
    assert_eq!((play.finish(), gates_run(&play)), (Some(Finish::Done), 8));
}

#[test]
fn files_are_looked_at_again_in_the_second_round() {
    let mut play = changed(&["src/**"]);
    play.new.clear();
    let outside = vec!["elsewhere".to_owned()];
    play.give(Input::Git(GitAnswer::Changes(PhaseChanges { outside, ..PhaseChanges::default() })));
    play.gate(0, true);
    play.gate(1, true);
    assert!(play.prompts()[1].contains("elsewhere"), "{}", play.prompts()[1]);
}
