//! Recorded files of the three agents, and what each would start from them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;
use crate::agent::mcp_servers::repository_of_worktree;

const FOLDER: &str = "/home/me/repo/sub";

/// What is found of these files, in a folder of `/home/me/repo`, a worktree of `/home/me/main`.
fn found(agent: AgentKind, program: &[&str], files: &[(&str, &str)]) -> AgentServers {
    with_variables(agent, program, files, &[])
}

fn place<'a>(
    variable: &'a dyn Fn(&str) -> Option<PathBuf>,
    is_set: &'a dyn Fn(&str) -> bool,
) -> ProjectContext<'a> {
    ProjectContext {
        folder: Path::new(FOLDER),
        repository: Some(Path::new("/home/me/repo")),
        project: Some(Path::new("/home/me/main")),
        home: Some(Path::new("/home/me")),
        variable,
        is_set,
    }
}

fn with_variables(
    agent: AgentKind,
    program: &[&str],
    files: &[(&str, &str)],
    variables: &[(&str, &str)],
) -> AgentServers {
    let value = |name: &str| variables.iter().find(|(this, _)| *this == name);
    let variable = |name: &str| value(name).map(|(_, value)| PathBuf::from(value));
    let is_set = |name: &str| value(name).is_some();
    let place = place(&variable, &is_set);
    let mut texts = Vec::new();
    for (layer, path) in agent.config_files(&place) {
        let path = path.to_str().unwrap().to_owned();
        if let Some((_, text)) = files.iter().find(|(name, _)| *name == path) {
            texts.push(ConfigText { layer, path, bytes: text.as_bytes().to_vec() });
        }
    }
    assert_eq!(texts.len(), files.len(), "each of the files is looked for");
    let program: Vec<String> = program.iter().map(|word| (*word).to_owned()).collect();
    find(&ServerQuery { agent, program: &program, context: &place, afresh: "/bin/afresh" }, &texts)
}

/// The servers as `NAME: COMMAND`, the command without what is in front of it.
fn commands(found: &AgentServers) -> Vec<String> {
    assert!(found.note.is_none() && found.mistakes.is_empty(), "{found:?}");
    let command = |it: &SupervisedServer| {
        let name = &it.server.name;
        let (ours, own) = it.server.command.split_at(5);
        assert_eq!(ours, ["/bin/afresh", "mcp", "--name", name, "--"]);
        format!("{name}: {}", own.join(" "))
    };
    found.servers.iter().map(command).collect()
}

#[test]
fn an_entry_of_claude_is_passed_on_whole() {
    let entry = r#"{"type":"stdio","command":"npx","args":["-y","${PACKAGE:-x}"],"env":{"KEY":"${KEY}"},"timeout":5}"#;
    let text =
        format!(r#"{{"mcpServers":{{"a":{entry},"web":{{"type":"http","url":"https://x"}}}}}}"#);
    let found = found(AgentKind::Claude, &["claude"], &[("/home/me/repo/.mcp.json", &text)]);
    assert_eq!(commands(&found), ["a: npx -y ${PACKAGE:-x}"]);
    assert_eq!(found.servers[0].from, "/home/me/repo/.mcp.json");
    let rest = Value::Object(found.servers[0].server.rest.clone());
    assert_eq!(rest, json!({"type": "stdio", "env": {"KEY": "${KEY}"}, "timeout": 5}));
}

#[test]
fn with_claude_the_nearest_of_a_name_counts() {
    let of = |word: &str| {
        format!(r#"{{"mcpServers":{{"s":{{"command":"{word}"}},"{word}":{{"command":"x"}}}}}}"#)
    };
    let (above, root, sub) = (of("above"), of("root"), of("sub"));
    let own = |local: &str| {
        format!(
            r#"{{"mcpServers":{{"s":{{"command":"user"}},"u":{{"command":"x"}}}},"projects":{{
            "/home/me/other":{{"mcpServers":{{"o":{{"command":"x"}}}}}},
            "/home/me/repo":{{"mcpServers":{{"never":{{"command":"x"}}}}}},
            "/home/me/main":{{"mcpServers":{local}}}}}}}"#
        )
    };
    let find = |own: &str| {
        let files = [
            ("/home/me/.claude.json", own),
            ("/home/me/.mcp.json", above.as_str()),
            ("/home/me/repo/.mcp.json", root.as_str()),
            ("/home/me/repo/sub/.mcp.json", sub.as_str()),
        ];
        commands(&found(AgentKind::Claude, &["claude"], &files)).join(", ")
    };
    assert_eq!(find(&own("{}")), "above: x, root: x, s: sub, sub: x, u: x");
    let local = own(r#"{"s":{"command":"local"}}"#);
    assert_eq!(find(&local), "above: x, root: x, s: local, sub: x, u: x");
    let moved = [("CLAUDE_CONFIG_DIR", "/moved")];
    let files = [("/moved/.claude.json", local.as_str())];
    let moved = with_variables(AgentKind::Claude, &["claude"], &files, &moved);
    assert_eq!(commands(&moved), ["s: local", "u: x"]);
}

