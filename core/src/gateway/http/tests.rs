//! Which message goes where, who joins and leaves, and what is kept.

mod resumed;

use std::time::Duration;

use super::*;
use crate::gateway::access_patterns::Access;
use crate::gateway::settings::Token;
use crate::limits::*;
use crate::mcp::envelope::Id;
use crate::time::Time;

pub(super) fn settings() -> FrontSettings {
    FrontSettings {
        http: Some("127.0.0.1:8808".parse().unwrap()),
        allowed_hosts: vec!["mcp.example".to_owned(), "Other.example:8443".to_owned()],
        allowed_origins: vec!["https://chat.example".to_owned()],
        token_file: None,
        tokens: vec![
            Token {
                secret: "first-secret".to_owned(),
                access: Access { name: "one".to_owned(), ..Access::default() },
            },
            Token {
                secret: "other-secret".to_owned(),
                access: Access { name: "two".to_owned(), ..Access::default() },
            },
        ],
        clients_max: 3,
        body_bytes_max: 1_000,
        requests_per_second: None,
        session_idle: Duration::from_secs(60),
        keep_alive: None,
    }
}

pub(super) fn id(raw: &str) -> Id {
    Id::new(raw.as_bytes())
}

/// A front, and what it is told.
struct World {
    front: Front,
    now: Time,
    exchange: u64,
    /// The id of the session that is begun next, where it is more than its name.
    issued: Option<String>,
}

impl World {
    fn new(change: impl FnOnce(&mut FrontSettings)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        Self { front: Front::new(&settings), now: Time::ZERO, exchange: 0, issued: None }
    }

    fn ask_as(
        &mut self,
        token: usize,
        session: Option<&str>,
        ask: RequestKind,
    ) -> Vec<FrontEffect> {
        self.resume_as(token, session, None, ask)
    }

    /// The same with an id of a session that began before this front.
    fn resume_as(
        &mut self,
        token: usize,
        session: Option<&str>,
        resumes: Option<&str>,
        ask: RequestKind,
    ) -> Vec<FrontEffect> {
        self.exchange += 1;
        let asked = FrontRequest {
            exchange: HttpExchange(self.exchange),
            token: Some(token),
            peer: "127.0.0.1".parse().unwrap(),
            session: session.map(str::to_owned),
            issued: self.issued.take(),
            resumes: resumes.map(|params| ResumedSession {
                params: params.as_bytes().to_vec(),
                numbers_from: NUMBERS_FROM,
            }),
            primes: true,
            ask,
        };
        self.front.handle(self.now, FrontInput::Request(asked))
    }

    fn post(&mut self, session: Option<&str>, post: PostBody) -> Vec<FrontEffect> {
        let new = SessionId([self.exchange as u8; 16]);
        self.ask_as(0, session, RequestKind::Post { line: b"{}".to_vec(), post, new })
    }

    fn get(&mut self, session: &str, last_event: Option<&str>) -> Vec<FrontEffect> {
        let last_event = last_event.map(str::to_owned);
        self.ask_as(0, Some(session), RequestKind::Get { last_event })
    }

    fn tell(&mut self, client: u64, line: &str, about: Option<&str>) -> Vec<FrontEffect> {
        let (client, line) = (ClientId(client), line.as_bytes().to_vec());
        self.front.handle(self.now, FrontInput::Told { client, line, about: about.map(id) })
    }

    fn gone(&mut self, exchange: u64) -> Vec<FrontEffect> {
        self.front.handle(self.now, FrontInput::Gone(HttpExchange(exchange)))
    }

