//! `pin`: a server behind `afresh gateway` that says something else about its tools than when it was first used.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use afresh_tests::connection::Connection;
use afresh_tests::{Finished, Running, TestEnv, wait_for};
use serde_json::{Value, json};

use crate::gateway::{server, tools};
use crate::mcp::text_of;

const REMOTE: &str = env!("CARGO_BIN_EXE_http-server");

/// A server over HTTP whose catalog can change, and a folder for gateways in front of it.
struct World {
    env: TestEnv,
    /// The folder of the server.
    place: TestEnv,
    remote: Running,
    port: u16,
}

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

impl World {
    fn new() -> Self {
        let (env, place) = (TestEnv::new(), TestEnv::new());
        place.write("mode", "mcp-catalog");
        let mut command = std::process::Command::new(REMOTE);
        command.args(["0", "mode"]);
        place.furnish(&mut command);
        let remote = Running::start(command);
        remote.wait_stdout("port ", 1);
        wait_for("its port", || remote.stdout().ends_with('\n'));
        let port =
            remote.stdout().lines().find_map(|line| line.strip_prefix("port ")?.parse().ok());
        let world = Self { env, place, remote, port: port.expect("a port") };
        world.offers("Be good.", &[tool("get", "Gets a thing."), tool("set", "Sets a thing.")]);
        world
    }

