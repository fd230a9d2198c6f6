//! The machine, driven by what Claude Code 2.1.325 really said to a scripted model. The lines in `recorded/`
//! are cut to what may matter.

mod recorded;
mod strange;

use super::*;
use crate::agent::{AgentServer, ContextUse, Speaks, Spent};

/// A session and all that came of it.
struct Bench {
    claude: Claude,
    now: Stamp,
    heard: Vec<String>,
    written: Vec<serde_json::Value>,
}

impl Bench {
    /// One that has started, and was asked how full its context is.
    fn new() -> Self {
        Self::with(setup())
    }

    fn with(setup: Setup) -> Self {
        let now = Stamp::parse("2026-11-15T12:00:00Z").unwrap();
        let claude = Claude::new(setup);
        let mut bench = Self { claude, now, heard: Vec::new(), written: Vec::new() };
        bench.input(Input::Started);
        assert_eq!(bench.written.remove(0)["request"]["subtype"], "get_context_usage");
        bench
    }

    fn input(&mut self, input: Input<'_>) {
        for effect in self.claude.handle(self.now, input) {
            match effect {
                Effect::Write(bytes) => {
                    let line = bytes.strip_suffix(b"\n").unwrap();
                    assert!(!line.contains(&b'\n'));
                    self.written.push(serde_json::from_slice(line).unwrap());
                }
                Effect::Heard(heard) => self.heard.push(show(&heard)),
                Effect::CloseStdin => self.heard.push("close".to_owned()),
                Effect::WakeAfter(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn tell(&mut self, told: Instruction) {
        self.input(Input::Told(&told));
    }

    fn prompt(&mut self) {
        self.tell(Instruction::Prompt("do it".to_owned()));
    }

    fn line(&mut self, line: &str) {
        self.input(Input::Line(line.as_bytes()));
    }

    /// Plays a recording, with each of these told after the next line that has its mark in it.
    fn play(&mut self, recording: &str, told: &[(&str, Instruction)]) {
        let mut told = told.iter();
        let mut next = told.next();
        for line in recording.lines() {
            self.line(line);
            if let Some((mark, word)) = next
                && line.contains(mark)
            {
                self.tell(word.clone());
                next = told.next();
            }
        }
        assert!(next.is_none(), "not told: {next:?}");
    }

    /// What was heard beside numbers.
    fn without_numbers(&self) -> Vec<&str> {
        let is_number =
            |heard: &&String| heard.starts_with("context") || heard.starts_with("spent");
        self.heard.iter().filter(|heard| !is_number(heard)).map(String::as_str).collect()
    }

    fn last_of(&self, word: &str) -> &str {
        self.heard.iter().rfind(|heard| heard.starts_with(word)).unwrap()
    }
}

fn show(heard: &AgentEvent) -> String {
    match heard {
        AgentEvent::Ready { session, model } => format!("ready {session:?} {model:?}"),
        AgentEvent::Context(ContextUse { used, window, compacts_at, exact }) => {
            assert!(exact);
            let compacts = compacts_at.map_or_else(String::new, |at| format!(", compacts at {at}"));
            format!("context {used} of {}{compacts}", window.unwrap_or(0))
        }
        AgentEvent::Spent(Spent { input, cached, output, dollars, .. }) => {
            let dollars = dollars.map_or_else(String::new, |dollars| format!(" ${dollars:.4}"));
            format!("spent {input} ({cached}) + {output}{dollars}")
        }
        AgentEvent::Text(text) => format!("text {text}"),
        AgentEvent::ToolBegan { id, name, detail } => format!("{id} {name} {detail}"),
        AgentEvent::ToolEnded { id, succeeded } => {
            format!("{id} {}", if *succeeded { "succeeded" } else { "failed" })
        }
        AgentEvent::Compacted => "compacted".to_owned(),
        AgentEvent::Deaf => panic!("it hears"),
        AgentEvent::Retrying { attempt, why, at, failure } => {
            let at = at.map_or_else(String::new, |at| format!(" at {at}"));
            format!("retry {attempt} {failure:?} {why}{at}")
        }
        AgentEvent::TurnEnded(end) => match end {
            TurnEnd::Done(text) => format!("done {text}"),
            TurnEnd::Interrupted => "interrupted".to_owned(),
            TurnEnd::Failed { failure: TurnFailure::Limited { until: Some(until) }, why } => {
                format!("limited until {until}: {why}")
            }
            TurnEnd::Failed { failure, why } => format!("{failure:?}: {why}"),
        },
        AgentEvent::Strange(text) => format!("strange {text}"),
    }
}

fn setup() -> Setup {
    Setup {
        program: vec!["claude".to_owned()],
        folder: "/project".to_owned(),
        model: None,
        permission: Permission::Bypass,
        id: "00000000-0000-4000-8000-000000000001".to_owned(),
        port: 0,
        prompt: String::new(),
        servers: Vec::new(),
        file: "/state/servers.json".to_owned(),
        settings: None,
    }
}

#[test]
fn it_is_started_as_a_session_that_speaks_in_lines() {
    let server = AgentServer {
        name: "notes".to_owned(),
        command: ["afresh", "mcp", "--", "notes"].map(str::to_owned).to_vec(),
        rest: serde_json::from_str(r#"{"env":{"LEVEL":"3 \"x\""},"timeout":5}"#).unwrap(),
    };
    let setup = Setup {
        program: vec!["nice".to_owned(), "claude".to_owned()],
        model: Some("opus".to_owned()),
        permission: Permission::Edit,
        servers: vec![server],
        ..setup()
    };
    let start = Claude::new(setup).start();
    assert_eq!((start.speaks, start.stdin), (Speaks::Lines, Vec::new()));
    assert_eq!(start.argv[..3], ["nice", "claude", "-p"]);
    let after = |flag: &str| {
        let place = start.argv.iter().position(|word| word == flag).unwrap();
        start.argv[place + 1].as_str()
    };
    assert_eq!(after("--input-format"), "stream-json");
    assert_eq!(after("--session-id"), "00000000-0000-4000-8000-000000000001");
    assert_eq!(after("--model"), "opus");
    // The settings of a server must not be visible in a list of processes.
    assert_eq!(after("--mcp-config"), "/state/servers.json");
    let config: serde_json::Value = serde_json::from_slice(&start.file.unwrap()).unwrap();
    let server = &config["mcpServers"]["notes"];
    assert_eq!(server["command"], "afresh");
    assert_eq!(server["args"], serde_json::json!(["mcp", "--", "notes"]));
    assert_eq!((&server["env"]["LEVEL"], &server["timeout"]), (&"3 \"x\"".into(), &5.into()));
    // The flag before takes every value up to the next flag.
    assert_eq!(start.argv[start.argv.len() - 2..], ["--permission-mode", "acceptEdits"]);
    for name in ["DISABLE_AUTO_COMPACT", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] {
        assert!(start.env.contains(&(name.to_owned(), "1".to_owned())), "{name}");
    }
}

#[test]
fn each_permission_has_its_mode() {
    for (permission, mode) in [
        (Permission::Plan, "plan"),
        (Permission::Edit, "acceptEdits"),
        (Permission::Auto, "auto"),
        (Permission::Bypass, "bypassPermissions"),
    ] {
        let start = Claude::new(Setup { permission, ..setup() }).start();
        assert_eq!(start.argv.last().unwrap(), mode);
    }
}

#[test]
fn where_there_is_no_automatic_mode_it_may_at_least_edit() {
    let init = r#"{"type":"system","subtype":"init","session_id":"s","permissionMode":"default"}"#;
    let mut bench = Bench::with(Setup { permission: Permission::Auto, ..setup() });
    bench.prompt();
    bench.line(init);
    assert_eq!(bench.written[1]["request"]["subtype"], "set_permission_mode");
    assert_eq!(bench.written[1]["request"]["mode"], "acceptEdits");
    bench.line(&init.replace("default", "acceptEdits"));
    assert_eq!(bench.written.len(), 2);

    let mut bench = Bench::new();
    bench.line(init);
    assert!(bench.written.is_empty());
}

#[test]
fn it_is_ready_once_whatever_it_says_to_the_first_question() {
    let error = r#"{"type":"control_response","response":{"subtype":"error","request_id":"get_context_usage-1","error":"Unsupported control request subtype"}}"#;
    let init = r#"{"type":"system","subtype":"init","session_id":"its own","model":"m"}"#;
    let ours = "ready Some(\"00000000-0000-4000-8000-000000000001\") None";
    let mut bench = Bench::new();
    bench.line(error);
    bench.line(init);
    bench.input(Input::Wakeup);
    assert_eq!(bench.heard, [ours]);

    let mut bench = Bench::new();
    bench.line(init);
    bench.line(error);
    assert_eq!(bench.heard, ["ready Some(\"its own\") Some(\"m\")"]);

    // It does not know the question at all.
    let mut bench = Bench::new();
    bench.input(Input::Wakeup);
    assert_eq!(bench.heard, [ours]);
}

#[test]
fn nothing_is_said_to_one_that_was_told_to_end() {
    let mut bench = Bench::new();
    bench.tell(Instruction::End);
    for told in [
        Instruction::End,
        Instruction::Measure,
        Instruction::Interrupt,
        Instruction::Prompt("more".to_owned()),
    ] {
        bench.tell(told);
    }
    bench.line(include_str!("recorded/ask.jsonl").lines().find(|l| l.contains("can_use")).unwrap());
    assert_eq!(bench.heard, ["close"]);
    assert!(bench.written.is_empty());
}
