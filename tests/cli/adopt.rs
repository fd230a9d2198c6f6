//! `afresh adopt`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use afresh_tests::{Finished, TestEnv, afresh_binary};

use crate::run_into_closed_pipe;

const VSCODE: &str = r#"{
	// Servers of this project.
	"inputs": [{ "type": "promptString", "id": "key", "password": true }],
	"servers": {
		"docs": {
			"type": "stdio",
			"command": "python", // the one of the environment
			"args": ["-m", "docs_server", "--api-key", "hunter2"],
			"env": { "TOKEN": "${input:key}" },
			"dev": { "watch": "docs_server/**/*.py" },
		},
		"github": { "type": "http", "url": "https://api.githubcopilot.com/mcp/" },
	},
}
"#;

const CLAUDE: &str = "{\n  \"mcpServers\": {\n    \"files\": {\n      \"command\": \"npx\",\n      \"args\": [\n        \"-y\",\n        \"server-filesystem\",\n        \".\"\n      ]\n    },\n    \"bare\": {\n      \"command\": \"./server\"\n    }\n  }\n}\n";

const CURSOR: &str = "{\"mcpServers\":{\"memory\":{\"command\":\"cmd\",\"args\":[\"/c\",\"npx\",\"server-memory\"]}}}";

const OPENCODE: &str = "{\r\n  \"$schema\": \"https://opencode.ai/config.json\",\r\n  \"mcp\": {\r\n    \"local\": {\r\n      \"type\": \"local\",\r\n      \"command\": [\"bun\", \"x\", \"server\"], // fast\r\n      \"enabled\": false,\r\n    },\r\n    \"far\": { \"type\": \"remote\", \"url\": \"https://example.com\" },\r\n  },\r\n}\r\n";

const CODEX: &str = r#"model = "gpt-5" # for now

[mcp_servers.docs]
command = "uvx"            # from PATH
args = ["mcp-server-docs"]

[mcp_servers.bare]
command = "server"

[mcp_servers.docs.env]
API_KEY = "hunter3"
"#;

const CLAUDE_USER: &str = r#"{
  "numStartups": 12,
  "mcpServers": { "all": { "type": "stdio", "command": "npx", "args": [], "env": {} } },
  "projects": {
    "/home/ada/shop": {
      "allowedTools": [],
      "mcpServers": { "own": { "command": "node", "args": ["own.js"] } }
    }
  }
}
"#;

/// Every file of a project, by its path.
const PROJECT: [(&str, &str); 5] = [
    (".vscode/mcp.json", VSCODE),
    (".mcp.json", CLAUDE),
    (".cursor/mcp.json", CURSOR),
    ("opencode.jsonc", OPENCODE),
    (".codex/config.toml", CODEX),
];

/// Every file of a user, by its path.
const USER: [(&str, &str); 5] = [
    (".claude.json", CLAUDE_USER),
    (".config/Claude/claude_desktop_config.json", CLAUDE),
    (".config/Code/User/mcp.json", VSCODE),
    (".codex/config.toml", CODEX),
    (".config/opencode/opencode.json", OPENCODE),
];

fn put(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[track_caller]
fn assert_unchanged(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), *text, "{name}");
    }
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

