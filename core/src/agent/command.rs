//! Any command that takes a prompt and prints what it has to say.
//!
//! It gets its only prompt when it starts, and its only turn ends with its process. It cannot be steered, and to
//! interrupt it is to end its process: this machine only remembers that it was wanted. Its window is unknown.

use super::token_estimate::{length, tokens};
use super::{
    AgentEvent, AgentSession, ContextUse, Effect, Input, Instruction, Profile, Setup, Speaks,
    Spent, Start, TurnEnd, TurnFailure,
};
use crate::limits::{AGENT_GUESS_STEP, AGENT_TEXT_CHARS_MAX};
use crate::service::Exit;
use crate::text::{cut, tail};
use crate::time::Stamp;

/// What stands for the prompt in an argument.
const PROMPT: &str = "{prompt}";

pub(super) const PROFILE: Profile = Profile {
    name: "command",
    tells_cost: false,
    settings_variable: None,
    session: |setup, _| Box::new(CommandSession::new(setup)),
    is_delta: |_| false,
    servers: super::mcp_servers::NO_SERVERS,
};

/// A session of a command.
#[derive(Debug, Default)]
pub(super) struct CommandSession {
    setup: Setup,
    chars: u64,
    guessed: u64,
    tail: String,
    over: bool,
    interrupted: bool,
}

impl CommandSession {
    /// A session that has not been started.
    pub(super) fn new(setup: Setup) -> Self {
        Self { chars: length(&setup.prompt), setup, ..Self::default() }
    }

    /// What it has in its context, and what it has used: nothing more is known of that.
    fn guesses(&mut self) -> [Effect; 2] {
        self.guessed = tokens(self.chars);
        let used = self.guessed;
        let context = ContextUse { used, window: None, compacts_at: None, exact: false };
        let input = tokens(length(&self.setup.prompt));
        let output = used.saturating_sub(input);
        let spent = Spent { input, output, guessed: true, ..Spent::default() };
        [AgentEvent::Context(context), AgentEvent::Spent(spent)].map(Effect::Heard)
    }

    fn line(&mut self, line: &[u8]) -> Vec<Effect> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\r');
        self.chars = self.chars.saturating_add(length(text)).saturating_add(1);
        if text.trim().is_empty() {
            return Vec::new();
        }
        let text = cut(text, AGENT_TEXT_CHARS_MAX);
        // The end of all that was said is kept.
        if !self.tail.is_empty() {
            self.tail.push('\n');
        }
        self.tail.push_str(&text);
        // Cut now and then: no text has more characters than bytes, and none less than a quarter as many.
        if self.tail.len() > 8 * AGENT_TEXT_CHARS_MAX {
            self.tail = tail(&self.tail, AGENT_TEXT_CHARS_MAX).to_owned();
        }
        let mut effects = vec![Effect::Heard(AgentEvent::Text(text))];
        if tokens(self.chars) >= self.guessed.saturating_add(AGENT_GUESS_STEP) {
            effects.extend(self.guesses());
        }
        effects
    }

    fn ended(&mut self, exit: &Exit) -> Vec<Effect> {
        if std::mem::replace(&mut self.over, true) {
            return Vec::new();
        }
        let tail = tail(&self.tail, AGENT_TEXT_CHARS_MAX).to_owned();
        let end = match exit {
            // It was faster than the interrupt.
            Exit::Code(0) => TurnEnd::Done(tail),
            _ if self.interrupted => TurnEnd::Interrupted,
            other => {
                let why = match tail.lines().next_back() {
                    Some(last) => format!("it {other}: {last}"),
                    None => format!("it {other}"),
                };
                TurnEnd::Failed { failure: TurnFailure::Other, why }
            }
        };
        self.guesses().into_iter().chain([Effect::Heard(AgentEvent::TurnEnded(end))]).collect()
    }
}

impl AgentSession for CommandSession {
    fn start(&self) -> Start {
        let prompt = &self.setup.prompt;
        let mut argv = self.setup.program.clone();
        let arguments = argv.get_mut(1..).unwrap_or_default();
        let takes_argument = arguments.iter().any(|argument| argument.contains(PROMPT));
        arguments.iter_mut().for_each(|argument| *argument = argument.replace(PROMPT, prompt));
        Start {
            argv,
            env: Vec::new(),
            stdin: if takes_argument { Vec::new() } else { prompt.clone().into_bytes() },
            speaks: Speaks::Output,
            file: None,
        }
    }

