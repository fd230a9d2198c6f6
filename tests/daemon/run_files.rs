//! Which files a phase of `afresh run` answers for: those of its agent, and not what a person or a gate touched.

use afresh_tests::{Finished, TestEnv, wait_for};
use nix::sys::signal::Signal;

use crate::run::{RUN, git, repository, titles};

/// A repository with this plan and this agent, all committed.
fn with(plan: &str, agent: &str) -> TestEnv {
    let env = repository(&[]);
    env.write("PLAN.md", plan);
    env.write("agent.sh", agent);
    commit(&env, "another plan");
    env
}

fn commit(env: &TestEnv, message: &str) {
    git(env, &["add", "-A"]);
    let words = ["-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", message];
    git(env, &words);
}

fn resume(env: &TestEnv, more: &[&str]) -> Finished {
    env.run(&[&RUN[..], &["--resume"], more].concat())
}

const WRITES: &str = "cat > /dev/null; mkdir -p src; [ -e src/one ] || echo 1 > src/one; echo done";

#[test]
fn what_a_person_changes_between_two_parts_of_a_run_is_not_the_phases() {
    let plan = "# P\n\n## Phase: One\n\nWrite.\n\n- Gate: test -f src/WRONG\n- Files: src/**\n";
    let env = with(plan, WRITES);
    let failed = env.run(&[&RUN[..], &["--max-remediations", "0"]].concat());
    assert_eq!(failed.code, Some(1), "{failed:?}");
    // One change is committed, the other is not.
    env.write("README", "by a person");
    commit(&env, "a person's");
    env.write("PLAN.md", &plan.replace("WRONG", "one"));
    let resumed = resume(&env, &["--max-remediations", "0"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let kept = std::fs::read_to_string(env.work().join("PLAN.md")).expect("the plan");
    assert!(kept.contains("src/one"), "it is as the person wrote it");
    assert!(titles(&env).contains(&"afresh: what was there before `One`".to_owned()));
}

#[test]
fn what_the_agent_has_touched_is_not_forgotten_for_that() {
    let plan = "# P\n\n## Phase: One\n\nWrite.\n\n- Gates: none\n- Files: src/**\n";
    // It commits by itself.
    let agent = "cat > /dev/null; echo x > outside; git add -A; \
                 git -c user.name=a -c user.email=a@localhost commit -qm own; echo done";
    let env = with(plan, agent);
    let no_more = ["--max-remediations", "0"];
    assert_eq!(env.run(&[&RUN[..], &no_more].concat()).code, Some(1));
    env.write("README", "by a person");
    commit(&env, "a person's");
    env.write("agent.sh", WRITES);
    commit(&env, "another agent");
    let resumed = resume(&env, &no_more);
    assert_eq!(resumed.code, Some(1), "{resumed:?}");
    assert!(resumed.stdout.contains("may not be touched: `outside`"), "{resumed:?}");
}

#[test]
fn what_gates_leave_is_not_the_phases() {
    let plan = "# P\n\n## Phase: One\n\nWrite.\n\n- Gate: test -f lock || echo l > lock; test -f src/one\n\
                - Gate: test -f src/fixed || { echo r > report; false; }\n- Files: src/**\n";
    let agent = "case $(cat) in *'remediation 1'*) touch src/fixed;; *) mkdir -p src; echo 1 > src/one;; esac";
    let env = with(plan, agent);
    let run = env.run(&[&RUN[..], &["--max-remediations", "1"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(git(&env, &["status", "--porcelain"]), "");
}

#[test]
fn changes_of_a_person_after_an_orderly_stop_are_treated_as_those_at_the_start() {
    let env = repository(&["slow"]);
    let mut run = env.start(&RUN);
    wait_for("the agent works", || env.work().join("begun").exists());
    run.signal(Signal::SIGINT);
    run.wait();
    env.write("mine", "a person's");
    let refused = resume(&env, &["--dirty", "refuse"]);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("1 files are changed"), "{refused:?}");
    let resumed = resume(&env, &[]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let before = "afresh: what was there before `One`";
    assert!(titles(&env).contains(&before.to_owned()), "{:?}", titles(&env));
    assert!(!titles(&env).iter().any(|title| title.contains("LOST")), "{:?}", titles(&env));
}
