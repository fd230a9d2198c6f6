//! Who is refused, by head and by body.

use super::*;
use crate::gateway::access_patterns::Access;
use crate::gateway::http::tests::{id, settings};
use crate::gateway::settings::SettingsError;
use crate::limits::FRONT_BATCH_MAX;

/// A request that is let in.
fn post() -> Head<'static> {
    Head {
        method: "POST",
        path: "/mcp",
        caller: Caller {
            host: Some("localhost:8808"),
            origin: None,
            authorization: Some("Bearer first-secret"),
        },
        content_type: Some("application/json; charset=utf-8"),
        accept: Some("application/json, text/event-stream"),
        ..Head::default()
    }
}

fn status(head: Head<'_>) -> u16 {
    match Gate::new(&settings(), 8808).admit(&head) {
        Ok(_) => 200,
        Err(refusal) => refusal.status,
    }
}

#[test]
fn a_port_for_others_needs_a_token() {
    let open = |listen: &str| {
        let settings =
            FrontSettings { http: Some(listen.parse().unwrap()), tokens: Vec::new(), ..settings() };
        settings.check().map_err(|error| error.to_string())
    };
    for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
        assert_eq!(open(listen), Ok(()));
    }
    for listen in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
        assert!(open(listen).unwrap_err().contains("there is no token"), "{listen}");
        let with = FrontSettings { http: Some(listen.parse().unwrap()), ..settings() };
        assert_eq!(with.check(), Ok(()));
    }
    for bad in ["", "with blank", "späte"] {
        let tokens = vec![Token {
            secret: bad.to_owned(),
            access: Access { name: "n".to_owned(), ..Access::default() },
        }];
        let error = FrontSettings { tokens, ..settings() }.check().unwrap_err();
        assert_eq!(error, SettingsError::Token("n".to_owned()));
    }
    let shown = format!("{:?} {:?}", settings(), Gate::new(&settings(), 1));
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn over_a_socket_every_host_is_admitted_and_configured_tokens_still_count() {
    let http = Some("unix:/run/gateway.sock".parse().unwrap());
    let mut settings = FrontSettings { http, ..settings() };
    assert_eq!(settings.check(), Ok(()));
    let head = |authorization| Head {
        caller: Caller { host: Some("anything"), origin: None, authorization },
        ..post()
    };
    let admits = |settings: &FrontSettings, authorization| {
        let gate = Gate::new(settings, 0).renewed(settings);
        gate.admit(&head(authorization)).map_err(|refusal| refusal.status)
    };
    assert_eq!(admits(&settings, None), Err(401));
    assert_eq!(admits(&settings, Some("Bearer first-secret")), Ok(Admitted::Post(Some(0))));
    settings.tokens.clear();
    assert_eq!(settings.check(), Ok(()));
    assert_eq!(admits(&settings, None), Ok(Admitted::Post(None)));
}

#[test]
fn the_name_of_a_token_that_is_known_is_told() {
    let gate = Gate::new(&settings(), 8808);
    for (authorization, name) in [
        (Some("Bearer other-secret"), Some("two")),
        (Some("Bearer other-secre"), None),
        (Some("other-secret"), None),
        (None, None),
    ] {
        assert_eq!(gate.token_name(authorization).as_deref(), name, "{authorization:?}");
    }
}

#[test]
fn hosts_and_origins_are_ours_or_allowed() {
    let host = |host| {
        let caller = Caller { host, ..post().caller };
        status(Head { caller, ..post() })
    };
    for good in [
        "localhost:8808",
        "127.0.0.1:8808",
        "[::1]:8808",
        "mcp.example",
        "MCP.example:443",
        "other.example:8443",
    ] {
        assert_eq!(host(Some(good)), 200, "{good}");
    }
    for bad in [
        "",
        "localhost",
        "localhost:1",
        "evil.example",
        "other.example",
        "other.example:1",
        "mcp.example.evil.example",
        "evil.example:8808",
        "[::1]",
        "x.mcp.example",
    ] {
        assert_eq!(host(Some(bad)), 403, "{bad}");
    }
    assert_eq!(host(None), 403);
    let origin = |host, origin| {
        let caller = Caller { host: Some(host), origin: Some(origin), ..post().caller };
        status(Head { caller, ..post() })
    };
    let local = "localhost:8808";
    assert_eq!(origin(local, Some("http://localhost:8808")), 200);
    assert_eq!(origin(local, Some("https://Chat.example")), 200);
    assert_eq!(origin("mcp.example", Some("https://mcp.example")), 200);
    for bad in
        ["null", "", "https://localhost:8808", "http://localhost:1", "https://chat.example.x"]
    {
        assert_eq!(origin(local, Some(bad)), 403, "{bad}");
    }
    assert_eq!(origin(local, None), 403);
    let everywhere = FrontSettings { http: Some("0.0.0.0:0".parse().unwrap()), ..settings() };
    let caller = Caller { host: Some("0.0.0.0:8808"), ..post().caller };
    let refused = Gate::new(&everywhere, 8808).admit(&Head { caller, ..post() });
    assert_eq!(refused.unwrap_err().status, 403);
}

