//! Real conversations with Codex, and broken ones.
//!
//! The files in `recorded/` are what codex-cli 0.166.0 and this machine said to each other, with a model that
//! follows a script: `<` is a line of Codex, `>` one of ours, `!` what the machine was told. Paths and ids are
//! not the real ones, and members that are not read were cut in all but `shell`.

use std::collections::VecDeque;
use std::time::Duration;

use super::*;
use crate::agent::TurnFailure;
use crate::agent::{AgentServer, ContextUse, Permission, Spent};
use crate::random::Random;

const NOW: Stamp = Stamp::since_unix_epoch(Duration::from_secs(1_794_780_640));

const RECORDED: [&str; 15] = [
    include_str!("recorded/shell.txt"),
    include_str!("recorded/steer.txt"),
    include_str!("recorded/late.txt"),
    include_str!("recorded/interrupt.txt"),
    include_str!("recorded/early_interrupt.txt"),
    include_str!("recorded/limited.txt"),
    include_str!("recorded/rate.txt"),
    include_str!("recorded/overflow.txt"),
    include_str!("recorded/overflow400.txt"),
    include_str!("recorded/overloaded.txt"),
    include_str!("recorded/unauthorized.txt"),
    include_str!("recorded/compact.txt"),
    include_str!("recorded/killed.txt"),
    include_str!("recorded/tools.txt"),
    include_str!("recorded/subagent.txt"),
];

fn setup() -> Setup {
    Setup {
        program: vec!["codex".to_owned()],
        folder: "/project".to_owned(),
        model: None,
        permission: Permission::Bypass,
        id: "id".to_owned(),
        port: 1,
        prompt: "unused".to_owned(),
        servers: Vec::new(),
        file: "/state/servers.json".to_owned(),
        settings: None,
    }
}

/// A session, and what came of it.
struct World {
    codex: Codex,
    heard: Vec<AgentEvent>,
    written: VecDeque<Value>,
    closed: bool,
}

impl World {
    fn new(setup: Setup) -> Self {
        Self {
            codex: Codex::new(setup),
            heard: Vec::new(),
            written: VecDeque::new(),
            closed: false,
        }
    }

