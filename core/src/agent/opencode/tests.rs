//! The machine against what a real opencode 1.18.33 said, with a scripted model behind it.
//!
//! In a recording, a line that begins with `>` is what the session was told at that moment; the others are events.
//! They were cut to the fields that matter, and their ids and times are others.

mod fuzz;
mod gaps;
mod opening;

use super::*;
use crate::agent::{AgentServer, Permission, Speaks};
use crate::service::Exit;

const WINDOWS: &str = r#"{"providers":[
    {"id":"other","models":{"m":{"limit":{"context":1000}}}},
    {"id":"mock","models":{"m":{"limit":{"context":200000,"output":8192}},"odd":{"limit":{}}}}
],"default":{"mock":"m"}}"#;

fn setup() -> Setup {
    Setup {
        program: vec!["opencode".to_owned()],
        folder: "/project".to_owned(),
        model: None,
        permission: Permission::Edit,
        id: "5e7a".to_owned(),
        port: 4100,
        prompt: String::new(),
        servers: Vec::new(),
        file: "/state/servers.json".to_owned(),
        settings: None,
    }
}

/// A session and the server that it speaks with.
struct Pair {
    session: Opencode,
    now: Stamp,
    heard: Vec<String>,
    /// What was asked and has no answer: the request, and its method and path.
    asked: Vec<(RequestId, String)>,
    bodies: Vec<String>,
    wake_after: Option<Duration>,
    listens: u32,
}

impl Pair {
    fn new(setup: Setup) -> Self {
        Self {
            session: Opencode::new(setup, String::new()),
            now: moment(1_794_780_000_000),
            heard: Vec::new(),
            asked: Vec::new(),
            bodies: Vec::new(),
            wake_after: None,
            listens: 0,
        }
    }

