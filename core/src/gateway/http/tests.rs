//! Who is refused, and which message goes where.

use std::time::Duration;

use super::*;
use crate::control::access::Caller;
use crate::gateway::ClientId;
use crate::limits::*;
use crate::mcp::envelope::Id;
use crate::time::Time;

fn settings() -> Settings {
    Settings {
        listen: "127.0.0.1:8808".parse().unwrap(),
        allowed_hosts: vec!["mcp.example".to_owned(), "Other.example:8443".to_owned()],
        allowed_origins: vec!["https://chat.example".to_owned()],
        tokens: vec![
            ("first-secret".to_owned(), Access { name: "one".to_owned(), ..Access::default() }),
            ("other-secret".to_owned(), Access { name: "two".to_owned(), ..Access::default() }),
        ],
        clients_max: 3,
        body_bytes_max: 1_000,
        requests_per_second: None,
        session_idle: Duration::from_secs(60),
    }
}

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
            Settings { listen: listen.parse().unwrap(), tokens: Vec::new(), ..settings() };
        settings.check().map_err(|error| error.to_string())
    };
    for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
        assert_eq!(open(listen), Ok(()));
    }
    for listen in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
        assert!(open(listen).unwrap_err().contains("there is no token"), "{listen}");
        let with = Settings { listen: listen.parse().unwrap(), ..settings() };
        assert_eq!(with.check(), Ok(()));
    }
    for bad in ["", "with blank", "späte"] {
        let tokens = vec![(bad.to_owned(), Access { name: "n".to_owned(), ..Access::default() })];
        let error = Settings { tokens, ..settings() }.check().unwrap_err();
        assert_eq!(error, SettingsError::Token("n".to_owned()));
    }
    let shown = format!("{:?} {:?}", settings(), Gate::new(&settings(), 1));
    assert!(!shown.contains("secret"), "{shown}");
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
    let everywhere = Settings { listen: "0.0.0.0:0".parse().unwrap(), ..settings() };
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
    let free = Settings { tokens: Vec::new(), ..settings() };
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

fn look(head: Head<'_>, body: &str) -> Result<Post, (u16, i64)> {
    let mut line = body.as_bytes().to_vec();
    let found = Post::look(&head, &mut line);
    assert!(!line.contains(&b'\n') && line.len() == body.len());
    found.map_err(|refusal| (refusal.status, refusal.code))
}

fn id(raw: &str) -> Id {
    Id::new(raw.as_bytes())
}

