//! Whatever fails when: each request is answered once, and no tool is called twice.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::random::Random;

struct World {
    bench: Bench,
    random: Random,
    /// Exchanges under way: what for, and whether they are streams already.
    open: BTreeMap<u64, (Method, String, bool)>,
    /// The stream of the old transport, once it has said where messages go.
    main: Option<u64>,
    is_old: bool,
    asked: BTreeSet<String>,
    answered: BTreeSet<String>,
    cancelled: BTreeSet<String>,
    /// Calls that the server may have carried out.
    carried_out: BTreeSet<String>,
    /// Answers that are to come over the one stream.
    to_say: Vec<String>,
    next: u32,
    log: Vec<String>,
}

impl World {
    fn below(&mut self, n: usize) -> usize {
        (self.random.unit() * n as f64) as usize
    }

    fn note(&mut self, done: Vec<Done>) {
        for done in done {
            self.log.push(format!("  {done:?}"));
            match done {
                Done::Ask(exchange, method, _, _, body) => {
                    self.open.insert(exchange, (method, body, false));
                }
                Done::Finish(exchange) | Done::Drop(exchange) => {
                    self.open.remove(&exchange);
                    self.main.take_if(|main| *main == exchange);
                }
                Done::Tell(line, about) => self.heard(&line, about.as_ref()),
            }
        }
    }

    fn heard(&mut self, line: &str, about: Option<&String>) {
        if member(line, &["method"]).is_empty() {
            let id = member(line, &["id"]);
            assert_eq!(about, Some(&id));
            assert!(self.asked.contains(&id), "{id} was not asked\n{}", self.log.join("\n"));
            assert!(!self.cancelled.contains(&id), "{id} was cancelled");
            assert!(self.answered.insert(id.clone()), "{id} twice\n{}", self.log.join("\n"));
            // A hub whose session was not opened tries again.
            if id.starts_with("\"init") && line.contains("error") {
                self.begin();
            }
        }
    }

