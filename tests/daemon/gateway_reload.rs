//! `afresh reload` of a gateway: who is new comes, who is gone goes, and nobody else notices.

use afresh_tests::TestEnv;
use afresh_tests::http_client::HttpClient;
use serde_json::json;

use crate::gateway::{connect, pid, server, tools};
use crate::gateway_http::{self, start};
use crate::mcp::names;
use crate::stop;

#[test]
fn servers_are_added_changed_and_removed_while_others_go_on() {
    // G7
    let env = TestEnv::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| server(&env, name, "", ""));
    let mut client = connect(&env, &[a.clone(), b.clone(), c]);
    let pids = ["a", "b", "c"].map(|name| pid(&mut client, name));
    // A call that is under way at one that stays.
    client.send(
        "\"under way\"",
        "tools/call",
        &json!({"name": "a__wait", "arguments": {"for": "go"}}),
    );
    client.send(
        "\"lost\"",
        "tools/call",
        &json!({"name": "c__wait", "arguments": {"for": "never"}}),
    );
    let changed = b.replace("[server.b]\n", "[server.b]\ndeny = [\"echo\"]\n");
    env.write("afresh.toml", &[a, changed, d].concat());
    let reloaded = env.run(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    for word in ["d", "b", "c"] {
        assert!(reloaded.stdout.contains(word), "{word}: {reloaded:?}");
    }
    let lost = client.hear_answer();
    assert_eq!(lost["id"], "lost", "{lost}");
    assert!(lost.to_string().contains("taken out of the configuration"), "{lost}");
    let list = tools(&mut client);
    let has = |name: &str| list.iter().any(|its| its == name);
    assert!(has("a__pid") && has("b__pid") && has("d__pid"), "{list:?}");
    assert!(!has("b__echo") && !has("c__pid"), "{list:?}");
    assert_ne!(pid(&mut client, "b"), pids[1]);
    pid(&mut client, "d");
    let gone = client.ask("1", "tools/call", &json!({"name": "c__pid"}));
    assert_eq!(gone["error"]["code"], -32602, "{gone}");
    afresh_tests::wait_for("it is gone", || afresh_tests::process::read(pids[2]).is_none());
    env.write("a/go", "");
    let kept = client.hear_answer();
    assert_eq!(kept["id"], "under way", "{kept}");
    assert_eq!(kept["result"]["content"][0]["text"], pids[0].to_string(), "{kept}");
    client.hang_up(&env);
}

#[test]
fn a_bad_file_changes_nothing_and_says_why() {
    let env = TestEnv::new();
    let entries = [server(&env, "a", "", ""), server(&env, "b", "", "")];
    let (mut gateway, port) = start(&env, &entries);
    let mut client = HttpClient::connect(port);
    let pids = ["a", "b"].map(|name| gateway_http::pid(&mut client, name));
    let before = names(client.ask("1", "tools/list", &json!({})).answer());
    for (text, says) in [
        ("[server.a\n", "afresh.toml:1"),
        ("[server.a]\ncommand = [\"x\"]\ncomand = 1\n", "comand"),
        ("[server.a]\n", "command"),
        ("", "no servers"),
    ] {
        env.write("afresh.toml", text);
        let reloaded = env.run(&["reload"]);
        assert_ne!(reloaded.code, Some(0), "{text}: {reloaded:?}");
        assert!(reloaded.stderr.contains("stays as it was"), "{text}: {reloaded:?}");
        assert!(reloaded.stderr.contains(says), "{text}: {reloaded:?}");
    }
    assert_eq!(["a", "b"].map(|name| gateway_http::pid(&mut client, name)), pids);
    assert_eq!(names(client.ask("1", "tools/list", &json!({})).answer()), before);
    // A good one that is the same changes nothing either; SIGHUP is as good as a command.
    env.write("afresh.toml", &entries.concat());
    assert_eq!(env.run(&["reload"]).code, Some(0));
    gateway.signal(nix::sys::signal::Signal::SIGHUP);
    gateway.wait_stderr("SIGHUP: reading the configuration again", 1);
    assert_eq!(["a", "b"].map(|name| gateway_http::pid(&mut client, name)), pids);
    stop(&env, &mut gateway);
}

/// A token that opens this.
fn token(name: &str, secret: &str, opens: &str) -> String {
    format!("[gateway.token.{name}]\ntoken = \"{secret}-0123456789abcdef\"\n{opens}\n")
}

#[test]
fn tokens_are_given_changed_and_taken_away_while_clients_are_there() {
    let env = TestEnv::new();
    let a = server(&env, "a", "", "");
    let entries =
        [a.clone(), token("kept", "k", ""), token("other", "o", ""), token("gone", "g", "")];
    let (mut gateway, port) = start(&env, &entries);
    let client = |secret: &str| {
        let mut client = HttpClient::new(port);
        client.token = Some(format!("{secret}-0123456789abcdef"));
        client.open();
        client
    };
    let (mut kept, mut other, mut gone) = (client("k"), client("o"), client("g"));
    let mut heard = [gone.listen(), other.listen()];
    env.write(
        "afresh.toml",
        &[
            a,
            token("other", "o", "tools = [\"a__echo\"]"),
            token("kept", "k", ""),
            token("new", "n", ""),
            "[gateway]\nhttp = \"127.0.0.1:1\"\nexpose = \"search\"\nrequests_per_second = 1000\n"
                .to_owned(),
        ]
        .concat(),
    );
    let reloaded = env.run(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    let says = [
        "token `new` is new",
        "token `other` has changed: its sessions have ended",
        "token `gone` is gone: its sessions have ended",
        "`[gateway]` is otherwise from now on: requests_per_second",
        "`expose` of `[gateway]` has changed, which needs a restart of the gateway",
    ];
    for words in says {
        assert!(reloaded.stdout.contains(words), "{words}: {reloaded:?}");
        gateway.wait_stderr(words, 1);
    }
    // The address is the command's own, whatever the file says.
    assert!(!reloaded.stdout.contains("`http`"), "{reloaded:?}");
    for told in &mut heard {
        assert_eq!(told.next(), None, "its stream ends");
    }
    assert_eq!(gone.ask("1", "tools/list", &json!({})).status, 401);
    assert_eq!(other.ask("1", "tools/list", &json!({})).status, 404);
    other.session = None;
    other.open();
    assert_eq!(names(other.ask("2", "tools/list", &json!({})).answer()), ["a__echo"]);
    assert_eq!(kept.call("1", "a__echo", &json!({"text": "still"})).text(), "still");
    assert_eq!(client("n").call("1", "a__echo", &json!({"text": "new"})).text(), "new");
    assert_eq!(env.events("configuration_reloaded").len(), 1);
    stop(&env, &mut gateway);
}

#[test]
fn an_address_that_is_another_is_said_to_need_a_restart() {
    let env = TestEnv::new();
    let entries = [server(&env, "a", "", ""), "[gateway]\nhttp = \"127.0.0.1:0\"\n".to_owned()];
    env.write("afresh.toml", &entries.concat());
    let mut gateway = env.start(&["gateway", "--no-token"]);
    let mut client = HttpClient::connect(afresh_tests::http_client::port_of(&gateway));
    env.write("afresh.toml", &entries.concat().replace(":0", ":1"));
    let words = "`http` of `[gateway]` has changed, which needs a restart";
    for count in 1..3 {
        let reloaded = env.run(&["reload"]);
        assert!(reloaded.stdout.contains(words), "{reloaded:?}");
        gateway.wait_stderr(words, count);
    }
    assert_eq!(client.call("1", "a__echo", &json!({"text": "here"})).text(), "here");
    stop(&env, &mut gateway);
}