    fn handle(&mut self, _now: Stamp, input: Input<'_>) -> Vec<Effect> {
        match input {
            Input::Started => {
                let ready = AgentEvent::Ready { session: None, model: self.setup.model.clone() };
                let begins = [AgentEvent::Deaf, ready].map(Effect::Heard);
                begins.into_iter().chain(self.guesses()).collect()
            }
            Input::Line(line) if !self.over => self.line(line),
            Input::Told(Instruction::Interrupt | Instruction::End) => {
                self.interrupted = true;
                Vec::new()
            }
            Input::Told(Instruction::Measure) => self.guesses().into(),
            Input::Ended(exit) => self.ended(exit),
            // Its prompt is the one that it was started with; it hears no other.
            Input::Told(Instruction::Prompt(_) | Instruction::Steer(_))
            | Input::Line(_)
            | Input::Event(_)
            | Input::Answer { .. }
            | Input::Failed { .. }
            | Input::Wakeup => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Permission;

    fn setup(program: &[&str], prompt: &str) -> Setup {
        Setup {
            program: program.iter().map(|&word| word.to_owned()).collect(),
            folder: "/work".to_owned(),
            model: None,
            permission: Permission::Edit,
            id: "0".to_owned(),
            port: 0,
            prompt: prompt.to_owned(),
            servers: Vec::new(),
            file: String::new(),
            settings: None,
        }
    }

    fn heard(command: &mut CommandSession, input: Input<'_>) -> Vec<AgentEvent> {
        let effects = command.handle(Stamp::default(), input);
        let heard = effects.into_iter().map(|effect| match effect {
            Effect::Heard(heard) => heard,
            other => panic!("{other:?}"),
        });
        heard.collect()
    }

    fn guesses(input: u64, output: u64) -> [AgentEvent; 2] {
        let used = input + output;
        let context = ContextUse { used, window: None, compacts_at: None, exact: false };
        let spent = Spent { input, cached: 0, output, dollars: None, guessed: true };
        [AgentEvent::Context(context), AgentEvent::Spent(spent)]
    }

    #[test]
    fn the_prompt_goes_where_it_is_wanted_else_to_stdin() {
        let start = CommandSession::new(setup(&["tool", "-m", "do: {prompt}!"], "a $b")).start();
        assert_eq!(start.argv, ["tool", "-m", "do: a $b!"]);
        assert_eq!((start.stdin, start.speaks), (Vec::new(), Speaks::Output));
        let start = CommandSession::new(setup(&["tool", "-"], "a {prompt} b")).start();
        assert_eq!(start.argv, ["tool", "-"]);
        assert_eq!(start.stdin, b"a {prompt} b");
    }

    #[test]
    fn a_turn_is_the_life_of_the_process() {
        let mut command = CommandSession::new(setup(&["tool"], &"x".repeat(400)));
        let ready = AgentEvent::Ready { session: None, model: None };
        let [context, spent] = guesses(130, 0);
        assert_eq!(heard(&mut command, Input::Started), [AgentEvent::Deaf, ready, context, spent]);
        assert_eq!(
            heard(&mut command, Input::Line(b"one\r")),
            [AgentEvent::Text("one".to_owned())]
        );
        assert_eq!(heard(&mut command, Input::Line(b" ")), []);
        let steer = Instruction::Steer("stop".to_owned());
        assert_eq!(heard(&mut command, Input::Told(&steer)), []);
        assert_eq!(heard(&mut command, Input::Line(b"two")), [AgentEvent::Text("two".to_owned())]);
        let [context, spent] = guesses(130, 3);
        assert_eq!(
            heard(&mut command, Input::Ended(&Exit::Code(0))),
            [context, spent, AgentEvent::TurnEnded(TurnEnd::Done("one\ntwo".to_owned()))]
        );
        assert_eq!(heard(&mut command, Input::Ended(&Exit::Code(0))), []);
    }

    #[test]
    fn a_guess_is_said_again_when_it_has_grown() {
        let mut command = CommandSession::new(setup(&["tool"], ""));
        heard(&mut command, Input::Started);
        assert_eq!(heard(&mut command, Input::Line(&[b'x'; 786])).len(), 1);
        assert_eq!(heard(&mut command, Input::Line(b"x"))[1..], guesses(0, 256));
        assert_eq!(heard(&mut command, Input::Told(&Instruction::Measure)), guesses(0, 256));
    }

    #[test]
    fn a_failure_says_how_and_what_was_said_last() {
        let cases: [(&[&[u8]], Exit, bool, TurnEnd); 5] = [
            (
                &[b"no such model"],
                Exit::Code(2),
                false,
                failed("it exited with code 2: no such model"),
            ),
            (&[], Exit::Signal(9), false, failed("it ended by signal 9 (SIGKILL)")),
            (&[b"half"], Exit::Signal(15), true, TurnEnd::Interrupted),
            (&[b"all"], Exit::Code(0), true, TurnEnd::Done("all".to_owned())),
            (&[], Exit::Code(0), false, TurnEnd::Done(String::new())),
        ];
        for (lines, exit, interrupted, end) in cases {
            let mut command = CommandSession::new(setup(&["tool"], "go"));
            for line in lines {
                heard(&mut command, Input::Line(line));
            }
            if interrupted {
                heard(&mut command, Input::Told(&Instruction::Interrupt));
            }
            let said = heard(&mut command, Input::Ended(&exit));
            assert_eq!(said.last(), Some(&AgentEvent::TurnEnded(end)));
        }
    }

    fn failed(why: &str) -> TurnEnd {
        TurnEnd::Failed { failure: TurnFailure::Other, why: why.to_owned() }
    }

    #[test]
    fn only_the_end_of_much_output_is_kept() {
        let mut command = CommandSession::new(setup(&["tool"], "go"));
        for number in 0..10_000 {
            let line = format!("{number} {}", "ä".repeat(100));
            heard(&mut command, Input::Line(line.as_bytes()));
        }
        heard(&mut command, Input::Line(&[0xff; 100_000]));
        heard(&mut command, Input::Line(b"last"));
        let said = heard(&mut command, Input::Ended(&Exit::Code(0)));
        let Some(AgentEvent::TurnEnded(TurnEnd::Done(text))) = said.last() else {
            panic!("{said:?}")
        };
        assert!(text.ends_with("\nlast"));
        assert_eq!(text.chars().count(), AGENT_TEXT_CHARS_MAX);
    }
}