    fn begin(&mut self) {
        self.next += 1;
        let id = format!("init{}", self.next);
        self.asked.insert(format!("\"{id}\""));
        let line = INITIALIZE.replace(r#""i""#, &format!("\"{id}\""));
        let done = self.bench.line(&line);
        self.note(done);
    }

    fn input(&mut self, input: RemoteInput) {
        self.log.push(format!("{:?} {input:?}", self.bench.now));
        let done = self.bench.handle(input);
        self.note(done);
    }

    /// The answer to a request, whoever's it is.
    fn answer_to(body: &str) -> Option<String> {
        let id = member(body, &["id"]);
        let is_request = !id.is_empty() && !member(body, &["method"]).is_empty();
        is_request.then(|| INITIALIZE_RESULT.replace(r#""i""#, &id))
    }

    fn carry_out(&mut self, body: &str) {
        if member(body, &["method"]) == r#""tools/call""# {
            let id = member(body, &["id"]);
            assert!(self.carried_out.insert(id.clone()), "{id} ran twice\n{}", self.log.join("\n"));
        }
    }

    /// Something happens to one exchange.
    fn move_one(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.below(self.open.len());
        let Some((exchange, (method, body, is_stream))) =
            self.open.iter().nth(at).map(|(exchange, it)| (*exchange, it.clone()))
        else {
            return;
        };
        match (method, is_stream) {
            (_, true) => self.move_stream(exchange, &body),
            (Method::Get, false) => self.move_get(exchange),
            (_, false) => self.move_post(exchange, &body),
        }
    }

    fn move_get(&mut self, exchange: u64) {
        match self.below(6) {
            0 => self.fail(exchange, false),
            1 => {
                let status = [404, 405, 503, 401, 500][self.below(5)];
                self.reply(exchange, status, "");
            }
            _ => {
                self.open.entry(exchange).and_modify(|it| it.2 = true);
                self.input(RemoteInput::Opened { exchange: ExchangeId(exchange), session: None });
                if self.is_old {
                    self.main = Some(exchange);
                    let (name, data) = ("endpoint".to_owned(), b"/m".to_vec());
                    let event = SseEvent { name, data, ..SseEvent::default() };
                    self.input(RemoteInput::Event { exchange: ExchangeId(exchange), event });
                }
            }
        }
    }

    fn move_stream(&mut self, exchange: u64, body: &str) {
        match self.below(9) {
            0 => self.fail(exchange, true),
            1 => {
                self.open.remove(&exchange);
                self.main.take_if(|main| *main == exchange);
                self.input(RemoteInput::Ended { exchange: ExchangeId(exchange) });
            }
            2 => self.say(exchange, "", Some("e")),
            3 => self.say(exchange, r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, None),
            4 => self.say(exchange, &request("1", "roots/list", ""), None),
            5 => self.say(exchange, "nonsense", None),
            6 => self.say(exchange, &result("nobody"), Some("f")),
            7 if self.below(4) == 0 => {
                let event = SseEvent { is_too_long: true, ..SseEvent::default() };
                self.input(RemoteInput::Event { exchange: ExchangeId(exchange), event });
            }
            _ if self.main == Some(exchange) => {
                if let Some(line) = self.to_say.pop() {
                    self.say(exchange, &line, None);
                }
            }
            _ => {
                // A stream that was taken up has the answer of the one that broke.
                let answer = Self::answer_to(body).or_else(|| {
                    self.carried_out
                        .iter()
                        .next_back()
                        .map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#))
                });
                if let Some(line) = answer.filter(|_| !self.is_old) {
                    self.say(exchange, &line, None);
                    self.say(exchange, &line, None);
                }
            }
        }
    }

    fn say(&mut self, exchange: u64, data: &str, id: Option<&str>) {
        let (data, id) = (data.as_bytes().to_vec(), id.map(str::to_owned));
        let event = SseEvent { data, id, ..SseEvent::default() };
        self.input(RemoteInput::Event { exchange: ExchangeId(exchange), event });
    }

    fn move_post(&mut self, exchange: u64, body: &str) {
        let answer = Self::answer_to(body);
        match self.below(12) {
            0 => self.fail(exchange, false),
            1 => {
                self.carry_out(body);
                self.fail(exchange, true);
            }
            2 => self.reply(exchange, 404, ""),
            3 => {
                let status = [401, 429, 503][self.below(3)];
                self.reply(exchange, status, "");
            }
            4 => self.reply(exchange, 400, "no such session"),
            5 => {
                self.carry_out(body);
                // In the old transport the last of these means that the answer will come.
                let kinds = if self.is_old { 5 } else { 6 };
                let status = [500, 502, 504, 302, 418, 200][self.below(kinds)];
                self.reply(exchange, status, "<html>");
            }
            6 | 7 if !self.is_old => {
                self.carry_out(body);
                self.open.entry(exchange).and_modify(|it| it.2 = true);
                let session = Some("S".to_owned());
                self.input(RemoteInput::Opened { exchange: ExchangeId(exchange), session });
            }
            _ => self.serve(exchange, body, answer),
        }
    }

    /// All goes well.
    fn serve(&mut self, exchange: u64, body: &str, answer: Option<String>) {
        self.carry_out(body);
        match answer {
            Some(answer) if self.is_old => {
                self.to_say.push(answer);
                self.reply(exchange, 202, "");
            }
            Some(answer) => self.reply(exchange, 200, &answer),
            None => self.reply(exchange, 202, ""),
        }
    }

    fn reply(&mut self, exchange: u64, status: u16, body: &str) {
        self.open.remove(&exchange);
        let retry_after = (self.below(3) == 0).then(|| Duration::from_secs(3));
        let (session, body) = (Some("S".to_owned()), body.as_bytes().to_vec());
        let reply = HttpReply { status, session, retry_after, body, ..HttpReply::default() };
        self.input(RemoteInput::Replied { exchange: ExchangeId(exchange), reply });
    }

    fn fail(&mut self, exchange: u64, was_sent: bool) {
        self.open.remove(&exchange);
        self.main.take_if(|main| *main == exchange);
        let (exchange, why) = (ExchangeId(exchange), "why".to_owned());
        self.input(RemoteInput::Failed { exchange, was_sent, why });
    }

    fn ask(&mut self) {
        self.next += 1;
        let id = format!("r{}", self.next);
        let methods = ["tools/call", "tools/list", "resources/read", "x/y", "logging/setLevel"];
        let method = methods[self.below(methods.len())];
        self.asked.insert(format!("\"{id}\""));
        let line = request(&id, method, r#""level":"x""#);
        self.input(RemoteInput::Line(line.into_bytes()));
    }

    fn cancel(&mut self) {
        let open: Vec<String> = self.asked.difference(&self.answered).cloned().collect();
        let open: Vec<&String> = open.iter().filter(|id| !id.starts_with("\"init")).collect();
        if open.is_empty() {
            return;
        }
        let id = open[self.below(open.len())].clone();
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        self.cancelled.insert(id);
        self.input(RemoteInput::Line(line.into_bytes()));
    }

    fn pass(&mut self) {
        if let Some(at) = self.bench.remote.next_wakeup() {
            self.bench.now = self.bench.now.max(at);
            self.input(RemoteInput::Wakeup);
        }
    }

    /// The world is good from now on: everything is answered.
    fn heal(&mut self) {
        for _ in 0..5_000 {
            let posts: Vec<(u64, Method, String, bool)> =
                self.open.iter().map(|(at, (m, body, s))| (*at, *m, body.clone(), *s)).collect();
            for (exchange, method, body, is_stream) in posts {
                if !self.open.contains_key(&exchange) {
                    continue;
                }
                match (method, is_stream) {
                    (Method::Get, _) if self.is_old && self.main == Some(exchange) => {
                        for line in std::mem::take(&mut self.to_say) {
                            self.say(exchange, &line, None);
                        }
                    }
                    (Method::Get, false) if self.is_old => self.move_get(exchange),
                    (Method::Get, _) => self.reply_or_end(exchange, is_stream),
                    (_, true) => {
                        let answer = Self::answer_to(&body).unwrap_or_default();
                        self.say(exchange, &answer, None);
                        self.reply_or_end(exchange, true);
                    }
                    (_, false) => self.serve(exchange, &body, Self::answer_to(&body)),
                }
            }
            let owed =
                self.asked.difference(&self.answered).filter(|id| !self.cancelled.contains(*id));
            if owed.count() == 0 {
                return;
            }
            let is_busy = self.open.values().any(|(method, _, _)| *method == Method::Post);
            if !is_busy && (self.to_say.is_empty() || self.main.is_none()) {
                self.pass();
            }
        }
        let owed = self.asked.difference(&self.answered).filter(|id| !self.cancelled.contains(*id));
        let owed: Vec<&String> = owed.collect();
        let last = self.log.len().saturating_sub(60);
        panic!("not answered: {owed:?}\n{}", self.log[last..].join("\n"));
    }

    fn reply_or_end(&mut self, exchange: u64, is_stream: bool) {
        match is_stream {
            true => {
                self.open.remove(&exchange);
                self.input(RemoteInput::Ended { exchange: ExchangeId(exchange) });
            }
            false => self.reply(exchange, 405, ""),
        }
    }
}

#[test]
fn each_request_is_answered_once() {
    for seed in 0..300 {
        let is_old = seed % 3 == 0;
        let mut world = World {
            bench: Bench::new(Some(is_old)),
            random: Random::new(seed),
            open: BTreeMap::new(),
            main: None,
            is_old,
            asked: BTreeSet::new(),
            answered: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            carried_out: BTreeSet::new(),
            to_say: Vec::new(),
            next: 0,
            log: vec![format!("seed {seed}")],
        };
        world.begin();
        for _ in 0..120 {
            match world.below(12) {
                0..=2 => world.ask(),
                3 => world.cancel(),
                4 => world.pass(),
                5 if world.below(3) == 0 => world.input(RemoteInput::Line(INITIALIZED.into())),
                6 if world.below(20) == 0 => world.begin(),
                _ => world.move_one(),
            }
        }
        world.heal();
        assert!(world.bench.remote.traffic.requests.is_empty());
    }
}
