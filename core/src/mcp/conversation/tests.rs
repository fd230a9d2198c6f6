//! One case for each rule; `core/tests/mcp_sim.rs` has the random histories.

use super::*;
use crate::mcp::{ToolNames, WhichTools, json};

mod health;
mod hostile;
mod tasks;
mod tools;

const PATIENCE: Duration = Duration::from_secs(20);

/// The settings of a server without a name of its own.
fn settings(which: WhichTools) -> Settings {
    let tools = AddedTools { which, names: ToolNames::Bare };
    Settings {
        server: "server".to_owned(),
        patience: PATIENCE,
        tools,
        tell_restarts: true.into(),
        wedge_timeout: None,
    }
}

struct Bench {
    conversation: Conversation,
    now: Time,
}

/// What was done, in a form that can be compared.
#[derive(Debug, PartialEq)]
enum Done {
    Client(String),
    Server(u64, String),
    Other(Effect),
}

impl Bench {
    fn new() -> Self {
        Self { conversation: Conversation::new(&settings(WhichTools::None)), now: Time::ZERO }
    }

    /// A legacy session with instance 1, opened and initialized.
    fn legacy() -> Self {
        let mut bench = Self::new();
        bench.start(1);
        bench.client(INITIALIZE);
        bench.server(1, INITIALIZED_RESULT);
        bench.client(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        bench
    }

    fn handle(&mut self, input: Input) -> Vec<Done> {
        let text = |line: Vec<u8>| String::from_utf8(line).expect("text");
        let effects = self.conversation.handle(self.now, input);
        effects
            .into_iter()
            .map(|effect| match effect {
                Effect::ToClient(line) => Done::Client(text(line)),
                Effect::ToServer { generation, line } => Done::Server(generation.0, text(line)),
                other => Done::Other(other),
            })
            .collect()
    }

    fn client(&mut self, line: &str) -> Vec<Done> {
        self.handle(Input::Client(line.as_bytes().to_vec()))
    }

    fn server(&mut self, generation: u64, line: &str) -> Vec<Done> {
        let line = line.as_bytes().to_vec();
        self.handle(Input::Server { generation: Generation(generation), line })
    }

    fn start(&mut self, generation: u64) -> Vec<Done> {
        self.handle(Input::Started { generation: Generation(generation), pid: 1_000 })
    }

    fn end(&mut self, generation: u64) -> Vec<Done> {
        self.handle(Input::Ended {
            generation: Generation(generation),
            read: None,
            how: String::new(),
            cause: EndCause::ByItself,
        })
    }

    /// Starts an instance and answers its replayed `initialize`.
    fn revive(&mut self, generation: u64) -> Vec<Done> {
        let id = self.opening_id(generation);
        self.server(generation, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#))
    }

    fn opening_id(&mut self, generation: u64) -> String {
        let done = self.start(generation);
        let Some(Done::Server(_, line)) = done.first() else { panic!("{done:?}") };
        String::from_utf8(json::get(line.as_bytes(), &["id"]).expect("an id").to_vec())
            .expect("text")
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"x":1.50},"clientInfo":{"name":"c"}}}"#;
const INITIALIZED_RESULT: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{"listChanged":false,"y":2}},"serverInfo":{"name":"s","v":1.0}}}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":8,"method":"tools/list"}"#;

