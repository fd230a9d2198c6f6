//! Gates of a run, as far as they are more than passed or failed.

use std::fs;

use afresh_tests::TestEnv;

use crate::run::{RUN, repository, titles};

/// A repository with a plan of one phase.
fn with_gates(lines: &str) -> TestEnv {
    let env = repository(&[]);
    env.write("PLAN.md", &format!("# A plan\n\n## Phase: One\n\nWrite one.txt.\n\n{lines}"));
    env
}

#[test]
fn a_gate_that_changes_files_does_not_undo_what_another_has_seen() {
    let env = with_gates("- Gate: test -f one.txt\n- Gate: rm -f one.txt\n");
    let run = env.run(&[&RUN[..], &["--max-remediations", "0"]].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stdout.contains("gate failed: test -f one.txt"), "{}", run.stdout);
    assert_eq!(titles(&env)[2..], ["afresh: One", "afresh: One, changed by gates"]);
    // A formatter is content the second time.
    let env = with_gates("- Gate: test -f one.txt\n- Gate: echo 2 > one.txt\n");
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.stdout.matches("gate passed").count(), 4, "{}", run.stdout);
    assert_eq!(titles(&env)[2..], ["afresh: One", "afresh: One, changed by gates"]);
    assert_eq!(fs::read_to_string(env.work().join("one.txt")).unwrap(), "2\n");
    // One that never is does not keep a run for ever.
    let env = with_gates("- Gate: echo 2 >> one.txt\n");
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(0), "{run:?}");
    let wanted = ["afresh: One", "afresh: One, changed by gates", "afresh: One, done"];
    assert_eq!(titles(&env)[2..], wanted);
}

#[test]
fn what_a_gate_changes_has_to_be_a_file_of_the_phase() {
    let env = with_gates("- Gate: test -f one.txt\n- Gate: touch elsewhere\n- Files: one.txt\n");
    let run = env.run(&[&RUN[..], &["--max-remediations", "0"]].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("files of the phase"), "{}", run.stderr);
}
