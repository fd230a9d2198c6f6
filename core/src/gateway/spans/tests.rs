//! Spans in words, and when they are sent.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::gateway::otlp_export::*;
use crate::limits::{
    SPAN_BATCH_MAX, SPAN_BATCH_WAIT, SPAN_TEXT_CHARS_MAX, SPANS_LOST_QUIET, SPANS_RETRY_DELAY,
    SPANS_RETRY_DELAY_MAX, SPANS_TRIES_MAX, SPANS_WAITING_MAX, TRACE_STATE_BYTES_MAX,
};
use crate::time::Stamp;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn span() -> Span {
    Span {
        parent: None,
        method: "tools/call".to_owned(),
        target: SpanTarget::Tool("files__read".to_owned()),
        server: "files".to_owned(),
        client: "ci".to_owned(),
        request: Id::new(b"\"7a\""),
        version: Some("2025-11-25".to_owned()),
        is_stdio: false,
        began: Time::after_start(Duration::from_millis(1_000)),
        ended: Time::after_start(Duration::from_millis(1_250)),
        outcome: SpanOutcome::Answered,
    }
}

fn destination() -> Destination {
    Destination::of("http://x:4318", |_| None, "1.2").unwrap().unwrap()
}

struct World {
    export: Export,
    now: Time,
    sent: Vec<Value>,
    log: Vec<String>,
}

impl World {
    fn new() -> Self {
        let export = Export::new(&destination(), "1.2", 7);
        Self { export, now: Time::ZERO, sent: Vec::new(), log: Vec::new() }
    }

    fn input(&mut self, input: ExportInput) {
        for effect in self.export.handle(self.now, input) {
            match effect {
                ExportEffect::Send(body) => {
                    self.sent.push(serde_json::from_str(&body).expect("JSON"))
                }
                ExportEffect::Log(text) => self.log.push(text),
            }
        }
    }

    fn end(&mut self, spans: usize) {
        for _ in 0..spans {
            let at = Stamp::since_unix_epoch(Duration::from_secs(1_800_000_000));
            self.input(ExportInput::Ended(Box::new(span()), at));
        }
    }

    /// Goes on to the next moment that matters.
    fn wake(&mut self) {
        self.now = self.export.next_wakeup().expect("it waits for something").max(self.now);
        self.input(ExportInput::Wakeup);
    }

    fn taken(&mut self) {
        self.input(ExportInput::Answered(ExportOutcome::of_http(200, None, b"{}")));
    }

    fn fails(&mut self) {
        self.input(ExportInput::Answered(ExportOutcome::of_http(503, None, b"down")));
    }

    fn counts(&self) -> Vec<usize> {
        self.sent.iter().map(|body| spans_of(body).len()).collect()
    }
}

fn spans_of(body: &Value) -> &Vec<Value> {
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans")
}

fn words(span: Span) -> Value {
    let at = Stamp::since_unix_epoch(Duration::from_secs(1_800_000_000));
    serde_json::from_str(&encode(&span, at, &mut Ids::new(1))).expect("JSON")
}

fn attribute(span: &Value, key: &str) -> Value {
    let all = span["attributes"].as_array().expect("attributes");
    let found = all.iter().find(|its| its["key"] == key);
    found.map_or(Value::Null, |its| its["value"]["stringValue"].clone())
}

