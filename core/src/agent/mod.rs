//! Owns the sessions of agent CLIs, in the same terms for all of them. Driven by the daemon, which performs their
//! effects. Never owns a process, a socket or a clock.
//!
//! The module of each agent translates its protocol into [`AgentEvent`] and [`Instruction`] into its protocol. Unknown messages are
//! dropped: these programs change every week.

mod claude;
mod codex;
mod command;
pub mod mcp_servers;
mod opencode;
mod stream;
mod token_estimate;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use serde_json::{Map, Value};

use self::mcp_servers::{ConfigFile, ProjectContext, ServerRules};
use crate::audit::redact::{KnownSecrets, Redaction};
use crate::limits::{AGENT_END_WAIT, AGENT_SERVER_END_WAIT};
use crate::service::Exit;
use crate::time::Stamp;

/// Declares the agents, in the order in which they are looked for: one line for the module of each.
macro_rules! agents {
    ($($kind:ident => $module:ident, $doc:literal;)+) => {
        /// An agent that afresh can drive.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum AgentKind {
            $(#[doc = $doc] $kind,)+
        }

        impl AgentKind {
            /// All of them, in the order in which they are looked for.
            pub const ALL: [Self; [$(Self::$kind),+].len()] = [$(Self::$kind),+];

            /// Everything that differs between agents outside of their sessions.
            pub const fn profile(self) -> &'static Profile {
                match self {
                    $(Self::$kind => &$module::PROFILE,)+
                }
            }
        }
    };
}

agents! {
    Claude => claude, "Claude Code, over its stream-json control channel.";
    Codex => codex, "Codex, over `codex app-server`.";
    Opencode => opencode, "opencode, over `opencode serve`.";
    Command => command, "Any command that takes a prompt: its use of the context is a guess.";
}

/// Everything that differs between agents outside of their sessions; the module of each agent has one.
#[derive(Debug)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// Whether it says what it costs.
    pub tells_cost: bool,
    /// The variable whose settings ours are laid over.
    pub settings_variable: Option<&'static str>,
    /// Makes the machine of a session; the second is a password that no other program knows.
    session: fn(Setup, String) -> Box<dyn AgentSession + Send>,
    /// Whether a line or an event is nothing but a piece of a text.
    is_delta: fn(&[u8]) -> bool,
    pub(crate) servers: ServerRules,
}

impl AgentKind {
    /// The words by which a user chooses: `auto`, and the name of each.
    pub const CHOICES: [&'static str; Self::ALL.len() + 1] = {
        let mut words = ["auto"; Self::ALL.len() + 1];
        let mut index = 0;
        while index < Self::ALL.len() {
            words[index + 1] = Self::ALL[index].name();
            index += 1;
        }
        words
    };

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        self.profile().name
    }

    /// The machine of a session that is to be started. A server of its own asks for the secret.
    pub fn session(self, setup: Setup, secret: String) -> Box<dyn AgentSession + Send> {
        (self.profile().session)(setup, secret)
    }

    /// Whether a line or an event is nothing but a piece of a text: they come by the hundred while its model
    /// speaks, and again whole when it has spoken. Looks only at the beginning: a piece that is written in another
    /// way is read like any other line, which takes longer.
    pub fn is_delta(self, bytes: &[u8]) -> bool {
        (self.profile().is_delta)(bytes)
    }

    /// The files that it would read to find its own MCP servers, the weakest first.
    pub fn config_files(self, context: &ProjectContext<'_>) -> Vec<ConfigFile> {
        let mut files = (self.profile().servers.files)(context);
        // In the user's own folder some are the same; then the last counts.
        let mut seen = std::collections::BTreeSet::new();
        files.reverse();
        files.retain(|file| seen.insert(file.clone()));
        files.reverse();
        files
    }
}

/// What an agent may do without asking, least first. A run has no user to ask: the rest is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// It reads, and writes nothing.
    Plan,
    /// It edits files of its folder, and runs what its own settings allow.
    #[default]
    Edit,
    /// It runs all that it wants, within the agent's own sandbox where it has one.
    Auto,
    /// Everything.
    Bypass,
}

