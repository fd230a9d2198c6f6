//! Each bound of connections, where it is reached. What is looked at is the order of things: whoever must wait has
//! no answer while others have theirs.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use afresh_core::limits::{FRONT_CLOSE_WAIT, FRONT_UNREAD_BYTES_MAX, FRONT_UNREAD_MAX};
use tokio::time::Instant;

use super::super::Bounds;
use super::wire::{Peer, Stand, call};
use crate::store::testing::wait_for;

const SOON: Duration = Duration::from_millis(300);
const NEVER: Duration = Duration::from_secs(3_600);

fn health(peer: &mut Peer) -> u16 {
    peer.ask("GET /health", &[], "").status
}

/// Lets everybody have many turns.
fn turn(other: &mut Peer) {
    for _ in 0..20 {
        assert_eq!(health(other), 200);
    }
}

/// Whether a peer has no answer yet, though another had many meanwhile.
fn waits(peer: &mut Peer, other: &mut Peer) -> bool {
    turn(other);
    !has_answer(peer)
}

/// Whether something has come.
fn has_answer(peer: &Peer) -> bool {
    peer.stream.set_nonblocking(true).unwrap();
    let found = peer.stream.peek(&mut [0]).map_err(|error| error.kind());
    peer.stream.set_nonblocking(false).unwrap();
    found != Err(ErrorKind::WouldBlock)
}