#[test]
fn a_span_says_what_was_called() {
    let said = words(span());
    assert_eq!(said["name"], "tools/call files__read");
    assert_eq!(said["kind"], 2);
    assert_eq!(said["startTimeUnixNano"], "1799999999750000000");
    assert_eq!(said["endTimeUnixNano"], "1800000000000000000");
    assert_eq!(said["status"], Value::Null);
    assert_eq!(said["parentSpanId"], Value::Null);
    for (key, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "files__read"),
        ("jsonrpc.request.id", "7a"),
        ("mcp.protocol.version", "2025-11-25"),
        ("network.transport", "tcp"),
        ("afresh.server", "files"),
        ("afresh.client", "ci"),
    ] {
        assert_eq!(attribute(&said, key), value, "{key}");
    }
    assert_eq!(attribute(&said, "error.type"), Value::Null);
    let resource = words(Span {
        method: "resources/read".to_owned(),
        target: SpanTarget::Resource("x://a".to_owned()),
        is_stdio: true,
        ..span()
    });
    assert_eq!(resource["name"], "resources/read");
    assert_eq!(attribute(&resource, "mcp.resource.uri"), "x://a");
    assert_eq!(attribute(&resource, "network.transport"), "pipe");
}

#[test]
fn errors_are_errors() {
    let of = |outcome: SpanOutcome| words(Span { outcome, ..span() });
    let failed = of(SpanOutcome::ToolFailed);
    assert_eq!(
        (&failed["status"]["code"], attribute(&failed, "error.type")),
        (&json!(2), "tool_error".into())
    );
    let error = of(SpanOutcome::Error {
        code: Some(-32602),
        message: "token=ghp_abcdefghijklmnopqrstuvwxyz0123456789".to_owned(),
    });
    assert_eq!(attribute(&error, "error.type"), "-32602");
    assert_eq!(attribute(&error, "rpc.response.status_code"), "-32602");
    assert_eq!(error["status"]["code"], 2);
    assert!(!error.to_string().contains("ghp_abc"), "{error}");
    assert_eq!(attribute(&of(SpanOutcome::Failed("timed_out")), "error.type"), "timed_out");
    let cancelled = of(SpanOutcome::Cancelled);
    assert_eq!(cancelled["status"], Value::Null);
    assert!(cancelled.to_string().contains("afresh.cancelled"));
}

#[test]
fn long_texts_are_cut() {
    let long = "x".repeat(100_000);
    let said = words(Span { target: SpanTarget::Tool(long.clone()), method: long, ..span() });
    let cut = format!("{}…", "x".repeat(SPAN_TEXT_CHARS_MAX));
    assert_eq!(attribute(&said, "mcp.method.name"), cut);
    assert!(said.to_string().len() < 2_000 + 16 * SPAN_TEXT_CHARS_MAX);
}