/// A session that is to be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// The program and arguments that come before ours.
    pub program: Vec<String>,
    /// The folder that it works in.
    pub folder: String,
    /// The model, where it is not the agent's usual one.
    pub model: Option<String>,
    /// What it may do.
    pub permission: Permission,
    /// A unique id, for agents whose sessions are named from outside: a UUID.
    pub id: String,
    /// The port that opencode's server is to listen on.
    pub port: u16,
    /// The first prompt, for those who get it when they start.
    pub prompt: String,
    /// MCP servers that are laid over its own of the same name.
    pub servers: Vec<AgentServer>,
    /// A file that only this user can read, for an agent that takes servers from nowhere else.
    pub file: String,
    /// The value that the variable `settings_variable` of its profile has already.
    pub settings: Option<String>,
}

/// An MCP server that an agent is to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentServer {
    /// Its name in the agent.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What else its entry says, in the agent's own words; nothing where that stays as it is.
    pub rest: Map<String, Value>,
}

/// How the process of an agent is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Variables on top of ours.
    pub env: Vec<(String, String)>,
    /// What it finds on its stdin, which is closed after it unless lines are spoken.
    pub stdin: Vec<u8>,
    /// How it is spoken with.
    pub speaks: Speaks,
    /// What has to be in [`Setup::file`] before it starts.
    pub file: Option<Vec<u8>>,
}

/// How an agent is spoken with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// Lines on stdin and stdout.
    Lines,
    /// HTTP on a port of this machine, with server-sent events; its output is only its log.
    Http {
        /// The port.
        port: u16,
        /// The `authorization` header of each request to it, where it has a password.
        authorization: Option<String>,
    },
    /// Not at all: its stdout is what it says, and its end is the end of its only turn.
    Output,
}

impl Speaks {
    /// How long one that was told to end may take by itself. A server does not end for that: it only gets the time
    /// to break off what it does.
    pub const fn end_wait(&self) -> Duration {
        match self {
            Self::Http { .. } => AGENT_SERVER_END_WAIT,
            Self::Lines => AGENT_END_WAIT,
            // One that hears nothing is not asked.
            Self::Output => Duration::ZERO,
        }
    }
}

/// A request over HTTP, so that its answer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What happened to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Input<'a> {
    /// Its process runs.
    Started,
    /// A line of its stdout, without its end.
    Line(&'a [u8]),
    /// The data of a server-sent event.
    Event(&'a [u8]),
    /// A request was answered.
    Answer {
        /// Which.
        request: RequestId,
        /// The status.
        status: u16,
        /// The body.
        body: &'a [u8],
    },
    /// A request, or the stream of events, got no answer.
    Failed {
        /// Which; none for the stream of events.
        request: Option<RequestId>,
        /// Why.
        why: &'a str,
    },
    /// An instruction for it.
    Told(&'a Instruction),
    /// Its process and all that it started are gone.
    Ended(&'a Exit),
    /// The time that the machine asked for is over.
    Wakeup,
}

/// What a session is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Begin a turn with this. Only between turns.
    Prompt(String),
    /// Hear this in the turn that runs, at its next step. Between turns it is a prompt.
    Steer(String),
    /// End the turn that runs, now.
    Interrupt,
    /// How full is the context? Where the agent can be asked.
    Measure,
    /// There is nothing more to do: end.
    End,
}

/// What a machine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write this to its stdin, all of it.
    Write(Vec<u8>),
    /// Close its stdin.
    CloseStdin,
    /// Ask its server.
    Request {
        /// Which.
        request: RequestId,
        /// The method.
        method: &'static str,
        /// The path, with its query.
        path: String,
        /// The body, as JSON.
        body: Vec<u8>,
    },
    /// Listen to the events of its server at this path, from now on.
    Listen {
        /// The path.
        path: String,
    },
    /// Give a [`Input::Wakeup`] after this long, instead of any that was asked for before.
    WakeAfter(Duration),
    /// Hand this on.
    Heard(AgentEvent),
}

/// An event of a session, in the same terms for all agents.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentEvent {
    /// It can be given a prompt.
    Ready {
        /// The session, as the agent calls it.
        session: Option<String>,
        /// The model, where it says so.
        model: Option<String>,
    },
    /// It hears nothing while it works: it can be ended, and that is all.
    Deaf,
    /// How full the context is now.
    Context(ContextUse),
    /// What the session has used in all, its subagents included.
    Spent(Spent),
    /// The agent said something.
    Text(String),
    /// It uses a tool.
    ToolBegan {
        /// This use of it.
        id: String,
        /// The tool.
        name: String,
        /// On what: a line for people, cut to [`crate::limits::AGENT_DETAIL_CHARS_MAX`].
        detail: String,
    },
    /// A tool has ended.
    ToolEnded {
        /// This use of it.
        id: String,
        /// Whether it succeeded.
        succeeded: bool,
    },
    /// The agent has put its context together by itself: something was lost.
    Compacted,
    /// The agent tries a call of its model again by itself.
    Retrying {
        /// The number of the try.
        attempt: u32,
        /// Why.
        why: String,
        /// When, where it says so.
        at: Option<Stamp>,
        /// What failed, as far as that is known.
        failure: TurnFailure,
    },
    /// The turn has ended.
    TurnEnded(TurnEnd),
    /// A line or event that could not be read at all, cut.
    Strange(String),
}

