//! Each bound, where it is reached.

use super::*;
use crate::limits::{
    GUESS_WAIT, HEADER_VALUE_BYTES_MAX, NOTICE_WAIT, RECONNECT_DELAY, RECONNECT_DELAY_MAX,
    RECONNECT_JITTER, REPLY_EXCERPT_CHARS_MAX, RESUMES_MAX, RETRY_AFTER_MAX, STREAM_RETRY_MAX,
    STREAM_STABLE,
};
use crate::sse::SseParser;

const A_MOMENT: Duration = Duration::from_millis(1);

impl Bench {
    /// A link over which somebody listens, who waits as long as it takes; the exchange is the next to fail.
    fn listening(seed: u64) -> (Self, u64) {
        let mut bench = Self::new(None);
        let url = "http://h:1/s3cr3t/mcp?k=s3cr3t".to_owned();
        bench.remote = Remote::new(&HttpServer { url, headers: Vec::new(), sse: None }, seed);
        let filter = r#""notifications":{"toolsListChanged":true}"#;
        bench.line(&request("l", "subscriptions/listen", &format!("{filter},{MODERN}")));
        bench.opened(1);
        let heard = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}"#;
        bench.event(1, None, heard);
        bench.later(STREAM_STABLE);
        let done = bench.failed(1, true);
        assert!(matches!(done[..], [Done::Ask(2, ..)]), "{done:?}");
        (bench, 2)
    }

    fn later(&mut self, time: Duration) -> Vec<Done> {
        self.now = self.now + time;
        self.handle(RemoteInput::Wakeup)
    }

    /// Waits until the link does something, and says how long that is.
    fn waited(&mut self) -> (Duration, Vec<Done>) {
        let begun = self.now;
        loop {
            let at = self.remote.next_wakeup().expect("it wants to be woken");
            let wait = at.since(self.now);
            assert_eq!(self.later(wait.saturating_sub(A_MOMENT)), []);
            let done = self.later(wait.min(A_MOMENT));
            if !done.is_empty() {
                return (self.now.since(begun), done);
            }
        }
    }
}

#[test]
fn waits_double_with_some_chance_up_to_a_most() {
    let waits = |seed: u64| -> Vec<Duration> {
        let (mut bench, mut exchange) = Bench::listening(seed);
        // The first time it is tried at once.
        let done = bench.failed(exchange, false);
        assert!(matches!(done[..], [Done::Ask(3, ..)]), "{done:?}");
        let mut waits = Vec::new();
        for _ in 0..10 {
            exchange += 1;
            assert_eq!(bench.failed(exchange, false), []);
            let (wait, done) = bench.waited();
            assert!(matches!(done[..], [Done::Ask(..)]), "{done:?}");
            waits.push(wait);
        }
        waits
    };
    let (one, other) = (waits(1), waits(2));
    let mut least = RECONNECT_DELAY;
    for wait in &one {
        let most = least.mul_f64(1.0 + RECONNECT_JITTER).min(RECONNECT_DELAY_MAX);
        assert!((least..=most).contains(wait), "{one:?}");
        least = (least * 2).min(RECONNECT_DELAY_MAX);
    }
    assert_eq!(one.last(), Some(&RECONNECT_DELAY_MAX));
    assert_ne!(one, other, "links must not come back in one moment");
}

