//! Random histories of a conversation: a client that asks, tells, cancels and answers; servers that
//! answer, ask, chatter, repeat themselves and die; swaps and stops in between.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use afresh_core::id::Generation;
use afresh_core::limits::RESTART_ANSWER_MAX;
use afresh_core::mcp::envelope::{Id, Message, look, param};
use afresh_core::mcp::json;
use afresh_core::mcp::{
    AddedTools, AdminRequest, Conversation, Effect, EndCause, Input, Settings, ToolNames,
    ToolResult, WhichTools,
};
use afresh_core::time::Time;

/// `AFRESH_TEST_HISTORIES` asks for more.
const HISTORIES: u64 = 500;
const STEPS: usize = 300;
/// The default histories cover many times this in simulated time, and all others each a share of it.
const SIMULATED_MIN: Duration = Duration::from_secs(3_600);
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
#[expect(clippy::disallowed_methods, reason = "how long to try is for whoever runs the test")]
fn every_request_is_answered_exactly_once() {
    let asked = std::env::var("AFRESH_TEST_HISTORIES").ok().and_then(|count| count.parse().ok());
    let histories = asked.unwrap_or(HISTORIES);
    let mut simulated = Duration::ZERO;
    for seed in 1..=histories {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.end();
        simulated += world.now.since_start();
    }
    let share = SIMULATED_MIN * u32::try_from(histories).unwrap_or(u32::MAX) / HISTORIES as u32;
    assert!(simulated >= share, "only {simulated:?} of simulated time");
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len())].clone())
    }
}

/// The client's view of its legacy session: it sends nothing else before the answer.
#[derive(Clone, PartialEq)]
enum Session {
    Closed,
    Opening(Id),
    Open,
}

#[derive(Default)]
struct Server {
    /// Requests that it has not answered.
    owes: Vec<Id>,
    /// Ids that it was ever sent.
    seen: BTreeSet<Id>,
    /// What it was sent, line by line: the ids of requests, and whether they are tool calls.
    lines: Vec<Option<(Id, bool)>>,
    /// It has read at least this many.
    read: usize,
    /// Its own requests that wait for the client.
    asked: BTreeSet<Id>,
    next: u32,
    /// Has been told to open a session, or was first with a client's own request.
    opened: bool,
    /// The highest number of a client's request, for the order.
    last_number: u64,
    offer: usize,
}