impl AgentEvent {
    /// The same, with a mark where a secret stood. What an agent said goes into the prompts of sessions after it.
    #[must_use]
    pub fn without_secrets(mut self, secrets: &KnownSecrets) -> Self {
        let (text, level) = match &mut self {
            Self::Text(text) | Self::TurnEnded(TurnEnd::Done(text)) => (text, Redaction::Prompts),
            Self::Strange(text)
            | Self::ToolBegan { detail: text, .. }
            | Self::Retrying { why: text, .. }
            | Self::TurnEnded(TurnEnd::Failed { why: text, .. }) => (text, Redaction::Records),
            Self::Ready { .. }
            | Self::Deaf
            | Self::Context(_)
            | Self::Spent(_)
            | Self::ToolEnded { .. }
            | Self::Compacted
            | Self::TurnEnded(TurnEnd::Interrupted) => return self,
        };
        if let std::borrow::Cow::Owned(redacted) = secrets.redact(text, level) {
            *text = redacted;
        }
        self
    }
}

/// How full a context is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextUse {
    /// Tokens in it.
    pub used: u64,
    /// How many it can have, where that is known.
    pub window: Option<u64>,
    /// Where the agent would put it together by itself.
    pub compacts_at: Option<u64>,
    /// Whether the agent counted, or we guess.
    pub exact: bool,
}

/// What a session has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Tokens that went in, those from a cache included.
    pub input: u64,
    /// Of those, the ones from a cache.
    pub cached: u64,
    /// Tokens that came out.
    pub output: u64,
    /// What it cost, in US dollars, where the agent says so.
    pub dollars: Option<f64>,
    /// Whether some of it is our guess, since the agent does not say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guessed: bool,
}

impl Spent {
    /// Tokens in and out, as people read them.
    pub fn shown_tokens(&self) -> String {
        format!("{}{} tokens", if self.guessed { "about " } else { "" }, self.tokens())
    }

