//! Gates of a run, as far as they are more than passed or failed.

use std::fs;

use afresh_tests::TestEnv;

use crate::run::{RUN, records, repository, titles};

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
fn why_a_gate_failed_is_seen() {
    let gate = "seq 30; printf '\\033[31mred\\033[0m \\033]0;x\\007\\n\\n1 %%\\r2 %%\\n' >&2; echo $MY_TOKEN; false";
    let env = with_gates(&format!("- Gate (noisy): {gate}\n"));
    let mut run = env.afresh(&[&RUN[..], &["--max-remediations", "0"]].concat());
    run.env("MY_TOKEN", "a-secret-of-mine-42");
    let run = run.output().unwrap();
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    let stdout = String::from_utf8_lossy(&run.stdout).into_owned();
    let (_, below) = stdout.split_once("gate failed: noisy").expect("it failed");
    let lines: Vec<&str> =
        below.lines().skip(1).take_while(|line| line.starts_with("    ")).collect();
    let wanted = ["24", "25", "26", "27", "28", "29", "30", "[redacted]", "red ␛]0;x␇", "2 %"];
    assert_eq!(lines, wanted.map(|line| format!("    {line}")), "{stdout}");
    let shown = env.run(&["runs", "show"]).stdout;
    for line in wanted {
        assert!(shown.contains(&format!("\n            {line}\n")), "no `{line}`:\n{shown}");
    }
}

#[test]
fn a_time_that_is_over_ends_the_gate_that_runs() {
    let gate = "- Gate: touch begun; sleep 30\n- Gate: touch second\n";
    // That of the phase lets it fail…
    let env = with_gates(&format!("{gate}- Time limit: 2s\n"));
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("phase `One` failed: phase `One` took the 2 s"), "{}", run.stderr);
    let files = |env: &TestEnv| ["begun", "second"].map(|name| env.work().join(name).exists());
    assert_eq!((files(&env), records(&env, "gate_ended").len()), ([true, false], 0));
    env.assert_nothing_left();
    // …and that of the run stops it: it goes on where there is more of it.
    let env = with_gates(gate);
    let run = env.run(&[&RUN[..], &["--max-time", "2s"]].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("has stopped: the run took the 2 s"), "{}", run.stderr);
    assert_eq!((files(&env), records(&env, "gate_ended").len()), ([true, false], 0));
    env.assert_nothing_left();
}

#[test]
fn the_agent_is_told_what_a_gate_printed_but_no_keys() {
    let key = format!("ghp_{}", "0123456789".repeat(4));
    let gate =
        "- Gate: echo \"expected token: foo1, key $A_KEY of $MY_TOKEN\"; test -f fixed.txt\n";
    let env = with_gates(gate);
    // The second session is told why the gate failed.
    env.write("agent.sh", "cat > prompt.$(ls prompt.* 2>/dev/null | wc -l); touch one.txt; [ -e prompt.1 ] && touch fixed.txt; exit 0\n");
    let mut run = env.afresh(&RUN);
    run.env("A_KEY", &key).env("MY_TOKEN", "a-secret-of-mine-42");
    let run = run.output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let prompt = fs::read_to_string(env.work().join("prompt.1")).unwrap();
    assert!(prompt.contains("expected token: foo1, key [redacted] of [redacted]"), "{prompt}");
    // On screen and in the log of the session it is redacted as everything there.
    let stdout = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(stdout.contains("expected token: [redacted]"), "{stdout}");
    let logs = env.work().join(".afresh/runs/1");
    for entry in fs::read_dir(logs).unwrap() {
        let log = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!log.contains("foo1"), "{log}");
        for line in log.lines() {
            assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
        }
    }
}