#[test]
fn tokens_are_told_apart() {
    let with = |authorization| {
        let caller = Caller { authorization, ..post().caller };
        let admitted = Gate::new(&settings(), 8808).admit(&Head { caller, ..post() });
        admitted.map_err(|refusal| refusal.status)
    };
    assert_eq!(with(Some("Bearer first-secret")), Ok(Admitted::Post(Some(0))));
    assert_eq!(with(Some("bearer other-secret ")), Ok(Admitted::Post(Some(1))));
    for bad in ["", "Bearer", "Bearer ", "Basic first-secret", "Bearer first-secre", "first-secret"]
    {
        assert_eq!(with(Some(bad)), Err(401), "{bad}");
    }
    assert_eq!(with(None), Err(401));
    let free = FrontSettings { tokens: Vec::new(), ..settings() };
    let caller = Caller { authorization: None, ..post().caller };
    let admitted = Gate::new(&free, 8808).admit(&Head { caller, ..post() });
    assert_eq!(admitted, Ok(Admitted::Post(None)));
}

#[test]
fn what_is_asked_and_brought_is_looked_at() {
    assert_eq!(status(post()), 200);
    assert_eq!(status(Head { path: "/", ..post() }), 200);
    assert_eq!(status(Head { path: "/mcp/x", ..post() }), 404);
    for content_type in [None, Some("text/plain"), Some("application/jsonx")] {
        assert_eq!(status(Head { content_type, ..post() }), 415, "{content_type:?}");
    }
    for accept in [None, Some("*/*"), Some("text/*;q=0.1,APPLICATION/json")] {
        assert_eq!(status(Head { accept, ..post() }), 200, "{accept:?}");
    }
    for accept in ["application/json", "text/event-stream", "text/html", ""] {
        assert_eq!(status(Head { accept: Some(accept), ..post() }), 406, "{accept}");
    }
    assert_eq!(status(Head { content_length: Some(1_000), ..post() }), 200);
    assert_eq!(status(Head { content_length: Some(1_001), ..post() }), 413);
    for method in ["PUT", "PATCH", "HEAD", "post"] {
        assert_eq!(status(Head { method, ..post() }), 405, "{method}");
    }
    let get = Head { method: "GET", accept: Some("text/event-stream"), ..post() };
    assert_eq!(status(get), 200);
    assert_eq!(status(Head { accept: Some("application/json"), ..get }), 406);
    for method in ["GET", "DELETE"] {
        let modern = Head { method, version: Some("2026-07-28"), ..get };
        let refusal = Gate::new(&settings(), 8808).admit(&modern).unwrap_err();
        assert_eq!((refusal.status, refusal.allow), (405, Some("POST")));
    }
    // Whoever watches over us has neither name nor token.
    let bare = Head { method: "GET", path: "/health", ..Head::default() };
    assert_eq!(Gate::new(&settings(), 8808).admit(&bare), Ok(Admitted::Health));
    assert_eq!(status(Head { method: "POST", ..bare }), 405);
    // A browser asks without a token whether a page may ask.
    let caller =
        Caller { origin: Some(Some("https://chat.example")), authorization: None, ..post().caller };
    let preflight = Head { method: "OPTIONS", caller, ..post() };
    assert_eq!(Gate::new(&settings(), 8808).admit(&preflight), Ok(Admitted::Preflight));
    let evil = Caller { origin: Some(Some("https://evil.example")), ..caller };
    assert_eq!(status(Head { caller: evil, ..preflight }), 403);
}

