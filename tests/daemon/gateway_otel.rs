//! `afresh gateway --otlp`: what a real receiver hears of each call.

use afresh_tests::receiver::{Received, Receiver};
use afresh_tests::{Running, TestEnv};
use serde_json::{Value, json};

const SERVER: &str = env!("CARGO_BIN_EXE_mcp-server");

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A gateway with one server, and a client that has begun.
fn gateway(env: &TestEnv, flags: &[&str], variables: &[(&str, &str)]) -> Running {
    configured(env, "", flags, variables)
}

/// The same, with more in its configuration.
fn configured(env: &TestEnv, config: &str, flags: &[&str], variables: &[(&str, &str)]) -> Running {
    env.write("tools", "pid Tells\nlater Waits\nmissing Fails\n");
    env.write("afresh.toml", &format!("{config}[server.a]\ncommand = [{SERVER:?}]\n"));
    let mut command = env.afresh(&[&["gateway"], flags].concat());
    command.envs(variables.iter().copied());
    let mut gateway = Running::start(command);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    say(&mut gateway, &json!({"id": "open", "method": "initialize", "params": params}));
    say(&mut gateway, &json!({"method": "notifications/initialized"}));
    gateway.wait_stdout("\"id\":\"open\"", 1);
    gateway
}

fn say(gateway: &mut Running, message: &Value) {
    let mut message = message.clone();
    message["jsonrpc"] = "2.0".into();
    gateway.write(&format!("{message}\n"));
}

fn call(gateway: &mut Running, id: &str, tool: &str, meta: &Value) {
    let params = json!({"name": tool, "arguments": {}, "_meta": meta});
    say(gateway, &json!({"id": id, "method": "tools/call", "params": params}));
}

/// Hangs up, and sees that all ends well.
fn end(env: &TestEnv, gateway: &mut Running) {
    gateway.close_stdin();
    gateway.wait_output();
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.stderr());
    env.assert_nothing_left();
}

fn spans(received: &Received) -> Vec<Value> {
    let body = received.json();
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone()
}

fn attribute<'a>(of: &'a Value, key: &str) -> &'a Value {
    let all = of["attributes"].as_array().expect("attributes");
    all.iter()
        .find(|its| its["key"] == key)
        .map_or(&Value::Null, |its| &its["value"]["stringValue"])
}

#[test]
fn variables_alone_send_nothing() {
    let env = TestEnv::new();
    let receiver = Receiver::start(|_| Some("200 OK"));
    let url = receiver.url("");
    let mut gateway = gateway(&env, &[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str())]);
    call(&mut gateway, "call", "a__pid", &json!({}));
    gateway.wait_stdout("\"id\":\"call\"", 1);
    end(&env, &mut gateway);
    assert_eq!(receiver.received().len(), 0);
}

#[test]
fn the_configuration_names_a_receiver() {
    let env = TestEnv::new();
    let receiver = Receiver::start(|_| Some("200 OK"));
    let config = format!("[gateway]\notlp = \"{}\"\n", receiver.url(""));
    let mut gateway = configured(&env, &config, &[], &[]);
    call(&mut gateway, "call", "a__pid", &json!({}));
    gateway.wait_stdout("\"id\":\"call\"", 1);
    end(&env, &mut gateway);
    assert_eq!(receiver.received().len(), 1);
}

#[test]
fn a_receiver_hears_of_every_call() {
    let env = TestEnv::new();
    let receiver = Receiver::start(|_| Some("200 OK"));
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url("/base")),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc".to_owned()),
        ("OTEL_SERVICE_NAME", "mine".to_owned()),
    ];
    let variables: Vec<_> = variables.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let mut gateway = gateway(&env, &["--otlp"], &variables);
    call(&mut gateway, "with", "a__pid", &json!({"traceparent": PARENT, "tracestate": "k=v"}));
    call(&mut gateway, "without", "a__missing", &json!({}));
    gateway.wait_stdout("\"id\":\"without\"", 1);
    // It is still open when all ends.
    call(&mut gateway, "open call", "a__later", &json!({}));
    say(
        &mut gateway,
        &json!({"id": "after", "method": "tools/call", "params": {"name": "a__pid"}}),
    );
    gateway.wait_stdout("\"id\":\"after\"", 1);
    end(&env, &mut gateway);

    // The end has not waited for the time of a batch.
    let received = receiver.received();
    assert!(!received.is_empty(), "{}", gateway.stderr());
    for request in &received {
        assert_eq!(request.line, "POST /base/v1/traces HTTP/1.1");
        assert_eq!(request.header("content-type"), "application/json");
        assert_eq!(request.header("authorization"), "Bearer abc");
        let resource = &request.json()["resourceSpans"][0]["resource"];
        assert_eq!(attribute(resource, "service.name"), "mine");
    }
    let all: Vec<Value> = received.iter().flat_map(spans).collect();
    let of = |id: &str| {
        let mut its = all.iter().filter(|span| attribute(span, "jsonrpc.request.id") == id);
        let first = its.next().unwrap_or_else(|| panic!("no span of {id}: {all:#?}"));
        assert!(its.next().is_none(), "two of {id}");
        first
    };
    let with = of("with");
    assert_eq!(with["name"], "tools/call a__pid");
    assert_eq!(with["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(
        (&with["parentSpanId"], &with["traceState"]),
        (&json!("b7ad6b7169203331"), &json!("k=v"))
    );
    assert_eq!(attribute(with, "afresh.server"), "a");
    assert_eq!(attribute(with, "network.transport"), "pipe");
    assert_eq!(with["status"], Value::Null);
    let nanos = |key: &str| with[key].as_str().expect("a text").parse::<u128>().expect("a number");
    assert!(nanos("startTimeUnixNano") < nanos("endTimeUnixNano"));
    let without = of("without");
    assert_eq!(without["status"]["code"], 2);
    assert_eq!(attribute(without, "error.type"), "-32602");
    assert_eq!(without["parentSpanId"], Value::Null);
    assert!(of("open call").to_string().contains("afresh.cancelled"));
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(!gateway.stderr().contains("OpenTelemetry"), "{}", gateway.stderr());
}

#[test]
fn a_receiver_in_trouble_is_asked_again_and_holds_up_nobody() {
    let env = TestEnv::new();
    // It does not answer what comes last.
    let receiver =
        Receiver::start(|number| [Some("503 Busy"), Some("200 OK")].get(number).copied().flatten());
    let mut gateway = gateway(&env, &["--otlp", &receiver.url("")], &[]);
    // No more are on their way than the server takes, and all of them within the pause between two deliveries.
    for first in (0..512).step_by(128) {
        for id in first..first + 128 {
            call(&mut gateway, &format!("c{id}"), "a__pid", &json!({}));
        }
        gateway.wait_stdout("\"id\":\"c", first + 128);
    }
    let received = receiver.wait(2);
    assert_eq!((spans(&received[0]).len(), &received[0].body), (512, &received[1].body));
    gateway.wait_stderr("the receiver takes spans again", 1);
    call(&mut gateway, "last", "a__pid", &json!({}));
    gateway.wait_stdout("\"id\":\"last\"", 1);
    end(&env, &mut gateway);
    assert_eq!(spans(&receiver.received()[2]).len(), 1);
    assert!(gateway.stderr().contains("OpenTelemetry: 1 span is lost"), "{}", gateway.stderr());
    assert!(gateway.stderr().contains("it answered with 503"), "{}", gateway.stderr());
}
