//! Clients of the newer protocol that `afresh gateway` asks for older servers, by the results of their calls.

use afresh_tests::TestEnv;
use afresh_tests::connection::{Connection, kill_server};
use serde_json::{Value, json};

use crate::gateway::{AT_ONCE, server};
use crate::mcp::text_of;

/// Parameters of a client that can answer everything.
fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"roots": {}, "elicitation": {}},
    });
    params
}

/// Calls a tool, and answers what it is asked meanwhile. Returns the text, and what was asked.
#[track_caller]
fn call(client: &mut Connection, name: &str) -> (String, Vec<String>) {
    let mut params = modern(json!({"name": name, "arguments": {}}));
    let mut asked = Vec::new();
    for round in 0..5 {
        let answer = client.ask(&format!("\"{name} {round}\""), "tools/call", &params);
        let result = &answer["result"];
        if result["resultType"] == "complete" {
            return (text_of(&answer).to_owned(), asked);
        }
        let questions = result["inputRequests"].as_object().unwrap_or_else(|| panic!("{answer}"));
        let mut answers = json!({});
        for (key, question) in questions {
            let method = question["method"].as_str().expect("a method");
            asked.push(method.to_owned());
            answers[key] = match method {
                "roots/list" => json!({"roots": [{"uri": "file:///w"}]}),
                _ => json!({"action": "accept", "content": {"name": "Ada"}}),
            };
        }
        params["inputResponses"] = answers;
        params["requestState"] = result["requestState"].clone();
    }
    panic!("asked without end: {asked:?}");
}

#[test]
fn a_newer_client_answers_what_older_servers_ask() {
    let env = TestEnv::new();
    let entries = [server(&env, "a", "asks", AT_ONCE), server(&env, "b", "asks", AT_ONCE)];
    for name in ["a", "b"] {
        env.write(&format!("{name}/tools"), "roots Tells\nask Asks\npid Tells\n");
    }
    env.write("afresh.toml", &entries.concat());
    let mut client = Connection::start_as(&env, &["gateway"]);
    let found = client.ask("1", "server/discover", &modern(json!({})));
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28", "{found}");
    for name in ["a", "b"] {
        let roots = call(&mut client, &format!("{name}__roots"));
        assert_eq!(roots, ("file:///w".to_owned(), vec!["roots/list".to_owned()]));
        let asked = call(&mut client, &format!("{name}__ask"));
        assert_eq!(asked, ("Ada".to_owned(), vec!["elicitation/create".to_owned()]));
    }
    // A new instance gets the roots without a question to the client.
    let (pid, _) = call(&mut client, "a__pid");
    kill_server(pid.parse().expect("a number"));
    assert_ne!(call(&mut client, "a__pid").0, pid);
    let roots = call(&mut client, "a__roots");
    assert_eq!(roots, ("file:///w".to_owned(), Vec::new()));
    client.hang_up(&env);
}

#[test]
fn a_gateway_of_the_older_protocol_lets_clients_fall_back() {
    let env = TestEnv::new();
    let more = "[gateway]\nera = \"legacy\"\n".to_owned();
    let entries = [more, server(&env, "a", "", ""), server(&env, "b", "", "")];
    env.write("afresh.toml", &entries.concat());
    let mut client = Connection::start_as(&env, &["gateway"]);
    let refused = client.ask("1", "server/discover", &modern(json!({})));
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    client.open();
    client.call("2", "b__pid", &json!({}));
    client.hang_up(&env);
}
