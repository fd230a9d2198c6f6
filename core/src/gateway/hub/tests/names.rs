//! Names that more than one have.

use serde_json::{Value, json};

use super::super::super::Input;
use super::super::super::access_patterns::Access;
use super::super::super::backend::{Backend, Expose, Prefix, Transport};
use super::super::Settings;
use super::limits::Alone;
use super::{World, backend, names, program, settings, text};

fn bare(name: &str) -> Backend {
    Backend { prefix: Prefix::None, ..backend(name) }
}

fn bare_program(name: &str) -> Backend {
    Backend { transport: Transport::Stdio(Box::new(program())), ..bare(name) }
}

/// What the log says of names that two have.
fn clashes(world: &World) -> Vec<&str> {
    world.log.iter().filter(|text| text.contains("both have")).map(String::as_str).collect()
}

fn tools(world: &mut World, client: u64) -> Vec<String> {
    let list = world.ask(client, "tools/list", json!({}));
    names(&list).into_iter().map(str::to_owned).collect()
}

fn find(world: &mut World, query: &str) -> Value {
    let arguments = json!({"query": query});
    world.ask(1, "tools/call", json!({"name": "find_tools", "arguments": arguments}))
}

#[test]
fn no_server_takes_the_names_of_the_search() {
    let search = Settings { expose: Expose::Search, ..settings() };
    let mut world = World::new(search, &[(bare("a"), &["find_tools", "call_tool", "get"])]);
    world.legacy(1);
    assert_eq!(tools(&mut world, 1), ["find_tools", "call_tool"]);
    let said = "error: afresh itself and the server `a` both have `find_tools`, `call_tool` among their \
                tools: only afresh's own can be used; give the server a `prefix`";
    assert_eq!(clashes(&world), [said]);
    let found = find(&mut world, "find or call");
    assert_eq!(text(&found), "no tool fits `find or call`");
    assert!(text(&find(&mut world, "get")).starts_with("1 of 1 tools"));
    assert_eq!(tools(&mut world, 1), ["get", "find_tools", "call_tool"]);
    let by_name = json!({"name": "call_tool", "arguments": {"name": "find_tools"}});
    assert!(text(&world.ask(1, "tools/call", by_name)).contains("`query` must be a text"));
    // What is not ours now is the server's.
    let mut world = World::new(settings(), &[(bare("a"), &["find_tools"])]);
    world.legacy(1);
    assert_eq!(tools(&mut world, 1), ["find_tools"]);
    assert_eq!(text(&world.call(1, "find_tools")), "a did find_tools");
    assert_eq!(clashes(&world), [""; 0]);
}