#[test]
fn what_is_turned_off_in_claude_stays_off() {
    let servers = r#"{"a":{"command":"a"},"b":{"command":"b"},"c":{"command":"c"}}"#;
    let project = format!(r#"{{"mcpServers":{servers}}}"#);
    let project = ("/home/me/repo/.mcp.json", project.as_str());
    let own = r#"{"mcpServers":{"u":{"command":"u"},"b":{"command":"of the user"}},
        "projects":{"/home/me/main":{"disabledMcpServers":["a","u"]}}}"#;
    let settings = r#"{"disabledMcpjsonServers":["b"]}"#;
    for place in ["/home/me/.claude/settings.json", "/home/me/repo/sub/.claude/settings.local.json"]
    {
        let files = [project, ("/home/me/.claude.json", own), (place, settings)];
        let found = found(AgentKind::Claude, &["claude"], &files);
        assert_eq!(commands(&found), ["b: of the user", "c: c"]);
    }
    let denied = r#"{"deniedMcpServers":[{"serverCommand":["a"]}]}"#;
    for (place, text) in [
        ("/home/me/.claude/settings.json", denied),
        ("/etc/claude-code/managed-settings.json", r#"{"allowedMcpServers":[]}"#),
        ("/etc/claude-code/managed-mcp.json", "{}"),
    ] {
        let found = found(AgentKind::Claude, &["claude"], &[project, (place, text)]);
        assert!(found.servers.is_empty() && found.note.unwrap().contains(place));
    }
}

#[test]
fn codex_merges_its_files_key_by_key() {
    let user = "\
[projects.\"/home/me/main\"]
trust_level = \"trusted\"
[mcp_servers.a]
command = \"a\"
args = [\"1\"]
env = { KEY = \"secret\" }
[mcp_servers.off]
command = \"off\"
enabled = false
[mcp_servers.web]
url = \"https://x\"
[mcp_servers.far]
command = \"far\"
environment_id = \"elsewhere\"
[mcp_servers.\"b.c d\"]
command = \"b\"
";
    let project = "[mcp_servers.p]\ncommand = \"p\"\n[mcp_servers.off]\nenabled = true\n";
    let near = "[mcp_servers]\na = { args = [\"2\"] }\np = { enabled = false }\n";
    let files = [
        ("/home/me/.codex/config.toml", user),
        ("/home/me/repo/.codex/config.toml", project),
        ("/home/me/repo/sub/.codex/config.toml", near),
    ];
    let all = found(AgentKind::Codex, &["codex"], &files);
    assert_eq!(commands(&all), ["a: a 2", "b.c d: b", "off: off"]);
    assert!(all.servers.iter().all(|it| it.server.rest.is_empty()), "the rest stays where it is");
    assert_eq!(all.servers[0].from, "/home/me/.codex/config.toml");
    // Who has not said that the project is trusted gets nothing of it.
    for level in ["untrusted", "?"] {
        let user = user.replace("trusted", level);
        let files = [files[1], ("/home/me/.codex/config.toml", user.as_str())];
        let found = found(AgentKind::Codex, &["codex"], &files);
        assert_eq!(commands(&found), ["a: a 1", "b.c d: b"]);
    }
    let moved = with_variables(
        AgentKind::Codex,
        &["codex"],
        &[("/moved/config.toml", user)],
        &[("CODEX_HOME", "/moved")],
    );
    assert_eq!(commands(&moved).len(), 2);
}

#[test]
fn files_of_a_project_are_known_as_such_for_each_agent() {
    for (kind, path, is_of_project) in [
        (AgentKind::Claude, "/home/me/repo/.mcp.json", true),
        (AgentKind::Codex, "/home/me/repo/.codex/config.toml", true),
        (AgentKind::Opencode, "/home/me/repo/opencode.json", true),
        (AgentKind::Opencode, "/home/me/repo/sub/opencode.jsonc", true),
        (AgentKind::Opencode, "/home/me/repo/.opencode/opencode.json", true),
        (AgentKind::Opencode, "/home/me/.config/opencode/opencode.json", false),
        (AgentKind::Opencode, "/home/me/.opencode/opencode.json", false),
    ] {
        let files = kind.config_files(&place(&|_| None, &|_| false));
        let layers: Vec<_> = files.iter().filter(|(_, file)| file == Path::new(path)).collect();
        let [(layer, _)] = &layers[..] else { panic!("{path}: {layers:?}") };
        assert_eq!(layer.is_of_project(), is_of_project, "{path}");
    }
}

#[test]
fn opencode_merges_its_files_in_its_order() {
    let of = |word: &str| {
        format!(
            "{{ // {word}\n\"mcp\": {{\"s\": {{\"type\": \"local\", \"command\": [\"{word}\"],}},}},}}"
        )
    };
    let mut files: Vec<(&str, String)> = Vec::new();
    // Each is stronger than all before it.
    for path in [
        "/home/me/.config/opencode/config.json",
        "/home/me/.config/opencode/opencode.json",
        "/home/me/.config/opencode/opencode.jsonc",
        "/extra.json",
        "/home/me/repo/opencode.json",
        "/home/me/repo/sub/opencode.json",
        "/home/me/repo/sub/opencode.jsonc",
        "/home/me/repo/sub/.opencode/opencode.json",
        "/home/me/repo/.opencode/opencode.json",
        "/home/me/.opencode/opencode.json",
        "/folder/opencode.json",
    ] {
        files.push((path, of(path)));
        let given: Vec<(&str, &str)> =
            files.iter().rev().map(|(path, text)| (*path, text.as_str())).collect();
        let variables = [("OPENCODE_CONFIG", "/extra.json"), ("OPENCODE_CONFIG_DIR", "/folder")];
        let found = with_variables(AgentKind::Opencode, &["opencode"], &given, &variables);
        assert_eq!(commands(&found), [format!("s: {path}")]);
        assert_eq!(found.servers[0].from, path);
    }
    let user = r#"{"mcp":{
        "a":{"type":"local","command":["a","{env:WORD}"],"environment":{"KEY":"secret"},"enabled":false},
        "b":{"type":"local","command":["b"]},
        "c":{"type":"local","command":["c"]},
        "file":{"type":"local","command":["x","{file:./key}"]},
        "web":{"type":"remote","url":"https://x"}}}"#;
    let project = r#"{"mcp":{"a":{"enabled":true},"b":{"enabled":false},"c":{"type":"remote","url":"https://x"}}}"#;
    let files = [
        ("/home/me/.config/opencode/opencode.json", user),
        ("/home/me/repo/opencode.json", project),
    ];
    let all = found(AgentKind::Opencode, &["opencode"], &files);
    assert_eq!(commands(&all), ["a: a {env:WORD}"]);
    assert!(all.servers[0].server.rest.is_empty(), "the rest stays where it is");
    assert_eq!(all.servers[0].from, "/home/me/.config/opencode/opencode.json");
}

#[test]
fn what_is_behind_afresh_already_stays_as_it_is() {
    let text = r#"{"mcpServers":{
        "a":{"command":"afresh","args":["mcp","--","a"]},
        "b":{"command":"npx","args":["-y","/x/afresh","gateway"]},
        "c":{"command":"afresh-like","args":["mcp"]},
        "d":{"command":"","args":[]},
        "e":{"command":["no","text"]},
        "f":{"command":"x","args":[1]},
        "g":7}}"#;
    let found = found(AgentKind::Claude, &["claude"], &[("/home/me/repo/.mcp.json", text)]);
    assert_eq!(commands(&found), ["c: afresh-like mcp"]);
}

