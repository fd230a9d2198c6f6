//! The control API: starts and stops, what happens as it happens, and numbers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use afresh_tests::api::Api;
use afresh_tests::{Running, TestEnv, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::{AT_ONCE, HOSTILE, stop};

const SERVER: &str = env!("CARGO_BIN_EXE_mcp-server");

/// Starts `afresh keep --listen 0 --name web FLAGS -- hostile idle`.
fn listening(env: &TestEnv, flags: &[&str]) -> (Running, Api) {
    let words = [&["keep", "--listen", "0", "--name", "web"], flags, &["--", HOSTILE, "idle"]];
    let afresh = env.start(&words.concat());
    let api = Api::of(env, &afresh);
    afresh.wait_started(1);
    (afresh, api)
}

/// Kills the process of the service.
fn kill_it(api: &Api) {
    let pid = api.ask("GET /v1/services/web", "").json()["pid"].as_i64().expect("a pid");
    kill(Pid::from_raw(i32::try_from(pid).expect("a pid")), Signal::SIGKILL).expect("it runs");
}

/// The numbers of events.
fn numbers(page: &Value) -> Vec<u64> {
    let events = page["events"].as_array().expect("events");
    events.iter().map(|event| event["number"].as_u64().expect("a number")).collect()
}

#[test]
fn a_service_is_stopped_and_started_again_on_record() {
    let env = TestEnv::new();
    let (mut afresh, api) = listening(&env, &[]);
    let pid = api.ask("GET /v1/services/web", "").json()["pid"].clone();
    let stopped =
        api.ask("POST /v1/services/web/stop?wait=true", r#"{"reason":"the port is needed"}"#);
    assert_eq!(stopped.status, 200);
    let wanted =
        json!({"name": "web", "outcome": "down", "old_pid": pid, "new_pid": null, "detail": null});
    assert_eq!(stopped.json(), wanted);
    assert_eq!(api.ask("GET /v1/services/web", "").json()["state"], "stopped");
    // It is down, and stays down, and afresh stays.
    let again = api.ask("POST /v1/services/web/stop?wait=true", "").json();
    assert_eq!((&again["outcome"], &again["old_pid"]), (&json!("down"), &Value::Null));
    let told = env.run(&["stop", "web"]);
    assert_eq!((told.code, told.stdout.as_str()), (Some(0), "web: it is stopped already\n"));

    let started = api.ask("POST /v1/services/web/start?wait=true", r#"{"reason":"done"}"#).json();
    assert_eq!((&started["outcome"], &started["old_pid"]), (&json!("up"), &Value::Null));
    let new = &started["new_pid"];
    assert!(new.is_u64() && *new != pid, "{started}");
    let again = api.ask("POST /v1/services/web/start?wait=true", "").json();
    assert_eq!((&again["old_pid"], &again["new_pid"]), (new, new));
    assert_eq!(api.ask("POST /v1/services/web/stop", "").status, 202);
    wait_for("it is down", || api.ask("GET /v1/services/web", "").json()["state"] == "stopped");
    wait_for("it is on disk", || env.events("server_stopped").len() == 2);

    let reasons = |event_type: &str| -> Vec<Value> {
        env.events(event_type).iter().map(|record| record["props"]["reason"].clone()).collect()
    };
    assert_eq!(
        reasons("server_stop_requested"),
        ["the port is needed", "asked over the control API"]
    );
    assert_eq!(reasons("server_start_requested"), ["done"]);
    assert_eq!(reasons("server_stopped"), ["stopped_by_user", "stopped_by_user"]);
    assert_eq!(env.events("server_crashed").len(), 0);
    stop(&env, &mut afresh);
}

#[test]
fn copies_are_stopped_one_by_one() {
    let env = TestEnv::new();
    let (mut afresh, api) = listening(&env, &["--copies", "3"]);
    let told = env.run(&["stop", "web-1"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let states = || -> Vec<Value> {
        let list = api.ask("GET /v1/services", "").json();
        list["services"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one["state"].clone())
            .collect()
    };
    wait_for("two run", || states() == ["running", "stopped", "running"]);
    let told = env.run(&["stop", "web"]);
    assert!(told.stderr.contains("3 services are called that: stopping all"), "{told:?}");
    assert_eq!(states(), ["stopped"; 3]);
    let told = env.run(&["start", "web", "web-2"]);
    assert_eq!(told.stdout.matches(": started (pid ").count(), 3, "{told:?}");
    stop(&env, &mut afresh);
}

#[test]
fn a_server_of_a_client_is_not_stopped() {
    let env = TestEnv::new();
    let mut afresh = env.start(&["mcp", "--name", "tools", "--", SERVER]);
    wait_for("a socket", || env.sockets().len() == 1);
    let api = Api::Socket(env.sockets().remove(0));
    for (line, said) in [
        ("POST /v1/services/tools/stop", "its MCP client would lose it"),
        ("POST /v1/reload", "`afresh mcp`"),
        ("POST /v1/shutdown", "`afresh mcp`"),
    ] {
        let refused = api.ask(line, "");
        assert_eq!(refused.status, 409, "{refused:?}");
        assert!(refused.body.contains(said), "{refused:?}");
    }
    let told = env.run(&["stop", "tools"]);
    assert_eq!(told.code, Some(1));
    assert!(told.stdout.contains("its MCP client would lose it; restart it, or"), "{told:?}");
    afresh.close_stdin();
    assert_eq!(afresh.wait().code(), Some(0), "{}", afresh.stderr());
    env.assert_nothing_left();
}

#[test]
fn events_go_on_after_a_cut() {
    let env = TestEnv::new();
    let (mut afresh, api) = listening(&env, &AT_ONCE);
    let page = api.ask("GET /v1/events", "").json();
    assert_eq!(page["events"][0]["props"]["event_type"], "supervisor_started");
    assert_eq!(numbers(&page)[0], 1);
    let newest = page["newest"].as_u64().expect("a number");

    let mut events = api.follow(&format!("/v1/events?follow=true&since={newest}"), &[]);
    kill_it(&api);
    let (kind, id, crash) = events.next().expect("an event");
    assert_eq!((kind.as_str(), &crash["number"]), ("", &json!(newest + 1)));
    assert_eq!(crash["props"]["event_type"], "server_crashed");
    drop(events);
    // What happens while nobody listens is told to whoever comes back.
    env.wait_for_pid("server_started", 2);
    kill_it(&api);
    env.wait_for_pid("server_started", 3);
    let known = [format!("last-event-id: {id}")];
    let mut events = api.follow(&format!("/v1/events?follow=true&since={newest}"), &known);
    for number in newest + 2..=newest + 5 {
        let (kind, _, event) = events.next().expect("an event");
        assert_eq!((kind.as_str(), &event["number"]), ("", &json!(number)), "{event}");
    }
    // The position of another afresh says nothing here; that is said, and all that is known follows.
    let mut events = api.follow("/v1/events?follow=true", &["last-event-id: abc-3".to_owned()]);
    let (kind, _, gap) = events.next().expect("an event");
    assert_eq!((kind.as_str(), gap), ("gap", json!({"missed": 0, "restarted": true})));
    assert_eq!(events.next().expect("an event").2["number"], 1);
    let page = api.ask("GET /v1/events?since=100000", "").json();
    assert_eq!((&page["restarted"], numbers(&page)[0]), (&json!(true), 1));
    stop(&env, &mut afresh);
    // It has told its own end.
    let mut last = Value::Null;
    for (_, _, event) in events {
        last = event;
    }
    assert_eq!(last["props"]["event_type"], "supervisor_stopped", "{last}");
}

#[test]
fn events_are_those_of_the_trail_and_of_one_service_where_asked() {
    let env = TestEnv::new();
    let (mut afresh, api) = listening(&env, &["--copies", "2"]);
    afresh.wait_started(2);
    assert_eq!(env.run(&["restart", "web-1", "--reason", "password=hunter2hunter2"]).code, Some(0));
    let page = api.ask("GET /v1/events?service=web-1", "").json();
    let events = page["events"].as_array().expect("events").clone();
    assert!(events.len() >= 4 && events.iter().all(|event| event["props"]["service"] == "web-1"));
    assert_eq!(api.ask("GET /v1/events?service=nobody", "").status, 404);
    let page = api.ask("GET /v1/events", "");
    assert!(!page.body.contains("hunter2") && page.body.contains("[redacted]"), "{page:?}");
    for event in page.json()["events"].as_array().expect("events") {
        let is_it = |record: &Value| {
            record["message"] == event["message"] && record["props"] == event["props"]
        };
        // What merely happened is told before it is on disk: the writer of the trail is a thread of its own.
        wait_for(&format!("{event} is in the trail"), || env.records().iter().any(is_it));
    }
    stop(&env, &mut afresh);
}

#[test]
fn the_command_follows_events_until_afresh_ends() {
    let env = TestEnv::new();
    let (mut afresh, api) = listening(&env, &AT_ONCE);
    let mut follow = env.start(&["events", "-f"]);
    follow.wait_stdout("web started (pid ", 1);
    let mut one = env.start(&["events", "-f", "web", "--json", "--since", "1"]);
    one.wait_stdout("\"server_started\"", 1);
    kill_it(&api);
    follow.wait_stdout("web started (pid ", 2);
    one.wait_stdout("\"server_started\"", 2);
    for line in one.stdout().lines() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        assert!(
            event["number"].as_u64() > Some(1) && event["props"]["service"] == "web",
            "{event}"
        );
    }
    let recent = env.run(&["events", "--since", "1h"]);
    assert!(recent.stdout.lines().count() >= 5 && recent.stderr.is_empty(), "{recent:?}");
    assert_eq!(env.run(&["events", "--since", "2100-01-01"]).stdout, "");
    let late = env.run(&["events", "--since", "100000"]);
    assert!(late.stderr.contains("another afresh counts now"), "{late:?}");
    assert_eq!(env.run(&["events", "nobody"]).code, Some(4));
    stop(&env, &mut afresh);
    for one in [&mut follow, &mut one] {
        assert_eq!(one.wait().code(), Some(0), "{}", one.stderr());
    }
    follow.wait_stdout("web stopped, afresh is shutting down", 1);
}

/// Samples by their name and labels. Panics at what is not the text format of Prometheus.
fn parsed(text: &str) -> BTreeMap<String, f64> {
    let mut families: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = Vec::new();
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helped.push(rest.split_once(' ').expect("a help").0);
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(helped.contains(&name) && ["gauge", "counter", "histogram"].contains(&kind));
            assert!(families.insert(name, kind).is_none(), "{name} is there twice");
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').expect("a value");
        let name = sample.split('{').next().expect("a name");
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(name.chars().all(is_name), "{line}");
        let family = ["_bucket", "_sum", "_count"].iter().fold(name, |name, end| {
            let shorter = name.strip_suffix(end).unwrap_or(name);
            if families.get(shorter) == Some(&"histogram") { shorter } else { name }
        });
        assert!(families.contains_key(family), "{name} has no type");
        let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(samples.insert(sample.to_owned(), value).is_none(), "{sample} is there twice");
    }
    assert!(text.ends_with('\n'));
    samples
}

#[test]
fn numbers_are_for_prometheus() {
    let env = TestEnv::new();
    let name = "a\"b\\c";
    let flags = [&["keep", "--listen", "0", "--name", name], &AT_ONCE[..]].concat();
    let mut afresh = env.start(&[&flags[..], &["--", HOSTILE, "idle"]].concat());
    let api = Api::of(&env, &afresh);
    let pid = env.wait_for_pid("server_started", 1);
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it runs");
    env.wait_for_pid("server_started", 2);
    assert_eq!(env.run(&["restart", name]).code, Some(0));
    for path in ["/metrics", "/v1/metrics"] {
        let answer = api.ask(&format!("GET {path}"), "");
        assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        let samples = parsed(&answer.body);
        let labels = r#"service="a\"b\\c""#;
        let of = |sample: &str| samples.get(sample).copied();
        let states = samples.iter().filter(|(name, _)| name.starts_with("afresh_service_state{"));
        assert_eq!(states.map(|(_, value)| value).sum::<f64>(), 1.0);
        assert_eq!(of(&format!(r#"afresh_service_state{{{labels},state="running"}}"#)), Some(1.0));
        let restarts = |reason: &str| {
            of(&format!(r#"afresh_service_restarts_total{{{labels},reason="{reason}"}}"#))
        };
        assert_eq!((restarts("killed"), restarts("requested")), (Some(1.0), Some(1.0)));
        let recovery = |end: &str| of(&format!("afresh_service_recovery_seconds_{end}"));
        assert_eq!(recovery(&format!("count{{{labels}}}")), Some(1.0));
        assert_eq!(recovery(&format!("bucket{{{labels},le=\"+Inf\"}}")), Some(1.0));
        assert!(recovery(&format!("sum{{{labels}}}")) > Some(0.0));
        assert!(of(&format!("afresh_service_uptime_seconds{{{labels}}}")).is_some());
        assert!(of("process_resident_memory_bytes") > Some(1e6));
        assert!(of("process_cpu_seconds_total").is_some() && of("afresh_events_total") > Some(5.0));
    }
    stop(&env, &mut afresh);
}

#[test]
fn the_description_is_the_one_in_the_reference() {
    let env = TestEnv::new();
    let (mut afresh, api) = listening(&env, &[]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/openapi.json");
    let kept: Value =
        serde_json::from_str(&fs::read_to_string(file).expect("a file")).expect("JSON");
    assert_eq!(api.ask("GET /v1/openapi.json", "").json(), kept);
    let version = api.ask("GET /v1/version", "").json();
    assert_eq!((&version["api"], &version["pid"]), (&json!(1), &json!(afresh.pid())));
    let fields: Vec<&String> = version.as_object().expect("an object").keys().collect();
    assert_eq!(json!(fields), kept["components"]["schemas"]["VersionAnswer"]["required"]);
    for line in ["POST /v1/reload", "POST /v1/shutdown"] {
        let refused = api.ask(line, r#"{"reason":"to see"}"#);
        assert_eq!(refused.status, 409, "{refused:?}");
        assert!(
            refused.json()["error"]["what"]
                .as_str()
                .is_some_and(|what| what.contains("`afresh keep`"))
        );
    }
    stop(&env, &mut afresh);
}

#[test]
fn lines_are_selected() {
    let env = TestEnv::new();
    let script = "for n in 1 2 3; do echo out $n; echo err $n >&2; done; exec sleep 1000";
    let flags = ["keep", "--listen", "0", "--name", "web", "--", "sh", "-c", script];
    let mut afresh = env.start(&flags);
    let api = Api::of(&env, &afresh);
    let texts = |query: &str| -> Vec<String> {
        let page = api.ask(&format!("GET /v1/services/web/logs?{query}"), "").json();
        let lines = page["lines"].as_array().expect("lines").iter();
        lines.map(|line| line["text"].as_str().expect("a text").to_owned()).collect()
    };
    wait_for("all lines", || {
        texts("stream=stdout").len() == 3 && texts("stream=stderr").len() == 3
    });
    assert_eq!(texts("stream=stderr"), ["err 1", "err 2", "err 3"]);
    assert_eq!(texts("stream=stdout&lines=1"), ["out 3"]);
    assert_eq!(texts("stream=stdout&since=0&lines=1"), ["out 1"]);
    assert_eq!(texts("grep=out+2"), ["out 2"]);
    assert_eq!(texts("grep=out%202&stream=stderr").len(), 0);
    assert_eq!(texts("lines=0").len(), 0);
    let mut lines =
        api.follow("/v1/services/web/logs?follow=true&grep=3&stream=stderr&since=0", &[]);
    assert_eq!(lines.next().expect("a line").2["text"], "err 3");
    stop(&env, &mut afresh);
    assert!(lines.next().is_none(), "nothing else was wanted");
}

#[test]
fn whoever_does_not_read_is_cut_off_and_hurts_nobody() {
    let env = TestEnv::new();
    let script = format!("while :; do echo {}; sleep 0.01; done", "x".repeat(2_000));
    let mut afresh = env.start(&["keep", "--name", "web", "--", "sh", "-c", &script]);
    wait_for("a socket", || env.sockets().len() == 1);
    let api = Api::Socket(env.sockets().remove(0));
    afresh.wait_started(1);
    // As many as there are places, and none of them reads more than the first line: with that it has its
    // place. One who asked for another one before would have taken it from them.
    let mut deaf: Vec<_> =
        (0..32).map(|_| api.follow("/v1/services/web/logs?follow=true", &[])).collect();
    assert!(deaf.iter_mut().all(|lines| lines.next().is_some()), "each has a place");
    let one_more = api.follow("/v1/events?follow=true&since=0", &[]).next();
    assert_eq!(one_more, None, "all places are taken");
    // Others are answered meanwhile, and after a while there is a place again.
    assert_eq!(api.ask("GET /v1/services", "").status, 200);
    wait_for("a place is free", || {
        api.follow("/v1/events?follow=true&since=0", &[]).next().is_some()
    });
    assert_eq!(api.ask("GET /v1/services/web", "").json()["restarts"]["total"], 0);
    drop(deaf);
    stop(&env, &mut afresh);
}

#[test]
fn what_services_use_is_told_and_those_that_are_down_use_nothing() {
    let env = TestEnv::new();
    let flags = ["keep", "--listen", "0", "--copies", "2", "--name", "web", "--", HOSTILE, "idle"];
    let mut afresh = env.start(&flags);
    let api = Api::of(&env, &afresh);
    afresh.wait_started(2);
    assert_eq!(api.ask("POST /v1/services/web-0/stop?wait=true", "").status, 200);
    let all = api.ask("GET /v1/services", "").json()["services"].clone();
    assert_eq!((&all[0]["name"], &all[0]["usage"]), (&json!("web-0"), &Value::Null));
    let memory = all[1]["usage"]["memory_bytes"].as_u64().expect("it runs");
    assert!(memory > 50_000 && all[1]["usage"]["cpu_ms"].is_u64(), "{all}");
    let one = api.ask("GET /v1/services/web-1", "").json();
    assert!(one["usage"]["memory_bytes"].as_u64() > Some(50_000), "{one}");
    let text = api.ask("GET /metrics", "").body;
    for name in ["afresh_service_resident_memory_bytes", "afresh_service_cpu_seconds_total"] {
        assert!(text.contains(&format!("{name}{{service=\"web-1\"}} ")), "{text}");
        assert!(!text.contains(&format!("{name}{{service=\"web-0\"}}")), "{text}");
    }
    stop(&env, &mut afresh);
}