fn look(head: Head<'_>, body: &str) -> Result<PostBody, (u16, i64)> {
    let mut line = body.as_bytes().to_vec();
    let found = PostBody::look(&head, &mut line);
    assert!(!line.contains(&b'\n') && line.len() == body.len());
    found.map_err(|refusal| (refusal.status, refusal.code))
}

#[test]
fn bodies_of_a_session() {
    let none = post();
    let with = Head { session: Some("x"), ..post() };
    let call = r#"{"jsonrpc":"2.0",
        "id":1,"method":"tools/call"}"#;
    assert_eq!(look(with, call), Ok(PostBody::one(vec![id("1")])));
    assert_eq!(look(none, call), Err((400, -32600)));
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        assert!(look(Head { version: Some(version), ..with }, call).is_ok());
    }
    for version in ["", "2025-01-01", "latest", "2026-07-2"] {
        let refused = look(Head { version: Some(version), ..with }, call);
        assert_eq!(refused, Err((400, -32600)), "{version}");
    }
    let opening = r#"{"id":"a","method":"initialize","params":{}}"#;
    assert_eq!(look(none, opening), Ok(PostBody::Initialize(id("\"a\""))));
    for quiet in
        [r#"{"method":"notifications/x"}"#, r#"{"id":1,"result":{}}"#, r#"{"id":2,"error":{}}"#]
    {
        assert_eq!(look(with, quiet), Ok(PostBody::one(Vec::new())));
        assert_eq!(look(none, quiet), Err((400, -32600)));
    }
    let batch =
        r#"[{"id":1,"method":"a"},{"method":"n"},{"id":2,"method":"b"},{"id":9,"result":1}]"#;
    assert_eq!(look(with, batch), Ok(PostBody::Session { ids: vec![id("1"), id("2")], count: 4 }));
    for bad in [
        "[]",
        "[1]",
        "[[]]",
        r#"[{"id":1,"method":"a"},{"id":1,"method":"a"}]"#,
        &format!("[{opening}]"),
    ] {
        assert_eq!(look(with, bad), Err((400, -32600)), "{bad}");
    }
    let long = |count: usize| format!("[{}]", vec![r#"{"method":"n"}"#; count].join(","));
    assert_eq!(
        look(with, &long(FRONT_BATCH_MAX)),
        Ok(PostBody::Session {
            ids: Vec::new(),
            count: u32::try_from(FRONT_BATCH_MAX).expect("few")
        })
    );
    assert_eq!(look(with, &long(FRONT_BATCH_MAX + 1)), Err((413, -32600)));
    for (bad, code) in
        [("", -32700), ("{", -32700), ("hello", -32700), ("{}", -32600), ("7", -32600)]
    {
        assert_eq!(look(with, bad), Err((400, code)), "{bad}");
    }
    assert_eq!(look(with, r#"{"id":true,"method":"x"}"#), Err((400, -32600)));
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn modern(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}{META}}}}}"#)
}

