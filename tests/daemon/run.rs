//! `afresh run`, with a shell script for an agent. Real agents are in `tests/interop/plans`.

use std::path::Path;
use std::process::Command;

use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

const PLAN: &str = "# A plan\n\n## Phase: One\n\nWrite one.txt.\n\n- Gate: test -f one.txt\n- Gate: test -f fixed.txt\n\n\
                    ## Phase: Two\n\nWrite two.txt.\n\n- Gate: test -f two.txt\n";

/// What the agent does, by its prompt: it finds that on its stdin.
const AGENT: &str = r###"
prompt=$(cat)
case $prompt in
    *"remediation 1"*) touch fixed.txt; echo mended ;;
    *"## One"*) [ -e slow ] && { rm slow; touch begun; sleep 1000; }; echo 1 > one.txt; echo "one is written" ;;
    *"## Two"*) echo 2 > two.txt; echo "two is written" ;;
esac
"###;

pub(crate) fn git(env: &TestEnv, words: &[&str]) -> String {
    let mut command = Command::new("git");
    env.furnish(&mut command);
    let output = command.args(words).output().expect("git is installed");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A repository with a plan and an agent in it.
pub(crate) fn repository(files: &[&str]) -> TestEnv {
    let env = TestEnv::new();
    env.write("PLAN.md", PLAN);
    env.write("agent.sh", AGENT);
    env.write(".gitignore", "slow\nbegun\n");
    files.iter().for_each(|name| drop(env.write(name, "")));
    git(&env, &["init", "-q", "-b", "main"]);
    git(&env, &["add", "PLAN.md", "agent.sh", ".gitignore"]);
    git(&env, &["-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "the plan"]);
    env
}

pub(crate) const RUN: [&str; 5] = ["run", "--agent", "command", "--agent-command", "sh agent.sh"];

pub(crate) fn titles(env: &TestEnv) -> Vec<String> {
    let log = git(env, &["log", "--reverse", "--format=%s"]);
    log.lines().map(str::to_owned).collect()
}

/// The records of one kind of the last run.
pub(crate) fn records(env: &TestEnv, kind: &str) -> Vec<Value> {
    let shown = env.run(&["runs", "show", "--json"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let all = shown["records"].as_array().expect("records").iter().map(|it| it["record"].clone());
    all.filter(|record| record["record"] == kind).collect()
}

#[test]
fn a_plan_is_carried_out_and_gates_decide() {
    // S1 S7
    let env = repository(&[]);
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(0), "{run:?}");
    let wanted = ["the plan", "afresh: One", "afresh: One, remediation 1", "afresh: Two"];
    assert_eq!(titles(&env), wanted);
    assert_eq!(git(&env, &["status", "--porcelain"]), "");
    // S9: the use of the context is seen while it grows.
    for line in [
        "  context: about ",
        "gate failed: test -f fixed.txt",
        "session 2, remediation 1",
        "done: Two",
    ] {
        assert!(run.stdout.contains(line), "no `{line}`:\n{}", run.stdout);
    }
    assert_eq!(records(&env, "phase_ended").len(), 2);
    assert!(env.run(&["runs"]).stdout.contains("done"), "it is listed");
    env.assert_nothing_left();
}

#[test]
fn a_run_that_is_killed_leaves_nothing_and_goes_on() {
    // S6 S9
    let env = repository(&["slow"]);
    let mut run = env.start(&RUN);
    wait_for("the agent works", || env.work().join("begun").exists());
    run.signal(Signal::SIGKILL);
    run.wait();
    env.assert_nothing_left();
    let resumed = env.run(&[&RUN[..], &["--resume"]].concat());
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let phases: Vec<Value> =
        records(&env, "phase_ended").iter().map(|record| record["phase"].clone()).collect();
    assert_eq!(phases, ["One", "Two"], "each once");
    let kinds: Vec<Value> =
        records(&env, "attempt_began").iter().map(|record| record["kind"].clone()).collect();
    assert_eq!(kinds[..2], ["first", "resumed"]);
    // There is nothing more to go on with.
    assert_eq!(env.run(&[&RUN[..], &["--resume"]].concat()).code, Some(4));
}

#[test]
fn a_plan_of_the_same_name_in_another_folder_is_another_plan() {
    let env = repository(&["slow"]);
    std::fs::create_dir(env.work().join("sub")).expect("a folder");
    env.write("sub/PLAN.md", PLAN);
    let mut run = env.start(&RUN);
    wait_for("the agent works", || env.work().join("begun").exists());
    run.signal(Signal::SIGKILL);
    run.wait();
    let in_sub = |plan: &str| {
        let words = ["run", plan, "--agent", "command", "--agent-command", "sh ../agent.sh"];
        let mut command = env.afresh(&[&words[..], &["--resume"]].concat());
        command.current_dir(env.work().join("sub")).output().expect("it runs")
    };
    let other = in_sub("PLAN.md");
    assert_eq!(other.status.code(), Some(4), "{other:?}");
    // The agent and the gates would be in the wrong place.
    let elsewhere = in_sub("../PLAN.md");
    assert_eq!(elsewhere.status.code(), Some(2), "{elsewhere:?}");
    let words = String::from_utf8_lossy(&elsewhere.stderr);
    assert!(words.contains("which is another folder"), "{words}");
    let same = env.run(&[&RUN[..], &["--resume"]].concat());
    assert_eq!(same.code, Some(0), "{same:?}");
    assert_eq!(records(&env, "attempt_began")[1]["kind"], "resumed");
}

#[test]
fn what_is_done_is_not_done_again_and_what_is_not_done_is_named() {
    let env = repository(&["slow"]);
    let mut first = env.start(&RUN);
    wait_for("the agent works", || env.work().join("begun").exists());
    first.signal(Signal::SIGKILL);
    first.wait();
    let second = env.run(&RUN);
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(second.stderr.contains("run 1 of this plan is not done: --resume"), "{second:?}");
    let resumed = env.run(&[&RUN[..], &["--resume"]].concat());
    assert_eq!(resumed.code, Some(4), "{resumed:?}");
    assert!(resumed.stderr.contains("run 2, the last one of `PLAN.md`, is done"), "{resumed:?}");
    assert!(!env.run(&RUN).stderr.contains("--resume"), "all is done");
}

#[test]
fn an_agent_that_is_not_there_is_named_before_anything_begins() {
    let env = repository(&[]);
    for (command, place) in [("no-such-agent --x", "is not on the PATH"), ("./typo", "is no file")]
    {
        let run = env.run(&["run", "--agent", "codex", "--agent-command", command]);
        assert_eq!(run.code, Some(4), "{run:?}");
        assert!(run.stderr.contains(place), "{run:?}");
    }
    assert!(!env.run(&["runs"]).stdout.contains("codex"), "there was no run");
}

#[test]
fn an_agent_that_tidies_up_does_not_take_the_state_of_its_run_away() {
    let env = repository(&["slow"]);
    // Its own words say what it removed: afresh puts the folder back at once.
    let tidy = "git clean -fdx -e slow -e begun > .git/tidied";
    env.write("agent.sh", &format!("{tidy}\n{AGENT}"));
    git(&env, &["-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qam", "tidy"]);
    let mut run = env.start(&RUN);
    wait_for("the agent works", || env.work().join("begun").exists());
    let tidied = std::fs::read_to_string(env.work().join(".git/tidied")).expect("it has tidied up");
    assert!(tidied.contains(".afresh"), "{tidied}");
    let other = env.run(&RUN);
    assert_eq!(other.code, Some(5), "{other:?}");
    assert!(other.stderr.contains("in this git repository already"), "{other:?}");
    run.signal(Signal::SIGINT);
    run.wait();
    let resumed = env.run(&[&RUN[..], &["--resume"]].concat());
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert_eq!(records(&env, "phase_ended").len(), 2, "each once");
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_killed_run_has_left_is_ended_before_a_run_begins() {
    let env = repository(&[]);
    env.write("agent.sh", &format!("printf %s \"$AFRESH_RUN_MARK\" > mark\n{AGENT}"));
    assert_eq!(env.run(&RUN).code, Some(0));
    // As where afresh and all that watched over the agent were killed at once.
    let mark = std::fs::read_to_string(env.work().join("mark")).expect("the agent is marked");
    let mut left = Command::new("sleep");
    env.furnish(&mut left);
    let mut left = left.arg("1000").env("AFRESH_RUN_MARK", mark).spawn().expect("it starts");
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(
        run.stderr.contains("1 process of a run that was killed was still at work: ended"),
        "{run:?}"
    );
    assert!(!left.wait().expect("it is ours").success(), "it was ended");
    let again = env.run(&RUN);
    assert!(!again.stderr.contains("still at work"), "{again:?}");
    env.assert_nothing_left();
}

/// An agent that speaks as Claude Code does, so many lines a second and for so long.
fn talker(rate: u32, seconds: u32) -> String {
    let program = afresh_tests::afresh_binary().with_file_name("agent-stream");
    format!("{} {rate} {seconds} 28", program.display())
}

#[test]
fn what_was_shown_is_on_disk_when_afresh_is_killed() {
    // S9: continuous checkpoints. Thick or thin, whatever a person has seen outlives us.
    for rate in [100, 2_000] {
        let env = repository(&[]);
        let talker = talker(rate, 1_000);
        let flags = ["run", "--agent", "claude", "--agent-command", &talker];
        let mut run = env.start(&flags);
        run.wait_stdout("> Bash cargo test 3", 1);
        run.signal(Signal::SIGKILL);
        run.wait();
        let shown = run.stdout();
        env.assert_nothing_left();
        let log = env.work().join(".afresh/runs/1/session-1.jsonl");
        let log = std::fs::read_to_string(log).expect("a log");
        assert!(!log.contains("content_block_delta"), "pieces are not kept");
        for line in shown.lines().filter_map(|line| line.trim().strip_prefix("> Bash ")) {
            assert!(log.contains(line), "{line} was shown, and is not in the log");
        }
        let texts = shown.lines().filter(|line| line.contains("a few words of what it thinks"));
        assert!(records(&env, "progress").len() >= texts.count(), "{shown}");
        let context = shown.lines().rfind(|line| line.contains("context:")).expect("a context");
        let samples = records(&env, "sampled");
        let is_there = |sample: &Value| context.contains(&format!("({} of", sample["used"]));
        assert!(samples.iter().any(is_there), "{context}: {samples:?}");
        assert!(!records(&env, "spent").is_empty());
    }
}

#[test]
fn a_command_is_ended_and_begun_afresh_where_its_window_is_known() {
    // S2 S3 S5
    let env = repository(&[]);
    let agent = "cat > prompt; echo 1 > one.txt; echo 2 > two.txt; touch fixed.txt; [ -e seen ] && exit 0; touch seen
                 i=0; while [ $i -lt 60 ]; do echo \"step $i: $(printf '%0200d' 0)\"; i=$((i+1)); done; sleep 1000";
    env.write("agent.sh", agent);
    let run = env.run(&[&RUN[..], &["--context-window", "4000"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("  context: about "), "{}", run.stdout);
    let ended = records(&env, "attempt_ended");
    assert_eq!(ended[0]["cause"], "CONTEXT_LIMIT_RESTART", "{}", run.stdout);
    assert_eq!(titles(&env)[2], "afresh: One, unfinished (CONTEXT_LIMIT_RESTART)");
    let began = records(&env, "attempt_began");
    assert_eq!(began[1]["kind"]["restart"], 1, "{began:?}");
    env.assert_nothing_left();
}

#[test]
fn what_a_command_uses_is_guessed_and_counts_against_its_tokens() {
    // S9
    let env = repository(&[]);
    env.write("agent.sh", "head -c 200000 /dev/zero | tr '\\0' x; touch one.txt two.txt fixed.txt");
    let run = env.run(&[&RUN[..], &["--max-tokens", "5000"]].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("the run has used about 65"), "{}", run.stderr);
    assert_eq!(records(&env, "attempt_ended")[0]["cause"], "OUT_OF_BUDGET", "{run:?}");
    // Without a limit, it is told.
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("done: One (about 65"), "{}", run.stdout);
    let shown = env.run(&["runs", "show"]).stdout;
    assert!(shown.contains("\nabout "), "{shown}");
}

#[test]
fn a_run_is_seen_and_steered_from_any_terminal() {
    // S9: what is counted of restarts can be asked for while it runs.
    let env = repository(&[]);
    env.write("agent.sh", "cat > /dev/null; echo 'I am at it'; touch begun; sleep 1000");
    let mut run = env.start(&[&RUN[..], &["--context-window", "100000"]].concat());
    wait_for("the agent works", || env.work().join("begun").exists());
    run.wait_stdout("I am at it", 1);
    let status = || {
        let shown = env.run(&["status", "--json"]);
        let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
        shown[0].clone()
    };
    let first = status();
    assert_eq!(
        (&first["name"], &first["face"], &first["generation"]),
        (&"run".into(), &"run".into(), &1.into())
    );
    let told = &first["run"];
    assert_eq!((&told["plan"], &told["phase"]), (&"A plan".into(), &"One".into()));
    assert_eq!((&told["phases"], &told["doing"]), (&2.into(), &"working".into()));
    assert!(told["context_percent"].as_f64().is_some_and(|percent| percent > 0.0), "{told}");
    assert!(env.run(&["status"]).stdout.contains("working: One, context about 0 %"));
    let full = env.run(&["status", "run"]).stdout;
    assert!(full.contains("plan        A plan (run 1)"), "{full}");
    let restarted = env.run(&["restart", "run"]);
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    assert!(restarted.stdout.starts_with("run: restarted (pid "), "{restarted:?}");
    assert_eq!(status()["generation"], 2);
    let metrics = env.run(&["metrics"]).stdout;
    let asked = r#"afresh_run_sessions_total{service="run",cause="RESTART_ASKED"} 1"#;
    for line in [asked, "afresh_run_context_ratio{", "afresh_run_tokens_total{"] {
        assert!(metrics.contains(line), "no `{line}`:\n{metrics}");
    }
    assert!(env.run(&["logs", "run"]).stdout.contains("I am at it"));
    let stopped = env.run(&["stop", "run", "--reason", "enough"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(stopped.stdout.starts_with("run: stopped (pid "), "{stopped:?}");
    assert_eq!(run.wait().code(), Some(1), "{}", run.stderr());
    let by = format!("a stop was requested by uid {}, pid ", nix::unistd::Uid::effective());
    assert!(run.stdout().contains(&by) && run.stdout().contains(": enough"), "{}", run.stdout());
    env.assert_nothing_left();
}

#[test]
fn ctrl_c_ends_in_order_and_only_one_runs_at_a_time() {
    let env = repository(&["slow"]);
    let mut run = env.start(&RUN);
    wait_for("the agent works", || env.work().join("begun").exists());
    let second = env.run(&RUN);
    assert_eq!(second.code, Some(5), "{second:?}");
    assert!(
        second.stderr.contains("a plan is carried out in this workspace already"),
        "{second:?}"
    );
    run.signal(Signal::SIGINT);
    assert_eq!(run.wait().code(), Some(1), "{}", run.stderr());
    let again = "`afresh run --agent=command '--agent-command=sh agent.sh' --resume` goes on";
    assert!(run.stderr().contains(again), "{}", run.stderr());
    env.assert_nothing_left();
    let ended = records(&env, "attempt_ended");
    assert_eq!(ended[0]["cause"], "STOPPED");
    assert_eq!(env.run(&[&RUN[..], &["--resume"]].concat()).code, Some(0));
}

#[test]
fn what_goes_on_with_a_plan_of_another_name_can_be_pasted_into_a_shell() {
    let env = repository(&[]);
    let plan = "it's my plan.md";
    env.write(plan, "# A\n\n## Phase: One\n\nGo.\n\n- Gate: test -f mended\n");
    let run = env.run(&[&RUN[..], &[plan, "--max-remediations", "0"]].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    let (_, again) = run.stderr.split_once("tells what happened; `").expect("a hint");
    let (again, _) = again.split_once("` tries that phase again").expect("a hint");
    env.write("mended", "");
    let mut shell = Command::new("sh");
    env.furnish(&mut shell);
    let afresh = afresh_tests::afresh_binary().display();
    let script = format!("afresh() {{ \"{afresh}\" \"$@\"; }}; {again}");
    let resumed = shell.args(["-c", &script]).output().expect("a shell");
    assert!(resumed.status.success(), "{again}\n{resumed:?}");
    assert_eq!(records(&env, "run_ended").len(), 2, "it is the same run");
}

#[test]
fn what_cannot_begin_says_why() {
    let env = TestEnv::new();
    env.write("PLAN.md", PLAN);
    env.write("agent.sh", AGENT);
    let without = env.run(&RUN);
    assert_eq!(without.code, Some(5), "{without:?}");
    assert!(without.stderr.contains("no git repository") && without.stderr.contains("--no-git"));
    let run = env.run(&[&RUN[..], &["--no-git"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let none = env.run(&["run", "--agent", "command", "--agent-command", "no-such-agent"]);
    assert_ne!(none.code, Some(0), "{none:?}");
    let env = repository(&[]);
    env.write("changed.txt", "");
    let refused = env.run(&[&RUN[..], &["--dirty", "refuse"]].concat());
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("1 files are changed"), "{refused:?}");
    let run = env.run(&[&RUN[..], &["--branch", "afresh/work"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(titles(&env)[1], "afresh: what was there before `One`");
    assert_eq!(git(&env, &["branch", "--show-current"]), "afresh/work\n");
}

#[test]
fn what_is_excluded_is_not_committed_and_no_reason_to_refuse() {
    let env = repository(&["notes.log"]);
    // S8
    env.write("afresh.toml", "[run]\nexclude = [\"*.log\", \"afresh.toml\"]\ndirty = \"refuse\"\n");
    let run = env.run(&RUN);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(git(&env, &["status", "--porcelain"]), "?? afresh.toml\n?? notes.log\n");
    assert_eq!(titles(&env).len(), 4);
}

/// All files of a folder, in one.
fn everything_in(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let text = |entry: std::fs::DirEntry| match entry.path() {
        path if path.is_dir() => everything_in(&path),
        path => String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned(),
    };
    entries.map(text).collect()
}

#[test]
fn secrets_are_neither_shown_nor_written_down() {
    let env = repository(&[]);
    env.write(
        "PLAN.md",
        "# A\n\n## Phase: One\n\nGo.\n\n- Gate: echo \"gate $SHOP_API_KEY\" && test -f fixed.txt\n",
    );
    let agent = "cat > /dev/null; echo \"the key is $SHOP_API_KEY\"; echo ghp_0123456789abcdefghijABCDEFGHIJ; \
                 [ -e seen ] && touch fixed.txt; touch seen";
    env.write("agent.sh", agent);
    let mut command = env.afresh(&RUN);
    command.env("SHOP_API_KEY", "open sesame 42");
    let run = command.output().expect("it runs");
    assert!(run.status.success(), "{run:?}");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let kept = everything_in(&env.work().join(".afresh"));
    assert!(kept.contains("the key is [redacted]") && kept.contains("gate [redacted]"), "{kept}");
    for text in [&said, &kept] {
        assert!(!text.contains("sesame") && !text.contains("ghp_0123"), "{text}");
    }
}

#[test]
fn a_repository_is_left_alone_where_that_is_wanted() {
    let env = repository(&[]);
    let run = env.run(&[&RUN[..], &["--no-git"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(titles(&env), ["the plan"]);
}