/// Whether the other end has hung up.
fn is_over(peer: &mut Peer) -> bool {
    match peer.stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn so_many_connections_are_served_and_others_wait_for_their_turn() {
    let stand = Stand::start_with(|bounds| bounds.connections_max = 2, |_| {});
    let mut first = stand.peer();
    let name = first.open();
    let client = stand.joined();
    first.send_post(&name, &call(1, "hold"));
    // The first is `initialize`.
    stand.wait_said(client, 2);
    let mut second = stand.peer();
    second.send("GET /mcp", &[("mcp-session-id", &name)], "");
    assert_eq!(second.head().status, 200);
    let mut third = stand.peer();
    third.send("GET /health", &[], "");
    for _ in 0..20 {
        stand.queue();
    }
    assert!(!has_answer(&third), "both of the others are served");
    drop(first);
    assert_eq!(third.answer().status, 200);
    stand.tell(client, r#"{"method":"later"}"#, None);
    while !second.event().contains("later") {}
}

#[test]
fn a_connection_without_a_request_makes_room_for_a_new_one() {
    let bound = |bounds: &mut Bounds| {
        (bounds.connections_max, bounds.head_wait, bounds.idle_wait) = (4, NEVER, NEVER);
    };
    let stand = Stand::start_with(bound, |_| {});
    let (mut idle, mut silent, mut half) = (stand.peer(), stand.peer(), stand.peer());
    idle.open();
    stand.joined();
    half.stream.write_all(b"POST /mcp HTTP/1.1\r\nhost: loc").unwrap();
    let mut checked = stand.peer();
    assert_eq!(health(&mut checked), 200);
    // Those that asked and were not let in go first, then those that never had a request, the oldest of them before.
    let mut others: Vec<Peer> = Vec::new();
    for gone in [&mut checked, &mut silent, &mut half, &mut idle] {
        let mut other = stand.peer();
        other.open();
        stand.joined();
        others.push(other);
        assert!(is_over(gone));
    }
    for other in &mut others {
        assert_eq!(health(other), 200);
    }
}

#[test]
fn strangers_do_not_push_out_a_client_that_was_not_read_yet() {
    let bound = |bounds: &mut Bounds| {
        (bounds.connections_max, bounds.head_wait, bounds.idle_wait) = (8, NEVER, NEVER);
    };
    let stand = Stand::start_with(bound, |_| {});
    let mut strangers: Vec<Peer> = Vec::new();
    for _ in 0..8 {
        let mut stranger = stand.peer();
        assert_eq!(health(&mut stranger), 200);
        strangers.push(stranger);
    }
    let mut client = stand.peer();
    // It was accepted when another one is, and has sent half of its request so far.
    client.stream.write_all(b"GET /heal").unwrap();
    for _ in 0..7 {
        let mut stranger = stand.peer();
        assert_eq!(health(&mut stranger), 200);
        strangers.push(stranger);
    }
    client.stream.write_all(b"th HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert_eq!(client.answer().status, 200);
}

#[test]
fn who_asks_nothing_makes_room_for_others() {
    let bound = |bounds: &mut Bounds| {
        (bounds.connections_max, bounds.idle_wait) = (3, SOON);
    };
    let stand = Stand::start_with(bound, |_| {});
    let mut peer = stand.peer();
    let name = peer.open();
    let client = stand.joined();
    let mut listener = stand.peer();
    listener.send("GET /mcp", &[("mcp-session-id", &name)], "");
    assert_eq!(listener.head().status, 200);
    listener.event();
    let mut half = stand.peer();
    assert_eq!(health(&mut half), 200);
    half.stream.write_all(b"POST /mcp HTTP/1.1\r\nhost: loc").ok();
    // There is no room for it until one of those is closed.
    assert_eq!(health(&mut stand.peer()), 200);
    assert!(is_over(&mut peer) && is_over(&mut half));
    // Who listens is not idle.
    stand.tell(client, r#"{"method":"later"}"#, None);
    assert!(listener.event().contains("later"));
}

#[test]
fn of_a_body_that_is_refused_only_so_much_is_read() {
    let bound = |bounds: &mut Bounds| {
        (bounds.refused_bytes_max, bounds.refused_wait) = (64 * 1024, NEVER);
    };
    let stand = Stand::start_with(bound, |_| {});
    let mut peer = stand.peer();
    let head = peer.head_text("POST /mcp", &[("content-length", "99999999999")]);
    peer.stream.write_all(head.as_bytes()).unwrap();
    peer.stream.write_all(&vec![b'x'; 64 * 1024]).unwrap();
    assert!(waits(&mut peer, &mut stand.peer()), "so much is read");
    peer.stream.write_all(b"x").unwrap();
    assert_eq!(peer.answer().status, 413);
    assert!(is_over(&mut peer), "the rest would be taken for another request");
}

#[test]
fn the_rest_of_a_body_that_is_refused_is_not_waited_for_long() {
    let stand = Stand::start_with(|bounds| bounds.refused_wait = SOON, |_| {});
    let mut peer = stand.peer();
    let headers = [("content-type", "text/plain"), ("content-length", "100")];
    let head = peer.head_text("POST /mcp", &headers);
    let begun = Instant::now();
    peer.stream.write_all(format!("{head}half").as_bytes()).unwrap();
    assert_eq!(peer.answer().status, 415);
    assert!(begun.elapsed() >= SOON);
    assert!(is_over(&mut peer));
}

#[test]
fn so_many_requests_wait_for_the_loop_and_those_who_go_are_noticed() {
    let bound = |bounds: &mut Bounds| {
        (bounds.connections_max, bounds.asks_max) = (5, 2);
    };
    let stand = Stand::start_with(bound, |_| {});
    let mut peer = stand.peer();
    let name = peer.open();
    stand.serve(false);
    let mut others: Vec<Peer> = (0..4).map(|_| stand.peer()).collect();
    for (id, other) in (1..).zip(&mut others) {
        other.send_post(&name, &call(id, "echo"));
    }
    // Two have asked, and each of these has a place for the word that it is gone; the other two wait.
    wait_for("two wait for the loop", || stand.queue() == (2, 3));
    turn(&mut peer);
    assert_eq!(stand.queue(), (2, 3));
    drop(others.drain(..2));
    stand.serve(true);
    for other in &mut others {
        assert_eq!(other.answer().status, 200);
    }
    assert_eq!(peer.post(&name, &call(9, "echo")).status, 200);
    wait_for("all places are free", || stand.queue() == (0, 7));
}

#[test]
fn so_many_messages_wait_for_a_connection() {
    let stand = Stand::start(|_| {});
    let mut peer = stand.peer();
    let name = peer.open();
    let client = stand.joined();
    let listen = || {
        let mut listener = stand.peer();
        listener.send("GET /mcp", &[("mcp-session-id", &name)], "");
        assert_eq!(listener.head().status, 200);
        listener.event();
        listener
    };
    let quarter = format!(r#"{{"method":"{}"}}"#, "x".repeat(FRONT_UNREAD_BYTES_MAX / 4 - 100));
    let whole = format!(r#"{{"method":"{}"}}"#, "x".repeat(2 * FRONT_UNREAD_BYTES_MAX));
    let short = r#"{"method":"n"}"#;
    // As many as fit, also where a single one is longer than all of them may be.
    let mut listener = listen();
    for (line, count) in [(short, FRONT_UNREAD_MAX), (&quarter, 4), (&whole, 1)] {
        stand.tell_often(client, line, count);
        for _ in 0..count {
            assert!(listener.event().contains("event: message"));
        }
    }
    assert_eq!(stand.log(), "");
    for (line, count) in [(short, FRONT_UNREAD_MAX + 1), (&quarter, 5), (&whole, 2)] {
        stand.tell_often(client, line, count);
        wait_for("the log", || stand.log().contains("does not read"));
        assert!(is_over(&mut listener));
        listener = listen();
        // What was kept for it, and more than that: each message may come with these.
        stand.tell(client, r#"{"method":"after"}"#, None);
        while !listener.event().contains("after") {}
    }
}

#[test]
fn at_the_end_nobody_who_does_not_read_is_waited_for() {
    let stand = Stand::start(|_| {});
    let mut peer = stand.peer();
    let name = peer.open();
    let client = stand.joined();
    let mut stuck = stand.peer();
    stuck.send("GET /mcp", &[("mcp-session-id", &name)], "");
    assert_eq!(stuck.head().status, 200);
    stuck.event();
    // More than we and both kernels hold, whatever they hold.
    stand.tell(client, &format!(r#"{{"method":"{}"}}"#, "x".repeat(64 * 1024 * 1024)), None);
    assert_eq!(peer.post(&name, &call(1, "echo")).status, 200);
    let took = stand.close();
    assert!(took >= FRONT_CLOSE_WAIT, "{took:?}");
}

#[test]
fn at_the_end_who_asks_nothing_is_not_waited_for() {
    let bound = |bounds: &mut Bounds| {
        (bounds.head_wait, bounds.idle_wait) = (NEVER, NEVER);
        bounds.close_wait = Duration::from_secs(30);
    };
    let stand = Stand::start_with(bound, |_| {});
    let (mut idle, mut silent, mut half) = (stand.peer(), stand.peer(), stand.peer());
    assert_eq!(health(&mut idle), 200);
    half.stream.write_all(b"POST /mcp HTTP/1.1\r\n").unwrap();
    assert_eq!(health(&mut stand.peer()), 200);
    let took = stand.close();
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(is_over(&mut idle) && is_over(&mut silent) && is_over(&mut half));
}