    /// Tokens in and out; where an agent says more than can be counted, as many as can be.
    pub const fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Both together. What an agent says is not always possible: nothing costs less than nothing, and tokens are
    /// counted as far as they can be.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let dollars_of = |spent: Self| spent.dollars.map(|dollars| dollars.max(0.0));
        let dollars = match (dollars_of(self), dollars_of(other)) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        let guessed = self.guessed || other.guessed;
        Self { dollars, guessed, ..self.with_tokens(other, u64::saturating_add) }
    }

    /// The same, with each count of tokens made of this one and the other.
    fn with_tokens(self, other: Self, made: fn(u64, u64) -> u64) -> Self {
        Self {
            input: made(self.input, other.input),
            cached: made(self.cached, other.cached),
            output: made(self.output, other.output),
            ..self
        }
    }
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// The agent is done, and said this at the end.
    Done(String),
    /// It was interrupted.
    Interrupted,
    /// It failed.
    Failed {
        /// What kind of failure it is.
        failure: TurnFailure,
        /// What the agent says of it.
        why: String,
    },
}

/// Why a turn failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnFailure {
    /// What was asked does not fit into the context.
    Overflow,
    /// The use of the model is limited until then.
    Limited {
        /// Until when, where it is said.
        until: Option<Stamp>,
    },
    /// The model has too much to do.
    Overloaded,
    /// The model cannot be reached, or its server fails.
    Unreachable,
    /// The agent has no right to use its model.
    Unauthorized,
    /// A budget of the agent's own is used up.
    Budget,
    /// Something else.
    Other,
}

/// The machine of one session.
pub trait AgentSession {
    /// How its process is started.
    fn start(&self) -> Start;

    /// Takes in what happened, and says what to do.
    fn handle(&mut self, now: Stamp, input: Input<'_>) -> Vec<Effect>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_can_end_by_itself_is_waited_for() {
        let server = Speaks::Http { port: 1, authorization: None };
        assert!(server.end_wait() < Speaks::Lines.end_wait());
        assert_eq!(Speaks::Output.end_wait(), Duration::ZERO);
    }

    #[test]
    fn deltas_are_known_by_their_beginning() {
        let claude = r#"{"type":"stream_event","event":{"type":"content_block_delta","index":0}}"#;
        let codex = r#"{"method":"item/commandExecution/outputDelta","params":{}}"#;
        let opencode = r#"{"type":"message.part.delta","properties":{}}"#;
        let whole = [
            r#"{"type":"stream_event","event":{"type":"message_delta","usage":{"output_tokens":77}}}"#,
            r#"{"type":"assistant","message":{"content_block_delta":1}}"#,
            r#"{"method":"item/completed","params":{"item":"delta"}}"#,
            r#"{"type":"message.part.updated","properties":{}}"#,
            r#"{"method":"item/delta"#,
            "",
        ];
        for kind in AgentKind::ALL {
            let is_delta = |line: &str| kind.is_delta(line.as_bytes());
            assert_eq!(is_delta(claude), kind == AgentKind::Claude);
            assert_eq!(is_delta(codex), kind == AgentKind::Codex);
            assert_eq!(is_delta(opencode), kind == AgentKind::Opencode);
            let with_id = opencode.replacen('{', r#"{"id":"evt_1","#, 1);
            assert_eq!(is_delta(&with_id), kind == AgentKind::Opencode);
            assert!(!whole.into_iter().any(is_delta), "{kind:?}");
        }
    }

    #[test]
    fn whatever_an_agent_says_is_without_secrets() {
        let secrets = KnownSecrets::of([("API_KEY", "open sesame")]);
        let said = || "curl -H open sesame".to_owned();
        let (id, name) = ("1".to_owned(), "Bash".to_owned());
        for heard in [
            AgentEvent::Text(said()),
            AgentEvent::Strange(said()),
            AgentEvent::ToolBegan { id, name, detail: said() },
            AgentEvent::Retrying { attempt: 1, why: said(), at: None, failure: TurnFailure::Other },
            AgentEvent::TurnEnded(TurnEnd::Done(said())),
            AgentEvent::TurnEnded(TurnEnd::Failed { failure: TurnFailure::Other, why: said() }),
        ] {
            let heard = format!("{:?}", heard.without_secrets(&secrets));
            assert!(!heard.contains("sesame") && heard.contains("[redacted]"), "{heard}");
        }
    }
}
