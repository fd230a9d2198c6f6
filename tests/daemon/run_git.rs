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
    let mut pick = Command::new("git");
    env.furnish(&mut pick);
    let picked = pick.args(NAME).args(["cherry-pick", "main"]).output().unwrap();
    assert!(!picked.status.success(), "it is a conflict");
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(5), "{run:?}");
    // Nothing is lost here that a run has done: both ways are named.
    for way in ["`git cherry-pick --continue`", "`git cherry-pick --abort`"] {
        assert!(run.stderr.contains(way), "{run:?}");
    }
    git(&env, &["cherry-pick", "--abort"]);
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

/// What the last commit of all has.
fn committed(env: &TestEnv) -> Vec<String> {
    let names = git(env, &["ls-tree", "-r", "-z", "--full-tree", "--name-only", "HEAD"]);
    names.split_terminator('\0').map(str::to_owned).collect()
}

/// A repository whose agent does this, in the folder that it is run in; the plan is there, too.
fn scripted(folder: &str, script: &str) -> TestEnv {
    let env = TestEnv::new();
    std::fs::create_dir_all(env.work().join(folder)).expect("a folder");
    let plan = "# A plan\n\n## Phase: One\n\nWork.\n\n- Gates: none\n";
    env.write(&format!("{folder}/PLAN.md"), plan);
    env.write(&format!("{folder}/agent.sh"), &format!("cat > /dev/null\n{script}\n"));
    git(&env, &["init", "-q", "-b", "main"]);
    commit(&env, "the plan");
    env
}

fn run_in(env: &TestEnv, folder: &str, more: &[&str]) -> std::process::Output {
    let mut command = env.afresh(&[&RUN[..], more].concat());
    command.current_dir(env.work().join(folder)).output().expect("it runs")
}