#[test]
fn no_server_takes_the_names_of_our_own_tools() {
    let ours = ["restart_server", "verify_server_restarted", "server_status", "server_logs"];
    let admin = Settings { admin_tools: true, ..settings() };
    // A name by which the gateway calls the conversation with the program is nobody's.
    let all = ["server_status", "get", "restart_server", "afresh:restart_server"];
    let backends: [(Backend, &[&str]); 2] =
        [(bare_program("p"), &all), (bare("a"), &["server_logs", "put"])];
    let mut world = World::new(admin.clone(), &backends);
    world.legacy(1);
    assert_eq!(tools(&mut world, 1), [&["get", "put"][..], &ours[..]].concat());
    let restart = json!({"name": "restart_server", "arguments": {"server": "p"}});
    assert_eq!(text(&world.ask(1, "tools/call", restart)), "p did afresh:restart_server");
    assert_eq!(world.restarted_by.len(), 1);
    assert_eq!(world.restarted_by[0]["tool"], "restart_server");
    assert!(text(&world.call(1, "server_status")).starts_with("p: ready"));
    assert_eq!(clashes(&world).len(), 2, "{:?}", world.log);
    assert!(clashes(&world)[0].contains(
        "afresh itself and the server `p` both have `server_status`, `restart_server` among"
    ));
    assert!(
        clashes(&world)[1].contains("afresh itself and the server `a` both have `server_logs`")
    );
    // Whoever may not use ours does not get to the server's by that name either.
    let some = vec!["get".to_owned(), "server_logs".to_owned()];
    for (access, listed) in [
        (Access { tools: Some(vec!["get".to_owned()]), ..Access::default() }, &["get"][..]),
        (
            Access { tools: Some(some), servers: Some(vec!["a".to_owned()]), ..Access::default() },
            &[],
        ),
    ] {
        world.join(2, access);
        world.ask(2, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
        assert_eq!(tools(&mut world, 2), listed);
        for name in ours {
            assert_eq!(world.call(2, name)["error"]["code"], -32602, "{name}");
        }
    }
    // Nothing can be restarted where all servers are somebody else's, and with `tools = false`.
    for (settings, server) in [(admin, bare("a")), (settings(), bare_program("a"))] {
        let mut world = World::new(settings, &[(server, &["server_logs"])]);
        world.legacy(1);
        assert_eq!(tools(&mut world, 1), ["server_logs"]);
        assert_eq!(text(&world.call(1, "server_logs")), "a did server_logs");
        assert_eq!(clashes(&world), [""; 0]);
    }
}

#[test]
fn what_a_server_has_twice_is_there_once() {
    let mut world = World::new(settings(), &[(backend("a"), &["get", "put", "get", "put"])]);
    world.legacy(1);
    assert_eq!(tools(&mut world, 1), ["a__get", "a__put"]);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    world.server_says("a", &changed, None);
    assert_eq!(world.notifications(1), [""; 0]);
    let said: Vec<&String> = world.log.iter().filter(|text| text.contains("than once")).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("the server `a` has `get` more than once in its list of tools"));
}

