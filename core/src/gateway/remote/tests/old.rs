//! HTTP with server-sent events, as before 2025-03-26.

use super::*;

fn endpoint(bench: &mut Bench, exchange: u64, place: &str) -> Vec<Done> {
    let data = place.as_bytes().to_vec();
    let event = SseEvent { name: "endpoint".to_owned(), data, ..SseEvent::default() };
    bench.opened(exchange);
    bench.handle(RemoteInput::Event { exchange: ExchangeId(exchange), event })
}

/// An open session over the stream of exchange 1.
fn old() -> Bench {
    let mut bench = Bench::new(Some(true));
    let done = bench.line(INITIALIZE);
    assert!(matches!(&done[..], [Done::Ask(1, Method::Get, ..)]), "{done:?}");
    let done = endpoint(&mut bench, 1, "/messages?s=1");
    let [Done::Ask(2, Method::Post, url, _, body)] = &done[..] else { panic!("{done:?}") };
    assert_eq!((url.as_str(), body.as_str()), ("http://h:1/messages?s=1", INITIALIZE));
    assert_eq!(bench.status(2, 202), []);
    assert_eq!(bench.event(1, None, INITIALIZE_RESULT), [tell(INITIALIZE_RESULT, "i")]);
    let initialized = bench.asked(INITIALIZED);
    assert_eq!(bench.status(initialized, 202), []);
    bench.pass(60_000);
    bench
}

#[test]
fn answers_come_over_the_one_stream() {
    let mut bench = old();
    let exchange = bench.asked(&call("a"));
    bench.status(exchange, 202);
    assert_eq!(bench.event(1, None, &result("a")), [tell(&result("a"), "a")]);
    assert_eq!(bench.remote.farewell(), None);
}

#[test]
fn a_lost_stream_is_a_lost_session() {
    let mut bench = old();
    let tool = bench.asked(&call("a"));
    bench.status(tool, 202);
    let list = request("l", "tools/list", "");
    let listed = bench.asked(&list);
    bench.status(listed, 202);
    let done = bench.ended(1);
    let said = only_said(&done, "a");
    assert!(said.contains("outcome is unknown"), "{said}");
    let Some(Done::Ask(stream, Method::Get, ..)) = done.last() else { panic!("{done:?}") };
    let done = endpoint(&mut bench, *stream, "messages?s=2");
    let [Done::Ask(opening, _, url, _, body)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(url, "http://h:1/s3cr3t/messages?s=2");
    let id = member(body, &["id"]);
    bench.status(*opening, 202);
    let done = bench.event(*stream, None, &INITIALIZE_RESULT.replace(r#""i""#, &id));
    let [Done::Ask(initialized, ..)] = done[..] else { panic!("{done:?}") };
    let done = bench.status(initialized, 202);
    assert!(matches!(done.last(), Some(Done::Ask(.., body)) if *body == list), "{done:?}");
}

#[test]
fn it_is_found_out() {
    for status in [400, 404, 405] {
        let mut bench = Bench::new(None);
        let first = bench.asked(INITIALIZE);
        let done = bench.status(first, status);
        let [Done::Ask(stream, Method::Get, ..)] = done[..] else { panic!("{done:?}") };
        let done = endpoint(&mut bench, stream, "/m");
        assert!(matches!(&done[..], [Done::Ask(_, Method::Post, url, _, body)]
            if url == "http://h:1/m" && body == INITIALIZE));
    }
    // It is not: the first answer is what counts.
    for is_silent in [false, true] {
        let mut bench = Bench::new(None);
        let first = bench.asked(INITIALIZE);
        let body = b"<html>\n <b>no</b>".to_vec();
        let done = bench.reply(first, HttpReply { status: 404, body, ..HttpReply::default() });
        let [Done::Ask(stream, ..)] = done[..] else { panic!("{done:?}") };
        let done = match is_silent {
            true => bench.pass(10_000),
            false => bench.status(stream, 405),
        };
        let said = only_said(&done, "i");
        assert!(said.contains("status 404: <html> <b>no</b>"), "{said}");
        bench.asked(&INITIALIZE.replace(r#""i""#, r#""j""#));
    }
    // One that says what it does not like in MCP is no old one.
    let mut bench = Bench::new(None);
    let first = bench.asked(INITIALIZE);
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no"}}"#;
    let reply = HttpReply { status: 400, body: error.as_bytes().to_vec(), ..HttpReply::default() };
    let answer = error.replace("null", r#""i""#);
    assert_eq!(bench.reply(first, reply), [tell(&answer, "i")]);
}

#[test]
fn an_endpoint_elsewhere_is_not_used() {
    let mut bench = Bench::new(Some(true));
    bench.line(INITIALIZE);
    let done = endpoint(&mut bench, 1, "http://evil/m");
    assert!(done.contains(&Done::Drop(1)), "{done:?}");
    let said = only_said(&done, "i");
    assert!(said.contains("another address"), "{said}");
}