#[test]
fn what_is_excluded_is_in_no_commit_whoever_has_staged_it() {
    let script = "mkdir -p d/e n out/deep keep\n\
                  touch x.key d/e/x.key .env n/.env one.txt d/one.txt out/a out/deep/b keep/out ':odd' \
                  \"$(printf 'new\\nline.key')\" ':(top)odd.key' work\n\
                  echo 2 > old.key; rm gone.key; git mv moved.key moved.txt";
    let excludes = ["*.key", ".env", "/one.txt", "out/", ":odd"]
        .map(|pattern| ["--exclude", pattern])
        .concat();
    for stage in ["", "; git add -A", "; git add -A; echo 3 > old.key; echo 3 > d/e/x.key"] {
        let env = scripted(".", &format!("{script}{stage}"));
        ["old.key", "gone.key", "moved.key"].iter().for_each(|name| drop(env.write(name, "1\n")));
        commit(&env, "keys");
        let run = env.run(&[&RUN[..], &excludes].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        let wanted = [
            "PLAN.md",
            "agent.sh",
            "d/one.txt",
            "gone.key",
            "keep/out",
            "moved.key",
            "moved.txt",
            "old.key",
            "work",
        ];
        assert_eq!(committed(&env), wanted, "{stage}");
        assert_eq!(git(&env, &["show", "HEAD:old.key"]), "1\n", "{stage}");
        assert!(env.work().join("d/e/x.key").exists() && !env.work().join("gone.key").exists());
        let notes = run.stderr.matches("what is excluded was staged").count()
            + run.stdout.matches("what is excluded was staged").count();
        assert_eq!(notes, 1, "`git mv` stages, and it is said once: {run:?}");
        let log = git(&env, &["log", "--all", "--name-only", "--format="]);
        assert!(!log.contains("x.key") && !log.contains(".env"), "{stage}: {log}");
    }
}

#[test]
fn what_is_excluded_counts_from_the_folder_of_the_run_and_from_the_workspace() {
    let script = "mkdir -p s ../s; touch s/x ../s/x ../y y s/work";
    let env = scripted("[sub]", script);
    env.write("[sub]/afresh.toml", "[run]\nexclude = [\"/s/x\", \"/y\"]\n");
    commit(&env, "a workspace below");
    let run = run_in(&env, "[sub]", &[]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let wanted =
        ["[sub]/PLAN.md", "[sub]/afresh.toml", "[sub]/agent.sh", "[sub]/s/work", "s/x", "y"];
    assert_eq!(committed(&env), wanted);

    let env = scripted("sub", script);
    env.write("afresh.toml", "[run]\nexclude = [\"/s/x\", \"/y\"]\n");
    commit(&env, "a workspace above");
    let run = run_in(&env, "sub", &[]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    assert_eq!(committed(&env), ["afresh.toml", "sub/PLAN.md", "sub/agent.sh", "sub/s/work"]);
}

#[test]
fn patterns_that_match_nothing_are_a_mistake() {
    let env = scripted(".", "");
    for (pattern, code, wanted) in [
        ("", 2, "the pattern is empty"),
        ("../x", 3, "the pattern `../x` of `exclude` leads out of the folder"),
        ("[", 3, "has a `[` without its `]`"),
        ("!x", 3, "would take something in again"),
    ] {
        let run = env.run(&[&RUN[..], &["--exclude", pattern]].concat());
        assert_eq!(run.code, Some(code), "{pattern}: {run:?}");
        assert!(run.stderr.contains(wanted), "{pattern}: {run:?}");
    }
}

const FILES: &str =
    "# A plan\n\n## Phase: One\n\nWork.\n\n- Gates: none\n- Files: src/**, docs/, {x,y}.txt\n";

#[test]
fn files_that_nobody_can_look_at_are_a_gate_that_failed_or_a_warning() {
    let script = "tree=$(git rev-parse HEAD^{tree}); touch outside; git add -A\n\
                  git -c user.name=t -c user.email=t@localhost commit -qm own\n\
                  rm -f \".git/objects/$(echo $tree | cut -c-2)/$(echo $tree | cut -c3-)\"";
    let env = scripted(".", script);
    env.write("PLAN.md", FILES);
    commit(&env, "files");
    let run = env.run(&[&RUN[..], &["--max-remediations", "0"]].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    let wanted =
        "gate failed: files of the phase (git cannot say which were touched: git diff: fatal:";
    assert!(run.stdout.contains(wanted), "{run:?}");

    for more in [&["--no-git"][..], &["--no-git", "--dry-run"]] {
        let run = env.run(&[&RUN[..], more].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stderr.contains("the `Files:` of the plan are not checked"), "{run:?}");
    }
    let run = env.run(&[&RUN[..], &["--dry-run"]].concat());
    assert!(!run.stderr.contains("not checked"), "{run:?}");
}

#[test]
fn files_of_a_phase_count_from_the_folder_of_the_run_and_others_are_named() {
    let inside = "mkdir -p src/deep docs; touch src/deep/a docs/b y.txt";
    let other = "touch ../src/c; for n in 1 2 3 4 5 6; do touch \"n$n\"; done";
    for (script, code) in [(inside.to_owned(), 0), (format!("{inside}\n{other}"), 1)] {
        let env = scripted("[sub]", &script);
        std::fs::create_dir(env.work().join("src")).expect("a folder");
        env.write("[sub]/PLAN.md", FILES);
        commit(&env, "files");
        git(&env, &["config", "diff.relative", "true"]);
        let run = run_in(&env, "[sub]", &["--max-remediations", "0"]);
        assert_eq!(run.status.code(), Some(code), "{run:?}");
        let show = env.run(&["runs", "show"]).stdout;
        let lines = format!("{}{show}", String::from_utf8_lossy(&run.stdout));
        let wanted = match code {
            0 => "gate passed: files of the phase",
            _ => {
                "gate failed: files of the phase (may not be touched: `[sub]/n1`, `[sub]/n2`, `[sub]/n3`, \
                  `[sub]/n4`, `[sub]/n5` and 2 more"
            }
        };
        assert_eq!(lines.matches(wanted).count(), 2, "{lines}");
    }
}

#[test]
fn a_repository_inside_of_another_does_not_stop_the_run_and_is_told_of() {
    let name = "-c user.name=t -c user.email=t@localhost";
    let nested = format!(
        "git init -q bare; touch bare/a; mkdir deep; git init -q 'deep/ba re'; git init -q full; touch full/a; \
         git -C full add a; git {name} -C full commit -qm a; touch work"
    );
    let env = scripted(".", &nested);
    let run = env.run(&[&RUN[..], &["--dirty", "refuse"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(committed(&env), ["PLAN.md", "agent.sh", "full", "work"]);
    let said = format!("{}{}", run.stdout, run.stderr);
    for wanted in [
        "(it has no commit): `bare/`, `deep/ba re/`",
        "(only the commit it is on is kept): `full/`",
    ] {
        assert_eq!(said.matches(wanted).count(), 1, "{wanted}: {said}");
    }
}

#[test]
fn a_sparse_checkout_has_its_new_files_committed_and_loses_none() {
    let env = scripted(".", "mkdir out; touch out/new in/new");
    ["in", "out"]
        .iter()
        .for_each(|name| std::fs::create_dir(env.work().join(name)).expect("a folder"));
    ["in/a", "out/b"].iter().for_each(|name| drop(env.write(name, "1\n")));
    commit(&env, "two folders");
    git(&env, &["sparse-checkout", "set", "in"]);
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(committed(&env), ["PLAN.md", "agent.sh", "in/a", "in/new", "out/b", "out/new"]);
}

#[test]
fn neither_ends_of_lines_nor_what_comments_begin_with_stop_a_run() {
    let env = scripted(".", "printf 'a\\r\\nb\\n' > mixed");
    for setting in
        [["core.autocrlf", "input"], ["core.safecrlf", "true"], ["commit.cleanup", "strip"]]
    {
        git(&env, &["config", setting[0], setting[1]]);
    }
    let run = env.run(&[&RUN[..], &["--commit-prefix", "#"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(titles(&env)[1..], ["# One"]);
}

#[test]
fn what_a_merge_brings_is_not_taken_out_of_it() {
    let env =
        scripted(".", "git merge -q --no-commit --no-ff other; echo mine > own.key; git add -A");
    git(&env, &["config", "user.name", "t"]);
    git(&env, &["config", "user.email", "t@localhost"]);
    git(&env, &["switch", "-qc", "other"]);
    env.write("theirs.key", "1\n");
    commit(&env, "theirs");
    git(&env, &["switch", "-q", "main"]);
    let run = env.run(&[&RUN[..], &["--exclude", "*.key"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(committed(&env), ["PLAN.md", "agent.sh", "theirs.key"]);
}

#[test]
fn an_agent_that_commits_what_is_excluded_is_told_of() {
    let add =
        "touch x.key; git add -A; git -c user.name=t -c user.email=t@localhost commit -qm own";
    let env = scripted(".", add);
    let run = env.run(&[&RUN[..], &["--exclude", "*.key"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let said = format!("{}{}", run.stdout, run.stderr);
    assert!(said.contains("the agent has committed what is excluded: `x.key`"), "{run:?}");
}

#[test]
fn where_somebody_else_points_git_to_does_not_count() {
    let env = scripted(".", "touch work");
    let other = scripted(".", "");
    let mut command = env.afresh(&RUN);
    command.env("GIT_DIR", other.work().join(".git")).env("GIT_WORK_TREE", other.work());
    command
        .env("GIT_INDEX_FILE", other.work().join(".git/index"))
        .env("GIT_LITERAL_PATHSPECS", "1");
    let run = command.output().expect("it runs");
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    assert_eq!(titles(&env), ["the plan", "afresh: One"]);
    assert_eq!(titles(&other), ["the plan"]);
}

#[test]
fn what_keeps_git_from_working_is_said_before_an_agent_begins() {
    let env = scripted(".", "touch begun");
    let begins = |env: &TestEnv, variable: &str, wanted: &str| {
        let mut command = env.afresh(&RUN);
        let run = command.env(variable, "1").output().expect("it runs");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(5) && said.contains(wanted), "{run:?}");
        assert!(
            !said.contains("no git repository") && !env.work().join("begun").exists(),
            "{run:?}"
        );
    };
    begins(&env, "GIT_TEST_ASSUME_DIFFERENT_OWNER", "dubious ownership in repository");
    let lock = env.write(".git/index.lock", "");
    begins(&env, "UNUSED", "index.lock` is there: another git is at work here, or one was killed");
    std::fs::remove_file(lock).expect("it is there");
    assert_eq!(env.run(&RUN).code, Some(0));
}

#[test]
fn a_repository_that_cannot_be_written_is_said_before_an_agent_begins() {
    use std::os::unix::process::CommandExt;
    let env = scripted(".", "touch begun");
    let objects = env.work().join(".git/objects");
    let top = env.work().parent().expect("a folder above").to_owned();
    let sh = |script: &str| {
        let done = Command::new("sh").args(["-ec", script, "sh"]).arg(&top).arg(&objects).status();
        assert!(done.expect("there is a shell").success(), "{script}");
    };
    let mut command = env.afresh(&RUN);
    // The administrator can write everywhere.
    if nix::unistd::geteuid().is_root() {
        sh("chown -R 65534:65534 \"$1\"");
        command.uid(65534).gid(65534);
    }
    sh("chmod 555 \"$2\"");
    let run = command.output().expect("it runs");
    sh("chmod 755 \"$2\"");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.code() == Some(5), "{run:?}");
    assert!(
        said.contains("nothing can be written to `") && said.contains("ermission denied"),
        "{run:?}"
    );
    assert!(!env.work().join("begun").exists(), "{run:?}");
}

#[test]
fn a_command_whose_time_is_over_can_clean_up_and_one_that_will_not_end_is_killed() {
    let env = scripted(".", "touch work");
    let plan = "# A plan\n\n## Phase: One\n\nWork.\n\n\
                - Gate (tidy, 1s): trap 'touch cleaned; exit 0' TERM; sleep 1000 & wait\n\
                - Gate (deaf, 1s): trap '' TERM; touch deaf; sleep 1000; touch never\n";
    env.write("PLAN.md", plan);
    let run = env.run(&[&RUN[..], &["--max-remediations", "0"]].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    for gate in ["tidy", "deaf"] {
        let wanted = format!("gate failed: {gate} (not done after 1 s");
        assert!(run.stdout.contains(&wanted), "{run:?}");
    }
    let is_there = |name: &str| env.work().join(name).exists();
    assert!(is_there("cleaned") && is_there("deaf") && !is_there("never"), "{run:?}");
    env.assert_nothing_left();
}

#[test]
fn without_git_no_git_is_started() {
    let env = scripted(".", "touch work");
    std::fs::create_dir(env.work().join("bin")).expect("a folder");
    let fake = env.write("bin/git", "#!/bin/sh\ntouch asked\nexit 1\n");
    assert!(Command::new("chmod").arg("+x").arg(&fake).status().expect("chmod").success());
    let path = std::env::var("PATH").expect("a PATH");
    let path = format!("{}:{path}", env.work().join("bin").display());
    for (more, code) in [(&["--no-git"][..], 0), (&[], 5)] {
        let run =
            env.afresh(&[&RUN[..], more].concat()).env("PATH", &path).output().expect("it runs");
        assert_eq!(run.status.code(), Some(code), "{run:?}");
        assert_eq!(env.work().join("asked").exists(), code > 0, "{more:?}");
    }
}

#[test]
fn a_repository_does_not_choose_a_program_that_git_starts_to_watch_its_files() {
    let env = repository(&[]);
    let started = env.work().join(".git/started");
    // A git that asks it before each look at the files.
    let monitor = format!("sh -c 'touch {}' #", started.display());
    git(&env, &["config", "core.fsmonitor", &monitor]);
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!started.exists(), "the monitor of the repository was started");
    git(&env, &["status"]);
    assert!(started.exists(), "git itself starts it");
    env.assert_nothing_left();
}