    /// A session that is open: its name and its client.
    fn session(&mut self) -> (String, u64) {
        let begun = self.post(None, PostBody::Initialize(id("0")));
        let [
            FrontEffect::Hub(Input::Joined { client, .. }),
            FrontEffect::Hub(Input::Client { .. }),
        ] = &begun[..]
        else {
            panic!("{begun:?}")
        };
        let client = client.0;
        let opened = self.tell(client, r#"{"id":0,"result":{}}"#, Some("0"));
        let [FrontEffect::Answer { status: 200, session: Some(name), .. }] = &opened[..] else {
            panic!("{opened:?}")
        };
        (name.to_string(), client)
    }

    fn pass(&mut self, time: Duration) -> Vec<FrontEffect> {
        self.now = self.now + time;
        self.front.handle(self.now, FrontInput::Wakeup)
    }
}

fn refused(effects: &[FrontEffect]) -> Option<u16> {
    match effects {
        [FrontEffect::Refuse { refusal, .. }] => Some(refusal.status),
        _ => None,
    }
}

/// What is written to an exchange.
fn written(effects: &[FrontEffect], to: u64) -> String {
    let texts = effects.iter().filter_map(|effect| match effect {
        FrontEffect::Write { exchange, event } if exchange.0 == to => {
            Some(String::from_utf8_lossy(event))
        }
        _ => None,
    });
    texts.collect()
}

fn event_text(id: &str, line: &str) -> String {
    format!("id: {id}\nevent: message\ndata: {line}\n\n")
}

/// Where the numbers of a session begin that goes on.
const NUMBERS_FROM: u64 = 1_000;

const NOTE: &str = r#"{"method":"notifications/progress"}"#;

#[test]
fn an_answer_alone_is_json_and_another_is_a_stream() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    let said = world.post(Some(&name), PostBody::one(vec![id("1")]));
    assert_eq!(
        said,
        [FrontEffect::Hub(Input::Client { client: ClientId(client), line: b"{}".to_vec() })]
    );
    let answer = r#"{"id":1,"result":{}}"#;
    let (exchange, body) = (HttpExchange(2), Some(answer.as_bytes().to_vec()));
    let told = world.tell(client, answer, Some("1"));
    assert_eq!(told, [FrontEffect::Answer { exchange, status: 200, session: None, body }]);
    assert_eq!(world.tell(client, answer, Some("1")), [], "it is answered once");

