//! Scripted histories; `tests/chance.rs` has the random ones.

use super::*;
use crate::mcp::json;

mod chance;
mod limits;
mod old;
mod trouble;

struct Bench {
    remote: Remote,
    now: Time,
    /// What was said of the server.
    serves: Vec<Result<(), String>>,
}

/// What was done, in a form that can be compared.
#[derive(Clone, Debug, PartialEq)]
enum Done {
    /// Method, place, headers and body of an exchange.
    Ask(u64, Method, String, Vec<(String, String)>, String),
    Finish(u64),
    Drop(u64),
    Tell(String, Option<String>),
}

impl Bench {
    fn new(sse: Option<bool>) -> Self {
        let url = "http://h:1/s3cr3t/mcp?k=s3cr3t".to_owned();
        let remote = Remote::new(&HttpServer { url, headers: Vec::new(), sse }, 7);
        Self { remote, now: Time::ZERO, serves: Vec::new() }
    }

    /// A legacy session `S1`, open and listened to; the next exchange has this number.
    fn legacy() -> (Self, u64) {
        let mut bench = Self::new(None);
        let initialize = bench.asked(INITIALIZE);
        bench.json(initialize, Some("S1"), INITIALIZE_RESULT);
        let initialized = bench.asked(INITIALIZED);
        let done = bench.reply(initialized, HttpReply { status: 202, ..HttpReply::default() });
        let Done::Ask(listening, Method::Get, ..) = done[0] else { panic!("{done:?}") };
        bench.reply(listening, HttpReply { status: 405, ..HttpReply::default() });
        bench.pass(60_000);
        (bench, listening + 1)
    }

    fn handle(&mut self, input: RemoteInput) -> Vec<Done> {
        let text = |line: Vec<u8>| String::from_utf8(line).expect("text");
        let raw = |id: Id| text(id.raw().to_vec());
        let effects = self.remote.handle(self.now, input).into_iter();
        let done = effects.filter_map(|effect| match effect {
            RemoteEffect::Send { exchange, request: ask } => {
                let headers =
                    ask.headers.into_iter().map(|(name, value)| (name.into_owned(), value));
                let body = text(ask.body);
                Some(Done::Ask(exchange.0, ask.method, ask.url, headers.collect(), body))
            }
            RemoteEffect::Finish(exchange) => Some(Done::Finish(exchange.0)),
            RemoteEffect::Drop(exchange) => Some(Done::Drop(exchange.0)),
            RemoteEffect::Tell { line, about } => Some(Done::Tell(text(line), about.map(raw))),
            RemoteEffect::Serves(how) => {
                self.serves.push(how);
                None
            }
            RemoteEffect::Log(line) => {
                assert!(!line.contains("s3cr3t"), "{line}");
                None
            }
        });
        done.collect()
    }

    fn line(&mut self, line: &str) -> Vec<Done> {
        self.handle(RemoteInput::Line(line.as_bytes().to_vec()))
    }

    /// The exchange that a line begins.
    fn asked(&mut self, line: &str) -> u64 {
        let done = self.line(line);
        let [Done::Ask(exchange, Method::Post, _, _, body)] = &done[..] else { panic!("{done:?}") };
        assert_eq!(body, line);
        *exchange
    }

    fn reply(&mut self, exchange: u64, reply: HttpReply) -> Vec<Done> {
        self.handle(RemoteInput::Replied { exchange: ExchangeId(exchange), reply })
    }

    fn status(&mut self, exchange: u64, status: u16) -> Vec<Done> {
        self.reply(exchange, HttpReply { status, ..HttpReply::default() })
    }

    fn json(&mut self, exchange: u64, session: Option<&str>, body: &str) -> Vec<Done> {
        let session = session.map(str::to_owned);
        let body = body.as_bytes().to_vec();
        self.reply(exchange, HttpReply { status: 200, session, body, ..HttpReply::default() })
    }

    fn opened(&mut self, exchange: u64) -> Vec<Done> {
        self.handle(RemoteInput::Opened { exchange: ExchangeId(exchange), session: None })
    }

    fn event(&mut self, exchange: u64, id: Option<&str>, data: &str) -> Vec<Done> {
        let (id, data) = (id.map(str::to_owned), data.as_bytes().to_vec());
        let event = SseEvent { id, data, ..SseEvent::default() };
        self.handle(RemoteInput::Event { exchange: ExchangeId(exchange), event })
    }

    fn ended(&mut self, exchange: u64) -> Vec<Done> {
        self.handle(RemoteInput::Ended { exchange: ExchangeId(exchange) })
    }