    /// One that can be given a prompt.
    fn open() -> Self {
        let mut world = Self::new(setup());
        world.put(Input::Started);
        world.line(r#"{"id":1,"result":{}}"#);
        world.line(r#"{"id":2,"result":{"thread":{"id":"t"},"model":"m"}}"#);
        world.written.clear();
        world.heard.clear();
        world
    }

    fn put(&mut self, input: Input<'_>) {
        for effect in self.codex.handle(NOW, input) {
            match effect {
                Effect::Heard(heard) => self.heard.push(heard),
                Effect::Write(line) => {
                    assert!(!self.closed, "nothing is written after the end");
                    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
                    self.written.push_back(serde_json::from_slice(&line).expect("it writes JSON"));
                }
                Effect::CloseStdin => self.closed = true,
                other => panic!("{other:?} is nothing that codex needs"),
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.put(Input::Line(line.as_bytes()));
    }

    fn tell(&mut self, told: &Instruction) {
        self.put(Input::Told(told));
    }

    fn ends(&self) -> Vec<&TurnEnd> {
        let mut ends = Vec::new();
        for heard in &self.heard {
            if let AgentEvent::TurnEnded(end) = heard {
                ends.push(end);
            }
        }
        ends
    }
}

/// Plays a recording: the machine must say what was said then. Returns what is heard.
fn replay(recorded: &str, setup: Setup) -> World {
    let mut world = World::new(setup);
    for line in recorded.lines() {
        let (kind, rest) = line.split_at(2);
        if kind != "> " {
            assert_eq!(world.written.pop_front(), None, "said before: {line}");
        }
        match (kind, rest) {
            ("< ", rest) => world.line(rest),
            ("> ", rest) => {
                let rest = rest.replace("0.1.0", env!("CARGO_PKG_VERSION"));
                let expected: Value = serde_json::from_str(&rest).expect("recorded JSON");
                assert_eq!(world.written.pop_front(), Some(expected));
            }
            (_, "started") => world.put(Input::Started),
            (_, "interrupt") => world.tell(&Instruction::Interrupt),
            (_, "end") => world.tell(&Instruction::End),
            (_, "killed") => world.put(Input::Ended(&Exit::Signal(9))),
            (_, told) => world.tell(&match told.split_once(' ').expect("a word and a text") {
                ("prompt", text) => Instruction::Prompt(text.to_owned()),
                (_, text) => Instruction::Steer(text.to_owned()),
            }),
        }
    }
    assert_eq!(world.written, [] as [Value; 0]);
    world
}

fn heard_in(recorded: &str) -> Vec<AgentEvent> {
    let world = replay(recorded, setup());
    assert!(matches!(&world.heard[0], AgentEvent::Ready { session, model }
        if session.as_deref() == Some("thread-1") && model.as_deref() == Some("gpt-5.4")));
    world.heard[1..].to_vec()
}

fn context(used: u64, exact: bool) -> AgentEvent {
    let (window, compacts_at) = (Some(258_400), Some(244_800));
    AgentEvent::Context(ContextUse { used, window, compacts_at, exact })
}

fn spent(input: u64, cached: u64, output: u64) -> AgentEvent {
    AgentEvent::Spent(Spent { input, cached, output, dollars: None, guessed: false })
}

fn began(id: &str, name: &str, detail: &str) -> AgentEvent {
    let text = str::to_owned;
    AgentEvent::ToolBegan { id: text(id), name: text(name), detail: text(detail) }
}

fn ended(id: &str, succeeded: bool) -> AgentEvent {
    AgentEvent::ToolEnded { id: id.to_owned(), succeeded }
}

fn said(text: &str) -> AgentEvent {
    AgentEvent::Text(text.to_owned())
}

fn done(text: &str) -> AgentEvent {
    AgentEvent::TurnEnded(TurnEnd::Done(text.to_owned()))
}

#[test]
fn a_turn_with_a_shell() {
    let expected = [
        began("c1", "shell", "echo hello; pwd"),
        ended("c1", true),
        context(1050, true),
        spent(1000, 400, 50),
        began("c2", "shell", "exit 3"),
        ended("c2", false),
        context(1250, true),
        spent(2200, 1400, 100),
        said("all done"),
        context(1520, true),
        spent(3700, 2400, 120),
        done("all done"),
    ];
    let world = replay(RECORDED[0], setup());
    assert_eq!(world.heard[1..], expected);
    assert!(world.closed);
}

#[test]
fn a_steer_is_heard_in_its_turn() {
    let heard = heard_in(include_str!("recorded/steer.txt"));
    assert_eq!(
        heard[4..],
        [said("wrapped up"), context(2050, true), spent(3000, 0, 100), done("wrapped up")]
    );
}

#[test]
fn a_steer_that_comes_too_late_begins_a_turn() {
    // The steer was on its way when the turn ended: it is one turn for those who listen.
    let heard = heard_in(include_str!("recorded/late.txt"));
    let expected = [
        said("answer 0"),
        context(1050, true),
        spent(1000, 0, 50),
        said("answer 1"),
        context(1051, true),
        spent(2001, 0, 100),
        done("answer 1"),
    ];
    assert_eq!(heard, expected);
}

#[test]
fn an_interrupted_turn_is_followed_by_a_handoff() {
    let heard = heard_in(include_str!("recorded/interrupt.txt"));
    let expected = [
        began("c1", "shell", "sleep 30"),
        context(1050, true),
        spent(1000, 0, 50),
        // Codex says nothing of the tool that it killed.
        ended("c1", false),
        AgentEvent::TurnEnded(TurnEnd::Interrupted),
        said("handoff text"),
        context(2050, true),
        spent(3000, 0, 100),
        done("handoff text"),
    ];
    assert_eq!(heard, expected);
}

#[test]
fn an_interrupt_waits_until_the_turn_has_begun() {
    // Between its answer and `turn/started`, Codex says that there is nothing to interrupt, and goes on.
    let heard = heard_in(include_str!("recorded/early_interrupt.txt"));
    assert_eq!(heard, [AgentEvent::TurnEnded(TurnEnd::Interrupted)]);
}

/// How the only turn of a recording failed.
fn failure_in(recorded: &str) -> (TurnFailure, String) {
    let world = replay(recorded, setup());
    match world.ends().as_slice() {
        [TurnEnd::Failed { failure, why }] => (*failure, why.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_limit_is_told_with_its_end() {
    let recorded = include_str!("recorded/limited.txt");
    let (failure, why) = failure_in(recorded);
    let resets_at = recorded.split("\"resetsAt\":").nth(1).and_then(|rest| rest.split('}').next());
    let seconds = resets_at.expect("it was recorded").parse().expect("a number");
    let until = Some(Stamp::since_unix_epoch(Duration::from_secs(seconds)));
    assert_eq!(failure, TurnFailure::Limited { until });
    assert!(why.contains("usage limit"), "{why}");

    let (failure, _) = failure_in(include_str!("recorded/rate.txt"));
    assert_eq!(failure, TurnFailure::Limited { until: None });
}

#[test]
fn an_overflow_is_a_full_context_and_loses_no_count() {
    let heard = heard_in(include_str!("recorded/overflow.txt"));
    let expected = [
        began("c0", "shell", "true"),
        ended("c0", true),
        context(150_100, true),
        spent(150_000, 0, 100),
        began("c1", "shell", "true"),
        ended("c1", true),
        // The second call is as large as the first.
        spent(300_000, 0, 200),
        context(258_400, false),
    ];
    assert_eq!(heard[..8], expected);
    let AgentEvent::TurnEnded(TurnEnd::Failed { failure, .. }) = &heard[8] else {
        panic!("{heard:?}")
    };
    assert_eq!(*failure, TurnFailure::Overflow);
    assert_eq!(heard[9..], [said("x"), context(3030, true), spent(303_000, 1000, 230), done("x")]);

    let (failure, _) = failure_in(include_str!("recorded/overflow400.txt"));
    assert_eq!(failure, TurnFailure::Overflow, "a provider of its own kind");
}

#[test]
fn a_failure_of_the_model_has_its_kind() {
    let heard = heard_in(include_str!("recorded/overloaded.txt"));
    let why = "stream disconnected before completion: stream closed before response.completed";
    let (why, failure) = (why.to_owned(), TurnFailure::Unreachable);
    assert_eq!(heard[0], AgentEvent::Retrying { attempt: 1, why, at: None, failure });
    let (failure, why) = failure_in(include_str!("recorded/overloaded.txt"));
    assert_eq!(failure, TurnFailure::Overloaded);
    assert!(why.contains("at capacity"), "{why}");
    let (failure, why) = failure_in(include_str!("recorded/unauthorized.txt"));
    assert_eq!(failure, TurnFailure::Unauthorized);
    assert!(why.contains("bad key"), "{why}");
}

#[test]
fn a_compaction_is_told_once() {
    let heard = heard_in(include_str!("recorded/compact.txt"));
    let compactions = heard.iter().filter(|heard| **heard == AgentEvent::Compacted).count();
    assert_eq!(compactions, 1, "{heard:?}");
    let guessed = heard.iter().filter(
        |heard| matches!(heard, AgentEvent::Context(context) if !context.exact && context.used < 20_000),
    );
    assert_eq!(guessed.count(), 1, "what is left is a guess of codex: {heard:?}");

    let mut world = World::open();
    world.line(r#"{"method":"thread/compacted","params":{"threadId":"t","turnId":"u"}}"#);
    assert_eq!(world.heard, [AgentEvent::Compacted], "from those that have no item for it");
}

#[test]
fn the_end_of_the_process_ends_the_turn() {
    let heard = heard_in(include_str!("recorded/killed.txt"));
    assert_eq!(heard[..2], [began("c1", "shell", "sleep 3"), ended("c1", false)]);
    let AgentEvent::TurnEnded(TurnEnd::Failed { failure, why }) = &heard[2] else {
        panic!("{heard:?}")
    };
    assert_eq!((*failure, heard.len()), (TurnFailure::Other, 3));
    assert!(why.contains("codex ended in its turn"), "{why}");

    let mut world = World::open();
    world.put(Input::Ended(&Exit::Code(0)));
    assert_eq!(world.heard, [], "no turn has ended");
}

#[test]
fn tools_of_each_kind() {
    let server = AgentServer {
        name: "srv".to_owned(),
        command: vec!["python3".to_owned(), "/project/server.py".to_owned()],
        rest: serde_json::Map::new(),
    };
    let world =
        replay(include_str!("recorded/tools.txt"), Setup { servers: vec![server], ..setup() });
    let is_tool = |heard: &&AgentEvent| {
        matches!(heard, AgentEvent::ToolBegan { .. } | AgentEvent::ToolEnded { .. })
    };
    let tools: Vec<AgentEvent> = world.heard.iter().filter(is_tool).cloned().collect();
    let expected = [
        began("c1", "edit", "/project/new.txt"),
        ended("c1", true),
        began("c2", "mcp__srv__add", r#"{"a":1}"#),
        ended("c2", false),
        began("c3", "mcp__srv__ask", "{}"),
        ended("c3", true),
    ];
    assert_eq!(tools, expected);
}

#[test]
fn a_subagent_costs_and_fills_nothing() {
    let heard = heard_in(include_str!("recorded/subagent.txt"));
    let largest = heard.iter().filter_map(|heard| match heard {
        AgentEvent::Context(context) => Some(context.used),
        _ => None,
    });
    assert_eq!(largest.max(), Some(1250), "the subagent had 7070");
    let last = heard.iter().rfind(|heard| matches!(heard, AgentEvent::Spent(_)));
    assert_eq!(last, Some(&spent(4350 + 7000, 0, 200 + 70)));
    assert!(!heard.contains(&said("child says hi")));
    assert!(heard.contains(&began("c1", "spawnAgent", "child task")));
    assert_eq!(heard.last(), Some(&done("parent done")), "and one turn has ended: {heard:?}");
    assert_eq!(heard.iter().filter(|heard| matches!(heard, AgentEvent::TurnEnded(_))).count(), 1);
}

#[test]
fn a_thread_is_opened_as_it_was_asked_for() {
    let server = AgentServer {
        name: "my.odd name".to_owned(),
        command: vec!["npx".to_owned(), "-y".to_owned()],
        rest: serde_json::Map::new(),
    };
    let opened = |permission| {
        let model = Some("m".to_owned());
        let servers = vec![server.clone()];
        let mut world = World::new(Setup { permission, model, servers, ..setup() });
        let start = world.codex.start();
        assert_eq!((start.argv, start.env), (vec!["codex".into(), "app-server".into()], vec![]));
        world.put(Input::Started);
        world.line(r#"{"id":1,"result":{}}"#);
        let params = world.written.pop_back().expect("thread/start")["params"].take();
        assert_eq!((&params["model"], &params["approvalPolicy"]), (&json!("m"), &json!("never")));
        params
    };
    let settings = |permission| {
        let params = opened(permission);
        let network = params["config"]["sandbox_workspace_write"]["network_access"].clone();
        let server = params["config"]["mcp_servers"]["my.odd name"].clone();
        // All else is as the user has it, also which tools are allowed.
        assert_eq!(server, json!({ "command": "npx", "args": ["-y"] }));
        assert_eq!(params.get("cwd"), None, "Codex would note down that the project is trusted");
        (params["sandbox"].clone(), network)
    };
    assert_eq!(settings(Permission::Plan), (json!("read-only"), Value::Null));
    assert_eq!(settings(Permission::Edit), (json!("workspace-write"), Value::Null));
    assert_eq!(settings(Permission::Auto), (json!("workspace-write"), json!(true)));
    assert_eq!(settings(Permission::Bypass), (json!("danger-full-access"), Value::Null));
}

#[test]
fn a_session_that_is_not_opened_fails() {
    let mut world = World::new(setup());
    world.put(Input::Started);
    world.line(r#"{"id":1,"result":{}}"#);
    let error = "failed to load configuration: url is not supported for stdio";
    world.line(&format!(r#"{{"id":2,"error":{{"code":-32600,"message":"{error}"}}}}"#));
    let why = format!("codex did not open a session: {error}");
    let failed = TurnEnd::Failed { failure: TurnFailure::Other, why };
    assert_eq!(world.heard, [AgentEvent::TurnEnded(failed)]);
    assert!(world.closed, "and there is nothing to wait for");
    world.tell(&Instruction::Prompt("x".to_owned()));
    assert_eq!((world.ends().len(), world.written.len()), (2, 3), "a prompt is not swallowed");
}

#[test]
fn a_turn_that_is_refused_has_ended() {
    let mut world = World::open();
    world.tell(&Instruction::Prompt("x".to_owned()));
    world.line(r#"{"id":3,"error":{"code":-32600,"message":"no such thread"}}"#);
    let failed = TurnEnd::Failed { failure: TurnFailure::Other, why: "no such thread".to_owned() };
    assert_eq!(world.heard, [AgentEvent::TurnEnded(failed)]);
    world.tell(&Instruction::Prompt("y".to_owned()));
    assert_eq!(world.written.len(), 2, "another can begin");
}

#[test]
fn what_is_told_before_the_turn_is_known_is_not_lost() {
    let mut world = World::open();
    world.tell(&Instruction::Prompt("x".to_owned()));
    world.tell(&Instruction::Steer("y".to_owned()));
    world.tell(&Instruction::Interrupt);
    world.line(r#"{"id":3,"result":{"turn":{"id":"u"}}}"#);
    world.line(r#"{"id":4,"result":{"turn":{"id":"u"}}}"#);
    assert_eq!(world.written.len(), 2, "the interrupt waits");
    world.line(r#"{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}"#);
    let methods: Vec<&Value> = world.written.iter().map(|line| &line["method"]).collect();
    assert_eq!(methods, ["turn/start", "turn/start", "turn/interrupt"]);
    // As soon as it is over, a second interrupt finds nothing.
    let end = r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"interrupted"}}}"#;
    world.line(end);
    world.line(end);
    world.tell(&Instruction::Interrupt);
    assert_eq!(
        (world.heard, world.written.len()),
        (vec![AgentEvent::TurnEnded(TurnEnd::Interrupted)], 3)
    );
}

#[test]
fn a_failed_turn_forgets_what_it_was_to_hear() {
    let mut world = World::open();
    world.tell(&Instruction::Prompt("x".to_owned()));
    world.line(r#"{"id":3,"result":{"turn":{"id":"u"}}}"#);
    world.tell(&Instruction::Steer("y".to_owned()));
    world.line(r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"failed"}}}"#);
    world.line(r#"{"id":4,"error":{"code":-32600,"message":"no active turn to steer"}}"#);
    assert_eq!((world.ends().len(), world.written.len()), (1, 2), "whoever hears it decides anew");
}

#[test]
fn whatever_codex_asks_is_answered() {
    let answer = |method: &str, id: &str| {
        let mut world = World::open();
        world.line(&format!(r#"{{"method":"{method}","id":{id},"params":{{"threadId":"t"}}}}"#));
        assert_eq!(world.heard, []);
        world.written.pop_front().expect("an answer")
    };
    let result = |method| {
        let answer = answer(method, "0");
        assert_eq!((&answer["id"], answer.get("error")), (&json!(0), None));
        answer["result"].clone()
    };
    let decline = json!({ "decision": "decline" });
    assert_eq!(result("item/commandExecution/requestApproval"), decline);
    assert_eq!(result("item/fileChange/requestApproval"), decline);
    assert!(result("execCommandApproval")["decision"]["denied"]["rejection"].is_string());
    assert!(result("applyPatchApproval")["decision"]["denied"]["rejection"].is_string());
    assert_eq!(result("item/tool/requestUserInput"), json!({ "answers": {} }));
    assert_eq!(result("mcpServer/elicitation/request")["action"], "decline");
    let nothing = json!({ "permissions": {}, "scope": "turn" });
    assert_eq!(result("item/permissions/requestApproval"), nothing);
    assert_eq!(result("item/tool/call")["success"], false);
    for method in ["attestation/generate", "account/chatgptAuthTokens/refresh", "new/thing"] {
        let answer = answer(method, r#""a\"b""#);
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("a\"b"), &json!(-32601)));
    }
}

#[test]
fn what_cannot_be_read_is_strange_and_what_is_unknown_is_not() {
    let mut world = World::open();
    world.line(r#"{"method":"new/thing","params":{"threadId":"t"}}"#);
    world.line(
        r#"{"method":"item/started","params":{"threadId":"t","item":{"type":"new","id":"i"}}}"#,
    );
    world.line(r#"{"id":77,"result":{}}"#);
    world.line("  ");
    assert_eq!((&world.heard, world.written.len()), (&vec![], 0));
    world.line(&"ä".repeat(5000));
    let [AgentEvent::Strange(cut)] = world.heard.as_slice() else { panic!("{:?}", world.heard) };
    assert_eq!(cut.chars().count(), AGENT_DETAIL_CHARS_MAX + 1);
}

#[test]
fn texts_are_cut() {
    let mut world = World::open();
    let long = "ab\\n".repeat(100_000);
    world.line(&format!(
        r#"{{"method":"item/completed","params":{{"threadId":"t","item":{{"type":"agentMessage","id":"i","text":"{long}"}}}}}}"#
    ));
    world.line(&format!(
        r#"{{"method":"item/started","params":{{"threadId":"t","item":{{"type":"commandExecution","id":"c","command":"{long}"}}}}}}"#
    ));
    let [AgentEvent::Text(text), AgentEvent::ToolBegan { detail, .. }] = world.heard.as_slice()
    else {
        panic!("two things are heard")
    };
    assert_eq!(text.chars().count(), crate::limits::AGENT_TEXT_CHARS_MAX + 1);
    assert!(detail.chars().count() <= AGENT_DETAIL_CHARS_MAX + 1 && !detail.contains('\n'));
}

/// Lines of the recordings, whole, cut, changed and mixed, with all else that can happen.
#[test]
fn no_line_brings_it_down() {
    let lines: Vec<&str> = RECORDED.iter().flat_map(|recorded| recorded.lines()).collect();
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut world = World::new(setup());
        let mut running = 0_i64;
        for _ in 0..200 {
            let pick = |random: &mut Random, from: usize| random.bits() as usize % from;
            let line = lines[pick(&mut random, lines.len())];
            let mut bytes = line.as_bytes()[2..].to_vec();
            match pick(&mut random, 12) {
                0 => bytes.truncate(pick(&mut random, bytes.len() + 1)),
                1 | 2 => {
                    let place = pick(&mut random, bytes.len());
                    bytes[place] = random.bits() as u8;
                }
                3 => {
                    let (from, to) =
                        (pick(&mut random, bytes.len()), pick(&mut random, bytes.len()));
                    bytes.drain(from.min(to)..from.max(to));
                }
                _ => {}
            }
            let text = format!("text {}", random.bits() % 10);
            let before = world.heard.len();
            match pick(&mut random, 40) {
                0 => world.put(Input::Started),
                1 | 2 => world.tell(&Instruction::Prompt(text)),
                3 | 4 => world.tell(&Instruction::Steer(text)),
                5 => world.tell(&Instruction::Interrupt),
                6 => world.tell(&Instruction::Measure),
                7 if seed % 3 == 0 => world.tell(&Instruction::End),
                8 if seed % 5 == 0 => world.put(Input::Ended(&Exit::Unknown)),
                9 => world.put(Input::Wakeup),
                _ => world.put(Input::Line(&bytes)),
            }
            for heard in &world.heard[before..] {
                match heard {
                    AgentEvent::ToolBegan { .. } => running += 1,
                    AgentEvent::ToolEnded { .. } => running -= 1,
                    _ => {}
                }
            }
            assert!(running >= 0, "seed {seed}: a tool ends once");
            assert!(world.codex.waiting.len() <= AGENT_REQUESTS_MAX, "seed {seed}");
            assert!(world.codex.unheard.len() <= AGENT_REQUESTS_MAX, "seed {seed}");
            world.written.clear();
        }
    }
}

#[test]
fn its_memory_has_a_bound() {
    let mut world = World::open();
    world.tell(&Instruction::Prompt("x".to_owned()));
    world.line(r#"{"id":3,"result":{"turn":{"id":"u"}}}"#);
    for number in 0..5000 {
        world.tell(&Instruction::Steer("y".to_owned()));
        world.line(&format!(
            r#"{{"method":"item/started","params":{{"threadId":"t","item":{{"type":"sleep","id":"{number}"}}}}}}"#
        ));
        world.line(&format!(
            r#"{{"method":"thread/tokenUsage/updated","params":{{"threadId":"{number:05}","tokenUsage":{{"total":{{"totalTokens":3,"inputTokens":2,"outputTokens":1}},"last":{{"totalTokens":3,"inputTokens":2,"outputTokens":1}}}}}}}}"#
        ));
    }
    assert_eq!(world.codex.waiting.len(), AGENT_REQUESTS_MAX);
    assert_eq!(world.codex.tools.0.len(), crate::limits::AGENT_TOOLS_MAX);
    let last = world.heard.iter().rfind(|heard| matches!(heard, AgentEvent::Spent(_)));
    assert_eq!(last, Some(&spent(10_000, 0, 5000)), "no count is lost");
}
