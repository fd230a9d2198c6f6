//! The shim against hubs that a test plays.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}"#;

struct Bench {
    shim: Shim,
    now: Time,
}

/// What was done, in a form that can be compared.
#[derive(Debug, PartialEq)]
enum Done {
    Client(Value),
    Hub(Value),
    Frame(ShimFrame),
    Other(Effect),
}

fn line(text: &str) -> Frame {
    Frame::Line(text.as_bytes().to_vec())
}

impl Bench {
    fn new() -> Self {
        let session = SessionRequest { name: "docs".to_owned(), ..SessionRequest::default() };
        let mut bench = Self { shim: Shim::new(session, "0.2.0", 7), now: Time::ZERO };
        assert_eq!(bench.input(Input::Started), [Done::Other(Effect::Connect)]);
        bench
    }

    fn input(&mut self, input: Input) -> Vec<Done> {
        let json = |line: &[u8]| serde_json::from_slice(line).expect("JSON");
        let done = |effect| match effect {
            Effect::ToClient(line) => Done::Client(json(&line)),
            Effect::ToHub(line) if is_frame(&line) => Done::Frame(frame_of(&line).expect("known")),
            Effect::ToHub(line) => Done::Hub(json(&line)),
            other => Done::Other(other),
        };
        self.shim.handle(self.now, input).into_iter().map(done).collect()
    }

    fn client(&mut self, text: &str) -> Vec<Done> {
        self.input(Input::Client(line(text)))
    }

    fn hub(&mut self, frame: &HubFrame) -> Vec<Done> {
        self.input(Input::Hub(Frame::Line(line_of(frame))))
    }

    fn wait(&mut self, time: Duration) -> Vec<Done> {
        self.now = self.now + time;
        self.input(Input::Wakeup)
    }

    /// Attached to a hub of this version.
    fn attach(&mut self, version: &str) -> Vec<Done> {
        let hello = self.input(Input::Connected);
        assert!(matches!(&hello[..], [Done::Frame(ShimFrame::Hello(_))]), "{hello:?}");
        let (protocol, tells_restarts) = (PROTOCOL, true);
        let version = version.to_owned();
        self.hub(&HubFrame::Welcome { protocol, version, pid: 1, tells_restarts })
    }

    /// With a session that is open, and a call in flight.
    fn calling() -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.attach("0.2.0"), []);
        assert_eq!(bench.client(INITIALIZE).len(), 1);
        let result = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
        assert_eq!(bench.input(Input::Hub(line(result))).len(), 1);
        let told = bench.client(INITIALIZED);
        assert_eq!(told[0], Done::Frame(ShimFrame::Roots(Roots::Unsupported)));
        assert_eq!(bench.client(CALL), [Done::Hub(serde_json::from_str(CALL).expect("JSON"))]);
        bench
    }
}

