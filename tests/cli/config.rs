//! `afresh config`.

use afresh_tests::TestEnv;

use crate::run_into_closed_pipe;

#[test]
fn a_workspace_without_files_is_fine() {
    let env = TestEnv::new();
    let check = env.run(&["config", "check"]);
    assert_eq!(check.code, Some(0));
    assert_eq!(check.stdout, "ok: there is no configuration file, the defaults are in force\n");
    assert_eq!(check.stderr, "");
}

#[test]
fn files_that_were_read_are_named() {
    let env = TestEnv::new();
    env.write("afresh.toml", "[defaults]\nmax_restarts = 3\n");
    let folder = env.home().join(".config/afresh");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), "[trail]\nkeep = 2\n").unwrap();
    let user = folder.join("config.toml").display().to_string();
    let check = env.run(&["config", "check"]);
    assert_eq!(check.stdout, format!("ok: `afresh.toml` and `{user}`\n"));
    let show = env.run(&["config", "show", "--changed"]);
    assert_eq!(
        show.stdout,
        format!(
            "[defaults]\nmax_restarts = 3  # afresh.toml:2\n\n[trail]\nkeep         = 2  # {user}:2\n"
        )
    );
}

#[test]
fn every_error_is_shown() {
    let env = TestEnv::new();
    env.write("afresh.toml", "[defaults]\nmax_restart = 3\ndelay = 5\n");
    let wanted = "\
error: unknown key `max_restart` in `[defaults]`
 --> afresh.toml:2:1
  |
2 | max_restart = 3
  | ^^^^^^^^^^^
hint: did you mean `max_restarts`?

error: `delay` must be a duration of at most 365d, not an integer
 --> afresh.toml:3:9
  |
3 | delay = 5
  |         ^
hint: write `delay = \"5s\"`
";
    for arguments in
        [&["config", "check"][..], &["config", "check", "afresh.toml"], &["config", "show"]]
    {
        let check = env.run(arguments);
        assert_eq!(
            (check.code, check.stdout.as_str(), check.stderr.as_str()),
            (Some(3), "", wanted),
            "{arguments:?}"
        );
    }
}

#[test]
fn one_file_is_checked_by_itself() {
    let env = TestEnv::new();
    env.write("afresh.toml", "broken");
    env.write("other.toml", "[defaults]\ndelay = \"2s\"\n");
    let mut check = env.afresh(&["config", "check", "other.toml"]);
    check.env("AFRESH_DELAY", "nonsense");
    let check = check.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&check.stdout), "ok: `other.toml`\n");

    let missing = env.run(&["config", "check", "nowhere.toml"]);
    assert_eq!(missing.code, Some(4));
    assert_eq!(
        missing.stderr,
        "error: there is no file `nowhere.toml`\n\
         hint: run `afresh config path` to see which files count here\n"
    );
    let folder = env.run(&["config", "check", ".afresh"]);
    assert_eq!(folder.code, Some(3));
    assert!(folder.stderr.ends_with(".afresh` is not a file\n"), "{}", folder.stderr);
}

#[test]
fn what_is_shown_can_be_pasted() {
    let env = TestEnv::new();
    let shown = env.run(&["config", "show"]);
    assert!(shown.stdout.contains("\ndelay                  = \"1s\" "), "{}", shown.stdout);
    env.write("pasted.toml", &shown.stdout);
    let check = env.run(&["config", "check", "pasted.toml"]);
    assert_eq!(check.stdout, "ok: `pasted.toml`\n", "{}", check.stderr);
    let changed = env.run(&["config", "show", "--changed"]);
    assert_eq!((changed.code, changed.stdout.as_str()), (Some(0), ""));
    assert_eq!(changed.stderr, "everything is as built in\n");
}

#[test]
fn json_says_where_each_value_comes_from() {
    let env = TestEnv::new();
    env.write("afresh.toml", "[defaults]\nmax_restarts = 3\nrestart_on_normal_exit = true\n");
    let mut show = env.afresh(&["config", "show", "--json"]);
    show.env("AFRESH_DELAY", "250ms");
    let show = show.output().unwrap();
    let all: serde_json::Value = serde_json::from_slice(&show.stdout).unwrap();
    let setting = |key: &str| {
        let all = all.as_array().unwrap();
        all.iter().find(|entry| entry["key"] == key).unwrap()
    };
    assert_eq!(setting("max_restarts")["value"], 3);
    assert_eq!(
        setting("max_restarts")["origin"],
        serde_json::json!({"kind": "file", "path": "afresh.toml", "line": 2, "column": 16})
    );
    assert_eq!(setting("restart_on_normal_exit")["value"], true);
    assert_eq!(setting("delay")["value"], "250ms");
    assert_eq!(
        setting("delay")["origin"],
        serde_json::json!({"kind": "env", "name": "AFRESH_DELAY"})
    );
    assert_eq!(setting("policy")["origin"], serde_json::json!({"kind": "default"}));
    assert!(setting("policy")["help"].is_string());
}