    /// From now on the server has this.
    fn offers(&self, instructions: &str, tools: &[Value]) {
        let catalog = json!({"instructions": instructions, "tools": tools});
        let new = self.place.write("catalog.new", &catalog.to_string());
        fs::rename(new, self.place.work().join("mode.catalog")).expect("ours");
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Opens a gateway in front of it and of a program, both from the user's own file.
    fn connect(&self, pin: &str) -> Connection {
        let folder = self.env.home().join(".config/afresh");
        fs::create_dir_all(&folder).expect("ours");
        let remote = format!("[server.a]\nurl = \"{}\"\n{pin}\n", self.address());
        let text = remote + &server(&self.env, "b", "", "");
        fs::write(folder.join("config.toml"), text).expect("ours");
        let mut connection = Connection::start_as(&self.env, &["gateway"]);
        connection.open();
        connection
    }

    /// One that looks at the tools and hangs up: the first one pins them.
    fn use_once(&self, pin: &str) {
        let mut client = self.connect(pin);
        tools(&mut client);
        client.hang_up(&self.env);
    }

    fn pins_file(&self) -> PathBuf {
        self.env.home().join(".local/state/afresh/private/pins.json")
    }

    fn pins(&self) -> Value {
        let text = fs::read_to_string(self.pins_file()).expect("there are pins");
        serde_json::from_str(&text).expect("JSON")
    }

    fn trust(&self) -> Finished {
        self.env.run(&["trust", "a", "--yes"])
    }

    #[track_caller]
    fn end(mut self, client: Connection) {
        client.hang_up(&self.env);
        self.remote.signal(nix::sys::signal::Signal::SIGKILL);
        self.remote.wait();
        self.place.assert_nothing_left();
    }
}

fn of_a(list: &[String]) -> Vec<&str> {
    list.iter().filter_map(|name| name.strip_prefix("a__")).collect()
}

fn status(client: &mut Connection) -> String {
    client.call("\"status\"", "server_status", &json!({}))
}

#[test]
fn a_changed_tool_of_a_remote_server_is_marked_until_it_is_accepted() {
    let world = World::new();
    world.use_once("");
    let pins = world.pins();
    assert_eq!(pins["version"], 1, "{pins}");
    let mode = fs::metadata(world.pins_file()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    world.use_once("");
    assert_eq!(world.env.events("tools_changed"), [Value::Null; 0]);
    world.offers("Be good.", &[tool("get", "Gets, and deletes."), tool("set", "Sets a thing.")]);
    // The pin stays: each gateway says so anew.
    for count in 1..=2 {
        let mut client = world.connect("");
        let list = tools(&mut client);
        assert_eq!(of_a(&list), ["get", "set"], "a warning withholds nothing");
        assert_eq!(client.call("1", "a__get", &json!({})), "called get");
        let status = status(&mut client);
        assert!(status.contains("tools changed since pinned: get;"), "{status}");
        let says = "tools of the server `a` changed since they were pinned: get";
        wait_for("the log says so", || client.log().contains(says));
        client.hang_up(&world.env);
        let events = world.env.events("tools_changed");
        assert_eq!(events.len(), count, "{events:?}");
        assert_eq!(events[0]["props"]["changed"], json!(["get"]), "{events:?}");
        assert_eq!(events[0]["props"]["server"], "a");
    }
    let mut client = world.connect("");
    assert!(status(&mut client).contains("since pinned"));
    let accepted = world.trust();
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    for line in ["changed: get", "- Gets a thing.", "+ Gets, and deletes."] {
        assert!(accepted.stdout.contains(line), "{line}: {accepted:?}");
    }
    wait_for("the mark is gone", || !status(&mut client).contains("since pinned"));
    assert_eq!(world.trust().stdout, "", "there is nothing more to accept");
    world.end(client);
}

#[test]
fn a_changed_tool_is_withheld_until_it_is_accepted() {
    let world = World::new();
    let block = "pin = \"block\"";
    world.use_once(block);
    let get = tool("get", "Gets, and deletes.");
    world.offers("Be bad.", &[get, tool("set", "Sets a thing."), tool("new", "Is new.")]);
    let mut client = world.connect(block);
    assert_eq!(of_a(&tools(&mut client)), ["set"]);
    assert_eq!(client.call("1", "a__set", &json!({})), "called set");
    for name in ["a__get", "a__new"] {
        let refused = client.ask("2", "tools/call", &json!({"name": name, "arguments": {}}));
        let why = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(why.contains("withheld") && why.contains("`afresh trust a`"), "{refused}");
    }
    // A thread writes it: `afresh trust` shows what is written.
    wait_for("what differs is noted", || {
        let pins = world.pins();
        let pending = &pins["servers"][0]["pending"];
        pending["instructions"][""] == "Be bad." && pending["tools"]["new"].is_string()
    });
    let accepted = world.trust();
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    for line in ["changed: get", "new: new", "changed: instructions", "+ Be bad."] {
        assert!(accepted.stdout.contains(line), "{line}: {accepted:?}");
    }
    // The gateway notices it by itself.
    while client.hear()["method"] != "notifications/tools/list_changed" {}
    assert_eq!(of_a(&tools(&mut client)), ["get", "set", "new"]);
    assert_eq!(client.call("3", "a__get", &json!({})), "called get");
    world.end(client);
}

#[test]
fn hidden_characters_of_a_remote_server_do_not_reach_a_client() {
    let world = World::new();
    let mut hostile = tool("get", "Gets.\u{202e}\u{e0041}\u{1b}[2J\ttab\nline é");
    hostile["title"] = "\u{2066}title".into();
    hostile["inputSchema"]["properties"] = json!({"x": {"description": "a\u{200b}b"}});
    let bad_name = tool("g\u{202e}et", "Has a name that nobody sees.");
    world.offers("Be\u{202e} good.", &[hostile, bad_name]);
    let folder = world.env.home().join(".config/afresh");
    let mut client = world.connect("");
    let list = client.ask("1", "tools/list", &json!({}));
    let its = list["result"]["tools"].as_array().expect("tools").iter();
    let its: Vec<&Value> = its
        .filter(|tool| tool["name"].as_str().is_some_and(|name| name.starts_with("a__")))
        .collect();
    assert_eq!(its.len(), 1, "{list}");
    assert_eq!(its[0]["description"], "Gets.\\u{202e}\\u{e0041}\\u{1b}[2J\ttab\nline é");
    assert_eq!(its[0]["title"], "\\u{2066}title");
    assert_eq!(its[0]["inputSchema"]["properties"]["x"]["description"], "a\\u{200b}b");
    wait_for("the other one is told", || client.log().contains("hidden characters"));
    client.hang_up(&world.env);
    // Alone, so that its instructions are the whole.
    let text = format!("[server.a]\nurl = \"{}\"\n", world.address());
    fs::write(folder.join("config.toml"), text).expect("ours");
    let mut client = Connection::start_as(&world.env, &["gateway"]);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let answer = client.ask("1", "initialize", &params);
    assert_eq!(answer["result"]["instructions"], "Be\\u{202e} good.", "{answer}");
    world.end(client);
}

#[test]
fn pins_of_a_newer_afresh_are_left_alone_and_all_is_withheld() {
    let world = World::new();
    let block = "pin = \"block\"";
    world.use_once(block);
    let newer = world.pins().to_string().replace("\"version\":1", "\"version\":2");
    fs::write(world.pins_file(), &newer).expect("ours");
    world.offers("Be good.", &[tool("get", "Gets, and deletes.")]);
    let mut client = world.connect(block);
    assert_eq!(of_a(&tools(&mut client)), [""; 0], "nothing can be compared");
    let says = "has version 2, and this afresh knows 1";
    wait_for("the log says why", || client.log().contains(says));
    wait_for("the log says it", || client.log().contains("`pin = \"block\"` are withheld"));
    let called = client.ask("2", "tools/call", &json!({"name": "a__get", "arguments": {}}));
    assert!(
        called["error"]["message"].as_str().is_some_and(|why| why.contains("withheld")),
        "{called}"
    );
    let refused = world.trust();
    assert!(refused.code == Some(5) && refused.stderr.contains(says), "{refused:?}");
    assert_eq!(fs::read_to_string(world.pins_file()).expect("it is there"), newer);
    world.end(client);
}

#[test]
fn pins_of_version_1_are_read() {
    let world = World::new();
    let repository = fs::canonicalize(world.env.work()).expect("it is there");
    let text = include_str!("../compat/pins-v1.json")
        .replace("REPOSITORY", &repository.display().to_string())
        .replace("ADDRESS", &world.address());
    let folder = world.pins_file().parent().expect("a folder").to_owned();
    fs::create_dir_all(&folder).expect("ours");
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("ours");
    fs::write(world.pins_file(), text).expect("ours");
    world.offers("Be bad.", &[tool("get", "Gets another thing."), tool("set", "Sets a thing.")]);
    let mut client = world.connect("pin = \"block\"");
    assert_eq!(of_a(&tools(&mut client)), ["set"], "what is pinned there counts");
    wait_for("what differs is noted", || {
        world.pins()["servers"][0]["pending"]["instructions"][""] == "Be bad."
    });
    let accepted = world.trust();
    assert!(accepted.stdout.contains("+ Gets another thing."), "{accepted:?}");
    world.end(client);
}

#[test]
fn a_program_is_not_pinned_unless_it_is_asked_for() {
    let world = World::new();
    let mut client = world.connect("pin = \"off\"");
    tools(&mut client);
    world.offers("Be good.", &[tool("get", "Gets, and deletes.")]);
    client.call("1", "restart_server", &json!({"server": "b"}));
    let answer = client.ask("2", "tools/call", &json!({"name": "b__pid", "arguments": {}}));
    assert!(!text_of(&answer).is_empty());
    assert!(!status(&mut client).contains("pinned"));
    client.hang_up(&world.env);
    assert!(!world.pins_file().exists(), "nothing is written where nothing is pinned");
    let client = world.connect("pin = \"off\"");
    world.end(client);
}
