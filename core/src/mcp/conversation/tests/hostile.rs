//! Peers that confuse ids, ask too much, and nest batches.

use super::*;
use crate::limits::{
    ASKED_MAX, FLIGHTS_BYTES_MAX, FLIGHTS_MAX, MESSAGE_BYTES_MAX, PONGS_MAX, QUEUE_BYTES_MAX,
};

fn to_client(done: &[Done]) -> Vec<&str> {
    let texts = done.iter().filter_map(|done| match done {
        Done::Client(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn an_answer_finds_its_request_in_whatever_form_the_id_comes_back() {
    let mut bench = Bench::legacy();
    for (asked, told) in [(r#""\u0061\/""#, r#""a/""#), ("5.0", "5"), ("6e2", "600.0")] {
        bench.client(&format!(r#"{{"id":{asked},"method":"tools/call"}}"#));
        let answer = format!(r#"{{"id":{told},"result":{{}}}}"#);
        assert_eq!(bench.server(1, &answer), [Done::Client(answer)]);
    }
    assert_eq!(bench.conversation.owed(), 0);
}

#[test]
fn what_has_an_id_and_is_no_request_is_answered_unless_the_id_is_in_use() {
    let mut bench = Bench::legacy();
    let done = bench.client(r#"{"id":9}"#);
    assert!(to_client(&done)[0].contains("-32600"), "{done:?}");
    bench.client(&request(9, "tools/call", "{}"));
    let done = bench.client(r#"{"id":9}"#);
    assert!(matches!(&done[..], [Done::Other(Effect::Divert { .. })]), "{done:?}");
}

#[test]
fn nobody_takes_our_ids_from_us() {
    let mut bench = Bench::legacy();
    bench.end(1);
    let opening = bench.opening_id(2);
    // Another instance answers in its place, the client asks and cancels by the same id.
    bench.start(3);
    assert_eq!(bench.server(3, &format!(r#"{{"id":{opening},"result":{{}}}}"#)), []);
    let done = bench.client(&format!(r#"{{"id":{opening},"method":"tools/call"}}"#));
    assert!(to_client(&done)[0].contains("-32600"), "{done:?}");
    let done =
        bench.server(2, &format!(r#"{{"id":{opening},"result":{{"protocolVersion":"v"}}}}"#));
    let serves = Done::Other(Effect::Serving(Generation(2)));
    assert!(done.contains(&serves), "{done:?}");
    // And where the client was first, ours is another.
    let mut bench = Bench::legacy();
    let next = bench.conversation.ids.last_number + 1;
    for number in next..next + 5 {
        bench.client(&format!(r#"{{"id":"afresh:2:{number}","method":"tools/call"}}"#));
    }
    let done = bench.start(2);
    let [Done::Server(2, line)] = &done[..] else { panic!("{done:?}") };
    let id = Id::new(json::get(line.as_bytes(), &["id"]).unwrap());
    assert!(!bench.conversation.requests.contains(&id));
}

#[test]
fn batches_in_batches_are_nothing() {
    let mut bench = Bench::legacy();
    let nest = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let diverts = |done: &[Done]| matches!(done, [Done::Other(Effect::Divert { .. })]);
    assert!(diverts(&bench.client(&nest)));
    assert!(diverts(&bench.server(1, &nest)));
}

#[test]
fn requests_without_an_answer_have_an_end() {
    let mut bench = Bench::legacy();
    for id in 0..FLIGHTS_MAX as u32 {
        assert!(to_client(&bench.client(&request(100 + id, "tools/call", "{}"))).is_empty());
    }
    let done = bench.client(&request(1, "tools/call", "{}"));
    assert!(to_client(&done)[0].contains("too many"), "{done:?}");
    bench.server(1, &result(100));
    assert!(to_client(&bench.client(&request(1, "tools/call", "{}"))).is_empty());
    // The same by bytes; one alone may be as long as a message may.
    let mut bench = Bench::legacy();
    let long = format!(r#"{{"x":"{}"}}"#, "x".repeat(MESSAGE_BYTES_MAX - 100));
    let fit = FLIGHTS_BYTES_MAX / MESSAGE_BYTES_MAX;
    for id in 0..fit as u32 {
        assert!(to_client(&bench.client(&request(100 + id, "tools/call", &long))).is_empty());
    }
    let done = bench.client(&request(1, "tools/call", &long));
    assert!(to_client(&done)[0].contains("too many"));
}

#[test]
fn a_server_that_asks_without_end_is_not_passed_on_without_end() {
    let mut bench = Bench::legacy();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for _ in 0..ASKED_MAX {
        assert_eq!(to_client(&bench.server(1, ping)).len(), 1);
    }
    let done = bench.server(1, ping);
    assert!(matches!(&done[..], [Done::Other(Effect::Divert { .. })]), "{done:?}");
    bench.start(2);
    for _ in 0..PONGS_MAX {
        assert_eq!(bench.server(2, ping).len(), 1);
    }
    assert_eq!(bench.server(2, ping), []);
}

#[test]
fn what_is_cancelled_while_it_waits_leaves_its_room_to_others() {
    let mut bench = Bench::legacy();
    bench.end(1);
    let long = format!(r#"{{"x":"{}"}}"#, "x".repeat(QUEUE_BYTES_MAX / 2));
    for id in 100..110 {
        assert!(to_client(&bench.client(&request(id, "tools/call", &long))).is_empty(), "{id}");
        bench.client(&format!(
            r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        ));
    }
    assert_eq!(bench.conversation.owed(), 0);
}