struct World {
    random: Random,
    conversation: Conversation,
    now: Time,
    history: String,
    modern: bool,
    session: Session,
    next_id: u64,
    next_generation: u64,
    /// Who gets all that is new.
    serving: Option<u64>,
    servers: BTreeMap<u64, Server>,
    /// Requests of the client's without an answer, and whether they were cancelled.
    open: BTreeMap<Id, bool>,
    answered: BTreeSet<Id>,
    /// Requests that some instance has got.
    sent: BTreeSet<Id>,
    /// Requests of servers that the client may answer: our id, and whose they are.
    to_answer: BTreeMap<Id, u64>,
    /// Requests of the client's that stay open as long as it likes.
    listens: BTreeSet<Id>,
    /// Calls that an instance has read: it may have done them.
    done: BTreeSet<Id>,
    /// Calls of our own tools that wait for a word from outside.
    asked: Vec<Id>,
    /// What the next instances offer.
    offer: usize,
    /// Requests for a list.
    lists: BTreeSet<Id>,
    /// A list of ours may have come late, or not at all: whether it has changed is not known.
    unsure: bool,
    /// What the client has seen offered, and whether it was told to look again.
    seen_offer: Option<usize>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        Self {
            modern: random.below(2) == 0,
            random,
            conversation: Conversation::new(&Settings {
                server: "sim".to_owned(),
                patience: PATIENCE,
                tools: AddedTools { which: WhichTools::All, names: ToolNames::Bare },
                tell_restarts: true.into(),
                wedge_timeout: None,
            }),
            now: Time::ZERO,
            history: format!("seed {seed}\n"),
            session: Session::Closed,
            next_id: 0,
            next_generation: 1,
            serving: None,
            servers: BTreeMap::new(),
            open: BTreeMap::new(),
            answered: BTreeSet::new(),
            sent: BTreeSet::new(),
            to_answer: BTreeMap::new(),
            listens: BTreeSet::new(),
            done: BTreeSet::new(),
            asked: Vec::new(),
            offer: 0,
            lists: BTreeSet::new(),
            unsure: false,
            seen_offer: None,
        }
    }

    fn step(&mut self) {
        let living: Vec<u64> = self.servers.keys().copied().collect();
        match self.random.below(18) {
            16 => self.offer += self.random.below(2),
            17 => {
                if let Some(id) = self.asked.pop() {
                    let said = ToolResult { text: "so".to_owned(), data: None, is_error: false };
                    self.input(Input::AdminResult { id, result: said });
                } else if self.random.below(4) == 0 {
                    self.input(Input::RestartFailed("broken".to_owned()));
                }
            }
            0..=4 => self.client_asks(),
            5 => self.client_tells(),
            6 => self.client_cancels(),
            7 => self.client_answers(),
            8..=11 => {
                if let Some(generation) = self.random.pick(&living) {
                    self.server_speaks(generation);
                }
            }
            12 if living.len() < 2 => self.start(),
            13 => {
                if let Some(generation) = self.random.pick(&living) {
                    self.end_server(generation);
                }
            }
            14 => {
                if let Some(generation) = self.random.pick(&living)
                    && self.random.below(3) == 0
                {
                    self.serving.take_if(|serving| *serving == generation);
                    self.input(Input::Leaving(Generation(generation)));
                }
            }
            _ => {
                self.now = self.now + Duration::from_millis(self.random.below(8_000) as u64);
                if self.conversation.next_wakeup().is_some_and(|at| at <= self.now) {
                    self.input(Input::Wakeup);
                }
            }
        }
    }

    /// One good instance at last, after the others or beside them: then everything is answered.
    fn end(&mut self) {
        if self.random.below(2) == 0 {
            for generation in self.servers.keys().copied().collect::<Vec<_>>() {
                self.end_server(generation);
            }
        }
        self.offer += self.random.below(2);
        self.start();
        for _ in 0..10_000 {
            let owing = self.servers.iter().filter(|(_, server)| !server.owes.is_empty());
            let owing: Vec<u64> = owing.map(|(generation, _)| *generation).collect();
            let Some(generation) = self.random.pick(&owing) else { break };
            self.server_answers(generation, false);
        }
        while self.servers.len() > 1 {
            let oldest = self.servers.keys().next().copied().unwrap_or_default();
            self.end_server(oldest);
        }
        for _ in 0..1_000 {
            let Some(generation) = self.servers.keys().next().copied() else { break };
            self.server_answers(generation, false);
        }
        while let Some(id) = self.asked.pop() {
            let said = ToolResult { text: "so".to_owned(), data: None, is_error: false };
            self.input(Input::AdminResult { id, result: said });
        }
        self.now = self.now + PATIENCE + RESTART_ANSWER_MAX;
        self.input(Input::Wakeup);
        let open: Vec<&Id> =
            self.open.iter().filter(|(_, cancelled)| !**cancelled).map(|(id, _)| id).collect();
        let unanswered: Vec<&&Id> = open.iter().filter(|id| !self.listens.contains(id)).collect();
        self.check(unanswered.is_empty(), &format!("all is answered, but {unanswered:?}"));
        self.check(self.conversation.owed() == open.len(), "nothing else is owed");
        let last = self.servers.values().last();
        let is_known = |id: &&Id| last.is_some_and(|server| server.seen.contains(id));
        self.check(open.iter().all(is_known), "the last instance knows who listens");
        let now = self.servers.values().last().map(|server| server.offer);
        let knows = self.modern || self.seen_offer.is_none() || self.seen_offer == now;
        self.check(knows, "the client knows what is offered");
    }

    fn client_asks(&mut self) {
        let id = self.next_id;
        self.next_id += 1;
        let meta = if self.modern {
            r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"#
        } else {
            ""
        };
        let raw = if self.random.below(3) == 0 { format!("\"c{id}\"") } else { id.to_string() };
        let method = if !self.modern && self.session != Session::Open {
            if self.session != Session::Closed {
                return;
            }
            self.session = Session::Opening(Id::new(raw.as_bytes()));
            "initialize"
        } else {
            let all = [
                "tools/call",
                "tools/list",
                "resources/read",
                "odd/method",
                "logging/setLevel",
                "resources/subscribe",
            ];
            match self.random.below(30) {
                0 if self.modern => "subscriptions/listen",
                _ => all[self.random.below(all.len())],
            }
        };
        let name = ["t", "t", "t", "restart_server", "server_status"][self.random.below(5)];
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{raw},"method":"{method}","params":{{{meta}"name":"{name}","uri":"u{}","number":{id},"protocolVersion":"v"}}}}"#,
            id % 5
        );
        self.open.insert(Id::new(raw.as_bytes()), false);
        if method == "subscriptions/listen" {
            self.listens.insert(Id::new(raw.as_bytes()));
        }
        if method == "tools/list" {
            self.lists.insert(Id::new(raw.as_bytes()));
        }
        self.input(Input::Client(line.into_bytes()));
    }

    fn client_tells(&mut self) {
        let method =
            ["notifications/initialized", "notifications/roots/list_changed", "notifications/x"]
                [self.random.below(3)];
        if self.session == Session::Open || self.modern {
            let line = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
            self.input(Input::Client(line.into_bytes()));
        }
    }

    fn client_cancels(&mut self) {
        let ids: Vec<Id> = self.open.keys().cloned().collect();
        if let Some(id) = self.random.pick(&ids)
            && self.session != Session::Opening(id.clone())
        {
            self.open.insert(id.clone(), true);
            let raw = String::from_utf8_lossy(id.raw()).into_owned();
            let line = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{raw}}}}}"#
            );
            self.input(Input::Client(line.into_bytes()));
        }
    }

    fn client_answers(&mut self) {
        let ids: Vec<Id> = self.to_answer.keys().cloned().collect();
        if let Some(id) = self.random.pick(&ids) {
            self.to_answer.remove(&id);
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#,
                String::from_utf8_lossy(id.raw())
            );
            self.input(Input::Client(line.into_bytes()));
        }
    }

    fn start(&mut self) {
        let generation = self.next_generation;
        self.next_generation += 1;
        self.servers.insert(generation, Server { offer: self.offer, ..Server::default() });
        self.input(Input::Started { generation: Generation(generation), pid: 1_000 });
    }

    fn end_server(&mut self, generation: u64) {
        let Some(server) = self.servers.remove(&generation) else { return };
        self.serving.take_if(|serving| *serving == generation);
        let unread = self.random.below(server.lines.len() - server.read + 1);
        let read = server.lines.len() - unread;
        for (id, is_call) in server.lines[..read].iter().flatten() {
            let first = !is_call || self.done.insert(id.clone());
            self.check(first, "a call is read by one instance only");
        }
        self.input(Input::Ended {
            generation: Generation(generation),
            read: Some(read as u64),
            how: "ended".to_owned(),
            cause: EndCause::ByItself,
        });
        let left = self.to_answer.values().any(|of| *of == generation);
        self.check(!left, "what it has asked is taken back");
    }

    fn server_speaks(&mut self, generation: u64) {
        let line = match self.random.below(8) {
            0 if !self.modern => {
                let Some(server) = self.servers.get_mut(&generation) else { return };
                let id = server.next;
                server.next += 1;
                server.asked.insert(Id::new(id.to_string().as_bytes()));
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#)
            }
            1 => r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#.to_owned(),
            2 => r#"{"jsonrpc":"2.0","id":123456,"result":{}}"#.to_owned(),
            3 => "junk".to_owned(),
            4 => {
                // Something that it has answered already, or that was another's.
                let id =
                    Id::new(self.random.below(self.next_id as usize + 1).to_string().as_bytes());
                // What it says on its way out is not believed; then it may say it again.
                let asked =
                    self.servers.get(&generation).is_some_and(|server| server.seen.contains(&id));
                if asked && self.open.contains_key(&id) {
                    return;
                }
                if self.listens.contains(&id) {
                    return;
                }
                format!(
                    r#"{{"jsonrpc":"2.0","id":{},"result":{{"stray":true}}}}"#,
                    String::from_utf8_lossy(id.raw())
                )
            }
            _ => return self.server_answers(generation, true),
        };
        self.input(Input::Server { generation: Generation(generation), line: line.into_bytes() });
    }

    fn server_answers(&mut self, generation: u64, may_fail: bool) {
        let Some(server) = self.servers.get_mut(&generation) else { return };
        let Some(id) = self.random.pick(&server.owes) else { return };
        server.owes.retain(|other| *other != id);
        let line =
            server.lines.iter().position(|line| line.as_ref().is_some_and(|(i, _)| *i == id));
        server.read = server.read.max(line.map_or(0, |line| line + 1));
        let offer = server.offer;
        let raw = String::from_utf8_lossy(id.raw()).into_owned();
        let line = match self.random.below(12) {
            0 if may_fail => format!(
                r#"{{"jsonrpc":"2.0","id":{raw},"error":{{"code":-32000,"message":"closed"}}}}"#
            ),
            _ => format!(
                r#"{{"jsonrpc":"2.0","id":{raw},"result":{{"protocolVersion":"v","tools":[{{"name":"t{offer}"}}]}}}}"#
            ),
        };
        self.input(Input::Server { generation: Generation(generation), line: line.into_bytes() });
    }

    fn input(&mut self, input: Input) {
        self.unsure |= match &input {
            Input::Wakeup => self.servers.values().any(|server| server.owes.iter().any(is_ours)),
            Input::Server { line, .. } => {
                let id = json::get(line, &["id"]).map(Id::new);
                id.is_some_and(|id| is_ours(&id)) && json::get(line, &["error"]).is_some()
            }
            _ => false,
        };
        let shown = match &input {
            Input::Client(line) => format!("client {}", String::from_utf8_lossy(line)),
            Input::Server { generation, line } => {
                format!("server {generation} {}", String::from_utf8_lossy(line))
            }
            other => format!("{other:?}"),
        };
        writeln!(self.history, "{:?} {shown}", self.now.since_start()).expect("a String takes all");
        for effect in self.conversation.handle(self.now, input) {
            self.perform(effect);
        }
        let waits = self.conversation.report().waiting > 0;
        self.check(self.serving.is_none() || !waits, "nobody waits while somebody serves");
        if let Some(at) = self.conversation.next_wakeup() {
            self.check(at >= self.now || self.conversation.owed() > 0, "wakeups are real");
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::ToClient(line) => self.client_hears(&line),
            Effect::ToServer { generation, line } => self.server_hears(generation.0, &line),
            Effect::Replace(generation) => self.end_server(generation.0),
            Effect::Serving(generation) => self.serving = Some(generation.0),
            Effect::AdminRequest { id, request: AdminRequest::Status } => self.asked.push(id),
            other => writeln!(self.history, "    {other:?}").expect("a String takes all"),
        }
    }

    fn client_hears(&mut self, line: &[u8]) {
        writeln!(self.history, "    > client {}", String::from_utf8_lossy(line))
            .expect("a String takes all");
        let is_stray = json::get(line, &["result", "stray"]).is_some();
        self.check(!is_stray, "an answer is of the instance that was asked");
        match look(line) {
            Some(Message::Response { id: Some(id), is_error }) => {
                if self.session == Session::Opening(id.clone()) {
                    self.session = if is_error { Session::Closed } else { Session::Open };
                }
                if let Some(offer) = offered(line) {
                    self.seen_offer = self.lists.remove(&id).then_some(offer).or(self.seen_offer);
                }
                let open = self.open.remove(&id);
                self.check(open == Some(false), "an answer is to a request that is open");
                let first = self.answered.insert(id);
                self.check(first, "and it is the only one");
            }
            Some(Message::Request { id, .. }) => {
                let name = json::text(id.raw()).unwrap_or_default();
                let of =
                    name.strip_prefix('s').and_then(|name| name.split(':').next()?.parse().ok());
                self.check(of.is_some(), "a question tells whose it is");
                self.to_answer.insert(id, of.unwrap_or_default());
            }
            Some(Message::Notification { method }) => {
                if method == "notifications/cancelled" {
                    let id = param(line, &["requestId"]).map(Id::new);
                    let known = id.and_then(|id| self.to_answer.remove(&id));
                    self.check(known.is_some(), "only a question that is open is taken back");
                }
                if method == "notifications/tools/list_changed" {
                    let differs = self.servers.values().any(|s| Some(s.offer) != self.seen_offer);
                    let told = differs || std::mem::take(&mut self.unsure);
                    self.check(told, "a change is told only where there is one, or may be");
                    self.seen_offer = None;
                }
            }
            other => self.check(false, &format!("the client hears only messages, not {other:?}")),
        }
    }

    fn server_hears(&mut self, generation: u64, line: &[u8]) {
        writeln!(self.history, "    > server {generation} {}", String::from_utf8_lossy(line))
            .expect("a String takes all");
        let Some(mut server) = self.servers.remove(&generation) else {
            return self.check(false, "nothing is sent to an instance that is gone");
        };
        server.lines.push(match look(line) {
            Some(Message::Request { id, method, .. }) => Some((id, method == "tools/call")),
            _ => None,
        });
        match look(line) {
            Some(Message::Request { id, method, .. }) => {
                self.check(server.seen.insert(id.clone()), "no request reaches an instance twice");
                if !self.modern && !server.opened {
                    self.check(
                        method == "initialize",
                        "a legacy instance hears `initialize` first",
                    );
                }
                server.opened = true;
                if let Some(number) = param(line, &["number"])
                    .and_then(|raw| std::str::from_utf8(raw).ok()?.parse::<u64>().ok())
                    && !id.raw().starts_with(b"\"afresh:")
                    && self.sent.insert(id.clone())
                {
                    self.check(number >= server.last_number, "requests keep their order");
                    server.last_number = number;
                }
                if method != "subscriptions/listen" {
                    server.owes.push(id);
                }
            }
            Some(Message::Response { id: Some(id), .. }) => {
                self.check(server.asked.remove(&id), "an answer reaches the instance that asked");
            }
            Some(Message::Notification { method }) => {
                if method == "notifications/cancelled" {
                    let id = param(line, &["requestId"]).map(Id::new);
                    self.check(
                        id.is_some_and(|id| server.seen.contains(&id)),
                        "it knows what is cancelled",
                    );
                }
                self.check(
                    self.modern || server.opened,
                    "no notification comes before the session",
                );
            }
            other => self.check(false, &format!("a server hears only messages, not {other:?}")),
        }
        self.check(json::members(line).is_some(), "whole messages");
        self.servers.insert(generation, server);
    }

    #[track_caller]
    fn check(&self, holds: bool, promise: &str) {
        assert!(holds, "broken: {promise}\n{}", self.history);
    }
}

fn is_ours(id: &Id) -> bool {
    id.raw().starts_with(b"\"afresh:")
}

/// What a `tools/list` offers.
fn offered(line: &[u8]) -> Option<usize> {
    let tools = json::get(line, &["result", "tools"])?;
    let first = json::elements(tools)?.first()?.clone();
    json::get(&tools[first], &["name"]).and_then(json::text)?.strip_prefix('t')?.parse().ok()
}