#[test]
fn who_asks_meanwhile_waits_for_the_next_try_no_longer_than_for_the_first() {
    let (mut bench, mut exchange) = Bench::listening(1);
    bench.failed(exchange, false);
    for _ in 0..6 {
        exchange += 1;
        bench.failed(exchange, false);
        bench.waited();
    }
    bench.failed(exchange + 1, false);
    assert!(bench.remote.next_wakeup() > Some(bench.now + RECONNECT_DELAY * 10));
    bench.line(&request("a", "tools/call", &format!(r#""name":"t",{MODERN}"#)));
    assert_eq!(bench.waited().0, RECONNECT_DELAY);
}

#[test]
fn a_server_is_not_left_alone_for_longer_than_anybody_would() {
    for seconds in [1_000_000, u64::MAX] {
        let (mut bench, exchange) = Bench::listening(1);
        let retry_after = Some(Duration::from_secs(seconds));
        bench.reply(exchange, HttpReply { status: 503, retry_after, ..HttpReply::default() });
        assert_eq!(bench.waited().0, RETRY_AFTER_MAX);
        // Also where it is the stream for what belongs to no request.
        let mut bench = Bench::new(None);
        let initialize = bench.asked(INITIALIZE);
        bench.json(initialize, Some("S1"), INITIALIZE_RESULT);
        let initialized = bench.asked(INITIALIZED);
        let done = bench.status(initialized, 202);
        let [Done::Ask(listening, Method::Get, ..)] = done[..] else { panic!("{done:?}") };
        bench.reply(listening, HttpReply { status: 503, retry_after, ..HttpReply::default() });
        assert_eq!(bench.waited().0, RETRY_AFTER_MAX);
    }
}

#[test]
fn a_stream_that_has_lasted_is_opened_again_at_once() {
    let (mut bench, mut next) = Bench::legacy();
    // The server offers a stream after all: it has another session.
    bench.asked(&call("a"));
    let done = bench.status(next, 404);
    let [Done::Ask(opening, .., body)] = &done[..] else { panic!("{done:?}") };
    let done = bench.reopen(*opening, body, "S2");
    let Some(Done::Ask(listening, Method::Get, ..)) = done.last() else { panic!("{done:?}") };
    next = *listening;
    for (lasts, is_fine) in [
        (STREAM_STABLE, true),
        (STREAM_STABLE - A_MOMENT, false),
        (Duration::ZERO, false),
        (STREAM_STABLE, true),
    ] {
        bench.opened(next);
        bench.later(lasts);
        let done = bench.ended(next);
        let (wait, done) = match done.is_empty() {
            true => bench.waited(),
            false => (Duration::ZERO, done),
        };
        assert_eq!(wait.is_zero(), is_fine, "{lasts:?}: {wait:?}");
        let [Done::Ask(again, Method::Get, ..)] = done[..] else { panic!("{done:?}") };
        next = again;
    }
}

#[test]
fn a_server_says_how_long_to_wait_for_its_stream_up_to_a_bound() {
    let events = SseParser::new(1_000).push(b"retry: 999999999999\ndata: x\n\n");
    assert_eq!(events[0].retry, Some(STREAM_RETRY_MAX));
}

#[test]
fn a_guess_takes_so_long() {
    let mut bench = Bench::new(None);
    let first = bench.asked(INITIALIZE);
    bench.status(first, 404);
    assert_eq!(bench.later(GUESS_WAIT - A_MOMENT), []);
    assert!(only_said(&bench.later(A_MOMENT), "i").contains("status 404"));
}

#[test]
fn a_notification_that_is_not_accepted_is_let_go() {
    let (mut bench, next) = Bench::legacy();
    let note = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    assert_eq!(bench.asked(note), next);
    assert_eq!(bench.later(NOTICE_WAIT - A_MOMENT), []);
    assert_eq!(bench.later(A_MOMENT), [Done::Drop(next)]);
    // So is the one that ends the handshake: what comes after it does not wait for ever.
    let mut bench = Bench::new(None);
    let initialize = bench.asked(INITIALIZE);
    bench.json(initialize, Some("S1"), INITIALIZE_RESULT);
    let initialized = bench.asked(INITIALIZED);
    assert_eq!(bench.later(NOTICE_WAIT - A_MOMENT), []);
    assert_eq!(bench.line(&call("a")), []);
    let done = bench.later(A_MOMENT);
    assert_eq!(done[0], Done::Drop(initialized));
    assert!(matches!(&done[1], Done::Ask(.., body) if *body == call("a")), "{done:?}");
}

#[test]
fn a_stream_is_taken_up_so_often_in_vain() {
    let (mut bench, next) = Bench::legacy();
    bench.asked(&call("a"));
    bench.opened(next);
    bench.event(next, Some("e1"), "");
    let mut done = bench.ended(next);
    let mut tries = 0;
    let said = loop {
        if done.is_empty() {
            done = bench.waited().1;
        }
        let [Done::Ask(again, Method::Get, ..)] = done[..] else { break only_said(&done, "a") };
        tries += 1;
        done = bench.failed(again, false);
    };
    assert!(said.contains("outcome is unknown"), "{said}");
    assert_eq!(tries, RESUMES_MAX);
}

#[test]
fn of_what_is_no_answer_only_the_beginning_is_shown() {
    let (mut bench, next) = Bench::legacy();
    bench.asked(&call("a"));
    let body = "é".repeat(10_000).into_bytes();
    let said =
        only_said(&bench.reply(next, HttpReply { status: 418, body, ..HttpReply::default() }), "a");
    assert_eq!(said.matches('é').count(), REPLY_EXCERPT_CHARS_MAX, "{said}");
}

#[test]
fn a_name_that_fits_into_no_header_is_none() {
    let sessions = [
        ("s".repeat(HEADER_VALUE_BYTES_MAX), true),
        ("s".repeat(HEADER_VALUE_BYTES_MAX + 1), false),
        (String::new(), false),
        ("a b".to_owned(), false),
        ("a\u{7f}".to_owned(), false),
    ];
    for (session, is_one) in &sessions {
        for is_stream in [false, true] {
            let mut bench = Bench::new(None);
            let initialize = bench.asked(INITIALIZE);
            match is_stream {
                true => {
                    let (exchange, session) = (ExchangeId(initialize), Some(session.clone()));
                    bench.handle(RemoteInput::Opened { exchange, session });
                    bench.event(initialize, None, INITIALIZE_RESULT);
                }
                false => drop(bench.json(initialize, Some(session), INITIALIZE_RESULT)),
            }
            let done = bench.line(INITIALIZED);
            let [Done::Ask(_, _, _, headers, _)] = &done[..] else { panic!("{done:?}") };
            let named = headers.iter().any(|(name, _)| name == "mcp-session-id");
            assert_eq!(named, *is_one, "{} {is_stream}", session.len());
        }
        let events = SseParser::new(10_000).push(format!("id: {session}\ndata: x\n\n").as_bytes());
        assert_eq!(events[0].id.is_some(), *is_one, "{}", session.len());
    }
}

#[test]
fn an_answer_in_many_lines_is_one_to_the_hub() {
    let (mut bench, next) = Bench::legacy();
    let pretty = "{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": \"a\",\n  \"result\": {}\n}\n";
    bench.asked(&call("a"));
    let done = bench.json(next, None, pretty);
    assert!(matches!(&done[..], [Done::Tell(line, _)] if !line.contains(['\n', '\r'])), "{done:?}");
    bench.asked(&call("a"));
    bench.opened(next + 1);
    let done = bench.event(next + 1, None, pretty);
    assert!(
        matches!(&done[..], [_, Done::Tell(line, _)] if !line.contains(['\n', '\r'])),
        "{done:?}"
    );
    bench.asked(&call("a"));
    let error = "{\"jsonrpc\":\"2.0\",\"error\":{\n\"code\":-32603,\n\"message\":\"no\"}}";
    let reply = HttpReply { status: 500, body: error.as_bytes().to_vec(), ..HttpReply::default() };
    let done = bench.reply(next + 2, reply);
    assert!(matches!(&done[..], [Done::Tell(line, _)] if !line.contains('\n')), "{done:?}");
}
