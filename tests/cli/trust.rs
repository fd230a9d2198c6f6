//! `afresh trust`: what is shown, accepted, refused and taken back; nothing is started here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use afresh_tests::terminal::OnTerminal;
use afresh_tests::{TestEnv, wait_for};

const FILES: &str = "[server.files]\ncommand = [\"npx\", \"files\"]\n";

fn trust_file(env: &TestEnv) -> PathBuf {
    env.home().join(".local/state/afresh/private/trust.json")
}

/// Puts a file into the user's private folder.
fn place(env: &TestEnv, text: &str) {
    let path = trust_file(env);
    let folder = path.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(path, text).unwrap();
}

#[track_caller]
fn listed(env: &TestEnv) -> String {
    let listed = env.run(&["trust", "--list"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    listed.stdout
}

#[test]
fn what_is_accepted_is_shown_in_full_and_a_change_is_asked_for_again() {
    let env = TestEnv::without_trust();
    env.write("afresh.toml", &format!("{FILES}env.TOKEN = \"${{TOKEN}}\"\n"));
    assert!(listed(&env).contains("server.files of afresh.toml: not trusted"));
    // Without a terminal there is no one to ask.
    let refused = env.run(&["trust"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("--trust") && refused.stderr.contains("--yes"), "{refused:?}");
    assert!(!trust_file(&env).exists());
    let accepted = env.run(&["trust", "--yes"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    for line in ["command = [\"npx\",\"files\"]", "env.TOKEN = \"${TOKEN}\""] {
        assert!(accepted.stdout.contains(line), "{accepted:?}");
    }
    assert!(listed(&env).contains("server.files of afresh.toml: trusted since"));
    assert_eq!(env.events("trust_granted")[0]["props"]["names"][0], "server.files");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&trust_file(&env)), 0o600);
    assert_eq!(mode(trust_file(&env).parent().unwrap()), 0o700);
    // Less is a change too.
    env.write("afresh.toml", &FILES.replace("files\"]", "files\", \"--all\"]"));
    assert!(listed(&env).contains("changed since it was trusted"));
    let changed = env.run(&["trust", "--yes", "files"]);
    for line in [
        "- command = [\"npx\",\"files\"]",
        "+ command = [\"npx\",\"files\",\"--all\"]",
        "- env.TOKEN = \"${TOKEN}\"",
    ] {
        assert!(changed.stdout.contains(line), "{line}: {changed:?}");
    }
    // Another branch may have what was accepted before.
    env.write("afresh.toml", &format!("{FILES}env.TOKEN = \"${{TOKEN}}\"\n"));
    assert!(listed(&env).contains("trusted since"));
}

#[test]
fn on_a_terminal_one_question_decides() {
    let env = TestEnv::without_trust();
    env.write("afresh.toml", &format!("{FILES}[hook.tell]\ncommand = [\"./tell\"]\n"));
    for (answer, code) in [("\r", Some(1)), ("y\r", Some(0))] {
        let mut terminal = OnTerminal::start(env.afresh(&["trust"]), 120, 40);
        terminal.wait_seen("[y/N]");
        terminal.press(answer);
        assert_eq!(terminal.wait().code(), code);
    }
    assert_eq!(env.events("trust_refused").len(), 1);
    let names = &env.events("trust_granted")[0]["props"]["names"];
    assert_eq!(names.as_array().map(Vec::len), Some(2), "{names}");
}

#[test]
fn nothing_hides_in_what_is_shown() {
    let env = TestEnv::without_trust();
    let far = " ".repeat(5_000);
    let text = format!(
        "[server.a]\ncommand = [\"ls\", \"\\u202Etxt.exe\", \"\\u200B\\u001B[2K\\U000E0041\", \"{far}; evil\"]\n"
    );
    env.write("afresh.toml", &text);
    let shown = env.run(&["trust"]).stdout;
    for part in ["\\u{202e}txt.exe", "\\u{200b}", "\\u{e0041}", "(5000 blanks); evil"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{200b}', '\u{e0041}']), "{shown}");
}

#[test]
fn a_name_means_one_and_a_revoked_one_is_asked_for_again() {
    let env = TestEnv::without_trust();
    let other = "[server.other]\ncommand = [\"npx\", \"other\"]\n";
    env.write("afresh.toml", &[FILES, other].concat());
    assert_eq!(env.run(&["trust", "--yes", "files"]).code, Some(0));
    let list = listed(&env);
    assert!(list.contains("server.files of afresh.toml: trusted"), "{list}");
    assert!(list.contains("server.other of afresh.toml: not trusted"), "{list}");
    let unknown = env.run(&["trust", "--yes", "fils"]);
    assert_eq!(unknown.code, Some(4), "{unknown:?}");
    assert_eq!(env.run(&["trust", "--revoke"]).code, Some(2));
    assert_eq!(env.run(&["trust", "--revoke", "other"]).code, Some(4));
    assert_eq!(env.run(&["trust", "--yes"]).code, Some(0));
    assert_eq!(env.run(&["trust", "--revoke", "server.files"]).code, Some(0));
    let list = listed(&env);
    assert!(list.contains("server.files of afresh.toml: not trusted"), "{list}");
    assert!(list.contains("server.other of afresh.toml: trusted"), "{list}");
    assert_eq!(env.run(&["trust", "--revoke", "--all"]).code, Some(0));
    assert!(!listed(&env).contains(": trusted"));
    assert_eq!(env.events("trust_revoked").len(), 2);
}

#[test]
fn worktrees_share_what_a_repository_was_trusted_with() {
    let env = TestEnv::without_trust();
    let git = |arguments: &[&str]| {
        let mut command = std::process::Command::new("git");
        env.furnish(&mut command);
        let name = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let done = command.args(name).args(arguments).output().expect("git runs");
        assert!(done.status.success(), "{done:?}");
    };
    env.write("afresh.toml", FILES);
    git(&["init", "--quiet"]);
    git(&["add", "afresh.toml"]);
    git(&["commit", "--quiet", "-m", "x"]);
    git(&["worktree", "add", "--quiet", "../other"]);
    git(&["clone", "--quiet", ".", "../clone"]);
    assert_eq!(env.run(&["trust", "--yes"]).code, Some(0));
    let list_in = |folder: &str| {
        let folder = env.work().join(folder);
        let mut command = env.afresh(&["trust", "--list"]);
        let done = command.current_dir(folder).output().expect("it runs");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    assert!(list_in("../other").contains(": trusted"), "{}", list_in("../other"));
    // Another clone is another repository.
    assert!(list_in("../clone").contains(": not trusted"), "{}", list_in("../clone"));
}

#[test]
fn the_content_of_a_file_of_variables_counts_too() {
    let env = TestEnv::without_trust();
    env.write("afresh.toml", &format!("{FILES}env_file = \".env\"\n"));
    env.write(".env", "A=secret-value\n");
    let accepted = env.run(&["trust", "--yes"]);
    assert!(accepted.stdout.contains("variables = A"), "{accepted:?}");
    assert!(!accepted.stdout.contains("secret-value"), "{accepted:?}");
    let gateway = env.run(&["gateway", "--list"]);
    assert!(gateway.stdout.contains("files  npx"), "{gateway:?}");
    env.write(".env", "A=secret-value\nLD_PRELOAD=./evil.so\n");
    let gateway = env.run(&["gateway", "--list"]);
    assert!(gateway.stdout.contains("files.env_file  not trusted"), "{gateway:?}");
    assert!(!gateway.stdout.contains("npx"), "{gateway:?}");
}

#[test]
fn a_file_of_variables_outside_is_not_read_for_a_project() {
    let env = TestEnv::without_trust();
    fs::write(env.home().join("vars"), "A=b\n").unwrap();
    std::os::unix::fs::symlink(env.home().join("vars"), env.work().join("link.env")).unwrap();
    let server = r#"{"servers":{"a":{"command":"npx","envFile":"link.env"}}}"#;
    fs::create_dir(env.work().join(".vscode")).unwrap();
    env.write(".vscode/mcp.json", server);
    let gateway = env.run(&["gateway", "--trust", "--list"]);
    assert!(gateway.stderr.contains("it leads out of the project"), "{gateway:?}");
    assert!(!gateway.stdout.contains("npx"), "{gateway:?}");
}

#[test]
fn a_file_of_version_1_is_read_and_a_newer_one_is_left_alone() {
    let env = TestEnv::without_trust();
    env.write("afresh.toml", FILES);
    let repository = env.work().canonicalize().unwrap().display().to_string();
    let fixture = include_str!("../compat/trust-1.json").replace("REPOSITORY", &repository);
    place(&env, &fixture);
    assert!(listed(&env).contains("server.files of afresh.toml: trusted since 2026-"));
    let newer = "{\"version\": 2, \"repositories\": []}\n";
    place(&env, newer);
    for command in [&["trust", "--list"][..], &["trust", "--yes"], &["trust", "--revoke", "--all"]]
    {
        let refused = env.run(command);
        assert_eq!(refused.code, Some(5), "{refused:?}");
        assert!(refused.stderr.contains("has version 2, and this afresh knows 1"), "{refused:?}");
    }
    // Nothing of the project counts, and that is said.
    let gateway = env.run(&["gateway", "--list"]);
    assert!(gateway.stdout.contains("files  not trusted"), "{gateway:?}");
    assert!(gateway.stderr.contains("has version 2"), "{gateway:?}");
    assert_eq!(fs::read_to_string(trust_file(&env)).unwrap(), newer);
}

#[test]
fn state_of_the_first_version_is_read() {
    let env = TestEnv::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("compat/0.1.0");
    for name in ["audit.jsonl", "restart_marker.json", "runs.db"] {
        fs::copy(fixtures.join(name), env.work().join(".afresh").join(name)).unwrap();
    }
    let history = env.run(&["history"]);
    assert_eq!(history.code, Some(0), "{history:?}");
    assert!(history.stdout.contains("web"), "{history:?}");
    let runs = env.run(&["runs"]);
    assert_eq!(runs.code, Some(0), "{runs:?}");
    assert!(runs.stdout.contains("Old plan"), "{runs:?}");
    // New records go behind the old ones.
    let before = env.records().len();
    env.write("afresh.toml", FILES);
    assert_eq!(env.run(&["trust", "--yes"]).code, Some(0));
    wait_for("one more", || env.records().len() == before + 1);
}

#[test]
fn the_rights_of_an_agent_are_never_raised_by_a_project() {
    let env = TestEnv::without_trust();
    env.write("afresh.toml", "[run]\npermission_mode = \"bypass\"\n");
    let shown = |env: &TestEnv, arguments: &[&str]| {
        let shown = env.run(arguments);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        (shown.stdout, shown.stderr)
    };
    let (stdout, stderr) = shown(&env, &["config", "show"]);
    assert!(stdout.contains("permission_mode     = \"edit\"") || !stdout.contains("bypass"));
    assert!(stderr.contains("cannot give an agent more rights"), "{stderr}");
    env.write("afresh.toml", "[run]\npermission_mode = \"plan\"\n");
    assert!(shown(&env, &["config", "show", "--changed"]).0.contains("\"plan\""));
}