#[test]
fn a_trace_is_gone_on_with() {
    let meta = json!({"traceparent": PARENT, "tracestate": "a=1,b=2"}).to_string();
    let parent = Parent::of_meta(meta.as_bytes());
    assert!(parent.as_ref().is_some_and(Parent::is_sampled));
    let said = words(Span { parent, ..span() });
    assert_eq!(said["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(said["parentSpanId"], "b7ad6b7169203331");
    assert_eq!((&said["traceState"], &said["flags"]), (&json!("a=1,b=2"), &json!(0x301)));
    assert_ne!(said["spanId"], said["parentSpanId"]);
    for bad in [
        "",
        "00",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-+1",
        "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
    ] {
        assert_eq!(
            Parent::of_meta(json!({"traceparent": bad}).to_string().as_bytes()),
            None,
            "{bad}"
        );
    }
    // A later version may say more.
    let later = json!({"traceparent": "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"});
    assert!(Parent::of_meta(later.to_string().as_bytes()).is_some());
    let state = |bytes: usize| {
        let state = "a".repeat(bytes);
        let meta = json!({"traceparent": PARENT, "tracestate": state}).to_string();
        Parent::of_meta(meta.as_bytes()).map(|parent| parent.state.len())
    };
    assert_eq!(state(TRACE_STATE_BYTES_MAX), Some(TRACE_STATE_BYTES_MAX));
    assert_eq!(state(TRACE_STATE_BYTES_MAX + 1), Some(0), "half of it would mean something else");
}

#[test]
fn ids_differ() {
    let mut ids = Ids::new(1);
    let mut next = || {
        let said = encode(&span(), Stamp::default(), &mut ids);
        let said: Value = serde_json::from_str(&said).expect("JSON");
        let (trace, span) = (said["traceId"].as_str().unwrap(), said["spanId"].as_str().unwrap());
        assert_eq!((trace.len(), span.len()), (32, 16));
        (trace.to_owned(), span.to_owned())
    };
    let (one, other) = (next(), next());
    assert!(one.0 != other.0 && one.1 != other.1);
}

#[test]
fn spans_go_together() {
    let mut world = World::new();
    assert_eq!(world.export.next_wakeup(), None);
    world.end(3);
    assert_eq!(world.sent.len(), 0);
    world.wake();
    assert_eq!(world.now, Time::ZERO + SPAN_BATCH_WAIT);
    assert_eq!(world.counts(), [3]);
    assert_eq!(
        world.sent[0]["resourceSpans"][0]["resource"]["attributes"][0],
        json!({
        "key": "service.name", "value": {"stringValue": "afresh-gateway"}})
    );
    // One request at a time; then as many as there may be, without a wait.
    world.end(SPAN_BATCH_MAX + 1);
    assert_eq!(world.counts(), [3]);
    world.taken();
    assert_eq!(world.counts(), [3, SPAN_BATCH_MAX]);
    world.taken();
    world.wake();
    assert_eq!(world.counts(), [3, SPAN_BATCH_MAX, 1]);
    assert_eq!(world.log, [""; 0]);
}

#[test]
fn a_receiver_that_is_down_costs_spans_and_nothing_else() {
    let mut world = World::new();
    world.end(SPAN_BATCH_MAX + SPANS_WAITING_MAX + 2);
    // Said once, and then not for a while.
    assert_eq!(world.log, ["OpenTelemetry: 1 span is lost"]);
    for _ in 1..SPANS_TRIES_MAX {
        let before = world.now;
        world.fails();
        world.wake();
        assert!(world.now > before && world.now.since(before) <= SPANS_RETRY_DELAY_MAX);
    }
    assert_eq!(world.counts(), vec![SPAN_BATCH_MAX; SPANS_TRIES_MAX as usize]);
    assert!(world.log[1].contains("cannot be sent: it answered with 503: down"), "{:?}", world.log);
    world.now = world.now + SPANS_LOST_QUIET;
    world.fails();
    assert_eq!(world.log[2], format!("OpenTelemetry: {} spans are lost", SPAN_BATCH_MAX + 1));
    // The next ones have their own tries.
    world.wake();
    world.taken();
    assert_eq!(world.log[3], "OpenTelemetry: the receiver takes spans again");
    assert_eq!(world.log.len(), 4);
}

#[test]
fn waits_double_up_to_a_most() {
    let mut world = World::new();
    world.end(2);
    world.wake();
    for n in 0..8 {
        let before = world.now;
        // As soon as one batch is lost the next is tried, and the waits go on from where they were.
        world.fails();
        world.end(1);
        world.wake();
        let (wait, least) = (world.now.since(before), SPANS_RETRY_DELAY * (1 << n));
        let (least, most) = (least.min(SPANS_RETRY_DELAY_MAX), least * 5 / 4);
        assert!((least..=most.min(SPANS_RETRY_DELAY_MAX)).contains(&wait), "{n}: {wait:?}");
    }
    // Also where the receiver asks for more.
    let mut world = World::new();
    world.end(1);
    world.wake();
    let before = world.now;
    // The largest number of seconds is no reason to overflow.
    world.input(ExportInput::Answered(ExportOutcome::of_http(
        429,
        Some("18446744073709551615"),
        b"",
    )));
    world.wake();
    assert_eq!(world.now.since(before), SPANS_RETRY_DELAY_MAX);
}

#[test]
fn what_never_works_is_not_tried_again() {
    let mut world = World::new();
    world.end(1);
    world.wake();
    world.input(ExportInput::Answered(ExportOutcome::of_http(401, None, b"who are you?")));
    assert_eq!(world.export.next_wakeup(), None);
    assert_eq!(
        world.log,
        [
            "OpenTelemetry: spans cannot be sent: it answered with 401: who are you?",
            "OpenTelemetry: 1 span is lost"
        ]
    );
}

#[test]
fn the_receivers_wishes_count() {
    let mut world = World::new();
    world.end(1);
    world.wake();
    let before = world.now;
    world.input(ExportInput::Answered(ExportOutcome::of_http(429, Some("7"), b"")));
    world.wake();
    assert!(world.now.since(before) >= Duration::from_secs(7));
    let part = br#"{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}"#;
    world.input(ExportInput::Answered(ExportOutcome::of_http(200, None, part)));
    assert!(
        world
            .log
            .contains(&"OpenTelemetry: the receiver has not taken 1 spans: too old".to_owned())
    );
    assert!(world.log.contains(&"OpenTelemetry: 1 span is lost".to_owned()));
}

#[test]
fn at_the_end_all_goes_at_once_and_once() {
    let mut world = World::new();
    world.end(2);
    world.wake();
    world.fails();
    world.end(1);
    // It waits for a second try; now there is no more time.
    world.input(ExportInput::Close);
    assert_eq!(world.counts(), [2, 2]);
    world.taken();
    assert_eq!(world.counts(), [2, 2, 1]);
    assert!(!world.export.is_done());
    world.fails();
    assert!(world.export.is_done());
    assert_eq!(world.log.last().unwrap(), "OpenTelemetry: 1 span is lost");
    assert_eq!(world.export.end(), None);
    let mut world = World::new();
    world.end(4);
    world.input(ExportInput::Close);
    assert_eq!(world.export.end().unwrap(), "OpenTelemetry: 4 spans are lost");
}

#[test]
fn the_destination_is_as_opentelemetry_says() {
    let of = |given: &str, variables: &[(&'static str, &'static str)]| {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|its| its.1);
        Destination::of(given, find, "1")
    };
    let url = |given, variables: &[_]| of(given, variables).unwrap().map(|its| its.url);
    assert_eq!(of("", &[]), Err(DestinationError::Missing));
    let empty = ("OTEL_EXPORTER_OTLP_ENDPOINT", " ");
    assert_eq!(of("", &[empty]), Err(DestinationError::Missing));
    let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base/");
    let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/spans");
    assert_eq!(url("", &[base]).unwrap(), "http://c:4318/base/v1/traces");
    assert_eq!(url("", &[base, whole]).unwrap(), "http://t/spans");
    assert_eq!(url("http://g", &[base, whole]).unwrap(), "http://g/v1/traces");
    assert_eq!(url("http://g/v1/traces", &[]).unwrap(), "http://g/v1/traces");
    assert_eq!(of("", &[base, ("OTEL_SDK_DISABLED", "true")]), Ok(None));
    assert_eq!(of("", &[base, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
    let error = of("", &[base, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap_err();
    assert!(error.to_string().contains("http/json"), "{error}");
    let named = of(
        "",
        &[
            base,
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, api-key = k=%2"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment=test"),
            ("OTEL_SERVICE_NAME", "mine"),
        ],
    );
    let named = named.unwrap().unwrap();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(named.headers, [pair("authorization", "Bearer x"), pair("api-key", "k=%2")]);
    assert_eq!(
        named.resource,
        [
            pair("deployment.environment", "test"),
            pair("service.name", "mine"),
            pair("service.version", "1")
        ]
    );
    assert!(!format!("{named:?}").contains("Bearer"));
    assert_eq!(of("localhost:4318", &[]), Err(DestinationError::Url));
    let broken = of("http://x", &[("OTEL_EXPORTER_OTLP_HEADERS", "secret")]).unwrap_err();
    assert!(!broken.to_string().contains("secret"));
}