    fn failed(&mut self, exchange: u64, was_sent: bool) -> Vec<Done> {
        let (exchange, why) = (ExchangeId(exchange), "cannot connect".to_owned());
        self.handle(RemoteInput::Failed { exchange, was_sent, why })
    }

    fn pass(&mut self, millis: u64) -> Vec<Done> {
        self.now = self.now + Duration::from_millis(millis);
        self.handle(RemoteInput::Wakeup)
    }

    /// Opens the session anew, from the `initialize` that was just sent; returns what follows.
    fn reopen(&mut self, exchange: u64, body: &str, session: &str) -> Vec<Done> {
        assert!(body.contains(r#""method":"initialize""#), "{body}");
        let id = member(body, &["id"]);
        let result = INITIALIZE_RESULT.replace(r#""i""#, &id);
        let done = self.json(exchange, Some(session), &result);
        let [Done::Ask(exchange, Method::Post, _, _, body)] = &done[..] else { panic!("{done:?}") };
        assert_eq!(body, INITIALIZED);
        self.status(*exchange, 202)
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"x":1.50}}}"#;
const INITIALIZE_RESULT: &str =
    r#"{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-06-18"}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const MODERN: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;

fn member(line: &str, path: &[&str]) -> String {
    let found = json::get(line.as_bytes(), path).unwrap_or_default();
    String::from_utf8_lossy(found).into_owned()
}

fn request(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{{{params}}}}}"#)
}

