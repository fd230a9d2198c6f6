//! The MCP servers of an agent, which `afresh run` puts behind `afresh mcp`. Real agents are in
//! `tests/interop/plans`.

use std::fs;

use afresh_tests::TestEnv;
use serde_json::Value;

const PLAN: &str = "# A plan\n\n## Phase: One\n\nWrite one.txt.\n\n- Gate: test -f one.txt\n";

const SERVERS: &str = r#"{"mcpServers":{
    "notes":{"command":"python3","args":["notes.py"],"env":{"KEY":"a-secret"}},
    "web":{"type":"http","url":"https://localhost/"}}}"#;

/// In place of Claude Code: keeps what it was given, and ends.
const AGENT: &str = r#"
echo "$@" > words
while [ $# -gt 0 ]; do
    if [ "$1" = --mcp-config ]; then cp "$2" given.json; ls -l "$2" | cut -c1-10 > mode; echo "$2" > where; fi
    shift
done
"#;

const DRY: [&str; 5] = ["run", "--trust", "--agent", "claude", "--dry-run"];

fn project() -> TestEnv {
    let env = TestEnv::new();
    env.write("PLAN.md", PLAN);
    env.write(".mcp.json", SERVERS);
    env
}

#[test]
fn a_dry_run_shows_which_servers_are_supervised() {
    let env = project();
    let own = r#"{"mcpServers":{"own":{"command":"own"}}}"#;
    fs::write(env.home().join(".claude.json"), own).expect("home is writable");
    let shown = env.run(&DRY);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(
        shown.stdout.contains("MCP server behind afresh: notes (from .mcp.json)\n"),
        "{shown:?}"
    );
    assert!(shown.stdout.contains("MCP server behind afresh: own (from "), "{shown:?}");
    assert!(!format!("{shown:?}").contains("a-secret"), "{shown:?}");
    let json = env.run(&[&DRY[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(json["supervised_servers"][0]["name"], "notes");
    assert_eq!(json["supervised_servers"][0]["from"], ".mcp.json");
    let other = ["run", "--agent", "command", "--agent-command", "x", "--dry-run"].to_vec();
    let off =
        ["--no-supervise-mcp", "--supervise-mcp=false"].map(|flag| [&DRY[..], &[flag]].concat());
    for words in off.into_iter().chain([other]) {
        let shown = env.run(&words);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        assert!(!shown.stdout.contains("behind afresh"), "{words:?}: {shown:?}");
    }
    env.write("afresh.toml", "[run]\nsupervise_mcp = false\n");
    assert!(!env.run(&DRY).stdout.contains("behind afresh"));
    assert!(env.run(&[&DRY[..], &["--supervise-mcp"]].concat()).stdout.contains("behind afresh"));
}

#[test]
fn servers_of_a_project_need_trust_for_each_agent() {
    let opencode = r#"{"mcp":{"notes":{"type":"local","command":["python3","notes.py"]}}}"#;
    let codex = "[mcp_servers.notes]\ncommand = \"python3\"\nargs = [\"notes.py\"]\n";
    for (agent, file, text) in [
        ("claude", ".mcp.json", SERVERS),
        ("codex", ".codex/config.toml", codex),
        ("opencode", "opencode.json", opencode),
    ] {
        let env = TestEnv::without_trust();
        env.write("PLAN.md", PLAN);
        fs::create_dir_all(env.work().join(".codex")).expect("writable");
        fs::create_dir_all(env.home().join(".codex")).expect("writable");
        // Codex reads a project's file only where it trusts the folder itself.
        let trusted = format!("[projects.{:?}]\ntrust_level = \"trusted\"\n", env.work());
        fs::write(env.home().join(".codex/config.toml"), trusted).expect("writable");
        env.write(file, text);
        let dry = ["run", "--agent", agent, "--dry-run"];
        let shown = env.run(&dry);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        assert!(!shown.stdout.contains("behind afresh"), "{agent}: {shown:?}");
        assert!(shown.stderr.contains("`server.notes`"), "{agent}: {shown:?}");
        let behind = format!("MCP server behind afresh: notes (from {file})\n");
        let shown = env.run(&[&dry[..], &["--trust"]].concat());
        assert!(shown.stdout.contains(&behind), "{agent}: {shown:?}");
        assert_eq!(env.run(&["trust", "--yes"]).code, Some(0));
        let shown = env.run(&dry);
        assert!(shown.stdout.contains(&behind), "{agent}: {shown:?}");
    }
}

#[test]
fn a_file_that_cannot_be_understood_is_a_warning() {
    let env = project();
    env.write(".mcp.json", "{\"mcpServers\": {");
    let shown = env.run(&DRY);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(
        shown.stderr.contains("warning: ") && shown.stderr.contains(".mcp.json:1:"),
        "{shown:?}"
    );
    assert!(shown.stderr.contains("the run goes on without"), "{shown:?}");
}

#[test]
fn a_link_out_of_the_repository_is_not_read_as_its_file_of_servers() {
    let env = project();
    fs::create_dir_all(env.work().join(".git")).expect("the workspace is writable");
    let outside = env.home().join("servers.json");
    fs::write(&outside, SERVERS).expect("home is writable");
    fs::remove_file(env.work().join(".mcp.json")).expect("ours");
    std::os::unix::fs::symlink(&outside, env.work().join(".mcp.json")).expect("ours");
    let shown = env.run(&DRY);
    assert!(!format!("{shown:?}").contains("notes"), "{shown:?}");
}

#[test]
fn secrets_of_servers_are_in_no_command_line_and_in_no_file_afterwards() {
    let env = project();
    env.write("agent.sh", AGENT);
    fs::create_dir_all(env.work().join(".afresh")).expect("the workspace is writable");
    // A run that was killed has left it, with the rights of whoever made it.
    let left = env.write(".afresh/agent-servers.json", "old");
    let words = ["run", "--trust", "--no-git", "--max-restarts", "0", "--max-remediations", "0"];
    let agent = ["--agent", "claude", "--agent-command", "sh agent.sh"];
    let run = env.run(&[&words[..], &agent].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("1 MCP server of the agent is supervised: notes"), "{run:?}");
    let read = |name: &str| fs::read_to_string(env.work().join(name)).expect("the agent wrote it");
    assert!(!read("words").contains("a-secret"));
    assert_eq!((read("mode").as_str(), left.exists()), ("-rw-------\n", false));
    assert_eq!(
        fs::canonicalize(env.work()).unwrap().join(".afresh/agent-servers.json").to_str(),
        Some(read("where").trim())
    );
    let given: Value = serde_json::from_str(&read("given.json")).expect("JSON");
    let notes = &given["mcpServers"]["notes"];
    assert_eq!(notes["env"]["KEY"], "a-secret");
    let args: Vec<&str> =
        notes["args"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(args, ["mcp", "--name", "notes", "--", "python3", "notes.py"]);
    assert_eq!(
        given["mcpServers"].as_object().map(|all| all.len()),
        Some(1),
        "HTTP stays as it is"
    );
    assert_eq!(read(".mcp.json"), SERVERS);
    env.assert_nothing_left();
}