/// Runs it with a PATH on which `afresh` is the one under test.
fn adopt(env: &TestEnv, arguments: &[&str]) -> Finished {
    let mut command = env.afresh(&[&["adopt"], arguments].concat());
    let folder = afresh_binary().parent().unwrap().display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{folder}:{path}"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn every_client_of_a_project_is_adopted_and_comes_back() {
    // W11
    let env = TestEnv::new();
    put(&env.work(), &PROJECT);
    put(&env.home(), &USER);
    let done = adopt(&env, &["--yes"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let vscode = text(env.work().join(".vscode/mcp.json"));
    assert_eq!(
        vscode,
        VSCODE
            .replace("\"command\": \"python\"", "\"command\": \"afresh\"")
            .replace("[\"-m\", ", "[\"mcp\", \"--name\", \"docs\", \"--\", \"python\", \"-m\", ")
    );
    let claude = text(env.work().join(".mcp.json"));
    let claude: serde_json::Value = serde_json::from_str(&claude).unwrap();
    assert_eq!(
        claude["mcpServers"]["bare"],
        serde_json::json!({"command": "afresh", "args": ["mcp", "--name=bare", "--", "./server"]})
    );
    let cursor = text(env.work().join(".cursor/mcp.json"));
    assert!(cursor.contains(
        r#""command":"afresh","args":["mcp","--name","memory","--","cmd","/c","npx","server-memory"]"#
    ));
    let opencode = text(env.work().join("opencode.jsonc"));
    let list = "[\"afresh\", \"mcp\", \"--name\", \"local\", \"--\", \"bun\", \"x\", \"server\"]";
    assert_eq!(opencode, OPENCODE.replace("[\"bun\", \"x\", \"server\"]", list));
    let codex = text(env.work().join(".codex/config.toml"));
    assert!(codex.contains("command = \"afresh\"            # from PATH\n"), "{codex}");
    assert!(codex.contains("\nargs = [\"mcp\", \"--name=bare\", \"--\", \"server\"]\n"), "{codex}");
    // The user's are only mentioned.
    assert_unchanged(&env.home(), &USER);
    assert!(done.stderr.contains("; `afresh adopt --user` is for these"), "{}", done.stderr);

    let again = adopt(&env, &["--yes"]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""));
    assert!(again.stderr.starts_with("nothing to change: "), "{}", again.stderr);
    assert_eq!(text(env.work().join(".vscode/mcp.json")), vscode);

    assert_eq!(adopt(&env, &["--undo", "--yes"]).code, Some(0));
    assert_unchanged(&env.work(), &PROJECT);
}

/// A gateway over HTTP in a client's file, with the reference to a variable in that client's own syntax.
const GATEWAYS: [(&str, &str); 3] = [
    (
        ".mcp.json",
        r#"{"mcpServers":{"gateway":{"type":"http","url":"http://127.0.0.1:8808/mcp","headers":{"Authorization":"Bearer ${GATEWAY_TOKEN}"}},"files":{"command":"npx","args":["server"]}}}"#,
    ),
    (
        ".vscode/mcp.json",
        r#"{"servers":{"gateway":{"type":"http","url":"http://127.0.0.1:8808/mcp","headers":{"Authorization":"Bearer ${env:GATEWAY_TOKEN}"}},"docs":{"command":"python"}}}"#,
    ),
    (
        ".codex/config.toml",
        "[mcp_servers.gateway]\nurl = \"http://127.0.0.1:8808/mcp\"\nbearer_token_env_var = \"GATEWAY_TOKEN\"\n\n[mcp_servers.docs]\ncommand = \"uvx\"\n",
    ),
];

#[test]
fn no_token_is_ever_written_into_a_file() {
    let env = TestEnv::new();
    put(&env.work(), &GATEWAYS);
    let secret = "5ec2e7".repeat(10) + "0123";
    let private = env.home().join(".local/state/afresh/private");
    fs::create_dir_all(&private).unwrap();
    fs::set_permissions(&private, PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(private.join("gateway.token"), &secret).unwrap();
    fs::write(env.work().join(".afresh/token"), &secret).unwrap();
    let mut command = env.afresh(&["adopt", "--yes"]);
    command.env("GATEWAY_TOKEN", &secret).stdin(Stdio::null());
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    for (name, old) in GATEWAYS {
        let new = text(env.work().join(name));
        assert!(!new.contains(&secret), "{new}");
        assert!(new.contains("GATEWAY_TOKEN") && new != old, "{new}");
    }
    let printed = [done.stdout, done.stderr].concat();
    assert!(!String::from_utf8_lossy(&printed).contains(&secret));
}

#[test]
fn the_users_files_are_adopted_when_asked_for() {
    let env = TestEnv::new();
    put(&env.work(), &PROJECT);
    put(&env.home(), &USER);
    let claude = env.home().join(".claude.json");
    fs::set_permissions(&claude, PermissionsExt::from_mode(0o600)).unwrap();
    let done = adopt(&env, &["--user", "--yes"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_unchanged(&env.work(), &PROJECT);
    let new: serde_json::Value = serde_json::from_str(&text(claude.clone())).unwrap();
    let args = serde_json::json!(["mcp", "--name", "own", "--", "node", "own.js"]);
    assert_eq!(new["projects"]["/home/ada/shop"]["mcpServers"]["own"]["args"], args);
    assert_eq!(fs::metadata(&claude).unwrap().permissions().mode() & 0o777, 0o600);
    for (name, old) in USER {
        assert_ne!(text(env.home().join(name)), old, "{name}");
    }
    assert_eq!(adopt(&env, &["--user", "--undo", "--yes"]).code, Some(0));
    assert_unchanged(&env.home(), &USER);
}

#[test]
fn files_of_other_clients_are_found_and_yaml_is_for_people() {
    let env = TestEnv::new();
    let user = [
        (
            ".config/zed/settings.json",
            r#"{"context_servers": {"z": {"command": "z", "args": []}}}"#,
        ),
        (".gemini/settings.json", r#"{"mcpServers": {"g": {"command": "g", "args": []}}}"#),
        (".qwen/settings.json", r#"{"mcpServers": {"q": {"command": "q", "args": []}}}"#),
        (
            ".cline/data/settings/cline_mcp_settings.json",
            r#"{"mcpServers": {"c": {"transport": {"type": "stdio", "command": "c", "args": []}}}}"#,
        ),
        (
            ".codeium/windsurf/mcp_config.json",
            r#"{"mcpServers": {"w": {"command": "w", "args": []}}}"#,
        ),
    ];
    put(&env.home(), &user);
    let goose = "extensions:\n  a:\n    cmd: npx # mine\n    args: [x]\n";
    put(
        &env.home(),
        &[(".config/goose/config.yaml", goose), (".continue/config.yaml", "name: x\n")],
    );
    let done = adopt(&env, &["--user", "--yes"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for (path, before) in user {
        let after = text(env.home().join(path));
        assert!(
            after.contains(&format!("\"{}\"", afresh_binary().display()))
                && after.contains("\"mcp\", \"--name\""),
            "{path}: {after}"
        );
        assert_ne!(after, before);
    }
    assert_eq!(text(env.home().join(".config/goose/config.yaml")), goose);
    let snippet = format!("    cmd: \"{}\"", afresh_binary().display());
    assert!(done.stderr.contains("is YAML") && done.stderr.contains(&snippet), "{}", done.stderr);
    // It has no server in it.
    assert!(!done.stderr.contains(".continue"), "{}", done.stderr);
    let again = adopt(&env, &["--user", "--yes"]);
    assert!(!again.stderr.contains("nothing to change"), "{}", again.stderr);
    assert_eq!(adopt(&env, &["--user", "--undo", "--yes"]).code, Some(0));
    assert_unchanged(&env.home(), &user);
}

#[test]
fn a_file_without_a_server_that_is_known_is_an_error() {
    let env = TestEnv::new();
    put(&env.work(), &[("odd.json", r#"{"tools": [{"run": "npx server"}]}"#)]);
    put(&env.work(), &[("left.json", r#"{"mcpServers": {"a": {"run": "npx server"}}}"#)]);
    let odd = adopt(&env, &["--yes", "odd.json"]);
    assert_eq!(odd.code, Some(4), "{odd:?}");
    assert!(odd.stderr.contains("no MCP server was found in `odd.json`"), "{}", odd.stderr);
    assert!(!odd.stderr.contains("makes these changes"), "there are none: {}", odd.stderr);
    let left = adopt(&env, &["--yes", "left.json"]);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(
        left.stderr.contains("is left alone") && !left.stderr.contains("nothing to change"),
        "{}",
        left.stderr
    );
}

#[test]
fn nothing_changes_without_a_yes() {
    let env = TestEnv::new();
    put(&env.work(), &PROJECT);
    for (arguments, code) in [(&[][..], 1), (&["--dry-run"], 0), (&["--json"], 1), (&["--list"], 0)]
    {
        let shown = adopt(&env, arguments);
        assert_eq!(shown.code, Some(code), "{arguments:?}");
        assert!(!shown.stdout.contains("hunter") && !shown.stderr.contains("hunter"));
        assert_unchanged(&env.work(), &PROJECT);
    }
    let shown = adopt(&env, &["--only", "docs", ".vscode/mcp.json"]);
    assert_eq!(
        shown.stdout,
        r#"--- .vscode/mcp.json
+++ .vscode/mcp.json
@@ -4,8 +4,8 @@
     "servers": {
         "docs": {
             "type": "stdio",
-            "command": "python", // the one of the environment
+            "command": "afresh", // the one of the environment
-            "args": ["-m", "docs_server", "--api-key", "[redacted]"],
+            "args": ["mcp", "--name", "docs", "--", "python", "-m", "docs_server", "--api-key", "[redacted]"],
             "env": { "TOKEN": "[redacted]" },
             "dev": { "watch": "docs_server/**/*.py" },
         },
"#
    );
    assert_eq!(shown.stderr, "nothing was changed: `--yes` makes these changes\n");
    let closed = run_into_closed_pipe(env.afresh(&["adopt", "--dry-run"]));
    assert_eq!((closed.code, closed.stderr.as_str()), (Some(0), ""));
}

#[test]
fn on_a_terminal_it_asks() {
    let env = TestEnv::new();
    let answer = |answer: &str| {
        put(&env.work(), &PROJECT);
        let binary = afresh_binary().display();
        let mut script = Command::new("script");
        env.furnish(&mut script);
        script.args(["-qec", &format!("'{binary}' adopt .mcp.json"), "/dev/null"]);
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        std::io::Write::write_all(&mut child.stdin.take()?, answer.as_bytes()).ok()?;
        let output = child.wait_with_output().ok()?;
        Some((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    // Not every machine has `script`.
    let Some((code, shown)) = answer("y\n") else { return };
    assert!(shown.contains("make these changes? [y/N]"), "{shown}");
    assert_eq!(code, Some(0), "{shown}");
    assert_ne!(text(env.work().join(".mcp.json")), CLAUDE);
    let (code, shown) = answer("n\n").unwrap();
    assert_eq!(code, Some(1), "{shown}");
    assert_unchanged(&env.work(), &PROJECT);
}

#[test]
fn the_list_has_every_server_and_its_state() {
    let env = TestEnv::new();
    put(&env.work(), &PROJECT);
    put(&env.home(), &[(".claude.json", CLAUDE_USER)]);
    env.write("afresh.toml", "");
    assert_eq!(adopt(&env, &["--yes", "--only", "files"]).code, Some(0));
    fs::create_dir_all(env.work().join("deep/er")).unwrap();
    let mut below = env.afresh(&["adopt", "--list"]);
    below.current_dir(env.work().join("deep/er"));
    let below = String::from_utf8(below.output().unwrap().stdout).unwrap();
    assert!(below.contains("/work/.mcp.json  Claude Code, project\n"), "{below}");
    let listed = adopt(&env, &["--list"]);
    let user = env.home().join(".claude.json");
    assert_eq!(
        listed.stdout,
        format!(
            ".vscode/mcp.json  VS Code, project\n  docs    not adopted\n  github  remote\n\
             .mcp.json  Claude Code, project\n  files  adopted\n  bare   not adopted\n\
             .cursor/mcp.json  Cursor, project\n  memory  not adopted\n\
             .codex/config.toml  Codex, project\n  docs  not adopted\n  bare  not adopted\n\
             opencode.jsonc  opencode, project\n  local  not adopted, disabled\n  far    remote\n\
             {}  Claude Code, user\n  all  not adopted\n  own  not adopted, for /home/ada/shop\n",
            user.display()
        )
    );
    let listed = adopt(&env, &["--list", "--json", ".mcp.json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed["files"][0]["servers"][0]["state"], "adopted");
    assert_eq!(listed["files"][0]["servers"][1]["name"], "bare");
    let empty = TestEnv::new();
    let listed = adopt(&empty, &["--list"]);
    assert_eq!((listed.code, listed.stdout.as_str()), (Some(0), ""));
}

#[test]
fn a_file_that_is_wrong_stops_no_other() {
    let env = TestEnv::new();
    put(&env.work(), &PROJECT);
    let broken = "{\n  \"servers\": {\n    \"a\": {\"command\": \"x\" \"args\": []}\n  }\n}\n";
    env.write(".vscode/mcp.json", broken);
    let done = adopt(&env, &["--yes"]);
    assert_eq!(done.code, Some(3));
    assert!(
        done.stderr.contains("error: a `,` or `}` is expected here\n --> .vscode/mcp.json:3:26\n"),
        "{}",
        done.stderr
    );
    assert_eq!(text(env.work().join(".vscode/mcp.json")), broken);
    assert_ne!(text(env.work().join(".mcp.json")), CLAUDE);

    for (name, bytes) in [("a.json", &b"\xff"[..]), ("b.toml", b"a = "), ("c.json", b"{]")] {
        fs::write(env.work().join(name), bytes).unwrap();
        let done = adopt(&env, &["--yes", name]);
        assert_eq!((done.code, done.stdout.as_str()), (Some(3), ""), "{}", done.stderr);
        assert_eq!(fs::read(env.work().join(name)).unwrap(), bytes);
    }
}

#[test]
fn files_that_cannot_be_changed_are_named() {
    let env = TestEnv::new();
    let outside = env.home().join("shared.json");
    fs::write(&outside, CLAUDE).unwrap();
    symlink(&outside, env.work().join(".mcp.json")).unwrap();
    fs::create_dir_all(env.work().join("opencode.json")).unwrap();
    let done = adopt(&env, &["--yes"]);
    assert_eq!(done.code, Some(5));
    assert!(done.stderr.contains("leads out of the project"), "{}", done.stderr);
    assert!(done.stderr.contains("opencode.json` is not a file"), "{}", done.stderr);
    assert_eq!(text(outside.clone()), CLAUDE);
    // Who names it means it, and the link stays one.
    let done = adopt(&env, &["--yes", ".mcp.json", outside.to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(env.work().join(".mcp.json").is_symlink());
    assert_ne!(text(outside.clone()), CLAUDE);

    fs::set_permissions(&outside, PermissionsExt::from_mode(0o444)).unwrap();
    let done = adopt(&env, &["--yes", "--undo", ".mcp.json"]);
    assert_eq!(done.code, Some(5));
    assert!(done.stderr.contains("shared.json` is read-only"), "{}", done.stderr);
    assert!(!done.stderr.contains("undid"), "{}", done.stderr);
    let missing = adopt(&env, &["nowhere.json"]);
    assert_eq!(missing.code, Some(4));
    assert!(missing.stderr.contains("there is no file `"), "{}", missing.stderr);
}

#[test]
fn what_is_asked_for_must_make_sense() {
    let env = TestEnv::new();
    let none = adopt(&env, &[]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(4), ""));
    put(&env.work(), &PROJECT);
    let wrong = adopt(&env, &["--only", "doc"]);
    assert_eq!(wrong.code, Some(4));
    assert_eq!(wrong.stderr, "error: there is no server `doc`\nhint: did you mean `docs`?\n");
    for arguments in [
        &["--with=--no-such-flag"][..],
        &["--with=--"],
        &["--with", "--help"],
        &["--afresh", "/bin/true"],
        &["--list", "--yes"],
        &["--user", "x.json"],
    ] {
        let wrong = adopt(&env, arguments);
        assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(2), ""), "{arguments:?}");
    }
    assert_unchanged(&env.work(), &PROJECT);
}

#[test]
fn it_writes_how_afresh_is_called() {
    let env = TestEnv::new();
    let command = |arguments: &[&str]| {
        env.write("a.json", r#"{"servers": {"a": {"command": "x", "args": ["y"]}}}"#);
        let done = env.run(&[&["adopt", "--yes", "a.json"], arguments].concat());
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let new: serde_json::Value =
            serde_json::from_str(&text(env.work().join("a.json"))).unwrap();
        new["servers"]["a"].clone()
    };
    // Another `afresh` on PATH, or none, is not this one.
    let whole = command(&[]);
    assert_eq!(whole["command"].as_str().map(Path::new), Some(afresh_binary()));
    let own = command(&["--afresh", "bin/afresh", "--with=--max-restarts", "--with", "0"]);
    let args = ["mcp", "--name", "a", "--max-restarts", "0", "--", "x", "y"];
    assert_eq!(own, serde_json::json!({"command": "bin/afresh", "args": args}));
    let shared = command(&["--afresh", "afresh", "--share"]);
    assert_eq!(
        shared["args"],
        serde_json::json!(["mcp", "--name", "a", "--share", "--", "x", "y"])
    );
    // It stands alone: what follows is the command, also for an undo.
    env.write(
        "a.json",
        r#"{"servers": {"a": {"command": "afresh", "args": ["mcp", "--share", "x", "y"]}}}"#,
    );
    assert_eq!(env.run(&["adopt", "--yes", "--undo", "a.json"]).code, Some(0));
    let undone: serde_json::Value = serde_json::from_str(&text(env.work().join("a.json"))).unwrap();
    assert_eq!(undone["servers"]["a"], serde_json::json!({"command": "x", "args": ["y"]}));
}

#[test]
fn what_is_written_runs() {
    let env = TestEnv::new();
    env.write("a.json", r#"{"servers": {"my server": {"command": "cat"}}}"#);
    assert_eq!(env.run(&["adopt", "--yes", "a.json"]).code, Some(0));
    let new: serde_json::Value = serde_json::from_str(&text(env.work().join("a.json"))).unwrap();
    let entry = &new["servers"]["my server"];
    let mut server = Command::new(entry["command"].as_str().unwrap());
    let args = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    server.args(args);
    env.furnish(&mut server);
    let output = server.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(env.events("server_started")[0]["props"]["service"], "my server");
    env.assert_nothing_left();
}

const ONE: &str = "{\n  \"mcpServers\": {\n    \"one\": {\n      \"command\": \"cat\",\n      \"args\": [\n        \"-u\"\n      ]\n    }\n  }\n}\n";

/// The command and the arguments of the server `one`.
fn words(path: PathBuf) -> Vec<String> {
    let new: serde_json::Value = serde_json::from_str(&text(path)).unwrap();
    let entry = &new["mcpServers"]["one"];
    let args = entry["args"].as_array().unwrap().iter();
    std::iter::once(&entry["command"]).chain(args).map(|it| it.as_str().unwrap().into()).collect()
}

fn script(path: &Path, lines: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Runs the binary of this path with nothing but these folders on PATH.
fn run_at(env: &TestEnv, program: &Path, path: &[&Path], arguments: &[&str]) -> Finished {
    let mut command = Command::new(program);
    env.furnish(&mut command);
    command.args(arguments).env("PATH", std::env::join_paths(path).unwrap());
    let output = command.stdin(Stdio::null()).output().unwrap();
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The binary under another path, as a package manager installs it.
fn installed(path: PathBuf) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    if fs::hard_link(afresh_binary(), &path).is_err() {
        fs::copy(afresh_binary(), &path).unwrap();
    }
    path
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn a_package_runner_is_written_where_one_runs_it() {
    // W11
    let env = TestEnv::new();
    let npx = env.home().join(".npm/_npx/8f497369b2d6166e/node_modules/.bin/afresh");
    let uvx = env.home().join(".cache/uv/archive-v0/RL8Uan5TR_KOPf5B/bin/afresh");
    let package = format!("afresh@{VERSION}");
    for (program, runner) in [(npx, &["npx", "-y", &package][..]), (uvx, &["uvx", &package])] {
        let program = installed(program);
        // The runner puts its cache on PATH: that is no installation.
        let path = [program.parent().unwrap()];
        let run = |arguments: &[&str]| run_at(&env, &program, &path, arguments);
        put(&env.work(), &[(".mcp.json", ONE)]);
        put(&env.home(), &[(".cursor/mcp.json", ONE)]);
        let wanted = [runner, &["mcp", "--name", "one", "--", "cat", "-u"]].concat();
        for (flags, file) in [
            (&[][..], env.work().join(".mcp.json")),
            (&["--user"], env.home().join(".cursor/mcp.json")),
        ] {
            let done = run(&[&["adopt", "--yes"], flags].concat());
            assert_eq!(done.code, Some(0), "{}", done.stderr);
            assert_eq!(words(file.clone()), wanted);
            let listed = run(&["adopt", "--list"]);
            assert!(listed.stdout.contains("one  adopted"), "{}", listed.stdout);
            let again = run(&[&["adopt", "--yes"], flags].concat());
            assert!(again.stderr.starts_with("nothing to change: "), "{}", again.stderr);
            assert_eq!(words(file.clone()), wanted);
            assert_eq!(run(&[&["adopt", "--undo", "--yes"], flags].concat()).code, Some(0));
            assert_eq!(text(file), ONE);
        }
    }
}

#[test]
fn a_team_gets_no_path_of_one_machine_and_the_user_gets_one() {
    let env = TestEnv::new();
    let (bin, runners) = (env.home().join("bin"), env.home().join("runners"));
    let program = installed(env.home().join("lib/afresh/afresh"));
    fs::create_dir_all(&bin).unwrap();
    symlink(&program, bin.join("afresh")).unwrap();
    // Runs what is given in place of the package.
    script(&runners.join("npx"), &format!("shift 2; exec '{}' \"$@\"", program.display()));
    let other = env.home().join("other");
    script(&other.join("afresh"), "exit 1");
    let on_path = bin.join("afresh").display().to_string();
    let (path, npx) = (program.display().to_string(), format!("npx -y afresh@{VERSION}"));
    for (folders, team, user) in [
        (vec![&*bin, &*runners], "afresh", &*on_path),
        (vec![&*runners], &npx, &path),
        (vec![&*other, &*bin, &*runners], &npx, &path),
        (vec![&*other], &path, &path),
    ] {
        put(&env.work(), &[(".mcp.json", ONE)]);
        put(&env.home(), &[(".cursor/mcp.json", ONE)]);
        let project = run_at(&env, &program, &folders, &["adopt", "--yes"]);
        let own = run_at(&env, &program, &folders, &["adopt", "--user", "--yes"]);
        assert_eq!((project.code, own.code), (Some(0), Some(0)), "{}", project.stderr);
        let front = |file: PathBuf| words(file).join(" ").split(" mcp ").next().unwrap().to_owned();
        assert_eq!(front(env.work().join(".mcp.json")), team, "{folders:?}");
        assert_eq!(front(env.home().join(".cursor/mcp.json")), user, "{folders:?}");
        let is_explained = project.stderr.contains("`--afresh afresh` writes the name alone");
        assert_eq!(is_explained, team != "afresh", "{}", project.stderr);
    }
    // It runs.
    put(&env.work(), &[(".mcp.json", ONE)]);
    assert_eq!(run_at(&env, &program, &[&runners], &["adopt", "--yes"]).code, Some(0));
    let line = words(env.work().join(".mcp.json"));
    let mut server = Command::new(runners.join(&line[0]));
    server.args(&line[1..]);
    env.furnish(&mut server);
    let output = server.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(env.events("server_started")[0]["props"]["service"], "one");
    env.assert_nothing_left();
}

#[test]
fn an_older_version_and_a_path_that_is_gone_are_replaced() {
    let env = TestEnv::new();
    let adopted = |front: &str| {
        format!(
            "{{\"mcpServers\": {{\"one\": {{\"command\": {front}, \"mcp\", \"--name\", \"one\", \"--\", \"cat\", \"-u\"]}}}}}}"
        )
    };
    let gone = env.home().join("gone/afresh");
    let binary = afresh_binary().display();
    let old = adopted(r#""npx", "args": ["-y", "afresh@0.0.1""#);
    let new = adopted(&format!(r#""npx", "args": ["-y", "afresh@{VERSION}""#));
    for (before, after) in [
        (old.clone(), new.clone()),
        (new.clone(), new.clone()),
        (
            adopted(r#""npx", "args": ["-y", "afresh@999.0.0""#),
            adopted(r#""npx", "args": ["-y", "afresh@999.0.0""#),
        ),
    ] {
        env.write(".mcp.json", &before);
        let done = adopt(&env, &["--yes"]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert_eq!(text(env.work().join(".mcp.json")), after);
        let updated = done.stderr.contains("updated `one` in `.mcp.json`");
        assert_eq!(updated, before != after, "{}", done.stderr);
    }
    let lost = format!("\"{}\", \"args\": [\"mcp\", \"--\", \"cat\"]", gone.display());
    let lost = format!("{{\"mcpServers\": {{\"one\": {{\"command\": {lost}}}}}}}");
    put(&env.home(), &[(".cursor/mcp.json", &lost)]);
    let done = adopt(&env, &["--user", "--yes"]);
    assert!(done.stderr.contains("updated `one`"), "{}", done.stderr);
    assert_eq!(
        text(env.home().join(".cursor/mcp.json")),
        lost.replace(&gone.display().to_string(), &binary.to_string())
    );
    // `--afresh` names a runner, and nothing else with blanks in it.
    env.write("a.json", ONE);
    assert_eq!(adopt(&env, &["--yes", "--afresh", "uvx", "a.json"]).code, Some(0));
    assert_eq!(
        words(env.work().join("a.json"))[..2],
        ["uvx".to_owned(), format!("afresh@{VERSION}")]
    );
}

#[test]
fn the_users_file_gets_a_whole_path_by_whatever_name_it_is_given() {
    let env = TestEnv::new();
    let link = env.home().with_file_name("link");
    symlink(env.home(), &link).unwrap();
    let program = afresh_binary();
    let folders = [program.parent().unwrap()];
    let absolute = env.home().join(".cursor/mcp.json").display().to_string();
    for (home, name) in [
        (env.home(), "../home/.cursor/mcp.json"),
        (env.home(), "../link/.cursor/mcp.json"),
        (link, &*absolute),
    ] {
        put(&env.home(), &[(".cursor/mcp.json", ONE)]);
        let mut command = Command::new(program);
        env.furnish(&mut command);
        command.args(["adopt", "--yes", name]).env("HOME", &home);
        command.env("PATH", std::env::join_paths(folders).unwrap()).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let first = &words(env.home().join(".cursor/mcp.json"))[0];
        assert_eq!(*first, program.display().to_string(), "{name}");
    }
    // Another's, in a folder of the same name, is a project's.
    put(&env.work(), &[(".cursor/mcp.json", ONE)]);
    assert_eq!(adopt(&env, &["--yes", "../work/.cursor/mcp.json"]).code, Some(0));
    assert_eq!(words(env.work().join(".cursor/mcp.json"))[0], "afresh");
}

#[test]
fn flags_are_added_to_what_was_adopted_before() {
    let env = TestEnv::new();
    env.write(".mcp.json", ONE);
    assert_eq!(adopt(&env, &["--yes"]).code, Some(0));
    let path = || env.work().join(".mcp.json");
    let done = adopt(&env, &["--share"]);
    assert_eq!(done.code, Some(1), "it is due: {}", done.stderr);
    assert!(done.stdout.contains("--share"), "{}", done.stdout);
    let done = adopt(&env, &["--share", "--yes"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("added flags to `one` in `.mcp.json`"), "{}", done.stderr);
    let line = "afresh mcp --name one --share -- cat -u";
    assert_eq!(words(path()).join(" "), line);
    let done = adopt(&env, &["--share", "--yes"]);
    assert!(done.stderr.contains("nothing to change"), "{}", done.stderr);
    assert_eq!(words(path()).join(" "), line);
    // Those that do not go together with what is there are refused, before a client fails with them.
    let done = adopt(&env, &["--yes", "--with=--trace=t"]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("`one` in `.mcp.json` has other flags"), "{}", done.stderr);
    assert_eq!(words(path()).join(" "), line);
    assert_eq!(adopt(&env, &["--undo", "--yes"]).code, Some(0));
    assert_eq!(text(path()), ONE);
}
