//! `afresh run`, as far as no agent is needed.

use afresh_tests::TestEnv;
use serde_json::{Value, json};

const PLAN: &str = "# Shop\n\n## Phase: Model\n\nStore it.\n\n- Gate: make model\n\n## Phase: API\n\nServe it.\n\n- Gates: none\n";

#[test]
fn a_dry_run_shows_the_settings_that_count() {
    // S8
    let env = TestEnv::new();
    env.write("PLAN.md", PLAN);
    env.write(
        "afresh.toml",
        "[run]\nmax_restarts = 5\ncontext_threshold = 70\nagent = \"codex\"\n",
    );
    let dry = env.run(&["run", "--dry-run", "--context-threshold", "75", "--exclude", "a,b"]);
    assert_eq!((dry.code, dry.stderr.as_str()), (Some(0), ""));
    let start = "Shop\nagent: codex (codex)\n1. Model\n   gate: make model\n2. API\n\n[run]\n";
    assert!(dry.stdout.starts_with(start), "{}", dry.stdout);
    for line in [
        "agent               = \"codex\"     # afresh.toml:4",
        "context_threshold   = 75.0        # flag --context-threshold",
        "soft_threshold      = 65.0        # default",
        "max_restarts        = 5           # afresh.toml:2",
        "exclude             = [\"a\", \"b\"]  # flag --exclude",
    ] {
        assert!(dry.stdout.lines().any(|found| found == line), "{line}\n{}", dry.stdout);
    }
    assert!(!env.work().join(".afresh/runs.db").exists(), "nothing is done");
    let mut with_variable =
        env.afresh(&["run", "--dry-run", "--json", "--exclude", "a", "--exclude", "b"]);
    with_variable.env("AFRESH_RUN_MAX_RESTARTS", "6");
    let shown: Value = serde_json::from_slice(&with_variable.output().unwrap().stdout).unwrap();
    assert_eq!((&shown["agent"], &shown["program"]), (&json!("codex"), &json!(["codex"])));
    assert_eq!(shown["phases"][0], json!({"name": "Model", "gates": ["make model"]}));
    let settings = &shown["settings"];
    assert_eq!((&settings["max_restarts"], &settings["exclude"]), (&json!(6), &json!(["a", "b"])));
}

#[test]
fn a_limit_of_cost_that_cannot_be_kept_is_a_warning() {
    let env = TestEnv::new();
    env.write("PLAN.md", &format!("{PLAN}- Cost limit: $5\n"));
    let warned = |agent: &[&str]| {
        env.run(&[&["run", "--dry-run", "--max-cost", "3", "--agent"], agent].concat()).stderr
    };
    let limits = "--max-cost and `Cost limit` of `API` cannot be kept";
    for agent in [&["codex"][..], &["command", "--agent-command", "x"]] {
        let text = format!("{} does not tell what it costs: {limits}", agent[0]);
        assert!(warned(agent).contains(&text), "{}", warned(agent));
    }
    assert_eq!(warned(&["claude"]), "");
    env.write("PLAN.md", PLAN);
    assert_eq!(env.run(&["run", "--dry-run", "--agent", "codex"]).stderr, "");
}

#[test]
fn what_cannot_be_set_is_said_before_anything_is_done() {
    let env = TestEnv::new();
    env.write("PLAN.md", PLAN);
    let wrong = env.run(&["run", "--agent", "claude", "--context-threshold", "120"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(3), ""));
    let start = "error: `--context-threshold` must be a number from 1.0 to 100.0, not `120`\n";
    assert!(wrong.stderr.starts_with(start), "{}", wrong.stderr);
    let without = env.run(&["run", "--agent", "command"]);
    assert_eq!(without.code, Some(2));
    assert!(without.stderr.contains("--agent-command"), "{}", without.stderr);
    assert!(!env.work().join(".afresh/runs.db").exists(), "nothing is done");
}
