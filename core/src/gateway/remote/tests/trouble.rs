//! Servers that are away, busy, closed or out of their mind.

use super::*;
use crate::limits::{EXCHANGES_MAX, FLIGHTS_MAX, SENDINGS_MAX};

#[test]
fn requests_wait_for_a_server_that_is_away() {
    let (mut bench, next) = Bench::legacy();
    bench.asked(&call("a"));
    // The first time it is tried at once.
    let done = bench.failed(next, false);
    assert!(matches!(&done[..], [Done::Ask(_, Method::Post, ..)]), "{done:?}");
    assert_eq!(bench.line(&call("b")), []);
    assert_eq!(bench.failed(next + 1, false), []);
    let at = bench.remote.next_wakeup().unwrap();
    let wait = at.since(bench.now);
    assert!((1_000..1_501).contains(&wait.as_millis()), "{wait:?}");
    // One goes ahead; when it is through, so are the others.
    bench.now = at;
    let done = bench.handle(RemoteInput::Wakeup);
    let [Done::Ask(scout, _, _, _, body)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(*body, call("a"));
    let done = bench.json(*scout, None, &result("a"));
    assert!(matches!(&done[..], [Done::Tell(..), Done::Ask(.., body)] if *body == call("b")));
}

#[test]
fn they_do_not_wait_for_ever() {
    let (mut bench, next) = Bench::legacy();
    let end = bench.now + QUEUE_WAIT;
    bench.asked(&call("a"));
    bench.failed(next, false);
    bench.failed(next + 1, false);
    let mut exchange = next + 2;
    let said = loop {
        let at = bench.remote.next_wakeup().expect("somebody waits");
        bench.now = at;
        let done = bench.handle(RemoteInput::Wakeup);
        match &done[..] {
            [Done::Ask(..)] => assert_eq!(bench.failed(exchange, false), []),
            _ => break only_said(&done, "a"),
        }
        exchange += 1;
    };
    assert!(bench.now == end && exchange - next > 4, "all tries together have one deadline");
    assert!(said.contains("cannot be reached: cannot connect"), "{said}");
    // The next one does not wait for the long pause to pass.
    bench.pass(2_000);
    let done = bench.line(&call("b"));
    assert!(matches!(&done[..], [Done::Ask(.., body)] if *body == call("b")), "{done:?}");
}

#[test]
fn who_is_not_let_in_is_told_what_to_do() {
    for status in [401, 403] {
        let (mut bench, next) = Bench::legacy();
        bench.asked(&call("a"));
        let said = only_said(&bench.status(next, status), "a");
        assert!(said.contains("set a token in `headers`"), "{said}");
        // Also where it is the session that is not opened again.
        bench.asked(&call("b"));
        let done = bench.status(next + 1, 404);
        let [Done::Ask(opening, ..)] = done[..] else { panic!("{done:?}") };
        let said = only_said(&bench.status(opening, status), "b");
        assert!(said.contains("set a token in `headers`"), "{said}");
        assert_eq!(bench.remote.next_wakeup(), None);
    }
}

#[test]
fn a_busy_server_is_left_alone_for_as_long_as_it_says() {
    for status in [429, 503] {
        let (mut bench, next) = Bench::legacy();
        bench.asked(&call("a"));
        let wait = |seconds| Some(Duration::from_secs(seconds));
        let reply = HttpReply { status, retry_after: wait(5), ..HttpReply::default() };
        assert_eq!(bench.reply(next, reply), []);
        assert_eq!(bench.line(&call("b")), []);
        assert_eq!(bench.pass(4_999), []);
        assert!(matches!(&bench.pass(1)[..], [Done::Ask(..)]));
        // Nobody waits for longer than anybody would.
        let reply = HttpReply { status, retry_after: wait(100), ..HttpReply::default() };
        let done = bench.reply(next + 1, reply);
        assert!(only_said(&done, "a").contains("for 1 m 40 s"), "{done:?}");
        assert!(only_said(&done, "b").contains("for 1 m 40 s"), "{done:?}");
        assert!(only_said(&bench.line(&call("c")), "c").contains("for 1 m 40 s"));
    }
}

#[test]
fn what_is_no_answer_is_an_error() {
    let body = |status, body: &str| HttpReply { status, body: body.into(), ..HttpReply::default() };
    let to = Some("https://login.example/s3cr3t".to_owned());
    let cases = [
        (body(200, "<html>\n<p>Hi"), "no MCP: <html> <p>Hi"),
        (body(202, ""), "only status 202"),
        (body(200, &result("x")), "with something else"),
        (body(200, r#"{"jsonrpc":"2.0","method":"n"}"#), "with something else"),
        (HttpReply { is_too_long: true, ..body(200, "x") }, "longer than the limit of 67108864"),
        (HttpReply { location: to, ..body(302, "") }, "redirects to `https://login.example`"),
        (body(418, "tea"), "status 418: tea"),
        (body(500, "boom"), "status 500: boom"),
        (
            body(500, r#"{"jsonrpc":"2.0","error":{"code":-32603,"message":"own words"}}"#),
            "own words",
        ),
        (body(502, ""), "status 502"),
    ];
    for (reply, text) in cases {
        let (mut bench, next) = Bench::legacy();
        bench.asked(&call("a"));
        let said = only_said(&bench.reply(next, reply.clone()), "a");
        assert!(said.contains(text), "{reply:?}: {said}");
    }
    let (mut bench, next) = Bench::legacy();
    bench.asked(&call("a"));
    bench.opened(next);
    let event = SseEvent { is_too_long: true, ..SseEvent::default() };
    let done = bench.handle(RemoteInput::Event { exchange: ExchangeId(next), event });
    assert!(done.contains(&Done::Drop(next)) && only_said(&done, "a").contains("longer than"));
    // A batch was allowed once.
    bench.asked(&call("b"));
    let done = bench.json(next + 1, None, &format!("[{}]", result("b")));
    assert_eq!(done, [tell(&result("b"), "b")]);
}

#[test]
fn a_server_that_forgets_each_session_is_not_asked_for_ever() {
    let (mut bench, next) = Bench::legacy();
    bench.asked(&call("a"));
    let mut done = bench.status(next, 404);
    let mut rounds = 0;
    let said = loop {
        rounds += 1;
        let [Done::Ask(opening, .., body)] = &done[..] else { panic!("{done:?}") };
        let opened = bench.reopen(*opening, body, "S");
        let tool = opened.iter().find_map(|done| match done {
            Done::Ask(exchange, _, _, _, body) if *body == call("a") => Some(*exchange),
            _ => None,
        });
        let gone = bench.status(tool.expect("it is sent again"), 404);
        if gone.iter().any(|done| matches!(done, Done::Tell(_, Some(_)))) {
            break only_said(&gone, "a");
        }
        done = match &gone[..] {
            [.., Done::Ask(..)] => gone[gone.len() - 1..].to_vec(),
            _ => {
                bench.now = bench.remote.next_wakeup().expect("it is tried again");
                bench.handle(RemoteInput::Wakeup)
            }
        };
    };
    assert!(rounds + 1 == SENDINGS_MAX && said.contains("forgets each session"), "{rounds} {said}");
}

#[test]
fn there_is_a_bound_on_what_is_owed_and_on_what_is_under_way() {
    let (mut bench, _) = Bench::legacy();
    let asked: usize = (0..FLIGHTS_MAX).map(|n| bench.line(&call(&format!("r{n}"))).len()).sum();
    assert_eq!(asked, EXCHANGES_MAX);
    let said = only_said(&bench.line(&call("more")), "more");
    assert!(said.contains("too many requests"), "{said}");
    let id = Id::new(b"\"even\"");
    let said =
        only_said(&bench.handle(RemoteInput::Refused { id, method: "ping".to_owned() }), "even");
    assert!(said.contains("too_many_requests"), "{said}");
}

#[test]
fn one_that_is_not_there_is_said_at_once_and_again_when_it_is() {
    let mut bench = Bench::new(None);
    let mut exchange = bench.asked(INITIALIZE);
    for _ in 0..2 {
        let mut done = bench.failed(exchange, false);
        done.extend(bench.pass(2_000));
        let why = "the server at `http://h:1` cannot be reached: cannot connect";
        assert_eq!(bench.serves, [Err(why.to_owned())]);
        let Some(Done::Ask(again, ..)) = done.last() else { panic!("{done:?}") };
        exchange = *again;
    }
    bench.json(exchange, Some("S1"), INITIALIZE_RESULT);
    assert_eq!(bench.serves.last(), Some(&Ok(())));
}
