//! Real clients over TCP, good and bad ones.

mod limits;
mod wire;

use std::io::{Read, Write};
use std::time::Duration;

use afresh_core::gateway::access_patterns::Access;
use afresh_core::gateway::settings::Token;
use afresh_core::limits::*;
use tokio::time::Instant;

use self::wire::{MODERN, Stand, call, settings};
use super::*;
use crate::store::testing::wait_for;

const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;

#[test]
fn a_session_from_its_beginning_to_its_end() {
    let stand = Stand::start(|_| {});
    let mut peer = stand.peer();
    let name = peer.open();
    assert!(name.len() > 32 && name.len() <= 1_024, "{name}");
    let Input::Joined { client, .. } = stand.word() else { panic!("it joins first") };
    assert!(matches!(stand.word(), Input::Client { client: its, .. } if its == client));
    // The same connection goes on.
    let answer = peer.post(&name, &call(1, "echo"));
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert!(answer.body.contains(r#""id":1,"result""#), "{answer:?}");
    assert_eq!(answer.header("mcp-session-id"), None);
    let noted = peer.post(&name, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!((noted.status, noted.body.as_str()), (202, ""));
    // Bodies may have many lines; what is said has one.
    peer.post(&name, "{\"id\":2,\r\n\"method\":\n\"echo\"\n}");
    stand.word();
    stand.word();
    assert!(matches!(stand.word(), Input::Client { line, .. } if !line.contains(&b'\n')));
    let batch = peer.post(&name, &format!("[{},{}]", call(3, "echo"), call(4, "echo")));
    assert_eq!(batch.status, 200);
    stand.word();
    assert_eq!(peer.ask("DELETE /mcp", &[("mcp-session-id", &name)], "").status, 204);
    assert_eq!(stand.word(), Input::Left { client });
    assert_eq!(peer.post(&name, &call(5, "echo")).status, 404);
    let health = peer.ask("GET /health", &[], "");
    assert_eq!((health.status, health.body.as_str()), (200, "ok"));
}

#[test]
fn what_comes_before_an_answer_makes_it_a_stream() {
    let stand = Stand::start(|_| {});
    let mut peer = stand.peer();
    let name = peer.open();
    let answer = peer.post(&name, &call(1, "notes"));
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    let events: Vec<&str> = answer.body.split("\n\n").collect();
    assert_eq!(events.len(), 6, "{answer:?}");
    assert!(events[0].starts_with("id: 2-0\nretry: "), "{answer:?}");
    assert!(events[1].starts_with("id: 2-1\nevent: message\ndata: {"), "{answer:?}");
    assert!(events[4].contains(r#""id":1,"result""#), "{answer:?}");
    // The connection is good for more.
    assert_eq!(peer.post(&name, &call(2, "echo")).status, 200);
}

#[test]
fn a_broken_stream_is_resumed() {
    let stand = Stand::start(|_| {});
    let mut peer = stand.peer();
    let name = peer.open();
    let client = stand.joined();
    peer.send_post(&name, &call(1, "hold"));
    stand.wait_said(client, 2);
    stand.tell(client, PROGRESS, Some(1));
    assert_eq!(peer.head().status, 200);
    assert!(peer.event().starts_with("id: 2-0\n"));
    assert!(peer.event().starts_with("id: 2-1\n"));
    drop(peer);
    stand.tell(client, PROGRESS, Some(1));
    stand.tell(client, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Some(1));
    let mut again = stand.peer();
    let headers = [("mcp-session-id", name.as_str()), ("last-event-id", "2-1")];
    let resumed = again.ask("GET /mcp", &headers, "");
    assert!(resumed.body.starts_with("id: 2-2\n"), "{resumed:?}");
    assert!(resumed.body.contains("id: 2-3\n") && resumed.body.contains("result"), "{resumed:?}");
    let unknown = [("mcp-session-id", name.as_str()), ("last-event-id", "7-1")];
    assert_eq!(again.ask("GET /mcp", &unknown, "").status, 400);
}

#[test]
fn what_a_session_is_told_besides() {
    let stand = Stand::start(|_| {});
    let mut peer = stand.peer();
    let name = peer.open();
    let client = stand.joined();
    stand.tell(client, r#"{"method":"early"}"#, None);
    let mut listener = stand.peer();
    listener.send("GET /mcp", &[("mcp-session-id", &name)], "");
    assert_eq!(listener.head().status, 200);
    listener.event();
    assert!(listener.event().contains("early"));
    stand.tell(client, r#"{"method":"later"}"#, None);
    assert!(listener.event().contains("later"));
    // A second one takes over, and the first one ends in order.
    let mut second = stand.peer();
    second.send("GET /mcp", &[("mcp-session-id", &name)], "");
    assert_eq!(second.head().status, 200);
    assert_eq!(listener.event(), "");
    stand.tell(client, r#"{"method":"last"}"#, None);
    second.event();
    assert!(second.event().contains("last"));
}

#[test]
fn the_modern_era_needs_no_session() {
    let stand = Stand::start(|_| {});
    let mut peer = stand.peer();
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "echo")];
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"echo","params":{{{MODERN}}}}}"#);
    let answer = peer.ask("POST /mcp", &headers, &body);
    assert_eq!((answer.status, answer.header("mcp-session-id")), (200, None), "{answer:?}");
    let client = stand.joined();
    stand.word();
    assert_eq!(stand.word(), Input::Left { client });
    let wrong = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "other")];
    let refused = peer.ask("POST /mcp", &wrong, &body);
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains(r#""id":1,"error":{"code":-32020"#), "{refused:?}");
    let unknown = body.replace("echo", "unknown");
    let wrong = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "unknown")];
    assert_eq!(peer.ask("POST /mcp", &wrong, &unknown).status, 404);
    // Who goes, cancels: before there is an answer, and while it streams.
    for told in [false, true] {
        let client = stand.next_joined();
        let hold = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "hold")];
        let mut peer = stand.peer();
        peer.send("POST /mcp", &hold, &body.replace("echo", "hold"));
        assert!(matches!(stand.wait_joined(client), Input::Client { .. }));
        if told {
            stand.tell(client, PROGRESS, Some(1));
            assert_eq!(peer.head().status, 200);
            assert_eq!(peer.event(), format!("event: message\ndata: {PROGRESS}"));
        }
        drop(peer);
        assert_eq!(stand.word(), Input::Left { client });
    }
}