#[test]
fn bodies_of_a_session() {
    let none = post();
    let with = Head { session: Some("x"), ..post() };
    let call = r#"{"jsonrpc":"2.0",
        "id":1,"method":"tools/call"}"#;
    assert_eq!(look(with, call), Ok(Post::Session(vec![id("1")])));
    assert_eq!(look(none, call), Err((400, -32600)));
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        assert!(look(Head { version: Some(version), ..with }, call).is_ok());
    }
    for version in ["", "2025-01-01", "latest", "2026-07-2"] {
        let refused = look(Head { version: Some(version), ..with }, call);
        assert_eq!(refused, Err((400, -32600)), "{version}");
    }
    let opening = r#"{"id":"a","method":"initialize","params":{}}"#;
    assert_eq!(look(none, opening), Ok(Post::Initialize(id("\"a\""))));
    for quiet in
        [r#"{"method":"notifications/x"}"#, r#"{"id":1,"result":{}}"#, r#"{"id":2,"error":{}}"#]
    {
        assert_eq!(look(with, quiet), Ok(Post::Session(Vec::new())));
        assert_eq!(look(none, quiet), Err((400, -32600)));
    }
    let batch =
        r#"[{"id":1,"method":"a"},{"method":"n"},{"id":2,"method":"b"},{"id":9,"result":1}]"#;
    assert_eq!(look(with, batch), Ok(Post::Session(vec![id("1"), id("2")])));
    for bad in [
        "[]",
        "[1]",
        "[[]]",
        r#"[{"id":1,"method":"a"},{"id":1,"method":"a"}]"#,
        &format!("[{opening}]"),
    ] {
        assert_eq!(look(with, bad), Err((400, -32600)), "{bad}");
    }
    let long = format!("[{}]", vec![r#"{"method":"n"}"#; FRONT_BATCH_MAX + 1].join(","));
    assert_eq!(look(with, &long), Err((413, -32600)));
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
    let found = Ok(Post::Modern(id("7")));
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
    assert_eq!(look(head, r#"{"method":"notifications/cancelled"}"#), Ok(Post::Nothing));
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
    assert_eq!(look(session, &odd), Ok(Post::Session(vec![id("7")])));
}

/// A front, and what it is told.
struct World {
    front: Front,
    now: Time,
    exchange: u64,
}

impl World {
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        Self { front: Front::new(&settings), now: Time::ZERO, exchange: 0 }
    }

    fn ask_as(&mut self, token: usize, session: Option<&str>, ask: Ask) -> Vec<Effect> {
        self.exchange += 1;
        let asked = Asked {
            exchange: Exchange(self.exchange),
            token: Some(token),
            peer: "127.0.0.1".parse().unwrap(),
            session: session.map(str::to_owned),
            primes: true,
            ask,
        };
        self.front.handle(self.now, Input::Asked(asked))
    }

    fn post(&mut self, session: Option<&str>, post: Post) -> Vec<Effect> {
        let new = SessionId([self.exchange as u8; 16]);
        self.ask_as(0, session, Ask::Post { line: b"{}".to_vec(), post, new })
    }

    fn get(&mut self, session: &str, last_event: Option<&str>) -> Vec<Effect> {
        let last_event = last_event.map(str::to_owned);
        self.ask_as(0, Some(session), Ask::Get { last_event })
    }

    fn tell(&mut self, client: u64, line: &str, about: Option<&str>) -> Vec<Effect> {
        let (client, line) = (ClientId(client), line.as_bytes().to_vec());
        self.front.handle(self.now, Input::Told { client, line, about: about.map(id) })
    }

    fn gone(&mut self, exchange: u64) -> Vec<Effect> {
        self.front.handle(self.now, Input::Gone(Exchange(exchange)))
    }

    /// A session that is open: its name and its client.
    fn session(&mut self) -> (String, u64) {
        let begun = self.post(None, Post::Initialize(id("0")));
        let [Effect::Joined { client, .. }, Effect::Said { .. }] = &begun[..] else {
            panic!("{begun:?}")
        };
        let client = client.0;
        let opened = self.tell(client, r#"{"id":0,"result":{}}"#, Some("0"));
        let [Effect::Answer { status: 200, session: Some(name), .. }] = &opened[..] else {
            panic!("{opened:?}")
        };
        (name.to_string(), client)
    }

    fn pass(&mut self, time: Duration) -> Vec<Effect> {
        self.now = self.now + time;
        self.front.handle(self.now, Input::Wakeup)
    }
}

fn refused(effects: &[Effect]) -> Option<u16> {
    match effects {
        [Effect::Refuse { refusal, .. }] => Some(refusal.status),
        _ => None,
    }
}

/// What is written to an exchange.
fn written(effects: &[Effect], to: u64) -> String {
    let texts = effects.iter().filter_map(|effect| match effect {
        Effect::Write { exchange, event } if exchange.0 == to => {
            Some(String::from_utf8_lossy(event))
        }
        _ => None,
    });
    texts.collect()
}

fn event_text(id: &str, line: &str) -> String {
    format!("id: {id}\nevent: message\ndata: {line}\n\n")
}

const NOTE: &str = r#"{"method":"notifications/progress"}"#;

#[test]
fn an_answer_alone_is_json_and_another_is_a_stream() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    let said = world.post(Some(&name), Post::Session(vec![id("1")]));
    assert_eq!(said, [Effect::Said { client: ClientId(client), line: b"{}".to_vec() }]);
    let answer = r#"{"id":1,"result":{}}"#;
    let (exchange, body) = (Exchange(2), Some(answer.as_bytes().to_vec()));
    let told = world.tell(client, answer, Some("1"));
    assert_eq!(told, [Effect::Answer { exchange, status: 200, session: None, body }]);
    assert_eq!(world.tell(client, answer, Some("1")), [], "it is answered once");

    world.post(Some(&name), Post::Session(vec![id("2")]));
    let begun = world.tell(client, NOTE, Some("2"));
    assert_eq!(begun[0], Effect::Begin { exchange: Exchange(3), session: None });
    let wanted = format!("id: 3-0\nretry: 1000\ndata: \n\n{}", event_text("3-1", NOTE));
    assert_eq!(written(&begun, 3), wanted);
    let ended = world.tell(client, r#"{"id":2,"result":{}}"#, None);
    assert_eq!(written(&ended, 3), event_text("3-2", r#"{"id":2,"result":{}}"#));
    assert_eq!(ended.last(), Some(&Effect::End { exchange: Exchange(3) }));
    // Nothing is kept that nobody can ask for.
    let said = world.post(Some(&name), Post::Session(Vec::new()));
    assert!(matches!(said[..], [Effect::Answer { status: 202, .. }, Effect::Said { .. }]));
}

#[test]
fn a_batch_is_answered_when_all_of_it_is() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    world.post(Some(&name), Post::Session(vec![id("1"), id("2")]));
    let first = world.tell(client, r#"{"id":2,"result":{}}"#, Some("2"));
    assert!(matches!(first[0], Effect::Begin { .. }), "{first:?}");
    let last = world.tell(client, r#"{"id":1,"result":{}}"#, Some("1"));
    assert_eq!(last.last(), Some(&Effect::End { exchange: Exchange(2) }));
    world.post(Some(&name), Post::Session(vec![id("1"), id("2")]));
    let whole = world.tell(client, r#"[{"id":1,"result":{}},{"id":2,"error":{}}]"#, None);
    assert!(matches!(whole[..], [Effect::Answer { status: 200, .. }]), "{whole:?}");
}

#[test]
fn a_broken_stream_goes_on_where_it_was() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    world.post(Some(&name), Post::Session(vec![id("1")]));
    world.tell(client, NOTE, Some("1"));
    world.tell(client, NOTE, Some("1"));
    assert_eq!(world.gone(2), [], "who goes does not cancel");
    assert_eq!(world.tell(client, NOTE, Some("1")), []);
    let resumed = world.get(&name, Some("2-1"));
    assert_eq!(written(&resumed, 3), event_text("2-2", NOTE) + &event_text("2-3", NOTE));
    world.gone(3);
    let answer = r#"{"id":1,"result":{}}"#;
    assert_eq!(world.tell(client, answer, Some("1")), []);
    for _ in 0..2 {
        let resumed = world.get(&name, Some("2-3"));
        assert_eq!(written(&resumed, world.exchange), event_text("2-4", answer));
        assert!(matches!(resumed.last(), Some(Effect::End { .. })), "{resumed:?}");
    }
    for unknown in ["9-1", "x", "", "2", "2-", "-1-1", "2-1-1"] {
        assert_eq!(refused(&world.get(&name, Some(unknown))), Some(400), "{unknown}");
    }
    // Without an event there is nothing to resume.
    world.post(Some(&name), Post::Session(vec![id("5")]));
    assert_eq!(refused(&world.get(&name, Some("3-0"))), Some(400));
    world.exchange -= 1;
    world.gone(world.exchange);
    assert_eq!(world.tell(client, r#"{"id":5,"result":{}}"#, Some("5")), []);
}

#[test]
fn what_is_about_nothing_waits_for_the_stream_of_the_session() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    assert_eq!(world.tell(client, "{\"method\":\"a\"}", None), []);
    assert_eq!(world.tell(client, "{\"method\":\"b\"}", Some("77")), []);
    let got = world.get(&name, None);
    let first = event_text("0-1", "{\"method\":\"a\"}") + &event_text("0-2", "{\"method\":\"b\"}");
    assert_eq!(written(&got, 2), format!("id: 0-0\nretry: 1000\ndata: \n\n{first}"));
    let told = world.tell(client, "{\"method\":\n\"c\"}", None);
    assert_eq!(written(&told, 2), event_text("0-3", "{\"method\": \"c\"}"));
    // A second one takes its place, and gets nothing twice.
    let got = world.get(&name, None);
    assert_eq!(got[0], Effect::End { exchange: Exchange(2) });
    assert_eq!(written(&got, 3), "id: 0-3\nretry: 1000\ndata: \n\n");
    assert_eq!(world.gone(2), []);
    assert_eq!(written(&world.tell(client, NOTE, None), 3), event_text("0-4", NOTE));
    world.gone(3);
    let got = world.get(&name, Some("0-1"));
    assert_eq!(written(&got, 4).matches("event: message").count(), 3);
}

#[test]
fn sessions_are_for_those_who_opened_them() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    let call = || Ask::Post {
        line: Vec::new(),
        post: Post::Session(vec![id("1")]),
        new: SessionId([9; 16]),
    };
    assert_eq!(refused(&world.ask_as(1, Some(&name), call())), Some(404));
    assert_eq!(refused(&world.ask_as(1, Some(&name), Ask::Delete)), Some(404));
    for unknown in ["", "x", &"0f".repeat(16), &"é".repeat(16), &name[1..]] {
        assert_eq!(refused(&world.ask_as(0, Some(unknown), call())), Some(404), "{unknown}");
        assert_eq!(refused(&world.get(unknown, None)), Some(404));
        assert_eq!(refused(&world.post(Some(unknown), Post::Initialize(id("1")))), Some(404));
    }
    assert_eq!(refused(&world.ask_as(0, None, Ask::Delete)), Some(400));
    assert_eq!(refused(&world.ask_as(0, None, Ask::Get { last_event: None })), Some(400));
    assert_eq!(refused(&world.post(Some(&name), Post::Initialize(id("1")))), Some(400));
    // The same id twice at once.
    world.ask_as(0, Some(&name), call());
    assert_eq!(refused(&world.ask_as(0, Some(&name), call())), Some(400));
    let waiting = world.exchange - 1;
    world.get(&name, None);
    let listening = world.exchange;
    let ended = world.ask_as(0, Some(&name), Ask::Delete);
    assert!(matches!(ended[0], Effect::Answer { status: 204, .. }), "{ended:?}");
    assert!(ended.contains(&Effect::End { exchange: Exchange(listening) }));
    let is_told = |effect: &Effect| {
        matches!(effect, Effect::Refuse { exchange, refusal }
        if exchange.0 == waiting && refusal.status == 404)
    };
    assert!(ended.iter().any(is_told), "{ended:?}");
    assert_eq!(ended.last(), Some(&Effect::Left { client: ClientId(client) }));
    assert_eq!(refused(&world.ask_as(0, Some(&name), Ask::Delete)), Some(404));
    assert_eq!(world.front.clients(), 0);
}

#[test]
fn a_session_that_nobody_uses_ends() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    world.pass(Duration::from_secs(50));
    assert!(refused(&world.post(Some(&name), Post::Session(Vec::new()))).is_none());
    assert_eq!(world.pass(Duration::from_secs(50)), []);
    assert!(world.front.next_wakeup() > Some(world.now));
    // Who listens uses it.
    world.get(&name, None);
    assert_eq!(world.pass(Duration::from_secs(500)), []);
    world.gone(world.exchange);
    assert_eq!(world.pass(Duration::from_secs(59)), []);
    assert_eq!(world.pass(Duration::from_secs(1)), [Effect::Left { client: ClientId(client) }]);
    assert_eq!(world.front.next_wakeup(), None);
    assert_eq!(refused(&world.get(&name, None)), Some(404));
}

#[test]
fn a_session_that_was_not_opened_is_none() {
    let mut world = World::new(|_| {});
    world.post(None, Post::Initialize(id("0")));
    let failed = world.tell(1, r#"{"id":0,"error":{"code":-32603}}"#, Some("0"));
    let [Effect::Answer { session: None, .. }, Effect::Left { .. }] = &failed[..] else {
        panic!("{failed:?}")
    };
    world.post(None, Post::Initialize(id("0")));
    assert_eq!(world.gone(2), [Effect::Left { client: ClientId(2) }]);
    assert_eq!((world.front.clients(), world.front.next_wakeup()), (0, None));
}

#[test]
fn a_modern_request_is_a_client_of_its_own() {
    let mut world = World::new(|_| {});
    let joined = world.post(Some("whatever"), Post::Modern(id("1")));
    let Effect::Joined { access, .. } = &joined[0] else { panic!("{joined:?}") };
    assert_eq!(access.name, "one");
    let answered = world.tell(1, r#"{"id":1,"result":{}}"#, Some("1"));
    assert!(matches!(answered[..], [Effect::Answer { status: 200, .. }, Effect::Left { .. }]));
    // Some errors have a status of their own.
    for (code, status) in [("-32601", 404), ("-32022", 400), ("-32602", 200), ("-32603", 200)] {
        world.post(None, Post::Modern(id("1")));
        let line = format!(r#"{{"id":1,"error":{{"code":{code}}}}}"#);
        let client = world.front.last_client();
        match &world.tell(client, &line, None)[..] {
            [Effect::Answer { status: found, .. }, Effect::Left { .. }] => {
                assert_eq!(*found, status)
            }
            other => panic!("{other:?}"),
        }
    }
    // A subscription: no numbers, and whoever goes cancels.
    world.post(None, Post::Modern(id("1")));
    let (client, exchange) = (world.front.last_client(), world.exchange);
    let begun = world.tell(client, NOTE, None);
    assert!(matches!(begun[0], Effect::Begin { session: None, .. }));
    assert_eq!(written(&begun, exchange), format!("event: message\ndata: {NOTE}\n\n"));
    assert_eq!(world.gone(exchange), [Effect::Left { client: ClientId(client) }]);
    assert_eq!(world.tell(client, NOTE, None), []);
    // One that ends by itself.
    world.post(None, Post::Modern(id("1")));
    let client = world.front.last_client();
    world.tell(client, NOTE, None);
    let ended = world.tell(client, r#"{"id":1,"result":{}}"#, None);
    assert!(matches!(ended[1..], [Effect::End { .. }, Effect::Left { .. }]), "{ended:?}");
    assert!(matches!(world.post(None, Post::Nothing)[..], [Effect::Answer { status: 202, .. }]));
    assert_eq!(world.front.clients(), 0);
}

#[test]
fn an_answer_that_does_not_come_is_a_stream() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    world.post(Some(&name), Post::Session(vec![id("1")]));
    assert_eq!(world.front.next_wakeup(), Some(world.now + FRONT_QUIET_MAX));
    assert_eq!(world.pass(FRONT_QUIET_MAX - Duration::from_millis(1)), []);
    let begun = world.pass(Duration::from_millis(1));
    assert!(matches!(begun[..], [Effect::Begin { .. }, Effect::Write { .. }]), "{begun:?}");
    let ended = world.tell(client, r#"{"id":1,"result":{}}"#, Some("1"));
    assert!(matches!(ended[..], [Effect::Write { .. }, Effect::End { .. }]), "{ended:?}");
}

#[test]
fn bounds_are_kept() {
    let mut world = World::new(|settings| settings.requests_per_second = Some(2));
    let (name, _) = world.session();
    assert!(refused(&world.post(None, Post::Modern(id("1")))).is_none());
    assert_eq!(refused(&world.post(None, Post::Modern(id("1")))), Some(429), "by address");
    let other =
        Ask::Post { line: Vec::new(), post: Post::Modern(id("1")), new: SessionId([0; 16]) };
    assert!(refused(&world.ask_as(1, None, other)).is_none(), "by token");
    for wanted in [None, None, Some(429)] {
        assert_eq!(refused(&world.post(Some(&name), Post::Session(Vec::new()))), wanted);
    }
    world.pass(Duration::from_secs(1));
    let full = world.post(None, Post::Initialize(id("1")));
    assert_eq!(refused(&full), Some(503), "three are there: {full:?}");

    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    for n in 0..FRONT_REQUESTS_MAX {
        let asked = world.post(Some(&name), Post::Session(vec![id(&n.to_string())]));
        assert_eq!(refused(&asked), None);
    }
    assert_eq!(refused(&world.post(Some(&name), Post::Session(vec![id("-1")]))), Some(429));
    // What nobody takes is bounded, and the loss is said once.
    let (mut logs, line) = (0, format!(r#"{{"method":"{}"}}"#, "x".repeat(1_000)));
    for _ in 0..FRONT_KEPT_MAX * 2 {
        logs += world.tell(client, &line, None).len();
    }
    assert_eq!(logs, 1);
    let got = world.get(&name, None);
    let bytes = written(&got, world.exchange).len();
    assert!(bytes <= FRONT_KEPT_BYTES_MAX + 100 && bytes > FRONT_KEPT_BYTES_MAX / 2, "{bytes}");
}

#[test]
fn all_that_is_kept_is_bounded() {
    let mut world = World::new(|settings| settings.clients_max = 2_000);
    let answer = format!(r#"{{"id":1,"result":"{}"}}"#, "x".repeat(FRONT_KEPT_BYTES_MAX));
    let sessions: Vec<(String, u64)> = (0..1_500)
        .map(|n: u16| {
            let new = SessionId(std::array::from_fn(|at| n.to_be_bytes()[at % 2]));
            let opening = Ask::Post { line: Vec::new(), post: Post::Initialize(id("0")), new };
            world.ask_as(0, None, opening);
            let client = world.front.last_client();
            world.tell(client, r#"{"id":0,"result":{}}"#, None);
            (new.to_string(), client)
        })
        .collect();
    for (name, client) in &sessions {
        world.post(Some(name), Post::Session(vec![id("1")]));
        world.tell(*client, NOTE, Some("1"));
        world.tell(*client, &answer, Some("1"));
        assert!(world.front.kept_bytes() <= FRONT_KEPT_ALL_BYTES_MAX);
    }
    let (first, last) = (&sessions[0].0, &sessions[1_499].0);
    assert_eq!(refused(&world.get(first, Some("2-0"))), Some(400), "the oldest are forgotten");
    assert!(written(&world.get(last, Some("2-0")), world.exchange).len() > FRONT_KEPT_BYTES_MAX);
    for (_, client) in sessions {
        world.tell(client, &answer.replace("\"id\"", "\"x\"").replace("result", "method"), None);
    }
    assert!(
        world.front.kept_bytes() <= FRONT_KEPT_ALL_BYTES_MAX + 1_500 * (FRONT_KEPT_BYTES_MAX + 100)
    );
}

#[test]
fn who_does_not_read_is_said_once_and_can_come_back() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    for round in 0..2 {
        world.get(&name, None);
        let exchange = Exchange(world.exchange);
        let told = world.front.handle(world.now, Input::Slow(exchange));
        match (round, &told[..]) {
            (0, [Effect::Log(text)]) => assert!(text.contains("client 1 (`one`) does not read")),
            (1, []) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.tell(client, NOTE, None), []);
    assert!(written(&world.get(&name, None), world.exchange).contains("progress"));
}

#[test]
fn at_the_end_everybody_is_told() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    world.post(Some(&name), Post::Session(vec![id("1")]));
    world.get(&name, None);
    let closed = world.front.handle(world.now, Input::Close);
    let is_503 = |effect: &Effect| {
        matches!(effect, Effect::Refuse { exchange, refusal }
        if exchange.0 == 2 && refusal.status == 503 && refusal.body().starts_with(br#"{"jsonrpc":"2.0","id":1,"#))
    };
    assert!(closed.iter().any(is_503), "{closed:?}");
    assert!(closed.contains(&Effect::End { exchange: Exchange(3) }));
    assert_eq!(closed.last(), Some(&Effect::Left { client: ClientId(client) }));
}

#[test]
fn no_input_makes_it_panic_or_answer_twice() {
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..200 {
        let mut world = World::new(|_| {});
        let mut names = vec!["none".to_owned()];
        let mut over = std::collections::BTreeSet::new();
        let (mut joined, mut left) = (0, 0);
        for _ in 0..200 {
            let name = names[random(names.len() as u64) as usize].clone();
            let some = id(&random(4).to_string());
            let effects = match random(9) {
                0 => world.post(None, Post::Initialize(some)),
                1 => world.post(None, Post::Modern(some)),
                2 | 3 => world.post(Some(&name), Post::Session(vec![some])),
                4 => world.get(&name, [None, Some("0-0"), Some("2-1")][random(3) as usize]),
                5 => world.gone(random(world.exchange + 1)),
                6 => world.pass(Duration::from_secs(random(20))),
                7 if random(20) == 0 => world.ask_as(0, Some(&name), Ask::Delete),
                _ => {
                    let about = random(4).to_string();
                    let lines = [
                        NOTE.to_owned(),
                        format!(r#"{{"id":{about},"result":1}}"#),
                        format!(r#"{{"id":{about},"error":1}}"#),
                    ];
                    let line = &lines[random(3) as usize];
                    world.tell(
                        random(world.front.last_client() + 1),
                        line,
                        (random(3) > 0).then_some(&*about),
                    )
                }
            };
            for effect in effects {
                match effect {
                    Effect::Joined { .. } => joined += 1,
                    Effect::Left { .. } => left += 1,
                    Effect::Answer { exchange, session, .. } => {
                        assert!(over.insert(exchange), "{exchange:?} is over");
                        names.extend(session.map(|name| name.to_string()));
                    }
                    Effect::Begin { exchange, session } => {
                        assert!(!over.contains(&exchange), "{exchange:?} is over");
                        names.extend(session.map(|name| name.to_string()));
                    }
                    Effect::Refuse { exchange, .. } | Effect::End { exchange } => {
                        assert!(over.insert(exchange), "{exchange:?} is over");
                    }
                    Effect::Write { exchange, .. } => assert!(!over.contains(&exchange)),
                    Effect::Said { .. } | Effect::Log(_) => {}
                }
            }
            assert_eq!(joined - left, world.front.clients());
        }
        world.front.handle(world.now, Input::Close);
        assert_eq!((world.front.kept_bytes(), world.front.next_wakeup()), (0, None));
    }
}

#[test]
fn a_session_is_small() {
    assert!(size_of::<client::Client>() <= 128, "{}", size_of::<client::Client>());
}