#[test]
fn a_list_that_begins_again_has_ended() {
    let mut alone = Alone::new();
    alone.begin_with(r#"{"tools":{},"resources":{},"prompts":{}}"#);
    let pages = [("one", r#""x""#), ("two", r#""y""#), ("one", r#""x""#)];
    let lists = [
        ("tools", "name", "tools/list"),
        ("prompts", "name", "prompts/list"),
        ("resources", "uri", "resources/list"),
        ("resourceTemplates", "uriTemplate", "resources/templates/list"),
    ];
    for (member, key, method) in lists {
        for (cursor, name) in pages {
            alone.answers_to(
                method,
                &format!(r#"{{"{member}":[{{"{key}":{name}}}],"nextCursor":"{cursor}"}}"#),
            );
        }
        let asked = alone.to_server.iter().filter(|line| line["method"] == method).count();
        assert_eq!(asked, pages.len(), "{method}");
        let end = format!("the list of {member} of the server `a` has no end");
        assert_eq!(alone.log.iter().filter(|text| text.contains(&end)).count(), 1);
    }
    for (member, _, method) in lists {
        alone.says(7, method, json!({}));
        let answer = alone.to_client.last().expect("an answer");
        assert_eq!(answer["result"][member].as_array().map(Vec::len), Some(2), "{answer}");
    }
}

fn guest(world: &mut World, client: u64, servers: &[&str]) {
    let servers = servers.iter().map(|name| (*name).to_owned()).collect();
    world.join(client, Access { servers: Some(servers), ..Access::default() });
    world.ask(client, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
}

#[test]
fn a_name_is_the_same_for_everybody() {
    let backends: [(Backend, &[&str]); 2] = [(bare("a"), &["get"]), (bare("b"), &["get", "put"])];
    let mut world = World::new(settings(), &backends);
    world.legacy(1);
    guest(&mut world, 2, &["b"]);
    assert_eq!(tools(&mut world, 2), ["put"]);
    assert_eq!(world.call(2, "get")["error"]["code"], -32602);
    assert_eq!(text(&world.call(2, "put")), "b did put");
    guest(&mut world, 3, &["a"]);
    assert_eq!(tools(&mut world, 3), ["get"]);
    assert_eq!(text(&world.call(3, "get")), "a did get");
}

#[test]
fn the_first_in_the_configuration_stays_the_first() {
    let backends: [(Backend, &[&str]); 2] = [(bare("a"), &["get"]), (bare("b"), &["get"])];
    let mut world = World::new(settings(), &backends);
    world.legacy(1);
    assert_eq!(text(&world.call(1, "get")), "a did get");
    let changed = Backend { in_flight_max: 7, ..bare("a") };
    world.input(Input::Configured(vec![changed, bare("b")]));
    assert_eq!(text(&world.call(1, "get")), "a did get");
    world.input(Input::Configured(vec![bare("b")]));
    assert_eq!(text(&world.call(1, "get")), "b did get");
}

#[test]
fn a_resource_that_two_have_is_the_first_ones() {
    let mut world = World::new(settings(), &[(backend("a"), &["get"]), (backend("b"), &["get"])]);
    world.is_all_one = true;
    world.legacy(1);
    guest(&mut world, 2, &["b"]);
    let listed = |world: &mut World, client: u64, method: &str, member: &str, key: &str| {
        let answer = world.ask(client, method, json!({}));
        let all = answer["result"][member].as_array().expect("a list").clone();
        all.iter().filter_map(|its| its[key].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let resources =
        |world: &mut World, client| listed(world, client, "resources/list", "resources", "uri");
    assert_eq!(resources(&mut world, 1), ["x://a/a", "x://all/a", "x://b/a"]);
    assert_eq!(resources(&mut world, 2), ["x://b/a", "x://all/a"]);
    let (method, member) = ("resources/templates/list", "resourceTemplates");
    let templates = listed(&mut world, 1, method, member, "uriTemplate");
    assert_eq!(templates, ["x://a/{id}/b", "x://all/{id}/b", "x://b/{id}/b"]);
    for (client, server) in [(1, "a"), (2, "b")] {
        for uri in ["x://all/a", "x://all/7/b"] {
            let read = world.ask(client, "resources/read", json!({"uri": uri}));
            assert_eq!(read["result"]["contents"][0]["text"], server, "{uri}");
            world.ask(client, "resources/subscribe", json!({"uri": uri}));
        }
    }
    // Only what it was read from can say that it has changed.
    for (server, told) in [("a", [1, 0]), ("b", [1, 1])] {
        let update =
            json!({"method": "notifications/resources/updated", "params": {"uri": "x://all/a"}});
        world.server_says(server, &update, None);
        let updates = |client| world.notifications(client).len();
        assert_eq!([updates(1), updates(2)], told);
    }
    let end = "who may use both gets the first one's";
    let said = [
        format!(
            "error: the servers `a` and `b` both have `x://all/a` among their resources: {end}"
        ),
        format!(
            "error: the servers `a` and `b` both have `x://all/{{id}}/b` among their \
             resourceTemplates: {end}"
        ),
    ];
    assert_eq!(clashes(&world), said);
}

#[test]
fn a_list_of_tools_opens_no_other_server() {
    let mut world = World::new(settings(), &[(backend("a"), &["get"]), (backend("b"), &["put"])]);
    world.legacy(1);
    for (client, tool) in [(2, "b__put"), (3, "*__put")] {
        world.join(client, Access { tools: Some(vec![tool.to_owned()]), ..Access::default() });
        let begin = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
        world.ask(client, "initialize", begin);
        assert_eq!(tools(&mut world, client), ["b__put"]);
        let listed = world.ask(client, "resources/list", json!({}));
        assert_eq!(listed["result"]["resources"], json!([{"uri": "x://b/a", "name": "a"}]));
        // To this client there is one server: whatever it reads is of that one.
        for uri in ["x://a/a", "x://a/7/b", "x://b/7/b"] {
            let read = world.ask(client, "resources/read", json!({"uri": uri}));
            assert_eq!(read["result"]["contents"][0]["text"], "b", "{uri}");
        }
    }
    // What a server says is for those who may use it.
    let entry = json!({"method": "notifications/message", "params": {"level": "error"}});
    world.server_says("a", &entry, None);
    assert_eq!(world.notifications(1), ["notifications/message"]);
    assert_eq!(world.notifications(2), [""; 0]);
}