#[test]
fn who_is_not_let_in_reaches_nobody() {
    let stand = Stand::start(|settings| {
        settings.tokens = vec![
            Token {
                secret: "one-secret".to_owned(),
                access: Access { name: "one".to_owned(), ..Access::default() },
            },
            Token {
                secret: "two-secret".to_owned(),
                access: Access { name: "two".to_owned(), ..Access::default() },
            },
        ];
        settings.allowed_origins = vec!["https://chat.example".to_owned()];
    });
    let mut peer = stand.peer();
    let opening = call(0, "initialize");
    let good = ("authorization", "Bearer two-secret");
    let cases: [(&[(&str, &str)], u16); 9] = [
        (&[], 401),
        (&[("authorization", "Bearer no-secret")], 401),
        (&[good, ("authorization", "Bearer no-secret")], 401),
        (&[good, ("host", "evil.example")], 403),
        (&[good, ("origin", "https://evil.example")], 403),
        (&[good, ("origin", "https://chat.example"), ("origin", "null")], 403),
        (&[good, ("content-type", "text/plain")], 415),
        (&[good, ("accept", "application/json")], 406),
        (&[good, ("mcp-session-id", "0000")], 404),
    ];
    for (headers, status) in cases {
        let refused = peer.ask("POST /mcp", headers, &opening);
        assert_eq!(refused.status, status, "{headers:?} {refused:?}");
        assert!(refused.body.starts_with(r#"{"jsonrpc":"2.0","#), "{refused:?}");
        assert_eq!(refused.header("www-authenticate").is_some(), status == 401);
        assert_eq!(refused.header("access-control-allow-origin"), None);
    }
    for (line, status) in [("PUT /mcp", 405), ("GET /other", 404), ("DELETE /mcp", 400)] {
        assert_eq!(peer.ask(line, &[good], "").status, status, "{line}");
    }
    for (body, code) in [("", "-32700"), ("hello", "-32700"), ("{}", "-32600"), ("[]", "-32600")] {
        let headers = [good, ("mcp-session-id", "x")];
        let refused = peer.ask("POST /", &headers, body);
        assert!(refused.status == 400 && refused.body.contains(code), "{body}: {refused:?}");
    }
    // What a browser asks for a page that may.
    let page = ("origin", "https://chat.example");
    let preflight = peer.ask("OPTIONS /mcp", &[page], "");
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-origin"), Some("https://chat.example"));
    let opened = peer.ask("POST /mcp", &[good, page], &opening);
    assert_eq!(opened.header("access-control-expose-headers"), Some("mcp-session-id"));
    // Of all this the hub has heard only the last.
    assert!(matches!(stand.word(), Input::Joined { access, .. } if access.name == "two"));
    assert!(matches!(stand.word(), Input::Client { .. }));
    assert!(stand.is_silent());
    // Another token does not open the session.
    let name = opened.header("mcp-session-id").unwrap();
    let other = [("authorization", "Bearer one-secret"), ("mcp-session-id", name)];
    assert_eq!(peer.ask("POST /mcp", &other, &call(1, "echo")).status, 404);
    assert_eq!(peer.ask("DELETE /mcp", &other, "").status, 404);
}

#[test]
fn a_port_for_everybody_is_not_opened_without_a_token() {
    let settings = FrontSettings { http: Some("0.0.0.0:0".parse().unwrap()), ..settings() };
    let error = bind(&settings, settings.http.as_ref().unwrap()).unwrap_err().to_string();
    assert!(error.contains("there is no token"), "{error}");
    let taken = bind(&wire::settings(), wire::settings().http.as_ref().unwrap()).unwrap();
    let http = Some(FrontAddress::Port(wire::port_of(&taken)));
    let settings = FrontSettings { http, ..wire::settings() };
    let error = bind(&settings, settings.http.as_ref().unwrap()).unwrap_err().to_string();
    assert!(error.contains("is in use"), "{error}");
}

#[test]
fn a_port_of_localhost_is_served_at_both_of_its_addresses() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        println!("skipped: this machine has no IPv6");
        return;
    }
    let stand = Stand::start(|_| {});
    let mut peer = stand.peer_at((std::net::Ipv6Addr::LOCALHOST, stand.address.port()).into());
    let name = peer.open();
    let call = r#"{"id":1,"method":"echo","params":"x"}"#;
    assert_eq!(peer.post(&name, call).status, 200);
    assert_eq!(stand.peer().post(&name, call).status, 200);
}

