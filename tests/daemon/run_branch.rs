//! `afresh run` with agents that leave the branch, or take commits from it: nothing that was done gets lost, and nothing
//! is called done that is not there.

use afresh_tests::{Finished, TestEnv};

use crate::run::{RUN, git};

const PLAN: &str = "# A plan\n\n## Phase: One\n\nWrite one.txt.\n\n- Gates: none\n\n\
                    ## Phase: Two\n\nWrite two.txt.\n\n- Gates: none\n";

/// A repository whose agent does this in the second phase, before it does its work.
fn repository(evil: &str) -> TestEnv {
    let env = TestEnv::new();
    env.write("PLAN.md", PLAN);
    env.write(
        "agent.sh",
        &format!(
            "prompt=$(cat)\ncase $prompt in\n    *'## One'*) echo 1 > one.txt ;;\n    \
             *'## Two'*) [ -e tame ] || {{ {evil}; touch tame; }}; echo 2 > two.txt ;;\nesac\n"
        ),
    );
    env.write(".gitignore", "tame\n");
    git(&env, &["init", "-q", "-b", "main"]);
    git(&env, &["config", "user.name", "t"]);
    git(&env, &["config", "user.email", "t@localhost"]);
    git(&env, &["config", "core.editor", "true"]);
    git(&env, &["add", "-A"]);
    git(&env, &["commit", "-qm", "the plan"]);
    env
}

fn run(env: &TestEnv, more: &[&str]) -> Finished {
    env.run(&[&RUN[..], more].concat())
}

/// A shell in the repository, as the user's.
fn sh(env: &TestEnv, script: &str) {
    let mut command = std::process::Command::new("sh");
    env.furnish(&mut command);
    let done = command.args(["-ec", script]).output().expect("there is a shell");
    assert!(done.status.success(), "{script}: {done:?}");
}

/// What is in the branch of the run, and in `main`.
fn titles(env: &TestEnv, branch: &str) -> Vec<String> {
    let log = git(env, &["log", "--reverse", "--format=%s", branch, "--"]);
    log.lines().map(str::to_owned).collect()
}

#[test]
fn an_agent_that_leaves_the_branch_or_takes_commits_from_it_stops_the_run() {
    let cases = [
        (
            "git checkout -q main",
            "HEAD went from the branch `afresh/x` to `main`",
            "git switch afresh/x",
        ),
        (
            "git checkout -q --detach; git commit -q --allow-empty -m own",
            "HEAD has left the branch `afresh/x`",
            "git switch afresh/x && git merge ",
        ),
        (
            "git switch -qc other; git commit -q --allow-empty -m own",
            "HEAD went from the branch `afresh/x` to `other`",
            "git switch afresh/x && git merge other",
        ),
        (
            "git checkout -q --orphan other",
            "HEAD went from the branch `afresh/x` to `other`",
            "git switch afresh/x",
        ),
        ("git branch -m other", "the branch `afresh/x` is gone", "git switch -c afresh/x"),
        ("git bisect start HEAD HEAD~1", "a bisection is not finished here", "git bisect reset"),
        (
            "git commit -q --allow-empty -m own; git rebase HEAD~1 --exec false || true",
            "a rebase is not finished here",
            "git rebase --continue",
        ),
        ("git reset -q --hard HEAD~1", "is not in the branch `afresh/x`", "git merge "),
        (
            "git reset -q --hard HEAD~1; git commit -q --allow-empty -m own",
            "is not in the branch `afresh/x`",
            "git merge ",
        ),
    ];
    for (evil, reason, mend) in cases {
        let env = repository(evil);
        let stopped = run(&env, &["--branch", "afresh/x"]);
        assert_eq!(stopped.code, Some(1), "{evil}: {stopped:?}");
        assert!(stopped.stderr.contains(reason), "{evil}: {stopped:?}");
        let begin = stopped
            .stderr
            .find(&format!("`{mend}"))
            .unwrap_or_else(|| panic!("{evil}: {stopped:?}"));
        let command = stopped.stderr[begin + 1..].split('`').next().expect("a command");
        assert_eq!(titles(&env, "main"), ["the plan"], "{evil}");
        // What it says mends it.
        sh(&env, command);
        let resumed = run(&env, &["--resume"]);
        assert_eq!(resumed.code, Some(0), "{evil}: {resumed:?}");
        assert_eq!(git(&env, &["show", "afresh/x:one.txt"]), "1\n", "{evil}");
        assert_eq!(git(&env, &["show", "afresh/x:two.txt"]), "2\n", "{evil}");
        env.assert_nothing_left();
    }
}

