//! From the start of the process to a session that can be given a prompt.

use super::*;

#[test]
fn the_server_gets_what_it_needs() {
    let mut setup = setup();
    setup.model = Some("mock/deep/m".to_owned());
    setup.permission = Permission::Plan;
    setup.servers.push(AgentServer {
        name: "tools".to_owned(),
        command: vec!["afresh".to_owned(), "mcp".to_owned()],
        rest: serde_json::Map::new(),
    });
    let start = Opencode::new(setup, "word".to_owned()).start();
    assert_eq!(start.argv, ["opencode", "serve", "--port", "4100", "--hostname", "127.0.0.1"]);
    assert_eq!(start.stdin, b"");
    // `afresh:word`.
    let authorization = Some("Basic YWZyZXNoOndvcmQ=".to_owned());
    assert_eq!(start.speaks, Speaks::Http { port: 4100, authorization });
    let variable = |name: &str| {
        let found = start.env.iter().find(|(this, _)| this == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    };
    assert_eq!(variable("OPENCODE_SERVER_PASSWORD"), "word");
    assert_eq!(variable("OPENCODE_SERVER_USERNAME"), "afresh");
    assert_eq!(variable("OPENCODE_DISABLE_AUTOUPDATE"), "1");
    let config: Value = serde_json::from_str(variable("OPENCODE_CONFIG_CONTENT")).unwrap();
    let expected = json!({
        "autoupdate": false,
        "compaction": {"auto": false},
        "permission": {"edit": "deny", "bash": "deny"},
        "mcp": {"tools": {"type": "local", "command": ["afresh", "mcp"]}},
        "model": "mock/deep/m",
    });
    assert_eq!(config, expected);
}

#[test]
fn settings_of_the_users_own_variable_stay_under_ours() {
    let own = r#"{"model":"a/b","permission":{"bash":"allow","webfetch":"deny"},"theme":"dark"}"#;
    let settings_with = |own: &str| -> Value {
        let own = Setup { settings: Some(own.to_owned()), permission: Permission::Plan, ..setup() };
        let start = Opencode::new(own, String::new()).start();
        serde_json::from_str(&start.env[0].1).unwrap()
    };
    let all = settings_with(own);
    let permission = json!({"bash": "deny", "webfetch": "deny", "edit": "deny"});
    assert_eq!((&all["theme"], &all["permission"]), (&json!("dark"), &permission));
    for strange in ["[1]", "{", ""] {
        assert_eq!(settings_with(strange)["autoupdate"], false, "{strange}");
    }
}

#[test]
fn permissions_are_rules_of_opencode() {
    for (permission, config, session) in [
        (Permission::Plan, r#"{"edit":"deny","bash":"deny"}"#, "edit=deny bash=deny "),
        (Permission::Edit, r#"{"edit":"allow"}"#, "edit=allow "),
        (Permission::Auto, r#"{"*":"allow","doom_loop":"ask"}"#, ""),
        (Permission::Bypass, r#"{"*":"allow","doom_loop":"ask"}"#, "*=allow doom_loop=ask "),
    ] {
        let setup = Setup { permission, ..setup() };
        let start = Opencode::new(setup.clone(), String::new()).start();
        assert!(start.env[0].1.contains(&format!("\"permission\":{config}")), "{:?}", start.env);
        let body = launch_and_permissions::session(&setup);
        let rules = body["permission"].as_array().unwrap().iter();
        let rules: Vec<String> = rules
            .map(|rule| {
                assert_eq!(rule["pattern"], "*");
                format!(
                    "{}={}",
                    rule["permission"].as_str().unwrap(),
                    rule["action"].as_str().unwrap()
                )
            })
            .collect();
        let asking = "question=deny plan_enter=deny plan_exit=deny";
        assert_eq!(rules.join(" "), format!("{session}{asking}"), "{permission:?}");
    }
}

#[test]
fn it_is_asked_until_it_is_healthy() {
    let mut pair = Pair::new(setup());
    pair.tell(&Instruction::Prompt("early".to_owned()));
    pair.put(Input::Started);
    pair.fail("GET /global/health");
    pair.wake();
    // A page that every path is answered with.
    pair.answer("GET /global/health", 200, "<!doctype html>");
    pair.wake();
    pair.answer("GET /global/health", 200, r#"{"healthy":false}"#);
    pair.wake();
    // It thinks: it is asked again, but not soon.
    let wakes = AGENT_HEALTH_WAIT.as_millis() / AGENT_READY_POLL.as_millis();
    for _ in 1..wakes {
        pair.wake();
        assert_eq!(pair.asked.len(), 1);
    }
    pair.wake();
    assert_eq!(pair.asked.len(), 2);
    pair.answer("GET /global/health", 200, r#"{"healthy":true}"#);
    // The other answer comes too late to matter.
    pair.answer("GET /global/health", 200, r#"{"healthy":true}"#);
    assert_eq!((pair.listens, pair.asked.len()), (1, 2));
    pair.answer("POST /session", 200, r#"{"id":"ses_1"}"#);
    pair.fail("GET /config/providers");
    assert_eq!(pair.news(), Vec::<String>::new());
    pair.event(r#"{"type":"server.connected","properties":{}}"#);
    assert_eq!(pair.news(), ["ready ses_1"]);
    assert!(pair.has_asked("POST /session/ses_1/prompt_async"));
    // Without the windows there is a context without one.
    pair.play(&include_str!("../recorded/tool.jsonl").replace("> prompt TOOL please\n", ""));
    assert!(pair.news().contains(&"context 1020/?".to_owned()));
}

#[test]
fn one_that_does_not_come_up_is_given_up() {
    let mut silent = Pair::new(setup());
    silent.put(Input::Started);
    while silent.heard.is_empty() {
        silent.wake();
    }
    assert_eq!(silent.news(), ["failed Other: its server was not ready within 60s"]);
    assert_eq!(silent.now.since(moment(1_794_780_000_000)), AGENT_READY_WAIT);

    let mut half = Pair::new(setup());
    half.put(Input::Started);
    half.answer("GET /global/health", 200, r#"{"healthy":true}"#);
    half.answer("POST /session", 200, r#"{"id":"ses_1"}"#);
    while half.heard.is_empty() {
        half.put(Input::Failed { request: None, why: "refused" });
        half.wake();
    }
    assert_eq!(half.news(), ["failed Other: its server was not ready within 60s"]);
    assert!((10..100).contains(&half.listens), "{} tries", half.listens);

    let mut gone = Pair::new(setup());
    gone.put(Input::Started);
    gone.put(Input::Ended(&Exit::Code(1)));
    assert_eq!(gone.news(), ["failed Other: it exited with code 1"]);

    let mut refused = Pair::new(setup());
    refused.put(Input::Started);
    refused.answer("GET /global/health", 200, r#"{"healthy":true}"#);
    refused.answer("POST /session", 400, r#"{"name":"BadRequest","data":{"message":"no"}}"#);
    assert_eq!(refused.news(), ["failed Other: it opened no session: it answered 400: no"]);
    for id in ["../x", "", "ses 1"] {
        let mut odd = Pair::new(setup());
        odd.put(Input::Started);
        odd.answer("GET /global/health", 200, r#"{"healthy":true}"#);
        odd.answer("POST /session", 200, &json!({"id": id}).to_string());
        assert_eq!(odd.news(), ["failed Other: it opened no session: its answer has no id"]);
    }
}

#[test]
fn the_model_goes_with_each_prompt() {
    let mut setup = setup();
    setup.model = Some("mock/deep/m".to_owned());
    let body = launch_and_permissions::message(&setup, "go");
    assert_eq!(body["model"], json!({"providerID": "mock", "modelID": "deep/m"}));
    setup.model = Some("bare".to_owned());
    assert_eq!(
        launch_and_permissions::message(&setup, "go"),
        json!({"parts": [{"type": "text", "text": "go"}]})
    );
}