    /// One whose session is open.
    fn ready() -> Self {
        let mut pair = Self::new(setup());
        pair.put(Input::Started);
        pair.answer("GET /global/health", 200, r#"{"healthy":true,"version":"1.18.33"}"#);
        pair.event(r#"{"type":"server.connected","properties":{}}"#);
        pair.answer("GET /config/providers", 200, WINDOWS);
        pair.answer("POST /session", 200, r#"{"id":"ses_1","title":"afresh"}"#);
        assert_eq!(pair.news(), ["ready ses_1"]);
        pair
    }

    /// One that has heard a recording.
    fn after(recording: &str) -> Self {
        let mut pair = Self::ready();
        pair.play(recording);
        pair
    }

    fn play(&mut self, recording: &str) {
        for line in recording.lines() {
            let Some(told) = line.strip_prefix("> ") else {
                self.event(line);
                continue;
            };
            let (verb, text) = told.split_once(' ').unwrap_or((told, ""));
            match verb {
                "prompt" => self.tell(&Instruction::Prompt(text.to_owned())),
                "steer" => self.tell(&Instruction::Steer(text.to_owned())),
                _ => self.tell(&Instruction::Interrupt),
            }
            let path = match verb {
                "interrupt" => "POST /session/ses_1/abort",
                _ => "POST /session/ses_1/prompt_async",
            };
            self.answer(path, if verb == "interrupt" { 200 } else { 204 }, "");
        }
    }

    fn put(&mut self, input: Input<'_>) {
        for effect in self.session.handle(self.now, input) {
            match effect {
                Effect::Heard(heard) => self.heard.push(show(&heard)),
                Effect::Request { request, method, path, body } => {
                    self.asked.push((request, format!("{method} {path}")));
                    self.bodies.push(String::from_utf8(body).expect("JSON"));
                }
                Effect::Listen { path } => {
                    assert_eq!(path, "/event");
                    self.listens += 1;
                }
                Effect::WakeAfter(after) => self.wake_after = Some(after),
                other @ (Effect::Write(_) | Effect::CloseStdin) => panic!("{other:?}"),
            }
        }
    }

    fn event(&mut self, event: &str) {
        self.put(Input::Event(event.as_bytes()));
    }

    fn tell(&mut self, told: &Instruction) {
        self.put(Input::Told(told));
    }

    /// Lets the time pass that the machine asked for.
    fn wake(&mut self) {
        let after = self.wake_after.take().expect("it asked to be woken");
        self.now = Stamp::since_unix_epoch(
            Duration::from_nanos(u64::try_from(self.now.unix_nanos()).unwrap()) + after,
        );
        self.put(Input::Wakeup);
    }

    fn take(&mut self, path: &str) -> RequestId {
        let at = self.asked.iter().position(|(_, asked)| asked == path);
        let at = at.unwrap_or_else(|| panic!("{path} was not asked: {:?}", self.asked));
        self.asked.remove(at).0
    }

    fn answer(&mut self, path: &str, status: u16, body: &str) {
        let request = self.take(path);
        self.put(Input::Answer { request, status, body: body.as_bytes() });
    }

    fn fail(&mut self, path: &str) {
        let request = self.take(path);
        self.put(Input::Failed { request: Some(request), why: "connection reset" });
    }

    fn has_asked(&self, path: &str) -> bool {
        self.asked.iter().any(|(_, asked)| asked == path)
    }

    /// What was heard since the last time.
    fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.heard)
    }
}

fn show(heard: &AgentEvent) -> String {
    match heard {
        AgentEvent::Ready { session, model } => {
            let words =
                ["ready".to_owned()].into_iter().chain(session.clone()).chain(model.clone());
            words.collect::<Vec<_>>().join(" ")
        }
        AgentEvent::Context(ContextUse { used, window, compacts_at: None, exact: true }) => {
            format!("context {used}/{}", window.map_or("?".to_owned(), |window| window.to_string()))
        }
        AgentEvent::Spent(spent) => {
            let dollars = spent.dollars.expect("opencode says what it costs");
            format!("spent {}({})+{} ${dollars:.6}", spent.input, spent.cached, spent.output)
        }
        AgentEvent::Text(text) => format!("text {text}"),
        AgentEvent::ToolBegan { id, name, detail } => format!("tool {id} {name}: {detail}"),
        AgentEvent::ToolEnded { id, succeeded } => format!("tool {id} ended {succeeded}"),
        AgentEvent::TurnEnded(TurnEnd::Done(text)) => format!("done {text}"),
        AgentEvent::TurnEnded(TurnEnd::Interrupted) => "interrupted".to_owned(),
        AgentEvent::TurnEnded(TurnEnd::Failed { failure, why }) => {
            format!("failed {failure:?}: {why}")
        }
        AgentEvent::Retrying { attempt, why, at: Some(at), .. } => {
            format!("retry {attempt} at {at}: {why}")
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn a_turn_with_a_tool() {
    let mut pair = Pair::after(include_str!("recorded/tool.jsonl"));
    assert_eq!(
        pair.news(),
        [
            "tool prt_04 bash: echo hello; sleep 1",
            "text Let me see.",
            "tool prt_04 ended true",
            "spent 1000(400)+20 $0.002220",
            "context 1020/200000",
            "text Done: TOOL please",
            "spent 4040(400)+32 $0.011520",
            "context 3052/200000",
            "done Done: TOOL please",
        ]
    );
    pair.tell(&Instruction::Measure);
    assert_eq!(pair.news(), ["context 3052/200000"]);
}

#[test]
fn a_word_during_a_turn_is_taken_at_the_next_step() {
    let mut pair = Pair::after(include_str!("recorded/steer.jsonl"));
    let news = pair.news();
    assert_eq!(news.iter().filter(|line| line.starts_with("done")).count(), 1, "{news:?}");
    assert_eq!(news.last().unwrap(), "done Done: WRAP UP");
    assert!(pair.bodies.contains(&r#"{"parts":[{"type":"text","text":"WRAP UP"}]}"#.to_owned()));
}

#[test]
fn an_interrupted_turn_ends_once_and_the_next_begins() {
    let mut pair = Pair::after(include_str!("recorded/abort.jsonl"));
    assert_eq!(
        pair.news(),
        [
            "spent 8090(0)+44 $0.024930",
            "tool prt_04 bash: sleep 60; echo over",
            "text Working.",
            "tool prt_04 ended true",
            "interrupted",
            "text Done: handoff",
            "spent 11210(0)+56 $0.034470",
            "context 3132/200000",
            "done Done: handoff",
        ]
    );
}

/// The first idle comes when the interrupt is taken, the second when the tool has ended: with a prompt in between,
/// the second must not end its turn.
#[test]
fn the_late_end_of_an_interrupted_turn_ends_no_other() {
    let recording = include_str!("recorded/abort.jsonl");
    let (before, late) = recording.split_at(recording.find("> prompt handoff").unwrap());
    let idle = r#"{"type":"session.idle","properties":{"sessionID":"ses_1"}}"#;
    for events_before_late_idle in 1..6 {
        let mut pair = Pair::after(before);
        assert_eq!(pair.news().last().unwrap(), "interrupted");
        let mut mixed: Vec<&str> = late.lines().collect();
        mixed.insert(events_before_late_idle, idle);
        pair.play(&mixed.join("\n"));
        let ends: Vec<String> =
            pair.news().into_iter().filter(|line| line.starts_with("done")).collect();
        assert_eq!(ends, ["done Done: handoff"], "{events_before_late_idle}");
    }
}

#[test]
fn what_it_asks_is_answered() {
    let pair = Pair::after(include_str!("recorded/refused.jsonl"));
    assert!(pair.has_asked("POST /permission/per_01/reply"));
    assert!(pair.bodies.last().unwrap().starts_with(r#"{"reply":"reject","message":"#));
    assert_eq!(pair.heard.last().unwrap(), "done Done: FAILS please");
    assert!(pair.heard.contains(&"tool prt_03 ended false".to_owned()), "{:?}", pair.heard);

    let pair = Pair::after(include_str!("recorded/question.jsonl"));
    assert!(pair.has_asked("POST /question/que_01/reject"));
    assert_eq!(pair.heard.last().unwrap(), "done ");

    for (permission, asked, reply) in [
        (Permission::Plan, "bash", "reject"),
        (Permission::Auto, "bash", "once"),
        (Permission::Auto, "doom_loop", "reject"),
        (Permission::Bypass, "external_directory", "once"),
    ] {
        let mut pair = Pair::ready();
        pair.session.setup.permission = permission;
        let about = json!({"id": "per_1", "sessionID": "ses_9", "permission": asked});
        pair.event(&json!({"type": "permission.asked", "properties": about}).to_string());
        let body: Value = serde_json::from_str(pair.bodies.last().unwrap()).unwrap();
        assert_eq!(body["reply"], reply, "{permission:?} {asked}");
    }
}

#[test]
fn what_a_subagent_uses_is_spent_and_no_context() {
    let mut pair = Pair::after(include_str!("recorded/subagent.jsonl"));
    assert_eq!(
        pair.news(),
        [
            // What its own turns before used.
            "spent 21100(800)+150 $0.063390",
            "tool prt_04 task: Look around",
            "text I ask another.",
            "spent 21550(800)+159 $0.064875",
            "spent 22050(800)+168 $0.066510",
            "tool prt_04 ended true",
            "spent 23550(800)+198 $0.071460",
            "context 1530/200000",
            "text Done: SUBAGENT",
            "spent 26820(800)+210 $0.081450",
            "context 3282/200000",
            "done Done: SUBAGENT",
        ]
    );
    // Unknown sessions are passed over.
    let alien = include_str!("recorded/tool.jsonl").replace("ses_1", "ses_9");
    for line in alien.lines().filter(|line| !line.starts_with('>')) {
        pair.event(line);
    }
    assert_eq!(pair.news(), Vec::<String>::new());
}

#[test]
fn failures_are_told_apart() {
    let last = |recording: &str| Pair::after(recording).heard.pop().unwrap();
    assert_eq!(
        last(include_str!("recorded/unauthorized.jsonl")),
        "failed Unauthorized: Incorrect API key provided"
    );
    let overflow = last(include_str!("recorded/overflow.jsonl"));
    assert!(overflow.starts_with("failed Overflow: This model's maximum context"), "{overflow}");

    let template = include_str!("recorded/unauthorized.jsonl");
    for (status, headers, failure) in [
        (403, "{}", "Unauthorized"),
        (529, "{}", "Overloaded"),
        (500, "{}", "Unreachable"),
        (502, "{}", "Unreachable"),
        (400, "{}", "Other"),
        (429, "{}", "Limited { until: None }"),
        (429, r#"{"retry-after":"60"}"#, "Limited { until: Some(Stamp(1794780060s)) }"),
    ] {
        let recording = template
            .replace("\"statusCode\":401", &format!("\"statusCode\":{status}"))
            .replace(r#"{"content-type":"application/json"}"#, headers);
        assert_eq!(last(&recording), format!("failed {failure}: Incorrect API key provided"));
    }
    for words in ["Unable to connect. Is the computer able to access the url?", "read ECONNRESET"] {
        let recording = template.replace("\"statusCode\":401,", "");
        let recording = recording.replace("Incorrect API key provided", words);
        assert_eq!(last(&recording), format!("failed Unreachable: {words}"));
    }
    let auth = template.replace("APIError", "ProviderAuthError").replace("401", "null");
    assert_eq!(last(&auth), "failed Unauthorized: Incorrect API key provided");
}

#[test]
fn silent_retries_are_heard() {
    let mut pair = Pair::after(include_str!("recorded/limited.jsonl"));
    let news = pair.news();
    let retries: Vec<&String> = news.iter().filter(|line| line.starts_with("retry")).collect();
    assert_eq!(
        retries,
        [
            "retry 1 at 2026-11-15T22:08:05.129Z: Rate limit reached for requests",
            "retry 2 at 2026-11-15T22:08:08.156Z: Rate limit reached for requests",
            "retry 3 at 2026-11-15T22:08:11.178Z: Rate limit reached for requests",
        ]
    );
    assert_eq!(news.last().unwrap(), "interrupted");
}

#[test]
fn a_compaction_is_heard_and_is_no_context() {
    let mut pair = Pair::after(include_str!("recorded/compacted.jsonl"));
    let news = pair.news();
    let kept = news.iter().filter(|line| !line.starts_with("spent"));
    let kept: Vec<&str> = kept.map(|line| &line[..line.len().min(30)]).collect();
    assert_eq!(
        kept,
        [
            "text Full.",
            "context 199020/200000",
            "Compacted",
            "text Done: Continue if you hav",
            "context 3052/200000",
            "done Done: Continue if you hav",
        ]
    );
}

#[test]
fn overflows_without_end_are_ended() {
    let recording = include_str!("recorded/loop.jsonl");
    let third = recording.rfind("ContextOverflowError").unwrap();
    let third = third + recording[third..].find('\n').unwrap() + 1;
    let mut pair = Pair::after(&recording[..third]);
    pair.answer("POST /session/ses_1/abort", 200, "true");
    pair.play(&recording[third..]);
    let end = pair.heard.pop().unwrap();
    assert!(end.starts_with("failed Overflow: This model's maximum context"), "{end}");
    assert!(pair.heard.iter().filter(|line| *line == "Compacted").count() >= 2);

    // A step that succeeds in between makes it no loop.
    let mut pair = Pair::ready();
    let step =
        include_str!("recorded/tool.jsonl").lines().find(|line| line.contains("step-finish"));
    let overflow = recording.lines().find(|line| line.contains("ContextOverflowError")).unwrap();
    pair.tell(&Instruction::Prompt("go".to_owned()));
    for number in 0..10 {
        pair.event(overflow);
        pair.event(&step.unwrap().replace("prt_", &format!("prt_{number}")));
    }
    assert!(!pair.has_asked("POST /session/ses_1/abort"));
}

#[test]
fn the_end_of_the_process_ends_the_turn() {
    let mut pair = Pair::after(include_str!("recorded/killed.jsonl"));
    pair.news();
    pair.put(Input::Failed { request: None, why: "connection reset" });
    pair.put(Input::Ended(&Exit::Signal(9)));
    assert_eq!(
        pair.news(),
        ["tool prt_04 ended false", "failed Other: it ended by signal 9 (SIGKILL)"]
    );
    pair.wake();
    pair.put(Input::Ended(&Exit::Signal(9)));
    assert_eq!((pair.news(), pair.listens), (Vec::new(), 1));

    let mut idle = Pair::ready();
    idle.tell(&Instruction::End);
    idle.put(Input::Ended(&Exit::Code(0)));
    assert_eq!(idle.news(), Vec::<String>::new());
}