#[test]
fn a_file_that_cannot_be_understood_is_named() {
    let good = r#"{"mcpServers":{"a":{"command":"a"}}}"#;
    // Claude Code takes no comments there, and so nothing of this file.
    for (bad, line) in [("{\n \"mcpServers\": {", 2), ("// ours\n{\"mcpServers\": {}}", 1)] {
        let files = [("/home/me/repo/.mcp.json", good), ("/home/me/repo/sub/.mcp.json", bad)];
        let found = found(AgentKind::Claude, &["claude"], &files);
        assert_eq!(found.servers.len(), 1, "the other file counts");
        let [mistake] = &found.mistakes[..] else { panic!("{found:?}") };
        let report = mistake.to_string();
        assert!(report.contains(&format!("/home/me/repo/sub/.mcp.json:{line}:")), "{report}");
    }
    // Elsewhere a server can be turned off.
    for (agent, path, text) in [
        (AgentKind::Claude, "/home/me/.claude.json", "{"),
        (AgentKind::Claude, "/home/me/.claude/settings.json", "{]"),
        (AgentKind::Codex, "/home/me/.codex/config.toml", "a = "),
        (AgentKind::Opencode, "/home/me/repo/opencode.json", "<<<"),
    ] {
        let more = ("/home/me/repo/.mcp.json", good);
        let files = [(path, text), more];
        let count = if agent == AgentKind::Claude { 2 } else { 1 };
        let found = found(agent, &["x"], &files[..count]);
        assert!(found.servers.is_empty() && found.mistakes.len() == 1, "{found:?}");
        assert_eq!(found.note, Some(format!("`{path}` cannot be understood")));
    }
}