    world.post(Some(&name), PostBody::one(vec![id("2")]));
    let begun = world.tell(client, NOTE, Some("2"));
    assert_eq!(begun[0], FrontEffect::Begin { exchange: HttpExchange(3), session: None });
    let wanted = format!("id: 3-0\nretry: 1000\ndata: \n\n{}", event_text("3-1", NOTE));
    assert_eq!(written(&begun, 3), wanted);
    let ended = world.tell(client, r#"{"id":2,"result":{}}"#, None);
    assert_eq!(written(&ended, 3), event_text("3-2", r#"{"id":2,"result":{}}"#));
    assert_eq!(ended.last(), Some(&FrontEffect::End { exchange: HttpExchange(3) }));
    // Nothing is kept that nobody can ask for.
    let said = world.post(Some(&name), PostBody::one(Vec::new()));
    assert!(matches!(
        said[..],
        [FrontEffect::Answer { status: 202, .. }, FrontEffect::Hub(Input::Client { .. })]
    ));
}

#[test]
fn a_batch_is_answered_when_all_of_it_is() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    world.post(Some(&name), PostBody::one(vec![id("1"), id("2")]));
    let first = world.tell(client, r#"{"id":2,"result":{}}"#, Some("2"));
    assert!(matches!(first[0], FrontEffect::Begin { .. }), "{first:?}");
    let last = world.tell(client, r#"{"id":1,"result":{}}"#, Some("1"));
    assert_eq!(last.last(), Some(&FrontEffect::End { exchange: HttpExchange(2) }));
    world.post(Some(&name), PostBody::one(vec![id("1"), id("2")]));
    let whole = world.tell(client, r#"[{"id":1,"result":{}},{"id":2,"error":{}}]"#, None);
    assert!(matches!(whole[..], [FrontEffect::Answer { status: 200, .. }]), "{whole:?}");
}

#[test]
fn a_broken_stream_goes_on_where_it_was() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    world.post(Some(&name), PostBody::one(vec![id("1")]));
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
        assert!(matches!(resumed.last(), Some(FrontEffect::End { .. })), "{resumed:?}");
    }
    for unknown in ["9-1", "x", "", "2", "2-", "-1-1", "2-1-1"] {
        assert_eq!(refused(&world.get(&name, Some(unknown))), Some(400), "{unknown}");
    }
    // Without an event there is nothing to resume.
    world.post(Some(&name), PostBody::one(vec![id("5")]));
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
    assert_eq!(got[0], FrontEffect::End { exchange: HttpExchange(2) });
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
    let call = || RequestKind::Post {
        line: Vec::new(),
        post: PostBody::one(vec![id("1")]),
        new: SessionId([9; 16]),
    };
    assert_eq!(refused(&world.ask_as(1, Some(&name), call())), Some(404));
    assert_eq!(refused(&world.ask_as(1, Some(&name), RequestKind::Delete)), Some(404));
    for unknown in ["", "x", &"0f".repeat(16), &"é".repeat(16), &name[1..]] {
        assert_eq!(refused(&world.ask_as(0, Some(unknown), call())), Some(404), "{unknown}");
        assert_eq!(refused(&world.get(unknown, None)), Some(404));
        assert_eq!(refused(&world.post(Some(unknown), PostBody::Initialize(id("1")))), Some(404));
    }
    assert_eq!(refused(&world.ask_as(0, None, RequestKind::Delete)), Some(400));
    assert_eq!(refused(&world.ask_as(0, None, RequestKind::Get { last_event: None })), Some(400));
    assert_eq!(refused(&world.post(Some(&name), PostBody::Initialize(id("1")))), Some(400));
    // The same id twice at once.
    world.ask_as(0, Some(&name), call());
    assert_eq!(refused(&world.ask_as(0, Some(&name), call())), Some(400));
    let waiting = world.exchange - 1;
    world.get(&name, None);
    let listening = world.exchange;
    let ended = world.ask_as(0, Some(&name), RequestKind::Delete);
    // All that tells of the end comes after it: it is given when the end is stored.
    assert!(matches!(ended[0], FrontEffect::SessionEnded(_)), "{ended:?}");
    assert!(matches!(ended[..], [.., FrontEffect::Answer { status: 204, .. }]), "{ended:?}");
    assert!(ended.contains(&FrontEffect::End { exchange: HttpExchange(listening) }));
    let is_told = |effect: &FrontEffect| {
        matches!(effect, FrontEffect::Refuse { exchange, refusal }
        if exchange.0 == waiting && refusal.status == 404)
    };
    assert!(ended.iter().any(is_told), "{ended:?}");
    assert!(ended.contains(&FrontEffect::Hub(Input::Left { client: ClientId(client) })));
    assert_eq!(refused(&world.ask_as(0, Some(&name), RequestKind::Delete)), Some(404));
    assert_eq!(world.front.clients.len(), 0);
}

#[test]
fn a_session_that_nobody_uses_ends() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    world.pass(Duration::from_secs(50));
    assert!(refused(&world.post(Some(&name), PostBody::one(Vec::new()))).is_none());
    assert_eq!(world.pass(Duration::from_secs(50)), []);
    assert!(world.front.next_wakeup() > Some(world.now));
    // Who listens uses it.
    world.get(&name, None);
    assert_eq!(world.pass(Duration::from_secs(500)), []);
    world.gone(world.exchange);
    assert_eq!(world.pass(Duration::from_secs(59)), []);
    let ended = FrontEffect::SessionEnded(SessionId([0; 16]));
    let left = FrontEffect::Hub(Input::Left { client: ClientId(client) });
    assert_eq!(world.pass(Duration::from_secs(1)), [ended, left]);
    assert_eq!(world.front.next_wakeup(), None);
    assert_eq!(refused(&world.get(&name, None)), Some(404));
}

#[test]
fn a_session_that_was_not_opened_is_none() {
    let mut world = World::new(|_| {});
    world.post(None, PostBody::Initialize(id("0")));
    let failed = world.tell(1, r#"{"id":0,"error":{"code":-32603}}"#, Some("0"));
    let [FrontEffect::Answer { session: None, .. }, FrontEffect::Hub(Input::Left { .. })] =
        &failed[..]
    else {
        panic!("{failed:?}")
    };
    world.post(None, PostBody::Initialize(id("0")));
    assert_eq!(world.gone(2), [FrontEffect::Hub(Input::Left { client: ClientId(2) })]);
    assert_eq!((world.front.clients.len(), world.front.next_wakeup()), (0, None));
}

#[test]
fn a_modern_request_is_a_client_of_its_own() {
    let mut world = World::new(|_| {});
    let joined = world.post(Some("whatever"), PostBody::Modern(id("1")));
    let FrontEffect::Hub(Input::Joined { access, .. }) = &joined[0] else { panic!("{joined:?}") };
    assert_eq!(access.name, "one");
    let answered = world.tell(1, r#"{"id":1,"result":{}}"#, Some("1"));
    assert!(matches!(
        answered[..],
        [FrontEffect::Answer { status: 200, .. }, FrontEffect::Hub(Input::Left { .. })]
    ));
    // Some errors have a status of their own.
    for (code, status) in [("-32601", 404), ("-32022", 400), ("-32602", 200), ("-32603", 200)] {
        world.post(None, PostBody::Modern(id("1")));
        let line = format!(r#"{{"id":1,"error":{{"code":{code}}}}}"#);
        let client = world.front.last_client;
        match &world.tell(client, &line, None)[..] {
            [FrontEffect::Answer { status: found, .. }, FrontEffect::Hub(Input::Left { .. })] => {
                assert_eq!(*found, status)
            }
            other => panic!("{other:?}"),
        }
    }
    // A subscription: no numbers, and whoever goes cancels.
    world.post(None, PostBody::Modern(id("1")));
    let (client, exchange) = (world.front.last_client, world.exchange);
    let begun = world.tell(client, NOTE, None);
    assert!(matches!(begun[0], FrontEffect::Begin { session: None, .. }));
    assert_eq!(written(&begun, exchange), format!("event: message\ndata: {NOTE}\n\n"));
    assert_eq!(world.gone(exchange), [FrontEffect::Hub(Input::Left { client: ClientId(client) })]);
    assert_eq!(world.tell(client, NOTE, None), []);
    // One that ends by itself.
    world.post(None, PostBody::Modern(id("1")));
    let client = world.front.last_client;
    world.tell(client, NOTE, None);
    let ended = world.tell(client, r#"{"id":1,"result":{}}"#, None);
    assert!(
        matches!(ended[1..], [FrontEffect::End { .. }, FrontEffect::Hub(Input::Left { .. })]),
        "{ended:?}"
    );
    assert!(matches!(
        world.post(None, PostBody::Nothing)[..],
        [FrontEffect::Answer { status: 202, .. }]
    ));
    assert_eq!(world.front.clients.len(), 0);
}

#[test]
fn an_answer_that_does_not_come_is_a_stream() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    world.post(Some(&name), PostBody::one(vec![id("1")]));
    assert_eq!(world.front.next_wakeup(), Some(world.now + FRONT_QUIET_MAX));
    assert_eq!(world.pass(FRONT_QUIET_MAX - Duration::from_millis(1)), []);
    let begun = world.pass(Duration::from_millis(1));
    assert!(
        matches!(begun[..], [FrontEffect::Begin { .. }, FrontEffect::Write { .. }]),
        "{begun:?}"
    );
    let ended = world.tell(client, r#"{"id":1,"result":{}}"#, Some("1"));
    assert!(matches!(ended[..], [FrontEffect::Write { .. }, FrontEffect::End { .. }]), "{ended:?}");
}

#[test]
fn a_quiet_stream_gets_a_sign_of_life_where_one_is_wanted() {
    let mut world = World::new(|_| {});
    let (name, _) = world.session();
    world.get(&name, None);
    world.pass(Duration::from_secs(60));
    assert_eq!(
        world.front.next_wakeup(),
        Some(world.now + Duration::from_secs(60)),
        "only its end"
    );

    let mut world = World::new(|settings| settings.keep_alive = Some(Duration::from_secs(20)));
    let (name, client) = world.session();
    world.post(Some(&name), PostBody::one(vec![id("1")]));
    assert!(world.tell(client, r#"{"id":1,"result":{}}"#, None).len() == 1);
    world.get(&name, None);
    let listening = world.exchange;
    for _ in 0..3 {
        assert_eq!(world.front.next_wakeup(), Some(world.now + Duration::from_secs(20)));
        let signs = world.pass(Duration::from_secs(20));
        assert_eq!(written(&signs, listening), ": still here\n\n");
    }
    world.gone(listening);
    assert_eq!(world.pass(Duration::from_secs(20)), []);
    assert!(
        world.front.next_wakeup() > Some(world.now + Duration::from_secs(20)),
        "nobody is there"
    );
}

#[test]
fn bounds_are_kept() {
    let mut world = World::new(|settings| settings.requests_per_second = Some(2));
    let (name, _) = world.session();
    assert!(refused(&world.post(None, PostBody::Modern(id("1")))).is_none());
    assert_eq!(refused(&world.post(None, PostBody::Modern(id("1")))), Some(429), "by address");
    let other = RequestKind::Post {
        line: Vec::new(),
        post: PostBody::Modern(id("1")),
        new: SessionId([0; 16]),
    };
    assert!(refused(&world.ask_as(1, None, other)).is_none(), "by token");
    for wanted in [None, None, Some(429)] {
        assert_eq!(refused(&world.post(Some(&name), PostBody::one(Vec::new()))), wanted);
    }
    world.pass(Duration::from_secs(1));
    // One that is not used would make room.
    world.get(&name, None);
    let full = world.post(None, PostBody::Initialize(id("1")));
    assert_eq!(refused(&full), Some(503), "three are there: {full:?}");

    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    for n in 0..FRONT_REQUESTS_MAX {
        let asked = world.post(Some(&name), PostBody::one(vec![id(&n.to_string())]));
        assert_eq!(refused(&asked), None);
    }
    assert_eq!(refused(&world.post(Some(&name), PostBody::one(vec![id("-1")]))), Some(429));
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
fn each_message_of_a_batch_counts() {
    let mut world = World::new(|settings| settings.requests_per_second = Some(10));
    let (name, _) = world.session();
    let batch = |first: u32, count: u32| {
        let ids = (first..first + count / 2).map(|n| id(&n.to_string())).collect();
        PostBody::Session { ids, count }
    };
    assert_eq!(refused(&world.post(Some(&name), batch(100, 6))), None);
    assert_eq!(refused(&world.post(Some(&name), batch(200, 6))), Some(429));
    assert_eq!(refused(&world.post(Some(&name), batch(300, 4))), None);
    assert_eq!(refused(&world.post(Some(&name), PostBody::one(Vec::new()))), Some(429));
    world.pass(Duration::from_secs(1));
    // One that could never pass is not told to come again.
    assert_eq!(refused(&world.post(Some(&name), batch(400, 11))), Some(413));
    assert_eq!(refused(&world.post(Some(&name), batch(500, 10))), None);
}

#[test]
fn who_came_by_a_token_that_is_gone_or_another_goes() {
    let mut world = World::new(|_| {});
    let (kept, _) = world.session();
    let opening = RequestKind::Post {
        line: Vec::new(),
        post: PostBody::Initialize(id("0")),
        new: SessionId([9; 16]),
    };
    let begun = world.ask_as(1, None, opening);
    let [FrontEffect::Hub(Input::Joined { client, .. }), ..] = &begun[..] else {
        panic!("{begun:?}")
    };
    let client = *client;
    world.tell(client.0, r#"{"id":0,"result":{}}"#, Some("0"));
    let name = SessionId([9; 16]).to_string();
    let call = |raw| RequestKind::Post {
        line: Vec::new(),
        post: PostBody::one(vec![id(raw)]),
        new: SessionId([0; 16]),
    };
    world.ask_as(1, Some(&name), call("1"));
    let waiting = world.exchange;
    world.ask_as(1, Some(&name), RequestKind::Get { last_event: None });
    let listening = world.exchange;
    // Another access makes it another token.
    let mut new = settings();
    new.tokens[1].access.tools = Some(Vec::new());
    let gate = Gate::new(&settings(), 1).renewed(&new);
    let done = world.front.handle(world.now, FrontInput::Configured(Box::new(new.clone())));
    assert!(done.contains(&FrontEffect::End { exchange: HttpExchange(listening) }), "{done:?}");
    assert!(done.contains(&FrontEffect::Hub(Input::Left { client })), "{done:?}");
    let is_told = |effect: &FrontEffect| {
        matches!(effect, FrontEffect::Refuse { exchange, refusal }
        if exchange.0 == waiting && refusal.status == 401)
    };
    assert!(done.iter().any(is_told), "{done:?}");
    assert_eq!(world.front.clients.len(), 1);
    // Who was let in just before is not served any more; with the number of now its session is not there.
    assert_eq!(refused(&world.ask_as(1, Some(&name), call("2"))), Some(401));
    let head = |secret| Head {
        method: "DELETE",
        path: "/mcp",
        caller: crate::http_access::Caller {
            host: Some("127.0.0.1:1"),
            authorization: Some(secret),
            ..Default::default()
        },
        ..Head::default()
    };
    assert_eq!(gate.admit(&head("Bearer first-secret")), Ok(Admitted::Delete(Some(0))));
    assert_eq!(gate.admit(&head("Bearer other-secret")), Ok(Admitted::Delete(Some(2))));
    assert_eq!(refused(&world.ask_as(2, Some(&name), call("3"))), Some(404));
    let opening = RequestKind::Post {
        line: Vec::new(),
        post: PostBody::Initialize(id("0")),
        new: SessionId([8; 16]),
    };
    let begun = world.ask_as(2, None, opening);
    assert!(
        matches!(&begun[..], [FrontEffect::Hub(Input::Joined { access, .. }), ..] if !access.has_tool("x")),
        "{begun:?}"
    );
    // The others did not notice.
    assert_eq!(refused(&world.post(Some(&kept), PostBody::one(vec![id("5")]))), None);
    // Without the token nobody of it is left, and its number is not given again.
    new.tokens.remove(0);
    new.tokens.push(Token { secret: "third-secret".to_owned(), access: Access::default() });
    let gate = gate.renewed(&new);
    world.front.handle(world.now, FrontInput::Configured(Box::new(new)));
    assert_eq!(refused(&world.post(Some(&kept), PostBody::one(vec![id("6")]))), Some(401));
    assert_eq!(gate.admit(&head("Bearer first-secret")).unwrap_err().status, 401);
    assert_eq!(gate.admit(&head("Bearer third-secret")), Ok(Admitted::Delete(Some(3))));
}

#[test]
fn limits_hold_from_when_they_are_read_again() {
    let mut world = World::new(|settings| settings.tokens.clear());
    let ask = |world: &mut World, session: Option<&str>, ask| {
        world.exchange += 1;
        let asked = FrontRequest {
            exchange: HttpExchange(world.exchange),
            token: None,
            peer: "127.0.0.1".parse().unwrap(),
            session: session.map(str::to_owned),
            issued: None,
            resumes: None,
            primes: true,
            ask,
        };
        world.front.handle(world.now, FrontInput::Request(asked))
    };
    let open = |n| RequestKind::Post {
        line: Vec::new(),
        post: PostBody::Initialize(id("0")),
        new: SessionId([n; 16]),
    };
    ask(&mut world, None, open(1));
    world.tell(1, r#"{"id":0,"result":{}}"#, Some("0"));
    let mut new = FrontSettings { tokens: Vec::new(), ..settings() };
    new.clients_max = 1;
    new.session_idle = Duration::from_secs(10);
    new.keep_alive = Some(Duration::from_secs(3));
    let name = SessionId([1; 16]).to_string();
    ask(&mut world, Some(&name), RequestKind::Get { last_event: None });
    let listening = world.exchange;
    assert_eq!(world.front.handle(world.now, FrontInput::Configured(Box::new(new.clone()))), []);
    assert_eq!(refused(&ask(&mut world, None, open(2))), Some(503));
    assert_eq!(written(&world.pass(Duration::from_secs(3)), listening), ": still here\n\n");
    new.keep_alive = None;
    world.front.handle(world.now, FrontInput::Configured(Box::new(new)));
    world.gone(listening);
    assert_eq!(world.front.next_wakeup(), Some(Time::ZERO + Duration::from_secs(10)));
    world.pass(Duration::from_secs(7));
    let ended = FrontEffect::SessionEnded(SessionId([1; 16]));
    let left = FrontEffect::Hub(Input::Left { client: ClientId(1) });
    assert_eq!(world.pass(Duration::from_secs(3)), [ended, left]);
    // Tokens where there were none: who has none goes.
    ask(&mut world, None, open(3));
    let done = world.front.handle(world.now, FrontInput::Configured(Box::new(settings())));
    assert_eq!(refused(&done[..1]), Some(401), "{done:?}");
    assert_eq!(refused(&ask(&mut world, None, open(4))), Some(401));
}

#[test]
fn of_many_short_messages_the_last_are_kept() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    let mut logs = Vec::new();
    for _ in 0..FRONT_KEPT_MAX {
        logs.extend(world.tell(client, NOTE, None));
    }
    assert_eq!(logs, [], "all of them are kept");
    logs.extend(world.tell(client, NOTE, None));
    let [FrontEffect::Log(text)] = &logs[..] else { panic!("{logs:?}") };
    assert!(text.contains("messages for it are lost"), "{text}");
    let got = world.get(&name, None);
    let got = written(&got, world.exchange);
    assert_eq!(got.matches("event: message").count(), FRONT_KEPT_MAX);
    assert!(!got.contains("id: 0-1\n") && got.contains("id: 0-2\n"), "the oldest is gone");
}

#[test]
fn so_many_streams_that_have_ended_are_kept() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    let resumed = |world: &mut World, number: usize| {
        let got = world.get(&name, Some(&format!("{number}-0")));
        (refused(&got), written(&got, world.exchange).matches("event: message").count())
    };
    // The first stream is that of `initialize`.
    for number in 2..FRONT_ENDED_MAX + 2 {
        world.post(Some(&name), PostBody::one(vec![id("1")]));
        world.tell(client, NOTE, Some("1"));
        let ended = world.tell(client, r#"{"id":1,"result":{}}"#, Some("1"));
        assert!(matches!(ended.last(), Some(FrontEffect::End { .. })), "{number}: {ended:?}");
    }
    assert_eq!(resumed(&mut world, 2), (None, 2));
    world.post(Some(&name), PostBody::one(vec![id("1")]));
    world.tell(client, NOTE, Some("1"));
    world.tell(client, r#"{"id":1,"result":{}}"#, Some("1"));
    assert_eq!(resumed(&mut world, 2), (Some(400), 0), "the one that ended first is forgotten");
    assert_eq!(resumed(&mut world, 3), (None, 2));
    assert_eq!(resumed(&mut world, FRONT_ENDED_MAX + 2), (None, 2));
}

#[test]
fn all_that_is_kept_is_bounded() {
    let mut world = World::new(|settings| settings.clients_max = 2_000);
    let answer = format!(r#"{{"id":1,"result":"{}"}}"#, "x".repeat(FRONT_KEPT_BYTES_MAX));
    let sessions: Vec<(String, u64)> = (0..1_500)
        .map(|n: u16| {
            let new = SessionId(std::array::from_fn(|at| n.to_be_bytes()[at % 2]));
            let opening =
                RequestKind::Post { line: Vec::new(), post: PostBody::Initialize(id("0")), new };
            world.ask_as(0, None, opening);
            let client = world.front.last_client;
            world.tell(client, r#"{"id":0,"result":{}}"#, None);
            (new.to_string(), client)
        })
        .collect();
    for (name, client) in &sessions {
        world.post(Some(name), PostBody::one(vec![id("1")]));
        world.tell(*client, NOTE, Some("1"));
        world.tell(*client, &answer, Some("1"));
        assert!(world.front.kept_bytes <= FRONT_KEPT_ALL_BYTES_MAX);
    }
    let (first, (last, last_client)) = (&sessions[0].0, sessions[1_499].clone());
    let last = &*last;
    assert_eq!(refused(&world.get(first, Some("2-0"))), Some(400), "the oldest are forgotten");
    assert!(written(&world.get(last, Some("2-0")), world.exchange).len() > FRONT_KEPT_BYTES_MAX);
    for (_, client) in &sessions {
        world.tell(*client, &answer.replace("\"id\"", "\"x\"").replace("result", "method"), None);
        assert!(world.front.kept_bytes <= FRONT_KEPT_ALL_BYTES_MAX);
    }
    // There is no room: each keeps only the last that it is told, and that only where it is short.
    world.front.kept_bytes += FRONT_KEPT_ALL_BYTES_MAX;
    for _ in 0..3 {
        world.tell(last_client, NOTE, None);
    }
    let got = world.get(last, None);
    assert_eq!(written(&got, world.exchange).matches("event: message").count(), 1);
}

#[test]
fn answers_that_are_not_read_are_replaced_by_errors() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    let sent = |exchange: u64, token, bytes| SentMessage {
        token: Some(token),
        exchange: HttpExchange(exchange),
        bytes,
    };
    let body = |effects: &[FrontEffect]| match effects {
        [FrontEffect::Answer { body: Some(body), status: 200, .. }] => {
            serde_json::from_slice::<Value>(body).unwrap()
        }
        other => panic!("{other:?}"),
    };
    let long = format!(r#"{{"id":1,"result":"{}"}}"#, "x".repeat(2_000));
    let full = sent(99, 0, FRONT_UNREAD_TOKEN_BYTES_MAX - 2 * FRONT_UNREAD_EACH_BYTES);
    world.front.handle(world.now, FrontInput::Sent(full));
    world.post(Some(&name), PostBody::one(vec![id("1")]));
    let error = body(&world.tell(client, &long, Some("1")));
    assert_eq!(
        (&error["id"], &error["error"]["data"]["reason"]),
        (&json!(1), &json!("server_busy"))
    );
    // What is short finds room, and so does another token.
    world.post(Some(&name), PostBody::one(vec![id("2")]));
    assert_eq!(body(&world.tell(client, r#"{"id":2,"result":5}"#, Some("2")))["result"], 5);
    assert!(world.front.has_room(Some(1), 2_000) && !world.front.has_room(Some(0), 2_000));
    // One after the other is read.
    world.front.handle(world.now, FrontInput::Written(full));
    world.post(Some(&name), PostBody::one(vec![id("1")]));
    assert!(body(&world.tell(client, &long, Some("1")))["result"].is_string());

    // In a stream, one connection has a bound of its own; each request is answered.
    world.post(Some(&name), PostBody::one(vec![id("1"), id("2"), id("3")]));
    let exchange = world.exchange;
    world.tell(client, &long, Some("1"));
    let full = sent(exchange, 0, FRONT_UNREAD_BYTES_MAX);
    world.front.handle(world.now, FrontInput::Sent(full));
    let told = world.tell(client, &long.replace("\"id\":1", "\"id\":2"), Some("2"));
    assert!(written(&told, exchange).contains("server busy: answers not read"), "{told:?}");
    let both = world.tell(client, r#"{"id":3,"result":{}}"#, Some("3"));
    assert_eq!(both.last(), Some(&FrontEffect::End { exchange: HttpExchange(exchange) }));
}

#[test]
fn a_token_has_its_part_of_the_places_and_its_oldest_idle_session_makes_room() {
    let mut world = World::new(|settings| settings.clients_max = 8);
    let open = |world: &mut World, token: usize| {
        let number = world.exchange as u8 + 1;
        let new = SessionId([number; 16]);
        let post = PostBody::Initialize(id("0"));
        let begun = world.ask_as(token, None, RequestKind::Post { line: Vec::new(), post, new });
        if let Some(status) = refused(&begun) {
            return Err(status);
        }
        world.now = world.now + Duration::from_millis(1);
        let client = world.front.last_client;
        world.tell(client, r#"{"id":0,"result":{}}"#, Some("0"));
        Ok(new.to_string())
    };
    let is_there = |world: &mut World, token: usize, name: &str| {
        let post = PostBody::one(Vec::new());
        let ask = RequestKind::Post { line: Vec::new(), post, new: SessionId([0; 16]) };
        refused(&world.ask_as(token, Some(name), ask)).is_none()
    };
    let other = open(&mut world, 1).unwrap();
    let first: Vec<String> = (0..9).map(|_| open(&mut world, 0).unwrap()).collect();
    // Two places are the other token's, of which it uses one; the others are there for all.
    assert_eq!(world.front.clients.len(), 7);
    let there: Vec<bool> = first.iter().map(|name| is_there(&mut world, 0, name)).collect();
    assert_eq!(there, [false, false, false, true, true, true, true, true, true]);
    // Its part is there for it alone; beyond it, each makes room for itself.
    let more = open(&mut world, 1).unwrap();
    assert_eq!(world.front.clients.len(), 8);
    world.get(&first[3], None);
    let third = open(&mut world, 1).unwrap();
    assert!(!is_there(&mut world, 1, &other) && is_there(&mut world, 1, &more));
    assert!(is_there(&mut world, 1, &third));
    assert!(first[3..].iter().all(|name| is_there(&mut world, 0, name)), "never another token's");
    // Those that are connected make no room.
    for name in &first[4..] {
        world.get(name, None);
    }
    assert_eq!(open(&mut world, 0), Err(503));
    world.gone(world.exchange - 1);
    assert!(open(&mut world, 0).is_ok() && !is_there(&mut world, 0, &first[8]));
}

#[test]
fn who_does_not_read_is_said_once_and_can_come_back() {
    let mut world = World::new(|_| {});
    let (name, client) = world.session();
    for round in 0..2 {
        world.get(&name, None);
        let exchange = HttpExchange(world.exchange);
        let told = world.front.handle(world.now, FrontInput::Slow(exchange));
        match (round, &told[..]) {
            (0, [FrontEffect::Log(text)]) => {
                assert!(text.contains("client 1 (`one`) does not read"))
            }
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
    world.post(Some(&name), PostBody::one(vec![id("1")]));
    world.get(&name, None);
    let closed = world.front.handle(world.now, FrontInput::Close);
    let is_503 = |effect: &FrontEffect| {
        matches!(effect, FrontEffect::Refuse { exchange, refusal }
        if exchange.0 == 2 && refusal.status == 503 && refusal.body().starts_with(br#"{"jsonrpc":"2.0","id":1,"#))
    };
    assert!(closed.iter().any(is_503), "{closed:?}");
    assert!(closed.contains(&FrontEffect::End { exchange: HttpExchange(3) }));
    assert_eq!(closed.last(), Some(&FrontEffect::Hub(Input::Left { client: ClientId(client) })));
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
                0 => world.post(None, PostBody::Initialize(some)),
                1 => world.post(None, PostBody::Modern(some)),
                2 | 3 => world.post(Some(&name), PostBody::one(vec![some])),
                4 => world.get(&name, [None, Some("0-0"), Some("2-1")][random(3) as usize]),
                5 => world.gone(random(world.exchange + 1)),
                6 => world.pass(Duration::from_secs(random(20))),
                7 if random(20) == 0 => world.ask_as(0, Some(&name), RequestKind::Delete),
                _ => {
                    let about = random(4).to_string();
                    let lines = [
                        NOTE.to_owned(),
                        format!(r#"{{"id":{about},"result":1}}"#),
                        format!(r#"{{"id":{about},"error":1}}"#),
                    ];
                    let line = &lines[random(3) as usize];
                    world.tell(
                        random(world.front.last_client + 1),
                        line,
                        (random(3) > 0).then_some(&*about),
                    )
                }
            };
            for effect in effects {
                match effect {
                    FrontEffect::Hub(Input::Joined { .. }) => joined += 1,
                    FrontEffect::Hub(Input::Left { .. }) => left += 1,
                    FrontEffect::Answer { exchange, session, .. } => {
                        assert!(over.insert(exchange), "{exchange:?} is over");
                        names.extend(session.map(|name| name.to_string()));
                    }
                    FrontEffect::Begin { exchange, session } => {
                        assert!(!over.contains(&exchange), "{exchange:?} is over");
                        names.extend(session.map(|name| name.to_string()));
                    }
                    FrontEffect::Refuse { exchange, .. } | FrontEffect::End { exchange } => {
                        assert!(over.insert(exchange), "{exchange:?} is over");
                    }
                    FrontEffect::Write { exchange, .. } => assert!(!over.contains(&exchange)),
                    FrontEffect::Hub(other) => assert!(matches!(other, Input::Client { .. })),
                    FrontEffect::SessionEnded(_) | FrontEffect::Log(_) => {}
                }
            }
            assert_eq!(joined - left, world.front.clients.len());
        }
        world.front.handle(world.now, FrontInput::Close);
        assert_eq!((world.front.kept_bytes, world.front.next_wakeup()), (0, None));
    }
}

#[test]
fn a_session_is_small() {
    assert!(
        size_of::<client_state::FrontClient>() <= 128,
        "{}",
        size_of::<client_state::FrontClient>()
    );
}
