//! `afresh run` in repositories that are not as they should be: no work is lost, and nothing ends up elsewhere.

use std::process::Command;

use afresh_tests::TestEnv;

use crate::run::{RUN, git, repository, titles};

const NAME: [&str; 4] = ["-c", "user.name=t", "-c", "user.email=t@localhost"];

fn commit(env: &TestEnv, message: &str) {
    git(env, &["add", "-A"]);
    git(env, &[&NAME[..], &["commit", "-qm", message]].concat());
}

fn resume(env: &TestEnv) {
    let resumed = env.run(&[&RUN[..], &["--resume"]].concat());
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert_eq!(git(env, &["status", "--porcelain"]), "");
}

#[test]
fn work_that_cannot_be_committed_stops_the_run_until_it_can() {
    // S6
    let env = repository(&[]);
    let lock = env.work().join(".git/index.lock");
    env.write(
        "agent.sh",
        "cat > /dev/null\necho 1 > one.txt\ntouch fixed.txt two.txt .git/index.lock\n",
    );
    commit(&env, "an agent that leaves a lock");
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(
        run.stderr.contains("cannot be committed: git add: fatal: Unable to create"),
        "{run:?}"
    );
    assert!(!run.stdout.contains("done: One"), "{run:?}");
    std::fs::remove_file(&lock).unwrap();
    // The next one leaves none.
    env.write("agent.sh", "cat > /dev/null\ntouch more.txt\n");
    resume(&env);
    assert!(git(&env, &["show", "HEAD:one.txt"]).contains('1'));
    env.assert_nothing_left();
}

#[test]
fn a_repository_in_the_middle_of_something_is_left_alone() {
    let env = repository(&[]);
    env.write("both", "one\n");
    commit(&env, "one");
    git(&env, &["switch", "-qc", "other", "HEAD~1"]);
    env.write("both", "two\n");
    commit(&env, "two");
    let mut merge = Command::new("git");
    env.furnish(&mut merge);
    let merged = merge.args(NAME).args(["merge", "main"]).output().unwrap();
    assert!(!merged.status.success(), "it is a conflict");
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(5), "{run:?}");
    assert!(run.stderr.contains("a merge is not finished here"), "{run:?}");
    assert_eq!(titles(&env).len(), 2);
    git(&env, &["merge", "--abort"]);
    git(&env, &["switch", "-q", "--detach"]);
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(5), "{run:?}");
    assert!(run.stderr.contains("--branch NAME"), "{run:?}");
    let run = env.run(&[&RUN[..], &["--branch", "afresh/plan"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[test]
fn what_was_staged_or_renamed_is_kept_and_no_hook_is_run() {
    let env = repository(&[]);
    env.write("aaé.txt", "a name of more bytes than letters\n");
    env.write("twice", "first\n");
    commit(&env, "files");
    git(&env, &["mv", "aaé.txt", "b.txt"]);
    env.write("twice", "staged\n");
    git(&env, &["add", "twice"]);
    env.write("twice", "in the file\n");
    for hook in ["prepare-commit-msg", "post-commit", "pre-commit"] {
        let hook = env.write(&format!(".git/hooks/{hook}"), "#!/bin/sh\ntouch hooked\nexit 1\n");
        let mut executable = Command::new("chmod");
        assert!(executable.arg("+x").arg(hook).status().unwrap().success());
    }
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(0), "{run:?}");
    let before = "afresh: what was there before `One`";
    let staged = format!("{before} (as it was staged)");
    assert_eq!(titles(&env)[2..4], [staged.as_str(), before]);
    let commits = git(&env, &["log", "--reverse", "--format=%h"]);
    let staged = commits.lines().nth(2).unwrap();
    assert_eq!(git(&env, &["show", &format!("{staged}:twice")]), "staged\n");
    assert!(env.work().join("b.txt").exists() && !env.work().join("hooked").exists());
}