#[test]
fn huge_bodies_are_refused_and_nothing_of_them_is_kept() {
    let stand = Stand::start(|settings| settings.body_bytes_max = 100_000);
    let mut peer = stand.peer();
    let name = peer.open();
    let fits = format!(r#"{{"id":1,"method":"echo","params":"{}"}}"#, "x".repeat(90_000));
    assert_eq!(peer.post(&name, &fits).status, 200);
    assert_eq!(peer.post(&name, &fits.replace("xx", "xxx")).status, 413);
    // In chunks, without saying how long it is.
    let mut peer = stand.peer();
    let head = peer.head_text("POST /mcp", &[("transfer-encoding", "chunked")]);
    peer.stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    for _ in 0..4 {
        peer.stream.write_all(chunk.as_bytes()).unwrap();
    }
    peer.stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(peer.answer().status, 413);
    // One that is announced, and never ends.
    let mut peer = stand.peer();
    let head = peer.head_text("POST /mcp", &[("content-length", "99999999999")]);
    peer.stream.write_all(head.as_bytes()).unwrap();
    let block = vec![b'x'; 64 * 1024];
    let mut sent = 0;
    while peer.stream.write_all(&block).is_ok() {
        sent += block.len();
        assert!(sent < 64 * 1024 * 1024, "nobody reads all this");
    }
    // A head without end.
    let mut peer = stand.peer();
    peer.stream.write_all(b"GET /mcp HTTP/1.1\r\nx: ").unwrap();
    peer.stream.write_all(&vec![b'x'; FRONT_BUFFER_BYTES]).ok();
    assert_eq!(peer.answer().status, 431);
    assert_eq!(stand.peer().post(&name, &call(2, "echo")).status, 200);
}

#[test]
fn half_requests_hold_nobody_up() {
    let stand = Stand::start(|_| {});
    let begun = Instant::now();
    let mut silent = stand.peer();
    let mut half_head = stand.peer();
    half_head.stream.write_all(b"POST /mcp HTTP/1.1\r\nhost: loc").unwrap();
    let mut half_body = stand.peer();
    let head = half_body.head_text("POST /mcp", &[("content-length", "100")]);
    half_body.stream.write_all(format!("{head}{{\"id\"").as_bytes()).unwrap();
    let mut gone = stand.peer();
    gone.stream.write_all(format!("{head}{{\"id\"").as_bytes()).unwrap();
    drop(gone);
    let mut peer = stand.peer();
    let name = peer.open();
    assert_eq!(peer.post(&name, &call(1, "echo")).status, 200);
    for stuck in [&mut silent, &mut half_head] {
        let mut rest = Vec::new();
        assert_eq!(stuck.stream.read_to_end(&mut rest).unwrap(), 0, "it is closed");
    }
    assert!(begun.elapsed() >= FRONT_HEAD_WAIT);
    assert_eq!(half_body.answer().status, 408);
    assert!(begun.elapsed() >= FRONT_BODY_WAIT);
}

#[test]
fn who_announces_much_holds_nobody_up() {
    let stand = Stand::start(|settings| settings.body_bytes_max = MESSAGE_BYTES_MAX as u64);
    let begun = Instant::now();
    let mut stuck = Vec::new();
    for header in [("transfer-encoding", "chunked"), ("content-length", "67108864")] {
        let mut peer = stand.peer();
        let head = peer.head_text("POST /mcp", &[header]);
        peer.stream.write_all(format!("{head}1").as_bytes()).unwrap();
        stuck.push(peer);
    }
    let mut peer = stand.peer();
    let name = peer.open();
    assert_eq!(peer.post(&name, &call(1, "echo")).status, 200);
    let large = "x".repeat(MESSAGE_BYTES_MAX / 2);
    let large = format!(r#"{{"id":2,"method":"echo","params":"{large}"}}"#);
    assert_eq!(peer.post(&name, &large).status, 200);
    assert!(begun.elapsed() < FRONT_BODY_WAIT, "they waited for others");
}

#[test]
fn half_bodies_make_room_for_whole_ones() {
    let stand = Stand::start(|settings| settings.body_bytes_max = MESSAGE_BYTES_MAX as u64);
    let mut peer = stand.peer();
    let name = peer.open();
    let half = vec![b'x'; MESSAGE_BYTES_MAX / 4 * 3];
    let mut stuck = stand.peer();
    let head = stuck.head_text("POST /mcp", &[("content-length", "67108864")]);
    stuck.stream.write_all(head.as_bytes()).unwrap();
    stuck.stream.write_all(&half).unwrap();
    let begun = Instant::now();
    // Small ones do not notice; a large one waits until it is seen that the other does not go on.
    assert_eq!(peer.post(&name, &call(1, "echo")).status, 200);
    let large = "x".repeat(MESSAGE_BYTES_MAX / 2);
    let large = format!(r#"{{"id":2,"method":"echo","params":"{large}"}}"#);
    assert_eq!(peer.post(&name, &large).status, 200);
    assert!(begun.elapsed() < FRONT_BODY_WAIT, "it waited for the end of the other");
    let refused = stuck.answer();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    assert!(refused.body.contains("no room"), "{refused:?}");
}

#[test]
fn a_flood_is_turned_away_and_others_are_served() {
    let stand = Stand::start(|settings| settings.requests_per_second = Some(20));
    let (mut flood, mut peer) = (stand.peer(), stand.peer());
    let (name, other) = (flood.open(), peer.open());
    for _ in 0..3 {
        // One after the other without waiting for answers, as fast as they are taken.
        let one = flood.request("POST /mcp", &[("mcp-session-id", &name)], &call(1, "echo"));
        flood.stream.write_all(one.repeat(300).as_bytes()).unwrap();
        let statuses: Vec<u16> = (0..300).map(|_| flood.answer().status).collect();
        assert!(statuses.contains(&429), "{statuses:?}");
        assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
        assert_eq!(peer.post(&other, &call(1, "echo")).status, 200);
    }
}

#[test]
fn who_does_not_read_is_dropped_and_said_once() {
    let stand = Stand::start(|_| {});
    let mut peer = stand.peer();
    let name = peer.open();
    let client = stand.joined();
    let long = format!(r#"{{"method":"{}"}}"#, "x".repeat(256 * 1024));
    for round in 0..2 {
        let mut slow = stand.peer();
        slow.send("GET /mcp", &[("mcp-session-id", &name)], "");
        assert_eq!(slow.head().status, 200);
        // More than we and both kernels hold, whatever they hold.
        for _ in 0..200 {
            stand.tell(client, &long, None);
        }
        let answer = stand.peer().post(&name, &call(1, "echo"));
        assert_eq!(answer.status, 200, "nobody else waits");
        if round == 0 {
            wait_for("the log", || stand.log().contains("does not read"));
        }
        let mut read = Vec::new();
        // What was on its way, and then a connection that is cut off.
        slow.stream.read_to_end(&mut read).ok();
        assert!(!read.ends_with(b"0\r\n\r\n"), "it is not told that this was all");
    }
    let mut again = stand.peer();
    again.send("GET /mcp", &[("mcp-session-id", &name)], "");
    stand.tell(client, r#"{"method":"after"}"#, None);
    assert_eq!(again.head().status, 200);
    while !again.event().contains("after") {}
    assert_eq!(stand.log().matches("does not read").count(), 1, "{}", stand.log());
}

#[test]
fn where_all_sessions_are_in_use_one_more_is_refused() {
    let stand = Stand::start(|settings| settings.clients_max = 1);
    let (mut peer, mut listener) = (stand.peer(), stand.peer());
    let name = peer.open();
    listener.send("GET /mcp", &[("mcp-session-id", &name)], "");
    assert_eq!(listener.head().status, 200);
    let full = peer.ask("POST /mcp", &[], &call(0, "initialize"));
    assert_eq!((full.status, full.header("retry-after")), (503, Some("1")));
}

#[test]
fn a_thousand_sessions() {
    let stand = Stand::start(|settings| settings.clients_max = 1_000);
    let mut peer = stand.peer();
    let mut names: Vec<String> = (0..1_001).map(|_| peer.open()).collect();
    let oldest = names.remove(0);
    assert_eq!(peer.post(&oldest, &call(1, "echo")).status, 404, "it made room for the last");
    let clients: Vec<ClientId> = (0..1_001).map(|_| stand.joined()).skip(1).collect();
    let mut listeners = Vec::new();
    for name in names.iter().take(100) {
        let mut listener = stand.peer();
        listener.send("GET /mcp", &[("mcp-session-id", name)], "");
        assert_eq!(listener.head().status, 200);
        listener.event();
        listeners.push(listener);
    }
    for client in clients {
        stand.tell(client, &format!(r#"{{"method":"for {}"}}"#, client.0), None);
    }
    for (number, listener) in listeners.iter_mut().enumerate() {
        let event = listener.event();
        assert!(event.contains(&format!("\"for {}\"", number + 2)), "{event}");
    }
    for name in &names {
        assert_eq!(peer.post(name, &call(1, "echo")).status, 200);
    }
    let ended = peer.ask("DELETE /mcp", &[("mcp-session-id", &names[0])], "");
    assert_eq!(ended.status, 204);
    peer.open();
}

#[test]
fn at_the_end_everybody_is_told_in_time() {
    let stand = Stand::start(|_| {});
    let mut peer = stand.peer();
    let name = peer.open();
    let client = stand.joined();
    let mut listener = stand.peer();
    listener.send("GET /mcp", &[("mcp-session-id", &name)], "");
    assert_eq!(listener.head().status, 200);
    listener.event();
    let mut stuck = stand.peer();
    stuck.send_post(&name, &call(9, "hold"));
    let mut half = stand.peer();
    half.stream.write_all(b"POST /mcp HTTP/1.1\r\n").unwrap();
    peer.send_post(&name, &call(1, "hold"));
    stand.wait_said(client, 3);
    let took = stand.close();
    assert_eq!(peer.answer().status, 503);
    assert_eq!(stuck.answer().status, 503);
    assert_eq!(listener.event(), "");
    assert_eq!(half.stream.read(&mut [0; 64]).unwrap_or(0), 0);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn an_answer_that_takes_long_begins_as_a_stream() {
    let stand = Stand::start(|settings| settings.session_idle = Duration::from_secs(3));
    let mut peer = stand.peer();
    let name = peer.open();
    let client = stand.joined();
    let mut idle = stand.peer();
    let gone = idle.open();
    peer.send_post(&name, &call(1, "hold"));
    let head = peer.head();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert!(peer.event().starts_with("id: 2-0\n"));
    stand.tell(client, r#"{"id":1,"result":{}}"#, Some(1));
    assert!(peer.event().contains("result"));
    assert_eq!(peer.event(), "");
    // Meanwhile the other one was not used, and this one was.
    assert_eq!(idle.post(&gone, &call(1, "echo")).status, 404);
    assert_eq!(peer.post(&name, &call(2, "echo")).status, 200);
}

#[test]
fn garbage_ends_with_its_connection() {
    let stand = Stand::start(|settings| settings.clients_max = 10_000);
    let mut peer = stand.peer();
    let name = peer.open();
    let session = [("mcp-session-id", name.as_str())];
    let seeds = [
        peer.request("POST /mcp", &session, &call(1, "notes")),
        peer.request("GET /mcp", &session, ""),
        peer.request("POST /mcp", &[], &call(0, "initialize")),
        peer.head_text("POST /", &[("transfer-encoding", "chunked")]) + "5\r\n{\"id\"\r\n0\r\n\r\n",
    ];
    let mut seed = 3_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for round in 0..1_000 {
        let mut bytes = seeds[round % seeds.len()].clone().into_bytes();
        for _ in 0..=random(5) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = [b'\r', b'\n', b':', b' ', 0, 0xff, b'9', b'{'][random(8)],
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, [b'\r', b'\n', b':', b' ', 0, 0xff, b'9', b'{'][random(8)]),
            }
        }
        let mut odd = stand.peer();
        odd.stream.write_all(&bytes).ok();
        odd.stream.shutdown(std::net::Shutdown::Write).ok();
        odd.stream.read_to_end(&mut Vec::new()).ok();
    }
    assert_eq!(peer.post(&name, &call(2, "echo")).status, 200);
}