#[test]
fn headers_of_the_modern_era_say_what_the_body_says() {
    let head = Head { version: Some("2026-07-28"), mcp_method: Some("tools/list"), ..post() };
    let list = modern("tools/list", "");
    let found = Ok(PostBody::Modern(id("7")));
    assert_eq!(look(head, &list), found);
    assert_eq!(look(Head { session: Some("old"), ..head }, &list), found);
    let mismatch = Err((400, -32020));
    assert_eq!(look(Head { version: None, ..head }, &list), mismatch);
    assert_eq!(look(Head { version: Some("2025-11-25"), ..head }, &list), mismatch);
    assert_eq!(look(Head { mcp_method: None, ..head }, &list), mismatch);
    assert_eq!(look(Head { mcp_method: Some("tools/List"), ..head }, &list), mismatch);
    // A version that nobody knows yet is for the hub to refuse.
    let newer = list.replace("2026-07-28", "2027-01-01");
    assert_eq!(look(Head { version: Some("2027-01-01"), ..head }, &newer), found);
    let bare = r#"{"id":7,"method":"tools/list","params":{}}"#;
    assert_eq!(look(head, bare), Err((400, -32602)));
    let no_capabilities = list.replace("clientCapabilities", "clientInfo");
    assert_eq!(look(head, &no_capabilities), Err((400, -32602)));
    assert_eq!(look(head, r#"{"method":"notifications/cancelled"}"#), Ok(PostBody::Nothing));
    for bad in [r#"{"id":1,"result":{}}"#, r#"[{"id":1,"method":"a"}]"#] {
        assert_eq!(look(head, bad), Err((400, -32600)));
    }
    for (method, key) in
        [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")]
    {
        let head = Head { mcp_method: Some(method), ..head };
        let body = modern(method, &format!(r#""{key}":"a/b\u00e9","#));
        assert_eq!(look(head, &body), mismatch, "{method}");
        assert_eq!(look(Head { mcp_name: Some("a/b"), ..head }, &body), mismatch);
        assert_eq!(look(Head { mcp_name: Some("=?base64?YS9i?="), ..head }, &body), mismatch);
        assert_eq!(look(Head { mcp_name: Some("=?base64?YS9iw6k?="), ..head }, &body), mismatch);
        assert_eq!(look(Head { mcp_name: Some("=?base64?YS9iw6k=?="), ..head }, &body), found);
        let nameless = modern(method, "");
        assert_eq!(look(head, &nameless), found, "who wants a name says so");
        assert_eq!(look(Head { mcp_name: Some("a"), ..head }, &nameless), mismatch);
    }
    // What a client of a session says in `_meta` does not make it another.
    let odd = list.replace("2026-07-28", "2025-11-25");
    let session = Head { version: Some("2025-11-25"), session: Some("x"), ..head };
    assert_eq!(look(session, &odd), Ok(PostBody::one(vec![id("7")])));
}

#[test]
fn no_body_and_no_header_makes_it_panic() {
    let mut seed = 11_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let bodies = [
        modern("tools/call", r#""name":"x","#),
        modern("resources/read", r#""uri":"file:///é","#),
        r#"[{"id":1,"method":"a"},{"id":"2","method":"b"},{"method":"c"}]"#.to_owned(),
    ];
    let words =
        ["", "x", "2026-07-28", "2025-11-25", "=?base64?eA==?=", "=?base64??=", "tools/call"];
    let hosts = ["", ":", "]", "[", "[::1]:8808", "localhost:8808", "é:1", "::::", "://"];
    let gate = Gate::new(&settings(), 8808);
    let mut found = [0; 2];
    for round in 0..100_000 {
        let mut body = bodies[round % bodies.len()].clone().into_bytes();
        for _ in 0..random(4) {
            let at = random(body.len());
            match random(3) {
                0 => body[at] = b"{}[]\",:\\ 0a\n"[random(12)],
                1 => body.truncate(at.max(1)),
                _ => body.insert(at, b"{}[]\",:\\ 0a\n"[random(12)]),
            }
        }
        let mut word = || Some(words[random(words.len())]).filter(|word| !word.is_empty());
        let head = Head {
            session: word(),
            version: word(),
            mcp_method: word(),
            mcp_name: word(),
            last_event: word(),
            accept: word(),
            content_type: word(),
            ..post()
        };
        found[usize::from(PostBody::look(&head, &mut body).is_ok())] += 1;
        let mut host = || hosts[random(hosts.len())];
        let caller =
            Caller { host: Some(host()), origin: Some(Some(host())), authorization: Some(host()) };
        assert!(gate.admit(&Head { caller, ..head }).is_err());
    }
    assert!(found.iter().all(|count| *count > 1_000), "{found:?}");
}

#[test]
fn base64_is_read_as_the_specification_has_it() {
    for (text, value) in [
        ("SGVsbG8sIOS4lueVjA==", "Hello, 世界"),
        ("IHBhZGRlZCA=", " padded "),
        ("bGluZTEKbGluZTI=", "line1\nline2"),
        ("PT9iYXNlNjQ/bGl0ZXJhbD89", "=?base64?literal?="),
        ("", ""),
    ] {
        assert_eq!(decoded(&format!("=?base64?{text}?=")).unwrap(), value);
    }
    for bad in ["a", "ab", "abc", "a===", "ab=c", "a b=", "QQ=", "QR==", "=", "====", "/////w=="] {
        assert!(decoded(&format!("=?base64?{bad}?=")).is_err(), "{bad}");
    }
    assert_eq!(decoded("=?BASE64?QQ==?=").unwrap(), "=?BASE64?QQ==?=");
}
