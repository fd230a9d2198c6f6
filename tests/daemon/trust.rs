//! A cloned repository that asks for servers, hooks, addresses and an agent of its own: nothing of it is started,
//! opened or sent before the user has accepted it.

use std::fs;

use afresh_tests::connection::Connection;
use afresh_tests::receiver::Receiver;
use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::gateway::{SERVER, tools};
use crate::mcp::text_of;
use crate::stop;
use crate::up::{service, wait_up};

/// A command that leaves a trace when it is started.
fn traced(name: &str) -> [String; 3] {
    ["sh".to_owned(), "-c".to_owned(), format!("touch started-{name}; exec '{SERVER}' ''")]
}

/// The traces of all that was started.
fn started(env: &TestEnv) -> Vec<String> {
    let all = fs::read_dir(env.work()).expect("a folder").flatten();
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("started-")).collect()
}

/// A gateway with a secret in its environment, and what it says of itself.
fn gateway(env: &TestEnv, flags: &[&str]) -> (Connection, Value) {
    let mut client = Connection::start_as(env, &[&["gateway"], flags].concat());
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let answer = client.ask("\"open\"", "initialize", &params);
    client.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    (client, answer["result"]["instructions"].clone())
}

#[track_caller]
fn accept(env: &TestEnv) {
    let accepted = env.run(&["trust", "--yes"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
}

#[test]
fn servers_of_a_clone_appear_when_they_are_trusted_and_not_before() {
    let env = TestEnv::without_trust();
    let receiver = Receiver::start(|_| Some("404 None"));
    let (far, spans) = (receiver.url("/mcp"), receiver.url("/otlp"));
    env.write("tools", "pid Tells\n");
    let own = format!(
        "[gateway]\nhttp = \"127.0.0.1:0\"\notlp = {spans:?}\n\
         [server.near]\ncommand = {:?}\n\
         [server.far]\nurl = {far:?}\nheaders.X = \"${{HOME}}\"\n",
        traced("near")
    );
    env.write("afresh.toml", &own);
    // It is on stdio, although the project asks for a port.
    let (mut client, instructions) = gateway(&env, &[]);
    for name in
        ["`server.near`", "`server.far`", "`gateway.http`", "`gateway.otlp`", "`afresh trust`"]
    {
        assert!(instructions.as_str().unwrap_or_default().contains(name), "{instructions}");
        wait_for("the log names it", || client.log().contains(name));
    }
    assert_eq!(tools(&mut client), ["server_status"]);
    let call = json!({"name": "server_status", "arguments": {}});
    let status = client.ask("\"status\"", "tools/call", &call);
    assert!(text_of(&status).contains("`server.near`"), "{status}");
    assert!(started(&env).is_empty() && receiver.received().is_empty());
    accept(&env);
    // The list changes by itself.
    wait_for("a changed list", || client.hear()["method"] == "notifications/tools/list_changed");
    wait_for("the tools of the server", || tools(&mut client).iter().any(|it| it == "near__pid"));
    assert_eq!(started(&env), ["started-near"]);
    receiver.wait(1);
    client.hang_up(&env);
}

#[test]
fn files_of_other_clients_need_trust_and_a_named_one_does_not() {
    for name in [".mcp.json", ".vscode/mcp.json"] {
        let env = TestEnv::without_trust();
        fs::create_dir_all(env.work().join(".vscode")).expect("writable");
        env.write("tools", "pid Tells\n");
        let [command, args @ ..] = traced("near");
        let key = if name == ".mcp.json" { "mcpServers" } else { "servers" };
        let text =
            json!({key: {"near": {"command": command, "args": args, "env": {"T": "${HOME}"}}}});
        env.write(name, &text.to_string());
        let (mut client, instructions) = gateway(&env, &[]);
        assert!(instructions.as_str().unwrap_or_default().contains("`server.near`"));
        assert_eq!(tools(&mut client), ["server_status"]);
        assert!(started(&env).is_empty());
        client.hang_up(&env);
        let listed = env.run(&["gateway", "--list"]);
        assert!(listed.stdout.contains("near  not trusted"), "{listed:?}");
        for flags in [&["--from", name][..], &["--trust"]] {
            let (mut client, instructions) = gateway(&env, flags);
            assert_eq!(instructions, Value::Null, "{flags:?}");
            wait_for("the tools", || tools(&mut client).iter().any(|it| it == "near__pid"));
            client.hang_up(&env);
        }
        // An order counts once.
        let (client, instructions) = gateway(&env, &[]);
        assert!(instructions.as_str().unwrap_or_default().contains("`server.near`"));
        client.hang_up(&env);
        accept(&env);
        let (mut client, _) = gateway(&env, &[]);
        wait_for("the tools", || tools(&mut client).iter().any(|it| it == "near__pid"));
        // Other words are another server.
        let other = text.to_string().replace("touch started-near", "touch started-other");
        env.write(name, &other);
        assert_eq!(env.run(&["reload"]).code, Some(0));
        wait_for("it is gone", || tools(&mut client) == ["server_status"]);
        assert_eq!(started(&env), ["started-near"]);
        client.hang_up(&env);
    }
}

#[test]
fn up_starts_its_services_and_no_hook_or_port_of_a_clone() {
    let env = TestEnv::without_trust();
    let receiver = Receiver::start(|_| Some("200 OK"));
    let hook = format!("[hook.tell]\nwebhook = {:?}\n", receiver.url("/hook"));
    let command = "[hook.run]\ncommand = [\"touch\", \"started-hook\"]\n";
    let listen = "[daemon]\nlisten = \"127.0.0.1:0\"\n";
    let crashing = service("web", &["exit", "3"], "max_restarts = 1\n");
    let steady = service("api", &["idle"], "");
    env.write("afresh.toml", &[listen, &hook, command, &crashing, &steady].concat());
    let mut up = env.start(&["up", "--plain"]);
    wait_up(&env, "api");
    wait_for("it gave up", || !env.events("server_gave_up").is_empty());
    for name in ["`daemon.listen`", "`hook.tell`", "`hook.run`", "`afresh trust`"] {
        assert!(up.stderr().contains(name), "{}", up.stderr());
    }
    assert!(!up.stderr().contains("http://127.0.0.1"), "{}", up.stderr());
    stop(&env, &mut up);
    assert!(started(&env).is_empty() && receiver.received().is_empty());
    let tested = env.run(&["hooks", "test", "run"]);
    assert_eq!(tested.code, Some(1), "{tested:?}");
    assert!(tested.stderr.contains("not trusted") && started(&env).is_empty(), "{tested:?}");
    accept(&env);
    let mut up = env.start(&["up", "--plain"]);
    receiver.wait(1);
    wait_for("the hook", || started(&env) == ["started-hook"]);
    up.wait_stderr("http://127.0.0.1", 1);
    stop(&env, &mut up);
}

#[test]
fn up_starts_its_services_though_the_file_of_trust_cannot_be_read() {
    let env = TestEnv::without_trust();
    let hook = "[hook.run]\ncommand = [\"touch\", \"started-hook\"]\n";
    let crashing = service("web", &["exit", "3"], "max_restarts = 1\n");
    env.write("afresh.toml", &[hook, &crashing, &service("api", &["idle"], "")].concat());
    accept(&env);
    let file = env.home().join(".local/state/afresh/private/trust.json");
    for broken in ["{\"version\": 99}", "not JSON"] {
        fs::write(&file, broken).expect("ours");
        let mut up = env.start(&["up", "--plain"]);
        wait_up(&env, "api");
        up.wait_stderr("nothing counts as trusted", 1);
        wait_for("it gave up", || !env.events("server_gave_up").is_empty());
        stop(&env, &mut up);
        assert_eq!(fs::read_to_string(&file).expect("it is there"), broken);
        assert!(started(&env).is_empty(), "{:?}", started(&env));
    }
}

#[test]
fn a_run_does_not_take_its_agent_from_a_clone() {
    let env = TestEnv::without_trust();
    env.write("PLAN.md", "# A plan\n\n## Phase: One\n\nDo it.\n\n- Gate: true\n");
    env.write(
        "afresh.toml",
        "[run]\nagent = \"command\"\nagent_command = \"touch started-agent\"\nno_git = true\n",
    );
    let refused = env.run(&["run", "--plain"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("`run.agent_command`"), "{refused:?}");
    assert!(started(&env).is_empty());
    let trusted = env.run(&["run", "--plain", "--trust"]);
    assert_eq!((trusted.code, started(&env).len()), (Some(0), 1), "{trusted:?}");
    assert!(trusted.stderr.contains("`--trust` accepts `run.agent_command`"), "{trusted:?}");
    fs::remove_file(env.work().join("started-agent")).expect("it is there");
    assert_ne!(env.run(&["run", "--plain"]).code, Some(0));
    accept(&env);
    assert_eq!(env.run(&["run", "--plain"]).code, Some(0));
    assert_eq!(started(&env), ["started-agent"]);
    env.assert_nothing_left();
}

#[test]
fn a_revoked_server_is_gone_with_the_next_reload() {
    let env = TestEnv::without_trust();
    env.write("tools", "pid Tells\n");
    env.write("afresh.toml", &format!("[server.near]\ncommand = {:?}\n", traced("near")));
    accept(&env);
    let (mut client, _) = gateway(&env, &[]);
    wait_for("the tools", || tools(&mut client).iter().any(|it| it == "near__pid"));
    assert_eq!(env.run(&["trust", "--revoke", "near"]).code, Some(0));
    assert_eq!(env.run(&["reload"]).code, Some(0));
    assert_eq!(tools(&mut client), ["server_status"]);
    client.signal(Signal::SIGTERM);
    client.assert_ends(&env, Some(0));
}

#[test]
fn a_run_hands_no_server_of_a_clone_to_its_agent() {
    let env = TestEnv::without_trust();
    env.write("PLAN.md", "# A plan\n\n## Phase: One\n\nDo it.\n\n- Gate: true\n");
    env.write(".mcp.json", "{\"mcpServers\":{\"theirs\":{\"command\":\"evil\"}}}");
    let own = "{\"mcpServers\":{\"mine\":{\"command\":\"own\"}}}";
    fs::write(env.home().join(".claude.json"), own).expect("home is writable");
    let dry = ["run", "--agent", "claude", "--dry-run"];
    let shown = env.run(&dry);
    assert!(shown.stdout.contains("behind afresh: mine"), "{shown:?}");
    assert!(!shown.stdout.contains("behind afresh: theirs"), "{shown:?}");
    assert!(shown.stderr.contains("`server.theirs` of this project is not trusted"), "{shown:?}");
    accept(&env);
    let shown = env.run(&dry);
    assert!(shown.stdout.contains("behind afresh: theirs"), "{shown:?}");
}

#[test]
fn no_command_starts_anything_of_a_clone() {
    let env = TestEnv::without_trust();
    env.write("PLAN.md", "# A plan\n\n## Phase: One\n\nDo it.\n\n- Gate: true\n");
    env.write(
        "afresh.toml",
        "[run]\nagent = \"command\"\nagent_command = \"touch started-agent\"\npermission_mode = \"bypass\"\n\
         [daemon]\nlisten = \"127.0.0.1:0\"\n\
         [gateway]\nhttp = \"127.0.0.1:0\"\notlp = \"http://127.0.0.1:9\"\n\
         [server.near]\ncommand = [\"touch\", \"started-server\"]\n\
         [server.far]\nurl = \"http://127.0.0.1:9/mcp\"\nheaders.X = \"${HOME}\"\n\
         [hook.tell]\ncommand = [\"touch\", \"started-hook\"]\n\
         [service.web]\ncommand = [\"touch\", \"started-service\"]\n",
    );
    let theirs = json!({"theirs": {"command": "touch", "args": ["started-theirs"]}});
    env.write(".mcp.json", &json!({"mcpServers": theirs}).to_string());
    for line in [
        "status",
        "status --all",
        "history",
        "logs",
        "metrics",
        "config show",
        "config check",
        "config path",
        "config schema",
        "plan check",
        "hooks",
        "hooks test tell",
        "doctor",
        "trust",
        "trust --list",
        "gateway --list",
        "gateway",
        "run --dry-run",
        "run --plain --no-git",
        "run --dry-run --agent claude",
        "runs",
        "adopt --list",
        "adopt --dry-run",
        "completions bash",
        "man",
        "exit-codes",
        "install --print",
        "down",
        "reload",
        "keep -- true",
        "mcp -- true",
        "restart web",
        "stop web",
        "start web",
        "attach web",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let done = env.run(&words);
        assert!(done.code.is_some(), "{line}: {done:?}");
        assert_eq!(started(&env), [""; 0], "{line}: {done:?}");
    }
    env.assert_nothing_left();
}