#[test]
fn a_repository_that_was_replaced_stops_the_run() {
    let env = repository("rm -rf .git; git init -q -b afresh/x");
    let stopped = run(&env, &["--branch", "afresh/x"]);
    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    assert!(stopped.stderr.contains("is not in this repository any more"), "{stopped:?}");
    let resumed = run(&env, &["--resume"]);
    assert_eq!(resumed.code, Some(5), "{resumed:?}");
    assert!(resumed.stderr.contains("is not in this repository any more"), "{resumed:?}");
}

#[test]
fn what_an_agent_commits_or_amends_itself_is_taken() {
    let own = "git commit -q --allow-empty -m own; git commit -q --amend --allow-empty -m better";
    let amended = "echo more > more.txt; git add more.txt; git commit -q --amend -m mine; \
                   git commit -q --amend -m really";
    for (evil, notes) in [(own, 0), (amended, 1)] {
        let env = repository(evil);
        let done = run(&env, &["--branch", "afresh/x"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let noted = format!("{}{}", done.stdout, done.stderr).matches("was amended").count();
        assert_eq!(noted, notes, "{done:?}");
        assert_eq!(git(&env, &["show", "afresh/x:one.txt"]), "1\n");
        assert_eq!(git(&env, &["show", "afresh/x:two.txt"]), "2\n");
    }
}

/// Two branches with different words in one file.
const DIVERGE: &str = "git switch -qc other; echo theirs > both; git add both; git commit -qm theirs; \
                       git switch -q main; echo ours > both; git add both; git commit -qm ours";

#[test]
fn what_is_not_finished_is_told_how_to_finish_and_not_how_to_lose_the_work() {
    let stash = "echo 0 > both; git add both; git commit -qm 0; echo theirs > both; git stash -q; \
                 echo ours > both; git commit -qam ours; git stash pop -q";
    let twice = "git switch -q other; echo more > more; git add more; git commit -qm more; git switch -q main";
    for (evil, end) in [
        (
            format!("{DIVERGE}; echo more > both; git commit -qam more; git revert HEAD~1"),
            "git revert --continue",
        ),
        (format!("{DIVERGE}; git cherry-pick other"), "git cherry-pick --continue"),
        (
            format!("{DIVERGE}; {twice}; git cherry-pick other~1 other"),
            "git cherry-pick --continue",
        ),
        (format!("{DIVERGE}; git rebase other"), "git rebase --continue"),
        (format!("{DIVERGE}; git format-patch -1 --stdout other | git am"), "git am --continue"),
        (format!("{DIVERGE}; git merge -q other"), "git commit"),
        (stash.to_owned(), "git add"),
    ] {
        let env = repository(&format!("{evil}; echo precious > work; git add work"));
        let stopped = run(&env, &[]);
        assert_eq!(stopped.code, Some(1), "{evil}: {stopped:?}");
        let refused = run(&env, &["--resume"]);
        assert_eq!(refused.code, Some(5), "{evil}: {refused:?}");
        for said in [&stopped.stderr, &refused.stderr] {
            assert!(said.contains(&format!("`{end}`")), "{evil}: {said}");
            assert!(!said.contains("--abort"), "{evil}: {said}");
        }
        sh(&env, &format!("echo both > both; git add both; {end}"));
        let resumed = run(&env, &["--resume"]);
        assert_eq!(resumed.code, Some(0), "{evil}: {resumed:?}");
        assert_eq!(git(&env, &["show", "HEAD:work"]), "precious\n", "{evil}");
        assert_eq!(git(&env, &["show", "HEAD:both"]), "both\n", "{evil}");
    }
}

#[test]
fn what_the_next_commit_concludes_does_not_stop_the_run() {
    let resolve = "{ echo both > both; git add both; }";
    for evil in [
        "git commit -q --allow-empty -m own; git revert --no-commit HEAD~1".to_owned(),
        format!("{DIVERGE}; git revert --no-commit HEAD HEAD~1"),
        format!(
            "{DIVERGE}; git rm -q both; git commit -qm gone; git cherry-pick --no-commit other"
        ),
        format!("{DIVERGE}; git cherry-pick other || {resolve}"),
        // It is empty.
        format!("{DIVERGE}; git cherry-pick -X theirs other; git cherry-pick other"),
    ] {
        let env = repository(&format!("{evil}; echo precious > work; git add work"));
        let done = run(&env, &[]);
        assert_eq!(done.code, Some(0), "{evil}: {done:?}");
        assert_eq!(git(&env, &["show", "HEAD:work"]), "precious\n", "{evil}");
        let heads = ["CHERRY_PICK_HEAD", "REVERT_HEAD"];
        assert!(!heads.iter().any(|name| env.work().join(".git").join(name).exists()), "{evil}");
        assert_eq!(git(&env, &["status", "--porcelain"]), "", "{evil}");
    }
}

#[test]
fn conflicts_are_never_committed_and_merges_that_are_resolved_are() {
    let stash = "echo 0 > both; git add both; git commit -qm 0; echo theirs > both; git stash -q; \
                 echo ours > both; git commit -qam ours";
    for evil in [
        format!("{DIVERGE}; git merge -q other || true"),
        format!(
            "{DIVERGE}; git config diff.relative true; mkdir -p d; cd d; git merge -q other || cd .."
        ),
        format!("{stash}; git stash pop -q || true"),
    ] {
        let env = repository(&evil);
        let stopped = run(&env, &[]);
        assert_eq!(stopped.code, Some(1), "{evil}: {stopped:?}");
        assert!(stopped.stderr.contains("there are conflicts in `both`"), "{evil}: {stopped:?}");
        assert!(git(&env, &["show", "HEAD:both"]) == "ours\n", "{evil}");
        // Nothing is better before somebody has looked at it.
        assert_eq!(run(&env, &["--resume"]).code, Some(5), "{evil}");
        sh(&env, "echo both > both; git add both; git commit -qm both");
        let resumed = run(&env, &["--resume"]);
        assert_eq!(resumed.code, Some(0), "{evil}: {resumed:?}");
        assert_eq!(git(&env, &["show", "HEAD:both"]), "both\n", "{evil}");
    }
    for end in [
        "git merge -q other || { echo both > both; git add both; }",
        "git merge -qs ours --no-commit other",
    ] {
        let env = repository(&format!("{DIVERGE}; {end}"));
        let done = run(&env, &[]);
        assert_eq!(done.code, Some(0), "{end}: {done:?}");
        assert_eq!(git(&env, &["log", "--format=%s", "--merges"]), "afresh: Two\n", "{end}");
        assert!(!git(&env, &["show", "HEAD:both"]).contains('<'), "{end}");
    }
}

#[test]
fn work_that_a_session_puts_into_the_stash_is_told_of() {
    let held = "`stash@{0}` holds work of a session before";
    let noted = "work was put into the stash, and is in no commit: `stash@{0}`";
    // Each prompt is kept where no stash finds it. The second session takes back what the first has put away.
    let put = "printf '%s' \"$prompt\" > .git/prompt; echo precious > work; git stash -uq";
    let broken = format!(
        "if [ -e .git/prompt ]; then printf '%s' \"$prompt\" > .git/next; git stash pop -q; else {put}; exit 1; fi"
    );
    for (evil, is_broken) in [(broken, true), (put.to_owned(), false)] {
        let env = repository(&evil);
        // One of the user's is nobody's affair.
        sh(&env, "echo old > old; git stash -uq");
        let done = run(&env, &["--restart-delay", "0s"]);
        assert_eq!(done.code, Some(0), "{evil}: {done:?}");
        let said = format!("{}{}", done.stdout, done.stderr);
        assert_eq!(said.matches(noted).count(), 1, "{evil}: {said}");
        let read = |name: &str| std::fs::read_to_string(env.work().join(".git").join(name));
        assert!(!read("prompt").expect("a prompt").contains("stash"), "{evil}");
        if is_broken {
            let next = read("next").expect("a prompt");
            assert!(next.contains(held) && next.contains("All other work so far"), "{next}");
            assert_eq!(git(&env, &["show", "HEAD:work"]), "precious\n");
        }
        let left = git(&env, &["stash", "list"]).lines().count();
        assert_eq!(left, if is_broken { 1 } else { 2 }, "{evil}");
    }
}

#[test]
fn a_worktree_inside_of_the_repository_is_left_out_and_told_of() {
    let env = repository("git worktree add -q .wt -b side; echo 3 > .wt/three.txt");
    let done = run(&env, &["--dirty", "refuse"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let said = format!("{}{}", done.stdout, done.stderr);
    let wanted =
        "a worktree of this repository is here, and its files are in no commit of the run: `.wt/`";
    assert_eq!(said.matches(wanted).count(), 1, "{said}");
    assert_eq!(git(&env, &["ls-tree", "--name-only", "HEAD", ".wt", "two.txt"]), "two.txt\n");
    assert!(env.work().join(".wt/three.txt").exists());
}

#[test]
fn a_run_goes_on_only_on_its_branch_with_its_commits() {
    let env = repository("exit 1");
    let failed = run(&env, &["--branch", "afresh/x", "--max-restarts", "0"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    sh(&env, "touch tame; git switch -q main");
    let refused = run(&env, &["--resume"]);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("`git switch afresh/x`"), "{refused:?}");
    assert_eq!(titles(&env, "main"), ["the plan"]);
    // A branch that does not have what was done is no better.
    let refused = run(&env, &["--resume", "--branch", "another"]);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("is not in the branch `another`"), "{refused:?}");
    let done = run(&env, &["--resume", "--branch", "afresh/x"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(titles(&env, "afresh/x"), ["the plan", "afresh: One", "afresh: Two"]);
}