fn request(id: u32, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn result(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

#[test]
fn bytes_pass_as_they_came() {
    let mut bench = Bench::legacy();
    let odd = r#"{ "id" : 7 , "jsonrpc":"2.0","method":"tools/call","params":{"n":1.50,"n2":1e3,"é":"\u00e9"}, "extra":[ ] }"#;
    assert_eq!(bench.client(odd), [Done::Server(1, odd.to_owned())]);
    let answer = r#"{"result":{"big":12345678901234567890123},"id":7,"jsonrpc":"2.0"}"#;
    assert_eq!(bench.server(1, answer), [Done::Client(answer.to_owned())]);
}

#[test]
fn the_answer_to_initialize_says_that_lists_may_change() {
    let mut bench = Bench::new();
    bench.start(1);
    bench.client(INITIALIZE);
    let expected = INITIALIZED_RESULT
        .replace(r#""tools":{}"#, r#""tools":{"listChanged":true}"#)
        .replace(r#""listChanged":false"#, r#""listChanged":true"#);
    assert_eq!(bench.server(1, INITIALIZED_RESULT), [Done::Client(expected)]);
}

#[test]
fn a_new_instance_is_told_what_the_old_one_knew() {
    // W6
    let mut bench = Bench::legacy();
    bench.client(&request(1, "logging/setLevel", r#"{"level":"debug"}"#));
    bench.server(1, &result(1));
    for (id, uri) in [(2, "a"), (3, "b")] {
        bench.client(&request(id, "resources/subscribe", &format!(r#"{{"uri":"{uri}"}}"#)));
        bench.server(1, &result(id));
    }
    bench.client(&request(4, "resources/unsubscribe", r#"{"uri":"a"}"#));
    bench.server(1, &result(4));
    bench.end(1);
    // First of all the client's own `initialize`, with the version that was agreed on.
    let done = bench.start(2);
    let [Done::Server(2, opening)] = &done[..] else { panic!("{done:?}") };
    assert!(opening.contains(r#""method":"initialize""#), "{opening}");
    assert!(opening.ends_with(r#""params":{"protocolVersion":"2025-06-18","capabilities":{"x":1.50},"clientInfo":{"name":"c"}}}"#), "{opening}");
    let id =
        json::get(opening.as_bytes(), &["id"]).map(|id| String::from_utf8_lossy(id).into_owned());
    let done = bench.server(2, &format!(r#"{{"id":{},"result":{{}}}}"#, id.expect("an id")));
    let told: Vec<&str> = done
        .iter()
        .map(|done| match done {
            Done::Server(2, line) | Done::Client(line) => line
                .split(r#""method":""#)
                .nth(1)
                .and_then(|rest| rest.split('"').next())
                .unwrap_or(""),
            _ => "serving",
        })
        .collect();
    assert_eq!(
        told,
        [
            "notifications/initialized",
            "logging/setLevel",
            "resources/subscribe",
            "serving",
            "notifications/resources/updated"
        ]
    );
}

#[test]
fn what_waited_follows_the_replay_in_order() {
    let mut bench = Bench::legacy();
    bench.end(1);
    assert_eq!(bench.client(LIST), []);
    assert_eq!(bench.client(CALL), []);
    let done = bench.revive(2);
    let sent: Vec<&Done> =
        done.iter().filter(|done| matches!(done, Done::Server(..))).skip(1).collect();
    assert_eq!(sent, [&Done::Server(2, LIST.to_owned()), &Done::Server(2, CALL.to_owned())]);
}

#[test]
fn a_call_in_flight_gets_a_result_that_a_model_can_act_on() {
    // G5 R7
    let mut bench = Bench::legacy();
    bench.client(CALL);
    let done = bench.end(1);
    let [Done::Client(line)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(json::get(line.as_bytes(), &["id"]), Some(&b"7"[..]));
    assert_eq!(json::get(line.as_bytes(), &["result", "isError"]), Some(&b"true"[..]));
    assert_eq!(json::get(line.as_bytes(), &["result", "resultType"]), None);
    assert!(line.contains("call it again if that is safe"), "{line}");
    // And nothing more, ever.
    bench.revive(2);
    assert_eq!(bench.server(2, &result(7)), []);
}

#[test]
fn what_changes_nothing_is_sent_again_once() {
    let mut bench = Bench::legacy();
    bench.client(LIST);
    assert_eq!(bench.end(1), []);
    assert!(bench.revive(2).contains(&Done::Server(2, LIST.to_owned())));
    let done = bench.end(2);
    let [Done::Client(line)] = &done[..] else { panic!("{done:?}") };
    assert!(line.contains(r#""error":{"code":-32603"#), "{line}");
}

#[test]
fn an_initialize_that_nobody_answered_is_sent_again_as_it_was() {
    let mut bench = Bench::new();
    bench.start(1);
    bench.client(INITIALIZE);
    for generation in 2..5 {
        bench.end(generation - 1);
        assert!(bench.start(generation).contains(&Done::Server(generation, INITIALIZE.to_owned())));
    }
}

#[test]
fn requests_of_the_server_carry_its_generation_and_answers_find_only_it() {
    let mut bench = Bench::legacy();
    let ask = r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#;
    let done = bench.server(1, ask);
    let [Done::Client(line)] = &done[..] else { panic!("{done:?}") };
    let id = json::get(line.as_bytes(), &["id"]).and_then(json::text).expect("a text");
    assert!(id.starts_with("s1:"), "{id}");
    let answer = format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{"roots":[]}}}}"#);
    assert_eq!(bench.client(&answer), [Done::Server(1, answer.replace(&format!("\"{id}\""), "0"))]);

    let done = bench.server(1, ask);
    let [Done::Client(line)] = &done[..] else { panic!("{done:?}") };
    let id = json::get(line.as_bytes(), &["id"]).and_then(json::text).expect("a text");
    // The instance goes: the client is told, and its late answer reaches nobody.
    let done = bench.end(1);
    let [Done::Client(line)] = &done[..] else { panic!("{done:?}") };
    assert!(line.contains("notifications/cancelled") && line.contains(&id), "{line}");
    bench.revive(2);
    assert_eq!(bench.client(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#)), []);
}

#[test]
fn a_swap_moves_the_session_and_lets_the_old_one_finish() {
    let mut bench = Bench::legacy();
    bench.client(CALL);
    let id = bench.opening_id(2);
    // The old one still serves.
    assert_eq!(bench.client(LIST), [Done::Server(1, LIST.to_owned())]);
    let done = bench.server(2, &format!(r#"{{"id":{id},"result":{{}}}}"#));
    assert!(done.contains(&Done::Other(Effect::Serving(Generation(2)))), "{done:?}");
    let next = request(9, "tools/list", "{}");
    assert_eq!(bench.client(&next), [Done::Server(2, next.clone())]);
    assert_eq!(bench.server(1, &result(8)), [Done::Client(result(8))]);
    assert_eq!(
        bench.server(1, &result(7)),
        [Done::Client(result(7)), Done::Other(Effect::Drained(Generation(1)))]
    );
    assert_eq!(bench.end(1), []);
}

#[test]
fn a_build_that_does_not_take_the_session_leaves_the_old_one_serving() {
    let mut bench = Bench::legacy();
    let id = bench.opening_id(2);
    let done = bench.server(2, &format!(r#"{{"id":{id},"error":{{"code":1,"message":"no"}}}}"#));
    let why = "no".to_owned();
    assert_eq!(done, [Done::Other(Effect::HandshakeFailed { generation: Generation(2), why })]);
    assert_eq!(bench.end(2), []);
    assert_eq!(bench.client(LIST), [Done::Server(1, LIST.to_owned())]);
}

#[test]
fn a_server_on_its_way_out_is_not_believed() {
    let mut bench = Bench::legacy();
    bench.client(LIST);
    bench.handle(Input::Leaving(Generation(1)));
    let lie = r#"{"jsonrpc":"2.0","id":8,"error":{"code":-32000,"message":"Connection closed"}}"#;
    assert_eq!(bench.server(1, lie), []);
    assert_eq!(bench.end(1), []);
    assert!(bench.revive(2).contains(&Done::Server(2, LIST.to_owned())));
}

#[test]
fn one_that_is_on_its_way_out_does_not_get_the_session_any_more() {
    let mut bench = Bench::legacy();
    let id = bench.opening_id(2);
    bench.handle(Input::Leaving(Generation(2)));
    assert_eq!(bench.server(2, &format!(r#"{{"id":{id},"result":{{}}}}"#)), []);
    assert_eq!(bench.client(LIST), [Done::Server(1, LIST.to_owned())]);
}

#[test]
fn nobody_waits_for_ever() {
    let mut bench = Bench::legacy();
    bench.end(1);
    bench.client(LIST);
    assert_eq!(bench.conversation.next_wakeup(), Some(bench.now + PATIENCE));
    bench.now = bench.now + PATIENCE;
    let done = bench.handle(Input::Wakeup);
    let [Done::Client(line)] = &done[..] else { panic!("{done:?}") };
    assert!(line.contains("the server is not running"), "{line}");
    // For good: at once, with what is known; and somebody is told that it is missed.
    bench.handle(Input::Down("gave up after 5 restarts".to_owned()));
    let done = bench.client(CALL);
    let [Done::Other(Effect::Wanted), Done::Client(line)] = &done[..] else { panic!("{done:?}") };
    assert!(line.contains("gave up after 5 restarts"), "{line}");
}

#[test]
fn the_queue_has_an_end() {
    let mut bench = Bench::legacy();
    bench.end(1);
    for id in 0..1_000 {
        assert_eq!(bench.client(&request(id + 10, "tools/list", "{}")), []);
    }
    let done = bench.client(CALL);
    assert!(matches!(&done[..], [Done::Client(line)] if line.contains("too many")), "{done:?}");
}

#[test]
fn a_ping_is_answered_while_nobody_serves() {
    let mut bench = Bench::legacy();
    bench.end(1);
    let done = bench.client(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#);
    assert_eq!(done, [Done::Client(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#.to_owned())]);
}

#[test]
fn cancelled_requests_get_no_answer_invented() {
    let mut bench = Bench::legacy();
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    bench.client(CALL);
    assert_eq!(bench.client(cancel), [Done::Server(1, cancel.to_owned())]);
    assert_eq!(bench.end(1), []);
    // One that waits is simply forgotten, and the new instance never hears of either.
    bench.client(&CALL.replace('7', "9"));
    assert_eq!(bench.client(&cancel.replace('7', "9")), []);
    let done = bench.revive(2);
    assert!(
        !done.iter().any(|d| matches!(d, Done::Server(_, l) if l.contains("tools/call"))),
        "{done:?}"
    );
    assert_eq!(bench.conversation.owed(), 0);
}

#[test]
fn a_probe_that_kills_an_old_server_is_answered_for_it() {
    let mut bench = Bench::new();
    bench.start(1);
    let probe = r#"{"jsonrpc":"2.0","id":"p","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    bench.client(probe);
    let done = bench.end(1);
    let [Done::Client(line), Done::Other(Effect::DiedOfProbe(_))] = &done[..] else {
        panic!("{done:?}")
    };
    assert!(line.contains("-32601"), "{line}");
    // The client falls back, and the next instance hears nothing but that.
    let done = bench.start(2);
    assert_eq!(done, [Done::Other(Effect::Serving(Generation(2)))]);
    assert_eq!(bench.client(INITIALIZE), [Done::Server(2, INITIALIZE.to_owned())]);
}

#[test]
fn a_server_that_took_the_probe_for_a_choice_is_replaced_before_initialize() {
    let mut bench = Bench::new();
    bench.start(1);
    let probe = r#"{"jsonrpc":"2.0","id":"p","method":"server/discover"}"#;
    bench.client(probe);
    bench.server(1, r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
    let done = bench.client(INITIALIZE);
    assert_eq!(done, [Done::Other(Effect::Replace(Generation(1)))]);
    bench.end(1);
    assert!(bench.start(2).contains(&Done::Server(2, INITIALIZE.to_owned())));
}

const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","k":1}"#;

#[test]
fn the_modern_era_is_reopened_with_the_clients_meta_and_listens_go_on() {
    let mut bench = Bench::new();
    bench.start(1);
    let listen = request(1, "subscriptions/listen", &format!(r#"{{"_meta":{META}}}"#));
    bench.client(&listen);
    let acknowledged = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#;
    assert_eq!(bench.server(1, acknowledged), [Done::Client(acknowledged.to_owned())]);
    for generation in 2..5 {
        bench.end(generation - 1);
        let done = bench.start(generation);
        let [Done::Server(_, opening)] = &done[..] else { panic!("{done:?}") };
        assert!(opening.contains("server/discover") && opening.contains(META), "{opening}");
        let id = json::get(opening.as_bytes(), &["id"])
            .map(|id| String::from_utf8_lossy(id).into_owned());
        let done =
            bench.server(generation, &format!(r#"{{"id":{},"result":{{}}}}"#, id.expect("an id")));
        assert!(done.contains(&Done::Server(generation, listen.clone())), "{done:?}");
        // The client has it already.
        assert_eq!(bench.server(generation, acknowledged), []);
    }
}

#[test]
fn answers_of_ours_in_the_modern_era_say_that_they_are_complete() {
    let mut bench = Bench::new();
    bench.start(1);
    bench.client(&request(7, "tools/call", &format!(r#"{{"name":"t","_meta":{META}}}"#)));
    let done = bench.end(1);
    assert!(
        matches!(&done[..], [Done::Client(l)] if l.contains(r#""resultType":"complete""#)),
        "{done:?}"
    );
}

#[test]
fn junk_goes_to_neither_side() {
    let mut bench = Bench::legacy();
    for junk in ["Starting server…", "{", "{}", "[1", "null"] {
        let done = bench.server(1, junk);
        assert!(matches!(&done[..], [Done::Other(Effect::Divert { .. })]), "{junk}: {done:?}");
        let done = bench.client(junk);
        assert!(matches!(&done[..], [Done::Other(Effect::Divert { .. })]), "{junk}: {done:?}");
    }
}

#[test]
fn answers_that_nobody_asked_for_are_dropped() {
    let mut bench = Bench::legacy();
    bench.client(LIST);
    assert_eq!(bench.server(1, &result(8)), [Done::Client(result(8))]);
    assert_eq!(bench.server(1, &result(8)), [], "twice");
    assert_eq!(bench.server(1, &result(99)), [], "never asked");
    assert_eq!(bench.server(5, &result(8)), [], "no such instance");
}

#[test]
fn an_id_that_is_in_use_is_not_taken_twice() {
    let mut bench = Bench::legacy();
    bench.client(LIST);
    let done = bench.client(LIST);
    assert!(
        matches!(&done[..], [Done::Other(Effect::Divert { generation: None, .. })]),
        "{done:?}"
    );
    assert_eq!(bench.server(1, &result(8)), [Done::Client(result(8))]);
}

#[test]
fn progress_is_passed_on_only_for_what_runs() {
    let mut bench = Bench::legacy();
    bench.client(&request(7, "tools/call", r#"{"_meta":{"progressToken":"p"}}"#));
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#;
    assert_eq!(bench.server(1, progress), [Done::Client(progress.to_owned())]);
    bench.server(1, &result(7));
    assert_eq!(bench.server(1, progress), []);
}

#[test]
fn a_batch_is_taken_apart() {
    let mut bench = Bench::legacy();
    let batch = format!("[{LIST},{CALL}]");
    assert_eq!(
        bench.client(&batch),
        [Done::Server(1, LIST.to_owned()), Done::Server(1, CALL.to_owned())]
    );
    let answers = format!("[{},{}]", result(7), result(8));
    assert_eq!(bench.server(1, &answers), [Done::Client(result(7)), Done::Client(result(8))]);
}

#[test]
fn an_answer_that_is_too_long_is_an_error_that_names_the_limit() {
    let mut bench = Bench::legacy();
    bench.client(CALL);
    let beginning = br#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"text":"xxx"#.to_vec();
    let done = bench.handle(Input::ServerTooLong { generation: Generation(1), beginning });
    assert!(matches!(&done[..], [Done::Client(line)] if line.contains("67108864")), "{done:?}");
    assert_eq!(bench.conversation.owed(), 0);
}