#[test]
fn a_worktree_of_git_says_where_it_belongs() {
    let of = |text| repository_of_worktree(text).and_then(Path::to_str);
    assert_eq!(of("gitdir: /home/me/main/.git/worktrees/x\n"), Some("/home/me/main"));
    assert_eq!(of("gitdir: /home/me/main/.git/modules/x\n"), None);
    assert_eq!(of("/home/me/main/.git/worktrees/x"), None);
}

#[test]
fn flags_that_decide_which_servers_there_are_decide() {
    let claude = [("/home/me/repo/.mcp.json", r#"{"mcpServers":{"a":{"command":"a"}}}"#)];
    let codex = [("/home/me/.codex/config.toml", "[mcp_servers.a]\ncommand = \"a\"")];
    for (agent, words, files, note) in [
        (AgentKind::Claude, &["claude", "--mcp-config", "x"][..], claude, "--mcp-config"),
        (
            AgentKind::Claude,
            &["claude", "--setting-sources=user"],
            claude,
            "--setting-sources=user",
        ),
        (AgentKind::Codex, &["codex", "-c", "a=1"], codex, "-c"),
    ] {
        let found = found(agent, words, &files);
        assert!(found.servers.is_empty() && found.note.unwrap().contains(note));
    }
    let project = ("/home/me/.codex/config.toml", "project_root_markers = []");
    assert!(found(AgentKind::Codex, &["codex"], &[project]).note.is_some());
    assert!(found(AgentKind::Command, &["sh", "-c"], &[]).note.is_none());
    let place = ProjectContext {
        folder: Path::new(FOLDER),
        repository: None,
        project: None,
        home: None,
        variable: &|_| None,
        is_set: &|name| name == "OPENCODE_DISABLE_PROJECT_CONFIG",
    };
    assert_eq!(AgentKind::Opencode.config_files(&place), []);
    // At home, the user's settings are those of the folder.
    let home = Path::new(FOLDER);
    let place = ProjectContext { home: Some(home), is_set: &|_| false, ..place };
    for agent in AgentKind::ALL {
        let all = agent.config_files(&place);
        let is_twice = |path: &PathBuf| all.iter().filter(|it| it.1 == *path).count() > 1;
        assert!(!all.iter().any(|source| is_twice(&source.1)), "{all:?}");
    }
}