#[test]
fn services_and_hooks_are_shown_without_their_secrets() {
    let env = TestEnv::new();
    env.write(
        "afresh.toml",
        "[opencode]\nserve_port = 4097\n\n[service.api]\ncommand = [\"node\", \"api.js\"]\n\
         env = { PORT = 3000, API_TOKEN = \"sesame\" }\n\n[hook.me]\n\
         webhook = \"https://hooks.slack.com/services/sesame\"\n",
    );
    let check = env.run(&["config", "check"]);
    assert_eq!(check.stdout, "ok: `afresh.toml`; 2 services; 1 hook\n", "{}", check.stderr);
    // A hook of a project is in force when it is trusted.
    let untrusted = env.run(&["config", "show", "--changed"]);
    assert!(!untrusted.stdout.contains("[hook.me]"), "{untrusted:?}");
    assert!(untrusted.stderr.contains("`hook.me` of this project is not trusted"));
    assert_eq!(env.run(&["trust", "--yes"]).code, Some(0));
    let show = env.run(&["config", "show", "--changed"]);
    assert_eq!(
        show.stdout,
        "\
[opencode]  # afresh.toml:1
serve_port    = 4097                                  # afresh.toml:2

[service.api]  # afresh.toml:4
command       = [\"node\", \"api.js\"]                    # afresh.toml:5
env.PORT      = \"3000\"                                # afresh.toml:6
env.API_TOKEN = \"[redacted]\"                          # afresh.toml:6

[hook.me]  # afresh.toml:8
webhook       = \"https://hooks.slack.com/[redacted]\"  # afresh.toml:9
"
    );
    let show = env.run(&["config", "show"]);
    assert!(show.stdout.contains("\"http://localhost:4097/global/health\""), "{}", show.stdout);
    assert!(!show.stdout.contains("sesame"), "{}", show.stdout);
    env.write("pasted.toml", &show.stdout);
    let check = env.run(&["config", "check", "pasted.toml"]);
    assert_eq!(check.stdout, "ok: `pasted.toml`; 2 services; 1 hook\n", "{}", check.stderr);

    let json = env.run(&["config", "show", "--json"]);
    assert!(!json.stdout.contains("sesame"), "{}", json.stdout);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json.stdout).unwrap();
    let row = |section: &str, key: &str| {
        rows.iter().find(|row| row["section"] == section && row["key"] == key).unwrap()
    };
    assert_eq!(row("service.api", "command")["value"], serde_json::json!(["node", "api.js"]));
    assert_eq!(row("service.api", "command")["origin"]["line"], 5);
    assert_eq!(row("opencode", "serve_hostname")["origin"]["kind"], "default");
}

#[test]
fn a_variable_that_nobody_knows_is_a_warning() {
    let env = TestEnv::new();
    let mut check = env.afresh(&["config", "check"]);
    check.env("AFRESH_MAX_RESTART", "3");
    let check = check.output().unwrap();
    assert_eq!(check.status.code(), Some(0));
    let stderr = String::from_utf8_lossy(&check.stderr);
    assert!(stderr.contains("hint: did you mean `AFRESH_MAX_RESTARTS`?"), "{stderr}");
}

#[test]
fn the_schema_is_the_one_of_the_docs() {
    let env = TestEnv::new();
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/afresh.schema.json");
    let schema = env.run(&["config", "schema"]);
    assert_eq!(schema.stdout, std::fs::read_to_string(kept).unwrap());
    let closed = run_into_closed_pipe(env.afresh(&["config", "schema"]));
    assert_eq!((closed.code, closed.stderr.as_str()), (Some(0), ""));
}

#[test]
fn the_paths_say_what_exists() {
    let env = TestEnv::new();
    env.write("afresh.toml", "");
    let (work, home) = (env.work(), env.home());
    let paths = env.run(&["config", "path"]);
    let lines: Vec<Vec<&str>> = paths
        .stdout
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let project = work.join("afresh.toml").display().to_string();
    let user = home.join(".config/afresh/config.toml").display().to_string();
    assert_eq!(lines, [["workspace", &project, "exists"], ["user", &user, "does not exist"]]);
}

#[test]
fn programs_get_json() {
    let env = TestEnv::new();
    env.write("afresh.toml", "[defaults]\nmax_restart = 3\n");
    let check = env.run(&["config", "check", "--json"]);
    assert_eq!(check.code, Some(3));
    let verdict: serde_json::Value = serde_json::from_str(&check.stdout).unwrap();
    assert_eq!(verdict["ok"], false);
    assert_eq!(verdict["messages"][0]["origin"]["line"], 2);
    assert_eq!(verdict["messages"][0]["hint"], "did you mean `max_restarts`?");
    for arguments in [&["config", "path", "--json"][..], &["exit-codes", "--json"]] {
        let done = env.run(arguments);
        let rows: Vec<serde_json::Value> = serde_json::from_str(&done.stdout).unwrap();
        assert!(rows.len() >= 2, "{arguments:?}");
    }
}

#[test]
fn config_show_hides_nothing() {
    let env = TestEnv::new();
    env.write("afresh.toml", "[service.web]\ncommand = [\"sh\", \"\\u202e\\u009b31m\"]\n");
    let shown = env.run(&["config", "show", "--changed"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains(r#""\u202E\u009B31m""#), "{}", shown.stdout);
}

#[test]
fn the_name_of_a_folder_reaches_no_terminal_as_it_is() {
    let env = TestEnv::new();
    let folder = env.work().join("a\u{1b}]0;x\u{7}\u{202e}b");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("afresh.toml"), "").unwrap();
    for arguments in [&["config", "path"][..], &["config", "path", "--json"], &["config", "check"]]
    {
        let mut command = env.afresh(arguments);
        let shown = command.current_dir(&folder).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(
            shown.contains("afresh.toml") && !shown.contains(['\u{1b}', '\u{7}', '\u{202e}']),
            "{shown:?}"
        );
    }
}