#[test]
fn a_call_that_a_dead_hub_may_have_begun_is_answered_once_and_the_session_replayed() {
    let mut bench = Bench::calling();
    let done = bench.input(Input::HubGone);
    assert_eq!(done[0], Done::Other(Effect::Connect));
    let [_, Done::Client(answer)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(answer["id"], 2);
    assert!(
        answer["result"]["content"][0]["text"]
            .as_str()
            .is_some_and(|text| text.contains("unknown"))
    );
    let done = bench.attach("0.2.0");
    let [Done::Hub(replay)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(replay["method"], "initialize");
    // A late answer of the hub before is for nobody.
    let late = bench.input(Input::Hub(line(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#)));
    assert_eq!(late, []);
}

#[test]
fn what_a_leaving_hub_has_not_looked_at_goes_to_the_next_one() {
    let mut bench = Bench::calling();
    // `initialize` and `initialized`, and not the call.
    assert_eq!(bench.hub(&HubFrame::Leaving { read: 2, keeps_state: false }), []);
    assert_eq!(bench.input(Input::HubGone), [Done::Other(Effect::Connect)]);
    let done = bench.attach("0.2.0");
    let [Done::Hub(replay)] = &done[..] else { panic!("{done:?}") };
    let id = &replay["id"];
    let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let opened = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    let done = bench.input(Input::Hub(line(&opened)));
    let call: Value = serde_json::from_str(CALL).expect("JSON");
    assert!(done.contains(&Done::Hub(call)), "{done:?}");
}

#[test]
fn without_a_hub_at_first_the_server_runs_unshared_and_later_requests_are_answered() {
    let mut bench = Bench::new();
    assert_eq!(bench.input(Input::NotConnected("no".to_owned())), []);
    assert_eq!(bench.wait(SHARE_LOOK_INTERVAL), [Done::Other(Effect::Connect)]);
    bench.now = bench.now + SHARE_HUB_WAIT;
    let done = bench.input(Input::NotConnected("no".to_owned()));
    assert_eq!(done, [Done::Other(Effect::Unshared("no".to_owned()))]);

    let mut bench = Bench::calling();
    bench.input(Input::HubGone);
    bench.client(&CALL.replace("\"id\":2", "\"id\":3"));
    bench.now = bench.now + SHARE_HUB_WAIT;
    let done = bench.input(Input::NotConnected("no".to_owned()));
    assert!(
        matches!(&done[..], [Done::Other(Effect::Log(_)), Done::Client(answer)] if answer["id"] == 3),
        "{done:?}"
    );
    // The next request looks again at once.
    let done = bench.client(&CALL.replace("\"id\":2", "\"id\":4"));
    assert!(done.contains(&Done::Other(Effect::Connect)), "{done:?}");
}

#[test]
fn a_hub_that_was_stopped_is_left() {
    let mut bench = Bench::new();
    bench.input(Input::Connected);
    // It accepts connections, and never answers.
    assert_eq!(bench.wait(SHARE_HELLO_WAIT), [Done::Other(Effect::Disconnect)]);
    bench.input(Input::Connected);
    bench.wait(SHARE_LOOK_INTERVAL);
    bench.input(Input::Connected);
    let done = bench.wait(SHARE_HELLO_WAIT);
    assert!(matches!(&done[..], [_, Done::Other(Effect::Unshared(_))]), "{done:?}");

    let mut bench = Bench::calling();
    assert_eq!(bench.wait(SHARE_SILENCE_MAX), [Done::Frame(ShimFrame::Ping)]);
    assert_eq!(bench.hub(&HubFrame::Pong), []);
    assert_eq!(bench.wait(SHARE_SILENCE_MAX), [Done::Frame(ShimFrame::Ping)]);
    let done = bench.wait(SHARE_SILENCE_MAX);
    assert_eq!(done[0], Done::Other(Effect::Disconnect));
    assert!(matches!(&done[..], [.., Done::Client(answer)] if answer["id"] == 2), "{done:?}");
}

#[test]
fn a_newer_shim_steps_back_by_one_version_and_runs_unshared_beyond() {
    let refused = |protocol| HubFrame::Refused { protocol, why: "no".to_owned() };
    let mut bench = Bench::new();
    bench.input(Input::Connected);
    let done = bench.hub(&refused(PROTOCOL_BEFORE));
    assert_eq!(done, [Done::Other(Effect::Disconnect), Done::Other(Effect::Connect)]);
    let done = bench.input(Input::Connected);
    let [Done::Frame(ShimFrame::Hello(hello))] = &done[..] else { panic!("{done:?}") };
    assert_eq!(hello.protocol, PROTOCOL_BEFORE);

    let mut bench = Bench::new();
    bench.input(Input::Connected);
    let done = bench.hub(&refused(PROTOCOL + 1));
    let unshared = Done::Other(Effect::Unshared("no".to_owned()));
    assert_eq!(done, [Done::Other(Effect::Disconnect), unshared]);
}

#[test]
fn an_older_hub_is_asked_once_to_hand_over() {
    let mut bench = Bench::new();
    assert_eq!(bench.attach("0.1.9"), [Done::Frame(ShimFrame::HandOver)]);
    bench.input(Input::HubGone);
    assert_eq!(bench.attach("0.1.9"), []);
    for hubs in ["0.2.0", "0.10.0", "none"] {
        assert_eq!(Bench::new().attach(hubs), [], "{hubs}");
    }
}

#[test]
fn roots_are_told_before_the_session_goes_on() {
    let mut bench = Bench::new();
    bench.attach("0.2.0");
    bench.client(&INITIALIZE.replace("\"capabilities\":{}", "\"capabilities\":{\"roots\":{}}"));
    let done = bench.client(INITIALIZED);
    let [Done::Client(question)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(question["method"], "roots/list");
    assert_eq!(bench.client(CALL), []);
    let roots = json!({"roots": [{"uri": "file:///b"}, {"uri": "file:///a"}]});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": roots}).to_string();
    let done = bench.client(&answer);
    let uris = vec!["file:///a".to_owned(), "file:///b".to_owned()];
    assert_eq!(done[0], Done::Frame(ShimFrame::Roots(Roots::Uris(uris))));
    assert_eq!(done.len(), 3, "{done:?}");
    // A client that does not answer has none.
    bench.client(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    let done = bench.wait(SHARE_ROOTS_WAIT);
    assert!(done.contains(&Done::Frame(ShimFrame::Roots(Roots::Unsupported))), "{done:?}");
}

#[test]
fn a_client_that_goes_gets_the_answers_that_are_owed_for_a_while() {
    let mut bench = Bench::calling();
    assert_eq!(bench.input(Input::ClientGone), []);
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#;
    let done = bench.input(Input::Hub(line(answer)));
    assert_eq!(done.last(), Some(&Done::Other(Effect::End)));
    let mut bench = Bench::calling();
    bench.input(Input::ClientGone);
    assert_eq!(bench.wait(CLIENT_GONE_WITHIN).last(), Some(&Done::Other(Effect::End)));
}

#[test]
fn lost_state_is_told_to_each_client() {
    let mut bench = Bench::calling();
    bench.hub(&HubFrame::StateLost { how: "was killed".to_owned() });
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#;
    let done = bench.input(Input::Hub(line(answer)));
    let [Done::Client(answer)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(answer["result"]["_meta"]["afresh/restarted"]["how"], "was killed");
}