fn call(id: &str) -> String {
    request(id, "tools/call", r#""name":"t""#)
}

fn result(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#)
}

fn tell(line: &str, about: &str) -> Done {
    Done::Tell(line.to_owned(), Some(format!("\"{about}\"")))
}

/// The text of the one answer that we gave ourselves.
#[track_caller]
fn only_said(done: &[Done], id: &str) -> String {
    let tells: Vec<&String> = done
        .iter()
        .filter_map(|done| match done {
            Done::Tell(line, Some(about)) if *about == member(line, &["id"]) => {
                about.contains(id).then_some(line)
            }
            _ => None,
        })
        .collect();
    let [line] = tells[..] else { panic!("{done:?}") };
    assert_eq!(member(line, &["id"]), format!("\"{id}\""));
    assert!(!line.contains("s3cr3t"), "{line}");
    line.clone()
}

#[test]
fn a_session_is_opened_and_named_from_then_on() {
    let mut bench = Bench::new(None);
    let done = bench.line(INITIALIZE);
    let url = "http://h:1/s3cr3t/mcp?k=s3cr3t".to_owned();
    let ask = Done::Ask(1, Method::Post, url.clone(), Vec::new(), INITIALIZE.to_owned());
    assert_eq!(done, [ask]);
    assert_eq!(bench.json(1, Some("S1"), INITIALIZE_RESULT), [tell(INITIALIZE_RESULT, "i")]);
    let headers = vec![
        ("mcp-session-id".to_owned(), "S1".to_owned()),
        ("mcp-protocol-version".to_owned(), "2025-06-18".to_owned()),
    ];
    let done = bench.line(INITIALIZED);
    let ask = |number, method, body: &str| {
        Done::Ask(number, method, url.clone(), headers.clone(), body.to_owned())
    };
    assert_eq!(done, [ask(2, Method::Post, INITIALIZED)]);
    // What comes now must not overtake it.
    assert_eq!(bench.line(&call("a")), []);
    let done = bench.status(2, 202);
    assert_eq!(done, [ask(3, Method::Post, &call("a")), ask(4, Method::Get, "")]);
    let farewell = bench.remote.farewell().unwrap();
    assert_eq!((farewell.method, farewell.headers.len()), (Method::Delete, 2));
}

#[test]
fn a_stream_says_what_belongs_to_a_request() {
    let (mut bench, next) = Bench::legacy();
    assert_eq!(bench.asked(&call("a")), next);
    assert_eq!(bench.opened(next), []);
    assert_eq!(bench.event(next, Some("1"), ""), []);
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
    assert_eq!(bench.event(next, None, progress), [tell(progress, "a")]);
    // A request of the server's gets an id that there is only once, and the answer its own.
    let done = bench.event(next, None, &request("7", "sampling/createMessage", ""));
    let [Done::Tell(line, about)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(about.as_deref(), Some(r#""a""#));
    let id = member(line, &["id"]).trim_matches('"').to_owned();
    assert!(id.starts_with("s0:"), "{id}");
    let done = bench.line(&result(&id));
    assert!(matches!(&done[..], [Done::Ask(_, _, _, _, body)] if *body == result("7")), "{done:?}");
    let done = bench.event(next, None, &result("a"));
    assert_eq!(done, [Done::Finish(next), tell(&result("a"), "a")]);
    // Twice, or too late: nobody hears it.
    assert_eq!(bench.event(next, None, &result("a")), []);
    assert_eq!(bench.ended(next), []);
}

#[test]
fn a_forgotten_session_is_opened_anew_and_nobody_sees() {
    // W6
    let (mut bench, next) = Bench::legacy();
    let level = request("l", "logging/setLevel", r#""level":"debug""#);
    assert_eq!(bench.asked(&level), next);
    bench.json(next, None, &result("l"));
    bench.asked(&request("s", "resources/subscribe", r#""uri":"x""#));
    bench.json(next + 1, None, &result("s"));
    bench.asked(&call("a"));
    bench.asked(&call("b"));
    let done = bench.status(next + 2, 404);
    let [Done::Ask(opening, Method::Post, _, headers, body)] = &done[..] else {
        panic!("{done:?}")
    };
    assert_eq!(headers, &[]);
    // The version that was agreed on, and the rest as it was.
    assert_eq!(
        member(body, &["params"]),
        r#"{"protocolVersion":"2025-06-18","capabilities":{"x":1.50}}"#
    );
    assert_eq!(bench.status(next + 3, 404), []);
    let done = bench.reopen(*opening, body, "S2");
    let methods = |done: &[Done]| -> Vec<String> {
        let method = |done: &Done| match done {
            Done::Ask(_, Method::Get, ..) => "GET".to_owned(),
            Done::Ask(.., body) => member(body, &["method"]),
            Done::Tell(line, None) => format!("told {}", member(line, &["method"])),
            other => panic!("{other:?}"),
        };
        done.iter().map(method).collect()
    };
    let expected = [
        r#""logging/setLevel""#,
        r#""resources/subscribe""#,
        r#"told "notifications/tools/list_changed""#,
        r#"told "notifications/resources/list_changed""#,
        r#"told "notifications/prompts/list_changed""#,
        r#"told "notifications/resources/updated""#,
        r#""tools/call""#,
        r#""tools/call""#,
        "GET",
    ];
    assert_eq!(methods(&done), expected);
    let [Done::Ask(restoring, _, _, headers, _), ..] = &done[..] else { panic!("{done:?}") };
    assert_eq!(headers[0].1, "S2");
    // The answers to what we asked are nobody's.
    let Done::Ask(_, _, _, _, body) = &done[0] else { panic!() };
    let own = member(body, &["id"]).trim_matches('"').to_owned();
    assert_eq!(bench.json(*restoring, None, &result(&own)), []);
    let Done::Ask(again, ..) = done[6] else { panic!() };
    let body = member_of(&done[6]);
    let id = member(&body, &["id"]).trim_matches('"').to_owned();
    assert_eq!(bench.json(again, None, &result(&id)), [tell(&result(&id), &id)]);
}

fn member_of(done: &Done) -> String {
    let Done::Ask(.., body) = done else { panic!("{done:?}") };
    body.clone()
}

#[test]
fn what_ran_in_a_forgotten_session_is_answered() {
    let (mut bench, next) = Bench::legacy();
    let tool = bench.asked(&call("a"));
    bench.opened(tool);
    bench.event(tool, Some("e1"), "");
    let asked = bench.event(tool, None, &request("1", "roots/list", ""));
    let [Done::Tell(asked, _)] = &asked[..] else { panic!("{asked:?}") };
    let asked = member(asked, &["id"]).trim_matches('"').to_owned();
    let list = bench.asked(&request("l", "tools/list", ""));
    assert!(tool == next && list > tool);
    let done = bench.status(list, 404);
    let [Done::Tell(cancelled, None), Done::Ask(opening, .., body)] = &done[..] else {
        panic!("{done:?}")
    };
    assert_eq!(member(cancelled, &["params", "requestId"]), format!("\"{asked}\""));
    // An answer to a request of the old session goes nowhere.
    assert_eq!(bench.line(&result(&asked)), []);
    // Its stream cannot be taken up in another session.
    let said = only_said(&bench.failed(tool, true), "a");
    assert!(said.contains("lost the session") && said.contains(r#""isError":true"#), "{said}");
    let done = bench.reopen(*opening, body, "S2");
    assert!(
        done.iter().any(|done| matches!(done, Done::Ask(.., body) if body.contains("tools/list")))
    );
}

#[test]
fn a_broken_stream_is_taken_up_where_it_can_be() {
    let (mut bench, next) = Bench::legacy();
    bench.asked(&call("a"));
    bench.opened(next);
    let event = SseEvent {
        id: Some("e1".to_owned()),
        retry: Some(Duration::from_millis(300)),
        ..SseEvent::default()
    };
    bench.handle(RemoteInput::Event { exchange: ExchangeId(next), event });
    assert_eq!(bench.ended(next), []);
    assert_eq!(bench.remote.next_wakeup(), Some(bench.now + Duration::from_millis(300)));
    let done = bench.pass(300);
    let [Done::Ask(again, Method::Get, _, headers, _)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(headers.last().unwrap(), &("last-event-id".to_owned(), "e1".to_owned()));
    bench.opened(*again);
    let done = bench.event(*again, Some("e2"), &result("a"));
    assert_eq!(done, [Done::Finish(*again), tell(&result("a"), "a")]);
    // One without ids cannot: what is safe is asked again, once.
    let list = request("l", "tools/list", "");
    let first = bench.asked(&list);
    bench.opened(first);
    let done = bench.failed(first, true);
    assert!(matches!(&done[..], [Done::Ask(_, Method::Post, _, _, body)] if *body == list));
    let said = only_said(&bench.failed(first + 1, true), "l");
    assert!(said.contains("connection_broken"), "{said}");
    let tool = bench.asked(&call("b"));
    let said = only_said(&bench.failed(tool, true), "b");
    assert!(said.contains("outcome is unknown") && said.contains("`http://h:1`"), "{said}");
}

#[test]
fn the_modern_era_has_headers_and_no_session() {
    let mut bench = Bench::new(None);
    let line = request("a", "tools/call", &format!(r#""name":"né",{MODERN}"#));
    let done = bench.line(&line);
    let [Done::Ask(1, Method::Post, _, headers, _)] = &done[..] else { panic!("{done:?}") };
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let expected = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?bsOp?="),
    ];
    assert_eq!(headers, expected);
    // An error of its own passes, with whatever status.
    let error = r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32022,"message":"no"}}"#;
    let reply = HttpReply { status: 400, body: error.as_bytes().to_vec(), ..HttpReply::default() };
    assert_eq!(bench.reply(1, reply), [tell(error, "a")]);
    // To cancel is to close.
    bench.line(&line);
    let cancel =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
    assert_eq!(bench.line(cancel), [Done::Drop(2)]);
    assert_eq!(bench.remote.farewell(), None);
}

#[test]
fn who_listens_is_not_told_that_the_stream_broke() {
    let mut bench = Bench::new(None);
    let filter = r#""notifications":{"toolsListChanged":true,"resourceSubscriptions":["u"]}"#;
    let line = request("l", "subscriptions/listen", &format!("{filter},{MODERN}"));
    bench.line(&line);
    bench.opened(1);
    let heard = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}"#;
    assert_eq!(bench.event(1, None, heard), [tell(heard, "l")]);
    bench.pass(10_000);
    let done = bench.failed(1, true);
    assert!(
        matches!(&done[..], [Done::Ask(2, Method::Post, _, _, body)] if *body == line),
        "{done:?}"
    );
    // It stays away for longer than any request waits.
    bench.failed(2, false);
    for exchange in 3..9 {
        bench.pass(60_000);
        assert_eq!(bench.failed(exchange, false), []);
    }
    bench.pass(60_000);
    bench.opened(9);
    let done = bench.event(9, None, heard);
    let methods: Vec<String> = done
        .iter()
        .map(|done| match done {
            Done::Tell(line, Some(about)) if about == r#""l""# => member(line, &["method"]),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected =
        [r#""notifications/tools/list_changed""#, r#""notifications/resources/updated""#];
    assert_eq!(methods, expected);
}

#[test]
fn what_is_cancelled_is_not_answered() {
    let (mut bench, next) = Bench::legacy();
    bench.asked(&call("a"));
    bench.opened(next);
    let cancel =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
    let done = bench.line(cancel);
    assert!(matches!(&done[..], [Done::Drop(_), Done::Ask(_, _, _, _, body)] if body == cancel));
    assert_eq!(bench.event(next, None, &result("a")), []);
    assert_eq!(bench.status(next + 1, 202), []);
    // One that still waits is simply gone.
    let down = bench.asked(&call("b"));
    bench.failed(down, false);
    bench.failed(down + 1, false);
    assert_eq!(bench.line(&cancel.replace(r#""a""#, r#""b""#)), []);
    assert_eq!(bench.pass(60_000), []);
    assert_eq!(bench.remote.next_wakeup(), None);
}
